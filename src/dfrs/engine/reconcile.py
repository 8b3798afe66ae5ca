"""Target minus present = commands, in an order that overcommits no node's memory at any moment.

Where pauses free memory, CPU is not overcommitted on the way either.
"""

import numpy as np

from dfrs.engine.commands import NOTHING, Commands
from dfrs.kernels import reconcile as kernels
from dfrs.kernels.columns import append_commands
from dfrs.model import tolerances
from dfrs.model.decisions import CPU, Cause, PolicyError, Reason, Snapshot, Target
from dfrs.model.instance import Floats, Ints

_USUAL = {
    Cause.SUBMISSION: int(Reason.ROOM),
    Cause.COMPLETION: int(Reason.FREED),
    Cause.WAKE: int(Reason.PACKED),
    Cause.NODES: int(Reason.FREED),
    Cause.COMMAND: int(Reason.FREED),
    Cause.NEEDS: int(Reason.REVISED),
}
"""What is said where the policy says nothing."""


def reconcile(snapshot: Snapshot, target: Target) -> tuple[Commands, Ints, Ints, Ints]:
    """(commands, target's slots with tasks that stay in their present slot, rows in order, steps in order).

    The last three are what `kernels.reconcile.commit` takes. Raises PolicyError where a task comes to a closed node.
    """
    rows = len(snapshot.jobs)
    after = target.task_nodes.copy()
    kind = np.empty(rows, np.int64)
    moved = np.empty(rows, np.int64)
    jobs, first, before = snapshot.jobs, snapshot.first, snapshot.task_nodes
    if not kernels.classify(jobs, first, before, after, target.yields, len(snapshot.capacity), kind, moved):
        return NOTHING, after, kind[:0], kind[:0]
    row, node = kernels.closed_arrival(jobs, first, before, after, snapshot.open)
    if row >= 0:
        raise PolicyError(int(jobs["id"][row]), f"would come to node {node}, which is closed")
    order = np.empty(2 * rows, np.int64)
    steps = np.empty(2 * rows, np.int64)
    count = kernels.plan(
        jobs, first, before, after, target.yields, _rigid(snapshot), tolerances.CAPACITY, kind, order, steps
    )
    order, steps = order[:count], steps[:count]
    commands = _commands(snapshot, target, after, moved, order, steps)
    return commands, after, order, steps


def _rigid(snapshot: Snapshot) -> Floats:
    """(N, 2) what must be free before a task comes: where memory may stay, only memory.

    CPU can be shared otherwise at any moment. If a cycle of moves were broken for it, a job would have to leave its
    memory behind.
    """
    if snapshot.abilities is None or not snapshot.abilities.retains:
        return snapshot.capacity
    capacity = snapshot.capacity.copy()
    capacity[:, CPU] = np.inf
    return capacity


def _commands(snapshot: Snapshot, target: Target, after: Ints, moved: Ints, order: Ints, steps: Ints) -> Commands:
    count = len(order)
    serial, job_id, tasks_moved, reason = np.empty((4, count), np.int64)
    yields = np.empty(count)
    bounds = np.empty(count + 1, np.int64)
    nodes = np.empty(len(after), np.int64)
    append_commands(
        snapshot.jobs,
        snapshot.first,
        after,
        target.yields,
        moved,
        target.reasons,
        _USUAL[snapshot.cause],
        order,
        steps,
        (serial, job_id, yields, tasks_moved, reason),
        bounds,
        nodes,
    )
    return Commands(steps, serial, job_id, yields, tasks_moved, reason, bounds, nodes[: bounds[count]])
