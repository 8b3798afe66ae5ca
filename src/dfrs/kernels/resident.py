"""Jobs by priority onto nodes, where a job that has started cannot go everywhere.

Layout and columns as in `dfrs.kernels.loads`. A running row is where it is in `before`, or moves within its islands; a
paused one comes back to its islands, `home`; a row that never started goes anywhere. Memory alone limits what a node
holds.

Tasks are spread: each goes to the node whose CPU load is least with it. On `fixed` nodes, which tasks cannot leave
before they are done, free memory is worth most in one piece. There a task goes to the node that has the least memory
left and is loaded to at most a level of `LEVELS`: the lowest one that leaves `spare` nodes empty.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

from typing import Any

import numpy as np

from dfrs.kernels.jit import Bools, Floats, Ints, kernel
from dfrs.kernels.loads import PAUSED, RUNNING, add_use

LEVELS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
"""CPU loads up to which tasks are put together."""


@kernel
def best_node(
    need: float,
    memory: float,
    island: int,
    islands: Ints,
    used: Floats,
    capacity: Floats,
    open_nodes: Bools,
    fixed: Bools,
    level: float,
    tolerance: float,
) -> int:
    """The node for one task more: of that island, of any if it is -1; -1 where no node has memory for it."""
    together, least_memory = -1, np.inf
    apart, least_load = -1, np.inf
    for n in range(capacity.shape[0]):
        free = capacity[n, 1] + tolerance - used[n, 1]
        if not open_nodes[n] or capacity[n, 0] <= 0.0 or free < memory or (island >= 0 and islands[n] != island):
            continue
        load = (used[n, 0] + need) / capacity[n, 0]
        if fixed[n] and load <= level and free < least_memory:
            together, least_memory = n, free
        if load < least_load:
            apart, least_load = n, load
    return together if together >= 0 else apart


@kernel
def _stays(jobs: Any, first: Ints, before: Ints, r: int, used: Floats, capacity: Floats, tolerance: float) -> bool:
    """Whether the nodes of running row `r` have memory for it; then it is added to `used`."""
    add_use(jobs, first, before, r, 1.0, used)
    for s in range(first[r], first[r + 1]):
        if used[before[s], 1] > capacity[before[s], 1] + tolerance:
            add_use(jobs, first, before, r, -1.0, used)
            return False
    return True


@kernel
def _has_room(memory: float, tasks: int, used: Floats, capacity: Floats, open_nodes: Bools, tolerance: float) -> bool:
    """Whether all open nodes together have memory for so many tasks: a look that saves a search."""
    room = 0
    for n in range(capacity.shape[0]):
        free = capacity[n, 1] + tolerance - used[n, 1]
        if open_nodes[n] and capacity[n, 0] > 0.0 and free >= memory:
            room += tasks if free >= memory * tasks else int(free / memory)
            if room >= tasks:
                return True
    return False


@kernel
def place_resident(
    jobs: Any,
    first: Ints,
    r: int,
    home: Ints,
    islands: Ints,
    used: Floats,
    capacity: Floats,
    open_nodes: Bools,
    fixed: Bools,
    spare: int,
    tolerance: float,
    slots: Ints,
) -> bool:
    """Place each task of row `r` in its island of `home` (slots,); False, and nothing done, where one has no room."""
    begin, end = first[r], first[r + 1]
    need, memory = jobs[r].need, jobs[r].memory
    if not _has_room(memory, end - begin, used, capacity, open_nodes, tolerance):
        return False
    for k in range(len(LEVELS)):
        for s in range(begin, end):
            n = best_node(need, memory, home[s], islands, used, capacity, open_nodes, fixed, LEVELS[k], tolerance)
            if n < 0:
                _take_back(need, memory, begin, s, used, slots)
                return False
            slots[s] = n
            used[n, 0] += need
            used[n, 1] += memory
        if k + 1 == len(LEVELS) or _empty(used, open_nodes, fixed, tolerance) >= spare:
            break
        _take_back(need, memory, begin, end, used, slots)
    return True


@kernel
def _take_back(need: float, memory: float, begin: int, end: int, used: Floats, slots: Ints) -> None:
    """Take the tasks in slots `begin` to `end` off their nodes."""
    for s in range(begin, end):
        used[slots[s], 0] -= need
        used[slots[s], 1] -= memory
        slots[s] = -1


@kernel
def _empty(used: Floats, open_nodes: Bools, fixed: Bools, tolerance: float) -> int:
    """How many open nodes that are fixed have all of their memory."""
    count = 0
    for n in range(open_nodes.size):
        if fixed[n] and open_nodes[n] and used[n, 1] <= tolerance:
            count += 1
    return count


@kernel
def reserve_memory(
    jobs: Any, first: Ints, r: int, used: Floats, capacity: Floats, open_nodes: Bools, tolerance: float
) -> None:
    """Take memory for the tasks of row `r` where most of it is free, though it be too little: nobody else gets it.

    Of each node at most what it has; a task that no node could hold is left out.
    """
    memory = jobs[r].memory
    reserved = np.zeros(capacity.shape[0], dtype=np.int64)
    for _ in range(first[r], first[r + 1]):
        best, most = -1, -np.inf
        for n in range(capacity.shape[0]):
            fits = memory * (reserved[n] + 1) <= capacity[n, 1] + tolerance
            free = capacity[n, 1] - used[n, 1]
            if open_nodes[n] and capacity[n, 0] > 0.0 and fits and free > most:
                best, most = n, free
        if best < 0:
            return
        reserved[best] += 1
        used[best, 1] += memory


@kernel
def settle_resident(
    jobs: Any,
    first: Ints,
    before: Ints,
    home: Ints,
    islands: Ints,
    capacity: Floats,
    open_nodes: Bools,
    fixed: Bools,
    spare: int,
    tolerance: float,
    order: Ints,
    movable: Bools,
    aged: int,
    slots: Ints,
) -> None:
    """Place the rows of `order`, one after the other, as long as there is room; all others get no nodes.

    Running rows that are `movable` (R,) and find no room where they are may move within their islands. If row `aged`
    finds no room, memory is reserved for it, and those after it in the order do without.
    """
    used = np.zeros(capacity.shape)
    there = home.copy()
    slots[:] = -1
    for k in range(order.size):
        r = order[k]
        begin, end = first[r], first[r + 1]
        if jobs[r].state == RUNNING:
            if _stays(jobs, first, before, r, used, capacity, tolerance):
                slots[begin:end] = before[begin:end]
                continue
            if not movable[r]:
                continue
            for s in range(begin, end):
                there[s] = islands[before[s]]
        elif jobs[r].state != PAUSED:
            there[begin:end] = -1
        placed = place_resident(
            jobs, first, r, there, islands, used, capacity, open_nodes, fixed, spare, tolerance, slots
        )
        if r == aged and not placed:
            reserve_memory(jobs, first, r, used, capacity, open_nodes, tolerance)
