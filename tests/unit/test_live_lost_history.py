"""A controller's database that lost something, is damaged or newer: it is never opened as if nothing had happened."""

import asyncio
import json
import os
import shutil
import sqlite3
from contextlib import closing

import pytest

from dfrs.live.controller import database_file, engine, last_transaction
from dfrs.live.controller.database import Database
from dfrs.live.controller.database_file import file_of
from dfrs.live.controller.revisions import LATEST
from dfrs.live.protocol.resources import TokenRequest
from dfrs.model.errors import InputError, StoppedError
from dfrs.testing import make_controller, until
from tests.live_databases import (
    contents_of,
    damage_table,
    execute,
    killed_copy,
    overwrite,
    run_jobs,
    serving,
    start,
    url,
    value,
)


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Files of a controller that was killed while jobs ran; most of them are in the write-ahead log."""
    place = tmp_path_factory.mktemp("killed")

    async def story():
        async with serving(place / "live", checkpoint_events=3) as controller:
            await until(lambda: controller.engine.checkpointer.made)
            killed_copy(place / "live", place / "copy")

    asyncio.run(story())
    return place / "copy"


@pytest.fixture
def files(killed, tmp_path):
    """A copy of these files, to be spoilt."""
    return shutil.copytree(killed, tmp_path / "state")


def whole(directory):
    """After the log has been written to the database, which is then a single file."""
    database = Database(url(directory))
    database.open()
    database.close()
    return directory / "dfrs.db"


def refused(directory, *words):
    """A start must be refused in one line that has these words, and leave all files as they are."""
    before = contents_of(directory)
    with pytest.raises(InputError) as caught:
        start(directory)
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) - len(str(directory)) < 280, "dfrs up shows the last 300 characters"
    for word in (str(directory / "dfrs.db"), *words):
        assert word in line
    assert contents_of(directory) == before
    return line


def test_after_a_kill_all_is_there(files):
    assert len(start(files)) == 3
    assert last_transaction.read(files / "dfrs.db").number > 5


def test_a_log_that_was_deleted_is_noticed(files):
    (files / "dfrs.db-wal").unlink()
    refused(
        files, "lacks", "transactions, the last at", "dfrs.db-wal", "dfrs restore FILE", "dfrs restore --accept-loss"
    )


def test_a_log_that_is_damaged_or_cut_off_is_noticed(files):
    log = files / "dfrs.db-wal"
    overwrite(log, 200)
    refused(files, "lacks", "transactions")
    os.truncate(log, 0)
    refused(files, "lacks")


def test_an_older_database_in_its_place_is_noticed(files):
    old = whole(files).read_bytes()
    start(files)
    assert value(files / "dfrs.db", "SELECT count(*) FROM events")
    (files / "dfrs.db").write_bytes(old)
    refused(files, "lacks")


def test_a_database_that_is_gone_is_noticed(files):
    for name in ("dfrs.db", "dfrs.db-wal"):
        (files / name).unlink()
    refused(files, "is missing, with", "transactions")
    assert not (files / "dfrs.db").exists()


def test_a_database_that_was_copied_alone_is_noticed(files):
    for name in ("dfrs.db-wal", "dfrs.db.last"):
        (files / name).unlink()
    refused(files, "may lack transactions", "dfrs.db.last is missing")


@pytest.mark.parametrize("text", ["x", "{}", '{"transaction": "many", "time": 0}'])
def test_a_number_that_cannot_be_read_is_noticed(files, text):
    (files / "dfrs.db.last").write_text(text)
    refused(files, "dfrs.db.last", "cannot be read")


def test_a_database_of_an_earlier_version_is_taken_as_it_is(files):
    """It counted its transactions from each start, and kept no number of the last."""
    whole(files)
    execute(
        files / "dfrs.db",
        ("DELETE FROM meta WHERE key IN ('counted', 'version')",),
        ("UPDATE meta SET value = 'abcd:57' WHERE key = 'writer'",),
    )
    (files / "dfrs.db.last").unlink()
    assert len(start(files)) == 3
    assert last_transaction.read(files / "dfrs.db").number > 57


def test_the_number_is_there_before_anybody_is_told_and_never_before_it_is_true(tmp_path, monkeypatch):
    database = Database(url(tmp_path))
    database.open()
    whole_write, ahead = os.pwrite, []

    def write(*arguments):
        ahead.append(last_transaction.read(tmp_path / "dfrs.db").number + 1 - count(tmp_path / "dfrs.db"))
        return whole_write(*arguments)

    async def story():
        for _ in range(3):
            before = last_transaction.read(tmp_path / "dfrs.db").number
            await database.write([])
            assert last_transaction.read(tmp_path / "dfrs.db").number == before + 1

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", write)
        asyncio.run(story())
    assert ahead == [0, 0, 0]
    database.close()


def count(file):
    return int(value(file, "SELECT value FROM meta WHERE key = 'writer'").rpartition(":")[2])


def test_the_number_comes_to_the_disk_soon(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "FLUSH_S", 0.01)
    whole_sync, synced = os.fdatasync, []

    def sync(file):
        synced.append(last_transaction.read(tmp_path / "state/dfrs.db").number)
        whole_sync(file)

    async def story():
        async with serving(tmp_path / "state", jobs=1):
            now = count(tmp_path / "state/dfrs.db")
            await until(lambda: synced and synced[-1] >= now)

    monkeypatch.setattr(os, "fdatasync", sync)
    asyncio.run(story())
    assert synced[-1] == count(tmp_path / "state/dfrs.db")


def test_a_number_that_cannot_be_written_is_trouble_but_what_is_committed_counts(tmp_path, monkeypatch):
    database = Database(url(tmp_path))
    database.open()

    def fail(*_):
        raise OSError(5, "Input/output error")

    async def story():
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", fail)
            await database.write([])
            assert "Input/output error" in database.trouble
        await database.write([])
        assert database.trouble is None

    asyncio.run(story())
    database.close()


def test_numbers_go_on_from_controller_to_controller(tmp_path):
    numbers = []
    for _ in range(3):
        database = Database(url(tmp_path))
        database.open()
        asyncio.run(database.write([]))
        database.close()
        numbers.append(last_transaction.read(tmp_path / "dfrs.db").number)
    assert numbers == [2, 4, 6]


# Damage.


def test_a_damaged_page_is_one_line(files):
    damage_table(whole(files), "activity")
    refused(files, "damaged database", "restore a backup")


def test_a_file_cut_off_is_one_line(files):
    file = whole(files)
    os.truncate(file, file.stat().st_size // 2 // 4096 * 4096)
    refused(files, "damaged database")


def test_a_damaged_header_is_one_line(files):
    overwrite(whole(files), 0)
    refused(files, "damaged database: file is not a database")


def damage_checkpoint(file, column, change):
    sequence = value(file, "SELECT max(sequence) FROM checkpoints")
    stored = value(file, f"SELECT {column} FROM checkpoints WHERE sequence = {sequence}")
    execute(file, (f"UPDATE checkpoints SET {column} = ? WHERE sequence = ?", (change(stored), sequence)))
    return sequence


@pytest.mark.parametrize(
    ("column", "change"),
    [
        ("arrays", lambda stored: stored[: len(stored) // 2] + b"\xa5" + stored[len(stored) // 2 + 1 :]),
        ("arrays", lambda stored: stored[:-30]),
        ("arrays", lambda _: b""),
        ("shell", lambda stored: stored.replace("1", "2", 1)),
        ("shell", lambda stored: stored[:-1]),
    ],
)
def test_a_damaged_checkpoint_is_one_line(files, column, change):
    sequence = damage_checkpoint(whole(files), column, change)
    refused(files, f"checkpoint after event {sequence}", "restore a backup")


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE events SET event = '{' WHERE sequence = 3", "event 3 cannot be read"),
        ("UPDATE events SET event = json_set(event, '$.event', 'x') WHERE sequence = 3", "event 3 cannot be read"),
        ("UPDATE requests SET body = '{}'", "the table of jobs"),
        ("UPDATE nodes SET hello = 'x'", "the table of nodes"),
        ("UPDATE activity SET body = 'x'", "activity"),
        ("UPDATE activity SET body = CAST(x'80' AS TEXT)", "Could not decode"),
    ],
)
def test_damage_in_a_table_is_one_line(files, statement, words):
    execute(whole(files), ("DELETE FROM checkpoints",), (statement,))
    with pytest.raises(InputError, match=words) as caught:
        start(files)
    assert f"{files / 'dfrs.db'}: damaged database: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_damage_that_shows_when_something_is_written_ends_the_controller(files):
    async def story():
        controller = make_controller(files, database=url(files))
        await controller.start()
        file = files / "dfrs.db"
        # All pages go to the file, where they are read from.
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        damage_table(file, "tokens")
        for _ in range(2):
            with pytest.raises(StoppedError, match="damaged database"):
                await controller.create_token(TokenRequest(user="ann", role="user"), "ann")
        problem = await asyncio.wait_for(controller.stopped(), 30)
        assert "damaged database" in str(problem)
        assert str(file) in str(problem)
        assert isinstance(problem, StoppedError)
        await controller.stop()

    asyncio.run(story())


def test_a_file_of_the_database_that_is_deleted_under_a_controller_ends_it_and_loses_nothing(tmp_path):
    async def story():
        async with serving(tmp_path / "state", jobs=1) as controller:
            (tmp_path / "state" / "dfrs.db-wal").unlink()
            controller.engine._asked_at = 0.0
            problem = await asyncio.wait_for(controller.stopped(), 30)
            assert "dfrs.db-wal: was deleted" in str(problem)

    asyncio.run(story())
    assert len(start(tmp_path / "state")) == 1


# Newer.


def test_a_database_of_a_newer_version_says_which_one_is_needed(files):
    execute(
        whole(files),
        ("UPDATE alembic_version SET version_num = '9999'",),
        ("UPDATE meta SET value = '77.1' WHERE key = 'version'",),
    )
    refused(files, "revision 9999", f"at most {LATEST}", "install dfrs 77.1 or a later one")
    execute(files / "dfrs.db", ("DELETE FROM meta WHERE key = 'version'",))
    refused(files, "a newer dfrs")


def test_which_urls_are_files():
    assert str(file_of("sqlite:////a/b.db")) == "/a/b.db"
    assert str(file_of("sqlite:///file:/a%20b.db?uri=true")) == "/a b.db"
    assert file_of("sqlite://") is None
    assert file_of("sqlite:///:memory:") is None
    assert file_of("sqlite:///file:x?mode=memory&uri=true") is None
    assert file_of("postgresql://u@h/d") is None


def test_one_database_in_memory_has_no_number(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    database = Database("sqlite://")
    database.open()
    database.close()
    assert not list(tmp_path.iterdir())


def test_what_is_written_says_the_version(files):
    from dfrs.version import __version__  # noqa: PLC0415

    assert value(whole(files), "SELECT value FROM meta WHERE key = 'version'") == __version__
    record = json.loads((files / "dfrs.db.last").read_text())
    assert record["transaction"] == last_transaction.read(files / "dfrs.db").number
    assert (files / "dfrs.db.last").stat().st_mode & 0o077 == 0


def test_jobs_go_on_beside_the_checks(tmp_path):
    async def story():
        async with serving(tmp_path / "state", jobs=1) as controller:
            controller.engine._asked_at = -100.0
            await until(lambda: controller.engine._asked_at > 0)
            assert controller.healthy() is None
            await run_jobs(controller, 0)

    asyncio.run(story())


def test_a_large_database_is_checked_after_the_start(tmp_path, monkeypatch):
    """Its start does not wait; where it is damaged, it ends then."""
    monkeypatch.setattr(database_file, "CHECKED_BYTES", 1)
    monkeypatch.setattr(engine, "OURS_S", 0.1)

    async def story():
        async with serving(tmp_path / "live", jobs=1):
            file = killed_copy(tmp_path / "live", tmp_path / "copy")
        execute(file, ("CREATE TABLE beside (x)",), ("INSERT INTO beside VALUES (1)",))
        for name in ("well", "damaged"):
            directory = tmp_path / name
            directory.mkdir(mode=0o700)
            shutil.copy(file, directory / "dfrs.db")
            # A copy without the file that says its last transaction.
            execute(directory / "dfrs.db", ("DELETE FROM meta WHERE key = 'counted'",))
            if name == "damaged":
                damage_table(directory / "dfrs.db", "beside")
            controller = make_controller(directory, database=url(directory))
            await controller.start()
            if name == "well":
                await controller._checking
                assert controller.healthy() is None
            else:
                assert "damaged database" in str(await asyncio.wait_for(controller.stopped(), 30.0))
            await controller.stop()

    asyncio.run(story())
