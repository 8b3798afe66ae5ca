"""Tokens that are not good: counted, logged without the token, and answered the later the more an address sends.

A token cannot be guessed: the delay is for clients that go on with an old one, and keeps the log short. It is never
that of a good token, whatever its address sent before.
"""

import asyncio
import ipaddress
import time
from collections.abc import Callable

import structlog
from starlette.requests import HTTPConnection

from dfrs.live.api.prometheus import Meters

FREE = 3
"""So many of an address are answered at once."""
FIRST_S, LONGEST_S = 0.1, 5.0
"""The delay of the next, doubled with each, and its bound."""
FORGOTTEN_S = 600.0
"""So long after its last one an address begins anew."""
ADDRESSES = 4096
"""So many are remembered; more forget the one that was silent longest."""
LOGGED_S = 1.0
"""At most one line of an address in so many seconds."""

_log = structlog.get_logger("dfrs.tokens")


class _Address:
    """What is remembered of one."""

    def __init__(self, now_s: float) -> None:
        self.count = 0
        self.last_s = now_s
        self.logged_s = -LOGGED_S + now_s


class RefusedTokens:
    """Delays by client address. A network of IPv6 (/64) is one address: a machine may choose any in it."""

    def __init__(
        self, meters: Meters, *, longest_s: float = LONGEST_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._meters = meters
        self._longest_s = longest_s
        self._clock = clock
        self._addresses: dict[str, _Address] = {}
        """The one that was silent longest first."""

    def __len__(self) -> int:
        return len(self._addresses)

    async def count(self, connection: HTTPConnection) -> None:
        """Count one, log it, and return when it may be answered."""
        self._meters.refused.inc()
        host = "?" if connection.client is None else connection.client.host
        route = getattr(connection.scope.get("route"), "path", "?")
        await asyncio.sleep(self.note(host, route))

    def note(self, host: str, route: str) -> float:
        """One more of this client: the seconds that its answer is to wait."""
        now_s, name = self._clock(), _network(host)
        found = self._addresses.pop(name, None)
        if found is None or now_s - found.last_s > FORGOTTEN_S:
            found = _Address(now_s)
        if len(self._addresses) >= ADDRESSES:
            del self._addresses[next(iter(self._addresses))]
        self._addresses[name] = found
        found.count, found.last_s = found.count + 1, now_s
        if now_s - found.logged_s >= LOGGED_S:
            found.logged_s = now_s
            _log.warning("token refused", address=host, route=route, so_far=found.count)
        if found.count <= FREE:
            return 0.0
        return min(self._longest_s, FIRST_S * 2.0 ** min(found.count - FREE - 1, 30))


def _network(host: str) -> str:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 4:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))
