"""The API on a real socket: changes as they come, TLS by its own authority, an end that waits for nobody, its files."""

import asyncio
import json
import os
import signal
import socket
import ssl
import time
from contextlib import asynccontextmanager

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from dfrs.live.api.certificates import own_certificates
from dfrs.live.api.server import Address, bind, read_address
from dfrs.live.home import TLS, leave_files, lock, make_private
from dfrs.live.protocol.resources import JobRequest
from dfrs.model.errors import DfrsError, InputError
from tests.live_http import PATIENCE_S, bearer, served, until
from tests.live_service import FakeService
from tests.unit.test_live_api_agents import introduced

STOP_S = 3.0


def run(test):
    async def limited():
        async with asyncio.timeout(2 * PATIENCE_S):
            await test()

    asyncio.run(limited())


@asynccontextmanager
async def viewed(service):
    """Its app, served, and a client for somebody who may only look."""
    async with served(service) as (address, app, _):
        headers = bearer(service.token("wall", "viewer"))
        async with httpx.AsyncClient(base_url=address.url(tls=False), headers=headers) as client:
            yield app, client


async def events(answer):
    """Sequence numbers of change events."""
    async for line in answer.aiter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))["sequence"]


def test_changes_come_as_they_happen_and_nobody_is_left_watching():
    async def test():
        service = FakeService()
        async with viewed(service) as (app, client):
            async with client.stream("GET", "/api/v1/changes") as answer:
                assert answer.headers["content-type"].startswith("text/event-stream")
                assert "content-length" not in answer.headers
                seen = events(answer)
                assert await anext(seen) == 0
                for number in (1, 2):
                    await service.submit(JobRequest(command=("true",)), "alice", "alice")
                    assert await anext(seen) == number
                assert (service.watchers, app.state.meters.watchers._value.get()) == (1, 1)
            await until(lambda: service.watchers == 0, "nobody watches")
            assert app.state.meters.watchers._value.get() == 0

    run(test)


def test_changes_end_when_the_token_does():
    async def test():
        service = FakeService()
        async with (
            viewed(service) as (_, client),
            client.stream("GET", "/api/v1/changes") as answer,
        ):
            seen = events(answer)
            await anext(seen)
            await service.revoke_token(1, "root")
            service.tell()
            with pytest.raises(StopAsyncIteration):
                await anext(seen)

    run(test)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_soon_with_streams_and_agents_open(number):
    async def test():
        service = FakeService()
        stopped = []

        async def stop():
            stopped.append(time.monotonic())

        service.stop = stop
        async with served(service) as (address, _, task):
            headers = bearer(service.token("wall", "viewer"))
            client = httpx.AsyncClient(base_url=address.url(tls=False), headers=headers)
            url = f"ws://127.0.0.1:{address.port}/agent/v1"
            agent = await connect(url, additional_headers=bearer(service.token("agents", "agent")))
            await introduced(agent)
            async with client.stream("GET", "/api/v1/changes") as answer:
                seen = events(answer)
                await anext(seen)
                begin_s = time.monotonic()
                os.kill(os.getpid(), number)
                with pytest.raises(StopAsyncIteration):
                    await anext(seen)
                with pytest.raises(ConnectionClosed) as closed:
                    await agent.recv()
                assert closed.value.rcvd.code == 1012
                await task
                assert stopped
                assert stopped[0] - begin_s < STOP_S
            await client.aclose()
            assert not service.agents
            with pytest.raises(OSError, match="refused"):
                socket.create_connection(("127.0.0.1", address.port), timeout=5)

    run(test)


def test_a_request_under_way_is_answered_before_the_end():
    async def test():
        service = FakeService()
        go = asyncio.Event()

        async def slow(*_):
            go.set()
            await asyncio.sleep(0.5)
            return [1]

        service.submit = slow
        async with (
            served(service) as (address, _, task),
            httpx.AsyncClient(base_url=address.url(tls=False), headers=bearer(service.token("a", "user"))) as client,
        ):
            asking = asyncio.create_task(client.post("/api/v1/jobs", json={"command": ["true"]}))
            await go.wait()
            os.kill(os.getpid(), signal.SIGTERM)
            assert (await asking).status_code == 201
            await task

    run(test)


def test_tls_by_its_own_authority(tmp_path):
    made = own_certificates(tmp_path / "tls", ["localhost", "127.0.0.1"])
    context = ssl.create_default_context(cafile=str(made.authority))

    async def test():
        service = FakeService()
        async with served(service, certificates=made) as (address, _, _):
            url, admin = address.url(tls=True), bearer(service.token("root", "admin"))
            assert url.startswith("https://127.0.0.1:")
            async with httpx.AsyncClient(verify=context, base_url=url, headers=admin) as client:
                assert (await client.get("/api/v1/me")).json() == {"user": "root", "role": "admin"}
            async with httpx.AsyncClient(base_url=url) as stranger:
                with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                    await stranger.get("/healthz")
            async with httpx.AsyncClient(base_url=address.url(tls=False)) as plain:
                with pytest.raises(httpx.HTTPError):
                    await plain.get("/healthz")
            agent = bearer(service.token("agents", "agent"))
            async with connect(f"wss{url[5:]}/agent/v1", ssl=context, additional_headers=agent) as link:
                await introduced(link)

    run(test)


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"200"),
        (b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n", b"40"),
        (b"GET /%ff%fe HTTP/1.1\r\nHost: x\r\n\r\n", b"404"),
        (b"GET /api/v1/jobs/%ED%A0%80 HTTP/1.1\r\nHost: x\r\n\r\n", b"401"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\xfe\r\n\r\n", b"200"),
        (b"GET /api/v1/me HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\xfe\r\n\r\n", b"401"),
        (b"GET /api/v1/me HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + b"a" * 9000 + b"\r\n\r\n", b"401"),
        (b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n", b"4"),
        (b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"4"),
        (b"GET /agent/v1 HTTP/1.1\r\nHost: x\r\n\r\n", b"404"),
        (b"GET /agent/v1 HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", b"4"),
    ],
)
def test_what_no_client_library_would_send(raw, status):
    async def test():
        async with served(FakeService()) as (address, _, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
            writer.write(raw)
            answer = await reader.readline()
            assert answer.split()[1].startswith(status), answer
            writer.close()

    run(test)


@pytest.mark.parametrize(
    ("text", "host", "port", "loopback"),
    [
        ("127.0.0.1:7070", "127.0.0.1", 7070, True),
        ("[::1]:0", "::1", 0, True),
        ("localhost:1", "localhost", 1, True),
        ("0.0.0.0:7070", "0.0.0.0", 7070, False),
        ("[::]:7070", "::", 7070, False),
        ("head:7070", "head", 7070, False),
        ("127.0.0.1.example:7070", "127.0.0.1.example", 7070, False),
        ("127.9.9.9:1", "127.9.9.9", 1, True),
    ],
)
def test_addresses(text, host, port, loopback):
    address = read_address(text)
    assert (address.host, address.port, address.loopback) == (host, port, loopback)


@pytest.mark.parametrize(
    "text", ["", "7070", ":7070", "a:", "a:b", "a:70000", "a:-1", "::1:7070", "[::1]", "a:٣", "[a]:1"]
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(InputError, match="HOST:PORT"):
        read_address(text)


def test_urls_as_seen_from_here():
    assert Address(host="0.0.0.0", port=1).url(tls=True) == "https://127.0.0.1:1"
    assert Address(host="::", port=1).url(tls=True) == "https://[::1]:1"
    assert Address(host="::1", port=1).url(tls=False) == "http://[::1]:1"
    assert Address(host="0.0.0.0", port=1).url(tls=True, host="head") == "https://head:1"


def test_a_port_in_use_is_one_line():
    taken, address = bind(read_address("127.0.0.1:0"))
    with taken, pytest.raises(DfrsError, match=f"cannot listen on 127.0.0.1:{address.port}: .* --listen"):
        bind(address)


def test_no_directory_but_its_own_is_touched(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    other.chmod(0o755)
    (other / "thesis.tex").touch()
    for path, why in (
        (other, "holds other things"),
        (other / "thesis.tex", "is a file"),
        (tmp_path / "open", "look into"),
    ):
        if path.name == "open":
            path.mkdir()
            path.chmod(0o755)
        before = path.stat().st_mode
        with pytest.raises(InputError, match=why):
            make_private(path)
        assert path.stat().st_mode == before
    empty, used, prepared = tmp_path / "empty", tmp_path / "used", tmp_path / "prepared"
    for path in (empty, used, prepared):
        path.mkdir(mode=0o700)
    (used / "dfrs.db").touch()
    (used / "notes").touch()
    # With the authority of another controller, before the first start.
    (prepared / TLS).mkdir(mode=0o700)
    make_private(empty)
    make_private(used)
    make_private(prepared)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has what belongs to others")
def test_what_belongs_to_another_account_is_left_alone(tmp_path):
    path = tmp_path / "theirs"
    path.mkdir(mode=0o700)
    os.chown(path, 12345, 12345)
    with pytest.raises(InputError, match="another account"):
        make_private(path)


def test_files_for_its_users_are_kept_while_good_and_private(tmp_path):
    home = tmp_path / "a" / "b"
    make_private(home)
    service = FakeService()

    def leave(url="http://127.0.0.1:1"):
        asyncio.run(leave_files(home, service, user="root", url=url, ca=None))
        client = json.loads((home / "client.json").read_text())
        return client, (home / "agent.token").read_text().strip()

    first, agent = leave()
    assert service.identify(first["token"]).role == "admin"
    assert service.identify(agent).role == "agent"
    assert home.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in home.iterdir()} == {
        "client.json": 0o600,
        "agent.token": 0o600,
    }
    assert leave("http://127.0.0.1:2") == ({**first, "url": "http://127.0.0.1:2"}, agent)
    (home / "agent.token").unlink()
    (home / "client.json").write_text("{")
    second, other = leave()
    assert (second["token"] != first["token"], other != agent) == (True, True)
    service.digests.clear()
    third, last = leave()
    assert service.identify(third["token"]).role == "admin"
    assert service.identify(last).role == "agent"


def test_one_controller_at_a_time(tmp_path):
    with lock(tmp_path), pytest.raises(InputError, match="another controller"), lock(tmp_path):
        pass
    with lock(tmp_path):
        pass
