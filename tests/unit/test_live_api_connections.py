"""Clients that connect and show no token, or nothing at all: they cost little, and keep nobody out."""

import asyncio
import gc
import ssl
from contextlib import AsyncExitStack

import httpx
import pytest
from websockets.asyncio.client import connect

from dfrs.live.api import server
from dfrs.live.api.certificates import own_certificates
from dfrs.live.api.connections import ConnectionLimits
from dfrs.live.api.http_protocol import Http, Tls
from tests.live_http import PATIENCE_S, bearer, served, until
from tests.live_service import FakeService
from tests.unit.test_live_api_agents import introduced

QUICK = ConnectionLimits(
    strangers=8, idle=3, patience_s=0.1, handshake_s=0.3, head_s=0.3, keep_s=20.0, keep_stranger_s=0.3, linger_s=0.3
)
PATIENT = ConnectionLimits(strangers=8, idle=3, patience_s=0.1)
SOON_S = 5.0


def on_socket(test, *, limits=QUICK, **options):
    async def run():
        service = FakeService()
        async with asyncio.timeout(PATIENCE_S), served(service, limits=limits, **options) as (address, app, _):
            await test(service, address, app)

    asyncio.run(run())


async def opened(address, count=1):
    """So many connections that say nothing."""
    made = [await asyncio.open_connection(address.host, address.port) for _ in range(count)]
    return made if count > 1 else made[0]


async def ended(reader):
    """Wait until the other side has closed it."""
    async with asyncio.timeout(SOON_S):
        try:
            while await reader.read(1 << 16):
                pass
        except ConnectionError:
            pass


async def still_open(connections):
    """How many of them the server has not closed."""
    await asyncio.sleep(0)
    return sum(not reader.at_eof() and reader.exception() is None for reader, _ in connections)


def head(path, secret=None, method="GET", more=""):
    token = "" if secret is None else f"Authorization: Bearer {secret}\r\n"
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n{token}{more}\r\n".encode()


async def answered(reader):
    """Status of the next answer; its body is read over."""
    async with asyncio.timeout(SOON_S):
        text = await reader.readuntil(b"\r\n\r\n")
        length = int(text.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
    return int(text.split()[1])


@pytest.mark.parametrize("secure", [False, True])
def test_idle_strangers_have_a_limit_and_keep_nobody_out(secure, tmp_path):
    made = own_certificates(tmp_path / "tls", ["127.0.0.1"]) if secure else None
    trust = ssl.create_default_context(cafile=str(made.authority)) if made else False

    async def test(service, address, app):
        strangers = await opened(address, 60)
        headers = bearer(service.token("wall", "viewer"))
        url = address.url(tls=secure)
        async with httpx.AsyncClient(base_url=url, headers=headers, verify=trust, timeout=SOON_S) as client:
            assert (await client.get("/api/v1/me")).status_code == 200
            async with asyncio.timeout(SOON_S):
                while await still_open(strangers) > PATIENT.strangers:
                    await asyncio.sleep(0.01)
            assert (await client.get("/api/v1/me")).status_code == 200
        for _, writer in strangers:
            writer.close()

    on_socket(test, limits=PATIENT, certificates=made)


def test_what_has_a_good_token_is_not_closed_for_strangers():
    async def test(service, address, app):
        url = f"ws://{address.host}:{address.port}/agent/v1"
        headers = bearer(service.token("wall", "viewer"))
        async with (
            connect(url, additional_headers=bearer(service.token("agents", "agent"))) as agent,
            httpx.AsyncClient(base_url=address.url(tls=False), headers=headers) as client,
            client.stream("GET", "/api/v1/changes") as changes,
        ):
            await introduced(agent)
            lines = changes.aiter_lines()
            strangers = await opened(address, 60)
            await asyncio.sleep(1.0)
            assert await still_open(strangers) <= PATIENT.strangers
            async with asyncio.timeout(SOON_S):
                await (await agent.ping())
                service.tell()
                while not (await anext(lines)).startswith('data: {"sequence": 1'):
                    pass
            for _, writer in strangers:
                writer.close()

    on_socket(test, limits=PATIENT)


def test_streams_of_one_token_leave_room_for_others():
    async def test(service, address, app):
        secrets = {role: service.token(role, role) for role in ("viewer", "user", "admin")}
        url = address.url(tls=False)

        async def asks(role):
            async with httpx.AsyncClient(base_url=url, headers=bearer(secrets[role])) as client:
                return await client.get("/api/v1/me")

        async with AsyncExitStack() as streams:
            clients = {
                role: await streams.enter_async_context(httpx.AsyncClient(base_url=url, headers=bearer(secret)))
                for role, secret in secrets.items()
            }

            async def watch(role):
                own = await streams.enter_async_context(AsyncExitStack())
                await own.enter_async_context(clients[role].stream("GET", "/api/v1/changes"))
                return own

            first = await watch("viewer")
            await watch("viewer")
            refused = await asks("viewer")
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            assert (await asks("user")).status_code == 200
            await watch("user")
            assert [(await asks(role)).status_code for role in ("viewer", "user", "admin")] == [429, 503, 200]
            await first.aclose()
            async with asyncio.timeout(SOON_S):
                while (await asks("viewer")).status_code != 200:
                    await asyncio.sleep(0.01)

    on_socket(test, limits=ConnectionLimits(of_token=2, of_tokens=3))


def test_requests_whose_clients_went_away_do_not_count(kept):
    async def test(service, address, app):
        secret = service.token("wall", "viewer")
        for _ in range(20):
            _, writer = await opened(address)
            writer.write(head("/api/v1/changes", secret))
            writer.close()
        reader, writer = await opened(address)
        writer.write(head("/api/v1/changes", secret))
        await reader.readuntil(b"retry")
        await until(lambda: kept[0].under_way.total() == 1, "only the last one counts")
        writer.close()
        await until(lambda: not kept[0].under_way, "none counts")

    on_socket(test)


def test_idle_clients_have_a_limit_too():
    async def test(service, address, app):
        secret = service.token("wall", "viewer")
        clients = await opened(address, PATIENT.idle + 1)
        for reader, writer in clients:
            writer.write(head("/api/v1/me", secret))
            assert await answered(reader) == 200
        await ended(clients[0][0])
        assert await still_open(clients) == PATIENT.idle
        for reader, writer in clients[1:]:
            writer.write(head("/api/v1/me", secret))
            assert await answered(reader) == 200
            writer.close()

    on_socket(test, limits=PATIENT)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("text", [b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\n"])
def test_a_head_that_does_not_come_is_not_waited_for(text, first):
    async def test(service, address, app):
        reader, writer = await opened(address)
        if first:
            writer.write(head("/healthz"))
            assert await answered(reader) == 200
        closed = asyncio.create_task(ended(reader))
        writer.write(text)
        while not closed.done():
            if text:
                writer.write(b"X-More: 1\r\n")
            await asyncio.sleep(0.05)
        await closed

    on_socket(test)


def test_a_handshake_that_does_not_come_is_not_waited_for(tmp_path):
    made = own_certificates(tmp_path / "tls", ["127.0.0.1"])

    async def test(service, address, app):
        silent, _ = await opened(address)
        odd, writer = await opened(address)
        writer.write(b"\x16\x03\x01")
        await ended(silent)
        await ended(odd)

    on_socket(test, certificates=made)


@pytest.mark.parametrize("good", [False, True])
def test_after_an_answer_strangers_are_waited_for_less_long(good):
    async def test(service, address, app):
        secret = service.token("wall", "viewer")
        reader, writer = await opened(address)
        writer.write(head("/api/v1/me" if good else "/healthz", secret if good else None))
        assert await answered(reader) == 200
        await asyncio.sleep(0.7)
        assert reader.at_eof() is not good
        writer.close()

    on_socket(test)


def test_the_rest_of_a_body_that_is_answered_is_waited_for_a_little():
    async def test(service, address, app):
        reader, writer = await opened(address)
        writer.write(head("/api/v1/jobs", method="POST", more="Content-Length: 100000000\r\n"))
        assert await answered(reader) == 401
        assert not reader.at_eof()
        closed = asyncio.create_task(ended(reader))
        while not closed.done():
            writer.write(b" ")
            await asyncio.sleep(0.02)
        await closed

    on_socket(test, limits=ConnectionLimits(linger_s=0.2))


def test_a_body_that_ends_after_its_answer_does_not_end_the_connection():
    async def test(service, address, app):
        reader, writer = await opened(address)
        for _ in range(2):
            writer.write(head("/api/v1/jobs", method="POST", more="Content-Length: 3\r\n"))
            assert await answered(reader) == 401
            writer.write(b"{} ")
            await asyncio.sleep(0.3)
        writer.write(head("/healthz"))
        assert await answered(reader) == 200
        writer.close()

    on_socket(test, limits=ConnectionLimits(linger_s=0.2))


@pytest.fixture
def kept(monkeypatch):
    """The connections of each controller that a test serves."""
    made = []

    class Watched(server.Connections):
        def __init__(self, limits):
            super().__init__(limits)
            made.append(self)

    monkeypatch.setattr(server, "Connections", Watched)
    return made


def test_nothing_is_kept_of_handshakes_that_failed(kept, tmp_path):
    made = own_certificates(tmp_path / "tls", ["127.0.0.1"])

    async def test(service, address, app):
        for text in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01"):
            _, writer = await opened(address)
            writer.write(text)
            await asyncio.sleep(0.05)
            writer.close()
        await until(lambda: not kept[0].strangers, "nothing is kept")

    on_socket(test, limits=PATIENT, certificates=made)


@pytest.mark.parametrize("secure", [False, True])
def test_memory_of_connections_that_are_closed_waits_for_no_collector(secure, tmp_path):
    made = own_certificates(tmp_path / "tls", ["127.0.0.1"])
    trust = ssl.create_default_context(cafile=str(made.authority)) if secure else None

    def left():
        return sum(type(each) in {Http, Tls} for each in gc.get_objects())

    async def test(service, address, app):
        opening = [asyncio.open_connection(address.host, address.port, ssl=trust) for _ in range(PATIENT.strangers)]
        strangers = await asyncio.gather(*opening)
        assert left() >= PATIENT.strangers
        # Half of these, too, are closed to make room, and the rest by their clients.
        silent = await opened(address, 2 * PATIENT.strangers)
        for reader, _ in (*strangers, *silent[: PATIENT.strangers]):
            await ended(reader)
        for _, writer in silent:
            writer.close()
        await until(lambda: left() == 0, "nothing is left")

    gc.collect()
    gc.disable()
    try:
        on_socket(test, limits=PATIENT, certificates=made if secure else None)
    finally:
        gc.enable()


def test_nothing_is_kept_of_connections_that_are_gone(kept):
    async def test(service, address, app):
        secret = service.token("wall", "viewer")
        for text in (b"", b"GET", head("/healthz"), head("/api/v1/me", secret), head("/api/v1/changes", secret)):
            _, writer = await opened(address)
            writer.write(text)
            await asyncio.sleep(0.05)
            writer.close()
        url = f"ws://{address.host}:{address.port}/agent/v1"
        async with connect(url, additional_headers=bearer(service.token("agents", "agent"))) as agent:
            await introduced(agent)
            assert not kept[0].strangers
        await until(lambda: not kept[0].strangers and not kept[0].idle, "nothing is kept")

    on_socket(test, limits=PATIENT)
