"""The core's account of jobs: virtual time, rows that come and go ([Stillwell2010] section 5.1).

`jobs` is a record array with the fields of `dfrs.model.decisions.JOB`; row r owns slots first[r] to first[r + 1] of
`task_nodes`.
"""

from typing import Any

import numpy as np

from dfrs.kernels.jit import Floats, Ints, kernel

WAITING, RUNNING = 0, 1
NOT_FOUND = -1


@kernel
def advance(jobs: Any, rows: int, then_s: float, now_s: float) -> None:
    """Add to the virtual time of the first `rows` jobs what yield times speed makes of [then_s, now_s]; in place.

    A job makes no progress before its `ready_s`.
    """
    for r in range(rows):
        if jobs[r].state == RUNNING:
            since = max(then_s, jobs[r].ready_s)
            if now_s > since:
                jobs[r].virtual_s += jobs[r].yield_ * jobs[r].speed * (now_s - since)


@kernel
def row_of(jobs: Any, rows: int, job_id: int) -> int:
    """The row of the job with that id, or NOT_FOUND."""
    for r in range(rows):
        if jobs[r].id == job_id:
            return r
    return NOT_FOUND


@kernel
def add_row(
    jobs: Any,
    first: Ints,
    task_nodes: Ints,
    rows: int,
    serial: int,
    now_s: float,
    job: tuple[int, int, int, float, float, float, float, float, float],
) -> None:
    """Append a job submitted now, without nodes; all three arrays are modified, and must have room.

    `job` is (id, user, tasks, need, memory, weight, estimate, requested start, minimum).
    """
    own = jobs[rows]
    (
        own.id,
        own.user,
        own.tasks,
        own.need,
        own.memory,
        own.weight,
        own.estimate_s,
        own.requested_start_s,
        own.minimum,
    ) = job
    own.serial = serial
    own.state = WAITING
    own.submit_s = now_s
    own.virtual_s = 0.0
    own.yield_ = 0.0
    own.start_s = np.nan
    own.since_s = now_s
    own.ready_s = np.inf
    own.pauses = 0
    own.migrations = 0
    own.policy_state = 0
    own.changes = 0
    own.extensions = 0
    own.speed = 1.0
    first[rows + 1] = first[rows] + own.tasks
    task_nodes[first[rows] : first[rows + 1]] = -1


@kernel
def remove_row(jobs: Any, first: Ints, task_nodes: Ints, rows: int, row: int) -> None:
    """Take a row and its slots out; later rows move up. All three arrays are modified."""
    begin = first[row]
    width = first[row + 1] - begin
    for s in range(begin, first[rows] - width):
        task_nodes[s] = task_nodes[s + width]
    for r in range(row, rows - 1):
        jobs[r] = jobs[r + 1]
        first[r + 1] = first[r + 2] - width


@kernel
def resize_row(jobs: Any, first: Ints, task_nodes: Ints, rows: int, row: int, tasks: int) -> None:
    """Give a row `tasks` tasks: the last ones go, or new ones without a node come after them; later slots move.

    All three arrays are modified; `task_nodes` must have room.
    """
    shift = tasks - jobs[row].tasks
    if shift > 0:
        for s in range(first[rows] - 1, first[row + 1] - 1, -1):
            task_nodes[s + shift] = task_nodes[s]
        for s in range(first[row + 1], first[row + 1] + shift):
            task_nodes[s] = -1
    else:
        for s in range(first[row + 1], first[rows]):
            task_nodes[s + shift] = task_nodes[s]
    for r in range(row + 1, rows + 1):
        first[r] += shift
    jobs[row].tasks = tasks


@kernel
def row_of_serial(jobs: Any, rows: int, serial: int) -> int:
    """The row of a job by its serial number, which counts up by row; -1 if it is gone."""
    low = 0
    high = rows
    while low < high:
        middle = (low + high) // 2
        if jobs[middle].serial < serial:
            low = middle + 1
        else:
            high = middle
    return low if low < rows and jobs[low].serial == serial else -1


@kernel
def set_ready(jobs: Any, rows: int, serials: Ints, ready_s: Floats) -> None:
    """Note from when on these jobs make progress; jobs that are gone are passed over."""
    for k in range(serials.size):
        row = row_of_serial(jobs, rows, serials[k])
        if row >= 0:
            jobs[row].ready_s = ready_s[k]


@kernel
def set_virtual(jobs: Any, rows: int, serials: Ints, virtual_s: Floats) -> None:
    """Note what these jobs have received; jobs that are gone are passed over."""
    for k in range(serials.size):
        row = row_of_serial(jobs, rows, serials[k])
        if row >= 0:
            jobs[row].virtual_s = virtual_s[k]


@kernel
def lose_node(jobs: Any, first: Ints, task_nodes: Ints, rows: int, node: int, lost: Ints) -> int:
    """Return the jobs with a task on `node` to the queue. Their rows go into `lost`; count."""
    count = 0
    for r in range(rows):
        here = False
        for s in range(first[r], first[r + 1]):
            here |= task_nodes[s] == node
        if here:
            for s in range(first[r], first[r + 1]):
                task_nodes[s] = -1
            jobs[r].state = WAITING
            jobs[r].yield_ = 0.0
            lost[count] = r
            count += 1
    return count
