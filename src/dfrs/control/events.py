"""What the core is told. Each event stands for one fact; the time it became true is given beside it."""

from dataclasses import dataclass

from dfrs.model.elastic import CommandKind
from dfrs.model.instance import Floats, Ints
from dfrs.model.nodes import NodeChange


@dataclass(frozen=True, slots=True)
class Submit:
    """A user submitted a job of `tasks` tasks, each with this CPU `need` and `memory`."""

    job_id: int
    tasks: int
    need: float
    memory: float
    estimate_s: float = float("nan")
    weight: float = 1.0
    user: int = -1
    requested_start_s: float = float("nan")


@dataclass(frozen=True, slots=True)
class Complete:
    """A job is done. Unless it is the `last` of those done at this instant, the policy is not asked yet."""

    job_id: int
    last: bool = True


@dataclass(frozen=True, slots=True)
class Wake:
    """The time came at which the policy wanted to be asked."""


@dataclass(frozen=True, slots=True, eq=False)
class Ready:
    """Jobs (by serial number) make progress from `ready_s` on: their start, resume or migration was performed."""

    serials: Ints
    ready_s: Floats


@dataclass(frozen=True, slots=True)
class Change:
    """A user's command on a job: its kind, and seconds or tasks."""

    job_id: int
    kind: CommandKind
    amount: float


Event = Submit | Change | Complete | Wake | Ready | NodeChange
