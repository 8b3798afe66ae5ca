"""What executors cannot do, no target may ask: a policy's target made one that they can perform.

Three rules:

(a) Where a paused task stays in memory, the policy pauses nobody.
(b) A job that has started stays in its island: each task that moves, or resumes elsewhere, does so between nodes of
    equal island.
(c) On each node the minimum yields have room: need * minimum, added up over its tasks, is at most its CPU. A node that
    has more than that now, since needs were revised, may keep what it has, but no more is promised there.

A target that breaks one is not repaired by parts, since a policy's decision is one whole: running jobs stay where they
are, and the jobs that the target starts or resumes are placed beside them as far as the rules let them, in the order of
submission: on the nodes that the target names, or else, task by task, on the open node of least CPU load. The others
wait, and `Target.why` says for what.

Where minimum yields are agreed, or running jobs were kept, CPU is shared anew: the least *scaled* yield, (yield -
minimum) / (1 - minimum), is made as large as it can be, then the next. On a node whose CPU is too little for its
minimum yields, these are scaled down together. An exclusive policy's yields are its own.
"""

from dataclasses import dataclass, replace

import numpy as np

from dfrs.engine.cluster import NodeTable
from dfrs.engine.commands import DETACH
from dfrs.engine.held_jobs import LastIslands
from dfrs.engine.reconcile import reconcile
from dfrs.kernels.reconcile import keep_slots
from dfrs.kernels.shares import fill
from dfrs.model import tolerances
from dfrs.model.decisions import CPU, MEMORY, PAUSED, RUNNING, Snapshot, Target
from dfrs.model.instance import Bools, Floats, Ints

MARGIN = tolerances.CAPACITY / 2
"""How far memory and minimum yields may pass a node's capacity; the rest is for those who add in another order."""
LEAST_SLOPE = 1e-6
"""A job whose minimum yield is 1 rises to it, as a line must, but before everybody else."""

NO_ROOM = "waits: running jobs keep their nodes"
KEPT_MEMORY = "waits: pauses keep memory here"
OTHER_ISLAND = "waits: its island has no room"
NO_MINIMUM = "waits: its minimum yield has no room"
OTHERS_MINIMUM = "waits: the minimum yields of others leave no room"


@dataclass(frozen=True, slots=True, eq=False)
class Limits:
    """What executors can do, and what the policy is."""

    cluster: NodeTable
    last_islands: LastIslands
    """Where paused jobs were."""
    exclusive: bool = False
    """The policy gives jobs all of their full need."""
    dedicated: bool = False
    """The policy gives jobs with a requested start all of their full need."""


def guard(snapshot: Snapshot, target: Target, limits: Limits) -> Target:
    """`target`, which must be admissible, or the admissible one that the rules make of it."""
    agreed = bool((snapshot.jobs["minimum"] > 0).any())
    whole = _whole(snapshot, target, limits)
    slots = _in_their_islands(snapshot, target, limits)
    broken = slots is None or _pauses_what_stays(snapshot, slots, limits)
    if slots is None or broken or (agreed and _promises_too_much(snapshot, slots, whole)):
        return _beside_those_that_run(snapshot, target, whole, limits)
    shared = target
    if agreed and not limits.exclusive:
        shared = replace(target, task_nodes=slots, yields=_fair_yields(snapshot, slots, whole))
    elif slots is not target.task_nodes:
        shared = replace(target, task_nodes=slots)
    return _beside_those_that_run(snapshot, target, whole, limits) if _detaches(snapshot, shared, limits) else shared


def _whole(snapshot: Snapshot, target: Target, limits: Limits) -> Bools:
    """(R,) to which jobs the policy gives all of their need because of their requested start."""
    return limits.dedicated & ~np.isnan(snapshot.jobs["requested_start_s"]) & (target.yields == 1.0)


def _minimum(snapshot: Snapshot, whole: Bools) -> Floats:
    """(R,) minimum yields; those of jobs that have all of their need are 1."""
    return np.where(whole, 1.0, snapshot.jobs["minimum"])


def _tasks(snapshot: Snapshot, row: int) -> slice:
    return slice(int(snapshot.first[row]), int(snapshot.first[row + 1]))


def _placed(snapshot: Snapshot, slots: Ints, state: int) -> list[int]:
    """Rows of that state that have nodes in `slots`."""
    return np.flatnonzero((slots[snapshot.first[:-1]] >= 0) & (snapshot.jobs["state"] == state)).tolist()


def _in_their_islands(snapshot: Snapshot, target: Target, limits: Limits) -> Ints | None:
    """The target's slots with each resumed task in its island, None where rule (b) is broken."""
    slots, island = target.task_nodes, limits.cluster.island
    if not limits.cluster.several:
        return slots
    count = np.zeros(len(island), np.int64)
    for row in _placed(snapshot, slots, RUNNING):
        before, after = snapshot.task_nodes[_tasks(snapshot, row)], slots[_tasks(snapshot, row)].copy()
        # Task by task as the commands will name them.
        keep_slots(before, after, 0, len(after), count)
        if (island[after] != island[before]).any():
            return None
    for row in _placed(snapshot, slots, PAUSED):
        part = _tasks(snapshot, row)
        after = _matched(slots[part], _home(snapshot, row, limits), island)
        if after is None:
            return None
        if (after != slots[part]).any():
            slots = slots.copy()
            slots[part] = after
    return slots


def _home(snapshot: Snapshot, row: int, limits: Limits) -> Ints:
    """The island of each task of a row without nodes, -1 where it may be any."""
    job = snapshot.jobs[row]
    if job["state"] == PAUSED and limits.cluster.several:
        return limits.last_islands.of(int(job["serial"]), int(job["tasks"]))
    return np.full(int(job["tasks"]), -1)


def _matched(nodes: Ints, home: Ints, island: Ints) -> Ints | None:
    """`nodes` in an order in which each is in the island `home` (-1: any), None if there is none."""
    matched = np.where((home >= 0) & (island[nodes] == home), nodes, -1)
    left = nodes[matched < 0].tolist()
    for s in np.flatnonzero((matched < 0) & (home >= 0)).tolist():
        found = next((n for n in left if island[n] == home[s]), None)
        if found is None:
            return None
        left.remove(found)
        matched[s] = found
    matched[matched < 0] = left
    return matched


def _pauses_what_stays(snapshot: Snapshot, slots: Ints, limits: Limits) -> bool:
    """Whether rule (a) is broken."""
    paused = (snapshot.jobs["state"] == RUNNING) & (slots[snapshot.first[:-1]] < 0)
    rows = np.flatnonzero(paused).tolist()
    return any(limits.cluster.keeps[snapshot.task_nodes[_tasks(snapshot, row)]].any() for row in rows)


def _on_nodes(snapshot: Snapshot, slots: Ints, each: Floats) -> Floats:
    """(N,) the sum of what each row's tasks have, `each` (R,), over the tasks on a node."""
    there = slots >= 0
    amounts = np.repeat(each, snapshot.jobs["tasks"])
    return np.bincount(slots[there], amounts[there], len(snapshot.capacity)).astype(np.float64)


def _promises_too_much(snapshot: Snapshot, slots: Ints, whole: Bools) -> bool:
    """Whether rule (c) is broken."""
    each = snapshot.jobs["need"] * _minimum(snapshot, whole)
    limit = np.maximum(snapshot.capacity[:, CPU], _on_nodes(snapshot, snapshot.task_nodes, each))
    return bool((_on_nodes(snapshot, slots, each) > limit + MARGIN).any())


def _detaches(snapshot: Snapshot, target: Target, limits: Limits) -> bool:
    """Whether a job whose memory stays would have to leave its nodes for a moment: a pause as in rule (a)."""
    keeps = limits.cluster.keeps
    if not keeps.any() or (target.task_nodes == snapshot.task_nodes).all():
        return False
    _, _, order, steps = reconcile(snapshot, target)
    return any(keeps[snapshot.task_nodes[_tasks(snapshot, row)]].any() for row in order[steps == DETACH])


def _fair_yields(snapshot: Snapshot, slots: Ints, whole: Bools) -> Floats:
    """(R,) yields whose scaled values are max-min fair.

    Where minimum yields have no room, all but those of jobs that have all of their need are scaled down together.
    """
    jobs, base = snapshot.jobs, _minimum(snapshot, whole)
    first = _on_nodes(snapshot, slots, jobs["need"] * whole)
    cpu = np.maximum(snapshot.capacity[:, CPU] - first, 0.0)
    promised = _on_nodes(snapshot, slots, jobs["need"] * np.where(whole, 0.0, base))
    part = np.divide(cpu, promised, out=np.ones(len(cpu)), where=promised > cpu)
    for row in np.flatnonzero(~whole & (base > 0)).tolist():
        if slots[snapshot.first[row]] >= 0:
            base[row] *= part[slots[_tasks(snapshot, row)]].min()
    yields = np.empty(len(jobs))
    fill(jobs, snapshot.first, slots, snapshot.capacity, base, np.maximum(1.0 - base, LEAST_SLOPE), 0.0, False, yields)
    return yields


def _beside_those_that_run(snapshot: Snapshot, target: Target, whole: Bools, limits: Limits) -> Target:
    """Running jobs where they are, and beside them, as far as the rules let them, those that the target places."""
    room = _Room(snapshot, _minimum(snapshot, whole), limits)
    slots, yields = snapshot.task_nodes.copy(), snapshot.jobs["yield_"].copy()
    why = dict(target.why)
    waiting = (snapshot.jobs["state"] != RUNNING) & (target.task_nodes[snapshot.first[:-1]] >= 0)
    for row in np.flatnonzero(waiting).tolist():
        part = _tasks(snapshot, row)
        nodes = room.find(row, target)
        if nodes is None:
            why[int(snapshot.jobs["id"][row])] = room.what_is_missing(row, target)
            continue
        room.take(row, nodes, target)
        slots[part] = nodes
        yields[row] = target.yields[row]
    if not limits.exclusive:
        yields = _fair_yields(snapshot, slots, whole)
    return replace(target, task_nodes=slots, yields=yields, why=why)


class _Room:
    """What is left of the nodes beside running jobs and those placed so far."""

    def __init__(self, snapshot: Snapshot, minimum: Floats, limits: Limits) -> None:
        self._snapshot, self._limits = snapshot, limits
        self._each: Floats = snapshot.jobs["need"] * minimum
        jobs, slots = snapshot.jobs, snapshot.task_nodes
        self._load = _on_nodes(snapshot, slots, jobs["need"])
        cpu, memory = snapshot.capacity[:, CPU], snapshot.capacity[:, MEMORY]
        self._memory = memory + MARGIN - _on_nodes(snapshot, slots, jobs["memory"])
        self._promise = cpu + MARGIN - _on_nodes(snapshot, slots, self._each)
        self._cpu = cpu + MARGIN - _on_nodes(snapshot, slots, jobs["need"] * jobs["yield_"])

    def find(self, row: int, target: Target, *, anywhere: bool = False, unpromised: bool = False) -> Ints | None:
        """A node for each task of a row: the target's, or else the least loaded ones; None if there are too few.

        An exclusive policy's jobs have the target's nodes or none: its nodes are whole. `anywhere` and `unpromised`
        leave out the rules (b) and (c).
        """
        snapshot, island = self._snapshot, self._limits.cluster.island
        home = np.full(int(snapshot.jobs["tasks"][row]), -1) if anywhere else _home(snapshot, row, self._limits)
        named = _matched(target.task_nodes[_tasks(snapshot, row)], home, island)
        if named is not None and self._has_room(row, named, target, unpromised=unpromised):
            return named
        return None if self._limits.exclusive else self._search(row, home, unpromised=unpromised)

    def _has_room(self, row: int, nodes: Ints, target: Target, *, unpromised: bool) -> bool:
        job = self._snapshot.jobs[row]
        tasks = np.bincount(nodes, minlength=len(self._load))
        fits = (tasks == 0) | (self._snapshot.open & (tasks * job["memory"] <= self._memory))
        if self._each[row] > 0 and not unpromised:
            fits &= (tasks == 0) | (tasks * self._each[row] <= self._promise)
        if self._limits.exclusive:
            fits &= (tasks == 0) | (tasks * job["need"] * target.yields[row] <= self._cpu)
        return bool(fits.all())

    def _search(self, row: int, home: Ints, *, unpromised: bool) -> Ints | None:
        snapshot = self._snapshot
        job, cpu = snapshot.jobs[row], snapshot.capacity[:, CPU]
        usable = snapshot.open & (cpu > 0)
        memory, promise, load = self._memory.copy(), self._promise.copy(), self._load.copy()
        each = 0.0 if unpromised else float(self._each[row])
        nodes = np.empty(len(home), np.int64)
        for s, where in enumerate(home.tolist()):
            fits = usable & (job["memory"] <= memory)
            if each > 0:
                fits &= each <= promise
            if where >= 0:
                fits &= self._limits.cluster.island == where
            if not fits.any():
                return None
            there = np.flatnonzero(fits)
            n = there[np.argmin((load[there] + job["need"]) / cpu[there])]
            nodes[s] = n
            memory[n] -= job["memory"]
            promise[n] -= each
            load[n] += job["need"]
        return nodes

    def take(self, row: int, nodes: Ints, target: Target) -> None:
        """Place a row on these nodes."""
        job = self._snapshot.jobs[row]
        np.subtract.at(self._memory, nodes, job["memory"])
        np.subtract.at(self._promise, nodes, self._each[row])
        np.subtract.at(self._cpu, nodes, job["need"] * target.yields[row])
        np.add.at(self._load, nodes, job["need"])

    def what_is_missing(self, row: int, target: Target) -> str:
        """For what a row waits that `find` finds no nodes for."""
        if self.find(row, target, unpromised=True) is not None:
            return NO_MINIMUM if self._snapshot.jobs["minimum"][row] > 0 else OTHERS_MINIMUM
        if self.find(row, target, anywhere=True) is not None:
            return OTHER_ISLAND
        return KEPT_MEMORY if self._limits.cluster.keeps.any() else NO_ROOM
