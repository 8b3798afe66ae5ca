"""What agents and controller say to each other: JSON messages over one connection that the agent opens.

The controller says what each task shall be (`Desired`), with a version that only grows; the agent brings it about and
says what each task is (`StatusMessage`). Neither counts messages: a repeated, late or lost one changes nothing, and
after a new connection both say everything again. An agent keeps an ended task until it is desired to be absent, so no
exit is lost.

What an agent says comes in messages that are short to parse, since the controller hears many agents: a long Hello is
followed by `MoreTasks`, and a long report is several.
"""

from typing import Annotated, Literal, TypeVar

from pydantic import FailFast, Field, TypeAdapter, ValidationError

from dfrs.live.drivers.base import (
    Exit,
    InputPart,
    ProgramName,
    ProgramSpec,
    Stream,
    TaskId,
    TaskSpec,
    TaskState,
    Wire,
)
from dfrs.live.protocol.marks import Marks
from dfrs.live.protocol.observed import (
    PROBLEM_CHARS,
    Bytes,
    Cores,
    Cost,
    HostUse,
    NodeFacts,
    Sample,
    Seconds,
    Version,
)
from dfrs.model.errors import InputError

PROTOCOL = 4
MESSAGE_BYTES = 8 << 20
"""The longest message that an agent accepts."""
AGENT_BYTES, AGENT_MARKS = 1 << 20, 20_000
"""The longest message that a controller accepts, and its most `Marks`: while one is parsed, all others wait."""
PARTS = 256
"""So many messages may follow a Hello with the rest of its tasks."""
UNDER_WAY = "its self-test is under way"
"""Problem of a node whose agent has just started, for as long as it is not known whether it can do its work."""
MOST_WAIT_S = 20.0
"""So long may a node wait for output before it answers that there is none."""
GRACE_S = 10.0
"""How long a task may take to end by itself, unless it is told otherwise."""

Certificate = Annotated[str, Field(max_length=4096)]
"""PEM."""
Token = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class TransferPort(Wire):
    """Where a node gives tasks to nodes of other hosts that have been granted them, over TLS."""

    address: str = Field(min_length=1, max_length=255)
    port: int = Field(gt=0, lt=65536)
    certificate: Certificate
    """Its own, by which it proves who it is, as server and as client."""


class Grant(Wire):
    """Who shows this token and this certificate may fetch a task, once; without a certificate, nobody."""

    token: Token
    certificate: Certificate


class Source(TransferPort):
    """Where a task is to be fetched."""

    token: Token


class Hello(NodeFacts):
    """First message of an agent: what its node is, and what it has."""

    kind: Literal["hello"] = "hello"
    protocol: int
    transfers: TransferPort | None = None
    """None: its tasks do not go to other hosts, and it takes none from there."""
    accounts: str = Field(default="", max_length=300)
    """Under which accounts its tasks run, in words."""
    tasks: Annotated[tuple["StatusMessage", ...], FailFast()] = ()
    """All tasks that it has; absent ones are those that it may yet start or take, as it was told before."""
    parts: int = Field(default=0, ge=0, le=PARTS)
    """So many MoreTasks follow at once, with the rest of them."""
    told: Version = 0
    """The highest version of a Desired that this agent has heard: a controller whose database was restored from a
    backup has given out less."""

    @property
    def ways(self) -> frozenset[object]:
        """As there; and to other hosts on which its images can go on, under accounts by the same rule.

        What goes on from an image has the account that it had.
        """
        if self.abilities.images is None or self.transfers is None:
            return super().ways
        return super().ways.union(((self.abilities.images, self.accounts),))

    @property
    def lasting(self) -> "Hello":
        """What it says of the node; not of its tasks now."""
        return self.model_copy(update={"tasks": (), "parts": 0, "told": 0})


class StatusMessage(Wire):
    """What a task is. `version` is that of the last Desired that was brought about, 0 if none was."""

    kind: Literal["status"] = "status"
    task: TaskId
    version: Version
    state: TaskState
    exit: Exit | None = None
    error: str = Field(default="", max_length=2000)
    """Why the desired state could not be reached; the agent goes on trying. Or what is wrong with a task that runs."""
    waits: bool = False
    """It can be brought about as soon as other tasks have left the node: nothing is wrong."""
    since_s: Seconds
    """Wall clock, when it came to this state."""
    refused: Version = 0
    """That of the Desired to be paused at which its memory could not be freed. It is RUNNING, or, where it was to be
    paused even so, PAUSED. Or that of the Desired to be handed with a grant at which it could not be check-pointed."""
    transfers: int = Field(default=0, ge=0, lt=1 << 31)
    """How often it has gone from host to host: of two copies, the one with less is out of date."""
    cost: Cost | None = None


class ReportMessage(Wire):
    """Sent each second; says by itself that the agent lives."""

    kind: Literal["report"] = "report"
    time_s: Seconds
    """Monotonic clock of the host."""
    host: HostUse | None = None
    """None where the host does not tell."""
    samples: Annotated[tuple[Sample, ...], FailFast()] = ()
    """Of some tasks: the others are in other reports of that time."""
    problem: str = Field(default="", max_length=PROBLEM_CHARS)
    """As in Hello, now."""


class MoreTasks(Wire):
    """What did not go into a Hello."""

    kind: Literal["tasks"] = "tasks"
    tasks: Annotated[tuple[StatusMessage, ...], FailFast()]


class Output(Wire):
    """Answer to a Read."""

    kind: Literal["output"] = "output"
    request: Version
    data: str = ""
    """Base64."""
    offset: Bytes = 0
    end: Bytes = 0
    exit_code: int | None = None
    """Of a program beside, once it has ended: its status, or minus its signal."""
    error: str = ""


class Done(Wire):
    """Answer to a Write or an Execute."""

    kind: Literal["done"] = "done"
    request: Version
    taken: Bytes = 0
    """Bytes of input."""
    error: str = ""
    again: bool = False
    """What could not be done now may be asked for again."""


class Desired(Wire):
    """What a task shall be: running, paused, handed or absent."""

    task: TaskId
    version: int = Field(ge=1)
    state: TaskState
    share_cores: Cores = 0.0
    spec: TaskSpec | None = None
    """Always there for RUNNING and PAUSED."""
    take: bool = False
    """It is not to be started: another node of the host hands it over, or `source` does."""
    source: Source | None = None
    """With `take`: a node of another host that has it."""
    grant: Grant | None = None
    """With HANDED: it goes on until it is fetched."""
    grace_s: Seconds = GRACE_S
    """For ABSENT: how long it may take to end by itself; 0 also says that what is handed here is out of date."""
    keep: bool = False
    """For PAUSED: also if its memory cannot be freed."""


class Welcome(Wire):
    """The controller's answer to Hello: everything that this node shall have. Any other task is to go."""

    kind: Literal["welcome"] = "welcome"
    report_s: float = Field(gt=0)
    desired: tuple[Desired, ...]


class Desire(Wire):
    """Changes of what some tasks shall be."""

    kind: Literal["desire"] = "desire"
    tasks: tuple[Desired, ...]


class Read(Wire):
    """Ask for output of a task."""

    kind: Literal["read"] = "read"
    request: int
    task: TaskId
    stream: Stream
    offset: int = Field(ge=0)
    limit: int = Field(gt=0, le=1 << 20)
    program: ProgramName | None = None
    """Beside the task's own; None: the task's."""
    wait_s: float = Field(default=0.0, ge=0, le=MOST_WAIT_S)
    """So long it may wait for something to read, as long as that may come."""


class Write(Wire):
    """Give a program of a task what its user sends."""

    kind: Literal["write"] = "write"
    request: int
    task: TaskId
    part: InputPart


class Execute(Wire):
    """Start a program beside a task's own."""

    kind: Literal["execute"] = "execute"
    request: int
    task: TaskId
    program: ProgramSpec


class Refuse(Wire):
    """The controller does not take this agent; it closes the connection."""

    kind: Literal["refuse"] = "refuse"
    reason: str
    retry: bool
    """Whether it makes sense to try again later."""


FromAgent = Hello | MoreTasks | StatusMessage | ReportMessage | Output | Done
FromController = Welcome | Desire | Read | Write | Execute | Refuse

_FROM_AGENT: TypeAdapter[FromAgent] = TypeAdapter(Annotated[FromAgent, Field(discriminator="kind")])
_FROM_CONTROLLER: TypeAdapter[FromController] = TypeAdapter(Annotated[FromController, Field(discriminator="kind")])


def from_agent(text: str | bytes) -> FromAgent:
    """The message in `text`. Raises InputError in one line for anything else."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    # A shorter message has not so many bytes, and it is most that are short.
    if AGENT_MARKS < len(data) <= AGENT_BYTES and not Marks(AGENT_MARKS).add(data):
        raise InputError(f"message: must have at most {AGENT_MARKS} quotes, commas and brackets around values")
    return _read(_FROM_AGENT, data, AGENT_BYTES)


def from_controller(text: str | bytes) -> FromController:
    """The message in `text`. Raises InputError in one line for anything else."""
    return _read(_FROM_CONTROLLER, text, MESSAGE_BYTES)


_Message = TypeVar("_Message")


def _read(adapter: TypeAdapter[_Message], text: str | bytes, most_bytes: int) -> _Message:
    if len(text) > most_bytes:
        raise InputError(f"message of {len(text)} bytes: must be at most {most_bytes}")
    try:
        return adapter.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "message"
        raise InputError(f"{where}: {first['msg']}") from None
