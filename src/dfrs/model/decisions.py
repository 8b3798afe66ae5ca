"""What a policy sees and what it answers: a frozen snapshot in, a target out (the one idea of the design).

Jobs are rows, in the order of submission; columns are views of one record array. Each row owns as many *slots* as it
has tasks: slots `first[r]` to `first[r + 1]` of `task_nodes`, each with the index of the node its task runs on, or -1
in all of them while the job waits or is paused. Snapshot and target use the same layout, so a decision is the present
layout with some slots changed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dfrs.model.errors import DfrsError
from dfrs.model.hardware import HardwareView
from dfrs.model.instance import Bools, Floats, Ints
from dfrs.model.named_resources import NamedResources

WAITING, RUNNING, PAUSED = range(3)
"""Job states: never started (or started anew after its node failed); on nodes; stopped, with its progress kept."""

JOB = np.dtype(
    [
        ("id", "i8"),
        ("serial", "i8"),
        ("user", "i8"),
        ("state", "i8"),
        ("tasks", "i8"),
        ("need", "f8"),
        ("memory", "f8"),
        ("weight", "f8"),
        ("estimate_s", "f8"),
        ("submit_s", "f8"),
        ("virtual_s", "f8"),
        ("yield_", "f8"),
        ("start_s", "f8"),
        ("since_s", "f8"),
        ("ready_s", "f8"),
        ("pauses", "i8"),
        ("migrations", "i8"),
        ("requested_start_s", "f8"),
        ("policy_state", "i8"),
        ("changes", "i8"),
        ("extensions", "i8"),
        ("minimum", "f8"),
        ("speed", "f8"),
    ]
)
"""What is known of a job. `id` is the user's name for it, `serial` counts submissions from 0; `need` and `memory` are
per task; `estimate_s` is NaN where the user gave none; `virtual_s` is its virtual time now; `yield_` its yield at
present, 0 unless it runs; `start_s` its start, its last one where it began anew after a node failed, NaN before;
`since_s` when it came to where it is now; `ready_s` the time before which it makes no progress (infinite until whoever
performs commands says it is there); `requested_start_s` when a dedicated job is to start, NaN for a batch job;
`policy_state` what the policy noted of it, 0 at first; `changes` how many commands on it were granted, `extensions` how
many of those gave it more; `minimum` the yield it must have at least while it is on nodes, 0 where nothing was agreed;
`speed` its predicted progress per second at yield 1 where it is now, relative to where it would be fastest, 1 where
nothing is known and off nodes."""

Jobs = NDArray[np.void]
JobId = int

CPU, MEMORY = 0, 1
"""Columns of `Snapshot.capacity`."""


class Cause(IntEnum):
    """Why a policy is asked."""

    SUBMISSION = 0
    COMPLETION = 1
    WAKE = 2
    NODES = 3
    """Nodes came, went or came back, or more or less of their CPU is left; or of several jobs submitted at once, those
    before the last are to be placed."""
    COMMAND = 4
    """A user's command on a job was granted."""
    NEEDS = 5
    """What is known of jobs' needs changed."""


class Reason(IntEnum):
    """Why a job's placement changed, as a policy or the core says it."""

    NONE = 0
    ROOM = 1
    """There was room for it when it was submitted."""
    FREED = 2
    """Room became free."""
    GAVE_WAY = 3
    """Paused so that a newly submitted job could start; it had the lowest priority of those that had to give way."""
    MOVED_FOR = 4
    """Moved so that a newly submitted job could start."""
    PACKED = 5
    """All jobs were packed anew."""
    LEFT_OUT = 6
    """No packing of all jobs exists at any yield; it had the lowest priority."""
    QUEUE_HEAD = 7
    """First in the queue, and enough nodes were free."""
    BACKFILLED = 8
    """It delays no reservation made for those before it."""
    RESERVED = 9
    """Its reservation began."""
    NODE_LOST = 10
    """A node it ran on failed; it starts anew."""
    FINISHED = 11
    """It is done."""
    FILLED = 12
    """Chosen with others to fill the free nodes."""
    ON_TIME = 13
    """Its requested start came."""
    LATE_DEDICATED = 14
    """Late: at its requested start, other dedicated jobs had the nodes."""
    LATE_EARLIER = 15
    """Late: at its requested start, jobs that ran already when it was submitted had the nodes."""
    LATE_LONGER = 16
    """Late: at its requested start, jobs that were past their estimates, or had been extended, had the nodes."""
    LATE_CLOSED = 17
    """Late: at its requested start too many nodes were closed."""
    MADE_WAY = 18
    """Paused so that a dedicated job could start."""
    RESIZED = 19
    """A user's command changed its number of tasks."""
    LATE_CHANGED = 20
    """Late: a user's command had changed it."""
    HELD = 21
    """Its user or an operator holds it."""
    RELEASED = 22
    """It is held no longer."""
    REVISED = 23
    """What is known of needs changed."""
    KEPT = 24
    """Its nodes could not free its memory: it goes on."""
    GAVE_BACK = 25
    """Its place was that of a job whose memory could not be freed."""
    NOT_MOVED = 26
    """It could not leave its nodes: it goes on there."""
    BALANCED = 27
    """Moved so that the least yields rise."""
    LESS_LEFT = 28
    """Programs that are no jobs use more of its node."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a job's tasks run, one node index a task, and its yield."""

    nodes: tuple[int, ...]
    yield_: float


@dataclass(frozen=True, slots=True, eq=False)
class Abilities:
    """What executors can do with jobs that have started, where it is not everything. All arrays are read-only."""

    keeps: Bools
    """(N,) where a paused task stays in memory: there no job may be paused."""
    island: Ints
    """(N,) a task that has started may be only on nodes of one island: one number for each."""
    home: Ints
    """(slots,) the island of each task of a paused job, -1 where it may be any, and for tasks of all other jobs."""
    refused: Bools
    """(R,) jobs that may not be paused anywhere: not long ago their nodes could not free their memory, or they run with
    named resources."""
    fixed: Bools
    """(R,) jobs that may not move: not long ago they could not leave their nodes, or they run with named resources."""
    restarts: Bools
    """(R,) jobs that may be ended, to begin anew, where a pause would keep their memory."""
    reserved: Floats
    """(N,) CPU that is promised to held jobs: they come back to the nodes where their memory stayed."""
    named: NamedResources | None = None
    """What only some jobs can have at a time; None where no job wants any of it."""

    @property
    def retains(self) -> bool:
        """Whether any pause would leave memory where it is."""
        return bool(self.keeps.any() or self.refused.any())


@dataclass(frozen=True, slots=True)
class Prices:
    """Seconds that a job loses by a pause, a resume and a move, as a rule; 0 until known. Also the event that says so.

    In a simulation they follow from its penalty. Live, they are medians of what agents measured.
    """

    pause_s: float = 0.0
    """Until it is stopped, and its memory is free where pauses free memory."""
    resume_s: float = 0.0
    move_s: float = 0.0

    @property
    def most_s(self) -> float:
        """Of being paused and resumed, or moved, whichever is dearer."""
        return max(self.pause_s + self.resume_s, self.move_s)


UNKNOWN_PRICES = Prices()


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The cluster at one instant. All arrays are read-only views; keep none of them beyond the decision."""

    now_s: float
    cause: Cause
    subject: int
    """Row of the job just submitted, or held no longer and without nodes; or -1."""
    capacity: Floats
    """(N, 2) CPU and memory of each node, 1 on the reference node: what is left of them for jobs."""
    open: Bools
    """(N,) whether tasks may come to a node; a closed one is down, or only keeps what it has."""
    jobs: Jobs
    """(R,) of type JOB: jobs present, in order of submission."""
    first: Ints
    """(R + 1,) where each row's slots begin."""
    task_nodes: Ints
    """(slots,) node of each task, or -1."""
    moved: float
    """Memory migrated in the last hour, in reference nodes."""
    unequal: HardwareView | None = None
    """The `hardware` where nodes are not alike; None where they are."""
    abilities: Abilities | None = None
    """None where every job can be paused, with its memory freed, and be moved to any node."""
    prices: Prices = UNKNOWN_PRICES
    """What pauses, resumes and moves cost."""
    permitted: Bools | None = None
    """(R, N) which nodes tasks of each job may come to; None: all of them. No policy needs to look: the core places its
    jobs elsewhere if it must."""

    @property
    def hardware(self) -> HardwareView:
        """How nodes are grouped and how fast each job is predicted to be on them; if all are alike, one partition."""
        return self.unequal or HardwareView.equal(self.capacity[:, MEMORY], len(self.jobs))

    @property
    def flow_s(self) -> Floats:
        """(R,) seconds since submission."""
        return self.now_s - self.jobs["submit_s"]

    def select(self, rows: Bools) -> "Snapshot":
        """The same cluster with the chosen rows (R,) only; `subject` is -1 where it is not one of them."""
        jobs, subject, tasks = self.jobs[rows], self.subject, np.repeat(rows, self.jobs["tasks"])
        abilities = self.abilities
        if abilities is not None:
            abilities = replace(
                abilities,
                home=_frozen(abilities.home[tasks]),
                refused=_frozen(abilities.refused[rows]),
                fixed=_frozen(abilities.fixed[rows]),
                restarts=_frozen(abilities.restarts[rows]),
                named=None if abilities.named is None else abilities.named.select(rows),
            )
        return replace(
            self,
            subject=int(rows[:subject].sum()) if subject >= 0 and rows[subject] else -1,
            jobs=_frozen(jobs),
            first=_frozen(np.concatenate([[0], np.cumsum(jobs["tasks"])])),
            task_nodes=_frozen(self.task_nodes[tasks]),
            unequal=None if self.unequal is None else self.unequal.select(rows),
            abilities=abilities,
            permitted=None if self.permitted is None else _frozen(self.permitted[rows]),
        )

    @property
    def placements(self) -> Mapping[JobId, Placement]:
        """Running jobs by id; made on each access, for reading and small policies."""
        slots = self.task_nodes.tolist()
        return {
            int(job["id"]): Placement(tuple(slots[self.first[r] : self.first[r + 1]]), float(job["yield_"]))
            for r, job in enumerate(self.jobs)
            if job["state"] == RUNNING
        }


def _frozen(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array


_NO_REASONS = np.zeros(0, np.int64)
_NO_WHY: Mapping[JobId, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """What a policy wants: who is where, at which yield; a row without nodes waits or stays paused."""

    task_nodes: Ints
    """(slots,) in the layout of the snapshot's `first`."""
    yields: Floats
    """(R,) yields; 0 for rows without nodes."""
    wake_at_s: float | None = None
    """Ask again then; None: only when something happens."""
    reasons: Ints = field(default_factory=lambda: _NO_REASONS)
    """(R,) a Reason for each changed row, or empty."""
    why: Mapping[JobId, str] = field(default_factory=lambda: _NO_WHY)
    """In words, where a Reason does not say it."""
    policy_state: Ints = field(default_factory=lambda: _NO_REASONS)
    """(R,) what to note of each job until the next decision, or empty: as it is."""

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        placements: Mapping[JobId, Placement],
        wake_at_s: float | None = None,
        why: Mapping[JobId, str] = _NO_WHY,
    ) -> "Target":
        """The target that gives these jobs these placements, and no other job any. Raises PolicyError."""
        task_nodes = np.full(len(snapshot.task_nodes), -1, np.int64)
        yields = np.zeros(len(snapshot.jobs))
        row_of = {int(name): r for r, name in enumerate(snapshot.jobs["id"])}
        for name, placement in placements.items():
            row = row_of.get(name)
            if row is None:
                raise PolicyError(name, "is not in the snapshot")
            slots = task_nodes[snapshot.first[row] : snapshot.first[row + 1]]
            if len(placement.nodes) != len(slots):
                raise PolicyError(name, f"has {len(slots)} tasks, but {len(placement.nodes)} nodes are named")
            slots[:] = placement.nodes
            yields[row] = placement.yield_
        return cls(task_nodes, yields, wake_at_s, why=why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a policy is, beyond its decisions: what the core, the simulator and the views do otherwise because of it."""

    exclusive: bool = False
    """A job runs only where all of its full need fits: its yield is 1, and no other job shares its CPU."""
    dedicated: bool = False
    """It is told of dedicated jobs at their submission, and gives them all of their full need.

    Other policies are told at the requested start, as if such a job were submitted then.
    """
    elastic: bool = False
    """Users' commands on jobs are processed. To let running jobs have more tasks it must be Expanding, too."""
    weighted: bool = False
    """Its yields are in proportion to the weights of jobs, where they cannot all be 1."""
    clustered: bool = False
    """On a heterogeneous cluster it places all tasks of a job in one partition."""


ORDINARY = Traits()
"""Of a policy that is no more than its decisions."""


EventLoop = Callable[[Any, float, bool, int], int]
"""A policy's own loop in compiled code, which decides as its `decide` would.

It goes on with a `dfrs.kernels.event_loop.Plain` run, and says why it went no further; its other arguments and its
result are those of `next_question` there.
"""


def event_loop_of(policy: object) -> EventLoop | None:
    """The policy's `event_loop`, None where it has none.

    Only where it is of the class that has its `decide`: a class made from a built-in one decides otherwise.
    """
    loop: EventLoop | None = getattr(policy, "event_loop", None)
    decides = next((each for each in type(policy).__mro__ if "decide" in vars(each)), object)
    return loop if "event_loop" in vars(decides) else None


class Policy(Protocol):
    """Decides. It has no clock, no memory and no chance: the same snapshot gives the same target.

    One that is more than that says so with an attribute `traits`; see `traits_of`.
    """

    def decide(self, snapshot: Snapshot, /) -> Target:
        """The target for this snapshot."""
        ...


def traits_of(policy: Policy) -> Traits:
    """The policy's `traits`, of its class or its own; all False where it has none."""
    found: Traits | None = getattr(policy, "traits", None)
    return ORDINARY if found is None else found


@runtime_checkable
class Expanding(Protocol):
    """A policy that can give a running job more tasks."""

    def expand(self, snapshot: Snapshot, row: int, more: int, /) -> Ints | None:
        """(more,) nodes for that many more tasks of the job in that row, or None where it has none for them."""
        ...


class PolicyError(DfrsError):
    """A policy's answer cannot be performed: the message says which job and which rule.

    It is the policy's defect, not the user's: report it with the run directory, whose log ends just before.
    """

    def __init__(self, job: JobId | None, problem: str) -> None:
        super().__init__(f"job {job} {problem}" if job is not None else problem)
        self.job = job
        self.problem = problem
