"""What a controller answers that serves nobody for now: it stands by, or may have been replaced."""

from collections.abc import Callable
from html import escape

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from dfrs.live.api.answers import HEADERS, problem
from dfrs.live.api.prometheus import CONTENT_TYPE
from dfrs.live.protocol.addresses import ASIDE_HEADER, LEADER_HEADER
from dfrs.live.protocol.ports import Aside

RETRY_S = 1


class AsideMiddleware:
    """Answers 503 with one line, and where the leader is, as long as `aside` says so. Nobody needs a token for that.

    Figures are served with status 200: one who scrapes both controllers is to see which of them leads.
    """

    def __init__(self, app: ASGIApp, aside: Callable[[], Aside | None]) -> None:
        self._app = app
        self._aside = aside

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or say who does."""
        found = self._aside() if scope["type"] in {"http", "websocket"} else None
        if found is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await WebSocket(scope, receive, send).send_denial_response(_refusal(found))
        else:
            await _answer(found, scope["path"])(scope, receive, send)


def _headers(found: Aside) -> dict[str, str]:
    leader = {} if found.leader is None else {LEADER_HEADER: found.leader}
    return {"Retry-After": str(RETRY_S), ASIDE_HEADER: "yes", **leader}


def _refusal(found: Aside) -> Response:
    return problem(503, found.detail, _headers(found))


def _answer(found: Aside, path: str) -> Response:
    if path == "/metrics":
        return Response(_figures(), 200, HEADERS | {"content-type": CONTENT_TYPE})
    if path == "/":
        leader = "" if found.leader is None else f'<p><a href="{escape(found.leader)}/">{escape(found.leader)}</a></p>'
        page = f"<!doctype html><title>dfrs: standby</title><p>{escape(found.detail)}</p>{leader}"
        return HTMLResponse(page, 503, {**HEADERS, **_headers(found)})
    return _refusal(found)


def _figures() -> bytes:
    registry = CollectorRegistry()
    Gauge("dfrs_leader", "1 where this controller leads, 0 where it stands by.", registry=registry).set(0)
    return generate_latest(registry)
