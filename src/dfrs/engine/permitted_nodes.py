"""Rule (d) of `dfrs.engine.executor_constraints`: a task comes only to a node that its job may use.

No policy knows of it. One that names other nodes for a job has them replaced by the guard. Where there is no room on
those that the job may use, it is `stuck`, and the policy is asked once more without it: nobody else waits for room that
it has no use for.
"""

import numpy as np

from dfrs.model.decisions import CPU, MEMORY, RUNNING, Snapshot, Target
from dfrs.model.instance import Bools, Floats, Ints
from dfrs.model.nodes import most_tasks

NOT_UP = "waits: no node it may run on is up"
TOO_SMALL = "waits: the nodes it may run on cannot hold it"
NO_ROOM = "waits: the nodes it may run on have no room"


def breaks(snapshot: Snapshot, slots: Ints) -> bool:
    """Whether any task would come to a node that its job may not use."""
    if snapshot.permitted is None:
        return False
    return any(not may_come(snapshot, row, _part(snapshot, slots, row)) for row in _suspects(snapshot, slots))


def may_come(snapshot: Snapshot, row: int, nodes: Ints) -> bool:
    """Whether a row's tasks may be on `nodes`: each is one it may use, or one of those that its tasks are on now."""
    if snapshot.permitted is None:
        return True
    count = len(snapshot.capacity)
    tasks = np.bincount(nodes, minlength=count)
    now = _part(snapshot, snapshot.task_nodes, row)
    own = np.bincount(now[now >= 0], minlength=count)
    return bool((snapshot.permitted[row] | (tasks <= own)).all())


def permitted_to(snapshot: Snapshot, row: int) -> Bools:
    """(N,) which nodes a row may use."""
    return np.ones(len(snapshot.open), np.bool_) if snapshot.permitted is None else snapshot.permitted[row]


def constrained(snapshot: Snapshot) -> Bools:
    """(R,) which jobs may not use every node."""
    if snapshot.permitted is None:
        return np.zeros(len(snapshot.jobs), np.bool_)
    return snapshot.permitted.sum(axis=1) < snapshot.permitted.shape[1]


def stuck(snapshot: Snapshot, wanted: Target, target: Target) -> Bools:
    """(R,) constrained jobs without nodes that the policy `wanted` to have some, and that `target` leaves without."""
    begins = snapshot.first[:-1]
    rows = constrained(snapshot) & (snapshot.jobs["state"] != RUNNING)
    rows &= (wanted.task_nodes[begins] >= 0) & (target.task_nodes[begins] < 0)
    return rows


def lacking(snapshot: Snapshot, target: Target, *, exclusive: bool) -> Bools:
    """(R,) constrained jobs without nodes for which `target` leaves no room on those that they may use."""
    jobs, slots = snapshot.jobs, target.task_nodes
    left = _left(snapshot, slots, exclusive=exclusive)
    promise = left[:, CPU] - _on_nodes(snapshot, slots, jobs["need"] * jobs["minimum"])
    if snapshot.abilities is not None:
        promise -= snapshot.abilities.reserved
    known: dict[tuple[object, ...], bool] = {}
    rows = constrained(snapshot) & (jobs["state"] != RUNNING) & (slots[snapshot.first[:-1]] < 0)
    for row in np.flatnonzero(rows).tolist():
        # Many jobs are alike: those of an array are.
        permitted, like = permitted_to(snapshot, row), jobs[row][["need", "memory", "minimum", "tasks"]].item()
        key = (permitted.tobytes(), *like)
        if key not in known:
            need, memory, minimum, tasks = like
            there = permitted & snapshot.open & (snapshot.capacity[:, CPU] > 0) & (left[:, MEMORY] >= 0)
            most = most_tasks(left[there], need, memory, exclusive=exclusive)
            if minimum > 0 and not exclusive:
                held = np.stack([promise[there], left[there, MEMORY]], axis=1)
                most = most_tasks(held, need * minimum, memory, exclusive=True)
            known[key] = most < tasks
        rows[row] = known[key]
    return rows


def _left(snapshot: Snapshot, slots: Ints, *, exclusive: bool) -> Floats:
    """(N, 2) CPU of nodes, and memory that is left of them; -1 where an exclusive policy's job is."""
    left = snapshot.capacity.copy()
    left[:, MEMORY] = np.maximum(left[:, MEMORY] - _on_nodes(snapshot, slots, snapshot.jobs["memory"]), 0.0)
    if exclusive:
        left[slots[slots >= 0]] = -1.0
    return left


def _on_nodes(snapshot: Snapshot, slots: Ints, each: Floats) -> Floats:
    """(N,) the sum of what each row's tasks have, `each` (R,)."""
    there = slots >= 0
    amounts = np.repeat(each, snapshot.jobs["tasks"])[there]
    return np.bincount(slots[there], amounts, len(snapshot.capacity)).astype(np.float64)


def _part(snapshot: Snapshot, slots: Ints, row: int) -> Ints:
    return slots[snapshot.first[row] : snapshot.first[row + 1]]


def _suspects(snapshot: Snapshot, slots: Ints) -> list[int]:
    """Rows with a task in `slots` on a node that they may not use."""
    assert snapshot.permitted is not None
    rows = np.repeat(np.arange(len(snapshot.jobs)), snapshot.jobs["tasks"])
    there = slots >= 0
    return np.unique(rows[there][~snapshot.permitted[rows[there], slots[there]]]).tolist()
