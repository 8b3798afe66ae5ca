"""Annealing: raise the minimum yield of a placement by repairing the overload that a higher yield would cause.

Overload of a node is the sum over resources of what passes its capacity, relative to it. Each step takes a task
from an overloaded node and tries to move it, or to swap it with a task elsewhere; steps that add overload are taken
with the Metropolis probability at a temperature that falls geometrically. Once no node is overloaded, the placement
is better than any before and the yield aimed at rises. Looking only at overloaded nodes is what makes it quick:
near the optimum they are few. One proposal in four is a move, one a swap with any task, two are swaps with a task whose
size would mend the overload.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

import numpy as np

from dfrs.kernels.jit import Floats, Ints, Words, kernel
from dfrs.kernels.yields import minimum_yield

NEAR = 16
"""How many ranks an aimed swap may miss by: the other resources decide among tasks of about the right size."""


@kernel
def _draw(state: Words, count: int) -> int:
    """Next integer in [0, count) from the xorshift generator whose `state` (1,) is never zero."""
    s = state[0]
    s ^= s << np.uint64(13)
    s ^= s >> np.uint64(7)
    s ^= s << np.uint64(17)
    state[0] = s
    return (np.int64(s >> np.uint64(33)) * count) >> 31


@kernel
def _overload(load: Floats, size_out: Floats, size_in: Floats, scale: Floats) -> float:
    """Overload of one node with `load` (D,), in units of its capacity (`scale` = 1/capacity), after an exchange."""
    over = 0.0
    for d in range(load.size):
        excess = (load[d] - size_out[d] + size_in[d]) * scale[d] - 1.0
        if excess > 0.0:
            over += excess
    return over


@kernel
def _aimed_partner(size: Floats, load: Floats, scale: Floats, ranked: Ints, ranked_size: Floats, state: Words) -> int:
    """A task whose size (D,) differs from `size` by about what the node's most overloaded resource has too much.

    `ranked`, `ranked_size` (D, T): tasks by increasing size in each resource, and those sizes.
    """
    worst = 0
    excess = -np.inf
    for d in range(size.size):
        beyond = load[d] * scale[d] - 1.0
        if beyond > excess:
            worst = d
            excess = beyond
    wanted = size[worst] - excess * (0.5 + 1.5 * _draw(state, 1024) / 1024)
    near = np.searchsorted(ranked_size[worst], wanted) + _draw(state, 2 * NEAR + 1) - NEAR
    return ranked[worst, min(max(near, 0), ranked.shape[1] - 1)]


@kernel
def _fill(
    base: Floats,
    slope: Floats,
    target: float,
    capacity: Floats,
    scale: Floats,
    place: Ints,
    size: Floats,
    load: Floats,
    over: Floats,
    hot: Ints,
    at: Ints,
) -> int:
    """Sizes at yield `target`, loads, overloads and the list of overloaded nodes of `place`; how many those are."""
    tasks, dims = base.shape
    load[:] = 0.0
    for i in range(tasks):
        for d in range(dims):
            size[i, d] = base[i, d] + target * slope[i, d]
            load[place[i], d] += size[i, d]
    hots = 0
    nothing = np.zeros(dims)
    for n in range(capacity.shape[0]):
        over[n] = _overload(load[n], nothing, nothing, scale[n])
        at[n] = -1
        if over[n] > 0.0:
            at[n] = hots
            hot[hots] = n
            hots += 1
    return hots


@kernel
def climb(
    base: Floats,
    slope: Floats,
    capacity: Floats,
    tolerance: float,
    aims: tuple[float, float, float],
    place: Ints,
    origin: Ints,
    cost: Floats,
    budget: float,
    steps: int,
    heat: tuple[float, float],
    state: Words,
    best: Ints,
) -> tuple[float, float]:
    """Anneal `place` (T,) for `steps` proposals, raising the yield aimed at whenever every node is within capacity.

    `aims` = (start, rise, upper): the first yield aimed at; the share of what is left to `upper` that each success
    adds. `heat` = (first, last) temperature. Tasks away from `origin` (T,; -1 where free) cost `cost` (T,), never
    more than `budget` in all. The best placement goes into `best` (T,); returns (its yield or -1, yield aimed at
    last), from which a later call can go on.
    """
    tasks, dims = base.shape
    nodes = capacity.shape[0]
    start, rise, upper = aims
    scale = 1.0 / (capacity + tolerance)
    size = np.empty((tasks, dims))
    load = np.empty((nodes, dims))
    over = np.empty(nodes)
    hot = np.empty(nodes, dtype=np.int64)
    at = np.empty(nodes, dtype=np.int64)
    slot = np.empty(tasks, dtype=np.int64)
    count = np.zeros(nodes, dtype=np.int64)
    for i in range(tasks):
        count[place[i]] += 1
    widest = min(tasks, count.max() + 16)
    member = np.empty((nodes, widest), dtype=np.int64)
    count[:] = 0
    spent = 0.0
    for i in range(tasks):
        n = place[i]
        slot[i] = count[n]
        member[n, count[n]] = i
        count[n] += 1
        if origin[i] >= 0 and origin[i] != n:
            spent += cost[i]
    nothing = np.zeros(dims)
    found = -1.0
    target = start
    hots = _fill(base, slope, target, capacity, scale, place, size, load, over, hot, at)
    ranked = np.empty((dims, tasks), dtype=np.int64)
    ranked_size = np.empty((dims, tasks))
    for d in range(dims):
        ranked[d] = np.argsort(size[:, d])
        ranked_size[d] = size[ranked[d], d]
    temperature = heat[0]
    cooling = (heat[1] / heat[0]) ** (1.0 / max(1, steps))
    for _ in range(steps):
        while hots == 0:
            value = minimum_yield(base, slope, capacity, place, tolerance)
            if value > found:
                found = value
                best[:] = place
            if target >= upper or value >= upper:
                return found, target
            target = min(upper, max(value, target) + max(rise * (upper - value), 1e-5))
            hots = _fill(base, slope, target, capacity, scale, place, size, load, over, hot, at)
        temperature *= cooling
        a = hot[_draw(state, hots)]
        i = member[a, _draw(state, count[a])]
        kind = _draw(state, 4)
        swap = kind > 0
        j = -1
        if kind == 0:
            b = _draw(state, nodes)
        else:
            j = _draw(state, tasks)
            if kind > 1:
                j = _aimed_partner(size[i], load[a], scale[a], ranked, ranked_size, state)
            b = place[j]
        if b == a or (not swap and count[b] == widest):
            continue
        out = size[j] if swap else nothing
        over_a = _overload(load[a], size[i], out, scale[a])
        over_b = _overload(load[b], out, size[i], scale[b])
        change = over_a + over_b - over[a] - over[b]
        if change > 0.0 and change > -temperature * np.log((_draw(state, 1 << 30) + 1.0) / (1 << 30)):
            continue
        fee = 0.0
        if origin[i] >= 0:
            fee += cost[i] * (int(b != origin[i]) - int(a != origin[i]))
        if swap and origin[j] >= 0:
            fee += cost[j] * (int(a != origin[j]) - int(b != origin[j]))
        if fee > 0.0 and spent + fee > budget:
            continue
        spent += fee
        if swap:
            member[a, slot[i]] = j
            member[b, slot[j]] = i
            slot[i], slot[j] = slot[j], slot[i]
            place[j] = a
        else:
            count[a] -= 1
            last = member[a, count[a]]
            member[a, slot[i]] = last
            slot[last] = slot[i]
            member[b, count[b]] = i
            slot[i] = count[b]
            count[b] += 1
        place[i] = b
        for d in range(dims):
            load[a, d] += out[d] - size[i, d]
            load[b, d] += size[i, d] - out[d]
        over[a] = over_a
        over[b] = over_b
        for n in (a, b):
            if over[n] > 0.0 and at[n] < 0:
                at[n] = hots
                hot[hots] = n
                hots += 1
            elif over[n] <= 0.0 and at[n] >= 0:
                hots -= 1
                hot[at[n]] = hot[hots]
                at[hot[hots]] = at[n]
                at[n] = -1
    if hots == 0:
        value = minimum_yield(base, slope, capacity, place, tolerance)
        if value > found:
            found = value
            best[:] = place
    return found, target
