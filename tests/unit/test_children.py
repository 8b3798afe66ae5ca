"""Children that are kept running: started again, ended in order, with bounded logs, and never left behind."""

import errno
import os
import signal
import sys

import pytest

from dfrs.live.local import children
from dfrs.live.local.children import BoundedLog, ChildError, ChildProcesses
from tests.processes import alive, kill, script, until

SLEEP = (sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)")


@pytest.fixture
def said():
    return []


@pytest.fixture
def supervisor(tmp_path, said):
    made = ChildProcesses(tmp_path, said.append)
    yield made
    made.stop(grace_s=1.0)


def pids(supervisor):
    return {name: child.process.pid for name, child in supervisor._children.items()}


def test_a_child_that_dies_is_started_again_and_that_is_said(supervisor, said, monkeypatch):
    monkeypatch.setattr(children, "FIRST_PAUSE_S", 0.01)
    supervisor.start("agent", SLEEP)
    first = pids(supervisor)["agent"]
    supervisor.must_live()
    os.kill(first, signal.SIGKILL)

    def again():
        supervisor.tend()
        return pids(supervisor)["agent"] != first and alive(pids(supervisor)["agent"])

    assert until(again)
    assert len(said) == 1
    assert said[0].startswith("agent was killed by SIGKILL; starting it again in")


def test_a_child_that_dies_again_and_again_is_given_longer_and_longer_pauses(supervisor, said):
    supervisor.start("agent", (sys.executable, "-c", "raise SystemExit(3)"))
    assert until(lambda: supervisor.tend() or len(said) >= 3)
    pauses = [float(line.split(" in ")[1].split(" s ")[0]) for line in said[:3]]
    assert pauses == [0.5, 1.0, 2.0]
    assert "ended with status 3" in said[0]


def test_a_child_that_cannot_start_says_why(supervisor, tmp_path):
    supervisor.start("controller", (sys.executable, "-c", "print('noise'); raise SystemExit('dfrs: --port 1: taken')"))

    def told():
        try:
            supervisor.must_live()
        except ChildError as error:
            return str(error)
        return None

    assert until(told)
    assert told() == f"controller ended at once: --port 1: taken ({tmp_path / 'controller.log'})"


def test_children_are_ended_and_stubborn_ones_killed(supervisor, tmp_path):
    stubborn = "import signal, time; signal.signal(15, lambda *_: None); print('here', flush=True); time.sleep(600)"
    supervisor.start("a", SLEEP)
    supervisor.start("b", (sys.executable, "-c", stubborn))
    assert until(lambda: "here" in (tmp_path / "b.log").read_text())
    running = pids(supervisor)
    supervisor.stop(["a"])
    assert not alive(running["a"])
    assert alive(running["b"])
    supervisor.stop(grace_s=0.2)
    assert not alive(running["b"])


def test_children_end_with_their_supervisor_however_that_ends(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from dfrs.live.local.children import ChildProcesses\n"
        "s = ChildProcesses(Path(sys.argv[1]), print)\n"
        "s.start('x', (sys.executable, '-c', 'import time; time.sleep(600)'))\n"
        "print(s._children['x'].process.pid, flush=True); time.sleep(600)"
    )
    parent = script(code, tmp_path)
    try:
        child = int(parent.stdout.readline())
        assert alive(child)
        parent.kill()
        assert until(lambda: not alive(child))
    finally:
        kill(parent)


def test_a_log_is_bounded_and_its_last_words_are_found(tmp_path):
    log = BoundedLog(tmp_path / "x.log", limit=100)
    for number in range(50):
        log.write(f"line {number}\n".encode())
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 200
    assert log.last_words() == "line 49"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.log", "x.old.log"]


def test_a_log_goes_on_after_a_full_disk(tmp_path, monkeypatch):
    log = BoundedLog(tmp_path / "x.log", limit=100)
    log.write(b"x" * 90)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as while_full:
        while_full.setattr(type(log.path), "open", full)
        for _ in range(3):
            log.write(b"lost, as there is no room for a new file\n")
    log.write(b"room again\n")
    assert log.last_words() == "room again"
    assert (tmp_path / "x.old.log").read_bytes() == b"x" * 90


def test_a_child_killed_by_a_signal_without_a_name_is_started_again(supervisor, said):
    number = signal.SIGRTMIN + 1
    supervisor.start("agent", (sys.executable, "-c", f"import os; os.kill(os.getpid(), {number})"))
    assert until(lambda: supervisor.tend() or said)
    assert said[0].startswith(f"agent was killed by signal {number:d}; starting it again in")


def test_a_child_that_cannot_be_started_now_is_started_later(supervisor, said, monkeypatch):
    monkeypatch.setattr(children, "FIRST_PAUSE_S", 0.01)
    supervisor.start("agent", SLEEP)
    first = pids(supervisor)["agent"]

    def fails(*_, **__):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    with monkeypatch.context() as without_memory:
        without_memory.setattr(children, "_launch", fails)
        os.kill(first, signal.SIGKILL)
        assert until(lambda: supervisor.tend() or len(said) >= 2)
    assert said[1].startswith("agent cannot be started: Resource temporarily unavailable; starting it again in")
    assert until(lambda: supervisor.tend() or (pids(supervisor)["agent"] != first))
    assert alive(pids(supervisor)["agent"])


def test_nothing_said_is_said(tmp_path):
    assert BoundedLog(tmp_path / "x.log").last_words() == "it said nothing"
