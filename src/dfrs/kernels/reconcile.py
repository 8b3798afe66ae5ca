"""From a target to commands: is it admissible, what changes, and in which order may it be done.

Layout as in `dfrs.model.decisions`: row r owns slots first[r] to first[r + 1] of `before` and `after`, each slot with
the node of a task or -1 in all of a row's slots. The resources are CPU (0) and memory (1).
"""

from typing import Any

import numpy as np

from dfrs.kernels.jit import Bools, Floats, Ints, kernel

OK, BAD_YIELD, BAD_NODE, PARTLY_PLACED, MEMORY_OVER, CPU_OVER, IDLE_YIELD, BAD_REASON = range(8)

WAITING, RUNNING, PAUSED = range(3)
START, PAUSE, RESUME, MIGRATE, SHARE = range(5)
DETACH = 11
KEEP = -1


@kernel
def admissible(
    jobs: Any,
    first: Ints,
    after: Ints,
    yields: Floats,
    reasons: Ints,
    last_reason: int,
    capacity: Floats,
    tolerance: float,
) -> tuple[int, int, int]:
    """Whether a target can be: (OK or what is wrong, row or -1, node or -1).

    Reasons, if there are any, are numbers from 0 to the last one.
    A row has all of its tasks on nodes and a yield in [0, 1], or none and yield 0; no node gives out more than it has.
    """
    for r in range(reasons.size):
        if not (0 <= reasons[r] <= last_reason):
            return BAD_REASON, r, -1
    nodes = capacity.shape[0]
    cpu = np.zeros(nodes)
    memory = np.zeros(nodes)
    for r in range(jobs.size):
        if not (0.0 <= yields[r] <= 1.0):
            return BAD_YIELD, r, -1
        placed = after[first[r]] >= 0
        if not placed and yields[r] > 0.0:
            return IDLE_YIELD, r, -1
        for s in range(first[r], first[r + 1]):
            n = after[s]
            if n < -1 or n >= nodes:
                return BAD_NODE, r, n
            if (n >= 0) != placed:
                return PARTLY_PLACED, r, -1
            if placed:
                cpu[n] += jobs[r].need * yields[r]
                memory[n] += jobs[r].memory
    for n in range(nodes):
        if memory[n] > capacity[n, 1] + tolerance:
            return MEMORY_OVER, -1, n
        if cpu[n] > capacity[n, 0] + tolerance:
            return CPU_OVER, -1, n
    return OK, -1, -1


@kernel
def closed_arrival(jobs: Any, first: Ints, before: Ints, after: Ints, open_nodes: Bools) -> tuple[int, int]:
    """The first (row, node) of which a task comes to a closed node, or (-1, -1); after `keep_slots`."""
    for r in range(jobs.size):
        for s in range(first[r], first[r + 1]):
            if after[s] >= 0 and after[s] != before[s] and not open_nodes[after[s]]:
                return r, after[s]
    return -1, -1


@kernel
def keep_slots(before: Ints, after: Ints, begin: int, end: int, count: Ints) -> int:
    """Rearrange a row's `after` so that tasks which may stay keep their slot; returns how many tasks move.

    A row's tasks are alike, so only the multiset of nodes matters. `count` (N,) is zero before and after.
    """
    for s in range(begin, end):
        count[after[s]] += 1
    moved = 0
    for s in range(begin, end):
        n = before[s]
        if n >= 0 and count[n] > 0:
            count[n] -= 1
            after[s] = n
        else:
            after[s] = -1
            moved += 1
    if moved > 0:
        n = 0
        for s in range(begin, end):
            if after[s] < 0:
                while count[n] == 0:
                    n += 1
                after[s] = n
                count[n] -= 1
    return moved


@kernel
def classify(
    jobs: Any, first: Ints, before: Ints, after: Ints, yields: Floats, nodes: int, kind: Ints, moved: Ints
) -> int:
    """What each row needs, into `kind` (R,), and how many of its tasks move, into `moved` (R,); returns the changes.

    Also rearranges `after` by `keep_slots`.
    """
    count = np.zeros(nodes, dtype=np.int64)
    changes = 0
    for r in range(jobs.size):
        begin, end = first[r], first[r + 1]
        kind[r] = KEEP
        moved[r] = 0
        if after[begin] >= 0:
            if jobs[r].state == RUNNING:
                same = True
                for s in range(begin, end):
                    same &= before[s] == after[s]
                if not same:
                    moved[r] = keep_slots(before, after, begin, end, count)
                if moved[r] > 0:
                    kind[r] = MIGRATE
                elif yields[r] != jobs[r].yield_:
                    kind[r] = SHARE
            else:
                moved[r] = end - begin
                kind[r] = RESUME if jobs[r].state == PAUSED else START
        elif jobs[r].state == RUNNING:
            kind[r] = PAUSE
        if kind[r] != KEEP:
            changes += 1
    return changes


@kernel
def _add(jobs: Any, first: Ints, at: Ints, r: int, yield_: Any, sign: float, used: Floats) -> None:
    """Add (or, with sign -1, take away) what row r uses where `at` places it; `used` (N, 2) in place."""
    for s in range(first[r], first[r + 1]):
        used[at[s], 0] += sign * jobs[r].need * yield_
        used[at[s], 1] += sign * jobs[r].memory


@kernel
def _fits(first: Ints, after: Ints, r: int, used: Floats, capacity: Floats, tolerance: float) -> bool:
    """Whether the nodes of row r's target are within capacity."""
    for s in range(first[r], first[r + 1]):
        for d in range(2):
            if used[after[s], d] > capacity[after[s], d] + tolerance:
                return False
    return True


@kernel
def order_moves(
    jobs: Any,
    first: Ints,
    before: Ints,
    after: Ints,
    yields: Floats,
    capacity: Floats,
    tolerance: float,
    kind: Ints,
    order: Ints,
    steps: Ints,
    filled: int,
) -> int:
    """Append the migrations to (`order`, `steps`) so that each finds room when its turn comes; the new length.

    Where jobs wait for each other's nodes in a cycle, one of them is detached first and migrates last.
    """
    rows = jobs.size
    used = np.zeros(capacity.shape)
    waiting = np.empty(rows, dtype=np.int64)
    left = 0
    for r in range(rows):
        if jobs[r].state == RUNNING and kind[r] != PAUSE:
            low = min(yields[r], jobs[r].yield_) if kind[r] == SHARE else jobs[r].yield_
            _add(jobs, first, before, r, low, 1.0, used)
        if kind[r] == MIGRATE:
            waiting[left] = r
            left += 1
    detached = np.empty(left, dtype=np.int64)
    apart = 0
    while left > 0:
        kept = 0
        for k in range(left):
            r = waiting[k]
            _add(jobs, first, before, r, jobs[r].yield_, -1.0, used)
            _add(jobs, first, after, r, yields[r], 1.0, used)
            if _fits(first, after, r, used, capacity, tolerance):
                order[filled] = r
                steps[filled] = MIGRATE
                filled += 1
            else:
                _add(jobs, first, after, r, yields[r], -1.0, used)
                _add(jobs, first, before, r, jobs[r].yield_, 1.0, used)
                waiting[kept] = r
                kept += 1
        if kept == left:
            r = waiting[0]
            _add(jobs, first, before, r, jobs[r].yield_, -1.0, used)
            order[filled] = r
            steps[filled] = DETACH
            filled += 1
            detached[apart] = r
            apart += 1
            for k in range(1, kept):
                waiting[k - 1] = waiting[k]
            kept -= 1
        left = kept
    for k in range(apart):
        order[filled] = detached[k]
        steps[filled] = MIGRATE
        filled += 1
    return filled


@kernel
def plan(
    jobs: Any,
    first: Ints,
    before: Ints,
    after: Ints,
    yields: Floats,
    capacity: Floats,
    tolerance: float,
    kind: Ints,
    order: Ints,
    steps: Ints,
) -> int:
    """The commands in order: (`order`, `steps`) (2R,) name row and action; returns their number.

    Pauses, smaller yields, migrations, starts and resumes, larger yields: whatever was done so far, no node is
    overcommitted. `kind` (R,) comes from `classify`.
    """
    rows = jobs.size
    filled = 0
    migrations = False
    for r in range(rows):
        migrations |= kind[r] == MIGRATE
        if kind[r] == PAUSE:
            order[filled] = r
            steps[filled] = PAUSE
            filled += 1
    for r in range(rows):
        if kind[r] == SHARE and yields[r] < jobs[r].yield_:
            order[filled] = r
            steps[filled] = SHARE
            filled += 1
    if migrations:
        filled = order_moves(jobs, first, before, after, yields, capacity, tolerance, kind, order, steps, filled)
    for r in range(rows):
        if kind[r] == START or kind[r] == RESUME:
            order[filled] = r
            steps[filled] = kind[r]
            filled += 1
    for r in range(rows):
        if kind[r] == SHARE and yields[r] > jobs[r].yield_:
            order[filled] = r
            steps[filled] = SHARE
            filled += 1
    return filled


@kernel
def commit(
    jobs: Any, first: Ints, task_nodes: Ints, after: Ints, yields: Floats, now_s: float, order: Ints, steps: Ints
) -> None:
    """Make the target the present: states, yields and counts of `jobs`, and `task_nodes`; in place."""
    for k in range(order.size):
        r = order[k]
        step = steps[k]
        if step == DETACH:
            continue
        jobs[r].yield_ = yields[r]
        if step == SHARE:
            continue
        for s in range(first[r], first[r + 1]):
            task_nodes[s] = after[s]
        jobs[r].since_s = now_s
        if step == PAUSE:
            jobs[r].state = PAUSED
            jobs[r].pauses += 1
        else:
            jobs[r].state = RUNNING
            jobs[r].ready_s = np.inf
            if step == MIGRATE:
                jobs[r].migrations += 1
            elif step == START:
                jobs[r].start_s = now_s
