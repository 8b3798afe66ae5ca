"""Batch decisions of [Kumar2011]: LOS, Delayed-LOS and Hybrid-LOS (Algorithms 1 to 3), and EASY beside dedicated jobs.

`jobs` is a record array with the fields of `dfrs.model.decisions.JOB`; row r owns slots first[r] to first[r + 1] of
`task_nodes`. Nodes are of one kind and given out in units of `unit` nodes: a job occupies as many units as its tasks
need, by memory and full need. See `dfrs.kernels.whole_nodes` for expected ends and `dfrs.kernels.profile` for profiles.

`plan` makes one decision. First dedicated jobs have their reservations, then batch jobs start around them, in the order
of the queue (EASY) or by the sets of `dfrs.kernels.subset`.
"""

from typing import Any

import numpy as np

from dfrs.kernels.jit import Bools, Floats, Ints, kernel
from dfrs.kernels.profile import cut, earliest, make_profile, reserve
from dfrs.kernels.subset import in_units, select
from dfrs.kernels.whole_nodes import Cluster, find_busy, find_kinds, fit, front, releases, settle, start

FREED, QUEUE_HEAD, BACKFILLED, FILLED, ON_TIME = 2, 7, 8, 12, 13
LATE_DEDICATED, LATE_EARLIER, LATE_LONGER, LATE_CLOSED, LATE_CHANGED = 14, 15, 16, 17, 20
"""Values of `dfrs.model.decisions.Reason`."""

PROMISED = -1
"""The policy state of a dedicated job that has had a reservation at its requested start; a reason once it is late."""

SAME_S = 1e-6
"""`dfrs.model.tolerances.SAME_S`."""

UNEQUAL = -(2**31)
"""Nodes are of several kinds."""

IN_ORDER = -1
"""In place of a number of skips: jobs start in the order of the queue, as EASY has it."""

AUTOMATIC = -2
"""In place of a number of skips: what does best if nobody else comes."""

TRIED = np.array([0, 1, 2, 4, 8, 16])
"""Numbers of skips that AUTOMATIC chooses from."""

PLAYED = 64
"""It looks at so many waiting jobs."""

Profile = tuple[Floats, Ints]
"""`times` and `profile`; the length is apart, since it changes."""

Queue = tuple[Ints, Floats, Ints]
"""(Q,) units, (Q,) estimates in seconds, (Q,) how often each job was skipped, in the order of the queue."""

Waiting = tuple[Ints, Ints, Ints, Ints]
"""(B,) rows of waiting batch jobs, (D,) of dedicated ones, in order of submission; (R,) units and (R,) tasks a node."""


@kernel
def plan(
    skips: int,
    lookahead: int,
    unit: int,
    with_dedicated: bool,
    jobs: Any,
    first: Ints,
    task_nodes: Ints,
    capacity: Floats,
    is_open: Bools,
    tolerance: float,
    now_s: float,
    after: Ints,
    yields: Floats,
    reasons: Ints,
    policy_state: Ints,
) -> int:
    """Fill `after` (slots), `yields` (R,), `reasons` (R, zeros on entry) and `policy_state` (R,); how many rows change.

    `skips` is C_s, IN_ORDER or AUTOMATIC; only the first `lookahead` waiting jobs are looked at for a set. Without
    `with_dedicated` all jobs are batch jobs. -1 - r where row r has no estimate, UNEQUAL where nodes are not alike;
    unless the result is above 0, `after`, `yields` and `reasons` are of no consequence; `policy_state` always counts.
    """
    for r in range(len(jobs)):
        policy_state[r] = jobs[r].policy_state
        reasons[r] = 0
    head, unlike = front(jobs, first, task_nodes)
    busy, free_nodes = find_busy(first, task_nodes, is_open)
    kind, size = find_kinds(capacity, is_open)
    after[:] = task_nodes
    if len(size) > 1:
        return UNEQUAL
    started = 0
    if head < len(jobs) and len(size) == 1:
        cluster = (kind, size, np.array([free_nodes]), busy)
        started = _start_waiting(
            skips, lookahead, unit, with_dedicated, jobs, first, cluster, tolerance, now_s, after, reasons, policy_state
        )
    if started > 0 or (started == 0 and unlike > 0):
        started += settle(jobs, first, capacity, tolerance, unlike, after, yields, reasons)
    return started


@kernel
def next_start(jobs: Any, first: Ints, task_nodes: Ints, now_s: float) -> float:
    """The earliest requested start to come of a waiting job; infinite if there is none."""
    soonest = np.inf
    for r in range(len(jobs)):
        if task_nodes[first[r]] < 0 and jobs[r].requested_start_s > now_s:
            soonest = min(soonest, jobs[r].requested_start_s)
    return soonest


@kernel
def _start_waiting(
    skips: int,
    lookahead: int,
    unit: int,
    with_dedicated: bool,
    jobs: Any,
    first: Ints,
    cluster: Cluster,
    tolerance: float,
    now_s: float,
    after: Ints,
    reasons: Ints,
    policy_state: Ints,
) -> int:
    """How many jobs start, or -1 - r where row r has no estimate."""
    kind = cluster[0]
    ends, released, missing = releases(jobs, first, after, kind, 1, now_s)
    if missing >= 0:
        return -1 - missing
    total = max((kind >= 0).sum() // unit, 1)
    free = _in_free_units(released, unit, total)
    waiting = _waiting(jobs, first, cluster, tolerance, unit, total, with_dedicated, after)
    batch, dedicated, units, per = waiting
    for r in np.concatenate((batch, dedicated)):
        if np.isnan(jobs[r].estimate_s):
            return -1 - r
    times, profile, length = make_profile(now_s, np.array([free]), ends, released, len(batch) + 3 * len(dedicated))
    if len(dedicated) > 0:
        length = _reserve_dedicated(jobs, dedicated, units, (times, profile), length, now_s, reasons, policy_state)
        closed = len(kind) // unit - total
        _note_late(jobs, first, dedicated, units, (total, free, closed), now_s, after, reasons, policy_state)
    begun = np.zeros(len(batch), np.int64)
    if profile[0, 0] > 0:
        queue = (units[batch], jobs.estimate_s[batch], policy_state[batch])
        if skips == AUTOMATIC:
            skips = best_skips(queue, lookahead, (times[:length], profile[:length]), now_s)
        start_batch(skips, lookahead, queue, (times, profile), length, now_s, begun)
        policy_state[batch] = queue[2]
    reasons[batch] = begun
    started = 0
    for r in range(len(jobs)):
        if reasons[r] > 0:
            take = np.array([(jobs[r].tasks + per[r] - 1) // per[r]])
            start(first[r], first[r + 1], take, per[r : r + 1], cluster, after)
            started += 1
    return started


@kernel
def _in_free_units(released: Ints, unit: int, total: int) -> int:
    """How many units are free now; `released` (M, 1), nodes before, has how many come back each time.

    Jobs that other policies left may be on nodes of more units than there are: then none is free for a while.
    """
    left = total
    for m in range(len(released)):
        released[m, 0] = min(in_units(released[m, 0], unit), total)
        left -= released[m, 0]
    free = max(0, left)
    for m in range(len(released)):
        before = max(0, left)
        left += released[m, 0]
        released[m, 0] = max(0, left) - before
    return free


@kernel
def _waiting(
    jobs: Any, first: Ints, cluster: Cluster, tolerance: float, unit: int, total: int, with_dedicated: bool, after: Ints
) -> Waiting:
    """Who waits, and what each row takes; a job for which there are too few open nodes takes more than `total`."""
    kind, size, _, _ = cluster
    nodes = (kind >= 0).sum()
    batch = np.empty(len(jobs), np.int64)
    dedicated = np.empty(len(jobs), np.int64)
    units = np.empty(len(jobs), np.int64)
    per = np.empty(len(jobs), np.int64)
    batches = 0
    others = 0
    for r in range(len(jobs)):
        fit(jobs[r], size, tolerance, per[r : r + 1])
        own = (jobs[r].tasks + per[r] - 1) // per[r] if per[r] > 0 else nodes + 1
        units[r] = min(in_units(own, unit), total) if own <= nodes else total + 1
        if after[first[r]] >= 0:
            continue
        if with_dedicated and not np.isnan(jobs[r].requested_start_s):
            dedicated[others] = r
            others += 1
        else:
            batch[batches] = r
            batches += 1
    return batch[:batches], dedicated[:others], units, per


@kernel
def _reserve_dedicated(
    jobs: Any,
    dedicated: Ints,
    units: Ints,
    profile: Profile,
    length: int,
    now_s: float,
    reasons: Ints,
    policy_state: Ints,
) -> int:
    """Reservations for dedicated jobs; those that begin now start. The profile's new length.

    First those that can begin at their requested start, each time in order of submission: those that could before and
    were not extended, others that could before, the rest. Then all others, each as early as is possible beside those.
    So nobody who comes later, is late anyhow or wants more than before takes away a start that was on time.
    """
    times, free = profile
    one = np.ones(1, np.int64)
    least = np.empty(1, np.int64)
    served = np.zeros(len(dedicated), np.bool_)
    for stage in range(4):
        for d in range(len(dedicated)):
            r = int(dedicated[d])
            wanted_s = max(jobs[r].requested_start_s, jobs[r].submit_s)
            own_stage = 2 if policy_state[r] != PROMISED else (0 if jobs[r].extensions == 0 else 1)
            on_time = stage < 3
            if served[d] or (on_time and (own_stage != stage or wanted_s < now_s - SAME_S)):
                continue
            begin = np.searchsorted(times[:length], max(wanted_s, now_s))
            length = cut(times, free, length, begin, max(wanted_s, now_s))
            at, stop = earliest(units[r], jobs[r].estimate_s, one, times[:length], free, least, begin)
            if at == length or (on_time and times[at] > max(wanted_s, now_s) + SAME_S):
                continue
            length = reserve(times, free, length, at, stop, jobs[r].estimate_s, units[r : r + 1])
            served[d] = True
            if on_time and policy_state[r] == 0:
                policy_state[r] = PROMISED
            if at == 0:
                late = now_s > wanted_s + SAME_S
                reasons[r] = (
                    FREED
                    if not np.isnan(jobs[r].start_s)
                    else (policy_state[r] if late and policy_state[r] > 0 else ON_TIME)
                )
    return length


@kernel
def _note_late(
    jobs: Any,
    first: Ints,
    dedicated: Ints,
    units: Ints,
    cluster: tuple[int, int, int],
    now_s: float,
    after: Ints,
    reasons: Ints,
    policy_state: Ints,
) -> None:
    """Note why dedicated jobs whose requested start has come do not start, once for each, in `policy_state`.

    `cluster` is the open, the free and the closed units, before this decision.
    """
    total, free, closed = cluster
    for r in dedicated:
        if reasons[r] > 0 or policy_state[r] > 0 or jobs[r].requested_start_s > now_s:
            continue
        earlier = 0
        longer = 0
        others = 0
        bookings = 0
        for q in range(len(jobs)):
            booked = not np.isnan(jobs[q].requested_start_s)
            if after[first[q]] < 0:
                bookings += booked and q != r
            elif jobs[q].extensions > 0 or jobs[q].virtual_s >= jobs[q].estimate_s - SAME_S:
                longer += units[q]
            elif booked:
                bookings += 1
            elif jobs[q].start_s <= jobs[r].submit_s:
                earlier += units[q]
            else:
                others += units[q]
        if units[r] > total:
            policy_state[r] = LATE_CLOSED
        elif free < units[r] <= free + longer:
            policy_state[r] = LATE_LONGER
        elif earlier > 0 and free < units[r] <= free + longer + others + earlier:
            policy_state[r] = LATE_EARLIER
        elif bookings > 0:
            policy_state[r] = LATE_DEDICATED
        elif closed > 0:
            policy_state[r] = LATE_CLOSED
        else:
            policy_state[r] = LATE_CHANGED if jobs[r].changes > 0 else LATE_LONGER


@kernel
def start_batch(
    skips: int, lookahead: int, queue: Queue, profile: Profile, length: int, now_s: float, begun: Ints
) -> None:
    """Start batch jobs: `begun` (Q,), zeros on entry, has the reason of each that starts. Counts skips in `queue`."""
    if skips == IN_ORDER:
        _start_in_order(queue, profile, length, now_s, begun)
    else:
        _start_sets(skips, lookahead, queue, profile, length, now_s, begun)


@kernel
def _stop_if_now(units: int, estimate_s: float, profile: Profile, length: int, now_s: float) -> int:
    """The entry with or after which a job that starts now ends, or -1 if it would not have its units all the time."""
    times, free = profile
    m = 0
    while m < length and (m == 0 or times[m] < now_s + estimate_s):
        if free[m, 0] < units:
            return -1
        m += 1
    return m


@kernel
def _begin(q: int, reason: int, queue: Queue, profile: Profile, length: int, stop: int, begun: Ints) -> int:
    """Let job q of the queue have its units from now to before entry `stop`; the profile's new length."""
    units, estimate_s, _ = queue
    begun[q] = reason
    return reserve(profile[0], profile[1], length, 0, stop, estimate_s[q], units[q : q + 1])


@kernel
def _reserve_head(q: int, queue: Queue, profile: Profile, length: int) -> int:
    """Reserve for job q as early as possible, if it ever is; the profile's new length."""
    units, estimate_s, _ = queue
    times, free = profile
    one = np.ones(1, np.int64)
    at, stop = earliest(units[q], estimate_s[q], one, times[:length], free, np.empty(1, np.int64), 0)
    if at == length:
        return length
    return reserve(times, free, length, at, stop, estimate_s[q], units[q : q + 1])


@kernel
def _start_in_order(queue: Queue, profile: Profile, length: int, now_s: float, begun: Ints) -> int:
    """EASY: in order while they can start, then a reservation, then whoever does not delay it; the new length."""
    units, estimate_s, _ = queue
    reason = QUEUE_HEAD
    for q in range(len(units)):
        if profile[1][0, 0] == 0:
            break
        stop = _stop_if_now(units[q], estimate_s[q], profile, length, now_s)
        if stop >= 0:
            length = _begin(q, reason, queue, profile, length, stop, begun)
        elif reason == QUEUE_HEAD:
            length = _reserve_head(q, queue, profile, length)
            reason = BACKFILLED
    return length


@kernel
def _start_sets(
    skips: int, lookahead: int, queue: Queue, profile: Profile, length: int, now_s: float, begun: Ints
) -> int:
    """LOS (no skips) and Delayed-LOS: sets that fill what is free; the profile's new length.

    While the head could start and may still be skipped, the set is one of all jobs. If it may not, it starts. If it
    cannot start, it has a reservation, and the set is one of the others around that.
    """
    units, estimate_s, skipped = queue
    head = 0
    while profile[1][0, 0] > 0:
        while head < len(units) and begun[head] > 0:
            head += 1
        if head == len(units):
            break
        stop = _stop_if_now(units[head], estimate_s[head], profile, length, now_s)
        if stop >= 0 and skipped[head] >= skips:
            length = _begin(head, QUEUE_HEAD, queue, profile, length, stop, begun)
            continue
        if stop < 0:
            length = _reserve_head(head, queue, profile, length)
        length = _start_set(head, lookahead, queue, profile, length, now_s, begun)
        if stop < 0:
            break
        if begun[head] == 0:
            skipped[head] += 1
    return length


@kernel
def _start_set(
    head: int, lookahead: int, queue: Queue, profile: Profile, length: int, now_s: float, begun: Ints
) -> int:
    """Start the best set of the first `lookahead` waiting jobs from `head` on; the profile's new length.

    A head that has a reservation is in no such set: if it could start beside that, it could have started without.
    """
    units, estimate_s, _ = queue
    times, free = profile
    room = np.empty(length, np.int64)
    at = np.empty(length)
    rooms = 0
    for m in range(length):
        if m == 0 or free[m, 0] < room[rooms - 1]:
            room[rooms] = free[m, 0]
            at[rooms] = times[m]
            rooms += 1
    candidates = np.empty(len(units) - head, np.int64)
    crossing = np.empty(len(units) - head, np.int64)
    count = 0
    seen = 0
    for q in range(head, len(units)):
        if begun[q] > 0:
            continue
        seen += 1
        if seen > lookahead:
            break
        if units[q] <= room[0]:
            candidates[count] = q
            crossing[count] = 0
            while crossing[count] < rooms - 1 and at[crossing[count] + 1] < now_s + estimate_s[q]:
                crossing[count] += 1
            count += 1
    chosen = np.empty(count, np.bool_)
    select(units[candidates[:count]], crossing[:count], room[:rooms], chosen)
    for c in range(count):
        if chosen[c]:
            q = int(candidates[c])
            stop = _stop_if_now(0, estimate_s[q], profile, length, now_s)
            length = _begin(q, QUEUE_HEAD if q == head else FILLED, queue, profile, length, stop, begun)
    return length


@kernel
def best_skips(queue: Queue, lookahead: int, profile: Profile, now_s: float) -> int:
    """The number of skips, of TRIED, with the least total wait if nobody else comes; ties to the fewest.

    Plays the first PLAYED jobs of the queue to the end with each, as if estimates were right; `profile`, without room
    to spare, is not modified.
    """
    best = 0
    least_s = np.inf
    for skips in TRIED:
        wait_s = _total_wait(skips, lookahead, queue, profile, now_s)
        if wait_s < least_s:
            least_s = wait_s
            best = skips
    return best


@kernel
def _total_wait(skips: int, lookahead: int, queue: Queue, profile: Profile, now_s: float) -> float:
    """Seconds that the jobs wait from now on, together; those that can never start do not count."""
    units, estimate_s, skipped = queue[0][:PLAYED], queue[1][:PLAYED], queue[2][:PLAYED].copy()
    known = len(profile[0])
    times = np.empty(known + len(units))
    free = np.empty((known + len(units), 1), np.int64)
    times[:known] = profile[0]
    free[:known] = profile[1]
    length = known
    wait_s = 0.0
    at = 0
    while len(units) > 0 and at < length:
        time_s = times[at]
        # A reservation of the head holds for this decision only: it is made on a copy.
        room = length - at + len(units) + 1
        later, left = np.empty(room), np.empty((room, 1), np.int64)
        later[: length - at] = times[at:length]
        left[: length - at] = free[at:length]
        begun = np.zeros(len(units), np.int64)
        _start_sets(skips, lookahead, (units, estimate_s, skipped), (later, left), length - at, time_s, begun)
        for q in np.flatnonzero(begun):
            stop = at + 1
            while stop < length and times[stop] < time_s + estimate_s[q]:
                stop += 1
            length = reserve(times, free, length, at, stop, estimate_s[q], units[q : q + 1])
            wait_s += time_s - now_s
        waits = begun == 0
        units, estimate_s, skipped = units[waits], estimate_s[waits], skipped[waits]
        at += 1
    return wait_s
