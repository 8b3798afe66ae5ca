"""Jobs on nodes of their own: what batch kernels share ([Stillwell2010] section 5.3.1).

`jobs` is a record array with the fields of `dfrs.model.decisions.JOB`; row r owns slots first[r] to first[r + 1] of
`task_nodes`, all -1 unless it is on nodes.

Nodes of equal capacity are of one *kind*; kinds are numbered by their first node. Since a job has its nodes for itself,
free nodes of one kind are interchangeable: all reasoning is on how many of each kind are free, and a starting job takes
them kind by kind, the lowest index first. A node is free if it is open and no task is on it.

A running job is expected to end when its virtual time, at yield 1, reaches its estimate; one that is past its estimate
is expected to end now, but keeps its nodes: no other job can start on them in this decision.
"""

from typing import Any

import numpy as np

from dfrs.kernels.jit import Bools, Floats, Ints, kernel

Jobs = Any
"""Records, or one of them."""

Cluster = tuple[Ints, Floats, Ints, Bools]
"""(N,) kind of each open node, else -1; (K, 2) capacity of each kind; (K,) free nodes of each kind; (N,) not free."""


@kernel
def front(jobs: Jobs, first: Ints, task_nodes: Ints) -> tuple[int, int]:
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
def find_busy(first: Ints, task_nodes: Ints, is_open: Bools) -> tuple[Bools, int]:
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
def find_kinds(capacity: Floats, is_open: Bools) -> tuple[Ints, Floats]:
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
def count_free(kind: Ints, busy: Bools, kinds: int) -> Ints:
    """(K,) how many nodes of each kind are not busy."""
    free_of = np.zeros(kinds, np.int64)
    for n in range(len(kind)):
        if not busy[n]:
            free_of[kind[n]] += 1
    return free_of


@kernel
def fit(job: Jobs, size: Floats, tolerance: float, per: Ints) -> None:
    """Fill `per` (K,) with how many of the job's tasks a node of each kind holds, at most all of them."""
    for k in range(len(per)):
        most = min(float(job.tasks), (size[k, 0] + tolerance) / job.need)
        if job.memory > 0.0:
            most = min(most, (size[k, 1] + tolerance) / job.memory)
        per[k] = int(most)


@kernel
def holds(nodes_of: Ints, per: Ints) -> int:
    """How many tasks so many nodes of each kind hold."""
    total = 0
    for k in range(len(per)):
        total += nodes_of[k] * per[k]
    return total


@kernel
def wanted(tasks: int, nodes_of: Ints, per: Ints, take: Ints) -> None:
    """Fill `take` (K,) with the nodes of each kind that `tasks` tasks occupy if they have the choice of `nodes_of`."""
    left = tasks
    for k in range(len(per)):
        take[k] = 0
        if left > 0 and per[k] > 0:
            take[k] = min(nodes_of[k], (left + per[k] - 1) // per[k])
            left -= take[k] * per[k]


@kernel
def start(begin: int, end: int, take: Ints, per: Ints, cluster: Cluster, after: Ints) -> None:
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
def releases(
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
def settle(
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
