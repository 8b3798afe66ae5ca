"""Which batch jobs of the queue start: in its order (EASY), or by sets (LOS and Delayed-LOS, [Kumar2011]).

All is in units; see `dfrs.kernels.profile` for profiles and `dfrs.kernels.subset` for the best set.
"""

import numpy as np

from dfrs.kernels.jit import Floats, Ints, kernel
from dfrs.kernels.profile import earliest, reserve
from dfrs.kernels.subset import select

QUEUE_HEAD, BACKFILLED, FILLED = 7, 8, 12
"""Values of `dfrs.model.decisions.Reason`."""

IN_ORDER = -1
"""In place of a number of skips: jobs start in the order of the queue, as EASY has it."""

TRIED = np.array([0, 1, 2, 4, 8, 16])
"""Numbers of skips that `best_skips` chooses from."""

PLAYED = 64
"""It looks at so many waiting jobs."""

Profile = tuple[Floats, Ints]
"""`times` and `profile`; the length is apart, since it changes."""

Queue = tuple[Ints, Floats, Ints]
"""(Q,) units, (Q,) estimates in seconds, (Q,) how often each job was skipped, in the order of the queue."""


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
