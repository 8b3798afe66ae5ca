"""A cluster's hardware: its nodes are grouped in partitions of equal hardware ([Atif2011] sections 4, 5 and 7.3.1).

A node is one CPU with its memory ([Atif2011]: VM); a machine is a physical host of several nodes ([Atif2011]: VMM). A
job has its nodes in one partition; it is *co-located* if they are all on one machine; then its messages cost nothing
([Atif2011] section 5.3). What is known of the hardware is static: the cycles that an event of a performance counter
costs, and how long a message of some size takes. What is known of a job is its profile, taken over tau seconds where it
runs.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.instance import Bools, Floats, Ints

FLOP, L1_MISS, L2_MISS = "flop", "l1_miss", "l2_miss"
"""Events of performance counters as [Atif2011] Table 3 has them. Names are free: profile and partition must agree."""

SECOND = "second"
"""In place of counters where there are none: a CPU second, whose cycles are a second's on the partition itself,
scaled by the rates of operation that a micro-benchmark measures."""

SPREAD, COLOCATED = 0, 1
"""Last axis of speeds: the job's nodes are on several machines, or all on one."""

_MOST = 1e18
"""No quantity of hardware is larger: beyond it products are no longer exact enough to be compared."""


_SHORTEST_S = 1e-12
"""No network is faster, and ratios of latencies stay finite."""


def _check(where: str, value: float, *, least: float = 0.0, above: bool = False) -> None:
    """Raise InputError unless `value` is finite, at least `least` (`above`: more than it), and not absurd."""
    if not math.isfinite(value):
        raise InputError(f"{where} = {value}: must be a finite number")
    if value < least or (above and value == least):
        raise InputError(f"{where} = {value}: must be {'above' if above else 'at least'} {least:g}")
    if value > _MOST:
        raise InputError(f"{where} = {value}: must be at most {_MOST:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Seconds that a message takes on a network, by its size ([Atif2011]: l(s)), as a micro-benchmark measured it.

    Raises InputError where sizes do not ascend, or there are none, or a value is negative or not finite.
    """

    sizes_bytes: tuple[int, ...]
    """(points,) ascending, above 0."""
    seconds: tuple[float, ...]
    """(points,)"""

    def __post_init__(self) -> None:
        if not self.sizes_bytes:
            raise InputError("sizes_bytes = []: must have at least one size")
        if len(self.sizes_bytes) != len(self.seconds):
            raise InputError(f"seconds = {len(self.seconds)} values: must be one a size, {len(self.sizes_bytes)}")
        for k, size in enumerate(self.sizes_bytes):
            _check(f"sizes_bytes[{k}]", size, above=True)
            before = self.sizes_bytes[k - 1] if k else 0
            if size <= before:
                raise InputError(f"sizes_bytes[{k}] = {size}: sizes must ascend, it comes after {before}")
        for k, value in enumerate(self.seconds):
            _check(f"seconds[{k}]", value)
            if 0 < value < _SHORTEST_S:
                raise InputError(f"seconds[{k}] = {value}: must be 0 or at least {_SHORTEST_S:g}")

    def at(self, size_bytes: float) -> float:
        """Seconds for a message of `size_bytes`, 0 or more: those of the nearest size measured ([Atif2011] 7.3.1).

        Halfway between two sizes the larger counts, so that a cost is not understated. Beyond the largest size the
        line through the last two points goes on, but never falls: a longer message is not faster. Where only one size
        was measured the line is the one through the origin.
        """
        sizes, seconds = self.sizes_bytes, self.seconds
        last = len(sizes) - 1
        if size_bytes > sizes[last]:
            size, past = (sizes[last - 1], seconds[last - 1]) if last else (0, 0.0)
            slope = max(0.0, seconds[last] - past) / (sizes[last] - size)
            return seconds[last] + slope * (size_bytes - sizes[last])
        k = bisect_left(sizes, size_bytes)
        if k and size_bytes - sizes[k - 1] < sizes[k] - size_bytes:
            k -= 1
        return seconds[k]


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Machines of equal hardware. Raises InputError, naming field, value and rule."""

    name: str
    machines: int
    cores: int
    """Nodes of a machine: one a CPU."""
    frequency_hz: float
    cycles: Mapping[str, float]
    """Cycles that an event costs, by its name ([Atif2011] Table 3)."""
    latency: Latency | None
    """None where it was not measured: then nothing is predicted of jobs that send messages."""
    node_memory_bytes: int
    """The most that one node can have."""
    machine_memory_bytes: int
    """What the nodes of a machine have together."""

    def __post_init__(self) -> None:
        if not self.name:
            raise InputError("name = '': must not be empty")
        _check("machines", self.machines, least=1)
        _check("cores", self.cores, least=1)
        _check("frequency_hz", self.frequency_hz, least=1)
        for event, cycles in self.cycles.items():
            _check(f"cycles.{event}", cycles)
        _check("node_memory_bytes", self.node_memory_bytes, above=True)
        _check("machine_memory_bytes", self.machine_memory_bytes, least=self.node_memory_bytes)
        object.__setattr__(self, "cycles", MappingProxyType(dict(self.cycles)))

    @property
    def nodes(self) -> int:
        """Nodes of all its machines."""
        return self.machines * self.cores


MOST_NODES = 1_000_000
"""A cluster has no more."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Hardware:
    """Partitions; nodes are numbered over them in their order, machine by machine.

    Raises InputError where there is no partition, two have one name, or there are too many nodes.
    """

    name: str
    partitions: tuple[Partition, ...]
    partition: Ints = field(init=False, repr=False)
    """(N,) index of each node's partition."""
    machine: Ints = field(init=False, repr=False)
    """(N,) number of each node's machine, counted over the cluster from 0."""

    def __post_init__(self) -> None:
        if not self.partitions:
            raise InputError("clusters = []: must have at least one sub-cluster")
        seen: set[str] = set()
        for k, partition in enumerate(self.partitions):
            if partition.name in seen:
                raise InputError(f"clusters[{k}].name = {partition.name}: two sub-clusters have this name")
            seen.add(partition.name)
        if self.nodes > MOST_NODES:
            raise InputError(f"clusters = {self.nodes} nodes: must be at most {MOST_NODES}")
        partition = np.repeat(np.arange(len(self.partitions)), [c.nodes for c in self.partitions])
        cores = np.repeat([c.cores for c in self.partitions], [c.machines for c in self.partitions])
        machine = np.repeat(np.arange(len(cores)), cores)
        for name, column in {"partition": partition, "machine": machine}.items():
            column.setflags(write=False)
            object.__setattr__(self, name, column.astype(np.int64, copy=False))

    @property
    def nodes(self) -> int:
        """N, over all partitions."""
        return sum(partition.nodes for partition in self.partitions)

    @property
    def node_names(self) -> tuple[str, ...]:
        """(N,) partition, machine in it from 1, node in that from 0: "A1.0", "A1.1", ..."""
        return tuple(
            f"{partition.name}{machine}.{core}"
            for partition in self.partitions
            for machine in range(1, partition.machines + 1)
            for core in range(partition.cores)
        )

    @property
    def node_memory_bytes(self) -> Floats:
        """(N,) the most that each node can have, in bytes."""
        return np.array([c.node_memory_bytes for c in self.partitions], np.float64)[self.partition]

    def index(self, name: str) -> int:
        """Index of the partition of that name. Raises InputError where there is none."""
        for k, partition in enumerate(self.partitions):
            if partition.name == name:
                return k
        names = ", ".join(partition.name for partition in self.partitions)
        raise InputError(f"cluster = {name}: the farm {self.name} has only {names}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Non-blocking messages of one size: how many, and how long a process waited for one of them at the average."""

    count: float
    """[Atif2011]: n^N(s), in tau."""
    mean_s: float
    """[Atif2011]: w(s)."""

    def __post_init__(self) -> None:
        _check("count", self.count)
        _check("mean_s", self.mean_s)


_NO_BLOCKING: Mapping[int, float] = MappingProxyType({})
_NO_WAITING: Mapping[int, Waits] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What a job did in `tau_s` seconds where it ran, by process: the mean over its processes.

    Raises InputError, naming field, value and rule.
    """

    job: str
    cluster: str
    """Name of the partition where it was taken."""
    tau_s: float
    """Seconds observed; 0 or less is refused."""
    processes: int
    counters: Mapping[str, float]
    """Events of a process, the mean over processes, in single events, by name."""
    blocking: Mapping[int, float] = field(default_factory=lambda: _NO_BLOCKING)
    """Messages sent or received in tau by blocking calls, by size in bytes ([Atif2011]: n^B(s)). A collective counts as
    the messages it is made of."""
    waiting: Mapping[int, Waits] = field(default_factory=lambda: _NO_WAITING)
    """Messages sent or received in tau by non-blocking calls, by size in bytes."""
    colocated: bool = False
    """Whether all processes were on one machine."""
    memory_bytes: int = 0
    """Resident memory, the largest of a process."""
    swap_bytes: int = 0
    """Memory on the swap partition, the largest of a process; above 0 the job is thrashing."""

    def __post_init__(self) -> None:
        _check("tau_s", self.tau_s, above=True)
        _check("processes", self.processes, least=1)
        for event, count in self.counters.items():
            _check(f"counters.{event}", count)
        for size, count in self.blocking.items():
            _check(f"blocking.{size}", size, above=True)
            _check(f"blocking.{size}", count)
        for size in self.waiting:
            _check(f"waiting.{size}", size, above=True)
        _check("memory_bytes", self.memory_bytes)
        _check("swap_bytes", self.swap_bytes)
        for name in ("counters", "blocking", "waiting"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HardwareView:
    """What a policy sees of the hardware besides the snapshot. All arrays are read-only; R jobs, N nodes, C partitions.

    A cluster of nodes that are alike is one partition, on which every job's speed is 1.
    """

    partition: Ints
    """(N,) index of each node's partition."""
    machine: Ints
    """(N,) number of each node's machine, counted over the cluster."""
    node_memory: Floats
    """(N,) memory as a fraction of the reference node's."""
    speed: Floats
    """(R, C, 2) predicted progress per second of each job on each partition, spread over machines and co-located,
    relative to a scale of the job's own; NaN where nothing was predicted yet."""
    required: Floats
    """(R,) memory that a task is known to want, as a fraction of the reference node's; NaN where it is not known."""
    swapping: Bools
    """(R,) whether the job is thrashing now."""

    @classmethod
    def equal(cls, node_memory: Floats, jobs: int) -> "HardwareView":
        """That of so many jobs on nodes that are alike, each of them a machine."""
        nodes = len(node_memory)
        partition, machine, speed = np.zeros(nodes, np.int64), np.arange(nodes), np.ones((jobs, 1, 2))
        required, swapping = np.full(jobs, np.nan), np.zeros(jobs, np.bool_)
        for array in (partition, machine, speed, required, swapping):
            array.setflags(write=False)
        return cls(
            partition=partition,
            machine=machine,
            node_memory=node_memory,
            speed=speed,
            required=required,
            swapping=swapping,
        )

    def select(self, rows: Bools) -> "HardwareView":
        """The same hardware, and of the jobs the chosen `rows` (R,)."""
        chosen = {name: getattr(self, name)[rows] for name in ("speed", "required", "swapping")}
        for column in chosen.values():
            column.setflags(write=False)
        return replace(self, **chosen)

    @property
    def partitions(self) -> int:
        """C."""
        return int(self.speed.shape[1])

    @property
    def known(self) -> Bools:
        """(R,) of which jobs something was predicted."""
        return np.asarray(np.isfinite(self.speed).any(axis=(1, 2)))

    def nodes_of(self, partition: int) -> Ints:
        """Indices of a partition's nodes, ascending."""
        return np.flatnonzero(self.partition == partition)

    def machines_of(self, partition: int) -> Ints:
        """Numbers of a partition's machines, ascending."""
        return np.unique(self.machine[self.partition == partition])

    def colocated(self, nodes: Ints) -> bool:
        """Whether these nodes, at least one, are all of one machine."""
        machine = self.machine[nodes]
        return bool((machine == machine[0]).all())

    def memory_of(self, partition: int) -> float:
        """Memory of the partition's smallest node, as a fraction of the reference node's; 0 where it has none."""
        memory = self.node_memory[self.partition == partition]
        return float(memory.min()) if len(memory) else 0.0
