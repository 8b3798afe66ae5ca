"""How many connections may be open, and how long, before a request on them shows a good token, and how many with one.

A connection costs memory and a file, whoever opens it. So those that have shown no token, and those that are idle, have
a limit each, and the one that has been there longest gives its place to a new one. Connections that the limit has no
room for yet wait in the kernel, where they cost next to nothing: when all agents come back at once, they come in as
fast as they are served. Requests under way with a good token, agents and streams are never closed for others: so that
streams and answers that wait leave room for everybody, of those beyond a limit no more are begun.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dfrs.live.errors import TooManyError, UnavailableError

KEY = "connection"
"""Name in the state of a scope."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Numbers of connections, and seconds that each of their states may last."""

    strangers: int = 1024
    """Without a request with a good token, handshakes included."""
    idle: int = 256
    """Between two requests, the last of them with a good token."""
    patience_s: float = 2.0
    """So long a stranger has its place for itself, even if others wait."""
    handshake_s: int = 10
    head_s: float = 10.0
    """From the first byte of a request, or the beginning of the connection, to the end of the request's head."""
    keep_s: int = 30
    """From one request to the next, if the last had a good token."""
    keep_stranger_s: int = 5
    linger_s: float = 2.0
    """For the rest of a body that was answered before its end."""
    of_token: int = 256
    """With requests under way that have the same good token, unless it is an agent's."""
    of_tokens: int = 1024
    """With requests under way of all these; an admin's are not refused for that."""


def _nothing() -> None:
    """Close what is closed."""


class Connection:
    """One client, from the accepted socket to its end, whatever protocol it comes to speak."""

    def __init__(self, among: "Connections") -> None:
        self._among = among
        self.close: Callable[[], object] = _nothing
        """Ends it at once: its handshake, later what it speaks."""
        self.speaks = False
        """Whether its handshake is over."""
        self.proven = False
        """Whether its last request had a good token."""
        self._token: int | None = None
        """That of the request under way, as it is counted."""
        self._over = False

    def speak(self, close: Callable[[], object]) -> None:
        """Its handshake is over; from now on `close` ends it."""
        self.speaks, self.close = True, close

    def prove(self, token: int | None, *, always: bool) -> None:
        """Its request has a good token, by which it is counted unless that is None: it is nobody's to close.

        Raises TooManyError where too many of the token are under way; UnavailableError where too many of all are, and
        this one is not `always` taken.
        """
        # A request may come to this after its client has gone.
        if token is not None and not self._over:
            self._end()
            self._among.begin(token, always=always)
            self._token = token
        self.proven = True
        self._among.leave(self)

    def rest(self) -> None:
        """Its request has been answered."""
        self._end()
        self._among.leave(self)
        self._among.enter(self, idle=self.proven)
        self.proven = False

    def gone(self) -> None:
        """It is no more."""
        self._over = True
        self._end()
        self._among.leave(self)
        # What closes it refers to it: its memory would have to wait for the collector of cycles.
        self.close = _nothing

    def _end(self) -> None:
        if self._token is not None:
            self._among.end(self._token)
            self._token = None


class Connections:
    """Those of one controller, on all its sockets, that may be closed to make room."""

    def __init__(self, limits: ConnectionLimits | None = None) -> None:
        self.limits = limits or ConnectionLimits()
        self.strangers: dict[Connection, float] = {}
        """With the time at which each came, or its last request was answered: the longest there first."""
        self.idle: dict[Connection, float] = {}
        self.under_way: Counter[int] = Counter()
        """Requests with a good token, by token."""

    def enter(self, connection: Connection, *, idle: bool = False) -> None:
        """It may be closed from now on."""
        if not idle:
            self.strangers[connection] = time.monotonic()
            return
        if len(self.idle) >= self.limits.idle:
            self._close(next(iter(self.idle)))
        self.idle[connection] = time.monotonic()

    def leave(self, connection: Connection) -> None:
        """It may not be closed, or is no more."""
        self.strangers.pop(connection, None)
        self.idle.pop(connection, None)

    def begin(self, token: int, *, always: bool) -> None:
        """One more request of the token is under way. Raises as `Connection.prove` does."""
        if self.under_way[token] >= self.limits.of_token:
            raise TooManyError(
                f"requests: {self.limits.of_token} of this token are under way, streams among them; end some", 1
            )
        if not always and self.under_way.total() >= self.limits.of_tokens:
            raise UnavailableError(f"requests: {self.limits.of_tokens} are under way, streams among them")
        self.under_way[token] += 1

    def end(self, token: int) -> None:
        """One of its requests is over."""
        self.under_way[token] -= 1
        if not self.under_way[token]:
            del self.under_way[token]

    async def room(self) -> None:
        """Wait until there is room for one more stranger."""
        while len(self.strangers) >= self.limits.strangers:
            oldest, since_s = next(iter(self.strangers.items()))
            left_s = since_s + self.limits.patience_s - time.monotonic()
            if left_s <= 0:
                self._close(oldest)
            else:
                await asyncio.sleep(min(left_s, 0.02))

    def _close(self, connection: Connection) -> None:
        self.leave(connection)
        connection.close()


def proven(scope: Mapping[str, Any], token: int | None, *, always: bool) -> None:
    """Tell the connection of a request, where it is on one, that it has a good token. See `Connection.prove`."""
    connection = scope.get("state", {}).get(KEY)
    if isinstance(connection, Connection):
        connection.prove(token, always=always)
