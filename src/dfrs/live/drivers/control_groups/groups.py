"""Control groups of both versions behind one small interface: a node is a subtree, each of its tasks a group in it.

`detect()` says what the host has. Which of it was exercised on a real kernel is said in `v1` and `v2`.

Traps that both versions share: weights count among siblings only, so a node's tasks compete with each other and the
node competes with what else the host runs; memory is charged where it was first touched and is not charged anew when a
process moves; a fork between reading the list of processes and moving them leaves a child behind.
"""

import contextlib
import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, Protocol

from dfrs.live.drivers.base import DriverError, UnsuitableError
from dfrs.live.drivers.processes.supervisor import Place, happened, read_text, write_control

TOP = "dfrs"
USUAL = "/sys/fs/cgroup"
"""At or below it systems mount control groups."""
PERIOD_US = 200_000
"""Of CPU limits. In shorter ones the weights of tasks below a limited node are kept badly: a kernel 6.18 lets the same
tasks begin after each stop, and of four with equal weights on 0.4 of a CPU the last had 0.02 of the node's time in
periods of 20 ms, 0.20 in those of 100 ms, 0.24 in those of 200 ms."""
LONG_PERIOD_US = 1_000_000
LEAST_QUOTA_US = 1_000
"""The kernel refuses less."""
ONLINE = "/sys/devices/system/cpu/online"
HOST_LIMITS = ("/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max")
PIDS = 32_768
"""The kernel's default for pid_max."""
PROCESSES_PART = 0.15
"""Of all processes and threads that a host may have: what one task may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageCounters:
    """What a group has used. None: this host does not tell."""

    cpu_s: float = 0.0
    memory_bytes: int = 0
    peak_bytes: int = 0
    oom_kills: int = 0
    refused_forks: int = 0
    swap_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    throttled_s: float | None = None


class TaskGroup(Protocol):
    """The control groups of one task on one node."""

    lost_by_move: frozenset[str]
    """The counters that start again from zero when the task goes to another node."""

    def create(self, memory_bytes: int) -> None:
        """Make it, with that memory limit and the host's limit of processes; nothing if it is there."""
        ...

    def exists(self) -> bool:
        """Whether it is there."""
        ...

    def entries(self) -> list[str]:
        """The files into which a process writes 0 to enter it, in this order."""
        ...

    def shared_with_supervisor(self) -> list[str]:
        """The files by which its supervisor gets CPU time from the task: none that pauses, kills or counts memory."""
        ...

    def place(self) -> dict[str, str]:
        """What a task's supervisor must know of it: the entries of `supervisor.Place`, and `oom`, `cpu`, `peak`."""
        ...

    def members(self) -> list[int]:
        """Its processes."""
        ...

    def threads(self) -> list[int]:
        """The threads of its processes."""
        ...

    def attach(self, pid: int) -> None:
        """Move a process into it. Raises ProcessLookupError if it has ended."""
        ...

    def set_weight(self, share_cores: float, node_cores: float) -> None:
        """Its part of the CPU time of its node's tasks: `share_cores` of `node_cores`."""
        ...

    def set_cap(self, share_cores: float | None) -> None:
        """The most CPU it may use; None: no limit."""
        ...

    def read(self) -> UsageCounters:
        """What it has used, but for what `limit_events` gives."""
        ...

    def limit_events(self) -> UsageCounters:
        """The peak of its memory, and how many processes were killed for want of it, or refused."""
        ...

    def move_from(self, other: "TaskGroup", timeout_s: float) -> None:
        """Move all processes of `other`, which goes on running or paused as it was, into this group."""
        ...

    def swappable_bytes(self) -> int:
        """What of its memory would take swap space: all that is no file's."""
        ...

    def push_out(self) -> None:
        """Have the kernel write its memory to swap space. It must be paused, or the memory comes back at once."""
        ...

    def stay_in(self) -> None:
        """From now on none of its memory goes to swap space."""
        ...

    def resident_bytes(self) -> int:
        """What of its memory is not in swap space."""
        ...

    def remove(self, *, moved: bool = False) -> None:
        """Remove it; processes must have gone. `moved`: another node has the task, keep what that one uses."""
        ...


class NodeGroup(Protocol):
    """The control groups of one node."""

    kind: Literal["cgroup-v1", "cgroup-v2"]
    measures_waiting: bool
    limits_memory: bool
    swaps: bool
    """Whether `TaskGroup.push_out` can be done, if the host has swap space."""
    notes: tuple[str, ...]
    outside: str
    """The file by which a supervisor leaves its task's share of the CPU; empty if it never has part in it."""

    def create(self, cpus: str | None, cap_cores: float | None, cores: float) -> None:
        """Make it, on those CPUs, with that limit on all its tasks together; brings an old one to these values."""
        ...

    def group(self, task: str) -> TaskGroup:
        """The group of a task, which need not be there."""
        ...

    def names(self) -> list[str]:
        """The tasks that have a group here."""
        ...

    def sibling(self, name: str) -> "NodeGroup":
        """Another node of this cluster on this host."""
        ...

    def remove(self) -> None:
        """Remove it, and the cluster if it was the last; nothing if it has tasks."""
        ...


def quota(cores: float) -> tuple[int, int]:
    """(quota, period) in microseconds for a limit. The least is 0.001 cores: below it, a limit is rounded up."""
    for period_us in (PERIOD_US, LONG_PERIOD_US):
        quota_us = round(cores * period_us)
        if quota_us >= LEAST_QUOTA_US:
            return quota_us, period_us
    return LEAST_QUOTA_US, LONG_PERIOD_US


def most_processes(tree: str) -> int:
    """Processes and threads that a task may have, so that one that forks without end leaves enough to all others.

    `tree`: where the controller is mounted, which in a container may have a limit of its own.
    """
    limits = (read_text(path).strip() for path in (*HOST_LIMITS, f"{tree}/pids.max"))
    return max(1, int(PROCESSES_PART * min((int(limit) for limit in limits if limit.isdigit()), default=PIDS)))


def numbers(path: str) -> dict[str, int]:
    """A file of lines `name number`."""
    return {name: int(value) for name, value in (line.split() for line in read_text(path).splitlines())}


def no_files(memory_bytes: int, stat: Mapping[str, int], prefix: str = "") -> int:
    """Of so much memory, that which is no file's, by a group's `memory.stat`."""
    return max(0, memory_bytes - stat.get(f"{prefix}inactive_file", 0) - stat.get(f"{prefix}active_file", 0))


def number(path: str) -> int | None:
    """A file with one number; None without the file."""
    text = read_text(path)
    return int(text) if text else None


def worst_of(place: Mapping[str, str]) -> UsageCounters:
    """What a group's files say of what ran out or nearly did; `place` as `TaskGroup.place` has it."""
    return UsageCounters(
        peak_bytes=number(place.get("peak", "")) or 0,
        oom_kills=happened(read_text(place.get("oom", "")), "oom_kill"),
        refused_forks=happened(read_text(place.get("forks", "")), "max"),
    )


def set_file(path: str, value: str) -> None:
    """Write a control file. Raises DriverError that names it."""
    try:
        write_control(path, value)
    except OSError as error:
        raise DriverError(f"{path}: writing {value!r}: {error.strerror}") from error


def make_directory(path: str) -> bool:
    """Make a group; whether it is new. Raises DriverError."""
    try:
        os.mkdir(path)
    except FileExistsError:
        return False
    except OSError as error:
        raise DriverError(
            f"{path}: cannot make this control group: {error.strerror}; does the agent run as root?"
        ) from error
    return True


def remove_directory(path: str, timeout_s: float = 0.0, *, whole: bool = False) -> None:
    """Remove a group. The kernel refuses for a moment after its last process ended; raises DriverError after that.

    `whole`: with groups below it, which a task that runs as root may have made.
    """
    until = time.monotonic() + timeout_s
    while True:
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return
        except OSError as error:
            if time.monotonic() > until:
                raise DriverError(f"{path}: cannot remove this control group: {error.strerror}") from error
            if whole:
                _remove_below(path)
            time.sleep(0.002)
        else:
            return


def _remove_below(path: str) -> None:
    for directory, names, _ in os.walk(path, topdown=False):
        for name in names:
            # What has processes yet is tried again.
            with contextlib.suppress(OSError):
                os.rmdir(f"{directory}/{name}")


def move_all(source: TaskGroup, target: TaskGroup, timeout_s: float) -> None:
    """Move processes until none is left behind. One that forks all the time is held still for a moment."""
    until = time.monotonic() + timeout_s
    rounds = 0
    held: Place | None = None
    try:
        while members := source.members():
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    target.attach(pid)
            rounds += 1
            place = Place(source.place(), None, "")
            if rounds == 5 and not place.frozen():
                held = place
                held.freeze(0.2)
            if time.monotonic() > until:
                raise DriverError(f"{len(members)} processes could not be moved in {timeout_s:g} s: try again")
    finally:
        if held is not None:
            held.thaw()


def add_counters(counters: UsageCounters, before: Mapping[str, float]) -> UsageCounters:
    """`counters` with what was counted in earlier groups; the peak is the greater one."""
    values: dict[str, float | None] = {}
    for field in fields(UsageCounters):
        value, earlier = getattr(counters, field.name), before.get(field.name, 0)
        if field.name == "peak_bytes":
            values[field.name] = max(value, earlier)
        else:
            values[field.name] = None if value is None else value + earlier
    return UsageCounters(**values)  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True, slots=True)
class _Mount:
    """Where a hierarchy of control groups is mounted."""

    point: str
    whole: bool
    """Not only a sub-tree of it."""

    @property
    def merit(self) -> tuple[bool, bool]:
        """The greater the better: others bind a hierarchy, or a part of it, wherever they like, for their own use."""
        return self.whole, self.point == USUAL or self.point.startswith(f"{USUAL}/")


def mounts(text: str) -> tuple[dict[str, str], str | None]:
    """(mount point of each version 1 controller, that of version 2) from /proc/self/mountinfo (proc(5)).

    Of several of one hierarchy: one of all of it, rather at or below /sys/fs/cgroup, and of such the first.
    """
    found: dict[str | None, _Mount] = {}
    for line in text.split("\n"):
        about, separator, kind = line.partition(" - ")
        if not separator:
            continue
        _, _, _, root, point, *_ = about.split(" ")
        kind, _, options, *_ = kind.split(" ")
        mount = _Mount(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), point), root == "/")
        names = options.split(",") if kind == "cgroup" else [None] if kind == "cgroup2" else []
        for name in names:
            if name not in found or mount.merit > found[name].merit:
                found[name] = mount
    second = found.pop(None, None)
    return {name: mount.point for name, mount in found.items() if name is not None}, second and second.point


def mounted() -> tuple[dict[str, str], str | None]:
    """As `mounts`, of this process. A mount point may be of any bytes."""
    return mounts(os.fsdecode(Path("/proc/self/mountinfo").read_bytes()))


def cpu_list(text: str) -> set[int]:
    """The CPUs in a list like `0-2,5`. Raises DriverError."""
    found: set[int] = set()
    for part in text.strip().split(","):
        if (match := re.fullmatch(r"(\d+)(?:-(\d+))?", part)) is None:
            raise DriverError(f"cpus {text!r}: must be a list of CPUs like 0-2,5")
        found |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return found


def check_all_cpus(cpus: str | None) -> None:
    """Raises DriverError unless a node is to have all CPUs of this host, which has no cpuset controller."""
    online = read_text(ONLINE).strip()
    if cpus is not None and not cpu_list(online) <= cpu_list(cpus):
        raise DriverError(f"cpus {cpus!r}: this host has no cpuset controller: a node must have all its CPUs, {online}")


def writable(paths: Iterable[str]) -> bool:
    """Whether groups can be made below all of them."""
    return all(os.access(path, os.W_OK) for path in paths)


def detect(cluster: str, node: str) -> NodeGroup:
    """This host's control groups for a node. Raises UnsuitableError that says what is missing."""
    from dfrs.live.drivers.control_groups.v1 import NodeGroupV1  # noqa: PLC0415 - both versions import this module
    from dfrs.live.drivers.control_groups.v2 import NodeGroupV2  # noqa: PLC0415 - as above

    first, second = mounted()
    if second is not None and "cpu" in read_text(f"{second}/cgroup.controllers").split():
        if not writable([second]):
            raise UnsuitableError(f"{second}: no right to make control groups: run the agent as root")
        return NodeGroupV2(second, cluster, node)
    if "cpu" in first and "freezer" in first and first["cpu"] != first["freezer"]:
        if not writable([first["cpu"], first["freezer"]]):
            raise UnsuitableError(f"{first['cpu']}: no right to make control groups: run the agent as root")
        return NodeGroupV1(first, second, cluster, node)
    raise UnsuitableError("no control groups: mount version 2 with the cpu controller, or version 1's cpu and freezer")
