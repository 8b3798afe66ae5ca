"""The driver without control groups, and which driver a host gets."""

import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from types import SimpleNamespace

import pytest

from dfrs.live.drivers import opening
from dfrs.live.drivers.base import DriverError, ExitKind, NodeSettings, TaskState, UnsuitableError
from dfrs.live.drivers.control_groups import driver
from dfrs.live.drivers.control_groups.driver import ControlGroupDriver
from dfrs.live.drivers.nice_levels.driver import NiceDriver, nice_level
from dfrs.live.drivers.opening import driver_modules, open_driver
from dfrs.live.drivers.processes import supervisor
from dfrs.live.drivers.processes.supervisor import place, system
from tests.driver_hosts import (
    BUSY,
    CPUS,
    alone,
    ended,
    host,
    needs_groups,
    needs_root,
    processes,
    running,
    settles,
    share,
    state,
    task,
    until,
)

__all__ = ["alone", "host"]

TREE = "trap '' TERM; setsid sh -c 'while :; do sleep 0.01; done' & setsid -f sleep 60; while :; do :; done"


def patient(call):
    """Repeat a call until the task is far enough for it."""

    def tried():
        try:
            call()
        except DriverError:
            return False
        return True

    until(tried)


def test_levels_are_monotone():
    levels = [nice_level(share / 1000) for share in range(1001)]
    assert levels == sorted(levels, reverse=True)
    assert (nice_level(1.0), nice_level(0.8), nice_level(0.25), nice_level(0.0), nice_level(2.0)) == (0, 1, 6, 19, 0)


def test_shares_follow_levels(host, alone):
    node = host.node(driver=NiceDriver)
    both = [task(1), task(2)]
    for one, cores in zip(both, (0.75, 0.25), strict=True):
        node.start(one, host.spec(*BUSY), cores)
    for one in both:
        running(node, one)
    settles(node, both, 1.2, share(0.75, 0.1))
    if os.geteuid() != 0 and not node.by_session:
        return
    node.set_share(task(1), 0.25)
    node.set_share(task(2), 0.75)
    settles(node, both, 1.2, share(0.25, 0.1))


def test_every_thread_of_a_process_has_the_share(host):
    node = host.node(driver=NiceDriver)
    threads = "import threading, time; [threading.Thread(target=time.sleep, args=(60,)).start() for _ in range(3)]"
    node.start(task(), host.spec(sys.executable, "-c", threads), 1.0)
    pid = running(node, task())

    def levels():
        return [os.getpriority(os.PRIO_PROCESS, int(thread)) for thread in os.listdir(f"/proc/{pid}/task")]

    until(lambda: len(levels()) == 4)
    node.set_share(task(), 0.1)
    assert levels() == [node._level(0.1)] * 4


def all_stopped(cluster):
    """Whether each process is; D: it waits for a child that was stopped between vfork and exec."""
    states = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in processes(cluster)]
    return "T" in states and set(states) <= {"T", "D"}


def test_pause_and_stop_reach_the_whole_tree(host):
    node = host.node(driver=NiceDriver)
    node.start(task(), host.shell(TREE), 0.5)
    patient(lambda: node.pause(task()))
    assert state(node, task()) is TaskState.PAUSED
    node.resume(task())
    running(node, task())
    assert until(lambda: len(processes(host.cluster)) >= 4)
    for _ in range(3):
        node.pause(task())
        # A process that sleeps stops once it is scheduled again, which takes a while on a busy machine.
        assert until(lambda: all_stopped(host.cluster))
        before = node.usage()[0].cpu_s
        time.sleep(0.1)
        assert node.usage()[0].cpu_s == before
        node.resume(task())
        assert state(node, task()) is TaskState.RUNNING
    assert node.usage()[0].memory_bytes > 0
    node.pause(task())
    node.stop(task(), 0.2)
    gone = ended(node, task())
    assert (gone.kind, gone.signal) == (ExitKind.STOPPED, 9)
    assert gone.cpu_s > 0
    assert not processes(host.cluster)


def test_a_look_at_tasks_reads_nothing_of_other_processes(host, monkeypatch):
    node = host.node(driver=NiceDriver)
    forks = "import subprocess, threading; threading.Thread(target=subprocess.run, args=(['sleep', '60'],)).start()"
    node.start(task(1), host.shell(TREE), 0.5)
    node.start(task(2), host.spec(sys.executable, "-c", forks), 0.5)
    for one in (task(1), task(2)):
        running(node, one)
    assert until(lambda: len(processes(host.cluster)) >= 5)
    looks, everything = [], system.parents

    def looked():
        looks.append(1)
        return everything()

    for module in (system, place, supervisor):
        monkeypatch.setattr(module, "parents", looked)

    def states():
        return [status.state for status in node.tasks()]

    assert states() == [TaskState.RUNNING] * 2
    for one in (task(1), task(2)):
        patient(lambda one=one: node.pause(one))
        root = int(node.files.supervisor(one).split()[0])
        assert set(system.walk(root)) >= set(system.descendants(root, everything())) > set()
    looks.clear()
    assert states() == [TaskState.PAUSED] * 2
    assert looks == []
    # A kernel can be built without it.
    monkeypatch.setattr(system, "LISTS_CHILDREN", False)
    assert states() == [TaskState.PAUSED] * 2
    assert looks
    node.resume(task(2))
    assert states() == [TaskState.PAUSED, TaskState.RUNNING]


def test_moves_and_limits(host):
    first, second = host.node("n0", driver=NiceDriver), host.node("n1", driver=NiceDriver, cpus=str(CPUS[-1]))
    first.start(task(), host.spec("/bin/sleep", "60", time_limit_s=1.5), 0.5)
    pid = running(first, task())
    assert os.sched_getaffinity(pid) == {CPUS[0]}
    first.hand(task())
    assert state(first, task()) is TaskState.HANDED
    second.take(task(), 0.5)
    assert os.sched_getaffinity(pid) == {CPUS[-1]}
    assert state(first, task()) is TaskState.ABSENT
    assert ended(second, task()).kind is ExitKind.TIME_LIMIT


def test_supervisor_killed(host):
    node = host.node(driver=NiceDriver)
    node.start(task(), host.shell("sleep 60 & sleep 60 & wait"), 0.5)
    running(node, task())
    assert until(lambda: len(processes(host.cluster)) >= 3)
    os.kill(int(node.files.supervisor(task()).split()[0]), signal.SIGKILL)
    assert ended(node, task()).kind is ExitKind.LOST
    assert until(lambda: not processes(host.cluster), 2.0)


@pytest.fixture
def passable():
    """A directory that every user can pass; those of pytest are closed again whenever another run of it begins."""
    path = Path(tempfile.mkdtemp(prefix="dfrs-passable-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


def as_nobody(host, passable, do):
    """Do it in a process of an ordinary user, with a root of their own."""
    root = host.root = passable / "state"
    root.mkdir()
    os.chown(root, 65534, 65534)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            # This interpreter may be where only root can read.
            sys.executable = "/usr/bin/python3"
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            do()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


needs_users = pytest.mark.skipif(
    os.geteuid() != 0 or not os.path.exists("/usr/bin/python3"),
    reason="needs root, and a Python that every user can run",
)


@needs_users
def test_without_root(passable, host):
    """All of a life in the hands of an ordinary user."""

    def live():
        with pytest.raises(DriverError):
            opened(host, "n0", cores=1.0, memory_bytes=1 << 30, shares="caps")
        node = opened(host, "n0", cores=1.0, memory_bytes=1 << 30, cpus=str(CPUS[0]))
        assert isinstance(node, NiceDriver)
        node.start(task(1), host.shell("id -u"), 0.5)
        node.start(task(2), host.spec("/bin/true", account="root"), 0.5)
        node.start(task(3), host.spec(*BUSY), 0.5)
        assert ended(node, task(1)).code == 0
        assert node.output(task(1), "out", 0, 99)[0] == b"65534\n"
        assert ended(node, task(2)).message == "[Errno 1] Operation not permitted"
        running(node, task(3))
        until(lambda: shared(node, task(3), 0.1))
        until(lambda: shared(node, task(3), 0.9))
        node.pause(task(3))
        for one in node.tasks():
            node.forget(one.task)

    as_nobody(host, passable, live)


@needs_users
def test_an_agent_with_a_nice_level_counts_from_that(passable, host):
    def live():
        os.setpriority(os.PRIO_PROCESS, 0, 12)
        node = opened(host, "n0", cores=1.0, memory_bytes=1 << 30, cpus=str(CPUS[0]))
        assert node.abilities.notes[:2] == (
            "no control groups: shares are nice levels, met within 12 % and not below 1/5 of the node",
            "the agent has nice level 12: its tasks have that or more, and come after other programs",
        )
        for number, (cores, level) in enumerate(((1.0, 12), (0.5, 15), (0.01, 19)), 1):
            node.start(task(number), host.spec("/bin/sleep", "60"), cores)
            assert os.getpriority(os.PRIO_PROCESS, running(node, task(number))) == level
        until(lambda: shared(node, task(1), 0.5))
        assert os.getpriority(os.PRIO_PROCESS, running(node, task(1))) == 15
        for one in node.tasks():
            node.forget(one.task)

    as_nobody(host, passable, live)


def shared(node, one, cores):
    """Whether the kernel took it: of all ordinary sessions it takes one share in 0.1 s, and agents try again."""
    try:
        node.set_share(one, cores)
    except DriverError:
        return False
    return True


def opened(host, node, **settings):
    return open_driver(NodeSettings(root=host.root, cluster=host.cluster, node=node, **settings))


@needs_root
@needs_groups
def test_the_best_driver_is_chosen(host, monkeypatch):
    node = opened(host, "n0", cores=1.0, memory_bytes=1 << 30)
    host.drivers["n0"] = node
    assert isinstance(node, ControlGroupDriver)
    assert node.abilities.caps

    def nothing(cluster, node):
        raise UnsuitableError("no control groups")

    monkeypatch.setattr(driver, "detect", nothing)
    poor = opened(host, "n1", cores=1.0, memory_bytes=1 << 30)
    assert isinstance(poor, NiceDriver)
    assert (poor.abilities.shares, poor.abilities.caps, poor.abilities.memory_limits) == ("nice", False, False)
    with pytest.raises(DriverError, match="caps need control groups"):
        opened(host, "n1", cores=1.0, memory_bytes=1 << 30, shares="caps")
    with pytest.raises(DriverError, match="this agent may use"):
        opened(host, "n1", cores=1.0, memory_bytes=1 << 30, cpus="4000")


def test_a_folder_or_a_package_is_a_driver(tmp_path, monkeypatch):
    module = SimpleNamespace(PREFERENCE=99, open_node=lambda settings: settings.node)
    monkeypatch.setattr(opening, "entry_points", lambda group: [SimpleNamespace(name="theirs", load=lambda: module)])
    assert list(driver_modules()) == ["theirs", "control_groups", "nice_levels"]
    settings = NodeSettings(root=tmp_path, cluster="c", node="n7", cores=1.0, memory_bytes=1 << 30)
    assert open_driver(settings) == "n7"
