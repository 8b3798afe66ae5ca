"""A small primal-dual interior point method for the least sum of inverses under packing constraints.

minimise sum of cost / (offset + x) subject to matrix x <= limit and 0 <= x <= upper, with cost, offset, limit, upper
above 0. Every iterate is feasible; the gap to the best is certified by the Lagrangian dual, which has a closed form
because the objective is separable.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

import numpy as np

from dfrs.kernels.jit import Floats, kernel

GAP = 1e-6
"""Relative to the sum: the method stops there."""
STEPS = 100
CENTERING = 0.15
TO_BOUNDARY = 0.995


@kernel
def cholesky_solve(matrix: Floats, right: Floats) -> None:
    """Solve matrix x = right for a symmetric positive definite matrix; both are overwritten, `right` by x."""
    n = right.size
    for j in range(n):
        for k in range(j):
            matrix[j, j] -= matrix[j, k] * matrix[j, k]
        matrix[j, j] = np.sqrt(max(matrix[j, j], 1e-300))
        for i in range(j + 1, n):
            total = matrix[i, j]
            for k in range(j):
                total -= matrix[i, k] * matrix[j, k]
            matrix[i, j] = total / matrix[j, j]
    for i in range(n):
        for k in range(i):
            right[i] -= matrix[i, k] * right[k]
        right[i] /= matrix[i, i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            right[i] -= matrix[k, i] * right[k]
        right[i] /= matrix[i, i]


@kernel
def dual_bound(cost: Floats, offset: Floats, matrix: Floats, limit: Floats, upper: Floats, price: Floats) -> float:
    """No feasible x has a smaller sum than this, whatever the `price` (m,) >= 0 of the constraints."""
    bound = 0.0
    for i in range(limit.size):
        bound -= price[i] * limit[i]
    for j in range(cost.size):
        total = 0.0
        for i in range(limit.size):
            total += matrix[i, j] * price[i]
        x = upper[j]
        if total > 0.0:
            x = min(upper[j], max(0.0, np.sqrt(cost[j] / total) - offset[j]))
        bound += cost[j] / (offset[j] + x) + total * x
    return bound


@kernel
def _longest(value: Floats, change: Floats, step: float) -> float:
    """The part of `step`, at most, that keeps value + step * change above 0."""
    for k in range(value.size):
        if value[k] + step * change[k] <= (1.0 - TO_BOUNDARY) * value[k]:
            step = -TO_BOUNDARY * value[k] / change[k]
    return step


@kernel
def _top_up(matrix: Floats, limit: Floats, upper: Floats, x: Floats) -> None:
    """Raise each variable in turn as far as the others leave room: what an interior point always leaves a little of."""
    for j in range(x.size):
        room = upper[j] - x[j]
        for i in range(limit.size):
            if matrix[i, j] > 0.0:
                left = limit[i]
                for k in range(x.size):
                    left -= matrix[i, k] * x[k]
                room = min(room, left / matrix[i, j])
        if room > 0.0:
            x[j] = min(upper[j], x[j] + room)


@kernel
def minimize_inverse(cost: Floats, offset: Floats, matrix: Floats, limit: Floats, upper: Floats, x: Floats) -> float:
    """Solve the program into `x` (n,); returns a lower bound on the sum, at most `GAP` of it below that of `x`.

    Without that (after `STEPS`, which only numerical trouble brings about) `x` is feasible all the same.
    """
    m, n = matrix.shape
    share = 1.0
    for i in range(m):
        used = 0.0
        for j in range(n):
            used += matrix[i, j] * upper[j]
        if used * share > limit[i]:
            share = limit[i] / used
    x[:] = 0.5 * share * upper
    above = upper - x
    slack = limit - matrix_times(matrix, x)
    value = (cost / (offset + x)).sum()
    scale = value / max(1, m + 2 * n)
    price = scale / slack
    low = scale / x
    high = scale / above
    bound = dual_bound(cost, offset, matrix, limit, upper, price)
    system = np.empty((n, n))
    for _ in range(STEPS):
        if value - bound <= GAP * value:
            break
        target = CENTERING * ((price * slack).sum() + (low * x).sum() + (high * above).sum()) / max(1, m + 2 * n)
        right = target / x - target / above + cost / (offset + x) ** 2
        system[:] = 0.0
        for j in range(n):
            system[j, j] = 2.0 * cost[j] / (offset[j] + x[j]) ** 3 + low[j] / x[j] + high[j] / above[j]
        for i in range(m):
            weight = price[i] / slack[i]
            for j in range(n):
                if matrix[i, j] > 0.0:
                    right[j] -= matrix[i, j] * target / slack[i]
                    part = weight * matrix[i, j]
                    for k in range(j + 1):
                        system[j, k] += part * matrix[i, k]
        cholesky_solve(system, right)
        moved = matrix_times(matrix, right)
        price_change = target / slack - price + price / slack * moved
        low_change = target / x - low - low / x * right
        high_change = target / above - high + high / above * right
        step = _longest(x, right, 1.0)
        step = _longest(above, -right, step)
        step = _longest(slack, -moved, step)
        dual_step = _longest(price, price_change, 1.0)
        dual_step = _longest(low, low_change, dual_step)
        dual_step = _longest(high, high_change, dual_step)
        step = min(step, dual_step)
        x += step * right
        above -= step * right
        slack -= step * moved
        price += step * price_change
        low += step * low_change
        high += step * high_change
        value = (cost / (offset + x)).sum()
        bound = max(bound, dual_bound(cost, offset, matrix, limit, upper, price))
    _top_up(matrix, limit, upper, x)
    return bound


@kernel
def matrix_times(matrix: Floats, x: Floats) -> Floats:
    """matrix x (m,)."""
    product = np.zeros(matrix.shape[0])
    for i in range(matrix.shape[0]):
        for j in range(x.size):
            product[i] += matrix[i, j] * x[j]
    return product
