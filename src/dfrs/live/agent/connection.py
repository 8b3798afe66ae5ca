"""An agent's way to its controller: the address, messages that wait to be sent, and whether the other side lives."""

import asyncio
import random
import ssl
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect

from dfrs.live.drivers.base import TaskId
from dfrs.live.protocol.addresses import addresses, must_be_secret
from dfrs.live.protocol.parts import texts
from dfrs.live.protocol.wire import MESSAGE_BYTES, Done, FromAgent, Output, ReportMessage, StatusMessage
from dfrs.model.errors import InputError

AGENT_PATH = "/agent/v1"
CLOSE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where the controller is, and the secret that admits an agent."""

    url: str
    """With commas between them where there are several controllers, of which one leads."""
    token: str = field(repr=False)
    ca: Path | None = None
    """Certificate authority to trust, PEM, or several in one file; None: those of the system."""

    @property
    def urls(self) -> tuple[str, ...]:
        """Of each controller; at least one."""
        return addresses(self.url) or (self.url,)

    def trust(self) -> ssl.SSLContext | None:
        """How controllers prove who they are; None where none uses TLS. Raises InputError, also for bad addresses."""
        sockets = [socket_url(url) for url in self.urls]
        if not any(url.startswith("wss:") for url in sockets):
            return None
        try:
            return ssl.create_default_context(cafile=None if self.ca is None else str(self.ca))
        except ssl.SSLError:
            raise InputError(f"{self.ca}: must be a certificate authority in PEM") from None
        except OSError as error:
            raise InputError(f"{self.ca}: cannot be read: {error.strerror}") from None

    def connect(self, url: str, open_s: float) -> connect:
        """A connection to one of `urls`, to open with `async with`, within `open_s`. Raises InputError."""
        address = socket_url(url)
        return connect(
            address,
            ssl=self.trust() if address.startswith("wss:") else None,
            additional_headers={"Authorization": f"Bearer {self.token}"},
            # Nodes and controller are neighbours: a proxy of the environment is for the world outside.
            proxy=None,
            compression=None,
            max_size=MESSAGE_BYTES,
            open_timeout=open_s,
            close_timeout=CLOSE_S,
            ping_interval=None,
        )


def socket_url(url: str) -> str:
    """Address of the WebSocket of a controller. Raises InputError."""
    parts = urlsplit(url)
    try:
        known = parts.scheme in {"http", "https"} and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        known = False
    if not known or parts.username or parts.query or parts.fragment or parts.path.strip("/"):
        raise InputError(f"server {url!r}: must be http://HOST:PORT or https://HOST:PORT")
    must_be_secret(parts, "server")
    return f"{'wss' if parts.scheme == 'https' else 'ws'}://{parts.netloc}{AGENT_PATH}"


class Controllers:
    """Which of several controllers an agent asks next."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls
        self._present = 0
        self._tried = 0

    @property
    def url(self) -> str:
        """Of the one that is asked now."""
        return self._urls[self._present]

    def welcomed(self) -> None:
        """The present one leads."""
        self._tried = 0

    def go_on(self, leader: str = "") -> bool:
        """To the leader, if it is among them, or else to the next; whether all have been asked since the last welcome.

        Then it is time to wait.
        """
        known = [k for k, url in enumerate(self._urls) if url == leader.rstrip("/") and k != self._present]
        self._present = known[0] if known else (self._present + 1) % len(self._urls)
        self._tried += 1
        return self._tried % len(self._urls) == 0


class Outbox:
    """Messages for the controller. Of statuses of one task, and of reports, only the latest waits: it says all.

    So a slow or broken connection costs a bounded amount of memory and no truth.
    """

    def __init__(self) -> None:
        self._statuses: dict[TaskId, StatusMessage] = {}
        self._answers: list[Output | Done] = []
        self._report: ReportMessage | None = None
        self._filled = asyncio.Event()

    def put(self, message: StatusMessage | Output | Done | ReportMessage) -> None:
        """Have it sent as soon as there is a connection."""
        if isinstance(message, StatusMessage):
            self._statuses[message.task] = message
        elif isinstance(message, Output | Done):
            self._answers.append(message)
        else:
            self._report = message
        self._filled.set()

    def clear(self) -> None:
        """Forget what waits: it is about to be said otherwise."""
        self._statuses.clear()
        self._answers.clear()
        self._report = None

    async def send_all(self, socket: ClientConnection) -> None:
        """Send what comes, until the connection ends. Raises ConnectionClosed."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            for message in self._take():
                for text in texts(message):
                    await socket.send(text)

    def _take(self) -> list[FromAgent]:
        taken: list[FromAgent] = [*self._statuses.values(), *self._answers]
        if self._report is not None:
            taken.append(self._report)
        self.clear()
        return taken


class Backoff:
    """Seconds to wait before the next attempt: doubled each time, and spread so that not all agents come at once."""

    def __init__(self, first_s: float, last_s: float) -> None:
        self._first_s = first_s
        self._last_s = last_s
        self._next_s = first_s

    def reset(self) -> None:
        """It went well."""
        self._next_s = self._first_s

    def next_s(self) -> float:
        """Between half and the whole of what it has come to."""
        wait_s, self._next_s = self._next_s, min(self._last_s, 2 * self._next_s)
        return wait_s * random.uniform(0.5, 1.0)  # noqa: S311 - it spreads calls, and hides nothing


async def ping(socket: ClientConnection, timeout_s: float) -> None:
    """Have the other side answer. Raises TimeoutError, after the connection has been torn down, ConnectionClosed."""
    try:
        async with asyncio.timeout(timeout_s):
            await (await socket.ping())
    except TimeoutError:
        # Closing in good order needs the other side.
        socket.transport.abort()
        raise


async def first_of(*parts: Coroutine[Any, Any, None]) -> None:
    """Run all until one returns or raises, cancel the others, wait for them, and do as it did.

    Of several that ended at once, the first in order counts.
    """
    running = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for part in running:
            part.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    for part in running:
        if part in done:
            part.result()
