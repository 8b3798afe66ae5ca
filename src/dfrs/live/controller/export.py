"""The durable log as lines of JSON: what `dfrs export` reads."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dfrs.live.controller import checkpoint, tables, views
from dfrs.live.controller.database import Database
from dfrs.live.controller.state import State
from dfrs.version import __version__

ROWS = 2000
"""Read at once."""


async def lines(
    state: State, database: Database, reading: Callable[[], AbstractAsyncContextManager[None]]
) -> AsyncIterator[str]:
    """As `Service.log`: a header, every event until now, every job. While it is `reading`, none is pruned."""
    async with reading():
        async for line in _lines(state, database):
            yield line


async def _lines(state: State, database: Database) -> AsyncIterator[str]:
    settings = state.settings
    yield json.dumps(
        {
            "format": "dfrs-log/1",
            "policy": settings.policy,
            "discovery": settings.discovery,
            "epoch": state.epoch,
            "reference_cores": state.reference_cores,
            "reference_bytes": state.reference_bytes,
            "command_limit": settings.command_limit,
            "version": __version__,
            "first_event": state.pruned.events + 1,
            "pruned_until": state.pruned.events_at,
            "pruned_jobs": sum(state.pruned.jobs.values()),
        }
    )
    after, last = 0, state.sequence
    while rows := await database.read(partial(_events, after=after, last=last)):
        after = rows[-1].sequence
        for row in rows:
            document = json.loads(row.event)
            if document["event"] == checkpoint.RESTART:
                who = {name: document[name] for name in ("policy", "version")}
                yield json.dumps({"time_s": row.time_s, "restart": who})
            else:
                yield json.dumps({"time_s": row.time_s, "event": document, "digest": row.digest})
    # Those that are open now may end while the others are read: each is told once.
    open_ = {name: views.job(state, job).model_dump(mode="json") for name, job in sorted(state.jobs.items())}
    for document in open_.values():
        yield json.dumps({"job": document})
    after = 0
    while found := await database.read(partial(_ended, after=after)):
        after = found[-1].id
        for row in found:
            if row.id not in open_:
                yield json.dumps({"job": json.loads(row.final)})


def _events(connection: Connection, *, after: int, last: int) -> Sequence[Any]:
    events = tables.events
    chosen = sa.select(events).where(events.c.sequence > after, events.c.sequence <= last)
    return connection.execute(chosen.order_by(events.c.sequence).limit(ROWS)).all()


def _ended(connection: Connection, *, after: int) -> Sequence[Any]:
    jobs = tables.jobs
    chosen = sa.select(jobs.c.id, jobs.c.final).where(jobs.c.id > after, jobs.c.final.is_not(None))
    return connection.execute(chosen.order_by(jobs.c.id).limit(ROWS)).all()
