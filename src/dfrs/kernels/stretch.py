"""Max-stretch feasibility as a flow ([Stillwell2010] 5.1.2, Theorem 1): greedy schedule, augmenting paths, cuts.

Jobs are indexed in order of submission. At stretch S job j may run from `submit[j]` to `submit[j] + S * scale[j]`, at
most at `rate[j]`, and wants some work (its run time times its rate); all together run at most at `capacity`. The scale
is the run time, or for bounded stretches something larger. Releases and deadlines cut time into T intervals; each job's
window is a contiguous range of them. Times are in seconds, rates in reference nodes, work in reference nodes times
seconds.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dfrs.kernels.jit import Floats, Ints, kernel

SNAP = 1e-14
"""An amount this close, relative to the job's work or the interval's capacity, to none or to all is none or all."""

ROOT_WIDTH = 1e-13
"""Relative width at which the search for a cut's stretch stops."""

ROUNDING = 1e-15
"""What adding up one job's part of a cut may lose, relative to the whole; several times a double's precision."""


class Network(NamedTuple):
    """Who may run when. J jobs, T intervals, E = sum of the windows' lengths in intervals."""

    run: Floats
    """(J,)"""
    rate: Floats
    """(J,)"""
    times: Floats
    """(T + 1,) ends of the intervals, increasing."""
    begin: Ints
    """(J,) first interval of the window; not decreasing."""
    end: Ints
    """(J,) one past the last."""
    edge: Ints
    """(J,) where the job's row of E amounts begins, less `begin`: its amount in interval t is at `edge[j] + t`."""
    capacity: float


class Flow(NamedTuple):
    """How far the jobs are served."""

    amount: Floats
    """(E,) work of each job in each interval of its window."""
    spare: Floats
    """(T,) work that each interval has left."""
    missing: Floats
    """(J,) work that each job still lacks."""
    waiting: Ints
    """(T,) jobs that go on after each interval, in the schedule of `serve`."""


class StretchSearch(NamedTuple):
    """Scratch of `augment`; vertices are the J jobs, then the T intervals."""

    first: Ints
    """(T + 1,) where each interval's part of `present` begins."""
    present: NDArray[np.int32]
    """(E,) the jobs whose window has the interval."""
    level: Ints
    """(J + T,) distance from the job to be served; -1 if unseen, -2 if no way leads on."""
    cursor: Ints
    """(J + T,) next neighbour to try."""
    queue: Ints
    """(J + T,) vertices in the order they were reached."""
    path: Ints
    """(J + T,)"""


@kernel
def cut_capacity(
    submit: Floats, scale: Floats, rate: Floats, members: Ints, capacity: float, stretch: float
) -> tuple[float, float]:
    """Work that the jobs `members` (increasing) can get within their windows, and its slope in `stretch`.

    The integral over time of the smaller of `capacity` and the sum of the rates of the members whose window it is.
    """
    count = members.shape[0]
    origin = submit[members[0]]
    deadline = np.empty(count)
    for k in range(count):
        deadline[k] = (submit[members[k]] - origin) + stretch * scale[members[k]]
    work, slope, rates, now = 0.0, 0.0, 0.0, 0.0
    released = 0
    order = np.argsort(deadline)
    for i in range(count):
        k = int(order[i])
        while released < count and submit[members[released]] - origin <= deadline[k]:
            time = float(submit[members[released]] - origin)
            work += min(capacity, rates) * (time - now)
            now = time
            rates += float(rate[members[released]])
            released += 1
        work += min(capacity, rates) * (float(deadline[k]) - now)
        now = float(deadline[k])
        before = min(capacity, rates)
        rates = max(rates - float(rate[members[k]]), 0.0)
        slope += float(scale[members[k]]) * (before - min(capacity, rates))
    return work, slope


@kernel
def least_stretch(
    submit: Floats, scale: Floats, rate: Floats, wanted: Floats, members: Ints, capacity: float, stretch: float
) -> tuple[float, int]:
    """The least stretch from `stretch` on at which `members` can get the work they want, and how many were evaluated.

    What the members can get does not decrease with the stretch and is linear in pieces: Newton steps within a bracket,
    bisection between. The result never passes the root: where rounding could hide that a stretch is too small, the
    lower end of the bracket is returned.
    """
    needed = 0.0
    for j in members:
        needed += wanted[j]
    needed -= ROUNDING * (members.shape[0] + 4) * needed
    low, high, evaluations = stretch, stretch, 1
    work, slope = cut_capacity(submit, scale, rate, members, capacity, low)
    if work >= needed:
        return stretch, evaluations
    while high < 1e300:
        high *= 2.0
        evaluations += 1
        at_high, slope_high = cut_capacity(submit, scale, rate, members, capacity, high)
        if at_high >= needed:
            break
        low, work, slope = high, at_high, slope_high
    turn = 0
    while high - low > ROOT_WIDTH * high and turn < 300:
        turn += 1
        trial = 0.5 * (low + high)
        if turn % 3 != 0 and slope > 0.0:
            step = low + (needed - work) / slope
            if low < step < high * (1.0 - ROOT_WIDTH):
                trial = step
            elif step <= high * (1.0 + ROOT_WIDTH):
                trial = max(trial, high * (1.0 - 0.9 * ROOT_WIDTH))
        evaluations += 1
        at_trial, slope_trial = cut_capacity(submit, scale, rate, members, capacity, trial)
        if at_trial < needed:
            low, work, slope = trial, at_trial, slope_trial
        else:
            high = trial
    return low, evaluations


@kernel
def serve(network: Network, deadline: Floats, flow: Flow, begin: int, end: int, kept: int) -> None:
    """A first schedule, greedy in time: what a job would miss by waiting comes first, then earliest deadlines.

    Of the intervals from `begin`, before which nobody waits, to `end`. Writes spare, missing, which is each job's work
    at first, and waiting, and from interval `kept` on the amounts, which are zero at first.
    """
    _, rate, times, opens, closes, edge, capacity = network
    jobs = rate.shape[0]
    waiting = np.empty(jobs, np.int64)
    urgent = np.empty(jobs)
    count, released = 0, int(np.searchsorted(opens, begin))
    for t in range(begin, end):
        while released < jobs and opens[released] == t:
            if closes[released] > t:
                k = count
                while k > 0 and deadline[waiting[k - 1]] > deadline[released]:
                    waiting[k] = waiting[k - 1]
                    k -= 1
                waiting[k] = released
                count += 1
            released += 1
        length = times[t + 1] - times[t]
        left = capacity * length
        for k in range(count):
            j = waiting[k]
            later = rate[j] * (deadline[j] - times[t + 1])
            urgent[k] = min(max(flow.missing[j] - later, 0.0), left, rate[j] * length)
            left -= urgent[k]
        still = 0
        for k in range(count):
            j = waiting[k]
            amount = min(rate[j] * length, flow.missing[j], urgent[k] + left)
            if amount > 0.0:
                left = max(left - (amount - urgent[k]), 0.0)
                flow.missing[j] -= amount
                if t >= kept:
                    flow.amount[edge[j] + t] = amount
            if flow.missing[j] > 0.0 and closes[j] > t + 1:
                waiting[still] = j
                still += 1
        count = still
        flow.waiting[t] = count
        flow.spare[t] = left if left > SNAP * capacity * length else 0.0


@kernel
def jobs_by_interval(begin: Ints, end: Ints, intervals: int) -> tuple[Ints, NDArray[np.int32]]:
    """The jobs whose window has each interval: where each part begins (T + 1,), and the jobs (E,)."""
    first = np.zeros(intervals + 1, np.int64)
    for j in range(begin.shape[0]):
        for t in range(begin[j], end[j]):
            first[t + 1] += 1
    first = np.cumsum(first)
    cursor = first[:-1].copy()
    present = np.empty(first[-1], np.int32)
    for j in range(begin.shape[0]):
        for t in range(begin[j], end[j]):
            present[cursor[t]] = j
            cursor[t] += 1
    return first, present


@kernel
def augment(network: Network, flow: Flow, search: StretchSearch, job: int, enough: float) -> int:
    """Serve `job` until it lacks at most `enough`, moving others within their windows (Dinic's algorithm).

    Returns 0 if it is served. Otherwise no way is left, and the number of vertices that were reached, at the front of
    `search.queue`: the jobs among them are a cut that is too small for their work, up to rounding.
    """
    jobs = network.rate.shape[0]
    while flow.missing[job] > enough:
        reached, last = _reach(network, flow, search, job)
        if last < 0:
            return reached
        for k in range(reached):
            v = search.queue[k]
            search.cursor[v] = network.begin[v] if v < jobs else search.first[v - jobs]
        _push(network, flow, search, job, enough, last)
    return 0


@kernel
def _reach(network: Network, flow: Flow, search: StretchSearch, job: int) -> tuple[int, int]:
    """Levels by breadth-first search: how many vertices were reached, the level of spare intervals (-1: none)."""
    _, rate, times, begin, end, edge, _ = network
    jobs = rate.shape[0]
    level, queue = search.level, search.queue
    level[:] = -1
    level[job] = 0
    queue[0] = job
    head, tail, last = 0, 1, -1
    while head < tail:
        v = int(queue[head])
        head += 1
        if last >= 0 and level[v] >= last:
            break
        if v < jobs:
            for t in range(begin[v], end[v]):
                if level[jobs + t] == -1 and flow.amount[edge[v] + t] < rate[v] * (times[t + 1] - times[t]):
                    level[jobs + t] = level[v] + 1
                    queue[tail] = jobs + t
                    tail += 1
                    if flow.spare[t] > 0.0:
                        last = int(level[v]) + 1
        else:
            t = v - jobs
            for k in range(search.first[t], search.first[t + 1]):
                j = search.present[k]
                if level[j] == -1 and flow.amount[edge[j] + t] > 0.0:
                    level[j] = level[v] + 1
                    queue[tail] = j
                    tail += 1
    return tail, last


@kernel
def _push(network: Network, flow: Flow, search: StretchSearch, job: int, enough: float, last: int) -> None:
    """A blocking flow along the levels, by depth-first search."""
    jobs = network.rate.shape[0]
    level, path = search.level, search.path
    depth = 0
    path[0] = job
    while True:
        v = path[depth]
        if v >= jobs and flow.spare[v - jobs] > 0.0:
            depth = _move(network, flow, path, depth)
            if flow.missing[job] <= enough:
                return
            continue
        following = _next(network, flow, search, v) if level[v] < last else -1
        if following >= 0:
            depth += 1
            path[depth] = following
        elif depth == 0:
            return
        else:
            level[v] = -2
            depth -= 1


@kernel
def _next(network: Network, flow: Flow, search: StretchSearch, v: int) -> int:
    """A vertex one level further that `v` has a way to, or -1; `search.cursor` goes to it."""
    _, rate, times, _, end, edge, _ = network
    jobs = rate.shape[0]
    level, cursor = search.level, search.cursor
    if v < jobs:
        while cursor[v] < end[v]:
            t = cursor[v]
            room = rate[v] * (times[t + 1] - times[t])
            if level[jobs + t] == level[v] + 1 and flow.amount[edge[v] + t] < room:
                return jobs + t
            cursor[v] += 1
        return -1
    t = v - jobs
    while cursor[v] < search.first[t + 1]:
        j = int(search.present[cursor[v]])
        if level[j] == level[v] + 1 and flow.amount[edge[j] + t] > 0.0:
            return j
        cursor[v] += 1
    return -1


@kernel
def _move(network: Network, flow: Flow, path: Ints, depth: int) -> int:
    """Push what the path job, interval, job, ..., interval (`depth`) carries; the depth of its first full vertex."""
    run, rate, times, _, _, edge, capacity = network
    jobs = rate.shape[0]
    job, target = path[0], path[depth] - jobs
    least = min(flow.spare[target], flow.missing[job])
    for k in range(0, depth, 2):
        j, t = path[k], path[k + 1] - jobs
        least = min(least, rate[j] * (times[t + 1] - times[t]) - flow.amount[edge[j] + t])
        if k > 0:
            least = min(least, flow.amount[edge[j] + path[k - 1] - jobs])
    flow.missing[job] -= least
    flow.spare[target] -= least
    full = depth
    if flow.spare[target] <= SNAP * capacity * (times[target + 1] - times[target]):
        flow.spare[target] = 0.0
        full = depth - 1
    for k in range(depth - 1, -1, -2):
        j, t = path[k], path[k + 1] - jobs
        room = rate[j] * (times[t + 1] - times[t])
        tiny = SNAP * rate[j] * run[j]
        gaining = edge[j] + t
        flow.amount[gaining] += least
        if room - flow.amount[gaining] <= tiny:
            flow.amount[gaining] = room
            full = k
        if k > 0:
            losing = edge[j] + path[k - 1] - jobs
            flow.amount[losing] -= least
            if flow.amount[losing] <= tiny:
                flow.amount[losing] = 0.0
                full = k - 1
    return full
