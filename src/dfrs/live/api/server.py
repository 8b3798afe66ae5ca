"""Serves a controller: a socket, TLS where it is due, and an end that waits for nobody long."""

import asyncio
import logging
import resource
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Protocol

import structlog
import uvicorn
from fastapi import FastAPI

from dfrs.live.api.connections import KEY, Connection, ConnectionLimits, Connections
from dfrs.live.api.http_protocol import Frames, Http, Tls
from dfrs.live.api.timing import watch_loop
from dfrs.live.protocol.addresses import is_loopback
from dfrs.live.protocol.ports import Aside, Service
from dfrs.live.protocol.wire import AGENT_BYTES
from dfrs.model.errors import DfrsError, InputError

BACKLOG = 1024
"""So many connections may wait in the kernel for room here."""
GRACE_S = 2
"""So long may requests take that are under way when it stops."""
HEAD_BYTES = 16 << 10
"""The longest head of a request."""
RETRY_S = 1.0
"""After a failure to accept a connection, as for want of file descriptors."""
_STUCK_MS = 60_000
"""A client that takes nothing for so long is cut off."""

_log = structlog.get_logger("dfrs.api")


class ServedController(Service, Protocol):
    """A service with a beginning and an end."""

    def announce(self, url: str) -> None:
        """Before `start`: where users find it."""
        ...

    def aside(self) -> Aside | None:
        """Why it serves nobody for now; None where it does."""
        ...

    async def start(self) -> None:
        """Come back to where it was; a standby first waits until it leads. Raises DfrsError."""
        ...

    async def stop(self) -> None:
        """Write what is to be written."""
        ...

    async def stopped(self) -> DfrsError:
        """Return when it cannot go on by itself: why."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to listen."""

    host: str
    port: int

    @property
    def loopback(self) -> bool:
        """Whether only this machine can come to it."""
        return is_loopback(self.host)

    @property
    def everywhere(self) -> bool:
        """Whether it is every address of this machine."""
        return self.host in {"0.0.0.0", "::"}  # noqa: S104 - it is compared, not bound

    def url(self, *, tls: bool, host: str | None = None) -> str:
        """As seen from this machine, or by the name `host`."""
        near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - as above
        name = host or near
        return f"{'https' if tls else 'http'}://{f'[{name}]' if ':' in name else name}:{self.port}"


def read_address(text: str) -> Address:
    """HOST:PORT or [ADDRESS]:PORT. Raises InputError."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    good = colon and host and port.isdecimal() and port.isascii() and len(port) <= 5 and int(port) <= 65535
    if not good or (":" in host) != bracketed:
        raise InputError(f"--listen {text}: must be HOST:PORT, as 127.0.0.1:7070 or [::1]:7070")
    return Address(host=host, port=int(port))


def bind(address: Address) -> tuple[socket.socket, Address]:
    """A socket at that address, and the address with the port that it really has. Raises DfrsError."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise InputError(f"--listen {address.host}: not an address of this machine: {error.strerror}") from None
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _STUCK_MS)
        made.bind(place)
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        where = f"{address.host}:{address.port}"
        raise DfrsError(f"cannot listen on {where}: {error.strerror}; choose another with --listen") from None
    return made, Address(host=address.host, port=made.getsockname()[1])


def inherited(number: int) -> socket.socket:
    """The listening socket that was open under that number when this process began. Raises InputError."""
    try:
        found = socket.socket(fileno=number)
        listening = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise InputError(f"--agent-socket {number}: not a socket: {error.strerror}") from None
    if not listening:
        raise InputError(f"--agent-socket {number}: does not listen")
    return found


class _Server(uvicorn.Server):
    """Uvicorn, which leaves signals to others, accepts as `connections` allow and tells open streams when it ends."""

    def __init__(
        self, config: uvicorn.Config, app: FastAPI, connections: Connections, ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self.servers = []
        self._app = app
        self._connections = connections
        self._ready = ready
        self._accepting: list[asyncio.Task[None]] = []
        self._greeted: set[asyncio.Task[None]] = set()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Nothing."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to serve, and say so."""
        for each in sockets or ():
            each.setblocking(False)
            self._accepting.append(asyncio.create_task(self._accept(each)))
        self.started = True
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End streams, then all else."""
        for task in (*self._accepting, *self._greeted):
            task.cancel()
        await asyncio.gather(*self._accepting, *self._greeted, return_exceptions=True)
        self._app.state.stopping.set()
        await super().shutdown(sockets)

    async def _accept(self, listening: socket.socket) -> None:
        """Take in one after the other, as long as there is room."""
        loop = asyncio.get_running_loop()
        while True:
            await self._connections.room()
            try:
                accepted, _ = await loop.sock_accept(listening)
            except ConnectionAbortedError:
                continue
            except OSError as error:
                _log.error("cannot accept a connection", why=error.strerror)
                await asyncio.sleep(RETRY_S)
                continue
            connection = Connection(self._connections)
            self._connections.enter(connection)
            task = asyncio.create_task(self._greet(accepted, connection))
            connection.close = task.cancel
            self._greeted.add(task)
            task.add_done_callback(self._greeted.discard)

    async def _greet(self, accepted: socket.socket, connection: Connection) -> None:
        """Have it speak, after its handshake where there is TLS; close it where it does not come to that."""
        limits, tls, loop = self._connections.limits, self.config.ssl, asyncio.get_running_loop()
        http = Http(self.config, self.server_state, {KEY: connection}, limits)
        transport: asyncio.BaseTransport | None = None
        try:
            if tls is None:
                transport, _ = await loop.connect_accepted_socket(lambda: http, accepted)
                return
            shaken: asyncio.Future[None] = loop.create_future()
            secure = Tls(loop, http, tls, shaken, limits)
            transport, _ = await loop.connect_accepted_socket(lambda: secure, accepted)
            await shaken
        except OSError as error:
            _log.debug("no connection came of it", why=str(error))
            # Its frames refer to it: their memory would have to wait for the collector of cycles.
            error.__traceback__ = None
        finally:
            if not connection.speaks:
                connection.gone()
                if isinstance(transport, asyncio.Transport):
                    transport.abort()
                else:
                    accepted.close()

    async def stop_when(self, end: asyncio.Event) -> None:
        """Stop serving once `end` is set."""
        await end.wait()
        self.should_exit = True


async def serve(
    controller: ServedController,
    app: FastAPI,
    listening: socket.socket,
    *,
    tls: ssl.SSLContext | None,
    started: Callable[[], Awaitable[None]],
    ready: Callable[[], None],
    end: asyncio.Event | None = None,
    also: tuple[socket.socket, ssl.SSLContext] | None = None,
    limits: ConnectionLimits | None = None,
    waits: bool = False,
) -> None:
    """Start the controller, serve it until SIGTERM, SIGINT or `end`, or until it cannot go on, and stop it.

    Raises DfrsError of its start, and that for which it cannot go on.

    `started` is awaited between the controller's start and the first request, `ready` called when requests are taken.
    With `waits` requests are taken from the beginning, and `ready` is called once it has started: see `aside`.
    `also` is another socket, always with TLS. To be used on the main thread, which is where signals come.
    """
    end = end or asyncio.Event()
    starting = [(listening, tls), *([] if also is None else [also])]
    sockets = [each for each, _ in starting]

    def one_ready() -> None:
        starting.pop()
        if not starting:
            ready()

    connections = Connections(_affordable(limits or ConnectionLimits()))
    servers = [
        _Server(_config(app, secrecy), app, connections, _nothing if waits else one_ready) for _, secrecy in starting
    ]
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end.set)
    watch = [asyncio.create_task(server.stop_when(end)) for server in servers]
    stopped = asyncio.create_task(_stopped(controller, end))
    lag = asyncio.create_task(watch_loop(app.state.meters))
    beginning = asyncio.create_task(_begin(controller, started, end, ready if waits else _nothing))
    try:
        if not waits:
            await beginning
        if not end.is_set():
            await asyncio.gather(*(server.serve([each]) for server, each in zip(servers, sockets, strict=True)))
    finally:
        for task in (*watch, stopped, lag, beginning):
            task.cancel()
        await asyncio.gather(beginning, return_exceptions=True)
        await controller.stop()
        for each in sockets:
            each.close()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    if not beginning.cancelled() and (problem := beginning.exception()) is not None:
        raise problem
    if stopped.done() and not stopped.cancelled():
        raise stopped.result()


async def _begin(
    controller: ServedController, started: Callable[[], Awaitable[None]], end: asyncio.Event, then: Callable[[], None]
) -> None:
    """Start it; where that fails, whoever is served already need not wait."""
    try:
        await controller.start()
        await started()
    except BaseException:
        end.set()
        raise
    then()


def _nothing() -> None:
    pass


async def _stopped(controller: ServedController, end: asyncio.Event) -> DfrsError:
    problem = await controller.stopped()
    end.set()
    return problem


def _affordable(limits: ConnectionLimits) -> ConnectionLimits:
    """Let this process have as many files open as its hard limit says. Strangers and idle clients get half of them, and
    requests with a good token a quarter at most: agents come in after all of these.
    """
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    now = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if now == resource.RLIM_INFINITY:
        return limits
    quarter = now // 4
    most = {name: min(getattr(limits, name), quarter) for name in ("strangers", "idle", "of_token", "of_tokens")}
    return replace(limits, **most)


def _config(app: FastAPI, tls: ssl.SSLContext | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=Http,
        ws=Frames,
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        ws_max_size=AGENT_BYTES,
        ws_per_message_deflate=False,
        h11_max_incomplete_event_size=HEAD_BYTES,
        timeout_graceful_shutdown=GRACE_S,
        ssl_context_factory=None if tls is None else lambda _config, _default: tls,
    )


def quiet_libraries() -> None:
    """Have libraries log what goes wrong, and not what goes well."""
    for name in ("uvicorn.error", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # Said after each WebSocket that was refused with an answer, as a standby does.
    logging.getLogger("uvicorn.error").addFilter(lambda record: "without completing handshake" not in record.msg)
