"""Which waiting jobs fill the free processors best: Basic_DP and Reservation_DP of [Kumar2011] section III, and beyond.

Jobs stand in the order of the queue; job j takes `size[j]` >= 1 of `room[0]` free processors, all at once. A set is
chosen whose total size is as large as possible; of several such sets the one that comes first in the order of the
queue: it has the first job if any of them has it, then the second, and so on.

Reservations limit what may run on: `room[g]`, g >= 1, is what is free at the g-th time at which less is free than ever
before, and `crossing[j]` is at how many of these times job j would still run: at the first crossing[j] of them, since
a job that runs at the later runs at the earlier. `room` decreases strictly (what does not limit is left out):

- one entry is Basic_DP: only the processors free now count;
- two are Reservation_DP: jobs that run beyond the freeze end time must fit the freeze end capacity;
- more are for several reservations at different times, which the document leaves open.

With n jobs and m = room[0] after division by the greatest common divisor of the sizes, the first two take time and
space O(n m); the dynamic program as published has one more dimension, the freeze end capacity. More entries take time
O(n^2 m): of sets with the same total, the one that uses least of the second room need not use least of the third.
However long the queue, of each size s and crossing at most m / s jobs count for n.
"""

import numpy as np

from dfrs.kernels.jit import Bools, Ints, kernel

_NEVER = np.int64(2**62)


@kernel
def in_units(processors: int, unit: int) -> int:
    """How many allocation units of `unit` processors hold so many."""
    return (processors + unit - 1) // unit


@kernel
def select(size: Ints, crossing: Ints, room: Ints, chosen: Bools) -> int:
    """Fill `chosen` (n,) with the set; its total size."""
    chosen[:] = False
    divisor = 0
    for j in range(len(size)):
        divisor = np.gcd(divisor, size[j])
    if divisor == 0 or room[0] < divisor:
        return 0
    size = size // divisor
    room = room // divisor
    some = _candidates(size, crossing, room)
    taken = np.zeros(len(some), np.bool_)
    if len(room) > 2:
        total = _chain(size[some], crossing[some], room, taken)
    else:
        spare = room[1] if len(room) == 2 else room[0]
        total = _one_reservation(size[some], crossing[some], room[0], spare, taken)
    chosen[some] = taken
    return divisor * total


@kernel
def _candidates(size: Ints, crossing: Ints, room: Ints) -> Ints:
    """The jobs that can be in the set at all.

    Of jobs alike in size and crossing the set has the first ones, and no more of them than there is room for.
    """
    left = np.empty((room[0] + 1, len(room)), np.int64)
    for s in range(1, room[0] + 1):
        for g in range(len(room)):
            left[s, g] = room[g] // s
    some = np.empty(len(size), np.int64)
    count = 0
    for j in range(len(size)):
        if size[j] <= room[0] and left[size[j], crossing[j]] > 0:
            left[size[j], crossing[j]] -= 1
            some[count] = j
            count += 1
    return some[:count]


@kernel
def _one_reservation(size: Ints, crossing: Ints, free: int, spare: int, chosen: Bools) -> int:
    """Basic_DP where no job crosses, else Reservation_DP.

    least[j, a] is the least of `spare` that jobs j, j + 1, … can use with a total of exactly a; so one number stands
    for all capacities at the freeze end.
    """
    jobs = len(size)
    least = np.empty((jobs + 1, free + 1), np.int64)
    least[jobs, :] = _NEVER
    least[jobs, 0] = 0
    for j in range(jobs - 1, -1, -1):
        after = least[j + 1]
        here = least[j]
        s = min(size[j], free + 1)
        frozen = size[j] if crossing[j] > 0 else 0
        here[:s] = after[:s]
        for a in range(s, free + 1):
            here[a] = min(after[a], after[a - s] + frozen)
    total = free
    while least[0, total] > spare:
        total -= 1
    left = total
    for j in range(jobs):
        frozen = size[j] if crossing[j] > 0 else 0
        if size[j] <= left and least[j + 1, left - size[j]] + frozen <= spare:
            chosen[j] = True
            left -= size[j]
            spare -= frozen
    return total


@kernel
def _chain(size: Ints, crossing: Ints, room: Ints, chosen: Bools) -> int:
    """Any number of rooms: each job in turn is taken if the best total can still be had with it."""
    longest_first = np.argsort(-crossing, kind="mergesort")
    total = _most(size, crossing, room, longest_first, chosen)
    taken = 0
    for j in range(len(size)):
        if taken == total:
            break
        chosen[j] = True
        if _most(size, crossing, room, longest_first, chosen) < total:
            chosen[j] = False
        else:
            taken += size[j]
    return total


@kernel
def _most(size: Ints, crossing: Ints, room: Ints, longest_first: Ints, taken: Bools) -> int:
    """The largest total of all `taken` jobs and any others; -1 if the taken do not fit.

    Jobs are added from those that run longest to those that run shortest: all that cross a time come before all that do
    not, so a total is within that time's room if it is when the last of them has been added.
    """
    reached = np.zeros(room[0] + 1, np.bool_)
    reached[0] = True
    k = 0
    for g in range(len(room) - 1, -1, -1):
        while k < len(size) and crossing[longest_first[k]] == g:
            j = longest_first[k]
            for a in range(room[0], -1, -1):
                with_it = a >= size[j] and reached[a - size[j]]
                reached[a] = with_it or (reached[a] and not taken[j])
            k += 1
        reached[room[g] + 1 :] = False
    for a in range(room[0], -1, -1):
        if reached[a]:
            return a
    return -1
