"""How many tasks must leave each node at a yield, and what that costs at least: covering problems, one a node.

`first` (N+1,), `member`: the tasks on node n are member[first[n]:first[n+1]].
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportAssignmentType=false, reportReturnType=false

import numpy as np

from dfrs.kernels.jit import Floats, Ints, kernel


@kernel
def members_of(place: Ints, nodes: int) -> tuple[Ints, Ints]:
    """`first` and `member` of a placement (T,), -1 for tasks that are nowhere; the tasks of a node by number."""
    first = np.zeros(nodes + 1, dtype=np.int64)
    for i in range(place.size):
        if place[i] >= 0:
            first[place[i] + 1] += 1
    for n in range(nodes):
        first[n + 1] += first[n]
    cursor = first[:-1].copy()
    member = np.empty(first[nodes], dtype=np.int64)
    for i in range(place.size):
        if place[i] >= 0:
            member[cursor[place[i]]] = i
            cursor[place[i]] += 1
    return first, member


@kernel
def _fewest(size: Floats, excess: float) -> int:
    """The fewest of `size` (M,) that add up to `excess`: the largest; M where all do not. Sorts `size`."""
    size.sort()
    count = 0
    while excess > 0.0 and count < size.size:
        count += 1
        excess -= size[size.size - count]
    return count


@kernel
def _cheapest(size: Floats, cost: Floats, excess: float) -> float:
    """The least cost of parts of tasks, of `size` (M,) and `cost` (M,), that add up to `excess`."""
    rate = np.empty(size.size)
    for k in range(size.size):
        rate[k] = cost[k] / size[k] if size[k] > 0.0 else np.inf
    paid = 0.0
    for k in np.argsort(rate):
        if excess <= 0.0 or size[k] <= 0.0:
            break
        part = min(1.0, excess / size[k])
        paid += part * cost[k]
        excess -= part * size[k]
    return paid


@kernel
def departures(
    base: Floats,
    slope: Floats,
    room: Floats,
    fixed: Floats,
    rate: Floats,
    first: Ints,
    member: Ints,
    cost: Floats,
    target: float,
    fewest: Ints,
    least: Floats,
) -> None:
    """Fill `fewest` (N,): how many tasks leave each node at least at yield `target`, and `least` (B,): at what cost.

    `room` (N, D): capacities with their tolerance; `fixed` and `rate` (N, D): sums of `base` and `slope` (T, D) over
    the tasks of each node. `cost` (B, T): of each task, in each unit. The cost of a node is the largest of the
    relaxations of its resources and of as many of its cheapest tasks as must leave.
    """
    dims, units = base.shape[1], cost.shape[0]
    least[:] = 0.0
    excess = np.empty(dims)
    for n in range(room.shape[0]):
        fewest[n] = 0
        for d in range(dims):
            excess[d] = fixed[n, d] + target * rate[n, d] - room[n, d]
        if excess.max() <= 0.0:
            continue
        here = member[first[n] : first[n + 1]]
        size = np.empty((dims, here.size))
        for d in range(dims):
            for m in range(here.size):
                size[d, m] = base[here[m], d] + target * slope[here[m], d]
            if excess[d] > 0.0:
                fewest[n] = max(fewest[n], _fewest(size[d].copy(), excess[d]))
        price = np.empty(here.size)
        for b in range(units):
            for m in range(here.size):
                price[m] = cost[b, here[m]]
            paid = 0.0
            for d in range(dims):
                if excess[d] > 0.0:
                    paid = max(paid, _cheapest(size[d], price, excess[d]))
            price.sort()
            least[b] += max(paid, price[: fewest[n]].sum())
