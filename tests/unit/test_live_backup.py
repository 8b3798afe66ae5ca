"""`dfrs backup` and `dfrs restore`: copies made beside a controller, checked, put in place; what is refused."""

import asyncio
import json
import os
import pwd
import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from dfrs.live.controller import backups, last_transaction
from dfrs.live.controller.backups import back_up, restore
from dfrs.live.controller.database import Database
from dfrs.live.home import lock
from dfrs.live.local.cluster import locked
from dfrs.live.protocol.resources import JobRequest
from dfrs.model.errors import DfrsError, InputError
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
def made(tmp_path_factory):
    """A state directory that a controller has left, a backup of it made before, when it had fewer jobs, and both."""
    place = tmp_path_factory.mktemp("made")

    async def story():
        async with serving(place / "state", jobs=2) as controller:
            back_up(place / "state/dfrs.db", place / "old.backup")
            await run_jobs(controller, 0)
            await controller.submit(JobRequest(command=("forever",), held=True), "ann", "ann")

    asyncio.run(story())
    return place


@pytest.fixture
def state(made, tmp_path):
    """A copy of that directory."""
    return shutil.copytree(made / "state", tmp_path / "state")


@pytest.fixture
def old(made, tmp_path):
    """A copy of the backup, which has two of the three jobs."""
    return Path(shutil.copy(made / "old.backup", tmp_path / "old.backup"))


def jobs_of(file):
    return value(file, "SELECT count(*) FROM jobs")


@pytest.fixture
def refused(dfrs):
    """A verb must end with status 2 and one line that has these words."""

    def called(words, *arguments, status=2):
        found, _, err = dfrs(*arguments)
        assert (found, len(err.splitlines())) == (status, 1), err
        for word in words if isinstance(words, list) else [words]:
            assert str(word) in err

    return called


def test_a_backup_beside_a_controller_has_one_moment_and_is_restored(tmp_path, dfrs):
    """While jobs are submitted without a pause: each job of the copy has its request and its activity."""
    results = []

    async def story():
        async with serving(tmp_path / "state", jobs=2) as controller:
            done = threading.Event()

            def copy():
                database = tmp_path / "state/dfrs.db"
                try:
                    results.extend(back_up(database, tmp_path / f"{number}.backup") for number in range(3))
                finally:
                    done.set()

            thread = threading.Thread(target=copy)
            thread.start()
            while not done.is_set():
                await controller.submit(JobRequest(command=("forever",), held=True, array=5), "ann", "ann")
            thread.join()
            assert controller.healthy() is None

    asyncio.run(story())
    assert len(results) == 3
    assert [found.transactions for found in results] == sorted({found.transactions for found in results})
    for number, found in enumerate(results):
        file = tmp_path / f"{number}.backup"
        assert value(file, "PRAGMA integrity_check") == "ok"
        assert found.rows["jobs"] == jobs_of(file)
        assert found.last_event == value(file, "SELECT max(sequence) FROM events")
        assert (found.rows["jobs"] - 2) % 5 == 0
        assert value(file, "SELECT count(*) FROM jobs WHERE request NOT IN (SELECT id FROM requests)") == 0
        submissions = 'SELECT count(*) FROM activity WHERE body LIKE \'%"action":"submit"%\''
        assert value(file, submissions) == found.rows["jobs"]
        assert file.stat().st_mode & 0o077 == 0
        status, out, _ = dfrs("restore", file, "--state", tmp_path / f"new{number}", "--json")
        assert status == 0
        told = json.loads(out[out.index("{") :])
        assert (told["aside"], told["rows"]["jobs"]) == (None, found.rows["jobs"])
        assert len(start(tmp_path / f"new{number}")) == found.rows["jobs"]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_after_a_kill_the_log_is_in_the_backup(tmp_path):
    async def story():
        async with serving(tmp_path / "state", jobs=3):
            killed_copy(tmp_path / "state", tmp_path / "copy")

    asyncio.run(story())
    before = contents_of(tmp_path / "copy")
    assert back_up(tmp_path / "copy/dfrs.db", tmp_path / "b").rows["jobs"] == 3
    assert jobs_of(tmp_path / "b") == 3
    assert contents_of(tmp_path / "copy") == before


def test_tables_of_others_are_counted_whatever_their_names(state, tmp_path):
    execute(state / "dfrs.db", ('CREATE TABLE "a ""quoted"" name" (one)',))
    assert back_up(state / "dfrs.db", tmp_path / "copy").rows['a "quoted" name'] == 0


def test_what_is_said(dfrs, state, tmp_path):
    out = tmp_path / "b"
    status, text, err = dfrs("backup", "-o", out, "--state", state)
    assert (status, err) == (0, "")
    assert text.startswith(f"{out}: ")
    assert "3 jobs, 1 node, 1 token" in text
    status, text, _ = dfrs("backup", "-o", out, "--state", state, "--force", "--json")
    told = json.loads(text)
    assert (status, told["file"], told["database"]) == (0, str(out), str(state / "dfrs.db"))
    assert told["bytes"] == out.stat().st_size
    assert told["last_event"] == value(out, "SELECT max(sequence) FROM events")
    status, text, _ = dfrs("restore", out, "--state", state)
    assert (status, "3 jobs" in text, f"what was there is in {state}/before-restore-" in text) == (0, True, True)


def test_a_backup_that_is_there_is_not_overwritten(refused, dfrs, state, tmp_path):
    target = tmp_path / "b"
    target.write_text("precious")
    refused([target, "--force"], "backup", "-o", target, "--state", state)
    assert target.read_text() == "precious"
    assert dfrs("backup", "-o", target, "--state", state, "--force")[0] == 0
    assert jobs_of(target) == 3


def test_what_a_backup_refuses(refused, state, tmp_path):
    refused("no database", "backup", "-o", tmp_path / "b", "--state", tmp_path / "nowhere")
    refused("must be a file in a directory", "backup", "-o", tmp_path / "no" / "b", "--state", state)
    refused("must be a file in a directory", "backup", "-o", tmp_path, "--state", state)
    refused("is the database itself", "backup", "-o", state / "dfrs.db", "--state", state, "--force")
    assert not (tmp_path / "b").exists()
    assert len(start(state)) == 3


def test_postgresql_has_its_own(refused, tmp_path):
    pytest.importorskip("psycopg")
    for verb in (("backup", "-o", tmp_path / "b"), ("restore", tmp_path / "b")):
        refused(["pg_dump", "pg_restore"], *verb, "--database", "postgresql://u@127.0.0.1/d")


def test_a_damaged_database_gives_no_backup_and_a_damaged_backup_no_database(refused, dfrs, state, tmp_path):
    assert dfrs("backup", "-o", tmp_path / "good", "--state", state)[0] == 0
    bad = Path(shutil.copy(tmp_path / "good", tmp_path / "bad"))
    damage_table(bad, "activity")
    empty, other = tmp_path / "empty", tmp_path / "other"
    empty.touch()
    execute(other, ("CREATE TABLE notes (id INTEGER)",))
    before = contents_of(state)
    refused([bad, "damaged database"], "restore", bad, "--state", state)
    refused("is empty", "restore", empty, "--state", state)
    refused("not of a dfrs controller", "restore", other, "--state", state)
    refused("no such file", "restore", tmp_path / "nothing", "--state", state)
    refused("name a backup", "restore", "--state", state)
    (tmp_path / "text").write_text("no database, but long enough" * 200)
    refused("file is not a database", "restore", tmp_path / "text", "--state", state)
    execute(tmp_path / "good", ("UPDATE alembic_version SET version_num = '9999'",))
    refused("revision 9999", "restore", tmp_path / "good", "--state", state)
    assert contents_of(state) == before

    damage_table(state / "dfrs.db", "activity")
    refused([state / "dfrs.db", "damaged database"], "backup", "-o", tmp_path / "b", "--state", state)
    assert not (tmp_path / "b").exists()


def test_a_copy_that_is_not_what_was_copied_is_no_backup(state, tmp_path, monkeypatch):
    """As if the disk had lost something: a row is gone from the copy, whose pages are all well."""
    whole = sqlite3.connect

    class Losing(sqlite3.Connection):
        def backup(self, target, **options):
            super().backup(target, **options)
            target.execute("DELETE FROM activity WHERE sequence = 1")

    monkeypatch.setattr(backups.sqlite3, "connect", lambda *a, **k: whole(*a, factory=Losing, **k))
    with pytest.raises(DfrsError, match="not what was copied"):
        back_up(state / "dfrs.db", tmp_path / "b")
    assert not list(tmp_path.glob("*b"))


def test_nothing_is_restored_under_a_controller(refused, old, tmp_path):
    async def story():
        async with serving(tmp_path / "state", jobs=1) as controller:
            # With another state directory, too.
            target = ("--database", url(tmp_path / "state"))
            await asyncio.to_thread(refused, "a controller uses it", "restore", old, "--state", tmp_path / "x", *target)
            with lock(tmp_path / "state"):
                await asyncio.to_thread(refused, "stop that first", "restore", old, "--state", tmp_path / "state")
            assert controller.healthy() is None

    asyncio.run(story())
    with locked(tmp_path / "state"):
        refused("dfrs up", "restore", old, "--state", tmp_path / "state")
    assert jobs_of(tmp_path / "state/dfrs.db") == 1


def test_nothing_is_restored_by_another_account_than_the_controllers(refused, state, old, monkeypatch):
    owner = state.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    refused(f"run this as that account (sudo -u {pwd.getpwuid(owner).pw_name})", "restore", old, "--state", state)
    assert jobs_of(state / "dfrs.db") == 3


def test_what_was_there_is_kept_and_can_be_put_back(dfrs, state, old):
    database = Database(url(state))
    database.open()
    before = contents_of(state)
    shutil.copytree(state, state.parent / "as-killed")
    database.close()
    shutil.rmtree(state)
    (state.parent / "as-killed").rename(state)
    status, out, _ = dfrs("restore", old, "--state", state, "--json")
    aside = Path(json.loads(out)["aside"])
    assert (status, aside.parent) == (0, state)
    assert contents_of(aside) == {name: data for name, data in before.items() if name.name.startswith("dfrs.db")}
    assert aside.stat().st_mode & 0o077 == 0
    assert len(start(state)) == 2
    assert dfrs("restore", aside / "dfrs.db", "--state", state)[0] == 0
    assert len(start(state)) == 3
    assert len(list(state.glob("before-restore-*"))) == 2


class Crashed(BaseException):
    """As kill -9."""


def outcome_of_start(directory):
    """How many jobs there are, or "refused"."""
    try:
        return len(start(directory))
    except InputError as error:
        return "refused" if "restore FILE" in str(error) else str(error)


@pytest.mark.parametrize("source", ["backup", "itself"])
def test_wherever_a_restore_is_interrupted_nothing_is_lost_silently(state, old, monkeypatch, source):
    """The database is the old one or the new one, or a start is refused; and a second restore does it."""
    outcomes = []
    while True:
        place = state.parent / f"try{len(outcomes)}"
        shutil.copytree(state, place)
        # As after a kill, there is a log of its own.
        with closing(sqlite3.connect(place / "dfrs.db")) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.commit()
        (place / "dfrs.db-wal").touch()
        left = len(outcomes)

        def stepping(whole):
            def called(*arguments, **options):
                nonlocal left
                left -= 1
                if left < 0:
                    raise Crashed
                return whole(*arguments, **options)

            return called

        given = old if source == "backup" else place / "dfrs.db"
        try:
            with monkeypatch.context() as patched:
                for owner, name in (
                    (Path, "rename"),
                    (Path, "replace"),
                    (Path, "mkdir"),
                    (backups.shutil, "copy2"),
                    (last_transaction.LastTransactionFile, "write"),
                    (last_transaction, "sync"),
                ):
                    patched.setattr(owner, name, stepping(getattr(owner, name)))
                restore(given, place / "dfrs.db", accept=source == "itself")
        except Crashed:
            outcomes.append(outcome_of_start(place))
            restore(old, place / "dfrs.db")
            assert len(start(place)) == 2
        else:
            break
    found = len(start(place))
    assert found == (2 if source == "backup" else 3)
    assert set(outcomes) == {3, "refused", found}


# What is accepted.


def test_a_loss_is_accepted_once(dfrs, refused, state, old):
    shutil.copy(state / "dfrs.db.last", state.parent / "last")
    shutil.copy(old, state / "dfrs.db")
    with pytest.raises(InputError, match="lacks"):
        start(state)
    refused("lacks", "backup", "-o", state.parent / "b", "--state", state)
    status, out, _ = dfrs("restore", "--accept-loss", "--state", state, "--json")
    told = json.loads(out)
    assert (status, told["rows"]["jobs"]) == (0, 2)
    assert (Path(told["aside"]) / "dfrs.db.last").read_bytes() == (state.parent / "last").read_bytes()
    assert len(start(state)) == 2


def test_a_database_that_is_gone_begins_anew_when_that_is_accepted(dfrs, refused, state):
    (state / "dfrs.db").unlink()
    with pytest.raises(InputError, match="is missing"):
        start(state)
    refused("is missing", "backup", "-o", state.parent / "b", "--state", state)
    status, out, _ = dfrs("restore", "--accept-loss", "--state", state)
    assert (status, "begins anew" in out) == (0, True)
    assert len(start(state)) == 0


def test_a_damaged_checkpoint_is_left_out_when_that_is_accepted(dfrs, state):
    def sequences():
        with closing(sqlite3.connect(state / "dfrs.db")) as connection:
            return [row[0] for row in connection.execute("SELECT sequence FROM checkpoints ORDER BY sequence")]

    last = sequences()[-1]
    execute(state / "dfrs.db", ("UPDATE checkpoints SET shell = '{}' WHERE sequence = ?", (last,)))
    with pytest.raises(InputError, match=f"checkpoint after event {last}"):
        start(state)
    assert dfrs("restore", "--accept-loss", "--state", state)[0] == 0
    assert last not in sequences()
    assert len(start(state)) == 3


def test_a_page_is_not_mended_by_accepting(refused, state):
    overwrite(state / "dfrs.db", 0)
    before = contents_of(state)
    refused("file is not a database", "restore", "--accept-loss", "--state", state)
    assert contents_of(state) == before


def test_help_has_examples(dfrs):
    for verb in ("backup", "restore"):
        status, out, _ = dfrs(verb, "--help")
        assert (status, f"dfrs {verb}" in out, "Example" in out) == (0, True, True)
