"""Jobs that are changed: what waits is as if it had been submitted so, what has begun keeps what cannot change."""

import json
import sqlite3
from contextlib import closing

import pytest

from dfrs.live.errors import ConflictError, NotFoundError
from dfrs.live.protocol.job_update import JobUpdate, changed
from dfrs.live.protocol.quotas import Quota, Quotas
from dfrs.live.protocol.resources import STORED, JobRequest, JobState
from dfrs.model.errors import InputError
from dfrs.testing import InMemoryCluster, run_virtually, until

GIB = 1 << 30


def run(story):
    return run_virtually(0, lambda _: story())[0]


async def settled(live):
    steps = live.controller.engine.steps
    live.controller.engine.poke()
    await until(lambda: live.controller.engine.steps > steps + 2)


async def change(live, job, by="ann", **fields):
    await live.controller.update(job, JobUpdate(**fields), by)


def kinds(live, job):
    return [each.action for each in live.controller.activity(job=job)]


def told(tmp_path, job):
    """Kinds of the events of the record about a job, in order."""
    with closing(sqlite3.connect(tmp_path / "live.db")) as connection:
        rows = connection.execute("SELECT event FROM events ORDER BY sequence").fetchall()
    return [event["event"] for (text,) in rows if (event := json.loads(text)).get("job_id") == job]


def test_a_held_job_is_another_one_when_it_is_released_also_after_a_restart(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=2) as live:
            job = await live.submit("forever", held=True, name="fit", time_limit_s=3600.0)
            await change(live, job, name="longer", time_limit_s=7200.0, memory_bytes=GIB, cpu_cores=0.5)
            (said,) = [each for each in live.controller.activity(job=job) if each.action == "update"]
            assert said.why == "name fit to longer, CPU none to 0.5 cores, memory none to 1G, limit 1h to 2h"
            assert said.by == "ann"
            for _ in range(2):
                shown = live.job(job)
                assert (shown.name, shown.time_limit_s, shown.memory_bytes) == ("longer", 7200.0, GIB)
                assert (shown.cpu_cores, shown.need_cores) == (0.5, 0.5)
                await live.restart(kill=True)
            await change(live, job, time_limit_s=None)
            await live.controller.release(job, "ann")
            await live.reaches(job, JobState.RUNNING)
            task = live.controller.state.jobs[job]
            assert (task.spec.time_limit_s, task.spec.memory_bytes) == (None, GIB)
            assert live.controller.state.mismatches == live.controller.state.refused == 0

    run(story)


def test_the_weight_of_one_that_runs_is_what_the_policy_knows(tmp_path):
    async def story():
        async with InMemoryCluster("GreedyPM*/OPT=MIN/WEIGHT", directory=tmp_path, nodes=1) as live:
            jobs = [await live.submit("forever", cpu_cores=4.0, weight=weight) for weight in (0.5, 1.0)]
            for job in jobs:
                await live.reaches(job, JobState.RUNNING)
            await settled(live)
            granted = [live.job(job).yield_granted for job in jobs]
            assert granted[1] == pytest.approx(2 * granted[0])
            await change(live, jobs[1], weight=0.25)
            assert told(tmp_path, jobs[1]) == ["submit", "amend"]
            for _ in range(2):
                await settled(live)
                granted = [live.job(job).yield_granted for job in jobs]
                assert granted[0] == pytest.approx(2 * granted[1])
                await live.restart(kill=True)
            (said,) = [each for each in live.controller.activity(job=jobs[1]) if each.action == "update"]
            assert said.why == "weight 1 to 0.25"
            assert live.controller.state.mismatches == live.controller.state.refused == 0

    run(story)


def test_one_that_the_policy_knows_keeps_its_place(tmp_path):
    async def story():
        async with InMemoryCluster("FCFS", directory=tmp_path, nodes=1) as live:
            first = await live.submit("forever", cpu_cores=1.0)
            await live.reaches(first, JobState.RUNNING)
            second, third = [await live.submit("forever", cpu_cores=1.0) for _ in range(2)]
            await settled(live)
            await change(live, second, memory_bytes=2 * GIB, estimate_s=60.0, minimum_yield=0.5)
            assert told(tmp_path, second) == ["submit", "amend"]
            await live.restart(kill=True)
            assert live.job(second).memory_bytes == 2 * GIB
            assert live.controller.state.mismatches == live.controller.state.refused == 0
            await live.controller.cancel(first, "ann")
            await live.reaches(second, JobState.RUNNING)
            assert live.job(third).state is JobState.WAITING

    run(story)


def test_of_one_that_has_begun_only_some_can_change(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1) as live:
            job = await live.submit("forever", cpu_cores=1.0, name="fit")
            await live.reaches(job, JobState.RUNNING)
            for fields, words in (
                ({"time_limit_s": 60.0}, "limit"),
                ({"memory_bytes": GIB, "after": (1,)}, "memory, after"),
                ({"start_at": 4e9}, "requested start"),
            ):
                with pytest.raises(ConflictError, match=f"^job {job}: has begun: its {words} can no longer change$"):
                    await change(live, job, **fields)
            # What is as it was is no change.
            await change(live, job, time_limit_s=None, name="fit")
            assert "update" not in kinds(live, job)
            await change(live, job, name="other", cpu_cores=2.0, minimum_yield=0.25)
            await until(lambda: live.job(job).need_cores == 2.0)
            assert (live.job(job).name, live.job(job).minimum_yield) == ("other", 0.25)
            assert live.job(job).state is JobState.RUNNING
            await live.controller.cancel(job, "ann")
            await live.reaches(job, JobState.CANCELLED)
            with pytest.raises(ConflictError, match="has ended"):
                await change(live, job, name="late")
            with pytest.raises(NotFoundError):
                await change(live, 99, name="late")

    run(story)


@pytest.mark.parametrize("known", [False, True])
def test_it_comes_after_others_from_now_on(tmp_path, known):
    async def story():
        async with InMemoryCluster("FCFS", directory=tmp_path, nodes=1) as live:
            first = await live.submit("forever", cpu_cores=1.0)
            await live.reaches(first, JobState.RUNNING)
            other = await live.submit("forever", held=True)
            job = await live.submit("forever", held=not known)
            await settled(live)
            assert live.controller.state.jobs[job].registered == known
            await change(live, job, after=(other,))
            if not known:
                await live.controller.release(job, "ann")
            for _ in range(2):
                await settled(live)
                assert live.job(job).state is JobState.PENDING
                assert not live.controller.state.jobs[job].registered
                await live.restart(kill=True)
            with pytest.raises(InputError, match=f"after: {job}: job {other} cannot come after job {job}, which"):
                await change(live, other, after=(job,))
            with pytest.raises(InputError, match="cannot come after itself"):
                await change(live, job, after=(job,))
            with pytest.raises(InputError, match="after: 77: there is no such job"):
                await change(live, job, after=(77,))
            await change(live, job, after=())
            await settled(live)
            assert live.job(job).state is JobState.WAITING
            await live.controller.cancel(other, "ann")
            await live.reaches(other, JobState.CANCELLED)
            await change(live, job, after=(other,))
            await live.reaches(job, JobState.CANCELLED)
            assert live.job(job).exit == f"after job {other}, which was cancelled"
            assert live.controller.state.mismatches == live.controller.state.refused == 0

    run(story)


def test_what_others_wait_for_in_common_is_looked_at_once(tmp_path):
    looks = []

    class Counted(frozenset):
        def __iter__(self):
            looks.append(1)
            return super().__iter__()

    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1) as live:
            job, first = [await live.submit("forever", held=True) for _ in range(2)]
            others = [await live.submit("forever", after_any=(first,)) for _ in range(3)]
            live.controller.state.jobs[first].waits_for = Counted()
            await change(live, job, after=tuple(others))
            assert len(looks) == 1
            with pytest.raises(InputError, match=f"after: {job}: job {first} cannot come after job {job}, which"):
                await change(live, first, after=(job,))
            with pytest.raises(InputError, match=rf"job {first} cannot come after job [{others[0]}-{others[-1]}], "):
                await change(live, first, after=tuple(others))

    run(story)


@pytest.mark.parametrize("begun", [False, True])
def test_a_restart_knows_how_those_ended_that_it_comes_after_from_now_on(tmp_path, begun):
    async def story():
        async with InMemoryCluster("FCFS", directory=tmp_path, nodes=1) as live:
            other = await live.submit("forever", held=True)
            job = await live.submit("forever", held=True)
            await change(live, job, after_any=(other,))
            await live.controller.cancel(other, "ann")
            await live.reaches(other, JobState.CANCELLED)
            if begun:
                await live.controller.release(job, "ann")
                await live.reaches(job, JobState.RUNNING)
            await live.restart(kill=True)
            if not begun:
                await live.controller.release(job, "ann")
            await live.reaches(job, JobState.RUNNING)
            assert live.controller.state.mismatches == live.controller.state.refused == 0

    run(story)


def test_a_later_start_takes_it_out_of_the_queue(tmp_path):
    async def story():
        async with InMemoryCluster("FCFS", directory=tmp_path, nodes=1) as live:
            first = await live.submit("forever", cpu_cores=1.0)
            await live.reaches(first, JobState.RUNNING)
            job = await live.submit("forever", cpu_cores=1.0)
            await settled(live)
            start = live.controller.settings.clock() + 5.0
            await change(live, job, start_at=start)
            await live.controller.cancel(first, "ann")
            await live.reaches(first, JobState.CANCELLED)
            assert live.job(job).state is JobState.PENDING
            live.tick(5.0)
            await live.reaches(job, JobState.RUNNING)
            assert live.job(job).started_at >= start

    run(story)


def test_quotas_hold_for_what_is_changed(tmp_path):
    async def story():
        quotas = Quotas(default=Quota(cpu_cores=3.5, memory_bytes=4 * GIB))
        async with InMemoryCluster(directory=tmp_path, nodes=4, quotas=quotas) as live:
            first, second = [await live.submit("forever", cpu_cores=1.5, memory_bytes=GIB) for _ in range(2)]
            for job in (first, second):
                await live.reaches(job, JobState.RUNNING)
            third = await live.submit("forever", cpu_cores=1.0, held=True)
            with pytest.raises(InputError, match=r"must be at most 3\.5 together, the quota of ann"):
                await change(live, third, cpu_cores=4.0)
            with pytest.raises(ConflictError, match=f"job {first}: jobs of ann have 1.5 of the 3.5 cores"):
                await change(live, first, cpu_cores=3.0)
            await change(live, third, cpu_cores=2.0)
            await live.controller.release(third, "ann")
            await settled(live)
            assert live.job(third).why == "waits: jobs of ann have 3 of the 3.5 cores of their quota"
            await change(live, third, cpu_cores=0.5)
            await live.reaches(third, JobState.RUNNING)

    run(story)


def test_what_can_never_run_is_refused_and_nothing_changes(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1) as live:
            job = await live.submit("forever", held=True)
            before = live.job(job)
            for fields, words in (
                ({"cpu_cores": 1000.0}, "cpu_cores: 1000"),
                ({"memory_bytes": 1 << 49}, "memory_bytes"),
                ({"array_limit": 2}, "array_limit: 2: must come with an array"),
            ):
                with pytest.raises(InputError, match=words):
                    await change(live, job, **fields)
            assert live.job(job).model_copy(update={"stretch": 0.0}) == before.model_copy(update={"stretch": 0.0})
            assert "update" not in kinds(live, job)

    run(story)


def test_one_of_another_schedulers_queue_is_changed_there(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1) as live:
            job = await live.submit("forever", held=True)
            live.controller.state.jobs[job].key = "17"
            with pytest.raises(ConflictError, match="came by the queue of another scheduler: change it there"):
                await change(live, job, name="other")

    run(story)


def test_a_limit_without_an_array_is_refused(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1) as live:
            with pytest.raises(InputError, match="array_limit: 2: must come with an array"):
                await live.submit("forever", array_limit=2)

    run(story)


def test_a_large_array_comes_after_few_jobs(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1) as live:
            for after, words in (
                ({"after": range(1, 101), "after_any": range(1, 101)}, "after: 1: there is no such job"),
                ({"after": range(1, 102)}, "after: an array of 10000 that comes after 101 jobs: one times the other"),
                ({"after": range(1, 61), "after_any": range(61, 122)}, "array of 10000 that comes after 121 jobs"),
            ):
                with pytest.raises(InputError, match=words):
                    await array(live, 10_000, None, **after)

    run(story)


def through(live, jobs):
    return [job for job in jobs if live.controller.state.jobs[job].registered]


def open_jobs(live, jobs):
    return [job for job in jobs if job in live.controller.state.jobs]


async def array(live, count, limit, **fields):
    request = JobRequest(command=("forever",), array=count, array_limit=limit, cpu_cores=0.1, **fields)
    return list(await live.controller.submit(request, "ann", "ann"))


def test_no_more_of_an_array_run_than_its_limit_and_they_go_in_order(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=4) as live:
            jobs = await array(live, 6, 2)
            for job in jobs[:2]:
                await live.reaches(job, JobState.RUNNING)
            await settled(live)
            assert through(live, jobs) == jobs[:2]
            assert live.job(jobs[2]).state is JobState.WAITING
            assert live.job(jobs[5]).why == "waits: 2 jobs of its array run, or will next"
            # One that is paused has begun.
            await live.controller.hold(jobs[0], "ann")
            await settled(live)
            assert through(live, jobs) == jobs[:2]
            await live.restart(kill=True)
            await settled(live)
            assert through(live, jobs) == jobs[:2]
            assert live.job(jobs[5]).why == "waits: 2 jobs of its array run, or will next"
            await live.controller.cancel(jobs[1], "ann")
            await live.reaches(jobs[2], JobState.RUNNING)
            assert through(live, open_jobs(live, jobs)) == [jobs[0], jobs[2]]
            # The next one in order, also past one that is held or cancelled.
            await live.controller.hold(jobs[3], "ann")
            await live.controller.cancel(jobs[2], "ann")
            await live.reaches(jobs[4], JobState.RUNNING)
            await live.controller.release(jobs[3], "ann")
            await settled(live)
            assert live.job(jobs[3]).state is JobState.WAITING
            for job in (jobs[0], jobs[4]):
                await live.controller.cancel(job, "ann")
            for job in (jobs[3], jobs[5]):
                await live.reaches(job, JobState.RUNNING)

    run(story)


def test_one_that_is_held_before_it_has_begun_gives_its_turn_to_the_next(tmp_path):
    async def story():
        async with InMemoryCluster("FCFS", directory=tmp_path, nodes=1) as live:
            first = await live.submit("forever", cpu_cores=1.0)
            await live.reaches(first, JobState.RUNNING)
            jobs = await array(live, 3, 1)
            await settled(live)
            assert through(live, jobs) == jobs[:1]
            await live.controller.hold(jobs[0], "ann")
            await settled(live)
            assert through(live, jobs) == jobs[1:2]
            await live.restart(kill=True)
            await live.controller.release(jobs[0], "ann")
            await settled(live)
            assert through(live, jobs) == jobs[1:2]
            await live.controller.cancel(first, "ann")
            await live.reaches(jobs[1], JobState.RUNNING)
            await live.controller.cancel(jobs[1], "ann")
            await live.reaches(jobs[0], JobState.RUNNING)
            assert live.controller.state.mismatches == live.controller.state.refused == 0

    run(story)


def test_the_limit_and_quotas_together(tmp_path):
    async def story():
        quotas = Quotas(default=Quota(cpu_cores=0.35))
        async with InMemoryCluster(directory=tmp_path, nodes=4, quotas=quotas) as live:
            jobs = await array(live, 8, 4)
            await settled(live)
            assert through(live, jobs) == jobs[:3]
            assert "quota" in live.job(jobs[3]).why
            assert live.job(jobs[4]).why == "waits: 4 jobs of its array run, or will next"
            await live.controller.cancel(jobs[0], "ann")
            await live.reaches(jobs[3], JobState.RUNNING)
            await settled(live)
            assert through(live, open_jobs(live, jobs)) == jobs[1:4]

    run(story)


def test_another_limit_lets_more_go(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=4) as live:
            jobs = await array(live, 4, 1)
            await live.reaches(jobs[0], JobState.RUNNING)
            for job in jobs[1:]:
                await change(live, job, array_limit=2)
            await live.reaches(jobs[1], JobState.RUNNING)
            await settled(live)
            assert through(live, jobs) == jobs[:2]
            for job in jobs[2:]:
                await change(live, job, array_limit=None)
            for job in jobs[2:]:
                await live.reaches(job, JobState.RUNNING)

    run(story)


def test_a_signal_before_the_beginning_is_refused_where_it_is_asked_for(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1) as live:
            job = await live.submit("forever", held=True, time_limit_s=3600.0, warning_signal="USR1")
            for fields in ({"time_limit_s": 60.0}, {"warning_s": 3600.0}, {"time_limit_s": 90.0, "warning_s": 90.0}):
                with pytest.raises(InputError, match="warning_s: must be fewer seconds than the time limit, "):
                    await change(live, job, **fields)
            await change(live, job, time_limit_s=60.0, warning_s=30.0)
            await change(live, job, time_limit_s=45.0, warning_signal="TERM")
            assert live.job(job).time_limit_s == 45.0

    run(story)
    # Earlier versions accepted such jobs: they are still there, and other fields of them can change.
    before = JobRequest.model_validate({"command": ["x"], "time_limit_s": 60, "warning_signal": "USR1"}, context=STORED)
    assert changed(before, {"name": "other"}).name == "other"
    assert changed(before, {"time_limit_s": 30.0}, STORED).time_limit_s == 30.0
