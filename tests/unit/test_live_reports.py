"""What agents say of their tasks: all of those that run, and of paused ones what is new."""

from dfrs.live.agent.reports import SETTLED, Reports
from dfrs.live.drivers.base import TaskId
from dfrs.live.protocol.observed import Sample

TASKS = [TaskId(job=k, rank=0, attempt=0) for k in (1, 2)]


def sample(task, cpu_s, memory=1):
    return Sample(task=task, cpu_s=cpu_s, memory_bytes=memory)


def test_what_runs_is_told_each_time_though_it_does_nothing():
    reports = Reports()
    for _ in range(3 * SETTLED):
        assert len(reports.news([sample(TASKS[0], 5.0)], lambda _: False)) == 1


def test_a_paused_task_is_told_of_until_it_has_settled_and_when_something_is_new():
    reports = Reports()
    told = [len(reports.news([sample(TASKS[0], 5.0)], lambda _: True)) for _ in range(2 * SETTLED)]
    assert told == [1] * (SETTLED + 1) + [0] * (SETTLED - 1)
    # Its memory is swapped out.
    assert len(reports.news([sample(TASKS[0], 5.0, 2)], lambda _: True)) == 1
    for _ in range(2 * SETTLED):
        found = reports.news([sample(TASKS[0], 5.0, 2), sample(TASKS[1], 1.0)], lambda task: task == TASKS[0])
    assert [each.task for each in found] == [TASKS[1]]
    # It goes on: from the first second on it is told of, also before it has done anything.
    assert [len(reports.news([sample(TASKS[0], 5.0, 2)], lambda _: False)) for _ in range(3)] == [1, 1, 1]


def test_another_connection_is_told_everything():
    reports = Reports()
    for _ in range(2 * SETTLED):
        reports.news([sample(TASKS[0], 5.0)], lambda _: True)
    assert reports.news([sample(TASKS[0], 5.0)], lambda _: True) == ()
    assert len(Reports().news([sample(TASKS[0], 5.0)], lambda _: True)) == 1


def test_who_was_away_is_told_of_anew():
    reports = Reports()
    for _ in range(2 * SETTLED):
        reports.news([sample(TASKS[0], 5.0)], lambda _: True)
    reports.news([], lambda _: True)
    assert len(reports.news([sample(TASKS[0], 5.0)], lambda _: True)) == 1
