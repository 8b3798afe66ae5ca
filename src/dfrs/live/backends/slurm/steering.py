"""Asks Slurm for what is wanted of jobs: of each one thing at a time, of all of them at once."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager

import structlog

from dfrs.live.backends.slurm.jobs_seen import OURS, JobsSeen
from dfrs.live.backends.slurm.marks import Mark
from dfrs.live.backends.slurm.next_action import Step, Verb, next_step, present
from dfrs.live.backends.slurm.port import Slurm
from dfrs.live.backends.slurm.records import SlurmJob
from dfrs.live.backends.slurm.scontrol import SlurmRefusedError
from dfrs.live.backends.slurm.shares import ShareBoard
from dfrs.live.controller.backend import Wanted
from dfrs.live.controller.control import Control
from dfrs.live.controller.records import JobRecord
from dfrs.live.drivers.base import TaskState
from dfrs.live.errors import ConflictError, NotFoundError, UnavailableError
from dfrs.live.protocol.resources import Restart

MOST_STEPS = 10
"""For one job, before Slurm is looked at again."""
AGAIN_S = 1.0
"""After Slurm has refused something it is not asked again for so long."""

log = structlog.get_logger("dfrs.slurm")


class Steering:
    """What is wanted, by Slurm's names of jobs, and what is to be done for it."""

    def __init__(self, control: Control, slurm: Slurm, seen: JobsSeen, board: ShareBoard) -> None:
        self._control = control
        self._slurm = slurm
        self._seen = seen
        self._board = board
        self._wanted: dict[str, list[Wanted]] = {}
        self._due: dict[str, None] = {}
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._apart: set[str] = set()
        """Jobs that somebody else asks Slurm something about: their mark is not to be in its way."""
        self._sure: set[str] = set()
        """Jobs that were as this controller had asked: whatever else they are since, somebody else did."""
        self._not_before_s: dict[str, float] = {}
        self._wake = asyncio.Event()

    @property
    def expects(self) -> bool:
        """Whether Slurm has been asked for something that may not be done yet."""
        rows = self._seen.rows
        return bool(self._busy) or any(
            row.state == "COMPLETING" or (row.pending and not row.held)
            for row in (rows.get(name) for name in self._wanted)
            if row is not None
        )

    def is_idle(self, job: JobRecord) -> bool:
        """Whether nothing is asked of Slurm for this job: it waits in its queue, held."""
        row = self._seen.rows.get(job.key)
        return row is not None and row.pending and row.held and not self._wanted.get(job.key) and not job.tasks

    @contextmanager
    def without(self, names: Sequence[str]) -> Generator[Sequence[str]]:
        """Those of them that wait, and nothing is asked of Slurm for; nothing is until the context ends."""
        jobs = [self._control.jobs.get(self._control.arrived.get(name, 0)) for name in names]
        idle = [job.key for job in jobs if job is not None and self.is_idle(job) and job.key not in self._busy]
        self._apart.update(idle)
        try:
            yield idle
        finally:
            self._apart.difference_update(idle)
            self._wake.set()

    # What is wanted.

    def settle(self, jobs: Sequence[JobRecord]) -> None:
        """Something else may be wanted of these."""
        for job in jobs:
            wanted = list(self._control.wanted(job))
            if not job.key:
                # Of another backend's time: nothing here was ever asked to run it.
                for each in wanted:
                    for task in each.tasks:
                        self._control.is_gone(task)
                continue
            self._want(job.key, wanted)
            self._board.want(job.key, next((each for each in wanted if each.state is TaskState.RUNNING), None))
            self._due[job.key] = None
        if jobs:
            self._wake.set()

    def _want(self, name: str, wanted: list[Wanted]) -> None:
        if wanted:
            self._wanted[name] = wanted
        else:
            self._wanted.pop(name, None)

    def forget(self, job: JobRecord) -> None:
        """The controller has no such job any more."""
        for books in (self._wanted, self._due, self._not_before_s):
            books.pop(job.key, None)
        self._sure.discard(job.key)
        self._board.want(job.key, None)
        row = self._seen.rows.get(job.key)
        if row is not None and not row.ended and row.state != "COMPLETING":
            self._seen.ending.add(job.key)
            self._due[job.key] = None
            self._wake.set()

    def doubt(self) -> None:
        """Slurm was away: nobody knows what of the last commands it did."""
        self._sure.clear()

    def look(self) -> None:
        """Slurm was looked at: see to all jobs that are not as they should be."""
        for name, number in self._control.arrived.items():
            job = self._control.jobs.get(number)
            if job is None or name in self._busy:
                continue
            if self._next(name, job) is not None:
                self._due[name] = None
            else:
                self._note(name)
        self._due.update(dict.fromkeys(self._seen.ending))
        self._wake.set()

    # What is done.

    async def run(self) -> None:
        """Go on doing what is due."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            for name in [name for name in self._due if name not in self._busy and name not in self._apart]:
                del self._due[name]
                work = self._busy[name] = asyncio.create_task(self._work(name))
                work.add_done_callback(lambda _, name=name: self._done(name))

    def _done(self, name: str) -> None:
        self._busy.pop(name, None)
        if name in self._due:
            self._wake.set()

    async def end(self) -> None:
        """Let what is under way come to its end: half of a command is none."""
        if self._busy:
            await asyncio.wait(list(self._busy.values()))

    def _next(self, name: str, job: JobRecord) -> Step | None:
        wanted = self._wanted.get(name, [])
        if not self._seen.known or (job.tasks and not wanted):
            # It was placed, and it is not settled yet what is wanted of it.
            return None
        return next_step(
            self._seen.rows.get(name),
            wanted,
            ending=job.outcome is not None,
            held=job.held,
            begun=any(task.started for task in job.tasks),
            fresh=name not in self._sure,
        )

    async def _work(self, name: str) -> None:
        try:
            for _ in range(MOST_STEPS):
                if not await self._step(name):
                    return
        except UnavailableError as error:
            self._sure.discard(name)
            log.warning("Slurm does not answer", job=name, why=str(error))
        except SlurmRefusedError as error:
            self._refused(name, str(error))
        except Exception:
            # With the next look at Slurm it is tried again.
            self._sure.discard(name)
            log.exception("work on a job of Slurm failed", job=name)

    def _refused(self, name: str, why: str) -> None:
        self._sure.discard(name)
        self._not_before_s[name] = asyncio.get_running_loop().time() + AGAIN_S
        log.warning("Slurm refuses", job=name, why=why)
        for each in self._wanted.get(name, []):
            node = self._control.node(each.nodes[0]) if each.nodes else None
            if node is not None:
                self._control.trouble(each.tasks[0], node, why)

    async def _step(self, name: str) -> bool:
        """Do the next thing; whether there may be more to do."""
        if not self._control.leads:
            # A start that is not this controller's may be another one's. With the next look at Slurm it is tried again.
            return False
        if self._not_before_s.get(name, 0.0) > asyncio.get_running_loop().time():
            return False
        job = self._control.jobs.get(self._control.arrived.get(name, 0))
        if job is None:
            return await self._end(name)
        step = self._next(name, job)
        if step is None:
            self._note(name)
            return False
        await self._do(name, job, step)
        return step.verb not in {Verb.HELD_ELSEWHERE, Verb.RELEASED_ELSEWHERE}

    def _note(self, name: str) -> None:
        """Nothing is to be asked for: if it is known what is wanted of a job that is on its node, it is just that."""
        row = self._seen.rows.get(name)
        if self._wanted.get(name) and present(row) is not None and row is not None and row.placed:
            self._sure.add(name)

    async def _end(self, name: str) -> bool:
        """The controller has ended it; Slurm has it in its queue."""
        row = self._seen.rows.get(name)
        if name in self._seen.ending and row is not None:
            await self._slurm.cancel(name)
            self._seen.change(name, state="COMPLETING")
        return False

    async def _do(self, name: str, job: JobRecord, step: Step) -> None:
        slurm, change = self._slurm, self._seen.change
        match step.verb:
            case Verb.FORGET:
                assert step.task is not None
                self._want(name, [each for each in self._wanted[name] if each.tasks[0] != step.task])
                self._control.is_gone(step.task)
            case Verb.PLACE:
                await self._place(name, job, step)
            case Verb.RELEASE:
                await slurm.release(name)
                change(name, held=False, reason="")
                # If it is suspended when it is seen for the first time, somebody else has done that.
                self._sure.add(name)
            case Verb.HOLD:
                await slurm.hold([name])
                change(name, held=True)
            case Verb.MARK:
                await self._mark(name, step)
            case Verb.SUSPEND:
                await self._mark(name, step)
                await slurm.suspend(name)
                change(name, state="SUSPENDED", since_s=self._control.settings.clock())
            case Verb.RESUME:
                await self._mark(name, step)
                await slurm.resume(name)
                change(name, state="RUNNING", since_s=self._control.settings.clock())
            case Verb.REQUEUE:
                await slurm.requeue(name, ended=self._seen.rows[name].ended)
                change(name, state="COMPLETING")
            case Verb.CANCEL:
                await slurm.cancel(name)
                change(name, state="COMPLETING")
            case Verb.HELD_ELSEWHERE:
                await self._tell(self._control.hold, job)
            case Verb.RELEASED_ELSEWHERE:
                await self._tell(self._control.release, job)
        await self._seen.report_one(name)

    async def _tell(self, what: Callable[[int, str], Awaitable[None]], job: JobRecord) -> None:
        """Somebody did it in Slurm: here it is a request as any other."""
        try:
            await what(job.id, OURS)
        except (ConflictError, NotFoundError):
            log.info("what was done in Slurm is so already", job=job.key)

    async def _place(self, name: str, job: JobRecord, step: Step) -> None:
        assert step.task is not None
        row, node = self._seen.rows[name], self._wanted[name][0].nodes[0]
        mark = Mark(step.task, TaskState.RUNNING, self._control.versions.next(), row.restarts)
        requeue = job.request.restart is not Restart.NEVER
        await self._slurm.place(name, node, str(mark), requeue=requeue)
        self._seen.change(name, node=node, admin_comment=str(mark), requeue=requeue)

    async def _mark(self, name: str, step: Step) -> None:
        assert step.task is not None
        assert step.state is not None
        row: SlurmJob = self._seen.rows[name]
        mark = str(Mark(step.task, step.state, self._control.versions.next(), row.restarts))
        await self._slurm.mark(name, mark)
        self._seen.change(name, admin_comment=mark)
