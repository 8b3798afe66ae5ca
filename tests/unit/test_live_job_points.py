"""How a job fared: points as they were seen, the fewer the longer it runs, and no more memory than that."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.live.controller import job_points
from dfrs.live.controller.job_points import FIRST_STEP_S, MOST_POINTS, PART, JobPoints
from dfrs.live.errors import NotFoundError
from dfrs.live.protocol.resources import JobPoint, JobState
from dfrs.testing import InMemoryCluster, run_virtually, until


def point(time, received=0.5, used_bytes=1 << 28):
    return JobPoint(
        time=time,
        yield_granted=0.5,
        yield_received=received,
        need_cores=2.0,
        used_cores=None,
        used_bytes=used_bytes,
    )


@given(st.floats(0.1, 5.0), st.integers(1, 2000), st.floats(0.0, 2e9))
def test_there_are_few_of_any_job_evenly_apart_from_its_start_on(tick_s, ticks, begun):
    points = JobPoints()
    for k in range(ticks):
        now = begun + k * tick_s
        if points.due(7, now):
            points.add(7, point(now, used_bytes=k))
    times = [each.time for each in points.of(7)]
    assert times[0] == begun
    assert len(times) <= MOST_POINTS
    assert begun + ticks * tick_s - times[-1] <= max(FIRST_STEP_S, 4.0 * ticks * tick_s / MOST_POINTS) + 2.0 * tick_s
    steps = [after - before for before, after in pairwise(times)]
    assert all(step > 0.0 for step in steps)
    assert max(steps, default=0.0) <= 4.0 * max(min(steps, default=1.0), tick_s, FIRST_STEP_S)


def test_they_are_what_was_taken_in():
    points = JobPoints()
    points.add(1, point(1e9, received=None))
    points.add(1, point(1e9 + 2.5, used_bytes=None))
    first, second = points.of(1)
    assert first == point(1e9, received=None)
    assert second == point(1e9 + 2.5, used_bytes=None)
    assert points.of(2) == ()


def test_of_a_job_for_which_nothing_changes_one_is_kept():
    points = JobPoints()
    for k in range(1000):
        if points.due(1, 10.0 * k):
            points.add(1, point(10.0 * k, received=None if k < 500 else 0.5))
    first, second = points.of(1)
    assert (first.time, first.yield_received, second.yield_received) == (0.0, None, 0.5)
    assert 5000.0 <= second.time <= 5000.0 * (1 + 1 / PART) + 10.0


def test_jobs_that_run_are_watched_and_others_until_nothing_changes():
    points = JobPoints()
    running, paused = point(0.0), point(2.0).model_copy(update={"yield_granted": None})
    for seen, watched in ((running, True), (running, True), (paused, True), (paused, False), (running, True)):
        points.add(1, seen)
        assert points.watched == ({1} if watched else set())
    points.end(1)
    assert not points.watched


def test_jobs_that_ended_long_ago_are_forgotten(monkeypatch):
    monkeypatch.setattr(job_points, "MOST_ENDED", 3)
    points = JobPoints()
    for job in range(6):
        points.add(job, point(0.0))
        points.end(job)
    points.end(99)
    assert [job for job in range(100) if points.of(job)] == [3, 4, 5]


def test_a_cluster_keeps_them_of_a_job_from_its_start_until_after_its_end(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1, report_s=0.1) as live:
            job = await live.submit("forever", cpu_cores=1.0)
            assert live.controller.job_points(job) == ()
            await live.reaches(job, JobState.RUNNING)
            live.tick(5.0)
            await until(lambda: live.controller.job_points(job))
            found = live.controller.job_points(job)
            assert found[0].time >= live.job(job).started_at
            assert found[-1].need_cores == 1.0
            assert found[-1].yield_granted == pytest.approx(live.job(job).yield_granted, abs=1e-6)
            await live.controller.hold(job, "ann")
            live.tick(5.0)
            await until(lambda: live.controller.job_points(job)[-1].yield_granted is None)
            await live.controller.cancel(job, "ann")
            await live.reaches(job, JobState.CANCELLED)
            assert live.controller.job_points(job)[: len(found)] == found
            with pytest.raises(NotFoundError, match="job 99"):
                live.controller.job_points(99)

    run_virtually(0, lambda _: story())


def test_the_past_of_a_job_needs_as_much_memory_at_its_beginning_as_ever():
    points, sizes = JobPoints(), set()
    for k in range(5 * MOST_POINTS):
        points.add(1, point(10.0 * k, used_bytes=k))
        sizes.add(points._pasts[1].values.buffer_info()[1])
    assert sizes == {MOST_POINTS * len(JobPoint.model_fields)}
