"""How simulated jobs get on: progress at the rate of their yield, none during a penalty ([Stillwell2010] 5.1, 5.3.1).

`table` (J,) is a record array with fields run_s, memory, progress_s, rate, since_s, ready_s, finish_s, speed, turn,
checkpoint_s: progress up to `since_s` is accounted, it goes on by `rate`, the yield times `speed`, and nothing
progresses before `ready_s`; jobs done at the same instant are done in the order of `turn`.
"""

import math
from typing import Any

import numpy as np

from dfrs.kernels.jit import Floats, Ints, kernel

START, PAUSE, RESUME, MIGRATE, SHARE = range(5)
LOST = 6
NEARLY = 1e-9
"""A check-point that is due within so much of the time between two has been made: sums are rounded."""


@kernel
def checkpointed(progress_s: float, every_s: float) -> float:
    """What a job keeps that makes a check-point after each `every_s` of progress, 0: never."""
    return math.floor(progress_s / every_s + NEARLY) * every_s if every_s > 0.0 else 0.0


@kernel
def _account(table: Any, j: int, now_s: float) -> None:
    """Bring job j's progress up to now; what was due by now is done to the last bit."""
    if table[j].finish_s <= now_s:
        table[j].progress_s = table[j].run_s
    else:
        since = max(table[j].since_s, table[j].ready_s)
        if now_s > since:
            table[j].progress_s = min(table[j].progress_s + table[j].rate * (now_s - since), table[j].run_s)
    table[j].since_s = now_s


@kernel
def _predict(table: Any, j: int, now_s: float) -> None:
    """When job j will be done if nothing changes."""
    left = table[j].run_s - table[j].progress_s
    if left <= 0.0:
        table[j].finish_s = max(now_s, table[j].ready_s)
    elif table[j].rate > 0.0:
        table[j].finish_s = max(now_s, table[j].ready_s) + left / table[j].rate
    else:
        table[j].finish_s = np.inf


@kernel
def perform(
    table: Any,
    running: Ints,
    count: int,
    now_s: float,
    commands: tuple[Ints, Ints, Floats, Ints],
    penalty_s: float,
    copy_s: float,
    speeds: Floats,
    serials: Ints,
    ready_s: Floats,
) -> tuple[int, int]:
    """Carry out `commands` = (action, job, yields, tasks moved) (K,) on `table` and the first `count` of `running`.

    A resume or migration costs `penalty_s` without progress from now, and `copy_s` for each node's memory copied. Jobs
    placed go into `serials`, the time when their penalty is over into `ready_s`. `speeds` (K,), or empty where nodes
    are alike, are those of the jobs where commands put them. Returns (count, jobs placed).
    """
    action, job, yields, moved = commands
    placed = 0
    for k in range(action.size):
        j = job[k]
        step = action[k]
        if step in (SHARE, PAUSE, MIGRATE, LOST):
            _account(table, j, now_s)
        if speeds.size > 0 and step in (START, RESUME, MIGRATE):
            table[j].speed = speeds[k]
        if step in (SHARE, MIGRATE):
            table[j].rate = yields[k] * table[j].speed
        elif step in (START, RESUME):
            table[j].rate = yields[k] * table[j].speed
            table[j].since_s = now_s
            running[count] = j
            count += 1
        elif step in (PAUSE, LOST):
            table[j].rate = 0.0
            table[j].finish_s = np.inf
            if step == LOST:
                table[j].progress_s = checkpointed(table[j].progress_s, table[j].checkpoint_s)
            count = drop(running, count, j)
            continue
        else:
            continue
        if step != SHARE:
            cost_s = 0.0 if step == START else penalty_s + copy_s * moved[k] * table[j].memory
            table[j].ready_s = now_s + cost_s
            serials[placed] = j
            ready_s[placed] = table[j].ready_s
            placed += 1
        _predict(table, j, now_s)
    return count, placed


@kernel
def delay(table: Any, job: int, ready_s: float, now_s: float) -> None:
    """A job that was placed just now makes no progress before `ready_s`."""
    table[job].ready_s = ready_s
    _predict(table, job, now_s)


@kernel
def amend(table: Any, job: int, amount_s: float, least_s: float, now_s: float) -> float:
    """Change the processing time of a job that is not done; by how much it changed.

    It stays at least `least_s` (or what it was, if that is less) and at least what the job has done.
    """
    if table[job].rate > 0.0:
        _account(table, job, now_s)
    before = table[job].run_s
    least = max(min(before, least_s), table[job].progress_s)
    table[job].run_s = max(before + amount_s, least)
    if table[job].rate > 0.0:
        _predict(table, job, now_s)
    return amount_s if before + amount_s >= least else least - before


@kernel
def drop(running: Ints, count: int, job: int) -> int:
    """Take a job out of the first `count` of `running`; the new count. The last takes its place."""
    for p in range(count):
        if running[p] == job:
            running[p] = running[count - 1]
            return count - 1
    return count


@kernel
def next_completion(table: Any, running: Ints, count: int) -> tuple[float, int]:
    """(time, job) of the earliest completion among the running, ties to the least `turn`; (inf, -1) if none."""
    time_s = np.inf
    turn = -np.inf
    job = -1
    for p in range(count):
        j = running[p]
        finish = table[j].finish_s
        if finish < time_s or (finish == time_s and table[j].turn < turn):
            time_s = finish
            turn = table[j].turn
            job = j
    return time_s, job
