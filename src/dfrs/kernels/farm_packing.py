"""Jobs on a farm of unequal sub-clusters: all of them packed anew for the largest minimum effective yield.

[Stillwell2010] sections 4.2.5 and 5.2.2 carried over to the farm of [Atif2011] section 4: a job's *effective yield* is
its yield times its relative speed where it is (1 on the hardware that suits it best), and all its tasks are in one
sub-cluster. At a level a row may be where its relative speed is at least the level, and each of its tasks then takes
need * level / speed of a node's CPU. A row that memory or closed nodes keep from its best hardware need not pass the
best that it can reach.

Layout as in `dfrs.kernels.loads`, speeds and sites as in `dfrs.kernels.farm_speeds`; `memory` (R,) is what a task
takes.

One packing is made by a rule of three parts: the order of the jobs, the order of the sub-clusters of each, the order of
the nodes for each task. A level counts as feasible if any of the rules packs it.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

from typing import Any

import numpy as np

from dfrs.kernels.farm_speeds import ALIKE, SLOWEST, Site, speed_at
from dfrs.kernels.jit import Bools, Floats, Ints, kernel
from dfrs.kernels.loads import RUNNING

LARGEST, WHOLE, REGRET = range(3)
"""Jobs by decreasing max(CPU, memory) of a task (MCB8), the same times its tasks, or what its second choice costs."""
FASTEST, EMPTIEST = range(2)
"""Sub-clusters by decreasing relative speed, or by how full of CPU they would be."""
BEST_FIT, LEAST_LOADED, COMPLEMENT = range(3)
"""Nodes by decreasing load, by increasing CPU load, or by what they have left more of than of what the task less
needs."""

LEAST_LEVEL, WIDTH = 0.01, 0.01
"""The search for the best level begins and ends as that of MCB ([Stillwell2010] section 5.2.2)."""
_ONLY = 1e3
"""Regret of a job with one choice."""


@kernel
def _worth(n: int, node_rule: int, cpu: float, memory: float, capacity: Floats, used: Floats) -> float:
    """How late node `n` comes by the rule."""
    cpu_load = used[n, 0] / capacity[n, 0] if capacity[n, 0] > 0.0 else 1.0
    memory_load = used[n, 1] / capacity[n, 1] if capacity[n, 1] > 0.0 else 1.0
    if node_rule == BEST_FIT:
        return -(cpu_load + memory_load)
    if node_rule == LEAST_LOADED:
        return cpu_load
    return cpu_load - memory_load if cpu > memory else memory_load - cpu_load


@kernel
def _place(
    begin: int,
    end: int,
    cpu: float,
    memory: float,
    c: int,
    m: int,
    node_rule: int,
    site: Site,
    used: Floats,
    tolerance: float,
    slots: Ints,
) -> bool:
    """Tasks on open nodes of sub-cluster `c`, of machine `m` alone if it is not -1, ties to the lowest index.

    Returns success; without it `used` (N, 2) is as it was.
    """
    cluster, machine, capacity, open_nodes = site
    was = np.empty((end - begin, 2))
    for s in range(begin, end):
        chosen = -1
        least = np.inf
        for n in range(cluster.size):
            if cluster[n] != c or not open_nodes[n] or (m >= 0 and machine[n] != m):
                continue
            if used[n, 0] + cpu > capacity[n, 0] + tolerance or used[n, 1] + memory > capacity[n, 1] + tolerance:
                continue
            value = _worth(n, node_rule, cpu, memory, capacity, used)
            if value < least:
                least = value
                chosen = n
        if chosen < 0:
            for t in range(s - 1, begin - 1, -1):
                used[slots[t], 0] = was[t - begin, 0]
                used[slots[t], 1] = was[t - begin, 1]
            return False
        was[s - begin, 0] = used[chosen, 0]
        was[s - begin, 1] = used[chosen, 1]
        used[chosen, 0] += cpu
        used[chosen, 1] += memory
        slots[s] = chosen
    return True


@kernel
def _place_together(
    begin: int,
    end: int,
    cpu: float,
    memory: float,
    c: int,
    node_rule: int,
    site: Site,
    used: Floats,
    tolerance: float,
    slots: Ints,
) -> bool:
    """The same on one machine of sub-cluster `c`, that with the most CPU in use first, or the least (LEAST_LOADED)."""
    cluster, machine, _, _ = site
    machines = machine.max() + 1
    busy = np.full(machines, np.inf)
    for n in range(cluster.size):
        if cluster[n] == c:
            m = machine[n]
            busy[m] = (0.0 if busy[m] == np.inf else busy[m]) + (
                used[n, 0] if node_rule == LEAST_LOADED else -used[n, 0]
            )
    for _ in range(machines):
        m = int(np.argmin(busy))
        if busy[m] == np.inf:
            return False
        if _place(begin, end, cpu, memory, c, m, node_rule, site, used, tolerance, slots):
            return True
        busy[m] = np.inf
    return False


@kernel
def _put(
    r: int,
    need: float,
    memory: float,
    demand: float,
    speed: Floats,
    rule: Ints,
    site: Site,
    first: Ints,
    used: Floats,
    tolerance: float,
    slots: Ints,
) -> bool:
    """Row `r` at the effective yield `demand` into the first sub-cluster of its order that has room.

    One machine is asked for where that is faster than many.
    """
    cluster, _, capacity, open_nodes = site
    clusters = speed.shape[1]
    begin, end = first[r], first[r + 1]
    tried = np.zeros((clusters, 2), dtype=np.bool_)
    busy = np.zeros(clusters)
    total = np.zeros(clusters)
    for n in range(cluster.size):
        if open_nodes[n]:
            busy[cluster[n]] += used[n, 0]
            total[cluster[n]] += capacity[n, 0]
    while True:
        chosen, together, least = -1, 0, np.inf
        for c in range(clusters):
            for k in range(1, -1, -1):
                rate = speed[r, c, k]
                helps = k == 0 or rate > speed[r, c, 0]
                if tried[c, k] or not helps or rate < demand - ALIKE or total[c] <= 0.0:
                    continue
                value = -rate
                if rule[1] == EMPTIEST:
                    value = (busy[c] + (end - begin) * need * demand / rate) / total[c]
                if value < least:
                    chosen, together, least = c, k, value
        if chosen < 0:
            return False
        tried[chosen, together] = True
        cpu = need * min(1.0, demand / speed[r, chosen, together])
        if together == 1:
            if _place_together(begin, end, cpu, memory, chosen, rule[2], site, used, tolerance, slots):
                return True
        elif _place(begin, end, cpu, memory, chosen, -1, rule[2], site, used, tolerance, slots):
            return True


@kernel
def _hold(
    r: int,
    need: float,
    memory: float,
    demand: float,
    speed: Floats,
    site: Site,
    first: Ints,
    before: Ints,
    tolerance: float,
    must: bool,
    used: Floats,
    slots: Ints,
) -> bool:
    """Row `r` where it is, with at most yield 1; unless it `must`, only if it gets `demand` there and has room."""
    capacity = site[2]
    begin, end = first[r], first[r + 1]
    rate = speed_at(speed, r, before, begin, end, site)
    if not must and rate < demand - ALIKE:
        return False
    cpu = need * min(1.0, demand / rate)
    was = np.empty((end - begin, 2))
    fits = True
    for s in range(begin, end):
        n = before[s]
        slots[s] = n
        was[s - begin, 0] = used[n, 0]
        was[s - begin, 1] = used[n, 1]
        used[n, 0] += cpu
        used[n, 1] += memory
        fits &= used[n, 0] <= capacity[n, 0] + tolerance and (must or used[n, 1] <= capacity[n, 1] + tolerance)
    if not fits and not must:
        for s in range(end - 1, begin - 1, -1):
            used[before[s], 0] = was[s - begin, 0]
            used[before[s], 1] = was[s - begin, 1]
    return fits


@kernel
def _size_keys(
    jobs: Any, rows: Bools, speed: Floats, memory: Floats, best: Floats, level: float, by: int, key: Floats
) -> None:
    """What each of `rows` is ordered by, largest first, into `key` (R,)."""
    for r in range(jobs.size):
        key[r] = -np.inf
        if not rows[r] or best[r] <= 0.0:
            continue
        demand = min(level, best[r])
        size = max(jobs[r].need * demand / best[r], memory[r])
        if by == LARGEST:
            key[r] = size
        elif by == WHOLE:
            key[r] = size * jobs[r].tasks
        else:
            least, second = np.inf, np.inf
            for c in range(speed.shape[1]):
                if speed[r, c, 1] >= demand - ALIKE:
                    cost = jobs[r].tasks * jobs[r].need * demand / speed[r, c, 1]
                    if cost < least:
                        least, second = cost, least
                    else:
                        second = min(second, cost)
            key[r] = min(second - least, _ONLY) + 0.001 * size


@kernel
def pack_at(
    jobs: Any,
    first: Ints,
    before: Ints,
    rows: Bools,
    pinned: Bools,
    speed: Floats,
    memory: Floats,
    best: Floats,
    level: float,
    rule: Ints,
    stay: bool,
    site: Site,
    tolerance: float,
    slots: Ints,
) -> bool:
    """Pack `rows` at `level` by `rule`, the `pinned` ones where they are `before`; into `slots`. Returns success.

    With `stay` those that run stay where they can, and only the others are placed.
    """
    used = np.zeros(site[2].shape)
    done = np.zeros(jobs.size, dtype=np.bool_)
    for r in range(jobs.size):
        if rows[r] and pinned[r]:
            done[r] = True
            demand = min(level, max(best[r], SLOWEST))
            if not _hold(r, jobs[r].need, memory[r], demand, speed, site, first, before, tolerance, True, used, slots):
                return False
        elif rows[r] and best[r] <= 0.0:
            return False
    key = np.empty(jobs.size)
    _size_keys(jobs, rows, speed, memory, best, level, rule[0], key)
    order = np.argsort(-key, kind="mergesort")
    if stay:
        for k in range(jobs.size):
            r = order[k]
            if rows[r] and not done[r] and jobs[r].state == RUNNING:
                demand = min(level, best[r])
                done[r] = _hold(
                    r, jobs[r].need, memory[r], demand, speed, site, first, before, tolerance, False, used, slots
                )
    for k in range(jobs.size):
        r = order[k]
        if rows[r] and not done[r]:
            demand = min(level, best[r])
            if not _put(r, jobs[r].need, memory[r], demand, speed, rule, site, first, used, tolerance, slots):
                return False
    return True


@kernel
def _roomy(jobs: Any, order: Ints, memory: Floats, best: Floats, rows: Bools, site: Site, tolerance: float) -> int:
    """How many of `order`, from its start, the sum of memory does not rule out; leaves the others out of `rows`."""
    capacity = site[2]
    # Closed nodes count: a pinned row may be there.
    free = (capacity.shape[0] + 1) * tolerance + 1e-9 + capacity[:, 1].sum()
    kept = 0
    for k in range(order.size):
        r = order[k]
        if kept == k:
            free -= memory[r] * jobs[r].tasks
            kept += 1 if free >= 0.0 and best[r] > 0.0 else 0
        if kept <= k:
            rows[r] = False
    return kept


@kernel
def _wanted(jobs: Any, rows: Bools, best: Floats, level: float) -> float:
    """CPU that `rows` take at `level`, each on its best hardware."""
    total = 0.0
    for r in range(jobs.size):
        if rows[r] and best[r] > 0.0:
            total += jobs[r].tasks * jobs[r].need * min(1.0, level / best[r])
    return total


@kernel
def upper_level(jobs: Any, rows: Bools, best: Floats, site: Site) -> float:
    """A level that no packing of `rows` passes, by the sum of CPU; at most the best of their best speeds."""
    total = site[2][:, 0].sum()
    low, high = 0.0, 0.0
    for r in range(jobs.size):
        if rows[r]:
            high = max(high, best[r])
    if _wanted(jobs, rows, best, high) <= total:
        return high
    for _ in range(40):
        middle = 0.5 * (low + high)
        if _wanted(jobs, rows, best, middle) <= total:
            low = middle
        else:
            high = middle
    return high


@kernel
def _any_packs(
    jobs: Any,
    first: Ints,
    before: Ints,
    rows: Bools,
    pinned: Bools,
    speed: Floats,
    memory: Floats,
    best: Floats,
    level: float,
    rules: Ints,
    stay: bool,
    site: Site,
    tolerance: float,
    slots: Ints,
) -> bool:
    """Whether one of `rules` (K, 3) packs `level`; that which did comes first the next time."""
    for k in range(rules.shape[0]):
        if pack_at(
            jobs, first, before, rows, pinned, speed, memory, best, level, rules[k], stay, site, tolerance, slots
        ):
            for d in range(3):
                found = rules[k, d]
                for j in range(k, 0, -1):
                    rules[j, d] = rules[j - 1, d]
                rules[0, d] = found
            return True
    return False


@kernel
def search_level(
    jobs: Any,
    first: Ints,
    before: Ints,
    rows: Bools,
    pinned: Bools,
    speed: Floats,
    memory: Floats,
    best: Floats,
    order: Ints,
    rules: Ints,
    near: float,
    site: Site,
    tolerance: float,
    slots: Ints,
) -> float:
    """The highest level found at which `rows` can be packed, with the packing in `slots`.

    `rows` starts with all. Where nothing packs the least level, the last row of `order` (by decreasing priority) is
    taken out of it, and so on ([Stillwell2010] section 5.2.2). A packing in which those that run stay is taken instead
    if it is found at 1 - `near` of that level. `rules` are reordered.
    """
    kept = _roomy(jobs, order, memory, best, rows, site, tolerance)
    while kept > 0 and not _any_packs(
        jobs, first, before, rows, pinned, speed, memory, best, LEAST_LEVEL, rules, False, site, tolerance, slots
    ):
        kept -= 1
        rows[order[kept]] = False
    if kept == 0:
        return LEAST_LEVEL
    low = LEAST_LEVEL
    high = upper_level(jobs, rows, best, site)
    spare = np.empty_like(slots)
    target = high
    while high > low:
        if _any_packs(
            jobs, first, before, rows, pinned, speed, memory, best, target, rules, False, site, tolerance, spare
        ):
            low = target
            slots[:] = spare
        else:
            high = target
        if high - low <= WIDTH:
            break
        target = 0.5 * (low + high)
    eased = max(LEAST_LEVEL, (1.0 - near) * low)
    if _any_packs(jobs, first, before, rows, pinned, speed, memory, best, eased, rules, True, site, tolerance, spare):
        slots[:] = spare
        return eased
    return low
