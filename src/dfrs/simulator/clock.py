"""The simulator's clock: what happens next, ties broken by priority and then by the order of scheduling."""

import heapq
from dataclasses import dataclass
from itertools import count
from typing import Literal, get_args

import numpy as np

from dfrs.engine.events import Change, Complete, Event, Submit, Wake
from dfrs.model.errors import InputError
from dfrs.model.nodes import CapacityLeft, NodeChange

Order = Literal[
    "completions-first",
    "submissions-first",
    "submissions-first-by-start",
    "submissions-first-by-estimate",
    "submissions-first-by-start-and-estimate",
]
"""At one instant, whether a freed node can serve the job submitted then or the job is queued first; see `Ties`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ties:
    """What an order says of completions at one instant. EASY and CONSERVATIVE start other jobs if it says otherwise."""

    one_by_one: bool = True
    """Submissions come before completions, and the policy is asked after each completion, not only after the last."""
    by_start: bool = False
    """Completions are in the order in which the jobs were started, not submitted."""
    by_estimate: bool = False
    """Who runs until its estimate ends, or longer, is done before the submissions of that instant, as where a profile
    of estimates says which processors are free."""


USUAL = Ties(one_by_one=False)
_TIES: dict[str, Ties] = {
    "completions-first": USUAL,
    "submissions-first": Ties(),
    "submissions-first-by-start": Ties(by_start=True),
    "submissions-first-by-estimate": Ties(by_estimate=True),
    "submissions-first-by-start-and-estimate": Ties(by_start=True, by_estimate=True),
}


def known_order(name: str) -> Order:
    """The order of that name. Raises InputError with all names."""
    orders: tuple[Order, ...] = get_args(Order)
    for order in orders:
        if order == name:
            return order
    raise InputError(f'order "{name}": must be {", ".join(orders[:-1])} or {orders[-1]}')


def ties_of(order: Order) -> Ties:
    """What the order says. Raises InputError with all names."""
    return _TIES[known_order(order)]


@dataclass(frozen=True, slots=True)
class Profiled:
    """The profile of a job, by number, is complete, unless the job has been placed anew since."""

    job: int


_COMPLETIONS_FIRST = {Complete: 0, NodeChange: 1, CapacityLeft: 1, Submit: 2, Change: 3, Profiled: 4, Wake: 5}
_SUBMISSIONS_FIRST = {Submit: 0, Complete: 1, NodeChange: 2, CapacityLeft: 2, Change: 3, Profiled: 4, Wake: 5}
_FOREMOST = -1
"""Of completions that come before everything else at their instant."""


_Entry = tuple[float, int, int, Event | Profiled]


class Clock:
    """Events by (time, priority of their kind, order of scheduling).

    Of submissions and of wakes only the next one is known, apart from all others: another one takes its place.
    """

    def __init__(self, order: Order = "completions-first") -> None:
        self._priority: dict[type, int] = _SUBMISSIONS_FIRST if ties_of(order).one_by_one else _COMPLETIONS_FIRST
        self._heap: list[_Entry] = []
        self._next: dict[type, _Entry] = {}
        self._sequence = count()
        self._completion = self._priority[Complete]

    def schedule(self, time_s: float, event: Event | Profiled) -> None:
        """Let `event` happen at `time_s`."""
        heapq.heappush(self._heap, (time_s, self._priority[type(event)], next(self._sequence), event))

    def expect(self, kind: type[Submit | Wake], time_s: float, event: Submit | Wake | None) -> None:
        """Let the next submission or wake be this one, or none."""
        self._next.pop(kind, None)
        if event is not None:
            self._next[kind] = (time_s, self._priority[kind], 0, event)

    def before(self, completion_s: float, *, foremost: bool = False) -> bool:
        """Whether the next event comes before a completion at that time (infinite if there is none).

        One that is `foremost` comes before all other events of its instant.
        """
        first = self._first()
        return first is not None and first[:2] < (completion_s, _FOREMOST if foremost else self._completion)

    def pop(self) -> tuple[float, Event | Profiled]:
        """The next event and its time."""
        first = self._first()
        assert first is not None
        time_s, _, _, event = first
        if self._next.get(type(event)) is first:
            del self._next[type(event)]
        else:
            heapq.heappop(self._heap)
        return time_s, event

    @property
    def others_s(self) -> float:
        """When the next event is that is neither submission nor wake; infinite if there is none."""
        return self._heap[0][0] if self._heap else np.inf

    def _first(self) -> _Entry | None:
        known = [*self._next.values(), *self._heap[:1]]
        return min(known, key=lambda entry: entry[:3]) if known else None
