"""Relief: every node that a yield aimed at would overload sheds a few tasks, and each is placed where it fits best.

Where no node has room for a task, one is made: the fewest tasks leave a node for others. That is a swap where one of
them takes the task's place, a chain of moves where it does not, and another choice of who leaves where the task goes
home. The steps are resumed where they ended, so that a clock can be looked at in between.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

import numpy as np

from dfrs.kernels.adapt_cover import cover
from dfrs.kernels.adapt_state import Board, Moves, affords, fee, fits, lift, overloaded, permitted, put, weight
from dfrs.kernels.jit import Ints, kernel
from dfrs.kernels.rules import RuleArrays

TRIED = 16
"""Nodes on which room is made in earnest for a task, the cheapest first."""
NOT_ALLOWED, NO_COVER = -1, -2


@kernel
def best_node(moves: Moves, rules: RuleArrays, board: Board, i: int) -> int:
    """The node with room on which task `i`, which is nowhere, leaves least free; its home before all; -1 if none."""
    home = moves.origin[i]
    if home >= 0 and fits(board, i, home) and permitted(rules, board, i, home):
        return home
    dims = board.scale.size
    best, best_spare = -1, np.inf
    for n in range(board.free.shape[0]):
        spare = 0.0
        room = True
        for d in range(dims):
            if board.size[i, d] > board.free[n, d]:
                room = False
                break
            spare += board.scale[d] * board.free[n, d]
        if room and spare < best_spare and permitted(rules, board, i, n):
            best, best_spare = n, spare
    return best


@kernel
def _exchange(moves: Moves, rules: RuleArrays, board: Board, i: int, n: int, leave: Ints) -> bool:
    """Put task `i`, which is nowhere, on node `n`, and the tasks that `leave` it elsewhere; undone if that fails."""
    source = board.source[i]
    lifted = 0
    done = True
    for j in leave:
        if not affords(moves, board, j):
            done = False
            break
        lift(moves, rules, board, j)
        lifted += 1
    done = done and fits(board, i, n) and permitted(rules, board, i, n)
    placed = 0
    if done:
        put(moves, rules, board, i, n)
        for j in leave:
            m = best_node(moves, rules, board, j)
            if m < 0:
                done = False
                break
            put(moves, rules, board, j, m)
            placed += 1
        if done:
            return True
        for j in leave[:placed]:
            lift(moves, rules, board, j)
        lift(moves, rules, board, i)
        board.source[i] = source
    for j in leave[:lifted]:
        put(moves, rules, board, j, n)
    return False


@kernel
def make_room(moves: Moves, rules: RuleArrays, board: Board, i: int) -> bool:
    """Place task `i`, which is nowhere and fits nowhere, by moving a few tasks from the node where that is cheapest."""
    nodes, dims = board.free.shape
    lack = np.empty(dims)
    leave = np.empty(moves.origin.size, dtype=np.int64)
    at = np.full(TRIED, -1, dtype=np.int64)
    rank = np.full((TRIED, 2), np.inf)
    for n in range(nodes):
        if not rules.allowed[rules.kind_of[i], n]:
            continue
        possible = True
        for d in range(dims):
            lack[d] = board.size[i, d] - board.free[n, d]
            possible = possible and board.size[i, d] <= moves.capacity[n, d]
        if not possible:
            continue
        count = cover(moves, board, n, lack, False, leave) if lack.max() > 0.0 else 0
        if count < 0:
            continue
        price, heavy = 0.0, 0.0
        for j in leave[:count]:
            price += fee(moves, board, j)
            heavy += weight(board, j)
        if n == moves.origin[i]:
            price -= moves.price[i]
        k = TRIED
        while k > 0 and (price < rank[k - 1, 0] or (price == rank[k - 1, 0] and heavy < rank[k - 1, 1])):
            k -= 1
        if k < TRIED:
            for q in range(TRIED - 1, k, -1):
                at[q] = at[q - 1]
                rank[q] = rank[q - 1]
            at[k] = n
            rank[k, 0], rank[k, 1] = price, heavy
    for n in at:
        if n < 0:
            return False
        for d in range(dims):
            lack[d] = board.size[i, d] - board.free[n, d]
        count = cover(moves, board, n, lack, False, leave) if lack.max() > 0.0 else 0
        if count >= 0 and _exchange(moves, rules, board, i, n, leave[:count]):
            return True
    return False


@kernel
def shed(moves: Moves, rules: RuleArrays, board: Board, low: int, high: int, pending: Ints, count: int) -> int:
    """Lift tasks from the overloaded nodes of [low, high) into `pending`, which has `count` already; how many then.

    NO_COVER where the limits do not let enough leave.
    """
    dims = board.free.shape[1]
    lack = np.empty(dims)
    leave = np.empty(moves.origin.size, dtype=np.int64)
    for n in range(low, high):
        if not overloaded(board, n):
            continue
        lack[:] = -board.free[n]
        some = cover(moves, board, n, lack, False, leave)
        if some < 0:
            return NO_COVER
        for j in leave[:some]:
            if not affords(moves, board, j):
                return NO_COVER
            lift(moves, rules, board, j)
            pending[count] = j
            count += 1
    return count


@kernel
def by_weight(board: Board, pending: Ints) -> Ints:
    """`pending` (P,), the heaviest first."""
    heavy = np.empty(pending.size)
    for k in range(pending.size):
        heavy[k] = -weight(board, pending[k])
    return pending[np.argsort(heavy, kind="mergesort")]


@kernel
def settle(
    moves: Moves, rules: RuleArrays, board: Board, pending: Ints, low: int, high: int, rooms: int
) -> tuple[int, int, bool]:
    """Place pending[low:high], all of them nowhere, until room was looked for `rooms` times.

    Returns the index of the first that is not placed, how often room was looked for, and whether in vain the last time.
    """
    looked = 0
    for k in range(low, high):
        i = pending[k]
        n = best_node(moves, rules, board, i)
        if n >= 0:
            put(moves, rules, board, i, n)
        else:
            looked += 1
            if not make_room(moves, rules, board, i):
                return k, looked, True
            if looked == rooms:
                return k + 1, looked, False
    return high, looked, False


@kernel
def give_back(moves: Moves, rules: RuleArrays, board: Board) -> bool:
    """Bring tasks home wherever the yield aimed at allows it, the dearest first; whether one came.

    A task comes home if there is room, or if tasks that are away themselves can make it: these move for nothing.
    """
    tasks, dims = board.size.shape
    lack = np.empty(dims)
    leave = np.empty(tasks, dtype=np.int64)
    away = np.empty(tasks, dtype=np.int64)
    price = np.empty(tasks)
    count = 0
    for i in range(tasks):
        if moves.origin[i] >= 0 and board.place[i] != moves.origin[i]:
            away[count] = i
            price[count] = -moves.price[i]
            count += 1
    order = away[:count][np.argsort(price[:count], kind="mergesort")]
    came = False
    again = True
    while again:
        again = False
        for i in order:
            home, now = moves.origin[i], board.place[i]
            if now == home:
                continue
            lift(moves, rules, board, i)
            if fits(board, i, home) and permitted(rules, board, i, home):
                put(moves, rules, board, i, home)
                again = True
                came = True
                continue
            for d in range(dims):
                lack[d] = board.size[i, d] - board.free[home, d]
            some = cover(moves, board, home, lack, True, leave) if lack.max() > 0.0 else -1
            if some > 0 and _exchange(moves, rules, board, i, home, leave[:some]):
                again = True
                came = True
            else:
                put(moves, rules, board, i, now)
    return came
