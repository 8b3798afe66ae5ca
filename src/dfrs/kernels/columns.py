"""Columns that grow: rows of a log written without making an object each."""

from typing import Any, NamedTuple

import numpy as np

from dfrs.kernels.jit import Floats, Ints, kernel


class Log(NamedTuple):
    """An event log's columns, longer than the rows that they hold; `first` is where each row's nodes begin."""

    time_s: Floats
    job: Ints
    action: Ints
    yields: Floats
    why: Ints
    first: Ints
    nodes: Ints


@kernel
def append_commands(
    jobs: Any,
    first: Ints,
    after: Ints,
    yields: Floats,
    moved: Ints,
    reasons: Ints,
    fallback: int,
    order: Ints,
    steps: Ints,
    columns: tuple[Ints, Ints, Floats, Ints, Ints],
    bounds: Ints,
    nodes: Ints,
) -> None:
    """Write K commands into `columns` = (serial, job id, yields, moved, reason) (K,), `bounds` (K + 1,) and `nodes`.

    Commands that place a job (steps START 0, RESUME 2, MIGRATE 3) name one node a task. Where `reasons` is empty every
    command has the reason `fallback`.
    """
    serial, job_id, after_yields, tasks_moved, reason = columns
    bounds[0] = 0
    for k in range(order.size):
        r = order[k]
        step = steps[k]
        serial[k] = jobs[r].serial
        job_id[k] = jobs[r].id
        after_yields[k] = yields[r]
        tasks_moved[k] = 0
        reason[k] = 0
        end = bounds[k]
        if step in (0, 2, 3):
            tasks_moved[k] = moved[r]
            for s in range(first[r], first[r + 1]):
                nodes[end] = after[s]
                end += 1
        if step < 4:
            reason[k] = reasons[r] if reasons.size > 0 else fallback
        bounds[k + 1] = end


@kernel
def write_rows(
    time_s: float,
    rows: tuple[Ints, Ints, Floats, Ints],
    bounds: Ints,
    nodes: Ints,
    skip: int,
    at: int,
    held: int,
    log: Log,
) -> tuple[int, int]:
    """Append `rows` = (job, action, yields, why) (K,), but for actions `skip`, to `log` from row `at` on.

    It names `held` nodes so far; the new (at, held).
    """
    job, action, yields, why = rows
    for k in range(job.size):
        if action[k] == skip:
            continue
        log.time_s[at] = time_s
        log.job[at] = job[k]
        log.action[at] = action[k]
        log.yields[at] = yields[k]
        log.why[at] = why[k]
        for p in range(bounds[k], bounds[k + 1]):
            log.nodes[held] = nodes[p]
            held += 1
        at += 1
        log.first[at] = held
    return at, held


def grown(array: np.ndarray, size: int) -> np.ndarray:
    """`array` itself, or a copy of at least `size` and twice its length."""
    if size <= len(array):
        return array
    larger = np.zeros(max(size, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger
