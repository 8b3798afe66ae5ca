"""A job that fits nowhere stops nobody: what no open nodes could hold, were they empty, the policy is not shown.

It keeps its place in the order of submission, and is seen again once nodes that can hold it are open. Of a job that may
not use all nodes, only those count that it may use. Nor is the policy shown a job that waits for what others have for
themselves now, such as a GPU: no pause and no move would bring that.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dfrs.engine import permitted_nodes
from dfrs.engine.resource_room import ResourceRoom, lacking_resources, room_of
from dfrs.model import tolerances
from dfrs.model.decisions import CPU, RUNNING, Cause, Snapshot, Target, Traits
from dfrs.model.instance import Bools, Floats, Ints
from dfrs.model.nodes import most_tasks

NO_OPEN_NODES = "waits: no open nodes can hold it"


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What the policy sees of a snapshot."""

    snapshot: Snapshot
    """Without the jobs that fit nowhere."""
    whole: Snapshot
    rows: Bools
    """(R,) which rows of `whole` it has."""
    why: Mapping[int, str]
    """For what the others wait, by job."""

    @property
    def concerns(self) -> bool:
        """Whether there is anything to decide: not where the job just submitted is one of those left aside."""
        return self.whole.cause is not Cause.SUBMISSION or self.whole.subject < 0 or bool(self.rows[self.whole.subject])

    def joined(self, target: Target) -> Target:
        """The target for all: those left aside stay as they are, but what the policy noted of them is forgotten.

        A reservation, for instance, means nothing once others were decided about without it.
        """
        whole, rows = self.whole, self.rows
        slots, yields = whole.task_nodes.copy(), whole.jobs["yield_"].copy()
        slots[np.repeat(rows, whole.jobs["tasks"])] = target.task_nodes
        yields[rows] = target.yields
        reasons, policy_state = target.reasons, target.policy_state
        if len(reasons):
            reasons = np.zeros(len(rows), np.int64)
            reasons[rows] = target.reasons
        if len(policy_state):
            policy_state = np.zeros(len(rows), np.int64)
            policy_state[rows] = target.policy_state
        return Target(slots, yields, target.wake_at_s, reasons, {**target.why, **self.why}, policy_state)


def leave_aside(snapshot: Snapshot, traits: Traits) -> Seen | None:
    """The snapshot without jobs that fit nowhere, None where all fit.

    A dedicated job is not left aside where the policy knows of dedicated jobs: it says of itself why it is late.
    """
    rows = fitting(snapshot, traits)
    return None if rows.all() else without(snapshot, ~rows, traits)


def without(snapshot: Snapshot, aside: Bools, traits: Traits, waits: Bools | None = None) -> Seen:
    """The snapshot without the rows `aside` (R,), of which `waits` (R,) could run if they were alone."""
    why: dict[int, str] = {}
    room = room_of(snapshot, traits)
    for row in np.flatnonzero(aside).tolist():
        said = _why(snapshot, row, room, waits=waits is not None and bool(waits[row]))
        why[int(snapshot.jobs["id"][row])] = said
    return Seen(snapshot.select(~aside), snapshot, ~aside, why)


def _why(snapshot: Snapshot, row: int, room: ResourceRoom | None, *, waits: bool) -> str:
    if room is not None and (said := room.why(row)):
        return said
    if waits:
        return permitted_nodes.NO_ROOM
    permitted = permitted_nodes.permitted_to(snapshot, row)
    if permitted.all():
        return NO_OPEN_NODES
    return permitted_nodes.TOO_SMALL if (permitted & snapshot.open).any() else permitted_nodes.NOT_UP


def fitting(snapshot: Snapshot, traits: Traits) -> Bools:
    """(R,) which rows run, or could if they were alone on the open nodes but for what others have for themselves."""
    jobs, usable = snapshot.jobs, snapshot.open & (snapshot.capacity[:, CPU] > 0)
    fits = jobs["state"] == RUNNING
    if traits.dedicated:
        fits = fits | ~np.isnan(jobs["requested_start_s"])
    if traits.clustered and snapshot.unequal is not None:
        partition = snapshot.unequal.partition
        parts = [np.flatnonzero(usable & (partition == k)) for k in np.unique(partition[usable])]
    else:
        parts = [np.flatnonzero(usable)]
    parts = [part for part in parts if len(part)]
    rooms = [_least_room(snapshot, part, exclusive=traits.exclusive) for part in parts]
    fits |= np.any([room >= jobs["tasks"] for room in rooms], axis=0) if rooms else False
    for row in np.flatnonzero(~fits).tolist():
        need, memory = float(jobs["need"][row]), float(jobs["memory"][row])
        permitted = permitted_nodes.permitted_to(snapshot, row)
        most = (
            most_tasks(snapshot.capacity[part[permitted[part]]], need, memory, exclusive=traits.exclusive)
            for part in parts
        )
        fits[row] = max(most, default=0.0) >= jobs["tasks"][row]
    return fits & ~lacking_resources(snapshot, traits)


def _least_room(snapshot: Snapshot, nodes: Ints, *, exclusive: bool) -> Floats:
    """(R,) for how many tasks of each row so many nodes have room at least: all taken for as small as the smallest."""
    jobs = snapshot.jobs
    cpu, memory = snapshot.capacity[nodes].min(axis=0) + tolerances.CAPACITY
    with np.errstate(divide="ignore"):
        room = np.floor(memory / jobs["memory"])
        if exclusive:
            room = np.minimum(room, np.floor(cpu / jobs["need"]))
    if snapshot.permitted is None:
        return len(nodes) * room
    count = snapshot.permitted[:, nodes].sum(axis=1)
    return np.multiply(count, room, out=np.zeros(len(jobs)), where=count > 0)
