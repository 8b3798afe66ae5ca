"""Agents that are killed at any instant, supervisors that are, machines that start anew, two agents at once."""

import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from unittest import mock

import pytest

from dfrs.live.drivers.base import DriverError, ExitKind, TaskState
from dfrs.live.drivers.processes import supervisor
from dfrs.live.drivers.processes.supervisor import loop
from dfrs.live.drivers.processes.supervisor.system import shutting_down
from tests.driver_hosts import BUSY, CPUS, IN_GROUPS, ended, host, processes, running, state, task, until, used
from tests.processes import alive

pytestmark = IN_GROUPS
__all__ = ["host"]

CHANGES = ("mkdir", "rename", "rmdir", "unlink", "write", "kill")


def killed_at(step, action):
    """Do `action` in a process that is killed before its `step`-th change to the world; whether it was."""
    pid = os.fork()
    if pid == 0:
        left = [step]

        def counted(real):
            def call(*arguments, **options):
                left[0] -= 1
                if left[0] == 0:
                    os._exit(77)
                return real(*arguments, **options)

            return call

        try:
            patches = [mock.patch.object(os, name, counted(getattr(os, name))) for name in CHANGES]
            patches.append(mock.patch.object(subprocess, "Popen", counted(subprocess.Popen)))
            for patch in patches:
                patch.start()
            action()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 77


def each_instant(limit):
    """Numbers of steps, with a way to say that there were no more."""
    yield from range(1, limit)
    raise AssertionError("it never came to its end")


def test_killed_while_starting(host):
    node = host.node()
    for step in each_instant(60):
        marks = host.root / f"marks.{step}"
        spec = host.shell(f"echo $$ >> {marks}")
        which = task(step)
        killed = killed_at(step, lambda which=which, spec=spec: node.start(which, spec, 0.5))
        again = host.node()
        assert state(again, which) is not TaskState.ABSENT or killed
        again.start(which, spec, 0.5)
        assert ended(again, which).code == 0
        assert len(marks.read_text().split()) == 1
        if not killed:
            break
    assert step > 10


def test_killed_while_starting_and_never_asked_again(host):
    node = host.node()
    for step in each_instant(60):
        killed = killed_at(step, lambda step=step: node.start(task(step), host.spec("/bin/true"), 0.5))
        again = host.node()
        for status in again.tasks():
            again.forget(status.task)
        assert again.groups.names() == []
        if not killed:
            break


@pytest.mark.parametrize("paused", [False, True])
def test_killed_while_taking(host, paused):
    nodes = [host.node("n0"), host.node("n1", cpus=str(CPUS[-1]))]
    nodes[0].start(task(), host.shell("while :; do sleep 0.01; done"), 0.5)
    pid = running(nodes[0], task())
    if paused:
        nodes[0].pause(task())
    for step in each_instant(60):
        source, target = nodes[step % 2], nodes[1 - step % 2]
        if state(source, task()) is TaskState.ABSENT:
            source, target = target, source
        source.hand(task())
        killed = killed_at(step, lambda target=target: target.take(task(), 0.5))
        again = [host.node("n0"), host.node("n1", cpus=str(CPUS[-1]))]
        nodes = again
        source, target = (again[0], again[1]) if source.node == "n0" else (again[1], again[0])
        owner = target.files.owner(task())
        # What was taken is wholly here without being asked again.
        assert owner.came_from == ""
        assert owner.node == source.node or source.groups.names() == []
        target.take(task(), 0.5)
        assert state(source, task()) is TaskState.ABSENT
        assert state(target, task()) is (TaskState.PAUSED if paused else TaskState.RUNNING)
        assert source.groups.names() == []
        assert pid in target.groups.group("1.0.0").members()
        if not killed:
            break
    assert step > 5
    assert ended_by_stop(target).signal == signal.SIGTERM


def ended_by_stop(node):
    node.stop(task(), 5.0)
    return ended(node, task())


def test_an_end_when_the_machine_is_shut_down_says_nothing(tmp_path, monkeypatch):
    """All processes are asked to end then, also the task's supervisor."""
    supervised = SimpleNamespace(
        error="", kill_at_s=None, timed_out=False, directory=str(tmp_path), asked_to_end_s=time.monotonic()
    )
    monkeypatch.setattr(loop, "shutting_down", lambda: shutting_down(str(tmp_path), str(tmp_path)))
    assert loop.Supervisor._cause(supervised) == ("", "")
    (tmp_path / "nologin").touch()
    assert loop.Supervisor._cause(supervised) == ("lost", "the machine was shut down")
    (tmp_path / "nologin").unlink()
    (tmp_path / "1").mkdir()
    (tmp_path / "1/comm").write_text("systemd-shutdow\n")
    assert loop.Supervisor._cause(supervised) == ("lost", "the machine was shut down")
    supervised.asked_to_end_s -= loop.SHUTDOWN_S
    assert loop.Supervisor._cause(supervised) == ("", "")


@pytest.mark.parametrize("script", ["echo; exec sleep 60", "trap 'exit 0' TERM; echo; while :; do sleep 0.01; done"])
def test_a_supervisor_that_is_asked_to_end_stays(host, script):
    node = host.node()
    node.start(task(), host.shell(script), 0.5)
    pid = running(node, task())
    until(lambda: node.output(task(), "out", 0, 1)[0])
    for number in (node.files.place(task(), node.files.owner(task())).supervisor, pid):
        os.kill(number, signal.SIGTERM)
    end = ended(host.node(), task())
    assert (end.code, end.signal) in {(None, signal.SIGTERM), (0, None)}
    assert end.kind is not ExitKind.LOST


def test_killed_while_forgetting(host):
    node = host.node()
    for step in each_instant(80):
        which = task(step)
        node.start(which, host.shell("echo said; exec sleep 60"), 0.5)
        until(lambda which=which: node.output(which, "out", 0, 1)[0])
        killed = killed_at(step, lambda which=which: node.forget(which))
        again = host.node()
        for status in again.tasks():
            again.forget(status.task)
        assert again.tasks() == []
        assert again.groups.names() == []
        assert again.output(which, "out", 0, 100)[0] == b"said\n"
        if not killed:
            break
    assert step > 5
    assert not processes(host.cluster)


def test_started_by_two_agents_at_once(host):
    node = host.node()
    for number in range(1, 9):
        marks = host.root / f"marks.{number}"
        spec = host.shell(f"echo $$ >> {marks}")
        at_s = time.monotonic() + 0.02
        children = []
        for _ in range(3):
            pid = os.fork()
            if pid == 0:
                try:
                    while time.monotonic() < at_s:
                        pass
                    node.start(task(number), spec, 0.5)
                finally:
                    os._exit(0)
            children.append(pid)
        for pid in children:
            os.waitpid(pid, 0)
        assert ended(node, task(number)).code == 0
        assert len(marks.read_text().split()) == 1


def test_tasks_outlive_the_agent(host):
    node = host.node()
    pid = os.fork()
    if pid == 0:
        node.start(task(), host.shell("echo one; sleep 0.5; echo two; exit 5"), 0.5)
        running(node, task())
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    again = host.node()
    assert state(again, task()) is TaskState.RUNNING
    assert ended(again, task()).code == 5
    assert again.output(task(), "out", 0, 100)[0] == b"one\ntwo\n"


def test_supervisor_killed(host):
    node = host.node()
    node.start(task(), host.shell("setsid sleep 60 & setsid -f sleep 60; wait"), 0.5)
    running(node, task())
    until(lambda: len(processes(host.cluster)) >= 3)
    os.kill(int(node.files.supervisor(task()).split()[0]), signal.SIGKILL)
    lost = ended(node, task())
    assert (lost.kind, lost.message) == (ExitKind.LOST, "its supervisor was killed")
    assert until(lambda: not processes(host.cluster), 2.0)
    assert ended(host.node(), task()) == lost
    node.start(task(), host.spec(*BUSY), 0.5)
    assert ended(host.node(), task()) == lost


def test_a_program_ends_with_its_supervisor_also_under_another_account(host):
    node = host.node()
    node.start(task(), host.spec("/bin/sleep", "60", account="nobody"), 0.5)
    pid = running(node, task())
    os.kill(int(node.files.supervisor(task()).split()[0]), signal.SIGKILL)
    # Nobody asks the driver, which would end it.
    until(lambda: not alive(pid), 10.0)


def test_an_agent_starts_whatever_another_node_does_with_its_tasks(host):
    first = host.node("n0")
    first.start(task(), host.spec("/bin/sleep", "60"), 0.5)
    running(first, task())
    with ThreadPoolExecutor(1) as pool, first.files.locked(task()):
        second = pool.submit(host.node, "n1", cpus=str(CPUS[-1])).result(30.0)
        assert second.tasks() == []


@pytest.mark.parametrize("same_boot", [False, True])
def test_machine_started_anew(host, same_boot):
    """Another process has the supervisor's number by then, in the same boot (it was used again) or another."""
    node = host.node()
    node.start(task(), host.spec("/bin/sleep", "60"), 0.5)
    running(node, task())
    os.kill(int(node.files.supervisor(task()).split()[0]), signal.SIGKILL)
    other = subprocess.Popen(["/bin/sleep", "60"])
    boot = node.files.supervisor(task()).split()[2] if same_boot else "another-boot"
    for name in ("supervisor.pid", "task.pid"):
        (host.root / "tasks/1.0.0" / name).write_text(f"{other.pid} 12345 {boot}")
    again = host.node()
    lost = ended(again, task())
    assert lost.kind is ExitKind.LOST
    assert other.poll() is None
    again.forget(task())
    assert other.poll() is None
    other.kill()
    other.wait()


def test_handing_while_it_forks(host):
    first, second = host.node("n0"), host.node("n1", cpus=str(CPUS[-1]))
    first.start(task(), host.shell("while :; do (sleep 0.2 & ) ; /bin/true; done"), 0.5)
    pid = running(first, task())
    cpu_s = 0.0
    for source, target in [(first, second), (second, first)] * 3:
        source.hand(task())
        assert state(source, task()) is TaskState.HANDED
        with pytest.raises(DriverError, match="not on node"):
            target.set_share(task(), 0.1)
        target.take(task(), 0.5)
        assert state(target, task()) is TaskState.RUNNING
        assert state(source, task()) is TaskState.ABSENT
        assert source.groups.names() == []
        assert source.usage() == []
        assert os.sched_getaffinity(pid) == {CPUS[0] if target is first else CPUS[-1]}
        assert all(row.cpu_s >= cpu_s for row in target.usage())
        time.sleep(0.1)
        cpu_s = used(target, task()).cpu_s
        assert cpu_s > 0
    # All of it is there, also what it forked meanwhile: paused, it shows every process that it has.
    target.pause(task())
    every = {*processes(host.cluster), supervisor.living(target.files.supervisor(task()))}
    assert every == set(target.groups.group("1.0.0").members())
    target.resume(task())
    with pytest.raises(DriverError, match="has not handed"):
        second.take(task(), 0.5)
    with pytest.raises(DriverError, match="hand it over first"):
        second.start(task(), host.spec(*BUSY), 0.5)
    second.forget(task())
    assert state(first, task()) is TaskState.RUNNING
