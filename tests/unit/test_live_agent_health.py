"""When an agent tests its node, and what it says of that to the controller."""

import asyncio
import threading
import time

from dfrs.live.agent.agent import Agent
from dfrs.live.agent.health import Health
from dfrs.live.drivers.base import NO_JOB, NotYetError, TaskState
from dfrs.live.drivers.self_test import SelfTestStoppedError
from dfrs.live.protocol.wire import UNDER_WAY
from tests.live_fakes import PATIENCE_S, FakeDriver, desired, fake_controller, task_id, task_spec
from tests.unit.test_live_agent import agent_settings, eventually

OURS = task_id(NO_JOB)


class Verdicts:
    """A test that says one thing after the other, then the last of them for ever."""

    def __init__(self, *said):
        self.said, self.asked = list(said), 0

    def __call__(self, _stopped):
        self.asked += 1
        one = self.said.pop(0) if len(self.said) > 1 else self.said[0]
        if isinstance(one, Exception):
            raise one
        return one


async def over(task):
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_a_test_is_repeated_only_as_long_as_it_fails():
    async def live():
        test = Verdicts("no pause", ValueError("a bug\nof the driver"), NotYetError("full"), "")
        health, seen = Health(test, first_s=0.05, last_s=0.2), []
        assert health.problem == UNDER_WAY
        running = asyncio.create_task(health.run())
        while not seen or seen[-1]:
            if seen[-1:] != [health.problem]:
                seen.append(health.problem)
            await asyncio.sleep(0.005)
        assert seen == [UNDER_WAY, "no pause", "self-test failed: a bug of the driver", ""]
        await asyncio.sleep(0.5)
        assert test.asked == 4
        assert not running.done()
        await over(running)

    asyncio.run(live())


def test_a_node_whose_memory_others_have_is_taken_for_a_sound_one():
    async def live():
        health = Health(Verdicts(NotYetError("full")))
        running = asyncio.create_task(health.run())
        async with asyncio.timeout(PATIENCE_S):
            await health.tested.wait()
        assert health.problem == ""
        await over(running)

    asyncio.run(live())


def test_an_agent_that_ends_waits_for_its_test_to_end():
    async def live():
        ended = threading.Event()

        def test(stopped):
            stopped.wait(PATIENCE_S)
            time.sleep(0.2)
            ended.set()
            raise SelfTestStoppedError("stopped")

        running = asyncio.create_task(Health(test).run())
        await asyncio.sleep(0.1)
        await over(running)
        assert ended.is_set()

    asyncio.run(live())


def test_the_controller_hears_it_with_the_hello_and_then_with_reports():
    async def live():
        driver, test = FakeDriver(), Verdicts("no pause", "")
        # As if an agent had been killed in the middle of a test.
        driver.start(OURS, task_spec(), 0.5)
        async with fake_controller() as controller:
            agent = Agent(driver, agent_settings(controller), Health(test, first_s=1.0))
            task = asyncio.create_task(agent.run())
            talk = await controller.accept()
            assert (talk.hello.problem, talk.hello.tasks) == ("no pause", ())
            await talk.welcome(desired(TaskState.RUNNING, 1))
            report = await talk.report(lambda report: report.samples)
            assert (report.problem, [sample.task for sample in report.samples]) == ("no pause", [task_id()])
            assert not (await talk.report(lambda report: not report.problem)).problem
            # It is no task of any job: nobody stops it because the controller did not name it.
            assert OURS in driver.here
            assert OURS not in talk.statuses
            assert {which for method, which in driver.calls if method in {"stop", "forget"}} == set()
            agent.stop()
            await task

    asyncio.run(live())


def test_hello_waits_for_the_test_but_not_for_ever(monkeypatch):
    monkeypatch.setattr("dfrs.live.agent.agent.TESTED_S", 0.3)

    async def live():
        go = threading.Event()

        def test(stopped):
            while not go.wait(0.01):
                if stopped.is_set():
                    raise SelfTestStoppedError("stopped")
            return ""

        async with fake_controller() as controller:
            agent = Agent(FakeDriver(), agent_settings(controller), Health(test))
            task = asyncio.create_task(agent.run())
            talk = await controller.accept()
            assert talk.hello.problem == UNDER_WAY
            await talk.welcome()
            go.set()
            await talk.report(lambda report: not report.problem)
            agent.stop()
            await task

    asyncio.run(live())


def test_a_start_that_waits_for_others_is_no_failure():
    async def live():
        driver = FakeDriver()
        driver.fail("start", NotYetError("waits until others have left"), times=3)
        async with fake_controller() as controller:
            agent = Agent(driver, agent_settings(controller))
            task = asyncio.create_task(agent.run())
            talk = await controller.accept()
            await talk.welcome(desired(TaskState.RUNNING, 1))
            status = await talk.status(error="waits until others have left")
            assert status.waits
            await eventually(lambda: driver.here)
            status = await talk.status(state=TaskState.RUNNING)
            assert not status.waits
            driver.fail("pause", times=1000)
            await talk.desire(desired(TaskState.PAUSED, 2))
            status = await talk.status(error="pause: pause is broken: mend it")
            assert not status.waits
            agent.stop()
            await task

    asyncio.run(live())
