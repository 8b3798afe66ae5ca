"""The discovery of needs, driven by what agents report: the shell around a `Discovery`."""

import asyncio
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import structlog

from dfrs.live.controller.received import LEAST_PART
from dfrs.live.controller.records import JobRecord, TaskRecord
from dfrs.live.controller.state import State
from dfrs.live.drivers.base import Usage as TaskUsage
from dfrs.model.instance import Floats, Ints
from dfrs.model.needs import TASK, UNKNOWN, USAGE, Discovery, Revision, Tasks, Usage, new_tasks

SAME_SHARE = 0.002
"""A share that changes by no more than this part of it is the same, and nobody is told."""
MOST_APART_S = 30.0
"""Two reports that are further apart say nothing of the time between them."""
NOBODY = 0
"""In the place of a job's number: a row that no task has."""
LEAST_ROWS = 16
"""So many are added at least."""
DISCOVERY_RETRY_S = 10.0
"""So long after a failure it is tried again."""

log = structlog.get_logger(__name__)
Key = tuple[int, int]


class Observer:
    """One table of all tasks that have begun; those that run now are observed."""

    def __init__(self, discovery: Discovery | None, *, weighted: bool = False) -> None:
        self.discovery = discovery
        self._weighted = weighted
        """Whether shares that discovery gives are multiplied by the weights of jobs."""
        self.next_s = 0.0
        self._table: Tasks = np.zeros(0, TASK)
        """With rows that nobody has: those of tasks that are no more."""
        self._row: dict[Key, int] = {}
        """Where each task is in the table."""
        self._free: list[int] = []
        """The other rows."""
        self._told: Floats = np.zeros(0)
        """The error of each row as `errors` gave it last; NaN: never."""
        self._tasks: list[TaskRecord] = []
        """Those that are observed,"""
        self._watched: Ints = np.zeros(0, np.int64)
        """their rows,"""
        self._promised: list[float] = []
        """the part of the reference node that each was promised,"""
        self._factors: list[float] = []
        """and what its weight is multiplied by."""
        self._shares: Mapping[Key, float] = {}

    def due(self, now_s: float, changed: bool) -> bool:
        """Whether discovery is to be asked now."""
        return self.discovery is not None and (changed or now_s >= self.next_s)

    @property
    def watching(self) -> bool:
        """Whether any task was there at the last step."""
        return bool(self._tasks)

    def observe(self, capacity: Floats, reference_cores: float) -> tuple[Tasks, Usage]:
        """The table of the last step, and what its tasks did since then."""
        table = self._table[self._watched]
        usage = _nothing(table, capacity, self._factors)
        seen = np.array([_seen(task) for task in self._tasks]).reshape(-1, len(_NOT_SEEN))
        seconds, cpu_s, throttled_s, waiting_s, delayed_s = seen.T
        usage["seconds"] = seconds
        usage["used_s"] = cpu_s / reference_cores
        usage["throttled_s"], usage["delayed_s"] = throttled_s, delayed_s
        usage["idle_s"] = np.maximum(seconds - cpu_s - waiting_s, 0.0)
        usage["waiting_s"] = waiting_s / reference_cores
        return table, usage

    def regroup(self, jobs: Collection[JobRecord], capacity: Floats) -> tuple[Tasks, Usage]:
        """The table of the tasks that run now, of which nothing is observed yet."""
        self._drop(jobs)
        self._tasks, self._promised, self._factors = [], [], []
        for job in jobs:
            if job.placed and job.outcome is None:
                self._add(job)
        self._watched = np.array([self._row[task.id.job, task.id.rank] for task in self._tasks], np.int64)
        table = self._table[self._watched]
        targets = np.array([task.target for task in self._tasks], np.int64)
        for k in np.flatnonzero(table["node"] != targets).tolist():
            self._tasks[k].base = None
        table["node"] = targets
        return table, _nothing(table, capacity, self._factors)

    def _drop(self, jobs: Collection[JobRecord]) -> None:
        """Free the rows of tasks that are no more."""
        table = self._table
        names = np.fromiter((job.id for job in jobs), np.int64, len(jobs))
        counts = np.fromiter((len(job.tasks) for job in jobs), np.int64, len(jobs))
        order = np.argsort(names)
        names, counts = np.append(names[order], -1), np.append(counts[order], 0)
        at = np.searchsorted(names[:-1], table["job"])
        there = (names[at] == table["job"]) & (table["rank"] < counts[at])
        gone = np.flatnonzero((table["job"] != NOBODY) & ~there).tolist()
        for row in gone:
            del self._row[table["job"][row].item(), table["rank"][row].item()]
        table["job"][gone] = NOBODY
        self._free += gone

    def _add(self, job: JobRecord) -> None:
        """Observe its tasks from now on, with new rows for those that have none."""
        tasks = [task for task in job.tasks if task.exit is None]
        self._tasks += tasks
        self._promised += [job.promised * job.need] * len(tasks)
        self._factors += [job.request.weight if self._weighted else 1.0] * len(tasks)
        missing = [task.id.rank for task in tasks if (job.id, task.id.rank) not in self._row]
        if missing:
            self._put(new_tasks(job.id, [task.target for task in job.tasks], _declared(job))[missing])

    def _put(self, new: Tasks) -> None:
        """Give rows to these tasks."""
        if len(self._free) < len(new):
            before, more = len(self._table), max(LEAST_ROWS, len(self._table) // 2, len(new))
            self._table = np.concatenate([self._table, np.zeros(more, TASK)])
            self._told = np.concatenate([self._told, np.zeros(more)])
            self._free += range(before + more - 1, before - 1, -1)
        rows = [self._free.pop() for _ in range(len(new))]
        self._table[rows], self._told[rows] = new, np.nan
        self._row.update(zip(zip(new["job"].tolist(), new["rank"].tolist(), strict=True), rows, strict=True))

    def keep(self, revision: Revision) -> None:
        """Keep the table for the next step."""
        self.next_s = revision.next_step_s
        self._table[self._watched] = revision.table

    def apply(self, revision: Revision, capacity: Floats) -> Mapping[Key, float]:
        """As `keep`; shares of the reference node by (job, rank), if discovery gives weights.

        Minimum yields are promises that discovery knows nothing of: its weights divide what is left of a node beyond
        them.
        """
        self.keep(revision)
        if revision.weights is None:
            return {}
        node, promised = revision.table["node"], np.array(self._promised)
        total = np.bincount(node, promised, len(capacity))
        kept = np.minimum(1.0, np.divide(capacity, total, out=np.ones(len(capacity)), where=total > 0))
        parts = _parts(revision.weights * np.array(self._factors), node, len(capacity))
        shares = promised * kept[node] + parts * np.maximum(capacity - total, 0.0)[node]
        keys = [(task.id.job, task.id.rank) for task in self._tasks]
        before, self._shares = self._shares, dict(zip(keys, shares.tolist(), strict=True))
        same = [abs(share - before.get(key, 0.0)) <= SAME_SHARE * share for key, share in self._shares.items()]
        changed = set(node[~np.array(same, np.bool_)].tolist())
        for task in self._tasks:
            if task.target in changed:
                task.base = None
        return self._shares

    def errors(self) -> Mapping[int, float]:
        """Half-width of the error bar of each job's need, as a fraction of the reference node, where it has changed."""
        changed = (self._table["error"] != self._told) & (self._table["job"] != NOBODY)
        jobs = np.unique(self._table["job"][changed])
        rows = np.isin(self._table["job"], jobs)
        widest = np.zeros(len(jobs))
        np.maximum.at(widest, np.searchsorted(jobs, self._table["job"][rows]), self._table["error"][rows])
        self._told = self._table["error"].copy()
        return dict(zip(jobs.tolist(), widest.tolist(), strict=True))

    def state(self) -> Tasks:
        """All tasks, for `restore`."""
        return self._table[self._table["job"] != NOBODY]

    def restore(self, table: Tasks) -> None:
        """Continue where `table` was taken."""
        self._table, self._told, self._free = table.copy(), np.full(len(table), np.nan), []
        keys = zip(table["job"].tolist(), table["rank"].tolist(), strict=True)
        self._row = {key: row for row, key in enumerate(keys)}


class NeedsDiscovery:
    """Steps of the discovery, when they are due, and what they find out put in force."""

    def __init__(self, state: State, observer: Observer) -> None:
        self._state = state
        self._observer = observer

    def left_s(self) -> float:
        """Seconds until the next step if no task comes or goes; inf without tasks."""
        observer = self._observer
        if observer.discovery is None or not observer.watching:
            return math.inf
        return max(0.0, observer.next_s - self._state.now_s())

    async def step(self) -> Revision | None:
        """Ask discovery if it is due; None if it is not, or failed."""
        state, observer = self._state, self._observer
        now_s = state.now_s()
        if observer.discovery is None or state.reference_cores is None or not observer.due(now_s, state.tasks_changed):
            return None
        try:
            return await self._step(now_s)
        except Exception:
            log.exception("discovery failed: shares stay as they are")
            observer.next_s = now_s + DISCOVERY_RETRY_S
            return None

    async def _step(self, now_s: float) -> Revision | None:
        state, observer = self._state, self._observer
        if observer.discovery is None or state.reference_cores is None:
            return None
        changed, state.tasks_changed = state.tasks_changed, False
        capacity = state.picture.snapshot.capacity[:, 0]
        step, told = observer.discovery.step, dict[int, float]()
        if observer.watching or not changed:
            table, usage = observer.observe(capacity, state.reference_cores)
            revision = await asyncio.to_thread(step, now_s, table, usage, capacity)
            if not changed:
                return revision
            # What was seen belongs to the tasks that were there: only then come the new ones.
            observer.keep(revision)
            told = dict(revision.needs)
        table, usage = observer.regroup(state.jobs.values(), capacity)
        revision = await asyncio.to_thread(step, now_s, table, usage, capacity)
        return replace(revision, needs=told | dict(revision.needs))

    def take(self, revision: Revision) -> None:
        """Put the weights in force that discovery gives."""
        state = self._state
        capacity = state.picture.snapshot.capacity[:, 0]
        shares = self._observer.apply(revision, capacity)
        before = state.placement.overrides
        state.placement.overrides = {} if state.exclusive else shares
        for key, share in shares.items():
            was = before.get(key)
            job = state.jobs.get(key[0])
            if job is not None and (was is None or abs(share - was) > SAME_SHARE * max(share, was)):
                state.placement.settle_later(job)
        for name, error in self._observer.errors().items():
            job = state.jobs.get(name)
            if job is not None:
                job.need_error = error


def _seen(task: TaskRecord) -> tuple[float, float, float, float, float]:
    """What it did since the last step: seconds, and in seconds its CPU time, and for how long it was throttled, waited
    and was held up; the last three NaN where its host does not say."""
    if task.base is None or not task.arrived:
        task.base = None
        return _NOT_SEEN
    (begin_s, before), (end_s, now) = task.base, task.samples[-1]
    seconds, cpu_s = end_s - begin_s, now.cpu_s - before.cpu_s
    if seconds <= 0:
        return _NOT_SEEN
    task.base = task.samples[-1]
    if seconds >= MOST_APART_S or cpu_s < 0 or _counts_anew(before, now, seconds):
        return _NOT_SEEN
    return (
        seconds,
        cpu_s,
        _grown(before.throttled_s, now.throttled_s),
        _grown(before.waiting_s, now.waiting_s),
        _grown(before.delayed_s, now.delayed_s),
    )


_NOT_SEEN = (0.0, 0.0, math.nan, math.nan, math.nan)


def _grown(first: float | None, last: float | None) -> float:
    """By how much a counter grew; NaN where that is not known."""
    return last - first if first is not None and last is not None and last >= first else math.nan


def _counts_anew(before: TaskUsage, now: TaskUsage, seconds: float) -> bool:
    """Whether the later one is of a driver that did not watch the task for most of the seconds between them.

    After a move it is another driver. What was used then is not to be taken for all that was wanted.
    """
    if before.watched_s is None or now.watched_s is None:
        return before.watched_s is not now.watched_s
    return now.watched_s - before.watched_s < LEAST_PART * seconds


def _nothing(table: Tasks, capacity: Floats, factors: Sequence[float]) -> Usage:
    """Shares in force, and nothing observed."""
    usage = np.zeros(len(table), USAGE)
    for name in UNKNOWN:
        usage[name] = np.nan
    usage["share"] = _parts(table["weight"] * np.array(factors), table["node"], len(capacity)) * capacity[table["node"]]
    return usage


def _parts(weights: Floats, node: Ints, nodes: int) -> Floats:
    """(T,) of each task, its part of the weights of all tasks on its node."""
    total = np.bincount(node, weights, nodes)[node]
    return np.divide(weights, total, out=np.zeros(len(weights)), where=total > 0)


def _declared(job: JobRecord) -> float | None:
    return None if job.request.cpu_cores is None else job.need
