"""What users see of a live cluster, as the API gives and takes it: JSON with the unit in every name.

Wall-clock times are seconds since 1970; CPU is in cores, memory in bytes; fractions are in [0, 1].
"""

import base64
import dataclasses
import re
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationInfo, field_validator
from pydantic.dataclasses import dataclass

from dfrs.live.drivers.base import INPUT_CHARS, InputSignal, ProgramName, ResourceCounts, Terminal
from dfrs.live.drivers.file_names import is_shared, letters
from dfrs.live.protocol.node_choice import CONSTRAINT, features
from dfrs.live.protocol.observed import Name
from dfrs.model.text import CONTROLS, has_controls

MOST_ARRAY = 10_000
"""Jobs of one array."""

DEPENDENCIES = ("after", "after_failed", "after_any", "after_start")
"""Fields of a request that name the jobs that it comes after."""
STORED = "stored"
"""Context of validation: the resource was accepted before, maybe by rules that said less."""
LABEL = rf"^[^{CONTROLS}]{{1,128}}$"
"""What a name must match; that of a stored request may have what earlier versions accepted."""
Label = Annotated[str, StringConstraints(min_length=1, max_length=128)]
PLAIN = "must have no character that controls a terminal or the direction of text"
User = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,31}$")]
Account = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")]
"""What jobs are charged to, such as a project."""
Number = Annotated[int, Field(ge=1, le=2**63 - 1)]
"""Of a job."""
FileName = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
"""Of a file for output, with patterns as `%j`."""
OpenMode = Literal["append", "truncate"]
JobEvent = Literal["begin", "end", "fail"]
"""Of a job, of which its user can be told: it runs for the first time, has ended, has ended otherwise than well."""
WarningSignal = Literal["HUP", "INT", "QUIT", "ALRM", "TERM", "USR1", "USR2", "CONT", "XCPU", "URG", "WINCH"]
"""By which a program can be told that its time is nearly up."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _without_controls(text: str) -> str:
    if has_controls(text):
        raise ValueError(PLAIN)
    return text


_PATTERN = Field(json_schema_extra={"pattern": rf"^[^{CONTROLS}]*$"})
"""What `_without_controls` lets pass, for who reads the API's document."""
Recipient = Annotated[str, StringConstraints(min_length=1, max_length=256), AfterValidator(_without_controls), _PATTERN]
Reason = Annotated[str, StringConstraints(max_length=256), AfterValidator(_without_controls), _PATTERN]
"""Why something was done, as who did it says; empty if nothing was said."""


class ApiModel(BaseModel):
    """Base: frozen, nothing unknown, finite numbers."""

    # Validators are built when a model is first used: a verb reads one or two of the many.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class Restart(StrEnum):
    """What becomes of a job whose node is lost."""

    NEVER = "never"
    ON_NODE_LOSS = "on-node-loss"
    """It is queued again, once."""
    ANY_TIME = "any-time"
    """It may be ended whenever its memory is needed, and begins anew later, also each time its node is lost."""


class JobRequest(ApiModel):
    """A job to submit. Each of `tasks` identical tasks runs `command`."""

    command: tuple[Annotated[str, Field(max_length=131072)], ...] = Field(min_length=1, max_length=4096, fail_fast=True)
    name: Label | None = None
    user: User | None = None
    """Only an admin may submit for another."""
    account: Account | None = None
    """To which its use is charged; None: to none."""
    tasks: int = Field(default=1, ge=1, le=100_000)
    cpu_cores: float | None = Field(default=None, gt=0, le=65536)
    """Need of each task; None: discovered by watching it."""
    memory_bytes: int | None = Field(default=None, ge=1 << 20, le=1 << 50)
    """Requirement and limit of each task; None: the cluster's default."""
    minimum_yield: float = Field(default=0.0, ge=0, le=1)
    weight: float = Field(default=1.0, ge=0.001, le=1000)
    """A factor of its priority; under a policy with `/WEIGHT` also of its part of scarce CPU. Above 1 only where its
    user's quota allows it."""
    resources: ResourceCounts = Field(default_factory=dict)
    """Of named resources of nodes, such as `gpu`, what each task has for itself, from its start to its end."""
    exclusive: bool = False
    """Whether no task of another job may be on its nodes while it is there."""
    estimate_s: float | None = Field(default=None, gt=0, le=1e9)
    """The user's estimate of the processing time: only batch policies use it."""
    time_limit_s: float | None = Field(default=None, gt=0, le=1e9)
    """Running time after which it is ended."""
    warning_signal: WarningSignal | None = None
    """What all its processes get before the time limit ends it; None, and without a limit: nothing."""
    warning_s: float = Field(default=60.0, gt=0, le=1e9, validate_default=True)
    """So long before it, in running time: less than the limit."""
    start_at: float | None = Field(default=None, ge=0, le=1e11)
    """Wall clock: a dedicated job, to start then."""
    after: tuple[Number, ...] = Field(default=(), max_length=1000, fail_fast=True)
    """Jobs that must have ended well first."""
    after_failed: tuple[Number, ...] = Field(default=(), max_length=1000, fail_fast=True)
    """Jobs that must have ended otherwise first: failed or cancelled."""
    after_any: tuple[Number, ...] = Field(default=(), max_length=1000, fail_fast=True)
    """Jobs that must have ended first, however that was."""
    after_start: tuple[Number, ...] = Field(default=(), max_length=1000, fail_fast=True)
    """Jobs that must have started first, or ended without that."""
    nodelist: tuple[Name, ...] = Field(default=(), max_length=1000, fail_fast=True)
    """Only these nodes; none: all of them."""
    exclude: tuple[Name, ...] = Field(default=(), max_length=1000, fail_fast=True)
    """Not these nodes."""
    constraint: str = Field(default="", max_length=1000, json_schema_extra={"pattern": CONSTRAINT})
    """Only nodes with these features: all of `a,b` or `a&b`, or any of `a|b`."""
    array: int | None = Field(default=None, ge=1, le=MOST_ARRAY)
    """So many jobs, with DFRS_ARRAY_INDEX from 0."""
    array_limit: int | None = Field(default=None, ge=1, le=MOST_ARRAY)
    """So many of them at most have begun and not ended at any time; None: as many as find room."""
    restart: Restart = Restart.ON_NODE_LOSS
    held: bool = False
    profile: bool = False
    """Whether its MPI programs are profiled; the document is the stream `profile` of its output."""
    input: bool = False
    """Whether the standard input of its first task is what is sent to it; else it has none."""
    terminal: Terminal | None = None
    """What standard input, output and error output of its first task are, if so."""
    output_file: FileName | None = None
    """On the node and relative to `directory`: output goes there as well, and error output without `error_file`."""
    error_file: FileName | None = None
    open_mode: OpenMode | None = None
    """None: they are replaced, unless several tasks share one, or the job begins anew."""
    notify: tuple[JobEvent, ...] = Field(default=(), max_length=3)
    """Of what somebody is to be told, where the controller has a way to tell it."""
    notify_to: Recipient | None = None
    """Whom, as that way takes it: an address. None: its user."""
    directory: str = Field(default="/", max_length=4096, pattern=r"^/[^\x00]*$")
    environment: dict[str, Annotated[str, Field(max_length=131072)]] = Field(default_factory=dict, max_length=1000)

    @property
    def dependencies(self) -> frozenset[int]:
        """All jobs that it comes after, in whatever way."""
        return frozenset((*self.after, *self.after_failed, *self.after_any, *self.after_start))

    @field_validator("warning_s")
    @classmethod
    def _after_the_beginning(cls, warning_s: float, info: ValidationInfo) -> float:
        limit_s = info.data.get("time_limit_s")
        if info.data.get("warning_signal") is None or limit_s is None or info.context == STORED:
            return warning_s
        if warning_s >= limit_s:
            # Its program could not handle the signal yet, and would be ended by it.
            raise ValueError(f"must be fewer seconds than the time limit, {limit_s:g}")
        return warning_s

    @field_validator("exclude")
    @classmethod
    def _leaves_some(cls, exclude: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        nodelist = info.data.get("nodelist")
        if nodelist and set(nodelist) <= set(exclude):
            raise ValueError("must leave some of the nodes that the job may only run on")
        return exclude

    @field_validator("constraint")
    @classmethod
    def _of_features(cls, constraint: str) -> str:
        if constraint:
            features(constraint)
        return constraint

    @field_validator("name")
    @classmethod
    def _plain(cls, name: str | None, info: ValidationInfo) -> str | None:
        if name is not None and info.context != STORED and has_controls(name):
            raise ValueError(PLAIN)
        return name

    @field_validator("output_file", "error_file")
    @classmethod
    def _known_patterns(cls, name: str | None, info: ValidationInfo) -> str | None:
        if name is not None and "\x00" in name:
            raise ValueError("must have no NUL character")
        if name is not None and "a" in letters(name) and info.data.get("array") is None:
            raise ValueError("%a: only a job of an array has an index")
        return name

    @field_validator("open_mode")
    @classmethod
    def _of_one_task(cls, mode: OpenMode | None, info: ValidationInfo) -> OpenMode | None:
        tasks, array = info.data.get("tasks", 1), info.data.get("array")
        for name in filter(None, (info.data.get("output_file"), info.data.get("error_file"))):
            if mode == "truncate" and is_shared(name, tasks, array):
                own = "%t" if tasks > 1 else "%j"
                raise ValueError(f"tasks share {name}, and would remove what others wrote: give each its own by {own}")
        return mode

    @field_validator("command")
    @classmethod
    def _no_nul(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        return _checked_command(command)

    @field_validator("environment")
    @classmethod
    def _named(cls, environment: dict[str, str]) -> dict[str, str]:
        return _checked_environment(environment)


def _checked_command(command: tuple[str, ...]) -> tuple[str, ...]:
    if any("\x00" in part for part in command) or not command[0]:
        raise ValueError("must be a program and its arguments without NUL characters")
    return command


def _checked_environment(environment: dict[str, str]) -> dict[str, str]:
    for name, value in environment.items():
        if not _VARIABLE.fullmatch(name) or "\x00" in value or name.startswith("DFRS_"):
            raise ValueError(f"{name!r}: must be a variable's name, not one of DFRS_*, with a value without NUL")
    return environment


class ProgramRequest(ApiModel):
    """A program to start beside those of a job, on the node of one of its tasks: where and as that task runs."""

    name: ProgramName
    """Drawn by who starts it. One of this name is started once, however often it is asked for."""
    rank: int = Field(default=0, ge=0, le=1_000_000)
    command: tuple[Annotated[str, Field(max_length=131072)], ...] = Field(min_length=1, max_length=4096, fail_fast=True)
    environment: dict[str, Annotated[str, Field(max_length=131072)]] = Field(default_factory=dict, max_length=1000)
    """In addition to that of the job."""
    input: bool = False
    """Whether its standard input is what is sent to it; else it has none."""
    terminal: Terminal | None = None
    """What its standard input, output and error output are, if so."""

    @field_validator("command")
    @classmethod
    def _no_nul(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        return _checked_command(command)

    @field_validator("environment")
    @classmethod
    def _named(cls, environment: dict[str, str]) -> dict[str, str]:
        return _checked_environment(environment)


class InputRequest(ApiModel):
    """Something for a program that has input or a terminal: more input, the end of it, a size, a signal."""

    rank: int = Field(default=0, ge=0, le=1_000_000)
    program: ProgramName | None = None
    """Beside the task's own; None: the task's."""
    writer: ProgramName
    """Drawn by who sends it: each has a count of bytes of its own."""
    offset: int = Field(default=0, ge=0, lt=1 << 60)
    """How many bytes this writer has sent before these: what has come already is passed over."""
    data: str = Field(default="", max_length=INPUT_CHARS)
    """Base64."""
    end: bool = False
    """There is no more input. Means nothing to a terminal."""
    size: Terminal | None = None
    """Of its terminal, from now on."""
    signal: InputSignal | None = None
    """For all its processes."""

    @field_validator("data")
    @classmethod
    def _encoded(cls, data: str) -> str:
        try:
            base64.b64decode(data.encode("ascii"), validate=True)
        except ValueError:
            raise ValueError("must be base64") from None
        return data


class InputTaken(ApiModel):
    """What became of input."""

    taken: int
    """Bytes of it that the program will read; send the rest again."""


class JobState(StrEnum):
    """Where a job is in its life."""

    PENDING = "pending"
    """Waits for jobs named by `after`, or for its requested start under a policy without dedicated jobs."""
    HELD = "held"
    WAITING = "waiting"
    """In the queue."""
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    ENDING = "ending"
    DONE = "done"
    """All its tasks ended with status 0."""
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED})


class Job(ApiModel):
    """A job as it is now."""

    id: int
    name: str
    user: str
    state: JobState
    why: str
    """In words: why it is where it is."""
    command: tuple[str, ...]
    tasks: int
    cpu_cores: float | None
    """Declared need of a task."""
    need_cores: float
    """What it is taken to need now: declared, or the estimate."""
    need_error_cores: float | None
    """Half-width of the estimate's error bar; None for a declared need."""
    memory_bytes: int
    minimum_yield: float
    weight: float = 1.0
    fair_share: float | None = None
    """Its weight is multiplied by that, for what was used lately; None: it is not, or the job has ended."""
    yield_granted: float | None
    """The share of its least task, as part of its present need, at most 1; None where it is not on nodes."""
    yield_received: float | None
    """By its worst served task in the last seconds, as its node measured it; None where it is not on
    nodes, or nothing is measured yet, or its node cannot tell."""
    yield_received_error: float | None
    """Half-width of its error bar: a standard deviation."""
    apart: str = ""
    """Why the two differ, in words; empty where they do not."""
    used_cores: float | None
    """Of all its tasks, in the last seconds."""
    used_bytes: int | None
    cpu_s: float
    """CPU time used so far by all tasks."""
    peak_bytes: int | None = None
    """The most memory that one of its tasks had, of those that have ended; None where no node could tell."""
    nodes: tuple[str, ...]
    """One a task."""
    submitted_at: float
    started_at: float | None
    ended_at: float | None
    start_at: float | None
    virtual_s: float
    """Integral over time of the yield received; of that granted where its nodes cannot tell."""
    virtual_measured: bool = True
    """Whether `virtual_s` is what was received."""
    virtual_granted_s: float = 0.0
    """Integral over time of the yield granted."""
    stretch: float | None
    """Flow time / virtual time, each at least 10 s."""
    estimate_s: float | None
    time_limit_s: float | None = None
    """Running time after which it is ended."""
    after: tuple[int, ...]
    """Jobs that must end well first."""
    after_failed: tuple[int, ...] = ()
    after_any: tuple[int, ...] = ()
    after_start: tuple[int, ...] = ()
    array_index: int | None
    array_limit: int | None = None
    """So many of its array at most have begun and not ended at any time."""
    attempt: int
    """How often it was queued again."""
    generation: str = ""
    """Of the controller's start in which this attempt was placed; a part of its tasks' names on nodes."""
    pauses: int
    migrations: int
    exit: str
    """How it ended, in words; empty before."""
    exit_code: int | None
    profile: bool = False
    """Whether its MPI programs are profiled."""
    restart: Restart = Restart.ON_NODE_LOSS
    """When it may begin anew."""
    input: bool = False
    """Whether its first task reads what is sent to it."""
    terminal: bool = False
    """Whether it has a terminal."""
    nodelist: tuple[str, ...] = ()
    """The only nodes on which it may run; none: all of them."""
    exclude: tuple[str, ...] = ()
    """Nodes on which it may not run."""
    constraint: str = ""
    """Features that its nodes must have, as in the request; empty: any node will do."""
    resources: dict[str, int] = {}
    """Named resources of each task."""
    exclusive: bool = False
    """Whether it has its nodes to itself."""
    account: str | None = None
    """To which its use is charged."""
    output_file: str | None = None
    """To which its output goes as well, as it was asked for."""
    error_file: str | None = None

    def __repr__(self) -> str:
        part = shown_yield(self)
        share = "" if part is None else f", yield {part:.2f}"
        place = f" on {', '.join(dict.fromkeys(self.nodes))}" if self.nodes else ""
        return f"<Job {self.id} {self.name!r}: {self.state}{place}{share}>"


def shown_yield(job: Job) -> float | None:
    """What a job receives; before that is measured, what it was granted. None where it is not on nodes."""
    return job.yield_granted if job.yield_received is None else job.yield_received


# A controller makes thousands a second: as one of the other models each would take five times as long.
@dataclasses.dataclass(frozen=True, slots=True)
class NodeTask:
    """A task on a node."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", allow_inf_nan=False)

    job: int
    rank: int
    user: str
    name: str
    share_cores: float
    """What it is granted here: its part of what other tasks leave is the same. 0 while it is paused, comes or goes."""
    used_cores: float | None
    """In the last seconds; None where that is not known, or another node has it still."""
    paused: bool
    attempt: int = 0
    """Which attempt at the job it is of: one before the present one is about to end."""


class NodeState(StrEnum):
    """What a node is to the controller."""

    UP = "up"
    DRAINING = "draining"
    """It keeps what it has and gets nothing more."""
    SILENT = "silent"
    """No word from it for a while; its jobs may run on."""
    UNHEALTHY = "unhealthy"
    """It cannot do its work, and says why: it keeps what it has, gets nothing more, and opens by itself."""
    LOST = "lost"
    """Silent for so long that its jobs were queued again, or it left."""


class ReservationRequest(ApiModel):
    """Nodes to reserve for maintenance: from the start to the end they get nothing new."""

    nodes: tuple[Name, ...] = Field(min_length=1, max_length=200, fail_fast=True)
    start_at: float | None = Field(default=None, ge=0, le=1e11)
    """Wall clock; None: now."""
    duration_s: float = Field(gt=0, le=1e9)
    reason: Reason = ""
    evacuate: bool = False
    """Whether jobs that are there from the start on are ended and queued again, if they may begin anew."""


class Reservation(ApiModel):
    """Nodes that are reserved for maintenance. It is on from `start_at` to `end_at`, by the controller's wall clock."""

    id: int
    nodes: tuple[str, ...]
    start_at: float
    end_at: float
    reason: str = ""
    evacuate: bool = False
    by: str
    """The admin who made it."""
    cancelled: bool = False

    def is_on(self, now: float) -> bool:
        """Whether its nodes are closed at that time of the wall clock."""
        return not self.cancelled and self.start_at <= now < self.end_at


class Node(ApiModel):
    """A node as it is now."""

    name: str
    host: str
    state: NodeState
    cpus: float
    memory_bytes: int
    memory_free_bytes: int
    used_cores: float
    """By its tasks, in the last seconds."""
    granted_cores: float
    """Shares of its tasks together."""
    outside_cores: float | None = None
    """What programs that are no tasks use of its CPUs; None where that is not measured."""
    left_cores: float | None = None
    """What is left of its CPUs for tasks where others use the rest, as the policy counts it; None: all of them."""
    tasks: tuple[NodeTask, ...]
    shares: str
    """By what CPU is shared: cgroup-v2, cgroup-v1 or nice."""
    caps: bool
    pause_frees_memory: bool
    notes: tuple[str, ...]
    problem: str = ""
    """Why it gets no jobs until it can do its work, in words; empty if it can."""
    drained: bool = False
    """Whether somebody drained it. Its state need not say so: one that is reserved is draining, too, and one that is
    drained may be silent."""
    drain_reason: str = ""
    """Why it was drained, as its operator said; empty if nothing was said."""
    resources: dict[str, int] = {}
    """How many of each named resource it has."""
    resources_used: dict[str, int] = {}
    """What its tasks have of them."""
    reservations: tuple[Reservation, ...] = ()
    """Those of it that have not ended, by their starts. While one is on, the node is draining."""
    connected: bool
    """Whether its agent has a connection to the controller now; without one, all else here is what was last known."""
    seen_at: float
    version: str
    """Of its agent; empty where another engine has the node."""
    features: tuple[str, ...] = ()
    """What its operator says of it, for jobs that ask for it."""

    def __repr__(self) -> str:
        tasks = f"{len(self.tasks)} task{'' if len(self.tasks) == 1 else 's'}"
        return f"<Node {self.name!r}: {self.state}, {self.used_cores:.2f} of {self.cpus:g} cores in use, {tasks}>"


class Activity(ApiModel):
    """One thing that happened: to a job, a node or the cluster."""

    sequence: int
    time: float
    job: int | None
    node: str | None
    action: str
    """submit, start, pause, resume, migrate, share, finish, fail, cancel, hold, update, lost, join, drain, …"""
    nodes: tuple[str, ...] = ()
    yield_: float | None = None
    why: str = ""
    by: str = ""
    """The user who asked for it, if one did."""


class Price(ApiModel):
    """What a pause, a resume or a move costs a job."""

    seconds: float
    """As the policy sees it; 0 until known."""
    samples: int
    """How many the controller knows of, at most the last 50 since it started."""


class Cluster(ApiModel):
    """The whole, now."""

    name: str
    version: str
    policy: str
    abilities: str = ""
    """What nodes can do with jobs that have started, in words: by that the policy decides."""
    discovery: str
    shadow: str | None
    now: float
    started_at: float
    jobs: dict[JobState, int]
    nodes: dict[NodeState, int]
    cpus: float
    left_cores: float | None = None
    """What is left of them for tasks, where that is less."""
    used_cores: float
    minimum_yield: float | None
    """The least that a job on nodes, starting or running, receives; of one of which nothing is measured yet, what it
    was granted. None without such jobs. Those that wait or are paused are counted in `jobs`."""
    median_yield: float | None
    jain: float | None
    """Jain's index of the yields of those jobs."""
    unmeasured: int = 0
    """How many of those jobs are counted with what they were granted."""
    bound: float | None
    """No schedule gives all of them a higher minimum yield. At least `minimum_yield`."""
    decisions: int
    decision_s: float
    """Time of the last decision."""
    shadow_differs: int
    """Decisions in which the shadow policy would have done something else."""
    standbys: int | None = None
    """Controllers that wait to take over from this one, the leader; None where the database does not allow any."""
    notifies: bool = False
    """Whether users are told of their jobs as `notify` of a request asks."""
    prices: dict[str, Price] = {}
    """Of a pause, a resume and a move."""
    jobs_pruned_until: float | None = None
    """Jobs that ended until then, by the wall clock, are no longer kept; None: all are."""

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {state}" for state, count in self.jobs.items() if count)
        least = "" if self.minimum_yield is None else f", minimum yield {self.minimum_yield:.2f}"
        return f"<Cluster {self.name!r}: {self.policy}, {self.cpus:g} cores, jobs: {counts or 'none'}{least}>"


class TimePoint(ApiModel):
    """One instant of the cluster's history; yields as in `Cluster`."""

    time: float
    minimum_yield: float | None
    median_yield: float | None
    jain: float | None
    bound: float | None
    running: int
    waiting: int
    used_cores: float


class JobPoint(ApiModel):
    """One instant of a job's past; fields as in `Job`, to seven digits. Yields are None where it was not on nodes."""

    time: float
    yield_granted: float | None
    yield_received: float | None
    need_cores: float
    used_cores: float | None
    used_bytes: float | None


@dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True))
class GanttBar:
    """A stretch of time in which a job had the same place and share: one bar of a Gantt chart.

    A controller keeps tens of thousands: as one of the other models it would need five times the memory.
    """

    job: int
    rank: int
    name: str
    user: str
    node: str
    begin: float
    end: float | None
    share_cores: float
    paused: bool = False


class Explanation(ApiModel):
    """Why a job is where it is, and how it came there."""

    job: Job
    now: str
    history: tuple[Activity, ...]
    bound: float | None
    cluster: Cluster | None = None
    """Of the same snapshot."""


class ExpectedStart(ApiModel):
    """When a job that waits starts, or a paused one goes on, as far as anybody can say."""

    at: float | None
    """Wall clock: of its start, where it has nodes; None: nobody knows."""
    why: str
    """In words: on what that rests, or why nobody knows."""


class ClusterSnapshot(ApiModel):
    """The cluster at one instant: all numbers in it agree with each other."""

    sequence: int
    """Grows with every snapshot, also over restarts of the controller."""
    activity: int
    """Sequence number of the latest activity that is in it."""
    cluster: Cluster
    nodes: tuple[Node, ...]
    """By name."""
    jobs: tuple[Job, ...]
    """The latest first: those asked for, or else all that have not ended."""
    queue: tuple[Job, ...] = ()
    """Those of all jobs that wait, the longest first: as many as were asked for."""
    explanation: Explanation | None = None
    """Of the job asked for; None if there is none."""


class OutputPart(ApiModel):
    """A piece of a task's output."""

    text: str
    """Bytes that are not UTF-8 are replaced, and of a character that is there in part they come with its others; empty
    where `data` was asked for."""
    data: str | None = None
    """All bytes, in base64, where that was asked for."""
    offset: int
    next_offset: int
    """Ask from here next."""
    end_offset: int = 0
    """Where it ends now: as many bytes the task has written, as far as its node knows."""
    ended: bool
    """There is and will be no more."""
    exit_code: int | None = None
    """Of a program beside a job's, once it has ended and all was read: its status, or minus its signal."""
    attempt: int = 0
    """Of which attempt at the job it is: the output of each begins at 0."""


class Problem(ApiModel):
    """What went wrong with a request."""

    detail: str


class ShadowChoice(ApiModel):
    """What the shadow policy would have done differently at one decision."""

    time: float
    job: int
    did: str
    would: str


Role = Literal["admin", "user", "viewer", "agent"]


class TokenRequest(ApiModel):
    """A token to make."""

    user: User
    role: Role
    days: float = Field(default=365.0, gt=0, le=36500)
    local: bool = False
    """Of an agent: for any number of nodes on the controller's machine, instead of one node anywhere."""


class TokenInfo(ApiModel):
    """A token without its secret."""

    id: int
    user: str
    role: Role
    created_at: float
    expires_at: float
    revoked: bool
    local: bool | None = None
    """Of an agent: for nodes on the controller's machine only; None: from before tokens were bound to nodes."""
    node: str | None = None
    """Of an agent: the node to which it is bound; None: to none yet."""
    host: str | None = None
    """That of the node; None: the host on which it next comes."""
    cpus: float | None = None
    """With which the node was admitted, at most."""
    memory_bytes: int | None = None
    resources: dict[str, int] | None = None
    """Of each named resource so many; None: as many as it offers when it next comes."""


class NewToken(TokenInfo):
    """A token just made: the only time its secret is shown."""

    token: str
