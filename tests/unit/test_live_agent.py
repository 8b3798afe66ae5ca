"""An agent and a controller that says what the test wants: connecting, obeying, reporting, losing each other."""

import asyncio
import base64
import time
from contextlib import asynccontextmanager, suppress

import pytest
from structlog.testing import capture_logs

from dfrs.live.agent.agent import Agent, AgentRefusedError, AgentSettings, only_agent
from dfrs.live.agent.connection import Outbox, Server, first_of
from dfrs.live.drivers.base import ExitKind, TaskState
from dfrs.live.protocol.wire import Output, Read, Refuse, ReportMessage
from dfrs.model.errors import InputError
from tests.live_fakes import PATIENCE_S, FakeDriver, Wire, desired, fake_controller, task_id, task_spec

ABSENT, RUNNING, PAUSED, EXITED = TaskState.ABSENT, TaskState.RUNNING, TaskState.PAUSED, TaskState.EXITED
ONE, TWO = task_id(1), task_id(2)


def agent_settings(controller, **changed):
    values = {
        "server": Server(url=controller.url, token=controller.token),
        "node": "n0",
        "host": "h",
        "cpus": 2.0,
        "memory_bytes": 1 << 30,
        "version": "1",
        "first_retry_s": 0.02,
        "last_retry_s": 0.1,
    }
    return AgentSettings(**values | changed)


@asynccontextmanager
async def running(driver, settings):
    agent = Agent(driver, settings)
    task = asyncio.create_task(agent.run())
    try:
        yield agent
        assert not task.done(), task
    finally:
        agent.stop()
        with suppress(AgentRefusedError):
            async with asyncio.timeout(PATIENCE_S):
                await task


@asynccontextmanager
async def met(driver=None, **changed):
    """(driver, controller, first conversation after hello)."""
    driver = driver or FakeDriver()
    async with fake_controller() as controller, running(driver, agent_settings(controller, **changed)):
        yield driver, controller, await controller.accept()


async def eventually(condition):
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


def test_it_says_who_it_is_and_does_what_it_is_told():
    async def live():
        async with met() as (driver, controller, talk):
            hello = talk.hello
            assert (hello.node, hello.host, hello.cpus, hello.memory_bytes) == ("n0", "h", 2.0, 1 << 30)
            assert (hello.address, hello.tasks) == ("127.0.0.1", ())
            assert hello.abilities == driver.abilities
            await talk.welcome(desired(RUNNING, 1))
            await talk.status(state=RUNNING, version=1)
            await talk.desire(desired(PAUSED, 2), desired(RUNNING, 1, TWO))
            await talk.status(state=PAUSED, version=2)
            await talk.status(TWO, state=RUNNING, version=1)
            report = await talk.report(lambda report: len(report.samples) == 2)
            assert {sample.task for sample in report.samples} == {ONE, TWO}
            driver.finish(TWO, code=3)
            status = await talk.status(TWO, state=EXITED)
            assert status.exit.code == 3
            assert time.time() - 60 < status.since_s <= time.time()
            assert controller.connections == 1

    asyncio.run(live())


def test_an_end_is_noticed_soon():
    async def live():
        async with met() as (driver, _, talk):
            await talk.welcome(desired(RUNNING, 1), report_s=60)
            await talk.status(state=RUNNING)
            took_s = []
            for version in (2, 3, 4):
                task = task_id(version)
                await talk.desire(desired(RUNNING, 1, task))
                await talk.status(task, state=RUNNING)
                driver.finish(task)
                began = time.monotonic()
                await talk.status(task, state=EXITED)
                took_s.append(time.monotonic() - began)
            # Long before the next report is due.
            assert min(took_s) < 6

    asyncio.run(live())


def test_use_is_told_when_shares_have_changed():
    async def live():
        async with met() as (_, _, talk):
            await talk.welcome(desired(RUNNING, 1, share=0.5), report_s=60)
            await talk.status(state=RUNNING)
            await talk.report(lambda report: len(report.samples) == 1)
            for version, share in ((2, 0.25), (3, 0.75)):
                await talk.desire(desired(RUNNING, version, share=share))
                await talk.status(state=RUNNING, version=version)
                await talk.report(lambda report: len(report.samples) == 1)

    asyncio.run(live())


def test_what_happens_while_the_controller_is_away_is_told_when_it_is_back():
    async def live():
        async with met() as (driver, controller, talk):
            await talk.welcome(desired(RUNNING, 4), desired(RUNNING, 1, TWO))
            await talk.status(state=RUNNING, version=4)
            await talk.status(TWO, state=RUNNING)
            await controller.stop()
            driver.finish(ONE, code=5)
            await asyncio.sleep(0.3)
            assert driver.here[TWO].state is RUNNING
            await controller.start()
            again = await controller.accept()
            told = {status.task: status for status in again.hello.tasks}
            assert (told[ONE].state, told[ONE].exit.code, told[ONE].version) == (EXITED, 5, 4)
            assert told[TWO].state is RUNNING
            # It knows of the first one's end, and has given up the second meanwhile.
            await again.welcome(desired(ABSENT, 5))
            await again.status(ONE, state=ABSENT, version=5)
            await again.status(TWO, state=ABSENT)
            assert driver.here == {}

    asyncio.run(live())


def test_a_new_agent_finds_what_another_left():
    async def live():
        driver = FakeDriver()
        driver.start(ONE, task_spec(), 0.5)
        driver.start(TWO, task_spec(), 0.5)
        driver.finish(TWO)
        async with met(driver) as (_, _, talk):
            told = {status.task: (status.state, status.version) for status in talk.hello.tasks}
            assert told == {ONE: (RUNNING, 0), TWO: (EXITED, 0)}
            await talk.welcome(desired(RUNNING, 3, share=0.7), desired(RUNNING, 3, TWO))
            await talk.status(ONE, state=RUNNING, version=3)
            await talk.status(TWO, state=EXITED, version=3)
            assert driver.here[ONE].share == 0.7
            await talk.report()
        assert talk.socket.close_code == 1001
        assert driver.here[ONE].state is RUNNING
        assert not driver.closed

    asyncio.run(live())


def test_a_cut_line_is_noticed_and_tasks_run_on():
    async def live():
        driver = FakeDriver()
        async with fake_controller() as controller, Wire(controller._port) as line:
            server = Server(url=line.url, token=controller.token)
            async with running(driver, agent_settings(controller, server=server, ping_s=0.2, open_s=0.5)):
                talk = await controller.accept()
                await talk.welcome(desired(RUNNING, 1))
                await talk.status(state=RUNNING)
                line.cut = True
                await asyncio.sleep(0.1)
                driver.write(ONE, b"still here")
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.6):
                        await controller.accept()
                line.cut = False
                talk = await controller.accept()
                assert [status.state for status in talk.hello.tasks] == [RUNNING]

    asyncio.run(live())


def test_a_new_hello_says_the_highest_version_that_was_heard():
    """Also of a task that is gone: by that a controller knows that its database is an older copy."""

    async def live():
        async with met() as (_, controller, talk):
            assert talk.hello.told == 0
            await talk.welcome(desired(RUNNING, 3), desired(RUNNING, 7, TWO))
            await talk.desire(desired(ABSENT, 9, TWO), desired(RUNNING, 4))
            await talk.status(TWO, state=ABSENT, version=9)
            await talk.socket.close()
            assert (await controller.accept()).hello.told == 9

    asyncio.run(live())


def test_nonsense_is_passed_over():
    async def live():
        with capture_logs() as logged:
            async with met() as (_, controller, talk):
                await talk.welcome(desired(RUNNING, 1))
                await talk.status(state=RUNNING)
                nonsense = (
                    "",
                    "{",
                    "[]",
                    "null",
                    '{"kind": "desire"}',
                    '{"kind": "hello"}',
                    b"\xff\x00",
                    '{"kind": 7}',
                    '{"kind": "desire", "tasks": [{"task": {"job": 0, "rank": 0, "attempt": 0}}]}',
                    '{"kind":"welcome","report_s":NaN,"desired":[]}',
                )
                for text in nonsense:
                    await talk.say(text)
                await talk.desire(desired(PAUSED, 2))
                await talk.status(state=PAUSED, version=2)
                assert controller.connections == 1
        assert sum(entry["event"] == "message of the controller ignored" for entry in logged) == len(nonsense)

    asyncio.run(live())


@pytest.mark.parametrize("first", ["nonsense", Refuse(reason="later", retry=True), Output(request=1)])
def test_a_bad_first_message_leads_to_a_new_connection(first):
    async def live():
        async with met() as (_, controller, talk):
            await talk.say(first)
            again = await controller.accept()
            await again.welcome(desired(RUNNING, 1))
            await again.status(state=RUNNING)

    asyncio.run(live())


def test_it_ends_when_the_controller_does_not_want_it():
    async def live():
        async with fake_controller() as controller:
            task = asyncio.create_task(Agent(FakeDriver(), agent_settings(controller)).run())
            again = await controller.accept()
            await again.say(Refuse(reason="there are enough nodes", retry=False))
            with pytest.raises(AgentRefusedError, match="n0: there are enough nodes"):
                async with asyncio.timeout(PATIENCE_S):
                    await task

    asyncio.run(live())


def test_output_comes_in_pieces():
    async def live():
        async with met() as (driver, _, talk):
            await talk.welcome(desired(RUNNING, 1))
            await talk.status(state=RUNNING)
            text = bytes(range(256)) * 20
            driver.write(ONE, text)
            got, request = b"", 0
            while len(got) < len(text):
                request += 1
                await talk.say(Read(request=request, task=ONE, stream="out", offset=len(got), limit=1000))
                answer = await answer_to(talk, request)
                assert (answer.error, answer.offset, answer.end) == ("", len(got), len(text))
                got += base64.b64decode(answer.data)
            assert got == text
            assert request == 6
            await talk.say(Read(request=99, task=TWO, stream="err", offset=0, limit=10))
            assert "not on this node" in (await answer_to(talk, 99)).error
            driver.fail("output", ValueError("a bug"))
            await talk.say(Read(request=100, task=ONE, stream="out", offset=0, limit=10))
            assert (await answer_to(talk, 100)).error == "a bug"

    async def answer_to(talk, request):
        found = []

        def came():
            found[:] = [m for m in talk.heard if isinstance(m, Output) and m.request == request]
            return found

        await talk.until(came)
        return found[0]

    asyncio.run(live())


def test_an_answer_to_a_question_of_an_old_connection_is_dropped():
    async def live():
        async with met() as (driver, controller, talk):
            await talk.welcome(desired(RUNNING, 1))
            await talk.status(state=RUNNING)
            gate = driver.block("output")
            await talk.say(Read(request=1, task=ONE, stream="out", offset=0, limit=10))
            await eventually(lambda: ("output", ONE) in driver.calls)
            await talk.socket.close()
            again = await controller.accept()
            await again.welcome(desired(RUNNING, 1))
            gate.set()
            await again.desire(desired(PAUSED, 2))
            await again.status(state=PAUSED)
            await again.report()
            assert not any(isinstance(message, Output) for message in again.heard)

    asyncio.run(live())


def test_a_connection_that_ends_just_as_shares_have_changed_has_ended():
    async def live():
        controller = type("", (), {"url": "http://127.0.0.1:1", "token": "t"})
        agent = Agent(FakeDriver(), agent_settings(controller))

        async def end():
            # What it says first is said: it waits for changes.
            await eventually(lambda: agent._outbox._report is not None)
            await asyncio.sleep(0.01)
            agent._reconciler.shared.set()

        async with asyncio.timeout(PATIENCE_S):
            await first_of(agent._report(3600.0), end())
        agent._readers.shutdown()

    asyncio.run(live())


def test_reports_go_on_when_the_host_does_not_answer():
    async def live():
        async with met() as (driver, _, talk):
            await talk.welcome(desired(RUNNING, 1))
            await talk.report(lambda report: len(report.samples) == 1)
            gate = driver.block("usage")
            await talk.report(lambda report: not report.samples)
            gate.set()
            await talk.report(lambda report: len(report.samples) == 1)
            driver.fail("usage", OSError("unreadable"))
            await talk.report(lambda report: not report.samples)
            await talk.report(lambda report: len(report.samples) == 1)

    asyncio.run(live())


def test_statuses_are_repeated():
    async def live():
        async with met(tell_again_s=0.1) as (_, _, talk):
            await talk.welcome(desired(RUNNING, 1))
            await talk.status(state=RUNNING)
            talk.statuses.clear()
            await talk.status(state=RUNNING, version=1)

    asyncio.run(live())


def test_a_fence_stops_tasks_when_the_controller_is_away_too_long():
    async def live():
        driver = FakeDriver()
        async with met(driver, fence_s=1.5, ping_s=0.1) as (_, controller, talk):
            await talk.welcome(desired(RUNNING, 1), report_s=60)
            await talk.status(state=RUNNING)
            # Answers to pings are contact enough.
            await asyncio.sleep(1.8)
            assert driver.here[ONE].state is RUNNING
            await controller.stop()
            await eventually(lambda: driver.here[ONE].exit is not None)
            await controller.start()
            again = await controller.accept()
            assert again.hello.tasks[0].exit.kind is ExitKind.STOPPED
            await again.welcome(desired(ABSENT, 2), desired(RUNNING, 1, task_id(1, 0, 1)))
            await again.status(ONE, state=ABSENT)
            await again.status(task_id(1, 0, 1), state=RUNNING)

    asyncio.run(live())


def test_a_wrong_token_is_said_and_tried_again():
    async def live():
        with capture_logs() as logged:
            async with fake_controller() as controller:
                wrong = Server(url=controller.url, token="not-the-secret")
                async with running(FakeDriver(), agent_settings(controller, server=wrong)):
                    await eventually(lambda: controller.connections > 3)
        lines = [entry for entry in logged if entry["event"] == "not connected; trying again"]
        assert len(lines) == 1
        assert "who are you?" in lines[0]["why"]
        assert "not-the-secret" not in str(logged) + repr(wrong)

    asyncio.run(live())


def test_only_the_latest_waits_to_be_sent():
    async def live():
        outbox = Outbox()
        for number in range(1000):
            outbox.put(ReportMessage(time_s=number))
        assert [message.time_s for message in outbox._take()] == [999]
        assert outbox._take() == []

    asyncio.run(live())


@pytest.mark.parametrize("url", ["", "n0:70", "ftp://n0", "http://", "http://n0:x", "http://u:p@n0", "http://n0/x?y=1"])
def test_addresses_that_are_none(url):
    with pytest.raises(InputError, match="must be http://HOST:PORT"):
        Server(url=url, token="t").trust()


def test_settings_that_cannot_be(tmp_path):
    def agent(**changed):
        controller = type("", (), {"url": "http://127.0.0.1:1", "token": "t"})
        return Agent(FakeDriver(), agent_settings(controller, **changed))

    with pytest.raises(InputError, match="name"):
        agent(node="no spaces")
    with pytest.raises(InputError, match="fence"):
        agent(fence_s=1.0)
    with pytest.raises(InputError, match="cannot be read"):
        agent(server=Server(url="https://h", token="t", ca=tmp_path / "none.pem"))
    (tmp_path / "bad.pem").write_text("no certificate")
    with pytest.raises(InputError, match="PEM"):
        agent(server=Server(url="https://h", token="t", ca=tmp_path / "bad.pem"))


def test_one_agent_a_node(tmp_path):
    root = tmp_path / "new"
    with only_agent(root, "n0"):
        with pytest.raises(InputError, match=r"another agent \(process \d+\) keeps node n0"), only_agent(root, "n0"):
            pass
        with only_agent(root, "n1"):
            pass
    with only_agent(root, "n0"):
        pass
