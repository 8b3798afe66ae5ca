"""A batch system that is a table: it has nodes, a queue and jobs, does what it is told, and decides nothing."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from dfrs.live.controller.backend import Wanted
from dfrs.live.drivers.base import Exit, ExitKind, TaskId, TaskState
from dfrs.live.protocol.resources import JobRequest

GIB = 1 << 30
RUNS = (TaskState.RUNNING, TaskState.PAUSED)


@dataclass
class EngineNode:
    """A node, as the engine knows it."""

    name: str
    cpus: float = 4.0
    memory_bytes: int = 8 * GIB
    up: bool = True
    drained: str = ""
    """Why it is to get no jobs, by the engine's own operator."""


@dataclass
class EngineJob:
    """A job, by the engine's own number. It is held until somebody says where it is to run."""

    number: int
    user: str = ""
    request: JobRequest | None = None
    """What its user asked for, where it came to the engine's own queue."""
    tasks: tuple[TaskId, ...] = ()
    """What it is to the controller: stored with the job, as a comment would be."""
    version: int = 0
    """Of the last wish that was carried out."""
    state: TaskState = TaskState.ABSENT
    nodes: tuple[str, ...] = ()
    share_cores: tuple[float, ...] = ()
    kept: bool = False
    """It is paused, or was to be, and its memory stays."""
    found: Exit | None = None
    rigid: bool = False
    """Its memory cannot be freed while it is paused."""
    since_s: float = 0.0


@dataclass
class BatchEngine:
    """All of it. It outlives controllers; `clock` is its wall clock."""

    clock: Callable[[], float] = time.time
    nodes: dict[str, EngineNode] = field(default_factory=dict[str, EngineNode])
    jobs: dict[int, EngineJob] = field(default_factory=dict[int, EngineJob])
    started: list[TaskId] = field(default_factory=list[TaskId])
    """Every task that it ever started, in order."""
    late: int = 0
    """Wishes that came after later ones, and were passed over."""

    def add_node(self, name: str, cpus: float = 4.0, memory_bytes: int = 8 * GIB) -> EngineNode:
        """A new node."""
        self.nodes[name] = EngineNode(name, cpus, memory_bytes)
        return self.nodes[name]

    def submit(self, request: JobRequest, user: str) -> EngineJob:
        """A user submits to the engine itself; the job is held."""
        return self.new_job(user, request)

    def new_job(self, user: str = "", request: JobRequest | None = None) -> EngineJob:
        """A row of the table."""
        number = max(self.jobs, default=100) + 1
        self.jobs[number] = EngineJob(number, user, request)
        return self.jobs[number]

    def find(self, task: TaskId) -> EngineJob | None:
        """What the controller calls so."""
        return next((job for job in self.jobs.values() if task in job.tasks), None)

    def of_job(self, number: int) -> EngineJob | None:
        """The one that last was an attempt at the controller's job of that number."""
        return next((job for job in self.jobs.values() if job.tasks and job.tasks[0].job == number), None)

    def running(self) -> list[TaskId]:
        """Tasks that are on nodes, paused or not."""
        return [task for job in self.jobs.values() if job.state in RUNS for task in job.tasks]

    def bring_about(self, job: EngineJob, wanted: Wanted, version: int) -> None:
        """Have it be that, unless a later wish was carried out. Raises AssertionError where it would run twice."""
        if version <= job.version:
            self.late += 1
            return
        job.version = version
        if wanted.state is TaskState.ABSENT:
            self.end(job, Exit(kind=ExitKind.STOPPED, time_s=self.clock()))
        elif job.tasks != wanted.tasks:
            self._start(job, wanted)
        elif job.state in RUNS:
            self._change(job, wanted)

    def _start(self, job: EngineJob, wanted: Wanted) -> None:
        again = [task for task in wanted.tasks if task in self.started]
        assert not again, f"{again[0]} is started again"
        assert job.state not in RUNS, f"job {job.number} runs, and is started again"
        self.started += wanted.tasks
        job.tasks, job.found, job.kept = wanted.tasks, None, False
        job.nodes, job.share_cores = wanted.nodes, wanted.share_cores
        self._set(job, TaskState.RUNNING)

    def _change(self, job: EngineJob, wanted: Wanted) -> None:
        job.nodes, job.share_cores = wanted.nodes, wanted.share_cores
        if wanted.state is TaskState.RUNNING:
            job.kept = False
            self._set(job, TaskState.RUNNING)
            return
        job.kept = job.rigid
        self._set(job, TaskState.RUNNING if job.rigid and not wanted.keep else TaskState.PAUSED)

    def _set(self, job: EngineJob, state: TaskState) -> None:
        if job.state is not state:
            job.state, job.since_s = state, self.clock()

    def end(self, job: EngineJob, found: Exit) -> None:
        """It ends that way; the engine remembers how, until it is told to forget the job."""
        if job.state in RUNS:
            job.found = found
            self._set(job, TaskState.EXITED)

    def finish(self, job: EngineJob, code: int = 0) -> None:
        """Its program ends by itself."""
        self.end(job, Exit(kind=ExitKind.CODE, code=code, time_s=self.clock()))

    def fail(self, name: str) -> None:
        """A node goes down, with all that runs there: the engine starts nothing again by itself."""
        self.nodes[name].up = False
        for job in self.jobs.values():
            if name in job.nodes:
                self.end(job, Exit(kind=ExitKind.LOST, time_s=self.clock()))

    def forget(self, job: EngineJob) -> None:
        """It is over, and everybody knows how."""
        self.end(job, Exit(kind=ExitKind.STOPPED, time_s=self.clock()))
        self.jobs.pop(job.number, None)
