"""How long requests wait for their answers, route by route, and how late the event loop is."""

import asyncio
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dfrs.live.api.prometheus import Meters

LOOK_S = 0.25
"""The loop is asked so often how late it is."""
NO_ROUTE = "none"
"""Label of requests for which there is no route: their paths are whatever clients like."""
METHODS = frozenset({"GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"})
OTHER_METHOD = "other"
"""Label of requests with another method: that is whatever clients like, too."""


class Timed:
    """Counts each answer by route, method and status, and the time until it began."""

    def __init__(self, app: ASGIApp, meters: Meters) -> None:
        self._app = app
        self._meters = meters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.perf_counter()

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", NO_ROUTE)
                method = scope["method"] if scope["method"] in METHODS else OTHER_METHOD
                self._meters.answered(route, method, message["status"], time.perf_counter() - begun)
            await send(message)

        await self._app(scope, receive, noted)


async def watch_loop(meters: Meters) -> None:
    """Note how late the event loop comes round, until cancelled: so long all requests wait, too."""
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + LOOK_S
        await asyncio.sleep(LOOK_S)
        meters.loop_lag.add(max(0.0, loop.time() - due_s))
