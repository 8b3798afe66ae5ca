"""All that the controller knows, and what the core's events and commands make of it.

What is decided comes from the core alone, so that replaying its events brings everything back; what nodes say is laid
over it as they say it.
"""

import time
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dfrs.engine.codec import digest
from dfrs.engine.commands import NOTHING, Commands
from dfrs.engine.core import Core
from dfrs.engine.event_log import EventLog
from dfrs.engine.events import Amend, Complete, Event, Hold, MoveRefused, PauseRefused, Ready, Revise, Submit
from dfrs.live.controller.activity import ActivityFeed
from dfrs.live.controller.array_limits import ArrayLimits
from dfrs.live.controller.best_yield import BestYield
from dfrs.live.controller.ended_jobs import EndedJobs
from dfrs.live.controller.fair_shares import FairShares
from dfrs.live.controller.job_points import JobPoints
from dfrs.live.controller.open_choices import OpenChoices
from dfrs.live.controller.output_files import output_file
from dfrs.live.controller.placement_state import PlacementState
from dfrs.live.controller.prices import PriceEstimates
from dfrs.live.controller.pruned import Pruned
from dfrs.live.controller.records import JobRecord, NodeRecord
from dfrs.live.controller.reservations import Reservations
from dfrs.live.controller.settings import ControllerSettings
from dfrs.live.controller.shadow import Shadowed
from dfrs.live.controller.snapshot_copy import SnapshotCopy, copy_snapshot
from dfrs.live.controller.versions import Versions
from dfrs.live.drivers.base import TaskSpec
from dfrs.live.protocol.durations import Durations
from dfrs.live.protocol.observed import NodeFacts
from dfrs.live.protocol.resources import Job, JobRequest, JobState
from dfrs.model.decisions import PAUSED, RUNNING, Policy, PolicyError, traits_of
from dfrs.model.errors import DfrsError
from dfrs.model.nodes import Condition, NodeChange

ARRIVED = "arrived "
"""Begins the key of what the database says of a job that came to the backend's own queue: its number, by its name."""
SET_S = 0.5
"""The wall clock was set if it differs by more from what it was to say: less is the difference of two clocks' rates."""
READ_S = 0.05
"""Two clocks that were read within this time were read at one instant."""


@dataclass(frozen=True, slots=True)
class Decided:
    """What the core made of an event."""

    event: Event
    commands: Commands
    digest: str
    """Of the target, "" where none was decided."""
    problem: str
    """What was wrong with the event or with the policy's answer."""


class State:
    """Shared by the engine, which changes it, and the views, which read it. One event loop only."""

    def __init__(self, settings: ControllerSettings, policy: Policy, facts: type[NodeFacts] = NodeFacts) -> None:
        self.settings = settings
        self.facts = facts
        """The class of what is recorded of nodes."""
        self.policy = policy
        self.core = Core(policy, np.zeros((0, 2)), settings.command_limit)
        self.picture: SnapshotCopy = copy_snapshot(self.core)
        self.jobs: dict[int, JobRecord] = {}
        """By `enter` and `leave` alone."""
        self.open_of: Counter[str] = Counter()
        """How many of them each user has."""
        self.choices = OpenChoices()
        """What they say of nodes."""
        self.open_charged: Counter[str] = Counter()
        """How many of them are charged to each account."""
        self.arrived: dict[str, int] = {}
        """Those of them that came to the backend's own queue, by their names there."""
        self.ended = EndedJobs()
        self.nodes: list[NodeRecord] = []
        self.numbers: dict[str, int] = {}
        """Of nodes, by name."""
        self.reservations = Reservations()
        self.placement = PlacementState(self.jobs, self.nodes)
        self.versions = Versions()
        self.prices = PriceEstimates()
        self.fair_shares = FairShares(settings.fair_share_s, settings.quotas, settings.clock)
        self.activity = ActivityFeed()
        self.job_points = JobPoints()
        self.dependents: dict[int, set[int]] = {}
        self.candidates: dict[int, None] = {}
        """Jobs that the core may have to be told of, in the order in which they came to that."""
        self.arrays = ArrayLimits(self.jobs, self.candidates)
        self.epoch = 0.0
        """What the wall clock said at time 0. It may be set since: `wall` and `time_s` go by what it says now."""
        self.sequence = 0
        """Of the last event."""
        self.last_s = 0.0
        self.reference_cores: float | None = None
        self.reference_bytes: int | None = None
        self.started_at = settings.clock()
        self._began_s, self._began = 0.0, settings.steady()
        self._ahead_s = 0.0
        self.decision_s = 0.0
        self.decisions = Durations()
        """Of all steps in which the core was told something."""
        self.policy_problem: str | None = None
        self.mismatches = 0
        """Decisions that came out otherwise when they were replayed."""
        self.refused = 0
        """Events that the core found impossible: a defect, each is in the log."""
        self.best: BestYield | None = None
        """For the jobs on nodes, as they last were looked at."""
        self.whys: Mapping[int, str] = {}
        """What the policy last said of jobs, also of those that it left where they were."""
        self.ended_counts: Counter[JobState] = Counter()
        """All jobs that ever ended."""
        self.pruned = Pruned()
        """What the database has no more."""
        self.tasks_changed = True
        """Since discovery was last asked."""
        self.version = 0
        """Grows with every change of what users see."""
        self.standbys: int | None = None
        """Controllers that wait to take over; None where the database is not one that several can use."""

    @property
    def deciding(self) -> Policy:
        """The policy itself, without a second one that is asked after it."""
        return self.policy.first if isinstance(self.policy, Shadowed) else self.policy

    @property
    def exclusive(self) -> bool:
        """Whether jobs get all of their need or nothing."""
        return traits_of(self.policy).exclusive

    @property
    def discovers(self) -> bool:
        """Whether needs that nobody declared are found out."""
        return self.settings.discovery != "NONE" and not self.exclusive

    @property
    def knows_dedicated(self) -> bool:
        """Whether the policy is told of requested starts."""
        return traits_of(self.policy).dedicated

    @property
    def weighted(self) -> bool:
        """Whether CPU is divided by the weights of jobs."""
        return traits_of(self.policy).weighted

    def changed(self) -> None:
        """Something that users see is other than before."""
        self.version += 1

    def now_s(self) -> float:
        """Seconds since the epoch; never goes back."""
        self.last_s = max(self.last_s, self.running_s())
        return self.last_s

    def running_s(self) -> float:
        """As `now_s`, for other threads: nothing is changed."""
        return self._began_s + self.settings.steady() - self._began

    def start_clock(self, now_s: float | None = None, at: float | None = None) -> None:
        """From now on time goes on from the wall clock's, or from the last event's where that is later.

        With `now_s`, the time at `at` on the steady clock, it goes on from that, whatever the wall clock says.
        """
        self._began = self.settings.steady() if at is None else at
        self._began_s = max(self.last_s, self.settings.clock() - self.epoch if now_s is None else now_s)

    def wall(self, time_s: float) -> float:
        """What the wall clock, as it is set now, says at that time."""
        return self.epoch + time_s + self._ahead()

    def time_s(self, at: float) -> float:
        """The time when the wall clock, as it is set now, says that."""
        return at - self.epoch - self._ahead()

    def _ahead(self) -> float:
        """By how much the wall clock was set forward since time 0."""
        before_s = self.now_s()
        ahead_s = self.settings.clock() - self.epoch - before_s
        # Where this process stood still between the two clocks, they differ by that.
        if abs(ahead_s - self._ahead_s) > SET_S and self.now_s() - before_s < READ_S:
            self._ahead_s = ahead_s
        return self._ahead_s

    def set_reference(self, cores: float, bytes_: int) -> None:
        """The reference node is known."""
        self.reference_cores, self.reference_bytes = cores, bytes_
        self.placement.reference_cores = cores

    def memory_bytes(self, request: JobRequest) -> int:
        """A task's requirement."""
        return request.memory_bytes or self.settings.default_memory_bytes

    def need(self, request: JobRequest) -> float:
        """Of a task, when the core is told of it: `cpu_cores` as a fraction of the reference node; above 1: too much.

        A need that nobody declared begins as all of the node where it will be found out, or else as one core.
        """
        assert self.reference_cores is not None
        if request.cpu_cores is not None:
            return request.cpu_cores / self.reference_cores
        if self.discovers:
            return 1.0
        return min(1.0, 1.0 / self.reference_cores)

    def spec(self, job: JobRecord) -> TaskSpec:
        """What the job's tasks run."""
        request = job.request
        environment = dict(request.environment)
        if job.array_index is not None:
            environment["DFRS_ARRAY_INDEX"] = str(job.array_index)
        return TaskSpec(
            command=request.command,
            directory=request.directory,
            environment=environment,
            tasks=request.tasks,
            peers=tuple(self.nodes[task.target].facts.address for task in job.tasks),
            memory_bytes=self.memory_bytes(request),
            account=job.user,
            time_limit_s=request.time_limit_s,
            warning_signal=request.warning_signal,
            warning_s=request.warning_s,
            profile=request.profile,
            input=request.input,
            terminal=request.terminal,
            resources=request.resources,
            exclusive=request.exclusive,
            output_file=output_file(job, request.output_file),
            error_file=output_file(job, request.error_file),
        )

    def user_number(self, user: str) -> int:
        """By which the core tells users apart."""
        return zlib.crc32(user.encode())

    def enter(self, job: JobRecord) -> None:
        """It is there from now on."""
        self.jobs[job.id] = job
        if job.key:
            self.arrived[job.key] = job.id
        self.open_of[job.user] += 1
        self.choices.enter(job.request)
        if job.request.account is not None:
            self.open_charged[job.request.account] += 1

    def leave(self, job: JobRecord) -> None:
        """It has ended."""
        del self.jobs[job.id]
        self.job_points.end(job.id)
        self.arrived.pop(job.key, None)
        self.choices.leave(job.request)
        self.open_of[job.user] -= 1
        if not self.open_of[job.user]:
            del self.open_of[job.user]
        if job.request.account is not None:
            self.open_charged[job.request.account] -= 1
            if not self.open_charged[job.request.account]:
                del self.open_charged[job.request.account]

    def link(self, job: JobRecord, ended: Mapping[int, str]) -> None:
        """Let it wait for the jobs that it comes after. `ended` has the states of those that had ended when that was
        asked: memory need not have them any more.
        """
        job.waits_for, job.failed = self.dependencies(job.request, ended)
        for name in job.waits_for:
            self.dependents.setdefault(name, set()).add(job.id)
        if job.failed:
            self.placement.inspect_again((job.id,))

    def unlink(self, job: JobRecord) -> None:
        """The opposite of `link`."""
        for name in job.waits_for:
            self.dependents.get(name, set[int]()).discard(job.id)
        job.waits_for, job.failed = frozenset(), ""

    def dependencies(self, request: JobRequest, ended: Mapping[int, str]) -> tuple[frozenset[int], str]:
        """The jobs that a request has to wait for, and why it never will start, if so; `ended` as for `link`."""
        waits_for: set[int] = set()
        failed = ""
        for name in sorted(request.dependencies):
            other = self.jobs.get(name)
            if other is not None:
                if other.started_at is None or not waits_for_start(request, name):
                    waits_for.add(name)
                continue
            found = JobState(ended[name]) if name in ended else self.ended.state(name)
            failed = never_after(request, name, found) or failed
        return frozenset(waits_for), failed

    def started(self, job: JobRecord) -> list[int]:
        """It has started for the first time: the jobs that waited for that, and no longer do."""
        dependents = self.dependents.get(job.id, set[int]())
        ready = [name for name in dependents if name in self.jobs and waits_for_start(self.jobs[name].request, job.id)]
        for name in ready:
            dependents.discard(name)
            self.jobs[name].waits_for -= {job.id}
            self.candidates[name] = None
        return ready

    def add_ended(self, job: Job) -> None:
        """Keep an ended job, instead of the one that ended longest ago."""
        self.ended_counts[job.state] += 1
        self.ended.add(job)

    def decide(self, events: list[Event], now_s: float) -> list[Decided]:
        """Let the core handle events. Runs in a thread: nothing else touches the core meanwhile."""
        begin_s = time.perf_counter()
        decided: list[Decided] = []
        for event in events:
            before, commands, problem = self.core.decisions, NOTHING, ""
            try:
                commands = self.core.handle(event, now_s)
            except PolicyError as error:
                problem = f"policy {self.settings.policy or type(self.policy).__name__}: {error}"
            except DfrsError as error:
                problem = f"event refused: {error}"
            except Exception as error:
                problem = f"the core failed: {type(error).__name__}: {error}"
            target = self.core.target
            made = "" if self.core.decisions == before or target is None else digest(target)
            decided.append(Decided(event, commands, made, problem))
        self.decision_s = time.perf_counter() - begin_s
        self.decisions.add(self.decision_s)
        return decided

    def inspect(self) -> tuple[SnapshotCopy, tuple[str, ...]]:
        """The core's present, and the texts of the reasons in its commands since the last look."""
        reasons = self.core.event_log.events().reasons
        # What it noted so far stands in the events: kept for ever, it would fill the memory.
        self.core.event_log = EventLog()
        return copy_snapshot(self.core), reasons

    def apply(self, decided: Decided, *, replaying: bool = False) -> set[int]:
        """Take in what became of an event; jobs that are concerned. `picture` must be of a later moment."""
        event, places, anew = decided.event, self.placement, set[int]()
        job = self.jobs.get(getattr(event, "job_id", -1))
        if decided.problem.startswith("event refused"):
            self.refused += 1
            return set()
        if isinstance(event, NodeChange) and event.condition is Condition.DOWN:
            places.lose(event.node)
        elif isinstance(event, Ready) and replaying:
            self._confirm(event)
        elif job is not None:
            if isinstance(event, Complete):
                # It has not ended: its tasks are gone, and it is about to be submitted once more.
                places.begin_anew(job)
                anew.add(job.id)
            elif isinstance(event, Submit | Revise):
                job.need = event.need
                places.touch(job)
            elif isinstance(event, Amend):
                job.need = event.changed.get("need", job.need)
                places.touch(job)
            elif isinstance(event, Hold):
                job.placed, job.paused, job.kept, job.yield_ = False, bool(job.tasks), False, 0.0
                places.touch(job)
            elif isinstance(event, PauseRefused):
                job.kept = True
            elif isinstance(event, MoveRefused) and not replaying:
                places.stay(job)
        touched = anew | places.obey(decided.commands, replaying=replaying)
        if decided.problem:
            touched |= self._resync(replaying=replaying)
        return touched

    def _confirm(self, event: Ready) -> None:
        snapshot = self.core.snapshot()
        rows = np.searchsorted(snapshot.jobs["serial"], event.serials)
        for serial, row in zip(event.serials.tolist(), rows.tolist(), strict=True):
            if row < len(snapshot.jobs) and snapshot.jobs["serial"][row] == serial:
                job = self.jobs.get(int(snapshot.jobs["id"][row]))
                if job is not None:
                    self.placement.confirm(job)

    def _resync(self, *, replaying: bool) -> set[int]:
        """Where the policy failed, what the event itself changed was not said: found by comparing."""
        snapshot = self.core.snapshot()
        rows = {name: row for row, name in enumerate(snapshot.jobs["id"].tolist())}
        touched: set[int] = set()
        for job in self.jobs.values():
            row = rows.get(job.id)
            if not job.registered or row is None:
                continue
            state = int(snapshot.jobs["state"][row])
            if state == RUNNING:
                nodes = snapshot.task_nodes[snapshot.first[row] : snapshot.first[row + 1]].tolist()
                self.placement.place(job, nodes, float(snapshot.jobs["yield_"][row]), replaying=replaying)
            elif job.placed and state == PAUSED:
                job.placed, job.paused, job.kept, job.yield_ = False, True, False, 0.0
                self.placement.touch(job)
            elif job.placed:
                self.placement.begin_anew(job)
            touched.add(job.id)
        return touched


def waits_for_start(request: JobRequest, name: int) -> bool:
    """Whether it need not wait for more of that job than its start."""
    return name in request.after_start and name not in {*request.after, *request.after_failed, *request.after_any}


def never_after(request: JobRequest, name: int, state: JobState) -> str:
    """Why a job ends without a start once one that it comes after has ended like that; empty if it may start."""
    if state is JobState.DONE:
        return f"after the failure of job {name}, which ended well" if name in request.after_failed else ""
    if name in request.after:
        return f"after job {name}, which {'failed' if state is JobState.FAILED else 'was cancelled'}"
    return ""
