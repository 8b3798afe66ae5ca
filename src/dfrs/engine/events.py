"""What the core is told. Each event stands for one fact; the time it became true is given beside it."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isnan, nan
from typing import Annotated

from dfrs.model.decisions import Prices
from dfrs.model.elastic import CommandKind
from dfrs.model.instance import Floats, Ints
from dfrs.model.named_resources import Counts, NodeResources
from dfrs.model.nodes import Capacity, CapacityLeft, IslandsJoined, Join, NodeChange, PauseAbility

Speeds = Annotated[Floats, "a row a sub-cluster: spread, co-located"]
"""(C, 2) speeds of a job on each partition, as `dfrs.model.hardware.HardwareView.speed` has them."""


@dataclass(frozen=True, slots=True)
class Submit:
    """A user submitted a job of `tasks` tasks, each with this CPU `need` and `memory`.

    Unless it is the `last` of those submitted at this instant, the policy is not asked yet. After the last of several,
    it is asked twice: with that one as subject, as if it came alone, and then, with Cause.NODES, to place the others.
    That cause, because every policy that places jobs at submissions then places whoever waits, also those that leave
    completions to the next wake.
    """

    job_id: int
    tasks: int
    need: float
    memory: float
    estimate_s: float = float("nan")
    weight: float = 1.0
    user: int = -1
    requested_start_s: float = float("nan")
    minimum: float = 0.0
    """The yield the job must have at least while it is on nodes."""
    restartable: bool = False
    """Whether it may be ended at any time, to begin anew; see `dfrs.engine.restarts`."""
    last: bool = True
    constraint: int = 0
    """Number of what says which nodes it may use, see `Permitted`; 0: it may use all."""
    resources: Counts = ()
    """What each task has for itself, from its start to its end."""
    alone: bool = False
    """Whether no other job may have a task on its nodes while it is on them."""
    checkpoint_s: float = 0.0
    """It makes a check-point whenever it has got so much further; 0: never. If a node fails, it goes on from there."""


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


@dataclass(frozen=True, slots=True, eq=False)
class Progressed:
    """What jobs (by serial number) have received by now, as it was measured, instead of what they were granted."""

    serials: Ints
    virtual_s: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Reweigh:
    """Jobs (by serial number) have other weights. No policy is asked: it sees them when it decides next."""

    serials: Ints
    """Ascending."""
    weights: Floats


@dataclass(frozen=True, slots=True)
class Change:
    """A user's command on a job: its kind, and seconds or tasks."""

    job_id: int
    kind: CommandKind
    amount: float


@dataclass(frozen=True, slots=True)
class Revise:
    """The estimate of the CPU need of each of a job's tasks is another one.

    A running job keeps the share of CPU that it has: its yield changes with the need, to at most 1. So the present
    stays admissible. Unless it is the `last` revision at this instant, the policy is not asked yet.
    """

    job_id: int
    need: float
    last: bool = True


@dataclass(frozen=True, slots=True)
class Amend:
    """What a user says of a job is otherwise than at its submission; it keeps its place in the order of submission.

    What is NaN stays as it was; an estimate or a requested start that is infinite is taken back. Of a job that has
    begun `memory` and `requested_start_s` stay. One that runs keeps its share of CPU, as with Revise. Unless it is the
    `last` change at this instant, the policy is not asked yet; then it is asked to place all that wait.
    """

    job_id: int
    need: float = float("nan")
    memory: float = float("nan")
    estimate_s: float = float("nan")
    requested_start_s: float = float("nan")
    minimum: float = float("nan")
    weight: float = float("nan")
    last: bool = True

    @property
    def changed(self) -> Mapping[str, float]:
        """What is otherwise, by its column in `dfrs.model.decisions.JOB`."""
        columns = ("need", "memory", "estimate_s", "requested_start_s", "minimum", "weight")
        told = {name: float(getattr(self, name)) for name in columns}
        return {name: nan if abs(value) == inf else value for name, value in told.items() if not isnan(value)}


@dataclass(frozen=True, slots=True)
class Withdraw:
    """A job that has not begun is out of the queue, as if it had not been submitted; it may be submitted once more.

    Unless it is the `last` at this instant, the policy is not asked yet.
    """

    job_id: int
    last: bool = True


@dataclass(frozen=True, slots=True)
class Hold:
    """A job is taken out of what the policy sees until it is released; one that runs is paused.

    On nodes where pauses do not free memory its memory stays accounted for.
    """

    job_id: int


@dataclass(frozen=True, slots=True)
class Unhold:
    """A held job is back in its place in the order of submission.

    One whose memory stayed on its nodes runs there again, at first with yield 0, and the policy is asked as at a
    completion. Any other one waits or is paused, and the policy is asked as if it had been submitted now.
    """

    job_id: int


@dataclass(frozen=True, slots=True, eq=False)
class Permitted:
    """Tasks of jobs of that constraint may come to these nodes from now on, and to no others; those there may stay.

    The policy is asked if there are such jobs. To be told before the first of them, and when their nodes are others.
    """

    constraint: int
    """Any number but 0."""
    nodes: Ints
    """Ascending; may be none."""


@dataclass(frozen=True, slots=True, eq=False)
class PauseRefused:
    """The nodes of a paused job could not free its memory: nothing of it was given up, and it goes on there.

    Jobs that were to have that memory give their places back. For some time nobody pauses the job again, see
    `dfrs.engine.refusals`. A held job stays held, with its memory accounted for.
    """

    job_id: int
    nodes: Ints
    """(tasks,) where its tasks are."""


@dataclass(frozen=True, slots=True, eq=False)
class MoveRefused:
    """A job that was to go to other nodes cannot leave its own: it goes on there.

    Jobs that were to have its memory give their places back. For some time nobody moves the job again, see
    `dfrs.engine.refusals`.
    """

    job_id: int
    nodes: Ints
    """(tasks,) where its tasks are."""


@dataclass(frozen=True, slots=True, eq=False)
class Predicted:
    """What profiling a running job on a heterogeneous cluster came to ([Atif2011] section 5). No policy is asked.

    Speeds that are NaN leave what was predicted before.
    """

    job_id: int
    speed: Speeds
    """(C, 2) above 0 and finite, or NaN where nothing is predicted."""
    required: float = float("nan")
    """Memory that a task wants, as a fraction of the reference node's; NaN: not known."""
    swapping: bool = False
    """Whether it is thrashing where it is now."""


Event = (
    Submit
    | Change
    | Complete
    | Wake
    | Ready
    | Progressed
    | Reweigh
    | NodeChange
    | Revise
    | Join
    | Capacity
    | CapacityLeft
    | PauseAbility
    | IslandsJoined
    | Prices
    | Amend
    | Withdraw
    | Hold
    | Unhold
    | Permitted
    | PauseRefused
    | MoveRefused
    | Predicted
    | NodeResources
)
