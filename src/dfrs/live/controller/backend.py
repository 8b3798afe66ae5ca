"""The port to whoever runs jobs: our own agents, the engine of another batch system, or a cluster in memory.

The controller decides, and knows nothing of how. It writes down what each job shall be (`Wanted`), and asks the backend
to `settle` what is new of that. The backend brings it about, in its own time, and says what it sees, by the methods of
`Control`. Neither waits for the other, and nothing is a command: what is wanted may be asked for again, late or never,
and what is seen may be said again. So each of them may end at any moment, come back, and compare.

**Who owns what.** The controller owns the number of a job, its attempts, and what it shall be. The backend owns that an
attempt exists, what it is, and that it has ended: it says so, and is believed. Who came first may be either: users come
to the controller, which then has the backend start something; or to the backend's own queue, where a job waits until
the controller, which hears of it by `Control.submit`, has it started.

**Versions.** Each wish that a backend carries out gets a number of `Control.versions`. These grow over restarts of the
controller and take-overs by another one. A backend that stores them with its jobs can tell a late wish from a new one,
and what it stored of a job from what is wanted of it now. One for which the last word counts needs none.

**Identity.** An attempt at a task has a name, `TaskId`, with job, rank, attempt, and the generation of the controller's
start in which it was placed. Store it with whatever runs, all of it: numbers of jobs come again after a restore from a
backup, generations do not. No name is ever to be started twice.

**Abilities.** What a node can do is in its `NodeFacts.abilities`: policies pause to free memory, and move, only where
that is said. What a single job turns out not to allow is refused when it is wanted: `saw(..., kept=True)` answers a
pause whose memory stays, `saw(..., fixed=True)` a move that cannot be. The controller then decides again.

**Coming back.** At its start the controller takes it that any node may have what it was told. For each node,
`Control.came` with the tasks that it has, by `Control.has`, settles that; `saw` says what each of them is; the next
`settle` asks for the rest.

**An engine that is away.** Jobs may run on while nobody can ask their engine. A node of which nothing is heard for
`lost_s` is given up, with all that it has. So as long as nothing says that a node is gone, go on saying that it is
`heard`; what is wrong, `problem` tells users, and keeps new jobs away.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from dfrs.live.controller.records import JobRecord, NodeRecord, TaskRecord
from dfrs.live.drivers.base import InputPart, ProgramSpec, TaskId, TaskSpec, TaskState
from dfrs.live.protocol.observed import NodeFacts
from dfrs.live.protocol.ports import Piece

if TYPE_CHECKING:
    from dfrs.live.controller.control import Control


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What one attempt at a job shall be. `Control.wanted` gives it; compare it with what you asked for last."""

    tasks: tuple[TaskId, ...]
    """Their names, by rank."""
    state: TaskState
    """RUNNING, PAUSED, or ABSENT: it is to end, and nothing of it is to stay."""
    nodes: tuple[str, ...] = ()
    """Where each task is to be. Of an attempt that has started, another one than before asks for a move."""
    share_cores: tuple[float, ...] = ()
    """CPU that each is guaranteed, in cores: what is left is for all, in the same proportions."""
    keep: bool = False
    """PAUSED: also if its memory cannot be freed."""
    spec: TaskSpec | None = None
    """What it runs; None for ABSENT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A piece of what a task wrote."""

    data: bytes = b""
    offset: int = 0
    """Where it begins: later than asked for, where what was before is gone."""
    end: int = 0
    """How much there is by now."""
    exit_code: int | None = None
    """Of a program beside, once it has ended and all was read: its status, or minus its signal."""
    error: str = ""
    """Why there is none, in words."""


class Newcomer(Protocol):
    """A node that has come to the backend, or come back, and that the controller has not taken in yet."""

    @property
    def facts(self) -> NodeFacts:
        """What it is."""
        ...


class Backend(Protocol):
    """Runs jobs. All is called on the controller's event loop, and nothing blocks but what can be awaited.

    Whatever it begins by itself it does in tasks of its own, from `begin` to `end`.
    """

    @property
    def facts(self) -> type[NodeFacts]:
        """The class of what it has the controller record of nodes."""
        ...

    @property
    def intake(self) -> str:
        """Where users submit, if not to the controller: what those who try are told. Empty: they may."""
        ...

    def open(self, control: "Control") -> None:
        """First of all, once: what it may ask the controller and say to it. Nothing is known there yet."""
        ...

    def begin(self) -> None:
        """The controller has come back to where it was, and decides from now on."""
        ...

    async def end(self) -> None:
        """It decides no more. Jobs run on, as they are."""
        ...

    def let_go(self, why: str) -> None:
        """It may be that another controller decides by now: where nodes can look for that one, let them."""
        ...

    def newcomers(self) -> Sequence[Newcomer]:
        """Nodes that are to be taken in: new ones, and those whose facts or tasks have to be compared."""
        ...

    def take_in(self, newcomers: Sequence[Any]) -> None:
        """Call `Control.came` for those of them that are in the record by now, by `Control.known`.

        They are some of its `newcomers`. All that the record has was decided by this controller or one before it.
        """
        ...

    def settle(self) -> None:
        """Bring about what is wanted of the jobs that `Control.unsettled` gives. Called after each step."""
        ...

    def starts(self, task: TaskRecord) -> bool:
        """Whether nothing but its node keeps this task, which is to run there, from running.

        A task for which that stays so for `start_s` is started elsewhere. False: it waits for something, or nobody
        knows.
        """
        ...

    def forget(self, job: JobRecord) -> None:
        """The job has ended, by what was seen of it: let go of whatever is still kept of it."""
        ...

    def give_up(self, node: NodeRecord) -> None:
        """The node is lost, with all that it had: nothing is wanted of it before it has come again."""
        ...

    async def read(self, node: NodeRecord, task: TaskId, piece: Piece) -> Output:
        """A piece of what a task wrote. Raises UnavailableError where it cannot be had now."""
        ...

    async def write(self, node: NodeRecord, task: TaskId, part: InputPart) -> int:
        """Give a task, or a program beside it, what its user sends; how many bytes of input it has taken.

        Raises UnavailableError where that cannot be done now, ConflictError where it never can.
        """
        ...

    async def execute(self, node: NodeRecord, task: TaskId, program: ProgramSpec) -> None:
        """Start a program beside a task, unless it was started already. Raises as `write`."""
        ...
