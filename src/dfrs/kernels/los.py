"""Batch decisions of [Kumar2011]: LOS, Delayed-LOS and Hybrid-LOS (Algorithms 1 to 3), and EASY beside dedicated jobs.

`jobs` is a record array with the fields of `dfrs.model.decisions.JOB`; row r owns slots first[r] to first[r + 1] of
`task_nodes`. Nodes are of one kind and given out in units of `unit` nodes: a job occupies as many units as its tasks
need, by memory and full need. See `dfrs.kernels.whole_nodes` for expected ends and `dfrs.kernels.profile` for profiles.

`plan` makes one decision. First dedicated jobs have their reservations, then batch jobs start around them, in the order
of the queue or by sets, as `dfrs.kernels.batch_queue` says.
"""

from typing import Any

import numpy as np

from dfrs.kernels.batch_queue import Profile, best_skips, start_batch
from dfrs.kernels.jit import Bools, Floats, Ints, kernel
from dfrs.kernels.profile import cut, earliest, make_profile, reserve
from dfrs.kernels.subset import in_units
from dfrs.kernels.whole_nodes import Cluster, find_busy, find_kinds, fit, front, releases, settle, start

FREED, ON_TIME = 2, 13
LATE_DEDICATED, LATE_EARLIER, LATE_LONGER, LATE_CLOSED, LATE_CHANGED = 14, 15, 16, 17, 20
"""Values of `dfrs.model.decisions.Reason`."""

PROMISED = -1
"""The policy state of a dedicated job that has had a reservation at its requested start; a reason once it is late."""

SAME_S = 1e-6
"""`dfrs.model.tolerances.SAME_S`."""

UNEQUAL = -(2**31)
"""Nodes are of several kinds."""

AUTOMATIC = -2
"""In place of a number of skips: what does best if nobody else comes."""

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
