"""Simulated jobs that make check-points: a node that fails costs them what came after the last one."""

import numpy as np
import pytest

from dfrs.engine.codec import decode, encode
from dfrs.engine.core import Core
from dfrs.engine.events import Complete, Hold, Submit
from dfrs.experiments.simulations import measured
from dfrs.model.errors import InputError
from dfrs.model.nodes import Condition, NodeChange, NodeLimits
from dfrs.model.run import Action
from dfrs.policies.names import find_policy
from dfrs.runs.directory import read_run, workload_digest, write_run
from dfrs.runs.metrics.intervals import in_vain, job_intervals, losses, virtual_time
from dfrs.runs.replay import Replay
from dfrs.runs.validator.runs import validate_run
from dfrs.simulator.simulation import Simulation, SimulationSettings
from dfrs.workloads.job_values import with_job_values
from tests.naive.progress import replayed
from tests.online_cases import random_workload

POLICY = "GreedyPM*/per=60/OPT=MIN/MVT=60"
EVERY_S = 7.0


def failing(seed, jobs=50, nodes=4):
    """Nodes fail again and again, each for a while."""
    rng = np.random.default_rng(seed)
    work = random_workload(seed, jobs=jobs, spread_s=15.0)
    work = work.with_columns(checkpoint_s=np.where(rng.random(jobs) < 0.7, EVERY_S * rng.random(jobs), 0.0))
    events = []
    for node in range(work.nodes):
        at_s = float(rng.exponential(40.0))
        while at_s < 2000.0:
            events += [(at_s, NodeChange(node, Condition.DOWN)), (at_s + 5.0, NodeChange(node, Condition.UP))]
            at_s += 5.0 + float(rng.exponential(60.0))
    return work, tuple(events)


def told_at_the_end(run):
    """The virtual time of each job as stories of runs have it."""
    replay = Replay(run)
    for _ in replay:
        pass
    return [replay.virtual_s(job, run.end_s) for job in range(len(run.workload))]


def simulated(work, events, name=POLICY):
    return Simulation(work, find_policy(name), name, SimulationSettings(node_events=events)).run()


@pytest.mark.parametrize("name", [POLICY, "EASY", "MCB*/per=60/OPT=MIN", "GreedyP*"])
def test_every_job_is_done_and_the_checker_finds_nothing(tmp_path, name):
    for seed in range(3):
        work, events = failing(seed)
        run = simulated(work, events, name)
        assert run.complete
        assert (run.events.action == Action.LOST).sum() > 5
        exact = replayed(run)
        np.testing.assert_allclose(virtual_time(run), [float(each) for each in exact], rtol=1e-9, atol=1e-6)
        np.testing.assert_allclose(virtual_time(run), run.workload.run_s, rtol=1e-9, atol=1e-6)
        write_run(run, tmp_path / str(seed), measured(run, bound=True), "1")
        assert validate_run(tmp_path / str(seed)).problems == []
        assert told_at_the_end(run) == pytest.approx(run.workload.run_s.tolist(), abs=1e-6)
        assert read_run(tmp_path / str(seed)).workload.checkpoint_s.tolist() == work.checkpoint_s.tolist()


def test_what_is_lost_is_less_than_one_check_point_and_all_without():
    work, events = failing(1)
    kept = simulated(work, events)
    none = simulated(work.with_columns(checkpoint_s=np.zeros(len(work))), events)
    shares = [dict(measured(run, bound=False))["cpu_share_failures"] for run in (kept, none)]
    assert 0.0 < shares[0] < shares[1]
    found = losses(kept, job_intervals(kept))
    for loss in found:
        every_s = work.checkpoint_s[loss.job]
        assert loss.kept_s == pytest.approx(every_s * round(loss.kept_s / every_s) if every_s else 0.0)
    # What is lost of a job that makes check-points took its CPU for less than one of them.
    pieces, lost = in_vain(kept, job_intervals(kept).cut_at_ready())
    for loss in found:
        if work.checkpoint_s[loss.job] and loss.since_s > -np.inf:
            mine = lost & (pieces.job == loss.job) & (pieces.begin_s >= loss.since_s) & (pieces.end_s <= loss.at_s)
            assert pieces.progress_s[mine].sum() <= work.checkpoint_s[loss.job] + 1e-6
    assert pieces.length_s.sum() == pytest.approx(job_intervals(kept).length_s.sum())


def one_node(every_s, **more):
    """A core whose only node has failed after 25 s with a job on it, and is back."""
    core = Core(find_policy("GreedyP*"), np.ones((1, 2)))
    core.handle(Submit(1, 1, 1.0, 0.5, checkpoint_s=every_s, **more), 0.0)
    return core


@pytest.mark.parametrize(("every_s", "left_s"), [(0.0, 0.0), (10.0, 20.0), (25.0, 25.0), (30.0, 0.0)])
def test_the_policy_sees_what_a_job_keeps(every_s, left_s):
    core = one_node(every_s)
    jobs = core.snapshot().jobs
    core._state.rows.jobs["ready_s"][:1] = 0.0
    core.handle(NodeChange(0, Condition.DOWN), 25.0)
    jobs = core.snapshot().jobs
    assert jobs["virtual_s"].tolist() == [left_s]
    again = Core(find_policy("GreedyP*"), np.ones((1, 2)))
    again.restore({name: array.copy() for name, array in core.state().items()})
    for each in (core, again):
        each.handle(NodeChange(0, Condition.UP), 30.0)
        each._state.rows.jobs["ready_s"][:1] = 30.0
        each.handle(NodeChange(0, Condition.DOWN), 30.0 + 5.0)
        expected = every_s * np.floor((left_s + 5.0) / every_s) if every_s else 0.0
        assert each.snapshot().jobs["virtual_s"].tolist() == [expected]
        each.handle(Complete(1), 40.0)
        assert not each._state.kept_progress._every_s


def test_a_held_job_keeps_it_too():
    # Its memory stays on the node, and goes with it.
    limits = NodeLimits(np.ones(1, bool), np.zeros(1, np.int64))
    core = Core(find_policy("GreedyP*"), np.ones((1, 2)), limits=limits)
    core.handle(Submit(1, 1, 1.0, 0.5, checkpoint_s=10.0), 0.0)
    core._state.rows.jobs["ready_s"][:1] = 0.0
    core.handle(Hold(1), 25.0)
    (job,) = core._state.held
    assert job["virtual_s"] == 25.0
    core.handle(NodeChange(0, Condition.DOWN), 26.0)
    (job,) = core._state.held
    assert job["virtual_s"] == 20.0


def test_events_tell_it_and_may_leave_it_out():
    document = encode(Submit(1, 1, 1.0, 0.5, checkpoint_s=60.0))
    assert decode(document).checkpoint_s == 60.0
    del document["checkpoint_s"]
    assert decode(document).checkpoint_s == 0.0
    with pytest.raises(InputError, match=r"checkpoint_s = -1.0: must be 0, or at least 0.001 and finite"):
        one_node(-1.0)


def test_files_and_digests(tmp_path):
    work = random_workload(1, jobs=3, spread_s=15.0)
    file = tmp_path / "w.csv"
    file.write_text(f"job_id,checkpoint_s\n{work.job_id[1]},30\n")
    found = with_job_values(work, file)
    assert found.checkpoint_s.tolist() == [0.0, 30.0, 0.0]
    least = work.with_columns(minimum_yield=np.array([0.0, 0.5, 0.0]))
    every = work.with_columns(checkpoint_s=np.array([0.0, 0.5, 0.0]))
    assert len({workload_digest(each) for each in (work, found, least, every)}) == 4
    file.write_text(f"job_id,checkpoint_s\n{work.job_id[1]},-30\n")
    with pytest.raises(InputError, match=r":2: checkpoint_s = -30: must be 0, or at least 0.001 and finite"):
        with_job_values(work, file)
    with pytest.raises(InputError, match=r"checkpoint_s = inf: must be 0, or at least 0.001 and finite"):
        work.with_columns(checkpoint_s=np.array([0.0, np.inf, 0.0]))
