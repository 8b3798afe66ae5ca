"""Shares reserved for dedicated jobs: which nodes they get, and who has to leave them ([Kumar2011] section III-B).

Layout and columns as in `dfrs.kernels.loads`; `reserved` (N, 2) is what dedicated jobs with a reserved share have of
each node. Such a row has all of its need; the others, called guests, share what is left. A node where guests could not
all have LEAST_YIELD, or of whose CPU less than that part is left, is no place for them.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

from typing import Any

import numpy as np

from dfrs.kernels.admission import FREED, MOVED_FOR, count_room, place_by_load
from dfrs.kernels.jit import Bools, Floats, Ints, kernel
from dfrs.kernels.loads import add_use, by_priority, node_use
from dfrs.kernels.reconcile import keep_slots

GUEST, AHEAD, DUE, HELD = range(4)
"""A batch job; a dedicated job whose requested start is to come; one without nodes though it came; one with its share.

A dedicated job that runs where its full need has no room, as another policy may leave it, is a guest.
"""

ON_TIME, LATE_DEDICATED, LATE_CLOSED, MADE_WAY = 13, 14, 17, 18
LEAST_YIELD = 0.01


@kernel
def find_kinds(
    jobs: Any, first: Ints, slots: Ints, capacity: Floats, now_s: float, tolerance: float, kind: Ints, reserved: Floats
) -> None:
    """What each row is, into `kind` (R,), and what those that are HELD have, into `reserved`."""
    reserved[:] = 0.0
    for r in range(jobs.size):
        kind[r] = GUEST
        if np.isnan(jobs[r].requested_start_s):
            continue
        if slots[first[r]] < 0:
            kind[r] = DUE if jobs[r].requested_start_s <= now_s else AHEAD
            continue
        add_use(jobs, first, slots, r, 1.0, reserved)
        fits = True
        for s in range(first[r], first[r + 1]):
            fits &= reserved[slots[s], 0] <= capacity[slots[s], 0] + tolerance
        if fits:
            kind[r] = HELD
        else:
            add_use(jobs, first, slots, r, -1.0, reserved)


@kernel
def leave_rest(capacity: Floats, reserved: Floats, tolerance: float, rest: Floats) -> None:
    """What nodes have beside `reserved`, into `rest` (N, 2): no CPU where it is too little for anyone."""
    for n in range(capacity.shape[0]):
        cpu = capacity[n, 0] - reserved[n, 0]
        rest[n, 0] = max(cpu, 0.0) if cpu >= LEAST_YIELD * capacity[n, 0] - tolerance else 0.0
        rest[n, 1] = max(capacity[n, 1] - reserved[n, 1], 0.0)


@kernel
def count_guests(jobs: Any, first: Ints, slots: Ints, kind: Ints, guests: Ints) -> None:
    """Tasks of guests on each node, into `guests` (N,)."""
    guests[:] = 0
    for r in range(jobs.size):
        if kind[r] == GUEST and slots[first[r]] >= 0:
            for s in range(first[r], first[r + 1]):
                guests[slots[s]] += 1


@kernel
def _whole(free: float, size: float, most: int) -> int:
    """How often `size` goes into `free`, at most `most`."""
    if free >= size * most:
        return most
    return int(free / size) if free >= size else 0


@kernel
def _room_at(
    n: int,
    need: float,
    memory: float,
    most: int,
    reserved: Floats,
    used: Floats,
    guests: Ints,
    capacity: Floats,
    open_nodes: Bools,
    tolerance: float,
) -> int:
    """Dedicated tasks, at most `most`, that node `n` has room for without anyone having to leave it."""
    if not open_nodes[n]:
        return 0
    cpu = capacity[n, 0] - reserved[n, 0]
    if guests[n] > 0:
        cpu -= LEAST_YIELD * max(used[n, 0] - reserved[n, 0], capacity[n, 0])
    else:
        cpu += tolerance
    most = _whole(cpu, need, most)
    return _whole(capacity[n, 1] + tolerance - used[n, 1], memory, most)


@kernel
def room_beside(
    need: float,
    memory: float,
    most: int,
    reserved: Floats,
    used: Floats,
    guests: Ints,
    capacity: Floats,
    open_nodes: Bools,
    tolerance: float,
    room: Ints,
) -> int:
    """Dedicated tasks, at most `most`, for which each node has room as it is, into `room` (N,); their sum.

    `used` (N, 2) are needs and memory of all tasks there, `guests` (N,) how many of those are of guests.
    """
    total = 0
    for n in range(room.size):
        room[n] = _room_at(n, need, memory, most, reserved, used, guests, capacity, open_nodes, tolerance)
        total += room[n]
    return total


@kernel
def _shift(
    jobs: Any,
    first: Ints,
    slots: Ints,
    r: int,
    sign: int,
    subject: int,
    reserved: Floats,
    used: Floats,
    guests: Ints,
    capacity: Floats,
    open_nodes: Bools,
    tolerance: float,
) -> int:
    """Add or take away guest `r`; by how much that changes the sum of the room for row `subject`."""
    need, memory, most = jobs[subject].need, jobs[subject].memory, jobs[subject].tasks
    change = 0
    for s in range(first[r], first[r + 1]):
        n = slots[s]
        change -= _room_at(n, need, memory, most, reserved, used, guests, capacity, open_nodes, tolerance)
        used[n, 0] += sign * jobs[r].need
        used[n, 1] += sign * jobs[r].memory
        guests[n] += sign
        change += _room_at(n, need, memory, most, reserved, used, guests, capacity, open_nodes, tolerance)
    return change


@kernel
def choose_to_leave(
    jobs: Any,
    first: Ints,
    slots: Ints,
    kind: Ints,
    subject: int,
    room: int,
    order: Ints,
    reserved: Floats,
    used: Floats,
    guests: Ints,
    capacity: Floats,
    open_nodes: Bools,
    tolerance: float,
    marked: Ints,
) -> int:
    """Which guests must leave for dedicated row `subject`, into `marked` (R,); their number, 0 if in vain.

    As `dfrs.kernels.admission.choose_to_pause`: marked by increasing priority until there is room, then, by decreasing
    priority, spared where there is room without. `room` is the present sum; `used` and `guests` are modified.
    """
    tasks = jobs[subject].tasks
    count = 0
    for k in range(order.size - 1, -1, -1):
        if room >= tasks:
            break
        r = order[k]
        if kind[r] == GUEST and slots[first[r]] >= 0:
            room += _shift(jobs, first, slots, r, -1, subject, reserved, used, guests, capacity, open_nodes, tolerance)
            marked[count] = r
            count += 1
    if room < tasks:
        return 0
    kept = 0
    for k in range(count - 1, -1, -1):
        r = marked[k]
        change = _shift(jobs, first, slots, r, 1, subject, reserved, used, guests, capacity, open_nodes, tolerance)
        if room + change >= tasks:
            room += change
            marked[k] = -1
        else:
            _shift(jobs, first, slots, r, -1, subject, reserved, used, guests, capacity, open_nodes, tolerance)
    for k in range(count):
        if marked[k] >= 0:
            marked[kept] = marked[k]
            kept += 1
    return kept


@kernel
def place_dedicated(
    jobs: Any,
    first: Ints,
    slots: Ints,
    kind: Ints,
    r: int,
    order: Ints,
    reserved: Floats,
    capacity: Floats,
    open_nodes: Bools,
    tolerance: float,
    reasons: Ints,
) -> bool:
    """Give row `r` nodes, each task the one of least CPU load with room; guests leave if they must. Whether it could.

    `slots`, `kind`, `reserved` and the `reasons` of guests that left are modified.
    """
    nodes = capacity.shape[0]
    used = np.empty((nodes, 2))
    guests = np.empty(nodes, dtype=np.int64)
    room = np.empty(nodes, dtype=np.int64)
    need, memory, tasks = jobs[r].need, jobs[r].memory, jobs[r].tasks
    node_use(jobs, first, slots, used)
    count_guests(jobs, first, slots, kind, guests)
    total = room_beside(need, memory, tasks, reserved, used, guests, capacity, open_nodes, tolerance, room)
    if total < tasks:
        marked = np.empty(jobs.size, dtype=np.int64)
        count = choose_to_leave(
            jobs, first, slots, kind, r, total, order, reserved, used, guests, capacity, open_nodes, tolerance, marked
        )
        for k in range(count):
            slots[first[marked[k]] : first[marked[k] + 1]] = -1
            reasons[marked[k]] = MADE_WAY
        # Added up anew: what was taken away and put back may have left a rounding behind.
        node_use(jobs, first, slots, used)
        count_guests(jobs, first, slots, kind, guests)
        total = room_beside(need, memory, tasks, reserved, used, guests, capacity, open_nodes, tolerance, room)
        if total < tasks:
            return False
    place_by_load(jobs, first, slots, r, used, capacity, room)
    add_use(jobs, first, slots, r, 1.0, reserved)
    kind[r] = HELD
    return True


@kernel
def why_late(jobs: Any, r: int, capacity: Floats, open_nodes: Bools, tolerance: float) -> int:
    """LATE_CLOSED if the open nodes would be too few for row `r` even without any other job, else LATE_DEDICATED."""
    nodes = capacity.shape[0]
    empty = np.zeros((nodes, 2))
    none = np.zeros(nodes, dtype=np.int64)
    room = np.empty(nodes, dtype=np.int64)
    tasks = jobs[r].tasks
    alone = room_beside(jobs[r].need, jobs[r].memory, tasks, empty, empty, none, capacity, open_nodes, tolerance, room)
    return LATE_DEDICATED if alone >= tasks else LATE_CLOSED


@kernel
def _move_elsewhere(
    jobs: Any,
    first: Ints,
    before: Ints,
    slots: Ints,
    kind: Ints,
    order: Ints,
    rest: Floats,
    open_nodes: Bools,
    tolerance: float,
    reasons: Ints,
) -> None:
    """Place guests that had to leave, by decreasing priority, where memory is free and all can have LEAST_YIELD."""
    nodes = rest.shape[0]
    used = np.zeros((nodes, 2))
    room = np.empty(nodes, dtype=np.int64)
    alike = np.zeros(nodes, dtype=np.int64)
    for r in range(jobs.size):
        if kind[r] == GUEST and slots[first[r]] >= 0:
            add_use(jobs, first, slots, r, 1.0, used)
    for k in range(order.size):
        r = order[k]
        if reasons[r] != MADE_WAY:
            continue
        tasks = jobs[r].tasks
        count_room(jobs[r].memory, tasks, used, rest, open_nodes, tolerance, room)
        for n in range(nodes):
            room[n] = _whole(rest[n, 0] / LEAST_YIELD - used[n, 0], jobs[r].need, room[n]) if room[n] > 0 else 0
        if room.sum() >= tasks:
            place_by_load(jobs, first, slots, r, used, rest, room)
            keep_slots(before, slots, first[r], first[r + 1], alike)
            reasons[r] = MOVED_FOR


@kernel
def reserve(
    jobs: Any,
    first: Ints,
    before: Ints,
    capacity: Floats,
    open_nodes: Bools,
    now_s: float,
    priorities: int,
    migrates: bool,
    tolerance: float,
    slots: Ints,
    kind: Ints,
    reasons: Ints,
    policy_state: Ints,
    rest: Floats,
) -> int:
    """Give due dedicated rows their nodes, by requested start and then submission; returns how many got some.

    `slots` starts as a copy of `before`, `policy_state` (R,) as that of `jobs`; both are modified: the policy state
    of a row that finds no room says why, for when it starts. `kind`, `reasons` (R,) and `rest` (N, 2), what guests
    have of the nodes, are filled. Guests that had to leave are moved if the policy `migrates` and there is room
    elsewhere, else paused.
    """
    # Half of what others may use, so that both together stay within what a node is forgiven.
    own = 0.5 * tolerance
    reserved = np.empty(capacity.shape)
    find_kinds(jobs, first, slots, capacity, now_s, own, kind, reserved)
    reasons[:] = 0
    placed = 0
    order = np.empty(0, dtype=np.int64)
    tried = kind != DUE
    while not tried.all():
        r = -1
        for q in range(jobs.size):
            if not tried[q] and (r < 0 or jobs[q].requested_start_s < jobs[r].requested_start_s):
                r = q
        tried[r] = True
        if order.size == 0:
            order = np.empty(jobs.size, dtype=np.int64)
            by_priority(jobs, now_s, priorities, order)
        late = policy_state[r] == LATE_DEDICATED or policy_state[r] == LATE_CLOSED
        if place_dedicated(jobs, first, slots, kind, r, order, reserved, capacity, open_nodes, own, reasons):
            reasons[r] = policy_state[r] if late else ON_TIME
            if not np.isnan(jobs[r].start_s):
                reasons[r] = FREED
            placed += 1
        elif not late:
            policy_state[r] = why_late(jobs, r, capacity, open_nodes, own)
    leave_rest(capacity, reserved, own, rest)
    if migrates and placed > 0:
        _move_elsewhere(jobs, first, before, slots, kind, order, rest, open_nodes, tolerance, reasons)
    return placed
