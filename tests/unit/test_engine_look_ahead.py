"""A core run ahead of time comes to what a simulation of the same jobs comes to."""

import numpy as np
import pytest

from dfrs.engine.core import Core
from dfrs.engine.events import Ready, Submit
from dfrs.engine.look_ahead import next_turns
from dfrs.model.decisions import RUNNING, WAITING
from dfrs.policies.names import find_policy
from dfrs.simulator.simulation import Simulation
from tests.online_cases import random_workload


def never():
    return False


def fresh(policy, nodes):
    return Core(find_policy(policy), np.ones((nodes, 2)))


@pytest.mark.parametrize("policy", ["FCFS", "EASY", "GreedyPM*/per=600/OPT=MIN/MVT=600", "Greedy*/OPT=MIN"])
@pytest.mark.parametrize("seed", range(8))
def test_jobs_of_one_instant_start_when_a_simulation_starts_them(policy, seed):
    drawn = random_workload(seed, spread_s=0.0)
    run = Simulation(drawn, find_policy(policy), policy).run()
    core = fresh(policy, drawn.nodes)
    for k in range(len(drawn.job_id)):
        core.handle(
            Submit(
                k,
                int(drawn.tasks[k]),
                float(drawn.need[k]),
                float(drawn.memory[k]),
                estimate_s=float(drawn.estimate_s[k]),
            ),
            0.0,
        )
    states = core.snapshot().jobs["state"].copy()
    found, complete = next_turns(core, dict(enumerate(drawn.run_s.tolist())), never)
    assert complete
    assert set(found) == set(np.flatnonzero(states != RUNNING).tolist())
    # Of one that was paused for another it is when it goes on, which is no start.
    for job in np.flatnonzero(states == WAITING).tolist():
        assert found[job] == pytest.approx(run.start_s[job], rel=1e-6, abs=1e-3)


def queue(jobs):
    """They want the whole node each; the first has run since 0."""
    core = fresh("FCFS", 1)
    for job in range(jobs):
        core.handle(Submit(job, 1, 1.0, 1.0), float(job))
        if job == 0:
            core.handle(Ready(np.array([0]), np.zeros(1)), 0.0)
    return core


def test_what_nobody_knows_is_not_said():
    found, complete = next_turns(queue(4), {0: 100.0, 1: 50.0}, never)
    assert (found, complete) == ({1: 100.0, 2: 150.0}, True)
    assert next_turns(queue(4), {}, never) == ({}, True)
    # Who has run for longer than it said may end at any time.
    assert next_turns(queue(2), {0: 0.5}, never) == ({1: 1.0}, True)


def test_it_ends_when_it_has_looked_long_enough():
    left = iter([False, True])
    found, complete = next_turns(queue(4), dict.fromkeys(range(4), 10.0), lambda: next(left))
    assert (found, complete) == ({1: 10.0}, False)
    assert next_turns(queue(1), {}, lambda: True) == ({}, True)


def test_wakes_alone_may_start_a_job():
    core = fresh("GreedyP*/per=60/OPT=MIN", 1)
    core.handle(Submit(0, 1, 1.0, 1.0), 0.0)
    core.handle(Ready(np.array([0]), np.zeros(1)), 0.0)
    core.handle(Submit(1, 1, 1.0, 1.0), 1.0)
    (paused,) = core.snapshot().jobs["id"][core.snapshot().jobs["state"] != RUNNING].tolist()
    looks = iter(range(100))
    found, complete = next_turns(core, {}, lambda: next(looks) == 99)
    assert complete
    assert found[paused] % 60.0 == 0.0
