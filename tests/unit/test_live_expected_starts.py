"""When a job that waits is expected to start: by what users said of those that run, and not where nobody said it."""

import asyncio

import pytest

from dfrs.live.controller import expected_starts
from dfrs.live.controller.expected_starts import CONDITIONS
from dfrs.live.errors import NotFoundError
from dfrs.live.protocol.resources import JobState
from dfrs.testing import InMemoryCluster, run_virtually, until


def run(story):
    return run_virtually(0, lambda _: story())[0]


async def expected(live, job):
    found = await live.controller.expected_start(job)
    return (None if found.at is None else found.at - live.controller.settings.clock()), found.why


async def known(live, job):
    """The policy knows the job."""
    await until(lambda: live.controller.state.picture.row(job) is not None)


def test_one_that_waits_starts_when_those_before_it_have_ended(tmp_path):
    async def story():
        async with InMemoryCluster("FCFS", directory=tmp_path, nodes=1, shadow="EASY") as live:
            first = await live.submit("forever", cpu_cores=4.0, estimate_s=600.0)
            await live.reaches(first, JobState.RUNNING)
            second = await live.submit("forever", cpu_cores=4.0, time_limit_s=300.0)
            third, fourth = [await live.submit("forever", cpu_cores=4.0) for _ in range(2)]
            await known(live, fourth)
            left, why = await expected(live, second)
            assert (left, why) == (pytest.approx(600.0, abs=5.0), CONDITIONS)
            assert (await expected(live, third))[0] == pytest.approx(900.0, abs=5.0)
            left, why = await expected(live, fourth)
            assert left is None
            assert "nobody knows" in why
            at, why = await expected(live, first)
            assert at <= 0.0
            assert why == "it has nodes"
            # Nothing of what was looked at has happened.
            assert live.job(second).state is JobState.WAITING
            assert live.controller.state.mismatches == live.controller.state.refused == 0
            await live.controller.cancel(first, "ann")
            await live.reaches(second, JobState.RUNNING)

    run(story)


def test_one_that_is_not_in_the_queue_says_for_what_it_waits(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1) as live:
            held = await live.submit("forever", held=True)
            after = await live.submit("forever", after=(held,))
            assert await expected(live, after) == (None, f"waits for job {held} to end")
            assert (await expected(live, held))[0] is None
            with pytest.raises(NotFoundError, match="job 99: there is no such job"):
                await live.controller.expected_start(99)
            await live.controller.cancel(held, "ann")
            await until(lambda: not live.controller.state.jobs)
            assert (await live.controller.expected_start(after)).why == "it has ended"

    run(story)


def test_of_very_many_jobs_nobody_looks_ahead(tmp_path, monkeypatch):
    monkeypatch.setattr(expected_starts, "MOST_JOBS", 2)

    async def story():
        async with InMemoryCluster("FCFS", directory=tmp_path, nodes=1) as live:
            first = await live.submit("forever", cpu_cores=4.0, time_limit_s=100.0)
            await live.reaches(first, JobState.RUNNING)
            waiting = [await live.submit("forever", cpu_cores=4.0) for _ in range(2)]
            await known(live, waiting[-1])
            left, why = await expected(live, waiting[0])
            assert left is None
            assert why.startswith("with more than")
            await live.controller.cancel(waiting[1], "ann")
            await until(lambda: len(live.controller.state.jobs) == 2)
            assert (await expected(live, waiting[0]))[0] == pytest.approx(100.0, abs=5.0)

    run(story)


def test_many_who_ask_at_once_are_answered_by_one_look(tmp_path):
    async def story():
        async with InMemoryCluster("FCFS", directory=tmp_path, nodes=1) as live:
            first = await live.submit("forever", cpu_cores=4.0, time_limit_s=100.0)
            await live.reaches(first, JobState.RUNNING)
            waiting = [await live.submit("forever", cpu_cores=4.0, time_limit_s=100.0) for _ in range(5)]
            await known(live, waiting[-1])
            looks = []
            look = live.controller._starts._look

            async def counted():
                looks.append(1)
                return await look()

            live.controller._starts._look = counted
            found = await asyncio.gather(*(expected(live, job) for job in waiting * 3))
            assert len(looks) == 1
            lefts = [left for left, _ in found[:5]]
            assert lefts == pytest.approx([100.0 * (k + 1) for k in range(5)], abs=5.0)

    run(story)
