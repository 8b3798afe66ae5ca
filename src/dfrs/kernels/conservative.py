"""Conservative backfilling with reservations that last from decision to decision.

`jobs` is a record array with the fields of `dfrs.model.decisions.JOB`; row r owns slots first[r] to first[r + 1] of
`task_nodes`, all -1 unless it is on nodes. `reserved_s` (R,) has when the reservation of each waiting job begins, 0
where it has none. See `dfrs.kernels.whole_nodes` for kinds of nodes and expected ends, `dfrs.kernels.profile` for
profiles.

A decision begins with the nodes that running jobs leave, by their estimates, and then

1. puts the reservations back, in order of their begins: where too few nodes are left at its begin, one goes to the
   earliest place after that. On nodes of one kind, none moves by more than d where running jobs end at most d seconds
   later than estimated;
2. goes through the queue in order of submission: a job without a reservation gets the earliest one that is possible
   beside all others; if reservations may move, each of the others goes to the earliest place beside all others, which
   is never later than where it was;
3. starts the jobs whose reservations begin now, on nodes that are free now.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

import numpy as np

from dfrs.kernels.jit import Bools, Floats, Ints, kernel
from dfrs.kernels.profile import earliest, make_profile, most_before, refine, reserve
from dfrs.kernels.whole_nodes import (
    Jobs,
    count_free,
    find_busy,
    find_kinds,
    fit,
    front,
    releases,
    settle,
    start,
    wanted,
)

RESERVED = 9
"""A value of `dfrs.model.decisions.Reason`."""

Profile = tuple[Floats, Ints]
"""`times` and `profile`; the length is apart, since it changes."""

Queue = tuple[Ints, Floats, Ints, Ints, Ints]
"""Of each row, if it waits: (R,) tasks, (R,) estimates, (R, K) how many tasks a node of each kind holds, (R, K) nodes
of each kind that are reserved, (R,) RESERVED where that is from now on."""


@kernel
def start_reserved(
    jobs: Jobs,
    first: Ints,
    task_nodes: Ints,
    capacity: Floats,
    is_open: Bools,
    tolerance: float,
    now_s: float,
    subject: int,
    moving: bool,
    reserved_s: Floats,
    after: Ints,
    yields: Floats,
    reasons: Ints,
) -> int:
    """Fill `after` (slots), `yields` (R,) and `reasons` (R, zeros on entry), bring `reserved_s` up to now.

    A job just submitted, row `subject`, has no reservation yet, whatever `reserved_s` says; `moving` is whether
    reservations may move to earlier places. How many rows change, or -1 - r where row r has no estimate; unless it is
    above 0, `after`, `yields` and `reasons` are of no consequence; `reserved_s` counts unless it is below 0.
    """
    if subject >= 0:
        if np.isnan(jobs[subject].estimate_s):
            return -1 - subject
        reserved_s[subject] = 0.0
    for r in range(len(jobs)):
        if task_nodes[first[r]] >= 0:
            reserved_s[r] = 0.0
    head, unlike = front(jobs, first, task_nodes)
    after[:] = task_nodes
    started = 0
    if head < len(jobs):
        kind, size = find_kinds(capacity, is_open)
        kinds = len(size)
        ends, released, missing = releases(jobs, first, task_nodes, kind, kinds, now_s)
        if missing >= 0:
            return -1 - missing
        per = np.empty((len(jobs), kinds), np.int64)
        for r in range(head, len(jobs)):
            if task_nodes[first[r]] < 0:
                if np.isnan(jobs[r].estimate_s):
                    return -1 - r
                fit(jobs[r], size, tolerance, per[r])
        busy, _ = find_busy(first, task_nodes, is_open)
        free_of = count_free(kind, busy, kinds)
        # A reservation has a begin and an end, and another end each time that it moves: at most twice.
        plan_s, plan, length = make_profile(now_s, free_of, ends, released, 2 * (len(jobs) - head))
        queue = (jobs.tasks, jobs.estimate_s, per, np.zeros((len(jobs), kinds), np.int64), reasons)
        length = _put_back(queue, now_s, head, (plan_s, plan), length, reserved_s)
        _go_through(queue, first, head, task_nodes, moving, (plan_s, plan), length, reserved_s)
        for r in range(head, len(jobs)):
            if reasons[r] > 0:
                start(first[r], first[r + 1], queue[3][r], per[r], (kind, size, free_of, busy), after)
                reserved_s[r] = 0.0
                started += 1
    if started > 0 or unlike > 0:
        started += settle(jobs, first, capacity, tolerance, unlike, after, yields, reasons)
    return started


@kernel
def _put_back(queue: Queue, now_s: float, head: int, plan: Profile, length: int, reserved_s: Floats) -> int:
    """Put the reservations back, in order of their begins, those of one begin in order of submission; the length."""
    _, estimate_s, _, _, _ = queue
    times, profile = plan
    rows = head + np.flatnonzero(reserved_s[head:] > 0.0)
    rows = rows[np.argsort(reserved_s[rows], kind="mergesort")]
    # Where jobs end as estimated all begin where they did: their entries can be made at once.
    begins_s = np.maximum(reserved_s[rows], now_s)
    length = refine(times, profile, length, begins_s)
    length = refine(times, profile, length, np.sort(begins_s + estimate_s[rows]))
    if not _all_as_they_were(rows, begins_s, queue, plan, length, reserved_s):
        for q in range(len(rows)):
            begin = int(np.searchsorted(times[:length], begins_s[q]))
            length = _place(int(rows[q]), begin, queue, plan, length, reserved_s)
    return length


@kernel
def _all_as_they_were(
    rows: Ints, begins_s: Floats, queue: Queue, plan: Profile, length: int, reserved_s: Floats
) -> bool:
    """Put all reservations back at `begins_s`, where entries begin and end; False if they cannot, and nothing is done.

    On nodes of one kind each of them finds enough nodes in its turn if, and only if, enough are left for all.
    """
    tasks, estimate_s, per, takes, reasons = queue
    times, profile = plan
    if per.shape[1] != 1:
        return False
    taken = np.zeros(length + 1, np.int64)
    begin = 0
    for q in range(len(rows)):
        r = rows[q]
        if per[r, 0] == 0:
            return False
        takes[r, 0] = (tasks[r] + per[r, 0] - 1) // per[r, 0]
        while times[begin] < begins_s[q]:
            begin += 1
        stop = max(begin + 1, int(np.searchsorted(times[:length], begins_s[q] + estimate_s[r])))
        taken[begin] += takes[r, 0]
        taken[stop] -= takes[r, 0]
    taken[:] = np.cumsum(taken)
    for m in range(length):
        if profile[m, 0] < taken[m]:
            return False
    for m in range(length):
        profile[m, 0] -= taken[m]
    for q in range(len(rows)):
        reserved_s[rows[q]] = begins_s[q]
        if begins_s[q] == times[0]:
            reasons[rows[q]] = RESERVED
    return True


@kernel
def _go_through(
    queue: Queue, first: Ints, head: int, task_nodes: Ints, moving: bool, plan: Profile, length: int, reserved_s: Floats
) -> None:
    """Reserve for waiting jobs that have no reservation and, if `moving`, move those of the others."""
    _, estimate_s, per, takes, reasons = queue
    times, profile = plan
    alike = per.shape[1] == 1
    most = np.empty(len(times) if alike else 0, np.int64)
    failed = (np.zeros(len(task_nodes) + 1, np.int64), np.zeros(len(task_nodes) + 1))
    changed = True
    for r in range(head, len(reasons)):
        if task_nodes[first[r]] >= 0 or reasons[r] > 0:
            continue
        begin = 0
        if reserved_s[r] > 0.0:
            if not moving:
                continue
            # Who begins with entry 0 starts: of two entries that begin now, this is the other one's.
            own = max(1, int(np.searchsorted(times[:length], reserved_s[r])))
            # What moves nowhere is found without giving its nodes back, where all nodes are of one kind.
            if alike:
                if changed:
                    most_before(profile, length, most)
                    failed[0][:] = 0
                    changed = False
                if most[own - 1] < takes[r, 0]:
                    continue
                begin = _first_before(r, queue, plan, own, failed)
            if begin == own:
                continue
            m = own
            while m < length and (m == own or times[m] < times[own] + estimate_s[r]):
                profile[m] += takes[r]
                m += 1
        length = _place(r, begin, queue, plan, length, reserved_s)
        changed = True


@kernel
def _first_before(r: int, queue: Queue, plan: Profile, own: int, failed: tuple[Ints, Floats]) -> int:
    """The first entry before `own`, where its reservation begins, from which row r can have one; or `own`.

    On nodes of one kind it can if each entry has enough of them until the reservation ends, or until its own begins.
    `failed` has for each number of nodes an entry, 0 for none, before which nobody can begin who wants so many for that
    long or longer: each such begin meets an entry with too few nodes before that one.
    """
    _, estimate_s, _, takes, _ = queue
    times, profile = plan
    before, long_s = failed
    nodes, at = takes[r, 0], 0
    if before[nodes] > 0 and estimate_s[r] >= long_s[nodes]:
        if before[nodes] < own:
            at = before[nodes]
        elif profile[own - 1, 0] < nodes:
            return own
    for m in range(at, own):
        if profile[m, 0] < nodes:
            at = m + 1
        elif times[m + 1] >= times[at] + estimate_s[r]:
            break
    if at == own and (before[nodes] == 0 or estimate_s[r] <= long_s[nodes]):
        before[nodes], long_s[nodes] = own, estimate_s[r]
    return at


@kernel
def _place(r: int, begin: int, queue: Queue, plan: Profile, length: int, reserved_s: Floats) -> int:
    """Give row r the earliest reservation from entry `begin` on, or none if there is no room ever; the length."""
    tasks, estimate_s, per, takes, reasons = queue
    times, profile = plan
    least = np.empty(per.shape[1], np.int64)
    at, stop = earliest(tasks[r], estimate_s[r], per[r], times[:length], profile, least, begin)
    if at == length:
        reserved_s[r] = 0.0
        return length
    wanted(tasks[r], least, per[r], takes[r])
    length = reserve(times, profile, length, at, stop, estimate_s[r], takes[r])
    reserved_s[r] = times[at]
    if at == 0:
        reasons[r] = RESERVED
    return length
