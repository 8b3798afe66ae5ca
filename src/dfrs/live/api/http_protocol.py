"""HTTP/1.1 and WebSockets as uvicorn speaks them, with an end to every wait for a client."""

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from typing import Any, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import Frame

from dfrs.live.api.connections import KEY, Connection, ConnectionLimits


class Tls(SSLProtocol):
    """The side of TLS that serves, as asyncio has it, with a buffer of a few records.

    Asyncio's own buffer is nine tenths of what an idle connection costs, and nobody can choose its size.
    """

    max_size = 32 << 10

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        http: asyncio.Protocol,
        context: ssl.SSLContext,
        shaken: "asyncio.Future[None]",
        limits: ConnectionLimits,
    ) -> None:
        super().__init__(
            loop,
            http,
            context,
            shaken,
            server_side=True,
            ssl_handshake_timeout=limits.handshake_s,
            ssl_shutdown_timeout=limits.linger_s,
        )


class Http(H11Protocol):
    """Closes a connection whose request, or whose rest of a body, does not come in time.

    Uvicorn itself waits for ever once the first byte is there.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        limits: ConnectionLimits,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._connection: Connection = app_state[KEY]
        self._limits = limits
        self._late: asyncio.TimerHandle | None = None
        self._rest_of_body = False
        """Whether what comes is of a request that has been answered."""

    @property
    def _asked(self) -> bool:
        """Whether a request is under way."""
        # The base sets it with the first request.
        cycle = cast("Any", self.cycle)
        return cycle is not None and not cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:
        """It may begin to speak."""
        super().connection_made(transport)
        self._connection.speak(transport.abort)
        self._close_after(self._limits.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        super().connection_lost(exc)
        self._stay()
        self._unset_keepalive_if_required()
        self._connection.gone()

    def data_received(self, data: bytes) -> None:
        """A part of a request's head, or of its body."""
        if not self._asked and self._late is None:
            self._close_after(self._limits.head_s)
        super().data_received(data)

    def handle_events(self) -> None:
        """Take what has come; once it is a whole head, that need not be waited for."""
        super().handle_events()
        if self._asked:
            self._stay()
        elif self._rest_of_body and self.conn.their_state is h11.IDLE:
            self._rest_of_body = False
            self._close_after(self._limits.head_s)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """From now on it is a `Frames`."""
        self._stay()
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        """It may ask again."""
        limits = self._limits
        self.timeout_keep_alive = limits.keep_s if self._connection.proven else limits.keep_stranger_s
        self._connection.rest()
        self._rest_of_body = self.conn.their_state is h11.SEND_BODY
        if self._rest_of_body:
            self._close_after(self._limits.linger_s)
        super().on_response_complete()

    def _close_after(self, seconds: float) -> None:
        self._stay()
        self._late = self.loop.call_later(seconds, self.transport.abort)

    def _stay(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class Frames(WebSocketsSansIOProtocol):
    """Hands text on as bytes, so that text which is none is one message that makes no sense, and no more."""

    def handle_text(self, event: Frame) -> None:
        """As `handle_bytes`."""
        self.handle_bytes(event)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        super().connection_lost(exc)
        self.app_state[KEY].gone()
