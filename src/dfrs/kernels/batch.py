"""Batch decisions on whole nodes: FCFS, EASY and conservative backfilling (000 section 5.3.1).

`jobs` is a record array with the fields of `dfrs.model.decisions.JOB`; row r owns slots first[r] to first[r + 1] of
`task_nodes`, all -1 unless it is on nodes.

Nodes of equal capacity are of one *kind*; kinds are numbered by their first node. Since a job has its nodes for itself,
free nodes of one kind are interchangeable: all reasoning is on how many of each kind are free, and a starting job takes
them kind by kind, the lowest index first. A node is free if it is open and no task is on it.

A running job is expected to end when its virtual time, at yield 1, reaches its estimate; one that is past its estimate
is expected to end now, but keeps its nodes: no other job can start on them in this decision.

`whole_nodes` fills `after` (slots), `yields` (R,) and `reasons` (R, zeros on entry), and returns how many rows
change, or -1 - r where row r has no estimate and one was wanted; unless it is above 0 the three are of no consequence.
"""

from typing import Any

import numpy as np

from dfrs.kernels.jit import Bools, Floats, Ints, kernel

QUEUE_HEAD, BACKFILLED, RESERVED = 7, 8, 9
"""Values of `dfrs.model.decisions.Reason`."""

FCFS, EASY, CONSERVATIVE = range(3)
"""Rules of `whole_nodes`."""

Jobs = Any
"""Records, or one of them."""

Cluster = tuple[Ints, Floats, Ints, Bools]
"""(N,) kind of each open node, else -1; (K, 2) capacity of each kind; (K,) free nodes of each kind; (N,) not free."""


@kernel
def whole_nodes(
    rule: int, jobs: Jobs, first: Ints, task_nodes: Ints, capacity: Floats, is_open: Bools, tolerance: float,
    now_s: float, subject: int, after: Ints, yields: Floats, reasons: Ints,
) -> int:  # fmt: skip
    """Start jobs on nodes of their own, by `rule`.

    FCFS: waiting jobs start in order of submission until one finds too few free nodes.
    EASY: that one has a reservation at the earliest time at which it has enough. Later jobs start, in order, if they
    leave it as it is: they end before it, or use nodes that it does not want. A job that wants more nodes than are open
    has no reservation, and holds nobody up.
    CONSERVATIVE: each waiting job in order has the earliest reservation beside those before it; those that begin now
    start.
    """
    if rule != FCFS and subject >= 0 and np.isnan(jobs[subject].estimate_s):
        return -1 - subject
    head, unlike = _front(jobs, first, task_nodes)
    busy, free = _busy(first, task_nodes, is_open)
    started = 0
    if head < len(jobs) and free > 0:
        after[:] = task_nodes
        kind, size = _kinds(capacity, is_open)
        free_of = _count(kind, busy, len(size))
        cluster = (kind, size, free_of, busy)
        if rule == CONSERVATIVE:
            started = _reserve_all(jobs, first, head, cluster, tolerance, now_s, after, reasons)
        else:
            started, head = _start_in_order(jobs, first, head, cluster, tolerance, after, reasons)
            if rule == EASY and head < len(jobs) - 1 and free_of.any():
                filled = _backfill(jobs, first, head, cluster, tolerance, now_s, after, reasons)
                started = started + filled if filled >= 0 else filled
    elif unlike:
        after[:] = task_nodes
    if started > 0 or (started == 0 and unlike > 0):
        started += _settle(jobs, first, capacity, tolerance, unlike, after, yields, reasons)
    return started


@kernel
def _front(jobs: Jobs, first: Ints, task_nodes: Ints) -> tuple[int, int]:
    """The first row without nodes (or their number), and how many rows with nodes have a yield other than 1."""
    head = len(jobs)
    unlike = 0
    for r in range(len(jobs)):
        if task_nodes[first[r]] < 0:
            head = min(head, r)
        elif jobs[r].yield_ != 1.0:
            unlike += 1
    return head, unlike


@kernel
def _busy(first: Ints, task_nodes: Ints, is_open: Bools) -> tuple[Bools, int]:
    """(N,) which nodes are closed or have a task, and how many have neither."""
    busy = ~is_open
    for r in range(len(first) - 1):
        if task_nodes[first[r]] >= 0:
            for s in range(first[r], first[r + 1]):
                busy[task_nodes[s]] = True
    free = 0
    for n in range(len(busy)):
        free += not busy[n]
    return busy, free


@kernel
def _kinds(capacity: Floats, is_open: Bools) -> tuple[Ints, Floats]:
    """(N,) each open node's kind, -1 for closed ones, and (K, 2) the capacity of each kind."""
    nodes = len(capacity)
    kind = np.full(nodes, -1, np.int64)
    example = np.empty(nodes, np.int64)
    kinds = 0
    k = 0
    for n in range(nodes):
        if not is_open[n]:
            continue
        # Equal nodes mostly stand together: the kind of the one before is tried first.
        if kinds == 0 or not _alike(capacity, example[k], n):
            k = 0
            while k < kinds and not _alike(capacity, example[k], n):
                k += 1
            if k == kinds:
                example[k] = n
                kinds += 1
        kind[n] = k
    return kind, capacity[example[:kinds]]


@kernel
def _alike(capacity: Floats, m: int, n: int) -> bool:
    return capacity[m, 0] == capacity[n, 0] and capacity[m, 1] == capacity[n, 1]


@kernel
def _count(kind: Ints, busy: Bools, kinds: int) -> Ints:
    """(K,) how many nodes of each kind are not busy."""
    free_of = np.zeros(kinds, np.int64)
    for n in range(len(kind)):
        if not busy[n]:
            free_of[kind[n]] += 1
    return free_of


@kernel
def _fit(job: Jobs, size: Floats, tolerance: float, per: Ints) -> None:
    """Fill `per` (K,) with how many of the job's tasks a node of each kind holds, at most all of them."""
    for k in range(len(per)):
        most = min(float(job.tasks), (size[k, 0] + tolerance) / job.need)
        if job.memory > 0.0:
            most = min(most, (size[k, 1] + tolerance) / job.memory)
        per[k] = int(most)


@kernel
def _holds(nodes_of: Ints, per: Ints) -> int:
    """How many tasks so many nodes of each kind hold."""
    total = 0
    for k in range(len(per)):
        total += nodes_of[k] * per[k]
    return total


@kernel
def _wanted(tasks: int, nodes_of: Ints, per: Ints, take: Ints) -> None:
    """Fill `take` (K,) with the nodes of each kind that `tasks` tasks occupy if they have the choice of `nodes_of`."""
    left = tasks
    for k in range(len(per)):
        take[k] = 0
        if left > 0 and per[k] > 0:
            take[k] = min(nodes_of[k], (left + per[k] - 1) // per[k])
            left -= take[k] * per[k]


@kernel
def _start(begin: int, end: int, take: Ints, per: Ints, cluster: Cluster, after: Ints) -> None:
    """Put slots `begin` to `end` on the first `take` free nodes of each kind; modifies what is free, and `after`."""
    kind, _, free_of, busy = cluster
    s = begin
    for k in range(len(take)):
        n = 0
        for _ in range(take[k]):
            while busy[n] or kind[n] != k:
                n += 1
            busy[n] = True
            stop = min(end, s + per[k])
            while s < stop:
                after[s] = n
                s += 1
        free_of[k] -= take[k]


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
        _fit(jobs[r], size, tolerance, per)
        if _holds(free_of, per) < jobs[r].tasks:
            return started, r
        _wanted(jobs[r].tasks, free_of, per, take)
        _start(first[r], first[r + 1], take, per, cluster, after)
        reasons[r] = QUEUE_HEAD
        started += 1
    return started, len(jobs)


@kernel
def _releases(
    jobs: Jobs, first: Ints, task_nodes: Ints, kind: Ints, kinds: int, now_s: float
) -> tuple[Floats, Ints, int]:
    """When nodes in use are expected back: (M,) times in order, (M, K) how many open nodes of each kind then, missing.

    A node that several jobs share (as another policy may have left it) is back with the last. `missing` is a row on
    nodes without an estimate, or -1.
    """
    ends = np.empty(len(jobs))
    last = np.full(len(kind), -1, np.int64)
    running = 0
    for r in range(len(jobs)):
        if task_nodes[first[r]] < 0:
            continue
        if np.isnan(jobs[r].estimate_s):
            return ends[:0], np.empty((0, kinds), np.int64), r
        ends[running] = now_s + max(jobs[r].estimate_s - jobs[r].virtual_s, 0.0)
        for s in range(first[r], first[r + 1]):
            n = task_nodes[s]
            if last[n] < 0 or ends[running] > ends[last[n]]:
                last[n] = running
        running += 1
    order = np.argsort(ends[:running])
    rank = np.empty(running, np.int64)
    rank[order] = np.arange(running)
    released = np.zeros((running, kinds), np.int64)
    for n in range(len(kind)):
        if last[n] >= 0 and kind[n] >= 0:
            released[rank[last[n]], kind[n]] += 1
    return ends[order], released, -1


@kernel
def _reservation(tasks: int, holds: int, per: Ints, ends: Floats, released: Ints) -> tuple[float, int]:
    """The earliest time by which nodes for `tasks` tasks are back, and how many more tasks there is room for then.

    `holds` is how many the free nodes hold now, fewer than `tasks`. Infinite if there are never enough.
    """
    m = 0
    while m < len(ends):
        time_s = ends[m]
        while m < len(ends) and ends[m] == time_s:
            holds += _holds(released[m], per)
            m += 1
        if holds >= tasks:
            return time_s, holds - tasks
    return np.inf, 0


@kernel
def _backfill(
    jobs: Jobs, first: Ints, head: int, cluster: Cluster, tolerance: float, now_s: float, after: Ints, reasons: Ints
) -> int:
    """Start jobs after row `head` that do not delay it: how many, or -1 - r where row r has no estimate.

    Neither the reservation's time nor, for a job that ends before it, the room beside it changes by such a start.
    """
    kind, size, free_of, _ = cluster
    per_head = np.empty(len(size), np.int64)
    _fit(jobs[head], size, tolerance, per_head)
    per = np.empty(len(size), np.int64)
    take = np.empty(len(size), np.int64)
    shadow_s = np.nan
    spare = 0
    free = free_of.sum()
    started = 0
    for r in range(head + 1, len(jobs)):
        if after[first[r]] >= 0:
            continue
        _fit(jobs[r], size, tolerance, per)
        if _holds(free_of, per) < jobs[r].tasks:
            continue
        if np.isnan(shadow_s):
            ends, released, missing = _releases(jobs, first, after, kind, len(size), now_s)
            if missing >= 0:
                return -1 - missing
            shadow_s, spare = _reservation(jobs[head].tasks, _holds(free_of, per_head), per_head, ends, released)
        if np.isnan(jobs[r].estimate_s):
            return -1 - r
        _wanted(jobs[r].tasks, free_of, per, take)
        if now_s + jobs[r].estimate_s > shadow_s:
            lost = _holds(take, per_head)
            if lost > spare:
                continue
            spare -= lost
        _start(first[r], first[r + 1], take, per, cluster, after)
        reasons[r] = BACKFILLED
        started += 1
        free -= take.sum()
        if free == 0:
            break
    return started


@kernel
def _reserve_all(
    jobs: Jobs, first: Ints, head: int, cluster: Cluster, tolerance: float, now_s: float, after: Ints, reasons: Ints
) -> int:
    """Reserve for the waiting jobs from row `head` on, and start those whose reservation begins now.

    How many start, or -1 - r where row r has no estimate. The profile is `times` and, from each to the next, the free
    nodes of each kind, `profile`; its entry 0 is what is free now, also where overdue jobs make entry 1 begin now.
    Once entry 0 is empty nobody else can start, and the reservations after that are of no consequence.
    """
    kind, size, free_of, _ = cluster
    kinds = len(size)
    ends, released, missing = _releases(jobs, first, after, kind, kinds, now_s)
    if missing >= 0:
        return -1 - missing
    most = 1 + len(ends) + len(jobs) - head
    times = np.empty(most)
    profile = np.empty((most, kinds), np.int64)
    times[0] = now_s
    profile[0] = free_of
    length = 1
    for m in range(len(ends)):
        if m == 0 or ends[m] > ends[m - 1]:
            times[length] = ends[m]
            profile[length] = profile[length - 1]
            length += 1
        profile[length - 1] += released[m]
    per = np.empty(kinds, np.int64)
    take = np.empty(kinds, np.int64)
    least = np.empty(kinds, np.int64)
    started = 0
    for r in range(head, len(jobs)):
        if after[first[r]] >= 0:
            continue
        if not profile[0].any():
            break
        if np.isnan(jobs[r].estimate_s):
            return -1 - r
        _fit(jobs[r], size, tolerance, per)
        at, stop = _earliest(jobs[r].tasks, jobs[r].estimate_s, per, times[:length], profile, least)
        if at == length:
            continue
        _wanted(jobs[r].tasks, least, per, take)
        end_s = times[at] + jobs[r].estimate_s
        if stop == length or times[stop] > end_s:
            for m in range(length, stop, -1):
                times[m] = times[m - 1]
                profile[m] = profile[m - 1]
            times[stop] = end_s
            profile[stop] = profile[stop - 1]
            length += 1
        for m in range(at, stop):
            profile[m] -= take
        if at == 0:
            _start(first[r], first[r + 1], take, per, cluster, after)
            reasons[r] = RESERVED
            started += 1
    return started


@kernel
def _earliest(tasks: int, estimate_s: float, per: Ints, times: Floats, profile: Ints, least: Ints) -> tuple[int, int]:
    """The first entry from which nodes for `tasks` tasks stay free for `estimate_s`, and the first entry after that.

    Fills `least` (K,) with how many nodes of each kind are free throughout; len(times) twice if there is no such entry.
    """
    length = len(times)
    at = 0
    while at < length:
        least[:] = profile[at]
        m = at
        while m < length and (m == at or times[m] < times[at] + estimate_s):
            for k in range(len(per)):
                least[k] = min(least[k], profile[m, k])
            if _holds(least, per) < tasks:
                break
            m += 1
        else:
            return at, m
        # Where entry m alone has too little, no window that reaches over it will do.
        at = m + 1 if _holds(profile[m], per) < tasks else at + 1
    return length, length


@kernel
def _settle(
    jobs: Jobs, first: Ints, capacity: Floats, tolerance: float, unlike: int, after: Ints, yields: Floats, reasons: Ints
) -> int:
    """Yield 1 for jobs that start; how many of the `unlike`, which another policy left at less, have another yield now.

    Those are raised in order of submission, as far as the CPU of their nodes goes.
    """
    for r in range(len(jobs)):
        yields[r] = 1.0 if reasons[r] > 0 else jobs[r].yield_
    return _raise(jobs, first, capacity, tolerance, after, yields) if unlike else 0


@kernel
def _raise(jobs: Jobs, first: Ints, capacity: Floats, tolerance: float, after: Ints, yields: Floats) -> int:
    """Raise `yields` below 1 of jobs on nodes, row by row, as far as CPU goes; how many are raised."""
    room = capacity[:, 0].copy()
    for r in range(len(jobs)):
        if yields[r] > 0.0:
            for s in range(first[r], first[r + 1]):
                room[after[s]] -= jobs[r].need * yields[r]
    raised = 0
    for r in range(len(jobs)):
        if after[first[r]] < 0 or yields[r] == 1.0:
            continue
        tasks_on = np.zeros(len(capacity), np.int64)
        for s in range(first[r], first[r + 1]):
            tasks_on[after[s]] += 1
        gain = 1.0 - yields[r]
        for n in range(len(capacity)):
            if tasks_on[n] > 0:
                gain = min(gain, (room[n] + tolerance / 2) / (jobs[r].need * tasks_on[n]))
        if gain > tolerance:
            raised += 1
            yields[r] = min(1.0, yields[r] + gain)
            for n in range(len(capacity)):
                room[n] -= jobs[r].need * tasks_on[n] * gain
    return raised
