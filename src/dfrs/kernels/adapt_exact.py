"""Depth-first branch and bound within a budget and under rules, for a handful of tasks: the best yield, with proof."""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

import numpy as np

from dfrs.kernels.adapt_state import Moves
from dfrs.kernels.jit import Ints, kernel
from dfrs.kernels.rules import RuleArrays, broken, record


@kernel
def _open(rules: RuleArrays, count: Ints, used: Ints, i: int, n: int) -> bool:
    """Whether task `i` may come to node `n` by what further tasks cannot mend: the other rules are asked at the end."""
    if not rules.allowed[rules.kind_of[i], n]:
        return False
    for k in range(rules.first[i], rules.first[i + 1]):
        g = rules.group[k]
        there = count[rules.offset[g] + rules.domain[rules.level[g], n]]
        if there >= rules.most[g] or (there == 0 and used[g] >= rules.most_domains[g]):
            return False
    return True


@kernel
def _reach(moves: Moves, fixed: np.ndarray, rate: np.ndarray, i: int, n: int, limit: float) -> float:
    """The yield, up to `limit`, that node `n` allows with task `i` besides what it has; -1 where it has no room."""
    for d in range(moves.base.shape[1]):
        free = moves.capacity[n, d] - fixed[n, d] - moves.base[i, d]
        speed = rate[n, d] + moves.slope[i, d]
        if free < 0.0:
            return -1.0
        if speed > 0.0 and speed * limit > free:
            limit = free / speed
    return limit


@kernel
def search(
    moves: Moves,
    rules: RuleArrays,
    count: Ints,
    used: Ints,
    order: Ints,
    limits: tuple[float, float, int],
    best: Ints,
) -> tuple[float, bool, int]:
    """Search all placements of the tasks in `order` (T,) for a minimum yield above `limits[0]`.

    `limits` = (incumbent, upper, most): stop when `upper` is reached or after `most` trials. `count` and `used` are
    the rules', zero at the start. Fills `best` (T,) on success. Returns (yield found or -1, whether the search was
    complete, trials).
    """
    tasks, dims = moves.base.shape
    nodes, units = moves.capacity.shape[0], moves.amount.size
    incumbent, upper, most = limits
    fixed = np.zeros((nodes, dims))
    rate = np.zeros((nodes, dims))
    place = np.full(tasks, -1, dtype=np.int64)
    value = np.ones(tasks + 1)
    spent = np.zeros((tasks + 1, units))
    found = -1.0
    trials = 0
    depth = 0
    while depth >= 0:
        i = order[depth]
        n = place[i]
        if n >= 0:
            record(rules, count, used, i, n, -1)
            for d in range(dims):
                fixed[n, d] -= moves.base[i, d]
                rate[n, d] -= moves.slope[i, d]
        chosen = -1
        for m in range(n + 1, nodes):
            trials += 1
            affordable = True
            for b in range(units):
                spent[depth + 1, b] = spent[depth, b]
                if moves.origin[i] >= 0 and m != moves.origin[i]:
                    spent[depth + 1, b] += moves.cost[b, i]
                affordable = affordable and spent[depth + 1, b] <= moves.amount[b]
            if not affordable or not _open(rules, count, used, i, m):
                continue
            reach = _reach(moves, fixed, rate, i, m, value[depth])
            if reach > incumbent:
                chosen = m
                value[depth + 1] = reach
                break
        if trials > most:
            return found, False, trials
        place[i] = chosen
        if chosen < 0:
            depth -= 1
            continue
        record(rules, count, used, i, -1, chosen)
        for d in range(dims):
            fixed[chosen, d] += moves.base[i, d]
            rate[chosen, d] += moves.slope[i, d]
        depth += 1
        if depth == tasks:
            if broken(rules, place) == 0:
                found = value[tasks]
                # A strictly better yield is asked for from here on; equal ones are not worth visiting.
                incumbent = found + 1e-9
                best[:] = place
                if found >= upper:
                    return found, True, trials
            depth -= 1
    return found, True, trials
