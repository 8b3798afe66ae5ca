"""The controller's nodes as users see them, with the tasks that are on them."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from dfrs.live.controller.open_jobs import must_be_present
from dfrs.live.controller.records import NodeRecord, TaskRecord
from dfrs.live.controller.state import State
from dfrs.live.controller.views import Present, host_of, left_cores, node_state, present_nodes
from dfrs.live.drivers.base import TaskState
from dfrs.live.protocol.resources import JobRequest, Node, NodeState, NodeTask

MOST_GONE = 256
"""Views of tasks that are gone: so many may be kept."""


@dataclass(slots=True)
class _Kept:
    """A view of a task, and all that it depends on. A job that is changed has another request."""

    number: int
    request: JobRequest
    share_cores: float
    used_cores: float | None
    paused: bool
    memory_bytes: int
    resources: Mapping[str, int]
    view: NodeTask


@dataclass(slots=True)
class _OnNode:
    """What a node has."""

    tasks: list[NodeTask] = field(default_factory=list[NodeTask])
    memory_bytes: int = 0
    resources: dict[str, int] = field(default_factory=dict[str, int])
    share_cores: list[float] = field(default_factory=list[float])
    used_cores: list[float] = field(default_factory=list[float])


class TaskViews:
    """Makes views of tasks on nodes, and keeps them: of thousands that are paused nothing changes."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._kept: dict[TaskRecord, _Kept] = {}
        """The last one of each."""

    def forget_gone(self) -> None:
        """Keep few of tasks that are on a node no more: with them stays all that is known of their jobs."""
        on = self._state.placement.whereabouts.on
        if len(self._kept) > MOST_GONE + sum(len(on(node.number)) for node in self._state.nodes):
            self._kept = {task: kept for task, kept in self._kept.items() if task.id in on(kept.number)}

    def make(self, number: int) -> _OnNode:
        """Of all tasks that the node of that number has."""
        # There may be tens of thousands, and most time goes into looking at things that are no longer in a cache of the
        # CPU. So no more is looked at than what may have changed.
        jobs, placement, kept = self._state.jobs, self._state.placement, self._kept
        made = _OnNode()
        for name, task in placement.whereabouts.on(number).items():
            owner = jobs.get(name.job)
            if owner is None or task.at[number].state is TaskState.EXITED:
                continue
            share, used, paused, request = 0.0, task.used_cores, owner.paused, owner.request
            if owner.placed and task.target == number and owner.outcome is None and name.attempt == owner.attempt:
                share = placement.share_cores(owner, task)
                made.share_cores.append(share)
            if used is not None:
                if host_of(task) != number:
                    used = None
                elif used:
                    made.used_cores.append(used)
            seen = kept.get(task)
            if (
                seen is None
                or seen.share_cores != share
                or seen.used_cores != used
                or seen.paused is not paused
                or seen.request is not request
                or seen.number != number
            ):
                view = NodeTask(
                    job=owner.id,
                    rank=name.rank,
                    user=owner.user,
                    name=owner.name,
                    share_cores=share,
                    used_cores=used,
                    paused=paused,
                    attempt=name.attempt,
                )
                held = self._state.memory_bytes(request), request.resources
                kept[task] = seen = _Kept(number, request, share, used, paused, *held, view)
            made.tasks.append(seen.view)
            made.memory_bytes += seen.memory_bytes
            for resource, count in seen.resources.items():
                made.resources[resource] = made.resources.get(resource, 0) + count
        return made


def node(state: State, record: NodeRecord, present: Present, task_views: TaskViews) -> Node:
    """A node. `present` is shared by all views of one instant."""
    has = task_views.make(record.number)
    facts, abilities = record.facts, record.facts.abilities
    return Node(
        name=record.name,
        host=facts.host,
        state=node_state(state, record),
        cpus=facts.cpus,
        memory_bytes=facts.memory_bytes,
        memory_free_bytes=max(0, facts.memory_bytes - has.memory_bytes),
        used_cores=math.fsum(has.used_cores),
        granted_cores=math.fsum(has.share_cores),
        outside_cores=present.outside.get(record.number),
        left_cores=left_cores(state, record),
        tasks=tuple(has.tasks),
        shares=abilities.shares,
        caps=abilities.caps,
        pause_frees_memory=abilities.pause_frees_memory,
        notes=abilities.notes,
        problem=record.problem,
        drained=record.drained,
        drain_reason=record.drain_reason,
        resources=facts.resources,
        resources_used=dict(sorted(has.resources.items())),
        reservations=state.reservations.of_node(record.name, present.now),
        connected=record.connected,
        seen_at=state.settings.clock() - (state.settings.steady() - record.seen_at),
        version=facts.version,
        features=facts.features,
    )


class PresentNodes:
    """Nodes at one instant: as long as the state is what it was, they can be looked at."""

    def __init__(self, state: State, present: Present, task_views: TaskViews) -> None:
        self._state = state
        self._version = state.version
        self._present = present
        self._task_views = task_views
        self._records = present_nodes(state)

    def states(self) -> Iterator[tuple[NodeRecord, NodeState]]:
        """All of them, and what each is."""
        return ((record, node_state(self._state, record)) for record in self._records)

    @cached_property
    def all(self) -> tuple[Node, ...]:
        """By name."""
        must_be_present(self._state, self._version)
        self._task_views.forget_gone()
        return tuple(node(self._state, record, self._present, self._task_views) for record in self._records)
