"""Time limits as a driver sees them: supervisors keep these, unless they hang."""

import math
import threading
import time
from collections.abc import Sequence

from dfrs.live.drivers.base import TaskId, TaskState, TaskStatus
from dfrs.live.drivers.processes.directory import TaskDirectory

MOST_S = 1.0
"""That may count between two looks: who looks may have been stopped."""


class TimeLimits:
    """Of the tasks of one node. Usable by several threads.

    Counted is what this driver has seen a task run, which is no more than its supervisor counts.
    """

    def __init__(self, files: TaskDirectory) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._left_s: dict[TaskId, float] = {}
        self._running: set[TaskId] = set()
        self._looked_s = -math.inf

    def look(self, statuses: Sequence[TaskStatus]) -> list[tuple[TaskId, float]]:
        """Those of all the node's tasks that run beyond their limit, and how many seconds they have done so."""
        with self._lock:
            now_s = time.monotonic()
            passed_s, self._looked_s = min(now_s - self._looked_s, MOST_S), now_s
            before, self._running = self._running, {one.task for one in statuses if one.state is TaskState.RUNNING}
            self._left_s = {one.task: self._left(one.task) for one in statuses}
            for task in self._running & before:
                self._left_s[task] -= passed_s
            over = ((one.task, -self._left_s[one.task]) for one in statuses if one.task in self._running)
            return [(task, late_s) for task, late_s in over if late_s > 0]

    def _left(self, task: TaskId) -> float:
        if task in self._left_s:
            return self._left_s[task]
        return float(self._files.spec(task).get("time_limit_s", "inf"))
