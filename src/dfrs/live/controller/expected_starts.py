"""When a job that waits would start, or a paused one go on, as far as users have said how long jobs run."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import numpy as np

from dfrs.engine.core import Core
from dfrs.engine.event_log import EventLog
from dfrs.engine.look_ahead import next_turns
from dfrs.live.controller import views
from dfrs.live.controller.records import JobRecord
from dfrs.live.controller.state import State
from dfrs.live.protocol.resources import ExpectedStart, JobState
from dfrs.model.decisions import PolicyError

MOST_JOBS = 2000
"""Where more are open nobody looks ahead: each decision would take tens of milliseconds."""
MOST_S = 0.5
"""So long a look ahead may compute ..."""
REST = 4.0
"""... and so many times as long nobody looks again: a fifth of all time at most."""
CONDITIONS = "if those that run take as long as their --time or --limit says, and nobody submits others"
_NOT_SEEN = f"it is further ahead than can be looked in {MOST_S:g} s of computing"
_TOO_MANY = f"with more than {MOST_JOBS:,} jobs nobody looks ahead"
_NOBODY_KNOWS = "some of the jobs before it have neither --time nor --limit: nobody knows how long they run"


@dataclass(frozen=True, slots=True)
class _Ahead:
    """What was found, by the state after that many events."""

    sequence: int
    starts: Mapping[int, float]
    why_not: str
    """Of the others."""


class ExpectedStarts:
    """Looks ahead when somebody asks, for all jobs at once. `core_state` gives the core's state between two steps."""

    def __init__(self, state: State, core_state: Callable[[], Awaitable[Mapping[str, np.ndarray]]]) -> None:
        self._state = state
        self._core_state = core_state
        self._looking = asyncio.Lock()
        self._found: _Ahead | None = None
        self._next_at = 0.0

    async def of(self, job: JobRecord) -> ExpectedStart:
        """Of a job that has not ended. Raises UnavailableError."""
        if (known := self._known(job)) is not None:
            return known
        if len(self._state.jobs) > MOST_JOBS:
            return ExpectedStart(at=None, why=_TOO_MANY)
        async with self._looking:
            found, left_s = self._found, self._next_at - time.monotonic()
            old = found is None or found.sequence != self._state.sequence
            if found is None or (old and (left_s <= 0.0 or job.id not in found.starts)):
                await asyncio.sleep(max(0.0, left_s))
                found = self._found = await self._look()
        start_s = found.starts.get(job.id)
        if start_s is not None:
            at = max(self._state.wall(start_s), self._state.settings.clock())
            return ExpectedStart(at=at, why=CONDITIONS)
        return ExpectedStart(at=None, why=found.why_not)

    def _known(self, job: JobRecord) -> ExpectedStart | None:
        """Where nothing has to be computed."""
        now = views.job_state(self._state, job)
        if now is JobState.PENDING and job.request.start_at is not None and not job.waits_for:
            return ExpectedStart(at=job.request.start_at, why="as it was asked for, where there is room then")
        if now in {JobState.WAITING, JobState.PAUSED} and self._state.picture.row(job.id) is not None:
            return None
        if now in {JobState.STARTING, JobState.RUNNING, JobState.ENDING}:
            return ExpectedStart(at=job.started_at, why="it has nodes")
        return ExpectedStart(at=None, why=views.why(self._state, job, now, views.Present(self._state)) or now.value)

    async def _look(self) -> _Ahead:
        arrays, sequence, lengths = await self._core_state(), self._state.sequence, self._lengths()
        began = time.monotonic()
        found = await asyncio.to_thread(self._ahead, arrays, lengths, sequence)
        ended = time.monotonic()
        self._next_at = ended + REST * (ended - began)
        return found

    def _ahead(self, arrays: Mapping[str, np.ndarray], lengths: Mapping[int, float], sequence: int) -> _Ahead:
        core = Core(self._state.deciding, np.zeros((0, 2)), self._state.settings.command_limit)
        core.restore(arrays)
        core.event_log = EventLog()
        end = time.monotonic() + MOST_S
        try:
            starts, complete = next_turns(core, lengths, lambda: time.monotonic() > end)
        except PolicyError as error:
            return _Ahead(sequence, {}, f"the policy failed when it was asked ahead: {error}")
        unknown = complete or not np.isin(core.snapshot().jobs["id"], list(lengths)).all()
        return _Ahead(sequence, starts, _NOBODY_KNOWS if unknown else _NOT_SEEN)

    def _lengths(self) -> Mapping[int, float]:
        """Virtual time of each job at its end, as its user said: the estimate, or the limit where that is all there is,
        or where the job has run for longer than its estimate."""
        found: dict[int, float] = {}
        for job in self._state.jobs.values():
            row, request = self._state.picture.row(job.id), job.request
            said = [each for each in (request.estimate_s, request.time_limit_s) if each is not None]
            if row is None or not said:
                continue
            later = [each for each in said if each > row["virtual_s"]]
            if later or request.time_limit_s is not None:
                found[job.id] = min(later, default=said[-1])
        return found
