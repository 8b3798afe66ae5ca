"""A placement that ADAPT changes task by task: what is free at the yield aimed at, what was spent, which rules hold.

A task that is nowhere has been lifted, or is new. A task that is not where it was (`origin`) has been paid for, also
while it is nowhere, and costs nothing more wherever it goes; what it cost comes back when it goes home.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

from typing import NamedTuple

from dfrs.kernels.jit import Floats, Ints, kernel
from dfrs.kernels.rules import RuleArrays, count_members, may_place, record


class Moves(NamedTuple):
    """The problem: T tasks on N nodes, D resources, B limits. Read-only."""

    base: Floats
    slope: Floats
    capacity: Floats
    """(N, D) with the tolerance."""
    origin: Ints
    """(T,) where tasks run now, -1 for nowhere."""
    cost: Floats
    """(B, T) of each limit; 0 for tasks that run nowhere."""
    amount: Floats
    """(B,) the limits, with what rounding may add."""
    price: Floats
    """(T,) one number for all limits, to compare tasks by; 0 for tasks that run nowhere."""


class Board(NamedTuple):
    """The placement, and what follows from it. `lift` and `put` keep all of it up to date."""

    place: Ints
    head: Ints
    """(N,) the first task on each node, -1 if none; `after` and `before` (T,) are its neighbours in that list."""
    after: Ints
    before: Ints
    size: Floats
    """(T, D) at the yield aimed at."""
    free: Floats
    """(N, D) at that yield; negative where a node is overloaded."""
    scale: Floats
    """(D,) one over what all nodes have free: makes resources comparable, and scarce ones count."""
    tilt: Floats
    """(T,) factors of how hard tasks are to place: 1, or near it to try another order."""
    spent: Floats
    """(B,)."""
    source: Ints
    """(T,) the node that a lifted task came from, -1 if it is new."""
    counts: Ints
    """Members of groups in domains, as `dfrs.kernels.rules` counts them."""
    used: Ints


@kernel
def _link(board: Board, i: int, n: int) -> None:
    h = board.head[n]
    board.after[i] = h
    board.before[i] = -1
    if h >= 0:
        board.before[h] = i
    board.head[n] = i


@kernel
def aim(moves: Moves, board: Board, target: float) -> None:
    """Sizes, free amounts and `scale` at yield `target`."""
    tasks, dims = moves.base.shape
    board.free[:] = moves.capacity
    for i in range(tasks):
        n = board.place[i]
        for d in range(dims):
            board.size[i, d] = moves.base[i, d] + target * moves.slope[i, d]
            if n >= 0:
                board.free[n, d] -= board.size[i, d]
    for d in range(dims):
        spare = 0.0
        for n in range(board.free.shape[0]):
            spare += max(0.0, board.free[n, d])
        board.scale[d] = 1.0 / spare if spare > 0.0 else 1.0


@kernel
def set_up(moves: Moves, rules: RuleArrays, board: Board, place: Ints, target: float) -> None:
    """Make `board` that of `place` (T,), aiming at yield `target`."""
    board.place[:] = place
    board.head[:] = -1
    board.spent[:] = 0.0
    board.source[:] = -1
    # Backwards, so that the tasks of a node are linked by number.
    for i in range(place.size - 1, -1, -1):
        if place[i] >= 0:
            _link(board, i, place[i])
        if moves.origin[i] >= 0 and place[i] != moves.origin[i]:
            for b in range(moves.amount.size):
                board.spent[b] += moves.cost[b, i]
    count_members(rules, place, board.counts, board.used)
    aim(moves, board, target)


@kernel
def affords(moves: Moves, board: Board, i: int) -> bool:
    """Whether task `i`, on a node, may leave it within the limits."""
    if board.place[i] != moves.origin[i]:
        return True
    within = True
    for b in range(moves.amount.size):
        within = within and board.spent[b] + moves.cost[b, i] <= moves.amount[b]
    return within


@kernel
def fee(moves: Moves, board: Board, i: int) -> float:
    """The price of moving task `i`: nothing once it is away from home."""
    return moves.price[i] if board.place[i] == moves.origin[i] else 0.0


@kernel
def lift(moves: Moves, rules: RuleArrays, board: Board, i: int) -> None:
    """Take task `i` off its node."""
    n = board.place[i]
    p, a = board.before[i], board.after[i]
    if p >= 0:
        board.after[p] = a
    else:
        board.head[n] = a
    if a >= 0:
        board.before[a] = p
    board.place[i] = -1
    board.source[i] = n
    for d in range(board.size.shape[1]):
        board.free[n, d] += board.size[i, d]
    if n == moves.origin[i]:
        for b in range(moves.amount.size):
            board.spent[b] += moves.cost[b, i]
    record(rules, board.counts, board.used, i, n, -1)


@kernel
def put(moves: Moves, rules: RuleArrays, board: Board, i: int, n: int) -> None:
    """Place task `i`, which is nowhere, on node `n`."""
    _link(board, i, n)
    board.place[i] = n
    for d in range(board.size.shape[1]):
        board.free[n, d] -= board.size[i, d]
    if n == moves.origin[i]:
        for b in range(moves.amount.size):
            board.spent[b] -= moves.cost[b, i]
    record(rules, board.counts, board.used, i, -1, n)


@kernel
def fits(board: Board, i: int, n: int) -> bool:
    """Whether node `n` has room for task `i`."""
    room = True
    for d in range(board.size.shape[1]):
        room = room and board.size[i, d] <= board.free[n, d]
    return room


@kernel
def permitted(rules: RuleArrays, board: Board, i: int, n: int) -> bool:
    """Whether rules let task `i`, which is nowhere, go to node `n`: no rule is broken then that the task can keep.

    Where its group is in too few domains it must open one. A host that left guests behind goes back to them.
    """
    if not may_place(rules, board.counts, board.used, i, n):
        return False
    a = board.source[i]
    for k in range(rules.first[i], rules.first[i + 1]):
        g = rules.group[k]
        domain = rules.domain[rules.level[g]]
        if board.used[g] < rules.fewest_domains[g] and board.counts[rules.offset[g] + domain[n]] > 0:
            return False
        guest = rules.guest[g]
        if guest >= 0 and a >= 0 and domain[a] != domain[n]:
            left = board.counts[rules.offset[guest] + domain[a]]
            if left > 0 and board.counts[rules.offset[g] + domain[a]] == 0:
                return False
    return True


@kernel
def weight(board: Board, i: int) -> float:
    """How hard task `i` is to place: its size in scarce resources."""
    total = 0.0
    for d in range(board.scale.size):
        total += board.scale[d] * board.size[i, d]
    return total * board.tilt[i]


@kernel
def overloaded(board: Board, n: int) -> bool:
    """Whether node `n` has less than nothing free."""
    return board.free[n].min() < 0.0
