"""A task in memory: what a process tree would be, and what its node knows of it."""

from dataclasses import dataclass, field

from dfrs.live.agent.next_action import may_come
from dfrs.live.drivers.base import Exit, TaskId, TaskState
from dfrs.live.protocol.observed import Cost
from dfrs.live.protocol.wire import Desired

LIVE = (TaskState.RUNNING, TaskState.PAUSED, TaskState.HANDED)


@dataclass
class InMemoryTask:
    """What a process tree would be."""

    id: TaskId
    desired: Desired | None = None
    state: TaskState = TaskState.ABSENT
    exit: Exit | None = None
    share: float | None = None
    was_here: bool = False
    version: int = 0
    """Of the desired state that it has reached."""
    error: str = ""
    waits: bool = False
    """For others to leave the memory."""
    kept: bool = False
    """It is paused, and its memory could not be freed."""
    refused: int = 0
    """Version at which it could not be paused, or fetched."""
    transfers: int = 0
    """How often it has gone from host to host."""
    cost: Cost | None = None
    stored: bool = False
    """It is in an image: no process of it is here."""
    numbers: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """Which of each named resource it has."""
    used: str = ""
    """Token of the grant by which it was fetched last."""
    cpu_s: float = 0.0
    gets: float | None = None
    """CPU that it gets beside programs that are no tasks, in cores; None: all that it wants."""
    watched_s: float = 0.0
    delayed_s: float = 0.0
    waiting_s: float = 0.0
    left_s: float = float("inf")
    """Seconds of running until it ends by itself."""
    work_s: float = float("inf")
    """Seconds of CPU until it ends by itself; it gets its share."""
    reported: tuple[object, ...] = ()
    since_s: float = 0.0

    @property
    def may_come(self) -> bool:
        """See `dfrs.live.agent.next_action.may_come`."""
        return may_come(self.desired, was_here=self.was_here)

    @property
    def resources(self) -> dict[str, int]:
        """What it has of named resources."""
        spec = None if self.desired is None else self.desired.spec
        return {} if spec is None else spec.resources

    @property
    def exclusive(self) -> bool:
        """Whether it has its node to itself."""
        spec = None if self.desired is None else self.desired.spec
        return spec is not None and spec.exclusive

    @property
    def memory_bytes(self) -> int:
        """What it may use; 0 before the node was told what it runs."""
        spec = None if self.desired is None else self.desired.spec
        return 0 if spec is None else spec.memory_bytes
