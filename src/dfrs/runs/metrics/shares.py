"""What becomes of the CPU of a cluster: shares that add up to 1, of the nodes that are not down.

CPU is given to jobs, or it is free. What is given makes progress, unless the job waits for the end of a penalty; and
progress is for nothing where a failing node takes it away later. What is free is lost only as far as somebody could use
it: Krevat, Castaños and Moreira (Job Scheduling for the BlueGene/L System, JSSPP 2002) call free capacity *unused* as
far as it exceeds what waiting jobs ask for, and *lost* otherwise. Here lost capacity is further divided by who asks, in
the order running, paused, waiting: a later group is counted only for what the earlier ones leave.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from dfrs.model.decisions import CPU, MEMORY, PAUSED, RUNNING, WAITING
from dfrs.model.instance import Bools, Floats, Ints
from dfrs.model.nodes import most_tasks
from dfrs.model.run import Action, Run
from dfrs.runs.metrics.intervals import (
    UNIT,
    Intervals,
    Steps,
    down_times,
    in_vain,
    job_intervals,
    tasks_of,
    unit_for,
)
from dfrs.runs.metrics.window import Window

SHARES = (
    "cpu_share_useful",
    "cpu_share_failures",
    "cpu_share_penalty",
    "cpu_share_whole_nodes",
    "cpu_share_free_running",
    "cpu_share_free_paused",
    "cpu_share_free_waiting",
    "cpu_share_not_wanted",
)

_SHIFT = 16
"""Queues may ask for so much more than a cluster has: what they ask is summed in units that are 2**16 times larger."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Levels:
    """CPU over time, in integers (times `steps.unit`): what nodes have that are up; its parts in order of SHARES."""

    pieces: Intervals
    """Intervals in which a job makes progress all the time or never; the first things of which `steps` are made."""
    steps: Steps
    offered: Ints
    parts: list[Ints]

    def seconds(self, level: Ints) -> float:
        """CPU seconds of a level."""
        return float((level * self.steps.length_s).sum())


def cpu_shares(run: Run, intervals: Intervals, window: Window) -> dict[str, float | None]:
    """Each of SHARES, by integrals over a window of `intervals` within it; None where no node is up in it."""
    levels = _levels(run, intervals, window)
    total = levels.seconds(levels.offered)
    seconds = [levels.seconds(part) for part in levels.parts]
    return {name: part / total if total > 0 else None for name, part in zip(SHARES, seconds, strict=True)}


def cpu_share_no_room(run: Run, window: Window) -> float | None:
    """Of what is free while paused or waiting jobs could use it, the share at times at which none of these had room.

    A job has room if the nodes that take new tasks have the memory for all of its tasks, or where jobs have nodes for
    themselves, if free nodes hold them all. The rest was free because of the policy's order.
    """
    levels = _levels(run, job_intervals(run).within(window.from_s, window.to_s), window)
    total = levels.seconds(levels.offered)
    lost = levels.parts[SHARES.index("cpu_share_free_paused")] + levels.parts[SHARES.index("cpu_share_free_waiting")]
    return levels.seconds(np.where(_no_room(run, levels), lost, 0)) / total if total > 0 else None


def _levels(run: Run, intervals: Intervals, window: Window) -> _Levels:
    pieces, lost = in_vain(run, intervals.cut_at_ready())
    down = down_times(run, window.from_s, window.to_s)
    cpu = run.capacity[:, CPU]
    at_s = run.events.time_s[run.events.job < 0]
    at_s = at_s[(at_s > window.from_s) & (at_s < window.to_s)]
    steps = Steps(
        np.concatenate([pieces.begin_s, down.begin_s, [window.from_s], at_s]),
        np.concatenate([pieces.end_s, down.end_s, [window.to_s], at_s]),
        unit_for(float(cpu.sum())),
    )
    others = np.zeros(len(down.node) + 1 + len(at_s))

    def level(amount: Floats) -> Ints:
        return steps.total(np.concatenate([amount, others]))

    def asked_of(free: Ints, amount: Floats) -> Ints:
        wanted = level(amount / 2.0**_SHIFT)
        little = wanted < free >> _SHIFT
        return np.where(little, np.where(little, wanted, 0) << _SHIFT, free)

    work, job = run.workload, pieces.job
    runs = pieces.state == RUNNING
    given = tasks_of(run, pieces) * work.need[job] * pieces.yield_
    progresses = pieces.begin_s >= pieces.ready_s
    nodes = np.concatenate([np.zeros(len(job)), -cpu[down.node], [cpu.sum()], np.zeros(len(at_s))])
    offered = steps.total(nodes)
    whole = _held(run)[pieces.placement] if run.configuration.get("exclusive") else given
    used = level(given)
    free = np.maximum(offered - level(whole), 0)
    full = np.where(runs, tasks_of(run, pieces), work.tasks[job]) * work.need[job]
    parts = [
        level(np.where(progresses & ~lost, given, 0.0)),
        level(np.where(progresses & lost, given, 0.0)),
    ]
    parts.append(used - parts[0] - parts[1])
    parts.append(offered - used - free)
    for state in (RUNNING, PAUSED, WAITING):
        parts.append(asked_of(free, np.where(pieces.state == state, full - given, 0.0)))
        free = free - parts[-1]
    return _Levels(pieces=pieces, steps=steps, offered=offered, parts=[*parts, free])


def _no_room(run: Run, levels: _Levels) -> Bools:
    """(K,) whether in each step none of the jobs that are paused or wait would fit."""
    pieces, steps, work = levels.pieces, levels.steps, run.workload
    exclusive = bool(run.configuration.get("exclusive"))
    memory = np.rint(run.capacity[:, MEMORY] * UNIT).astype(np.int64)
    per_task = np.rint(work.memory * UNIT).astype(np.int64)
    tasks_on, takes = np.zeros(len(memory), np.int64), np.ones(len(memory), np.bool_)
    # Jobs of one need and requirement differ in tasks alone: the one with the fewest fits if any does.
    queues: dict[tuple[float, float], list[int]] = defaultdict(list)
    condition_rows = np.flatnonzero(run.events.job < 0).tolist()
    count = len(pieces.job)
    begins = iter(np.argsort(steps.begin[:count], kind="stable").tolist())
    ends = iter(np.argsort(steps.end[:count], kind="stable").tolist())
    begin, end, condition = next(begins, -1), next(ends, -1), 0

    def change(piece: int, sign: int) -> None:
        job = int(pieces.job[piece])
        if pieces.state[piece] == RUNNING:
            nodes = run.events.nodes_of(int(pieces.placement[piece]))
            np.subtract.at(memory, nodes, sign * per_task[job])
            np.add.at(tasks_on, nodes, sign)
            return
        queue = queues[float(work.need[job]), float(work.memory[job])]
        if sign > 0:
            insort(queue, int(work.tasks[job]))
        else:
            del queue[bisect_left(queue, int(work.tasks[job]))]

    found = np.zeros(steps.count, np.bool_)
    for k, at_s in enumerate(steps.time_s[:-1].tolist()):
        while end >= 0 and steps.end[end] <= k:
            change(end, -1)
            end = next(ends, -1)
        while begin >= 0 and steps.begin[begin] <= k:
            change(begin, 1)
            begin = next(begins, -1)
        while condition < len(condition_rows) and run.events.time_s[condition_rows[condition]] <= at_s:
            row = condition_rows[condition]
            takes[run.events.nodes_of(row)] = run.events.action[row] == Action.UP
            condition += 1
        waiting = [(*kind, queue[0]) for kind, queue in queues.items() if queue]
        nodes = takes & (tasks_on == 0) if exclusive else takes
        left = np.column_stack([run.capacity[nodes, CPU], memory[nodes] / UNIT])
        found[k] = not any(
            most_tasks(left, need, required, exclusive=exclusive) >= tasks for need, required, tasks in waiting
        )
    return found


def _held(run: Run) -> Floats:
    """(E + 1,) CPU of the nodes that each row names; 0 at the end, for who has none."""
    events = run.events
    row = np.repeat(np.arange(len(events)), np.diff(events.first))
    nodes = len(run.capacity)
    each = np.unique(row * nodes + events.nodes)
    return np.bincount(each // nodes, run.capacity[each % nodes, CPU], len(events) + 1).astype(np.float64)
