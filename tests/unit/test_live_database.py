"""The database of a controller: groups, trouble and recovery from it, and PostgreSQL."""

import asyncio
import json
import os
import random
import sqlite3
import time

import pytest
import sqlalchemy as sa
from benchmarks import live_history
from sqlalchemy.exc import OperationalError

from dfrs.live.controller import tables
from dfrs.live.controller.checkpoint import states_of
from dfrs.live.controller.database import Database, ReplacedError, migrate
from dfrs.live.errors import UnavailableError, UncertainError
from dfrs.live.protocol.resources import JobRequest, JobState, TokenRequest
from dfrs.model.errors import InputError
from dfrs.testing import InMemoryHosts, VirtualDisk, abandon, make_controller, until
from tests.live_disks import fill, small_disk
from tests.live_postgres import postgres_server


def run(coroutine):
    return asyncio.run(coroutine)


def token(k):
    return {
        "id": k,
        "hash": f"h{k}",
        "owner": "ann",
        "role": "user",
        "created_at": 0.0,
        "expires_at": 1.0,
        "revoked": False,
    }


def stored(database):
    return database.read_now(lambda connection: set(connection.execute(sa.select(tables.tokens.c.id)).scalars()))


def opened(path):
    database = Database(f"sqlite:///{path}/x.db")
    database.open()
    return database


def test_many_writers_share_a_transaction(tmp_path):
    async def story():
        database = opened(tmp_path)
        await asyncio.gather(*(database.write([(tables.ADD_TOKEN, [token(k)])]) for k in range(200)))
        assert stored(database) == set(range(200))
        assert database.commits < 100
        database.close()

    run(story())


def test_the_tables_are_those_of_the_migrations(tmp_path):
    database = opened(tmp_path)
    inspector = sa.inspect(database._engine)
    for name, table in tables.metadata.tables.items():
        assert [column["name"] for column in inspector.get_columns(name)] == [column.name for column in table.columns]
        assert {tuple(each["column_names"]) for each in inspector.get_indexes(name)} == {
            tuple(column.name for column in index.columns) for index in table.indexes
        }
    database.close()
    again = opened(tmp_path)
    again.close()


def test_any_number_of_jobs_can_be_asked_for(tmp_path):
    database = opened(tmp_path)
    ids = {1, 2000, 69_000}
    row = {"request": 1, "owner": "ann", "submitted_at": 0.0, "registered": False, "held": True, "state": "open"}
    with database._engine.begin() as connection:
        # What SQLite has where nothing else was chosen when it was built.
        connection.connection.driver_connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 32_766)
        connection.execute(tables.jobs.insert(), [{**row, "id": k} for k in ids])
        assert states_of(connection, set(range(1, 70_001))) == dict.fromkeys(ids, "open")
        assert states_of(connection, set()) == {}
    database.close()


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "x.db").write_bytes(b"not a database, but long enough to be taken for one" * 100)
    with pytest.raises(InputError, match="database:"):
        opened(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_full_disk_at_the_start_is_no_bad_input(tmp_path):
    """Bad input ends with status 2, with which services are not started again."""
    with small_disk(tmp_path / "disk", "2m") as directory:
        opened(directory).close()
        filler = fill(directory)
        full = filler.stat().st_size
        # Neither the index of its log fits in, nor the first transaction.
        for left in (0, 40960):
            os.truncate(filler, full - left)
            with pytest.raises(UnavailableError, match=r"x\.db: its disk is full .*; make room or mend it") as caught:
                opened(directory)
            assert "\n" not in str(caught.value)
        filler.unlink()
        opened(directory).close()


def test_an_error_of_the_disk_at_the_start_is_no_bad_input(tmp_path):
    opened(tmp_path).close()
    with VirtualDisk(tmp_path / "x.db", random.Random(0)) as disk:
        disk.loses_answers = 1.0
        with pytest.raises(UnavailableError, match="disk I/O error"):
            opened(tmp_path)
        disk.loses_answers = 0.0
        opened(tmp_path).close()


def test_who_was_replaced_writes_no_more(tmp_path):
    async def story():
        first, second = opened(tmp_path), opened(tmp_path)
        with pytest.raises(ReplacedError):
            await first.write([(tables.ADD_TOKEN, [token(1)])])
        await second.write([(tables.ADD_TOKEN, [token(2)])])
        assert stored(second) == {2}
        first.close()
        second.close()

    run(story())


@pytest.mark.parametrize("came_through", [True, False])
@pytest.mark.parametrize(
    "error",
    [
        OperationalError("commit", {}, Exception("connection lost"), connection_invalidated=True),
        RuntimeError("what no driver should raise"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_connection_lost_during_the_commit(tmp_path, error, came_through):
    """Whether the transaction counts is found out by looking."""

    async def story():
        database = opened(tmp_path)
        await database.write([(tables.ADD_TOKEN, [token(1)])])
        connection = database._connection
        whole = connection.begin

        class Failing:
            def __init__(self):
                self.transaction = whole()

            def commit(self):
                if came_through:
                    self.transaction.commit()
                else:
                    self.transaction.rollback()
                raise error

        connection.begin = Failing
        if came_through:
            await database.write([(tables.ADD_TOKEN, [token(2)])])
        else:
            with pytest.raises(UnavailableError, match=r"connection lost|RuntimeError"):
                await database.write([(tables.ADD_TOKEN, [token(2)])])
        assert stored(database) == ({1, 2} if came_through else {1})
        await database.write([(tables.ADD_TOKEN, [token(3)])])
        database.close()

    run(story())


def lose_answer(database, statement, then, came_through=True):
    """The commit of the next transaction with that statement comes through or not; then its answer is lost."""
    whole = database._transact

    def transact(changes):
        if all(each is not statement for each, _ in changes):
            whole(changes)
            return
        database._transact = whole
        if came_through:
            whole(changes)
        database._uncertain = True
        then()
        raise OperationalError("commit", {}, Exception("connection lost"), connection_invalidated=True)

    database._transact = transact


@pytest.mark.parametrize("came_through", [True, False])
@pytest.mark.parametrize("replaced", [True, False])
def test_where_it_cannot_be_found_out_whether_it_was_written_that_is_said(tmp_path, came_through, replaced):
    """Another controller has taken over since, or this one is to end at once."""

    async def story():
        database, later = opened(tmp_path), []

        def happens():
            if replaced:
                later.append(opened(tmp_path))
            else:
                database._closed = True

        lose_answer(database, tables.ADD_TOKEN, happens, came_through)
        with pytest.raises(UncertainError, match="it may have been done, look before you do it again"):
            await database.write([(tables.ADD_TOKEN, [token(1)])])
        assert stored(database) == ({1} if came_through else set())
        with pytest.raises(ReplacedError if replaced else UnavailableError, match=r"taken over|is stopping"):
            await database.write([(tables.ADD_TOKEN, [token(2)])])
        for each in (database, *later):
            each.close()

    run(story())


@pytest.mark.parametrize(("verb", "statement"), [("submit", tables.ADD_JOB), ("requeue", tables.ADD_EVENT)])
def test_what_a_replaced_controller_may_have_done_is_not_told_as_not_done(tmp_path, verb, statement):
    async def story():
        world = InMemoryHosts()
        world.node("n1")
        controller = make_controller(tmp_path, clock=world.clock)
        await controller.start()
        world.attach_all(controller)
        (job,) = await controller.submit(JobRequest(command=("x",)), "a", "a")
        await until(lambda: controller.job(job).state is JobState.RUNNING)
        second = Database(f"sqlite:///{tmp_path}/live.db")
        lose_answer(controller.database, statement, second.open)
        another = JobRequest(command=("x",))
        asked = controller.submit(another, "a", "a") if verb == "submit" else controller.requeue(job, "a")
        with pytest.raises(UncertainError):
            await asked
        assert isinstance(await controller.stopped(), ReplacedError)
        await controller.stop()
        second.close()

    run(story())


class Full:
    """Makes the database full, as a full disk does, and lets it go on."""

    def __init__(self, controller):
        self.database = controller.database

    def __enter__(self):
        self.whole, self.database._transact = self.database._transact, self._transact
        return self

    def __exit__(self, *_):
        self.database._transact = self.whole

    def _transact(self, changes):
        if self.database._connection is None:
            self.database._connection = self.database._engine.connect()
        pages = self.database._connection.exec_driver_sql("PRAGMA page_count").scalar()
        self.database._connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        self.database._connection.rollback()
        big = {"id": 10**9 + time.monotonic_ns(), "body": "x" * 10**6}
        self.whole([*changes, (tables.ADD_REQUEST, [big])])


def test_a_full_disk_stops_decisions_and_nothing_else(tmp_path):
    async def story():
        world = InMemoryHosts()
        node = world.node("n1")
        controller = make_controller(tmp_path, clock=world.clock)
        await controller.start()
        node.attach(controller)
        jobs = [(await controller.submit(JobRequest(command=("x",), cpu_cores=1.0), "a", "a"))[0] for _ in range(2)]
        await until(lambda: all(controller.job(job).started_at for job in jobs))
        with Full(controller):
            with pytest.raises(UnavailableError, match="full"):
                await controller.submit(JobRequest(command=("x",)), "a", "a")
            assert "full" in controller.healthy()
            with pytest.raises(UnavailableError, match="full"):
                await controller.cancel(jobs[0], "a")
            with pytest.raises(UnavailableError, match="full"):
                await controller.create_token(TokenRequest(user="a", role="user"), "a")
            node.end(jobs[1])
            node.attach(controller)
            await until(lambda: node.welcomes == 2)
            assert controller.job(jobs[1]).state is JobState.RUNNING
            assert len(world.running()) == 1
        await until(lambda: controller.job(jobs[1]).state is JobState.DONE)
        await until(lambda: controller.healthy() is None)
        await controller.cancel(jobs[0], "a")
        await until(lambda: controller.job(jobs[0]).state is JobState.CANCELLED)
        (third,) = await controller.submit(JobRequest(command=("x",), cpu_cores=1.0), "a", "a")
        await until(lambda: controller.job(third).state is JobState.RUNNING)
        await abandon(controller)
        again = make_controller(tmp_path, clock=world.clock)
        await again.start()
        assert again.state.mismatches == 0
        # Whether it was seen to run may not have been stored yet.
        assert again.job(third).state in {JobState.STARTING, JobState.RUNNING}
        node.attach(again)
        await until(lambda: again.job(third).state is JobState.RUNNING)
        assert len(world.running()) == 1
        await again.stop()

    run(story())


@pytest.fixture
def postgres():
    """URL of a server of its own, which goes away afterwards."""
    with postgres_server() as server:
        yield server


def test_postgresql_is_as_good(postgres, tmp_path):
    """Also when its server is restarted while the controller runs."""
    url, program, home = postgres

    async def story():
        world = InMemoryHosts()
        world.node("n1")
        controller = make_controller(tmp_path, clock=world.clock, database=url)
        await controller.start()
        world.attach_all(controller)
        (job,) = await controller.submit(JobRequest(command=("x",), cpu_cores=1.0), "a", "a")
        await until(lambda: controller.job(job).started_at)
        program("pg_ctl", "-D", home / "data", "-m", "immediate", "stop")
        with pytest.raises(UnavailableError):
            await controller.submit(JobRequest(command=("x",), cpu_cores=1.0), "a", "a")
        program("pg_ctl", "-D", home / "data", "-w", "-l", home / "log", "restart")
        await until(lambda: controller.healthy() is None)
        (second,) = await controller.submit(JobRequest(command=("x",), cpu_cores=1.0), "a", "a")
        await until(lambda: controller.job(second).started_at)
        await abandon(controller)
        again = make_controller(tmp_path, clock=world.clock, database=url)
        await again.start()
        world.attach_all(again)
        assert again.state.mismatches == 0
        assert [again.job(name).state for name in (job, second)] == [JobState.RUNNING] * 2
        await until(lambda: world.nodes["n1"].welcomes == 2)
        assert len(world.starts) == 2
        await again.stop()

    run(story())


def test_postgresql_too_knows_one_writer_and_refuses_a_newer_program(postgres):
    url, _, _ = postgres

    async def story():
        first, second = Database(url), Database(url)
        first.open()
        await first.must_be_ours()
        second.open()
        with pytest.raises(ReplacedError):
            await first.must_be_ours()
        with pytest.raises(ReplacedError):
            await first.write([])
        for database in (first, second):
            database.close()

    run(story())
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
        connection.execute(sa.text("UPDATE meta SET value = '77.1' WHERE key = 'version'"))
    engine.dispose()
    with pytest.raises(InputError, match=r"^database: .* revision 9999.*install dfrs 77\.1"):
        Database(url).open()


def test_the_past_that_benchmarks_make_is_one_of_these_tables(tmp_path, monkeypatch):
    monkeypatch.setattr(live_history, "EVENTS", 6)
    monkeypatch.setattr(live_history, "ENDED", 3)
    database = opened(tmp_path)
    asyncio.run(database.write([(tables.ADD_META, [{"key": "epoch", "value": "5.0"}])]))
    database.close()
    live_history.lengthen(tmp_path / "x.db", '{"id": %d}')
    database = opened(tmp_path)
    jobs = database.read_now(lambda connection: connection.execute(sa.select(tables.jobs)).all())
    assert [(job.id, job.state, json.loads(job.final)["id"]) for job in jobs] == [
        (name, "done", name) for name in range(live_history.FIRST, live_history.FIRST + 3)
    ]
    database.close()


def test_tables_of_the_first_revision_keep_what_they_have(tmp_path):
    engine = sa.create_engine(f"sqlite:///{tmp_path}/x.db")
    with engine.connect() as connection:
        migrate(connection, "0001")
        final = json.dumps({"id": 1, "incarnation": 2})
        job = "INSERT INTO jobs VALUES (1, 1, 'ann', NULL, 0.0, 1, 0, NULL, NULL, 5.0, 'done', :final)"
        connection.execute(sa.text(job), {"final": final})
        connection.execute(sa.text("INSERT INTO happenings VALUES (7, 1, '{}')"))
        connection.execute(sa.text("INSERT INTO checkpoints VALUES (3, '', '{}')"))
        connection.commit()
    database = opened(tmp_path)

    def look(connection):
        job = connection.execute(sa.select(tables.jobs)).one()
        activity = connection.execute(sa.select(tables.activity)).one()
        return job, activity, connection.execute(sa.select(tables.checkpoints)).all()

    job, activity, checkpoints = database.read_now(look)
    assert (job.registered, json.loads(job.final)) == (True, {"id": 1, "attempt": 2})
    assert (activity.sequence, checkpoints) == (7, [])
    database.close()
