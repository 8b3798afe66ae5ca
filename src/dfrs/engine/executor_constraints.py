"""What executors cannot do, no target may ask: a policy's target made one that they can perform.

Rules:

(a) Nobody is paused whose memory would stay where it is, because of the node or because a pause of that job was
    refused not long ago, also not for a moment: of jobs there that exchange their nodes, one would have to leave before
    another comes, if memory is full. Jobs that may begin anew are ended there instead of paused.
(b) A job that has started stays in its island: each task that moves, or resumes elsewhere, does so between nodes of
    equal island. One whose move was refused not long ago does not move at all.
(c) On each node the minimum yields have room: need * minimum, added up over its tasks and over those of held jobs whose
    memory stayed there, is at most its CPU. A node that has more than that now, since needs were revised, may keep what
    it has, but no more is promised there.
(d) A task comes only to a node that its job may use; those that are on another one may stay there
    (`dfrs.engine.permitted_nodes`).
(e) What only some jobs can have at a time: named resources of nodes, and nodes of jobs that are alone there; see
    `resource_room.py`.

A target that breaks one is repaired part by part. From the present, what can be done is done in this order: pauses;
moves, as long as any finds room for its memory; starts and resumes, in the order of submission, on the nodes that the
target names, or else, task by task, on the open node of least CPU load, of those that the job may use. Last, whoever
was paused for a job that could not come after all is left where it is, unless others needed its room on their way. Jobs
that the target starts or resumes and that found no room wait, and `Target.why` says for what.

Where minimum yields are agreed, or a target was repaired, CPU is shared anew: the least *scaled* yield, (yield -
minimum) / (1 - minimum), is made as large as it can be, then the next. Where the policy's yields follow weights, a
job's scaled yield counts divided by its weight. On a node whose CPU is too little for its minimum yields, these are
scaled down together. An exclusive policy's yields are its own.
"""

from dataclasses import replace

import numpy as np

from dfrs.engine import permitted_nodes
from dfrs.engine.commands import DETACH
from dfrs.engine.permitted_nodes import may_come, permitted_to
from dfrs.engine.reconcile import reconcile
from dfrs.engine.resource_room import ResourceRoom, overbooks
from dfrs.kernels.reconcile import keep_slots
from dfrs.kernels.shares import fill
from dfrs.model import tolerances
from dfrs.model.decisions import CPU, MEMORY, PAUSED, RUNNING, Abilities, Snapshot, Target, Traits
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


def guard(snapshot: Snapshot, target: Target, traits: Traits) -> Target:
    """`target`, which must be admissible, or the admissible one that the rules make of it."""
    agreed = bool((snapshot.jobs["minimum"] > 0).any())
    whole = _whole(snapshot, target, traits)
    abilities = snapshot.abilities or _everything(snapshot)
    slots = _in_their_islands(snapshot, target, abilities)
    broken = slots is None or permitted_nodes.breaks(snapshot, slots) or _pauses_what_stays(snapshot, slots, abilities)
    if slots is not None and abilities.named is not None:
        broken = broken or overbooks(snapshot, slots, abilities.named, exclusive=traits.exclusive)
    if slots is None or broken or (agreed and _promises_too_much(snapshot, slots, whole, abilities)):
        return _by_parts(snapshot, target, whole, abilities, traits)
    shared = target
    if agreed and not traits.exclusive:
        shared = replace(target, task_nodes=slots, yields=_fair_yields(snapshot, slots, whole, traits))
    elif slots is not target.task_nodes:
        shared = replace(target, task_nodes=slots)
    if _detaches(snapshot, shared, abilities):
        return _by_parts(snapshot, target, whole, abilities, traits)
    return shared


def _everything(snapshot: Snapshot) -> Abilities:
    """Abilities that limit nothing."""
    nodes, slots = len(snapshot.capacity), len(snapshot.task_nodes)
    none = np.zeros(len(snapshot.jobs), np.bool_)
    return Abilities(
        np.zeros(nodes, np.bool_),
        np.zeros(nodes, np.int64),
        np.full(slots, -1, np.int64),
        none,
        none,
        none,
        np.zeros(nodes),
    )


def _whole(snapshot: Snapshot, target: Target, traits: Traits) -> Bools:
    """(R,) to which jobs the policy gives all of their need because of their requested start."""
    return traits.dedicated & ~np.isnan(snapshot.jobs["requested_start_s"]) & (target.yields == 1.0)


def _minimum(snapshot: Snapshot, whole: Bools) -> Floats:
    """(R,) minimum yields; those of jobs that have all of their need are 1."""
    return np.where(whole, 1.0, snapshot.jobs["minimum"])


def _tasks(snapshot: Snapshot, row: int) -> slice:
    return slice(int(snapshot.first[row]), int(snapshot.first[row + 1]))


def _rows(snapshot: Snapshot, slots: Ints, state: int, *, placed: bool = True) -> list[int]:
    """Rows of that state that have nodes in `slots`, or have none."""
    return np.flatnonzero(((slots[snapshot.first[:-1]] >= 0) == placed) & (snapshot.jobs["state"] == state)).tolist()


def _in_their_islands(snapshot: Snapshot, target: Target, abilities: Abilities) -> Ints | None:
    """The target's slots with each resumed task in its island, None where rule (b) is broken."""
    slots, island = target.task_nodes, abilities.island
    if not (abilities.fixed.any() or (island[1:] != island[:-1]).any()):
        return slots
    count = np.zeros(len(island), np.int64)
    changed = np.add.reduceat(np.append(slots != snapshot.task_nodes, False), snapshot.first[:-1]) > 0
    for row in _rows(snapshot, slots, RUNNING):
        if changed[row] and _moved(snapshot, row, slots, abilities, count) is None:
            return None
    for row in _rows(snapshot, slots, PAUSED):
        part = _tasks(snapshot, row)
        after = _matched(slots[part], abilities.home[part], island)
        if after is None:
            return None
        if (after != slots[part]).any():
            slots = slots.copy()
            slots[part] = after
    return slots


def _moved(snapshot: Snapshot, row: int, slots: Ints, abilities: Abilities, count: Ints) -> Ints | None:
    """A running row's nodes in `slots`, task by task as the commands will name them; None where one may not go there.

    `count` (N,) is zero before and after.
    """
    before, after = snapshot.task_nodes[_tasks(snapshot, row)], slots[_tasks(snapshot, row)].copy()
    keep_slots(before, after, 0, len(after), count)
    left = before != after if abilities.fixed[row] else abilities.island[after] != abilities.island[before]
    return None if left.any() else after


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


def _keep_memory(snapshot: Snapshot, row: int, abilities: Abilities) -> bool:
    """Whether a running row would keep memory of any of its nodes if it were paused, were it for a moment."""
    return bool(abilities.refused[row] or abilities.keeps[snapshot.task_nodes[_tasks(snapshot, row)]].any())


def to_be_ended(snapshot: Snapshot, rows: Ints) -> Ints:
    """Of running rows that are to be paused: those that are ended instead, to begin anew."""
    abilities = snapshot.abilities
    if abilities is None or not abilities.restarts.any():
        return rows[:0]
    return np.array([row for row in rows.tolist() if _keep_memory(snapshot, row, abilities)], np.int64)


def _cannot_go(snapshot: Snapshot, row: int, abilities: Abilities) -> bool:
    """Whether a running row can be neither paused nor ended."""
    return not abilities.restarts[row] and _keep_memory(snapshot, row, abilities)


def _pauses_what_stays(snapshot: Snapshot, slots: Ints, abilities: Abilities) -> bool:
    """Whether rule (a) is broken by a pause."""
    return any(_cannot_go(snapshot, row, abilities) for row in _rows(snapshot, slots, RUNNING, placed=False))


def _on_nodes(snapshot: Snapshot, slots: Ints, each: Floats) -> Floats:
    """(N,) the sum of what each row's tasks have, `each` (R,), over the tasks on a node."""
    there = slots >= 0
    amounts = np.repeat(each, snapshot.jobs["tasks"])
    return np.bincount(slots[there], amounts[there], len(snapshot.capacity)).astype(np.float64)


def _promises_too_much(snapshot: Snapshot, slots: Ints, whole: Bools, abilities: Abilities) -> bool:
    """Whether rule (c) is broken."""
    each = snapshot.jobs["need"] * _minimum(snapshot, whole)
    room = snapshot.capacity[:, CPU] - abilities.reserved
    limit = np.maximum(room, _on_nodes(snapshot, snapshot.task_nodes, each))
    return bool((_on_nodes(snapshot, slots, each) > limit + MARGIN).any())


def _detaches(snapshot: Snapshot, target: Target, abilities: Abilities) -> bool:
    """Whether rule (a) is broken by moves: a job whose memory stays would have to leave its nodes for a moment."""
    if not abilities.retains or (target.task_nodes == snapshot.task_nodes).all():
        return False
    _, _, order, steps = reconcile(snapshot, target)
    return any(_keep_memory(snapshot, row, abilities) for row in order[steps == DETACH].tolist())


def _fair_yields(snapshot: Snapshot, slots: Ints, whole: Bools, traits: Traits) -> Floats:
    """(R,) yields whose scaled values, divided by weights where the policy's yields follow them, are max-min fair.

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
    slope = np.maximum(1.0 - base, LEAST_SLOPE)
    if traits.weighted and len(jobs):
        slope *= jobs["weight"] / jobs["weight"].max()
    fill(jobs, snapshot.first, slots, snapshot.capacity, base, slope, 0.0, False, yields)
    return yields


def _by_parts(snapshot: Snapshot, target: Target, whole: Bools, abilities: Abilities, traits: Traits) -> Target:
    """What of the target can be done, part by part."""
    room = _Room(snapshot, _minimum(snapshot, whole), abilities, traits)
    slots, yields = snapshot.task_nodes.copy(), snapshot.jobs["yield_"].copy()
    paused = [
        row
        for row in _rows(snapshot, target.task_nodes, RUNNING, placed=False)
        if not _cannot_go(snapshot, row, abilities)
    ]
    for row in paused:
        room.take(row, slots[_tasks(snapshot, row)], yields[row], -1.0)
        slots[_tasks(snapshot, row)] = -1
        yields[row] = 0.0
    for row, nodes in _moves(snapshot, target, abilities, room):
        slots[_tasks(snapshot, row)] = nodes
        yields[row] = target.yields[row]
    if traits.exclusive:
        # Those whose yields become less make room for the others.
        for row in sorted(_staying(snapshot, slots, target), key=lambda row: target.yields[row] - yields[row]):
            if room.reshare(row, slots[_tasks(snapshot, row)], float(yields[row]), float(target.yields[row])):
                yields[row] = target.yields[row]
    why = dict(target.why)
    coming = (snapshot.jobs["state"] != RUNNING) & (target.task_nodes[snapshot.first[:-1]] >= 0)
    for row in np.flatnonzero(coming).tolist():
        nodes = room.place(row, target)
        if nodes is None:
            why[int(snapshot.jobs["id"][row])] = room.what_is_missing(row, target)
            continue
        slots[_tasks(snapshot, row)] = nodes
        yields[row] = target.yields[row]
    if len(why) > len(target.why) and not traits.exclusive:
        for row in paused:
            nodes = snapshot.task_nodes[_tasks(snapshot, row)]
            if not room.has(row, nodes, target, stays=True):
                continue
            with_it = slots.copy()
            with_it[_tasks(snapshot, row)] = nodes
            # Others may have come through the room that it was to leave.
            if not _detaches(snapshot, replace(target, task_nodes=with_it), abilities):
                room.take(row, nodes, target.yields[row])
                slots = with_it
    if not traits.exclusive:
        yields = _fair_yields(snapshot, slots, whole, traits)
    return replace(target, task_nodes=slots, yields=yields, why=why)


def _staying(snapshot: Snapshot, slots: Ints, target: Target) -> list[int]:
    """Running rows that have in `slots` the nodes that the target names."""
    rows = _rows(snapshot, target.task_nodes, RUNNING)
    same = [np.sort(slots[_tasks(snapshot, r)]) == np.sort(target.task_nodes[_tasks(snapshot, r)]) for r in rows]
    return [row for row, each in zip(rows, same, strict=True) if each.all()]


def _moves(snapshot: Snapshot, target: Target, abilities: Abilities, room: "_Room") -> list[tuple[int, Ints]]:
    """(row, nodes) of the moves that can be made one after the other, in that order; they are taken from the room."""
    count = np.zeros(len(abilities.island), np.int64)
    waiting: list[tuple[int, Ints]] = []
    for row in _rows(snapshot, target.task_nodes, RUNNING):
        nodes = _moved(snapshot, row, target.task_nodes, abilities, count)
        if nodes is None or not may_come(snapshot, row, nodes):
            continue
        if (nodes != snapshot.task_nodes[_tasks(snapshot, row)]).any():
            waiting.append((row, nodes))
    made: list[tuple[int, Ints]] = []
    before = -1
    while len(made) > before:
        before = len(made)
        left: list[tuple[int, Ints]] = []
        for row, nodes in waiting:
            old = snapshot.task_nodes[_tasks(snapshot, row)]
            room.take(row, old, snapshot.jobs["yield_"][row], -1.0)
            if room.has(row, nodes, target, stays=True):
                room.take(row, nodes, target.yields[row])
                made.append((row, nodes))
            else:
                room.take(row, old, snapshot.jobs["yield_"][row])
                left.append((row, nodes))
        waiting = left
    return made


class _Room:
    """What is left of the nodes beside running jobs and those placed so far."""

    def __init__(self, snapshot: Snapshot, minimum: Floats, abilities: Abilities, traits: Traits) -> None:
        self._snapshot, self._abilities, self._traits = snapshot, abilities, traits
        self._each: Floats = snapshot.jobs["need"] * minimum
        jobs, slots = snapshot.jobs, snapshot.task_nodes
        self._load = _on_nodes(snapshot, slots, jobs["need"])
        cpu, memory = snapshot.capacity[:, CPU], snapshot.capacity[:, MEMORY]
        self._memory = memory + MARGIN - _on_nodes(snapshot, slots, jobs["memory"])
        self._promise = cpu + MARGIN - abilities.reserved - _on_nodes(snapshot, slots, self._each)
        self._cpu = cpu + MARGIN - _on_nodes(snapshot, slots, jobs["need"] * jobs["yield_"])
        self._tasks = np.bincount(slots[slots >= 0], minlength=len(cpu))
        self._diverted = np.zeros(len(cpu), np.bool_)
        """(N,) where tasks were placed for which the target has other nodes."""
        self._named: ResourceRoom | None = None
        if abilities.named is not None:
            self._named = ResourceRoom(snapshot, abilities.named, exclusive=traits.exclusive)

    def place(self, row: int, target: Target) -> Ints | None:
        """As `find`, and the row has what it finds."""
        nodes = self.find(row, target)
        if nodes is not None:
            self.take(row, nodes, target.yields[row])
            self._diverted[nodes[~np.isin(nodes, target.task_nodes[_tasks(self._snapshot, row)])]] = True
        return nodes

    def find(
        self, row: int, target: Target, *, anywhere: bool = False, unpromised: bool = False, unpermitted: bool = False
    ) -> Ints | None:
        """A node for each task of a row: the target's, or else the least loaded ones; None if there are too few.

        An exclusive policy's jobs have the target's nodes or none: its nodes are whole. Only where named resources
        decide who can be where, or a job must go back to its island, it has any that are empty; so does a job that the
        target has where such a one is now. `anywhere`, `unpromised` and `unpermitted` leave out the rules (b), (c) and
        (d).
        """
        snapshot, home = self._snapshot, self._abilities.home[_tasks(self._snapshot, row)]
        if anywhere:
            home = np.full(len(home), -1)
        named = _matched(target.task_nodes[_tasks(snapshot, row)], home, self._abilities.island)
        usable = np.ones(len(snapshot.open), np.bool_) if unpermitted else permitted_to(snapshot, row)
        if named is not None and usable[named].all() and self.has(row, named, target, unpromised=unpromised):
            return named
        if not self._traits.exclusive or self._named is not None:
            return self._search(row, home, usable, unpromised=unpromised)
        if (home >= 0).any() or (named is not None and self._diverted[named].any()):
            return self._in_one_part(row, home, usable, unpromised=unpromised)
        return None

    def has(self, row: int, nodes: Ints, target: Target, *, unpromised: bool = False, stays: bool = False) -> bool:
        """Whether the row's tasks have room on these nodes; those that it has already may be closed if it `stays`."""
        job = self._snapshot.jobs[row]
        tasks = np.bincount(nodes, minlength=len(self._load))
        is_open, own = self._snapshot.open, np.zeros(len(tasks), np.int64)
        if stays:
            own = np.bincount(self._snapshot.task_nodes[_tasks(self._snapshot, row)], minlength=len(tasks))
            is_open = is_open | (tasks <= own)
        fits = (tasks == 0) | (is_open & (tasks * job["memory"] <= self._memory))
        if self._each[row] > 0 and not unpromised:
            fits &= (tasks == 0) | (tasks * self._each[row] <= self._promise)
        if self._traits.exclusive:
            fits &= (tasks == 0) | ((tasks * job["need"] * target.yields[row] <= self._cpu) & ~self._diverted)
        if self._named is not None:
            fits &= tasks <= self._named.most(row, own)
        if self._named is not None and self._traits.exclusive:
            # Somebody may be there by now for whom the target has another node.
            fits &= (tasks == 0) | self._named.only_those_of(target.task_nodes, tasks)
        return bool(fits.all())

    def _in_one_part(self, row: int, home: Ints, usable: Bools, *, unpromised: bool) -> Ints | None:
        """As `_search`; where the policy has each job in one partition, in the first that has room."""
        unequal = self._snapshot.unequal
        if not self._traits.clustered or unequal is None:
            return self._search(row, home, usable, unpromised=unpromised)
        for k in np.unique(unequal.partition).tolist():
            nodes = self._search(row, home, usable & (unequal.partition == k), unpromised=unpromised)
            if nodes is not None:
                return nodes
        return None

    def _search(self, row: int, home: Ints, usable: Bools, *, unpromised: bool) -> Ints | None:
        snapshot = self._snapshot
        job, cpu = snapshot.jobs[row], snapshot.capacity[:, CPU]
        usable = usable & snapshot.open & (cpu > 0)
        memory, promise, load = self._memory.copy(), self._promise.copy(), self._load.copy()
        each = 0.0 if unpromised else float(self._each[row])
        nodes = np.empty(len(home), np.int64)
        most = np.full(len(cpu), len(home)) if self._named is None else self._named.most(row)
        if self._traits.exclusive:
            vacant = self._tasks == 0 if self._named is None else self._named.vacant()
            most = np.where(vacant, np.minimum(most, np.floor((cpu + MARGIN) / job["need"])), 0)
        # The policy counted with no more whole nodes than the tasks fill.
        filled = self._traits.exclusive and self._named is None
        for s, where in enumerate(home.tolist()):
            fits = usable & (job["memory"] <= memory) & (most > 0)
            if each > 0:
                fits &= each <= promise
            if where >= 0:
                fits &= self._abilities.island == where
            if not fits.any():
                return None
            there = np.flatnonzero(fits)
            n = there[0] if filled else there[np.argmin((load[there] + job["need"]) / cpu[there])]
            nodes[s] = n
            most[n] -= 1
            memory[n] -= job["memory"]
            promise[n] -= each
            load[n] += job["need"]
        return nodes

    def take(self, row: int, nodes: Ints, yield_: float, sign: float = 1.0) -> None:
        """Place a row on these nodes at this yield, or, with sign -1, take it off them."""
        job = self._snapshot.jobs[row]
        np.subtract.at(self._memory, nodes, sign * job["memory"])
        np.subtract.at(self._promise, nodes, sign * self._each[row])
        np.subtract.at(self._cpu, nodes, sign * job["need"] * yield_)
        np.add.at(self._load, nodes, sign * job["need"])
        np.add.at(self._tasks, nodes, int(sign))
        if self._named is not None:
            self._named.take(row, nodes, int(sign))

    def reshare(self, row: int, nodes: Ints, before: float, after: float) -> bool:
        """Give a row that stays on these nodes another yield, if they have that much CPU; whether they have."""
        cpu = self._cpu.copy()
        np.subtract.at(cpu, nodes, self._snapshot.jobs["need"][row] * (after - before))
        if after > before and (cpu[nodes] < 0).any():
            return False
        self._cpu = cpu
        return True

    def what_is_missing(self, row: int, target: Target) -> str:
        """For what a row waits that `find` finds no nodes for."""
        if self._named is not None and (said := self._named.why(row)):
            return said
        if self.find(row, target, unpromised=True) is not None:
            return NO_MINIMUM if self._snapshot.jobs["minimum"][row] > 0 else OTHERS_MINIMUM
        if self.find(row, target, anywhere=True) is not None:
            return OTHER_ISLAND
        if self.find(row, target, unpermitted=True) is not None:
            return permitted_nodes.NO_ROOM
        return KEPT_MEMORY if self._abilities.retains else NO_ROOM
