"""Which tasks leave a node that has too little: few, cheap, and then those that are easiest to place."""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

import numpy as np

from dfrs.kernels.adapt_state import Board, Moves, affords, fee, weight
from dfrs.kernels.jit import Bools, Floats, Ints, kernel

FREE = 1e-12
"""Stands for the price of a task that moves for nothing, where a gain is divided by it."""


@kernel
def _covers(board: Board, i: int, lack: Floats) -> bool:
    """Whether the departure of task `i` alone mends `lack` (D,)."""
    enough = True
    for d in range(lack.size):
        enough = enough and board.size[i, d] >= lack[d]
    return enough


@kernel
def _gain(board: Board, i: int, left: Floats, lack: Floats) -> float:
    """The parts of `lack` (D,) that the departure of task `i` mends of what is `left` (D,)."""
    gain = 0.0
    for d in range(lack.size):
        if left[d] > 0.0:
            gain += min(board.size[i, d], left[d]) / lack[d]
    return gain


@kernel
def _add(board: Board, i: int, left: Floats, sign: float) -> None:
    for d in range(left.size):
        left[d] += sign * board.size[i, d]


@kernel
def _eligible(moves: Moves, board: Board, n: int, free_only: bool) -> Ints:
    """The tasks on node `n` that may leave it within the limits; with `free_only` those that move for nothing."""
    count = 0
    i = board.head[n]
    while i >= 0:
        count += 1
        i = board.after[i]
    found = np.empty(count, dtype=np.int64)
    count = 0
    i = board.head[n]
    while i >= 0:
        if (board.place[i] != moves.origin[i]) if free_only else affords(moves, board, i):
            found[count] = i
            count += 1
        i = board.after[i]
    return found[:count]


@kernel
def _single(moves: Moves, board: Board, member: Ints, lack: Floats) -> int:
    """The cheapest, then lightest, of `member` (M,) that mends `lack` (D,) alone; -1 if none does."""
    best, best_fee, best_weight = -1, np.inf, np.inf
    for i in member:
        if _covers(board, i, lack):
            price, heavy = fee(moves, board, i), weight(board, i)
            if price < best_fee or (price == best_fee and heavy < best_weight):
                best, best_fee, best_weight = i, price, heavy
    return best


@kernel
def _greedy(moves: Moves, board: Board, member: Ints, lack: Floats, chosen: Bools, left: Floats) -> bool:
    """Mark in `chosen` (M,) tasks that mend `lack` (D,), most for their price first; `left` (D,) is what remains."""
    chosen[:] = False
    left[:] = lack
    while left.max() > 0.0:
        best, best_rate, best_weight = -1, 0.0, np.inf
        for m in range(member.size):
            if chosen[m]:
                continue
            i = member[m]
            rate = _gain(board, i, left, lack) / (fee(moves, board, i) + FREE)
            if rate > best_rate or (rate == best_rate and best >= 0 and weight(board, i) < best_weight):
                best, best_rate, best_weight = m, rate, weight(board, i)
        if best < 0:
            return False
        chosen[best] = True
        _add(board, member[best], left, -1.0)
    return True


@kernel
def _lighten(moves: Moves, board: Board, member: Ints, chosen: Bools, left: Floats) -> None:
    """Drop from `chosen` (M,) what is not needed, and exchange tasks for lighter ones that cost no more."""
    for m in range(member.size):
        if not chosen[m]:
            continue
        i = member[m]
        _add(board, i, left, 1.0)
        if left.max() <= 0.0:
            chosen[m] = False
            continue
        best, best_fee, best_weight = m, fee(moves, board, i), weight(board, i)
        for q in range(member.size):
            j = member[q]
            if chosen[q] or not _covers(board, j, left):
                continue
            price, heavy = fee(moves, board, j), weight(board, j)
            if price < best_fee or (price == best_fee and heavy < best_weight):
                best, best_fee, best_weight = q, price, heavy
        chosen[m] = False
        chosen[best] = True
        _add(board, member[best], left, -1.0)


@kernel
def cover(moves: Moves, board: Board, n: int, lack: Floats, free_only: bool, out: Ints) -> int:
    """Tasks on node `n` that together mend `lack` (D,; what is not positive does not matter).

    Their numbers go into `out`, the heaviest first; returns how many, or -1 where all together are too few.
    """
    member = _eligible(moves, board, n, free_only)
    alone = _single(moves, board, member, lack)
    if alone >= 0:
        out[0] = alone
        return 1
    chosen = np.empty(member.size, dtype=np.bool_)
    left = np.empty(lack.size)
    if not _greedy(moves, board, member, lack, chosen, left):
        return -1
    _lighten(moves, board, member, chosen, left)
    picked = member[chosen]
    heavy = np.empty(picked.size)
    for k in range(picked.size):
        heavy[k] = -weight(board, picked[k])
    rank = np.argsort(heavy, kind="mergesort")
    for k in range(picked.size):
        out[k] = picked[rank[k]]
    return picked.size
