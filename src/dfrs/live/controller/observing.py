"""The discovery of needs, driven by what agents report: the shell around a `Discovery`."""

import asyncio
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import structlog

from dfrs.live.controller.received import LEAST_PART
from dfrs.live.controller.records import JobRecord, TaskRecord
from dfrs.live.controller.state import State
from dfrs.live.drivers.base import Usage as TaskUsage
from dfrs.model.instance import Floats, Ints
from dfrs.model.needs import TASK, UNKNOWN, USAGE, WEIGHTS, Discovery, Revision, Tasks, Usage, new_tasks

SAME_SHARE = 0.002
"""A share that changes by no more than this part of it is the same, and nobody is told."""
MOST_APART_S = 30.0
"""Two reports that are further apart say nothing of the time between them."""
DISCOVERY_RETRY_S = 10.0
"""So long after a failure it is tried again."""

log = structlog.get_logger(__name__)
Key = tuple[int, int]


class Observer:
    """One table of all tasks that have begun; those that run now are observed."""

    def __init__(self, discovery: Discovery | None) -> None:
        self.discovery = discovery
        self.next_s = 0.0
        self._table: Tasks = np.zeros(0, TASK)
        self._row: dict[Key, int] = {}
        """Where each task is in the table."""
        self._tasks: list[TaskRecord] = []
        """Those that are observed,"""
        self._watched: Ints = np.zeros(0, np.int64)
        """their rows,"""
        self._promised: list[float] = []
        """and the part of the reference node that each was promised."""
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
        usage = _nothing(table, capacity)
        seen = np.array([_seen(task) for task in self._tasks]).reshape(-1, len(_NOT_SEEN))
        seconds, cpu_s, throttled_s, waiting_s, delayed_s = seen.T
        usage["seconds"] = seconds
        usage["used_s"] = cpu_s / reference_cores
        usage["throttled_s"], usage["delayed_s"] = throttled_s, delayed_s
        usage["idle_s"] = np.maximum(seconds - cpu_s - waiting_s, 0.0)
        usage["waiting_s"] = waiting_s / reference_cores
        return table, usage

    def regroup(self, jobs: Iterable[JobRecord], capacity: Floats) -> tuple[Tasks, Usage]:
        """The table of the tasks that run now, of which nothing is observed yet."""
        self._tasks, self._promised = [], []
        present: set[Key] = set()
        fresh: list[Tasks] = []
        for job in jobs:
            present.update((job.id, task.id.rank) for task in job.tasks)
            if job.placed and job.outcome is None:
                fresh += self._add(job)
        self._renew(present, fresh)
        self._watched = np.array([self._row[task.id.job, task.id.rank] for task in self._tasks], np.int64)
        table = self._table[self._watched]
        targets = np.array([task.target for task in self._tasks], np.int64)
        for k in np.flatnonzero(table["node"] != targets).tolist():
            self._tasks[k].base = None
        table["node"] = targets
        return table, _nothing(table, capacity)

    def _add(self, job: JobRecord) -> list[Tasks]:
        """Observe its tasks from now on; rows of those that have none."""
        tasks = [task for task in job.tasks if task.exit is None]
        self._tasks += tasks
        self._promised += [job.promised * job.need] * len(tasks)
        missing = [task.id.rank for task in tasks if (job.id, task.id.rank) not in self._row]
        if not missing:
            return []
        return [new_tasks(job.id, [task.target for task in job.tasks], _declared(job))[missing]]

    def _renew(self, present: set[Key], fresh: list[Tasks]) -> None:
        """Drop rows of tasks that are no more, and add new ones."""
        kept = [row for key, row in self._row.items() if key in present]
        if not fresh and len(kept) == len(self._table):
            return
        self.restore(np.concatenate([self._table[kept], *fresh]))

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
        shares = promised * kept[node] + revision.weights / WEIGHTS * np.maximum(capacity - total, 0.0)[node]
        keys = [(task.id.job, task.id.rank) for task in self._tasks]
        before, self._shares = self._shares, dict(zip(keys, shares.tolist(), strict=True))
        same = [abs(share - before.get(key, 0.0)) <= SAME_SHARE * share for key, share in self._shares.items()]
        changed = set(node[~np.array(same, np.bool_)].tolist())
        for task in self._tasks:
            if task.target in changed:
                task.base = None
        return self._shares

    def errors(self) -> Mapping[int, float]:
        """Half-width of the error bar of each job's need, as a fraction of the reference node."""
        jobs, of = np.unique(self._table["job"], return_inverse=True)
        widest = np.zeros(len(jobs))
        np.maximum.at(widest, of, self._table["error"])
        return dict(zip(jobs.tolist(), widest.tolist(), strict=True))

    def state(self) -> Tasks:
        """All rows, for `restore`."""
        return self._table.copy()

    def restore(self, table: Tasks) -> None:
        """Continue where `table` was taken."""
        self._table = table.copy()
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


def _nothing(table: Tasks, capacity: Floats) -> Usage:
    """Shares in force, and nothing observed."""
    usage = np.zeros(len(table), USAGE)
    for name in UNKNOWN:
        usage[name] = np.nan
    total = np.bincount(table["node"], table["weight"], len(capacity))[table["node"]]
    shares = np.divide(table["weight"], total, out=np.zeros(len(table)), where=total > 0)
    usage["share"] = shares * capacity[table["node"]]
    return usage


def _declared(job: JobRecord) -> float | None:
    return None if job.request.cpu_cores is None else job.need
