"""`dfrs.Client` and `dfrs.AsyncClient` against the real API in this process, with a controller that runs nothing."""

import asyncio
import inspect
import json
import os
import subprocess
import sys
import time

import httpx
import pytest
from starlette.testclient import TestClient

import dfrs
from dfrs.live.api.routes import create_app
from dfrs.live.client import Endpoint
from dfrs.live.protocol.resources import JobState, OutputPart
from tests.live_service import FakeService

URL = "http://127.0.0.1:7070"


class Service(FakeService):
    """Its jobs write four bytes at a time."""

    text = "one\ntwo\n"

    async def output(self, job, rank, piece):
        text = self.text if piece.stream == "out" else "bad\n"
        part = text[piece.offset : piece.offset + 4]
        return OutputPart(
            text=part,
            offset=piece.offset,
            next_offset=piece.offset + len(part),
            ended=piece.offset + len(part) == len(text),
        )

    def change(self, job, **fields):
        self.by_id[job] = self.by_id[job].model_copy(update=fields)


@pytest.fixture
def service():
    return Service()


@pytest.fixture
def transport(service):
    return TestClient(create_app(service, page=None))._transport


@pytest.fixture
def place(service, monkeypatch, tmp_path):
    """A state directory with a client file, which names a cluster and a token of ann."""
    (tmp_path / "client.json").write_text(json.dumps({"url": URL, "token": service.token("ann", "user")}))
    monkeypatch.setenv("DFRS_STATE", str(tmp_path))
    for name in ("DFRS_SERVER", "DFRS_TOKEN_FILE", "DFRS_CA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def client(place, transport):
    with dfrs.Client(transport=transport) as client:
        yield client


def test_it_finds_the_cluster_as_the_command_line_does(client, place, transport, service, monkeypatch):
    assert (client.url, client.me()["user"]) == (URL, "ann")
    assert repr(client) == f"Client('{URL}')"
    bob = service.token("bob", "user")
    with dfrs.Client(token=bob, transport=transport) as other:
        assert other.me()["user"] == "bob"
        assert bob not in repr(other)
    with dfrs.Client("http://127.0.0.1:9", bob, transport=transport) as other:
        assert (other.url, other.me()["user"]) == ("http://127.0.0.1:9", "bob")
    with dfrs.Client("http://127.0.0.1:9", transport=transport) as other, pytest.raises(dfrs.DeniedError):
        other.me()
    (place / "bob.token").write_text(bob)
    monkeypatch.setenv("DFRS_TOKEN_FILE", str(place / "bob.token"))
    with dfrs.Client(transport=transport) as other:
        assert other.me()["user"] == "bob"
    (place / "client.json").unlink()
    with pytest.raises(dfrs.UnreachableError, match="dfrs up"):
        dfrs.Client()
    with pytest.raises(dfrs.InputError, match="token: must be one token"):
        dfrs.Client(URL, "two words")


def test_a_command_is_submitted_as_by_the_verb(client, service, dfrs, transport, monkeypatch):
    monkeypatch.setenv("SECRET", "hunter2")
    assert client.submit(["./prog", 7], cpu_cores=0.5, memory_bytes=1 << 29, environment={"A": "1"}) == [1]
    monkeypatch.setattr("dfrs.cli.live.cluster.connected", _connected(client))
    assert dfrs("submit", "--cpu", 0.5, "--memory", "512M", "--env", "A=1", "./prog", 7)[0] == 0
    ours, verbs = service.requests
    assert ours == verbs
    assert (ours.name, ours.directory, ours.environment["A"]) == ("prog", os.getcwd(), "1")
    assert "SECRET" not in ours.environment
    assert client.submit(["x"], array=3) == [3, 4, 5]


def _connected(client):
    class Connected:
        def __init__(self, *_):
            pass

        def __enter__(self):
            return client

        def __exit__(self, *_):
            pass

    return Connected


def test_a_request_is_sent_as_it_is(client, service):
    assert client.submit(dfrs.JobRequest(command=("true",), tasks=2)) == [1]
    assert (service.requests[0].directory, service.requests[0].environment) == ("/", {})
    with pytest.raises(dfrs.InputError, match="tasks: is a field of the request"):
        client.submit(dfrs.JobRequest(command=("true",)), tasks=2)


@pytest.mark.parametrize(
    ("command", "fields", "words"),
    [
        ("sleep 60", {}, "command 'sleep 60': must be a list"),
        ([], {}, "must be a list of the program"),
        (["x"], {"cpu_cores": -1}, "cpu_cores -1: input should be greater than 0"),
        (["x"], {"memory": 1}, "memory 1: extra inputs are not permitted"),
        (["x"], {"name": "a\x1b"}, "name 'a\\x1b': must be 1 to 128 printable characters"),
        (["x", "se\0cret"], {}, "command: must be a program and its arguments without NUL"),
        (["x"], {"environment": {"DFRS_A": "secret"}}, "'DFRS_A': must be a variable's name"),
    ],
)
def test_what_cannot_be_submitted_is_one_line_without_what_may_be_secret(client, command, fields, words):
    with pytest.raises(dfrs.InputError) as caught:
        client.submit(command, **fields)
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, dfrs.InputError),
        (401, dfrs.DeniedError),
        (403, dfrs.DeniedError),
        (404, dfrs.NotFoundError),
        (409, dfrs.ConflictError),
        (422, dfrs.InputError),
        (429, dfrs.TooManyError),
        (500, dfrs.DfrsError),
        (503, dfrs.UnavailableError),
        (504, dfrs.UnreachableError),
    ],
)
def test_each_refusal_is_of_one_kind_with_the_controllers_words(place, status, kind):
    answers = httpx.MockTransport(lambda _: httpx.Response(status, json={"detail": "because of\nthis"}))
    with dfrs.Client(transport=answers) as client, pytest.raises(dfrs.DfrsError) as caught:
        client.cancel(1)
    assert type(caught.value) is kind
    assert "because of this" in str(caught.value)


def test_waiting_ends_with_the_last_job(client, service, monkeypatch):
    jobs = client.submit(["x"], array=2)
    ends = iter(jobs)
    monkeypatch.setattr(time, "sleep", lambda _: service.change(next(ends), state=JobState.DONE, exit="status 0"))
    assert [job.state for job in client.wait(*jobs)] == ["done", "done"]
    assert next(ends, None) is None
    assert client.wait() == []


def test_waiting_ends_after_its_time(client, monkeypatch):
    (job,) = client.submit(["x"])
    with pytest.raises(dfrs.NotEndedError, match=r"job 1: has not ended after 0.2 s: it is waiting"):
        client.wait(job, timeout_s=0.2)
    with pytest.raises(TimeoutError):
        client.wait(job, timeout_s=0)


def test_waiting_outlasts_a_controller_that_starts_again(place, transport, client, service, monkeypatch):
    (job,) = client.submit(["x"])
    service.change(job, state=JobState.DONE)
    refusals = iter([True, True])

    def flaky(request):
        if next(refusals, False):
            raise httpx.ConnectError("refused")
        return transport.handle_request(request)

    monkeypatch.setattr(time, "sleep", lambda _: None)
    with dfrs.Client(transport=httpx.MockTransport(flaky)) as other:
        assert other.wait(job)[0].state == "done"
        refusals = iter([True])
        with pytest.raises(dfrs.UnreachableError):
            other.wait(job, patience_s=-1)


def test_output_is_followed_from_the_start_of_the_job_to_its_end(client, service, monkeypatch):
    (job,) = client.submit(["x"])
    seen = []

    def sleep(_):
        seen.append(service.by_id[job].state)
        service.change(job, state=JobState.RUNNING)

    monkeypatch.setattr(time, "sleep", sleep)
    assert list(client.follow(job)) == ["one\n", "two\n"]
    assert seen == [JobState.WAITING]
    assert "".join(client.follow(job, stream="err")) == "bad\n"


def test_output_that_is_waited_for_may_take_as_much_longer(place, transport):
    reads = []

    def answer(request):
        reads.append(request.extensions["timeout"]["read"])
        return transport.handle_request(request)

    with dfrs.Client(transport=httpx.MockTransport(answer), timeout_s=5.0) as client:
        (job,) = client.submit(["x"])
        client.output(job, wait_s=20.0)
        client.output(job)
    assert reads == [5.0, 25.0, 5.0]


def test_a_job_that_begins_anew_is_followed_from_its_new_beginning(client, service, monkeypatch):
    (job,) = client.submit(["x"])
    service.change(job, state=JobState.RUNNING)
    plain = service.output

    async def output(job, rank, piece):
        part, attempt = await plain(job, rank, piece), service.by_id[job].attempt
        return part.model_copy(update={"attempt": attempt, "ended": part.ended and attempt == 1})

    def sleep(_):
        service.text = "three\nfour\n"
        service.change(job, attempt=1)

    service.output = output
    monkeypatch.setattr(time, "sleep", sleep)
    told = client.follow(job)
    assert [next(told), next(told)] == ["one\n", "two\n"]
    assert "".join(told) == "three\nfour\n"


def test_what_is_shown_of_resources_is_short(client, service):
    service.add_node("n1")
    (job,) = client.submit(["./count"])
    service.change(job, state=JobState.RUNNING, nodes=("n1", "n1"), yield_granted=0.5)
    assert repr(client.job(job)) == "<Job 1 'count': running on n1, yield 0.50>"
    assert repr(client.nodes()) == "[<Node 'n1': up, 0.00 of 2 cores in use, 0 tasks>]"
    assert repr(client.cluster()) == "<Cluster 'fake': FCFS, 2 cores, jobs: 1 waiting, minimum yield 0.25>"


def test_the_asynchronous_client_has_the_same_methods():
    def methods(kind):
        return {name for name, value in inspect.getmembers(kind) if callable(value) and not name.startswith("_")}

    assert methods(dfrs.AsyncClient) - {"in_thread"} == methods(dfrs.Client) - {"executor"}
    for name in methods(dfrs.Client) - {"executor"}:
        ours, theirs = (inspect.signature(getattr(kind, name)) for kind in (dfrs.AsyncClient, dfrs.Client))
        assert list(ours.parameters) == list(theirs.parameters), name
        assert inspect.getdoc(getattr(dfrs.AsyncClient, name)), name


def test_the_asynchronous_client_does_the_same(place, transport, service):
    async def story():
        async with dfrs.AsyncClient(transport=transport) as client:
            jobs = await client.submit(["x"], array=3)
            assert (await client.job(jobs[0])).state == "waiting"
            await client.cancel(jobs[0])
            with pytest.raises(dfrs.ConflictError):
                await client.cancel(jobs[0])
            assert {job.id async for job in client.all_jobs()} == {*jobs[1:]}
            waiting = asyncio.create_task(client.wait(*jobs))
            texts = []

            async def follow():
                async for text in client.follow(jobs[1]):
                    texts.append(text)  # noqa: PERF401 - piece by piece is what is tested

            following = asyncio.create_task(follow())
            await asyncio.sleep(0.05)
            assert not waiting.done()
            assert not following.done()
            for job in jobs[1:]:
                service.change(job, state=JobState.DONE)
            assert [job.state for job in await waiting] == ["cancelled", "done", "done"]
            await following
            assert texts == ["one\n", "two\n"]
            with pytest.raises(TimeoutError):
                await client.wait(*await client.submit(["x"]), timeout_s=0.1)

    asyncio.run(story())


def test_many_that_wait_hold_no_thread(place, transport, service):
    async def story():
        async with dfrs.AsyncClient(transport=transport) as client:
            jobs = await client.submit(["x"], array=20)
            waiting = [asyncio.create_task(client.wait(job)) for job in jobs]
            await asyncio.sleep(0.3)
            began_s = time.monotonic()
            await client.me()
            assert time.monotonic() - began_s < 1.0
            for job in jobs:
                service.change(job, state=JobState.DONE)
            await asyncio.gather(*waiting)

    asyncio.run(story())


def test_a_client_loads_nothing_that_computes():
    heavy = {"highspy", "llvmlite", "matplotlib", "numba", "numpy", "polars", "scipy", "sqlalchemy", "fastapi"}
    code = "import sys, dfrs; dfrs.Client('http://127.0.0.1:9'); dfrs.AsyncClient; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not heavy & set(done.stdout.split())


def test_without_the_extra_a_line_says_what_to_install():
    code = "import sys; sys.modules['httpx'] = None; import dfrs; dfrs.Client"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.endswith("dfrs.Client needs httpx, which is not installed: pip install 'dfrs[live]'")


def test_an_endpoint_is_taken_as_it_is(transport, service):
    with dfrs.Client(Endpoint(url=URL, token=service.token("eve", "viewer")), transport=transport) as client:
        assert client.me() == {"user": "eve", "role": "viewer"}
