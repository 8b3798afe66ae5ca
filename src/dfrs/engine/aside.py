"""A job that fits nowhere stops nobody: what no open nodes could hold, were they empty, the policy is not shown.

It keeps its place in the order of submission, and is seen again once nodes that can hold it are open.
"""

from dataclasses import dataclass

import numpy as np

from dfrs.model import tolerances
from dfrs.model.decisions import CPU, RUNNING, Cause, Snapshot, Target, Traits
from dfrs.model.instance import Bools, Floats
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
        why = {**target.why, **dict.fromkeys(whole.jobs["id"][~rows].tolist(), NO_OPEN_NODES)}
        return Target(slots, yields, target.wake_at_s, reasons, why, policy_state)


def leave_aside(snapshot: Snapshot, traits: Traits) -> Seen | None:
    """The snapshot without jobs that fit nowhere, None where all fit.

    A dedicated job is not left aside where the policy knows of dedicated jobs: it says of itself why it is late.
    """
    rows = _fitting(snapshot, traits)
    return None if rows.all() else Seen(snapshot.select(rows), snapshot, rows)


def _fitting(snapshot: Snapshot, traits: Traits) -> Bools:
    """(R,) which rows run, or could if they were alone on the open nodes."""
    jobs, usable = snapshot.jobs, snapshot.open & (snapshot.capacity[:, CPU] > 0)
    fits = jobs["state"] == RUNNING
    if traits.dedicated:
        fits = fits | ~np.isnan(jobs["requested_start_s"])
    capacity = snapshot.capacity[usable]
    if traits.clustered and snapshot.unequal is not None:
        partition = snapshot.unequal.partition[usable]
        parts = [capacity[partition == k] for k in np.unique(partition)]
    else:
        parts = [capacity]
    rooms = [_least_room(part, jobs, exclusive=traits.exclusive) for part in parts if len(part)]
    fits |= np.any([room >= jobs["tasks"] for room in rooms], axis=0) if rooms else False
    for row in np.flatnonzero(~fits).tolist():
        need, memory = float(jobs["need"][row]), float(jobs["memory"][row])
        most = (most_tasks(part, need, memory, exclusive=traits.exclusive) for part in parts)
        fits[row] = max(most, default=0.0) >= jobs["tasks"][row]
    return fits


def _least_room(capacity: Floats, jobs: np.ndarray, *, exclusive: bool) -> Floats:
    """(R,) for how many tasks of each row so many nodes have room at least: all taken for as small as the smallest."""
    cpu, memory = capacity.min(axis=0) + tolerances.CAPACITY
    with np.errstate(divide="ignore"):
        room = np.floor(memory / jobs["memory"])
        if exclusive:
            room = np.minimum(room, np.floor(cpu / jobs["need"]))
    return len(capacity) * room
