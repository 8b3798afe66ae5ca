"""What one step of the controller records, and does then.

A plan changes nothing. Its events and rows are made durable together; then `after` is called and the core is told.
A job or a node is in a plan at most once: whatever else there is about it comes with the next one.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dfrs.engine.events import (
    Amend,
    Complete,
    Event,
    Hold,
    MoveRefused,
    PauseRefused,
    Progressed,
    Ready,
    Revise,
    Reweigh,
    Submit,
    Unhold,
    Wake,
    Withdraw,
)
from dfrs.live.controller import tables
from dfrs.live.controller.activity import ActivityFeed
from dfrs.live.controller.database import Change
from dfrs.live.protocol.resources import Activity
from dfrs.model.nodes import CapacityLeft, NodeChange

_RANK: Mapping[type[Event], int] = {
    # Before the policy is asked about anything: it might start a job that has not begun as these count on.
    Reweigh: -2,
    Withdraw: -1,
    Amend: 0,
    NodeChange: 1,
    CapacityLeft: 2,
    Complete: 3,
    PauseRefused: 4,
    MoveRefused: 5,
    Unhold: 6,
    Submit: 7,
    Hold: 8,
    Revise: 9,
    Ready: 10,
    Progressed: 11,
    Wake: 12,
}

_TOGETHER: Mapping[type[Event], tuple[type[Event], ...]] = {Withdraw: (Withdraw, Amend)}
"""Kinds between which the policy is not asked, where they are more than the event's own."""


@dataclass(frozen=True, slots=True)
class JobChange:
    """What a user changes of a job."""

    fields: Mapping[str, Any]
    """Those of its request."""
    ended: Mapping[int, str]
    """States of the jobs that it is to come after and that had ended when that was asked."""


@dataclass(slots=True, eq=False)
class Request:
    """What a user wants done to a job or a node. `done` is answered when it is durable."""

    verb: str
    subject: int | str
    by: str
    done: asyncio.Future[None] = field(repr=False)
    why: str = ""
    """As who asks for it says."""
    change: JobChange | None = None
    """Of an update."""


@dataclass(slots=True, eq=False)
class ControllerPlan:
    """What to record, and what to do then."""

    now_s: float
    at: float
    """What the wall clock says then."""
    events: list[Event] = field(default_factory=list[Event])
    rows: list[tuple[Any, Mapping[str, Any]]] = field(default_factory=list[tuple[Any, Mapping[str, Any]]])
    after: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    happened: list[Activity] = field(default_factory=list[Activity])
    answered: list[Request] = field(default_factory=list[Request])
    jobs: set[int] = field(default_factory=set[int])
    """Jobs that it is about."""
    fates: set[int] = field(default_factory=set[int])
    """Those of them of whose tasks it says that they have run: they are not started again."""
    again: set[int] = field(default_factory=set[int])
    """Jobs about which there is more to say."""
    seen: set[int] = field(default_factory=set[int])
    """Jobs that were looked at."""

    def time_s(self, at: float) -> float:
        """The core's time at that time of the wall clock, as it is set now."""
        return self.now_s + at - self.at

    @property
    def empty(self) -> bool:
        """Whether there is nothing to record."""
        return not (self.events or self.rows or self.happened)

    def changes(self) -> list[Change]:
        """Rows of the database, by statement."""
        rows: list[Change] = [(statement, [row]) for statement, row in self.rows]
        rows += [(tables.ADD_ACTIVITY, [ActivityFeed.row(each) for each in self.happened])]
        return rows

    def sort_events(self) -> None:
        """Order them by kind, nodes first, as the core is told; the policy is asked after the last of each kind."""
        ordered = sorted(self.events, key=lambda event: _RANK.get(type(event), 1))
        for k, event in enumerate(ordered):
            if isinstance(event, Complete | Submit | Amend | Withdraw | Revise | NodeChange | CapacityLeft):
                later = ordered[k + 1] if k + 1 < len(ordered) else None
                ordered[k] = replace(event, last=not isinstance(later, _TOGETHER.get(type(event), type(event))))
        self.events = ordered
