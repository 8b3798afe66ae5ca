"""What every reader of a snapshot gives: hosts and machines, and from them an instance and the present placement.

A machine is a service of one task. Memory is rigid; CPU is fluid, and how much of it a machine needs is what it uses,
with a margin, or what it was allocated. Capacities are fractions of the reference node, which is as large as the
largest host in each resource.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.instance import Instance, Ints
from dfrs.model.resources import Kind, Resource
from dfrs.model.rules import Maintenance, Never, Only, Rule, Rules

NeedBy = Literal["used", "allocated"]

SATURATED = 0.95
"""Share of its cores from which a host may hide how much its machines would use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedRule:
    """How much CPU a machine needs: `used` times 1 + `margin`, at most what it was allocated; or what was allocated."""

    by: NeedBy = "used"
    margin: float = 0.2

    def __post_init__(self) -> None:
        if not 0 <= self.margin < float("inf"):
            raise InputError(f"margin {self.margin}: must be a finite number of at least 0")

    def cores(self, machine: "Machine") -> float:
        """What `machine` needs, in cores; what it was allocated where its use is not known."""
        if self.by == "allocated" or machine.used_cores is None:
            return machine.cores
        return min(machine.cores, machine.used_cores * (1.0 + self.margin))


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A machine that runs others."""

    name: str
    cores: float
    memory_bytes: float
    open: bool = True
    """Whether it may get machines; False where it keeps those that it has and gets no more."""
    empty: bool = False
    """Whether all its machines are to leave it: maintenance."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    address: str = ""
    """How a tool reaches it, where that is not its name: a libvirt URI."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A virtual machine, container or program that one host runs."""

    name: str
    host: str | None
    """None: it runs nowhere yet."""
    cores: float
    """Allocated: the most that it can use."""
    memory_bytes: float
    used_cores: float | None = None
    waits_counted: bool = False
    """Whether `used_cores` counts the time that it waited for a CPU: then it is what it would use alone."""
    minimum_yield: float = 0.0
    move_cost: float = 1.0
    fixed: str = ""
    """Why it may not move, in words; empty where it may."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    id: str = ""
    """What a tool calls it, where that is not its name."""
    persistent: bool = True
    """Whether it stays defined once it is shut down: only libvirt has machines that do not."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClusterState:
    """A snapshot: the problem, where its tasks run, and what readers of the result should know."""

    instance: Instance
    present: Ints
    """(T,) node of each task, -1 where it runs nowhere yet."""
    source: str
    notes: tuple[str, ...] = ()
    hosts: tuple[Host, ...] = ()
    """One a node of the instance; empty where the snapshot is an instance."""
    machines: tuple[Machine, ...] = ()
    """One a service of the instance; empty where the snapshot is an instance."""


def cluster_state(
    hosts: Sequence[Host],
    machines: Iterable[Machine],
    need: NeedRule,
    source: str,
    notes: Iterable[str] = (),
) -> ClusterState:
    """The state of a cluster as its hosts and machines say.

    Machines are in order of the hosts, then by name, so that the same cluster gives the same instance however it was
    listed. Raises InputError for names that stand twice, a host that is not there, or a cluster without either.
    """
    number = {host.name: n for n, host in enumerate(hosts)}
    if not hosts:
        raise InputError(f"{source}: no host: must have at least one")
    if len(number) < len(hosts):
        raise InputError(f'{source}: host "{_twice(host.name for host in hosts)}" stands twice: names must be unique')
    listed = sorted(_distinct(machines), key=lambda m: (number.get(m.host or "", len(hosts)), m.name))
    if not listed:
        raise InputError(f"{source}: no machine: must have at least one that runs")
    for machine in listed:
        if machine.host is not None and machine.host not in number:
            raise InputError(
                f'{source}: machine "{machine.name}": host = "{machine.host}": must be a host of the snapshot'
            )
    cores = max(host.cores for host in hosts)
    memory = max(host.memory_bytes for host in hosts)
    if not (cores > 0 and memory > 0):
        raise InputError(f"{source}: hosts without CPU or memory: at least one must have both")
    instance = Instance(
        name=source,
        resources=(
            Resource(name="memory", kind=Kind.RIGID, bytes_per_node=memory),
            Resource(name="cpu", kind=Kind.FLUID),
        ),
        nodes=tuple(host.name for host in hosts),
        capacity=np.array([[host.memory_bytes / memory, host.cores / cores] for host in hosts]),
        services=tuple(m.name for m in listed),
        minimum_yield=np.array([m.minimum_yield for m in listed]),
        service_of=np.arange(len(listed)),
        need=np.array([[m.memory_bytes / memory, need.cores(m) / cores] for m in listed]),
        rigid=np.tile([True, False], (len(listed), 1)),
        move_cost=np.array([m.move_cost for m in listed]),
        labels=tuple(host.labels for host in hosts) if any(host.labels for host in hosts) else (),
        rules=Rules(rules) if (rules := _rules(hosts, listed)) else None,
    )
    return ClusterState(
        instance=instance,
        present=np.array([-1 if m.host is None else number[m.host] for m in listed], dtype=np.int64),
        source=source,
        notes=(*notes, *_notes(hosts, listed, need)),
        hosts=tuple(hosts),
        machines=tuple(listed),
    )


def _rules(hosts: Sequence[Host], machines: Sequence[Machine]) -> list[Rule]:
    """What the snapshot itself says about where machines may be."""
    rules: list[Rule] = [
        Only(services=[m.name], nodes=[m.host], name=f"{m.name} stays: {m.fixed}")
        for m in machines
        if m.fixed and m.host is not None
    ]
    for host in hosts:
        others = [m.name for m in machines if m.host != host.name]
        if host.empty:
            rules.append(Maintenance(nodes=[host.name]))
        elif not host.open and others:
            rules.append(Never(services=others, nodes=[host.name], name=f"{host.name} gets nothing more"))
    return rules


def _notes(hosts: Sequence[Host], machines: Sequence[Machine], need: NeedRule) -> Iterable[str]:
    unknown = sum(m.used_cores is None for m in machines)
    if need.by == "used" and unknown:
        yield f"CPU use of {unknown} of {len(machines)} machines not known: their need is what they were allocated"
    if need.by == "used":
        used = {host.name: 0.0 for host in hosts}
        for m in machines:
            if m.host is not None and not m.waits_counted:
                used[m.host] += m.used_cores or 0.0
        full = [host.name for host in hosts if host.cores > 0 and used[host.name] >= SATURATED * host.cores]
        if full:
            yield f"CPU of {', '.join(full)} is used up: machines there may need more than they use"
    fixed = [m for m in machines if m.fixed]
    for why in sorted({m.fixed for m in fixed}):
        yield f"stay where they are ({why}): {', '.join(m.name for m in fixed if m.fixed == why)}"


def _distinct(machines: Iterable[Machine]) -> list[Machine]:
    """Machines of which no two have the same name: those that do get their id behind it."""
    listed = list(machines)
    names = [m.name for m in listed]
    twice = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set[str]()
    distinct = [replace(m, name=f"{m.name} ({m.id})") if m.name in twice and m.id else m for m in listed]
    if len({m.name for m in distinct}) < len(distinct):
        name = _twice(m.name for m in distinct)
        raise InputError(f'machine "{name}" stands twice: names must be unique')
    return distinct


def _twice(names: Iterable[str]) -> str:
    seen: set[str] = set()
    return next(name for name in names if name in seen or seen.add(name))
