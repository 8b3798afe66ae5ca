"""Greedy placement under requirements alone ([Stillwell2010] 4.2.2; [Stillwell2008] 3.3), also with backtracking."""

import numpy as np

from dfrs.kernels.jit import Floats, Ints, kernel

LOW_MAX_NEED, LOW_SUM_NEED, HIGH_MAX, HIGH_SUM, LOW_MAX, LOW_SUM, FIRST = range(1, 8)


@kernel
def _argmax(vector: Floats) -> int:
    best = 0
    for d in range(vector.size):
        if vector[d] > vector[best]:
            best = d
    return best


@kernel
def place_greedily(
    base: Floats, fluid: Floats, order: Ints, capacity: Floats, tolerance: float, rule: int, place: Ints
) -> bool:
    """Tasks in `order`, each on the node that `rule` P1 to P7 prefers among those with room for `base` (T, D).

    P1, P2: least maximum, sum of the `fluid` (T, D) needs placed there, in the task's largest fluid dimension;
    P3, P4: largest maximum, sum of the requirements placed there, in the task's most required dimension;
    P5, P6: least of the same; P7: first. Ties to the lowest index. Returns success; fills `place` (T,).
    """
    tasks, dims = base.shape
    nodes = capacity.shape[0]
    room = capacity + tolerance
    highest = np.zeros((dims, nodes))
    total = np.zeros((dims, nodes))
    measure = fluid if rule <= LOW_SUM_NEED else base
    maximum = rule in (LOW_MAX_NEED, HIGH_MAX, LOW_MAX)
    sign = -1.0 if rule in (HIGH_MAX, HIGH_SUM) else 1.0
    least = np.empty((tasks + 1, dims))
    least[tasks] = np.inf
    for k in range(tasks - 1, -1, -1):
        for d in range(dims):
            least[k, d] = min(least[k + 1, d], base[order[k], d])
    first_open = 0
    for k in range(tasks):
        i = order[k]
        # A node without room for the least requirement still to come is closed for good.
        while first_open < nodes:
            closed = False
            for d in range(dims):
                if least[k, d] > room[first_open, d]:
                    closed = True
            if not closed:
                break
            first_open += 1
        main = _argmax(measure[i])
        row = highest[main] if maximum else total[main]
        chosen = -1
        best = np.inf
        for n in range(first_open, nodes):
            value = sign * row[n] if rule != FIRST else 0.0
            if value < best:
                fits = True
                for d in range(dims):
                    if base[i, d] > room[n, d]:
                        fits = False
                        break
                if fits:
                    best = value
                    chosen = n
                    if rule == FIRST:
                        break
        place[i] = chosen
        if chosen < 0:
            return False
        for d in range(dims):
            room[chosen, d] -= base[i, d]
            highest[d, chosen] = max(highest[d, chosen], measure[i, d])
            total[d, chosen] += measure[i, d]
    return True


@kernel
def place_by_load(
    base: Floats,
    work: Floats,
    order: Ints,
    capacity: Floats,
    tolerance: float,
    backtrack: bool,
    attempts: int,
    place: Ints,
) -> tuple[bool, int]:
    """Tasks in `order`, each on the node with the least total `work` (T,) that has room for `base` (T, D).

    [Stillwell2008] section 3.3. With `backtrack`, a task without a node sends the one before it to its next best node,
    for at most `attempts` placements; without, it ends the search. Returns (success, placements made).
    """
    tasks, dims = base.shape
    nodes = capacity.shape[0]
    room = capacity + tolerance
    total = np.zeros(nodes)
    kept_total = np.empty(tasks)
    kept_room = np.empty((tasks, dims))
    # Without a step back only the present task's order of nodes is needed.
    candidates = np.empty((tasks if backtrack else 1, nodes), dtype=np.int32)
    position = np.zeros(tasks, dtype=np.int64)
    used = 0
    depth = 0
    fresh = True
    while 0 <= depth < tasks:
        i = order[depth]
        ranked = candidates[depth if backtrack else 0]
        if fresh:
            ranked[:] = np.argsort(total, kind="mergesort")
            position[depth] = 0
        else:
            n = ranked[position[depth]]
            total[n] = kept_total[depth]
            for d in range(dims):
                room[n, d] = kept_room[depth, d]
            position[depth] += 1
        fresh = False
        while position[depth] < nodes:
            n = ranked[position[depth]]
            fits = True
            for d in range(dims):
                if base[i, d] > room[n, d]:
                    fits = False
                    break
            if fits:
                if backtrack and used == attempts:
                    return False, used
                used += 1
                place[i] = n
                kept_total[depth] = total[n]
                kept_room[depth, :] = room[n]
                total[n] += work[i]
                for d in range(dims):
                    room[n, d] -= base[i, d]
                fresh = True
                break
            position[depth] += 1
        if not fresh and not backtrack:
            return False, used
        depth += 1 if fresh else -1
    return depth == tasks, used
