"""The best move of a single task, or exchange of two, that relieves a node, and when it pays for what it costs.

Layout and columns as in `dfrs.kernels.loads`, pressures and the use of them as in `dfrs.kernels.rebalance`.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

from typing import Any

import numpy as np

from dfrs.kernels.jit import Bools, Floats, Ints, kernel

FREE, PRICED, STAYS = range(3)
"""How a row may move: it has moved and pays no more, it pays, or it does not move."""

Rule = tuple[float, float, float, float, float, float, float, float, bool]
"""(share, near, price_s, times, rest_s, now_s, until_s, budget, swaps): levels within `share` of the bound are left
alone; where one is further off, it and the next ones are raised until they are within `near`. A move costs its job
`price_s` of progress and must gain `times` that; a job rests for `rest_s` after each. What is gained counts until
`until_s`. At most `budget` of memory moves. With `swaps` tasks may change places where none can move."""

Rows = tuple[Any, Ints, Floats, Ints]
"""jobs (R,), first (R + 1,), slope (R,), and how each row may move: FREE, PRICED or STAYS (R,)."""

Nodes = tuple[Floats, Bools, Ints]
"""capacity (N, 2), whether each is open (N,), island (N,)."""

Tasks = tuple[Ints, Ints, Ints, Ints, Ints]
"""The row of each slot and its node (T,). The tasks of each node, the one that came last first: the first one's slot
(N,), and for each slot (T,) the next and the one before, or -1."""

Use = tuple[Floats, Floats, Floats, Floats, Ints]
"""(N,) each: what rows that can rise need at level 1, CPU for them, memory, minimum yields, tasks of such rows."""

Step = tuple[float, float, int, int]
"""The greater pressure of both nodes after it, the memory that it moves, the slot that leaves the node, and the node
that it goes to or the slot that it changes places with; -1 for none."""

Later = tuple[float, float]
"""How long from now until something pays, and the greater pressure of both nodes after it."""

LESS = 1.0 - 1e-6
"""A step must lower the pressure of its node to this part of it."""
_NOTHING = 1e-12
"""CPU that is none."""


@kernel
def pressure(rate: float, rows: int, left: float) -> float:
    """Of a node with so many tasks of rows whose yields can rise."""
    if rows == 0:
        return 0.0
    return rate / left if left > _NOTHING else np.inf


@kernel
def _wait_s(jobs: Any, r: int, virtual_s: float, before: float, after: float, price_s: float, rule: Rule) -> float:
    """How long from now until a move of row `r` pays: 0 where it does, infinite where it never will.

    `before` and `after` are pressures. The gain lasts as long as the row, and those that it leaves, have run so far:
    `virtual_s`, or the row's virtual time where that is less; and until the time at which all is decided anew.
    """
    _, _, _, times, _, now_s, until_s, _, _ = rule
    if price_s <= 0.0:
        return 0.0
    low = min(1.0, 1.0 / before)
    high = min(1.0, 1.0 / after)
    needed_s = times * price_s * high / (high - low)
    lacking_s = needed_s * high - min(virtual_s, jobs[r].virtual_s)
    wait_s = 0.0
    if lacking_s > 0.0:
        wait_s = lacking_s / low if low > 0.0 else np.inf
        if jobs[r].ready_s == np.inf:
            # When it begins is not known: asked again after as long as it has taken so far.
            wait_s = max(wait_s, now_s - jobs[r].since_s)
        elif jobs[r].ready_s > now_s:
            wait_s += jobs[r].ready_s - now_s
    return wait_s if now_s + wait_s + needed_s <= until_s else np.inf


@kernel
def _dues(jobs: Any, r: int, kind: int, rule: Rule) -> tuple[float, float]:
    """What a move costs row `r`, and how long from now it rests from its last move or resume; both in seconds."""
    _, _, price_s, _, rest_s, now_s, _, _, _ = rule
    if kind != PRICED:
        return 0.0, 0.0
    return price_s, max(0.0, jobs[r].since_s + rest_s - now_s) if jobs[r].since_s > jobs[r].start_s else 0.0


@kernel
def _longest(jobs: Any, n: int, tasks: Tasks) -> tuple[int, float, float]:
    """(row with the largest virtual time on node `n`, that time, the largest one of other rows or -1)."""
    owner, _, head, after, _ = tasks
    row = -1
    most = -1.0
    next_most = -1.0
    s = head[n]
    while s >= 0:
        r = owner[s]
        virtual_s = jobs[r].virtual_s
        if r != row:
            if virtual_s > most:
                next_most = most
                most = virtual_s
                row = r
            elif virtual_s > next_most:
                next_most = virtual_s
        s = after[s]
    return row, most, next_most


@kernel
def _left_behind(jobs: Any, r: int, longest: tuple[int, float, float]) -> float:
    """The largest virtual time of rows that row `r` leaves behind on a node; its own where there are none."""
    row, most, next_most = longest
    virtual_s = next_most if r == row else most
    return virtual_s if virtual_s >= 0.0 else jobs[r].virtual_s


@kernel
def _fits(
    job: Any,
    out_memory: float,
    out_cpu: float,
    n: int,
    capacity: Floats,
    memory: Floats,
    promised: Floats,
    tolerance: float,
) -> bool:
    """Whether node `n` has room for a task of `job` once so much memory, and CPU for a minimum yield, is gone."""
    more = job.minimum * job.need - out_cpu
    if memory[n] + job.memory - out_memory > capacity[n, 1] + tolerance:
        return False
    return more <= 0.0 or promised[n] + more <= capacity[n, 0] + tolerance


@kernel
def _better_move(
    than: Step,
    a: int,
    worst: float,
    rows: Rows,
    nodes: Nodes,
    rule: Rule,
    spent: float,
    tolerance: float,
    tasks: Tasks,
    use: Use,
) -> tuple[Step, Later]:
    """(the best move off node `a` that pays and is better `than` a step, or that; what pays soonest).

    Of equal ones the first. What pays soonest, infinitely late if nothing, is better than what was found before it.
    """
    jobs, _, slope, kind = rows
    capacity, open_nodes, island = nodes
    _, _, _, _, _, _, _, budget, _ = rule
    rate, left, memory, promised, count = use
    owner, _, head, after, _ = tasks
    longest = _longest(jobs, a, tasks)
    best, best_memory, best_s, best_n = than
    again_s, again = np.inf, np.inf
    s = head[a]
    while s >= 0:
        r = owner[s]
        size = slope[r] * jobs[r].need
        gone = pressure(rate[a] - size, count[a] - 1, left[a])
        if kind[r] != STAYS and gone <= best and spent + jobs[r].memory <= budget:
            behind_s = _left_behind(jobs, r, longest)
            price, rest_s = _dues(jobs, r, kind[r], rule)
            for b in range(open_nodes.size):
                if b == a or not open_nodes[b] or island[b] != island[a]:
                    continue
                then = max(1.0, gone, pressure(rate[b] + size, count[b] + 1, left[b]))
                if then == np.inf or then > best or (then == best and jobs[r].memory >= best_memory):
                    continue
                if not _fits(jobs[r], 0.0, 0.0, b, capacity, memory, promised, tolerance):
                    continue
                wait_s = max(rest_s, _wait_s(jobs, r, behind_s, worst, then, price, rule))
                if wait_s > 0.0:
                    if wait_s < again_s:
                        again_s, again = wait_s, then
                else:
                    best, best_memory, best_s, best_n = then, jobs[r].memory, s, b
        s = after[s]
    return (best, best_memory, best_s, best_n), (again_s, again)


@kernel
def _better_swap(
    than: Step,
    a: int,
    worst: float,
    rows: Rows,
    nodes: Nodes,
    rule: Rule,
    spent: float,
    tolerance: float,
    tasks: Tasks,
    use: Use,
) -> tuple[Step, Later]:
    """As `_better_move`, of exchanges with a smaller task of another node; each of the two must gain what both cost."""
    jobs, _, slope, kind = rows
    capacity, open_nodes, island = nodes
    _, _, _, _, _, _, _, budget, _ = rule
    rate, left, memory, promised, count = use
    owner, _, head, after, _ = tasks
    longest = _longest(jobs, a, tasks)
    best, best_memory, best_s, best_t = than
    again_s, again = np.inf, np.inf
    s = head[a] if open_nodes[a] else -1
    while s >= 0:
        r = owner[s]
        behind_s = _left_behind(jobs, r, longest)
        price, rest_s = _dues(jobs, r, kind[r], rule)
        for b in range(open_nodes.size):
            if kind[r] == STAYS or b == a or not open_nodes[b] or island[b] != island[a]:
                continue
            # The pressure there only rises.
            if pressure(rate[b], count[b], left[b]) > best:
                continue
            t = head[b]
            while t >= 0:
                q = owner[t]
                more = slope[r] * jobs[r].need - slope[q] * jobs[q].need
                moved = jobs[r].memory + jobs[q].memory
                if kind[q] != STAYS and more > 0.0 and spent + moved <= budget:
                    then = max(
                        1.0,
                        pressure(rate[a] - more, count[a], left[a]),
                        pressure(rate[b] + more, count[b], left[b]),
                    )
                    one, two = jobs[r].minimum * jobs[r].need, jobs[q].minimum * jobs[q].need
                    if (
                        (then < best or (then == best and moved < best_memory))
                        and then < np.inf
                        and _fits(jobs[r], jobs[q].memory, two, b, capacity, memory, promised, tolerance)
                        and _fits(jobs[q], jobs[r].memory, one, a, capacity, memory, promised, tolerance)
                    ):
                        price_too, rests_too_s = _dues(jobs, q, kind[q], rule)
                        wait_s = max(rest_s, rests_too_s)
                        for row in (r, q):
                            wait_s = max(wait_s, _wait_s(jobs, row, behind_s, worst, then, price + price_too, rule))
                        if wait_s > 0.0:
                            if wait_s < again_s:
                                again_s, again = wait_s, then
                        else:
                            best, best_memory, best_s, best_t = then, moved, s, t
                t = after[t]
        s = after[s]
    return (best, best_memory, best_s, best_t), (again_s, again)


@kernel
def best_step(
    a: int,
    worst: float,
    again_s: float,
    rows: Rows,
    nodes: Nodes,
    rule: Rule,
    spent: float,
    tolerance: float,
    tasks: Tasks,
    use: Use,
) -> tuple[int, int, int, float]:
    """(slot, its new node, slot that it changes places with, seconds) of the best step off node `a`; -1 for none.

    Moves come before exchanges. The best one lowers the greater pressure of both nodes most; of equal ones it moves the
    least memory, and of those it is the first: with the task that came last to its node, to the first node. The seconds
    are those until one that is better yet will pay, at most `again_s`.
    """
    none = (worst * LESS, np.inf, -1, -1)
    step, later = _better_move(none, a, worst, rows, nodes, rule, spent, tolerance, tasks, use)
    if _is_in_doubt(step, later, again_s):
        _, later = _better_move(step, a, worst, rows, nodes, rule, spent, tolerance, tasks, use)
    again_s = min(again_s, later[0])
    if step[2] >= 0 or not rule[8]:
        return step[2], step[3], -1, again_s
    step, later = _better_swap(none, a, worst, rows, nodes, rule, spent, tolerance, tasks, use)
    if _is_in_doubt(step, later, again_s):
        _, later = _better_swap(step, a, worst, rows, nodes, rule, spent, tolerance, tasks, use)
    return step[2], tasks[1][step[3]] if step[2] >= 0 else -1, step[3], min(again_s, later[0])


@kernel
def _is_in_doubt(step: Step, later: Later, again_s: float) -> bool:
    """Whether what pays soonest, sooner than `again_s`, was found before a step that may be better than it."""
    return step[2] >= 0 and later[0] < again_s and later[1] >= step[0]
