"""The highest yield a packer reaches, by bisection ([Stillwell2010] 4.2.5), and the degree-of-dominance add-on."""

import numpy as np

from dfrs.kernels.jit import Floats, Ints, Plan, kernel
from dfrs.kernels.packing import pack, sort_order
from dfrs.kernels.sorting import stable_order

FAILED = -1.0


@kernel
def dominance_order(size: Floats, capacity: Floats, place: Ints) -> Ints:
    """Tasks by decreasing sum of coordinates weighted with each dimension's degree of dominance.

    The degree of a dimension is the share of (node, task) pairs in which adding the task to the node, as the
    (possibly partial) assignment `place` (T,) has loaded it, would exceed the node's capacity there.
    """
    tasks, dims = size.shape
    nodes = capacity.shape[0]
    load = np.zeros((nodes, dims))
    for i in range(tasks):
        if place[i] >= 0:
            for d in range(dims):
                load[place[i], d] += size[i, d]
    degree = np.zeros(dims)
    for d in range(dims):
        column = np.sort(size[:, d])
        for n in range(nodes):
            within = np.searchsorted(column, capacity[n, d] - load[n, d], side="right")
            degree[d] += tasks - within
    key = np.zeros(tasks)
    for i in range(tasks):
        for d in range(dims):
            key[i] += degree[d] * size[i, d]
    return stable_order(key, False)


@kernel
def search_yield(
    base: Floats,
    slope: Floats,
    capacity: Floats,
    tolerance: float,
    bounds: tuple[float, float, bool],
    method: int,
    criterion: int,
    ascending: bool,
    lexicographic: Ints,
    window: int,
    plan: Plan,
    list_of_code: Ints,
    dominance: bool,
    place: Ints,
) -> float:
    """Bisect [0, bound] for the highest yield at which the packer succeeds; the packing goes into `place` (T,).

    `bounds` = (upper, width, ends): stop at `width`; with `ends`, the upper end is tried first and, if no midpoint
    succeeded, 0 last. Returns the yield searched (the placement may allow more), or -1.
    """
    upper, width, ends = bounds
    trial = np.empty(base.shape[0], dtype=np.int64)
    found = FAILED
    low = 0.0
    high = upper
    stage = 0 if ends else 1
    while True:
        if stage == 0:
            target = upper
        elif high - low > width:
            target = 0.5 * (low + high)
        elif ends and found < 0.0 and stage == 1:
            stage = 2
            target = 0.0
        else:
            return found
        size = base + target * slope
        order = sort_order(size, criterion, ascending, lexicographic)
        success = pack(size, order, capacity, tolerance, method, dominance, window, plan, list_of_code, trial)
        if not success and dominance:
            order = dominance_order(size, capacity, trial)
            success = pack(size, order, capacity, tolerance, method, dominance, window, plan, list_of_code, trial)
        if success:
            found = target
            place[:] = trial
        if stage == 2 or (stage == 0 and success):
            return found
        if stage == 0:
            stage = 1
        elif success:
            low = target
        else:
            high = target
