"""What a driver is: it runs tasks on one node, gives them shares, pauses and measures them.

A driver is told what is wanted, never how: every call may be repeated, and brings the task to the wanted state from
whatever state it is in. Tasks outlive the agent that started them; a new driver on the same directory finds them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, BinaryIO, Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field

from dfrs.model.errors import DfrsError

Stream = Literal["out", "err", "profile"]
"""What a task wrote; or what the profiler has seen of it."""


class Wire(BaseModel):
    """Base of what is sent or stored: frozen, nothing unknown, numbers finite."""

    # Validators are built when a model is first used: a verb reads one or two of the many.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class TaskId(Wire):
    """One task of one attempt at a job. A re-queued job has the next `attempt`."""

    job: int = Field(ge=1, lt=1 << 63)
    rank: int = Field(ge=0, lt=1 << 31)
    attempt: int = Field(ge=0, lt=1 << 31)
    generation: str = Field(default="", pattern=r"^([0-9a-f]{8})?$")
    """Of the controller's start in which this attempt was first placed; empty for those before there were generations.

    A database that was restored from a backup gives out numbers of jobs and attempts again, but no generation.
    """

    # Names are compared and looked up thousands of times a second: what models do for any fields takes ten times that.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, TaskId) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((self.job, self.rank, self.attempt, self.generation))

    def __str__(self) -> str:
        name = f"{self.job}.{self.rank}.{self.attempt}"
        return f"{name}.{self.generation}" if self.generation else name

    @classmethod
    def parse(cls, text: str) -> "TaskId | None":
        """The one that `str` makes `text` of; None for other texts."""
        found = _TASK_NAME.fullmatch(text)
        if found is None:
            return None
        job, rank, attempt, generation = found.groups(default="")
        return cls(job=int(job), rank=int(rank), attempt=int(attempt), generation=generation)


_TASK_NAME = re.compile(r"([1-9]\d*)\.(\d+)\.(\d+)(?:\.([0-9a-f]{8}))?")


INPUT_BYTES = 48 << 10
INPUT_CHARS = INPUT_BYTES * 4 // 3
"""Most bytes of input that are sent at once, and their most characters in base64."""

NO_JOB = (1 << 63) - 1
"""Job of tasks that an agent runs for itself: no controller hears of them, and nothing that they wrote is kept."""


class Terminal(Wire):
    """A terminal, as a program finds it when it starts."""

    rows: int = Field(default=24, ge=1, le=65535)
    columns: int = Field(default=80, ge=1, le=65535)


ProgramName = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
"""Of a program beside a job's own: drawn by who starts it, so that nothing is started twice."""
InputSignal = Literal["INT", "QUIT", "HUP", "TERM"]
"""What a user can send to a program, as a terminal does."""


class ProgramSpec(Wire):
    """A program that is started beside a task's own: in its directory, and with its account, limits and share."""

    name: ProgramName
    command: tuple[Annotated[str, Field(max_length=131072)], ...] = Field(min_length=1, max_length=4096, fail_fast=True)
    environment: dict[str, Annotated[str, Field(max_length=131072)]] = Field(default_factory=dict, max_length=1000)
    """In addition to that of the task."""
    input: bool = False
    """Whether its standard input is what is sent to it; else it has none."""
    terminal: Terminal | None = None
    """What its standard input, output and error output are, if so."""


class InputPart(Wire):
    """Something for a program that has input or a terminal: more input, the end of it, a size, a signal."""

    program: ProgramName | None = None
    """Beside the task's own; None: the task's."""
    writer: ProgramName
    """Drawn by who sends it: each has a count of bytes of its own."""
    offset: int = Field(default=0, ge=0, lt=1 << 60)
    """How many bytes this writer has sent before these: what has come already is passed over."""
    data: Annotated[str, Field(max_length=INPUT_CHARS)] = ""
    """Base64."""
    end: bool = False
    """There is no more input. Means nothing to a terminal."""
    size: Terminal | None = None
    signal: InputSignal | None = None
    """For all its processes."""


ResourceName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,30}$")]
"""Of a named resource of nodes, such as `gpu`."""
ResourceCounts = Annotated[dict[ResourceName, Annotated[int, Field(ge=1, le=65536)]], Field(max_length=32)]


class TaskFile(Wire):
    """A file that output of tasks goes to as well, relative to their directory."""

    name: str = Field(min_length=1, max_length=4096)
    """With the patterns that are of a task: see `file_names`."""
    mode: Literal["append", "truncate"]
    """What becomes of what it holds when a task starts."""


class TaskSpec(Wire):
    """What a task runs. The same for all tasks of a job."""

    command: tuple[str, ...] = Field(min_length=1)
    """Program and arguments; no shell."""
    directory: str
    environment: dict[str, str] = Field(default_factory=dict)
    """The whole of it, but for what the driver adds: DFRS_JOB_ID, DFRS_RANK, DFRS_TASKS, DFRS_PEERS, DFRS_NODE.

    DFRS_PEERS is left out where it is longer than a variable can be."""
    tasks: int = Field(ge=1)
    peers: tuple[str, ...]
    """Address of the node of each rank."""
    memory_bytes: int = Field(gt=0)
    """The task's memory limit: its requirement."""
    account: str | None = None
    """Unix account it runs under; None: the agent's own."""
    time_limit_s: float | None = Field(default=None, gt=0)
    """Wall-clock seconds, pauses not counted, after which it is ended."""
    warning_signal: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9]{1,7}$")] | None = None
    """Name, without SIG, of what all its processes get before that; None: nothing."""
    warning_s: float = Field(default=60.0, gt=0)
    """So many seconds before it, counted in the same way."""
    input: bool = False
    """Whether the standard input of the first task is what is sent to it; else no task has any."""
    terminal: Terminal | None = None
    """What standard input, output and error output of the first task are, if so."""
    output_file: TaskFile | None = None
    """Opened by the task's account; where it cannot be, the task does not start."""
    error_file: TaskFile | None = None
    """None: error output, too, goes to `output_file`."""
    output_bytes: int = Field(default=16 << 20, gt=0)
    """Size at which an output file is rotated; one older file is kept."""
    profile: bool = False
    """Whether its MPI programs are profiled ([Atif2011] sections 5.2 to 5.4)."""
    resources: ResourceCounts = Field(default_factory=dict)
    """What it has of the node's named resources from its start to its end: no other task has the same. It is told which
    by variables such as DFRS_RESOURCE_GPU, and those of `gpu` by CUDA_VISIBLE_DEVICES, too."""
    exclusive: bool = False
    """Whether no task of another job may be on its node meanwhile."""


class TaskState(StrEnum):
    """What a task does."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    HANDED = "handed"
    """Given up by its node for another on the same host, which has not taken it yet; its processes run on."""
    EXITED = "exited"
    ABSENT = "absent"


class ExitKind(StrEnum):
    """How a task came to its end."""

    CODE = "code"
    SIGNAL = "signal"
    OUT_OF_MEMORY = "out-of-memory"
    TIME_LIMIT = "time-limit"
    STOPPED = "stopped"
    """Ended because it was asked to."""
    NOT_STARTED = "not-started"
    """The program could not be run; `message` says why."""
    LOST = "lost"
    """Its processes are gone and nobody saw how: the node went down."""


class Exit(Wire):
    """How a task ended."""

    kind: ExitKind
    code: int | None = None
    """Exit status, for CODE."""
    signal: int | None = None
    """Number, for SIGNAL, STOPPED and others that were killed."""
    time_s: float
    """Wall clock, seconds since 1970."""
    cpu_s: float | None = None
    """CPU seconds that it used, where they are known."""
    peak_bytes: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """A task as its node finds it."""

    task: TaskId
    state: TaskState
    exit: Exit | None = None
    pid: int | None = None
    kept: bool | None = False
    """Of a paused task, where pauses free memory: whether its memory stayed; None: not settled yet, pause it again."""
    transfers: int = 0
    """How often it has gone from one host to another."""
    note: str = ""
    """Of one that runs: what is wrong with it all the same, in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a task has used since it started. Counters only grow; None where the host does not tell."""

    task: TaskId
    time_s: float
    """Monotonic clock of the host."""
    cpu_s: float
    memory_bytes: int
    swap_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    throttled_s: float | None = None
    """Time in which its quota kept it from running."""
    waiting_s: float | None = None
    """Time in which its threads, together, could have run and did not. This and what follows is counted since this
    driver first looked at the task, and begins anew with another one."""
    watched_s: float | None = None
    """Time in which it was looked at and not paused."""
    delayed_s: float | None = None
    """Time of that in which it was held up; see `run_delays`."""


class ImageFormat(Wire):
    """What decides on which hosts a task can go on that was check-pointed on this one."""

    machine: Annotated[str, Field(max_length=64)]
    cpu: tuple[Annotated[str, Field(max_length=64)], ...]
    """What the CPU can do, by the kernel's names."""
    kernel: Annotated[str, Field(max_length=255)]
    criu: Annotated[str, Field(max_length=64)]
    """Version."""

    def why_not_from(self, other: "ImageFormat") -> str:
        """Why a task that was check-pointed on `other` cannot go on here, in one line; empty if it can."""
        if other.machine != self.machine:
            return f"it was made on {other.machine}, and this is {self.machine}"
        if missing := set(other.cpu) - set(self.cpu):
            return f"the CPU here lacks {', '.join(sorted(missing)[:5])}"
        # What a program has learned of its kernel must still be true; later patches of a version take nothing away.
        if _version(self.kernel)[:2] < _version(other.kernel)[:2]:
            return f"it was made under Linux {other.kernel}, and here is {self.kernel}"
        if _version(self.criu) < _version(other.criu):
            return f"it was made by CRIU {other.criu}, and here is {self.criu}"
        return ""


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


class DriverAbilities(Wire):
    """What a driver really can do on this host; policies and users are told.

    What policies are to know goes with the node (`NodeFacts`) to the controller, by events of `dfrs.model.nodes` into
    the state of `dfrs.engine`, and from there into the `dfrs.model.decisions.Abilities` of a snapshot.
    """

    shares: Annotated[str, Field(max_length=32)]
    """By what shares are given: `cgroup-v2`, `cgroup-v1`, `nice`."""
    caps: bool
    """Whether it can give hard limits on CPU."""
    memory_limits: bool
    pause_frees_memory: bool
    """Whether a paused task's memory is free for others."""
    moves_on_host: bool
    """Whether a running task can go to another node of the same host."""
    measures_waiting: bool
    images: ImageFormat | None = None
    """Its tasks can be check-pointed and go to other hosts; None: they cannot."""
    notes: tuple[str, ...] = ()
    """What is missing and why, one line each, for the operator."""


class DriverError(DfrsError):
    """The host refused: the message says what was tried and what to do."""


class NotYetError(DriverError):
    """It can be done as soon as other tasks have left: try again soon."""


class PauseRefusedError(DriverError):
    """The task's memory could not be freed, so it was not paused: it runs on."""


class CheckpointRefusedError(DriverError):
    """The task cannot be check-pointed: it goes on as it was."""


class RefusedError(DriverError):
    """No other attempt on this node could start the task."""


class UnsuitableError(DriverError):
    """This driver cannot run such a node on this host; another one may."""


KEPT_OUTPUT_BYTES = 1 << 30
"""Output of forgotten tasks on a host, unless told otherwise."""

ShareMode = Literal["weights", "caps"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """A node of this host, as an operator wants it."""

    root: Path
    """Where tasks have their files; all nodes of a host share it."""
    cluster: str
    """Names what the nodes that share `root` have on the host, such as control groups."""
    node: str
    cores: float
    """CPU time that its tasks have together."""
    memory_bytes: int
    cpus: str | None = None
    """Its CPUs, as `0-3,6`; None: all."""
    shares: ShareMode = "weights"
    """With caps a task never gets more than its share; with weights it may use what others leave."""
    output_bytes: int = KEPT_OUTPUT_BYTES
    swap_bytes: int | None = None
    """Of the host's swap space, what its paused tasks may take; None: all there is; 0: none."""
    images_bytes: int | None = None
    """Of the host's disk, what all images of tasks may take there; None: a tenth of what is free; 0: none are made."""
    resources: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """How many of each named resource it has: its tasks have those numbered from 0."""


class Driver(Protocol):
    """Runs the tasks of one node."""

    @property
    def abilities(self) -> DriverAbilities:
        """What it can do here."""
        ...

    def tasks(self) -> Sequence[TaskStatus]:
        """All tasks that this node has, ended ones included until they are forgotten."""
        ...

    def start(self, task: TaskId, spec: TaskSpec, share_cores: float) -> None:
        """Run it, unless it runs or has run already. A program that cannot run is an exit.

        Raises DriverError, and RefusedError where it makes no sense to try again.
        """
        ...

    def take(self, task: TaskId, share_cores: float) -> None:
        """Take over a task that another node of this host has handed; nothing if it is here."""
        ...

    def hand(self, task: TaskId) -> None:
        """Give a running task up for another node of this host; it runs on. Nothing if it is not here."""
        ...

    def send(self, task: TaskId, stream: BinaryIO) -> None:
        """Give a task up for a node of another host: check-point it, if it is in no image, and write all to `stream`.

        From then on it is HANDED, and its image stays here until it is forgotten or taken back. Raises
        CheckpointRefusedError, which leaves it as it was; OSError of the stream, after which it is HANDED even so.
        """
        ...

    def receive(self, task: TaskId, spec: TaskSpec, stream: BinaryIO) -> None:
        """Take what `send` wrote: the task is here then, PAUSED, with its output. Nothing if it is here already.

        Raises DriverError, OSError and EOFError; then nothing of it is here.
        """
        ...

    def set_share(self, task: TaskId, share_cores: float) -> None:
        """Its guaranteed CPU, in cores. What others leave may be used beyond it, unless shares are caps."""
        ...

    def pause(self, task: TaskId, *, keep: bool = False) -> None:
        """Stop it where it is, and free its memory if the node's pauses do so.

        Raises PauseRefusedError where that cannot be done. With `keep` it is then stopped all the same.
        """
        ...

    def resume(self, task: TaskId) -> None:
        """Let it go on."""
        ...

    def stop(self, task: TaskId, grace_s: float) -> None:
        """Ask all its processes to end; kill what is left after `grace_s`. Returns at once the first time."""
        ...

    def forget(self, task: TaskId) -> None:
        """Remove every trace of an ended task but its output; of one that runs, end it first."""
        ...

    def usage(self) -> Sequence[Usage]:
        """One row for each running or paused task."""
        ...

    def output(self, task: TaskId, stream: Stream, offset: int, limit: int) -> tuple[bytes, int, int]:
        """(at most `limit` bytes from `offset` of all it ever wrote, where they begin, where its output ends now).

        They begin later than asked where the oldest output was rotated away. The stream "profile" is a document, made
        when it is asked for. Raises DriverError if there is none.
        """
        ...

    def sweep(self) -> tuple[int, list[str]]:
        """Kill what runs, and remove what tasks and the node have left but their output. Needs no room on the disk.

        How many tasks were running, and what could not be removed, a line each.
        """
        ...

    def close(self) -> None:
        """Let go of the host; tasks run on."""
        ...


@runtime_checkable
class InteractiveDriver(Driver, Protocol):
    """A driver whose tasks take input, and that starts programs beside them."""

    def write(self, task: TaskId, part: InputPart) -> int:
        """Give a program what its user sends; how many bytes of input it has taken.

        Fewer where it is slow: try again. Raises DriverError where it takes no input, or has ended.
        """
        ...

    def execute(self, task: TaskId, program: ProgramSpec) -> None:
        """Start a program beside a task that runs, unless it was started already. Raises DriverError that says why."""
        ...

    def program_output(
        self, task: TaskId, program: str, stream: Stream, offset: int, limit: int
    ) -> tuple[bytes, int, int, int | None]:
        """As `output`, of a program beside; and, once it has ended, its exit status, or minus its signal.

        That is minus SIGPIPE as well if its status is 0 and some of its output could not be stored. Raises DriverError
        where there is none.
        """
        ...


@runtime_checkable
class FollowedDriver(Driver, Protocol):
    """A driver whose programs, those that take input and those beside tasks, wait for who reads what they write."""

    def note_read(self, task: TaskId, program: str | None, stream: Stream, offset: int) -> None:
        """Somebody reads along who has all before `offset`; of a program beside, or of the task's own."""
        ...
