"""Agents' connections: who is let in, what makes no sense, what is too slow, and that nothing brings it down."""

import asyncio
import json
import logging
import random
from contextlib import suppress

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from dfrs.live.api import agents
from dfrs.live.drivers.base import DriverAbilities, TaskId, TaskState
from dfrs.live.protocol import wire
from dfrs.live.protocol.observed import Sample
from dfrs.live.protocol.parts import texts
from dfrs.live.protocol.wire import Desire, Desired, Hello, ReportMessage, StatusMessage, from_agent, from_controller
from dfrs.model.errors import InputError
from tests.live_http import PATIENCE_S, bearer, served, until
from tests.live_service import FakeService
from tests.unit.test_live_api_bodies import STALL_S, full, stalls


def hello(node="node1", **changes):
    abilities = DriverAbilities(
        shares="nice",
        caps=False,
        memory_limits=False,
        pause_frees_memory=False,
        moves_on_host=False,
        measures_waiting=False,
    )
    given = {
        "protocol": wire.PROTOCOL,
        "node": node,
        "host": "here",
        "address": "127.0.0.1",
        "cpus": 2.0,
        "memory_bytes": 1 << 30,
        "abilities": abilities,
        "version": "1",
    }
    return Hello(**given | changes).model_dump_json()


def status(job=1):
    return StatusMessage(
        task=TaskId(job=job, rank=0, attempt=0), version=0, state=TaskState.RUNNING, since_s=1.0
    ).model_dump_json()


REPORT = ReportMessage(time_s=1.0).model_dump_json()


def on_socket(test, **options):
    """Run `test(service, url, token, app)` against a real server."""

    async def run():
        service = FakeService()
        async with served(service, **options) as (address, app, _):
            await test(service, f"ws://127.0.0.1:{address.port}/agent/v1", service.token("agents", "agent"), app)

    asyncio.run(run())


async def closed(socket):
    """Why the controller closed it: code and reason. Messages before are read over."""
    async with asyncio.timeout(PATIENCE_S):
        try:
            while True:
                await socket.recv()
        except ConnectionClosed as error:
            return error.rcvd.code, error.rcvd.reason


async def introduced(socket, node="node1"):
    await socket.send(hello(node))
    async with asyncio.timeout(PATIENCE_S):
        assert from_controller(await socket.recv()).kind == "welcome"


@pytest.mark.parametrize(
    ("role", "status"),
    [(None, 401), ("viewer", 403), ("user", 403), ("admin", 403), ("expired", 401), ("unknown", 401)],
)
def test_only_agents_come_in(role, status):
    async def test(service, url, _token, _app):
        match role:
            case None:
                headers = {}
            case "expired":
                headers = bearer(service.token("agents", "agent", days=-1))
            case "unknown":
                headers = bearer("dfrs_unknown")
            case _:
                headers = bearer(service.token("x", role))
        with pytest.raises(InvalidStatus) as refused:
            await connect(url, additional_headers=headers)
        assert refused.value.response.status_code == status
        assert json.loads(refused.value.response.body)["detail"]
        assert not service.attachments

    on_socket(test)


def test_where_another_engine_runs_jobs_agents_are_told_so():
    async def test(service, url, token, app):
        app.state.agent_door = None
        with pytest.raises(InvalidStatus) as refused:
            await connect(url, additional_headers=bearer(token))
        assert refused.value.response.status_code == 404
        assert "another engine runs its jobs" in json.loads(refused.value.response.body)["detail"]
        assert not service.attachments

    on_socket(test)


def test_an_agent_comes_reports_is_told_and_goes():
    async def test(service, url, token, app):
        async with connect(url, additional_headers=bearer(token), max_size=wire.MESSAGE_BYTES) as socket:
            await introduced(socket)
            await socket.send(REPORT)
            (attached,) = service.attachments
            await until(lambda: attached.received, "its report")
            wanted = Desired(task=TaskId(job=1, rank=0, attempt=0), version=1, state=TaskState.ABSENT)
            attached.link.send(Desire(tasks=(wanted,)))
            assert from_controller(await socket.recv()).tasks == (wanted,)
            assert app.state.meters.agents._value.get() == 1
        await until(lambda: attached.detached, "it is detached")
        assert not service.agents
        await until(lambda: app.state.meters.agents._value.get() == 0, "it is not counted")

    on_socket(test)


def test_a_message_of_the_longest_length_passes_and_a_longer_one_does_not():
    async def test(service, url, token, _app):
        async with connect(url, additional_headers=bearer(token)) as socket:
            await introduced(socket)
            await socket.send(REPORT + " " * (wire.AGENT_BYTES - len(REPORT)))
            await until(lambda: service.attachments[0].received, "the long one")
            with suppress(ConnectionClosed):
                await socket.send(" " * (wire.AGENT_BYTES + 1))
            assert (await closed(socket))[0] == 1009

    on_socket(test)


LARGEST = getattr(wire, "AGENT_BYTES", wire.MESSAGE_BYTES)
SAMPLE = Sample(task=TaskId(job=1, rank=0, attempt=0), cpu_s=1.0, memory_bytes=1).model_dump_json().encode()
HEAVY = {
    "samples": full(b'{"kind":"report","time_s":1,"samples":[' + SAMPLE, b"," + SAMPLE, b"]}", LARGEST),
    "samples that are none": full(b'{"kind":"report","time_s":1,"samples":[{}', b",{}", b"]}", LARGEST),
    "numbers": full(b'{"kind":"report","time_s":1,"samples":[0', b",0", b"]}", LARGEST),
    "statuses": full(b'{"kind":"hello","tasks":[' + status().encode(), b"," + status().encode(), b"]}", LARGEST),
    "lists": full(b'{"kind":"report","samples":', b"[", b"", LARGEST),
    "an unknown field": full(b"{", b'"a":1,', b'"b":1}', LARGEST),
    "unknown fields": b'{"kind":"report",%b}' % b",".join(b'"k%d":1' % k for k in range(LARGEST // 13)),
    "statuses, as many as pass": full(
        b'{"kind":"hello","tasks":[' + status().encode(), b"," + status().encode(), b"]}", 100_000
    ),
    "empty samples, as many as pass": full(b'{"kind":"report","time_s":1,"samples":[{}', b",{}", b"]}", 29_000),
    "unknown fields, as many as pass": b'{"kind":"report",%b}' % b",".join(b'"k%d":1' % k for k in range(6600)),
    "output": full(b'{"kind":"output","request":1,"data":"', b"a", b'"}', LARGEST),
    "escapes": full(b'{"kind":"output","request":1,"data":"', b"\\u001b", b'"}', LARGEST),
    "spaces": full(b'{"kind":"report","time_s":1', b" ", b"}", LARGEST),
}


@pytest.mark.parametrize("kind", HEAVY)
def test_no_message_keeps_others_waiting(kind):
    async def test(service, url, token, app):
        async with connect(url, additional_headers=bearer(token)) as socket:
            await introduced(socket)
            async with stalls() as longest:
                await socket.send(HEAVY[kind])
                await socket.send(REPORT)
                heard = service.attachments[0].received
                await until(lambda: heard and heard[-1] == from_agent(REPORT), "the next message is heard")
        print(f"{kind}: {longest[0] * 1000:.0f} ms of CPU for {len(HEAVY[kind])} bytes")
        assert longest[0] < STALL_S

    assert len(HEAVY[kind]) <= LARGEST
    on_socket(test)


def task_statuses(count, error=""):
    """Of tasks of one job each."""
    names = [TaskId(job=k, rank=0, attempt=0) for k in range(1, count + 1)]
    return tuple(
        StatusMessage(task=name, version=1, state=TaskState.RUNNING, error=error, since_s=1.0) for name in names
    )


@pytest.mark.parametrize(
    ("count", "error", "parts"), [(0, "", 0), (200, "", 0), (201, "", 1), (5000, "", 24), (300, "\x1b" * 2000, 13)]
)
def test_a_hello_of_many_tasks_comes_in_parts(count, error, parts):
    tasks = task_statuses(count, error)

    async def test(service, url, token, _app):
        said = texts(Hello.model_validate_json(hello()).model_copy(update={"tasks": tasks}))
        assert [len(said), from_agent(said[0]).parts] == [parts + 1, parts]
        assert max(map(len, said)) <= wire.AGENT_BYTES
        async with connect(url, additional_headers=bearer(token)) as socket:
            for text in said:
                await socket.send(text)
            async with asyncio.timeout(PATIENCE_S):
                assert from_controller(await socket.recv()).kind == "welcome"
            (attached,) = service.attachments
            assert (attached.hello.tasks, attached.hello.parts) == (tasks, 0)

    on_socket(test)


def test_parts_of_a_hello_that_do_not_come_or_are_none(monkeypatch):
    monkeypatch.setattr(agents, "HELLO_S", 0.2)
    first, second = texts(Hello.model_validate_json(hello()).model_copy(update={"tasks": task_statuses(201)}))

    async def test(service, url, token, _app):
        for then, words in ((REPORT, "1 parts of the hello must come first"), (None, "no hello within")):
            async with connect(url, additional_headers=bearer(token)) as socket:
                await socket.send(first)
                if then is not None:
                    await socket.send(then)
                assert words in (await closed(socket))[1]
        assert not service.attachments
        async with connect(url, additional_headers=bearer(token)) as socket:
            await socket.send(second)
            assert "the first message must be hello" in (await closed(socket))[1]

    on_socket(test)


def test_a_report_of_many_tasks_is_several():
    samples = tuple(Sample(task=each.task, cpu_s=1.0, memory_bytes=1) for each in task_statuses(450))
    said = [from_agent(text) for text in texts(ReportMessage(time_s=2.0, samples=samples, problem="none"))]
    assert [len(one.samples) for one in said] == [200, 200, 50]
    assert sum((one.samples for one in said), ()) == samples
    assert {(one.time_s, one.problem) for one in said} == {(2.0, "none")}
    assert len(texts(ReportMessage(time_s=2.0))) == 1


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (REPORT, "hello"),
        ("{", "Invalid JSON"),
        (hello(protocol=99), "protocol 99"),
        ('{"kind": "hello"}', "required"),
        ("[" * 5000, ""),
    ],
)
def test_a_first_message_that_is_no_hello_is_refused(first, words):
    async def test(service, url, token, _app):
        async with connect(url, additional_headers=bearer(token)) as socket:
            await socket.send(first)
            refused = from_controller(await socket.recv())
            assert (refused.kind, refused.retry) == ("refuse", False)
            assert words in refused.reason
            assert (await closed(socket))[0] == 1008
        assert not service.attachments

    on_socket(test)


def test_silence_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(agents, "HELLO_S", 0.05)

    async def test(service, url, token, _app):
        async with connect(url, additional_headers=bearer(token)) as socket:
            refused = from_controller(await socket.recv())
            assert (refused.kind, refused.retry) == ("refuse", True)
            assert await closed(socket) == (1013, "no hello within 0.05 s")

    on_socket(test)


def test_a_name_that_is_taken_is_refused_for_now():
    async def test(service, url, token, _app):
        async with connect(url, additional_headers=bearer(token)) as first:
            await introduced(first)
            async with connect(url, additional_headers=bearer(token)) as second:
                await second.send(hello())
                refused = from_controller(await second.recv())
                assert (refused.kind, refused.retry) == ("refuse", True)
                assert (await closed(second))[0] == 1013
            await first.send(REPORT)
            await until(lambda: service.agents["node1"].received, "the first is still heard")

    on_socket(test)


def test_what_makes_no_sense_is_counted_and_then_cut_off(caplog):
    async def test(service, url, token, app):
        async with connect(url, additional_headers=bearer(token)) as socket:
            await introduced(socket)
            for _ in range(agents.MOST_MALFORMED - 1):
                await socket.send("nonsense")
            await socket.send(REPORT)
            await until(lambda: service.attachments[0].received, "what makes sense is heard in between")
            await socket.send(hello())
            assert (await closed(socket))[0] == 1008
        await until(lambda: service.attachments[0].detached, "it is detached")
        assert app.state.meters.malformed._value.get() == agents.MOST_MALFORMED

    with caplog.at_level(logging.INFO):
        on_socket(test)
    assert not any(record.exc_info for record in caplog.records)


def test_another_s_task_closes_the_connection():
    async def test(service, url, token, _app):
        async with connect(url, additional_headers=bearer(token)) as socket:
            await introduced(socket)
            await socket.send(status(job=77))
            assert await closed(socket) == (1008, "task 77.0.0: is not a task of this node")

    on_socket(test)


def test_a_failure_of_the_controller_closes_that_connection_alone():
    async def test(service, url, token, _app):
        async with (
            connect(url, additional_headers=bearer(token)) as bad,
            connect(url, additional_headers=bearer(token)) as good,
        ):
            await introduced(bad, "bad")
            await introduced(good, "good")
            service.agents["bad"].receive = lambda _message: 1 / 0
            await bad.send(REPORT)
            assert (await closed(bad))[0] == 1011
            await good.send(REPORT)
            await until(lambda: service.agents["good"].received, "the other is heard")

    on_socket(test)


def test_a_token_that_is_revoked_ends_the_connection(monkeypatch):
    monkeypatch.setattr(agents, "RECHECK_S", 0.0)

    async def test(service, url, token, _app):
        async with connect(url, additional_headers=bearer(token)) as socket:
            await introduced(socket)
            await service.revoke_token(max(service.infos), "x")
            await socket.send(REPORT)
            assert await closed(socket) == (1008, "token: expired or revoked")

    on_socket(test)


def test_an_agent_that_takes_nothing_is_cut_off_and_others_are_not(monkeypatch):
    monkeypatch.setattr(agents, "FLUSH_S", 0.05)

    async def test(service, url, token, app):
        stuck = await connect(url, additional_headers=bearer(token))
        await introduced(stuck, "stuck")
        stuck.transport.pause_reading()
        async with connect(url, additional_headers=bearer(token)) as good:
            await introduced(good, "good")
            link = service.agents["stuck"].link
            task = TaskId(job=1, rank=0, attempt=0)
            many = Desire(tasks=tuple(Desired(task=task, version=1, state=TaskState.ABSENT) for _ in range(5000)))
            for _ in range(1000):
                link.send(many)
            await until(lambda: app.state.meters.slow._value.get() == 1, "it is found too slow")
            await until(lambda: "stuck" not in service.agents, "it is detached")
            link.send(many)
            await good.send(REPORT)
            await until(lambda: service.agents["good"].received, "the other is heard")
        stuck.transport.abort()

    on_socket(test)


def test_messages_that_wait_are_sent_before_an_orderly_end():
    async def test(service, url, token, _app):
        async with connect(url, additional_headers=bearer(token)) as socket:
            await introduced(socket)
            link = service.agents["node1"].link
            task = TaskId(job=1, rank=0, attempt=0)
            for version in range(1, 101):
                link.send(Desire(tasks=(Desired(task=task, version=version, state=TaskState.ABSENT),)))
            link.close("moved elsewhere")
            link.send(Desire(tasks=()))
            versions = [from_controller(await socket.recv()).tasks[0].version for _ in range(100)]
            assert versions == list(range(1, 101))
            assert await closed(socket) == (1013, "moved elsewhere")

    on_socket(test)


GOOD = [hello(), status(), REPORT, '{"kind":"output","request":1,"data":"aGk=","offset":0,"end":2,"error":""}']
VALUES = [
    "null",
    "true",
    "NaN",
    "Infinity",
    "-1",
    "1e999",
    "9" * 400,
    '"\\ud800"',
    '"\\u0000"',
    "[]",
    "{}",
    '""',
    "[" * 3000,
]


def malformed(chance):
    """A message that makes no sense, or hardly any."""
    text = chance.choice(GOOD)
    match chance.randrange(8):
        case 0:
            return chance.randbytes(chance.randrange(200))
        case 1:
            return text[: chance.randrange(len(text))]
        case 2:
            at = chance.randrange(len(text))
            return text[:at] + chr(chance.randrange(1, 0xD800)) + text[at + 1 :]
        case 3:
            fields = json.loads(text)
            name = chance.choice(list(fields))
            return text.replace(json.dumps(fields[name], separators=(",", ":")), chance.choice(VALUES), 1)
        case 4:
            fields = json.loads(text)
            fields.pop(chance.choice(list(fields)))
            return json.dumps(fields)
        case 5:
            depth = chance.choice([10, 300, 5000])
            return '{"kind":' + '{"a":[' * depth
        case 6:
            return json.dumps(
                json.loads(text) | {"kind": chance.choice(["hello", "status", "report", "welcome", "", 7, None])}
            )
        case _:
            return (
                f'{{"kind":"report","time_s":{chance.choice(VALUES)},"samples":[{{"task":{chance.choice(VALUES)}}}]}}'
            )


def test_a_hundred_thousand_malformed_messages_are_refused_in_one_line_each():
    chance = random.Random(7)
    said = []
    for _ in range(100_000):
        try:
            from_agent(malformed(chance))
        except InputError as error:
            said.append(str(error))
    assert len(said) > 80_000
    assert not any("\n" in words or len(words) > 1000 for words in said)


def test_a_flood_of_them_on_real_connections_leaves_good_agents_alone(caplog):
    chance = random.Random(8)

    async def flood(url, token, name, count):
        sent = 0
        while sent < count:
            async with connect(url, additional_headers=bearer(token)) as socket:
                try:
                    if chance.random() < 0.9:
                        await socket.send(hello(name))
                    for _ in range(30):
                        sent += 1
                        await socket.send(malformed(chance))
                    if chance.random() < 0.2:
                        await socket.send([b"\xff\xfe", b"\x00"], text=True)
                except ConnectionClosed:
                    continue

    async def test(service, url, token, app):
        async with connect(url, additional_headers=bearer(token)) as good:
            await introduced(good, "good")
            await asyncio.gather(*(flood(url, token, f"bad{k}", 1000) for k in range(4)))
            await good.send(REPORT)
            await until(lambda: service.agents["good"].received, "the good one is heard")
            await until(lambda: set(service.agents) == {"good"}, "all bad ones are detached")
            assert app.state.meters.malformed._value.get() > 500
        assert all(attached.detached for attached in service.attachments if attached.hello.node != "good")

    with caplog.at_level(logging.INFO):
        on_socket(test)
    assert not any(record.exc_info for record in caplog.records)
    assert len(caplog.records) < 2000
