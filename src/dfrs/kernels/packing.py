"""Vector packing at a fixed yield, and the yield search around it ([Stillwell2010] 4.2.5, [Stillwell2008] 3.4).

Vectors are tasks' sizes (T, D), bins are nodes with `capacity` (N, D). A packer fills `place` (T,) and says
whether every task found a node. Ties keep the order of submission; equal bins are taken by lowest index.

Two exact shortcuts make the packers fast. Bins or vectors are kept in blocks with the largest room or the
smallest coordinate of each dimension, so that a block where nothing fits is passed over in one look; and within
a bin loads only grow, so a vector that did not fit is not looked at again for that bin.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

import numpy as np

from dfrs.kernels.jit import Bools, Floats, Ints, Plan, kernel
from dfrs.kernels.sorting import stable_order

SUM, MAX, LEX, DIFF, RATIO = range(5)
FIRST_FIT, BEST_FIT, BY_LISTS = range(3)
BLOCK = 64


@kernel
def sort_order(size: Floats, criterion: int, ascending: bool, lexicographic: Ints) -> Ints:
    """Stable order of the tasks by `criterion` (SUM, MAX, LEX, DIFF, RATIO), decreasing unless `ascending`."""
    tasks, dims = size.shape
    if criterion == LEX:
        order = np.arange(tasks)
        for k in range(dims - 1, -1, -1):
            order = order[stable_order(size[order, lexicographic[k]], ascending)]
        return order
    key = np.empty(tasks)
    for i in range(tasks):
        total = 0.0
        high = size[i, 0]
        low = size[i, 0]
        for d in range(dims):
            total += size[i, d]
            high = max(high, size[i, d])
            low = min(low, size[i, d])
        if criterion == SUM:
            value = total
        elif criterion == MAX:
            value = high
        elif criterion == DIFF:
            value = high - low
        elif low > 0.0:
            value = high / low
        else:
            value = np.inf if high > 0.0 else 1.0
        key[i] = value
    return stable_order(key, ascending)


@kernel
def pack_first_fit(size: Floats, order: Ints, capacity: Floats, tolerance: float, partial: bool, place: Ints) -> bool:
    """Each task, in `order`, on the first node where it fits. Returns success.

    A task that fits nowhere ends it, or, if `partial`, gets -1 and the others go on.
    """
    tasks, dims = size.shape
    nodes = capacity.shape[0]
    blocks = (nodes + BLOCK - 1) // BLOCK
    room = np.full((blocks, dims, BLOCK), -1.0)
    most = np.full((blocks, dims), -1.0)
    for n in range(nodes):
        for d in range(dims):
            room[n // BLOCK, d, n % BLOCK] = capacity[n, d] + tolerance
            most[n // BLOCK, d] = max(most[n // BLOCK, d], room[n // BLOCK, d, n % BLOCK])
    fits = np.empty(BLOCK, dtype=np.bool_)
    packed = True
    for k in range(tasks):
        i = order[k]
        chosen = -1
        for b in range(blocks):
            possible = True
            for d in range(dims):
                possible &= size[i, d] <= most[b, d]
            if not possible:
                continue
            fits[:] = True
            for d in range(dims):
                need = size[i, d]
                row = room[b, d]
                for n in range(BLOCK):
                    fits[n] &= row[n] >= need
            for n in range(BLOCK):
                if fits[n]:
                    chosen = n
                    break
            if chosen >= 0:
                place[i] = b * BLOCK + chosen
                for d in range(dims):
                    row = room[b, d]
                    was = row[chosen]
                    row[chosen] = was - size[i, d]
                    if was == most[b, d]:
                        most[b, d] = row.max()
                break
        if chosen < 0:
            if not partial:
                return False
            place[i] = -1
            packed = False
    return packed


@kernel
def pack_best_fit(size: Floats, order: Ints, capacity: Floats, tolerance: float, partial: bool, place: Ints) -> bool:
    """Each task, in `order`, on the fitting node with the largest sum of loads. Returns success.

    Loads are relative to the node's capacity. A task that fits nowhere ends it, or, if `partial`, gets -1.
    """
    tasks, dims = size.shape
    nodes = capacity.shape[0]
    room = np.empty((dims, nodes))
    for n in range(nodes):
        for d in range(dims):
            room[d, n] = capacity[n, d] + tolerance
    load = np.zeros(nodes)
    fits = np.empty(nodes, dtype=np.bool_)
    equal = True
    for n in range(1, nodes):
        for d in range(dims):
            if capacity[n, d] != capacity[0, d]:
                equal = False
    # Among equal nodes all empty ones are alike and the lowest index wins: one is enough to look at.
    seen = min(1, nodes) if equal else nodes
    packed = True
    for k in range(tasks):
        i = order[k]
        fits[:seen] = True
        for d in range(dims):
            need = size[i, d]
            row = room[d]
            for n in range(seen):
                fits[n] &= row[n] >= need
        chosen = -1
        fullest = -1.0
        for n in range(seen):
            if fits[n] and load[n] > fullest:
                fullest = load[n]
                chosen = n
        place[i] = chosen
        if chosen < 0:
            if not partial:
                return False
            packed = False
            continue
        for d in range(dims):
            room[d, chosen] -= size[i, d]
            if capacity[chosen, d] > 0.0:
                load[chosen] += size[i, d] / capacity[chosen, d]
        if equal and chosen == seen - 1 and seen < nodes:
            seen += 1
    return packed


@kernel
def _code(dims_chosen: Ints, dims: int, ordered: bool) -> int:
    """Number of the list for the chosen dimensions: digits in base D if `ordered`, else a bit set."""
    code = 0
    for p in range(dims_chosen.size - 1, -1, -1):
        if ordered:
            code = code * dims + dims_chosen[p]
        else:
            code |= 1 << dims_chosen[p]
    return code


@kernel
def _largest(vector: Floats, window: int, out: Ints) -> None:
    """The `window` largest coordinates' indices in decreasing order, ties to the lower index, into `out`."""
    for p in range(window):
        best = -1
        for d in range(vector.size):
            taken = False
            for q in range(p):
                if out[q] == d:
                    taken = True
            if not taken and (best < 0 or vector[d] > vector[best]):
                best = d
        out[p] = best


@kernel
def _group(
    size: Floats, order: Ints, window: int, ordered: bool, list_of_code: Ints, lists: int
) -> tuple[Ints, Ints, Floats]:
    """Tasks grouped by list, each list in `order`: (start (lists+1,), task (T,), vector (T, D))."""
    tasks, dims = size.shape
    list_of_task = np.empty(tasks, dtype=np.int64)
    start = np.zeros(lists + 1, dtype=np.int64)
    top = np.empty(window, dtype=np.int64)
    for i in range(tasks):
        _largest(size[i], window, top)
        list_of_task[i] = list_of_code[_code(top, dims, ordered)]
        start[list_of_task[i] + 1] += 1
    for g in range(lists):
        start[g + 1] += start[g]
    cursor = start[:-1].copy()
    task = np.empty(tasks, dtype=np.int64)
    vector = np.empty((tasks, dims))
    for k in range(tasks):
        i = order[k]
        p = cursor[list_of_task[i]]
        cursor[list_of_task[i]] += 1
        task[p] = i
        for d in range(dims):
            vector[p, d] = size[i, d]
    return start, task, vector


@kernel
def _block_low(vector: Floats, alive: Bools, begin: int, end: int, low: Floats) -> None:
    """Smallest coordinate of each dimension over the living vectors in [begin, end), into `low` (D,)."""
    for d in range(low.size):
        low[d] = np.inf
    for p in range(begin, end):
        if alive[p]:
            for d in range(low.size):
                low[d] = min(low[d], vector[p, d])


@kernel
def _first_that_fits(
    vector: Floats, alive: Bools, low: Floats, first_block: int, begin: int, end: int, cursor: int, room: Floats
) -> int:
    """Position in [cursor, end) of the first living vector within `room` (D,), or `end`."""
    dims = room.size
    p = cursor
    while p < end:
        block = (p - begin) // BLOCK
        stop = min(end, begin + (block + 1) * BLOCK)
        possible = True
        for d in range(dims):
            if low[first_block + block, d] > room[d]:
                possible = False
                break
        if possible:
            while p < stop:
                if alive[p]:
                    fits = True
                    for d in range(dims):
                        if vector[p, d] > room[d]:
                            fits = False
                            break
                    if fits:
                        return p
                p += 1
        p = stop
    return end


@kernel
def pack_by_lists(
    size: Floats,
    order: Ints,
    capacity: Floats,
    tolerance: float,
    window: int,
    plan: Plan,
    list_of_code: Ints,
    place: Ints,
) -> bool:
    """Permutation, Choose and Multi-Capacity Pack: fill node after node against its imbalance. Returns success.

    `plan` = (subsets (K, w), permutations (K, w), ordered, by_index): the lists in the order they are tried,
    as ranks of the node's dimensions by increasing load; `list_of_code` numbers the lists that exist. Where there are
    too many dimensions for a bit set, lists without order are `ordered` too, and all orders have the same number.
    """
    tasks, dims = size.shape
    nodes = capacity.shape[0]
    subsets, permutations, ordered, by_index = plan
    place[:] = -1
    lists = list_of_code.max() + 1
    start, task, vector = _group(size, order, window, ordered, list_of_code, lists)
    alive = np.ones(tasks, dtype=np.bool_)
    first_block = np.zeros(lists + 1, dtype=np.int64)
    for g in range(lists):
        first_block[g + 1] = first_block[g] + (start[g + 1] - start[g] + BLOCK - 1) // BLOCK
    low = np.empty((first_block[lists], dims))
    for g in range(lists):
        for b in range(first_block[g + 1] - first_block[g]):
            begin = start[g] + b * BLOCK
            _block_low(vector, alive, begin, min(start[g + 1], begin + BLOCK), low[first_block[g] + b])
    left = np.zeros(dims)
    for i in range(tasks):
        for d in range(dims):
            left[d] += size[i, d]
    ahead = np.zeros(dims)
    for n in range(nodes):
        for d in range(dims):
            ahead[d] += capacity[n, d]
    head = start[:-1].copy()
    cursor = np.empty(lists, dtype=np.int64)
    room = np.empty(dims)
    load = np.empty(dims)
    rank = np.empty(dims, dtype=np.int64)
    chosen = np.empty(window, dtype=np.int64)
    picked = np.empty(window, dtype=np.int64)
    unplaced = tasks
    for n in range(nodes):
        # What is left must fit into the volume of the nodes ahead; the margin covers every rounding.
        for d in range(dims):
            if left[d] > ahead[d] + (nodes + 1) * tolerance + 1e-9:
                return False
        for g in range(lists):
            while head[g] < start[g + 1] and not alive[head[g]]:
                head[g] += 1
            cursor[g] = head[g]
        for d in range(dims):
            room[d] = capacity[n, d] + tolerance
            load[d] = 0.0 if capacity[n, d] > 0.0 else 1.0
            ahead[d] -= capacity[n, d]
        while unplaced > 0:
            for d in range(dims):
                k = d
                while k > 0 and load[rank[k - 1]] > load[d]:
                    rank[k] = rank[k - 1]
                    k -= 1
                rank[k] = d
            found = -1
            for t in range(subsets.shape[0]):
                for p in range(window):
                    picked[p] = rank[subsets[t, p]]
                if by_index:
                    picked.sort()
                for p in range(window):
                    chosen[p] = picked[permutations[t, p]]
                g = list_of_code[_code(chosen, dims, ordered)]
                if cursor[g] >= start[g + 1]:
                    continue
                position = _first_that_fits(vector, alive, low, first_block[g], start[g], start[g + 1], cursor[g], room)
                cursor[g] = position
                if position < start[g + 1]:
                    found = g
                    break
            if found < 0:
                break
            p = cursor[found]
            alive[p] = False
            place[task[p]] = n
            unplaced -= 1
            b = (p - start[found]) // BLOCK
            begin = start[found] + b * BLOCK
            tight = False
            for d in range(dims):
                tight |= vector[p, d] == low[first_block[found] + b, d]
            if tight:
                _block_low(vector, alive, begin, min(start[found + 1], begin + BLOCK), low[first_block[found] + b])
            for d in range(dims):
                room[d] -= vector[p, d]
                left[d] -= vector[p, d]
                if capacity[n, d] > 0.0:
                    load[d] += vector[p, d] / capacity[n, d]
        if unplaced == 0:
            return True
    return False


@kernel
def pack(
    size: Floats,
    order: Ints,
    capacity: Floats,
    tolerance: float,
    method: int,
    partial: bool,
    window: int,
    plan: Plan,
    list_of_code: Ints,
    place: Ints,
) -> bool:
    """Pack by `method` (FIRST_FIT, BEST_FIT, BY_LISTS) in `order` into `place`. Returns success."""
    if method == FIRST_FIT:
        return pack_first_fit(size, order, capacity, tolerance, partial, place)
    if method == BEST_FIT:
        return pack_best_fit(size, order, capacity, tolerance, partial, place)
    return pack_by_lists(size, order, capacity, tolerance, window, plan, list_of_code, place)
