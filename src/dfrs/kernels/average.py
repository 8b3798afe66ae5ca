"""CPU shares for the best average, of yields or of estimated stretches ([Stillwell2010] 5.2.5, 5.2.6).

Both keep a lower bound for each row, which is what its common minimum needs, and hand out the rest. Layout and columns
as in `dfrs.kernels.loads`. Only nodes that cannot give all their rows yield 1 make a constraint; nodes that hold the
same make one.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

from typing import Any

import numpy as np

from dfrs.kernels.convex import minimize_inverse
from dfrs.kernels.jit import Bools, Floats, Ints, kernel
from dfrs.kernels.loads import node_use
from dfrs.kernels.shares import fill, within_capacity
from dfrs.kernels.simplex import maximize

FULL = 1e-12
"""A node with less CPU left than this, relative to what it has, raises nobody."""


@kernel
def _tight_nodes(used: Floats, capacity: Floats, index: Ints) -> int:
    """Number the nodes whose needs pass their CPU into `index` (N,), -1 for the others; how many there are."""
    count = 0
    for n in range(index.size):
        index[n] = -1
        if used[n, 0] > capacity[n, 0]:
            index[n] = count
            count += 1
    return count


@kernel
def constraints(
    jobs: Any, first: Ints, slots: Ints, capacity: Floats, matrix: Floats, limit: Floats, index: Ints
) -> int:
    """One row for each different tight node: needs of each job there (`matrix`, (N, R)) and CPU (`limit`, (N,)).

    Returns how many; `index` (N,) is for internal use.
    """
    used = np.empty(capacity.shape)
    node_use(jobs, first, slots, used)
    count = _tight_nodes(used, capacity, index)
    matrix[:count] = 0.0
    mark = np.zeros(count, dtype=np.int64)
    for n in range(index.size):
        if index[n] >= 0:
            limit[index[n]] = capacity[n, 0]
    for r in range(jobs.size):
        if slots[first[r]] >= 0:
            for s in range(first[r], first[r + 1]):
                k = index[slots[s]]
                if k >= 0:
                    matrix[k, r] += jobs[r].need
                    mark[k] = (mark[k] * 1_000_003 + r + 1) % 2_147_483_629
    kept = 0
    for k in range(count):
        fresh = True
        for p in range(kept):
            if mark[p] == mark[k] and limit[p] == limit[k]:
                same = True
                for r in range(jobs.size):
                    same &= matrix[p, r] == matrix[k, r]
                if same:
                    fresh = False
                    break
        if fresh:
            mark[kept] = mark[k]
            limit[kept] = limit[k]
            matrix[kept] = matrix[k]
            kept += 1
    return kept


@kernel
def _free_rows(matrix: Floats, limit: Floats, low: Floats, placed: Bools, column: Ints) -> tuple[int, int]:
    """Take away `low` (R,) of `limit`; number the rows that can rise at all into `column` (R,), -1 for the others.

    Constraints that are full already are dropped with all their jobs, the others move up in `matrix` and `limit`; `low`
    of a row without constraint becomes 1. Returns how many constraints and columns there are left.
    """
    rows = low.size
    left = np.empty(limit.size)
    for r in range(rows):
        column[r] = -1
        if placed[r] and low[r] < 1.0:
            for k in range(limit.size):
                if matrix[k, r] > 0.0:
                    column[r] = 0
                    break
            if column[r] < 0:
                low[r] = 1.0
    for k in range(limit.size):
        left[k] = limit[k]
        for r in range(rows):
            left[k] -= matrix[k, r] * low[r]
        if left[k] <= FULL * limit[k]:
            for r in range(rows):
                if matrix[k, r] > 0.0:
                    column[r] = -1
    columns = 0
    for r in range(rows):
        if column[r] >= 0:
            column[r] = columns
            columns += 1
    kept = 0
    for k in range(limit.size):
        matters = False
        for r in range(rows):
            matters |= column[r] >= 0 and matrix[k, r] > 0.0
        if matters:
            limit[kept] = left[k]
            for r in range(rows):
                matrix[kept, r] = matrix[k, r]
            kept += 1
    return kept, columns


@kernel
def _reduced(jobs: Any, first: Ints, slots: Ints, capacity: Floats, low: Floats, column: Ints) -> tuple[Floats, Floats]:
    """The program that is left beside `low` (R,): (matrix (m, n), limit (m,)) over the rows numbered in `column` (R,).

    `low` becomes 1 for rows that no node keeps from it.
    """
    rows = jobs.size
    nodes = capacity.shape[0]
    matrix = np.empty((nodes, rows))
    limit = np.empty(nodes)
    index = np.empty(nodes, dtype=np.int64)
    placed = np.empty(rows, dtype=np.bool_)
    for r in range(rows):
        placed[r] = slots[first[r]] >= 0
    count = constraints(jobs, first, slots, capacity, matrix, limit, index)
    kept, columns = _free_rows(matrix[:count], limit[:count], low, placed, column)
    table = np.empty((kept, columns))
    for r in range(rows):
        if column[r] >= 0:
            for k in range(kept):
                table[k, column[r]] = matrix[k, r]
    return table, limit[:kept]


@kernel
def average_yields(
    jobs: Any, first: Ints, slots: Ints, capacity: Floats, base: Floats, slope: Floats, worth: Floats, yields: Floats
) -> None:
    """The largest sum of worth * yield, no row below what the largest common level (see `fill`) gives it.

    `worth` (R,) is above 0; `yields` (R,) is filled, with 0 for rows without nodes.
    """
    fill(jobs, first, slots, capacity, base, slope, 0.0, True, yields)
    column = np.empty(jobs.size, dtype=np.int64)
    table, limit = _reduced(jobs, first, slots, capacity, yields, column)
    columns = table.shape[1]
    cost = np.empty(columns)
    upper = np.empty(columns)
    x = np.zeros(columns)
    for r in range(jobs.size):
        c = column[r]
        if c >= 0:
            cost[c] = worth[r]
            upper[c] = 1.0 - yields[r]
    maximize(cost, table, limit, upper, x)
    for r in range(jobs.size):
        if column[r] >= 0:
            yields[r] = min(1.0, yields[r] + x[column[r]])
    within_capacity(jobs, first, slots, capacity, 0.0, yields)


@kernel
def average_stretch(
    jobs: Any, first: Ints, slots: Ints, capacity: Floats, base: Floats, slope: Floats, floor: float, yields: Floats
) -> None:
    """The least sum of estimated stretches, each slope / (yield - base); bounds as in `average_yields`.

    The sum is at most 1e-6 of itself above the least one (`dfrs.kernels.convex`).
    """
    fill(jobs, first, slots, capacity, base, slope, floor, True, yields)
    column = np.empty(jobs.size, dtype=np.int64)
    table, limit = _reduced(jobs, first, slots, capacity, yields, column)
    columns = table.shape[1]
    cost = np.empty(columns)
    offset = np.empty(columns)
    upper = np.empty(columns)
    x = np.zeros(columns)
    for r in range(jobs.size):
        c = column[r]
        if c >= 0:
            cost[c] = slope[r]
            offset[c] = yields[r] - base[r]
            upper[c] = 1.0 - yields[r]
    minimize_inverse(cost, offset, table, limit, upper, x)
    for r in range(jobs.size):
        if column[r] >= 0:
            yields[r] = min(1.0, yields[r] + x[column[r]])
    within_capacity(jobs, first, slots, capacity, 0.0, yields)
