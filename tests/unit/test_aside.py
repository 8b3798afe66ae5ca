"""A job that no open nodes can hold: nobody else is decided about otherwise because of it."""

import numpy as np
import pytest

from dfrs.engine.aside import NO_OPEN_NODES, leave_aside
from dfrs.engine.core import Core
from dfrs.engine.events import Complete, Ready, Submit, Wake
from dfrs.model.decisions import WAITING, Traits
from dfrs.model.nodes import Condition, NodeChange
from dfrs.policies.names import find_policy
from dfrs.simulator.simulation import Simulation, SimulationSettings
from tests.online_cases import plain_workload
from tests.small_policies import FairShare

POLICIES = (
    "GreedyPM*/per/OPT=MIN/MVT=600",
    "GreedyP*/per/OPT=AVG",
    "Greedy*/OPT=MIN",
    "MCB*/per/OPT=MIN/MVT=600",
    "MCB*/stretch-per/OPT=MAX",
    "MCB*/per/VP_PPSUM/OPT=MIN",
    "MCB*/per/BUDGET=5",
    "MCB*/due/WEIGHT",
    "/per/OPT=AVG",
    "EASY",
    "FCFS",
    "CONSERVATIVE",
    "LOS",
    "Delayed-LOS",
    "Hybrid-LOS-E",
    "EASY-DE",
    "EQUIPARTITION",
)
NODES = 8
WIDE = 1_000


def policy(name):
    return FairShare() if name == "FairShare" else find_policy(name)


def story(name, seed, wide):
    """Commands on all jobs but the wide one, and the core."""
    rng = np.random.default_rng(seed)
    core = Core(policy(name), np.ones((NODES, 2)))
    done = []

    def tell(event, now_s):
        commands = core.handle(event, now_s)
        done.extend((now_s, each) for each in commands if each.job_id != WIDE)
        if len(commands):
            core.handle(Ready(commands.serial, np.full(len(commands), now_s)), now_s)

    tell(NodeChange(3, Condition.DOWN), 0.0)
    submitted = 0
    for step in range(1, 40):
        now_s = 50.0 * step
        while core.wake_at_s is not None and core.wake_at_s <= now_s:
            tell(Wake(), core.wake_at_s)
        if step == 5 and wide:
            tell(Submit(WIDE, NODES, 1.0, 1.0, 100.0), now_s)
        running = [int(job["id"]) for job in core.snapshot().jobs if job["yield_"] > 0]
        if running and rng.random() < 0.4:
            tell(Complete(running[rng.integers(len(running))]), now_s)
        else:
            memory = float(rng.choice([0.1, 0.3, 0.5, 1.0]))
            need = float(rng.choice([0.25, 1.0]))
            tell(Submit(submitted, int(rng.integers(1, 5)), need, memory, float(rng.integers(10, 1_000))), now_s)
            submitted += 1
    return done, core


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", [*POLICIES, "FairShare"])
def test_others_are_decided_about_as_if_it_were_not_there(name, seed):
    without, _ = story(name, seed, wide=False)
    with_it, core = story(name, seed, wide=True)
    assert len(without) > 10
    assert with_it == without
    jobs = core.snapshot().jobs
    assert jobs["state"][jobs["id"] == WIDE] == WAITING


@pytest.mark.parametrize("name", POLICIES)
def test_it_starts_once_nodes_that_can_hold_it_are_open(name):
    core = Core(policy(name), np.ones((NODES, 2)))
    core.handle(NodeChange(3, Condition.DOWN), 0.0)
    core.handle(Submit(WIDE, NODES, 1.0, 1.0, 100.0), 1.0)
    commands = list(core.handle(NodeChange(3, Condition.UP), 2.0))
    if not commands:
        commands = list(core.handle(Wake(), core.wake_at_s))
    assert [each.job_id for each in commands] == [WIDE]


def test_what_it_waits_for_is_said_and_what_runs_is_never_left_aside():
    core = Core(policy("Greedy*/per/OPT=MIN"), np.ones((2, 2)))
    core.handle(Submit(1, 2, 1.0, 1.0), 0.0)
    core.handle(NodeChange(1, Condition.DRAIN), 1.0)
    core.handle(Submit(2, 2, 1.0, 0.5), 2.0)
    core.handle(Submit(3, 3, 1.0, 0.5), 3.0)
    seen = leave_aside(core.snapshot(), Traits())
    assert seen.snapshot.jobs["id"].tolist() == [1, 2]
    assert leave_aside(core.snapshot(), Traits(exclusive=True)).snapshot.jobs["id"].tolist() == [1]
    core.handle(Wake(), 600.0)
    assert dict(core.target.why) == {3: NO_OPEN_NODES}


@pytest.mark.parametrize("name", [name for name in POLICIES if "MCB" in name or "/per" in name])
def test_twenty_jobs_and_a_wide_one_while_a_node_is_down(name):
    rng = np.random.default_rng(1)
    submit_s, run_s = np.sort(rng.integers(1, 600, 20)), rng.integers(100, 1_000, 20)
    rows = [(s, 1, 1.0, 0.4, t) for s, t in zip(submit_s, run_s, strict=True)]
    work = plain_workload([*rows[:4], (rows[4][0], NODES, 1.0, 1.0, 100.0), *rows[4:]], NODES)
    down = [(0.5, NodeChange(3, Condition.DOWN)), (60_000.0, NodeChange(3, Condition.UP))]
    run = Simulation(work, policy(name), name, SimulationSettings(node_events=down)).run()
    stretch = (run.finish_s - work.submit_s) / work.run_s
    others = np.arange(len(work)) != 4
    assert stretch[others].mean() <= 5.5
    assert run.start_s[4] >= 60_000.0
