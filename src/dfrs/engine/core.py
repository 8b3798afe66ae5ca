"""The state machine between events and commands, without clock or I/O: simulator and live shell share it.

`Core.handle(event, now_s)` brings the account of jobs up to now, lets the policy decide on a frozen snapshot, checks
its target, turns it into commands, and takes the target as the present. Whoever performs the commands answers with
`Ready`.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dfrs.engine.aside import Seen, leave_aside
from dfrs.engine.check import check, check_permitted, check_resources
from dfrs.engine.commands import NOTHING, Commands, joined
from dfrs.engine.constrained_decisions import ConstrainedDecision
from dfrs.engine.event_log import EventLog
from dfrs.engine.events import Event
from dfrs.engine.executor_constraints import guard, to_be_ended
from dfrs.engine.handlers import HANDLERS
from dfrs.engine.handlers.handler import Ask
from dfrs.engine.job_changes import AnswerLog
from dfrs.engine.reconcile import reconcile
from dfrs.engine.speeds import EQUAL_NODES, SpeedsKept
from dfrs.engine.state import State
from dfrs.kernels.reconcile import commit
from dfrs.model.decisions import WAITING, Cause, Policy, PolicyError, Prices, Snapshot, Target, Traits
from dfrs.model.errors import InputError
from dfrs.model.instance import Bools, Floats, Ints
from dfrs.model.named_resources import Counts
from dfrs.model.nodes import NodeLimits
from dfrs.model.run import Action

RETRY_S = 60.0

# An enumeration's members are slow to look up where it is done a million times.
_LOST, _MIGRATE, _PAUSE = int(Action.LOST), int(Action.MIGRATE), int(Action.PAUSE)


class Core:
    """A cluster of nodes with `capacity` (N, 2) under a policy. Deterministic: same events, same commands.

    There may be no nodes at first: then jobs wait, and the policy is not asked. Of users' commands on one job at most
    `command_limit` are granted; a command on a job that is held is answered as if nobody had told of it. Nodes are
    alike, or `speeds`, which no other core may share, says how they are grouped; nodes that join are then its next.
    With `limits` nodes cannot do everything.
    """

    def __init__(
        self,
        policy: Policy,
        capacity: Floats,
        command_limit: int | None = None,
        speeds: SpeedsKept = EQUAL_NODES,
        limits: NodeLimits | None = None,
    ) -> None:
        self._state = State(policy, capacity, command_limit, speeds, limits)
        self._target: Target | None = None

    def handle(self, event: Event, now_s: float) -> Commands:
        """What is to be done because of `event`, which became true at `now_s` (never before the last one).

        Raises InputError for an event that cannot be true, and then nothing has changed; PolicyError where the policy's
        answer cannot be performed.
        """
        state, handler = self._state, HANDLERS[type(event)]
        if not now_s >= state.now_s:
            raise InputError(f"event at {now_s} s after one at {state.now_s} s: time does not go back")
        row = handler.row(state, event)
        state.advance(now_s)
        commands = NOTHING
        for step in handler.apply(state, event, row):
            commands = joined(commands, self.ask(step) if isinstance(step, Ask) else step)
        return commands

    def ask(self, question: Ask) -> Commands:
        """What the policy wants to be done now. Raises PolicyError where its answer cannot be performed."""
        state = self._state
        if state.cluster.empty:
            state.wake_at_s = None
            return NOTHING
        snapshot = state.about_to_ask(*question)
        try:
            target = self._everywhere(snapshot) if snapshot.permitted is None else self._where_permitted(snapshot)
            return NOTHING if target is None else self._reconcile(snapshot, target)
        except PolicyError:
            # Who goes on in spite of it asks again, but not at once.
            state.wake_at_s = state.now_s + RETRY_S
            raise

    def _everywhere(self, snapshot: Snapshot) -> Target | None:
        """What is to be, None where nothing is to be decided; each job may use all nodes."""
        seen = None if self._state.all_fit else leave_aside(snapshot, self._state.traits)
        if seen is not None and not seen.concerns:
            return None
        wanted = self._decide(snapshot, seen)
        check(snapshot, wanted)
        return self._fit(snapshot, wanted)

    def _where_permitted(self, snapshot: Snapshot) -> Target | None:
        """As `_everywhere`, where some jobs may not use all nodes."""
        state = self._state
        decision = ConstrainedDecision(
            snapshot, state.traits, state.constraints, state.wake_at_s, self._decide, self._fit
        )
        target, state.wake_at_s = decision.target()
        return target

    @property
    def plain(self) -> State | None:
        """The state itself where it is plain, for a loop that changes it as the handlers do; None where it is not.

        The last target is then no longer known.
        """
        if not self._state.plain:
            return None
        self._target = None
        return self._state

    def _decide(self, snapshot: Snapshot, seen: Seen | None) -> Target:
        """What the policy wants, of what it sees if that is not all. Raises PolicyError for whatever it raises."""
        decide = self._state.policy.decide
        try:
            if seen is None:
                return decide(snapshot)
            target = decide(seen.snapshot)
            check(seen.snapshot, target)
            return seen.joined(target)
        except PolicyError:
            raise
        except Exception as error:
            raise PolicyError(None, f"raised {type(error).__name__}: {' '.join(str(error).split())}") from error

    def _fit(self, snapshot: Snapshot, target: Target) -> Target:
        """The target as executors can perform it."""
        state = self._state
        if not (state.limited or state.demanding or snapshot.permitted is not None):
            return target
        target = guard(snapshot, target, state.traits)
        check(snapshot, target)
        check_permitted(snapshot, target)
        check_resources(snapshot, target)
        return target

    def _reconcile(self, snapshot: Snapshot, target: Target) -> Commands:
        """Target minus present as commands; the target is the present from then on."""
        state, rows = self._state, self._state.rows
        commands, after, order, steps = reconcile(snapshot, target)
        state.wake_at_s = target.wake_at_s
        state.decisions += 1
        self._target = target
        if len(target.policy_state):
            rows.jobs["policy_state"][: rows.count] = target.policy_state
        if not len(commands):
            return commands
        if target.why:
            for k, name in enumerate(commands.job_id.tolist()):
                if name in target.why:
                    commands.reason[k] = state.event_log.reason(target.why[name])
        if state.cluster.several:
            for row in order[steps == _PAUSE].tolist():
                state.note_home(row)
        ended = to_be_ended(snapshot, order[steps == _PAUSE])
        if len(ended):
            actions = np.where((steps == _PAUSE) & np.isin(order, ended), _LOST, steps)
            commands = replace(commands, action=actions)
        commit(rows.jobs, rows.first, rows.nodes, after, target.yields, state.now_s, order, steps)
        state.speeds.placed(rows, order, steps)
        for row in ended.tolist():
            self._end(row)
        if _MIGRATE in steps.tolist():
            migrates = steps == _MIGRATE
            state.note_move(state.now_s, float((commands.moved[migrates] * rows.jobs["memory"][order[migrates]]).sum()))
        state.event_log.append(state.now_s, commands)
        return commands

    def _end(self, row: int) -> None:
        """A job that has just left its nodes waits to begin anew."""
        job = self._state.rows.jobs[row]
        self._state.restarts.note(int(job["serial"]), float(job["virtual_s"]))
        job["state"], job["virtual_s"] = WAITING, 0.0
        job["pauses"] -= 1

    @property
    def policy(self) -> Policy:
        """Who decides. Another one may be set, which is then asked when this one would have been; see `hand_over`."""
        return self._state.policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._state.policy = policy

    @property
    def traits(self) -> Traits:
        """Of the policy that decides."""
        return self._state.traits

    def hand_over(self, policy: Policy) -> None:
        """Let another policy decide from here on. It is to be asked at once, not when the one before wanted to be.

        What is left of nodes is to be told anew: one that is exclusive gave out more than that. What the one before
        noted of jobs that are not on nodes is forgotten: to another one it may mean something else.
        """
        state = self._state
        state.policy = policy
        state.forget_notes()
        state.cluster.forget_left()
        state.wake_at_s = state.now_s if np.isfinite(state.now_s) else None

    @property
    def wake_at_s(self) -> float | None:
        """When the policy wants to be asked again."""
        return self._state.wake_at_s

    @property
    def decisions(self) -> int:
        """How many targets were taken."""
        return self._state.decisions

    @property
    def command_limit(self) -> int | None:
        """How many of users' commands on one job are granted; None: any number."""
        return self._state.command_limit

    @property
    def event_log(self) -> EventLog:
        """Every change, with its reason. Whoever has no use for what is past may set an empty one."""
        return self._state.event_log

    @event_log.setter
    def event_log(self, event_log: EventLog) -> None:
        self._state.event_log = event_log

    @property
    def answers(self) -> AnswerLog:
        """Users' commands, with their answers."""
        return self._state.answers

    @property
    def target(self) -> Target | None:
        """The last target as it was taken, to be recorded; None before the first one, also after `restore`.

        It is to be read before the next event: until then a target may be a view of the present.
        """
        if self._target is not None:
            self._target = _own(self._target)
        return self._target

    @property
    def capacity(self) -> Floats:
        """(N, 2) CPU and memory of each node, held jobs or not, whatever else uses it."""
        return self._state.cluster.capacity

    @property
    def left(self) -> Floats:
        """(N,) CPU of each node that is left for tasks, as it was last told."""
        return self._state.cluster.left

    @property
    def frees_memory(self) -> Bools:
        """(N,) whether pauses free memory on each node."""
        return ~self._state.cluster.keeps

    def resources(self, node: int) -> Counts:
        """How many of each named resource a node has, as it was last told."""
        return self._state.resources.node(node)

    @property
    def permitted(self) -> Mapping[int, Ints]:
        """Numbers of the nodes that each constraint permits, as they were last told; what is missing permits none."""
        return self._state.constraints.nodes

    @property
    def prices(self) -> Prices:
        """Of pauses, resumes and moves, as policies see them."""
        return self._state.prices

    @property
    def present(self) -> int:
        """How many jobs have been submitted and are not done."""
        return self._state.rows.count + len(self._state.held)

    @property
    def running(self) -> bool:
        """Whether any job has a yield above 0."""
        return bool((self._state.rows.views()[0]["yield_"] > 0).any())

    @property
    def booked(self) -> bool:
        """Whether any job is present whose requested start is to come."""
        return bool((self._state.rows.views()[0]["requested_start_s"] > self._state.now_s).any())

    def gets_on(self, now_s: float) -> bool:
        """Whether any job makes progress before `now_s`, if nothing changes until then."""
        jobs = self._state.rows.views()[0]
        return bool(((jobs["yield_"] > 0) & (jobs["ready_s"] < now_s)).any())

    def snapshot(self, cause: Cause = Cause.WAKE, subject: int = -1) -> Snapshot:
        """The present as the policy sees it, frozen; see `State.snapshot`."""
        return self._state.snapshot(cause, subject)

    def state(self) -> dict[str, np.ndarray]:
        """Everything but the policy and the last target, as arrays, for `restore`."""
        return self._state.state()

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue where `state` was taken."""
        self._target = None
        self._state.restore(state)


def _own(target: Target) -> Target:
    """The target with arrays of its own where they are views of a snapshot, which will change."""
    if target.task_nodes.flags.writeable and target.yields.flags.writeable:
        return target
    return replace(target, task_nodes=target.task_nodes.copy(), yields=target.yields.copy())
