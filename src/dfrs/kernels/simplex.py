"""A small dense primal simplex for packing-like programs with bounded variables: exact vertices in microseconds.

maximise cost x subject to matrix x <= limit and 0 <= x <= upper, with limit >= 0, so that x = 0 is feasible. The
tableau is condensed: one column for each nonbasic variable. Every nonbasic variable is at 0, if need be by counting it
from its upper bound downwards.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

import numpy as np

from dfrs.kernels.jit import Bools, Floats, Ints, kernel

EPSILON = 1e-11
"""What counts as zero in the tableau; data are of order 1."""


@kernel
def _entering(gain: Floats, careful: bool) -> int:
    """Column with the largest gain, or, if `careful`, the first with any (which cannot cycle); -1 at the optimum."""
    best = -1
    most = EPSILON
    for c in range(gain.size):
        if gain[c] > most:
            best = c
            if careful:
                break
            most = gain[c]
    return best


@kernel
def _leaving(table: Floats, value: Floats, bound: Floats, basic: Ints, c: int, own: float) -> tuple[int, float, bool]:
    """(row or -1, step, whether that row's variable stops at its upper bound) as column `c` grows, at most by `own`.

    Ties go to the basic variable of lowest index.
    """
    row = -1
    step = own
    above = False
    for i in range(value.size):
        a = table[i, c]
        if a > EPSILON:
            limit = max(value[i], 0.0) / a
            at_top = False
        elif a < -EPSILON and bound[i] < np.inf:
            limit = max(bound[i] - value[i], 0.0) / -a
            at_top = True
        else:
            continue
        if limit < step or (limit == step and row >= 0 and basic[i] < basic[row]):
            row, step, above = i, limit, at_top
    return row, step, above


@kernel
def _mirror_row(table: Floats, value: Floats, bound: Floats, basic: Ints, mirrored: Bools, i: int) -> None:
    """Count the basic variable of row `i` from its upper bound downwards."""
    table[i] *= -1.0
    value[i] = bound[i] - value[i]
    mirrored[basic[i]] = not mirrored[basic[i]]


@kernel
def _pivot(table: Floats, value: Floats, gain: Floats, i: int, c: int) -> None:
    """Exchange the basic variable of row `i` for the nonbasic one of column `c`."""
    rows, columns = table.shape
    scale = 1.0 / table[i, c]
    table[i, c] = 1.0
    for k in range(columns):
        table[i, k] *= scale
    value[i] *= scale
    for r in range(rows):
        if r != i and table[r, c] != 0.0:
            factor = table[r, c]
            table[r, c] = 0.0
            for k in range(columns):
                table[r, k] -= factor * table[i, k]
            value[r] -= factor * value[i]
    factor = gain[c]
    gain[c] = 0.0
    for k in range(columns):
        gain[k] -= factor * table[i, k]


@kernel
def maximize(cost: Floats, matrix: Floats, limit: Floats, upper: Floats, x: Floats) -> bool:
    """Solve the program into `x` (n,); `matrix` (m, n) is used up. Whether the optimum was reached.

    Without it (after 50 (m + n) pivots, which only numerical trouble brings about) `x` is feasible all the same.
    """
    rows, columns = matrix.shape
    value = limit.copy()
    gain = cost.copy()
    bound = np.full(rows, np.inf)
    basic = np.arange(columns, columns + rows)
    nonbasic = np.arange(columns)
    mirrored = np.zeros(rows + columns, dtype=np.bool_)
    idle = 0
    optimal = False
    for _ in range(50 * (rows + columns) + 1):
        c = _entering(gain, idle > rows + columns)
        if c < 0:
            optimal = True
            break
        j = nonbasic[c]
        own = upper[j] if j < columns else np.inf
        i, step, above = _leaving(matrix, value, bound, basic, c, own)
        if i < 0 and step == np.inf:
            break
        idle = idle + 1 if step <= EPSILON else 0
        if i < 0:
            for r in range(rows):
                value[r] -= matrix[r, c] * own
                matrix[r, c] = -matrix[r, c]
            gain[c] = -gain[c]
            mirrored[j] = not mirrored[j]
            continue
        if above:
            _mirror_row(matrix, value, bound, basic, mirrored, i)
        _pivot(matrix, value, gain, i, c)
        nonbasic[c] = basic[i]
        basic[i] = j
        bound[i] = own
    for j in range(columns):
        x[j] = upper[j] if mirrored[j] else 0.0
    for i in range(rows):
        j = basic[i]
        if j < columns:
            inside = min(max(value[i], 0.0), upper[j])
            x[j] = upper[j] - inside if mirrored[j] else inside
    return optimal
