"""What the controller offers to the API. Where agents come in is in `agent_door.py`.

Everything runs on one event loop. Reads answer from memory at once; what changes something returns when it is durable.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from dfrs.live.drivers.base import InputPart, ProgramSpec, Stream
from dfrs.live.protocol.durations import Measures
from dfrs.live.protocol.job_update import JobUpdate
from dfrs.live.protocol.observed import NodeFacts
from dfrs.live.protocol.resources import (
    Activity,
    Cluster,
    ExpectedStart,
    Explanation,
    GanttBar,
    Job,
    JobPoint,
    JobRequest,
    JobState,
    NewToken,
    Node,
    OutputPart,
    Reservation,
    ReservationRequest,
    Role,
    ShadowChoice,
    TimePoint,
    TokenInfo,
    TokenRequest,
)

Facts = TypeVar("Facts", bound=NodeFacts)


class Identity(Protocol):
    """Who asks."""

    @property
    def user(self) -> str:
        """Their name."""
        ...

    @property
    def role(self) -> Role:
        """What they may do."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Which jobs are asked for."""

    user: str | None = None
    states: frozenset[JobState] | None = None
    """None: all that have not ended."""
    before: int | None = None
    """Only smaller numbers."""
    since: float | None = None
    """Of those that have ended, only those that did then or later, on the wall clock."""


class OpenJobs(Protocol):
    """Jobs that have not ended."""

    def __contains__(self, name: int, /) -> bool: ...

    def job(self, name: int) -> Job | None:
        """None where there is no such job among them."""
        ...

    def some(self, chosen: Chosen) -> Iterator[Job]:
        """The latest first."""
        ...

    def in_order(self, chosen: Chosen, order: Sequence[tuple[str, bool]], skip: int, limit: int) -> Sequence[Job]:
        """By columns, as `job_order.parse_order` gives them; of equals the oldest first. All after the first `skip`, at
        most `limit`.
        """
        ...

    def queue(self, limit: int) -> Sequence[Job]:
        """Those that wait, the longest first: at most so many."""
        ...


class Instant(Protocol):
    """The cluster as it is now: all numbers of it agree. Its jobs can be asked for until anything else is awaited."""

    @property
    def sequence(self) -> int:
        """Grows with every instant, also over restarts of the controller."""
        ...

    @property
    def activity(self) -> int:
        """Sequence number of the latest activity that is in it."""
        ...

    @property
    def cluster(self) -> Cluster:
        """The whole."""
        ...

    @property
    def nodes(self) -> tuple[Node, ...]:
        """By name."""
        ...

    @property
    def open(self) -> OpenJobs:
        """Jobs that had not ended."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Which piece of output is wanted."""

    stream: Stream
    offset: int
    limit: int
    """Bytes at most."""
    program: str | None = None
    """Beside the task's own; None: the task's."""
    wait_s: float = 0.0
    """So long it may take until there is some, as long as some may come."""
    raw: bool = False
    """Bytes instead of text."""


@dataclass(frozen=True, slots=True)
class Aside:
    """Why a controller serves nobody for now."""

    detail: str
    leader: str | None = None
    """Where the one is that does, if that is known."""


class Service(Protocol):
    """The controller as the API sees it. Who may ask for what is the API's matter; `by` is only recorded."""

    async def submit(self, request: JobRequest, user: str, by: str) -> Sequence[int]:
        """Job ids: one, or one for each of an array.

        InputError where it can never run, TooManyError where its user may not have more now; UnavailableError.
        """
        ...

    async def cancel(self, job: int, by: str) -> None:
        """End it. NotFoundError; ConflictError if it has ended."""
        ...

    async def hold(self, job: int, by: str) -> None:
        """Keep it from running until released. NotFoundError, ConflictError."""
        ...

    async def release(self, job: int, by: str) -> None:
        """The opposite of hold. NotFoundError, ConflictError."""
        ...

    async def requeue(self, job: int, by: str) -> None:
        """End its processes and begin it anew. NotFoundError; ConflictError where it has ended, or not begun."""
        ...

    async def update(self, job: int, update: JobUpdate, by: str) -> None:
        """Change what its request says. NotFoundError; InputError where it cannot be like that; ConflictError where it
        has ended, or has begun and can no longer be changed in that.
        """
        ...

    async def drain(self, node: str, by: str, reason: str = "") -> None:
        """Let nothing more come to it. NotFoundError."""
        ...

    async def undrain(self, node: str, by: str) -> None:
        """The opposite of drain. NotFoundError; ConflictError where it is not drained, but reserved now."""
        ...

    async def reserve(self, request: ReservationRequest, by: str) -> Reservation:
        """Close nodes for a time to come. InputError, UnavailableError."""
        ...

    async def cancel_reservation(self, reservation: int, by: str) -> Reservation:
        """End it, or let it not begin. NotFoundError; ConflictError where it has ended or was cancelled."""
        ...

    def reservations(self) -> Sequence[Reservation]:
        """Those that have not ended, by their starts."""
        ...

    async def latest(self) -> Instant:
        """The cluster now, with all that happened before this call."""
        ...

    def job(self, job: int, *, of: Instant | None = None) -> Job:
        """A job as it was then, or is now: that needs no snapshot of all. NotFoundError."""
        ...

    def owner(self, job: int) -> str:
        """The user whose job it is; cheap. NotFoundError."""
        ...

    def jobs(
        self,
        *,
        user: str | None = None,
        states: frozenset[JobState] | None = None,
        before: int | None = None,
        since: float | None = None,
        limit: int = 100,
        sort: str | None = None,
        skip: int = 0,
        of: Instant,
    ) -> Sequence[Job]:
        """As they were then, the latest first; `before` is a job id to go on from, and of those that have ended only
        those that did `since` then. Without `states`: those that have not ended.

        With `sort`, as `job_order` has it: those that have not ended alone, but for the first `skip` of them.
        """
        ...

    def queue(self, limit: int, *, of: Instant) -> Sequence[Job]:
        """Those that waited then, the longest first: at most so many."""
        ...

    def activity(self, *, after: int = 0, job: int | None = None, limit: int = 200) -> Sequence[Activity]:
        """The latest `limit` of those with a greater sequence number, in order."""
        ...

    def timeseries(self, since: float) -> Sequence[TimePoint]:
        """History since that wall-clock time, thinned to at most some hundreds."""
        ...

    def gantt(self, since: float) -> Sequence[GanttBar]:
        """Where tasks were since that wall-clock time."""
        ...

    def explain(self, job: int, *, of: Instant) -> Explanation:
        """Why it was where it was then, and how it came there. NotFoundError."""
        ...

    def job_points(self, job: int) -> Sequence[JobPoint]:
        """Instants of its past since it first ran, in order; none of a job that ended long ago. NotFoundError."""
        ...

    async def expected_start(self, job: int) -> ExpectedStart:
        """When a job starts that waits, or goes on that is paused. NotFoundError, UnavailableError."""
        ...

    def shadow(self, limit: int = 100) -> Sequence[ShadowChoice]:
        """The latest differences, latest first."""
        ...

    async def output(self, job: int, rank: int, piece: Piece) -> OutputPart:
        """A piece of output, fetched from its node. NotFoundError, UnavailableError."""
        ...

    async def write(self, job: int, rank: int, part: InputPart) -> int:
        """Give a program of a job what its user sends; how many bytes of input it has taken.

        NotFoundError; ConflictError where it takes none, has ended, or has not begun; UnavailableError.
        """
        ...

    async def execute(self, job: int, rank: int, program: ProgramSpec) -> None:
        """Start a program beside a task's own, unless it was started already. NotFoundError, ConflictError,
        UnavailableError.
        """
        ...

    def changes(self) -> AsyncIterator[int]:
        """Yields the sequence number of the latest activity whenever something changed, at most four times a second.

        Also yields it every 15 seconds when nothing changed.
        """
        ...

    def log(self) -> AsyncIterator[str]:
        """Lines of the durable log, each a JSON object: a header, every event the core was told, every job.

        Header: {"format": "dfrs-log/1", "policy", "discovery", "epoch" (wall clock of time 0), "reference_cores",
        "reference_bytes", "command_limit", "version"}. Event: {"time_s", "event" (as `control.log.encode`), "digest"
        (as `control.log.digest` of the target decided because of it, "" where none was)}. Start of a controller:
        {"time_s", "restart": {"policy" (that decides from then on), "version"}}. Job: {"job": as `resources.Job`}.
        """
        ...

    def healthy(self) -> str | None:
        """None, or what is wrong: the database cannot be written, the engine stopped."""
        ...

    def measures(self) -> Measures:
        """What it measures of its own work."""
        ...

    async def create_token(self, request: TokenRequest, by: str) -> NewToken:
        """A new token. Its secret is stored nowhere."""
        ...

    async def revoke_token(self, token: int, by: str) -> None:
        """NotFoundError."""
        ...

    async def rebind_token(self, token: int, by: str) -> None:
        """Have its node admitted anew when it next comes, on any host and with what it offers then.

        NotFoundError; ConflictError where it is no agent's.
        """
        ...

    def tokens(self) -> Sequence[TokenInfo]:
        """All, without secrets."""
        ...

    def identify(self, secret: str) -> Identity | None:
        """Whose token this is, in constant time; None if it is unknown, expired or revoked."""
        ...

    async def admit(self, facts: Facts, secret: str, *, here: bool) -> Facts:
        """What may be told of a node that has come with a token, as far as that admits it.

        `here`: it is on the controller's machine. Returns when it is on record which node the token admits. Raises
        NotAdmittedError; ConflictError if another live connection has its name; UnavailableError.
        """
        ...
