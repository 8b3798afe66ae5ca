"""Batch decisions on whole nodes: FCFS and EASY ([Stillwell2010] section 5.3.1).

`jobs` is a record array with the fields of `dfrs.model.decisions.JOB`; row r owns slots first[r] to first[r + 1] of
`task_nodes`, all -1 unless it is on nodes.

See `dfrs.kernels.whole_nodes` for kinds of nodes and expected ends.

`whole_nodes` fills `after` (slots), `yields` (R,) and `reasons` (R, zeros on entry), and returns how many rows
change, or -1 - r where row r has no estimate and one was wanted; unless it is above 0 the three are of no consequence.
"""

import numpy as np

from dfrs.kernels.jit import Bools, Floats, Ints, kernel
from dfrs.kernels.whole_nodes import (
    Cluster,
    Jobs,
    count_free,
    find_busy,
    find_kinds,
    fit,
    front,
    holds,
    releases,
    settle,
    start,
    wanted,
)

QUEUE_HEAD, BACKFILLED = 7, 8
"""Values of `dfrs.model.decisions.Reason`."""

FCFS, EASY, EASY_SPARE = range(3)
"""Rules of `whole_nodes`."""


@kernel
def whole_nodes(
    rule: int,
    jobs: Jobs,
    first: Ints,
    task_nodes: Ints,
    capacity: Floats,
    is_open: Bools,
    tolerance: float,
    now_s: float,
    subject: int,
    after: Ints,
    yields: Floats,
    reasons: Ints,
) -> int:
    """Start jobs on nodes of their own, by `rule`.

    FCFS: waiting jobs start in order of submission until one finds too few free nodes.
    EASY: that one has a reservation at the earliest time at which it has enough. Later jobs start, in order, if they
    leave it as it is: they end before it, or use nodes that it does not want. A job that wants more nodes than are open
    has no reservation, and holds nobody up.
    EASY_SPARE: the same, but jobs pass that one only on nodes that it does not want, also where they end before it.
    """
    if rule != FCFS and subject >= 0 and np.isnan(jobs[subject].estimate_s):
        return -1 - subject
    head, unlike = front(jobs, first, task_nodes)
    busy, free = find_busy(first, task_nodes, is_open)
    started = 0
    if head < len(jobs) and free > 0:
        after[:] = task_nodes
        kind, size = find_kinds(capacity, is_open)
        free_of = count_free(kind, busy, len(size))
        cluster = (kind, size, free_of, busy)
        started, head = _start_in_order(jobs, first, head, cluster, tolerance, after, reasons)
        if rule != FCFS and head < len(jobs) - 1 and free_of.any():
            filled = _backfill(rule, jobs, first, head, cluster, tolerance, now_s, after, reasons)
            started = started + filled if filled >= 0 else filled
    elif unlike:
        after[:] = task_nodes
    if started > 0 or (started == 0 and unlike > 0):
        started += settle(jobs, first, capacity, tolerance, unlike, after, yields, reasons)
    return started


@kernel
def _start_in_order(
    jobs: Jobs, first: Ints, head: int, cluster: Cluster, tolerance: float, after: Ints, reasons: Ints
) -> tuple[int, int]:
    """Start waiting jobs from row `head` on while they fit: how many, and the first that does not (or their number)."""
    _, size, free_of, _ = cluster
    per = np.empty(len(size), np.int64)
    take = np.empty(len(size), np.int64)
    started = 0
    for r in range(head, len(jobs)):
        if after[first[r]] >= 0:
            continue
        fit(jobs[r], size, tolerance, per)
        if holds(free_of, per) < jobs[r].tasks:
            return started, r
        wanted(jobs[r].tasks, free_of, per, take)
        start(first[r], first[r + 1], take, per, cluster, after)
        reasons[r] = QUEUE_HEAD
        started += 1
    return started, len(jobs)


@kernel
def _reservation(tasks: int, room: int, per: Ints, ends: Floats, released: Ints) -> tuple[float, int]:
    """The earliest time by which nodes for `tasks` tasks are back, and how many more tasks there is room for then.

    `room` is how many the free nodes hold now, fewer than `tasks`. Infinite if there are never enough.
    """
    m = 0
    while m < len(ends):
        time_s = ends[m]
        while m < len(ends) and ends[m] == time_s:
            room += holds(released[m], per)
            m += 1
        if room >= tasks:
            return time_s, room - tasks
    return np.inf, 0


@kernel
def _backfill(
    rule: int,
    jobs: Jobs,
    first: Ints,
    head: int,
    cluster: Cluster,
    tolerance: float,
    now_s: float,
    after: Ints,
    reasons: Ints,
) -> int:
    """Start jobs after row `head` that do not delay it: how many, or -1 - r where row r has no estimate.

    Neither the reservation's time nor, for a job that ends before it, the room beside it changes by such a start.
    """
    kind, size, free_of, _ = cluster
    per_head = np.empty(len(size), np.int64)
    fit(jobs[head], size, tolerance, per_head)
    per = np.empty(len(size), np.int64)
    take = np.empty(len(size), np.int64)
    shadow_s = np.nan
    spare = 0
    free = free_of.sum()
    started = 0
    for r in range(head + 1, len(jobs)):
        if after[first[r]] >= 0:
            continue
        fit(jobs[r], size, tolerance, per)
        if holds(free_of, per) < jobs[r].tasks:
            continue
        if np.isnan(shadow_s):
            ends, released, missing = releases(jobs, first, after, kind, len(size), now_s)
            if missing >= 0:
                return -1 - missing
            shadow_s, spare = _reservation(jobs[head].tasks, holds(free_of, per_head), per_head, ends, released)
        if np.isnan(jobs[r].estimate_s):
            return -1 - r
        wanted(jobs[r].tasks, free_of, per, take)
        if now_s + jobs[r].estimate_s > shadow_s or (rule == EASY_SPARE and shadow_s < np.inf):
            lost = holds(take, per_head)
            if lost > spare:
                continue
            spare -= lost
        start(first[r], first[r + 1], take, per, cluster, after)
        reasons[r] = BACKFILLED
        started += 1
        free -= take.sum()
        if free == 0:
            break
    return started
