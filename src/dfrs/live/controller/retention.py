"""Prunes what is older than an operator keeps: events, ended jobs, activity and points of history.

It goes in small transactions with a rest after each, so that it takes a part of the database's time only and nobody
waits behind it for longer than for a few rows. The youngest event, job and activity stay whatever their age: their
numbers say where counting goes on, so none is given out a second time.
"""

import asyncio
import json
import math
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import sqlalchemy as sa
import structlog
from sqlalchemy.engine import Connection

from dfrs.live.controller import tables
from dfrs.live.controller.archive import Archive
from dfrs.live.controller.checkpointer import Checkpointer
from dfrs.live.controller.database import Change, Database
from dfrs.live.controller.pruned import KEY
from dfrs.live.controller.state import State
from dfrs.model.errors import DfrsError, StoppedError

ROWS = 500
"""Deleted in one transaction at most."""
REST, LEAST_REST_S = 4.0, 0.02
"""After a transaction it rests for so many times as long as that took: it uses a fifth of the time at most."""
LOOK_S, LOOKS = 60.0, 10
"""So often it looks for something to prune, or so many times while that is kept."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Batch:
    """What is to go with one transaction."""

    changes: list[Change] = field(default_factory=list[Change])
    lines: list[str] = field(default_factory=list[str])
    """For the archive."""
    pruned: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields of `Pruned` that change."""
    after: Callable[[], None] = lambda: None
    """To be done in memory then."""
    more: bool = False
    """Whether there may be more that is old enough."""


class Retention:
    """Prunes a controller's database while it runs."""

    def __init__(self, state: State, database: Database, checkpointer: Checkpointer) -> None:
        self.trouble: str | None = None
        """Why nothing is pruned now; None if it is."""
        self.lock = asyncio.Lock()
        """Held while jobs are pruned: whoever makes a job that waits for an ended one must not have it pruned then."""
        self.longest_s = 0.0
        """Of its transactions."""
        self._state = state
        self._database = database
        self._checkpointer = checkpointer
        self._keep_s = math.inf if state.settings.keep_s is None else state.settings.keep_s
        self._archive = None if state.settings.archive is None else Archive(state.settings.archive)
        self._readers = 0

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[None]:
        """Prune no events and jobs meanwhile: somebody reads all of them, piece by piece."""
        self._readers += 1
        try:
            # A batch that is under way goes to its end, in the database and in `state.pruned`, before anything is read.
            async with self.lock:
                pass
            yield
        finally:
            self._readers -= 1

    async def run(self) -> None:
        """Go on until cancelled, or until the database cannot be written any more."""
        while True:
            try:
                await self.prune()
                self.trouble = None
            except StoppedError:
                return
            except DfrsError as error:
                if self.trouble is None:
                    log.error("what is old is not pruned", problem=str(error))
                self.trouble = str(error)
            except Exception:
                log.exception("pruning failed")
                self.trouble = "pruning failed; the log says more"
            await asyncio.sleep(min(LOOK_S, self._keep_s / LOOKS))

    async def prune(self) -> None:
        """Prune all that is old enough by now. Raises DfrsError."""
        kinds = {"events": self._events, "jobs": self._jobs, "activity": self._activity, "points": self._points}
        more = True
        while more:
            more = False
            for kind, batch in kinds.items():
                if not (self._readers and kind in {"events", "jobs"}):
                    more |= await self._prune_some(kind, batch)

    async def _prune_some(self, kind: str, batch: Callable[[], Awaitable[_Batch]]) -> bool:
        """Prune one batch of a kind, and rest; whether there may be more."""
        begun = time.perf_counter()
        async with self.lock:
            found = await batch()
            if not found.changes:
                return False
            await self._delete(kind, found)
        spent_s = time.perf_counter() - begun
        self.longest_s = max(self.longest_s, spent_s)
        await asyncio.sleep(max(LEAST_REST_S, REST * spent_s))
        return found.more

    async def _delete(self, kind: str, batch: _Batch) -> None:
        """Archive and delete a batch."""
        state = self._state
        if self._archive is not None:
            now = state.settings.clock()
            await asyncio.to_thread(self._archive.add, kind, batch.lines, state.epoch, now)
        pruned = replace(state.pruned, **batch.pruned)
        if pruned != state.pruned:
            batch.changes.append((tables.SET_META, [{"b_key": KEY, "b_value": pruned.text()}]))
        await self._database.write(batch.changes)
        state.pruned = pruned
        batch.after()

    @property
    def _before(self) -> float:
        """The wall clock before which all is old."""
        return self._state.settings.clock() - self._keep_s

    async def _events(self) -> _Batch:
        floor = self._checkpointer.floor
        if floor is None:
            self._checkpointer.wanted = True
            return _Batch()
        state, before_s = self._state, self._state.time_s(self._before)
        rows = await self._database.read(partial(_oldest_events, below=floor))
        old = [row for row in rows if row.time_s < before_s]
        if not old:
            return _Batch()
        last = old[-1]
        # The wall clock may have been set since, either way: the sooner time keeps all jobs that may have ended later.
        at = min(state.wall(last.time_s), state.epoch + last.time_s)
        return _Batch(
            changes=[(tables.DROP_EVENTS, [{"b_until": last.sequence}])],
            lines=[_event_line(row) for row in old] if self._archive else [],
            pruned={"events": last.sequence, "events_at": at},
            more=len(old) == ROWS,
        )

    async def _jobs(self) -> _Batch:
        state = self._state
        if state.pruned.events_at is None:
            return _Batch()
        # Not before its events, so that a log which is exported has the jobs of all events in it.
        until = min(self._before, state.pruned.events_at)
        # Where a job waits for one that has ended, the next start asks how that ended.
        wanted = {name for job in state.jobs.values() for name in job.request.dependencies}
        jobs, requests = await self._database.read(partial(_oldest_jobs, until=until, wanted=wanted))
        if not jobs:
            return _Batch()
        names = [row.id for row in jobs]

        def after() -> None:
            for name in names:
                state.ended.drop(name)
            state.changed()

        return _Batch(
            changes=[
                (tables.DROP_JOB, [{"b_id": name} for name in names]),
                (tables.DROP_REQUEST, [{"b_id": name} for name in requests]),
            ],
            lines=[json.dumps({"job": json.loads(row.final)}) for row in jobs] if self._archive else [],
            pruned=state.pruned.with_jobs(Counter(row.state for row in jobs), max(row.ended_at for row in jobs)),
            after=after,
            more=len(jobs) == ROWS,
        )

    async def _activity(self) -> _Batch:
        state, before = self._state, self._before
        rows = await self._database.read(partial(_oldest_activity, below=state.activity.shown))
        documents = [(row.sequence, json.loads(row.body)) for row in rows]
        young = next((k for k, (_, body) in enumerate(documents) if body["time"] >= before), len(documents))
        if not young:
            return _Batch()
        return _Batch(
            changes=[(tables.DROP_ACTIVITY, [{"b_until": documents[young - 1][0]}])],
            lines=[json.dumps({"activity": {"sequence": name} | body}) for name, body in documents[:young]],
            after=lambda: state.activity.prune(before),
            more=young == ROWS,
        )

    async def _points(self) -> _Batch:
        before = self._before
        rows = await self._database.read(partial(_oldest_points, before=before))
        if not rows:
            return _Batch()
        return _Batch(
            changes=[(tables.DROP_POINTS, [{"b_until": rows[-1].time}])],
            lines=[json.dumps({"point": json.loads(row.body)}) for row in rows],
            after=lambda: self._state.activity.prune(before),
            more=len(rows) == ROWS,
        )


def _event_line(row: Any) -> str:  # noqa: ANN401
    document = {"sequence": row.sequence, "time_s": row.time_s, "event": json.loads(row.event), "digest": row.digest}
    return json.dumps(document)


def _oldest_events(connection: Connection, *, below: int) -> Sequence[Any]:
    events = tables.events
    chosen = sa.select(events).where(events.c.sequence < below).order_by(events.c.sequence)
    return connection.execute(chosen.limit(ROWS)).all()


def _oldest_jobs(connection: Connection, *, until: float, wanted: set[int]) -> tuple[Sequence[Any], list[int]]:
    """Jobs that ended until then, and the requests that no other job has."""
    jobs = tables.jobs
    last = connection.execute(sa.select(sa.func.max(jobs.c.id))).scalar()
    chosen = (
        sa.select(jobs.c.id, jobs.c.request, jobs.c.state, jobs.c.ended_at, jobs.c.final)
        .where(jobs.c.ended_at <= until, jobs.c.final.is_not(None), jobs.c.id < last)
        .order_by(jobs.c.ended_at)
    )
    rows = connection.execute(chosen.limit(ROWS + len(wanted))).all()
    found = [row for row in rows if row.id not in wanted][:ROWS]
    names = {row.id for row in found}
    asked = sorted({row.request for row in found})
    return found, [name for name in asked if not _others(connection, name, names)]


def _others(connection: Connection, request: int, names: set[int]) -> bool:
    """Whether a job that is not named has that request: those of an array have one number after the other."""
    jobs = tables.jobs
    after = request
    while True:
        chosen = sa.select(jobs.c.id, jobs.c.request).where(jobs.c.id >= after).order_by(jobs.c.id)
        rows = connection.execute(chosen.limit(ROWS)).all()
        for row in rows:
            if row.request > request:
                return False
            if row.request == request and row.id not in names:
                return True
        if len(rows) < ROWS:
            return False
        after = rows[-1].id + 1


def _oldest_activity(connection: Connection, *, below: int) -> Sequence[Any]:
    activity = tables.activity
    chosen = sa.select(activity.c.sequence, activity.c.body).where(activity.c.sequence < below)
    return connection.execute(chosen.order_by(activity.c.sequence).limit(ROWS)).all()


def _oldest_points(connection: Connection, *, before: float) -> Sequence[Any]:
    points = tables.points
    chosen = sa.select(points).where(points.c.time < before).order_by(points.c.time)
    return connection.execute(chosen.limit(ROWS)).all()
