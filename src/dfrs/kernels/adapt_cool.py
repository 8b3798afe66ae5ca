"""From the hottest node to the coldest: the plain greedy of load balancers, one move at a time."""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

import numpy as np

from dfrs.kernels.adapt_state import Board, Moves, affords, lift, put
from dfrs.kernels.jit import Floats, kernel
from dfrs.kernels.rules import RuleArrays, may_move
from dfrs.kernels.yields import node_loads


@kernel
def _allows(moves: Moves, fixed: Floats, rate: Floats, n: int, i: int, sign: float, least: float) -> float:
    """The yield that node `n` allows once task `i` has come (`sign` 1) or left (-1); -1 where it is not above `least`.

    `fixed` and `rate` (N, D) are its loads.
    """
    best = 1.0
    for d in range(fixed.shape[1]):
        free = moves.capacity[n, d] - fixed[n, d] - sign * moves.base[i, d]
        speed = rate[n, d] + sign * moves.slope[i, d]
        if free < 0.0:
            return -1.0
        # What is left of a rate when all its tasks are gone is rounding.
        if speed > 1e-15 and speed * best > free:
            best = free / speed
            if best <= least:
                return -1.0
    return best


@kernel
def _yield(moves: Moves, fixed: Floats, rate: Floats, n: int) -> float:
    """The yield that node `n` allows; -1 where its requirements do not fit."""
    best = 1.0
    for d in range(fixed.shape[1]):
        free = moves.capacity[n, d] - fixed[n, d]
        if free < 0.0:
            return -1.0
        if rate[n, d] > 1e-15 and rate[n, d] * best > free:
            best = free / rate[n, d]
    return best


@kernel
def cool(moves: Moves, rules: RuleArrays, board: Board, steps: int) -> int:
    """Up to `steps` times, move a task from the node with the lowest yield; how many moves were made.

    Each of its tasks would go where the yield is highest once it has come. The one is chosen for which the lower yield
    of the two nodes is then largest, the first of equals in the node's list, if that is above the node's yield now.
    """
    nodes, dims = moves.capacity.shape
    fixed, rate = node_loads(moves.base, moves.slope, nodes, board.place)
    value = np.empty(nodes)
    for n in range(nodes):
        value[n] = _yield(moves, fixed, rate, n)
    for step in range(steps):
        a = np.argmin(value)
        best, task, target = value[a], -1, -1
        i = board.head[a]
        while i >= 0:
            left = _allows(moves, fixed, rate, a, i, -1.0, best) if affords(moves, board, i) else -1.0
            if left > best:
                most, coldest = best, -1
                for b in range(nodes):
                    if b == a or value[b] <= most:
                        continue
                    there = _allows(moves, fixed, rate, b, i, 1.0, most)
                    if there > most and may_move(rules, board.counts, board.used, i, a, b):
                        most, coldest = there, b
                if coldest >= 0:
                    best, task, target = min(left, most), i, coldest
            i = board.after[i]
        if task < 0:
            return step
        lift(moves, rules, board, task)
        put(moves, rules, board, task, target)
        for d in range(dims):
            fixed[a, d] -= moves.base[task, d]
            rate[a, d] -= moves.slope[task, d]
            fixed[target, d] += moves.base[task, d]
            rate[target, d] += moves.slope[task, d]
        for n in (a, target):
            value[n] = _yield(moves, fixed, rate, n)
    return steps
