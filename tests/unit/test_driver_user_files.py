"""Files of a task's user, to which its output goes as well: who opens them, and what becomes of what they hold."""

import itertools
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from dfrs.live.drivers.base import DriverError, ExitKind, TaskFile, TaskState, TaskStatus
from dfrs.live.drivers.control_groups.driver import ControlGroupDriver
from dfrs.live.drivers.nice_levels.driver import NiceDriver
from dfrs.live.drivers.processes import driver, time_limits
from dfrs.live.drivers.processes.supervisor.user_files import UserFile
from dfrs.live.drivers.processes.time_limits import TimeLimits
from dfrs.testing.drivers import output_of
from tests.driver_hosts import IN_GROUPS, ended, host, needs_root, running, state, task

__all__ = ["host"]


def file(name, mode="truncate"):
    return TaskFile(name=name, mode=mode)


@pytest.fixture
def folder():
    """Open to everybody, as a folder of pytest is not."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o777)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def runs(host, folder):
    """Runs a script in the folder to its end: how it ended."""
    node = host.node(driver=NiceDriver)

    def run(script, which=None, **fields):
        node.start(which or task(), host.shell(script, directory=str(folder), **fields), 0.5)
        return ended(node, which or task())

    run.node, run.host = node, host
    return run


def test_output_is_in_the_file_and_kept_as_always(runs, folder):
    (folder / "out.txt").write_text("of a job before\n")
    assert runs("echo one; echo two >&2", output_file=file("out.txt")).code == 0
    assert sorted((folder / "out.txt").read_text().split()) == ["one", "two"]
    assert output_of(runs.node, task()) == "one\n"


def test_error_output_has_a_file_of_its_own_if_it_is_to(runs, folder):
    runs("echo one; echo two >&2", output_file=file("o"), error_file=file("e"))
    assert ((folder / "o").read_text(), (folder / "e").read_text()) == ("one\n", "two\n")
    runs("echo three; echo four >&2", task(2), error_file=file("e", "append"))
    assert (folder / "e").read_text() == "two\nfour\n"
    assert output_of(runs.node, task(2)) == "three\n"


def test_much_is_all_there_also_from_a_program_that_ends_at_once(runs, folder):
    runs("seq 200000", output_file=file("out.txt"), output_bytes=4096)
    assert (folder / "out.txt").read_text() == "".join(f"{k}\n" for k in range(1, 200001))


def test_tasks_of_a_job_share_a_file_or_have_their_own(runs, folder):
    for rank in range(2):
        runs("echo $DFRS_RANK", task(1, rank), tasks=2, output_file=file("all-%N", "append"), error_file=file("%3t"))
    assert sorted((folder / "all-n0").read_text().split()) == ["0", "1"]
    assert sorted(path.name for path in folder.iterdir()) == ["000", "001", "all-n0"]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: None, "No such file or directory"),
        (lambda path: path.parent.mkdir() or path.mkdir(), "Is a directory"),
        (lambda path: path.parent.mkdir() or os.mkfifo(path), "No such device or address"),
    ],
)
def test_a_job_whose_file_cannot_be_opened_does_not_start(runs, folder, make, why):
    make(folder / "no" / "out.txt")
    how = runs("touch begun", output_file=file("no/out.txt"))
    assert (how.kind, how.message) == (ExitKind.NOT_STARTED, f"its output file no/out.txt cannot be opened: {why}")
    assert not (folder / "begun").exists()


def test_a_pipe_that_somebody_reads_is_refused_too(runs, folder):
    os.mkfifo(folder / "pipe")
    reader = os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert runs("true", output_file=file("pipe")).message == "its output file pipe cannot be opened: is no file"
    os.close(reader)


def test_no_file_is_one(runs):
    assert runs("echo said", output_file=file("/dev/null")).code == 0
    assert output_of(runs.node, task()) == "said\n"


@needs_root
def test_files_are_the_users_and_no_link_leads_to_those_of_root(runs, folder):
    roots = folder / "roots"
    roots.write_text("not to be touched\n")
    roots.chmod(0o644)
    (folder / "link").symlink_to(roots)
    (folder / "theirs").symlink_to(folder / "target")
    how = runs("echo mine", account="nobody", output_file=file("link"))
    assert how.kind is ExitKind.NOT_STARTED
    assert how.message.endswith("link cannot be opened: Permission denied")
    assert roots.read_text() == "not to be touched\n"
    assert runs("echo mine", task(2), account="nobody", output_file=file("theirs")).code == 0
    assert (folder / "target").read_text() == "mine\n"
    assert (folder / "target").stat().st_uid not in {0, os.geteuid()}


@needs_root
def test_the_supervisor_writes_without_the_rights_of_root(runs):
    """The kernel asks who writes here: root may make a process less likely to be killed, its user may not."""
    runs.node.start(task(1), runs.host.spec("sleep", "60", account="nobody"), 0.5)
    score = f"/proc/{running(runs.node, task(1))}/oom_score_adj"
    how = runs("echo -1000", task(2), account="nobody", output_file=file(score))
    assert how.message == f"6 bytes are not in {score}: Permission denied"
    assert Path(score).read_text() == "0\n"


@needs_root
def test_who_writes_is_the_user(monkeypatch):
    """Root by itself may fill what the disk keeps for it, and go beyond the user's quota."""
    writers = []
    monkeypatch.setattr(os, "write", lambda _, data: writers.append(os.geteuid()) or len(data))
    copy = UserFile("out+err append out.txt")
    copy.file, copy.user = 0, 65534
    copy.write(memoryview(b"some"))
    assert (writers, os.geteuid()) == ([65534], 0)


def test_what_does_not_fit_is_counted_and_the_task_goes_on(runs):
    how = runs("echo one; echo two", output_file=file("/dev/full"))
    assert how.code == 0
    assert how.message == "8 bytes are not in /dev/full: No space left on device"
    assert output_of(runs.node, task()) == "one\ntwo\n"


def test_no_program_of_the_task_has_the_file(runs):
    """It may be in an image, and go on elsewhere."""
    runs("readlink /proc/self/fd/1 /proc/self/fd/2; ls -l /proc/$$/fd", output_file=file("out.txt"))
    assert "out.txt" not in output_of(runs.node, task())


@pytest.fixture(params=[NiceDriver, pytest.param(ControlGroupDriver, marks=IN_GROUPS)])
def hung(request, host):
    """Starts a task, and has its supervisor do nothing any more, as one whose write is not answered."""
    node = host.node(driver=request.param)

    def begin(**fields):
        node.start(task(), host.spec("/bin/sleep", "60", **fields), 0.5)
        running(node, task())
        os.kill(int(node.files.supervisor(task()).split()[0]), signal.SIGSTOP)
        return node

    begin.again = lambda: host.node(driver=request.param)
    return begin


def members(node):
    return node.files.place(task(), node.files.owner(task())).members()


def test_a_task_can_be_stopped_whose_supervisor_hangs(hung, monkeypatch):
    node = hung()
    node.stop(task(), 0.2)
    node.stop(task(), 0.0)
    assert members(node)
    # Asked again, as an agent does.
    monkeypatch.setattr(driver, "LATE_S", 0.0)
    time.sleep(0.2)
    with pytest.raises(DriverError, match="was killed, and its supervisor has not seen that: try again"):
        node.stop(task(), 0.2)
    assert not members(node)
    assert state(node, task()) is TaskState.RUNNING
    monkeypatch.setattr(driver, "HUNG_S", 0.0)
    node.stop(task(), 0.2)
    how = ended(node, task())
    assert (how.kind, how.signal, how.message) == (ExitKind.STOPPED, signal.SIGKILL, driver.HUNG)
    assert ended(hung.again(), task()) == how


def test_a_time_limit_ends_a_task_whose_supervisor_hangs(hung, monkeypatch):
    node = hung(time_limit_s=20.0)
    # A second at each look.
    seconds = itertools.count(1 << 30)
    monkeypatch.setattr(time_limits, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    monkeypatch.setattr(driver, "HUNG_S", 2.0)
    how = ended(node, task())
    assert (how.kind, how.message) == (ExitKind.TIME_LIMIT, driver.HUNG)
    assert not members(node)
    assert ended(hung.again(), task()) == how


def test_a_driver_counts_against_a_time_limit_only_what_it_saw_run(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time_limits, "time", SimpleNamespace(monotonic=lambda: now[0]))
    limits = TimeLimits(SimpleNamespace(spec=lambda which: {"time_limit_s": "1.0"} if which == task() else {}))

    def late(state, seconds):
        now[0] += seconds
        return limits.look([TaskStatus(task=which, state=state) for which in (task(), task(2))])

    assert late(TaskState.RUNNING, 0.0) == []
    assert late(TaskState.RUNNING, 0.75) == []
    for _ in range(5):
        assert late(TaskState.PAUSED, 0.75) == late(TaskState.RUNNING, 0.75) == []
    # Whoever looks may have been stopped as well.
    assert late(TaskState.RUNNING, 1000.0) == [(task(), 0.75)]
