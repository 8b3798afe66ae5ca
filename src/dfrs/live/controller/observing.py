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
from dfrs.model.instance import Floats
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
    """One table of all tasks that run; rows of paused jobs are kept aside."""

    def __init__(self, discovery: Discovery | None) -> None:
        self.discovery = discovery
        self.next_s = 0.0
        self._rows: dict[Key, np.void] = {}
        self._tasks: list[TaskRecord] = []
        self._promised: list[float] = []
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
        table = self._table()
        usage = _nothing(table, capacity)
        for k, task in enumerate(self._tasks):
            self._observe(usage[k : k + 1], task, cores=reference_cores)
        return table, usage

    def regroup(self, jobs: Iterable[JobRecord], capacity: Floats) -> tuple[Tasks, Usage]:
        """The table of the tasks that run now, of which nothing is observed yet."""
        self._tasks, self._promised = [], []
        present: set[Key] = set()
        for job in jobs:
            present.update((job.id, task.id.rank) for task in job.tasks)
            if job.placed and job.outcome is None:
                self._add(job)
        for key in [key for key in self._rows if key not in present]:
            del self._rows[key]
        table = self._table()
        for k, task in enumerate(self._tasks):
            if table["node"][k] != task.target:
                task.base = None
            table["node"][k] = task.target
        return table, _nothing(table, capacity)

    def _add(self, job: JobRecord) -> None:
        fresh = None
        for task in job.tasks:
            if task.exit is not None:
                continue
            key = (job.id, task.id.rank)
            if key not in self._rows:
                if fresh is None:
                    fresh = new_tasks(job.id, [each.target for each in job.tasks], _declared(job))
                self._rows[key] = fresh[task.id.rank]
            self._tasks.append(task)
            self._promised.append(job.promised * job.need)

    def _table(self) -> Tasks:
        table = np.zeros(len(self._tasks), TASK)
        for k, task in enumerate(self._tasks):
            table[k] = self._rows[task.id.job, task.id.rank]
        return table

    def _observe(self, usage: Usage, task: TaskRecord, *, cores: float) -> None:
        if task.base is None or not task.arrived:
            task.base = None
            return
        (begin_s, before), (end_s, now) = task.base, task.samples[-1]
        seconds, cpu_s = end_s - begin_s, now.cpu_s - before.cpu_s
        if seconds <= 0:
            return
        task.base = task.samples[-1]
        if seconds >= MOST_APART_S or cpu_s < 0 or _counts_anew(before, now, seconds):
            return
        usage["seconds"] = seconds
        usage["used_s"] = cpu_s / cores
        for name in ("throttled_s", "waiting_s", "delayed_s"):
            first, last = getattr(before, name), getattr(now, name)
            if first is not None and last is not None and last >= first:
                usage[name] = last - first
        usage["idle_s"] = np.maximum(seconds - cpu_s - usage["waiting_s"], 0.0)
        usage["waiting_s"] /= cores

    def keep(self, revision: Revision) -> None:
        """Keep the table for the next step."""
        self.next_s = revision.next_step_s
        for task, row in zip(self._tasks, revision.table, strict=True):
            self._rows[task.id.job, task.id.rank] = row.copy()

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
        found: dict[int, float] = {}
        for (job, _), row in self._rows.items():
            found[job] = max(found.get(job, 0.0), float(row["error"]))
        return found

    def state(self) -> Tasks:
        """All rows, for `restore`."""
        table = np.zeros(len(self._rows), TASK)
        for k, row in enumerate(self._rows.values()):
            table[k] = row
        return table

    def restore(self, table: Tasks) -> None:
        """Continue where `table` was taken."""
        self._rows = {(int(row["job"]), int(row["rank"])): row.copy() for row in table}


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
