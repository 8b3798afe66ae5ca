"""Control groups of version 1, where each controller is a tree of its own.

Only `cpu` and `cpuset` are trees of nodes. In the others (`memory`, `freezer`, `cpuacct`, `blkio`, `pids`, and version
2's tree where that is mounted beside them) a task has one group for its life, so a move from node to node leaves its
memory charged, its counters counting and its pause in force. Version 2's tree, which needs no controllers for it, gives
what version 1 lacks: killing a whole group at once, and how long a group waited for CPU.

All of it was exercised on a real kernel with separately mounted controllers. Where `cpu` and `cpuacct` are one mount,
CPU time is carried over in a move like throttled time.
"""

import contextlib
import os
from typing import Literal

from dfrs.live.drivers.base import DriverError
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
from dfrs.live.drivers.processes.supervisor import numbers_in, read_text, write_control

SHARES = (2, 262_144)
WHOLE_NODE = 65_536
"""Shares of a task that is to have all of its node: a resolution of 1/65536 of it."""
REMOVE_S = 10.0
WITH_SWAP = "memory.memsw.limit_in_bytes"


class TaskGroupV1:
    """A task's groups; see `groups.TaskGroup`."""

    def __init__(self, node: "NodeGroupV1", task: str) -> None:
        self.node = node
        self.cpu = f"{node.cpu}/{task}"
        self.common = {name: f"{path}/{task}" for name, path in node.common.items()}
        self.memory = self.common.get("memory")
        self.freezer = self.common["freezer"]
        self.account = self.common.get("cpuacct", self.cpu if node.joint else None)
        self.lost_by_move = frozenset({"throttled_s", "cpu_s"} if node.joint else {"throttled_s"})

    def create(self, memory_bytes: int) -> None:
        """Make them."""
        for path in (*self.common.values(), self.cpu):
            make_directory(path)
        if self.memory:
            set_file(f"{self.memory}/memory.limit_in_bytes", str(memory_bytes))
            if os.path.exists(f"{self.memory}/{WITH_SWAP}"):
                # Memory and swap space together: where the host swaps, the limit is the same.
                set_file(f"{self.memory}/{WITH_SWAP}", str(memory_bytes))
        if "pids" in self.common:
            set_file(f"{self.common['pids']}/pids.max", str(most_processes(self.node.points["pids"])))

    def exists(self) -> bool:
        """Whether they are there."""
        return os.path.isdir(self.cpu)

    def entries(self) -> list[str]:
        """The freezer last: a process that enters a paused group stops at once, and must be in all others by then."""
        order = sorted(self.common, key=lambda name: name == "freezer")
        paths = [self.cpu, *(self.common[name] for name in order)]
        if self.node.cpuset:
            paths.insert(0, self.node.cpuset)
        return [f"{path}/cgroup.procs" for path in paths]

    def shared_with_supervisor(self) -> list[str]:
        """See `groups.TaskGroup`. The CPUs first, as in `attach`; these trees have neither freezer nor memory."""
        paths = [self.node.cpuset, self.cpu]
        account = self.common.get("cpuacct")
        if account not in [path for name, path in self.common.items() if name != "cpuacct"]:
            paths.append(account)
        return [f"{path}/cgroup.procs" for path in paths if path]

    def place(self) -> dict[str, str]:
        """See `groups.TaskGroup`."""
        state = f"{self.freezer}/freezer.state"
        entries = {"procs": f"{self.freezer}/cgroup.procs", "freeze": state, "frozen": state}
        entries |= {"freeze_on": "FROZEN", "freeze_off": "THAWED", "frozen_mark": "FROZEN"}
        if self.node.kills:
            entries["kill"] = f"{self.common['unified']}/cgroup.kill"
        if self.memory:
            entries["oom"] = f"{self.memory}/memory.oom_control"
            entries["peak"] = f"{self.memory}/memory.max_usage_in_bytes"
        if "pids" in self.common:
            entries["forks"] = f"{self.common['pids']}/pids.events"
        if self.account:
            entries["cpu"] = f"{self.account}/cpuacct.usage"
        return entries

    def members(self) -> list[int]:
        """Its processes on this node, its supervisor among them."""
        return numbers_in(f"{self.cpu}/cgroup.procs")

    def threads(self) -> list[int]:
        """Its threads on this node."""
        return numbers_in(f"{self.cpu}/tasks")

    def attach(self, pid: int) -> None:
        """To this node's CPUs first: `cpu` is the tree by which `move_all` knows who is left behind."""
        if self.node.cpuset:
            write_control(f"{self.node.cpuset}/cgroup.procs", str(pid))
        write_control(f"{self.cpu}/cgroup.procs", str(pid))

    def set_weight(self, share_cores: float, node_cores: float) -> None:
        """Set `cpu.shares`."""
        set_file(
            f"{self.cpu}/cpu.shares", str(min(max(round(share_cores / node_cores * WHOLE_NODE), SHARES[0]), SHARES[1]))
        )

    def set_cap(self, share_cores: float | None) -> None:
        """Set the quota."""
        _cap(self.cpu, share_cores)

    def read(self) -> UsageCounters:
        """What it has used."""
        cpu = number(f"{self.account}/cpuacct.usage") if self.account else None
        memory = number(f"{self.memory}/memory.usage_in_bytes") if self.memory else None
        both = number(f"{self.memory}/memory.memsw.usage_in_bytes") if self.memory else None
        throttled = numbers(f"{self.cpu}/cpu.stat").get("throttled_time")
        read_bytes, written_bytes = self._disk()
        return UsageCounters(
            cpu_s=(cpu or 0) / 1e9,
            memory_bytes=memory or 0,
            swap_bytes=None if both is None or memory is None else max(both - memory, 0),
            read_bytes=read_bytes,
            written_bytes=written_bytes,
            throttled_s=None if throttled is None else throttled / 1e9,
        )

    def swappable_bytes(self) -> int:
        """See `groups.TaskGroup`."""
        return no_files(self.resident_bytes(), numbers(f"{self.memory}/memory.stat"), "total_")

    def push_out(self) -> None:
        """By `memory.force_empty`, which leaves the processes where they are."""
        set_file(f"{self.memory}/memory.swappiness", "100")
        set_file(f"{self.memory}/memory.force_empty", "0")

    def stay_in(self) -> None:
        """Nothing: its limit holds for memory and swap space together, see `create`."""

    def resident_bytes(self) -> int:
        """See `groups.TaskGroup`."""
        return number(f"{self.memory}/memory.usage_in_bytes") or 0

    def limit_events(self) -> UsageCounters:
        """The counters of what ran out or nearly did."""
        return worst_of(self.place())

    def _disk(self) -> tuple[int | None, int | None]:
        if "blkio" not in self.common:
            return None, None
        totals = {"Read": 0, "Write": 0}
        for line in read_text(f"{self.common['blkio']}/blkio.throttle.io_service_bytes").splitlines():
            words = line.split()
            if len(words) == 3 and words[1] in totals:
                totals[words[1]] += int(words[2])
        return totals["Read"], totals["Write"]

    def move_from(self, other: TaskGroup, timeout_s: float) -> None:
        """Move all processes of the task's other group here."""
        move_all(other, self, timeout_s)

    def remove(self, *, moved: bool = False) -> None:
        """Remove them; only the node's own if the task has moved. That is the last: by it the others are found."""
        for path in () if moved else self.common.values():
            remove_directory(path, REMOVE_S, whole=True)
        remove_directory(self.cpu, REMOVE_S, whole=True)


class NodeGroupV1:
    """A node's groups; see `groups.NodeGroup`."""

    kind: Literal["cgroup-v1", "cgroup-v2"] = "cgroup-v1"

    def __init__(self, points: dict[str, str], unified: str | None, cluster: str, node: str) -> None:
        self.points, self.unified = points, unified
        self.cluster, self.name = cluster, node
        self.cpu = f"{points['cpu']}/{TOP}/{cluster}/{node}"
        self.outside = f"{points['cpu']}/cgroup.procs"
        separate = {name: point for name, point in points.items() if point != points["cpu"]}
        self.joint = points.get("cpuacct") == points["cpu"]
        self.cpuset = f"{points['cpuset']}/{TOP}/{cluster}/{node}" if "cpuset" in separate else None
        # Controllers mounted together are one tree: it is entered once.
        self.common = {
            name: f"{separate[name]}/{TOP}/{cluster}"
            for name in ("memory", "cpuacct", "blkio", "pids", "freezer")
            if name in separate and separate[name] != separate.get("cpuset")
        }
        usable = set(points) - ({"pids"} - set(self.common))
        notes = [f"no {name} controller: {without}" for name, without in WITHOUT.items() if name not in usable]
        self.kills = False
        if unified is not None and os.access(unified, os.W_OK):
            self.common["unified"] = f"{unified}/{TOP}/{cluster}"
            self.kills = _offers(unified, "cgroup.kill")
        self.limits_memory = "memory" in self.common
        self.swaps = self.limits_memory and os.path.exists(f"{points['memory']}/{WITH_SWAP}")
        self.measures_waiting = os.path.exists("/proc/self/schedstat")
        self.notes = tuple(notes)

    def create(self, cpus: str | None, cap_cores: float | None, cores: float) -> None:
        """Make it. In competition with the rest of the host, a node weighs as many programs as it has cores."""
        host = os.cpu_count() or 1
        for path, weight in self._levels(self.cpu, (host, host, cores)):
            make_directory(path)
            set_file(f"{path}/cpu.shares", str(min(max(round(1024 * weight), SHARES[0]), SHARES[1])))
        try:
            _cap(self.cpu, cap_cores)
        except DriverError:
            # The kernel refuses less than a task's own limit.
            for task in self.names():
                self.group(task).set_cap(None)
            _cap(self.cpu, cap_cores)
        for common in self.common.values():
            for path in (os.path.dirname(common), common):
                make_directory(path)
        if self.cpuset:
            self._create_cpuset(self.cpuset, cpus)
        else:
            check_all_cpus(cpus)

    def _levels(self, path: str, weights: tuple[float, float, float]) -> list[tuple[str, float]]:
        cluster = os.path.dirname(path)
        return list(zip((os.path.dirname(cluster), cluster, path), weights, strict=True))

    def _create_cpuset(self, path: str, cpus: str | None) -> None:
        top = self.points["cpuset"]
        prefix = "cpuset." if os.path.exists(f"{top}/cpuset.cpus") else ""
        everything = {file: read_text(f"{top}/{prefix}{file}").strip() for file in ("cpus", "mems")}
        if cpus is not None and not cpu_list(cpus) <= cpu_list(everything["cpus"]):
            raise DriverError(f"cpus {cpus!r}: this host has {everything['cpus']}")
        for level, _ in self._levels(path, (0, 0, 0)):
            make_directory(level)
            for file, value in everything.items():
                chosen = cpus if level == path and file == "cpus" and cpus is not None else value
                set_file(f"{level}/{prefix}{file}", chosen)

    def group(self, task: str) -> TaskGroupV1:
        """A task's groups."""
        return TaskGroupV1(self, task)

    def names(self) -> list[str]:
        """The tasks that have a group here."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self.cpu) as found:
            return [entry.name for entry in found if entry.is_dir()]
        return []

    def sibling(self, name: str) -> "NodeGroupV1":
        """Another node of this cluster on this host."""
        return NodeGroupV1(self.points, self.unified, self.cluster, name)

    def remove(self) -> None:
        """Remove the node, and the cluster if it was the last."""
        if self.names():
            return
        for path in filter(None, (self.cpu, self.cpuset)):
            remove_directory(path, REMOVE_S)
        for leaf in {*self.common.values(), os.path.dirname(self.cpu), os.path.dirname(self.cpuset or self.cpu)}:
            with contextlib.suppress(DriverError):
                remove_directory(leaf)


WITHOUT = {
    "memory": "memory limits are not enforced and memory is not measured",
    "cpuset": "nodes cannot be bound to CPUs",
    "cpuacct": "CPU time is not measured",
    "blkio": "disk traffic is not measured",
    "pids": "a task may have as many processes as the host",
}


def _offers(unified: str, file: str) -> bool:
    """Whether groups in this tree have such a file, which its top may not have."""
    make_directory(f"{unified}/{TOP}")
    return os.path.exists(f"{unified}/{TOP}/{file}")


def _cap(path: str, cores: float | None) -> None:
    quota_file, period_file = f"{path}/cpu.cfs_quota_us", f"{path}/cpu.cfs_period_us"
    if cores is None:
        set_file(quota_file, "-1")
        return
    quota_us, period_us = quota(cores)
    if number(period_file) != period_us:
        # Old quota with new period could be more than the parent's, which the kernel refuses.
        set_file(quota_file, "-1")
        set_file(period_file, str(period_us))
    set_file(quota_file, str(quota_us))
