"""The self-test of drivers: what works passes, what does not is named, and nothing is left of it in any case."""

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from dfrs.live.drivers.base import NO_JOB, DriverError, NotYetError, RefusedError, TaskState
from dfrs.live.drivers.control_groups.groups import mounted
from dfrs.live.drivers.control_groups.v1 import NodeGroupV1
from dfrs.live.drivers.nice_levels.driver import NiceDriver
from dfrs.live.drivers.self_test import SelfTestStoppedError, self_test
from tests.driver_hosts import (
    BUSY,
    MIB,
    host,
    needs_groups,
    needs_root,
    processes,
    running,
    state,
    task,
)
from tests.live_fakes import FakeDriver, task_id, task_spec

__all__ = ["host"]


def verdict_on(driver, patience_s=0.3, **more):
    return self_test(driver, **{"cores": 1.0, "memory_bytes": 1 << 30, "patience_s": patience_s} | more)


def test_a_driver_that_works_passes_and_keeps_nothing():
    driver, own = FakeDriver(), task_id(1)
    driver.start(own, task_spec(), 0.5)
    assert verdict_on(driver) == ""
    assert list(driver.here) == [own]
    assert [method for method, which in driver.calls if which != own] == [
        *("start", "set_share", "pause", "resume", "stop", "forget", "forget")
    ]


@pytest.mark.parametrize(
    ("method", "step"),
    [
        ("tasks", "remove what an earlier test left"),
        ("start", "start a task"),
        ("usage", "see a task run"),
        ("set_share", "give a task a share"),
        ("pause", "pause a task"),
        ("resume", "resume a task"),
        ("stop", "stop a task"),
        ("forget", "forget a task"),
    ],
)
def test_a_call_that_fails_is_named_with_its_reason(method, step):
    driver = FakeDriver()
    driver.fail(method, DriverError("no\nluck"), times=10_000)
    assert verdict_on(driver) == f"self-test failed: could not {step} within 0.3 s: no luck"
    if method not in {"tasks", "forget"}:
        assert not driver.here
    # What an earlier test could not remove the next one does.
    driver.fail(method, times=1)
    assert verdict_on(driver, 20.0) == ""
    assert not driver.here


def test_a_start_that_makes_no_sense_is_not_tried_again():
    driver = FakeDriver()
    driver.fail("start", RefusedError("never"), times=10_000)
    assert verdict_on(driver, 60.0) == "self-test failed: could not start a task: never"


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("start", "could not start a task within 0.3 s: it is absent"),
        ("pause", "could not pause a task within 0.3 s: it is running"),
        ("resume", "could not resume a task within 0.3 s: it is paused"),
        ("stop", "could not stop a task within 0.3 s: it is running"),
        ("forget", "could not forget a task within 0.3 s: it is exited"),
    ],
)
def test_a_call_that_does_nothing_is_found_out(method, says):
    driver = FakeDriver()
    setattr(driver, method, lambda *_, **__: None)
    assert verdict_on(driver) == f"self-test failed: {says}"


def test_a_pause_that_stops_nothing_is_found_out():
    class Restless(FakeDriver):
        def usage(self):
            return [replace(row, cpu_s=time.monotonic()) for row in super().usage()]

    assert "could not keep a paused task from running within 0.3 s: it used 0." in verdict_on(Restless())


def test_a_task_that_never_runs_is_found_out():
    class Idle(FakeDriver):
        def usage(self):
            return [replace(row, cpu_s=0.01) for row in super().usage()]

    assert verdict_on(Idle()) == "self-test failed: could not see a task run within 0.3 s: it used 0.000 s of CPU time"


def test_where_others_have_the_memory_nothing_is_found_out():
    driver = FakeDriver()
    driver.fail("start", NotYetError("waits until others have left"), times=10_000)
    begin_s = time.monotonic()
    with pytest.raises(NotYetError):
        verdict_on(driver, 60.0)
    assert time.monotonic() - begin_s < 30.0
    driver.fail("start", times=0)
    driver.fail("resume", NotYetError("waits until others have left"), times=10_000)
    with pytest.raises(NotYetError):
        verdict_on(driver)
    assert not driver.here


def test_it_stops_when_it_is_told_to():
    driver, stopped = FakeDriver(), threading.Event()
    driver.fail("pause", times=100_000)
    threading.Timer(0.3, stopped.set).start()
    with pytest.raises(SelfTestStoppedError):
        verdict_on(driver, 60.0, stopped=stopped)
    assert not driver.here


@pytest.fixture(params=["groups", "nice"])
def node(request, host):
    if request.param == "nice":
        return host.node(driver=NiceDriver)
    if os.geteuid() != 0:
        pytest.skip("needs root")
    return host.node()


def test_real_drivers_pass(node, host):
    """Also beside tasks that take all they can get; nothing is left, not even output."""
    assert verdict_on(node, 30.0) == ""
    for number in (1, 2):
        node.start(task(number), host.spec(*BUSY), 0.5)
        running(node, task(number))
    assert verdict_on(node, 60.0) == ""
    assert {status.task for status in node.tasks()} == {task(1), task(2)}
    assert not list((host.root / "output").iterdir())
    for number in (1, 2):
        assert state(node, task(number)) is TaskState.RUNNING


def test_a_pause_that_does_nothing_on_real_processes(host):
    class Deaf(NiceDriver):
        def pause(self, task, *, keep=False):
            pass

    assert (
        verdict_on(host.node(driver=Deaf), 8.0) == "self-test failed: could not pause a task within 8 s: it is running"
    )


@needs_root
@needs_groups
def test_a_decoy_of_a_control_group_is_found_out(host, tmp_path):
    points = mounted()[0]
    if "freezer" not in points:
        pytest.skip("no version 1 controllers are mounted here")
    (tmp_path / "decoy").mkdir()
    decoy = points | {"freezer": str(tmp_path / "decoy")}
    node = host.node("n0", groups=NodeGroupV1(decoy, None, host.cluster, "n0"))
    said = verdict_on(node, 20.0)
    # Its end may be seen at the one step or at the next.
    assert re.match("self-test failed: could not (start a task|see a task run): it ended: not-started: ", said)
    assert "decoy" in said
    assert list(node.tasks()) == []


KILLED = """
import sys
from pathlib import Path
from dfrs.live.drivers.nice_levels.driver import NiceDriver
from dfrs.live.drivers.self_test import self_test
node = NiceDriver(Path(sys.argv[1]), "n0", cores=1.0, memory_bytes=1 << 30)
print("ready", flush=True)
while True:
    assert self_test(node, cores=1.0, memory_bytes=1 << 30) == ""
"""


def test_the_next_test_removes_what_a_killed_agent_left(host):
    """It is never taken for a task of a job, and other nodes of the host leave it alone."""
    rng = random.Random(7)
    left = 0
    for _ in range(6):
        agent = subprocess.Popen([sys.executable, "-c", KILLED, str(host.root)], stdout=subprocess.PIPE)
        assert agent.stdout.readline() == b"ready\n"
        time.sleep(rng.random())
        agent.send_signal(signal.SIGKILL)
        agent.wait()
        agent.stdout.close()
        node, other = host.node("n0", driver=NiceDriver), host.node("n1", driver=NiceDriver)
        found = list(node.tasks())
        left += len(found)
        assert {status.task.job for status in found} <= {NO_JOB}
        assert verdict_on(other, 30.0) == ""
        assert {status.task for status in node.tasks()} >= {status.task for status in found}
        assert verdict_on(node, 30.0) == ""
        assert list(node.tasks()) == []
    assert left > 0
    assert not processes(str(host.root))


def test_it_needs_little():
    """A node of the least size that there is can be tested."""
    driver = FakeDriver(cpus=0.1)
    assert self_test(driver, cores=0.1, memory_bytes=MIB) == ""
