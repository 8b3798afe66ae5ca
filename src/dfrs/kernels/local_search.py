"""Annealing: raise the minimum yield of a placement by repairing the overload that a higher yield would cause.

Overload of a node is the sum over resources of what passes its capacity, relative to it. Each step takes a task
from an overloaded node and tries to move it, or to swap it with a task elsewhere; steps that add overload are taken
with the Metropolis probability at a temperature that falls geometrically. Once no node is overloaded, the placement
is better than any before and the yield aimed at rises. Looking only at overloaded nodes is what makes it quick:
near the optimum they are few. One proposal in four is a move, one a swap with any task, two are swaps with a task whose
size would mend the overload.

Steps that would break a placement rule, or a broken one more, are not taken: a start that keeps the rules keeps them.

A `Descent` holds all of it between calls of `climb`: what changes with a step costs no more than the step.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

from typing import NamedTuple

import numpy as np

from dfrs.kernels.jit import Floats, Ints, Words, kernel
from dfrs.kernels.rules import RuleArrays, count_members, may_move, may_swap, record
from dfrs.kernels.sorting import stable_order
from dfrs.kernels.yields import minimum_yield

NEAR = 16
"""How many ranks an aimed swap may miss by: the other resources decide among tasks of about the right size."""
SPARE = 16
"""Tasks that a node may gain before all lists of tasks are laid out anew."""
LEAST_RISE = 1e-5
"""Of the yield aimed at."""
STALE = 0.01
"""Rise of the yield aimed at after which tasks are ranked by size again."""


class Descent(NamedTuple):
    """An annealing: T tasks, N nodes, D resources, and all that follows from where the tasks are."""

    base: Floats
    slope: Floats
    capacity: Floats
    scale: Floats
    """(N, D) 1 / (capacity + tolerance)."""
    place: Ints
    """(T,) the node of each task."""
    best: Ints
    """(T,) the best placement so far, where `aim` says that there is one."""
    size: Floats
    """(T, D) sizes at the yield aimed at."""
    load: Floats
    """(N, D)"""
    over: Floats
    """(N,) overload of each node."""
    hot: Ints
    """(N,) the overloaded nodes, as many as `number` says."""
    at: Ints
    """(N,) where in `hot` a node is, or -1."""
    first: Ints
    """(N+1,) the tasks of node n are member[first[n] : first[n] + held[n]]; it has room up to first[n + 1]."""
    held: Ints
    member: Ints
    """(T + N * SPARE,)"""
    slot: Ints
    """(T,) where in `member` a task is."""
    ranked: Ints
    """(D, T) tasks by increasing size in each resource."""
    ranked_size: Floats
    """(D, T) those sizes, at the yield at which they were ranked."""
    aim: Floats
    """(3,) the yield aimed at; the best one found, or -1; the yield at which tasks were ranked."""
    number: Ints
    """(3,) how many nodes are overloaded; 1 where a move was refused for want of room; 1 where rules bind."""
    rules: RuleArrays
    grouped: Ints
    """Members of each group in each of its domains, as `count_members` has it."""
    used: Ints
    """(G,) domains with members of each group."""
    words: Words
    """(1,) of the generator; never zero."""


def start_descent(
    base: Floats,
    slope: Floats,
    capacity: Floats,
    tolerance: float,
    rules: RuleArrays,
    place: Ints,
    target: float,
    word: int,
) -> Descent:
    """A descent from `place` (T,), which is copied, aiming at yield `target`; `word` is not zero."""
    (tasks, dims), nodes = base.shape, len(capacity)
    descent = Descent(
        base=base,
        slope=slope,
        capacity=capacity,
        scale=1.0 / (capacity + tolerance),
        place=place.astype(np.int64),
        best=np.full(tasks, -1, dtype=np.int64),
        size=np.empty((tasks, dims)),
        load=np.empty((nodes, dims)),
        over=np.empty(nodes),
        hot=np.full(nodes, -1, dtype=np.int64),
        at=np.empty(nodes, dtype=np.int64),
        first=np.empty(nodes + 1, dtype=np.int64),
        held=np.empty(nodes, dtype=np.int64),
        member=np.empty(tasks + nodes * SPARE, dtype=np.int64),
        slot=np.empty(tasks, dtype=np.int64),
        ranked=np.empty((dims, tasks), dtype=np.int64),
        ranked_size=np.empty((dims, tasks)),
        aim=np.array([target, -1.0, target]),
        number=np.array([0, 0, int(rules.level.size > 0 or not rules.allowed.all())]),
        rules=rules,
        grouped=np.zeros(rules.offset[-1], dtype=np.int64),
        used=np.zeros(rules.level.size, dtype=np.int64),
        words=np.array([word], dtype=np.uint64),
    )
    aim_at(descent, target)
    lay_out(descent)
    rank(descent)
    count_members(rules, descent.place, descent.grouped, descent.used)
    return descent


@kernel
def draw(state: Words, count: int) -> int:
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
    wanted = size[worst] - excess * (0.5 + 1.5 * draw(state, 1024) / 1024)
    near = np.searchsorted(ranked_size[worst], wanted) + draw(state, 2 * NEAR + 1) - NEAR
    return ranked[worst, min(max(near, 0), ranked.shape[1] - 1)]


@kernel
def aim_at(descent: Descent, target: float) -> None:
    """Sizes at yield `target`, and the loads, overloads and overloaded nodes that follow from them."""
    base, slope, place, size = descent.base, descent.slope, descent.place, descent.size
    load, over, hot, at = descent.load, descent.over, descent.hot, descent.at
    tasks, dims = base.shape
    descent.aim[0] = target
    load[:] = 0.0
    for i in range(tasks):
        for d in range(dims):
            size[i, d] = base[i, d] + target * slope[i, d]
            load[place[i], d] += size[i, d]
    hots = 0
    nothing = np.zeros(dims)
    for n in range(over.size):
        over[n] = _overload(load[n], nothing, nothing, descent.scale[n])
        at[n] = -1
        if over[n] > 0.0:
            at[n] = hots
            hot[hots] = n
            hots += 1
    descent.number[0] = hots


@kernel
def lay_out(descent: Descent) -> None:
    """The lists of each node's tasks, by index, with room for SPARE more on each node."""
    place, first, held, member, slot = descent.place, descent.first, descent.held, descent.member, descent.slot
    held[:] = 0
    for i in range(place.size):
        held[place[i]] += 1
    first[0] = 0
    for n in range(held.size):
        first[n + 1] = first[n] + held[n] + SPARE
    held[:] = 0
    for i in range(place.size):
        n = place[i]
        slot[i] = first[n] + held[n]
        member[slot[i]] = i
        held[n] += 1
    descent.number[1] = 0


@kernel
def rank(descent: Descent) -> None:
    """Rank the tasks by their present sizes."""
    descent.aim[2] = descent.aim[0]
    for d in range(descent.size.shape[1]):
        order = stable_order(descent.size[:, d].copy(), True)
        for r in range(order.size):
            descent.ranked[d, r] = order[r]
            descent.ranked_size[d, r] = descent.size[order[r], d]


@kernel
def _note(descent: Descent, a: int, over_a: float) -> None:
    """Node `a` has overload `over_a` now."""
    hot, at, hots = descent.hot, descent.at, descent.number[0]
    descent.over[a] = over_a
    if over_a > 0.0 and at[a] < 0:
        at[a] = hots
        hot[hots] = a
        descent.number[0] = hots + 1
    elif over_a <= 0.0 and at[a] >= 0:
        hots -= 1
        hot[at[a]] = hot[hots]
        at[hot[hots]] = at[a]
        at[a] = -1
        descent.number[0] = hots


@kernel
def _exchange(descent: Descent, i: int, b: int, j: int) -> None:
    """Task `i` goes to node `b`, and task `j`, where it is not -1, from there to where `i` was; loads and lists too."""
    place, slot, member, held = descent.place, descent.slot, descent.member, descent.held
    load, size = descent.load, descent.size
    a = place[i]
    if descent.number[2] > 0:
        record(descent.rules, descent.grouped, descent.used, i, a, b)
        if j >= 0:
            record(descent.rules, descent.grouped, descent.used, j, b, a)
    if j >= 0:
        slot[i], slot[j] = slot[j], slot[i]
        member[slot[i]] = i
        member[slot[j]] = j
        place[j] = a
        for d in range(size.shape[1]):
            load[a, d] += size[j, d] - size[i, d]
            load[b, d] += size[i, d] - size[j, d]
    else:
        held[a] -= 1
        last = member[descent.first[a] + held[a]]
        member[slot[i]] = last
        slot[last] = slot[i]
        slot[i] = descent.first[b] + held[b]
        member[slot[i]] = i
        held[b] += 1
        for d in range(size.shape[1]):
            load[a, d] -= size[i, d]
            load[b, d] += size[i, d]
    place[i] = b


@kernel
def _may(descent: Descent, i: int, b: int, j: int) -> bool:
    """Whether the rules let task `i` go to node `b`, in exchange for `j` where it is not -1."""
    a = descent.place[i]
    if j >= 0:
        return may_swap(descent.rules, descent.grouped, descent.used, i, a, j, b)
    return may_move(descent.rules, descent.grouped, descent.used, i, a, b)


@kernel
def _rise(descent: Descent, tolerance: float, rise: float, upper: float) -> bool:
    """Keep a placement without overload, and aim higher until there is some; False where nothing is above."""
    aim = descent.aim
    while descent.number[0] == 0:
        value = minimum_yield(descent.base, descent.slope, descent.capacity, descent.place, tolerance)
        if value > aim[1]:
            aim[1] = value
            descent.best[:] = descent.place
        if aim[0] >= upper or value >= upper:
            return False
        aim_at(descent, min(upper, max(value, aim[0]) + max(rise * (upper - value), LEAST_RISE)))
    if aim[0] > aim[2] + STALE:
        rank(descent)
    return True


@kernel
def climb(descent: Descent, tolerance: float, aims: tuple[float, float], steps: int, heat: tuple[float, float]) -> bool:
    """Anneal for `steps` proposals, aiming higher whenever every node is within capacity; whether to go on.

    `aims` = (rise, upper): each success adds `rise` of what is left to `upper` to the yield aimed at. `heat` = (first,
    last) temperature. The best placement is in `descent.best`, its yield in `descent.aim[1]`.
    """
    place, size, load, scale, over = descent.place, descent.size, descent.load, descent.scale, descent.over
    hot, first, held, member = descent.hot, descent.first, descent.held, descent.member
    number, words = descent.number, descent.words
    tasks, dims = size.shape
    nodes = over.size
    rise, upper = aims
    nothing = np.zeros(dims)
    if number[1] > 0:
        lay_out(descent)
    temperature = heat[0]
    cooling = (heat[1] / heat[0]) ** (1.0 / max(1, steps))
    for _ in range(steps):
        if number[0] == 0 and not _rise(descent, tolerance, rise, upper):
            return False
        temperature *= cooling
        a = hot[draw(words, number[0])]
        i = member[first[a] + draw(words, held[a])]
        kind = draw(words, 4)
        swap = kind > 0
        j = -1
        if kind == 0:
            b = draw(words, nodes)
        else:
            j = draw(words, tasks)
            if kind > 1:
                j = _aimed_partner(size[i], load[a], scale[a], descent.ranked, descent.ranked_size, words)
            b = place[j]
        if b == a:
            continue
        if not swap and first[b] + held[b] == first[b + 1]:
            number[1] = 1
            continue
        out = size[j] if swap else nothing
        over_a = _overload(load[a], size[i], out, scale[a])
        over_b = _overload(load[b], out, size[i], scale[b])
        change = over_a + over_b - over[a] - over[b]
        if change > 0.0 and change > -temperature * np.log((draw(words, 1 << 30) + 1.0) / (1 << 30)):
            continue
        if number[2] > 0 and not _may(descent, i, b, j):
            continue
        _exchange(descent, i, b, j)
        _note(descent, a, over_a)
        _note(descent, b, over_b)
    return number[0] > 0 or _rise(descent, tolerance, rise, upper)
