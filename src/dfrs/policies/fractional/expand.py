"""Nodes for more tasks of a job that runs already: the user asked for them by EP ([Kumar2011] section III-C)."""

import numpy as np

from dfrs.kernels import reserve as kernels
from dfrs.kernels.admission import count_room, place_by_load
from dfrs.kernels.loads import node_use
from dfrs.model import tolerances
from dfrs.model.decisions import CPU, MEMORY, Snapshot
from dfrs.model.instance import Floats, Ints
from dfrs.policies.fractional.actions import MARGIN


def on_shared_nodes(snapshot: Snapshot, row: int, more: int) -> Ints | None:
    """(more,) nodes, for each task the open one of least CPU load with memory for it; ties to the lowest index.

    Batch jobs share what dedicated jobs leave of the nodes; a task of a dedicated job needs, beside memory, all of its
    CPU beside other dedicated jobs, and nobody leaves a node for it. None where some task finds no node.
    """
    jobs, first, capacity = snapshot.jobs, snapshot.first, snapshot.capacity
    kind = np.empty(len(jobs), np.int64)
    room = np.empty(len(capacity), np.int64)
    reserved, used = np.empty(capacity.shape), np.empty(capacity.shape)
    kernels.find_kinds(jobs, first, snapshot.task_nodes, capacity, snapshot.now_s, MARGIN / 2, kind, reserved)
    node_use(jobs, first, snapshot.task_nodes, used)
    need, memory = float(jobs["need"][row]), float(jobs["memory"][row])
    if kind[row] == kernels.HELD:
        guests = np.empty(len(capacity), np.int64)
        kernels.count_guests(jobs, first, snapshot.task_nodes, kind, guests)
        total = kernels.room_beside(
            need, memory, more, reserved, used, guests, capacity, snapshot.open, MARGIN / 2, room
        )
    else:
        left = np.empty_like(capacity)
        kernels.leave_rest(capacity, reserved, MARGIN / 2, left)
        capacity, used = left, used - reserved
        total = count_room(memory, more, used, capacity, snapshot.open, MARGIN, room)
    if total < more:
        return None
    nodes = np.full(more, -1, np.int64)
    place_by_load(jobs[row : row + 1], np.array([0, more]), nodes, 0, used, capacity, room)
    return nodes


def on_free_nodes(snapshot: Snapshot, row: int, more: int) -> Ints | None:
    """(more,) nodes, for policies by which a job has its nodes for itself, and yield 1.

    First what the job's own open nodes can still hold by its full need and memory, then open nodes without any task;
    both by lowest index. None where these are not enough.
    """
    used = np.empty(snapshot.capacity.shape)
    node_use(snapshot.jobs, snapshot.first, snapshot.task_nodes, used)
    own = np.zeros(len(used), np.bool_)
    own[snapshot.task_nodes[snapshot.first[row] : snapshot.first[row + 1]]] = True
    taken = np.zeros(len(used), np.bool_)
    taken[snapshot.task_nodes[snapshot.task_nodes >= 0]] = True
    job = snapshot.jobs[row]
    room = _whole(snapshot.capacity[:, CPU] - used[:, CPU], float(job["need"]), more)
    room = np.minimum(room, _whole(snapshot.capacity[:, MEMORY] - used[:, MEMORY], float(job["memory"]), more))
    nodes = np.concatenate([np.flatnonzero(own & snapshot.open), np.flatnonzero(~taken & snapshot.open)])
    chosen = np.repeat(nodes, room[nodes])
    return chosen[:more] if len(chosen) >= more else None


def _whole(free: Floats, size: float, most: int) -> Ints:
    """How often `size` goes into each of `free`, 0 to `most`."""
    if size == 0:
        return np.full(len(free), most)
    return np.clip(np.floor((free + tolerances.CAPACITY) / size), 0, most).astype(np.int64)
