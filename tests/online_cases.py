"""Inputs for the on-line kernels, the core and the simulator, built from a source of choices as in `tests.cases`.

Sizes are of eighths or of tenths, so that nodes are often exactly full: then jobs that exchange nodes block each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dfrs.model.decisions import JOB, PAUSED, RUNNING, WAITING, Cause, Reason, Snapshot, Target
from dfrs.model.instance import Bools, Floats, Ints
from dfrs.model.jobs import LATEST_S, Workload
from tests.cases import Source
from tests.frozen import frozen

NO_NODE = -1
LAST_REASON = int(max(Reason))
GRAINS = (4, 8, 10)


@dataclass(frozen=True, kw_only=True)
class OnlineCase:
    """A present state and an admissible target, laid out as in `dfrs.model.decisions`."""

    now_s: float
    jobs: Any
    first: Ints
    before: Ints
    after: Ints
    yields: Floats
    capacity: Floats
    open: Bools
    reasons: Ints

    @property
    def rows(self) -> int:
        return len(self.jobs)

    def slots(self, row: int) -> slice:
        return slice(int(self.first[row]), int(self.first[row + 1]))

    def snapshot(self, cause: Cause = Cause.WAKE) -> Snapshot:
        return frozen(
            Snapshot(self.now_s, cause, -1, self.capacity, self.open, self.jobs, self.first, self.before, 0.0)
        )

    def target(self, **changes: Any) -> Target:
        return replace(Target(self.after, self.yields), **changes)


def job_table(source: Source, rows: int, now_s: float, grain: int, *, full: bool = False) -> tuple[Any, Ints]:
    """(jobs, first): rows that all wait; of whole nodes if `full`."""
    jobs = np.zeros(rows, JOB)
    jobs["id"] = 100 + source.permutation(rows)
    jobs["serial"] = np.cumsum([source.integer(1, 3) for _ in range(rows)])
    jobs["tasks"] = [source.integer(1, 3) for _ in range(rows)]
    jobs["need"] = [source.integer(1, grain) / grain for _ in range(rows)]
    jobs["memory"] = 1.0 if full else [source.integer(0, grain // 2) / grain for _ in range(rows)]
    jobs["weight"] = jobs["speed"] = 1.0
    jobs["estimate_s"] = np.nan
    jobs["requested_start_s"] = np.nan
    jobs["submit_s"] = np.sort([now_s - source.integer(0, 100) for _ in range(rows)])
    jobs["start_s"] = np.nan
    jobs["since_s"] = jobs["submit_s"]
    jobs["ready_s"] = np.inf
    return jobs, np.concatenate([[0], np.cumsum(jobs["tasks"])]).astype(np.int64)


def random_nodes(source: Source, jobs: Any, first: Ints, capacity: Floats, rows: Sequence[int]) -> Ints:
    """Slots with the tasks of `rows` wherever a random order of nodes has memory for them, if for all of a row."""
    at = np.full(int(first[-1]), NO_NODE, np.int64)
    room = capacity[:, 1].copy()
    for r in rows:
        chosen, left = [], room.copy()
        for _ in range(int(jobs["tasks"][r])):
            fits = [n for n in source.permutation(len(capacity)).tolist() if left[n] >= jobs["memory"][r] - 1e-9]
            if not fits:
                break
            chosen.append(fits[0])
            left[fits[0]] -= jobs["memory"][r]
        if len(chosen) == jobs["tasks"][r]:
            at[first[r] : first[r + 1]] = chosen
            room = left
    return at


def random_yields(source: Source, jobs: Any, first: Ints, capacity: Floats, at: Ints) -> Floats:
    """The largest equal yield for some, a part of it for others: nodes are often exactly full."""
    load = np.zeros(len(capacity))
    placed = [r for r in range(len(jobs)) if at[first[r]] >= 0]
    for r in placed:
        np.add.at(load, at[first[r] : first[r + 1]], jobs["need"][r])
    yields = np.zeros(len(jobs))
    for r in placed:
        nodes = at[first[r] : first[r + 1]]
        most = min(1.0, float((capacity[nodes, 0] / load[nodes]).min()))
        yields[r] = most * source.pick((1.0, 1.0, 0.5, 0.0))
    return yields


def reconcile_case(source: Source) -> OnlineCase:
    grain, full = source.pick(GRAINS), source.integer(0, 3) == 0
    nodes, rows = source.integer(1, 5), source.integer(0, 7)
    now_s = float(source.integer(200, 1000))
    capacity = np.ones((nodes, 2))
    if source.integer(0, 2) == 0:
        capacity = np.array([[source.pick((0.5, 1.0, 2.0)), source.pick((0.5, 1.0, 1.5))] for _ in range(nodes)])
    jobs, first = job_table(source, rows, now_s, grain, full=full)
    before = random_nodes(source, jobs, first, capacity, source.permutation(rows).tolist())
    jobs["yield_"] = random_yields(source, jobs, first, capacity, before)
    for r in range(rows):
        jobs["pauses"][r] = source.integer(0, 2)
        jobs["migrations"][r] = source.integer(0, 2)
        if before[first[r]] >= 0:
            jobs["state"][r] = RUNNING
            jobs["start_s"][r] = jobs["submit_s"][r]
            jobs["ready_s"][r] = now_s + source.pick((-20.0, 0.0, 30.0, np.inf))
        elif source.integer(0, 1):
            jobs["state"][r] = PAUSED
            jobs["start_s"][r] = jobs["submit_s"][r]
        else:
            jobs["state"][r] = WAITING
            jobs["start_s"][r] = source.pick((np.nan, float(jobs["submit_s"][r])))
    after, yields = _target(source, jobs, first, capacity, before)
    return OnlineCase(
        now_s=now_s,
        jobs=jobs,
        first=first,
        before=before,
        after=after,
        yields=yields,
        capacity=capacity,
        open=np.array([source.integer(0, 3) > 0 for _ in range(nodes)]),
        reasons=np.array([source.integer(0, 11) for _ in range(source.pick((0, rows)))], dtype=np.int64),
    )


def _target(source: Source, jobs: Any, first: Ints, capacity: Floats, before: Ints) -> tuple[Ints, Floats]:
    """Nodes exchanged, all placed anew, tasks in another order, or the present with a few rows left out."""
    rows = len(jobs)
    kind = source.integer(0, 3)
    equal = bool((capacity == capacity[0]).all())
    if kind == 0 and equal:
        exchanged = source.permutation(len(capacity))
        after = np.where(before >= 0, exchanged[before], NO_NODE)
    elif kind == 1:
        after = before.copy()
        for r in range(rows):
            if source.integer(0, 3) == 0:
                after[first[r] : first[r + 1]] = NO_NODE
    else:
        after = random_nodes(source, jobs, first, capacity, source.permutation(rows).tolist())
    for r in range(rows):
        part = after[first[r] : first[r + 1]]
        part[:] = part[source.permutation(len(part))]
    if kind == 0 and equal and source.integer(0, 1):
        return after, np.array(jobs["yield_"])
    return after, random_yields(source, jobs, first, capacity, after)


def broken_case(source: Source) -> OnlineCase:
    """As `reconcile_case`, but often with a target that is not admissible."""
    case = reconcile_case(source)
    after, yields = case.after.copy(), case.yields.copy()
    if source.integer(0, 3) == 0:
        yields = np.where(yields > 0, np.minimum(yields + 1e-10, 1.0), yields)
    for _ in range(source.integer(0, 2) if case.rows else 0):
        r = source.integer(0, case.rows - 1)
        slot = source.integer(int(case.first[r]), int(case.first[r + 1]) - 1)
        kind = source.integer(0, 4)
        if kind == 0:
            yields[r] = source.pick((np.nan, -0.5, 1.0, 1.0000001, np.inf))
        elif kind == 1:
            after[slot] = source.pick((-2, -1, len(case.capacity), len(case.capacity) - 1))
        elif kind == 2:
            after[case.slots(r)] = 0
        elif kind == 3:
            after[case.slots(r)] = NO_NODE
        else:
            yields[r] = min(1.0, float(yields[r]) + 0.125)
    reasons = case.reasons.copy()
    if len(reasons) and source.integer(0, 2) == 0:
        reasons[source.integer(0, len(reasons) - 1)] = source.pick((-1, LAST_REASON, LAST_REASON + 1))
    return replace(case, after=after, yields=yields, reasons=reasons)


@dataclass(frozen=True, kw_only=True)
class ProgressCase:
    """Jobs of a simulated world and instants at each of which some commands are performed."""

    run_s: Floats
    memory: Floats
    penalty_s: float
    copy_s: float
    instants: tuple[tuple[float, tuple[tuple[int, int, float, int], ...]], ...]
    """(time, commands (action, job, yield, tasks moved)); what is not possible then is passed over."""


def progress_case(source: Source) -> ProgressCase:
    jobs = source.integer(1, 5)
    time_s, instants = 0.0, []
    for _ in range(source.integer(1, 12)):
        time_s += source.pick((0.0, 0.1, 1.0, 7.5, 30.0, 1 / 3))
        commands = tuple(
            (
                source.pick((0, 0, 1, 2, 3, 4, 4, 6, 10)),
                source.integer(0, jobs - 1),
                source.pick((0.0, 0.1, 0.25, 1 / 3, 0.7, 1.0)),
                source.integer(1, 4),
            )
            for _ in range(source.integer(0, 4))
        )
        instants.append((time_s, commands))
    return ProgressCase(
        run_s=np.array([source.pick((0.1, 1.0, 5.0, 10.0, 1 / 3, 40.0)) for _ in range(jobs)]),
        memory=np.array([source.integer(0, 10) / 10 for _ in range(jobs)]),
        penalty_s=source.pick((0.0, 0.0, 3.0, 0.7)),
        copy_s=source.pick((0.0, 2.0, 0.3)),
        instants=tuple(instants),
    )


def random_workload(seed: int, *, jobs: int = 30, nodes: int = 4, spread_s: float = 40.0, name: str = "w") -> Workload:
    """Rigid jobs, many with the same sizes and some submitted at the same instant; all of them fit."""
    rng = np.random.default_rng(seed)
    submit_s = np.cumsum(rng.exponential(spread_s, jobs) * (rng.random(jobs) > 0.3))
    run_s = np.where(rng.random(jobs) < 0.5, rng.integers(1, 200, jobs), np.exp(rng.normal(3.5, 1.5, jobs)))
    return Workload(
        job_id=rng.permutation(jobs) + 1,
        submit_s=np.round(submit_s, 1),
        tasks=rng.integers(1, nodes, jobs, endpoint=True),
        need=rng.choice([0.1, 0.25, 0.5, 1.0], jobs),
        memory=rng.choice([0.0, 0.1, 0.3, 0.5, 1.0], jobs, p=[0.1, 0.4, 0.2, 0.2, 0.1]),
        run_s=run_s,
        estimate_s=run_s * rng.choice([1.0, 1.0, 2.5], jobs),
        user=rng.integers(-1, 5, jobs),
        weight=np.ones(jobs),
        nodes=nodes,
        name=name,
    )


def edge_workload(source: Source) -> Workload:
    """No job, one, or many that are equal; at the same instants or at the last that there are; done at once, larger
    than the cluster, past their estimates or without one.
    """
    jobs, nodes = source.pick((0, 1, 2, 5, 12)), source.pick((1, 1, 2, 4))
    equal, latest = source.integer(0, 3) == 0, source.integer(0, 4) == 0
    steps = source.pick(((0.0,), (0.0, 10.0, 20.0), (0.1, 1 / 3, 7.5)))
    run_s = source.pick(((10.0,), (1e-9, 5e-324, 20.0), (0.1, 1 / 3, 33.3), (1.0, 100.0)))
    rows = [
        (
            source.pick(steps),
            source.pick((1, 1, 2, 5)),
            source.pick((1e-9, 0.25, 1 / 3, 1.0)),
            source.pick((0.0, 0.1, 1 / 3, 0.5, 1.0)),
            source.pick(run_s),
            source.pick((0.5, 1.0, 1.0, 2.5, 1e6, np.nan)),
        )
        for _ in range(min(jobs, 1) if equal else jobs)
    ] * (jobs if equal else 1)
    columns = np.array(rows, dtype=np.float64).reshape(-1, 6).T
    return Workload(
        job_id=1 + source.permutation(jobs),
        submit_s=LATEST_S - 20.0 + columns[0] if latest else columns[0],
        tasks=columns[1].astype(np.int64),
        need=columns[2],
        memory=columns[3],
        run_s=columns[4],
        # Reservations so short would be made anew a million times a second.
        estimate_s=np.maximum(columns[4] * columns[5], 0.05),
        user=np.full(jobs, -1),
        weight=np.array([source.pick((1.0, 1.0, 0.5)) for _ in range(jobs)]),
        nodes=nodes,
        name="edge",
    )


def plain_workload(rows: Sequence[Sequence[float]], nodes: int = 1, name: str = "plain") -> Workload:
    """From rows (submission, tasks, need, memory, processing time); jobs are called 1, 2, …"""
    submit_s, tasks, need, memory, run_s = (np.array(column, dtype=np.float64) for column in zip(*rows, strict=True))
    jobs = len(rows)
    return Workload(
        job_id=np.arange(1, jobs + 1),
        submit_s=submit_s,
        tasks=tasks.astype(np.int64),
        need=need,
        memory=memory,
        run_s=run_s,
        estimate_s=run_s.copy(),
        user=np.full(jobs, -1),
        weight=np.ones(jobs),
        nodes=nodes,
        name=name,
    )


def empty_workload(nodes: int = 2) -> Workload:
    none, names = np.zeros(0), np.zeros(0, np.int64)
    return Workload(
        job_id=names,
        submit_s=none,
        tasks=names,
        need=none,
        memory=none,
        run_s=none,
        estimate_s=none,
        user=names,
        weight=none,
        nodes=nodes,
        name="empty",
    )
