"""What a reconciler does with messages and a driver: one end whatever the order, no lost exits, faults outlasted."""

import asyncio
import io
import threading
import time
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from dfrs.live.agent import task_reconciler as reconciler
from dfrs.live.agent.accounts import Accounts
from dfrs.live.agent.task_reconciler import TaskReconciler
from dfrs.live.drivers.base import DriverError, ExitKind, NotYetError, PauseRefusedError, TaskState
from dfrs.live.protocol.wire import Grant, Source
from tests.live_fakes import PATIENCE_S, FakeDriver, FakeHost, desired, task_id, task_spec

ABSENT, RUNNING, PAUSED, HANDED, EXITED = (
    TaskState.ABSENT,
    TaskState.RUNNING,
    TaskState.PAUSED,
    TaskState.HANDED,
    TaskState.EXITED,
)
ONE, TWO, THREE = task_id(1), task_id(2), task_id(3)


class Kept:
    """A reconciler at work on a fake driver; `told` is the latest status of each task."""

    def __init__(self, driver=None, **settings):
        self.driver = driver or FakeDriver()
        self.told = {}
        self.history = []
        self._waited_for = {}
        self.did_before = {}
        """What had been done when a version was first told to be brought about."""
        self.reconciler = TaskReconciler(self.driver, self._tell, poll_s=0.02, **settings)

    def _tell(self, status):
        self.told[status.task] = status
        self.history.append(status)
        if status.version not in self.did_before:
            self.did_before[status.version] = self.did(status.task)

    async def __aenter__(self):
        self.running = asyncio.create_task(self.reconciler.run())
        await asyncio.wait_for(self.reconciler.looked.wait(), PATIENCE_S)
        return self

    async def __aexit__(self, *_):
        self.running.cancel()
        await asyncio.wait([self.running])

    async def until(self, condition):
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, f"never: {self.told}, {self.driver.calls[-10:]}"
            assert not self.running.done(), self.running
            await asyncio.sleep(0.002)

    async def status(self, task=ONE, **expected):
        """The next that was told of the task and is as expected, even if it is over by now."""

        def as_expected():
            for k in range(self._waited_for.get(task, 0), len(self.history)):
                known = self.history[k]
                if known.task == task and all(getattr(known, name) == value for name, value in expected.items()):
                    self._waited_for[task] = k
                    return True
            return False

        await self.until(as_expected)
        return self.history[self._waited_for[task]]

    async def error(self, task=ONE):
        """The first that was told of the task, even if it is over by now."""

        def told():
            return [status.error for status in self.history if status.task == task and status.error]

        await self.until(told)
        return told()[0]

    def did(self, task=ONE):
        return [method for method, who in self.driver.calls if who == task]


def test_a_life():
    async def live():
        async with Kept() as kept:
            kept.reconciler.desire([desired(RUNNING, 1)])
            await kept.status(state=RUNNING, version=1)
            kept.reconciler.desire([desired(PAUSED, 2)])
            await kept.status(state=PAUSED, version=2)
            kept.reconciler.desire([desired(RUNNING, 3, share=0.25)])
            await kept.status(state=RUNNING, version=3)
            assert kept.driver.here[ONE].share == 0.25
            kept.driver.finish(ONE, code=7)
            status = await kept.status(state=EXITED)
            assert (status.exit.kind, status.exit.code, status.version) == (ExitKind.CODE, 7, 3)
            assert status.since_s == status.exit.time_s
            kept.reconciler.desire([desired(ABSENT, 4)])
            await kept.status(state=ABSENT, version=4)
            assert kept.did() == ["start", "pause", "set_share", "resume", "forget"]
            assert [s.error for s in kept.history] == [""] * len(kept.history)

    asyncio.run(live())


def test_pauses_resumes_and_moves_are_timed_and_told_with_the_next_status():
    async def live():
        async with Kept() as kept:
            kept.reconciler.desire([desired(RUNNING, 1)])
            assert (await kept.status(state=RUNNING, version=1)).cost is None
            gate = kept.driver.block("pause")
            kept.reconciler.desire([desired(PAUSED, 2)])
            await kept.until(lambda: "pause" in kept.did())
            await asyncio.sleep(0.1)
            gate.set()
            pause = (await kept.status(state=PAUSED, version=2)).cost
            assert (pause.verb, pause.version) == ("pause", 2)
            assert 0.1 <= pause.seconds < PATIENCE_S
            kept.driver.fail("resume")
            kept.reconciler.desire([desired(RUNNING, 3)])
            assert (await kept.status(error="resume: resume is broken: mend it")).cost == pause
            resume = (await kept.status(state=RUNNING, version=3)).cost
            assert (resume.verb, resume.version) == ("resume", 3)
            assert resume.seconds < pause.seconds
            # Whoever missed it is told again.
            seen = len(kept.history)
            kept.reconciler.tell_again()
            await kept.until(lambda: len(kept.history) > seen)
            assert kept.history[-1].cost == resume

    asyncio.run(live())


def test_a_move_within_a_host_is_timed_where_the_task_comes():
    async def live():
        host = FakeHost()
        async with Kept(FakeDriver(host=host)) as source, Kept(FakeDriver(host=host)) as target:
            source.reconciler.desire([desired(RUNNING, 1)])
            await source.status(state=RUNNING, version=1)
            source.reconciler.desire([desired(HANDED, 2)])
            assert (await source.status(state=HANDED, version=2)).cost is None
            target.reconciler.desire([desired(RUNNING, 3, take=True)])
            cost = (await target.status(state=RUNNING, version=3)).cost
            assert (cost.verb, cost.version) == ("move", 3)

    asyncio.run(live())


def test_an_ended_task_is_kept_and_never_started_again_until_the_controller_knows():
    async def live():
        async with Kept() as kept:
            kept.reconciler.desire([desired(RUNNING, 1, spec=task_spec(seconds=0.0))])
            await kept.status(state=EXITED, version=1)
            kept.reconciler.desire([desired(RUNNING, 2)])
            await kept.status(state=EXITED, version=2)
            kept.reconciler.desire([desired(PAUSED, 3)])
            await kept.status(state=EXITED, version=3)
            assert kept.did() == ["start"]
            kept.reconciler.desire([desired(ABSENT, 4)])
            await kept.status(state=ABSENT, version=4)
            assert kept.did() == ["start", "forget"]

    asyncio.run(live())


def test_a_task_whose_record_is_gone_is_not_started_a_second_time():
    async def live():
        async with Kept() as kept:
            kept.reconciler.desire([desired(RUNNING, 1)])
            await kept.status(state=RUNNING)
            kept.driver.here.clear()
            status = await kept.status(state=ABSENT)
            assert "second time" in status.error
            assert kept.did() == ["start"]

    asyncio.run(live())


def test_nothing_is_done_to_tasks_before_the_controller_has_spoken():
    async def live():
        driver = FakeDriver()
        driver.start(ONE, task_spec(), 0.5)
        async with Kept(driver) as kept:
            assert [s.task for s in kept.reconciler.statuses()] == [ONE]
            kept.reconciler.desire([desired(RUNNING, 1, TWO)])
            await kept.status(TWO, state=RUNNING)
            assert kept.did() == ["start"]

    asyncio.run(live())


def test_a_complete_list_removes_strangers():
    async def live():
        driver = FakeDriver()
        for task in (ONE, TWO, THREE):
            driver.start(task, task_spec(), 0.5)
        driver.finish(THREE)
        async with Kept(driver) as kept:
            kept.reconciler.desire([desired(RUNNING, 5, ONE)], complete=True)
            await kept.until(lambda: list(driver.here) == [ONE])
            await kept.status(TWO, state=ABSENT, version=0)
            assert kept.did(TWO) == ["start", "stop", "forget"]
            assert kept.did(THREE) == ["start", "forget"]
            # They may come again, by a later message only.
            kept.reconciler.desire([desired(RUNNING, 1, TWO)])
            await kept.status(TWO, state=RUNNING, version=1)

    asyncio.run(live())


def test_a_late_copy_of_a_message_does_not_bring_back_a_task_that_was_dismissed():
    async def live():
        async with Kept() as kept:
            kept.reconciler.desire([desired(RUNNING, 3)])
            await kept.status(state=RUNNING)
            kept.reconciler.desire([], complete=True)
            await kept.status(state=ABSENT)
            kept.reconciler.desire([desired(RUNNING, 3)])
            kept.reconciler.desire([desired(RUNNING, 1, TWO)])
            await kept.status(TWO, state=RUNNING)
            assert kept.told[ONE].state is ABSENT
            # But a complete list is the truth of now.
            kept.reconciler.desire([desired(RUNNING, 3), desired(RUNNING, 1, TWO)], complete=True)
            await kept.status(state=RUNNING, version=3)

    asyncio.run(live())


def test_a_failing_driver_is_asked_again_and_told_about():
    async def live():
        async with Kept() as kept:
            kept.driver.fail("start", times=2)
            kept.driver.fail("set_share", OSError("no space"), times=1)
            kept.driver.fail("pause", RuntimeError("a bug"), times=1)
            kept.driver.fail("tasks", OSError("gone for a moment"), times=3)
            kept.reconciler.desire([desired(RUNNING, 1)])
            assert "start is broken" in await kept.error()
            await kept.status(state=RUNNING, version=1, error="")
            kept.reconciler.desire([desired(RUNNING, 2, share=0.9)])
            await kept.status(state=RUNNING, version=1, error="set_share: no space")
            await kept.status(state=RUNNING, version=2, error="")
            kept.reconciler.desire([desired(PAUSED, 3)])
            await kept.status(error="pause: a bug")
            await kept.status(state=PAUSED, version=3, error="")

    asyncio.run(live())


def test_a_newer_wish_does_not_wait_for_the_retry_of_an_older_one(monkeypatch):
    monkeypatch.setattr(reconciler, "FIRST_RETRY_S", 3600.0)
    monkeypatch.setattr(reconciler, "LAST_RETRY_S", 3600.0)

    async def live():
        async with Kept() as kept:
            kept.driver.fail("start")
            kept.reconciler.desire([desired(RUNNING, 1)])
            await kept.status(error="start: start is broken: mend it")
            kept.reconciler.desire([desired(RUNNING, 2)])
            await kept.status(state=RUNNING, version=2)
            kept.reconciler.desire([desired(ABSENT, 3)])
            await kept.status(state=ABSENT, version=3)

    asyncio.run(live())


def test_tasks_do_not_wait_for_a_slow_one_and_its_last_wish_counts():
    async def live():
        driver = FakeDriver()
        async with Kept(driver) as kept:
            kept.reconciler.desire([desired(RUNNING, 1)])
            await kept.status(state=RUNNING)
            gate = driver.block("pause")
            kept.reconciler.desire([desired(PAUSED, 2)])
            await kept.until(lambda: kept.did()[-1] == "pause")
            kept.reconciler.desire([desired(RUNNING, 3), desired(RUNNING, 1, TWO)])
            await kept.status(TWO, state=RUNNING)
            kept.driver.finish(TWO)
            await kept.status(TWO, state=EXITED)
            kept.reconciler.desire([desired(PAUSED, 4, ONE)])
            kept.reconciler.desire([desired(RUNNING, 5, ONE, share=0.1)])
            gate.set()
            await kept.status(state=RUNNING, version=5)
            assert driver.here[ONE].share == 0.1
            assert kept.did() == ["start", "pause", "set_share", "resume"]

    asyncio.run(live())


class LateDriver(FakeDriver):
    """While `held`, what it says of its tasks arrives late."""

    def __init__(self):
        super().__init__()
        self.let_go = threading.Event()
        self.held = self.looked = False

    def tasks(self):
        found, held = super().tasks(), self.held
        self.looked = held
        if held:
            assert self.let_go.wait(PATIENCE_S)
        return found


def test_what_was_seen_before_a_step_ended_is_not_believed():
    async def live():
        driver = LateDriver()
        async with Kept(driver) as kept:
            kept.reconciler.desire([desired(RUNNING, 1)])
            await kept.status(state=RUNNING)
            gate = driver.block("pause")
            kept.reconciler.desire([desired(PAUSED, 2)])
            await kept.until(lambda: kept.did()[-1] == "pause")
            driver.held = True
            await kept.until(lambda: driver.looked)
            kept.reconciler.desire([desired(RUNNING, 3)])
            gate.set()
            await kept.until(lambda: not kept.reconciler._steps)
            assert driver.here[ONE].state is PAUSED
            driver.held = False
            driver.let_go.set()
            await kept.status(state=RUNNING, version=3)
            assert kept.did_before[3][-1] == "resume"

    asyncio.run(live())


def test_a_stubborn_task_is_killed_after_its_grace_and_asked_once():
    async def live():
        async with Kept(FakeDriver(stubborn=True)) as kept:
            kept.reconciler.desire([desired(RUNNING, 1)])
            await kept.status(state=RUNNING)
            kept.reconciler.desire([desired(ABSENT, 2, grace=0.3)])
            await kept.status(state=ABSENT, version=2)
            assert kept.did() == ["start", "stop", "forget"]
            assert EXITED in {status.state for status in kept.history}

    asyncio.run(live())


def test_a_task_goes_from_node_to_node_of_a_host_whoever_hears_first():
    async def live():
        host = FakeHost()
        async with Kept(FakeDriver(host=host)) as left, Kept(FakeDriver(host=host)) as right:
            left.reconciler.desire([desired(RUNNING, 1)])
            await left.status(state=RUNNING)
            right.reconciler.desire([desired(RUNNING, 2, share=0.3, take=True)])
            assert "handed" in await right.error()
            left.reconciler.desire([desired(HANDED, 2)])
            await right.status(state=RUNNING, version=2, error="")
            await left.status(state=ABSENT, version=2)
            left.reconciler.desire([desired(ABSENT, 3)])
            await left.status(state=ABSENT, version=3)
            assert right.driver.here[ONE].share == 0.3
            assert "start" not in right.did()
            right.reconciler.desire([desired(HANDED, 4)])
            await right.status(state=HANDED, version=4)
            # Called back before anybody took it.
            right.reconciler.desire([desired(RUNNING, 5)])
            await right.status(state=RUNNING, version=5)

    asyncio.run(live())


def test_a_fence_ends_tasks_and_keeps_how_they_ended():
    async def live():
        async with Kept() as kept:
            kept.driver.fail("start", times=0)
            kept.reconciler.desire([desired(RUNNING, 1), desired(PAUSED, 1, TWO), desired(RUNNING, 1, THREE)])
            await kept.status(ONE, state=RUNNING)
            await kept.status(THREE, state=RUNNING)
            kept.driver.finish(THREE)
            await kept.status(THREE, state=EXITED)
            kept.reconciler.desire([desired(RUNNING, 1, task_id(4), take=True)])
            assert kept.reconciler.fence() == 1
            assert (await kept.status(ONE, state=EXITED)).exit.kind is ExitKind.STOPPED
            assert set(kept.driver.here) == {ONE, THREE}
            kept.reconciler.desire([desired(RUNNING, 1, TWO)], complete=False)
            kept.reconciler.desire([desired(ABSENT, 2), desired(RUNNING, 2, TWO)], complete=True)
            await kept.status(TWO, state=RUNNING, version=2)
            await kept.status(ONE, state=ABSENT, version=2)

    asyncio.run(live())


def test_accounts():
    async def live():
        async with Kept() as kept:
            kept.reconciler.desire([desired(RUNNING, 1, spec=task_spec(account="no-such-account"))])
            await kept.status(state=RUNNING)
            assert kept.driver.here[ONE].spec.account is None
        async with Kept(accounts=Accounts(users=True)) as kept:
            kept.reconciler.desire(
                [
                    desired(RUNNING, 1, ONE, spec=task_spec(account="nobody")),
                    desired(RUNNING, 1, TWO, spec=task_spec(account="no-such-account")),
                    desired(RUNNING, 1, THREE, spec=task_spec(account="root")),
                    desired(RUNNING, 1, task_id(4)),
                ]
            )
            await kept.status(ONE, state=RUNNING)
            assert kept.driver.here[ONE].spec.account == "nobody"
            for task, says in ((TWO, "there is none"), (THREE, "is root's"), (task_id(4), "none is given")):
                status = await kept.status(task, state=EXITED, version=1, error="")
                assert status.exit.kind is ExitKind.NOT_STARTED
                assert says in status.exit.message
            assert set(kept.driver.here) == {ONE}
            # It holds nothing, is told until the controller has it, and another attempt is another task.
            kept.reconciler.desire([desired(ABSENT, 2, TWO)])
            await kept.status(TWO, state=ABSENT, version=2)
            assert kept.did(TWO) == ["forget"]
        async with Kept(accounts=Accounts(users=True, other="nobody")) as kept:
            for number, account in enumerate(("daemon", "no-such-account", "root", None), 1):
                kept.reconciler.desire([desired(RUNNING, 1, task_id(number), spec=task_spec(account=account))])
                await kept.status(task_id(number), state=RUNNING)
                assert kept.driver.here[task_id(number)].spec.account == ("daemon" if account == "daemon" else "nobody")

    asyncio.run(live())


def test_what_is_wrong_with_a_task_that_runs_is_told_and_taken_back(monkeypatch):
    async def live():
        async with Kept() as kept:
            found = kept.driver.tasks
            note = "its processes have left"
            monkeypatch.setattr(kept.driver, "tasks", lambda: [replace(status, note=note) for status in found()])
            kept.reconciler.desire([desired(RUNNING, 1)])
            await kept.status(state=RUNNING, version=1, error=note)
            note = ""
            await kept.status(state=RUNNING, version=1, error="")

    asyncio.run(live())


def test_errors_are_cut_to_what_a_message_takes():
    async def live():
        async with Kept() as kept:
            kept.driver.fail("start", DriverError("long\n" * 5000), times=1)
            kept.reconciler.desire([desired(RUNNING, 1)])
            assert len(await kept.error()) == 2000
            await kept.status(state=RUNNING)

    asyncio.run(live())


def test_hundreds_of_tasks():
    async def live():
        async with Kept(FakeDriver(cpus=1000.0)) as kept:
            ids = [task_id(job) for job in range(1, 301)]
            kept.reconciler.desire([desired(RUNNING, 1, task) for task in ids])
            await kept.until(lambda: sum(s.state is RUNNING for s in kept.told.values()) == 300)
            for task in ids:
                kept.driver.finish(task)
            await kept.until(lambda: sum(s.state is EXITED for s in kept.told.values()) == 300)
            kept.reconciler.desire([], complete=True)
            await kept.until(lambda: not kept.driver.here)

    asyncio.run(live())


@st.composite
def histories(draw):
    """Legal lives of some tasks, and the order, copies and packets in which their messages arrive."""
    messages = []
    for job in range(1, 1 + draw(st.integers(1, 3))):
        states = draw(st.lists(st.sampled_from([RUNNING, PAUSED]), min_size=1, max_size=5))
        states += [ABSENT] if draw(st.booleans()) else []
        shares = draw(st.lists(st.sampled_from([0.1, 0.2, 0.3]), min_size=len(states), max_size=len(states)))
        messages += [
            desired(state, version, task_id(job), share=share)
            for version, (state, share) in enumerate(zip(states, shares, strict=True), start=1)
        ]
    copies = draw(st.lists(st.sampled_from(messages), max_size=4))
    return messages, draw(st.permutations(messages + copies)), draw(st.lists(st.booleans(), min_size=20, max_size=20))


@settings(max_examples=60)
@given(histories())
def test_any_order_with_copies_ends_as_the_right_order(history):
    messages, arrived, waits = history
    final = {}
    for message in messages:
        final[message.task] = message

    async def ends(order, waits):
        driver = FakeDriver(cpus=100.0)
        for task in final:
            driver.start(task, task_spec(), 0.5)
        async with Kept(driver) as kept:
            for message, wait in zip(order, waits, strict=False):
                kept.reconciler.desire([message])
                if wait:
                    await asyncio.sleep(0.003)
            for message in order[len(waits) :]:
                kept.reconciler.desire([message])
            for task, message in final.items():
                await kept.status(task, version=message.version, state=message.state)
        return {task: (fake.state, fake.share if fake.state is RUNNING else None) for task, fake in driver.here.items()}

    expected = {
        task: (message.state, message.share_cores if message.state is RUNNING else None)
        for task, message in final.items()
        if message.state is not ABSENT
    }
    assert asyncio.run(ends(arrived, waits)) == expected
    assert asyncio.run(ends(messages, waits)) == expected


def test_a_refused_pause_is_told_and_tried_again_only_when_it_is_asked_for_again():
    async def live():
        async with Kept() as kept:
            kept.reconciler.desire([desired(RUNNING, 1)])
            await kept.status(state=RUNNING, version=1)
            kept.driver.fail("pause", PauseRefusedError("no swap space left"))
            kept.reconciler.desire([desired(PAUSED, 2)])
            status = await kept.status(refused=2)
            assert (status.state, status.version, status.error) == (RUNNING, 1, "no swap space left")
            await asyncio.sleep(0.1)
            assert kept.did() == ["start", "pause"]
            kept.reconciler.desire([desired(PAUSED, 3)])
            status = await kept.status(state=PAUSED, version=3)
            assert (status.refused, status.error) == (0, "")

    asyncio.run(live())


def test_what_is_to_come_soon_is_tried_again_soon_however_often():
    async def live():
        async with Kept() as kept:
            kept.driver.fail("start", NotYetError("waits for memory"), times=6)
            kept.reconciler.desire([desired(RUNNING, 1)])
            await kept.status(error="waits for memory")
            await kept.status(state=RUNNING, version=1, error="")
            assert kept.reconciler._tasks[ONE].retry_s == reconciler.FIRST_RETRY_S
            kept.driver.fail("pause", times=2)
            kept.reconciler.desire([desired(PAUSED, 2)])
            await kept.status(state=PAUSED, version=2)
            assert kept.reconciler._tasks[ONE].retry_s == 4 * reconciler.FIRST_RETRY_S

    asyncio.run(live())


def test_what_may_yet_be_started_is_named_until_it_may_not():
    async def live():
        async with Kept() as kept:
            kept.driver.fail("start", NotYetError("waits for memory"), times=1000)
            kept.reconciler.desire([desired(RUNNING, 1)])
            await kept.status(error="waits for memory")
            named = [(status.task, status.state) for status in kept.reconciler.statuses()]
            assert named == [(ONE, ABSENT)]
            kept.reconciler.desire([desired(HANDED, 2)])
            await kept.status(state=ABSENT, version=2)
            assert kept.reconciler.statuses() == ()

    asyncio.run(live())


SOURCE = Source(address="h2.test", port=4711, certificate="", token="5" * 64)
GRANT, NEXT_GRANT = Grant(token="5" * 64, certificate="PEM"), Grant(token="6" * 64, certificate="PEM")


class FakeTransfers:
    """Fetches a task that has gone twice from host to host before."""

    def __init__(self):
        self.grants = []
        self.problem = None

    def allow(self, _task, grant):
        self.grants.append(grant)

    def fetch(self, _task, _source, receive):
        if self.problem is not None:
            raise self.problem
        receive(io.BytesIO(b"3"))


def test_a_task_is_fetched_and_goes_on():
    async def live():
        transfers = FakeTransfers()
        async with Kept(transfers=transfers) as kept:
            transfers.problem = DriverError("h2.test: no connection")
            kept.reconciler.desire([desired(RUNNING, 1, take=True, source=SOURCE)])
            assert (await kept.status(state=ABSENT, error="fetch: h2.test: no connection")).version == 0
            assert [status.state for status in kept.reconciler.statuses()] == [ABSENT]
            transfers.problem = None
            kept.reconciler.desire([desired(RUNNING, 2, take=True, source=SOURCE)])
            status = await kept.status(state=RUNNING, version=2)
            assert (status.transfers, status.error) == (3, "")
            assert kept.did() == ["receive", "take", "resume"]
            kept.reconciler.desire([desired(ABSENT, 3)])
            await kept.status(state=ABSENT, version=3)
            kept.reconciler.desire([desired(RUNNING, 4, TWO, take=True, source=SOURCE)])
            await kept.status(TWO, state=RUNNING, version=4)

    asyncio.run(live())


def test_who_takes_nothing_from_other_hosts_says_so():
    async def live():
        async with Kept() as kept:
            kept.reconciler.desire([desired(RUNNING, 1, take=True, source=SOURCE)])
            assert "takes no tasks from other hosts" in await kept.error()

    asyncio.run(live())


def test_a_task_goes_on_while_it_is_offered_and_the_offer_ends_with_what_is_desired():
    async def live():
        transfers = FakeTransfers()
        async with Kept(transfers=transfers) as kept:
            kept.reconciler.desire([desired(RUNNING, 1)])
            await kept.status(state=RUNNING, version=1)
            kept.reconciler.desire([desired(HANDED, 2, grant=GRANT)])
            await kept.status(state=RUNNING, version=2)
            assert transfers.grants == [GRANT]
            kept.reconciler.desire([desired(HANDED, 3, grant=NEXT_GRANT)])
            await kept.status(state=RUNNING, version=3)
            assert transfers.grants == [GRANT, NEXT_GRANT]
            kept.reconciler.refuse(ONE, GRANT.token, "too late")
            kept.reconciler.refuse(ONE, NEXT_GRANT.token, "it holds a device")
            status = await kept.status(state=RUNNING, refused=3)
            assert status.error == "it holds a device"
            kept.reconciler.desire([desired(RUNNING, 4)])
            assert (await kept.status(state=RUNNING, version=4)).refused == 0
            assert transfers.grants == [GRANT, NEXT_GRANT, None]
            assert kept.did() == ["start"]

    asyncio.run(live())
