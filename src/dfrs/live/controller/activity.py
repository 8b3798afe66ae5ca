"""What happened, where tasks were, and how the yields were: bounded in memory, thinned into the database.

Activity is kept as plain records, of which the API's models are made when somebody asks: as models it needs five times
as much memory.
"""

import asyncio
import contextlib
import json
import math
import struct
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from dfrs.live.protocol.resources import Activity, GanttBar, TimePoint

MOST_ACTIVITY = 20_000
MOST_POINTS = 6 * 3600
SHOWN_POINTS = 600
MOST_BARS = 10_000
STORED_EVERY_S = 30.0
SHARE_SHOWN = 0.02
"""Cores. A bar goes on while its share differs by less."""
CHANGES_S = 0.25
QUIET_S = 15.0


@dataclass(frozen=True, slots=True)
class _Activity:
    """Fields of an `Activity`."""

    sequence: int
    time: float
    job: int | None
    node: str | None
    action: str
    nodes: tuple[str, ...]
    yield_: float | None
    why: str
    by: str


_ACTIVITY = tuple(Activity.model_fields)
_values = attrgetter(*_ACTIVITY)
_POINT = struct.Struct("<8d")
"""Fields of a `TimePoint`; NaN for None."""


class ActivityFeed:
    """Everything is kept in order of time."""

    def __init__(self) -> None:
        self.sequence = 0
        """Of the last activity that was given a number."""
        self.shown = 0
        """Of the last one that is durable."""
        self._activity: deque[_Activity] = deque(maxlen=MOST_ACTIVITY)
        self._points: deque[bytes] = deque(maxlen=MOST_POINTS)
        self._stored_at = 0.0
        self._open: dict[int, dict[int, GanttBar]] = {}
        """Bars that have not ended, by job and rank."""
        self._bars: deque[GanttBar] = deque(maxlen=MOST_BARS)
        self._listeners: set[asyncio.Event] = set()

    def number(self, one: Mapping[str, Any]) -> Activity:
        """Give it the next number; it is shown by `show`, when it is durable."""
        self.sequence += 1
        return Activity(sequence=self.sequence, **one)

    @staticmethod
    def row(one: Activity) -> Mapping[str, Any]:
        """As a row of the database."""
        return {
            "sequence": one.sequence,
            "job": one.job,
            "body": one.model_dump_json(exclude={"sequence"}),
        }

    def show(self, activity: Iterable[Activity]) -> None:
        """Let them be seen."""
        for shown in activity:
            one = _Activity(**dict(shown))
            self._activity.append(one)
            self.shown = max(self.shown, one.sequence)
        self.changed()

    def changed(self) -> None:
        """Wake those who wait for changes."""
        for listener in self._listeners:
            listener.set()

    def prune(self, before: float) -> None:
        """Forget what is older than that wall-clock time."""
        while self._activity and self._activity[0].time < before:
            self._activity.popleft()
        while self._points and _time(self._points[0]) < before:
            self._points.popleft()
        while self._bars and self._bars[0].end is not None and self._bars[0].end < before:
            self._bars.popleft()

    def latest(self, after: int, limit: int) -> Sequence[Activity]:
        """The latest `limit` of those with a greater number, in order."""
        if limit < 1:
            return ()
        found: list[_Activity] = []
        for one in reversed(self._activity):
            if one.sequence <= after or len(found) >= limit:
                break
            found.append(one)
        return [_model(one) for one in reversed(found)]

    async def changes(self) -> AsyncIterator[int]:
        """As `Service.changes`."""
        listener = asyncio.Event()
        self._listeners.add(listener)
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(QUIET_S):
                        await listener.wait()
                listener.clear()
                yield self.shown
                await asyncio.sleep(CHANGES_S)
        finally:
            self._listeners.discard(listener)

    def point(self, point: TimePoint) -> Mapping[str, Any] | None:
        """Take one in; its row where it is to be stored."""
        self._points.append(_packed(point))
        if point.time < self._stored_at + STORED_EVERY_S:
            return None
        self._stored_at = point.time
        return {"time": point.time, "body": point.model_dump_json()}

    def restore(self, activity: Iterable[Activity], points: Iterable[TimePoint]) -> None:
        """What the database has."""
        self.show(activity)
        self.sequence = max(self.sequence, self.shown)
        self._points.extend(_packed(_bounded(point)) for point in points)
        if self._points:
            self._stored_at = _time(self._points[-1])

    def timeseries(self, since: float) -> Sequence[TimePoint]:
        """Those since then, at most some hundreds."""
        found = [packed for packed in self._points if _time(packed) >= since]
        step = -(-len(found) // SHOWN_POINTS) or 1
        return [_unpacked(packed) for packed in found[::-1][::step][::-1]]

    def bar(
        self, key: tuple[int, int], now: float, *, name: str, user: str, node: str, share_cores: float, paused: bool
    ) -> None:
        """A task is there with that share from now on."""
        job, rank = key
        open_ = self._open.get(job, {}).get(rank)
        if open_ is not None:
            if (open_.node, open_.paused) == (node, paused) and abs(open_.share_cores - share_cores) < SHARE_SHOWN:
                return
            self.end_bar(key, now)
        self._open.setdefault(job, {})[rank] = GanttBar(*key, name, user, node, now, None, share_cores, paused)

    def end_bar(self, key: tuple[int, int], now: float) -> None:
        """It is there no more."""
        job, rank = key
        bars = self._open.get(job, {})
        bar = bars.pop(rank, None)
        if not bars:
            self._open.pop(job, None)
        if bar is not None and now > bar.begin:
            self._bars.append(replace(bar, end=now))

    def end_bars(self, job: int, now: float) -> None:
        """Nothing of the job is there any more."""
        for rank in list(self._open.get(job, ())):
            self.end_bar((job, rank), now)

    def gantt(self, since: float) -> Sequence[GanttBar]:
        """Those that end later than that."""
        ended = [bar for bar in self._bars if bar.end is not None and bar.end >= since]
        return ended + [bar for bars in self._open.values() for bar in bars.values()]


def activity_of(sequence: int, body: str) -> Activity:
    """Of a row of the database."""
    return Activity(sequence=sequence, **json.loads(body))


def _bounded(point: TimePoint) -> TimePoint:
    """A stored point: earlier versions noted minima above a bound that was of other jobs."""
    least, bound = point.minimum_yield, point.bound
    if least is None or bound is None or least <= bound:
        return point
    return point.model_copy(update={"bound": least})


def _time(packed: bytes) -> float:
    return _POINT.unpack(packed)[0]


def _packed(point: TimePoint) -> bytes:
    return _POINT.pack(*(math.nan if value is None else value for _, value in point))


def _unpacked(packed: bytes) -> TimePoint:
    values = (None if math.isnan(value) else value for value in _POINT.unpack(packed))
    return TimePoint.model_validate(dict(zip(TimePoint.model_fields, values, strict=True)))


def _model(one: _Activity) -> Activity:
    """Of fields that were checked before."""
    return Activity.model_construct(**dict(zip(_ACTIVITY, _values(one), strict=True)))
