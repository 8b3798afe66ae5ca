"""MCB: all jobs packed anew, at the highest common level that a packing is found for ([Stillwell2010] 5.2.2, 5.2.6).

Layout and columns as in `dfrs.kernels.loads`; levels and lines as in `dfrs.kernels.shares`: at a level, a task's CPU is
its need times the yield that the row's line has there. The packing is that of `dfrs.kernels.group_packing`.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

from typing import Any

import numpy as np

from dfrs.kernels.group_packing import pack_groups, sort_down
from dfrs.kernels.jit import Bools, Floats, Ints, kernel
from dfrs.kernels.loads import RUNNING
from dfrs.kernels.reconcile import keep_slots

PACKED, LEFT_OUT = 5, 6

NO_PIN, PIN_FLOW, PIN_VIRTUAL = range(3)

Search = tuple[bool, float, float, float, float]
"""(strict, least, width, relative width, floor): with `strict` a level at which a line passes 1 is not feasible, else
such a line counts as 1; the search starts at `least` and ends at a distance of `width` or, if larger, of `relative
width` times the upper end; `floor` is the least yield."""


@kernel
def find_pinned(jobs: Any, now_s: float, pin: int, pin_s: float, pinned: Bools) -> None:
    """Running rows with a flow time (PIN_FLOW) or virtual time (PIN_VIRTUAL) below `pin_s`, into `pinned` (R,)."""
    for r in range(jobs.size):
        age = jobs[r].virtual_s if pin == PIN_VIRTUAL else now_s - jobs[r].submit_s
        pinned[r] = pin != NO_PIN and jobs[r].state == RUNNING and age < pin_s


@kernel
def pin_stranded(
    jobs: Any, first: Ints, before: Ints, capacity: Floats, open_nodes: Bools, tolerance: float, pinned: Bools
) -> None:
    """Let rows on closed nodes that the open ones could not hold, were they empty, be `pinned` (R,), too.

    To pack such a row elsewhere, all of lower priority would be left out, and nothing gained.
    """
    for r in range(jobs.size):
        closed = False
        for s in range(first[r], first[r + 1]):
            closed |= before[s] >= 0 and not open_nodes[before[s]]
        if not closed:
            continue
        left = jobs[r].tasks
        for n in range(capacity.shape[0]):
            if open_nodes[n] and capacity[n, 0] > 0.0:
                room = capacity[n, 1] + tolerance
                left -= left if jobs[r].memory * left <= room else int(room / jobs[r].memory)
        pinned[r] |= left > 0


@kernel
def yields_at(level: float, base: Floats, slope: Floats, search: Search, rows: Bools, yields: Floats) -> bool:
    """Yields that `rows` must have at `level`, into `yields` (R,); False where one would have to pass 1."""
    strict, _, _, _, floor = search
    for r in range(rows.size):
        value = base[r] + slope[r] * level
        if value > 1.0:
            if strict and value > 1.0 + 1e-12 and rows[r]:
                return False
            value = 1.0
        yields[r] = max(value, floor)
    return True


@kernel
def _preload(
    jobs: Any,
    first: Ints,
    before: Ints,
    fixed: Bools,
    yields: Floats,
    capacity: Floats,
    tolerance: float,
    preload: Floats,
) -> bool:
    """What the rows that are `fixed` take at `yields`, into `preload` (N, 2); whether their nodes have it."""
    preload[:] = 0.0
    for r in range(jobs.size):
        if fixed[r]:
            for s in range(first[r], first[r + 1]):
                preload[before[s], 0] += jobs[r].need * yields[r]
                preload[before[s], 1] += jobs[r].memory
    fits = True
    for n in range(capacity.shape[0]):
        fits &= preload[n, 0] <= capacity[n, 0] + tolerance
    return fits


@kernel
def pack_at(
    jobs: Any,
    first: Ints,
    before: Ints,
    rows: Bools,
    pinned: Bools,
    yields: Floats,
    by_memory: Ints,
    by_cpu: Ints,
    capacity: Floats,
    open_nodes: Bools,
    tolerance: float,
    slots: Ints,
) -> bool:
    """Pack `rows` at `yields`, the `pinned` ones where they are `before`; into `slots`. Returns success.

    `by_memory` has these rows, and perhaps others, by decreasing memory; `by_cpu` the same in any order: it is sorted.
    """
    count = by_memory.size
    preload = np.empty(capacity.shape)
    if not _preload(jobs, first, before, rows & pinned, yields, capacity, tolerance, preload):
        return False
    cpu = np.empty(jobs.size)
    for r in range(jobs.size):
        cpu[r] = jobs[r].need * yields[r]
    sort_down(cpu, by_cpu)
    row = np.empty(count, dtype=np.int64)
    size = np.empty((count, 2))
    left = np.empty(count, dtype=np.int64)
    groups = 0
    middle = 0
    for second in range(2):
        order = by_cpu if second else by_memory
        for k in range(count):
            r = order[k]
            if rows[r] and not pinned[r] and (cpu[r] > jobs[r].memory) == (second == 1):
                row[groups] = r
                size[groups, 0] = cpu[r]
                size[groups, 1] = jobs[r].memory
                left[groups] = jobs[r].tasks
                groups += 1
        if second == 0:
            middle = groups
    return pack_groups(
        row[:groups], size[:groups], left[:groups], middle, first, preload, capacity, open_nodes, tolerance, slots
    )


@kernel
def uncrowded(
    jobs: Any,
    first: Ints,
    before: Ints,
    order: Ints,
    pinned: Bools,
    capacity: Floats,
    open_nodes: Bools,
    tolerance: float,
) -> int:
    """How many rows of `order`, from its start, memory alone does not rule out: by its sum, or by large tasks.

    No node holds two tasks larger than half of any node. More rows are never less crowded.
    """
    free = (capacity.shape[0] + 1) * tolerance + 1e-9
    largest = 0.0
    hosts = 0
    for n in range(capacity.shape[0]):
        if open_nodes[n]:
            free += capacity[n, 1]
            largest = max(largest, capacity[n, 1])
            hosts += 1
    for k in range(order.size):
        r = order[k]
        large = 2.0 * jobs[r].memory > largest + 2.0 * tolerance
        tasks = jobs[r].tasks
        if pinned[r]:
            for s in range(first[r], first[r + 1]):
                tasks -= 0 if open_nodes[before[s]] else 1
        free -= jobs[r].memory * tasks
        hosts -= tasks if large else 0
        if free < 0.0 or hosts < 0:
            return k
    return order.size


@kernel
def upper_end(
    jobs: Any,
    base: Floats,
    slope: Floats,
    strict: bool,
    rows: Bools,
    pinned: Bools,
    capacity: Floats,
    open_nodes: Bools,
) -> float:
    """A level that no packing of `rows` can pass: by yields of at most 1, and by the sum of CPU.

    Closed nodes count as far as pinned rows may be there: with their CPU, if there are any.
    """
    anchored = False
    low = np.inf
    high = 0.0
    for r in range(jobs.size):
        if rows[r]:
            anchored |= pinned[r]
            end = (1.0 - base[r]) / slope[r]
            low = min(low, end)
            high = max(high, end)
    total = 0.0
    for n in range(capacity.shape[0]):
        if open_nodes[n] or anchored:
            total += capacity[n, 0]
    level = 0.0
    for turn in range(jobs.size + 1):
        room = total
        rate = 0.0
        for r in range(jobs.size):
            if rows[r]:
                need = jobs[r].need * jobs[r].tasks
                if turn > 0 and base[r] + slope[r] * level >= 1.0:
                    room -= need
                else:
                    room -= need * base[r]
                    rate += need * slope[r]
        if rate == 0.0:
            return high
        before = level
        level = room / rate
        # Rows that have yield 1 at this level need no more beyond it, so that the next level can only be higher.
        if strict or (turn > 0 and level <= before):
            break
    return min(level, low if strict else high)


@kernel
def _sorted_rows(jobs: Any, rows: Bools, count: int) -> tuple[Ints, Ints]:
    """The `count` rows in the mask `rows` by decreasing memory and by decreasing need, ties by index."""
    some = np.flatnonzero(rows)
    memory = np.empty(count)
    need = np.empty(count)
    for k in range(count):
        memory[k] = -jobs[some[k]].memory
        need[k] = -jobs[some[k]].need
    return some[np.argsort(memory, kind="mergesort")], some[np.argsort(need, kind="mergesort")]


@kernel
def search_level(
    jobs: Any,
    first: Ints,
    before: Ints,
    rows: Bools,
    pinned: Bools,
    base: Floats,
    slope: Floats,
    search: Search,
    order: Ints,
    capacity: Floats,
    open_nodes: Bools,
    tolerance: float,
    slots: Ints,
) -> float:
    """The highest level found at which `rows` can be packed, with the packing in `slots`.

    `rows` starts with all. Where there is no packing at the least level, the last row of `order` (by decreasing
    priority) is taken out of it, and so on ([Stillwell2010] section 5.2.2).
    """
    strict, least, width, relative, _ = search
    yields = np.empty(jobs.size)
    kept = uncrowded(jobs, first, before, order, pinned, capacity, open_nodes, tolerance)
    for k in range(kept, order.size):
        rows[order[k]] = False
    by_memory, by_cpu = _sorted_rows(jobs, rows, kept)
    yields_at(least, base, slope, search, rows, yields)
    while kept > 0 and not pack_at(
        jobs, first, before, rows, pinned, yields, by_memory, by_cpu, capacity, open_nodes, tolerance, slots
    ):
        kept -= 1
        rows[order[kept]] = False
    if kept == 0:
        return least
    low = least
    high = upper_end(jobs, base, slope, strict, rows, pinned, capacity, open_nodes)
    spare = np.empty_like(slots)
    width = max(width, relative * high)
    target = high
    while high > low:
        if yields_at(target, base, slope, search, rows, yields) and pack_at(
            jobs, first, before, rows, pinned, yields, by_memory, by_cpu, capacity, open_nodes, tolerance, spare
        ):
            low = target
            slots[:] = spare
        else:
            high = target
        if high - low <= width:
            break
        target = 0.5 * (low + high)
    return low


@kernel
def repack(
    jobs: Any,
    first: Ints,
    before: Ints,
    capacity: Floats,
    open_nodes: Bools,
    order: Ints,
    pinned: Bools,
    base: Floats,
    slope: Floats,
    search: Search,
    tolerance: float,
    slots: Ints,
    reasons: Ints,
) -> float:
    """Pack all rows anew into `slots`; `reasons` (R,) is filled. Returns the level of the packing.

    `order` has the rows by decreasing priority; `pinned` (R,) rows may lose their nodes, but not change them. Tasks
    that find themselves on a node where their row was keep their slot.
    """
    chosen = np.ones(jobs.size, dtype=np.bool_)
    level = search_level(
        jobs, first, before, chosen, pinned, base, slope, search, order, capacity, open_nodes, tolerance, slots
    )
    settle(jobs, first, before, chosen, pinned, capacity.shape[0], slots, reasons)
    return level


@kernel
def settle(
    jobs: Any, first: Ints, before: Ints, chosen: Bools, pinned: Bools, nodes: int, slots: Ints, reasons: Ints
) -> None:
    """Make a packing a decision: pinned rows keep their slots, those not chosen have none, others those they can."""
    alike = np.zeros(nodes, dtype=np.int64)
    for r in range(jobs.size):
        begin, end = first[r], first[r + 1]
        reasons[r] = PACKED if chosen[r] else LEFT_OUT
        if not chosen[r]:
            slots[begin:end] = -1
        elif pinned[r]:
            slots[begin:end] = before[begin:end]
        elif before[begin] >= 0:
            keep_slots(before, slots, begin, end, alike)
        else:
            slots[begin:end].sort()
