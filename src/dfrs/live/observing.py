"""The discovery of needs, driven by what agents report: the shell around a `Discovery`."""

from collections.abc import Iterable, Mapping

import numpy as np

from dfrs.live.records import JobRecord, Task
from dfrs.model.instance import Floats
from dfrs.model.needs import TASK, USAGE, WEIGHTS, Discovery, Revision, Tasks, Usage, new_tasks

MOST_APART_S = 30.0
"""Two reports that are further apart say nothing of the time between them."""

Key = tuple[int, int]


class Observer:
    """One table of all tasks that run; rows of paused jobs are kept aside."""

    def __init__(self, discovery: Discovery | None) -> None:
        self.discovery = discovery
        self.next_s = 0.0
        self._rows: dict[Key, np.void] = {}
        self._last: dict[Key, tuple[float, float, float | None, float | None]] = {}
        self._tasks: list[Task] = []

    def due(self, now_s: float, changed: bool) -> bool:
        """Whether discovery is to be asked now."""
        return self.discovery is not None and (changed or now_s >= self.next_s)

    def gather(
        self, jobs: Iterable[JobRecord], capacity: Floats, reference_cores: float
    ) -> tuple[Tasks, Usage]:  # fmt: skip
        """The table and what each task did since the last time, in its order."""
        table = np.zeros(0, TASK)
        rows: list[np.void] = []
        self._tasks = []
        present: set[Key] = set()
        for job in jobs:
            present.update((job.id, task.id.rank) for task in job.tasks)
            if not job.placed or job.outcome is not None:
                continue
            fresh = None
            for task in job.tasks:
                if task.exit is not None:
                    continue
                row = self._rows.get((job.id, task.id.rank))
                if row is None:
                    if fresh is None:
                        fresh = new_tasks(job.id, [each.target for each in job.tasks], _declared(job))
                    row = fresh[task.id.rank]
                rows.append(row)
                self._tasks.append(task)
        for key in [key for key in self._rows if key not in present]:
            del self._rows[key]
            self._last.pop(key, None)
        table = np.zeros(len(rows), TASK)
        usage = np.zeros(len(rows), USAGE)
        for k, row in enumerate(rows):
            table[k] = row
        moved = self._place(table, capacity, usage)
        for k, task in enumerate(self._tasks):
            self._observe(usage[k : k + 1], task, moved=bool(moved[k]), cores=reference_cores)
        return table, usage

    def _place(self, table: Tasks, capacity: Floats, usage: Usage) -> np.ndarray:
        """Set nodes and guaranteed shares; which tasks moved."""
        nodes = np.array([task.target for task in self._tasks], np.int64)
        moved = table["node"] != nodes
        table["node"] = nodes
        total = np.bincount(nodes, table["weight"], len(capacity)) if len(nodes) else np.zeros(len(capacity))
        whole = total[nodes] if len(nodes) else np.zeros(0)
        shares = np.divide(table["weight"], whole, out=np.zeros(len(nodes)), where=whole > 0)
        usage["share"] = shares * capacity[nodes] if len(nodes) else 0.0
        usage["throttled_s"] = usage["waiting_s"] = np.nan
        return moved

    def _observe(self, usage: Usage, task: Task, *, moved: bool, cores: float) -> None:
        key = (task.id.job, task.id.rank)
        if not task.samples or not task.arrived:
            self._last.pop(key, None)
            return
        time_s, sample = task.samples[-1]
        last = self._last.get(key)
        self._last[key] = time_s, sample.cpu_s, sample.throttled_s, sample.waiting_s
        if last is None or moved:
            return
        seconds = time_s - last[0]
        if not 0 < seconds < MOST_APART_S or sample.cpu_s < last[1]:
            return
        usage["seconds"] = seconds
        usage["used_s"] = (sample.cpu_s - last[1]) / cores
        for name, now, before in (
            ("throttled_s", sample.throttled_s, last[2]), ("waiting_s", sample.waiting_s, last[3]),
        ):  # fmt: skip
            if now is not None and before is not None and now >= before:
                usage[name] = now - before

    def take(self, revision: Revision, capacity: Floats) -> Mapping[Key, float]:
        """Keep the table; shares of the reference node by (job, rank), if discovery gives weights."""
        self.next_s = revision.next_step_s
        keys = [(task.id.job, task.id.rank) for task in self._tasks]
        for key, row in zip(keys, revision.table, strict=True):
            self._rows[key] = row.copy()
        if revision.weights is None:
            return {}
        shares = revision.weights / WEIGHTS * capacity[revision.table["node"]]
        return dict(zip(keys, shares.tolist(), strict=True))

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


def _declared(job: JobRecord) -> float | None:
    return None if job.request.cpu_cores is None else job.need
