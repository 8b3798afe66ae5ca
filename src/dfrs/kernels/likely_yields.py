"""What yields tasks are likely to have when their needs are known in part, and shares that make the least of them high.

What is believed of a need is the mixture of `dfrs.kernels.observing`: with probability `trust` it is in [low, high],
else it has changed and may be anything up to `most`.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

from typing import Any

import numpy as np

from dfrs.kernels.jit import Floats, Ints, kernel

LEVELS = 32
"""Yields in (0, 1) at which probabilities are added up."""
PARTS = 4
"""Between shares by estimates and equal ones, so many steps are tried."""
ERRORS = 2.0
"""Beyond its estimate, so many error bars are thought of as needed by a task that gets no more than it needs."""
LEAST_HALF = 1e-9
"""Of the width of an interval."""
OWN = 1e-6
"""How much the least yield of a node itself counts beside that of all: where another node decides, it still differs."""
HALVINGS = 20
"""Of an interval in which a quantile is looked for."""
LEAST_LOG = -70.0
"""For the logarithm of 0."""


@kernel
def chance(row: Any, cpu: float) -> float:
    """How probable it is that the need is at most `cpu`."""
    if row.declared == 1:
        return 1.0 if cpu >= row.estimate else 0.0
    if row.high > row.low:
        stayed = min(max((cpu - row.low) / (row.high - row.low), 0.0), 1.0)
    else:
        stayed = 1.0 if cpu >= row.low else 0.0
    if row.trust >= 1.0:
        return stayed
    # A need that has changed is uniform up to `most`, around the mean that is left of the estimate.
    mean = (row.estimate - row.trust * 0.5 * (row.low + row.high)) / (1.0 - row.trust)
    half = max(row.most - mean, LEAST_HALF)
    changed = min(max((cpu - mean + half) / (2.0 * half), 0.0), 1.0)
    return row.trust * stayed + (1.0 - row.trust) * changed


@kernel
def fair_shares(
    table: Any, own: Ints, capacity: float, unsure: float, slack: float, extra: float, fair: Floats
) -> None:
    """Equal parts of `capacity` for the tasks `own`, into `fair`; what a known task does not need, others get.

    A task with an error bar up to `unsure` is given no more than its need and a margin: (1 + slack) times that + extra.
    """
    limit = np.empty(own.size)
    for k in range(own.size):
        row = table[own[k]]
        limit[k] = row.most
        if row.error <= unsure:
            limit[k] = (row.estimate + ERRORS * row.error) * (1.0 + slack) + extra
    left, others = capacity, own.size
    for k in np.argsort(limit, kind="mergesort"):
        fair[own[k]] = min(limit[k], left / others)
        left -= fair[own[k]]
        others -= 1


@kernel
def log_chances(table: Any, own: Ints, share: Floats, fair: Floats, part: float, found: Floats) -> None:
    """The logarithm of how probable it is that all of `own` have a yield above each level, into `found` (LEVELS,).

    Shares are `share`, the part `part` of which is exchanged for `fair`.
    """
    for k in range(LEVELS):
        level = (k + 0.5) / LEVELS
        together = 1.0
        for t in own:
            together *= chance(table[t], ((1.0 - part) * share[t] + part * fair[t]) / level)
        found[k] = max(np.log(together), LEAST_LOG) if together > 0.0 else LEAST_LOG


@kernel
def quantile(row: Any, part: float) -> float:
    """The need that is not exceeded with the probability `part`."""
    low, high = 0.0, row.most
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if chance(row, middle) < part:
            low = middle
        else:
            high = middle
    return high


@kernel
def best_part(table: Any, own: Ints, share: Floats, fair: Floats, others: Floats, found: Floats) -> float:
    """Which part of `share` is best exchanged for `fair`, the other nodes having the logarithms `others` (LEVELS,).

    What it comes to is in `found` (LEVELS,) then.
    """
    best, most = 1.0, -1.0
    for k in range(PARTS, -1, -1):
        log_chances(table, own, share, fair, k / PARTS, found)
        expected = np.exp(others + found).sum() + OWN * np.exp(found).sum()
        if expected > most * (1.0 + 1e-9):
            best, most = k / PARTS, expected
    log_chances(table, own, share, fair, best, found)
    return best


@kernel
def even_out(table: Any, capacity: Floats, full: Any, fair: Floats, share: Floats) -> Floats:
    """Bring `share` (T,) as near to `fair` (T,) on each `full` node as makes the expected least yield of all highest.

    One node after the other, the others as they are then: at first a full node's shares are fair ones. The expectation
    is the sum over levels of how probable it is that no yield of any node is below, so that a node counts where it is
    likely to have the least. Returns the logarithms of these probabilities (N, LEVELS).
    """
    logs = np.zeros((capacity.size, LEVELS))
    found = np.empty(LEVELS)
    for n in range(capacity.size):
        own = np.flatnonzero(table["node"] == n)
        log_chances(table, own, share, fair, 1.0 if full[n] else 0.0, logs[n])
    total = logs.sum(axis=0)
    for n in range(capacity.size):
        if not full[n]:
            continue
        own = np.flatnonzero(table["node"] == n)
        others = total - logs[n]
        # Only which part is best matters: large clusters would leave nothing but zeros.
        others -= others.max()
        best = best_part(table, own, share, fair, others, found)
        total += found - logs[n]
        logs[n] = found
        for t in own:
            share[t] = (1.0 - best) * share[t] + best * fair[t]
    return logs
