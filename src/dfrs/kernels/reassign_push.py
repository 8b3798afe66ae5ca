"""Pushes: a process goes to a machine that has no room for it, and those in its way go to other machines first.

Large processes seldom find room, and at low temperatures nothing makes it for them. Each step of a push is a shift that
keeps all hard constraints; together they are made or taken back.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

import numpy as np

from dfrs.kernels.genetic import below, uniform
from dfrs.kernels.jit import Ints, Words, kernel
from dfrs.kernels.reassign import (
    SHAPE,
    SOURCE,
    TARGET,
    WHO,
    State,
    carry_out,
    change,
    cost_after,
    fits,
    has,
    kept,
    record,
    travel,
)

LONGEST = 8
"""Processes that move in a push."""
_RIVALS = 3
"""The process to push is on the most expensive machine of so many random processes."""
_WINDOW = 128
"""So many machines, from a random one on, are asked to take a process that is in the way."""


@kernel
def shift(state: State, move: Ints, p: int, m: int) -> bool:
    """Move process `p` to machine `m`, which has room for it; False, and nothing moved, where rules forbid it."""
    move[WHO, 0] = p
    move[SOURCE, 0] = state.place[p]
    move[TARGET, 0] = m
    move[SHAPE, 0] = 1
    move[SHAPE, 1] = 0
    record(state.rules, move, False)
    if not kept(state.rules, move):
        record(state.rules, move, True)
        return False
    carry_out(state, move, change(state, move))
    return True


@kernel
def takes(need: Ints, room: Ints, home: Ints, service: Ints, present: Words, p: int, m: int) -> bool:
    """Whether machine `m` has the capacity for process `p`, and no other process of its service."""
    return not has(present, service[p], m) and fits(need, room, home, m, service.size, p)


@kernel
def best_target(state: State, p: int, barred: int, start: int) -> int:
    """The machine of a window from `start` on that takes process `p` at the least cost; not `barred`; -1 if none."""
    loads, moves = state.loads, state.moves
    need, room, home = loads.need, loads.room, moves.home
    service, present = state.rules.service, state.rules.present
    cost, place = loads.cost, state.place
    none = service.size
    machines = cost.size
    best = -1
    least = 0
    for k in range(min(machines, _WINDOW)):
        m = (start + k) % machines
        if m not in (barred, place[p]) and takes(need, room, home, service, present, p, m):
            price = cost_after(loads, m, none, p) - cost[m] + travel(moves, p, m)
            if best < 0 or price < least:
                best = m
                least = price
    return best


@kernel
def helps(need: Ints, room: Ints, p: int, q: int, m: int) -> bool:
    """Whether process `q`, if it left machine `m`, would leave something that `p` lacks there."""
    useful = False
    for r in range(need.shape[1]):
        useful |= need[p, r] > room[m, r] and need[q, r] > 0
    return useful


@kernel
def random_on(state: State, words: Words, m: int) -> tuple[int, int]:
    """(a random process on machine `m`, how many there are); (-1, 0) if there is none."""
    head = state.head[m]
    if head < 0:
        return -1, 0
    count = 1
    q = state.after[head]
    while q != head:
        count += 1
        q = state.after[q]
    for _ in range(below(words, count)):
        q = state.after[q]
    return q, count


@kernel
def make_way(state: State, words: Words, move: Ints, p: int, m: int, trail: Ints) -> int:
    """Move processes from machine `m`, each at most once, until it takes process `p` or no more can be done: how many.

    `trail` has them, and where they were.
    """
    need, room, home = state.loads.need, state.loads.room, state.moves.home
    service, present = state.rules.service, state.rules.present
    machines = state.head.size
    made = 0
    q, count = random_on(state, words, m)
    for _ in range(count):
        if made == LONGEST - 1 or takes(need, room, home, service, present, p, m):
            return made
        following = state.after[q]
        if service[q] == service[p] or helps(need, room, p, q, m):
            to = best_target(state, q, m, below(words, machines))
            if to >= 0 and shift(state, move, q, to):
                trail[0, made] = q
                trail[1, made] = m
                made += 1
        q = following
    return made


@kernel
def push(state: State, words: Words, heat: float, move: Ints, trail: Ints) -> int:
    """Push a random process to a random machine: how many processes moved, 0 if annealing at `heat` does not take it.

    Those are in the first row of `trail` (2, LONGEST), modified with `move` (4, 3).
    """
    place, cost = state.place, state.loads.cost
    need, room, home = state.loads.need, state.loads.room, state.moves.home
    service, present = state.rules.service, state.rules.present
    p = below(words, place.size)
    for _ in range(_RIVALS - 1):
        q = below(words, place.size)
        if cost[place[q]] > cost[place[p]]:
            p = q
    a = place[p]
    m = below(words, cost.size)
    if m == a:
        return 0
    before = state.total[0]
    count = make_way(state, words, move, p, m, trail)
    if takes(need, room, home, service, present, p, m) and shift(state, move, p, m):
        trail[0, count] = p
        trail[1, count] = a
        count += 1
        delta = state.total[0] - before
        if delta <= 0 or delta <= -heat * np.log(1.0 - uniform(words)):
            return count
    for k in range(count - 1, -1, -1):
        shift(state, move, trail[0, k], trail[1, k])
    return 0
