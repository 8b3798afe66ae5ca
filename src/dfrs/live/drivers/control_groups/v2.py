"""Control groups of version 2: one tree, a node is a group of it and each of its tasks a group below.

A task that moves from node to node enters a new group: what it used before is carried over by the driver, but its
memory stays charged to the old group, so its new limit counts only what it touches from then on.

Exercised on a real kernel whose controllers belonged to version 1: making, entering and removing groups, freezing,
killing, CPU time, pressure. Exercised against plain files in place of the kernel's: weights, quotas, memory limits,
CPU sets, events, disk traffic, limits of processes, and that controllers are enabled level by level. What the kernel
makes of weights and quotas is the same code as in version 1. Not exercised: that `memory.reclaim` frees memory.
"""

import contextlib
import errno
import os
from typing import Literal

from dfrs.live.drivers.base import DriverError, UnsuitableError
from dfrs.live.drivers.control_groups.groups import (
    TOP,
    TaskGroup,
    UsageCounters,
    check_all_cpus,
    cpu_list,
    make_directory,
    most_processes,
    move_all,
    no_files,
    number,
    numbers,
    quota,
    remove_directory,
    set_file,
    worst_of,
)
from dfrs.live.drivers.processes.supervisor import Place, numbers_in, read_text, write_control

WEIGHTS = (1, 10_000)
CONTROLLERS = ("cpu", "memory", "io", "cpuset", "pids")
REMOVE_S = 10.0
INDIVISIBLE = {errno.EBUSY, errno.EOPNOTSUPP, errno.EACCES, errno.EPERM, errno.EROFS}
"""Errors of the kernel for a group that can have no controllers for groups below it."""


class TaskGroupV2:
    """A task's group; see `groups.TaskGroup`."""

    lost_by_move = frozenset(
        {"cpu_s", "peak_bytes", "oom_kills", "refused_forks", "read_bytes", "written_bytes", "throttled_s"}
    )

    def __init__(self, node: "NodeGroupV2", task: str) -> None:
        self.node = node
        self.path = f"{node.path}/{task}"

    def create(self, memory_bytes: int) -> None:
        """Make it."""
        make_directory(self.path)
        if self.node.limits_memory:
            set_file(f"{self.path}/memory.max", str(memory_bytes))
            self.stay_in()
        if "pids" in self.node.controllers:
            set_file(f"{self.path}/pids.max", str(most_processes(self.node.point)))

    def exists(self) -> bool:
        """Whether it is there."""
        return os.path.isdir(self.path)

    def entries(self) -> list[str]:
        """One file."""
        return [f"{self.path}/cgroup.procs"]

    def shared_with_supervisor(self) -> list[str]:
        """None: in this version the group that gives CPU time is also the one that pauses and kills."""
        return []

    def place(self) -> dict[str, str]:
        """See `groups.TaskGroup`."""
        entries = {"procs": f"{self.path}/cgroup.procs", "freeze": f"{self.path}/cgroup.freeze"}
        entries |= {"freeze_on": "1", "freeze_off": "0", "frozen": f"{self.path}/cgroup.events"}
        entries |= {"frozen_mark": "frozen 1", "cpu": f"{self.path}/cpu.stat"}
        if os.path.exists(f"{self.path}/cgroup.kill"):
            entries["kill"] = f"{self.path}/cgroup.kill"
        if self.node.limits_memory:
            entries |= {"oom": f"{self.path}/memory.events", "peak": f"{self.path}/memory.peak"}
        if "pids" in self.node.controllers:
            entries["forks"] = f"{self.path}/pids.events"
        return entries

    def members(self) -> list[int]:
        """Its processes."""
        return numbers_in(f"{self.path}/cgroup.procs")

    def threads(self) -> list[int]:
        """Its threads."""
        return numbers_in(f"{self.path}/cgroup.threads")

    def attach(self, pid: int) -> None:
        """Move a process into it."""
        write_control(f"{self.path}/cgroup.procs", str(pid))

    def set_weight(self, share_cores: float, node_cores: float) -> None:
        """Set `cpu.weight`."""
        if "cpu" in self.node.controllers:
            set_file(f"{self.path}/cpu.weight", str(_weight(share_cores / node_cores * WEIGHTS[1])))

    def set_cap(self, share_cores: float | None) -> None:
        """Set `cpu.max`."""
        if "cpu" in self.node.controllers:
            set_file(f"{self.path}/cpu.max", _limit(share_cores))

    def read(self) -> UsageCounters:
        """What it has used."""
        cpu = numbers(f"{self.path}/cpu.stat")
        throttled = cpu.get("throttled_usec")
        memory = self.node.limits_memory
        read_bytes, written_bytes = self._disk()
        return UsageCounters(
            cpu_s=cpu.get("usage_usec", 0) / 1e6,
            memory_bytes=(number(f"{self.path}/memory.current") or 0) if memory else 0,
            swap_bytes=number(f"{self.path}/memory.swap.current") if memory else None,
            read_bytes=read_bytes,
            written_bytes=written_bytes,
            throttled_s=None if throttled is None else throttled / 1e6,
        )

    def swappable_bytes(self) -> int:
        """See `groups.TaskGroup`."""
        return no_files(self.resident_bytes(), numbers(f"{self.path}/memory.stat"))

    def push_out(self) -> None:
        """By `memory.reclaim`."""
        set_file(f"{self.path}/memory.swap.max", "max")
        try:
            write_control(f"{self.path}/memory.reclaim", str(self.resident_bytes()))
        except BlockingIOError:
            # Not all of it: what is left is for the caller to judge.
            return
        except OSError as error:
            raise DriverError(f"{self.path}/memory.reclaim: {error.strerror}") from error

    def stay_in(self) -> None:
        """What is in swap space comes back as it is used."""
        if os.path.exists(f"{self.path}/memory.swap.max"):
            set_file(f"{self.path}/memory.swap.max", "0")

    def resident_bytes(self) -> int:
        """See `groups.TaskGroup`."""
        return number(f"{self.path}/memory.current") or 0

    def limit_events(self) -> UsageCounters:
        """The counters of what ran out or nearly did."""
        return worst_of(self.place())

    def _disk(self) -> tuple[int | None, int | None]:
        if "io" not in self.node.controllers:
            return None, None
        totals = {"rbytes": 0, "wbytes": 0}
        for word in read_text(f"{self.path}/io.stat").split():
            name, _, value = word.partition("=")
            if name in totals:
                totals[name] += int(value)
        return totals["rbytes"], totals["wbytes"]

    def move_from(self, other: TaskGroup, timeout_s: float) -> None:
        """Move all processes of the task's other group here."""
        if Place(other.place(), None, "").frozen():
            set_file(f"{self.path}/cgroup.freeze", "1")
        move_all(other, self, timeout_s)

    def remove(self, *, moved: bool = False) -> None:
        """Remove it: a task has nothing in common with its group on another node."""
        del moved
        remove_directory(self.path, REMOVE_S, whole=True)


class NodeGroupV2:
    """A node's group; see `groups.NodeGroup`."""

    kind: Literal["cgroup-v1", "cgroup-v2"] = "cgroup-v2"
    outside = ""

    def __init__(self, point: str, cluster: str, node: str) -> None:
        self.point, self.cluster, self.name = point, cluster, node
        self.path = f"{point}/{TOP}/{cluster}/{node}"
        offered = read_text(f"{point}/cgroup.controllers").split()
        self.controllers = tuple(name for name in CONTROLLERS if name in offered)
        self.limits_memory = "memory" in self.controllers
        self.swaps = self.limits_memory and os.path.exists(f"{point}/memory.reclaim")
        self.measures_waiting = os.path.exists("/proc/self/schedstat")
        notes = [f"no {name} controller: {without}" for name, without in WITHOUT.items() if name not in offered]
        if self.limits_memory:
            notes.append("a task that moves between nodes of this host starts with a memory count of zero")
        if not self.measures_waiting:
            notes.append("no run-queue delays: waiting time is not measured")
        self.notes = tuple(notes)

    def create(self, cpus: str | None, cap_cores: float | None, cores: float) -> None:
        """Make it. In competition with the rest of the host, a node weighs as many programs as it has cores."""
        host = os.cpu_count() or 1
        cluster = os.path.dirname(self.path)
        self._divide()
        for path, weight in ((os.path.dirname(cluster), host), (cluster, host), (self.path, cores)):
            make_directory(path)
            if "cpu" in self.controllers:
                set_file(f"{path}/cpu.weight", str(_weight(100 * weight)))
            self._enable(path)
        if "cpu" in self.controllers:
            set_file(f"{self.path}/cpu.max", _limit(cap_cores))
        if "cpuset" in self.controllers:
            everything = read_text(f"{self.point}/cpuset.cpus.effective").strip()
            if cpus is not None and everything and not cpu_list(cpus) <= cpu_list(everything):
                raise DriverError(f"cpus {cpus!r}: this host has {everything}")
            set_file(f"{self.path}/cpuset.cpus", cpus or "\n")
        else:
            check_all_cpus(cpus)

    def _divide(self) -> None:
        """Make sure that the tree can have groups with controllers. Raises UnsuitableError, DriverError."""
        try:
            self._enable(self.point)
        except DriverError as error:
            if isinstance(cause := error.__cause__, OSError) and cause.errno in INDIVISIBLE:
                # What seems to be the whole tree is a container's group, with its programs in it.
                raise UnsuitableError(f"{error}; run the agent outside of containers") from error
            raise

    def _enable(self, path: str) -> None:
        enabled = read_text(f"{path}/cgroup.subtree_control").split()
        if missing := [f"+{name}" for name in self.controllers if name not in enabled]:
            # All or none: in a group that has processes, some controllers alone would keep it from having others.
            set_file(f"{path}/cgroup.subtree_control", " ".join(missing))

    def group(self, task: str) -> TaskGroupV2:
        """A task's group."""
        return TaskGroupV2(self, task)

    def names(self) -> list[str]:
        """The tasks that have a group here."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self.path) as found:
            return [entry.name for entry in found if entry.is_dir()]
        return []

    def sibling(self, name: str) -> "NodeGroupV2":
        """Another node of this cluster on this host."""
        return NodeGroupV2(self.point, self.cluster, name)

    def remove(self) -> None:
        """Remove the node, and the cluster if it was the last."""
        if self.names():
            return
        remove_directory(self.path, REMOVE_S)
        with contextlib.suppress(DriverError):
            remove_directory(os.path.dirname(self.path))


WITHOUT = {
    "cpu": "shares and caps have no effect",
    "memory": "memory limits are not enforced and memory is not measured",
    "cpuset": "nodes cannot be bound to CPUs",
    "io": "disk traffic is not measured",
    "pids": "a task may have as many processes as the host",
}


def _weight(value: float) -> int:
    return min(max(round(value), WEIGHTS[0]), WEIGHTS[1])


def _limit(cores: float | None) -> str:
    if cores is None:
        return "max 100000"
    return "{} {}".format(*quota(cores))
