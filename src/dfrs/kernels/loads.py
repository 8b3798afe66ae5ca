"""What nodes hold, and which job comes first: shared by the kernels of on-line decisions ([Stillwell2010] section 5.2).

Layout as in `dfrs.model.decisions`: `jobs` (R,) is a record array with the fields of JOB, in order of submission; row r
owns slots first[r] to first[r + 1] of a slot array, each with the node of a task, or -1 in all of a row's slots. The
columns of `capacity` (N, 2) and `used` (N, 2) are CPU and memory.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

from typing import Any

import numpy as np

from dfrs.kernels.jit import Floats, Ints, kernel

WAITING, RUNNING, PAUSED = range(3)

VIRTUAL, FLOW_VIRTUAL, FLOW_VIRTUAL_SQUARED = range(3)
"""Priorities of [Stillwell2010] 5.2.3: 1 / virtual time; flow time / virtual time; flow time / virtual time squared."""

_FEW = 48


@kernel
def add_use(jobs: Any, first: Ints, slots: Ints, r: int, sign: float, used: Floats) -> None:
    """Add (or, with sign -1, take away) the needs and memory of placed row `r`; `used` in place."""
    need = sign * jobs[r].need
    memory = sign * jobs[r].memory
    for s in range(first[r], first[r + 1]):
        used[slots[s], 0] += need
        used[slots[s], 1] += memory


@kernel
def node_use(jobs: Any, first: Ints, slots: Ints, used: Floats) -> None:
    """CPU needs and memory of the tasks on each node, into `used`."""
    used[:] = 0.0
    for r in range(jobs.size):
        if slots[first[r]] >= 0:
            add_use(jobs, first, slots, r, 1.0, used)


@kernel
def largest_load(used: Floats, capacity: Floats) -> float:
    """CPU load of the most loaded node: needs / capacity; infinite where a node without CPU has tasks."""
    most = 0.0
    for n in range(used.shape[0]):
        if used[n, 0] > most * capacity[n, 0]:
            most = used[n, 0] / capacity[n, 0] if capacity[n, 0] > 0.0 else np.inf
    return most


@kernel
def priority(jobs: Any, r: int, now_s: float, kind: int) -> float:
    """Priority of row `r` times its weight ([Stillwell2010] section 5.2.3); infinite at virtual time 0."""
    virtual = jobs[r].virtual_s
    if not virtual > 0.0:
        return np.inf
    if kind == VIRTUAL:
        return jobs[r].weight / virtual
    flow = now_s - jobs[r].submit_s
    value = jobs[r].weight * flow / virtual
    return value / virtual if kind == FLOW_VIRTUAL_SQUARED else value


@kernel
def by_priority(jobs: Any, now_s: float, kind: int, order: Ints) -> None:
    """Rows by decreasing priority, into `order` (R,); of two equal ones the earlier submission comes first."""
    for r in range(jobs.size):
        order[r] = r
    sort_by_priority(jobs, now_s, kind, order)


@kernel
def sort_by_priority(jobs: Any, now_s: float, kind: int, some: Ints) -> None:
    """The rows `some`, which are in order of submission, by decreasing priority, in place; ties as they were."""
    count = some.size
    key = np.empty(count)
    for k in range(count):
        key[k] = -priority(jobs, some[k], now_s, kind)
    if count > _FEW:
        some[:] = some[np.argsort(key, kind="mergesort")]
        return
    for k in range(1, count):
        row, value = some[k], key[k]
        p = k
        while p > 0 and key[p - 1] > value:
            some[p], key[p] = some[p - 1], key[p - 1]
            p -= 1
        some[p], key[p] = row, value
