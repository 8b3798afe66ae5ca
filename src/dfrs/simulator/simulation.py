"""One workload under one policy, from the first submission to the last completion."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dfrs.engine.commands import Commands
from dfrs.engine.core import Core
from dfrs.engine.events import Change, Complete, Event, Submit, Wake
from dfrs.engine.handlers.handler import Ask
from dfrs.model.decisions import Policy, PolicyError, Prices, Traits, event_loop_of, traits_of
from dfrs.model.elastic import GRANTS, TIME_KINDS, CommandKind
from dfrs.model.errors import DfrsError, InputError
from dfrs.model.instance import Bools, Floats
from dfrs.model.jobs import Workload
from dfrs.model.nodes import CapacityLeft, NodeChange, NodeLimits, most_tasks
from dfrs.model.run import Penalty, Run
from dfrs.simulator.clock import Clock, Order, Profiled, ties_of
from dfrs.simulator.event_loop import CompiledLoop
from dfrs.simulator.heterogeneous import EqualHardware, HardwareSettings, fits_a_partition
from dfrs.simulator.limits import ANYWHERE, FREE, Pauses, node_limits
from dfrs.simulator.world import World

IDLE_WAKES = 100
"""A policy that is asked so often while no job makes progress and none is to come will never place them."""
FRUITLESS_WAKES = 100_000
"""So many wakes in a row without progress of any job: jobs are moved more often than a penalty lasts."""
WATCHED = 256
"""Events between two looks at `watch`."""

Watch = Callable[[int], bool]
"""Told how many jobs are done; its answer is whether to go on."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SimulationSettings:
    """How a cluster is simulated. `capacity` (N, 2) defaults to the workload's number of reference nodes."""

    capacity: Floats | None = None
    penalty: Penalty = field(default_factory=Penalty)
    order: Order = "completions-first"
    node_events: Sequence[tuple[float, NodeChange | CapacityLeft]] = ()
    command_limit: int | None = None
    """How many commands on one job are granted; None: any number."""
    pauses: Pauses = FREE
    """Whether a pause frees memory; where it does not, policies pause nobody."""
    moves: str = ANYWHERE
    """Between which nodes jobs that have started move, see `dfrs.simulator.limits.node_limits`."""
    hosts: Sequence[str] | None = None
    """(N,) the host of each node."""
    seed: int = 0
    notes: Mapping[str, object] = field(default_factory=dict[str, object])
    """What else the summary shall say: how the workload was annotated, for instance."""
    hardware: EqualHardware | HardwareSettings = field(default_factory=EqualHardware)
    """How fast each job of the workload is on which partition; `capacity` is then of its nodes, in its order,
    see `dfrs.simulator.heterogeneous.hardware_capacity`. Migrations cost what it says; resumes cost the `penalty`."""


class PolicyStoppedError(DfrsError):
    """A policy ended its run: the message names policy, job and time. `run` holds the log up to there."""

    def __init__(self, message: str, run: Run) -> None:
        super().__init__(message)
        self.run = run


class Simulation:
    """A run that can be stopped, saved and continued. Same input, same bytes."""

    def __init__(
        self, workload: Workload, policy: Policy, name: str, settings: SimulationSettings | None = None
    ) -> None:
        self.workload = workload
        self.name = name
        self.settings = settings or SimulationSettings()
        self.capacity = self._checked_capacity()
        traits = traits_of(policy)
        whole = np.full(len(workload), traits.exclusive) | (workload.dedicated & traits.dedicated)
        fits = self._fits(traits, whole)
        told_s = workload.submit_s if traits.dedicated else workload.release_s
        self._accepted = np.flatnonzero(fits)
        self._accepted = self._accepted[np.argsort(told_s[fits], kind="stable")]
        self._jobs = workload.select(fits).with_columns(submit_s=told_s[fits])
        self.refused = tuple(np.flatnonzero(~fits).tolist())
        self._hardware = self.settings.hardware.world(self.capacity, self._accepted)
        self._limits = self._checked_limits()
        self._core = Core(
            policy, self.capacity, self.settings.command_limit, self.settings.hardware.speeds(), self._limits
        )
        # Before the first event: as if it had been measured.
        self._core.handle(self._prices(), -np.inf)
        self._ties = ties_of(self.settings.order)
        self._world = World(self._jobs, self.settings.penalty, self._hardware, self._ties)
        self._clock = Clock(self.settings.order)
        self._freed = (-np.inf, 0.0)
        """When a job was last done as estimated, and the turn of the first of that instant."""
        self._compiled = self._compiled_loop(policy)
        self._submitted = 0
        self._node_events = sorted(self.settings.node_events, key=lambda pair: pair[0])
        for time_s, change in self._node_events:
            if not 0 <= change.node < len(self.capacity):
                raise InputError(f"node event at {time_s} s: node {change.node}: there are {len(self.capacity)}")
            most = float(self.capacity[change.node, 0])
            if isinstance(change, CapacityLeft) and not 0 < change.cpu <= most:
                raise InputError(
                    f"node event at {time_s} s: node {change.node}: {change.cpu} of its CPU left: must be above 0 and "
                    f"at most {most}"
                )
        self._node_events_seen = 0
        self._commands_seen = 0
        self.done = 0
        self.now_s = -np.inf
        self._expect_submission()
        self._schedule_command()
        self._schedule_node_events()

    def run(self, watch: Watch | None = None) -> Run:
        """Go on until every job is done or `watch` says stop. Raises PolicyStoppedError where the policy ends it."""
        steps = idle = since_progress = 0
        while self._core.present or self._submitted < len(self._jobs):
            # The compiled loop goes on up to an event that it does not know; the interpreted engine does that one.
            events = self._go_on(WATCHED - steps % WATCHED)
            if events:
                idle = since_progress = 0
                steps += events
                if watch is not None and steps % WATCHED == 0 and not watch(self.done):
                    return self._result(complete=False)
                continue
            completion_s, job = self._world.next_completion()
            foremost = self._ties.by_estimate and job >= 0 and self._world.foremost(job)
            if self._clock.before(completion_s, foremost=foremost):
                now_s, event = self._clock.pop()
            elif job >= 0:
                now_s, event = completion_s, Complete(int(self._jobs.job_id[job]))
            else:
                raise self._stopped(self._starving("is never placed, and nothing more will happen"))
            if isinstance(event, Profiled):
                self._profile(event.job, now_s)
                continue
            waking = isinstance(event, Wake)
            got_on = waking and self._core.gets_on(now_s)
            changes = self._step(now_s, event, job)
            idle = idle + 1 if waking and not changes and not self._hopeful() else 0
            if got_on or not waking:
                since_progress = 0
            elif changes or self._core.running:
                # Who waits without nodes may wait long for what is to come.
                since_progress += 1
            if idle > IDLE_WAKES:
                raise self._stopped(self._starving(f"is not placed, though the policy was asked {IDLE_WAKES} times"))
            if since_progress > FRUITLESS_WAKES:
                raise self._stopped(self._starving(f"makes no headway: {FRUITLESS_WAKES} rounds and no job was done"))
            steps += 1
            if watch is not None and steps % WATCHED == 0 and not watch(self.done):
                return self._result(complete=False)
        self._answer_late_commands()
        return self._result(complete=True)

    def _compiled_loop(self, policy: Policy) -> CompiledLoop | None:
        """The loop for plain stretches of the run, in which jobs done at the same instant are done as submitted.

        None where the policy has none, nodes are not alike, or jobs have minimum yields or make check-points.
        """
        as_submitted = not (self._ties.by_start or self._ties.by_estimate)
        plain = as_submitted and isinstance(self.settings.hardware, EqualHardware)
        loop = None if not plain or self._jobs.demanding or self._jobs.checkpointing else event_loop_of(policy)
        return None if loop is None else CompiledLoop(loop, self._jobs, submissions_first=self._ties.one_by_one)

    def _go_on(self, events: int) -> int:
        """Let the compiled loop process at most so many events; how many it did."""
        if self._compiled is None:
            return 0
        stretch = self._compiled.go_on(self._core, self._world, self._clock.others_s, events)
        if stretch.events:
            self.now_s = stretch.now_s
            self.done += stretch.completions
            self._submitted += stretch.submissions
            self._expect_submission()
            if stretch.question is not None:
                self._decide(stretch.question)
            self._expect_wake()
        return stretch.events

    def _decide(self, question: Ask) -> None:
        """What the compiled loop could not."""
        try:
            commands = self._core.ask(question)
        except InputError:
            raise
        except PolicyError as error:
            raise self._stopped(error) from error
        self._perform(commands)

    def _perform(self, commands: Commands) -> None:
        if len(commands):
            self._world.perform(commands, self.now_s)
            ready = self._world.acknowledgement()
            if ready is not None:
                self._core.handle(ready, self.now_s)
            self._schedule_profiles(self._hardware.news())

    def _step(self, now_s: float, event: Event, job: int) -> int:
        world = self._world
        if isinstance(event, Complete):
            world.complete(job)
            self.done += 1
            event = Complete(event.job_id, last=self._asks_after(job, now_s))
        elif isinstance(event, Submit):
            self._submitted += 1
            self._expect_submission()
        elif isinstance(event, Change):
            self._commands_seen += 1
            self._schedule_command()
        elif isinstance(event, NodeChange | CapacityLeft):
            self._node_events_seen += 1
            left = self._node_events[self._node_events_seen :]
            event = replace(event, last=not left or left[0][0] > now_s)
        self.now_s = now_s
        try:
            commands = self._core.handle(event, now_s)
        except InputError:
            raise
        except PolicyError as error:
            if isinstance(event, Change):
                self._amend(event, now_s)
            raise self._stopped(error) from error
        if isinstance(event, Change):
            self._amend(event, now_s)
        self._perform(commands)
        self._expect_wake()
        return len(commands)

    def _asks_after(self, job: int, now_s: float) -> bool:
        """Whether the policy is asked after the completion of `job`, which no other may follow at the same instant."""
        ties, world = self._ties, self._world
        next_s, other = world.next_completion()
        if not (ties.by_estimate and world.foremost(job)):
            return ties.one_by_one or next_s > now_s
        if self._freed[0] != now_s:
            self._freed = now_s, world.turn(job)
        if next_s > now_s or world.foremost(other):
            return next_s > now_s
        # What estimates say is free is free together, and the policy is asked at the first submission or completion.
        return self._clock.before(now_s) or self._freed[1] < world.turn(other)

    def _expect_wake(self) -> None:
        at_s = self._core.wake_at_s
        self._clock.expect(Wake, np.inf if at_s is None else at_s, None if at_s is None else Wake())

    def _expect_submission(self) -> None:
        jobs, k = self._jobs, self._submitted
        if k == len(jobs):
            self._clock.expect(Submit, np.inf, None)
        else:
            event = Submit(
                int(jobs.job_id[k]),
                int(jobs.tasks[k]),
                float(jobs.need[k]),
                float(jobs.memory[k]),
                float(jobs.estimate_s[k]),
                float(jobs.weight[k]),
                int(jobs.user[k]),
                float(jobs.requested_start_s[k]),
                float(jobs.minimum_yield[k]),
                checkpoint_s=float(jobs.checkpoint_s[k]),
            )
            self._clock.expect(Submit, float(jobs.submit_s[k]), event)

    def _schedule_profiles(self, begun: Iterable[tuple[float, int]]) -> None:
        for due_s, job in begun:
            self._clock.schedule(due_s, Profiled(job))

    def _profile(self, job: int, now_s: float) -> None:
        """Tell the core what a job's profile says, unless the job has been placed anew, or is gone."""
        predicted = self._hardware.profiled(job, int(self._jobs.job_id[job]), now_s)
        if predicted is not None:
            self.now_s = now_s
            self._core.handle(predicted, now_s)

    def _schedule_command(self) -> None:
        commands, k = self.workload.commands, self._commands_seen
        if k < len(commands):
            event = Change(int(commands.job_id[k]), CommandKind(commands.kind[k]), float(commands.amount[k]))
            self._clock.schedule(float(commands.time_s[k]), event)

    def _amend(self, command: Change, now_s: float) -> None:
        """Let the world's job have the time that a granted command gives it."""
        if command.kind in TIME_KINDS and self._core.answers.last in GRANTS:
            job = int(np.flatnonzero(self._jobs.job_id == command.job_id)[0])
            amount_s = command.amount if command.kind == CommandKind.ET else -command.amount
            self._core.answers.settle(self._world.amend(job, amount_s, now_s))

    def _answer_late_commands(self) -> None:
        """Those after the last job's end change nothing, but have their answer."""
        commands = self.workload.commands
        for k in range(self._commands_seen, len(commands)):
            command = Change(int(commands.job_id[k]), CommandKind(commands.kind[k]), float(commands.amount[k]))
            self._core.handle(command, float(commands.time_s[k]))
        self._commands_seen = len(commands)

    def _schedule_node_events(self) -> None:
        for time_s, event in self._node_events[self._node_events_seen :]:
            self._clock.schedule(time_s, event)

    def _hopeful(self) -> bool:
        """Whether something other than the policy can still change the state."""
        more = self._submitted < len(self._jobs) or self._node_events_seen < len(self._node_events)
        more = more or self._commands_seen < len(self.workload.commands)
        return more or self._core.running or self._core.booked

    def _starving(self, problem: str) -> PolicyError:
        waiting = self._core.snapshot().jobs
        idle = waiting["id"][waiting["yield_"] == 0]
        return PolicyError(int(idle[0] if len(idle) else waiting["id"][0]), problem)

    def _stopped(self, error: PolicyError) -> PolicyStoppedError:
        return PolicyStoppedError(f"policy {self.name} at {self.now_s:.17g} s: {error}", self._result(complete=False))

    def _result(self, *, complete: bool) -> Run:
        events = self._core.event_log.events()
        jobs = np.where(events.job >= 0, self._accepted[events.job], -1) if len(self._accepted) else events.job
        return Run(
            workload=self.workload,
            policy=self.name,
            capacity=self.capacity,
            penalty=self.settings.penalty,
            events=replace(events, job=jobs),
            complete=complete,
            end_s=self.now_s if np.isfinite(self.now_s) else 0.0,
            refused=self.refused,
            answers=self._core.answers.answers(),
            seed=self.settings.seed,
            configuration={
                "order": self.settings.order,
                "exclusive": self._core.traits.exclusive,
                "dedicated": self._core.traits.dedicated,
                "command_limit": self.settings.command_limit,
                **self._limits_noted(),
                **capacity_left_noted(self._node_events),
                **self.settings.hardware.notes(self._core.traits),
                **self.settings.notes,
            },
            speeds=self.settings.hardware.truth,
        )

    def _prices(self) -> Prices:
        """Those of a job with the median memory. What a plan's migrations on unequal nodes cost is not known before."""
        jobs = self._jobs
        prices = self.settings.penalty.prices(float(np.median(jobs.memory * jobs.tasks)) if len(jobs) else 0.0)
        return prices if isinstance(self.settings.hardware, EqualHardware) else replace(prices, move_s=0.0)

    def _limits_noted(self) -> dict[str, object]:
        """What nodes cannot do; nothing where they can do everything."""
        settings = self.settings
        noted: dict[str, object] = {} if settings.pauses == FREE else {"pauses": settings.pauses}
        if settings.moves != ANYWHERE and self._limits is not None:
            noted |= {"moves": settings.moves, "hosts": self._limits.island.tolist()}
        return noted

    def _fits(self, traits: Traits, whole: Bools) -> Bools:
        """(J,) whether each job could run alone; for policies that keep to partitions, within one of them."""
        fits, nodes = _fits(self.workload, self.capacity, whole), len(self.capacity)
        self.settings.hardware.check(self.workload, nodes)
        if not traits.clustered:
            return fits
        partition = self.settings.hardware.partition(nodes)
        return fits & fits_a_partition(self.workload, self.capacity, partition, exclusive=traits.exclusive)

    def _checked_limits(self) -> NodeLimits | None:
        settings, nodes = self.settings, len(self.capacity)
        if settings.hosts is not None and len(settings.hosts) != nodes:
            raise InputError(f"hosts of {len(settings.hosts)} nodes: there are {nodes}")
        return node_limits(settings.pauses, settings.moves, nodes, settings.hosts)

    def _checked_capacity(self) -> Floats:
        given, nodes = self.settings.capacity, self.settings.hardware.nodes(self.workload)
        capacity = np.ones((nodes, 2)) if given is None else np.array(given, dtype=np.float64)
        if capacity.ndim != 2 or capacity.shape[1] != 2 or not len(capacity):
            raise InputError(f"capacity of shape {capacity.shape}: must be (nodes, 2), the columns CPU and memory")
        if not (np.isfinite(capacity) & (capacity >= 0)).all():
            raise InputError("capacity: must be finite numbers of at least 0")
        return capacity

    def state(self) -> dict[str, np.ndarray]:
        """Everything that changes, as arrays, for `restore`."""
        own = np.array([self._submitted, self._node_events_seen, self._commands_seen, self.done])
        core = {f"core_{name}": array for name, array in self._core.state().items()}
        world = {f"world_{name}": array for name, array in self._world.state().items()}
        return {"counts": own, "now_s": np.array(self.now_s), "freed": np.array(self._freed)} | core | world

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue where `state` was taken: the same workload, policy and settings are the caller's duty."""
        self._submitted, self._node_events_seen, self._commands_seen, self.done = state["counts"].tolist()
        self.now_s = float(state["now_s"])
        self._freed = float(state["freed"][0]), float(state["freed"][1])
        self._core.restore({name[5:]: array for name, array in state.items() if name.startswith("core_")})
        self._world.restore({name[6:]: array for name, array in state.items() if name.startswith("world_")})
        self._clock = Clock(self.settings.order)
        self._expect_submission()
        self._expect_wake()
        self._schedule_command()
        self._schedule_node_events()
        self._schedule_profiles(self._hardware.pending())


def capacity_left_noted(events: Iterable[tuple[float, NodeChange | CapacityLeft]]) -> dict[str, object]:
    """What a run's summary says of them, where there are any: time, node and the CPU left of it from then on."""
    left = [[time_s, event.node, event.cpu] for time_s, event in events if isinstance(event, CapacityLeft)]
    return {"capacity_left": left} if left else {}


def _fits(workload: Workload, capacity: Floats, whole: Bools) -> Bools:
    """(J,) whether each job could run alone: its tasks' memory fits, and the CPU that they must have: their minimum
    yields, and all of their needs for jobs `whole` (J,).
    """
    cpu, memory = capacity.min(axis=0)
    must_have = workload.need * np.where(whole, 1.0, workload.minimum_yield)
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.floor(memory / workload.memory)
        room = np.where(must_have > 0, np.minimum(room, np.floor(cpu / must_have)), room if cpu > 0 else 0.0)
        fits = len(capacity) * room >= workload.tasks
    # Of most jobs it is certain, as if each node were the smallest one; the others are looked at shape by shape.
    left = np.flatnonzero(~fits)
    columns = (must_have[left], workload.memory[left])
    shapes, shape_of = np.unique(np.column_stack(columns), axis=0, return_inverse=True)
    for k, (need, memory) in enumerate(shapes.tolist()):
        jobs = left[shape_of.reshape(-1) == k]
        fits[jobs] = most_tasks(capacity, need, memory, exclusive=need > 0) >= workload.tasks[jobs]
    return fits
