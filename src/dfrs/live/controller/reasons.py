"""Why a job waits that the policy has seen, worked out from the core's present."""

import math
import time
from functools import cached_property

import numpy as np

from dfrs.engine import permitted_nodes
from dfrs.engine.aside import leave_aside
from dfrs.engine.resource_room import ResourceRoom, room_of
from dfrs.live.controller.records import JobRecord
from dfrs.live.controller.state import State
from dfrs.live.protocol.node_choice import asks, in_words, number
from dfrs.model import tolerances
from dfrs.model.decisions import CPU, MEMORY, PAUSED, RUNNING, Snapshot, traits_of
from dfrs.model.instance import Bools, Floats
from dfrs.model.nodes import most_tasks

GIB, MIB = 1 << 30, 1 << 20


class Waiting:
    """Why jobs wait, at one instant: what is the same for all of them is worked out once. Some node is open."""

    def __init__(self, state: State, now: float) -> None:
        self._state = state
        self._snapshot = state.picture.snapshot
        self._now = now
        self._exclusive = state.exclusive
        self._too_large: dict[int, str] = {}
        """By memory in bytes."""
        self._too_many_now: dict[tuple[int, float, float, int], str] = {}
        """By memory in bytes, CPU need, memory and number of tasks."""
        self._permitted: dict[tuple[int, float, float, int], str] = {}
        """By constraint, CPU need, memory and number of tasks."""

    @cached_property
    def _fits(self) -> Bools:
        seen = leave_aside(self._snapshot, traits_of(self._state.policy))
        return np.ones(len(self._snapshot.jobs), np.bool_) if seen is None else seen.rows

    @cached_property
    def _room(self) -> ResourceRoom | None:
        return room_of(self._snapshot, traits_of(self._state.policy))

    @cached_property
    def _memory_left(self) -> Floats:
        return _memory_left(self._snapshot)

    @cached_property
    def _sizes(self) -> list[tuple[float, float, int]]:
        """CPU need, memory and number of tasks, by row."""
        jobs = self._snapshot.jobs
        return list(zip(jobs["need"].tolist(), jobs["memory"].tolist(), jobs["tasks"].tolist(), strict=True))

    def why(self, job: JobRecord, row: int) -> str:
        """Why the job in this row of the picture waits."""
        state, snapshot, now = self._state, self._snapshot, self._now
        start_at = job.request.start_at
        if start_at is not None and state.wall(float(snapshot.jobs["requested_start_s"][row])) > now:
            return requested_start(start_at, now)
        said = self._of_permitted(job, row) or self._always(job, row)
        if said:
            return said
        if self._exclusive:
            first = self._first
            return f"waits behind job {snapshot.jobs['id'][first]}" if first < row else _no_nodes(state, row, now)
        return self._at_present(job, row) or state.whys.get(job.id) or _next_decision(state, now)

    def _of_permitted(self, job: JobRecord, row: int) -> str:
        """Where it may not run on every node: what is missing on those on which it may. Many jobs are alike."""
        if self._snapshot.permitted is None or not asks(job.request):
            return ""
        like = (number(job.request), *self._sizes[row])
        if like not in self._permitted:
            said = _too_few_permitted(self._snapshot, row, bool(self._fits[row]), self._left_whole)
            self._permitted[like] = f"{said} ({in_words(job.request)})" if said else ""
        return self._permitted[like]

    @cached_property
    def _left_whole(self) -> Floats:
        """(N, 2) CPU and memory of nodes that jobs can have now: none of those that an exclusive policy's have."""
        left = self._snapshot.capacity.copy()
        left[:, MEMORY] = self._memory_left
        if self._exclusive:
            left[~_whole(self._snapshot)] = -1.0
        return left

    @cached_property
    def _first(self) -> int:
        return _first_in_queue(self._snapshot, self._fits, self._state.time_s(self._now))

    def _always(self, job: JobRecord, row: int) -> str:
        """Where the open nodes could not hold it even if they were empty, or others have what it is to have alone."""
        if self._room is not None and (said := self._room.why(row)):
            return said
        bytes_ = self._state.memory_bytes(job.request)
        if bytes_ not in self._too_large:
            self._too_large[bytes_] = _too_little(self._state, job, self._snapshot.capacity[:, MEMORY], free=False)
        said = self._too_large[bytes_]
        return said or ("" if self._fits[row] else _too_many(self._snapshot, row, exclusive=self._exclusive))

    def _at_present(self, job: JobRecord, row: int) -> str:
        """Where the open nodes have too little left for it. Many jobs are alike."""
        like = (self._state.memory_bytes(job.request), *self._sizes[row])
        if like not in self._too_many_now:
            said = _too_little(self._state, job, self._memory_left, free=True)
            self._too_many_now[like] = said or _too_few(self._snapshot, row, self._memory_left)
        return self._too_many_now[like]


def _too_few_permitted(snapshot: Snapshot, row: int, fits: bool, left: Floats) -> str:
    """For which nodes a row waits that may not use all, while so much is `left` (N, 2) of them; empty if for none."""
    job, permitted = snapshot.jobs[row], permitted_nodes.permitted_to(snapshot, row)
    there = permitted & snapshot.open & (snapshot.capacity[:, CPU] > 0)
    if permitted.all() or not there.any():
        return "" if permitted.all() else permitted_nodes.NOT_UP
    if not fits:
        return permitted_nodes.TOO_SMALL
    exclusive = bool((left[there, CPU] < 0).any())
    each = left[there & (left[:, CPU] > 0)].clip(0.0)
    most = most_tasks(each, float(job["need"]), float(job["memory"]), exclusive=exclusive)
    return permitted_nodes.NO_ROOM if most < job["tasks"] else ""


def requested_start(start_at: float, now: float) -> str:
    """In words: it is to start later, at that time of the wall clock."""
    return f"waits for its requested start at {clock_words(start_at, now)}"


def _no_nodes(state: State, row: int, now: float) -> str:
    """Why the first in the queue of an exclusive policy does not start."""
    snapshot = state.picture.snapshot
    if not (_whole(snapshot) & snapshot.open).any():
        return "waits: no node is free"
    said = _too_few(snapshot, row) or state.whys.get(int(snapshot.jobs["id"][row]), "")
    if said:
        return said
    ahead = np.flatnonzero(snapshot.jobs["requested_start_s"] > state.time_s(now))
    if len(ahead):
        soonest = ahead[np.argmin(snapshot.jobs["requested_start_s"][ahead])]
        at = clock_words(state.wall(float(snapshot.jobs["requested_start_s"][soonest])), now)
        return f"waits: nodes are kept for job {snapshot.jobs['id'][soonest]}, which is to start at {at}"
    return _next_decision(state, now)


def _too_little(state: State, job: JobRecord, memory: Floats, *, free: bool) -> str:
    """Where no open node has (`free`) memory enough for one task: how much one needs, and the most there is."""
    need = state.memory_bytes(job.request)
    most = np.where(state.picture.snapshot.open, memory, -1.0)
    node, reference = int(np.argmax(most)), state.reference_bytes or 1
    if need <= (most[node] + tolerances.CAPACITY) * reference:
        return ""
    there = f"{_size((float(most[node]) + tolerances.CAPACITY) * reference, up=False)} on {state.nodes[node].name}"
    whose, kind = ("no node", "memory free") if free else ("no node that is up", "memory")
    return f"waits: {whose} has {_size(need, up=True)} of {kind}; the most is {there}"


def _too_few(snapshot: Snapshot, row: int, left: Floats | None = None) -> str:
    """Where not all tasks of a row fit at once: how many do. `left`: (N,) memory that others leave of nodes; None: the
    policy is exclusive, and they need CPU too, on nodes of theirs.
    """
    job, cpu = snapshot.jobs[row], snapshot.capacity[:, CPU]
    usable = snapshot.open & (cpu > 0)
    memory = snapshot.capacity[:, MEMORY] if left is None else left
    each = np.full(len(cpu), float(job["tasks"]))
    if job["memory"] > 0:
        each = np.minimum(each, np.floor((memory + tolerances.CAPACITY) / float(job["memory"])))
    if left is None:
        usable &= _whole(snapshot)
        each = np.minimum(each, np.floor((cpu + tolerances.CAPACITY) / float(job["need"])))
    tasks, fit = int(job["tasks"]), int(each[usable].clip(0.0).sum())
    if fit >= tasks:
        return ""
    if not fit:
        return "waits: no free node is large enough"
    return f"waits: only {fit} of its {tasks} tasks {'fits' if fit == 1 else 'fit'} now"


def _too_many(snapshot: Snapshot, row: int, *, exclusive: bool) -> str:
    """How many tasks of a row the open nodes would hold if they were empty: too few."""
    job = snapshot.jobs[row]
    usable = snapshot.capacity[snapshot.open & (snapshot.capacity[:, CPU] > 0)]
    most = most_tasks(usable, float(job["need"]), float(job["memory"]), exclusive=exclusive)
    return f"waits: the nodes that are up can hold only {int(most)} of its {job['tasks']} tasks"


def _first_in_queue(snapshot: Snapshot, fits: Bools, now_s: float) -> int:
    """The first row without nodes that could start by now, were nodes free."""
    jobs = snapshot.jobs
    queued = fits & (jobs["state"] != RUNNING) & (jobs["state"] != PAUSED) & ~(jobs["requested_start_s"] > now_s)
    rows = np.flatnonzero(queued)
    return int(rows[0]) if len(rows) else len(jobs)


def _whole(snapshot: Snapshot) -> Bools:
    """(N,) nodes without any task."""
    there = snapshot.task_nodes[snapshot.task_nodes >= 0]
    return np.bincount(there, minlength=len(snapshot.capacity)) == 0


def _memory_left(snapshot: Snapshot) -> Floats:
    """(N,) memory that running tasks leave of nodes."""
    there = snapshot.task_nodes >= 0
    each = np.repeat(snapshot.jobs["memory"], snapshot.jobs["tasks"])[there]
    used = np.bincount(snapshot.task_nodes[there], each, len(snapshot.capacity))
    return snapshot.capacity[:, MEMORY] - used


def _next_decision(state: State, now: float) -> str:
    """It has room, and the policy has not started it yet."""
    wake_at_s = state.picture.wake_at_s
    if wake_at_s is None or state.wall(wake_at_s) <= now:
        return "waits for the policy's next decision"
    return f"waits for the policy's next decision, at {clock_words(state.wall(wake_at_s), now)} at the latest"


def clock_words(at: float, now: float) -> str:
    """A wall clock's time, with the day if it is another one."""
    there, here = time.localtime(at), time.localtime(now)
    return time.strftime("%H:%M:%S" if there[:3] == here[:3] else "%Y-%m-%d %H:%M:%S", there)


def _size(bytes_: float, *, up: bool) -> str:
    """Rounded so that too little never looks like enough."""
    unit, name, parts = (GIB, "GiB", 100) if bytes_ >= GIB else (MIB, "MiB", 1)
    rounded = math.ceil(bytes_ * parts / unit) if up else math.floor(bytes_ * parts / unit)
    return f"{rounded / parts:g} {name}"
