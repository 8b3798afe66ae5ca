"""The event that less of a node's CPU is left for jobs: what becomes of yields, promises, decisions, runs and logs."""

import json

import numpy as np
import pytest

from dfrs.engine.codec import decode, digest, encode, replay
from dfrs.engine.core import Core
from dfrs.engine.events import Complete, Ready, Submit
from dfrs.model.errors import InputError
from dfrs.model.nodes import Capacity, CapacityLeft, Condition, Join, NodeChange
from dfrs.model.run import Action
from dfrs.policies.names import find_policy
from dfrs.runs.directory import write_run
from dfrs.runs.metrics.schedule import summarize
from dfrs.runs.validator.runs import validate_run
from dfrs.simulator.simulation import Simulation, SimulationSettings
from tests.toy_runs import workload

DFRS = "GreedyPM*/per/OPT=MIN/MVT=600"
BALANCED = "GreedyPM*/OPT=MIN/REBALANCE"


def core_with(policy=DFRS, nodes=2):
    return Core(find_policy(policy), np.ones((nodes, 2)))


def start(core, *jobs, now_s=0.0):
    """Submit (id, need, minimum), and let them run."""
    for name, need, minimum in jobs:
        commands = core.handle(Submit(name, 1, need, 0.1, 50.0, minimum=minimum), now_s)
        core.handle(Ready(commands.serial, np.full(len(commands), now_s)), now_s)


def yields(core):
    jobs = core.snapshot().jobs
    return dict(zip(jobs["id"].tolist(), jobs["yield_"].tolist(), strict=True))


def test_yields_are_made_to_fit_at_once_and_rise_again():
    core = core_with(nodes=1)
    start(core, (1, 0.5, 0.0), (2, 0.5, 0.0))
    commands = core.handle(CapacityLeft(0, 0.5), 10.0)
    assert {(c.action, c.job_id, c.yield_) for c in commands} == {(Action.SHARE, 1, 0.5), (Action.SHARE, 2, 0.5)}
    assert core.left.tolist() == [0.5]
    assert core.capacity.tolist() == [[1.0, 1.0]]
    assert core.snapshot().capacity.tolist() == [[0.5, 1.0]]
    core.handle(CapacityLeft(0, 1.0), 20.0)
    assert yields(core) == {1: 1.0, 2: 1.0}
    # Progress is as it was granted.
    assert core.snapshot().jobs["virtual_s"].tolist() == [15.0, 15.0]


def test_what_is_beyond_promises_goes_first_and_then_promises_go_in_parts():
    core = core_with(nodes=1)
    start(core, (1, 0.4, 0.5), (2, 0.4, 0.0))
    # Not yet the last of its instant: nobody is asked.
    decisions = core.decisions
    core.handle(CapacityLeft(0, 0.5, last=False), 1.0)
    assert core.decisions == decisions
    found = yields(core)
    assert found[1] == pytest.approx(0.5 + 0.5 * 0.5)
    assert found[2] == pytest.approx(0.5)
    core.handle(CapacityLeft(0, 0.1, last=False), 2.0)
    assert yields(core) == pytest.approx({1: 0.25, 2: 0.0})
    core.handle(CapacityLeft(0, 0.3), 3.0)
    # The promise fits again: 0.2, and the rest is shared fairly beyond it.
    found = yields(core)
    assert found[1] >= 0.5 - 1e-9
    assert 0.4 * sum(found.values()) <= 0.3 + 1e-9


def test_jobs_come_to_the_node_of_which_more_is_left():
    core = core_with(BALANCED)
    core.handle(CapacityLeft(0, 0.4), 0.0)
    start(core, (1, 1.0, 0.0), (2, 1.0, 0.0), (3, 1.0, 0.0))
    nodes = core.snapshot().task_nodes.tolist()
    assert nodes.count(1) == 2
    assert min(yields(core).values()) == pytest.approx(0.4)


def test_jobs_leave_a_node_that_others_use():
    core = core_with(BALANCED)
    start(core, (1, 0.5, 0.0), (2, 0.5, 0.0))
    assert sorted(core.snapshot().task_nodes.tolist()) == [0, 1]
    core.handle(CapacityLeft(0, 0.05), 100.0)
    assert core.snapshot().task_nodes.tolist() == [1, 1]
    assert yields(core) == {1: 1.0, 2: 1.0}


@pytest.mark.parametrize("name", ["EASY", "FCFS", "CONSERVATIVE"])
def test_an_exclusive_policy_is_not_asked_and_its_jobs_keep_their_nodes(name):
    core = core_with(name, nodes=1)
    start(core, (1, 1.0, 0.0))
    decisions = core.decisions
    assert not len(core.handle(CapacityLeft(0, 0.3), 5.0))
    assert core.decisions == decisions
    assert core.snapshot().capacity.tolist() == [[1.0, 1.0]]
    core.handle(Complete(1), 6.0)
    start(core, (2, 1.0, 0.0), now_s=6.0)
    assert yields(core) == {2: 1.0}
    # Whoever shares nodes is told anew what is left of them.
    core.hand_over(find_policy(DFRS))
    assert core.left.tolist() == [1.0]


@pytest.mark.parametrize(("node", "cpu"), [(0, 0.0), (0, 1.1), (2, 0.5), (0, np.nan)])
def test_what_cannot_be_left_is_refused(node, cpu):
    core = core_with()
    with pytest.raises(InputError, match="node"):
        core.handle(CapacityLeft(node, cpu), 0.0)


def test_another_size_of_a_closed_node_is_all_left():
    core = core_with(nodes=1)
    core.handle(CapacityLeft(0, 0.5), 0.0)
    core.handle(NodeChange(0, Condition.DRAIN), 1.0)
    core.handle(Capacity(0, 2.0, 1.0), 1.0)
    core.handle(NodeChange(0, Condition.UP), 1.0)
    core.handle(Join(0.5, 1.0), 2.0)
    assert core.left.tolist() == [2.0, 0.5]


def test_a_state_of_an_earlier_version_is_taken_in():
    core = core_with()
    core.handle(CapacityLeft(0, 0.5), 0.0)
    state = {name: array for name, array in core.state().items() if name != "cluster_left"}
    other = core_with()
    other.restore(state)
    assert other.left.tolist() == [1.0, 1.0]


def test_the_log_replays():
    core, entries = core_with(), []
    history = [
        (0.0, Submit(1, 2, 0.8, 0.1)),
        (1.0, CapacityLeft(1, 0.35)),
        (2.0, Submit(2, 1, 1.0, 0.2)),
        (3.0, CapacityLeft(1, 1.0, last=False)),
        (3.0, CapacityLeft(0, 0.6)),
    ]
    for now_s, event in history:
        before = core.decisions
        core.handle(event, now_s)
        document = json.loads(json.dumps(encode(event)))
        assert encode(decode(document)) == document
        entries.append((now_s, document, digest(core.target) if core.decisions > before else ""))
    assert replay(core_with(), entries) is None
    entries[1][1]["cpu"] = 0.5
    assert replay(core_with(), entries).index == 1


def simulated(policy, events, tmp_path):
    jobs = workload([(1, 0.0, 1, 1.0, 0.1, 100.0), (2, 0.0, 1, 1.0, 0.1, 100.0)], nodes=1)
    jobs = jobs.with_columns(estimate_s=jobs.run_s)
    run = Simulation(jobs, find_policy(policy), policy, SimulationSettings(node_events=events)).run()
    write_run(run, tmp_path / "run", summarize(run), "test")
    return run, tmp_path / "run"


def test_a_simulation_takes_the_event_and_its_run_is_valid(tmp_path):
    events = [(50.0, CapacityLeft(0, 0.5)), (150.0, CapacityLeft(0, 1.0))]
    run, directory = simulated("GreedyP/per/OPT=MIN", events, tmp_path)
    # 50 s at a half, 100 s at a quarter, and the rest at a half again.
    assert run.finish_s.tolist() == pytest.approx([250.0, 250.0])
    assert not validate_run(directory).problems


def test_the_checker_of_runs_knows_what_is_left(tmp_path):
    _, directory = simulated("GreedyP/per/OPT=MIN", [], tmp_path)
    path = directory / "summary.json"
    document = json.loads(path.read_text())
    document["configuration"]["capacity_left"] = [[50.0, 0, 0.5], [60.0, 0, 1.0]]
    path.write_text(json.dumps(document))
    assert validate_run(directory).problems == ["at 50.0: node 0: CPU is 1, capacity 0.5"]
    document["configuration"]["capacity_left"] = [[50.0, 1, 0.5]]
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"capacity_left\[0\]"):
        validate_run(directory)


def test_an_exclusive_simulation_goes_on_as_if_nothing_were_taken(tmp_path):
    run, directory = simulated("EASY", [(50.0, CapacityLeft(0, 0.5))], tmp_path)
    assert run.finish_s.tolist() == [100.0, 200.0]
    assert not validate_run(directory).problems


def test_a_simulation_refuses_what_cannot_be_left(tmp_path):
    with pytest.raises(InputError, match=r"node 0: 1.5 of its CPU left"):
        simulated("EASY", [(50.0, CapacityLeft(0, 1.5))], tmp_path)
