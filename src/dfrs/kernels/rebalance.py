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

BALANCED = 27

Rule = tuple[float, float, float, float, float, float, float, float, bool]
"""(share, near, price_s, times, rest_s, now_s, until_s, budget, swaps): levels within `share` of the bound are left
alone; where one is further off, it and the next ones are raised until they are within `near`. A move costs its job
`price_s` of progress and must gain `times` that; a job rests for `rest_s` after each. What is gained counts until
`until_s`. At most `budget` of memory moves. With `swaps` tasks may change places where none can move."""

Use = tuple[Floats, Floats, Floats, Floats, Ints]
"""(N,) each: what rows that can rise need at level 1, CPU for them, memory, minimum yields, tasks of such rows."""

Lists = tuple[Ints, Ints, Ints]
"""The tasks of each node: the first one's slot (N,), and for each slot (T,) the next and the one before, or -1."""

_LESS = 1.0 - 1e-6
"""A step must lower the pressure of its node to this part of it."""
_NOTHING = 1e-12
"""CPU that is none."""
FREE, PRICED, STAYS = range(3)


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
def _pressure(rate: float, rows: int, left: float) -> float:
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
def _rest_s(jobs: Any, r: int, rule: Rule) -> float:
    """How long from now row `r` rests from its last move or resume."""
    _, _, _, _, rest_s, now_s, _, _, _ = rule
    if jobs[r].since_s > jobs[r].start_s:
        return max(0.0, jobs[r].since_s + rest_s - now_s)
    return 0.0


@kernel
def _link(s: int, n: int, lists: Lists) -> None:
    """Put slot `s` first in the list of node `n`."""
    head, after, ahead = lists
    after[s] = head[n]
    ahead[s] = -1
    if head[n] >= 0:
        ahead[head[n]] = s
    head[n] = s


@kernel
def _unlink(s: int, n: int, lists: Lists) -> None:
    """Take slot `s` out of the list of node `n`."""
    head, after, ahead = lists
    if ahead[s] >= 0:
        after[ahead[s]] = after[s]
    else:
        head[n] = after[s]
    if after[s] >= 0:
        ahead[after[s]] = ahead[s]


@kernel
def _longest(jobs: Any, n: int, owner: Ints, lists: Lists) -> tuple[int, float, float]:
    """(row with the largest virtual time on node `n`, that time, the largest one of other rows or -1)."""
    head, after, _ = lists
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
def _shift(jobs: Any, r: int, slope: Floats, u: int, target: int, slots: Ints, lists: Lists, use: Use) -> None:
    """Task `u` of row `r`, which can still rise, goes to node `target`."""
    rate, _, memory, promised, count = use
    source = slots[u]
    size = slope[r] * jobs[r].need
    rate[source] -= size
    rate[target] += size
    count[source] -= 1
    count[target] += 1
    memory[source] -= jobs[r].memory
    memory[target] += jobs[r].memory
    promised[source] -= jobs[r].minimum * jobs[r].need
    promised[target] += jobs[r].minimum * jobs[r].need
    _unlink(u, source, lists)
    _link(u, target, lists)
    slots[u] = target


@kernel
def _fits(job: Any, out_memory: float, out_cpu: float, n: int, capacity: Floats, use: Use, tolerance: float) -> bool:
    """Whether node `n` has room for a task of `job` once so much memory, and CPU for a minimum yield, is gone."""
    _, _, memory, promised, _ = use
    more = job.minimum * job.need - out_cpu
    if memory[n] + job.memory - out_memory > capacity[n, 1] + tolerance:
        return False
    return more <= 0.0 or promised[n] + more <= capacity[n, 0] + tolerance


@kernel
def _best_move(
    jobs: Any,
    a: int,
    worst: float,
    capacity: Floats,
    open_nodes: Bools,
    island: Ints,
    kind: Ints,
    slope: Floats,
    rule: Rule,
    spent: float,
    tolerance: float,
    owner: Ints,
    lists: Lists,
    use: Use,
) -> tuple[int, int, float]:
    """(slot, node, seconds) of the move off node `a` that lowers the greater pressure of both most, -1 for none.

    Of equal ones that of the least memory. The seconds are those until one that is better yet will pay.
    """
    _, _, price_s, _, _, _, _, budget, _ = rule
    rate, left, _, _, count = use
    head, after, _ = lists
    longest = _longest(jobs, a, owner, lists)
    best = worst * _LESS
    best_memory = np.inf
    best_s = -1
    best_n = -1
    again_s = np.inf
    s = head[a]
    while s >= 0:
        r = owner[s]
        price = price_s if kind[r] == PRICED else 0.0
        if kind[r] != STAYS and spent + jobs[r].memory <= budget:
            size = slope[r] * jobs[r].need
            rest_s = _rest_s(jobs, r, rule) if kind[r] == PRICED else 0.0
            behind_s = _left_behind(jobs, r, longest)
            gone = _pressure(rate[a] - size, count[a] - 1, left[a])
            for b in range(open_nodes.size):
                if b == a or not open_nodes[b] or island[b] != island[a]:
                    continue
                then = max(1.0, gone, _pressure(rate[b] + size, count[b] + 1, left[b]))
                if then == np.inf or then > best or (then == best and jobs[r].memory >= best_memory):
                    continue
                if not _fits(jobs[r], 0.0, 0.0, b, capacity, use, tolerance):
                    continue
                wait_s = max(rest_s, _wait_s(jobs, r, behind_s, worst, then, price, rule))
                if wait_s > 0.0:
                    again_s = min(again_s, wait_s)
                    continue
                best = then
                best_memory = jobs[r].memory
                best_s = s
                best_n = b
        s = after[s]
    return best_s, best_n, again_s


@kernel
def _best_swap(
    jobs: Any,
    a: int,
    worst: float,
    capacity: Floats,
    open_nodes: Bools,
    island: Ints,
    kind: Ints,
    slope: Floats,
    rule: Rule,
    spent: float,
    tolerance: float,
    owner: Ints,
    lists: Lists,
    use: Use,
) -> tuple[int, int, float]:
    """(slot on node `a`, slot of a smaller task elsewhere, seconds), as `_best_move`; each move must pay for both."""
    _, _, price_s, _, _, _, _, budget, _ = rule
    rate, left, _, _, count = use
    head, after, _ = lists
    longest = _longest(jobs, a, owner, lists)
    best = worst * _LESS
    best_s = -1
    best_t = -1
    again_s = np.inf
    s = head[a] if open_nodes[a] else -1
    while s >= 0:
        r = owner[s]
        behind_s = _left_behind(jobs, r, longest)
        for b in range(open_nodes.size):
            if kind[r] == STAYS or b == a or not open_nodes[b] or island[b] != island[a]:
                continue
            # The pressure there only rises.
            if _pressure(rate[b], count[b], left[b]) >= best:
                continue
            t = head[b]
            while t >= 0:
                q = owner[t]
                more = slope[r] * jobs[r].need - slope[q] * jobs[q].need
                moved = jobs[r].memory + jobs[q].memory
                if kind[q] != STAYS and more > 0.0 and spent + moved <= budget:
                    then = max(
                        1.0,
                        _pressure(rate[a] - more, count[a], left[a]),
                        _pressure(rate[b] + more, count[b], left[b]),
                    )
                    if (
                        then < best
                        and _fits(jobs[r], jobs[q].memory, jobs[q].minimum * jobs[q].need, b, capacity, use, tolerance)
                        and _fits(jobs[q], jobs[r].memory, jobs[r].minimum * jobs[r].need, a, capacity, use, tolerance)
                    ):
                        price = 0.0
                        wait_s = 0.0
                        for row in (r, q):
                            if kind[row] == PRICED:
                                price += price_s
                                wait_s = max(wait_s, _rest_s(jobs, row, rule))
                        for row in (r, q):
                            wait_s = max(wait_s, _wait_s(jobs, row, behind_s, worst, then, price, rule))
                        if wait_s > 0.0:
                            again_s = min(again_s, wait_s)
                        else:
                            best = then
                            best_s = s
                            best_t = t
                t = after[t]
        s = after[s]
    return best_s, best_t, again_s


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
    share, near, _, _, _, _, _, _, swaps = rule
    rows = jobs.size
    nodes = capacity.shape[0]
    tasks = slots.size
    # (1) What each node has to do, and which tasks it has.
    owner = np.empty(tasks, dtype=np.int64)
    lists = (
        np.full(nodes, -1, dtype=np.int64),
        np.full(tasks, -1, dtype=np.int64),
        np.full(tasks, -1, dtype=np.int64),
    )
    rate = np.zeros(nodes)
    left = capacity[:, 0].copy()
    memory = np.zeros(nodes)
    promised = np.zeros(nodes)
    count = np.zeros(nodes, dtype=np.int64)
    use = (rate, left, memory, promised, count)
    kind = np.empty(rows, dtype=np.int64)
    level = np.full(rows, np.inf)
    stuck = np.zeros(nodes, dtype=np.bool_)
    spent = 0.0
    for r in range(rows):
        kind[r] = STAYS if fixed[r] or jobs[r].state != RUNNING else PRICED
        for s in range(first[r], first[r + 1]):
            owner[s] = r
            n = slots[s]
            if n >= 0:
                _link(s, n, lists)
                rate[n] += slope[r] * jobs[r].need
                memory[n] += jobs[r].memory
                promised[n] += jobs[r].minimum * jobs[r].need
                count[n] += 1
                if before[s] >= 0 and n != before[s]:
                    spent += jobs[r].memory
    least = least_pressure(jobs, first, slots, slope, capacity, open_nodes)
    steps = 4 * (tasks + nodes)
    made = 0
    made_slot = np.empty(2 * steps, dtype=np.int64)
    made_from = np.empty(2 * steps, dtype=np.int64)
    made_kind = np.empty(2 * steps, dtype=np.int64)
    made_reason = np.empty(2 * steps, dtype=np.int64)
    made_at = np.empty(2 * steps)
    again_s = np.inf
    for _ in range(steps):
        # (2) The node of greatest pressure of those that may still be relieved.
        a = -1
        worst = (1.0 + near) * least
        for n in range(nodes):
            if not stuck[n]:
                here = _pressure(rate[n], count[n], left[n])
                if here > worst:
                    worst = here
                    a = n
        if a < 0 or (made == 0 and worst <= (1.0 + share) * least):
            break
        # (3) A move of one of its tasks, or where there is none an exchange.
        s, target, wait_s = _best_move(
            jobs, a, worst, capacity, open_nodes, island, kind, slope, rule, spent, tolerance, owner, lists, use
        )
        t = -1
        again_s = min(again_s, wait_s)
        if s < 0 and swaps:
            s, t, wait_s = _best_swap(
                jobs, a, worst, capacity, open_nodes, island, kind, slope, rule, spent, tolerance, owner, lists, use
            )
            again_s = min(again_s, wait_s)
            if t >= 0:
                target = slots[t]
        if s >= 0:
            for u, n in ((s, target), (t, a)):
                if u >= 0:
                    r = owner[u]
                    made_slot[made] = u
                    made_from[made] = slots[u]
                    made_kind[made] = kind[r]
                    made_reason[made] = reasons[r]
                    made_at[made] = worst
                    made += 1
                    if kind[r] == PRICED:
                        kind[r] = FREE
                        reasons[r] = BALANCED
                    spent += jobs[r].memory
                    _shift(jobs, r, slope, u, n, slots, lists, use)
            continue
        # (4) Its rows rise no more: moves for the sake of this level were in vain.
        while made > 0 and made_at[made - 1] <= worst / _LESS:
            made -= 1
            u = made_slot[made]
            r = owner[u]
            kind[r] = made_kind[made]
            reasons[r] = made_reason[made]
            spent -= jobs[r].memory
            _shift(jobs, r, slope, u, made_from[made], slots, lists, use)
        stuck[a] = True
        s = lists[0][a]
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
            s = lists[1][s]
    return again_s
