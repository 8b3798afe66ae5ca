"""Sets of tasks that fit on a node together and are worth the most: what a set packing bound asks for again and again.

Depth-first over tasks by worth relative to a weight that joins all resources, cut where the rest of the node, filled
with the best of what follows in fractions, cannot make up for what is missing: a knapsack in one dimension bounds that
in several.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

import numpy as np

from dfrs.kernels.jit import Floats, Ints, kernel

SAME = 1e-10
"""Sets must be worth more than the threshold by this much: the rounding of a few additions."""


@kernel
def _fractional(worth: Floats, weight: Floats, first: int, room: float) -> float:
    """The worth of the tasks from `first` on, by decreasing ratio, that fill `room`, the last one in part."""
    total = 0.0
    for k in range(first, worth.size):
        if weight[k] > room:
            return total + worth[k] * room / weight[k]
        total += worth[k]
        room -= weight[k]
    return total


@kernel
def join_resources(size: Floats, capacity: Floats, worth: Floats, joint: Floats) -> None:
    """Weights `joint` (T,) of tasks, for a node of 1, in which every set that fits on the node weighs at most 1.

    Any average of the resources, each relative to its capacity, is such a weight. Of each resource alone, all alike,
    and each by how much of it all tasks take, the one that lets the least worth in.
    """
    tasks, dims = size.shape
    share = np.zeros((dims + 2, dims))
    for d in range(dims):
        share[d, d] = 1.0
        total = 0.0
        for i in range(tasks):
            total += size[i, d]
        if capacity[d] > 0.0:
            share[dims, d] = 1.0
            share[dims + 1, d] = (total / capacity[d]) ** 4
    least = np.inf
    trial = np.empty(tasks)
    for c in range(dims + 2):
        sum_of_shares = share[c].sum()
        if sum_of_shares <= 0.0:
            continue
        for i in range(tasks):
            trial[i] = 1e-12
            for d in range(dims):
                if capacity[d] > 0.0:
                    trial[i] += share[c, d] / sum_of_shares * size[i, d] / capacity[d]
        order = np.argsort(-worth / trial)
        bound = _fractional(worth[order], trial[order], 0, 1.0 + 1e-9)
        if bound < least:
            least = bound
            joint[:] = trial


@kernel
def price_sets(
    size: Floats,
    capacity: Floats,
    worth: Floats,
    threshold: float,
    every: bool,
    most: int,
    sets: Ints,
    length: Ints,
    value: Floats,
) -> tuple[int, bool]:
    """For each task, the set worth the most among those that fit in `capacity` (D,) with it first; or `every` set.

    Tasks of no `worth` (T,) are in no set. Only sets worth more than `threshold` are wanted; row r of `sets` (R, W)
    gets one, `length` (R,) its number of tasks (0 where that is more than W), `value` (R,) its worth. Returns (sets
    found, whether all was looked at within `most` trials and R rows): then, unless `every` is wanted, no set that fits
    is worth more than the largest of `threshold` and `value`, SAME forgiven.
    """
    tasks, dims = size.shape
    kept = np.empty(tasks, dtype=np.int64)
    count = 0
    for i in range(tasks):
        fits = worth[i] > 0.0
        for d in range(dims):
            fits = fits and size[i, d] <= capacity[d]
        if fits:
            kept[count] = i
            count += 1
    kept = kept[:count]
    joint = np.empty(count)
    p = worth[kept]
    s = size[kept]
    join_resources(s, capacity, p, joint)
    order = np.argsort(-p / joint)
    kept = kept[order]
    p = p[order]
    s = s[order]
    w = joint[order]
    depths = count + 1
    room = np.empty((depths, dims))
    left = np.empty(depths)
    total = np.empty(depths)
    cursor = np.empty(depths, dtype=np.int64)
    chosen = np.empty(depths, dtype=np.int64)
    found = 0
    trials = 0
    for lead in range(count):
        best = threshold + SAME
        seen = False
        room[0] = capacity
        left[0] = 1.0 + 1e-9
        total[0] = 0.0
        cursor[0] = lead
        depth = 0
        while depth >= 0:
            k = cursor[depth]
            if (depth == 0 and k > lead) or k == count:
                depth -= 1
                continue
            if total[depth] + left[depth] * p[k] / w[k] <= best or (
                total[depth] + _fractional(p, w, k, left[depth]) <= best
            ):
                depth -= 1
                continue
            cursor[depth] = k + 1
            trials += 1
            fits = True
            for d in range(dims):
                if s[k, d] > room[depth, d]:
                    fits = False
                    break
            if not fits:
                continue
            chosen[depth] = k
            for d in range(dims):
                room[depth + 1, d] = room[depth, d] - s[k, d]
            left[depth + 1] = max(0.0, left[depth] - w[k])
            total[depth + 1] = total[depth] + p[k]
            cursor[depth + 1] = k + 1
            depth += 1
            if total[depth] > best:
                if found == value.size:
                    return found, False
                value[found] = total[depth]
                length[found] = 0
                if depth <= sets.shape[1]:
                    length[found] = depth
                    for q in range(depth):
                        sets[found, q] = kept[chosen[q]]
                if every:
                    found += 1
                else:
                    best = total[depth]
                    seen = True
            if trials > most:
                return found, False
        if seen:
            found += 1
    return found, True
