"""Slurm as the backend: whole lives of jobs, over a Slurm in memory that does what it is asked and what others do."""

import asyncio
import itertools
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace

import httpx
import pytest
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from dfrs.live.api.routes import create_app
from dfrs.live.backends.slurm import backend as slurm_backend
from dfrs.live.backends.slurm import jobs_seen
from dfrs.live.backends.slurm.backend import SlurmBackend
from dfrs.live.backends.slurm.marks import Mark
from dfrs.live.controller import engine
from dfrs.live.controller.backend import Backend
from dfrs.live.drivers.base import TaskId, TaskState
from dfrs.live.errors import TooManyError, UnavailableError
from dfrs.live.protocol.quotas import AccountQuota, Quotas
from dfrs.live.protocol.resources import TokenRequest
from dfrs.model.errors import ReplacedError
from dfrs.testing import abandon, make_controller
from tests.slurm_fake import GIB, FakeSlurm

PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(slurm_backend, "LOOK_S", 0.02)
    monkeypatch.setattr(slurm_backend, "SOON_S", 0.02)
    monkeypatch.setattr(slurm_backend, "EXPLAIN_S", 0.05)
    monkeypatch.setattr(jobs_seen, "MISSING_S", 0.5)


class Site:
    """A Slurm, and the controller that schedules it now, as users reach it."""

    def __init__(self, path, nodes=2, **settings):
        self.path, self.settings = path, settings
        self.slurm = FakeSlurm(nodes)

    async def start(self):
        self.backend = SlurmBackend(self.slurm)
        self.controller = make_controller(self.path, backend=self.backend, **self.settings)
        await self.controller.start()
        app = create_app(self.controller, page=None, share_door=self.backend.board)
        transport = httpx.ASGITransport(app)
        self.client = await self._client(transport, "root", "admin")
        self.agents = await self._client(transport, "n1", "agent")

    async def _client(self, transport, user, role):
        made = await self.controller.create_token(TokenRequest(user=user, role=role), "root")
        headers = {"authorization": f"Bearer {made.token}"}
        return httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers)

    async def stop(self):
        await self.client.aclose()
        await self.controller.stop()

    async def kill(self):
        await self.client.aclose()
        for task in self.backend._running:
            task.cancel()
        await abandon(self.controller)

    async def get(self, path):
        answer = await self.client.get(f"/api/v1{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path, status=200, **body):
        answer = await self.client.post(f"/api/v1{path}", json=body or None)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def until(self, condition, what):
        end_s = time.monotonic() + PATIENCE_S
        while not (found := condition()):
            assert time.monotonic() < end_s, f"still not {what}: {self.slurm.rows} {self.slurm.asked[-9:]}"
            await asyncio.sleep(0.005)
        return found

    async def comes(self, path, condition, what):
        end_s = time.monotonic() + PATIENCE_S
        while not condition(found := await self.get(path)):
            assert time.monotonic() < end_s, f"still not {what}: {found}"
            await asyncio.sleep(0.005)
        return found

    async def is_in(self, name, state):
        """Slurm has it so."""
        await self.until(lambda: self.slurm.rows[name].state == state, f"{name} {state}")

    async def number(self, name):
        """The controller's number of Slurm's job."""
        return await self.until(lambda: self.controller.state.arrived.get(name), f"{name} arrived")

    async def reaches(self, name, state):
        number = await self.number(name)
        return await self.comes(f"/jobs/{number}", lambda found: found["state"] == state, state)

    async def ends(self, number, state):
        return await self.comes(f"/jobs/{number}", lambda found: found["state"] == state, state)

    async def quiet(self):
        """Some looks at Slurm have passed."""
        await asyncio.sleep(0.3)


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


def test_it_keeps_the_port():
    backend: Backend = SlurmBackend(FakeSlurm())
    assert all(hasattr(backend, name) for name in vars(Backend) if not name.startswith("_"))


def test_a_whole_life(tmp_path):
    async def story():
        async with site(tmp_path) as it:
            name = it.slurm.sbatch(comment="dfrs: cpu=0.5 min-yield=0.2", time_limit_s=600.0)
            found = await it.reaches(name, "running")
            assert found["cpu_cores"] == 0.5
            assert found["minimum_yield"] == 0.2
            assert found["memory_bytes"] == GIB
            assert found["user"] == "eve"
            row = it.slurm.rows[name]
            assert (row.state, [row.node]) == ("RUNNING", found["nodes"])
            assert row.admin_comment.startswith(f"dfrs:running:{found['id']}.0.0.")
            it.slurm.finish(name)
            ended = await it.ends(found["id"], "done")
            assert ended["attempt"] == 0
            assert len(it.slurm.starts) == 1
            assert ("cancel", name) not in it.slurm.asked

    run(story)


def test_who_submits_to_the_controller_is_sent_to_sbatch(tmp_path):
    async def story():
        async with site(tmp_path) as it:
            found = await it.post("/jobs", 422, command=["work"])
            assert "sbatch" in found["detail"]

    run(story)


@pytest.mark.parametrize(("status", "words"), [(3 << 8, "status 3"), (9, "SIGKILL")])
def test_a_failed_job_says_how(tmp_path, status, words):
    async def story():
        async with site(tmp_path) as it:
            name = it.slurm.sbatch()
            found = await it.reaches(name, "running")
            it.slurm.finish(name, status)
            ended = await it.ends(found["id"], "failed")
            assert words in ended["exit"]

    run(story)


def test_hold_and_release_suspend_and_resume(tmp_path):
    async def story():
        async with site(tmp_path) as it:
            name = it.slurm.sbatch()
            number = (await it.reaches(name, "running"))["id"]
            await it.post(f"/jobs/{number}/hold")
            await it.is_in(name, "SUSPENDED")
            assert it.slurm.rows[name].admin_comment.startswith("dfrs:paused:")
            await it.post(f"/jobs/{number}/release")
            await it.is_in(name, "RUNNING")
            await it.reaches(name, "running")
            assert len(it.slurm.starts) == 1

    run(story)


def test_cancel_and_requeue(tmp_path):
    async def story():
        async with site(tmp_path) as it:
            name = it.slurm.sbatch()
            number = (await it.reaches(name, "running"))["id"]
            await it.post(f"/jobs/{number}/requeue")
            await it.until(lambda: len(it.slurm.starts) == 2, "started again")
            found = await it.reaches(name, "running")
            assert found["attempt"] == 1
            assert it.slurm.rows[name].restarts == 1
            await it.post(f"/jobs/{number}/cancel")
            await it.ends(number, "cancelled")
            assert it.slurm.rows[name].state == "CANCELLED"

    run(story)


def test_a_job_that_waits_is_cancelled_in_slurm_too(tmp_path):
    async def story():
        async with site(tmp_path, nodes=0) as it:
            name = it.slurm.sbatch()
            number = await it.number(name)
            await it.post(f"/jobs/{number}/cancel")
            await it.is_in(name, "CANCELLED")
            await it.quiet()
            assert name not in it.controller.state.arrived

    run(story)


# What others do in Slurm.


def test_a_strangers_suspend_is_a_hold_and_resume_a_release(tmp_path):
    async def story():
        async with site(tmp_path) as it:
            name = it.slurm.sbatch()
            number = (await it.reaches(name, "running"))["id"]
            await it.quiet()
            it.slurm.set(name, state="SUSPENDED")
            await it.ends(number, "held")
            await it.until(lambda: "paused" in it.slurm.rows[name].admin_comment, "marked")
            assert ("resume", name) not in it.slurm.asked
            it.slurm.set(name, state="RUNNING")
            await it.ends(number, "running")
            await it.until(lambda: "running" in it.slurm.rows[name].admin_comment, "marked")
            assert ("suspend", name) not in it.slurm.asked
            by = [(each["action"], each["by"]) for each in await it.get(f"/activity?job={number}")]
            assert ("hold", "Slurm") in by
            assert ("release", "Slurm") in by

    run(story)


@pytest.mark.parametrize("before", ["its start is seen", "Slurm was away"])
def test_a_strangers_suspend_is_a_hold_whenever_it_comes(tmp_path, before):
    """Also of a job that was never seen to run, and of one that has just run on while Slurm did not answer."""

    async def story():
        async with site(tmp_path) as it:
            name = it.slurm.sbatch()
            if before == "its start is seen":
                it.slurm.slow.add(name)
                await it.until(lambda: name in it.slurm.rows and not it.slurm.rows[name].held, "released")
                await it.quiet()
                it.slurm.start(name)
            else:
                await it.reaches(name, "running")
                it.slurm.up = False
                await it.comes("/nodes", lambda nodes: all(each["problem"] for each in nodes), "said")
                it.slurm.up = True
                await it.comes("/nodes", lambda nodes: not any(each["problem"] for each in nodes), "back")
                await it.quiet()
            it.slurm.set(name, state="SUSPENDED", held=True)
            await it.reaches(name, "held")
            await it.quiet()
            assert it.slurm.rows[name].state == "SUSPENDED"
            assert ("resume", name) not in it.slurm.asked

    run(story)


def test_a_strangers_release_of_a_job_that_is_not_known_yet_starts_nothing_either(tmp_path):
    async def story():
        async with site(tmp_path, nodes=0) as it:
            name = it.slurm.sbatch(held=False)
            await it.until(lambda: it.slurm.rows[name].held, "held again")
            await it.number(name)
            it.slurm.nodes = FakeSlurm(1).nodes
            await it.reaches(name, "running")
            assert len(it.slurm.starts) == 1

    run(story)


def test_jobs_that_somebody_is_to_see_to_are_held(tmp_path):
    """Slurm queues them again by RequeueExitHold, or has started them too often."""

    async def story():
        async with site(tmp_path) as it:
            name = it.slurm.sbatch()
            number = (await it.reaches(name, "running"))["id"]
            it.slurm.set(name, state="PENDING", held=True, special=True, restarts=1)
            await it.reaches(name, "held")
            await it.quiet()
            assert len(it.slurm.starts) == 1
            await it.post(f"/jobs/{number}/release")
            found = await it.reaches(name, "running")
            assert (found["attempt"], len(it.slurm.starts)) == (1, 2)

    run(story)


def test_a_strangers_release_starts_nothing_that_was_not_decided(tmp_path):
    async def story():
        async with site(tmp_path, nodes=1) as it:
            names = [it.slurm.sbatch(memory_bytes=6 * GIB) for _ in range(2)]
            await it.until(lambda: len(it.slurm.starts) == 1, "one runs")
            (waits,) = [name for name in names if it.slurm.rows[name].pending]
            await it.number(waits)
            it.slurm.set(waits, held=False)
            await it.until(lambda: it.slurm.rows[waits].held, "held again")
            it.slurm.release_by_hand(waits)
            await it.is_in(waits, "PENDING")
            assert it.slurm.rows[waits].held
            (runs,) = set(names) - {waits}
            it.slurm.finish(runs)
            await it.reaches(waits, "running")

    run(story)


def test_a_strangers_requeue_begins_the_job_anew(tmp_path):
    async def story():
        async with site(tmp_path) as it:
            name = it.slurm.sbatch()
            number = (await it.reaches(name, "running"))["id"]
            for attempt in (1, 2, 3):
                it.slurm.requeue_by_hand(name)
                await it.comes(f"/jobs/{number}", lambda f, a=attempt: f["attempt"] == a, "queued again")
                await it.reaches(name, "running")
            assert len(it.slurm.starts) == 4

    run(story)


def test_a_user_holds_and_releases_by_the_comment(tmp_path):
    async def story():
        async with site(tmp_path) as it:
            name = it.slurm.sbatch(comment="dfrs: cpu=0.5 held; mine")
            number = await it.number(name)
            await it.ends(number, "held")
            await it.quiet()
            assert not it.slurm.starts
            it.slurm.set(name, comment="dfrs: cpu=0.5; mine")
            await it.reaches(name, "running")

    run(story)


@pytest.mark.parametrize("waits", [False, True])
def test_scancel_cancels(tmp_path, waits):
    async def story():
        async with site(tmp_path, nodes=0 if waits else 1) as it:
            name = it.slurm.sbatch()
            number = await it.number(name)
            if not waits:
                await it.reaches(name, "running")
            it.slurm.cancel_by_hand(name)
            ended = await it.ends(number, "cancelled")
            assert ended["exit"] == "cancelled by Slurm"

    run(story)


@pytest.mark.parametrize("moment", ["with its job", "before its job", "after its job"])
def test_what_slurm_does_not_queue_again_by_itself_begins_anew(tmp_path, moment):
    """With JobRequeue=0 a job that is lost with its node has ended, as Slurm sees it."""

    async def story():
        async with site(tmp_path) as it:
            name, rigid = it.slurm.sbatch(), it.slurm.sbatch(requeue=False)
            numbers = [(await it.reaches(each, "running"))["id"] for each in (name, rigid)]
            for node in {it.slurm.rows[each].node for each in (name, rigid)}:
                if moment == "with its job":
                    it.slurm.fail(node, job_requeue=False)
                elif moment == "before its job":
                    it.slurm.nodes[node] = replace(it.slurm.nodes[node], down=True)
                    for row in [row for row in it.slurm.rows.values() if row.node == node]:
                        it.slurm.set(row.id, state="COMPLETING")
                    await it.quiet()
                    for row in [row for row in it.slurm.rows.values() if row.node == node]:
                        it.slurm.set(row.id, state="NODE_FAIL", since_s=time.time())
                else:
                    for row in [row for row in it.slurm.rows.values() if row.node == node]:
                        it.slurm.set(row.id, state="NODE_FAIL", since_s=time.time())
                    it.slurm.nodes[node] = replace(it.slurm.nodes[node], down=True)
            await it.ends(numbers[1], "failed")
            for node in it.slurm.nodes:
                it.slurm.nodes[node] = replace(it.slurm.nodes[node], down=False)
            found = await it.reaches(name, "running")
            assert (found["attempt"], it.slurm.rows[name].restarts) == (1, 1)
            assert [job for job, _ in it.slurm.starts].count(name) == 2
            await it.quiet()
            assert it.slurm.rows[rigid].state == "NODE_FAIL"

    run(story)


def test_a_node_that_goes_down_loses_its_jobs_once(tmp_path):
    async def story():
        async with site(tmp_path, nodes=1) as it:
            name, rigid = it.slurm.sbatch(), it.slurm.sbatch(requeue=False)
            numbers = [(await it.reaches(each, "running"))["id"] for each in (name, rigid)]
            nodes = {it.slurm.rows[each].node for each in (name, rigid)}
            for node in nodes:
                it.slurm.fail(node)
            await it.comes(f"/jobs/{numbers[1]}", lambda found: found["state"] == "failed", "failed")
            assert it.slurm.rows[name].state == "PENDING"
            await it.until(lambda: it.slurm.rows[name].held, "Slurm is not to start it by itself")
            for node in nodes:
                it.slurm.nodes[node] = replace(it.slurm.nodes[node], down=False)
            found = await it.reaches(name, "running")
            assert found["attempt"] == 1
            assert len(it.slurm.starts) == 3

    run(story)


def test_a_drained_node_gets_nothing_new_and_keeps_what_it_has(tmp_path):
    async def story():
        async with site(tmp_path) as it:
            name = it.slurm.sbatch()
            (node,) = (await it.reaches(name, "running"))["nodes"]
            it.slurm.nodes[node] = replace(it.slurm.nodes[node], problem="is drained in Slurm: fan")
            await it.comes("/nodes", lambda nodes: any(each["problem"] for each in nodes), "said")
            more = [it.slurm.sbatch() for _ in range(3)]
            for each in more:
                assert (await it.reaches(each, "running"))["nodes"] != [node]
            assert it.slurm.rows[name].state == "RUNNING"

    run(story)


def test_a_job_starts_on_the_node_that_its_user_names(tmp_path):
    async def story():
        async with site(tmp_path) as it:
            await it.comes("/nodes", lambda nodes: len(nodes) == 2, "two nodes")
            for node in ("n2", "n1", "n2"):
                assert (await it.reaches(it.slurm.sbatch(node=node), "running"))["nodes"] == [node]

    run(story)


@pytest.mark.parametrize(
    "reason",
    ["QOSMaxJobsPerUserLimit", "Licenses", "PartitionDown", "ReqNodeNotAvail, Reserved for maintenance"],
)
def test_a_node_is_not_blamed_for_what_slurm_forbids_everywhere(tmp_path, reason):
    async def story():
        async with site(tmp_path, start_s=0.2, report_s=0.05) as it:
            name = it.slurm.sbatch()
            it.slurm.slow.add(name)
            await it.until(lambda: ("release", name) in it.slurm.asked, "released")
            it.slurm.set(name, reason=reason)
            number = await it.number(name)
            await it.comes(f"/jobs/{number}", lambda job: reason in job["why"], "said")
            for _ in range(3):
                await it.quiet()
            assert not any(node["problem"] for node in await it.get("/nodes"))
            it.slurm.start(name)
            await it.reaches(name, "running")

    run(story)


@pytest.mark.parametrize("reason", ["None", "ReqNodeNotAvail, UnavailableNodes:n1"])
def test_a_job_that_its_node_does_not_start_begins_elsewhere(tmp_path, reason):
    async def story():
        async with site(tmp_path, start_s=0.2, report_s=0.05) as it:
            name = it.slurm.sbatch()
            it.slurm.slow.add(name)
            await it.until(lambda: ("release", name) in it.slurm.asked, "released")
            first = it.slurm.rows[name].node
            it.slurm.set(name, reason=reason)
            await it.until(lambda: it.slurm.rows[name].node != first, "placed elsewhere")

    run(story)


def test_what_is_drained_gets_nothing_while_the_controller_is_told_of_ends(tmp_path):
    async def story():
        async with site(tmp_path, nodes=1) as it:
            name = it.slurm.sbatch()
            await it.reaches(name, "running")
            more = it.slurm.sbatch(memory_bytes=8 * GIB)
            await it.number(more)
            it.slurm.nodes["n1"] = replace(it.slurm.nodes["n1"], problem="is drained in Slurm: fan")
            it.slurm.cancel_by_hand(name)
            await it.reaches(name, "cancelled")
            await it.quiet()
            assert ("place", more) not in it.slurm.asked

    run(story)


@pytest.mark.parametrize("restarted", [False, True])
def test_jobs_on_a_node_that_is_taken_out_of_the_partition_run_on(tmp_path, restarted):
    async def story():
        async with site(tmp_path, lost_s=1.0, silent_s=0.5) as it:
            name = it.slurm.sbatch(node="n2", requeue=False)
            number = (await it.reaches(name, "running"))["id"]
            if restarted:
                await it.kill()
            node = it.slurm.nodes.pop("n2")
            if restarted:
                await it.start()
            said = "is no longer in the partition"
            await it.comes("/nodes", lambda nodes: any(each["problem"] == said for each in nodes), "said")
            await asyncio.sleep(1.5 if restarted else 0.3)
            assert (await it.get(f"/jobs/{number}"))["state"] == "running"
            it.slurm.set(name, state="COMPLETING")
            await it.quiet()
            it.slurm.finish(name)
            await it.ends(number, "done")
            it.slurm.nodes["n2"] = node
            await it.reaches(it.slurm.sbatch(node="n2"), "running")

    run(story)


def test_all_nodes_of_a_job_that_was_not_started_from_here_get_nothing_new(tmp_path):
    async def story():
        async with site(tmp_path) as it:
            it.slurm.others.append(
                replace(it.slurm.rows[it.slurm.sbatch(state="RUNNING", held=False, node="n[1-2]")], id="7")
            )
            await it.comes("/nodes", lambda nodes: len(nodes) == 2 and all(each["problem"] for each in nodes), "said")

    run(story)


def test_a_node_with_jobs_that_were_not_started_from_here_gets_nothing_new(tmp_path):
    async def story():
        async with site(tmp_path, nodes=1) as it:
            stray = it.slurm.sbatch(state="RUNNING", held=False, node="n1")
            found = await it.comes("/nodes", lambda nodes: nodes and nodes[0]["problem"], "said")
            assert stray in found[0]["problem"]
            name = it.slurm.sbatch()
            await it.number(name)
            await it.quiet()
            assert it.slurm.rows[name].held
            assert it.slurm.rows[stray].state == "RUNNING"
            it.slurm.finish(stray)
            await it.reaches(name, "running")

    run(story)


# Slurm or the controller away.


@pytest.mark.parametrize("stood_by", [True, False, None], ids=["lease lost", "lease lost, none stood by", "replaced"])
def test_a_controller_that_may_have_been_replaced_asks_slurm_for_nothing(tmp_path, stood_by):
    """What another one has started, is about to start, or has taken in is none of its business."""

    async def story():
        async with site(tmp_path, nodes=1) as it:
            await it.reaches(it.slurm.sbatch(memory_bytes=8 * GIB), "running")
            started, released, _ = names = [it.slurm.sbatch(memory_bytes=8 * GIB) for _ in range(3)]
            for name in names:
                await it.until(lambda name=name: it.slurm.rows[name].admin_comment.startswith("dfrs: waits"), "waits")
            await it.quiet()
            lease = SimpleNamespace(good=False, replaced=False, stood_by=stood_by, stop=lambda: None)
            if stood_by is None:
                it.controller.engine.give_up(ReplacedError("another controller has taken over"))
            else:
                it.controller.database.lease = lease
            it.slurm.asked.clear()
            for name in names:
                task = TaskId(job=it.controller.state.arrived[name], rank=0, attempt=0, generation="0badc0de")
                it.slurm.set(name, node="n1", admin_comment=str(Mark(task, TaskState.RUNNING, 1 << 40, 0)))
            it.slurm.set(started, held=False, state="RUNNING", since_s=time.time())
            it.slurm.set(released, held=False)
            it.slurm.sbatch(held=False)
            it.slurm.sbatch(reservation="tomorrow")
            await it.quiet()
            assert it.slurm.asked == []
            if stood_by is not None:
                # It was not replaced, and knows it: these starts are nobody's.
                lease.good = True
                await it.until(lambda: {"requeue", "hold", "explain"} <= {verb for verb, *_ in it.slurm.asked}, "asked")

    run(story)


def test_while_slurm_is_away_nothing_is_lost(tmp_path):
    async def story():
        async with site(tmp_path, lost_s=2.0, silent_s=1.0) as it:
            name = it.slurm.sbatch()
            number = (await it.reaches(name, "running"))["id"]
            it.slurm.up = False
            said = "Slurm does not answer"
            await it.comes("/nodes", lambda nodes: all(each["problem"] == said for each in nodes), "said")
            await asyncio.sleep(2.5)
            assert (await it.get(f"/jobs/{number}"))["state"] == "running"
            it.slurm.up = True
            await it.comes("/nodes", lambda nodes: not any(each["problem"] for each in nodes), "back")
            assert len(it.slurm.starts) == 1
            it.slurm.finish(name)
            await it.ends(number, "done")

    run(story)


def test_while_the_database_cannot_be_written_nothing_is_lost(tmp_path, monkeypatch):
    """Nor when it can be again: nodes are heard whatever cannot be written down of jobs."""
    monkeypatch.setattr(engine, "RETRY_S", 0.05)

    def full(_changes):
        raise OperationalError("write", {}, Exception("database or disk is full"))

    async def story():
        async with site(tmp_path, lost_s=1.0, silent_s=0.5) as it:
            names = [it.slurm.sbatch() for _ in range(3)]
            numbers = [(await it.reaches(name, "running"))["id"] for name in names]
            # To show a traceback takes seconds, in which the controller itself would be away.
            with capture_logs(), monkeypatch.context() as patched:
                patched.setattr(it.controller.database, "_transact", full)
                for name in names[:2]:
                    it.slurm.cancel_by_hand(name)
                await asyncio.sleep(1.5)
            for number in numbers[:2]:
                await it.ends(number, "cancelled")
            await it.quiet()
            assert (await it.reaches(names[2], "running"))["attempt"] == 0
            assert len(it.slurm.starts) == 3

    run(story)


def test_a_controller_that_starts_while_slurm_is_away_gives_nothing_up(tmp_path):
    async def story():
        it = Site(tmp_path, lost_s=1.0, silent_s=0.5)
        await it.start()
        name = it.slurm.sbatch(requeue=False)
        number = (await it.reaches(name, "running"))["id"]
        await it.kill()
        it.slurm.up = False
        await it.start()
        await asyncio.sleep(2.0)
        it.slurm.up = True
        await it.comes("/nodes", lambda nodes: not any(each["problem"] for each in nodes), "back")
        assert (await it.reaches(name, "running"))["attempt"] == 0
        it.slurm.finish(name)
        await it.ends(number, "done")
        await it.stop()

    run(story)


def test_a_job_that_ended_unseen_on_a_node_that_is_down_now_has_ended(tmp_path):
    async def story():
        it = Site(tmp_path)
        await it.start()
        name = it.slurm.sbatch(node="n2", requeue=False)
        number = (await it.reaches(name, "running"))["id"]
        await it.kill()
        it.slurm.finish(name)
        it.slurm.fail("n2")
        await it.start()
        await it.ends(number, "done")
        await it.stop()

    run(story)


def test_a_start_that_slurm_has_forgotten_is_not_the_same_one_again(tmp_path):
    """Killed within seconds of a start, slurmctld comes back with what it had stored before."""

    async def story():
        async with site(tmp_path) as it:
            name = it.slurm.sbatch()
            await it.reaches(name, "running")
            await it.quiet()
            it.slurm.set(name, state="PENDING", held=True)
            await it.until(lambda: len(it.slurm.starts) == 2, "begun anew")
            assert (await it.reaches(name, "running"))["attempt"] == 1

    run(story)


def test_a_job_that_is_missing_for_a_moment_has_not_ended(tmp_path):
    async def story():
        async with site(tmp_path) as it:
            name = it.slurm.sbatch()
            number = (await it.reaches(name, "running"))["id"]
            row = it.slurm.rows.pop(name)
            await asyncio.sleep(0.1)
            it.slurm.rows[name] = row
            await it.quiet()
            assert (await it.get(f"/jobs/{number}"))["state"] == "running"
            assert len(it.slurm.starts) == 1

    run(story)


@pytest.mark.parametrize("verb", ["place", "release"])
def test_a_start_that_slurm_did_not_hear_is_asked_for_again(tmp_path, verb):
    async def story():
        async with site(tmp_path) as it:
            it.slurm.fails_before.add(verb)
            name = it.slurm.sbatch()
            await it.until(lambda: not it.slurm.up, "away")
            it.slurm.up = True
            await it.reaches(name, "running")
            assert len(it.slurm.starts) == 1

    run(story)


def test_a_suspend_that_slurm_did_not_hear_is_asked_for_again(tmp_path):
    """Its mark says that it is paused already, and nobody else resumed it."""

    async def story():
        async with site(tmp_path) as it:
            name = it.slurm.sbatch()
            number = (await it.reaches(name, "running"))["id"]
            it.slurm.fails_before.add("suspend")
            await it.post(f"/jobs/{number}/hold")
            await it.until(lambda: not it.slurm.up, "away")
            it.slurm.up = True
            await it.is_in(name, "SUSPENDED")
            assert (await it.get(f"/jobs/{number}"))["state"] == "held"

    run(story)


@pytest.mark.parametrize("moment", ["waits", "placed", "released", "running", "held"])
def test_a_controller_that_comes_back_goes_on(tmp_path, moment):
    async def story():
        it = Site(tmp_path, nodes=0 if moment == "waits" else 2)
        if moment == "placed":
            it.slurm.refusing.add("release")
        await it.start()
        name = it.slurm.sbatch()
        if moment == "released":
            it.slurm.slow.add(name)
        number = await it.number(name)
        if moment in {"placed", "released"}:
            await it.until(lambda: it.slurm.rows[name].admin_comment.startswith("dfrs:running:"), "placed")
        if moment == "released":
            await it.until(lambda: not it.slurm.rows[name].held, "released")
        if moment in {"running", "held"}:
            await it.reaches(name, "running")
        if moment == "held":
            await it.post(f"/jobs/{number}/hold")
            await it.is_in(name, "SUSPENDED")
        await it.kill()
        it.slurm.refusing.clear()
        it.slurm.slow.clear()
        if moment == "released":
            it.slurm.start(name)
        if moment == "waits":
            it.slurm.nodes = FakeSlurm(1).nodes
        await it.start()
        assert await it.number(name) == number
        if moment == "held":
            await it.quiet()
            assert it.slurm.rows[name].state == "SUSPENDED"
            await it.post(f"/jobs/{number}/release")
        found = await it.reaches(name, "running")
        assert found["attempt"] == 0
        await it.is_in(name, "RUNNING")
        assert len(it.slurm.starts) == 1
        await it.stop()

    run(story)


@pytest.mark.parametrize("held_by", ["sbatch --hold", "scontrol hold", "dfrs hold and scontrol hold", "Slurm"])
def test_what_dfrs_releases_is_not_held_again_by_a_controller_that_comes_back(tmp_path, held_by):
    """The comment says held yet: that is of before, and was heeded then."""

    async def story():
        it = Site(tmp_path, nodes=0)
        await it.start()
        name = it.slurm.sbatch(comment="dfrs: held" if held_by == "sbatch --hold" else "")
        number = await it.number(name)
        if held_by == "dfrs hold and scontrol hold":
            await it.post(f"/jobs/{number}/hold")
        if held_by == "Slurm":
            it.slurm.set(name, special=True)
        elif held_by != "sbatch --hold":
            it.slurm.set(name, comment="dfrs: held")
        await it.ends(number, "held")
        await it.quiet()
        await it.post(f"/jobs/{number}/release")
        await it.kill()
        await it.start()
        await it.quiet()
        assert (await it.get(f"/jobs/{number}"))["state"] == "waiting"
        it.slurm.nodes = FakeSlurm(1).nodes
        await it.reaches(name, "running")
        await it.stop()

    run(story)


def test_users_hold_and_release_while_no_controller_looks(tmp_path):
    async def story():
        it = Site(tmp_path, nodes=0)
        await it.start()
        name, other = it.slurm.sbatch(), it.slurm.sbatch()
        numbers = [await it.number(each) for each in (name, other)]
        await it.post(f"/jobs/{numbers[1]}/hold")
        for comment, state in (("dfrs: held", "held"), ("dfrs:", "waiting"), ("dfrs: held", "held")):
            await it.kill()
            it.slurm.set(name, comment=comment)
            await it.start()
            await it.ends(numbers[0], state)
            await it.quiet()
            # Nobody said anything of it in Slurm.
            assert (await it.get(f"/jobs/{numbers[1]}"))["state"] == "held"
        await it.stop()

    run(story)


def test_jobs_that_end_while_no_controller_looks_have_ended(tmp_path):
    async def story():
        it = Site(tmp_path)
        await it.start()
        done, gone = it.slurm.sbatch(), it.slurm.sbatch()
        numbers = [(await it.reaches(name, "running"))["id"] for name in (done, gone)]
        await it.kill()
        it.slurm.finish(done)
        del it.slurm.rows[gone]
        await it.start()
        await it.ends(numbers[0], "done")
        ended = await it.ends(numbers[1], "cancelled")
        assert "no longer knows it" in ended["exit"]
        assert len(it.slurm.starts) == 2
        await it.stop()

    run(story)


def test_jobs_of_a_lost_record_are_left_alone(tmp_path):
    """A controller with an empty record kills nothing: what runs keeps its node until it has ended."""

    async def story():
        it = Site(tmp_path, nodes=1)
        await it.start()
        name = it.slurm.sbatch()
        await it.reaches(name, "running")
        await it.kill()
        it.path = tmp_path / "other"
        it.path.mkdir()
        await it.start()
        await it.comes("/nodes", lambda nodes: nodes and nodes[0]["problem"], "said")
        await it.quiet()
        assert it.slurm.rows[name].state == "RUNNING"
        await it.stop()

    run(story)


# What is taken in.


def test_jobs_queue_in_the_order_in_which_they_were_submitted(tmp_path):
    """squeue has those that wait the other way round."""

    async def story():
        async with site(tmp_path) as it:
            now_s = time.time()
            names = [
                it.slurm.sbatch(id=name, submit_s=now_s + at_s)
                for name, at_s in [("11", 1.0), ("10", 1.0), ("9_2", 1.0), ("9_1", 1.0), ("12", 0.0)]
            ]
            numbers = {name: await it.number(name) for name in names}
            assert sorted(names, key=numbers.__getitem__) == ["12", "9_1", "9_2", "10", "11"]

    run(story)


def test_an_array_is_taken_in_as_far_as_its_window(tmp_path):
    async def story():
        async with site(tmp_path) as it:
            for k in range(5):
                it.slurm.sbatch(id=f"7_{k}", number=0, window=2)
            await it.until(lambda: len(it.slurm.starts) == 2, "two run")
            await it.quiet()
            assert len(it.slurm.starts) == 2
            it.slurm.finish(it.slurm.starts[0][0])
            await it.until(lambda: len(it.slurm.starts) == 3, "the next one runs")

    run(story)


@pytest.mark.parametrize(
    "fields", [{"dependency": "afterok:1(unfulfilled)"}, {"eligible_s": 4e9}, {"reservation": "maintenance"}]
)
def test_what_slurm_would_not_start_is_not_taken_in(tmp_path, fields):
    async def story():
        async with site(tmp_path) as it:
            name = it.slurm.sbatch(**fields)
            await it.quiet()
            assert name not in it.controller.state.arrived
            it.slurm.set(name, **dict.fromkeys(fields, 0.0 if "eligible_s" in fields else ""))
            await it.reaches(name, "running")

    run(story)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"nodes": 2}, "--nodes=2: must be 1"),
        ({"node": "n[1-2]"}, "--nodelist=n[1-2]: must be one node"),
        ({"reservation": "fans"}, "--reservation=fans: dfrs starts jobs outside of reservations only"),
        ({"comment": "dfrs: cpus=2"}, "--comment: cpus=2: must be cpu=CORES"),
        ({"comment": "dfrs: cpu=1.5"}, "--comment: cpu=1.5: must be"),
        ({"memory_bytes": 99 * GIB}, "memory_bytes"),
    ],
)
def test_what_cannot_be_scheduled_stays_held_and_says_why(tmp_path, fields, words):
    async def story():
        async with site(tmp_path) as it:
            await it.comes("/nodes", lambda nodes: len(nodes) == 2, "two nodes")
            name = it.slurm.sbatch(**fields)
            await it.until(lambda: words in it.slurm.rows[name].admin_comment, "said")
            assert it.slurm.rows[name].held
            await it.quiet()
            assert it.slurm.asked.count(("explain", name)) == 1

    run(story)


def test_a_quota_is_explained_once_though_its_numbers_change(tmp_path, monkeypatch):
    async def story():
        async with site(tmp_path) as it:
            await it.comes("/nodes", lambda nodes: len(nodes) == 2, "two nodes")
            open_jobs = itertools.count(41)

            async def full(*_):
                raise TooManyError(f"has {next(open_jobs)} open jobs and may have 41")

            monkeypatch.setattr(it.backend._control, "submit", full)
            names = [it.slurm.sbatch() for _ in range(3)]
            for name in names:
                await it.until(lambda name=name: "may have 41" in it.slurm.rows[name].admin_comment, "said")
            await it.quiet()
            assert [it.slurm.asked.count(("explain", name)) for name in names] == [1, 1, 1]

    run(story)


def test_an_account_of_slurm_has_its_quota(tmp_path):
    quotas = Quotas(accounts={"physics": AccountQuota(users=frozenset({"ann"}))})

    async def story():
        async with site(tmp_path, quotas=quotas) as it:
            refused = it.slurm.sbatch(account="physics")
            await it.until(lambda: "eve may not charge it" in it.slurm.rows[refused].admin_comment, "said")
            found = await it.reaches(it.slurm.sbatch(account="physics", user="ann"), "running")
            assert found["account"] == "physics"
            found = await it.reaches(it.slurm.sbatch(), "running")
            assert found["account"] is None

    run(story)


def test_a_limit_of_many_years_disturbs_nobody(tmp_path):
    async def story():
        async with site(tmp_path) as it:
            for limit_s in (1.7e9, 0.0):
                await it.reaches(it.slurm.sbatch(time_limit_s=limit_s), "running")

    run(story)


def test_why_a_job_waits_is_said_in_slurm(tmp_path):
    async def story():
        async with site(tmp_path, nodes=1) as it:
            it.slurm.sbatch(memory_bytes=6 * GIB)
            await it.until(lambda: len(it.slurm.starts) == 1, "one runs")
            name = it.slurm.sbatch(memory_bytes=6 * GIB)
            await it.until(lambda: "memory free" in it.slurm.rows[name].admin_comment, "said")
            assert it.slurm.rows[name].admin_comment.startswith("dfrs: waits: no node has 6 GiB")

    run(story)


# Shares.


def report(**fields):
    return {"node": "n1", "time_s": 1.0, "kind": "cgroup-v1"} | fields


def test_a_share_agent_gets_shares_and_reports_use(tmp_path):
    async def story():
        async with site(tmp_path, nodes=1, report_s=0.5) as it:
            names = [it.slurm.sbatch(cpus=4, comment=f"dfrs: cpu={cpu}") for cpu in (4, 2)]
            for name in names:
                await it.reaches(name, "running")
            answer = await it.agents.post("/agent/v1/shares", json=report())
            assert answer.status_code == 200, answer.text
            orders = answer.json()
            cores = {job["number"]: job["cores"] for job in orders["jobs"]}
            first, second = (it.slurm.rows[name].number for name in names)
            assert cores[first] == pytest.approx(2 * cores[second])
            assert sum(cores.values()) <= orders["node_cores"] * 1.0001
            await it.comes("/nodes", lambda nodes: nodes[0]["shares"] == "cgroup-v1", "known")
            answer = await it.agents.post("/agent/v1/shares", json=report(kind=""))
            assert answer.status_code == 200, answer.text
            await it.comes("/nodes", lambda nodes: nodes[0]["shares"] == "equal", "an agent that cannot write them")
            assert (await it.get("/nodes"))[0]["version"] == ""

            # The next answer comes when something changes.
            began_s = time.monotonic()
            waiting = asyncio.create_task(
                it.agents.post("/agent/v1/shares", json=report(version=orders["version"], time_s=1.5))
            )
            await asyncio.sleep(0.05)
            assert not waiting.done()
            it.slurm.finish(names[1])
            later = (await waiting).json()
            assert time.monotonic() - began_s < 0.45
            assert [job["number"] for job in later["jobs"]] == [first]
            for k in range(1, 6):
                use = {"number": first, "cpu_s": 0.5 * k, "memory_bytes": GIB, "watched_s": k, "delayed_s": 0.5 * k}
                body = report(time_s=10.0 + k, jobs=[use | {"waiting_s": 0.5 * k}])
                assert (await it.agents.post("/agent/v1/shares", json=body)).status_code == 200
            number = await it.number(names[0])
            found = await it.comes(f"/jobs/{number}", lambda f: f["yield_received"] is not None, "measured")
            assert found["yield_received"] == pytest.approx(0.5, abs=0.05)
            assert found["used_cores"] == pytest.approx(0.5, abs=0.01)

    run(story)


def test_share_agents_are_let_in_by_tokens_of_agents_only(tmp_path):
    async def story():
        async with site(tmp_path, nodes=1) as it:
            await it.comes("/nodes", lambda nodes: len(nodes) == 1, "a node")
            assert (await it.client.post("/agent/v1/shares", json=report())).status_code == 403
            assert (await it.agents.post("/agent/v1/shares", json=report(node="n7"))).status_code == 404
            assert (await it.agents.post("/agent/v1/shares", json=report(kind=3))).status_code == 422

    run(story)


def test_a_reason_is_not_written_over_the_mark_of_a_start(tmp_path):
    """A command for many jobs takes long: what is started meanwhile keeps its mark, and begins once."""

    async def story():
        async with site(tmp_path, nodes=1) as it:
            first = it.slurm.sbatch(memory_bytes=8 * GIB)
            await it.reaches(first, "running")
            second = it.slurm.sbatch(memory_bytes=8 * GIB)
            began, go_on = asyncio.Event(), asyncio.Event()
            explain = it.slurm.explain

            async def slowly(jobs, why):
                began.set()
                await go_on.wait()
                await explain(jobs, why)

            it.slurm.explain = slowly
            await began.wait()
            it.slurm.finish(first)
            await it.quiet()
            # Until the command is over it does not begin; then it has the mark of its start.
            assert it.slurm.rows[second].held
            go_on.set()
            await it.reaches(second, "running")
            await it.quiet()
            assert it.slurm.rows[second].admin_comment.startswith("dfrs:running:")
            assert [job for job, _ in it.slurm.starts] == [first, second]

    run(story)


def test_a_reason_that_slurm_did_not_hear_is_written_again(tmp_path):
    async def story():
        async with site(tmp_path, nodes=1) as it:
            first = it.slurm.sbatch(memory_bytes=8 * GIB)
            await it.reaches(first, "running")
            asked, explain = set(), it.slurm.explain

            async def heard_the_second_time(jobs, why):
                if why not in asked:
                    asked.add(why)
                    raise UnavailableError("Slurm: scontrol: Socket timed out on send/recv operation")
                await explain(jobs, why)

            it.slurm.explain = heard_the_second_time
            second = it.slurm.sbatch(memory_bytes=8 * GIB)
            await it.until(lambda: it.slurm.rows[second].admin_comment.startswith("dfrs: waits"), "explained")
            assert asked

    run(story)


def test_reasons_of_many_jobs_are_written_some_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(slurm_backend, "MOST_WRITTEN", 3)
    monkeypatch.setattr(slurm_backend, "MOST_ASKED", 4)
    monkeypatch.setattr(slurm_backend, "TOGETHER", 2)

    async def story():
        async with site(tmp_path, nodes=1) as it:
            for _ in range(12):
                it.slurm.sbatch(memory_bytes=8 * GIB)
            await it.until(lambda: len(it.slurm.starts) == 1, "one runs")
            started = it.slurm.starts[0][0]
            waits = [name for name in it.slurm.rows if name != started]
            await it.until(
                lambda: all(it.slurm.rows[name].admin_comment.startswith("dfrs: waits") for name in waits), "explained"
            )
            asked = [jobs for verb, *jobs in it.slurm.asked if verb == "explain"]
            assert max(map(len, asked)) <= 2

    run(story)


def test_turns_are_dated_when_they_are_seen(tmp_path):
    """squeue says when a job began, and not when it was suspended or resumed."""

    async def story():
        async with site(tmp_path) as it:
            name = it.slurm.sbatch()
            await it.reaches(name, "running")
            began_s = time.time() - 1000
            it.slurm.set(name, since_s=began_s)
            await it.quiet()
            before_s = time.time()
            it.slurm.set(name, state="SUSPENDED", since_s=began_s)
            await it.reaches(name, "held")
            since_s = it.backend.seen.rows[name].since_s
            assert before_s <= since_s <= time.time()
            await it.quiet()
            # Looks that find it as it was change nothing.
            assert it.backend.seen.rows[name].since_s == since_s

    run(story)


def test_slow_looks_do_not_silence_nodes(tmp_path, monkeypatch):
    """A look that takes long is followed by a long rest, but not by one in which nothing is heard of nodes."""
    monkeypatch.setattr(slurm_backend, "REST", 1e6)

    async def story():
        async with site(tmp_path, silent_s=0.4) as it:
            for _ in range(2):
                name = it.slurm.sbatch()
                await it.reaches(name, "running")
                await asyncio.sleep(0.5)

    run(story)


def test_the_window_of_an_array_counts_also_for_tasks_that_were_touched(tmp_path):
    """Slurm prints it with those only that nobody has touched."""

    async def story():
        async with site(tmp_path) as it:
            for index in range(4):
                it.slurm.sbatch(id=f"7_{index}", number=0, window=2)
            await it.until(lambda: len(it.slurm.starts) == 2, "two run")
            for number, name in enumerate(it.slurm.rows, 900):
                it.slurm.set(name, number=number, window=0)
            await it.quiet()
            assert len(it.controller.state.arrived) == 2

    run(story)


def test_a_task_that_is_held_leaves_its_place_to_the_next_one(tmp_path):
    async def story():
        async with site(tmp_path) as it:
            held = it.slurm.sbatch(id="7_0", comment="dfrs: held")
            for index in (1, 2):
                it.slurm.sbatch(id=f"7_{index}", number=0, window=1)
            await it.reaches(held, "held")
            await it.reaches("7_1", "running")
            await it.quiet()
            assert len(it.slurm.starts) == 1
            # The limit is Slurm's to keep where its user lets it go meanwhile.
            it.slurm.set(held, comment="")
            await it.reaches(held, "running")
            await it.quiet()
            assert len(it.slurm.starts) == 2

    run(story)


def test_a_window_that_is_lifted_lets_all_tasks_in(tmp_path):
    async def story():
        async with site(tmp_path) as it:
            for index in range(4):
                it.slurm.sbatch(id=f"7_{index}", number=0, window=1)
            await it.until(lambda: len(it.slurm.starts) == 1, "one runs")
            for number, (name, row) in enumerate(list(it.slurm.rows.items()), 900):
                it.slurm.set(name, number=0 if row.pending else number, window=0)
            await it.until(lambda: len(it.slurm.starts) == 4, "all run")

    run(story)
