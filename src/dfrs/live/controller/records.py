"""What the controller keeps of jobs, their tasks and nodes: plain records.

What a job shall be is written by the controller alone: `JobRecord`, `TaskRecord.target`. What is seen of it is written
by the backend that runs it: `TaskRecord.at`, `started` and `exit` (see `backend.py`).
"""

import json
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dfrs.live.controller.received import ReceivedTime
from dfrs.live.drivers.base import Exit, ExitKind, TaskId, TaskSpec, TaskState, Usage
from dfrs.live.protocol.observed import HostUse, NodeFacts, Sample
from dfrs.live.protocol.resources import Job, JobRequest, JobState
from dfrs.model.nodes import Condition
from dfrs.model.text import visible

LATEST = 0.3
"""Weight of the newest report in what a host's CPUs do now."""
LEAST_CORES = 1e-6
"""Fewer cores in use are none."""
LEAST_APART_S = 0.5
"""Reports that are nearer say too little: CPU time of a host is counted in hundredths of a second."""
LIVE = frozenset({TaskState.STARTING, TaskState.RUNNING, TaskState.PAUSED})
"""States of a task that its node keeps alive."""


@dataclass(slots=True)
class Observation:
    """What a node last said of a task that it has or may have."""

    state: TaskState | None = None
    """None: nothing yet; it may have it, since it was told to."""
    sent: bool = True
    """It may have been told to have it."""
    order: tuple[int, float] = (0, 0.0)
    """Version and time of that word: older ones are passed over."""
    error: str = ""
    waits: bool = False
    """It is started as soon as other tasks have left the node."""
    kept: bool = False
    """It was to be paused, and its memory could not be freed."""
    transfers: int = 0
    """How often it has gone from host to host; see `StatusMessage`."""
    fixed: bool = False
    """It was to be fetched, and that cannot be."""
    exit: Exit | None = None
    """How it ended there."""


@dataclass(slots=True)
class Transfer:
    """A task on its way from one host to another."""

    source: int
    target: int
    token: str
    renew_at: float
    """When a failed attempt is followed by another one, by the steady clock."""
    failures: int = 0


@dataclass(slots=True, eq=False)
class TaskRecord:
    """One task of one attempt at a job."""

    id: TaskId
    target: int = -1
    """Number of the node where it is to be, -1 before it has any."""
    at: dict[int, Observation] = field(default_factory=dict[int, Observation])
    """Nodes, by number, that have it or may have it. It may be started only where no other one is in here."""
    started: bool = False
    """Some node had it: from now on it is only handed over."""
    exit: Exit | None = None
    transfer: Transfer | None = None
    """Under way to another host."""
    transfers: int = 0
    """How often it has gone from host to host, as far as nodes have said."""
    priced: tuple[int, str] = (0, "")
    """Version and verb of the last cost that was counted."""
    samples: tuple[tuple[float, Usage], ...] = ()
    """The last two reports of its use, with the host's clock."""
    base: tuple[float, Usage] | None = None
    """Where the time begins that discovery looks at next: no weight on its node has changed since. None: the next
    report will be that."""
    used_cores: float | None = None
    received: ReceivedTime = field(default_factory=ReceivedTime)

    @property
    def holder(self) -> int | None:
        """The node that has it, as far as any has said so."""
        if len(self.at) == 1:
            ((node, only),) = self.at.items()
            return None if only.state is None or only.transfers < self.transfers else node
        known = [n for n, each in self.at.items() if each.state is not None and not self.out_of_date(n)]
        return max(known, key=lambda n: self.at[n].state is not TaskState.HANDED, default=None)

    def out_of_date(self, node: int) -> bool:
        """Whether the node has only a copy of it: it went on elsewhere since."""
        each = self.at.get(node)
        return each is not None and each.state is not None and each.transfers < self.transfers

    @property
    def gone(self) -> bool:
        """Whether some node had it, and now none has it or may have it."""
        return self.started and all(self.out_of_date(node) for node in self.at)

    @property
    def arrived(self) -> bool:
        """Whether it runs where it is to be, or has ended."""
        if self.exit is not None:
            return True
        observation = self.at.get(self.target)
        return observation is not None and observation.state is TaskState.RUNNING

    @property
    def waiting_cores(self) -> float | None:
        """What its threads together waited for in the last seconds; None where that is not measured.

        Without what its own cap made them wait.
        """
        waited, watched = self.received.waiting
        if watched <= 0.0 or len(self.samples) < 2:
            return None
        return max(0.0, waited / watched - self.capped_cores)

    @property
    def capped_cores(self) -> float:
        """From how many its own cap kept it, by the last two reports; 0 where that is not known."""
        if len(self.samples) < 2:
            return 0.0
        (before_s, before), (now_s, now) = self.samples
        if before.throttled_s is None or now.throttled_s is None or now_s <= before_s:
            return 0.0
        return max(0.0, now.throttled_s - before.throttled_s) / (now_s - before_s)

    @property
    def usage(self) -> Usage | None:
        """The last report of its use."""
        return self.samples[-1][1] if self.samples else None

    def observe(self, time_s: float, sample: Sample, most_cores: float) -> None:
        """Take in a report of a task that can use `most_cores`; one that is not later than the last is passed over."""
        if self.samples:
            before_s, before = self.samples[-1]
            if time_s <= before_s:
                if before_s - time_s < 60.0:
                    return
                self.samples, self.base = (), None
            elif sample.cpu_s >= before.cpu_s:
                cores = (sample.cpu_s - before.cpu_s) / (time_s - before_s)
                mean = cores if self.used_cores is None else 0.5 * (cores + self.used_cores)
                self.used_cores = mean if mean > LEAST_CORES else 0.0
        self.received.report(time_s - self.samples[-1][0] if self.samples else 0.0, sample, most_cores)
        # As the report has it, it would need ten times the memory.
        fields: dict[str, Any] = {**vars(sample), "task": self.id, "time_s": time_s}
        self.samples = (*self.samples[-1:], (time_s, Usage(**fields)))
        if self.base is None:
            self.base = self.samples[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """How a job ends, decided before its tasks are gone."""

    state: JobState
    exit: str
    code: int | None = None
    by: str = ""

    def text(self) -> str:
        """As JSON."""
        return json.dumps({"state": self.state.value, "exit": self.exit, "code": self.code, "by": self.by})

    @classmethod
    def of(cls, text: str | None) -> "JobOutcome | None":
        """From JSON."""
        if text is None:
            return None
        found = json.loads(text)
        return cls(state=JobState(found["state"]), exit=found["exit"], code=found["code"], by=found["by"])


@dataclass(slots=True, eq=False)
class JobRecord:
    """A job that has not ended."""

    id: int
    request_id: int
    request: JobRequest
    """As its user has changed it. If it came to the backend's own queue, `held` is what was last said there of it."""
    user: str
    submitted_at: float
    array_index: int | None = None
    key: str = ""
    """Its name in the backend's own queue, where it came to that first."""
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields of `request` that are otherwise than when it was submitted, as JSON has them."""
    revision: int = 0
    """How often it was changed, as far as this controller has seen."""
    registered: bool = False
    """The core knows it."""
    held: bool = False
    """Whatever its request says: it may have been held or released since."""
    outcome: JobOutcome | None = None
    started_at: float | None = None
    lost: int | None = None
    """The first attempt that was lost with a node: by default the job is queued again for that one alone."""
    attempt: int = 0
    tasks: list[TaskRecord] = field(default_factory=list[TaskRecord])
    """Of this attempt, by rank; empty before the first placement."""
    old: list[TaskRecord] = field(default_factory=list[TaskRecord])
    """Of earlier attempts, until every node has said that it has them no more."""
    placed: bool = False
    """The policy has it on nodes."""
    paused: bool = False
    kept: bool = False
    """The core was told that its memory stays, since it was last paused."""
    yield_: float = 0.0
    need: float = 0.0
    """Of a task, as the core was told, as a fraction of the reference node."""
    need_error: float | None = None
    row: np.void | None = None
    """What the core knew of it when it was last out of the policy's observation."""
    why: str = ""
    """Of the last change."""
    over_quota: str = ""
    """Why the policy is not told of it yet: its user has all that they may have."""
    waits_for: frozenset[int] = frozenset()
    """Jobs that it comes after and that have not ended, or, where it waits for no more than that, not started."""
    failed: str = ""
    """Why it never will start: how one of them ended."""
    spec: TaskSpec | None = None
    ungranted_s: float = 0.0
    """Of the virtual time that the core knows, what was not granted, but received."""
    not_started_on: frozenset[int] = frozenset()
    """Nodes, by number, that did not start it in time, as far as this controller has seen."""
    cpu_s: float = 0.0
    """CPU of tasks whose last word is known; those that run are added."""

    @property
    def name(self) -> str:
        """As its user named it, or its program."""
        return self.request.name or visible(self.request.command[0].rpartition("/")[2])[:128] or "job"

    @property
    def promised(self) -> float:
        """The yield it has whatever others need: its minimum, or all of it for one with a requested start."""
        return self.request.minimum_yield if self.request.start_at is None else 1.0

    @property
    def generation(self) -> str:
        """Of the tasks of this attempt; empty before it is placed."""
        return self.tasks[0].id.generation if self.tasks else ""

    @property
    def all_tasks(self) -> list[TaskRecord]:
        """Of all attempts that are not gone."""
        return self.tasks + self.old

    def new_row(self) -> Mapping[str, Any]:
        """Its first row in the database."""
        return {
            "id": self.id,
            "request": self.request_id,
            "owner": self.user,
            "array_index": self.array_index,
            "submitted_at": self.submitted_at,
            "registered": False,
            "held": self.held,
            "started_at": None,
            "outcome": None,
            "ended_at": None,
            "state": "open",
            "final": None,
        }

    def columns(self, *, ended_at: float | None = None, final: Job | None = None) -> Mapping[str, Any]:
        """Its row in the database, for the statement that changes it."""
        return {
            "b_id": self.id,
            "b_registered": self.registered,
            "b_held": self.held,
            "b_started_at": self.started_at,
            "b_outcome": None if self.outcome is None else self.outcome.text(),
            "b_ended_at": ended_at,
            "b_state": "open" if final is None else final.state.value,
            "b_final": None if final is None else final.model_dump_json(),
        }


@dataclass(slots=True)
class HostLoad:
    """What the CPUs of a node do, by its last reports."""

    last: tuple[float, HostUse] | None = None
    cpus: tuple[int, ...] = ()
    busy_cores: float = 0.0
    steal_cores: float = 0.0

    def report(self, time_s: float, use: HostUse | None) -> None:
        """Take in what a node says at that time of the host's clock."""
        if use is None:
            self.last, self.busy_cores, self.steal_cores = None, 0.0, 0.0
            return
        before_s, before = self.last or (time_s, use)
        seconds = time_s - before_s
        if self.last is not None and 0 < seconds < LEAST_APART_S:
            return
        self.last, self.cpus = (time_s, use), use.cpus
        if seconds > 0 and use.busy_s >= before.busy_s:
            self.busy_cores += LATEST * ((use.busy_s - before.busy_s) / seconds - self.busy_cores)
            self.steal_cores += LATEST * (max(0.0, use.steal_s - before.steal_s) / seconds - self.steal_cores)


@dataclass(slots=True, eq=False)
class NodeRecord:
    """A node."""

    number: int
    """Its index in the core."""
    facts: NodeFacts
    """As it was last described."""
    island: int
    condition: Condition
    """As the core was told."""
    drained: bool = False
    """By an operator."""
    drain_reason: str = ""
    """As the operator said; empty if nothing was said."""
    seen_at: float = 0.0
    """When it last said anything; after a start of the controller, that start."""
    stalled: str = ""
    """It did not start a task in time, and which; it is closed for a while."""
    stalled_until: float = 0.0
    """When it may try again, by the steady clock."""
    stalls: int = 0
    """How often that was since it last started a task."""
    connected: bool = False
    """What is said to it arrives, as far as its backend knows."""
    load: HostLoad = field(default_factory=HostLoad)

    @property
    def name(self) -> str:
        """Its name."""
        return self.facts.node

    @property
    def problem(self) -> str:
        """Why it cannot do its work, by its own word, or by what it did not do; empty if it can."""
        return self.facts.problem or self.stalled

    def row(self) -> Mapping[str, Any]:
        """As a row of the database."""
        return {
            "number": self.number,
            "name": self.name,
            "island": self.island,
            "condition": self.condition.value,
            "drained": self.drained,
            "drain_reason": self.drain_reason,
            "hello": self.facts.model_dump_json(),
        }


def in_words(rank: int, tasks: int, exit_: Exit, request: JobRequest, memory_bytes: int) -> str:
    """How a task that did not end well ended, what its user can do, and what else its node says of it."""
    who = f"task {rank} " if tasks > 1 else ""
    match exit_.kind:
        case ExitKind.CODE:
            text = f"{who}ended with status {exit_.code}"
        case ExitKind.SIGNAL:
            text = f"{who}was ended by signal {_signal(exit_.signal)}"
        case ExitKind.OUT_OF_MEMORY:
            size = f"{memory_bytes / (1 << 20):.0f} MiB"
            text = f"{who}ran out of memory: its requirement is {size}; submit with more --memory"
        case ExitKind.TIME_LIMIT:
            text = f"{who}exceeded its time limit of {request.time_limit_s or 0:g} s"
        case ExitKind.STOPPED:
            text = f"{who}was ended on request"
        case ExitKind.NOT_STARTED:
            return f"{who}could not be started: {exit_.message}"
        case ExitKind.LOST:
            return f"{who}is gone: {exit_.message or 'nobody saw how it ended'}"
    return f"{text}; {exit_.message}" if exit_.message else text


def _signal(number: int | None) -> str:
    if number is None:
        return "unknown"
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
