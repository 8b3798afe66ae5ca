"""CPU shares of tasks that are on nodes: the yield of each row, equal or max-min fair ([Stillwell2010] 5.2.5, 5.2.6).

Layout and columns as in `dfrs.kernels.loads`. A row's yield is a line over a common *level*:
base + slope * level, at least `floor` and at most 1. With base 0 and slope 1 the level is the yield itself; with the
lines of `stretch_objective` it is the inverse of the estimated stretch.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

from typing import Any

import numpy as np

from dfrs.kernels.jit import Floats, Ints, kernel
from dfrs.kernels.loads import largest_load, node_use

IDLE, RISING, DONE = range(3)

OVER = 1e-10
"""CPU that a node may give out beyond what it has before yields are scaled down: more than sums of needs are wrong by,
less than `dfrs.model.tolerances.CAPACITY`. What is kept of a node by adding and taking away is wrong by more where
slopes are far apart, or bases far from 0."""


@kernel
def stretch_objective(jobs: Any, now_s: float, horizon_s: float, base: Floats, slope: Floats) -> None:
    """Objective (R,): the yield of an estimated stretch of 1 / level at now + horizon ([Stillwell2010] 5.2.6).

    level = (virtual time + yield * horizon) / (flow time + horizon).
    """
    for r in range(jobs.size):
        base[r] = -jobs[r].virtual_s / horizon_s
        slope[r] = (now_s - jobs[r].submit_s + horizon_s) / horizon_s


@kernel
def _enter(r: int, value: float, need: float, first: Ints, slots: Ints, room: Floats) -> None:
    """Let row `r` have the fixed yield `value`: it takes that of `room` (N,)."""
    for s in range(first[r], first[r + 1]):
        room[slots[s]] -= need * value


@kernel
def _scaled_floor(used: Floats, capacity: Floats, floor: float) -> float:
    """`floor`, or the yield at which the most loaded node is full where that is less."""
    most = largest_load(used, capacity)
    return floor if most * floor <= 1.0 else 1.0 / most


@kernel
def fill(
    jobs: Any,
    first: Ints,
    slots: Ints,
    capacity: Floats,
    base: Floats,
    slope: Floats,
    floor: float,
    one_step: bool,
    yields: Floats,
) -> float:
    """Raise the common level as far as it goes; who meets a full node or yield 1 stays, the others go on.

    The result, in `yields` (R,), is the lexicographically largest sorted vector of levels for these slots (0 for rows
    without nodes). With `one_step` all stay as soon as one row must: the largest minimum level. Returns the level
    where the first row had to stay. `base` and `slope` (R,), slopes above 0.
    """
    rows = jobs.size
    nodes = capacity.shape[0]
    used = np.empty(capacity.shape)
    node_use(jobs, first, slots, used)
    floor = _scaled_floor(used, capacity, floor)
    state = np.empty(rows, dtype=np.int64)
    event = np.empty(rows)
    room = capacity[:, 0].copy()
    fixed = np.zeros(nodes)
    rate = np.zeros(nodes)
    rising = np.zeros(nodes, dtype=np.int64)
    left = 0
    for r in range(rows):
        yields[r] = 0.0
        state[r] = DONE
        if slots[first[r]] >= 0:
            state[r] = IDLE
            event[r] = (floor - base[r]) / slope[r]
            yields[r] = floor
            left += 1
            if floor > 0.0:
                _enter(r, floor, jobs[r].need, first, slots, room)
    # Only a node that is full before all its rows have yield 1 can stop anyone.
    tight = np.empty(nodes, dtype=np.int64)
    count = 0
    for n in range(nodes):
        if used[n, 0] > capacity[n, 0]:
            tight[count] = n
            count += 1
    begin, members = _rows_on(first, slots, state, tight[:count], nodes)
    stopping = np.empty(members.size, dtype=np.int64)
    level = -np.inf
    stop = np.inf
    # The next event, or less: rows that have stopped since then may have had it.
    event_next, exact = _next_event(state, event), True
    while left > 0:
        step = _next_full(tight[:count], room, fixed, rate, rising)
        if step >= event_next and not exact:
            event_next, exact = _next_event(state, event), True
        before = left
        if step < event_next:
            level = max(level, step)
            some = _on_full(level, tight[:count], room, fixed, rate, rising, begin, members, state, stopping)
            left -= _freeze(
                stopping[:some], first, slots, base, slope, level, room, fixed, rate, rising, state, jobs, yields
            )
            exact = False
        else:
            level = max(level, event_next)
            for r in range(rows):
                if state[r] != DONE and event[r] <= level:
                    left -= _turn(
                        jobs, first, slots, r, base, slope, floor, room, fixed, rate, rising, state, event, yields
                    )
            event_next = _next_event(state, event)
        if left < before and stop == np.inf:
            stop = level
            if one_step:
                break
    if one_step and left > 0:
        for r in range(rows):
            if state[r] == RISING:
                yields[r] = min(1.0, max(floor, base[r] + slope[r] * level))
    if count > 0:
        within_capacity(jobs, first, slots, capacity, OVER, yields)
    return stop


@kernel
def within_capacity(jobs: Any, first: Ints, slots: Ints, capacity: Floats, slack: float, yields: Floats) -> None:
    """Scale the rows of nodes that are over by more than `slack` down to what those have; `yields` (R,) in place."""
    nodes = capacity.shape[0]
    load = np.zeros(nodes)
    for r in range(jobs.size):
        if slots[first[r]] >= 0:
            for s in range(first[r], first[r + 1]):
                load[slots[s]] += jobs[r].need * yields[r]
    for r in range(jobs.size):
        if slots[first[r]] >= 0:
            scale = 1.0
            for s in range(first[r], first[r + 1]):
                n = slots[s]
                if load[n] > capacity[n, 0] + slack:
                    scale = min(scale, capacity[n, 0] / load[n])
            yields[r] *= scale


@kernel
def _turn(
    jobs: Any,
    first: Ints,
    slots: Ints,
    r: int,
    base: Floats,
    slope: Floats,
    floor: float,
    room: Floats,
    fixed: Floats,
    rate: Floats,
    rising: Ints,
    state: Ints,
    event: Floats,
    yields: Floats,
) -> int:
    """Row `r` begins to rise from the floor, or arrives at yield 1; returns how many rows (0, 1) are done by that."""
    need = jobs[r].need
    if state[r] == IDLE:
        state[r] = RISING
        event[r] = (1.0 - base[r]) / slope[r]
        for s in range(first[r], first[r + 1]):
            n = slots[s]
            room[n] += need * floor
            fixed[n] += need * base[r]
            rate[n] += need * slope[r]
            rising[n] += 1
        return 0
    _leave(r, need, 1.0, first, slots, base, slope, room, fixed, rate, rising)
    state[r] = DONE
    yields[r] = 1.0
    return 1


@kernel
def _leave(
    r: int,
    need: float,
    value: float,
    first: Ints,
    slots: Ints,
    base: Floats,
    slope: Floats,
    room: Floats,
    fixed: Floats,
    rate: Floats,
    rising: Ints,
) -> None:
    """Row `r` rises no more and stays at `value`."""
    for s in range(first[r], first[r + 1]):
        n = slots[s]
        room[n] -= need * value
        fixed[n] -= need * base[r]
        rate[n] -= need * slope[r]
        rising[n] -= 1


@kernel
def _rows_on(first: Ints, slots: Ints, state: Ints, nodes: Ints, count: int) -> tuple[Ints, Ints]:
    """(begin, rows): rows[begin[k] : begin[k + 1]] have a task on nodes[k], in their order, once for each; of `count`
    nodes in all, and of the rows that are not done."""
    at = np.full(count, -1, dtype=np.int64)
    for k in range(nodes.size):
        at[nodes[k]] = k
    begin = np.zeros(nodes.size + 1, dtype=np.int64)
    for r in range(state.size):
        if state[r] != DONE:
            for s in range(first[r], first[r + 1]):
                if at[slots[s]] >= 0:
                    begin[at[slots[s]] + 1] += 1
    for k in range(nodes.size):
        begin[k + 1] += begin[k]
    rows = np.empty(begin[nodes.size], dtype=np.int64)
    end = begin[: nodes.size].copy()
    for r in range(state.size):
        if state[r] != DONE:
            for s in range(first[r], first[r + 1]):
                k = at[slots[s]]
                if k >= 0:
                    rows[end[k]] = r
                    end[k] += 1
    return begin, rows


@kernel
def _next_event(state: Ints, event: Floats) -> float:
    """The least level at which a row begins to rise or arrives."""
    least = np.inf
    for r in range(state.size):
        if state[r] != DONE:
            least = min(least, event[r])
    return least


@kernel
def _next_full(tight: Ints, room: Floats, fixed: Floats, rate: Floats, rising: Ints) -> float:
    """The least level at which a node is full, of rows that rise now."""
    least = np.inf
    for k in range(tight.size):
        n = tight[k]
        if rising[n] > 0:
            least = min(least, (room[n] - fixed[n]) / rate[n])
    return least


@kernel
def _on_full(
    level: float,
    tight: Ints,
    room: Floats,
    fixed: Floats,
    rate: Floats,
    rising: Ints,
    begin: Ints,
    members: Ints,
    state: Ints,
    found: Ints,
) -> int:
    """Into `found`: the rows on nodes that are full at `level`, in their order; how many. One may be there twice."""
    count = 0
    full = 0
    for k in range(tight.size):
        n = tight[k]
        if rising[n] > 0 and (room[n] - fixed[n]) / rate[n] <= level:
            full += 1
            for m in range(begin[k], begin[k + 1]):
                if state[members[m]] != DONE:
                    found[count] = members[m]
                    count += 1
    if full > 1:
        found[:count] = np.sort(found[:count])
    return count


@kernel
def _freeze(
    stopping: Ints,
    first: Ints,
    slots: Ints,
    base: Floats,
    slope: Floats,
    level: float,
    room: Floats,
    fixed: Floats,
    rate: Floats,
    rising: Ints,
    state: Ints,
    jobs: Any,
    yields: Floats,
) -> int:
    """The rows `stopping` stay where they are at `level`; how many they are."""
    stopped = 0
    for r in stopping:
        if state[r] == DONE:
            continue
        if state[r] == RISING:
            yields[r] = min(1.0, max(0.0, base[r] + slope[r] * level))
            _leave(r, jobs[r].need, yields[r], first, slots, base, slope, room, fixed, rate, rising)
        state[r] = DONE
        stopped += 1
    return stopped
