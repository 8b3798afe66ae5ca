"""Where `dfrs rebalance` gets its snapshot from: files, libvirt hosts, or a running dfrs cluster."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dfrs.cli.quantities import show_count
from dfrs.model.errors import InputError
from dfrs.model.instance import Instance
from dfrs.model.resources import Kind, Resource
from dfrs.model.rules import Maintenance, Never, Only, Rule, Rules
from dfrs.workloads.clusters.document import add_rules_file
from dfrs.workloads.clusters.libvirt import read_libvirt
from dfrs.workloads.clusters.reading import read_cluster
from dfrs.workloads.clusters.sheets import has_machines, host_rows, read_tables
from dfrs.workloads.clusters.state import ClusterState, Host, NeedRule
from dfrs.workloads.clusters.virsh import Virsh, split_uris

if TYPE_CHECKING:
    from dfrs.live.client import Client
    from dfrs.live.protocol.resources import ClusterSnapshot, Job, Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What the command line says about the snapshot."""

    files: Sequence[Path]
    libvirt: str | None
    sample_s: float
    connect: "Callable[[], AbstractContextManager[Client]] | None"
    """To a running dfrs cluster, where that is the source."""
    need: NeedRule
    rules: Path | None
    maintenance: Sequence[str]

    def __post_init__(self) -> None:
        given = [
            name
            for name, there in (
                ("SNAPSHOT", bool(self.files) and self.libvirt is None),
                ("--libvirt", self.libvirt is not None),
                ("--live", self.connect is not None),
            )
            if there
        ]
        if len(given) != 1:
            named = " and ".join(given) if given else "none of them"
            raise InputError(f"SNAPSHOT, --libvirt and --live: give one of them: {named} was given")

    def read(self) -> ClusterState:
        """The cluster now, under the rules. Raises InputError; DfrsError where a host or controller does not answer."""
        if self.connect is not None:
            with self.connect() as client:
                state = live_state(client.snapshot(), self.need)
        elif self.libvirt is not None:
            hosts = [Virsh(uri) for uri in split_uris(self.libvirt)]
            state = read_libvirt(hosts, self.need, sample_s=self.sample_s, sizes=self._sizes())
        else:
            state = read_cluster(self.files, self.need)
        return constrained(state, self.rules, self.maintenance)

    def _sizes(self) -> dict[str, Host]:
        """Hosts as files give them beside --libvirt."""
        tables = [table for path in self.files for table in read_tables(path)]
        for table in tables:
            if has_machines(table):
                raise InputError(f"{table.source}: machines: beside --libvirt a file may have hosts only")
        return {host.name: host for table in tables for host in host_rows(table)}


def constrained(state: ClusterState, rules: Path | None, maintenance: Sequence[str]) -> ClusterState:
    """The state with more rules: those of a file, and hosts that are to be empty.

    Raises InputError for names that do not exist.
    """
    instance = state.instance
    for host in maintenance:
        if host not in instance.nodes:
            known = ", ".join(instance.nodes[:8]) + (", ..." if len(instance.nodes) > 8 else "")
            raise InputError(f'--maintenance "{host}": must be a host of the snapshot: {known}')
    if maintenance:
        own = instance.rules or Rules()
        instance = replace(instance, rules=replace(own, rules=(*own.rules, Maintenance(nodes=tuple(maintenance)))))
    if rules is not None:
        instance = add_rules_file(instance, rules)
    return replace(state, instance=instance)


def live_state(snapshot: "ClusterSnapshot", need: NeedRule) -> ClusterState:
    """The state of a running dfrs cluster: its nodes, and its jobs that run, with a yield for all tasks of a job.

    `used` is the need as the cluster estimates it or as it was declared; `allocated` is what was declared, if it was.
    Jobs that ask for certain nodes, named resources or whole nodes stay where they are. Raises InputError where nothing
    runs.
    """
    from dfrs.live.protocol.resources import JobState, NodeState

    states = {NodeState.UP: "", NodeState.DRAINING: "draining", NodeState.UNHEALTHY: "unhealthy"}
    nodes = [node for node in snapshot.nodes if node.state in states]
    number = {node.name: n for n, node in enumerate(nodes)}
    there = (JobState.STARTING, JobState.RUNNING)
    jobs = [j for j in snapshot.jobs if j.state in there and j.nodes and all(n in number for n in j.nodes)]
    jobs.sort(key=lambda j: j.id)
    if not nodes or not jobs:
        raise InputError("--live: no job runs on the cluster: nothing to move")
    taken = _taken_bytes(snapshot, nodes, {job.id for job in jobs})
    instance, present = _instance_of(nodes, jobs, number, need, taken)
    waiting = sum(job.state in {JobState.WAITING, JobState.PAUSED} for job in snapshot.jobs)
    notes = [f"left out, since they wait or are paused: {show_count(waiting, 'job')}"] if waiting else []
    on_nodes = {*there, JobState.ENDING}
    left = sum(job.state in on_nodes for job in snapshot.jobs) - len(jobs)
    if left:
        notes.append(f"left out, since they end or are on nodes that do not answer: {show_count(left, 'job')}")
    if fixed := [f"job {job.id}" for job in jobs if _asks(job)]:
        notes.append(f"stay where they are (ask for certain nodes, resources or whole nodes): {', '.join(fixed)}")
    return ClusterState(instance=instance, present=present, source="live cluster", notes=tuple(notes))


def _asks(job: "Job") -> bool:
    """Whether a job could not go to just any node with room."""
    return bool(job.nodelist or job.exclude or job.constraint or job.resources or job.exclusive)


def _taken_bytes(snapshot: "ClusterSnapshot", nodes: "Sequence[Node]", seen: set[int]) -> list[float]:
    """What tasks of jobs that are not `seen` hold of each node's memory; a paused one none where pausing frees it."""
    memory = {job.id: float(job.memory_bytes) for job in snapshot.jobs if job.id not in seen}
    return [
        sum(memory.get(t.job, 0.0) for t in node.tasks if not (t.paused and node.pause_frees_memory)) for node in nodes
    ]


def _instance_of(
    nodes: "Sequence[Node]", jobs: "Sequence[Job]", number: dict[str, int], need: NeedRule, taken: Sequence[float]
) -> tuple[Instance, np.ndarray]:
    cores, memory = max(node.cpus for node in nodes), float(max(node.memory_bytes for node in nodes))
    per_task = [
        job.cpu_cores if need.by == "allocated" and job.cpu_cores is not None else job.need_cores for job in jobs
    ]
    of = np.repeat(np.arange(len(jobs)), [len(job.nodes) for job in jobs])
    present = np.array([number[name] for job in jobs for name in job.nodes], dtype=np.int64)
    rows = np.array([[job.memory_bytes / memory, c / cores] for job, c in zip(jobs, per_task, strict=True)])
    names = tuple(f"job {job.id}" for job in jobs)
    left = [node.cpus if node.left_cores is None else node.left_cores for node in nodes]
    # More may be taken than there is: a node may have come back with less memory.
    free = [max(0.0, node.memory_bytes - size) for node, size in zip(nodes, taken, strict=True)]
    instance = Instance(
        name="live cluster",
        resources=(
            Resource(name="memory", kind=Kind.RIGID, bytes_per_node=memory),
            Resource(name="cpu", kind=Kind.FLUID),
        ),
        nodes=tuple(node.name for node in nodes),
        capacity=np.array([[size / memory, c / cores] for size, c in zip(free, left, strict=True)]),
        services=names,
        minimum_yield=np.array([job.minimum_yield for job in jobs]),
        service_of=of,
        need=rows[of],
        rigid=np.tile([True, False], (len(of), 1)),
        move_cost=np.ones(len(of)),
    )
    rules = [*_staying(jobs, instance, present), *_closed(nodes, jobs, instance, present)]
    return (replace(instance, rules=Rules(rules)) if rules else instance), present


def _staying(jobs: "Sequence[Job]", instance: Instance, present: np.ndarray) -> list[Rule]:
    """Jobs whose tasks keep the nodes that they have."""
    from dfrs.rebalancing.watch import task_names

    names = task_names(instance)
    return [
        Only(services=[names[i]], nodes=[instance.nodes[n]], name=f"{names[i]} stays: it asks for nodes or resources")
        for i, n in enumerate(present.tolist())
        if _asks(jobs[int(instance.service_of[i])])
    ]


def _closed(nodes: "Sequence[Node]", jobs: "Sequence[Job]", instance: Instance, present: np.ndarray) -> list[Rule]:
    """Nodes that keep what they have and get nothing more: those that are not up, or that a job has to itself."""
    from dfrs.live.protocol.resources import NodeState
    from dfrs.rebalancing.watch import task_names

    names = task_names(instance)
    owner = {name: f"job {job.id}" for job in jobs if job.exclusive for name in job.nodes}
    rules: list[Rule] = []
    for n, node in enumerate(nodes):
        others = [name for name, where in zip(names, present.tolist(), strict=True) if where != n]
        if not others:
            continue
        if node.state != NodeState.UP:
            rules.append(Never(services=others, nodes=[node.name], name=f"{node.name} is {node.state.value}"))
        elif node.name in owner:
            rules.append(Never(services=others, nodes=[node.name], name=f"{node.name} is {owner[node.name]}'s alone"))
    return rules
