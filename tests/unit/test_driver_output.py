"""What tasks write: how it is kept, and who pays for the copying."""

import os
import shutil
import time
from pathlib import Path

import pytest

from dfrs.live.drivers.base import DriverError, ExitKind
from dfrs.live.drivers.processes import directory, supervisor
from dfrs.live.drivers.processes.directory import BLOCK_BYTES, Owner, TaskDirectory
from tests.driver_hosts import (
    BUSY,
    MIB,
    alone,
    ended,
    host,
    needs_groups,
    needs_root,
    running,
    settles,
    task,
    until,
)

pytestmark = [needs_root, needs_groups]
__all__ = ["alone", "host"]


def text(driver, which, stream="out"):
    return driver.output(which, stream, 0, 1 << 20)[0].decode()


def test_output_is_rotated_and_counted(host):
    node = host.node()
    script = "i=0; while [ $i -lt 3000 ]; do printf '%06d\\n' $i; i=$((i+1)); done; echo problem >&2"
    node.start(task(), host.shell(script, output_bytes=4096), 1.0)
    ended(node, task())
    whole = b"".join(b"%06d\n" % number for number in range(3000))
    data, begin, end = node.output(task(), "out", 0, 1 << 20)
    assert end == len(whole)
    assert begin == len(whole) - len(data)
    assert 4096 < len(data) <= 8192
    assert whole[begin:] == data
    assert node.output(task(), "out", end - 5, 3) == (data[-5:-2], end - 5, end)
    across = begin + 4090
    assert node.output(task(), "out", across, 100) == (whole[across : across + 100], across, end)
    assert node.output(task(), "out", end + 10, 100) == (b"", end, end)
    assert text(node, task(), "err") == "problem\n"
    with pytest.raises(DriverError, match="no out output"):
        node.output(task(99), "out", 0, 1)
    node.forget(task())
    assert node.output(task(), "out", 0, 1 << 20) == (data, begin, end)
    node.prune_output(0)
    with pytest.raises(DriverError, match="pruned"):
        node.output(task(), "out", 0, 1)


def test_not_each_forgotten_task_needs_a_look_at_all_that_is_kept(tmp_path, monkeypatch):
    ours, others = TaskDirectory(tmp_path), TaskDirectory(tmp_path)
    looks, look, most = [], TaskDirectory._pruned, 100 * BLOCK_BYTES
    monkeypatch.setattr(TaskDirectory, "_pruned", lambda files, limit: looks.append(files) or look(files, limit))

    def forget(files, *numbers):
        for number in numbers:
            files.create(task(number), Owner(node="n0", place={}, carried={}), [])
            out = Path(files.path(task(number))) / "out.0"
            out.write_bytes(bytes(9 * BLOCK_BYTES))
            out.with_name("err.0").touch()
            for file in (out, out.with_name("err.0")):
                os.utime(file, (number, number))
            files.remove(task(number))
            files.prune_output(most)

    def kept():
        return sorted(int(path.name.partition(".")[0]) for path in ours.kept.glob("*.out.0"))

    forget(ours, *range(1, 11))
    assert (looks, kept()) == ([ours], [*range(1, 11)])
    # The first that does not fit makes room for another.
    forget(ours, 11)
    assert (looks, kept()) == ([ours] * 2, [*range(3, 12)])
    forget(ours, 12)
    assert (looks, kept()) == ([ours] * 2, [*range(3, 13)])
    # Other nodes of the host keep theirs in the same place, which is found out after a while.
    forget(others, 13)
    forget(others, 14)
    assert (looks, kept()) == ([ours, ours, others], [*range(5, 15)])
    for number in range(3):
        shutil.copy(ours.kept / "14.0.0.out.0", ours.kept / f"{20 + number}.0.0.out.0")
    others.prune_output(most)
    assert looks == [ours, ours, others]
    monkeypatch.setattr(directory.time, "monotonic", lambda now=time.monotonic: now() + directory.LOOK_S)
    others.prune_output(most)
    assert looks == [ours, ours, others, others]
    assert sum(path.stat().st_size for path in ours.kept.iterdir()) <= 90 * BLOCK_BYTES


def copier(driver, which):
    """The process that copies a task's output."""
    return supervisor.living(driver.files.supervisor(which))


def group_of(pid, controller):
    lines = (line.split(":", 2) for line in supervisor.read_text(f"/proc/{pid}/cgroup").splitlines())
    return next((path for _, names, path in lines if controller in names.split(",")), None)


def needs_version_1(node):
    if node.abilities.shares != "cgroup-v1":
        pytest.skip("version 2 has one tree for all")


def test_copying_of_output_is_charged_to_the_task_and_nothing_else_of_it_holds_the_copier(host):
    first, second = host.node(), host.node("n1")
    needs_version_1(first)
    first.start(task(), host.spec("/bin/sleep", "60"), 0.5)
    running(first, task())
    pid = copier(first, task())
    own = f"/dfrs/{host.cluster}/n0/1.0.0"
    assert (group_of(pid, "cpu"), group_of(pid, "cpuset")) == (own, os.path.dirname(own))
    assert group_of(pid, "cpuacct") == f"/dfrs/{host.cluster}/1.0.0"
    assert not any("dfrs" in group_of(pid, name) for name in ("memory", "freezer", ""))
    first.hand(task())
    second.take(task(), 0.5)
    assert group_of(pid, "cpu") == own.replace("n0", "n1")
    assert first.groups.names() == []
    second.pause(task())
    second.stop(task(), 0.2)
    assert ended(second, task()).kind is ExitKind.STOPPED


def ticks_of(*pids):
    return sum(int(ticks) for pid in pids for ticks in supervisor.stat_fields(pid)[11:13])


def test_endless_output_stays_in_its_share(host, alone):
    node = host.node()
    needs_version_1(node)
    both = [task(1), task(2)]
    node.start(task(1), host.spec("yes", output_bytes=MIB), 0.1)
    node.start(task(2), host.spec(*BUSY), 0.9)
    program, _ = [running(node, one) for one in both]
    pid = copier(node, task(1))
    before, started = ticks_of(pid, program), time.monotonic()
    settles(node, both, 1.5, lambda first, second: abs(first / (first + second) - 0.1) < 0.05)
    ticks = ticks_of(pid, program) - before
    assert ticks / os.sysconf("SC_CLK_TCK") < 0.15 * (time.monotonic() - started)


def test_the_end_of_a_task_does_not_wait_for_its_share(host):
    node = host.node()
    needs_version_1(node)
    node.start(task(), host.shell("trap '' TERM; echo ready; while :; do :; done"), 0.5)
    until(lambda: text(node, task()))
    pid = copier(node, task())
    node.stop(task(), 60.0)
    assert group_of(pid, "cpu") == group_of(os.getpid(), "cpu")
