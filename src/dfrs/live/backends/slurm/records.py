"""Jobs and nodes of Slurm, as one look at it finds them."""

from dataclasses import dataclass

GONE = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    }
)
"""States of a job that has ended."""
LOST = frozenset({"BOOT_FAIL", "NODE_FAIL"})
"""Of these, those in which it ended with its node."""
PLACED = frozenset({"RUNNING", "SUSPENDED"})
"""States of a job that is on its node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """A job, or a task of an array."""

    id: str
    """As commands take it: `12`, or `12_3` for a task of an array."""
    number: int = 0
    """As control groups have it; 0 for a task of an array that was never touched and has none of its own yet."""
    state: str = "PENDING"
    """Without flags; `COMPLETING` as long as anything of it is still on a node."""
    reason: str = ""
    """Why it is pending, in Slurm's word."""
    held: bool = False
    """Its priority is 0: Slurm never starts it. So it is of a job that somebody suspended, too."""
    user: str = ""
    name: str = ""
    command: str = ""
    comment: str = ""
    admin_comment: str = ""
    account: str = ""
    """What it is charged to; where Slurm keeps no accounts, whatever its user wrote."""
    cpus: int = 1
    memory_bytes: int = 0
    """On its node; 0: all that the node has."""
    time_limit_s: float | None = None
    nodes: int = 1
    """How many it asks for."""
    node: str = ""
    """Where it is, or last was; of a pending one where it is to be. Empty where Slurm is free to choose."""
    restarts: int = 0
    """How often Slurm queued it again after it had started."""
    requeue: bool = False
    """Whether it may be queued again."""
    submit_s: float = 0.0
    eligible_s: float = 0.0
    """Not before this may it start; 0: not known while it is held."""
    since_s: float = 0.0
    """Since when it runs, is suspended or has ended."""
    dependency: str = ""
    """What it still waits for."""
    reservation: str = ""
    window: int = 0
    """How many tasks of its array may be there at once, where Slurm says it; 0: all, or not said."""
    exit_status: int = 0
    """As wait(2) gives it."""
    parts: bool = False
    """It is one of several jobs that start together (heterogeneous)."""
    special: bool = False
    """It waits again after an end of which somebody is to be told (`RequeueExitHold`), or after too many."""

    @property
    def array(self) -> str:
        """Which array it is of; empty if of none."""
        head, found, _ = self.id.partition("_")
        return head if found else ""

    @property
    def pending(self) -> bool:
        """Whether it waits in Slurm's queue."""
        return self.state == "PENDING"

    @property
    def placed(self) -> bool:
        """Whether it is on its node."""
        return self.state in PLACED

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self.state in GONE

    @property
    def lost(self) -> bool:
        """Whether it ended with its node: Slurm queues it again if it is asked to."""
        return self.state in LOST


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmNode:
    """A node of the partition."""

    name: str
    address: str
    cpus: int
    memory_bytes: int
    down: bool = False
    """What was there has ended, as Slurm sees it."""
    problem: str = ""
    """Why it is to get nothing new."""
