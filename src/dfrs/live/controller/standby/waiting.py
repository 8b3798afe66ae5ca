"""A standby: looks whether anybody leads, follows whoever does, and takes over when nobody does any more."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass

import structlog
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from dfrs.live.controller.database import AnotherLeadsError, Database
from dfrs.live.controller.settings import ControllerSettings
from dfrs.live.controller.standby import lease
from dfrs.live.controller.standby.following import FOLLOW_S, Follower
from dfrs.live.controller.standby.lease import Lease, LeaseWatch, Seen
from dfrs.model.errors import InputError

LOOK_S = 0.25
RETRY_S = 1.0
"""So long after a failure it is tried again."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver:
    """When the database was taken over."""

    now_s: float | None
    """The core's time then, by the leader's own word and the time since that was heard; None where none was heard."""
    at: float
    """The same instant on the controller's steady clock."""


class Standby:
    """Waits to take over `database`, which must be shared. Raises InputError if it is not."""

    def __init__(self, database: Database, follower: Follower, settings: ControllerSettings) -> None:
        if not database.shared:
            raise InputError("--standby: only PostgreSQL can be shared by controllers: give its URL with --database")
        self.leader: str | None = None
        """Where the leader is, if that is known."""
        self.follower = follower
        self._database = database
        self._settings = settings
        self._watch = LeaseWatch()
        self._engine: Engine | None = None
        self._connection: Connection | None = None

    async def take_over(self, url: str) -> TakenOver:
        """Return when nobody else leads and the database is this controller's, which is found at `url`.

        Raises InputError where the database cannot be reached at first, or cannot be used.
        """
        with self._database.translated():
            self._engine = self._database.lease_engine()
            await asyncio.to_thread(self._look)
        self._database.connect()
        following = asyncio.create_task(self._follow())
        try:
            return await self._wait(url)
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
            await asyncio.to_thread(self._disconnect)

    async def _wait(self, url: str) -> TakenOver:
        trouble = ""
        while True:
            try:
                seen = await asyncio.to_thread(self._look)
                now = self._settings.steady()
                trouble = ""
                if self._watch.is_vacant(seen, now):
                    return await self._take(seen, url)
                self.leader = _url_of(seen)
            except (SQLAlchemyError, AnotherLeadsError) as error:
                self._watch.forget()
                problem = " ".join(str(error).split())[:200]
                if problem != trouble and isinstance(error, SQLAlchemyError):
                    log.warning("cannot see whether anybody leads", problem=problem)
                trouble = problem
            await asyncio.sleep(RETRY_S if trouble else LOOK_S)

    async def _take(self, seen: Seen, url: str) -> TakenOver:
        before, since_s = Lease.of(seen.leader), self._watch.since_s
        began = self._settings.steady()
        now_s = None
        if before is not None and before.now_s is not None and since_s is not None:
            now_s = before.now_s + began - since_s
        await asyncio.to_thread(self._database.take_over, url, vacant=seen, now_s=now_s)
        self.leader = None
        log.info("leads", silent_s=None if since_s is None else round(began - since_s, 2))
        return TakenOver(now_s=now_s, at=began)

    async def _follow(self) -> None:
        while True:
            round_ = asyncio.ensure_future(asyncio.to_thread(self.follower.follow, self._database))
            try:
                await asyncio.shield(round_)
            except asyncio.CancelledError:
                # What it has by then saves more than it costs to wait for it.
                await round_
                raise
            await asyncio.sleep(FOLLOW_S)

    def _look(self) -> Seen:
        """Raises SQLAlchemyError."""
        assert self._engine is not None
        try:
            if self._connection is None:
                self._connection = self._engine.connect()
                lease.stand_by(self._connection)
            return lease.look(self._connection)
        except SQLAlchemyError:
            self._disconnect()
            raise

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(SQLAlchemyError):
                self._connection.invalidate()
                self._connection.close()
            self._connection = None


def _url_of(seen: Seen) -> str | None:
    found = Lease.of(seen.leader)
    return found.url or None if found is not None else None
