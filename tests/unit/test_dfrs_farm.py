"""DFRS-FARM: names, decisions, and runs that the independent checker accepts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfrs.bounds.heterogeneous import effective_yield_bound
from dfrs.engine.check import check
from dfrs.experiments.kinds.farm_random import (
    FarmRandomConfiguration,
    FarmRandomScenario,
    prepare,
    run,
    simulation,
    spanning,
)
from dfrs.model.decisions import JOB, RUNNING, WAITING, Cause, Snapshot
from dfrs.model.errors import InputError
from dfrs.model.hardware import HardwareView
from dfrs.policies.heterogeneous.fractional import MVT_S, PERIOD_S, Outlook, PartitionDfrs
from dfrs.policies.names import find_policy
from dfrs.workloads.farm_random import LONGEST_S, farm_workload
from dfrs_reproduction.atif2011.programs import PROGRAMS, arrive_f
from tests import strategies
from tests.frozen import frozen
from tests.naive.farm_packing import farm_case
from tests.policy_cases import policy_case

CLUSTER = np.repeat(np.arange(4), 8)
MACHINE = np.concatenate([np.repeat(np.arange(6), 4), np.repeat(np.arange(6, 10), 2)])
CAPACITY = np.column_stack([np.ones(32), np.where(CLUSTER == 3, 0.5, 1.0)])


def snapshot(rows, *, cause=Cause.WAKE, subject=-1, now_s=5_000.0):
    """Rows are dictionaries: tasks, memory, virtual_s, nodes, speed (C, 2), required, swapping, submit_s."""
    jobs = np.zeros(len(rows), JOB)
    jobs["id"], jobs["serial"] = np.arange(1, len(rows) + 1), np.arange(len(rows))
    jobs["need"] = jobs["weight"] = jobs["speed"] = 1.0
    jobs["tasks"] = [row.get("tasks", 1) for row in rows]
    jobs["memory"] = [row.get("memory", 0.1) for row in rows]
    jobs["virtual_s"] = [row.get("virtual_s", 0.0) for row in rows]
    jobs["submit_s"] = [row.get("submit_s", 0.0) for row in rows]
    jobs["state"] = [RUNNING if "nodes" in row else WAITING for row in rows]
    first = np.concatenate([[0], np.cumsum(jobs["tasks"])]).astype(np.int64)
    slots = np.concatenate([row.get("nodes", [-1] * row.get("tasks", 1)) for row in rows]).astype(np.int64)
    unknown = np.full((4, 2), np.nan)
    view = HardwareView(
        partition=CLUSTER,
        machine=MACHINE,
        node_memory=CAPACITY[:, 1],
        speed=np.array([row.get("speed", unknown) for row in rows], dtype=np.float64),
        required=np.array([row.get("required", np.nan) for row in rows]),
        swapping=np.array([row.get("swapping", False) for row in rows]),
    )
    return frozen(Snapshot(now_s, cause, subject, CAPACITY, np.ones(32, np.bool_), jobs, first, slots, 0.0, view))


def fast_on(cluster, ratio=4.0):
    speed = np.ones((4, 2))
    speed[cluster] = ratio
    return speed


def clusters_of(shot, target, row):
    return set(CLUSTER[target.task_nodes[shot.first[row] : shot.first[row + 1]]].tolist())


def test_names():
    assert find_policy("DFRS-FARM") == PartitionDfrs(name="DFRS-FARM", period_s=PERIOD_S, mvt_s=MVT_S)
    found = find_policy("DFRS-FARM/MVT=0/PERIOD=200")
    assert (found.period_s, found.mvt_s) == (200.0, 0.0)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("DFRS-FARM/PERIOD=0", "above 0"),
        ("DFRS-FARM/MVT=-1", "at least 0"),
        ("DFRS-FARM/MVT=inf", "at least 0"),
        ("DFRS-FARM/PERIOD=nan", "above 0"),
        ("DFRS-FARM/MVT=1/MVT=2", "another part for MVT"),
        ("DFRS-FARM/OPT=MIN", "parts are PERIOD=…"),
        ("DFRS-FARM/", "parts are PERIOD=…"),
        ("DFRS-FRM", "did you mean"),
    ],
)
def test_bad_names(name, told):
    with pytest.raises(InputError, match=told):
        find_policy(name)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_every_decision_is_admissible_and_pure_and_keeps_moved_jobs_in_one_sub_cluster(data):
    source = strategies.Drawn(data.draw)
    case = farm_case(source, policy_case(source))
    cause = data.draw(st.sampled_from((Cause.WAKE, Cause.SUBMISSION, Cause.COMPLETION, Cause.NODES)))
    shot = case.base.snapshot(cause)
    rows = case.base.rows
    view = HardwareView(
        partition=case.cluster,
        machine=case.machine,
        node_memory=case.base.capacity[:, 1],
        speed=case.known,
        required=np.full(rows, np.nan),
        swapping=np.zeros(rows, np.bool_),
    )
    shot = frozen(shot, unequal=view)
    target = PartitionDfrs().decide(shot)
    check(shot, target)
    again = PartitionDfrs().decide(shot)
    assert again.task_nodes.tolist() == target.task_nodes.tolist()
    assert again.yields.tolist() == target.yields.tolist()
    at = np.empty(rows)
    outlook = Outlook.of(shot)
    _, effective = outlook.shares(shot, target.task_nodes)
    for r in range(rows):
        nodes = target.task_nodes[case.base.slots(r)]
        at[r] = len(np.unique(case.cluster[nodes])) if nodes[0] >= 0 else 1
        if sorted(nodes.tolist()) != sorted(case.base.before[case.base.slots(r)].tolist()):
            assert at[r] == 1
    if (at == 1).all() and (target.task_nodes >= 0).all():
        assert effective.min() <= effective_yield_bound(shot) + 1e-6


def test_two_jobs_exchange_sub_clusters_where_each_is_faster_on_the_other():
    nodes = [list(range(8)), list(range(8, 16))]
    rows = [
        {"tasks": 8, "nodes": nodes[k], "virtual_s": 1_000.0, "speed": fast_on(1 - k), "memory": 0.6} for k in (0, 1)
    ]
    shot = snapshot(rows)
    target = PartitionDfrs().decide(shot)
    assert [clusters_of(shot, target, r) for r in (0, 1)] == [{1}, {0}]
    assert target.yields.tolist() == [1.0, 1.0]
    assert "effective yield 1.00 instead of 0.25" in target.why[1]


def test_a_young_job_is_not_moved():
    row = {"tasks": 8, "nodes": list(range(8)), "virtual_s": 30.0, "speed": fast_on(1)}
    shot = snapshot([row])
    assert clusters_of(shot, PartitionDfrs().decide(shot), 0) == {0}
    assert clusters_of(shot, PartitionDfrs(mvt_s=0.0).decide(shot), 0) == {1}


def test_a_small_gain_is_not_worth_a_migration():
    row = {"tasks": 8, "nodes": list(range(8)), "virtual_s": 900.0, "speed": fast_on(1, 1.08)}
    shot = snapshot([row])
    target = PartitionDfrs().decide(shot)
    assert target.task_nodes.tolist() == list(range(8))
    shot = snapshot([{**row, "speed": fast_on(1, 1.2)}])
    assert clusters_of(shot, PartitionDfrs().decide(shot), 0) == {1}


def test_a_thrashing_job_leaves_the_nodes_that_have_too_little_memory():
    row = {"tasks": 2, "nodes": [24, 26], "virtual_s": 900.0, "memory": 0.1, "required": 0.8, "swapping": True}
    shot = snapshot([row])
    assert 3 not in clusters_of(shot, PartitionDfrs().decide(shot), 0)
    young = snapshot([{**row, "virtual_s": 10.0}])
    assert 3 not in clusters_of(young, PartitionDfrs().decide(young), 0)
    right = snapshot([{**row, "required": 0.11, "swapping": False}])
    assert PartitionDfrs().decide(right).task_nodes.tolist() == [24, 26]


def test_a_submitted_job_goes_where_the_least_effective_yield_stays_largest():
    rows = [{"tasks": 8, "nodes": list(range(8 * c, 8 * c + 8)), "virtual_s": 900.0} for c in (0, 1, 3)]
    shot = snapshot([*rows, {"tasks": 8}], cause=Cause.SUBMISSION, subject=3)
    target = PartitionDfrs().decide(shot)
    assert clusters_of(shot, target, 3) == {2}
    assert target.task_nodes[:24].tolist() == shot.task_nodes[:24].tolist()
    assert target.yields.tolist() == [1.0] * 4


def test_a_job_without_room_makes_the_least_important_give_way():
    full = [
        {"tasks": 8, "nodes": list(range(8 * c, 8 * c + 8)), "virtual_s": 500.0 * (c + 1), "memory": 0.5}
        for c in range(4)
    ]
    full += [
        {"tasks": 8, "nodes": list(range(8 * c, 8 * c + 8)), "virtual_s": 5_000.0, "memory": 0.5} for c in range(3)
    ]
    shot = snapshot([*full, {"tasks": 8, "memory": 0.5}], cause=Cause.SUBMISSION, subject=7)
    target = PartitionDfrs().decide(shot)
    placed = target.task_nodes[shot.first[:-1]] >= 0
    assert placed[7]
    assert placed.sum() == 7
    assert not placed[4:7].all()


def test_memory_that_no_sub_cluster_has_for_all_tasks_is_not_waited_for():
    # Node 31 alone has 0.6; six tasks would wait for it for ever, with everybody who comes after them.
    shot = snapshot([{"tasks": 6, "required": 0.6}, {"tasks": 2, "virtual_s": 10.0, "nodes": [0, 1]}])
    capacity = np.where(np.arange(32) == 31, 1.0, 0.5)
    target = PartitionDfrs().decide(frozen(shot, capacity=np.column_stack([np.ones(32), capacity])))
    assert (target.yields > 0).all()


def test_nobody_gives_way_to_a_job_that_no_open_nodes_can_hold():
    rows = [{"tasks": 8, "memory": 0.9}, {"tasks": 4, "virtual_s": 500.0, "nodes": [0, 1, 2, 3]}]
    shot = frozen(snapshot(rows), open=np.arange(32) % 8 > 0)
    target = PartitionDfrs().decide(shot)
    assert target.yields.tolist() == [0.0, 1.0]
    assert target.task_nodes[8:].tolist() == [0, 1, 2, 3], "and who runs is not moved for it"


def test_who_fits_nowhere_else_goes_on_where_its_nodes_are_drained():
    rows = [{"tasks": 2}, {"tasks": 4, "virtual_s": 500.0, "nodes": [0, 1, 2, 3]}]
    target = PartitionDfrs().decide(frozen(snapshot(rows), open=np.zeros(32, np.bool_)))
    assert target.yields.tolist() == [0.0, 1.0]


def test_a_slow_sub_cluster_is_used_where_the_fast_one_has_no_room_for_all_tasks():
    speed = np.full((4, 2), 0.001)
    speed[0] = 1.0
    closed = (CLUSTER == 0) & (np.arange(32) > 1)
    shot = frozen(snapshot([{"tasks": 4, "memory": 0.8, "speed": speed}]), open=~closed)
    assert clusters_of(shot, PartitionDfrs().decide(shot), 0) != {0}
    after, _ = PartitionDfrs().pack(shot, Outlook.of(shot), np.array([0]))
    assert after.min() >= 0


def test_without_a_farm_all_nodes_are_alike():
    rows = [{"tasks": 2, "virtual_s": 0.0} for _ in range(3)]
    shot = frozen(snapshot(rows), unequal=None)
    target = PartitionDfrs().decide(shot)
    check(shot, target)
    assert target.yields.tolist() == [1.0] * 3


def test_nobody_there():
    shot = snapshot([{}])
    empty = Snapshot(
        0.0, Cause.WAKE, -1, shot.capacity, shot.open, shot.jobs[:0], shot.first[:1], shot.task_nodes[:0], 0.0
    )
    target = PartitionDfrs().decide(empty)
    assert target.wake_at_s is None
    assert not len(target.yields)


def test_random_workloads_are_different_and_of_the_farm():
    farm = arrive_f()
    one, same, other = (farm_workload(PROGRAMS, seed=seed, jobs=60, load=0.9) for seed in (1, 1, 2))
    assert one.workload.submit_s.tolist() == same.workload.submit_s.tolist()
    assert one.names == same.names
    assert one.names != other.names
    assert one.workload.tasks.max() <= 8
    assert (one.workload.estimate_s <= LONGEST_S).all()
    assert one.truth.rate.max(axis=(1, 2)).tolist() == [1.0] * 60
    for name, tasks in zip(one.names, one.workload.tasks.tolist(), strict=True):
        assert name.startswith("EP") or tasks in {1, 2, 4, 8}
    wide = one.workload.tasks > 4
    assert np.array_equal(one.truth.rate[wide, :, 0], one.truth.rate[wide, :, 1])
    spread = (one.workload.run_s[:, None] / one.truth.rate[:, :, 0]).mean(axis=1)
    load = (one.workload.tasks * spread).sum() / (farm.nodes * one.workload.span_s)
    assert load == pytest.approx(0.9)


@pytest.mark.parametrize("seed", [-1, 0])
def test_bad_workloads(seed):
    with pytest.raises(InputError, match="seed = "):
        farm_workload(PROGRAMS, seed=seed, jobs=0 if seed == 0 else 5)


@pytest.mark.parametrize("policy", ["DFRS-FARM", "DFRS-FARM/PERIOD=100/MVT=0", "ARRIVE-F", "EASY"])
def test_a_run_passes_the_checker(policy):
    row = run(
        prepare(FarmRandomScenario(seed=3, load=1.3, jobs=50)),
        FarmRandomConfiguration(label=policy, policy=policy),
        0,
        None,
    )
    assert row["status"] == "complete"
    assert float(str(row["bounded_stretch_max"])) >= 1.0
    if policy != "EASY":
        assert row["spanning"] == 0.0


def test_spanning_counts_jobs_in_several_sub_clusters():
    done = simulation(
        prepare(FarmRandomScenario(seed=3, load=1.3, jobs=50)), FarmRandomConfiguration(label="", policy="EASY")
    ).run()
    assert spanning(done) > 0
