"""Jobs as Slurm was last seen to have them, and what the controller is told of that."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

from dfrs.live.backends.slurm.marks import Mark
from dfrs.live.backends.slurm.needs import is_held
from dfrs.live.backends.slurm.next_action import present
from dfrs.live.backends.slurm.outcomes import exit_of
from dfrs.live.backends.slurm.port import Found
from dfrs.live.backends.slurm.records import SlurmJob
from dfrs.live.backends.slurm.setup.conf_file import expand
from dfrs.live.controller.control import Control
from dfrs.live.controller.records import JobRecord
from dfrs.live.drivers.base import Exit, ExitKind, TaskId, TaskState
from dfrs.live.errors import ConflictError, NotFoundError, UnavailableError
from dfrs.live.protocol.observed import NodeFacts
from dfrs.model.errors import InputError

OURS = "Slurm"
"""Who asked for what was done by Slurm, or by somebody through Slurm."""
MISSING_S = 10.0
"""A job that Slurm has not listed for so long is no more."""
WAITS = frozenset({"", "None", "Priority", "Resources"})
"""Reasons for which a released job waits that pass by themselves."""


class JobsSeen:
    """By Slurm's names. `taken`: nodes of which the controller knows what they have."""

    def __init__(self, control: Control, taken: Mapping[str, NodeFacts]) -> None:
        self.rows: dict[str, SlurmJob] = {}
        self.others: tuple[SlurmJob, ...] = ()
        """Of other partitions, on nodes."""
        self.known = False
        """Whether Slurm was seen at all."""
        self.ending: set[str] = set()
        """Jobs that the controller has ended, and that are in Slurm's queue yet."""
        self._control = control
        self._taken = taken
        self._said: dict[str, object] = {}
        self._missing_s: dict[str, float] = {}
        """Since when jobs are missing, by the loop's clock."""
        self._requeued: dict[str, TaskId] = {}
        """Attempts that are over since Slurm queued their jobs again."""
        self._asking: set[str] = set()
        """Jobs of which the controller was told something that it has not written down yet."""
        self._can_ask = True
        """Whether the controller could write down what it was told since Slurm was last looked at."""
        self._changed_s: dict[str, float] = {}
        """When Slurm last did what it was asked, by the loop's clock."""

    def take(self, found: Found, began_s: float) -> None:
        """Slurm as it was at that time of the loop's clock, or a little later."""
        rows = {job.id: job for job in found.jobs}
        # What it has done since counts more.
        late = [name for name, changed_s in self._changed_s.items() if changed_s >= began_s and name in self.rows]
        self._changed_s = {name: self._changed_s[name] for name in late}
        self.rows = {name: self._dated(row) for name, row in rows.items()} | {name: self.rows[name] for name in late}
        self.others, self.known = tuple(found.others), True
        self.ending = {name for name in self.ending if name in self.rows and not self.rows[name].ended}

    def _dated(self, row: SlurmJob) -> SlurmJob:
        """With the time of its last turn: squeue does not say when a job was suspended or resumed."""
        before = self.rows.get(row.id)
        if before is None or not (before.placed and row.placed) or before.restarts != row.restarts:
            return row
        same = before.state == row.state
        return replace(row, since_s=before.since_s if same else self._control.settings.clock())

    def change(self, name: str, **fields: object) -> None:
        """Slurm has done that with it."""
        self._changed_s[name] = asyncio.get_running_loop().time()
        if name in self.rows:
            self.rows[name] = replace(self.rows[name], **fields)  # pyright: ignore[reportArgumentType]

    def tasks_on(self, node: str) -> list[TaskId]:
        """Attempts that are on a node, were, or may yet begin there."""
        found = [(row, present(row)) for row in self.rows.values() if row.node == node]
        return [mark.task for _, mark in found if mark is not None]

    def say_again(self, node: str) -> None:
        """The controller has compared what is on this node."""
        for name, row in self.rows.items():
            if row.node == node:
                self._said.pop(name, None)

    def strangers(self) -> dict[str, str]:
        """Why nodes with jobs that were not started from here get nothing new."""
        arrived, found = self._control.arrived, dict[str, list[str]]()
        for row in (*self.others, *(row for row in self.rows.values() if row.placed and row.id not in arrived)):
            for node in _nodes_of(row):
                found.setdefault(node, []).append(row.id)
        return {node: _beside(names) for node, names in found.items()}

    def has_jobs_on(self, node: str) -> bool:
        """Whether any of the partition's is on that node."""
        rows = (row for row in self.rows.values() if row.placed or row.state == "COMPLETING")
        return any(node in _nodes_of(row) for row in rows)

    # What is said.

    async def report(self) -> None:
        """Tell the controller all that is new."""
        self._can_ask = True
        for name in list(self._control.arrived):
            await self.report_one(name)
        arrived = self._control.arrived
        self._said = {name: said for name, said in self._said.items() if name in arrived}
        self._missing_s = {name: since_s for name, since_s in self._missing_s.items() if name in arrived}
        self._requeued = {name: task for name, task in self._requeued.items() if name in arrived}

    async def report_one(self, name: str) -> None:
        """Tell it what is new of a job."""
        job = self._control.jobs.get(self._control.arrived.get(name, 0))
        if job is None or name in self._asking:
            return
        row = self.rows.get(name)
        wish = (job.paused, job.held, job.tasks[0].target if job.tasks else -1)
        if self._said.get(name) != (row, wish) and await self._report(job, row):
            self._said[name] = (row, wish)

    async def _report(self, job: JobRecord, row: SlurmJob | None) -> bool:
        """Whether that need not be said again."""
        if row is None:
            return await self._report_missing(job)
        self._missing_s.pop(job.key, None)
        if row.state == "CANCELLED" and not await self._ask(self._control.cancel, job, OURS):
            return False
        mark = present(row)
        if mark is None or (row.pending and self._has_begun(job, mark.task)):
            return await self._report_unmarked(job, row) and await self._report_hold(job, row)
        node = self._control.node(row.node)
        # How it ended counts also where its node is down, and will not be compared; but not that it went with its node.
        known = row.node in self._taken or (row.ended and exit_of(row).kind is not ExitKind.LOST)
        if node is None or not known:
            return False
        if row.placed:
            paused = row.state == "SUSPENDED"
            self._control.saw(
                mark.task,
                node,
                TaskState.PAUSED if paused else TaskState.RUNNING,
                since_s=row.since_s,
                # Memory of a suspended job stays allocated: Slurm gives it to nobody.
                kept=paused or self._is_to_pause(job),
                fixed=job.placed and bool(job.tasks) and job.tasks[0].target != node.number,
            )
        elif row.ended:
            self._control.saw(mark.task, node, TaskState.EXITED, since_s=row.since_s, found=_end(job, row))
        elif row.pending and not row.held:
            self._control.trouble(mark.task, node, "" if row.reason in WAITS else f"Slurm: {row.reason}")
        return True

    async def _report_missing(self, job: JobRecord) -> bool:
        """Slurm does not list it: as nothing brings it back here, that has to be so for a while."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._missing_s.setdefault(job.key, now_s) < MISSING_S:
            return False
        return await self._ask(self._control.cancel, job, f"{OURS}, which no longer knows it")

    async def _report_unmarked(self, job: JobRecord, row: SlurmJob) -> bool:
        """Its present start is none of the controller's attempts, or Slurm has forgotten that it started."""
        before = Mark.parse(row.admin_comment)
        if row.ended:
            return await self._ask(self._control.cancel, job, f"{OURS}: {row.state}")
        if before is not None and self._is_over(job, before.task):
            if not await self._ask(self._control.requeue, job, OURS):
                return False
            self._requeued[job.key] = before.task
        return True

    async def _report_hold(self, job: JobRecord, row: SlurmJob) -> bool:
        """Its user holds it by the comment, or Slurm for its user: only a change says something of one that waits."""
        held = is_held(row.comment) or row.special
        # `job.held` is no measure of that: after `dfrs release` the comment says what it said before.
        if row.pending and held is not job.request.held:
            return await self._ask(partial(self._control.say_held, held=held), job, OURS)
        return True

    def _has_begun(self, job: JobRecord, task: TaskId) -> bool:
        """Whether this attempt was there: a slurmctld that was killed goes on from what it had stored before."""
        return any(each.id == task and each.started for each in job.tasks)

    def _is_over(self, job: JobRecord, task: TaskId) -> bool:
        """Whether it is the present attempt, and the controller was not told yet that Slurm queued it again."""
        # Until that is an attempt of the past, the controller may need a moment after its answer.
        return self._requeued.get(job.key) != task and any(each.id == task for each in job.tasks)

    def _is_to_pause(self, job: JobRecord) -> bool:
        return job.paused and not job.held

    async def _ask(self, what: Callable[[int, str], Awaitable[None]], job: JobRecord, by: str) -> bool:
        """Have that done with the job, once; False if it cannot be written down now, and is to be said again."""
        if job.outcome is not None:
            return True
        if not self._can_ask:
            # Each answer takes a while, and nodes wait for the last.
            return False
        self._asking.add(job.key)
        try:
            await what(job.id, by)
        except (NotFoundError, ConflictError):
            return True
        except UnavailableError:
            self._can_ask = False
            return False
        finally:
            self._asking.discard(job.key)
        return True


def _nodes_of(row: SlurmJob) -> list[str]:
    """All nodes on which it is."""
    try:
        return expand(row.node)
    except InputError:
        return [row.node]


def _beside(names: list[str]) -> str:
    first, several = ", ".join(sorted(names)[:5]), len(names) > 1
    return f"Slurm's job{'s' if several else ''} {first} run{'' if several else 's'} there, not by dfrs"


def _end(job: JobRecord, row: SlurmJob) -> Exit:
    if job.outcome is not None:
        return Exit(kind=ExitKind.STOPPED, time_s=row.since_s)
    return exit_of(row)
