"""Yields of a given placement: the best minimum, max-min (water-filling), and the greedy average.

All yields here are scaled: 0 is a service's minimum, 1 its full need ([Stillwell2010] section 4.1).
"""

import numpy as np

from dfrs.kernels.jit import Floats, Ints, kernel

INFEASIBLE = -1.0


@kernel
def node_loads(base: Floats, slope: Floats, nodes: int, place: Ints) -> tuple[Floats, Floats]:
    """Sums of `base` and `slope` (T, D) over the tasks of each node; returns two (N, D) arrays."""
    tasks, dims = base.shape
    fixed = np.zeros((nodes, dims))
    rate = np.zeros((nodes, dims))
    for i in range(tasks):
        n = place[i]
        for d in range(dims):
            fixed[n, d] += base[i, d]
            rate[n, d] += slope[i, d]
    return fixed, rate


@kernel
def minimum_yield(base: Floats, slope: Floats, capacity: Floats, place: Ints, tolerance: float) -> float:
    """Largest Y in [0, 1] with base + Y*slope within capacity on every node; -1 where not even Y = 0 is."""
    fixed, rate = node_loads(base, slope, capacity.shape[0], place)
    best = 1.0
    for n in range(capacity.shape[0]):
        for d in range(capacity.shape[1]):
            free = capacity[n, d] - fixed[n, d]
            if free < -tolerance:
                return INFEASIBLE
            if rate[n, d] > 0.0 and rate[n, d] * best > free:
                best = max(free, 0.0) / rate[n, d]
    return best


@kernel
def fill_average(slope: Floats, room: Floats, place: Ints, yields: Floats, tolerance: float) -> None:
    """Raise `yields` (S = T, in place) as [Stillwell2010] 4.4.7: on each node the task with the largest possible gain.

    Gains within `tolerance` of each other are equal. `room` (N, D) is what is free at the present yields; modified.
    One task per service; `slope` (T, D).
    """
    tasks, dims = slope.shape
    nodes = room.shape[0]
    start = np.zeros(nodes + 1, dtype=np.int64)
    for i in range(tasks):
        start[place[i] + 1] += 1
    for n in range(nodes):
        start[n + 1] += start[n]
    cursor = start[:-1].copy()
    members = np.empty(tasks, dtype=np.int64)
    for i in range(tasks):
        members[cursor[place[i]]] = i
        cursor[place[i]] += 1
    for n in range(nodes):
        done = np.zeros(start[n + 1] - start[n], dtype=np.bool_)
        for _ in range(done.size):
            best_gain = 0.0
            best_price = 0.0
            best = -1
            for k in range(done.size):
                if done[k]:
                    continue
                i = members[start[n] + k]
                gain = 1.0 - yields[i]
                for d in range(dims):
                    if slope[i, d] > 0.0 and slope[i, d] * gain > room[n, d]:
                        gain = max(room[n, d], 0.0) / slope[i, d]
                # The smaller task has an equal gain more cheaply and leaves more for others ([Stillwell2008] 3.5).
                price = slope[i].sum()
                if gain > best_gain + tolerance or (gain > best_gain - tolerance and best >= 0 and price < best_price):
                    best_gain = gain
                    best_price = price
                    best = k
            if best < 0:
                break
            i = members[start[n] + best]
            done[best] = True
            yields[i] += best_gain
            for d in range(dims):
                room[n, d] -= slope[i, d] * best_gain


@kernel
def fill_max_min(slope: Floats, room: Floats, place: Ints, service_of: Ints, yields: Floats, tolerance: float) -> None:
    """Water-filling from the equal `yields` (S, in place): raise all together, freeze who meets a full resource.

    The result is the lexicographically largest sorted vector of yields for this placement.
    `room` (N, D) is what is free at the present yields; modified.
    """
    tasks, dims = slope.shape
    nodes = room.shape[0]
    services = yields.shape[0]
    frozen = np.zeros(services, dtype=np.bool_)
    rate = np.empty((nodes, dims))
    left = services
    while left > 0:
        rate[:] = 0.0
        for i in range(tasks):
            if not frozen[service_of[i]]:
                for d in range(dims):
                    rate[place[i], d] += slope[i, d]
        step = np.inf
        happy, full_node, full_dim = -1, -1, -1
        for j in range(services):
            if not frozen[j] and 1.0 - yields[j] < step:
                step = 1.0 - yields[j]
                happy = j
        for n in range(nodes):
            for d in range(dims):
                if rate[n, d] > 0.0 and rate[n, d] * step > room[n, d]:
                    step = max(room[n, d], 0.0) / rate[n, d]
                    happy, full_node, full_dim = -1, n, d
        for j in range(services):
            if not frozen[j]:
                yields[j] += step
        for n in range(nodes):
            for d in range(dims):
                room[n, d] -= rate[n, d] * step
        # What limited the step is exactly used up, whatever the rounding: someone stops in every round.
        if happy >= 0:
            yields[happy] = 1.0
        else:
            room[full_node, full_dim] = 0.0
        stopped = np.zeros(services, dtype=np.bool_)
        for j in range(services):
            stopped[j] = yields[j] >= 1.0 - tolerance
        for i in range(tasks):
            for d in range(dims):
                if slope[i, d] > 0.0 and room[place[i], d] <= tolerance:
                    stopped[service_of[i]] = True
        for j in range(services):
            if stopped[j] and not frozen[j]:
                frozen[j] = True
                left -= 1
