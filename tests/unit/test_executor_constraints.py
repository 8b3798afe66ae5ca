"""What the guard makes of any target: admissible, within what executors can do, and no more changed than must be."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfrs.engine import executor_constraints as module
from dfrs.engine.check import check
from dfrs.engine.commands import DETACH
from dfrs.engine.executor_constraints import guard
from dfrs.engine.reconcile import reconcile
from dfrs.model.decisions import PAUSED, RUNNING, WAITING, Abilities, Target, Traits
from dfrs.model.run import Action
from dfrs.testing import SnapshotJob, build_snapshot
from tests import online_cases
from tests.frozen import frozen
from tests.strategies import Drawn

TRAITS = Traits()


@st.composite
def guarded_case(draw):
    """(snapshot, target): present and target are admissible; rows that keep memory run."""
    source = Drawn(draw)
    case = online_cases.reconcile_case(source)
    nodes = len(case.capacity)
    jobs = case.jobs.copy()
    jobs["minimum"] = [source.pick((0.0, 0.0, 0.25, 0.5, 1.0)) for _ in range(case.rows)]
    island = [source.integer(0, source.pick((0, 2))) for _ in range(nodes)]
    keeps = [source.integer(0, 2) == 0 for _ in range(nodes)]
    arrives = np.setdiff1d(case.after, case.before)
    is_open = case.open.copy()
    is_open[arrives[arrives >= 0]] = True
    for r in range(case.rows):
        # Tasks that stay keep their node, those that move must find it open.
        is_open[[n for n in case.after[case.slots(r)] if n >= 0]] = True
    home = np.full(len(case.before), -1)
    for r in np.flatnonzero(jobs["state"] == PAUSED):
        home[case.slots(r)] = [source.pick(island) for _ in range(jobs["tasks"][r])]
    several = len(set(island)) > 1
    refused = [source.integer(0, 7) == 0 for _ in range(len(jobs))]
    fixed = [source.integer(0, 7) == 0 for _ in range(len(jobs))]
    restarts = [source.integer(0, 3) == 0 for _ in range(len(jobs))]
    reserved = [source.pick((0.0, 0.0, 0.25)) for _ in range(nodes)]
    snapshot = replace(
        replace(case, jobs=jobs, open=is_open).snapshot(),
        abilities=abilities(keeps, island, home, refused, several, fixed, restarts, reserved),
    )
    return snapshot, case.target()


def abilities(keeps, island, home, refused, several=True, fixed=None, restarts=None, reserved=None):
    home = np.array(home) if several else np.full(len(home), -1)
    fixed = [False] * len(refused) if fixed is None else fixed
    restarts = [False] * len(refused) if restarts is None else restarts
    reserved = [0.0] * len(keeps) if reserved is None else reserved
    return Abilities(*map(np.array, (keeps, island, home, refused, fixed, restarts, reserved)))


def loads(snapshot, slots, each):
    used = np.zeros(len(snapshot.capacity))
    for r, amount in enumerate(each.tolist()):
        nodes = slots[snapshot.first[r] : snapshot.first[r + 1]]
        if nodes[0] >= 0:
            np.add.at(used, nodes, amount)
    return used


def broken_rules(snapshot, target):
    """What the target asks for that cannot be, by the definitions."""
    found = set()
    island, keeps = snapshot.abilities.island, snapshot.abilities.keeps
    _, after, order, steps = reconcile(snapshot, target)
    for row, step in zip(order.tolist(), steps.tolist(), strict=True):
        part = slice(snapshot.first[row], snapshot.first[row + 1])
        before = snapshot.task_nodes[part]
        ends = step == Action.PAUSE and snapshot.abilities.restarts[row]
        if step in (Action.PAUSE, DETACH) and (keeps[before].any() or snapshot.abilities.refused[row]) and not ends:
            found.add("a")
        if step == Action.MIGRATE:
            left = before != after[part] if snapshot.abilities.fixed[row] else island[before] != island[after[part]]
            if left.any():
                found.add("b")
        if step == Action.RESUME:
            home = snapshot.abilities.home[part]
            if ((home >= 0) & (home != island[after[part]])).any():
                found.add("b")
    promised = snapshot.jobs["need"] * snapshot.jobs["minimum"]
    room = snapshot.capacity[:, 0] - snapshot.abilities.reserved
    limit = np.maximum(room, loads(snapshot, snapshot.task_nodes, promised))
    if (loads(snapshot, target.task_nodes, promised) > limit + 1e-9).any():
        found.add("c")
    return found


@settings(max_examples=400)
@given(case=guarded_case())
def test_whatever_is_wanted_the_guard_lets_through_what_can_be_done(case):
    snapshot, target = case
    check(snapshot, target)
    after = guard(snapshot, target, TRAITS)
    check(snapshot, after)
    assert not broken_rules(snapshot, after)
    running = snapshot.jobs["state"] == RUNNING
    begins = snapshot.first[:-1]
    wanted, given_ = target.task_nodes[begins] >= 0, after.task_nodes[begins] >= 0
    assert not (given_ & ~wanted & ~running).any()
    waits = {int(name) for name in snapshot.jobs["id"][wanted & ~given_]}
    assert set(after.why) == waits
    agreed = (snapshot.jobs["minimum"] > 0).any()
    if not broken_rules(snapshot, target) and not agreed:
        assert (np.sort(after.task_nodes) == np.sort(target.task_nodes)).all()
        assert (after.yields == target.yields).all()
    several = len(set(snapshot.abilities.island.tolist())) > 1 or snapshot.abilities.fixed.any()
    if waits or (running & ~wanted & given_).any():
        assert broken_rules(snapshot, target) or several


@settings(max_examples=200)
@given(case=guarded_case())
def test_an_exclusive_policy_keeps_its_yields(case):
    snapshot, target = case
    after = guard(snapshot, target, Traits(exclusive=True))
    check(snapshot, after)
    assert not broken_rules(snapshot, after)
    need, cpu = snapshot.jobs["need"], snapshot.capacity[:, 0]
    for r in range(len(snapshot.jobs)):
        assert after.yields[r] in {target.yields[r], snapshot.jobs["yield_"][r], 0.0}
        nodes = after.task_nodes[snapshot.first[r] : snapshot.first[r + 1]]
        meant = sorted(nodes) == sorted(on(snapshot, target.task_nodes, r))
        if snapshot.jobs["state"][r] == RUNNING and meant and after.yields[r] != target.yields[r]:
            # Its new yield has no room beside a job that had to stay as it is.
            used = loads(snapshot, after.task_nodes, need * after.yields)
            np.add.at(used, nodes, need[r] * (target.yields[r] - after.yields[r]))
            assert (used[nodes] > cpu[nodes]).any()


@settings(max_examples=200)
@given(case=guarded_case())
def test_minimum_yields_are_given_where_they_fit_and_the_rest_is_shared_fairly(case):
    snapshot, target = case
    after = guard(snapshot, target, TRAITS)
    minimum = snapshot.jobs["minimum"]
    if not (minimum > 0).any():
        return
    slots = after.task_nodes
    promised = loads(snapshot, slots, snapshot.jobs["need"] * minimum)
    spare = snapshot.capacity[:, 0] - loads(snapshot, slots, snapshot.jobs["need"] * after.yields)
    scaled = np.where(minimum < 1, (after.yields - minimum) / np.maximum(1 - minimum, 1e-6), 1.0)
    for r in range(len(minimum)):
        nodes = slots[snapshot.first[r] : snapshot.first[r + 1]]
        if nodes[0] < 0:
            continue
        fits = (promised[nodes] <= snapshot.capacity[nodes, 0] + 1e-12).all()
        assert not fits or after.yields[r] >= minimum[r] - 1e-9
        if after.yields[r] < 1 - 1e-6 and fits:
            # It can have more only at the cost of those that have no more than it, or just their minimum.
            givers = [q for q in range(len(minimum)) if after.yields[q] > minimum[q] + 1e-6]
            full = [n for n in nodes if spare[n] < 1e-6]
            assert any(all(scaled[q] <= scaled[r] + 1e-6 for q in givers if n in on(snapshot, slots, q)) for n in full)


def on(snapshot, slots, row):
    return slots[snapshot.first[row] : snapshot.first[row + 1]].tolist()


def state(jobs, *, nodes=2, islands=None, keeps=None, last_islands=None, capacity=None):
    """From rows of (state, nodes or tasks, need, memory, minimum, yield)."""
    shot = build_snapshot(
        (
            SnapshotJob(
                nodes=where if isinstance(where, tuple) else (),
                tasks=None if isinstance(where, tuple) else where,
                paused=state_ == PAUSED,
                need=need,
                memory=memory,
                minimum=minimum,
                yield_=yield_,
            )
            for state_, where, need, memory, minimum, yield_ in jobs
        ),
        nodes=nodes if capacity is None else capacity,
        now_s=10.0,
    )
    home = np.full(len(shot.task_nodes), -1)
    for row, each in (last_islands or {}).items():
        home[shot.first[row] : shot.first[row + 1]] = each
    count = len(shot.capacity)
    refused = [False] * len(jobs)
    return replace(shot, abilities=abilities(keeps or [False] * count, islands or [0] * count, home, refused))


def wanted(shot, slots, yields):
    return Target(np.array(slots, np.int64), np.array(yields, float))


def test_a_job_whose_memory_stays_is_not_paused_and_the_one_that_came_waits():
    shot = state([(RUNNING, (0,), 1.0, 0.6, 0.0, 1.0), (WAITING, 1, 1.0, 0.6, 0.0, 0.0)], nodes=1, keeps=[True])
    after = guard(shot, wanted(shot, [-1, 0], [0.0, 1.0]), TRAITS)
    assert after.task_nodes.tolist() == [0, -1]
    assert after.yields.tolist() == [1.0, 0.0]
    assert after.why == {2: module.KEPT_MEMORY}


def test_beside_a_job_that_stays_another_node_serves_as_well():
    shot = state([(RUNNING, (0,), 1.0, 0.6, 0.0, 1.0), (WAITING, 1, 1.0, 0.6, 0.0, 0.0)], keeps=[True, True])
    after = guard(shot, wanted(shot, [-1, 0], [0.0, 1.0]), TRAITS)
    assert after.task_nodes.tolist() == [0, 1]
    assert not after.why


def test_no_job_that_has_started_leaves_its_island():
    rows = [(RUNNING, (0,), 0.5, 0.1, 0.0, 1.0), (PAUSED, 1, 0.5, 0.1, 0.0, 0.0), (WAITING, 1, 0.5, 0.1, 0.0, 0.0)]
    shot = state(rows, nodes=4, islands=[0, 0, 1, 1], last_islands={1: [1]})
    fine = wanted(shot, [1, 2, 0], [1.0, 1.0, 1.0])
    assert guard(shot, fine, TRAITS) is fine
    moved = guard(shot, wanted(shot, [2, 3, 3], [1.0, 1.0, 1.0]), TRAITS)
    assert moved.task_nodes.tolist() == [0, 3, 3]
    resumed = guard(shot, wanted(shot, [0, 0, 2], [1.0, 1.0, 1.0]), TRAITS)
    assert resumed.task_nodes.tolist() == [0, 2, 2]
    full = [*rows[:2], (RUNNING, (2,), 0.5, 1.0, 0.0, 1.0), (RUNNING, (3,), 0.5, 1.0, 0.0, 1.0)]
    shot = state(full, nodes=4, islands=[0, 0, 1, 1], last_islands={1: [1]})
    after = guard(shot, wanted(shot, [0, 1, 2, 3], [1.0] * 4), TRAITS)
    assert after.task_nodes.tolist() == [0, -1, 2, 3]
    assert after.why == {2: module.OTHER_ISLAND}


def test_each_task_resumes_in_the_island_it_was_in():
    shot = state([(PAUSED, 2, 0.5, 0.1, 0.0, 0.0)], islands=[0, 1], last_islands={0: [1, 0]})
    assert guard(shot, wanted(shot, [0, 1], [1.0]), TRAITS).task_nodes.tolist() == [1, 0]
    assert guard(shot, wanted(shot, [0, 0], [1.0]), TRAITS).task_nodes.tolist() == [1, 0]


def test_minimum_yields_have_room_or_wait():
    rows = [(RUNNING, (0,), 1.0, 0.1, 0.7, 1.0), (WAITING, 1, 1.0, 0.1, 0.5, 0.0), (WAITING, 1, 1.0, 0.1, 0.2, 0.0)]
    shot = state(rows, nodes=1)
    after = guard(shot, wanted(shot, [0, 0, 0], [0.3, 0.3, 0.3]), TRAITS)
    assert after.task_nodes.tolist() == [0, -1, 0]
    assert after.why == {2: module.NO_MINIMUM}
    assert after.yields == pytest.approx([0.7 + 0.3 / 11, 0.0, 0.2 + 0.8 / 11])


def test_a_job_without_a_minimum_yield_is_told_that_those_of_others_keep_it_out():
    rows = [(RUNNING, (0,), 1.0, 0.1, 0.7, 0.7), (WAITING, 1, 1.0, 0.1, 0.0, 0.0)]
    shot = state(rows, nodes=1)
    table = shot.jobs.copy()
    table["requested_start_s"][1] = 5.0
    shot = frozen(shot, jobs=table)
    after = guard(shot, wanted(shot, [0, 0], [0.0, 1.0]), Traits(dedicated=True))
    assert after.task_nodes.tolist() == [0, -1]
    assert after.why == {2: module.OTHERS_MINIMUM}


def test_where_needs_were_revised_up_minimum_yields_are_scaled_down_together():
    rows = [(RUNNING, (0,), 1.0, 0.1, 0.8, 0.5), (RUNNING, (0,), 1.0, 0.1, 0.4, 0.4), (RUNNING, (0,), 1.0, 0.1, 0, 0.1)]
    shot = state(rows, nodes=1)
    after = guard(shot, wanted(shot, [0, 0, 0], [0.5, 0.4, 0.1]), TRAITS)
    assert after.yields == pytest.approx([2 / 3, 1 / 3, 0.0])
    assert after.task_nodes.tolist() == [0, 0, 0]


def test_a_job_whose_minimum_is_one_has_all_of_its_need():
    rows = [(RUNNING, (0,), 0.6, 0.1, 1.0, 0.5), (RUNNING, (0,), 0.6, 0.1, 0.2, 0.4), (RUNNING, (0,), 0.6, 0.1, 0, 0.1)]
    shot = state(rows, nodes=1)
    after = guard(shot, wanted(shot, [0, 0, 0], [0.5, 0.4, 0.1]), TRAITS)
    left = (0.4 / 0.6 - 0.2) / 1.8
    assert after.yields == pytest.approx([1.0, 0.2 + 0.8 * left, left], abs=1e-5)


def weighed(shot, weights):
    table = shot.jobs.copy()
    table["weight"] = weights
    return frozen(shot, jobs=table)


def test_a_minimum_yield_elsewhere_leaves_a_weighted_policy_its_weights():
    rows = [
        (RUNNING, (0,), 1.0, 0.1, 0.0, 0.75),
        (RUNNING, (0,), 1.0, 0.1, 0.0, 0.25),
        (RUNNING, (1,), 1, 0.1, 0.01, 1),
    ]
    shot = weighed(state(rows), [3.0, 1.0, 1.0])
    target = wanted(shot, [0, 0, 1], [0.75, 0.25, 1.0])
    assert guard(shot, target, Traits(weighted=True)).yields == pytest.approx([0.75, 0.25, 1.0])
    assert guard(shot, target, TRAITS).yields == pytest.approx([0.5, 0.5, 1.0])


def test_weights_divide_what_minimum_yields_leave():
    rows = [(RUNNING, (0,), 1.0, 0.1, 0.2, 0.5), (RUNNING, (0,), 1.0, 0.1, 0.0, 0.4), (RUNNING, (0,), 1.0, 0.1, 1.0, 0)]
    shot = weighed(state(rows, nodes=1, capacity=[(2.0, 1.0)]), [1.0, 4.0, 2.0])
    after = guard(shot, wanted(shot, [0, 0, 0], [0.5, 0.4, 1.0]), Traits(weighted=True))
    level = 0.8 / (0.8 + 4.0)
    assert after.yields == pytest.approx([0.2 + 0.8 * level, 4.0 * level, 1.0], abs=1e-5)


def test_a_repaired_target_of_a_weighted_policy_follows_weights():
    rows = [(RUNNING, (0,), 1.0, 0.1, 0.0, 1.0), (WAITING, 1, 1.0, 0.1, 0.0, 0.0), (PAUSED, 1, 1.0, 0.1, 0.0, 0.0)]
    shot = weighed(state(rows, islands=[0, 1], keeps=[True, True], last_islands={2: [1]}), [1.0, 3.0, 1.0])
    after = guard(shot, wanted(shot, [0, 0, 0], [0.2, 0.6, 0.2]), Traits(weighted=True))
    assert after.task_nodes.tolist() == [0, 0, 1]
    assert after.yields == pytest.approx([0.25, 0.75, 1.0])


def test_a_job_whose_memory_stays_does_not_leave_for_a_moment():
    rows = [(RUNNING, (0,), 0.5, 1.0, 0.0, 1.0), (RUNNING, (1,), 0.5, 1.0, 0.0, 1.0)]
    target = ([1, 0], [1.0, 1.0])
    shot = state(rows)
    assert guard(shot, wanted(shot, *target), TRAITS).task_nodes.tolist() == [1, 0]
    shot = state(rows, keeps=[True, True])
    assert guard(shot, wanted(shot, *target), TRAITS).task_nodes.tolist() == [0, 1]


def test_beside_a_job_that_stays_an_exclusive_policy_starts_none_without_its_full_need():
    rows = [(RUNNING, (0,), 1.0, 0.2, 0.0, 1.0), (WAITING, 1, 1.0, 0.2, 0.0, 0.0), (WAITING, 1, 1.0, 0.2, 0.0, 0.0)]
    shot = state(rows, keeps=[True, True])
    after = guard(shot, wanted(shot, [-1, 0, 1], [0.0, 1.0, 1.0]), Traits(exclusive=True))
    assert after.task_nodes.tolist() == [0, -1, 1]
    assert after.yields.tolist() == [1.0, 0.0, 1.0]
    assert after.why == {2: module.KEPT_MEMORY}


def test_a_job_of_an_exclusive_policy_resumes_in_its_island_and_the_one_meant_for_its_node_has_another():
    rows = [(PAUSED, 1, 0.5, 0.1, 0.0, 0.0), (WAITING, 1, 0.5, 0.1, 0.0, 0.0)]
    shot = state(rows, islands=[0, 1], last_islands={0: [1]})
    after = guard(shot, wanted(shot, [0, 1], [1.0, 1.0]), Traits(exclusive=True))
    assert after.task_nodes.tolist() == [1, 0]
    assert after.yields.tolist() == [1.0, 1.0]
    assert not after.why


def test_a_job_of_an_exclusive_policy_resumes_on_no_node_of_its_island_that_another_job_has():
    rows = [(PAUSED, 1, 0.5, 0.1, 0.0, 0.0), (RUNNING, (1,), 0.5, 0.1, 0.0, 1.0)]
    shot = state(rows, islands=[0, 1], last_islands={0: [1]})
    after = guard(shot, wanted(shot, [0, 1], [1.0, 1.0]), Traits(exclusive=True))
    assert after.task_nodes.tolist() == [-1, 1]
    assert after.why == {1: module.OTHER_ISLAND}


def test_tasks_of_an_exclusive_policy_fill_the_nodes_of_their_island_one_after_the_other():
    shot = state([(PAUSED, 3, 0.5, 0.1, 0.0, 0.0)], nodes=4, islands=[0, 1, 1, 1], last_islands={0: [1, 1, 1]})
    after = guard(shot, wanted(shot, [0, 0, 1], [1.0]), Traits(exclusive=True))
    assert after.task_nodes.tolist() == [1, 1, 2]


def test_a_job_resumes_in_one_partition_where_the_policy_has_it_in_one():
    shot = state([(PAUSED, 2, 1.0, 0.1, 0.0, 0.0)], nodes=4, islands=[0, 1, 1, 1], last_islands={0: [1, 1]})
    shot = replace(shot, unequal=replace(shot.hardware, partition=np.array([0, 0, 1, 1])))
    for clustered, nodes in ((False, [1, 2]), (True, [2, 3])):
        after = guard(shot, wanted(shot, [0, 1], [1.0]), Traits(exclusive=True, clustered=clustered))
        assert after.task_nodes.tolist() == nodes


def test_yields_of_an_exclusive_policy_change_though_another_job_waits_and_less_makes_room_for_more():
    rows = [(RUNNING, (1,), 1.0, 0.1, 0.0, 0.2), (RUNNING, (1,), 1.0, 0.1, 0.0, 0.8), (PAUSED, 1, 1.0, 0.1, 0.0, 0.0)]
    shot = state(rows, islands=[0, 1], last_islands={2: [1]})
    after = guard(shot, wanted(shot, [1, 1, 0], [0.6, 0.4, 1.0]), Traits(exclusive=True))
    assert after.task_nodes.tolist() == [1, 1, -1]
    assert after.yields.tolist() == [0.6, 0.4, 0.0]


def test_a_yield_of_an_exclusive_policy_does_not_rise_beside_a_job_that_could_not_go():
    rows = [(RUNNING, (0,), 0.5, 0.1, 0.0, 0.0), (RUNNING, (0,), 1.0, 0.1, 0.0, 0.8), (WAITING, 1, 0.5, 0.1, 0.0, 0.0)]
    shot = state(rows, keeps=[True, True])
    after = guard(shot, wanted(shot, [0, -1, 1], [1.0, 0.0, 1.0]), Traits(exclusive=True))
    assert after.task_nodes.tolist() == [0, 0, 1]
    assert after.yields.tolist() == [0.0, 0.8, 1.0]
