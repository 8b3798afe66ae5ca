"""Rules of the executor constraints on what tasks have for themselves: named resources, and nodes of jobs alone.

- On each node the tasks there, and those of held jobs that keep theirs, have together no more of a named resource than
  it has. A node that has less now than they have may keep them, but no more come.
- A job that is alone has no task of another job on its nodes, and comes to no node with one.
- The first of those that wait to be alone finds its nodes one day: the emptiest that can hold it are kept for it, and
  no job that was submitted later comes there.
"""

from dataclasses import dataclass

import numpy as np

from dfrs.engine.permitted_nodes import permitted_to
from dfrs.model import tolerances
from dfrs.model.decisions import CPU, MEMORY, RUNNING, Snapshot, Traits
from dfrs.model.instance import Bools, Ints
from dfrs.model.named_resources import NamedResources, on_nodes


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """Nodes that wait to be empty for a row."""

    row: int
    nodes: Bools
    """(N,)"""


def overbooks(snapshot: Snapshot, slots: Ints, named: NamedResources, *, exclusive: bool) -> bool:
    """Whether a rule is broken where tasks are in `slots`, or would be on the way there.

    Jobs that are alone leave and come one after the other, so any that moves counts as broken: it is then tried.
    """
    nodes, owner = len(snapshot.capacity), np.repeat(np.arange(len(snapshot.jobs)), snapshot.jobs["tasks"])
    before, after = (on_nodes(each, named.claims[owner], nodes) for each in (snapshot.task_nodes, slots))
    if (after > np.maximum(named.counts - named.held, before)).any():
        return True
    if not (named.alone.any() or named.shut.any()):
        return False
    changed = np.unique(owner[slots != snapshot.task_nodes])
    room = ResourceRoom(snapshot, named, exclusive=exclusive)
    there, alone_there = _tasks_on(slots, nodes), _tasks_on(slots[named.alone[owner]], nodes)
    for row in changed.tolist():
        own, wanted = (_tasks_on(each[_part(snapshot, row)], nodes) for each in (snapshot.task_nodes, slots))
        comes = wanted > own
        others = there if named.alone[row] else alone_there
        if (comes & (room.barred(row) | (others > wanted * named.alone[row]))).any():
            return True
        if named.alone[row] and comes.any() and snapshot.jobs["state"][row] == RUNNING:
            return True
    return False


def room_of(snapshot: Snapshot, traits: Traits) -> "ResourceRoom | None":
    """What is left of what only some jobs can have; None where no job wants any of it."""
    named = None if snapshot.abilities is None else snapshot.abilities.named
    return None if named is None else ResourceRoom(snapshot, named, exclusive=traits.exclusive)


def lacking_resources(snapshot: Snapshot, traits: Traits) -> Bools:
    """(R,) jobs without nodes that wait for what others have for themselves now; no dedicated ones of a policy's."""
    lacking, room = np.zeros(len(snapshot.jobs), np.bool_), room_of(snapshot, traits)
    if room is None or snapshot.abilities is None or snapshot.abilities.named is None:
        return lacking
    named = snapshot.abilities.named
    rows = (named.alone | named.claimed) & (snapshot.jobs["state"] != RUNNING)
    if traits.dedicated:
        rows &= np.isnan(snapshot.jobs["requested_start_s"])
    for row in np.flatnonzero(rows).tolist():
        lacking[row] = room.why(row) != ""
    return lacking


def kept_nodes(snapshot: Snapshot, named: NamedResources) -> Kept | None:
    """The nodes that are kept for the first row that waits to be alone; None without one, or where none can hold it.

    Those with the fewest tasks of others: since no later job comes to them, they only become emptier.
    """
    jobs = snapshot.jobs
    booked = jobs["requested_start_s"] > snapshot.now_s
    waiting = np.flatnonzero(named.alone & (jobs["state"] != RUNNING) & ~booked)
    if not len(waiting):
        return None
    row = int(waiting[0])
    tasks = int(jobs["tasks"][row])
    most = _most(named.counts - named.held, named.claims[row], tasks)
    if jobs["memory"][row] > 0:
        most = np.minimum(most, np.floor((snapshot.capacity[:, MEMORY] + tolerances.CAPACITY) / jobs["memory"][row]))
    most = np.where(_usable(snapshot, row) & ~named.inhabited, most, 0)
    home = np.full(tasks, -1) if snapshot.abilities is None else snapshot.abilities.home[_part(snapshot, row)]
    if (home >= 0).any() and snapshot.abilities is not None:
        most = np.where(np.isin(snapshot.abilities.island, home), most, 0)
    there = _tasks_on(snapshot.task_nodes, len(most))
    kept, left = np.zeros(len(most), np.bool_), tasks
    for node in np.lexsort((np.arange(len(most)), there)).tolist():
        if left > 0 and most[node] > 0:
            kept[node] = True
            left -= int(most[node])
    return Kept(row, kept) if left <= 0 else None


def _usable(snapshot: Snapshot, row: int) -> Bools:
    """(N,) nodes to which tasks of a row may come, whoever is there."""
    return snapshot.open & (snapshot.capacity[:, CPU] > 0) & permitted_to(snapshot, row)


def _tasks_on(slots: Ints, nodes: int) -> Ints:
    """(N,) how many of the slots are on each node."""
    return np.bincount(slots[slots >= 0], minlength=nodes)


def _part(snapshot: Snapshot, row: int) -> slice:
    return slice(int(snapshot.first[row]), int(snapshot.first[row + 1]))


def _most(left: Ints, claims: Ints, tasks: int) -> Ints:
    """(N,) how many of so many tasks with these claims (K,) nodes with so much left (N, K) have room for."""
    most = np.full(len(left), tasks, np.int64)
    for k in np.flatnonzero(claims).tolist():
        most = np.minimum(most, np.maximum(left[:, k], 0) // claims[k])
    return most


class ResourceRoom:
    """What is left of named resources, and which nodes are whose alone, beside the tasks placed so far."""

    def __init__(self, snapshot: Snapshot, named: NamedResources, *, exclusive: bool) -> None:
        self._snapshot, self._named = snapshot, named
        # Nodes of an exclusive policy are whole anyway.
        self._kept = None if exclusive else kept_nodes(snapshot, named)
        slots, jobs = snapshot.task_nodes, snapshot.jobs
        owner, nodes = np.repeat(np.arange(len(jobs)), jobs["tasks"]), len(snapshot.capacity)
        self._left = named.counts - named.held - on_nodes(slots, named.claims[owner], nodes)
        self._tasks, self._alone = _tasks_on(slots, nodes), _tasks_on(slots[named.alone[owner]], nodes)

    def take(self, row: int, nodes: Ints, sign: int = 1) -> None:
        """Place a row's tasks on these nodes, or, with sign -1, take them off."""
        np.subtract.at(self._left, nodes, sign * self._named.claims[row])
        np.add.at(self._tasks, nodes, sign)
        np.add.at(self._alone, nodes, sign * int(self._named.alone[row]))

    def barred(self, row: int) -> Bools:
        """(N,) nodes to which the row may not come, whoever runs there now or not."""
        named = self._named
        barred = named.shut | named.inhabited if named.alone[row] else named.shut
        return barred | self._kept.nodes if self._kept is not None and row > self._kept.row else barred

    def most(self, row: int, own: Ints | int = 0) -> Ints:
        """(N,) how many tasks of a row that has none now each node can take.

        `own` (N,) of them were there before: also nodes that are kept for another job may have so many again.
        """
        others = self._tasks if self._named.alone[row] else self._alone
        most = _most(self._left, self._named.claims[row], int(self._snapshot.jobs["tasks"][row]))
        most = np.where(self.barred(row), np.minimum(most, own), most)
        return np.where(others > 0, 0, most)

    def only_those_of(self, slots: Ints, own: Ints) -> Bools:
        """(N,) where no more tasks are than `slots` have there, beside `own` (N,) of them."""
        return self._tasks <= _tasks_on(slots, len(own)) - own

    def vacant(self) -> Bools:
        """(N,) nodes without any task."""
        return (self._tasks == 0) & ~self._named.inhabited

    def why(self, row: int) -> str:
        """For what of this a row without nodes waits, in words; empty if it has room for all of its tasks."""
        snapshot, named = self._snapshot, self._named
        tasks, usable = int(snapshot.jobs["tasks"][row]), _usable(snapshot, row)
        if not usable.any():
            return ""
        if self.most(row)[usable].sum() >= tasks:
            return ""
        for k in np.flatnonzero(named.claims[row]).tolist():
            if said := self._shortage(k, int(named.claims[row, k]), tasks, usable):
                return said
        if named.alone[row]:
            return f"waits: no node is without other tasks{'' if tasks == 1 else f', for {tasks} tasks'}"
        if self._kept is not None and (self._kept.nodes & usable).any() and row > self._kept.row:
            return f"waits: nodes are kept for job {snapshot.jobs['id'][self._kept.row]}, which is to be alone there"
        return "waits: other jobs have their nodes to themselves"

    def _shortage(self, k: int, wanted: int, tasks: int, usable: Bools) -> str:
        """Why the nodes have too few of one resource for a row; empty if they have enough."""
        name, has = self._named.names[k], self._named.counts[:, k] * usable
        if wanted > has.max(initial=0):
            return f"waits: no node that is up has {wanted} {name}"
        if (has // wanted).sum() < tasks:
            return f"waits: the nodes that are up have {name} for only {(has // wanted).sum()} of its {tasks} tasks"
        left = np.maximum(self._left[:, k], 0) * usable
        if not left.any():
            return f"waits: {name}: all in use"
        if (left // wanted).sum() < tasks:
            return f"waits: {name}: {left.sum()} of {has.sum()} not in use, too few for it"
        return ""
