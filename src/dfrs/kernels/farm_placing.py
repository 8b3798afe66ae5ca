"""A job comes onto a farm between two packings, without or at the expense of others ([Stillwell2010] 5.2.1, 5.2.3).

As `dfrs.kernels.admission`, but a job is in one sub-cluster ([Atif2011] section 4), and that is chosen where the least
effective yield of those who share its nodes, its own among them, is largest. Layout as in `dfrs.kernels.farm_speeds`.
The *pressure* on a node is the sum of its tasks' needs over their relative speeds, relative to its CPU: what its tasks
share is an effective yield of 1 / pressure each.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

from typing import Any

import numpy as np

from dfrs.kernels.farm_speeds import Site, speed_at
from dfrs.kernels.jit import Bools, Floats, Ints, kernel
from dfrs.kernels.reconcile import keep_slots

ROOM, FREED, GAVE_WAY, MOVED_FOR = 1, 2, 3, 4
_ALIKE = 1e-9


@kernel
def add_row(
    r: int, sign: float, need: float, memory: float, first: Ints, slots: Ints, speed: Floats, site: Site, used: Floats
) -> None:
    """Add `sign` times what placed row `r` is to its nodes, (need / speed, memory), to `used` (N, 2)."""
    weight = need / speed_at(speed, r, slots, first[r], first[r + 1], site)
    for s in range(first[r], first[r + 1]):
        used[slots[s], 0] += sign * weight
        used[slots[s], 1] += sign * memory


@kernel
def add_all(jobs: Any, first: Ints, slots: Ints, speed: Floats, memory: Floats, site: Site, used: Floats) -> None:
    """The same for all rows on nodes, anew."""
    used[:] = 0.0
    for r in range(jobs.size):
        if slots[first[r]] >= 0:
            add_row(r, 1.0, jobs[r].need, memory[r], first, slots, speed, site, used)


@kernel
def _spread(
    begin: int,
    end: int,
    weight: float,
    memory: float,
    c: int,
    m: int,
    site: Site,
    used: Floats,
    tolerance: float,
    slots: Ints,
) -> bool:
    """Tasks on open nodes of sub-cluster `c` (of machine `m` if it is not -1) with the least pressure; success."""
    cluster, machine, capacity, open_nodes = site
    count = np.zeros(cluster.size, dtype=np.int64)
    for s in range(begin, end):
        chosen = -1
        least = np.inf
        for n in range(cluster.size):
            if cluster[n] != c or not open_nodes[n] or (m >= 0 and machine[n] != m) or capacity[n, 0] <= 0.0:
                continue
            if used[n, 1] + memory * (count[n] + 1) > capacity[n, 1] + tolerance:
                continue
            value = (used[n, 0] + weight * (count[n] + 1)) / capacity[n, 0]
            if value < least:
                least = value
                chosen = n
        if chosen < 0:
            return False
        count[chosen] += 1
        slots[s] = chosen
    return True


@kernel
def _least_there(
    begin: int, end: int, r: int, need: float, speed: Floats, site: Site, used: Floats, slots: Ints
) -> tuple[float, float]:
    """(least effective yield on the nodes slots[begin:end] with row `r` there, its relative speed)."""
    capacity = site[2]
    rate = speed_at(speed, r, slots, begin, end, site)
    level = rate
    for s in range(begin, end):
        n = slots[s]
        count = 0
        for t in range(begin, end):
            count += 1 if slots[t] == n else 0
        pressure = (used[n, 0] + need / rate * count) / capacity[n, 0]
        if pressure * level > 1.0:
            level = 1.0 / pressure
    return level, rate


@kernel
def place_best(
    r: int,
    need: float,
    memory: float,
    only: int,
    speed: Floats,
    site: Site,
    first: Ints,
    used: Floats,
    tolerance: float,
    slots: Ints,
) -> bool:
    """Place row `r`, in sub-cluster `only` if that is not -1, and add it to `used`; whether there is room.

    Of each sub-cluster, and of each of its machines alone, the nodes with the least pressure are looked at. Best is
    the largest least effective yield there; then the largest relative speed; then the first that was looked at.
    """
    cluster, machine, _, _ = site
    begin, end = first[r], first[r + 1]
    trial = slots[begin:end].copy()
    chosen = np.empty_like(trial)
    top_level, top_rate = -1.0, -1.0
    for c in range(speed.shape[1]):
        if only >= 0 and c != only:
            continue
        for m in range(-1, machine.max() + 1):
            here = m < 0
            for n in range(cluster.size):
                here |= machine[n] == m and cluster[n] == c
            if not here or (m >= 0 and speed[r, c, 1] <= speed[r, c, 0]):
                continue
            weight = need / speed[r, c, 0 if m < 0 else 1]
            if not _spread(0, end - begin, weight, memory, c, m, site, used, tolerance, trial):
                continue
            level, rate = _least_there(0, end - begin, r, need, speed, site, used, trial)
            if level > top_level + _ALIKE or (level > top_level - _ALIKE and rate > top_rate + _ALIKE):
                top_level, top_rate = level, rate
                chosen[:] = trial
    if top_level < 0.0:
        return False
    slots[begin:end] = chosen
    add_row(r, 1.0, need, memory, first, slots, speed, site, used)
    return True


@kernel
def _room(memory: float, most: int, c: int, site: Site, taken: Floats, tolerance: float) -> int:
    """Tasks of `memory` for which sub-cluster `c` has room beside what is `taken` (N,), at most `most` a node."""
    cluster, _, capacity, open_nodes = site
    total = 0
    for n in range(cluster.size):
        free = capacity[n, 1] + tolerance - taken[n]
        if cluster[n] == c and open_nodes[n] and capacity[n, 0] > 0.0 and free >= memory:
            total += most if free >= memory * most else int(free / memory)
    return total


@kernel
def _choose_in(
    jobs: Any,
    first: Ints,
    slots: Ints,
    subject: int,
    c: int,
    order: Ints,
    memory: Floats,
    site: Site,
    used: Floats,
    tolerance: float,
    marked: Bools,
) -> int:
    """Which rows must give way to `subject` in sub-cluster `c`, into `marked` (R,).

    By increasing priority until there is room; then, by decreasing priority, those without which there still is are
    unmarked. Returns the place in `order` (by decreasing priority) of the first of them, -1 if it is in vain.
    """
    marked[:] = False
    taken = used[:, 1].copy()
    tasks = jobs[subject].tasks
    room = _room(memory[subject], tasks, c, site, taken, tolerance)
    for k in range(order.size - 1, -1, -1):
        r = order[k]
        if room >= tasks:
            break
        if r == subject or slots[first[r]] < 0:
            continue
        for s in range(first[r], first[r + 1]):
            if site[0][slots[s]] == c:
                marked[r] = True
            taken[slots[s]] -= memory[r]
        if not marked[r]:
            for s in range(first[r], first[r + 1]):
                taken[slots[s]] += memory[r]
        else:
            room = _room(memory[subject], tasks, c, site, taken, tolerance)
    if room < tasks:
        return -1
    top = order.size
    for k in range(order.size):
        r = order[k]
        if not marked[r]:
            continue
        for s in range(first[r], first[r + 1]):
            taken[slots[s]] += memory[r]
        if _room(memory[subject], tasks, c, site, taken, tolerance) >= tasks:
            marked[r] = False
        else:
            top = min(top, k)
            for s in range(first[r], first[r + 1]):
                taken[slots[s]] -= memory[r]
    return top


@kernel
def admit(
    jobs: Any,
    first: Ints,
    before: Ints,
    subject: int,
    order: Ints,
    speed: Floats,
    memory: Floats,
    site: Site,
    tolerance: float,
    slots: Ints,
    reasons: Ints,
) -> None:
    """Place the submitted row `subject`; where there is no room, others give way, or move if there is room elsewhere.

    They give way in the sub-cluster where the most important of them matters least (ties to where `subject` is
    faster); `order` has the rows by decreasing priority. `slots` starts as a copy of `before`.
    """
    used = np.empty(site[2].shape)
    add_all(jobs, first, slots, speed, memory, site, used)
    if place_best(subject, jobs[subject].need, memory[subject], -1, speed, site, first, used, tolerance, slots):
        reasons[subject] = ROOM
        return
    marked = np.zeros(jobs.size, dtype=np.bool_)
    chosen = np.zeros(jobs.size, dtype=np.bool_)
    at, where = -1, -1
    for c in range(speed.shape[1]):
        top = _choose_in(jobs, first, slots, subject, c, order, memory, site, used, tolerance, marked)
        if top > at or (top == at and where >= 0 and speed[subject, c, 1] > speed[subject, where, 1]):
            at, where = top, c
            chosen[:] = marked
    if where < 0:
        return
    for r in range(jobs.size):
        if chosen[r]:
            slots[first[r] : first[r + 1]] = -1
    add_all(jobs, first, slots, speed, memory, site, used)
    if not place_best(subject, jobs[subject].need, memory[subject], where, speed, site, first, used, tolerance, slots):
        slots[:] = before
        return
    reasons[subject] = ROOM
    alike = np.zeros(site[0].size, dtype=np.int64)
    for k in range(order.size):
        r = order[k]
        if chosen[r]:
            reasons[r] = GAVE_WAY
            if place_best(r, jobs[r].need, memory[r], -1, speed, site, first, used, tolerance, slots):
                keep_slots(before, slots, first[r], first[r + 1], alike)
                reasons[r] = MOVED_FOR


@kernel
def readmit(
    jobs: Any,
    first: Ints,
    order: Ints,
    speed: Floats,
    memory: Floats,
    site: Site,
    tolerance: float,
    slots: Ints,
    reasons: Ints,
) -> None:
    """Place all rows that wait or are paused where there is room, by decreasing priority."""
    used = np.empty(site[2].shape)
    add_all(jobs, first, slots, speed, memory, site, used)
    for k in range(order.size):
        r = order[k]
        if slots[first[r]] < 0 and place_best(
            r, jobs[r].need, memory[r], -1, speed, site, first, used, tolerance, slots
        ):
            reasons[r] = FREED
