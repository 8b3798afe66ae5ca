"""Annealing within a budget: mend the overload that a yield a little above the best one causes, move by move.

The proposals are those of `dfrs.kernels.local_search`: moves from overloaded nodes, and swaps, of which two in three
with a task whose size would mend the overload. It refuses what the limits or the rules do, and a task that goes home
brings back what it cost. It starts cold, as near the optimum most of a budget is spent well.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

import numpy as np

from dfrs.kernels.adapt_state import Board, Moves, aim, lift, put
from dfrs.kernels.jit import Ints, Words, kernel
from dfrs.kernels.local_search import NEAR, draw
from dfrs.kernels.rules import RuleArrays, may_move, may_swap
from dfrs.kernels.yields import minimum_yield


@kernel
def _over(moves: Moves, board: Board, n: int, out: int, into: int) -> float:
    """Overload of node `n` relative to its capacity once task `out` has left it and `into` has come (-1: none)."""
    over = 0.0
    for d in range(board.free.shape[1]):
        free = board.free[n, d]
        if out >= 0:
            free += board.size[out, d]
        if into >= 0:
            free -= board.size[into, d]
        if free < 0.0:
            over -= free / moves.capacity[n, d]
    return over


@kernel
def _member(board: Board, n: int, k: int) -> int:
    """Task number `k` in the list of node `n`."""
    i = board.head[n]
    for _ in range(k):
        i = board.after[i]
    return i


@kernel
def _partner(moves: Moves, board: Board, i: int, a: int, ranked: Ints, state: Words) -> int:
    """A task that is about as much smaller than `i`, on node `a`, as the node's scarcest resource lacks.

    `ranked` (D, T): tasks by increasing size in each resource.
    """
    worst, least = 0, np.inf
    for d in range(board.free.shape[1]):
        free = board.free[a, d] / moves.capacity[a, d]
        if free < least:
            worst, least = d, free
    wanted = board.size[i, worst] + board.free[a, worst] * (0.5 + 1.5 * draw(state, 1024) / 1024)
    low, high = 0, ranked.shape[1]
    while low < high:
        middle = (low + high) // 2
        if board.size[ranked[worst, middle], worst] < wanted:
            low = middle + 1
        else:
            high = middle
    return ranked[worst, min(max(low + draw(state, 2 * NEAR + 1) - NEAR, 0), ranked.shape[1] - 1)]


@kernel
def _affordable(moves: Moves, board: Board, i: int, b: int, j: int, a: int) -> bool:
    """Whether the limits allow task `i` on node `b`, and task `j` (-1: none) on node `a`."""
    for k in range(moves.amount.size):
        change = 0.0
        if moves.origin[i] >= 0:
            change += moves.cost[k, i] * (int(b != moves.origin[i]) - int(board.place[i] != moves.origin[i]))
        if j >= 0 and moves.origin[j] >= 0:
            change += moves.cost[k, j] * (int(a != moves.origin[j]) - int(board.place[j] != moves.origin[j]))
        if change > 0.0 and board.spent[k] + change > moves.amount[k]:
            return False
    return True


@kernel
def _warm(moves: Moves, board: Board, over: np.ndarray, hot: Ints, at: Ints) -> int:
    """Overloads (N,) and the list of overloaded nodes; how many there are."""
    hots = 0
    for n in range(over.size):
        over[n] = _over(moves, board, n, -1, -1)
        at[n] = -1
        if over[n] > 0.0:
            at[n] = hots
            hot[hots] = n
            hots += 1
    return hots


@kernel
def anneal(
    moves: Moves,
    rules: RuleArrays,
    board: Board,
    aims: tuple[float, float, float],
    steps: int,
    heat: tuple[float, float],
    state: Words,
    best: Ints,
) -> tuple[float, float]:
    """Anneal `board` for `steps` proposals, raising the yield aimed at whenever every node is within capacity.

    `aims` = (target, rise, upper): the yield that `board` aims at; the share of what is left to `upper` that each
    success adds. `heat`: first and last temperature. The best placement goes into `best` (T,); returns (its yield or
    -1, yield aimed at last), from which a later call can go on.
    """
    tasks, dims = moves.base.shape
    nodes = moves.capacity.shape[0]
    target, rise, upper = aims
    over = np.empty(nodes)
    hot = np.empty(nodes, dtype=np.int64)
    at = np.empty(nodes, dtype=np.int64)
    held = np.zeros(nodes, dtype=np.int64)
    for i in range(tasks):
        held[board.place[i]] += 1
    ranked = np.empty((dims, tasks), dtype=np.int64)
    for d in range(dims):
        ranked[d] = np.argsort(board.size[:, d], kind="mergesort")
    hots = _warm(moves, board, over, hot, at)
    found = -1.0
    temperature = heat[0]
    cooling = (heat[1] / heat[0]) ** (1.0 / max(1, steps))
    for _ in range(steps):
        while hots == 0:
            value = minimum_yield(moves.base, moves.slope, moves.capacity, board.place, 0.0)
            if value > found:
                found = value
                best[:] = board.place
            if target >= upper or value >= upper:
                return found, target
            target = min(upper, max(value, target) + max(rise * (upper - value), 1e-5))
            aim(moves, board, target)
            hots = _warm(moves, board, over, hot, at)
        temperature *= cooling
        a = hot[draw(state, hots)]
        i = _member(board, a, draw(state, held[a]))
        kind = draw(state, 4)
        j = -1
        if kind == 0:
            b = draw(state, nodes)
        else:
            j = draw(state, tasks) if kind == 1 else _partner(moves, board, i, a, ranked, state)
            b = board.place[j]
        if b == a:
            continue
        over_a, over_b = _over(moves, board, a, i, j), _over(moves, board, b, j, i)
        change = over_a + over_b - over[a] - over[b]
        if change > 0.0 and change > -temperature * np.log((draw(state, 1 << 30) + 1.0) / (1 << 30)):
            continue
        if not _affordable(moves, board, i, b, j, a):
            continue
        if j < 0:
            if not may_move(rules, board.counts, board.used, i, a, b):
                continue
            held[a] -= 1
            held[b] += 1
        elif not may_swap(rules, board.counts, board.used, i, a, j, b):
            continue
        lift(moves, rules, board, i)
        if j >= 0:
            lift(moves, rules, board, j)
            put(moves, rules, board, j, a)
        put(moves, rules, board, i, b)
        over[a], over[b] = over_a, over_b
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
        value = minimum_yield(moves.base, moves.slope, moves.capacity, board.place, 0.0)
        if value > found:
            found = value
            best[:] = board.place
    return found, target
