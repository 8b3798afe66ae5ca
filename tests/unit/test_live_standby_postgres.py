"""Two controllers on a real PostgreSQL, in one process: who leads, what a take-over finds, what the old one does."""

import asyncio
import json
import threading
import time
from contextlib import asynccontextmanager, contextmanager

import pytest
import sqlalchemy as sa

from dfrs.live.controller.standby import lease
from dfrs.live.controller.standby import waiting as waiting_module
from dfrs.live.controller.standby.lease import LeaseKeeper
from dfrs.live.errors import UnavailableError
from dfrs.live.protocol.resources import JobRequest, JobState
from dfrs.model.errors import ReplacedError
from dfrs.policies.names import find_policy
from dfrs.simulator.recorded_log import decide_again
from dfrs.testing import InMemoryHosts, abandon, make_controller, until
from dfrs.workloads.live_log import read_live_log
from tests.live_postgres import postgres_server

ENDLESS = JobRequest(command=("forever",), cpu_cores=0.5)
PATIENCE_S = 30.0


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """All goes on a few times faster."""
    for name, value in (("BEAT_S", 0.1), ("LEASE_S", 2.0), ("TAKE_OVER_S", 2.5), ("GRACE_S", 0.6)):
        monkeypatch.setattr(lease, name, value)
    monkeypatch.setattr(waiting_module, "LOOK_S", 0.05)
    monkeypatch.setattr(waiting_module, "FOLLOW_S", 0.1)


@pytest.fixture(scope="module")
def server():
    with postgres_server() as (url, _, _):
        yield url


@pytest.fixture
def database(server, request):
    """URL of an empty database."""
    name = f"t{abs(hash(request.node.name)) % 10**9}"
    engine = sa.create_engine(server.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return server.rpartition("/")[0] + f"/{name}"


class Pair:
    """A world, and controllers on one database; nodes go to whoever leads when they are attached."""

    def __init__(self, path, url):
        self.path, self.url = path, url
        self.world = InMemoryHosts()
        self.begun = []

    def make(self, *, standby=True, name="a"):
        controller = make_controller(
            self.path, clock=self.world.clock, database=self.url, standby=standby, steady=time.monotonic
        )
        controller.announce(f"http://{name}")
        self.begun.append(controller)
        return controller

    async def lead(self, *, nodes=1, jobs=0):
        """A leader with nodes, and jobs that run."""
        for k in range(nodes):
            self.world.node(f"n{k}", cpus=4.0)
        leader = self.make(standby=False)
        await leader.start()
        self.world.attach_all(leader)
        await until(lambda: len(leader.nodes()) == nodes)
        names = [(await leader.submit(ENDLESS, "ann", "ann"))[0] for _ in range(jobs)]
        await until(lambda: all(leader.job(name).state is JobState.RUNNING for name in names))
        return leader, names


async def check_decisions(controller, path):
    """All that was ever decided, from the first event on, comes out again by the events alone."""
    lines = [line async for line in controller.log()]
    (path / "log.jsonl").write_text("\n".join(lines) + "\n")
    again = decide_again(read_live_log(path), find_policy)
    assert again.mismatch is None
    assert sum("restart" in json.loads(line) for line in lines) == 2


def standing_by(controller):
    """It has begun to wait."""
    aside = controller.aside()
    return aside is not None and aside.leader is not None


@asynccontextmanager
async def waiting(controller):
    """A standby, and the task that ends when it leads."""
    task = asyncio.create_task(controller.start())
    try:
        await until(lambda: task.done() or standing_by(controller))
        yield task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await controller.stop()


def test_after_a_kill_the_standby_has_all_and_goes_on(tmp_path, database, monkeypatch):
    """Jobs run on, none is started twice, recorded decisions come out again, and only the last are replayed."""
    # That nobody holds the lock is enough.
    monkeypatch.setattr(lease, "TAKE_OVER_S", 3600.0)

    async def story():
        pair = Pair(tmp_path, database)
        leader, names = await pair.lead(nodes=2, jobs=8)
        standby = pair.make(name="b")
        async with waiting(standby) as took:
            assert standby.aside().detail == "standby: the leader is http://a"
            assert "standby" in standby.healthy()
            await until(lambda: leader.cluster().standbys == 1)
            await until(lambda: standby._standby.follower.warm is not None)
            followed = standby._standby.follower.warm.sequence
            (late,) = await leader.submit(ENDLESS, "ann", "ann")
            await until(lambda: leader.job(late).state is JobState.RUNNING)
            starts = len(pair.world.starts)
            await abandon(leader)
            await asyncio.wait_for(took, PATIENCE_S)
            assert (standby.aside(), standby.state.mismatches) == (None, 0)
            # The old one may have been in contact with nodes until its lease ended: silence counts from then.
            assert all(node.seen_at > time.monotonic() for node in standby.state.nodes)
            assert standby.state.sequence > followed
            pair.world.attach_all(standby)
            await until(lambda: all(standby.job(name).state is JobState.RUNNING for name in [*names, late]))
            assert len(pair.world.starts) == starts
            (more,) = await standby.submit(ENDLESS, "ann", "ann")
            assert more == late + 1
            await until(lambda: standby.job(more).state is JobState.RUNNING)
            await until(lambda: standby.cluster().standbys == 0)
            await check_decisions(standby, tmp_path)

    asyncio.run(story())


def test_a_leader_that_ends_hands_over_at_once(tmp_path, database, monkeypatch):
    for name in ("TAKE_OVER_S", "GRACE_S"):
        monkeypatch.setattr(lease, name, 3600.0)

    async def story():
        pair = Pair(tmp_path, database)
        leader, names = await pair.lead(jobs=2)
        standby = pair.make(name="b")
        async with waiting(standby) as took:
            await leader.stop()
            await asyncio.wait_for(took, PATIENCE_S)
            assert [standby.job(name).state for name in names] == [JobState.RUNNING] * 2

    asyncio.run(story())


def test_alone_it_leads_from_the_beginning(tmp_path, database):
    async def story():
        alone = Pair(tmp_path, database).make()
        await asyncio.wait_for(alone.start(), PATIENCE_S)
        assert alone.healthy() is None
        await alone.stop()

    asyncio.run(story())


def test_of_two_that_wait_one_leads(tmp_path, database):
    async def story():
        pair = Pair(tmp_path, database)
        leader, _ = await pair.lead(jobs=1)
        one, two = pair.make(name="b"), pair.make(name="c")
        async with waiting(one) as first, waiting(two) as second:
            await until(lambda: leader.cluster().standbys == 2)
            await abandon(leader)
            await asyncio.wait({first, second}, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
            leads, waits = (one, second) if first.done() else (two, first)
            await asyncio.sleep(lease.GRACE_S + 1.0)
            assert not waits.done()
            assert leads.healthy() is None

    asyncio.run(story())


def test_a_standby_that_dies_changes_nothing(tmp_path, database):
    async def story():
        pair = Pair(tmp_path, database)
        leader, _ = await pair.lead(jobs=2)
        standby = pair.make(name="b")
        async with waiting(standby):
            await until(lambda: leader.cluster().standbys == 1)
        await until(lambda: leader.cluster().standbys == 0)
        (more,) = await leader.submit(ENDLESS, "ann", "ann")
        await until(lambda: leader.job(more).state is JobState.RUNNING)
        assert leader.healthy() is None
        await leader.stop()

    asyncio.run(story())


@contextmanager
def hung(controller):
    """Its lease is renewed no more, as if it were stopped; its lock is held on."""
    beat, keeper, over = LeaseKeeper._beat, controller.database.lease, threading.Event()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LeaseKeeper, "_beat", lambda self: over.wait(60) if self is keeper else beat(self))
        try:
            yield
        finally:
            over.set()


def test_a_leader_without_a_lease_lets_go_of_its_nodes(tmp_path, database, monkeypatch):
    """Before anybody else can lead, so that they look for the one that does, and fences count from then on."""
    monkeypatch.setattr(lease, "TAKE_OVER_S", 3600.0)

    async def story():
        pair = Pair(tmp_path, database)
        leader, names = await pair.lead(jobs=2)
        async with waiting(pair.make(name="b")):
            await until(lambda: leader.database.lease.stood_by)
            with hung(leader):
                await until(lambda: leader.engine.suspended)
                assert "lease" in leader.aside().detail
                await until(lambda: not any(node.connected for node in leader.state.nodes))
                steps, welcomes = leader.engine.steps, pair.world.nodes["n0"].welcomes
                pair.world.attach_all(leader)
                with pytest.raises(UnavailableError, match="lease"):
                    await leader.cancel(names[0], "ann")
                assert (leader.engine.steps, pair.world.nodes["n0"].welcomes) == (steps, welcomes)
            await until(lambda: leader.aside() is None)
            pair.world.attach_all(leader)
            await until(lambda: pair.world.nodes["n0"].welcomes > welcomes)
            assert all(leader.job(name).state is JobState.RUNNING for name in names)
            await leader.stop()

    asyncio.run(story())


def test_without_a_standby_it_keeps_its_nodes_however_long_the_database_is_away(tmp_path, database):
    async def story():
        leader, _ = await Pair(tmp_path, database).lead(jobs=1)
        with hung(leader):
            await until(lambda: not leader.database.lease.good)
            await asyncio.sleep(0.5)
            assert leader.aside() is None
            assert all(node.connected for node in leader.state.nodes)
        await leader.stop()

    asyncio.run(story())


def test_a_leader_that_was_away_does_no_harm(tmp_path, database, monkeypatch):
    """It does not know yet that it was replaced, and a node comes to it that runs what it never heard of."""

    async def story():
        pair = Pair(tmp_path, database)
        leader, names = await pair.lead(jobs=2)
        async with waiting(pair.make(name="b")) as took:
            standby = pair.begun[-1]
            leader._watching.cancel()
            with hung(leader):
                await asyncio.wait_for(took, PATIENCE_S)
                pair.world.attach_all(standby)
                (new,) = await standby.submit(ENDLESS, "ann", "ann")
                await until(lambda: standby.job(new).state is JobState.RUNNING)
                running = pair.world.running()
                assert len(running) == 3
                monkeypatch.setattr(leader.database.lease, "_confirmed_s", lease.clock() + 3600.0)
                assert leader.database.lease.good
                pair.world.attach_all(leader)
                problem = await asyncio.wait_for(leader.stopped(), PATIENCE_S)
                assert isinstance(problem, ReplacedError)
                assert str(problem) == leader.aside().detail == leader.healthy()
                assert pair.world.running() == running
            pair.world.attach_all(standby)
            await until(lambda: all(standby.job(name).state is JobState.RUNNING for name in [*names, new]))
            assert pair.world.running() == running
            await leader.stop()

    asyncio.run(story())


def test_one_that_was_stopped_in_a_transaction_holds_nobody_up(tmp_path, database):
    """Its rows are locked until its session ends: whoever takes over ends it."""

    async def story():
        pair = Pair(tmp_path, database)
        leader, _ = await pair.lead(jobs=1)
        standby = pair.make(name="b")
        async with waiting(standby) as took:
            stuck = leader.database._engine.connect()
            stuck.execute(sa.text("UPDATE meta SET value = value WHERE key = 'writer'"))
            await abandon(leader)
            await asyncio.wait_for(took, PATIENCE_S)
            stuck.invalidate()

    asyncio.run(story())


def test_the_core_s_time_goes_on_whatever_the_wall_clock_says(tmp_path, database):
    """Clocks of two hosts differ: jobs are not an hour older after a take-over."""

    async def story():
        pair = Pair(tmp_path, database)
        leader, _ = await pair.lead(jobs=1)
        pair.world.now += 3600.0
        standby = pair.make(name="b")
        async with waiting(standby) as took:
            await asyncio.sleep(1.0)
            before = leader.state.running_s()
            await abandon(leader)
            await asyncio.wait_for(took, PATIENCE_S)
            assert before < standby.state.running_s() < before + 20.0

    asyncio.run(story())
