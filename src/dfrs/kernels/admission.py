"""Greedy, GreedyP, GreedyPM: a job comes in beside those that run or at their expense ([Stillwell2010] 5.2.1, 5.2.3).

Layout and columns as in `dfrs.kernels.loads`. A row's room on a node is how many of its tasks fit there by memory; a
node that is closed or has no CPU has none. `tolerance` is how far memory may pass the capacity.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

from typing import Any

import numpy as np

from dfrs.kernels.jit import Bools, Floats, Ints, kernel
from dfrs.kernels.loads import by_priority, node_use, sort_by_priority
from dfrs.kernels.reconcile import keep_slots

GREEDY, GREEDY_P, GREEDY_PM = range(3)
ROOM, FREED, GAVE_WAY, MOVED_FOR = 1, 2, 3, 4


@kernel
def _room_at(
    n: int, memory: float, most: int, used: Floats, capacity: Floats, open_nodes: Bools, tolerance: float
) -> int:
    """Tasks of `memory` for which node `n` has room, at most `most`."""
    if not open_nodes[n] or capacity[n, 0] <= 0.0:
        return 0
    free = capacity[n, 1] + tolerance - used[n, 1]
    if free < memory:
        return 0
    if free >= memory * most:
        return most
    return int(free / memory)


@kernel
def count_room(
    memory: float, most: int, used: Floats, capacity: Floats, open_nodes: Bools, tolerance: float, room: Ints
) -> int:
    """Tasks of `memory` for which each node has room, at most `most` each, into `room` (N,); their sum."""
    total = 0
    for n in range(room.size):
        room[n] = _room_at(n, memory, most, used, capacity, open_nodes, tolerance)
        total += room[n]
    return total


@kernel
def place_by_load(jobs: Any, first: Ints, slots: Ints, r: int, used: Floats, capacity: Floats, room: Ints) -> None:
    """Each task of row `r` on the node whose CPU load would be least with it, ties to the lowest index (5.2.1).

    `room` (N,) must sum to at least the row's tasks; `slots`, `used` and `room` are modified.
    """
    nodes = room.size
    need = jobs[r].need
    load = np.empty(nodes)
    level = np.inf
    for n in range(nodes):
        load[n] = (used[n, 0] + need) / capacity[n, 0] if room[n] > 0 else np.inf
        level = min(level, load[n])
    s = first[r]
    end = first[r + 1]
    # One pass serves all nodes at the lowest level: a task makes a node's level higher.
    while s < end:
        above = np.inf
        for n in range(nodes):
            if load[n] <= level:
                slots[s] = n
                s += 1
                used[n, 0] += need
                used[n, 1] += jobs[r].memory
                room[n] -= 1
                load[n] = (used[n, 0] + need) / capacity[n, 0] if room[n] > 0 else np.inf
                if s == end:
                    break
            above = min(above, load[n])
        level = above


@kernel
def _start_if_room(
    jobs: Any,
    first: Ints,
    slots: Ints,
    r: int,
    used: Floats,
    capacity: Floats,
    open_nodes: Bools,
    tolerance: float,
    room: Ints,
) -> bool:
    """Place row `r` where it fits without changing any other; whether it does."""
    if count_room(jobs[r].memory, jobs[r].tasks, used, capacity, open_nodes, tolerance, room) < jobs[r].tasks:
        return False
    place_by_load(jobs, first, slots, r, used, capacity, room)
    return True


@kernel
def _shift(
    jobs: Any,
    first: Ints,
    slots: Ints,
    r: int,
    sign: float,
    memory: float,
    most: int,
    used: Floats,
    capacity: Floats,
    open_nodes: Bools,
    tolerance: float,
) -> int:
    """Add or take away row `r`; by how much that changes the sum of the room for tasks of `memory`."""
    change = 0
    for s in range(first[r], first[r + 1]):
        n = slots[s]
        change -= _room_at(n, memory, most, used, capacity, open_nodes, tolerance)
        used[n, 0] += sign * jobs[r].need
        used[n, 1] += sign * jobs[r].memory
        change += _room_at(n, memory, most, used, capacity, open_nodes, tolerance)
    return change


@kernel
def choose_to_pause(
    jobs: Any,
    first: Ints,
    slots: Ints,
    subject: int,
    room: int,
    order: Ints,
    used: Floats,
    capacity: Floats,
    open_nodes: Bools,
    tolerance: float,
    marked: Ints,
) -> int:
    """Which rows must give way to `subject`, by increasing priority into `marked` (R,); their number, 0 if in vain.

    Rows are marked by increasing priority until there is room; then, by decreasing priority, those without which there
    is still room are unmarked (5.2.3). `room` is the present sum; `order` has rows by decreasing priority; `used` is
    modified.
    """
    tasks, memory = jobs[subject].tasks, jobs[subject].memory
    count = 0
    for k in range(order.size - 1, -1, -1):
        if room >= tasks:
            break
        r = order[k]
        if r != subject and slots[first[r]] >= 0:
            room += _shift(jobs, first, slots, r, -1.0, memory, tasks, used, capacity, open_nodes, tolerance)
            marked[count] = r
            count += 1
    if room < tasks:
        return 0
    for k in range(count - 1, -1, -1):
        r = marked[k]
        change = _shift(jobs, first, slots, r, 1.0, memory, tasks, used, capacity, open_nodes, tolerance)
        if room + change >= tasks:
            room += change
            marked[k] = -1
        else:
            _shift(jobs, first, slots, r, -1.0, memory, tasks, used, capacity, open_nodes, tolerance)
    kept = 0
    for k in range(count):
        if marked[k] >= 0:
            marked[kept] = marked[k]
            kept += 1
    return kept


@kernel
def admit(
    jobs: Any,
    first: Ints,
    before: Ints,
    capacity: Floats,
    open_nodes: Bools,
    subject: int,
    mode: int,
    now_s: float,
    priorities: int,
    tolerance: float,
    slots: Ints,
    reasons: Ints,
) -> None:
    """Place the newly submitted row `subject` by `mode` GREEDY, GREEDY_P or GREEDY_PM, or leave all as it is.

    `slots` starts as a copy of `before` and is modified, as is `reasons` (R,).
    """
    nodes = capacity.shape[0]
    used = np.empty((nodes, 2))
    room = np.empty(nodes, dtype=np.int64)
    node_use(jobs, first, slots, used)
    tasks, memory = jobs[subject].tasks, jobs[subject].memory
    total = count_room(memory, tasks, used, capacity, open_nodes, tolerance, room)
    if total >= tasks:
        place_by_load(jobs, first, slots, subject, used, capacity, room)
        reasons[subject] = ROOM
        return
    if mode == GREEDY:
        return
    order = np.empty(jobs.size, dtype=np.int64)
    marked = np.empty(jobs.size, dtype=np.int64)
    by_priority(jobs, now_s, priorities, order)
    count = choose_to_pause(jobs, first, slots, subject, total, order, used, capacity, open_nodes, tolerance, marked)
    if count == 0:
        return
    for k in range(count):
        slots[first[marked[k]] : first[marked[k] + 1]] = -1
        reasons[marked[k]] = GAVE_WAY
    # Added up anew: what was taken away and put back may have left a rounding behind.
    node_use(jobs, first, slots, used)
    if not _start_if_room(jobs, first, slots, subject, used, capacity, open_nodes, tolerance, room):
        slots[:] = before
        return
    reasons[subject] = ROOM
    if mode == GREEDY_PM:
        alike = np.zeros(nodes, dtype=np.int64)
        for k in range(count - 1, -1, -1):
            r = marked[k]
            if _start_if_room(jobs, first, slots, r, used, capacity, open_nodes, tolerance, room):
                keep_slots(before, slots, first[r], first[r + 1], alike)
                reasons[r] = MOVED_FOR


@kernel
def readmit(
    jobs: Any,
    first: Ints,
    capacity: Floats,
    open_nodes: Bools,
    now_s: float,
    priorities: int,
    tolerance: float,
    slots: Ints,
    reasons: Ints,
) -> None:
    """Greedy for all rows that wait or are paused, by decreasing priority; `slots` and `reasons` are modified."""
    nodes = capacity.shape[0]
    used = np.empty((nodes, 2))
    room = np.empty(nodes, dtype=np.int64)
    node_use(jobs, first, slots, used)
    free = 0.0
    most = 0.0
    for n in range(nodes):
        if open_nodes[n]:
            here = capacity[n, 1] + tolerance - used[n, 1]
            free += max(here, 0.0)
            most = max(most, here)
    # Looks that cost nothing, before rows are sorted and again when some have started; the margin covers the rounding
    # of the sum.
    slack = nodes * tolerance
    may = np.empty(jobs.size, dtype=np.int64)
    count = 0
    for r in range(jobs.size):
        memory = jobs[r].memory
        if slots[first[r]] < 0 and memory <= most and memory * jobs[r].tasks <= free + slack:
            may[count] = r
            count += 1
    sort_by_priority(jobs, now_s, priorities, may[:count])
    for r in may[:count]:
        memory = jobs[r].memory * jobs[r].tasks
        if memory <= free + slack and _start_if_room(
            jobs, first, slots, r, used, capacity, open_nodes, tolerance, room
        ):
            reasons[r] = FREED
            free -= memory
