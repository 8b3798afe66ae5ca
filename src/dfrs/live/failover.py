"""Requests to a cluster with several controllers: each goes to the one that answered last, and on to the next where
that one leads no more.

What may have been done is never asked for twice: a request goes on only if it did not reach a controller, if that one
says that it serves nobody, or if it asks for nothing to be done.
"""

import ssl
import time
from collections.abc import Callable, Sequence

import httpx

from dfrs.live.protocol.addresses import ASIDE_HEADER, LEADER_HEADER

PATIENCE_S = 20.0
"""So long somebody is looked for who leads: a take-over is shorter."""
PAUSE_S = 0.25
"""Between two rounds."""
CONNECT_S = 2.0
"""So long one of several may take to accept a connection."""
_SAFE = ("GET", "HEAD")


class FailoverTransport(httpx.BaseTransport):
    """Sends requests to one of `urls`, whatever their own host, by `transport`.

    Only these addresses are asked, and so only they see a token. Once nobody has led for `patience_s`, the last one's
    error is raised, or its answer given; sooner where one cannot prove who it is and no other leads.
    """

    def __init__(
        self,
        urls: Sequence[str],
        transport: httpx.BaseTransport,
        *,
        patience_s: float = PATIENCE_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._urls = [httpx.URL(url) for url in urls]
        self._transport = transport
        self._patience_s = patience_s
        self._sleep = sleep
        self._present = 0

    @property
    def url(self) -> str:
        """Of the controller that was asked last."""
        return str(self._urls[self._present])

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """The answer of the one that leads."""
        give_up_at, tried = time.monotonic() + self._patience_s, 0
        standby: httpx.Response | None = None
        distrusted: httpx.ConnectError | None = None
        while True:
            tried += 1
            ends_round = tried % len(self._urls) == 0
            last = ends_round and (distrusted is not None or time.monotonic() >= give_up_at)
            leader = ""
            try:
                answer = self._transport.handle_request(self._addressed(request))
                if ASIDE_HEADER not in answer.headers:
                    return answer
                answer.read()
                answer.close()
                standby, leader = answer, answer.headers.get(LEADER_HEADER, "")
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                # That one cannot prove who it is does not pass with time.
                if isinstance(error, httpx.ConnectError) and _is_distrust(error):
                    distrusted, last = error, ends_round
                if last and distrusted is None and standby is None:
                    raise
            except (httpx.NetworkError, httpx.RemoteProtocolError, httpx.ReadTimeout):
                self._go_on()
                if last or request.method not in _SAFE:
                    raise
                continue
            if last and distrusted is not None:
                raise distrusted
            if last and standby is not None:
                return standby
            self._go_on(leader)
            if ends_round:
                self._sleep(PAUSE_S)

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()

    def _addressed(self, request: httpx.Request) -> httpx.Request:
        url = self._urls[self._present]
        timeout = {**request.extensions.get("timeout", {})}
        if timeout.get("connect") is not None:
            timeout["connect"] = min(CONNECT_S, timeout["connect"])
        others = [(name, value) for name, value in request.headers.raw if name.lower() != b"host"]
        return httpx.Request(
            request.method,
            request.url.copy_with(scheme=url.scheme, host=url.host, port=url.port),
            headers=[(b"Host", url.netloc), *others],
            stream=request.stream,
            extensions={**request.extensions, "timeout": timeout},
        )

    def _go_on(self, leader: str = "") -> None:
        """To the leader, if that is one of those that may be asked; else to the next."""
        known = [k for k, url in enumerate(self._urls) if str(url).rstrip("/") == leader.rstrip("/")]
        other = [k for k in known if k != self._present]
        self._present = other[0] if other else (self._present + 1) % len(self._urls)


def _is_distrust(error: BaseException) -> bool:
    """Whether a controller could not prove who it is."""
    first: BaseException | None = error
    while first is not None and not isinstance(first, ssl.SSLCertVerificationError):
        first = first.__cause__ or first.__context__
    return first is not None
