"""How jobs come in: checked, numbered, durable, and then in the state."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack

from dfrs.live.controller import checkpoint, tables, views
from dfrs.live.controller.database import Database
from dfrs.live.controller.quotas import QuotaKeeper
from dfrs.live.controller.records import JobRecord
from dfrs.live.controller.shielded_tasks import ShieldedTasks
from dfrs.live.controller.state import ARRIVED, State
from dfrs.live.protocol.resources import JobRequest
from dfrs.model.errors import InputError

MOST_PROGRAM_BYTES = 256 << 10
"""Command and environment of a job together."""
MOST_LINKS = 1_000_000
"""Jobs of an array times jobs that each of them comes after: each pair is kept in memory, also after a restart."""


class Submissions:
    """Takes jobs in, as far as quotas allow. `poke` says that there are new ones."""

    def __init__(
        self,
        state: State,
        database: Database,
        quotas: QuotaKeeper,
        shielded: ShieldedTasks,
        lock: asyncio.Lock,
        poke: Callable[[], None],
    ) -> None:
        self.next_job = 1
        """The number of the next job."""
        self._state = state
        self._database = database
        self._quotas = quotas
        self._shielded = shielded
        self._lock = lock
        """Held while ended jobs are pruned."""
        self._poke = poke

    async def submit(self, request: JobRequest, user: str, by: str, key: str = "") -> Sequence[int]:
        """As `Service.submit`. `key`: the name of a job that came to the backend's own queue."""
        views.check_fits(self._state, request)
        size = sum(len(text.encode()) for text in (*request.command, *request.environment.values()))
        if size > MOST_PROGRAM_BYTES:
            raise InputError(f"command and environment: {size} bytes: must be at most {MOST_PROGRAM_BYTES}")
        jobs, others = request.array or 1, len(request.dependencies)
        if jobs * others > MOST_LINKS:
            raise InputError(
                f"after: an array of {jobs} that comes after {others} jobs: one times the other must be at most "
                f"{MOST_LINKS}"
            )
        # Who asked may go away while it is written: it is taken in all the same.
        return await self._shielded.run(self._accept(request, user, by, key))

    async def _accept(self, request: JobRequest, user: str, by: str, key: str) -> Sequence[int]:
        count = self._quotas.admit(request, user)
        try:
            return await self._take_alone(request, user, by, key)
        finally:
            self._quotas.entered(request, user, count)

    async def _take_alone(self, request: JobRequest, user: str, by: str, key: str) -> Sequence[int]:
        """Where it waits for others, while none is pruned."""
        async with AsyncExitStack() as held:
            if request.dependencies:
                await held.enter_async_context(self._lock)
            return await self._take(request, user, by, key)

    async def _take(self, request: JobRequest, user: str, by: str, key: str) -> Sequence[int]:
        state = self._state
        ended = await self.ended_dependencies(request)
        count = request.array or 1
        names = range(self.next_job, self.next_job + count)
        self.next_job += count
        now = state.wall(state.now_s())
        index: Sequence[int | None] = (None,) if request.array is None else range(count)
        jobs = [
            JobRecord(name, names[0], request, user, now, array_index=k, held=request.held, key=key)
            for name, k in zip(names, index, strict=True)
        ]
        noted = [
            state.activity.number({"time": now, "job": name, "node": None, "action": "submit", "by": by})
            for name in names
        ]
        await self._database.write(
            [
                (tables.ADD_REQUEST, [{"id": names[0], "body": request.model_dump_json(exclude_defaults=True)}]),
                (tables.ADD_JOB, [job.new_row() for job in jobs]),
                (tables.ADD_ACTIVITY, [state.activity.row(each) for each in noted]),
                (tables.ADD_META, [{"key": ARRIVED + job.key, "value": str(job.id)} for job in jobs if job.key]),
            ]
        )
        for job in jobs:
            state.enter(job)
            state.link(job, ended)
            state.candidates[job.id] = None
        state.changed()
        state.activity.show(noted)
        self._poke()
        return list(names)

    async def ended_dependencies(self, request: JobRequest) -> Mapping[int, str]:
        """States of the jobs that it is to come after and that have ended. None may be pruned until they are noted.

        Also of those that are in memory: others may end and take their place there before the request is taken in.
        Raises InputError.
        """
        state = self._state
        over = [name for name in request.dependencies if name not in state.jobs]
        recent = {name: state.ended.state(name).value for name in over if name in state.ended}
        old = {name for name in over if name not in recent}
        if not old:
            return recent
        found = await self._database.read(lambda connection: checkpoint.states_of(connection, old))
        for name in sorted(old - found.keys()):
            raise InputError(f"after: {name}: there is no such job{state.pruned.words()}")
        return {**recent, **found}
