"""Profiled tasks: what is made for them is removed, whatever happens; nothing here needs MPI."""

import io
import json
import os
import shutil
import tempfile
import threading
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from dfrs.live.drivers.base import CheckpointRefusedError, DriverError, RefusedError, TaskId, TaskSpec, TaskState
from dfrs.live.drivers.nice_levels.driver import NiceDriver
from dfrs.live.drivers.processes import profiles
from dfrs.live.drivers.processes.directory import Owner, TaskDirectory
from dfrs.live.drivers.processes.profiles import ENTRY, Profiles
from dfrs.model.errors import InputError
from dfrs.profiling.following import Follower
from dfrs.profiling.preload import shared_memory
from dfrs.profiling.reader import ProfileReader
from dfrs.profiling.records import FILE_BYTES, MAGIC, RankFile
from tests.driver_hosts import Host, running, state, until

TASK = TaskId(job=1, rank=0, attempt=0)
SPEC = TaskSpec(
    command=("true",),
    directory="/",
    environment={"LD_PRELOAD": "own.so"},
    tasks=1,
    peers=("",),
    memory_bytes=1,
    profile=True,
)


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host on which the profiler is built already."""
    library = tmp_path / "libdfrs_profile.so"
    library.write_bytes(b"built")
    monkeypatch.setattr(profiles, "toolchain", lambda: None)
    monkeypatch.setattr(profiles, "profiler", lambda _: library)
    monkeypatch.setattr(profiles, "shared_memory", lambda: shared)
    # On a disk each directory that is moved may take milliseconds.
    shared = Path(tempfile.mkdtemp(dir=shared_memory()))
    yield TaskDirectory(tmp_path / "root"), shared
    shutil.rmtree(shared)


def recorded(files, made):
    """The task as a driver would record it."""
    with made.prepared(TASK, SPEC) as (spec, entries):
        files.create(TASK, Owner(node="n", place={}, carried={}), entries)
        return spec, Path(dict(entries)[ENTRY])


def test_it_has_a_place_of_its_own_until_it_is_forgotten(host, tmp_path):
    files, shared = host
    made = Profiles(tmp_path / "root", files)
    spec, place = recorded(files, made)
    assert place.parent == shared
    assert place.stat().st_mode & 0o777 == 0o700
    assert spec.environment["DFRS_PROFILE_DIR"] == str(place)
    assert spec.environment["LD_PRELOAD"] == f"{place}/libdfrs_profile.so own.so"
    told = json.loads(made.document(TASK))
    assert (told["profile"], told["ranks"]) == (None, [])
    made.forget(TASK)
    assert not list(shared.iterdir())
    assert json.loads(files.output(TASK, ENTRY, 0, 1 << 20)[0]) == told


def test_nothing_is_made_for_others(host, tmp_path):
    files, shared = host
    made = Profiles(tmp_path / "root", files)
    plain = SPEC.model_copy(update={"profile": False})
    with made.prepared(TASK, plain) as (spec, entries):
        files.create(TASK, Owner(node="n", place={}, carried={}), entries)
    assert (spec, entries) == (plain, [])
    assert made.document(TASK) is None
    made.forget(TASK)
    assert not list(shared.iterdir())


@pytest.mark.parametrize("error", [DriverError("no room"), OSError(28, "No space left on device")])
def test_a_task_that_cannot_be_recorded_leaves_nothing(host, tmp_path, error):
    files, shared = host
    with pytest.raises(DriverError, match=r"room|space"), Profiles(tmp_path / "root", files).prepared(TASK, SPEC):
        raise error
    assert not list(shared.iterdir())


def test_what_a_killed_agent_left_is_removed_later(host, tmp_path, monkeypatch):
    files, shared = host
    made = Profiles(tmp_path / "root", files)
    _, place = recorded(files, made)
    stray = shared / f"{made.prefix}stray"
    stray.mkdir()
    Profiles(tmp_path / "root", files)
    assert stray.exists()
    monkeypatch.setattr(profiles, "STALE_S", -1.0)
    Profiles(tmp_path / "root", files)
    assert list(shared.iterdir()) == [place]


def fill(place):
    """As a program can: with directories that lie deeper than paths are long, and a link to elsewhere."""
    (place / "link").symlink_to(place.parent)
    (place / "several" / "more").mkdir(parents=True)
    (place / "several" / "file").touch()
    at = os.open(place, os.O_RDONLY)
    for _ in range(2500):
        os.mkdir("d", dir_fd=at)
        above, at = at, os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(above)
    os.close(at)


def test_what_is_removed_may_be_as_deep_as_a_program_makes_it(host, tmp_path, monkeypatch):
    files, shared = host
    monkeypatch.setattr(profiles, "STALE_S", -1.0)
    made = Profiles(tmp_path / "root", files)
    _, place = recorded(files, made)
    (stray := shared / f"{made.prefix}stray").mkdir()
    for directory in (place, stray):
        fill(directory)
    Profiles(tmp_path / "root", files)
    assert list(shared.iterdir()) == [place]
    made.forget(TASK)
    assert not list(shared.iterdir())


def test_what_another_account_made_is_not_removed(host, tmp_path, monkeypatch):
    files, shared = host
    monkeypatch.setattr(profiles, "STALE_S", -1.0)
    (planted := shared / f"{Profiles(tmp_path / 'root', files).prefix}planted").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: planted.stat().st_uid + 1)
    with capture_logs() as logged:
        Profiles(tmp_path / "root", files)
    assert planted.exists()
    assert [entry["path"] for entry in logged] == [str(planted)]


def test_without_a_compiler_it_is_refused_for_good(host, tmp_path, monkeypatch):
    files, shared = host
    monkeypatch.undo()
    monkeypatch.setenv("DFRS_MPICC", "/nonexistent/mpicc")
    monkeypatch.setattr(profiles, "shared_memory", lambda: shared)
    made = Profiles(tmp_path / "root", files)
    with pytest.raises(RefusedError, match="/nonexistent/mpicc: not found"), made.prepared(TASK, SPEC):
        pass
    assert not list(shared.iterdir())


WORDS = FILE_BYTES // 8
ENTRIES = 4096 // 8
"""Of a rank's file: how many words it has, and which one begins the entries, of eight words each."""


def write_rank(place, words):
    """A rank's file that has these words, by their number, and is empty otherwise."""
    content = np.zeros(WORDS, "<u8")
    for at, word in {**words, 0: MAGIC}.items():
        content[at] = word
    (place / "0.rank").write_bytes(content.tobytes())


def test_a_task_whose_program_damaged_what_it_counts_in_is_forgotten_all_the_same(host, tmp_path):
    files, shared = host
    made = Profiles(tmp_path / "root", files)
    _, place = recorded(files, made)
    # One call of a kind that there is not, in the last table.
    write_rank(place, {ENTRIES + 8 * (1024 + 64 + 256 + 9) + 3: 1})
    made.look([TASK])
    assert json.loads(made.document(TASK))["ranks"] == []
    made.forget(TASK)
    assert not list(shared.iterdir())


def test_nothing_waits_for_a_look_at_what_a_program_wrote(host, tmp_path, monkeypatch):
    files, _ = host
    monkeypatch.setattr(profiles, "LOOK_S", 0.0)
    made = Profiles(tmp_path / "root", files)
    recorded(files, made)
    looks, done = [], threading.Event()
    monkeypatch.setattr(Follower, "look", lambda follower: looks.append(follower) or done.wait(10.0))
    for _ in range(3):
        made.look([TASK])
    assert until(lambda: len(looks)) == 1
    assert made.document(TaskId(job=2, rank=0, attempt=0)) is None
    assert json.loads(made.document(TASK))["ranks"] == []
    assert len(looks) == 1
    done.set()
    until(lambda: made.look([TASK]) or len(looks) == 2)


def test_a_program_may_have_more_ranks_than_there_is_time_for(tmp_path):
    write_rank(tmp_path, {})
    for number in range(1, 1000):
        os.link(tmp_path / "0.rank", tmp_path / f"{number}.rank")
    assert len(ProfileReader(tmp_path).look().ranks) == 1000
    assert len(ProfileReader(tmp_path, cpu_s=0.01).look().ranks) < 1000


def test_entries_that_are_torn_for_good_are_not_read_for_ever(tmp_path, monkeypatch):
    begun = range(ENTRIES + 1, WORDS, 8)
    reads, read = [], os.pread
    monkeypatch.setattr(os, "pread", lambda *what: reads.append(what) or read(*what))

    def figures(torn):
        write_rank(tmp_path, dict.fromkeys(torn, 1) | {2: 7})
        with RankFile(tmp_path / "0.rank") as file:
            return file.read(0)

    with pytest.raises(ValueError, match=r"0\.rank: too many of its entries are torn"):
        figures(begun)
    assert len(reads) < 15_000
    # As of a program that was killed while its threads counted.
    assert figures(begun[:8]).size == 7


NUMBERS = st.one_of(st.integers(0, 9), st.integers(0, 2**64 - 1))
PLACES = st.one_of(st.integers(1, 20), st.integers(ENTRIES, WORDS - 1), st.integers(WORDS - 8 * 16, WORDS - 1))
"""In the header, in all tables, and in the smallest of them, which is the last."""


@settings(max_examples=200, deadline=None)
@given(words=st.dictionaries(PLACES, NUMBERS, max_size=60))
def test_whatever_a_program_writes_where_it_counts_is_read_or_refused(words):
    with tempfile.TemporaryDirectory() as name:
        write_rank(Path(name), words)
        follower = Follower(Path(name), "job 1")
        follower.look()
        with suppress(InputError):
            assert json.loads(follower.document())["expected"] >= 0


def test_it_does_not_leave_its_host(host, tmp_path):
    """Its processes have files of that host mapped: no other could restore them."""
    with closing(Host(tmp_path / "nodes")) as nodes:
        node = nodes.node(driver=NiceDriver)
        node.images = SimpleNamespace(max_bytes=1 << 30)
        node.start(TASK, nodes.spec("/bin/sleep", "60", profile=True), 0.5)
        assert running(node, TASK)
        refused = r"task 1\.0\.0: cannot be check-pointed: it is profiled on this host"
        with pytest.raises(CheckpointRefusedError, match=refused):
            node.send(TASK, io.BytesIO())
        assert state(node, TASK) is TaskState.RUNNING
        node.stop(TASK, 0.0)
