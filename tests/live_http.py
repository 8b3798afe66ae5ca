"""The API with a controller in memory: asked without a socket, or served on one."""

import asyncio
from contextlib import asynccontextmanager

import httpx

from dfrs.live.api.routes import create_app
from dfrs.live.api.server import bind, read_address, serve
from tests.live_service import FakeService

PATIENCE_S = 30.0


def asked(test, *, page=None, settings=None):
    """Run `test(service, client)` with a client that talks to the application directly."""
    service = FakeService()
    service.add_node("node1")
    app = create_app(service, page=page, settings=settings, agent_door=service)

    async def run():
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://dfrs") as client:
            await test(service, client)

    asyncio.run(run())


def bearer(secret):
    return {"Authorization": f"Bearer {secret}"}


@asynccontextmanager
async def served(
    service,
    *,
    listen="127.0.0.1:0",
    certificates=None,
    page=None,
    settings=None,
    limits=None,
    aside=lambda: None,
    agent_door=None,
):
    """The controller on a real socket: its address, its application and the task that serves it."""
    listening, address = bind(read_address(listen))
    app = create_app(service, page=page, settings=settings, aside=aside, agent_door=agent_door or service)
    up, end = asyncio.Event(), asyncio.Event()

    async def started():
        pass

    tls = None if certificates is None else certificates.context()
    task = asyncio.create_task(
        serve(service, app, listening, tls=tls, started=started, ready=up.set, end=end, limits=limits)
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            await up.wait()
        yield address, app, task
    finally:
        end.set()
        async with asyncio.timeout(PATIENCE_S):
            await task


async def until(condition, what):
    """Wait until `condition()` is true."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"still not: {what}") from None
