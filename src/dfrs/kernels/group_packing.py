"""Tasks of two sizes, CPU and memory, packed in groups of equal ones ([Stillwell2010] 5.2.2).

The packing is Choose Pack with a window of 1: tasks by decreasing largest coordinate (ties by submission) in two lists,
one for each resource that can be the larger one (a tie goes to memory); nodes by index; a node takes the first task
that fits from the list of the resource it has used less of (a tie goes to memory), or from the other list. A row's
tasks are alike and are packed as one group with a count; and a run of equal nodes is filled at once while no group it
takes from runs out: both are exact.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

import numpy as np

from dfrs.kernels.jit import Bools, Floats, Ints, kernel


@kernel
def sort_down(key: Floats, order: Ints) -> None:
    """Sort the rows in `order`, in place, by decreasing `key`, ties by index; fast where they are nearly sorted."""
    for k in range(1, order.size):
        r = order[k]
        p = k
        while p > 0 and (key[order[p - 1]] < key[r] or (key[order[p - 1]] == key[r] and order[p - 1] > r)):
            order[p] = order[p - 1]
            p -= 1
        order[p] = r


@kernel
def _next(size: Floats, left: Ints, cursor: int, end: int, memory: float, cpu: float, larger: int) -> int:
    """First position from `cursor` of a group that is not used up and of which a task fits, or `end`.

    The groups are by decreasing `larger` coordinate, 0 (CPU) or 1 (memory).
    """
    most = memory if larger == 1 else cpu
    if cursor < end and size[cursor, larger] > most:
        too_large, high = cursor, end
        while high - too_large > 1:
            middle = (too_large + high) // 2
            if size[middle, larger] > most:
                too_large = middle
            else:
                high = middle
        cursor = high
    while cursor < end and (left[cursor] == 0 or size[cursor, 1] > memory or size[cursor, 0] > cpu):
        cursor += 1
    return cursor


@kernel
def _same_node(a: int, b: int, capacity: Floats, preload: Floats, open_nodes: Bools) -> bool:
    return (
        open_nodes[a] == open_nodes[b]
        and capacity[a, 0] == capacity[b, 0]
        and capacity[a, 1] == capacity[b, 1]
        and preload[a, 0] == preload[b, 0]
        and preload[a, 1] == preload[b, 1]
    )


@kernel
def _fill_node(
    n: int,
    size: Floats,
    left: Ints,
    head: Ints,
    middle: int,
    preload: Floats,
    capacity: Floats,
    tolerance: float,
    unplaced: int,
    picks: Ints,
) -> int:
    """Choose tasks for node `n`: positions of their groups into `picks`; how many. `left` is reduced.

    Positions [0, middle) are the list of tasks with more memory than CPU, the others have more CPU.
    """
    groups = left.size
    memory = capacity[n, 1] + tolerance - preload[n, 1]
    cpu = capacity[n, 0] + tolerance - preload[n, 0]
    memory_load = preload[n, 1] / capacity[n, 1] if capacity[n, 1] > 0.0 else 1.0
    cpu_load = preload[n, 0] / capacity[n, 0] if capacity[n, 0] > 0.0 else 1.0
    by_memory, by_cpu = head[0], head[1]
    count = 0
    while count < unplaced:
        p = groups
        if memory_load <= cpu_load:
            by_memory = _next(size, left, by_memory, middle, memory, cpu, 1)
            p = by_memory
            if p == middle:
                by_cpu = _next(size, left, by_cpu, groups, memory, cpu, 0)
                p = by_cpu
        else:
            by_cpu = _next(size, left, by_cpu, groups, memory, cpu, 0)
            p = by_cpu
            if p == groups:
                by_memory = _next(size, left, by_memory, middle, memory, cpu, 1)
                p = by_memory if by_memory < middle else groups
        if p == groups:
            break
        picks[count] = p
        count += 1
        left[p] -= 1
        memory -= size[p, 1]
        cpu -= size[p, 0]
        if capacity[n, 1] > 0.0:
            memory_load += size[p, 1] / capacity[n, 1]
        if capacity[n, 0] > 0.0:
            cpu_load += size[p, 0] / capacity[n, 0]
    return count


@kernel
def _repeats(left: Ints, picks: Ints, taken: Ints) -> int:
    """How often the groups at `picks` can be taken once more; `taken` is zero before and after."""
    for k in range(picks.size):
        taken[picks[k]] += 1
    times = np.iinfo(np.int64).max
    for k in range(picks.size):
        if taken[picks[k]] > 0:
            times = min(times, left[picks[k]] // taken[picks[k]])
            taken[picks[k]] = 0
    return times


@kernel
def _volume_left(
    size: Floats, left: Ints, preload: Floats, capacity: Floats, open_nodes: Bools
) -> tuple[Floats, Floats]:
    """(CPU, memory) of all tasks to place, and of all open nodes beside their preload."""
    wanted = np.zeros(2)
    ahead = np.zeros(2)
    for p in range(left.size):
        wanted[0] += size[p, 0] * left[p]
        wanted[1] += size[p, 1] * left[p]
    for n in range(capacity.shape[0]):
        if open_nodes[n]:
            ahead[0] += capacity[n, 0] - preload[n, 0]
            ahead[1] += capacity[n, 1] - preload[n, 1]
    return wanted, ahead


@kernel
def pack_groups(
    row: Ints,
    size: Floats,
    left: Ints,
    middle: int,
    first: Ints,
    preload: Floats,
    capacity: Floats,
    open_nodes: Bools,
    tolerance: float,
    slots: Ints,
) -> bool:
    """Place left[p] tasks of size[p] (CPU, memory) of each group p, which is row[p], into its `slots`. Returns success.

    Groups are in two lists as `_fill_node` takes them; `left` is used up. Nodes hold `preload` (N, 2) already.
    """
    groups = row.size
    nodes = capacity.shape[0]
    wanted, ahead = _volume_left(size, left, preload, capacity, open_nodes)
    slack = (nodes + 1) * tolerance + 1e-9
    unplaced = left.sum()
    cursor = np.empty(groups, dtype=np.int64)
    for p in range(groups):
        cursor[p] = first[row[p]]
    picks = np.empty(unplaced, dtype=np.int64)
    taken = np.zeros(groups, dtype=np.int64)
    head = np.array([0, middle])
    n = 0
    while n < nodes and unplaced > 0:
        # What is left must fit into the volume of the nodes ahead; the slack covers every rounding.
        if wanted[0] > ahead[0] + slack or wanted[1] > ahead[1] + slack:
            return False
        if not open_nodes[n]:
            n += 1
            continue
        while head[0] < middle and left[head[0]] == 0:
            head[0] += 1
        while head[1] < groups and left[head[1]] == 0:
            head[1] += 1
        count = _fill_node(n, size, left, head, middle, preload, capacity, tolerance, unplaced, picks)
        times = 1 + _repeats(left, picks[:count], taken)
        begin = n
        n += 1
        while n < nodes and n - begin < times and _same_node(begin, n, capacity, preload, open_nodes):
            n += 1
        for k in range(count):
            p = picks[k]
            for m in range(begin, n):
                slots[cursor[p]] = m
                cursor[p] += 1
            left[p] -= n - begin - 1
            wanted[0] -= size[p, 0] * (n - begin)
            wanted[1] -= size[p, 1] * (n - begin)
        unplaced -= count * (n - begin)
        ahead[0] -= (capacity[begin, 0] - preload[begin, 0]) * (n - begin)
        ahead[1] -= (capacity[begin, 1] - preload[begin, 1]) * (n - begin)
    return unplaced == 0
