"""The next thing to do for one task of a node, from what it is and what it shall be.

A pure function, so that every case can be tried: the agent asks it again after each step, and after each look at what
the driver has, until it says that nothing is left to do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from dfrs.live.drivers.base import TaskState
from dfrs.live.protocol.observed import CostVerb
from dfrs.live.protocol.wire import Desired

LIVE = frozenset({TaskState.STARTING, TaskState.RUNNING, TaskState.PAUSED, TaskState.HANDED})
"""States of a task that has processes here."""
PATIENCE_S = 1.0
"""A step that was performed and shows no effect is repeated after so long."""
STOP_PATIENCE_S = 5.0
"""As above for a stop, beyond its grace."""


class Verb(StrEnum):
    """What an agent asks of its driver; spelled like the driver's methods."""

    START = "start"
    TAKE = "take"
    FETCH = "fetch"
    """Not the driver's alone: receive it from a node of another host, and take it."""
    HAND = "hand"
    SET_SHARE = "set_share"
    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    FORGET = "forget"


COSTS: Mapping[Verb, CostVerb] = {Verb.PAUSE: "pause", Verb.RESUME: "resume", Verb.TAKE: "move", Verb.FETCH: "move"}
"""Verbs of which the controller is told how long they take, and what it calls them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAction:
    """One call of the driver."""

    verb: Verb
    share_cores: float = 0.0
    """For START, TAKE, FETCH and SET_SHARE."""
    grace_s: float = 0.0
    """For STOP."""
    keep: bool = False
    """For PAUSE."""

    @property
    def patience_s(self) -> float:
        """Seconds after which it is repeated if nothing came of it."""
        return self.grace_s + STOP_PATIENCE_S if self.verb is Verb.STOP else PATIENCE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class NextAction:
    """An action, or a problem that no action solves, or neither: the task is as desired."""

    action: TaskAction | None = None
    problem: str = ""


DONE = NextAction()


def plan(
    desired: Desired, state: TaskState, *, share_cores: float | None, was_here: bool, kept: bool | None = False
) -> NextAction:
    """What brings a task from `state` nearer to `desired`.

    `share_cores` is the share it was given last, None if that is not known; `was_here` says that this node had it
    since it was last desired to be absent; `kept` is as in `drivers.base.TaskStatus`. An ended task stays ended, and
    one whose record is gone is not started a second time: only the controller makes new attempts.
    """
    match desired.state:
        case TaskState.ABSENT:
            return _absent(state, desired.grace_s)
        case TaskState.HANDED:
            # With a grant it goes on until it is fetched.
            give_up = desired.grant is None and state in LIVE - {TaskState.HANDED}
            return _do(Verb.HAND) if give_up else DONE
        case TaskState.RUNNING | TaskState.PAUSED:
            return _present(desired, state, share_cores, was_here, kept)
        case _:
            return NextAction(problem=f"desired state {desired.state}: must be running, paused, handed or absent")


def may_come(desired: Desired | None, *, was_here: bool) -> bool:
    """Whether a task that is not here may yet be started or taken; arguments as above."""
    return desired is not None and desired.state in {TaskState.RUNNING, TaskState.PAUSED} and not was_here


def plan_fenced(state: TaskState, grace_s: float) -> NextAction:
    """What ends a task without forgetting how it ended, and starts none."""
    return NextAction(action=TaskAction(verb=Verb.STOP, grace_s=grace_s)) if state in LIVE else DONE


def _absent(state: TaskState, grace_s: float) -> NextAction:
    if state is TaskState.ABSENT:
        return DONE
    if state is TaskState.EXITED or (state is TaskState.HANDED and grace_s == 0.0):
        # One that was handed over has nothing to end here.
        return _do(Verb.FORGET)
    return NextAction(action=TaskAction(verb=Verb.STOP, grace_s=grace_s))


def _present(
    desired: Desired, state: TaskState, share_cores: float | None, was_here: bool, kept: bool | None
) -> NextAction:
    share = desired.share_cores
    match state:
        case TaskState.EXITED:
            return DONE
        case TaskState.ABSENT:
            return _arrive(desired, was_here)
        case TaskState.HANDED if desired.source is not None:
            return NextAction(problem="a copy that was given up is here: it is to be forgotten first")
        case TaskState.HANDED:
            return _do(Verb.TAKE, share)
        case _ if desired.state is TaskState.PAUSED:
            settled = state is TaskState.PAUSED and kept is not None and (desired.keep or not kept)
            return DONE if settled else NextAction(action=TaskAction(verb=Verb.PAUSE, keep=desired.keep))
        case _ if share_cores != share:
            return _do(Verb.SET_SHARE, share)
        case TaskState.PAUSED:
            return _do(Verb.RESUME)
        case _:
            return DONE


def _arrive(desired: Desired, was_here: bool) -> NextAction:
    if desired.take:
        return _do(Verb.TAKE if desired.source is None else Verb.FETCH, desired.share_cores)
    if desired.state is TaskState.PAUSED:
        return NextAction(problem="there is no such task on this node to pause")
    if was_here:
        return NextAction(problem="what this node knew of it is gone: not started a second time")
    if desired.spec is None:
        return NextAction(problem="spec: must be given for a task that is to be started")
    return _do(Verb.START, desired.share_cores)


def _do(verb: Verb, share_cores: float = 0.0) -> NextAction:
    return NextAction(action=TaskAction(verb=verb, share_cores=share_cores))
