"""The bound of a snapshot equals the definition, written out slowly, and is quick for many jobs."""

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.bounds.snapshot import snapshot_bound
from dfrs.live.controller.best_yield import BestYield, usable_cpu
from dfrs.model.decisions import JOB, Cause, Snapshot


def snapshot(capacity, jobs, open_=None, at=None):
    """Jobs are (tasks, need, memory)."""
    table = np.zeros(len(jobs), JOB)
    for row, (tasks, need, memory) in enumerate(jobs):
        table[row]["tasks"], table[row]["need"], table[row]["memory"] = tasks, need, memory
    first = np.concatenate(([0], np.cumsum(table["tasks"]))).astype(np.int64)
    nodes = np.full(first[-1], -1) if at is None else np.array(at)
    return Snapshot(
        now_s=0.0,
        cause=Cause.WAKE,
        subject=-1,
        capacity=np.array(capacity, float).reshape(-1, 2),
        open=np.ones(len(capacity), bool) if open_ is None else np.array(open_),
        jobs=table,
        first=first,
        task_nodes=nodes,
        moved=0.0,
    )


def by_definition(capacity, jobs):
    if sum(tasks * memory for tasks, _, memory in jobs) > sum(memory for _, memory in capacity):
        return 0.0
    bound = 1.0
    for tasks, need, memory in jobs:
        fits = [cpu for cpu, room in capacity if room >= memory]
        if tasks and not fits:
            return 0.0
        bound = min(bound, max(fits) / need)
    needed = sum(tasks * need for tasks, need, _ in jobs)
    return min(bound, sum(cpu for cpu, _ in capacity) / needed) if jobs else 1.0


eighths = st.integers(1, 16).map(lambda k: k / 8)


@given(
    st.lists(st.tuples(eighths, eighths), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(1, 4), eighths, st.integers(0, 8).map(lambda k: k / 8)), max_size=6),
)
def test_it_is_what_it_is_defined_to_be(capacity, jobs):
    assert snapshot_bound(snapshot(capacity, jobs)) == pytest.approx(by_definition(capacity, jobs), abs=1e-12)


@given(
    st.lists(st.tuples(eighths, eighths), min_size=1, max_size=5),
    st.lists(
        st.tuples(st.integers(1, 4), eighths, st.integers(0, 8).map(lambda k: k / 8), st.booleans(), st.booleans()),
        max_size=6,
    ),
)
def test_it_holds_when_jobs_have_come_and_gone(capacity, jobs):
    *_, before, after = (np.array(column, bool) for column in zip(*jobs, strict=True)) if jobs else ([], [])
    whole = snapshot(capacity, [job[:3] for job in jobs])
    whole.jobs["id"] = np.arange(1, len(jobs) + 1)
    first, second = whole.select(np.array(before, bool)), whole.select(np.array(after, bool))
    best, present = BestYield.of(first, snapshot_bound(first)), second.jobs["id"].tolist()
    cpu = sum(each for each, _ in capacity)
    assert best.of_those(present, cpu) >= snapshot_bound(second) - 1e-9
    if set(first.jobs["id"]) <= set(second.jobs["id"]):
        assert best.of_those(present, cpu) == snapshot_bound(first)
    # A node comes.
    larger = replace(
        second, capacity=np.append(second.capacity, [[1.0, 1.0]], axis=0), open=np.append(second.open, True)
    )
    assert best.of_those(present, cpu + 1.0) >= snapshot_bound(larger) - 1e-9


def test_a_node_that_is_opened_makes_more_possible():
    closed = snapshot([(1.0, 1.0), (1.0, 1.0)], [(2, 1.0, 0.1)], open_=[True, False], at=[0, 0])
    best, opened = BestYield.of(closed, snapshot_bound(closed)), replace(closed, open=np.ones(2, bool))
    assert best.of_those([0], usable_cpu(closed)) == 0.5
    assert best.of_those([0], usable_cpu(opened)) == snapshot_bound(opened) == 1.0


def test_when_all_have_gone_nothing_is_known_to_be_out_of_reach():
    first = snapshot([(1.0, 1.0)], [(4, 1.0, 0.1)])
    best = BestYield.of(first, snapshot_bound(first))
    assert (best.value, best.of_those([0], 1.0), best.of_those([], 1.0)) == (0.25, 0.25, 1.0)
    assert best.of_those([0], 2.0) == 0.5


def test_a_closed_node_counts_only_while_tasks_are_on_it():
    two, job = [(1.0, 1.0), (1.0, 1.0)], [(2, 1.0, 0.1)]
    assert snapshot_bound(snapshot(two, job)) == 1.0
    assert snapshot_bound(snapshot(two, job, open_=[True, False])) == 0.5
    assert snapshot_bound(snapshot(two, job, open_=[True, False], at=[0, 1])) == 1.0
    assert snapshot_bound(snapshot(two, job, open_=[False, False])) == 0.0


def crowd(nodes):
    """So many nodes, and ten jobs for each."""
    chance, jobs = np.random.default_rng(1), 10 * nodes
    rows = zip(chance.integers(1, 4, jobs), chance.uniform(0.01, 1, jobs), chance.uniform(0, 0.04, jobs), strict=True)
    return snapshot(np.ones((nodes, 2)).tolist(), list(rows))


def test_time_grows_no_faster_than_the_cluster():
    """Ten thousand jobs on a thousand nodes, beside a thousand on a hundred; a square would be a hundred."""

    def least_s(crowded):
        times = []
        for _ in range(5):
            begin_s = time.process_time()
            assert 0.0 < snapshot_bound(crowded) < 1.0
            times.append(time.process_time() - begin_s)
        return min(times)

    assert least_s(crowd(1000)) < 40 * least_s(crowd(100))
