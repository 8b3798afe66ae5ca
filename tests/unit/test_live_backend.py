"""The port to whoever runs jobs, kept by an engine without agents: whole lives of jobs, asked for over HTTP."""

import asyncio
import time
from contextlib import asynccontextmanager

import httpx

from dfrs.live.api.routes import create_app
from dfrs.live.backends.agents.backend import AgentsBackend
from dfrs.live.controller.backend import Backend, Wanted
from dfrs.live.drivers.base import TaskId, TaskState
from dfrs.live.protocol.resources import JobRequest, TokenRequest
from dfrs.testing import abandon, make_controller
from dfrs.testing.batch import BatchBackend, BatchEngine

PATIENCE_S = 60.0
CORES = 4.0


class Site:
    """An engine that is always there, and the controller that schedules it now, as users reach it."""

    def __init__(self, path, nodes=2):
        self.path = path
        self.engine = BatchEngine()
        for k in range(1, nodes + 1):
            self.engine.add_node(f"n{k}", CORES)

    async def start(self):
        self.backend = BatchBackend(self.engine)
        self.controller = make_controller(self.path, backend=self.backend)
        await self.controller.start()
        made = await self.controller.create_token(TokenRequest(user="root", role="admin"), "root")
        transport = httpx.ASGITransport(create_app(self.controller, page=None))
        headers = {"authorization": f"Bearer {made.token}"}
        self.client = httpx.AsyncClient(transport=transport, base_url="http://test/api/v1", headers=headers)

    async def stop(self):
        await self.client.aclose()
        await self.controller.stop()

    async def kill(self):
        """The controller's process is gone, in the middle of anything."""
        await self.client.aclose()
        await self.backend.end()
        await abandon(self.controller)

    async def get(self, path):
        answer = await self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path, status=200, **body):
        answer = await self.client.post(path, json=body or None)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def submit(self, **fields):
        return (await self.post("/jobs", 201, command=["work"], cpu_cores=CORES, **fields))["jobs"][0]

    async def job(self, job):
        return await self.get(f"/jobs/{job}")

    async def reaches(self, job, state):
        return await self.comes(lambda found: found["state"] == state and found, f"/jobs/{job}", state)

    async def comes(self, condition, path, what):
        """What the API says, once that is so."""
        end_s = time.monotonic() + PATIENCE_S
        while not condition(found := await self.get(path)):
            assert time.monotonic() < end_s, f"still not {what}: {found}"
            await asyncio.sleep(0.005)
        return found

    async def until(self, condition, what):
        end_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end_s, f"still not: {what}"
            await asyncio.sleep(0.005)

    def row(self, job):
        """The engine's job."""
        return self.engine.of_job(job)


@asynccontextmanager
async def site(path, **options):
    made = Site(path, **options)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


def run(story):
    asyncio.run(story())


def test_both_backends_keep_the_port():
    """As far as types tell: what they do is told by all other tests of the live cluster, and by those below."""
    backends: list[Backend] = [AgentsBackend(), BatchBackend(BatchEngine())]
    names = [name for name in vars(Backend) if not name.startswith("_")]
    assert len(names) > 8
    assert all(hasattr(each, name) for each in backends for name in names)


def test_a_whole_life(tmp_path):
    async def story():
        async with site(tmp_path) as it:
            await it.comes(lambda nodes: len(nodes) == 2 and all(n["connected"] for n in nodes), "/nodes", "two nodes")
            job = await it.submit()
            await it.reaches(job, "running")
            assert it.row(job).state is TaskState.RUNNING
            assert it.row(job).share_cores == (CORES,)

            await it.post(f"/jobs/{job}/hold")
            await it.until(lambda: it.row(job).state is TaskState.PAUSED, "paused")
            assert (await it.job(job))["state"] == "held"
            await it.post(f"/jobs/{job}/release")
            await it.until(lambda: it.row(job).state is TaskState.RUNNING, "resumed")
            await it.reaches(job, "running")
            assert (await it.get(f"/jobs/{job}/output"))["text"] == f"{it.row(job).tasks[0]}\n"

            it.engine.finish(it.row(job))
            ended = await it.reaches(job, "done")
            assert ended["attempt"] == 0
            assert it.row(job) is None, "what nobody needs any more is forgotten"
            assert len(it.engine.started) == 1

    run(story)


def test_jobs_share_a_node_and_get_all_of_it_back(tmp_path):
    async def story():
        async with site(tmp_path, nodes=1) as it:
            one, two = await it.submit(), await it.submit()
            await it.reaches(one, "running")
            await it.reaches(two, "running")
            await it.until(lambda: [it.row(job).share_cores for job in (one, two)] == [(2.0,), (2.0,)], "shared")
            it.engine.finish(it.row(one))
            await it.reaches(one, "done")
            await it.until(lambda: it.row(two).share_cores == (CORES,), "the other has all of it")
            assert it.engine.late == 0

    run(story)


def test_a_cancelled_job_ends_and_a_failed_one_says_how(tmp_path):
    async def story():
        async with site(tmp_path) as it:
            one, two = await it.submit(), await it.submit()
            await it.reaches(one, "running")
            await it.reaches(two, "running")
            await it.post(f"/jobs/{one}/cancel")
            await it.reaches(one, "cancelled")
            it.engine.finish(it.row(two), code=3)
            failed = await it.reaches(two, "failed")
            assert failed["exit_code"] == 3
            assert not it.engine.running()
            assert not it.engine.jobs

    run(story)


def test_a_job_of_the_engines_own_queue_is_scheduled_as_any_other(tmp_path):
    async def story():
        async with site(tmp_path) as it:
            row = it.engine.submit(JobRequest(command=("theirs",), cpu_cores=1.0), "eve")
            (job,) = await it.comes(lambda jobs: jobs, "/jobs", "the job is there")
            assert job["user"] == "eve"
            await it.reaches(job["id"], "running")
            assert it.row(job["id"]) is row, "it keeps its own number in the engine"
            it.engine.finish(row)
            await it.reaches(job["id"], "done")
            assert not it.engine.jobs
            assert not it.controller.state.arrived

    run(story)


def test_a_job_of_the_engines_own_queue_gets_one_number_whatever_happens(tmp_path):
    """It is on record that it came, also where the controller is gone before the engine was told anything."""

    async def story():
        it = Site(tmp_path, nodes=0)
        await it.start()
        row = it.engine.submit(JobRequest(command=("theirs",), cpu_cores=1.0), "eve")
        (job,) = await it.comes(lambda jobs: jobs, "/jobs", "the job is there")
        assert not row.tasks
        await it.kill()
        it.engine.add_node("n1")
        await it.start()
        await it.reaches(job["id"], "running")
        assert it.row(job["id"]) is row
        assert len(await it.get("/jobs")) == 1
        await it.stop()

    run(story)


def test_the_jobs_of_a_lost_node_are_started_elsewhere_once(tmp_path):
    async def story():
        async with site(tmp_path) as it:
            job = await it.submit()
            found = await it.reaches(job, "running")
            (lost,) = found["nodes"]
            it.engine.fail(lost)
            await it.comes(lambda found: found["attempt"] == 1, f"/jobs/{job}", "queued again")
            again = await it.reaches(job, "running")
            assert again["nodes"] != [lost]
            assert len(it.engine.started) == 2
            assert {each["name"]: each["state"] for each in await it.get("/nodes")}[lost] == "lost"

            it.engine.nodes[lost].up = True
            await it.comes(lambda nodes: all(each["state"] == "up" for each in nodes), "/nodes", "it is back")
            assert (await it.job(job))["attempt"] == 1

    run(story)


def test_a_node_that_the_engines_operator_drains_gets_nothing_new(tmp_path):
    async def story():
        async with site(tmp_path) as it:
            await it.comes(lambda nodes: len(nodes) == 2, "/nodes", "two nodes")
            it.engine.nodes["n1"].drained = "a fan is broken"
            found = await it.comes(lambda nodes: nodes[0]["problem"], "/nodes", "it is said")
            assert (found[0]["state"], found[0]["problem"]) == ("unhealthy", "a fan is broken")
            jobs = [await it.submit() for _ in range(2)]
            for job in jobs:
                assert (await it.reaches(job, "running"))["nodes"] == ["n2"]

    run(story)


def test_a_controller_that_comes_back_compares(tmp_path):
    """One job ended meanwhile, and one runs on and is not started again."""

    async def story():
        it = Site(tmp_path)
        await it.start()
        ended, runs = await it.submit(), await it.submit()
        for job in (ended, runs):
            await it.reaches(job, "running")
        version = it.row(runs).version
        started = list(it.engine.started)
        await it.kill()

        it.engine.finish(it.row(ended))
        await it.start()
        await it.reaches(ended, "done")
        await it.reaches(runs, "running")
        assert it.engine.started == started
        await it.until(lambda: it.row(runs).version > version, "what is wanted has a later version")
        assert (await it.job(runs))["attempt"] == 0
        await it.stop()

    run(story)


def test_a_node_that_went_down_while_no_controller_looked_is_noticed(tmp_path):
    async def story():
        it = Site(tmp_path)
        await it.start()
        job = await it.submit()
        (lost,) = (await it.reaches(job, "running"))["nodes"]
        await it.kill()
        it.engine.fail(lost)
        it.engine.nodes[lost].up = True
        await it.start()
        await it.comes(lambda found: found["attempt"] == 1, f"/jobs/{job}", "queued again")
        await it.reaches(job, "running")
        assert len(it.engine.started) == 2
        await it.stop()

    run(story)


def test_a_node_that_is_down_when_the_controller_comes_back_is_lost(tmp_path):
    async def story():
        it = Site(tmp_path)
        await it.start()
        job = await it.submit()
        (lost,) = (await it.reaches(job, "running"))["nodes"]
        await it.kill()
        it.engine.fail(lost)
        await it.start()
        await it.comes(lambda found: found["attempt"] == 1, f"/jobs/{job}", "queued again")
        assert (await it.reaches(job, "running"))["nodes"] != [lost]
        assert len(it.engine.started) == 2
        await it.stop()

    run(story)


def test_what_the_record_does_not_have_is_ended(tmp_path):
    async def story():
        it = Site(tmp_path)
        stray = it.engine.new_job("eve")
        unknown = TaskId(job=77, rank=0, attempt=0, generation="0123abcd")
        it.engine.bring_about(stray, wanted(unknown), 1)
        await it.start()
        await it.until(lambda: not it.engine.jobs, "it is ended")
        await it.stop()

    run(story)


def wanted(task):
    return Wanted(tasks=(task,), state=TaskState.RUNNING, nodes=("n1",), share_cores=(1.0,))


def test_a_late_wish_of_a_controller_before_is_passed_over(tmp_path):
    async def story():
        it = Site(tmp_path)
        await it.start()
        job = await it.submit()
        await it.reaches(job, "running")
        before = it.controller.state.versions.next()
        await it.kill()
        await it.start()
        await it.until(lambda: it.row(job).version > before, "the new controller has asked")
        row = it.row(job)
        it.engine.bring_about(row, Wanted(tasks=row.tasks, state=TaskState.ABSENT), before)
        assert (row.state, it.engine.late) == (TaskState.RUNNING, 1)
        await it.stop()

    run(story)


def test_a_job_that_cannot_be_paused_says_so_and_is_paused_anyway_when_held(tmp_path):
    async def story():
        async with site(tmp_path) as it:
            job = await it.submit()
            await it.reaches(job, "running")
            it.row(job).rigid = True
            await it.post(f"/jobs/{job}/hold")
            await it.until(lambda: it.row(job).state is TaskState.PAUSED, "paused")
            await it.comes(
                lambda found: "kept" in [each["action"] for each in found], f"/activity?job={job}", "its memory is kept"
            )
            await it.post(f"/jobs/{job}/release")
            await it.reaches(job, "running")

    run(story)
