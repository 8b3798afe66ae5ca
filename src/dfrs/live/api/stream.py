"""Answers without a known end: server-sent events, and the log line by line."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dfrs.live.api.prometheus import Meters
from dfrs.live.api.security import Caller
from dfrs.live.protocol.ports import Service

_T = TypeVar("_T")

_CHUNK = 64 * 1024
"""Characters of the log sent at once."""


class EventStream(Response):
    """Sends chunks until there are no more, the client goes, or `stopping` is set.

    An answer cut short by `stopping` ends like a complete one, so it is only for streams that have no end.
    """

    def __init__(
        self, chunks: AsyncGenerator[bytes], *, media_type: str, stopping: asyncio.Event | None = None
    ) -> None:
        super().__init__(media_type=media_type, headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._chunks = chunks
        self._stopping = stopping or asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them. An error of the source ends the connection without an orderly end."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        pump = asyncio.create_task(self._pump(send))
        others = {asyncio.create_task(_gone(receive)), asyncio.create_task(self._stopping.wait())}
        try:
            await asyncio.wait({pump, *others}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended = pump.done()
            for task in (pump, *others):
                task.cancel()
            await asyncio.gather(pump, *others, return_exceptions=True)
            await self._chunks.aclose()
        if ended:
            pump.result()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pump(self, send: Send) -> None:
        async for chunk in self._chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def change_events(caller: Caller, meters: Meters) -> AsyncGenerator[bytes]:
    """Server-sent events: the number of the latest activity whenever something changed, while the token is good."""
    with meters.watchers.track_inprogress():
        yield b"retry: 2000\n\n"
        async with _closing(caller.service.changes()) as changes:
            async for sequence in changes:
                if not caller.still_valid():
                    return
                yield b'id: %d\nevent: change\ndata: {"sequence": %d}\n\n' % (sequence, sequence)


async def log_lines(service: Service) -> AsyncGenerator[bytes]:
    """The durable log, several lines at a time."""
    lines: list[str] = []
    size = 0
    async with _closing(service.log()) as log:
        async for line in log:
            lines.append(line)
            size += len(line)
            if size >= _CHUNK:
                yield ("\n".join(lines) + "\n").encode()
                lines, size = [], 0
    if lines:
        yield ("\n".join(lines) + "\n").encode()


@asynccontextmanager
async def _closing(source: AsyncIterator[_T]) -> AsyncGenerator[AsyncIterator[_T]]:
    """`source`, closed at once where it can be, not when it is collected."""
    try:
        yield source
    finally:
        if isinstance(source, AsyncGenerator):
            await source.aclose()
