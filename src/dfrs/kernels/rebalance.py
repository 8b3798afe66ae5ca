"""Moves of single tasks that raise the least yields, where a move pays for what it costs.

Layout and columns as in `dfrs.kernels.loads`. A row's yield is its slope times the level of the fullest node that it is
on, at most 1. The *pressure* of a node is what its rows need at level 1 over the CPU that it has for them, the inverse
of its level. The node of greatest pressure is relieved until none is far above the least pressure that any placement
could have. Rows on a node that cannot be relieved keep that node's level, as in max-min sharing, and what they leave of
other nodes is for those that can rise further; moves that left the level as low as it was are taken back.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

from typing import Any

import numpy as np

from dfrs.kernels.jit import Bools, Floats, Ints, kernel
from dfrs.kernels.loads import RUNNING
from dfrs.kernels.relief import FREE, LESS, PRICED, STAYS, Rows, Rule, Tasks, Use, best_step, pressure

BALANCED = 27

Made = tuple[Ints, Ints, Ints, Ints, Floats]
"""Of each move that was made: slot, node before, how its row could move before, its reason before, and the pressure of
the node that was relieved."""


@kernel
def least_pressure(jobs: Any, first: Ints, slots: Ints, slope: Floats, capacity: Floats, open_nodes: Bools) -> float:
    """A lower bound, at least 1, on the greatest pressure of a node in any placement of the rows that `slots` place.

    CPU of all nodes together, and each task alone on the largest node. Closed nodes count while they have tasks.
    """
    counts = open_nodes.copy()
    wanted = 0.0
    largest = 0.0
    for r in range(jobs.size):
        if slots[first[r]] >= 0:
            wanted += slope[r] * jobs[r].need * jobs[r].tasks
            largest = max(largest, slope[r] * jobs[r].need)
            for s in range(first[r], first[r + 1]):
                counts[slots[s]] = True
    total = 0.0
    most = 0.0
    for n in range(counts.size):
        if counts[n]:
            total += capacity[n, 0]
            most = max(most, capacity[n, 0])
    if most <= 0.0:
        return np.inf
    return max(1.0, wanted / total, largest / most)


@kernel
def _link(s: int, n: int, tasks: Tasks) -> None:
    """Put slot `s` first in the list of node `n`."""
    _, slots, head, after, ahead = tasks
    slots[s] = n
    after[s] = head[n]
    ahead[s] = -1
    if head[n] >= 0:
        ahead[head[n]] = s
    head[n] = s


@kernel
def _unlink(s: int, tasks: Tasks) -> None:
    """Take slot `s` out of the list of its node."""
    _, slots, head, after, ahead = tasks
    if ahead[s] >= 0:
        after[ahead[s]] = after[s]
    else:
        head[slots[s]] = after[s]
    if after[s] >= 0:
        ahead[after[s]] = ahead[s]


@kernel
def _add_use(jobs: Any, r: int, rise: float, n: int, sign: int, use: Use) -> None:
    """Add (or, with sign -1, take away) what a task of row `r`, of slope `rise` as yet, has of node `n`."""
    rate, _, memory, promised, count = use
    rate[n] += sign * (rise * jobs[r].need)
    memory[n] += sign * jobs[r].memory
    promised[n] += sign * (jobs[r].minimum * jobs[r].need)
    count[n] += sign


@kernel
def _shift(u: int, target: int, rows: Rows, tasks: Tasks, use: Use) -> None:
    """Task `u` of a row that can still rise goes to node `target`."""
    jobs, _, slope, _ = rows
    owner, slots, _, _, _ = tasks
    r = owner[u]
    _add_use(jobs, r, slope[r], slots[u], -1, use)
    _add_use(jobs, r, slope[r], target, 1, use)
    _unlink(u, tasks)
    _link(u, target, tasks)


@kernel
def _fill(
    jobs: Any, first: Ints, before: Ints, fixed: Bools, slope: Floats, capacity: Floats, slots: Ints
) -> tuple[Rows, Tasks, Use, float]:
    """What each row may do, which tasks each node has and what they use; and the memory that moves already."""
    kind = np.empty(jobs.size, dtype=np.int64)
    owner = np.empty(slots.size, dtype=np.int64)
    nodes = capacity.shape[0]
    rows = (jobs, first, slope, kind)
    tasks = (
        owner,
        slots,
        np.full(nodes, -1, dtype=np.int64),
        np.full(slots.size, -1, dtype=np.int64),
        np.full(slots.size, -1, dtype=np.int64),
    )
    count = np.zeros(nodes, dtype=np.int64)
    use = (np.zeros(nodes), capacity[:, 0].copy(), np.zeros(nodes), np.zeros(nodes), count)
    spent = 0.0
    for r in range(jobs.size):
        kind[r] = STAYS if fixed[r] or jobs[r].state != RUNNING else PRICED
        for s in range(first[r], first[r + 1]):
            owner[s] = r
            n = slots[s]
            if n >= 0:
                _link(s, n, tasks)
                _add_use(jobs, r, slope[r], n, 1, use)
                if before[s] >= 0 and n != before[s]:
                    spent += jobs[r].memory
    return rows, tasks, use, spent


@kernel
def _room_for(moves: int) -> Made:
    """None made yet, and so many to come."""
    return (
        np.empty(moves, dtype=np.int64),
        np.empty(moves, dtype=np.int64),
        np.empty(moves, dtype=np.int64),
        np.empty(moves, dtype=np.int64),
        np.empty(moves),
    )


@kernel
def _fullest(stuck: Bools, above: float, use: Use) -> tuple[int, float]:
    """(the first node of greatest pressure of those that are not `stuck`, that pressure) if it is `above`, or -1."""
    rate, left, _, _, count = use
    a = -1
    worst = above
    for n in range(stuck.size):
        if not stuck[n]:
            here = pressure(rate[n], count[n], left[n])
            if here > worst:
                worst = here
                a = n
    return a, worst


@kernel
def _make(
    u: int, target: int, worst: float, made: int, moves: Made, rows: Rows, reasons: Ints, tasks: Tasks, use: Use
) -> None:
    """Task `u` goes to node `target`, as move number `made` of `moves`."""
    slot, source, kind_before, reason_before, at = moves
    owner, slots, _, _, _ = tasks
    kind = rows[3]
    r = owner[u]
    slot[made] = u
    source[made] = slots[u]
    kind_before[made] = kind[r]
    reason_before[made] = reasons[r]
    at[made] = worst
    if kind[r] == PRICED:
        kind[r] = FREE
        reasons[r] = BALANCED
    _shift(u, target, rows, tasks, use)


@kernel
def _take_back(
    worst: float, made: int, spent: float, moves: Made, rows: Rows, reasons: Ints, tasks: Tasks, use: Use
) -> tuple[int, float]:
    """Undo the last of the `made` moves, those for pressures no higher than `worst`: (moves left, memory spent)."""
    slot, source, kind_before, reason_before, at = moves
    jobs, _, _, kind = rows
    while made > 0 and at[made - 1] <= worst / LESS:
        made -= 1
        u = slot[made]
        r = tasks[0][u]
        kind[r] = kind_before[made]
        reasons[r] = reason_before[made]
        spent -= jobs[r].memory
        _shift(u, source[made], rows, tasks, use)
    return made, spent


@kernel
def _stop(a: int, worst: float, level: Floats, rows: Rows, tasks: Tasks, use: Use) -> None:
    """Rows on node `a` rise no more: they keep its level, and what they leave of other nodes is for others."""
    jobs, first, slope, kind = rows
    rate, left, _, _, count = use
    owner, slots, head, after, _ = tasks
    s = head[a]
    while s >= 0:
        r = owner[s]
        if level[r] == np.inf:
            level[r] = 1.0 / worst
            kind[r] = STAYS
            for u in range(first[r], first[r + 1]):
                n = slots[u]
                rate[n] -= slope[r] * jobs[r].need
                left[n] -= slope[r] * jobs[r].need * level[r]
                count[n] -= 1
        s = after[s]


@kernel
def rebalance(
    jobs: Any,
    first: Ints,
    before: Ints,
    capacity: Floats,
    open_nodes: Bools,
    island: Ints,
    fixed: Bools,
    slope: Floats,
    rule: Rule,
    tolerance: float,
    slots: Ints,
    reasons: Ints,
) -> float:
    """Move tasks of running rows in `slots`, which an action has made of `before`; `slots`, `reasons` are modified.

    Returns the seconds until a move that does not pay yet will, infinite where there is none. Rows that come now, and
    those that are `fixed` (R,), stay where they are; tasks stay in their `island` (N,). `slope` (R,) is above 0. A row
    pays for its first move only.
    """
    share, near, _, _, _, _, _, _, _ = rule
    most = 4 * (slots.size + capacity.shape[0])
    nodes = (capacity, open_nodes, island)
    least = least_pressure(jobs, first, slots, slope, capacity, open_nodes)
    level = np.full(jobs.size, np.inf)
    stuck = np.zeros(capacity.shape[0], dtype=np.bool_)
    moves = _room_for(most + 1)
    made = 0
    settled = False
    again_s = np.inf
    # (1) What each node has to do, and which tasks it has.
    rows, tasks, use, spent = _fill(jobs, first, before, fixed, slope, capacity, slots)
    while made < most:
        # (2) The node of greatest pressure of those that may still be relieved.
        a, worst = _fullest(stuck, (1.0 + near) * least, use)
        if a < 0 or (made == 0 and not settled and worst <= (1.0 + share) * least):
            break
        # (3) A move of one of its tasks, or where there is none an exchange.
        s, target, t, again_s = best_step(a, worst, again_s, rows, nodes, rule, spent, tolerance, tasks, use)
        if s >= 0:
            for u, n in ((s, target), (t, a)):
                if u >= 0:
                    _make(u, n, worst, made, moves, rows, reasons, tasks, use)
                    made += 1
                    spent += jobs[tasks[0][u]].memory
            continue
        # (4) Its rows rise no more: moves for the sake of this level were in vain.
        made, spent = _take_back(worst, made, spent, moves, rows, reasons, tasks, use)
        stuck[a] = True
        _stop(a, worst, level, rows, tasks, use)
        # Moves for higher levels are for good: no node that is left is above this one.
        settled |= made > 0
        made = 0
    return again_s
