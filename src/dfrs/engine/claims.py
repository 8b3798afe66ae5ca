"""Jobs of an exclusive policy that may use some nodes only, and whose turn it was.

Such a policy's nodes are whole, and it counts them: that as many are free as a job needs does not say that they are
those that the job may use. Once the policy has given such a job its turn, the job waits no longer than it must: each
node that becomes free and that it may use is its own, until there are enough. Several have theirs in the order of
submission. The policy is asked without them, and their nodes are closed to it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from dfrs.engine.permitted_nodes import permitted_to
from dfrs.engine.resource_room import ResourceRoom
from dfrs.model import tolerances
from dfrs.model.decisions import CPU, MEMORY, Reason, Snapshot, Target
from dfrs.model.instance import Bools, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Claims:
    """What such jobs have of the free nodes."""

    starts: Mapping[int, Ints]
    """A node a task, by row, of those that have enough."""
    nodes: Bools
    """(N,) which nodes are theirs, or are kept for those that have too few."""

    def beside(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with these nodes closed."""
        is_open = snapshot.open & ~self.nodes
        is_open.setflags(write=False)
        return replace(snapshot, open=is_open)

    def added(self, snapshot: Snapshot, target: Target) -> Target:
        """The target, and those that start."""
        if not self.starts:
            return target
        slots, yields = target.task_nodes.copy(), target.yields.copy()
        reasons = target.reasons.copy() if len(target.reasons) else np.zeros(len(yields), np.int64)
        for row, nodes in self.starts.items():
            slots[snapshot.first[row] : snapshot.first[row + 1]] = nodes
            yields[row], reasons[row] = 1.0, Reason.FREED
        return replace(target, task_nodes=slots, yields=yields, reasons=reasons)


def claim(snapshot: Snapshot, rows: Bools, room: ResourceRoom | None = None) -> Claims:
    """What the jobs `rows` (R,), which have no nodes, have of the open nodes without tasks, by the order of submission.

    `room`: what is left of named resources, where jobs want any.
    """
    jobs, capacity = snapshot.jobs, snapshot.capacity + tolerances.CAPACITY
    abilities = snapshot.abilities
    home = np.full(len(snapshot.task_nodes), -1) if abilities is None else abilities.home
    island = np.zeros(len(capacity), np.int64) if abilities is None else abilities.island
    free = snapshot.open.copy()
    free[snapshot.task_nodes[snapshot.task_nodes >= 0]] = False
    taken = np.zeros(len(free), np.bool_)
    starts: dict[int, Ints] = {}
    for row in np.flatnonzero(rows).tolist():
        tasks, memory = int(jobs["tasks"][row]), float(jobs["memory"][row])
        each = np.minimum(tasks, np.floor(capacity[:, CPU] / jobs["need"][row]))
        if memory > 0:
            each = np.minimum(each, np.floor(capacity[:, MEMORY] / memory))
        if room is not None:
            each = np.minimum(each, room.most(row))
        each[~(free & permitted_to(snapshot, row))] = 0
        nodes = _filled(each.astype(np.int64), home[snapshot.first[row] : snapshot.first[row + 1]], island)
        found = nodes[nodes >= 0]
        if len(found) == tasks:
            starts[row] = found
            if room is not None:
                room.take(row, found)
        taken[found], free[found] = True, False
    return Claims(starts, taken)


def _filled(most: Ints, home: Ints, island: Ints) -> Ints:
    """A node for each task, one after the other filled with at most `most` (N,) of them; -1 where none is left.

    A task with a `home` has a node of that island; without one, -1, of any.
    """
    nodes, left = np.full(len(home), -1), most.copy()
    # Those that can go anywhere take what the others leave.
    for where in np.unique(home)[::-1].tolist():
        tasks, usable = np.flatnonzero(home == where), left if where < 0 else np.where(island == where, left, 0)
        found = np.repeat(np.arange(len(most)), usable)[: len(tasks)]
        nodes[tasks[: len(found)]] = found
        np.subtract.at(left, found, 1)
    return nodes
