"""FARM-EASY: as EASY on one sub-cluster, never across sub-clusters, and the head is never delayed."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfrs.engine.check import check
from dfrs.model.decisions import Cause, PolicyError, Reason
from dfrs.policies.batch.backfilling import Easy, MissingEstimateError
from dfrs.policies.heterogeneous import cluster_view as farm_board
from dfrs.policies.heterogeneous import easy as farm_easy
from dfrs.policies.heterogeneous.easy import PartitionEasy, TooWideError
from dfrs.policies.heterogeneous.rules import First, Rules
from tests.farm_policy_cases import broken, farm_snapshot, seeded
from tests.naive import farm as naive
from tests.strategies import Drawn

POLICY = PartitionEasy()


def decided(shot):
    target = POLICY.decide(shot)
    check(shot, target)
    return target, [naive.slots(shot, r, target.task_nodes) for r in range(len(shot.jobs))]


def run(nodes, estimate_s=1000.0, **given):
    return {"tasks": len(nodes), "nodes": nodes, "estimate_s": estimate_s, **given}


def wait(tasks, estimate_s=100.0, **given):
    return {"tasks": tasks, "estimate_s": estimate_s, **given}


# By hand


def test_the_first_sub_cluster_with_room_and_one_machine_if_possible():
    shape = [(2, 2), (2, 4)]
    _, nodes = decided(farm_snapshot(shape, [run([0]), wait(2), wait(4), wait(3), wait(2)]))
    # Node 1 is free, but two nodes of one machine are better; the large ones need the second sub-cluster.
    assert nodes == [[0], [2, 3], [4, 5, 6, 7], [8, 9, 10], []]


def placed(first, jobs, shape):
    shot = farm_snapshot(shape, jobs)
    target = PartitionEasy(rules=Rules(first=first)).decide(shot)
    check(shot, target)
    return [naive.slots(shot, r, target.task_nodes) for r in range(len(jobs))]


def test_jobs_may_start_where_most_nodes_are_free():
    shape = [(1, 3), (1, 4), (1, 4)]
    # B has as many as C; then C has most, then A and B the same.
    assert placed(First.FREE, [wait(1), wait(3), wait(1)], shape) == [[3], [7, 8, 9], [0]]
    # What waits goes ahead by the same rule.
    jobs = [run([0]), run([3, 4, 5]), run([7]), wait(4, 9e9), wait(1, 1.0)]
    assert placed(First.FREE, jobs, shape)[3:] == [[], [8]]
    assert placed(First.INDEX, jobs, shape)[3:] == [[], [1]]


def test_jobs_may_start_where_one_machine_has_room():
    shape, jobs = [(2, 2), (1, 4)], [run([0]), run([2]), wait(2), wait(2), wait(2)]
    assert placed(First.INDEX, jobs, shape)[2:] == [[1, 3], [4, 5], [6, 7]]
    # The last has no machine to itself any more, and takes what there is.
    assert placed(First.MACHINE, jobs, shape)[2:] == [[4, 5], [6, 7], [1, 3]]


def test_no_job_is_split_over_sub_clusters():
    # Two nodes are free, one in each sub-cluster; who wants only one goes ahead until 1500.
    _, nodes = decided(farm_snapshot([(1, 2), (1, 2)], [run([0], 1500.0), run([2], 1600.0), wait(2), wait(1)]))
    assert nodes[2:] == [[], [1]]


def test_backfilling_around_the_first_sub_cluster_that_has_enough():
    jobs = [run([0, 1, 2], 1100.0), run([4, 5], 1050.0), wait(4)]
    shape = [(1, 4), (1, 4)]
    # The head fits on B at 1050; A is not reserved, so a long job may go there; on B it must be short.
    for more, expected in [
        ([wait(1, 5000.0)], [[3]]),
        ([wait(2, 5000.0)], [[]]),
        ([wait(2, 50.0)], [[6, 7]]),
        ([wait(1, 5000.0), wait(2, 50.0), wait(1, 10.0)], [[3], [6, 7], []]),
        ([wait(2, 51.0)], [[]]),
    ]:
        target, nodes = decided(farm_snapshot(shape, [*jobs, *more]))
        assert nodes[3:] == expected
        assert [Reason(k) for k in target.reasons[3:].tolist()] == [
            Reason.BACKFILLED if n else Reason.NONE for n in expected
        ]


def test_nodes_to_spare_in_the_reserved_sub_cluster_may_be_taken_for_long():
    jobs = [run([0, 1], 1050.0), wait(3)]
    target, nodes = decided(farm_snapshot([(1, 4)], [*jobs, wait(1, 9000.0), wait(1, 9000.0)]))
    assert nodes[1:] == [[], [2], []]
    assert target.wake_at_s is None


def test_a_lock_puts_the_reservation_off():
    # B would have room at once, but jobs are being moved there until 1400; A has room at 1200.
    mover = run(
        [5], 9000.0, policy_state=farm_board.policy_rules.moved(0, 2, 40), since_s=1000.0, start_s=0.0, migrations=1
    )
    jobs = [run([0, 1], 1200.0), mover, wait(3), wait(1, 300.0), wait(1, 200.0)]
    target, nodes = decided(farm_snapshot([(1, 3), (1, 4), (1, 1)], jobs))
    assert nodes[2:] == [[], [], [2]]
    assert target.wake_at_s == 1400.0


def test_a_job_past_its_estimate_may_end_at_any_moment():
    target, nodes = decided(farm_snapshot([(1, 2)], [run([0], 10.0), wait(2), wait(1, 5.0)]))
    assert nodes[1:] == [[], []]
    assert target.yields.tolist() == [1.0, 0.0, 0.0]


def test_a_job_is_timed_from_its_start_and_not_from_when_it_was_moved():
    jobs = [run([0], 500.0, since_s=900.0, start_s=900.0), wait(2), wait(1, 350.0)]
    _, nodes = decided(farm_snapshot([(1, 2)], jobs))
    assert nodes[2] == [1]
    jobs[0] |= {"start_s": 0.0, "migrations": 1, "policy_state": 2}
    _, nodes = decided(farm_snapshot([(1, 2)], jobs))
    assert nodes[2] == []


def test_memory_and_need_must_fit():
    shape, memory = [(1, 2), (1, 2)], [0.5, 1.0]
    _, nodes = decided(farm_snapshot(shape, [wait(2, memory=0.6), wait(1, need=0.5, memory=0.5)], memory=memory))
    assert nodes == [[2, 3], [0]]
    # What no node holds has no reservation, and holds nobody up.
    _, nodes = decided(farm_snapshot(shape, [wait(1, memory=1.1), wait(2, 9e9)], memory=memory))
    assert nodes == [[], [0, 1]]


def test_a_job_too_wide_for_the_only_partition_waits():
    shot = farm_snapshot([(1, 2)], [wait(5), wait(1)], cause=Cause.SUBMISSION, subject=0)
    assert decided(shot)[1] == [[], [0]]


def test_jobs_that_can_never_start_or_have_no_estimate_are_refused():
    shape = [(1, 2), (2, 2)]
    shot = farm_snapshot(shape, [wait(5)], cause=Cause.SUBMISSION, subject=0)
    with pytest.raises(TooWideError, match="job 100 has 5 tasks: a sub-cluster has at most 4 nodes"):
        POLICY.decide(shot)
    for jobs, subject in [
        ([wait(1, math.nan)], 0),
        ([run([2], math.nan), wait(4), wait(1)], -1),
        ([run([2]), wait(4), wait(1, math.nan)], -1),
    ]:
        with pytest.raises(MissingEstimateError, match="FARM-EASY plans with"):
            POLICY.decide(farm_snapshot(shape, jobs, subject=subject))


def test_jobs_of_another_policy_keep_their_places_and_get_the_cpu_that_is_theirs_alone():
    jobs = [run([0, 1], yield_=0.5), run([2, 2], yield_=0.5), run([1], yield_=0.25), run([3, 5], yield_=0.5)]
    target, nodes = decided(farm_snapshot([(1, 4), (1, 2)], jobs))
    assert nodes == [[0, 1], [2, 2], [1], [3, 5]]
    assert target.yields.tolist() == [0.5, 0.5, 0.25, 1.0]


# Properties


def random_case(source, shape):
    """Jobs on their own nodes, each in one sub-cluster, and a queue."""
    sizes = [machines * cores for machines, cores in shape]
    begins = np.cumsum([0, *sizes]).tolist()
    free = [list(range(a, b)) for a, b in pairwise(begins)]
    jobs, now_s = [], 1000.0
    for _ in range(source.integer(1, 14)):
        tasks, estimate_s = source.integer(1, max(sizes)), float(source.integer(1, 9))
        memory = source.pick((0.0, 0.0, 0.5, 1.0))
        c = source.integer(0, len(shape) - 1)
        if source.integer(0, 1) and len(free[c]) >= tasks:
            nodes = [free[c].pop(source.integer(0, len(free[c]) - 1)) for _ in range(tasks)]
            since_s = now_s - source.integer(0, 11)
            jobs.append(run(sorted(nodes), estimate_s, since_s=since_s, virtual_s=now_s - since_s, memory=memory))
        else:
            jobs.append(wait(tasks, estimate_s, memory=memory))
    closed = [n for n in range(sum(sizes)) if not source.integer(0, 9)]
    return farm_snapshot(shape, jobs, now_s=now_s, cause=Cause.COMPLETION, closed=closed)


def check_one_cluster(shot):
    """On one sub-cluster the same as EASY; the very same nodes where all are of one machine, or each is one."""
    assert POLICY.decide(shot).task_nodes.tolist() == Easy().decide(replace(shot, unequal=None)).task_nodes.tolist()
    assert POLICY.decide(shot).reasons.tolist() == _padded(Easy().decide(replace(shot, unequal=None)).reasons, shot)


def _padded(reasons, shot):
    return reasons.tolist() if len(reasons) else [0] * len(shot.jobs)


def one_cluster(source):
    return random_case(source, [source.pick([(1, source.integer(1, 9)), (source.integer(1, 9), 1)])])


@settings(max_examples=300)
@given(st.data())
def test_on_one_sub_cluster_it_decides_as_easy(data):
    check_one_cluster(one_cluster(Drawn(data.draw)))


@given(st.data())
def test_machines_change_only_which_nodes_are_taken(data):
    shot = random_case(Drawn(data.draw), [(3, 3)])
    ours, theirs = POLICY.decide(shot), Easy().decide(replace(shot, unequal=None))
    assert (ours.task_nodes >= 0).tolist() == (theirs.task_nodes >= 0).tolist()


def several(source):
    shape = [(source.integer(1, 2), source.integer(1, 4)) for _ in range(source.integer(2, 4))]
    return random_case(source, shape)


def check_reservation(shot):
    """The head's reservation is as if nobody had been backfilled, and nobody is in two sub-clusters."""
    target = POLICY.decide(shot)
    check(shot, target)
    only = target.task_nodes.copy()
    for r in np.flatnonzero(target.reasons == Reason.BACKFILLED).tolist():
        only[shot.first[r] : shot.first[r + 1]] = -1
    for r in range(len(shot.jobs)):
        nodes = naive.slots(shot, r, target.task_nodes)
        assert len(naive.clusters_of(shot, nodes)) <= 1
        if not naive.slots(shot, r):
            assert shot.open[nodes].all()
    used = target.task_nodes[target.task_nodes >= 0].tolist()
    assert len(used) == len(set(used))
    waiting = [r for r in range(len(shot.jobs)) if not naive.slots(shot, r, only)]
    if waiting:
        tasks = int(shot.jobs["tasks"][waiting[0]])
        before, after = (naive.reservation(shot, at, tasks, {}) for at in (only, target.task_nodes))
        assert after == before, "the head is delayed"


@settings(max_examples=300)
@given(st.data())
def test_backfilling_does_not_delay_the_head(data):
    check_reservation(several(Drawn(data.draw)))


def simulate(source):
    """A farm over time, with exact estimates; asserts that no head starts later than it was ever promised."""
    shape = [(source.integer(1, 2), source.integer(1, 3)) for _ in range(source.integer(1, 3))]
    most = max(machines * cores for machines, cores in shape)
    coming = sorted(
        (float(source.integer(0, 30)), source.integer(1, most), float(source.integer(1, 12))) for _ in range(14)
    )
    now_s, jobs, promised, serial = 0.0, [], {}, 0
    while coming or jobs:
        ends = [job["since_s"] + job["estimate_s"] for job in jobs if job.get("nodes")]
        now_s = min([*ends, *([coming[0][0]] if coming else [])])
        jobs = [job for job in jobs if not job.get("nodes") or job["since_s"] + job["estimate_s"] > now_s]
        while coming and coming[0][0] <= now_s:
            _, tasks, estimate_s = coming.pop(0)
            jobs.append({"id": serial, "tasks": tasks, "estimate_s": estimate_s})
            serial += 1
        shot = farm_snapshot(shape, jobs, now_s=now_s, cause=Cause.COMPLETION)
        target = POLICY.decide(shot)
        for r, job in enumerate(jobs):
            nodes = naive.slots(shot, r, target.task_nodes)
            if nodes and not job.get("nodes"):
                assert now_s <= promised.get(job["id"], math.inf), "a head started later than promised"
                job |= {"nodes": nodes, "since_s": now_s}
        head = next((r for r, job in enumerate(jobs) if not job.get("nodes")), None)
        if head is not None:
            at_s = naive.reservation(shot, target.task_nodes, jobs[head]["tasks"], {})
            assert at_s <= promised.get(jobs[head]["id"], math.inf), "a reservation was put off"
            promised[jobs[head]["id"]] = at_s


@given(st.integers(0, 2**32 - 1))
def test_with_exact_estimates_the_head_starts_when_it_was_promised(seed):
    simulate(seeded(seed))


MUTATIONS = (
    (farm_easy, "c == done.reserved and now_s", "False and now_s", check_reservation, several),
    (farm_easy, "estimate_s > done.shadow_s", "estimate_s > done.shadow_s + 2", check_reservation, several),
    (farm_easy, "max(end_s, ends.get(n, end_s))", "end_s + 1.0", check_one_cluster, one_cluster),
    (farm_easy, "spare -= lost", "pass", check_reservation, several),
    (farm_easy, "done.head = row\n", "done.head = row\n            continue\n", simulate, lambda source: source),
    (farm_easy, "if lost <= spare:", "if True:", simulate, lambda source: source),
    (farm_easy, "max(left_s, 0.0)", "max(left_s, 3.0)", check_one_cluster, one_cluster),
    (farm_board, "whole[0][:tasks]", "whole[-1][-tasks:]", check_one_cluster, one_cluster),
    (farm_easy, "in board.free[partition] if", "in sum(board.free, []) if", check_reservation, several),
)


@pytest.mark.parametrize(("module", "old", "new", "promise", "build"), MUTATIONS)
def test_each_promise_can_be_broken(monkeypatch, module, old, new, promise, build):
    for seed in range(100):
        promise(build(seeded(seed)))
    broken(monkeypatch, module, old, new)
    assert any(fails(promise, build(seeded(seed))) for seed in range(1_000))


def fails(promise, case):
    try:
        promise(case)
    except (AssertionError, PolicyError):
        return True
    return False
