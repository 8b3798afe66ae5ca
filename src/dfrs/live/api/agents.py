"""The connection of an agent: a WebSocket on which each side says what it wants and what is (see `wire`).

An agent that says what makes no sense is warned in the log, then cut off; one that does not take its messages is cut
off too. Both may come back: after a new connection everything is said again.
"""

import asyncio
import time
from contextlib import suppress

import structlog
from fastapi import HTTPException
from fastapi.websockets import WebSocket, WebSocketDisconnect
from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send

from dfrs.live.api.answers import problem
from dfrs.live.api.prometheus import Meters
from dfrs.live.api.security import AGENTS, Allow, Caller
from dfrs.live.errors import ConflictError, NotAdmittedError, UnavailableError
from dfrs.live.protocol.addresses import is_loopback
from dfrs.live.protocol.agent_door import AgentDoor, Attachment
from dfrs.live.protocol.wire import (
    MESSAGE_BYTES,
    PROTOCOL,
    FromAgent,
    FromController,
    Hello,
    MoreTasks,
    Refuse,
    from_agent,
)
from dfrs.model.errors import InputError

PATH = "/agent/v1"
HELLO_S = 10.0
"""So long may an agent take to introduce itself."""
RECHECK_S = 30.0
"""So long may a revoked token keep its connection."""
LONG_BYTES = 1 << 16
"""After a message of more others have their turn."""
FLUSH_S = 1.0
"""So long may the last messages take before a connection is closed."""
MOST_MALFORMED = 10
"""So many messages of one connection may make no sense."""
QUEUE_MESSAGES, QUEUE_BYTES = 4096, 4 * MESSAGE_BYTES
"""What may wait for an agent."""
POLICY, BROKEN, LATER = 1008, 1011, 1013
"""Why a connection is closed (RFC 6455): the agent's fault, ours, or for now."""

_log = structlog.get_logger("dfrs.agents")
_allowed = Allow(AGENTS)


class _Complaints:
    """At most one line a second in the log, with how many were left out."""

    def __init__(self) -> None:
        self._next_s = 0.0
        self._left_out = 0

    def tell(self, event: str, **fields: object) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s:
            self._left_out += 1
            return
        _log.warning(event, left_out=self._left_out, **fields)
        self._next_s, self._left_out = now_s + 1.0, 0


_complaints = _Complaints()


class _Link:
    """Messages on their way to one agent, and the reason why it is cut off."""

    def __init__(self, socket: WebSocket, meters: Meters) -> None:
        self._socket = socket
        self._meters = meters
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._bytes = 0
        self._cut = asyncio.Event()
        self.last_word = (LATER, "")

    def send(self, message: FromController) -> None:
        """Queue it; an agent with too much in its queue is cut off."""
        if self._cut.is_set():
            return
        text = message.model_dump_json()
        self._bytes += len(text)
        if len(text) > MESSAGE_BYTES:
            self.cut(BROKEN, f"a message of {len(text)} bytes is longer than agents take")
        elif self._queue.qsize() >= QUEUE_MESSAGES or self._bytes > QUEUE_BYTES:
            self._meters.slow.inc()
            self.cut(LATER, "too slow: its messages are waiting")
        else:
            self._queue.put_nowait(text)

    def close(self, reason: str) -> None:
        """End the connection for now, after what is queued."""
        self.cut(LATER, reason)

    def cut(self, code: int, reason: str) -> None:
        """End the connection, saying why, after what is queued. The first reason counts."""
        if not self._cut.is_set():
            self.last_word = (code, reason)
            self._cut.set()
            self._queue.put_nowait("")

    async def pump(self) -> None:
        """Send until it is cut; then what is queued, if the agent takes it, and the reason."""
        sending = asyncio.create_task(self._send_all())
        cut = asyncio.create_task(self._cut.wait())
        try:
            await asyncio.wait({sending, cut}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({sending}, timeout=FLUSH_S)
        finally:
            sending.cancel()
            cut.cancel()
            await asyncio.gather(sending, cut, return_exceptions=True)
        if self._cut.is_set():
            code, reason = self.last_word
            with suppress(TimeoutError, WebSocketDisconnect, RuntimeError):
                async with asyncio.timeout(FLUSH_S):
                    await self._socket.close(code, reason[:100])

    async def _send_all(self) -> None:
        while text := await self._queue.get():
            await self._socket.send_text(text)
            self._bytes -= len(text)


class _Session:
    """One agent's connection, from its first message to its last."""

    def __init__(self, socket: WebSocket, caller: Caller, door: AgentDoor, link: _Link, meters: Meters) -> None:
        self._socket = socket
        self._caller = caller
        self._door = door
        self._link = link
        self._meters = meters
        self._malformed = 0
        self._attachment: Attachment | None = None
        self.node = "?"

    async def listen(self) -> None:
        """Take messages until it disconnects or is cut off."""
        try:
            async with asyncio.timeout(HELLO_S):
                text = await self._next()
            # Not by a name of this function: it would keep the hello for as long as the agent is connected.
            await self._introduce(from_agent(text))
            recheck_s = time.monotonic() + RECHECK_S
            while self._attachment is not None:
                text = await self._next()
                self._take(self._attachment, text)
                if time.monotonic() > recheck_s:
                    recheck_s = time.monotonic() + RECHECK_S
                    if not self._caller.still_valid():
                        self._link.cut(POLICY, "token: expired or revoked")
                        return
        except TimeoutError:
            # It may be slow, or its connection is: it is welcome once it is not.
            self._refuse(LATER, f"no hello within {HELLO_S:g} s", retry=True)
        except (InputError, NotAdmittedError) as error:
            self._refuse(POLICY, str(error))
        except WebSocketDisconnect:
            raise
        except Exception:
            _log.exception("cannot take a message of an agent", node=self.node)
            self._link.cut(BROKEN, "the controller failed; its log says why")

    def leave(self) -> None:
        """Tell the controller that the connection is gone."""
        if self._attachment is not None:
            self._attachment.detach()

    async def _next(self) -> str | bytes:
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message["code"])
        text: str | bytes | None = message.get("text")
        found: str | bytes = message["bytes"] if text is None else text
        if len(found) > LONG_BYTES:
            # One that is there already would otherwise be taken in the same turn of the loop.
            await asyncio.sleep(0)
        return found

    async def _introduce(self, first: FromAgent) -> None:
        if not isinstance(first, Hello):
            raise InputError(f"kind {first.kind}: the first message must be hello")
        self.node = first.node
        if first.protocol != PROTOCOL:
            raise InputError(f"protocol {first.protocol}: this controller speaks {PROTOCOL}; install the same version")
        service = self._caller.service
        try:
            admitted = await service.admit(first, self._caller.secret, here=is_here(self._socket))
            self._attachment = self._door.attach(await self._whole(admitted), self._link)
        except (ConflictError, UnavailableError) as error:
            self._link.send(Refuse(reason=str(error), retry=True))
            self._link.cut(LATER, str(error))

    async def _whole(self, hello: Hello) -> Hello:
        """With all of its tasks: the rest follows."""
        if not hello.parts:
            return hello
        tasks = list(hello.tasks)
        for _ in range(hello.parts):
            async with asyncio.timeout(HELLO_S):
                more = from_agent(await self._next())
            if not isinstance(more, MoreTasks):
                raise InputError(f"kind {more.kind}: {hello.parts} parts of the hello must come first")
            tasks += more.tasks
        return hello.model_copy(update={"tasks": tuple(tasks), "parts": 0})

    def _take(self, attachment: Attachment, text: str | bytes) -> None:
        try:
            message = from_agent(text)
            if isinstance(message, Hello | MoreTasks):
                raise InputError("hello: said already")
        except InputError as error:
            self._malformed += 1
            self._meters.malformed.inc()
            if self._malformed >= MOST_MALFORMED:
                raise
            _complaints.tell("agent said what makes no sense", node=self.node, what=str(error)[:200])
            return
        attachment.receive(message)

    def _refuse(self, code: int, reason: str, *, retry: bool = False) -> None:
        _complaints.tell("agent cut off", node=self.node, why=reason[:200])
        if self._attachment is None:
            self._meters.malformed.inc()
            self._link.send(Refuse(reason=reason[:1000], retry=retry))
        self._link.cut(code, reason)


def is_here(connection: HTTPConnection) -> bool:
    """Whether the other end is on this machine: not at another address than this end."""
    server = connection.scope.get("server")
    if connection.client is None or server is None:
        return True
    far, near = connection.client.host, str(server[0])
    return far == near or is_loopback(far) or near in connection.app.state.settings.near


async def serve_agent(scope: Scope, receive: Receive, send: Send) -> None:
    """An agent's connection: role agent only."""
    socket = WebSocket(scope, receive, send)
    try:
        caller = await _allowed(socket)
    except HTTPException as error:
        await socket.send_denial_response(problem(error.status_code, error.detail, error.headers))
        return
    door: AgentDoor | None = socket.app.state.agent_door
    if door is None:
        why = "agents: this controller has none: another engine runs its jobs"
        await socket.send_denial_response(problem(404, why, None))
        return
    await socket.accept()
    meters: Meters = socket.app.state.meters
    link = _Link(socket, meters)
    session = _Session(socket, caller, door, link, meters)
    with meters.agents.track_inprogress():
        listening = asyncio.create_task(session.listen())
        pumping = asyncio.create_task(link.pump())
        try:
            await asyncio.wait({listening, pumping}, return_when=asyncio.FIRST_COMPLETED)
            if listening.done() and listening.exception() is None:
                await pumping
        finally:
            listening.cancel()
            pumping.cancel()
            await asyncio.gather(listening, pumping, return_exceptions=True)
            session.leave()
