"""How many tasks must leave each node at a yield, and what that costs at least: covering problems, one a node.

`first` (N+1,), `member`: the tasks on node n are member[first[n]:first[n+1]].
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

import numpy as np

from dfrs.kernels.jit import Bools, Floats, Ints, kernel


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
    capacity: Floats,
    first: Ints,
    member: Ints,
    leaving: Bools,
    cost: Floats,
    target: float,
    tolerance: Floats,
    fewest: Ints,
    least: Floats,
) -> None:
    """Fill `fewest` (N,): how many tasks leave each node at least at yield `target`, and `least` (B,): at what cost.

    Loads may pass capacities by `tolerance` (D,). Tasks that are `leaving` (T,) do in any case. `cost` (B, T): of each
    task, in each unit. The cost of a node is the largest of the relaxations of its resources and of as many of its
    cheapest tasks as must leave.
    """
    dims, units = base.shape[1], cost.shape[0]
    least[:] = 0.0
    excess = np.empty(dims)
    for n in range(capacity.shape[0]):
        members = first[n + 1] - first[n]
        stay = np.empty(members, dtype=np.int64)
        stays = 0
        fewest[n] = 0
        for d in range(dims):
            excess[d] = -capacity[n, d] - tolerance[d]
        for m in range(first[n], first[n + 1]):
            i = member[m]
            if leaving[i]:
                fewest[n] += 1
                for b in range(units):
                    least[b] += cost[b, i]
                continue
            stay[stays] = i
            stays += 1
            for d in range(dims):
                excess[d] += base[i, d] + target * slope[i, d]
        if excess.max() <= 0.0:
            continue
        size = np.empty((dims, stays))
        for d in range(dims):
            for m in range(stays):
                size[d, m] = base[stay[m], d] + target * slope[stay[m], d]
        count = 0
        for d in range(dims):
            count = max(count, _fewest(size[d].copy(), excess[d]))
        fewest[n] += count
        price = np.empty(stays)
        for b in range(units):
            for m in range(stays):
                price[m] = cost[b, stay[m]]
            paid = 0.0
            for d in range(dims):
                paid = max(paid, _cheapest(size[d], price, excess[d]))
            price.sort()
            least[b] += max(paid, price[:count].sum())
