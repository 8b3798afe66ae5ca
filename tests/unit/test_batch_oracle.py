"""EASY and CONSERVATIVE against the schedules of independent simulators: every start of a year of KTH's SP2.

Their rules: 100 whole nodes; at one instant submissions come before terminations, in the order of the file. A job's
size is what it was allocated; it runs as long as in the log, but no longer than requested; its estimate is the larger
of the two, except that the eight jobs that ran for 0 s are estimated at the 1 s they are given. Conservative
reservations are kept; when a job ends, those of waiting jobs move to earlier places, one by one in the order of
submission.
"""

import numpy as np
import pytest

from dfrs.model.jobs import Workload
from dfrs.model.run import Action
from dfrs.simulator.simulation import Simulation, SimulationSettings
from dfrs.workloads.swf import read_swf
from tests.small_policies import BATCH
from tests.traces import TRACES, needs_traces

ORACLES = TRACES.parent / "oracle"
NODES = 100


def workload_by_its_rules():
    trace = read_swf(TRACES / "KTH-SP2-1996-2.1-cln-REBUILT.swf.gz")
    jobs = len(trace)
    longer_s = np.maximum(np.maximum(trace.requested_s, trace.run_s), 1.0)
    return Workload(
        job_id=trace.job_id,
        submit_s=trace.submit_s,
        tasks=np.minimum(trace.processors, NODES),
        need=np.ones(jobs),
        memory=np.zeros(jobs),
        run_s=np.maximum(np.minimum(trace.requested_s, trace.run_s), 1.0),
        estimate_s=np.where(trace.run_s > 0, longer_s, 1.0),
        user=trace.user,
        weight=np.ones(jobs),
        nodes=NODES,
    )


@needs_traces
@pytest.mark.parametrize("name", ["EASY", "CONSERVATIVE"])
def test_every_job_starts_and_ends_when_the_other_simulator_lets_it(name):
    oracle = ORACLES / f"{name.lower()}_KTH-SP2.csv.gz"
    if not oracle.is_file():
        pytest.skip(f"the schedule is not at {oracle}")
    theirs = np.loadtxt(oracle, delimiter=",", skiprows=1)
    workload = workload_by_its_rules()
    events = Simulation(workload, BATCH[name](), name, SimulationSettings(order="submissions-first")).run().events
    start_s, end_s = np.full((2, len(workload)), np.nan)
    for action, time_s in ((Action.START, start_s), (Action.FINISH, end_s)):
        rows = events.action == action
        time_s[events.job[rows]] = events.time_s[rows]
    ours = [
        workload.job_id,
        workload.submit_s,
        start_s,
        end_s,
        workload.tasks,
        workload.run_s,
        workload.estimate_s,
    ]
    assert len(theirs) == 28_475
    assert np.column_stack(ours)[np.argsort(workload.job_id)].tolist() == theirs[np.argsort(theirs[:, 0])].tolist()
