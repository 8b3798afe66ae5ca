"""A host with nodes of its own for the tests of drivers. It checks that nothing of it is left."""

import fcntl
import itertools
import os
import sys
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from dfrs.live.drivers.base import DriverError, ExitKind, TaskState
from dfrs.live.drivers.control_groups.driver import ControlGroupDriver
from dfrs.live.drivers.control_groups.groups import detect, mounted
from dfrs.live.drivers.processes.directory import TaskDirectory
from dfrs.testing.drivers import MIB, task_spec
from dfrs.testing.drivers import exit_of as ended
from dfrs.testing.drivers import state_of as state
from dfrs.testing.drivers import task_id as task
from dfrs.testing.drivers import usage_of as used
from dfrs.testing.drivers import wait_for as until

CPUS = sorted(os.sched_getaffinity(0))
BUSY = ("/bin/sh", "-c", "while :; do :; done")
PYTHON = os.path.realpath(sys.executable)
_names = itertools.count()


def why_no_groups():
    """Why control groups cannot be tested here; empty if they can."""
    try:
        detect("dfrs-test", "none")
    except DriverError as error:
        return str(error)
    return ""


needs_groups = pytest.mark.skipif(bool(why_no_groups()), reason=why_no_groups() or "-")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
IN_GROUPS = [needs_root, needs_groups]


def processes(mark):
    """All processes whose command or environment says `mark`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue
            if mark.encode() in text:
                found.append(int(entry.name))
    return found


def groups(cluster):
    """All control groups of a cluster."""
    first, second = mounted()
    points = {*first.values(), *filter(None, [second])}
    return [path for point in points for path in Path(point).glob(f"dfrs/{cluster}")]


class Host:
    """Nodes that share a root and a cluster."""

    def __init__(self, root):
        self.root = root
        self.cluster = f"test-{os.getpid()}-{next(_names)}"
        self.drivers = {}

    def node(self, name="n0", driver=ControlGroupDriver, **options):
        options = {"cores": 1.0, "memory_bytes": 1 << 30, "cpus": str(CPUS[0])} | options
        arguments = (self.cluster, name) if driver is ControlGroupDriver else (name,)
        self.drivers[name] = driver(self.root, *arguments, **options)
        return self.drivers[name]

    def spec(self, *command, environment=None, **options):
        environment = {"PATH": "/usr/bin:/bin", "TEST_MARK": self.cluster} | (environment or {})
        return task_spec(*command, environment=environment, **options)

    def shell(self, script, **options):
        return self.spec("/bin/sh", "-c", script, **options)

    def close(self):
        for driver in self.drivers.values():
            for status in driver.tasks():
                until(partial(forgotten, driver, status.task), 30.0)
            driver.close()
            if isinstance(driver, ControlGroupDriver):
                driver.remove_node()
        assert until(lambda: not processes(self.cluster) and not processes(str(self.root)), 2.0)
        assert not groups(self.cluster)
        tasks = self.root / "tasks"
        if not tasks.exists():
            # The test was skipped before it had a driver.
            return
        # What an agent was killed over is anybody's to remove when it is old.
        for entry in tasks.iterdir():
            assert entry.name.startswith((".new.", ".gone."))
            os.utime(entry, (0, 0))
        TaskDirectory(self.root)
        assert not list(tasks.iterdir())


def forgotten(driver, which):
    """Whether its processes have ended: killed ones that write to a busy disk take their time, and agents ask again."""
    try:
        driver.forget(which)
    except DriverError:
        return False
    return True


def running(driver, which):
    """Its process, once its program runs."""

    def program():
        status = next((status for status in driver.tasks() if status.task == which), None)
        assert status is not None
        assert status.state in (TaskState.STARTING, TaskState.RUNNING)
        if status.pid is None:
            return None
        try:
            supervisor = "supervisor/__main__.py" in Path(f"/proc/{status.pid}/cmdline").read_text()
        except OSError:
            return None
        return None if supervisor else status.pid

    return until(program)


def fractions(driver, which, seconds):
    """CPU seconds a second of each task over a while."""
    before = {row.task: row for row in driver.usage()}
    time.sleep(seconds)
    after = {row.task: row for row in driver.usage()}
    return [(after[one].cpu_s - before[one].cpu_s) / (after[one].time_s - before[one].time_s) for one in which]


def settles(driver, which, seconds, holds):
    """That the fractions are what they should be: at the fifth look at the latest, as others use the machine too."""
    for _ in range(5):
        seen = fractions(driver, which, seconds)
        if holds(*seen):
            return
    raise AssertionError(f"fractions {seen}")


def share(wanted, tolerance=0.05):
    """That the first of two has that part of what both have; false where they had nothing yet."""
    return lambda first, second: abs(first - wanted * (first + second)) < tolerance * (first + second)


@contextmanager
def measuring():
    """Tests that measure CPU time wait for each other; each user's, since nobody may open the file of another."""
    with open(Path(tempfile.gettempdir()) / f"dfrs-test-cpu-{os.getuid()}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture
def alone():
    """The test measures."""
    with measuring():
        yield


@pytest.fixture
def host(tmp_path):
    """A host that is checked to be clean at the end."""
    made = Host(tmp_path / "state")
    yield made
    made.close()


__all__ = [
    "BUSY",
    "CPUS",
    "MIB",
    "PYTHON",
    "ExitKind",
    "Host",
    "TaskState",
    "alone",
    "ended",
    "host",
    "measuring",
    "state",
    "task",
    "until",
    "used",
]
