"""How long nodes take to start what they are told to start: one that never does must not keep jobs for ever."""

from dfrs.live.controller.backend import Backend
from dfrs.live.controller.records import JobRecord, NodeRecord, TaskRecord
from dfrs.live.controller.state import State
from dfrs.live.drivers.base import TaskId

MOST_STEP_REPORTS = 5
"""Between two looks no more time counts than so many reports take: a controller that was away has heard nothing."""
FIRST_CLOSED_S, LAST_CLOSED_S = 60.0, 3600.0
"""A node that did not start a task gets none for so long, doubled each time up to the last."""
FORGIVEN_S = 600.0
"""After so long without that it counts as the first time again."""


class StartWatch:
    """Counts the time for which each task could have been started on its node, and was not."""

    def __init__(self, state: State, backend: Backend) -> None:
        self._state = state
        self._backend = backend
        self._seconds: dict[tuple[TaskId, int], float] = {}
        self._looked_at = state.settings.steady()

    def look(self) -> None:
        """Time has passed."""
        settings = self._state.settings
        now = settings.steady()
        step_s = min(max(0.0, now - self._looked_at), MOST_STEP_REPORTS * settings.report_s)
        self._looked_at = now
        before = self._seconds
        self._seconds = {
            (task.id, task.target): before.get((task.id, task.target), -step_s) + step_s
            for job in self._state.jobs.values()
            if job.placed
            for task in job.tasks
            if self._hangs(job, task)
        }

    def overdue(self) -> list[tuple[JobRecord, TaskRecord]]:
        """Tasks whose nodes have had all the time that they get."""
        found: list[tuple[JobRecord, TaskRecord]] = []
        for (name, number), seconds in self._seconds.items():
            task = self._state.placement.find(name) if seconds >= self._state.settings.start_s else None
            job = self._state.jobs.get(name.job)
            if task is not None and job is not None and task.target == number and self._hangs(job, task):
                found.append((job, task))
        return found

    def _hangs(self, job: JobRecord, task: TaskRecord) -> bool:
        """Whether only its node keeps it from running: it was told, is heard, and waits for nothing else."""
        if job.outcome is not None or not job.placed or task.exit is not None or set(task.at) != {task.target}:
            return False
        node, settings = self._state.nodes[task.target], self._state.settings
        if not node.connected or settings.steady() - node.seen_at >= settings.silent_s:
            # A connection may be cut without its end being told: it may well have started it.
            return False
        return self._backend.starts(task)


def stall(node: NodeRecord, why: str, now: float) -> None:
    """Let it get no jobs for a while, unless that is so already."""
    if node.stalled:
        return
    node.stalls = 1 if now > node.stalled_until + FORGIVEN_S else node.stalls + 1
    node.stalled, node.stalled_until = why, now + min(LAST_CLOSED_S, FIRST_CLOSED_S * 2 ** (node.stalls - 1))


def forgive(node: NodeRecord, now: float) -> None:
    """Let it try again when its time has come."""
    if node.stalled and now >= node.stalled_until:
        node.stalled = ""
