"""What is kept of the past in memory has an end, and comes out as it went in."""

import asyncio
import gc
from dataclasses import asdict

import numpy as np
import pytest
import sqlalchemy as sa

from dfrs.live.controller import activity, checkpoint, ended_jobs, tables
from dfrs.live.controller.activity import ActivityFeed
from dfrs.live.controller.ended_jobs import EndedJobs
from dfrs.live.controller.job_queries import latest
from dfrs.live.controller.records import JobRecord
from dfrs.live.protocol.job_update import JobUpdate
from dfrs.live.protocol.ports import Chosen
from dfrs.live.protocol.resources import ENDED, JobRequest, JobState, TimePoint
from dfrs.testing import InMemoryCluster, InMemoryHosts, make_controller, run_virtually, until
from tests.live_states import Clock, fill


@pytest.fixture
def jobs(tmp_path):
    controller = make_controller(tmp_path, clock=Clock())
    fill(controller.state, np.random.default_rng(1), 40, 5)
    found = controller.jobs(limit=40)
    controller.database.close()
    ends = [JobState.DONE, JobState.FAILED, JobState.CANCELLED]
    return [job.model_copy(update={"state": ends[k % 3]}) for k, job in enumerate(found)]


def test_ended_jobs_come_out_as_they_went_in_and_the_first_go(jobs, monkeypatch):
    monkeypatch.setattr(ended_jobs, "MOST_ENDED", 30)
    kept = EndedJobs()
    for job in jobs:
        kept.add(job)
    assert len(kept) == 30
    assert not any(job.id in kept for job in jobs[:-30])
    assert kept.get(jobs[0].id) is None
    assert [kept.get(job.id) for job in jobs[-30:]] == jobs[-30:]
    chosen = [job for job in jobs[-30:] if job.state is JobState.FAILED and job.id < jobs[12].id]
    chosen.sort(key=lambda job: -job.id)
    assert list(kept.some(Chosen(states=frozenset({JobState.FAILED}), before=jobs[12].id))) == chosen
    assert not list(kept.some(Chosen(user="nobody", states=ENDED)))


def test_none_is_left_out_though_memory_has_those_that_ended_last(tmp_path, monkeypatch):
    monkeypatch.setattr(ended_jobs, "MOST_ENDED", 3)

    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1) as live:
            names = [await live.submit("forever") for _ in range(6)]
            ended = {}
            for name in (names[5], names[4], names[2], names[1], names[0], names[3]):
                live.tick(10.0)
                await live.controller.cancel(name, "ann")
                await live.reaches(name, JobState.CANCELLED)
                ended[name] = live.job(name).ended_at
            for limit in range(1, 7):
                found = live.controller.jobs(states=ENDED, limit=limit)
                assert [job.id for job in found] == names[: -limit - 1 : -1]
            for since in ended.values():
                found = {job.id for job in live.controller.jobs(states=ENDED, since=since)}
                assert found == {name for name, at in ended.items() if at >= since}
            after = live.controller.jobs(states=ENDED, before=names[4], user="ann", since=ended[names[2]], limit=2)
            assert [job.id for job in after] == [names[3], names[2]]

    run_virtually(0, lambda _: story())


@pytest.mark.parametrize("before", [None, 900])
@pytest.mark.parametrize("user", [None, "ann"])
def test_of_a_million_ended_jobs_the_database_reads_those_it_answers(tmp_path, user, before):
    controller = make_controller(tmp_path, clock=Clock())
    query = latest(Chosen(user=user, states=ENDED, before=before), JobState.DONE, 10)

    def plan(connection):
        text = query.compile(connection, compile_kwargs={"literal_binds": True})
        return [row.detail for row in connection.execute(sa.text(f"EXPLAIN QUERY PLAN {text}"))]

    try:
        controller.database.open()
        (found,) = controller.database.read_now(plan)
    finally:
        controller.database.close()
    bound = [*(["owner=?"] if user else []), "state=?", *(["id<?"] if before else [])]
    assert found.startswith("SEARCH jobs USING COVERING INDEX ")
    assert found.endswith(f"({' AND '.join(bound)})")


def test_bars_points_and_activity_have_an_end_and_nothing_of_them_changes(monkeypatch):
    monkeypatch.setattr(activity, "MOST_BARS", 10)
    monkeypatch.setattr(activity, "MOST_POINTS", 10)
    monkeypatch.setattr(activity, "MOST_ACTIVITY", 10)
    feed = ActivityFeed()
    points, happened = [], []
    for k in range(30):
        bar = {"name": f"j{k}", "user": "ann", "node": "n1", "share_cores": 0.5, "paused": k % 2 == 0}
        feed.bar((k, 0), float(k), **bar)
        feed.end_bar((k, 0), k + 0.5)
        points.append(
            TimePoint(
                time=float(k),
                minimum_yield=None if k % 2 else 0.1 * k,
                median_yield=0.5,
                jain=None,
                bound=1 / 3,
                running=k,
                waiting=10**6,
                used_cores=0.1,
            )
        )
        feed.point(points[-1])
        one = {
            "time": float(k),
            "job": k,
            "node": None,
            "action": "start",
            "nodes": ("n1",),
            "yield_": 0.25,
            "why": "w",
        }
        happened.append(feed.number(one))
    feed.show(happened)
    assert list(feed.timeseries(0.0)) == points[-10:]
    assert list(feed.latest(0, 1000)) == happened[-10:]
    shown = [asdict(bar) for bar in feed.gantt(0.0)]
    assert [bar["name"] for bar in shown] == [f"j{k}" for k in range(20, 30)]
    last = {"job": 29, "rank": 0, "name": "j29", "user": "ann", "node": "n1", "begin": 29.0, "end": 29.5}
    assert shown[-1] == last | {"share_cores": 0.5, "paused": False}


def test_all_bars_of_a_job_end_at_once():
    feed = ActivityFeed()
    for job, rank in ((1, 0), (1, 1), (2, 0)):
        feed.bar((job, rank), 1.0, name="", user="ann", node="n1", share_cores=0.5, paused=False)
    feed.end_bars(1, 2.0)
    feed.end_bars(3, 2.0)
    assert [(bar.job, bar.rank, bar.end) for bar in feed.gantt(0.0)] == [(1, 0, 2.0), (1, 1, 2.0), (2, 0, None)]


def test_what_happened_to_a_job_is_known_however_much_happened_since_also_after_a_restart(tmp_path, monkeypatch):
    monkeypatch.setattr(activity, "MOST_ACTIVITY", 5)
    monkeypatch.setattr(checkpoint, "MOST_ACTIVITY", 5)

    async def told(controller, job):
        found = [one.action for one in controller.activity(job=job)]
        assert [one.action for one in controller.explain(job).history] == found
        assert [one.action for one in controller.activity(job=job, limit=1)] == found[-1:]
        assert [one.action for one in controller.activity(job=job, after=controller.activity(job=job)[0].sequence)] == (
            found[1:]
        )
        return found

    async def story():
        controller = make_controller(tmp_path)
        await controller.start()
        (job,) = await controller.submit(JobRequest(command=("true",)), "ann", "ann")
        await controller.hold(job, "ann")
        await controller.submit(JobRequest(command=("true",), array=20), "ann", "ann")
        assert job not in {one.job for one in controller.activity(limit=1000)}
        before = await told(controller, job)
        await controller.stop()
        controller = make_controller(tmp_path)
        await controller.start()
        after = await told(controller, job)
        await controller.stop()
        return before, after

    before, after = asyncio.run(story())
    assert before == after == ["submit", "hold"]


def test_of_a_job_that_has_ended_nothing_waits_for_the_collector_of_cycles(tmp_path):
    """It looks rarely in a controller, so that answers need not wait for it."""

    def records():
        return {one for one in gc.get_objects() if isinstance(one, JobRecord)}

    async def story():
        controller = make_controller(tmp_path)
        await controller.start()
        InMemoryHosts(watched=False).node("n1", host="h1", cpus=2.0, memory=1 << 30).attach(controller)
        request = JobRequest(command=("true",), array=20)
        jobs = await controller.submit(request, "ann", "ann")
        await until(lambda: all(job.registered for job in controller.state.jobs.values()), "told", 30.0)
        gc.collect()
        # Other tests may have left some of theirs.
        others = records() - set(controller.state.jobs.values())
        gc.disable()
        try:
            for job in jobs:
                await controller.cancel(job, "ann")
            await until(lambda: not controller.state.jobs, "all have ended", 30.0)
            steps = controller.engine.steps
            controller.engine.poke()
            await until(lambda: controller.engine.steps > steps, "another step", 30.0)
            return records() - others
        finally:
            gc.enable()
            await controller.stop()

    assert len(asyncio.run(story())) <= 1, "but for the last one, of the step under way"


def test_one_that_a_job_comes_after_may_leave_the_memory_while_that_is_taken_in(tmp_path, monkeypatch):
    monkeypatch.setattr(ended_jobs, "MOST_ENDED", 1)

    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1) as live:
            others = [await live.submit("forever", cpu_cores=1.0) for _ in range(2)]
            first, write, ask = await ended(live), live.controller.database.write, live.controller.engine.ask

            async def end():
                other = others.pop()
                await live.reaches(other, JobState.RUNNING)
                live.nodes["n1"].end(other)
                await live.reaches(other, JobState.DONE)

            async def write_late(changes):
                await write(changes)
                if any(statement is tables.ADD_JOB for statement, _ in changes):
                    await end()

            async def ask_late(*arguments, **more):
                await end()
                await ask(*arguments, **more)

            monkeypatch.setattr(live.controller.database, "write", write_late)
            names = await live.controller.submit(JobRequest(command=("forever",), after=(first,), array=2), "a", "a")
            for name in names:
                await live.reaches(name, JobState.RUNNING)
            assert first not in live.controller.state.ended
            monkeypatch.setattr(live.controller.database, "write", write)
            second, changed = await ended(live), await live.submit("forever", held=True)
            monkeypatch.setattr(live.controller.engine, "ask", ask_late)
            await live.controller.update(changed, JobUpdate(after=(second,)), "ann")
            assert second not in live.controller.state.ended
            assert live.job(changed).after == (second,)

    run_virtually(0, lambda _: story())


@pytest.mark.parametrize("seed", range(5))
def test_a_job_that_is_changed_twice_at_once_may_come_after_one_that_is_not_in_memory(tmp_path, monkeypatch, seed):
    monkeypatch.setattr(ended_jobs, "MOST_ENDED", 1)

    async def story():
        async with InMemoryCluster(directory=tmp_path, nodes=1) as live:
            first, second, _ = [await ended(live) for _ in range(3)]
            job, ask = await live.submit("forever", held=True), live.controller.engine.ask

            async def ask_and_change_its_name(*arguments, **more):
                monkeypatch.setattr(live.controller.engine, "ask", ask)
                asked = asyncio.ensure_future(ask(*arguments, **more))
                await asyncio.sleep(0)
                await live.controller.update(job, JobUpdate(name="fit"), "ann")
                await asked

            monkeypatch.setattr(live.controller.engine, "ask", ask_and_change_its_name)
            await live.controller.update(job, JobUpdate(after=(first,)), "ann")
            found = live.job(job)
            assert (found.name, found.after) == ("fit", (first,))
            changes = [JobUpdate(after=(second,)), JobUpdate(after_any=(first,))]
            await asyncio.gather(*(live.controller.update(job, each, "ann") for each in changes))
            assert (live.job(job).after, live.job(job).after_any) == ((second,), (first,))

    run_virtually(seed, lambda _: story())


async def ended(live):
    job = await live.submit("fail", "0")
    await live.reaches(job, JobState.DONE)
    return job
