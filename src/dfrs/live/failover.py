"""Requests to a cluster with several controllers: each goes to the one that leads.

Who leads is found by asking each for its health, which may be asked for any number of times, and is asked again when a
request fails. What may have been done is never asked for twice: a request goes on to another controller only if it
reached none, if the one that it reached says that it serves nobody, or if it asks for nothing to be done.
"""

import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import httpx

from dfrs.live.protocol.addresses import ASIDE_HEADER, LEADER_HEADER

PATIENCE_S = 20.0
"""So long somebody is looked for who leads: a take-over is shorter."""
PAUSE_S = 0.25
"""Between two rounds."""
CONNECT_S, ANSWER_S = 2.0, 3.0
"""So long one of several may take to accept a connection, and to say how it is."""
NOTHING_SENT = (httpx.ConnectError, httpx.ConnectTimeout)
"""Of a request that meets these, nothing has reached anybody."""
_SAFE = ("GET", "HEAD")


@dataclass(slots=True)
class _Search:
    """What became of the controllers that were asked while somebody was looked for."""

    until: float
    standby: httpx.Response | None = None
    error: httpx.TransportError | None = None
    distrusted: bool = False

    def failed(self, error: httpx.TransportError) -> None:
        """One did not answer, or cannot prove who it is, which does not pass with time."""
        if not self.distrusted:
            self.error, self.distrusted = error, _is_distrust(error)

    @property
    def over(self) -> bool:
        """Whether it is of no use to go on after this round."""
        return self.distrusted or time.monotonic() >= self.until


class FailoverTransport(httpx.BaseTransport):
    """Sends requests to the one of `urls` that leads, whatever their own host, by `transport`.

    Only these addresses are asked, and so only they see a token. Once nobody has led for `patience_s`, what the last
    standby said is the answer, or the last error is raised; sooner where one cannot prove who it is and no other leads.
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
        self._found = False
        """Whether the present one is known to lead."""

    @property
    def url(self) -> str:
        """Of the controller that was asked last."""
        return str(self._urls[self._present])

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """The answer of the one that leads."""
        search = _Search(time.monotonic() + self._patience_s)
        while True:
            if not self._found and not self._find(search):
                if search.error is not None and (search.distrusted or search.standby is None):
                    raise search.error
                assert search.standby is not None
                return search.standby
            try:
                answer = self._transport.handle_request(self._addressed(request))
                if ASIDE_HEADER not in answer.headers:
                    return answer
                self._found = False
                _keep(answer, search)
            except httpx.TransportError as error:
                self._found = False
                nothing_sent = isinstance(error, NOTHING_SENT)
                if time.monotonic() >= search.until or not (nothing_sent or request.method in _SAFE):
                    raise
                search.failed(error)
            self._sleep(PAUSE_S)

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()

    def _find(self, search: _Search) -> bool:
        """Make the one that leads the present one, if any does before the search is over."""
        while True:
            for _ in self._urls:
                leader = ""
                try:
                    answer = self._transport.handle_request(self._question())
                    if ASIDE_HEADER not in answer.headers:
                        answer.close()
                        self._found = True
                        return True
                    leader = _keep(answer, search)
                except httpx.TransportError as error:
                    search.failed(error)
                self._go_on(leader)
            if search.over:
                return False
            self._sleep(PAUSE_S)

    def _question(self) -> httpx.Request:
        """Whether the present one is well; without a token."""
        times = {"connect": CONNECT_S, "read": ANSWER_S, "write": ANSWER_S, "pool": ANSWER_S}
        return httpx.Request("GET", self._urls[self._present].join("/healthz"), extensions={"timeout": times})

    def _addressed(self, request: httpx.Request) -> httpx.Request:
        url = self._urls[self._present]
        others = [(name, value) for name, value in request.headers.raw if name.lower() != b"host"]
        return httpx.Request(
            request.method,
            request.url.copy_with(scheme=url.scheme, host=url.host, port=url.port),
            headers=[(b"Host", url.netloc), *others],
            stream=request.stream,
            extensions=request.extensions,
        )

    def _go_on(self, leader: str) -> None:
        """To the leader, if that is one of those that may be asked; else to the next."""
        known = [k for k, url in enumerate(self._urls) if str(url).rstrip("/") == leader.rstrip("/")]
        other = [k for k in known if k != self._present]
        self._present = other[0] if other else (self._present + 1) % len(self._urls)


def _keep(answer: httpx.Response, search: _Search) -> str:
    """Where the leader is, by the word of one that stands by; its answer is whole, whoever may want it."""
    answer.read()
    answer.close()
    search.standby = answer
    return answer.headers.get(LEADER_HEADER, "")


def _is_distrust(error: BaseException) -> bool:
    """Whether a controller could not prove who it is."""
    first: BaseException | None = error
    while first is not None and not isinstance(first, ssl.SSLCertVerificationError):
        first = first.__cause__ or first.__context__
    return first is not None
