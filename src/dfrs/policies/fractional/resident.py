"""The actions where nodes can do less: a pause keeps memory, or a job that has started cannot go everywhere.

What [Stillwell2010] 5.2 does by pausing and moving is done as far as it can be. Nobody is paused where that frees no
memory, and whoever has started stays in its island. There, jobs come onto nodes one by one: those that cannot leave,
then by priority, and each takes what memory is left where it may be. MCB repacks only within islands, and only if
everybody keeps nodes.

Where a job can neither be paused nor moved, the memory that it takes stays taken until it is done. There, a quarter of
the nodes is left empty for jobs with large tasks, as long as the others can be loaded more (`resident.LEVELS`).
"""

from dataclasses import dataclass, replace

import numpy as np

from dfrs.kernels import admission, loads, repack, resident
from dfrs.kernels.loads import node_use
from dfrs.model.decisions import RUNNING, WAITING, Abilities, Snapshot
from dfrs.model.instance import Bools, Ints
from dfrs.policies.fractional.actions import (
    MARGIN,
    Admit,
    Mode,
    Pin,
    PolicyAction,
    Priority,
    Readmit,
    Repack,
    order_and_pinned,
)
from dfrs.policies.fractional.extensions import Limited
from dfrs.policies.fractional.objective import YIELDS, Objective
from dfrs.policies.fractional.vector_repack import VectorRepack

SPARE = 0.25
"""Part of the nodes that tasks cannot leave, of those that are open, to be left empty if possible."""
AGE_S = 7 * 86_400.0
"""A job that has waited so long for memory that others keep gets memory reserved."""
TRIES = 64
"""So many of the waiting jobs, by priority, MCB tries to pack beside those that have nodes: each costs a packing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Residence:
    """How jobs are placed that cannot leave again."""

    spare: float = SPARE
    age_s: float = AGE_S

    def within(self, action: PolicyAction) -> PolicyAction:
        """The action as it is done where `Snapshot.abilities` says that nodes cannot do everything."""
        if isinstance(action, Admit):
            return ResidentAdmit(mode=action.mode, priority=action.priority, residence=self)
        if isinstance(action, Readmit):
            return ResidentReadmit(priority=action.priority, residence=self)
        if isinstance(action, Repack | VectorRepack):
            return ResidentRepack(objective=action.objective, priority=action.priority, pin=action.pin, residence=self)
        if isinstance(action, Limited):
            return replace(action, repack=self.within(action.repack))
        return action

    def aged(self, snapshot: Snapshot) -> int:
        """The row that has waited longest for a first start, if it is of that age and others keep memory; else -1."""
        waits = np.flatnonzero(snapshot.jobs["state"] == WAITING)
        if not len(waits) or not _abilities(snapshot).keeps.any():
            return -1
        return int(waits[0]) if snapshot.flow_s[waits[0]] >= self.age_s else -1

    def settled(self, snapshot: Snapshot, order: Ints, movable: Bools) -> Ints:
        """(slots,) nodes as `dfrs.kernels.resident.settle_resident` gives them."""
        able, slots = _abilities(snapshot), np.empty(len(snapshot.task_nodes), np.int64)
        fixed = _fixed(able)
        resident.settle_resident(
            snapshot.jobs,
            snapshot.first,
            snapshot.task_nodes,
            able.home,
            able.island,
            snapshot.capacity,
            snapshot.open,
            fixed,
            int(self.spare * (fixed & snapshot.open).sum()),
            MARGIN,
            order,
            movable,
            self.aged(snapshot),
            slots,
        )
        return slots


def _abilities(snapshot: Snapshot) -> Abilities:
    assert snapshot.abilities is not None
    return snapshot.abilities


def _stay(snapshot: Snapshot) -> Bools:
    """(R,) running jobs that can be neither paused nor ended."""
    kept = _abilities(snapshot).refused.copy()
    on = np.flatnonzero(snapshot.task_nodes >= 0)
    rows = np.searchsorted(snapshot.first, on, side="right") - 1
    kept[rows[_abilities(snapshot).keeps[snapshot.task_nodes[on]]]] = True
    return kept & ~_abilities(snapshot).restarts


def _fixed(able: Abilities) -> Bools:
    """(N,) nodes that tasks cannot leave before they are done: they keep memory, and are islands of their own."""
    _, members, sizes = np.unique(able.island, return_inverse=True, return_counts=True)
    return able.keeps & (sizes[members.reshape(-1)] == 1) & (len(able.island) > 1)


def _by_priority(snapshot: Snapshot, priority: Priority, rows: Bools) -> Ints:
    """The rows of the mask by decreasing priority."""
    order = np.empty(len(snapshot.jobs), np.int64)
    loads.by_priority(snapshot.jobs, snapshot.now_s, priority.value, order)
    return order[rows[order]]


def _placed(snapshot: Snapshot, slots: Ints) -> Bools:
    """(R,) which rows have nodes in `slots`."""
    return slots[snapshot.first[:-1]] >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidentAdmit:
    """Greedy, GreedyP or GreedyPM for the job just submitted; who cannot be paused gives way to nobody."""

    mode: Mode
    priority: Priority
    residence: Residence

    def __call__(self, snapshot: Snapshot, slots: Ints, reasons: Ints, /) -> None:
        """Beside those that run, or in the place of some of lower priority.

        While memory is reserved for a job that has waited for long, nobody moves or is paused for a newer one.
        """
        subject, running = snapshot.subject, snapshot.jobs["state"] == RUNNING
        aged = self.residence.aged(snapshot)
        first = [] if aged in {-1, subject} else [aged]
        queue = np.array([*np.flatnonzero(running), *first, subject])
        after = self.residence.settled(snapshot, queue, np.zeros(len(running), np.bool_))
        begin = snapshot.first[subject]
        if after[begin] < 0 and not first and self.mode is Mode.GREEDY_PM:
            after = self._closer_together(snapshot, running, after)
        if after[begin] < 0 and not first and self.mode is not Mode.GREEDY:
            after = self._in_the_place_of_others(snapshot, running)
        placed = _placed(snapshot, after)
        if not (placed & ~running).any():
            return
        reasons[running & ~placed] = admission.GAVE_WAY
        reasons[running & placed & _differs(snapshot, after)] = admission.MOVED_FOR
        reasons[placed & ~running] = admission.FREED
        if placed[subject]:
            reasons[subject] = admission.ROOM
        slots[:] = after

    def _closer_together(self, snapshot: Snapshot, running: Bools, otherwise: Ints) -> Ints:
        """With those that run moved so that it has room, where they can be moved anywhere."""
        island = _abilities(snapshot).island
        if (island != island[0]).any():
            return otherwise
        rows = running.copy()
        rows[snapshot.subject] = True
        chosen, tasks = snapshot.select(rows), np.repeat(rows, snapshot.jobs["tasks"])
        none = np.zeros(len(chosen.jobs), np.bool_)
        # Whoever is in `chosen` has nodes in it: MCB may leave nobody out.
        every = np.zeros(len(chosen.task_nodes), np.int64)
        packed = _repacked(chosen, chosen.task_nodes, np.arange(len(none)), none, snapshot.open, YIELDS, every)
        if packed is every:
            return otherwise
        after = np.full(len(snapshot.task_nodes), -1)
        after[tasks] = packed
        return after

    def _in_the_place_of_others(self, snapshot: Snapshot, running: Bools) -> Ints:
        """With those paused that must be; with GreedyPM they may move instead."""
        subject, jobs = snapshot.subject, snapshot.jobs
        order = _by_priority(snapshot, self.priority, running & ~_stay(snapshot))
        used = np.empty(snapshot.capacity.shape)
        node_use(jobs, snapshot.first, snapshot.task_nodes, used)
        tasks, memory = int(jobs["tasks"][subject]), float(jobs["memory"][subject])
        room, marked = np.empty(len(used), np.int64), np.empty(len(jobs), np.int64)
        total = admission.count_room(memory, tasks, used, snapshot.capacity, snapshot.open, MARGIN, room)
        count = admission.choose_to_pause(
            jobs,
            snapshot.first,
            snapshot.task_nodes,
            subject,
            total,
            order,
            used,
            snapshot.capacity,
            snapshot.open,
            MARGIN,
            marked,
        )
        away = np.zeros(len(jobs), np.bool_)
        away[marked[:count]] = True
        moves = self.mode is Mode.GREEDY_PM
        back = _by_priority(snapshot, self.priority, away & moves)
        queue = np.concatenate([np.flatnonzero(running & ~away), [subject], back])
        return self.residence.settled(snapshot, queue, away & moves)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidentReadmit:
    """Greedy for all waiting and paused jobs, by decreasing priority, beside those that run."""

    priority: Priority
    residence: Residence

    def __call__(self, snapshot: Snapshot, slots: Ints, reasons: Ints, /) -> None:
        """As `dfrs.kernels.resident.settle_resident`."""
        running = snapshot.jobs["state"] == RUNNING
        order = np.concatenate([np.flatnonzero(running), _by_priority(snapshot, self.priority, ~running)])
        after = self.residence.settled(snapshot, order, np.zeros(len(running), np.bool_))
        reasons[~running & _placed(snapshot, after)] = admission.FREED
        slots[:] = after


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidentRepack:
    """All jobs by priority, those first that cannot be paused; then MCB within each island."""

    objective: Objective
    priority: Priority
    pin: Pin
    residence: Residence

    def __call__(self, snapshot: Snapshot, slots: Ints, reasons: Ints, /) -> None:
        """Whoever has no room waits, or is paused where that frees memory."""
        order, pinned = order_and_pinned(snapshot, self.priority, self.pin)
        stay = _stay(snapshot)
        order = np.concatenate([order[stay[order]], order[~stay[order]]])
        after = self.residence.settled(snapshot, order, ~pinned)
        island = _abilities(snapshot).island
        if len(snapshot.open) > 1 and (island == island[0]).all():
            after = self._repacked_everywhere(snapshot, order, pinned, after)
        else:
            for name in np.unique(island).tolist():
                inside = island == name
                if inside.sum() > 1:
                    after = self._repacked_inside(snapshot, after, order, pinned, inside)
        reasons[:] = np.where(_placed(snapshot, after), repack.PACKED, repack.LEFT_OUT)
        slots[:] = after

    def _repacked_everywhere(self, snapshot: Snapshot, order: Ints, pinned: Bools, after: Ints) -> Ints:
        """MCB for those that have nodes `after` and, by priority, whoever else can be packed with them."""
        chosen, aged = _placed(snapshot, after), self.residence.aged(snapshot)
        left = order[~chosen[order]].tolist()
        for row in [aged] if aged in left else left[:TRIES]:
            trial = chosen.copy()
            trial[row] = True
            if _can_be_packed(snapshot, order[trial[order]], pinned, self.objective):
                chosen = trial
        rest, tasks = snapshot.select(chosen), np.repeat(chosen, snapshot.jobs["tasks"])
        names = np.cumsum(chosen) - 1
        # As above: nobody may be left out.
        every = np.zeros(len(rest.task_nodes), np.int64)
        packed = _repacked(
            rest, rest.task_nodes, names[order[chosen[order]]], pinned[chosen], snapshot.open, self.objective, every
        )
        if packed is every:
            return after
        after = np.full(len(after), -1)
        after[tasks] = packed
        return after

    def _repacked_inside(self, snapshot: Snapshot, after: Ints, order: Ints, pinned: Bools, inside: Bools) -> Ints:
        """MCB on the nodes of one island, for jobs that are wholly in it."""
        placed = _placed(snapshot, after)
        chosen = snapshot.select(placed)
        slots = after[np.repeat(placed, snapshot.jobs["tasks"])]
        outside = ~np.logical_and.reduceat(inside[slots], chosen.first[:-1]) if len(slots) else np.zeros(0, np.bool_)
        names = np.cumsum(placed) - 1
        packed = _repacked(
            chosen,
            slots,
            names[order[placed[order]]],
            pinned[placed] | outside,
            snapshot.open & inside,
            self.objective,
            slots,
        )
        after = after.copy()
        after[np.repeat(placed, snapshot.jobs["tasks"])] = packed
        return after


def _can_be_packed(snapshot: Snapshot, order: Ints, pinned: Bools, objective: Objective) -> bool:
    """Whether MCB finds a packing of the rows of `order` at the least level."""
    jobs = snapshot.jobs
    if repack.uncrowded(
        jobs, snapshot.first, snapshot.task_nodes, order, pinned, snapshot.capacity, snapshot.open, MARGIN
    ) < len(order):
        return False
    rows = np.zeros(len(jobs), np.bool_)
    rows[order] = True
    base, slope = objective(snapshot)
    yields, slots = np.empty(len(jobs)), np.empty(len(snapshot.task_nodes), np.int64)
    repack.yields_at(objective.search[1], base, slope, objective.search, rows, yields)
    by_memory = order[np.argsort(-jobs["memory"][order], kind="stable")]
    return repack.pack_at(
        jobs,
        snapshot.first,
        snapshot.task_nodes,
        rows,
        pinned,
        yields,
        by_memory,
        order.copy(),
        snapshot.capacity,
        snapshot.open,
        MARGIN,
        slots,
    )


def _repacked(
    snapshot: Snapshot,
    before: Ints,
    order: Ints,
    pinned: Bools,
    open_nodes: Bools,
    objective: Objective,
    otherwise: Ints,
) -> Ints:
    """MCB from `before` where it leaves nobody without nodes that has some `otherwise`; else that."""
    base, slope = objective(snapshot)
    slots, reasons = np.empty(len(before), np.int64), np.empty(len(snapshot.jobs), np.int64)
    repack.repack(
        snapshot.jobs,
        snapshot.first,
        before,
        snapshot.capacity,
        open_nodes,
        order,
        pinned,
        base,
        slope,
        objective.search,
        MARGIN,
        slots,
        reasons,
    )
    lost = _placed(snapshot, otherwise) & ~_placed(snapshot, slots)
    return otherwise if lost.any() else slots


def _differs(snapshot: Snapshot, slots: Ints) -> Bools:
    """(R,) rows with another node in any slot than now."""
    changed = np.zeros(len(snapshot.jobs), np.bool_)
    where = np.flatnonzero(slots != snapshot.task_nodes)
    changed[np.searchsorted(snapshot.first, where, side="right") - 1] = True
    return changed
