"""Equal parts of a node's CPU for all tasks on it: EQUIPARTITION ([Stillwell2010] section 5.1.2, Theorem 4).

`jobs` is a record array with the fields of `dfrs.model.decisions.JOB`; row r owns slots first[r] to first[r + 1] of
`task_nodes`, all -1 unless it is on nodes.
"""

from typing import Any

import numpy as np

from dfrs.kernels.jit import Bools, Floats, Ints, kernel

ROOM, FREED = 1, 2
"""Values of `dfrs.model.decisions.Reason`."""


@kernel
def equipartition(
    jobs: Any,
    first: Ints,
    task_nodes: Ints,
    capacity: Floats,
    is_open: Bools,
    tolerance: float,
    subject: int,
    after: Ints,
    yields: Floats,
    reasons: Ints,
) -> int:
    """Place waiting jobs whose memory fits, task by task on the open node with the fewest; share CPU equally by task.

    A job whose most crowded node gives each of its tasks a part c of CPU has yield min(1, c / need). The subject's
    reason is ROOM, other starting jobs' FREED. Fills `after` (slots), `yields` (R,) and `reasons` (R, zeros on entry);
    returns how many rows change.
    """
    nodes = len(capacity)
    crowd = np.zeros(nodes, np.int64)
    room = capacity[:, 1] + tolerance
    for r in range(len(jobs)):
        if task_nodes[first[r]] >= 0:
            for s in range(first[r], first[r + 1]):
                crowd[task_nodes[s]] += 1
                room[task_nodes[s]] -= jobs[r].memory
    after[:] = task_nodes
    changed = 0
    for r in range(len(jobs)):
        if after[first[r]] < 0 and _place_thinly(
            jobs[r].memory, first[r], first[r + 1], capacity, is_open, crowd, room, after
        ):
            reasons[r] = ROOM if r == subject else FREED
    for r in range(len(jobs)):
        yields[r] = 0.0
        if after[first[r]] >= 0:
            part = np.inf
            for s in range(first[r], first[r + 1]):
                part = min(part, capacity[after[s], 0] / crowd[after[s]])
            yields[r] = min(1.0, part / jobs[r].need)
        if yields[r] != jobs[r].yield_ or after[first[r]] != task_nodes[first[r]]:
            changed += 1
    return changed


@kernel
def _place_thinly(
    memory: float, begin: int, end: int, capacity: Floats, is_open: Bools, crowd: Ints, room: Floats, after: Ints
) -> bool:
    """Put slots `begin` to `end` on nodes, or leave everything as it was; modifies crowd, room and after."""
    for s in range(begin, end):
        best = -1
        for n in range(len(crowd)):
            if is_open[n] and capacity[n, 0] > 0.0 and memory <= room[n] and (best < 0 or crowd[n] < crowd[best]):
                best = n
        if best < 0:
            for p in range(begin, s):
                crowd[after[p]] -= 1
                room[after[p]] += memory
                after[p] = -1
            return False
        after[s] = best
        crowd[best] += 1
        room[best] -= memory
    return True
