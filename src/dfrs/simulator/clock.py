"""The simulator's clock: what happens next, ties broken by priority and then by the order of scheduling."""

import heapq
from dataclasses import dataclass
from itertools import count
from typing import Literal

from dfrs.engine.events import Change, Complete, Event, Submit, Wake
from dfrs.model.nodes import CapacityLeft, NodeChange

Order = Literal["completions-first", "submissions-first"]
"""At one instant, whether a freed node can serve the job submitted then or the job is queued first."""


@dataclass(frozen=True, slots=True)
class Profiled:
    """The profile of a job, by number, is complete, unless the job has been placed anew since."""

    job: int


_PRIORITY: dict[Order, dict[type, int]] = {
    "completions-first": {Complete: 0, NodeChange: 1, CapacityLeft: 1, Submit: 2, Change: 3, Profiled: 4, Wake: 5},
    "submissions-first": {Submit: 0, Complete: 1, NodeChange: 2, CapacityLeft: 2, Change: 3, Profiled: 4, Wake: 5},
}


class Clock:
    """Events by (time, priority of their kind, order of scheduling)."""

    def __init__(self, order: Order = "completions-first") -> None:
        self._priority = _PRIORITY[order]
        self._heap: list[tuple[float, int, int, Event | Profiled]] = []
        self._sequence = count()
        self._completion = self._priority[Complete]

    def schedule(self, time_s: float, event: Event | Profiled) -> None:
        """Let `event` happen at `time_s`."""
        heapq.heappush(self._heap, (time_s, self._priority[type(event)], next(self._sequence), event))

    def before(self, completion_s: float) -> bool:
        """Whether the next event comes before a completion at that time (infinite if there is none)."""
        return bool(self._heap) and self._heap[0][:2] < (completion_s, self._completion)

    def pop(self) -> tuple[float, Event | Profiled]:
        """The next event and its time."""
        time_s, _, _, event = heapq.heappop(self._heap)
        return time_s, event
