"""Free nodes over time, as running jobs are expected to end and reservations are made.

A profile is `times` and, from each of them to the next, `profile`, the free nodes of each kind (see
`dfrs.kernels.whole_nodes`), of which the first `length` entries count. Entry 0 is what is free now, also where jobs
past their estimates make entry 1 begin now. The last entry holds for ever.
"""

import numpy as np

from dfrs.kernels.jit import Floats, Ints, kernel
from dfrs.kernels.whole_nodes import holds


@kernel
def make_profile(
    now_s: float, free_of: Ints, ends: Floats, released: Ints, reservations: int
) -> tuple[Floats, Ints, int]:
    """(times, profile, length) where `released` (M, K) nodes are back at `ends` (M,), in order, and no one waits.

    There is room for as many `reservations` as are to be made, each with a begin and an end of its own.
    """
    most = 1 + len(ends) + 2 * reservations
    times = np.empty(most)
    profile = np.empty((most, len(free_of)), np.int64)
    times[0] = now_s
    profile[0] = free_of
    length = 1
    for m in range(len(ends)):
        if m == 0 or ends[m] > ends[m - 1]:
            times[length] = ends[m]
            profile[length] = profile[length - 1]
            length += 1
        profile[length - 1] += released[m]
    return times, profile, length


@kernel
def refine(times: Floats, profile: Ints, length: int, begins: Floats) -> int:
    """Let entries begin also at `begins`, which are in order and not before entry 0; the new length."""
    added = 0
    m = 0
    for k in range(len(begins)):
        while m < length and times[m] < begins[k]:
            m += 1
        if (m == length or times[m] > begins[k]) and (k == 0 or begins[k] > begins[k - 1]):
            added += 1
    m = length - 1
    k = len(begins) - 1
    at = m + added
    while at > m:
        if begins[k] == times[m] or (k > 0 and begins[k] == begins[k - 1]):
            k -= 1
            continue
        for j in range(profile.shape[1]):
            profile[at, j] = profile[m, j]
        if begins[k] > times[m]:
            times[at] = begins[k]
            k -= 1
        else:
            times[at] = times[m]
            m -= 1
        at -= 1
    return length + added


@kernel
def most_before(profile: Ints, length: int, most: Ints) -> None:
    """Fill `most` with the most nodes that are free in any entry up to each one; for nodes of one kind."""
    largest = profile[0, 0]
    for m in range(length):
        largest = max(largest, profile[m, 0])
        most[m] = largest


@kernel
def earliest(
    tasks: int, estimate_s: float, per: Ints, times: Floats, profile: Ints, least: Ints, begin: int
) -> tuple[int, int]:
    """The first entry from `begin` on from which nodes for `tasks` tasks stay free for `estimate_s`, and the one after.

    A node of kind k holds per[k] tasks. Fills `least` (K,) with how many nodes of each kind are free throughout;
    len(times) twice if there is no such entry.
    """
    length = len(times)
    at = begin
    while at < length:
        least[:] = profile[at]
        m = at
        while m < length and (m == at or times[m] < times[at] + estimate_s):
            for k in range(len(per)):
                least[k] = min(least[k], profile[m, k])
            if holds(least, per) < tasks:
                break
            m += 1
        else:
            return at, m
        # Where entry m alone has too little, no window that reaches over it will do.
        at = m + 1 if holds(profile[m], per) < tasks else at + 1
    return length, length


@kernel
def cut(times: Floats, profile: Ints, length: int, at: int, time_s: float) -> int:
    """Let an entry begin at `time_s`, which is after entry at - 1 and not after entry `at`; the new length."""
    if at < length and times[at] == time_s:
        return length
    for m in range(length, at, -1):
        times[m] = times[m - 1]
        # Element by element: rows are short, and work on whole rows takes several times as long.
        for k in range(profile.shape[1]):
            profile[m, k] = profile[m - 1, k]
    times[at] = time_s
    profile[at] = profile[at - 1]
    return length + 1


@kernel
def reserve(times: Floats, profile: Ints, length: int, at: int, stop: int, estimate_s: float, take: Ints) -> int:
    """Take `take` (K,) nodes from entry `at` for `estimate_s`, which ends before or with entry `stop`; the length."""
    length = cut(times, profile, length, stop, times[at] + estimate_s)
    for m in range(at, stop):
        for k in range(len(take)):
            profile[m, k] -= take[k]
    return length
