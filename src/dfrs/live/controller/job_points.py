"""How each job fared: some instants of its past since it first ran, the farther apart the longer that is."""

import math
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dfrs.live.protocol.resources import JobPoint

MOST_POINTS = 96
"""Of one job. When they are that many, every second one goes."""
FIRST_STEP_S = 2.0
PART = 48.0
"""A job for which nothing changes is looked at so many times in as long as it has been there."""
MOST_ENDED = 1000
"""So many jobs that have ended keep their past."""
_WIDTH = len(JobPoint.model_fields)


def _room() -> "array[float]":
    return array("f", bytes(4 * MOST_POINTS * _WIDTH))


@dataclass(slots=True)
class _Past:
    begun: float
    step_s: float = FIRST_STEP_S
    next_at: float = -math.inf
    count: int = 0
    """Of its points."""
    values: "array[float]" = field(default_factory=_room)
    """Fields of its points one after the other, NaN for None, times since `begun`: as objects, of thousands of jobs,
    they would need a hundred megabytes. There is room for all from the beginning: what a controller needs does not grow
    with the hours that jobs run.
    """

    def row(self, k: int) -> "array[float]":
        return self.values[k * _WIDTH : (k + 1) * _WIDTH]

    def append(self, row: Iterable[float]) -> None:
        self.values[self.count * _WIDTH : (self.count + 1) * _WIDTH] = array("f", row)
        self.count += 1

    def thin(self) -> None:
        """Keep every second one."""
        rows = [self.row(k) for k in range(0, self.count, 2)]
        self.count = 0
        for row in rows:
            self.append(row)


class JobPoints:
    """In memory alone: a controller that is started again begins anew."""

    def __init__(self) -> None:
        self.watched: set[int] = set()
        """Jobs that ran, or for which something was new, when they were last looked at: of thousands that are paused
        these alone are looked at again.
        """
        self._pasts: dict[int, _Past] = {}
        self._ended: deque[int] = deque()

    def due(self, job: int, now: float) -> bool:
        """Whether it is time for the job's next point."""
        past = self._pasts.get(job)
        return past is None or now >= past.next_at

    def add(self, job: int, point: JobPoint) -> None:
        """Take in the latest one of a job, unless it is as the one before, as of most jobs that are paused."""
        past = self._pasts.setdefault(job, _Past(point.time))
        time, *others = (math.nan if value is None else value for _, value in point)
        if past.count and past.row(past.count - 1)[1:].tobytes() == array("f", others).tobytes():
            past.next_at = time + max(past.step_s, (time - past.begun) / PART)
            if point.yield_granted is None:
                # When it goes on, that is to be seen at once.
                past.next_at = time
                self.watched.discard(job)
            return
        self.watched.add(job)
        if past.count >= MOST_POINTS:
            past.thin()
            past.step_s *= 2.0
        past.next_at = point.time + past.step_s
        past.append((time - past.begun, *others))

    def end(self, job: int) -> None:
        """It has ended."""
        self.watched.discard(job)
        if job in self._pasts:
            self._ended.append(job)
        while len(self._ended) > MOST_ENDED:
            del self._pasts[self._ended.popleft()]

    def of(self, job: int) -> Sequence[JobPoint]:
        """In order; none of a job that never ran, or ended long ago."""
        past = self._pasts.get(job)
        if past is None:
            return ()
        return [_point(past.begun, past.row(k)) for k in range(past.count)]


def _point(begun: float, row: "array[float]") -> JobPoint:
    time, *others = row
    values = (begun + time, *(None if math.isnan(value) else value for value in others))
    return JobPoint.model_validate(dict(zip(JobPoint.model_fields, values, strict=True)))
