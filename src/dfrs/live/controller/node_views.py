"""The controller's nodes as users see them, with the tasks that are on them."""

import math
from collections import Counter
from collections.abc import Iterator
from functools import cached_property

from dfrs.live.controller.open_jobs import must_be_present
from dfrs.live.controller.records import JobRecord, NodeRecord, TaskRecord
from dfrs.live.controller.state import State
from dfrs.live.controller.views import Present, host_of, left_cores, node_state, present_nodes
from dfrs.live.drivers.base import TaskState
from dfrs.live.protocol.resources import JobRequest, Node, NodeState, NodeTask

MOST_GONE = 256
"""Views of tasks that are gone: so many may be kept."""
_TASK_FIELDS = set(NodeTask.model_fields)
"""Shared by all views of tasks: a set for each would need more memory than the view."""


class TaskViews:
    """Makes views of tasks on nodes, and keeps them: of thousands that are paused nothing changes."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._kept: dict[TaskRecord, tuple[int, JobRequest, NodeTask]] = {}
        """The last one of each: on which node, and of which request."""

    def forget_gone(self) -> None:
        """Keep few of tasks that are on a node no more: with them stays all that is known of their jobs."""
        on = self._state.placement.whereabouts.on
        if len(self._kept) > MOST_GONE + sum(len(on(node.number)) for node in self._state.nodes):
            self._kept = {task: kept for task, kept in self._kept.items() if task.id in on(kept[0])}

    def make(self, owner: JobRecord, task: TaskRecord, number: int) -> NodeTask:
        """A task of that job on the node of that number."""
        granted = owner.placed and task.target == number and owner.outcome is None and task.id.attempt == owner.attempt
        share = self._state.placement.share_cores(owner, task) if granted else 0.0
        used, paused, request = task.used_cores, owner.paused, owner.request
        if used is not None and host_of(task) != number:
            used = None
        place = self._kept.get(task)
        # All that the view depends on. A job that is changed has another request.
        if place is not None and place[0] == number and place[1] is request:
            made = place[2]
            if made.share_cores == share and made.used_cores == used and made.paused is paused:
                return made
        made = NodeTask.model_construct(
            _TASK_FIELDS,
            job=owner.id,
            rank=task.id.rank,
            user=owner.user,
            name=owner.name,
            share_cores=share,
            used_cores=used,
            paused=paused,
            attempt=task.id.attempt,
        )
        self._kept[task] = (number, request, made)
        return made


def node(state: State, record: NodeRecord, present: Present, task_views: TaskViews) -> Node:
    """A node. `present` is shared by all views of one instant."""
    tasks: list[NodeTask] = []
    held_bytes, used = 0, Counter[str]()
    # There may be tens of thousands of tasks: what is the same for all is looked up once.
    number, jobs, ended, default = record.number, state.jobs, TaskState.EXITED, state.settings.default_memory_bytes
    for task in state.placement.whereabouts.on(number).values():
        owner = jobs.get(task.id.job)
        if owner is None or task.at[number].state is ended:
            continue
        request = owner.request
        held_bytes += request.memory_bytes or default
        if request.resources:
            used.update(request.resources)
        tasks.append(task_views.make(owner, task, number))
    facts = record.facts
    seen_at = state.settings.clock() - (state.settings.steady() - record.seen_at)
    return Node(
        name=record.name,
        host=facts.host,
        state=node_state(state, record),
        cpus=facts.cpus,
        memory_bytes=facts.memory_bytes,
        memory_free_bytes=max(0, facts.memory_bytes - held_bytes),
        used_cores=math.fsum(task.used_cores or 0.0 for task in tasks),
        granted_cores=math.fsum(task.share_cores for task in tasks),
        outside_cores=present.outside.get(record.number),
        left_cores=left_cores(state, record),
        tasks=tuple(tasks),
        shares=facts.abilities.shares,
        caps=facts.abilities.caps,
        pause_frees_memory=facts.abilities.pause_frees_memory,
        notes=facts.abilities.notes,
        problem=record.problem,
        drain_reason=record.drain_reason,
        resources=facts.resources,
        resources_used=dict(sorted(used.items())),
        reservations=state.reservations.of_node(record.name, present.now),
        connected=record.connected,
        seen_at=seen_at,
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
