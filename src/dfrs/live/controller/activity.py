"""What happened, where tasks were, and how happy the cluster was: bounded in memory, thinned into the database."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dfrs.live.protocol.resources import Activity, GanttBar, TimePoint

MOST_ACTIVITY = 20_000
MOST_OF_A_JOB = 200
MOST_POINTS = 6 * 3600
SHOWN_POINTS = 600
MOST_BARS = 20_000
STORED_EVERY_S = 30.0
SHARE_SHOWN = 0.02
"""Cores. A bar goes on while its share differs by less."""
CHANGES_S = 0.25
QUIET_S = 15.0


@dataclass(slots=True)
class _Open:
    """A bar that has not ended."""

    name: str
    user: str
    node: str
    begin: float
    share_cores: float
    paused: bool


class ActivityFeed:
    """Everything is kept in order of time."""

    def __init__(self) -> None:
        self.sequence = 0
        """Of the last activity that was given a number."""
        self.shown = 0
        """Of the last one that is durable."""
        self._activity: deque[Activity] = deque(maxlen=MOST_ACTIVITY)
        self._of_job: dict[int, list[Activity]] = {}
        self._points: deque[TimePoint] = deque(maxlen=MOST_POINTS)
        self._stored_at = 0.0
        self._open: dict[tuple[int, int], _Open] = {}
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
        for one in activity:
            self._activity.append(one)
            self.shown = max(self.shown, one.sequence)
            if one.job is not None:
                of_job = self._of_job.setdefault(one.job, [])
                of_job.append(one)
                if len(of_job) > MOST_OF_A_JOB:
                    del of_job[1 : len(of_job) // 2]
        self.changed()

    def changed(self) -> None:
        """Wake those who wait for changes."""
        for listener in self._listeners:
            listener.set()

    def prune(self, before: float) -> None:
        """Forget what is older than that wall-clock time."""
        while self._activity and self._activity[0].time < before:
            self._activity.popleft()
        while self._points and self._points[0].time < before:
            self._points.popleft()
        while self._bars and self._bars[0].end is not None and self._bars[0].end < before:
            self._bars.popleft()

    def forget(self, job: int) -> None:
        """A job that ended long ago."""
        self._of_job.pop(job, None)

    def activity(self, after: int, job: int | None, limit: int) -> Sequence[Activity]:
        """The latest `limit` of those with a greater number, in order."""
        if limit < 1:
            return ()
        found: list[Activity] = []
        for one in reversed(self._activity if job is None else self._of_job.get(job, [])):
            if one.sequence <= after or len(found) >= limit:
                break
            found.append(one)
        return found[::-1]

    async def changes(self) -> AsyncIterator[int]:
        """As `Service.changes`."""
        listener = asyncio.Event()
        self._listeners.add(listener)
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(listener.wait(), QUIET_S)
                listener.clear()
                yield self.shown
                await asyncio.sleep(CHANGES_S)
        finally:
            self._listeners.discard(listener)

    def point(self, point: TimePoint) -> Mapping[str, Any] | None:
        """Take one in; its row where it is to be stored."""
        self._points.append(point)
        if point.time < self._stored_at + STORED_EVERY_S:
            return None
        self._stored_at = point.time
        return {"time": point.time, "body": point.model_dump_json()}

    def restore(self, activity: Iterable[Activity], points: Iterable[TimePoint]) -> None:
        """What the database has."""
        self.show(activity)
        self.sequence = max(self.sequence, self.shown)
        self._points.extend(_bounded(point) for point in points)
        if self._points:
            self._stored_at = self._points[-1].time

    def timeseries(self, since: float) -> Sequence[TimePoint]:
        """Those since then, at most some hundreds."""
        found = [point for point in self._points if point.time >= since]
        step = -(-len(found) // SHOWN_POINTS) or 1
        return found[::-1][::step][::-1]

    def bar(
        self, key: tuple[int, int], now: float, *, name: str, user: str, node: str, share_cores: float, paused: bool
    ) -> None:
        """A task is there with that share from now on."""
        open_ = self._open.get(key)
        if open_ is not None:
            if (open_.node, open_.paused) == (node, paused) and abs(open_.share_cores - share_cores) < SHARE_SHOWN:
                return
            self.end_bar(key, now)
        self._open[key] = _Open(name, user, node, now, share_cores, paused)

    def end_bar(self, key: tuple[int, int], now: float) -> None:
        """It is there no more."""
        open_ = self._open.pop(key, None)
        if open_ is not None and now > open_.begin:
            self._bars.append(_bar(key, open_, now))

    def gantt(self, since: float) -> Sequence[GanttBar]:
        """Those that end later than that."""
        ended = [bar for bar in self._bars if bar.end is not None and bar.end >= since]
        return ended + [_bar(key, open_, None) for key, open_ in self._open.items()]


def _bounded(point: TimePoint) -> TimePoint:
    """A stored point: earlier versions noted minima above a bound that was of other jobs."""
    least, bound = point.minimum_yield, point.bound
    if least is None or bound is None or least <= bound:
        return point
    return point.model_copy(update={"bound": least})


def _bar(key: tuple[int, int], open_: _Open, end: float | None) -> GanttBar:
    return GanttBar(
        job=key[0],
        rank=key[1],
        name=open_.name,
        user=open_.user,
        node=open_.node,
        begin=open_.begin,
        end=end,
        share_cores=open_.share_cores,
        paused=open_.paused,
    )
