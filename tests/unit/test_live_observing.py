"""What the controller makes of a discovery: who is watched, from when on, and what is promised beside it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.live.controller.observing import Observer
from dfrs.live.controller.records import JobRecord, Observation, TaskRecord
from dfrs.live.drivers.base import TaskId, TaskState
from dfrs.live.protocol.observed import Sample
from dfrs.live.protocol.resources import JobRequest
from dfrs.model.needs import WEIGHTS, Revision

CAPACITY = np.array([1.0, 2.0])


class Equal:
    """Equal weights on each node; keeps what it was told."""

    name = "EQUAL"

    def __init__(self):
        self.seen = []

    def step(self, now_s, table, usage, capacity, /):
        self.seen.append((now_s, table.copy(), usage.copy()))
        weights = WEIGHTS / np.bincount(table["node"], minlength=len(capacity))[table["node"]]
        new = table.copy()
        new["weight"] = weights
        return Revision(table=new, weights=weights, next_step_s=now_s + 2.0)


def job(number, nodes, **request):
    record = JobRecord(
        id=number,
        request_id=number,
        request=JobRequest(command=("x",), tasks=len(nodes), **request),
        user="ann",
        submitted_at=0.0,
        placed=True,
        need=0.5,
    )
    for rank, node in enumerate(nodes):
        task = TaskRecord(TaskId(job=number, rank=rank, attempt=0))
        arrive(task, node)
        record.tasks.append(task)
    return record


def arrive(task, node):
    task.target, task.at = node, {node: Observation(state=TaskState.RUNNING)}


def used(record, rank, time_s, cpu_s):
    task = record.tasks[rank]
    task.observe(time_s, Sample(task=task.id, cpu_s=cpu_s, memory_bytes=1), 1.0)


def step(observer, table_and_usage, now_s):
    return observer.discovery.step(now_s, *table_and_usage, CAPACITY)


def shares(*jobs):
    observer = Observer(Equal())
    revision = step(observer, observer.regroup(jobs, CAPACITY), 1.0)
    return observer.apply(revision, CAPACITY)


def test_weights_divide_a_node():
    assert shares(job(1, [0]), job(2, [0]), job(3, [1])) == {(1, 0): 0.5, (2, 0): 0.5, (3, 0): 2.0}


def test_jobs_with_weights_have_so_many_times_the_share_if_the_policy_says_so():
    jobs = [job(1, [0], weight=3.0), job(2, [0]), job(3, [1], weight=0.1)]
    assert shares(*jobs) == {(1, 0): 0.5, (2, 0): 0.5, (3, 0): 2.0}
    observer = Observer(Equal(), weighted=True)
    revision = step(observer, observer.regroup(jobs, CAPACITY), 1.0)
    assert observer.apply(revision, CAPACITY) == pytest.approx({(1, 0): 0.75, (2, 0): 0.25, (3, 0): 2.0})
    # Discovery is told of the shares that were in force.
    _, usage = observer.observe(CAPACITY, 1.0)
    assert usage["share"] == pytest.approx([0.75, 0.25, 2.0])


def test_minimum_yields_are_kept_whatever_the_weights():
    found = shares(job(1, [0], minimum_yield=0.8), job(2, [0]), job(3, [0]), job(4, [1]))
    # 0.8 of a need of a half, and a third of the rest.
    assert found == pytest.approx({(1, 0): 0.4 + 0.2, (2, 0): 0.2, (3, 0): 0.2, (4, 0): 2.0})


def test_a_job_with_a_requested_start_has_all_that_it_needs():
    found = shares(job(1, [0], start_at=100.0), job(2, [0]))
    assert found == pytest.approx({(1, 0): 0.75, (2, 0): 0.25})


def test_more_promised_than_there_is_is_cut_alike():
    jobs = [job(k, [0], minimum_yield=1.0) for k in (1, 2, 3)]
    assert sum(shares(*jobs).values()) == pytest.approx(1.0)
    assert set(np.round(list(shares(*jobs).values()), 12)) == {round(1 / 3, 12)}


def test_what_was_seen_belongs_to_those_who_were_there():
    observer, first = Observer(Equal()), job(1, [0])
    observer.apply(step(observer, observer.regroup([first], CAPACITY), 1.0), CAPACITY)
    used(first, 0, 10.0, 5.0)
    observer.apply(step(observer, observer.observe(CAPACITY, 2.0), 2.0), CAPACITY)
    used(first, 0, 12.0, 6.0)
    observer.keep(step(observer, observer.observe(CAPACITY, 2.0), 3.0))
    observer.apply(step(observer, observer.regroup([first, job(2, [0])], CAPACITY), 3.0), CAPACITY)
    usage = [usage for _, _, usage in observer.discovery.seen]
    assert [len(each) for each in usage] == [1, 1, 1, 2]
    assert not usage[1]["seconds"].any()
    assert (usage[2]["seconds"][0], usage[2]["used_s"][0], usage[2]["share"][0]) == (2.0, 0.5, 1.0)
    assert not usage[3]["seconds"].any()


def test_what_was_used_before_another_node_watched_it_is_not_looked_at():
    observer, one = Observer(Equal()), job(1, [0])
    observer.apply(step(observer, observer.regroup([one], CAPACITY), 1.0), CAPACITY)
    task = one.tasks[0]
    for time_s, cpu_s, watched_s, delayed_s in (
        (10.0, 5.0, 8.0, 4.0),
        (12.0, 5.9, 0.3, 0.1),
        (14.0, 6.8, 2.3, 1.2),
    ):
        waited = {"watched_s": watched_s, "delayed_s": delayed_s, "waiting_s": delayed_s}
        task.observe(time_s, Sample(task=task.id, cpu_s=cpu_s, memory_bytes=1, **waited), 1.0)
        _, usage = observer.observe(CAPACITY, 1.0)
        assert not usage["seconds"].any() or time_s == 14.0
    assert (usage["seconds"][0], usage["delayed_s"][0]) == pytest.approx((2.0, 1.1))


def test_what_was_used_under_other_weights_is_not_looked_at():
    observer, one = Observer(Equal()), job(1, [0])
    observer.apply(step(observer, observer.regroup([one], CAPACITY), 1.0), CAPACITY)
    used(one, 0, 10.0, 5.0)
    used(one, 0, 11.0, 5.9)
    other = job(2, [0])
    observer.apply(step(observer, observer.regroup([one, other], CAPACITY), 2.0), CAPACITY)
    used(one, 0, 11.1, 6.0)
    used(one, 0, 12.1, 6.5)
    _, usage = observer.observe(CAPACITY, 1.0)
    assert (usage["seconds"][0], usage["used_s"][0]) == pytest.approx((1.0, 0.5))
    observer.apply(step(observer, observer.regroup([one, other], CAPACITY), 3.0), CAPACITY)
    used(one, 0, 13.1, 7.0)
    _, usage = observer.observe(CAPACITY, 1.0)
    assert (usage["seconds"][0], usage["used_s"][0]) == pytest.approx((1.0, 0.5))


def test_a_task_that_moved_is_seen_from_there_on():
    observer, moving = Observer(Equal()), job(1, [0])
    observer.apply(step(observer, observer.regroup([moving], CAPACITY), 1.0), CAPACITY)
    used(moving, 0, 10.0, 5.0)
    observer.observe(CAPACITY, 1.0)
    arrive(moving.tasks[0], 1)
    table, _ = observer.regroup([moving], CAPACITY)
    assert table["node"].tolist() == [1]
    used(moving, 0, 12.0, 6.0)
    _, usage = observer.observe(CAPACITY, 1.0)
    assert not usage["seconds"].any()
    used(moving, 0, 13.0, 6.5)
    _, usage = observer.observe(CAPACITY, 1.0)
    assert (usage["seconds"][0], usage["used_s"][0]) == (1.0, 0.5)


def test_who_ended_is_watched_no_more():
    observer = Observer(Equal())
    observer.apply(step(observer, observer.regroup([job(1, [0, 1])], CAPACITY), 1.0), CAPACITY)
    assert len(observer.state()) == 2
    observer.apply(step(observer, observer.regroup([], CAPACITY), 2.0), CAPACITY)
    assert len(observer.state()) == 0


counters = st.tuples(*(st.none() | st.integers(0, 40) for _ in range(3)))


@given(
    jobs=st.lists(
        st.tuples(st.integers(1, 3), st.booleans(), st.lists(st.tuples(st.integers(0, 40), counters), max_size=4)),
        max_size=5,
    )
)
def test_the_table_is_that_of_each_task_alone(jobs):
    """Of all tasks at once the same is told as of each one; paused ones keep what was found, and those that end go."""
    observer, alone, records = Observer(Equal()), {}, []
    for number, (tasks, _, _) in enumerate(jobs, start=1):
        records.append(job(number, [k % 2 for k in range(tasks)], cpu_cores=None))
        alone[number] = Observer(Equal())
    everybody = {None: observer, **alone}
    for key, each in everybody.items():
        mine = [record for record in records if key in {None, record.id}]
        each.apply(step(each, each.regroup(mine, CAPACITY), 1.0), CAPACITY)
    for record, (_, _, seen) in zip(records, jobs, strict=True):
        for time_s, (cpu_s, (throttled_s, waiting_s, delayed_s)) in enumerate(seen):
            fields = {"throttled_s": throttled_s, "waiting_s": waiting_s, "delayed_s": delayed_s}
            sample = Sample(task=record.tasks[0].id, cpu_s=cpu_s, memory_bytes=1, **fields)
            record.tasks[0].observe(float(time_s), sample, 1.0)
    bases = [task.base for record in records for task in record.tasks]
    _, whole = observer.observe(CAPACITY, 2.0)
    for task, base in zip((task for record in records for task in record.tasks), bases, strict=True):
        task.base = base
    parts = [alone[record.id].observe(CAPACITY, 2.0)[1] for record in records]
    for name in (name for name in whole.dtype.names if name != "share"):
        assert np.array_equal(whole[name], np.concatenate([part[name] for part in parts] or [[]]), equal_nan=True)
    for record, (_, paused, _) in zip(records, jobs, strict=True):
        record.placed = not paused
        if paused and record.id % 2:
            record.tasks = []
    table, _ = observer.regroup(records, CAPACITY)
    assert table["job"].tolist() == [record.id for record in records if record.placed for _ in record.tasks]
    kept = [(record.id, task.id.rank) for record in records for task in record.tasks]
    assert [(row["job"], row["rank"]) for row in observer.state()] == kept
    assert set(observer.errors()) == {name for name, _ in kept}


def test_what_a_host_does_not_tell_is_not_known():
    observer, one = Observer(Equal()), job(1, [0])
    observer.apply(step(observer, observer.regroup([one], CAPACITY), 1.0), CAPACITY)
    used(one, 0, 10.0, 5.0)
    used(one, 0, 12.0, 6.0)
    _, usage = observer.observe(CAPACITY, 2.0)
    assert (usage["seconds"][0], usage["used_s"][0]) == (2.0, 0.5)
    assert all(math.isnan(usage[name][0]) for name in ("throttled_s", "waiting_s", "idle_s", "delayed_s"))
