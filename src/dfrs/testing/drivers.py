"""What every driver must do, as tests for pytest, and what tests of drivers need besides.

    class TestMyDriver(DriverContract):
        @pytest.fixture
        def open_node(self, tmp_path):
            yield lambda name: MyDriver(tmp_path, name)

A driver that cannot do something says so in its `abilities`; tests of that skip.
"""

import time
from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import Any, TypeVar

from dfrs.live.drivers.base import (
    CheckpointRefusedError,
    Driver,
    DriverError,
    Exit,
    ExitKind,
    TaskId,
    TaskSpec,
    TaskState,
    Usage,
)

T = TypeVar("T")
OpenNode = Callable[[str], Driver]
"""Gives the driver of the node of that name; asked again, as to an agent that starts anew. All are of one host."""

MIB = 1 << 20
PATIENCE_S = 15.0
FOREVER = ("/bin/sh", "-c", "echo started; exec sleep 600")


def wait_for(condition: Callable[[], T], timeout_s: float = PATIENCE_S, every_s: float = 0.005) -> T:
    """The first true value of `condition()`. Raises AssertionError after `timeout_s`."""
    end = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(every_s)
    return value


def task_id(job: int = 1, rank: int = 0, attempt: int = 0) -> TaskId:
    """A task's name."""
    return TaskId(job=job, rank=rank, attempt=attempt)


def task_spec(*command: str, **fields: Any) -> TaskSpec:  # noqa: ANN401
    """A job of one task that runs `command`; `fields` are those of `TaskSpec`."""
    usual: dict[str, Any] = {
        "directory": "/",
        "environment": {"PATH": "/usr/bin:/bin"},
        "tasks": 1,
        "peers": ("127.0.0.1",),
        "memory_bytes": 64 * MIB,
    }
    return TaskSpec(command=command, **(usual | fields))


def state_of(driver: Driver, task: TaskId) -> TaskState:
    """What a task is: its state, ABSENT if it is not listed."""
    return next((status.state for status in driver.tasks() if status.task == task), TaskState.ABSENT)


def exit_of(driver: Driver, task: TaskId, timeout_s: float = PATIENCE_S) -> Exit:
    """How a task ended, once it has. Raises AssertionError after `timeout_s`."""

    def found() -> Exit | None:
        return next((status.exit for status in driver.tasks() if status.task == task), None)

    exit_ = wait_for(found, timeout_s)
    assert exit_ is not None
    return exit_


def usage_of(driver: Driver, task: TaskId) -> Usage:
    """What a task has used."""
    return next(row for row in driver.usage() if row.task == task)


def output_of(driver: Driver, task: TaskId) -> str:
    """All that it has written so far to its standard output; empty before there is any."""
    try:
        return driver.output(task, "out", 0, MIB)[0].decode()
    except DriverError:
        return ""


class DriverContract:
    """Tests that each driver must pass. A subclass has a fixture `open_node`, see OpenNode."""

    def spec(self, *command: str, **fields: Any) -> TaskSpec:  # noqa: ANN401
        """What a task runs here; to override where a driver needs more than `task_spec` says."""
        return task_spec(*command, **fields)

    def begin(self, node: Driver, task: TaskId, *command: str, **fields: Any) -> None:  # noqa: ANN401
        """Start a task, and wait until its program runs. Without a command it runs for ever."""
        node.start(task, self.spec(*(command or FOREVER), **fields), 0.5)
        wait_for(lambda: output_of(node, task))

    def test_each_way_to_end(self, open_node: OpenNode) -> None:
        """It is said how a task ended, and what has ended uses nothing."""
        node = open_node("n0")
        asked = {
            1: self.spec("/bin/sh", "-c", "exit 3"),
            2: self.spec("/bin/sh", "-c", "kill -USR2 $$"),
            3: self.spec("no-such-program"),
            4: self.spec("/bin/sh", "-c", "while :; do sleep 0.1; done", time_limit_s=0.3),
        }
        for job, spec in asked.items():
            node.start(task_id(job), spec, 0.2)
        ends = {job: exit_of(node, task_id(job)) for job in asked}
        assert (ends[1].kind, ends[1].code, ends[1].signal) == (ExitKind.CODE, 3, None)
        assert (ends[2].kind, ends[2].code, ends[2].signal) == (ExitKind.SIGNAL, None, 12)
        assert ends[3].kind is ExitKind.NOT_STARTED
        assert "no-such-program" in ends[3].message
        assert ends[4].kind is ExitKind.TIME_LIMIT
        assert {state_of(node, task_id(job)) for job in asked} == {TaskState.EXITED}
        assert list(node.usage()) == []

    def test_every_call_may_be_repeated(self, open_node: OpenNode) -> None:
        """A call brings a task to what is wanted from wherever it is; a program is started once."""
        node, task = open_node("n0"), task_id()
        for _ in range(2):
            self.begin(node, task)
        for _ in range(2):
            node.pause(task)
            assert state_of(node, task) is TaskState.PAUSED
        for _ in range(2):
            node.resume(task)
            assert state_of(node, task) is TaskState.RUNNING
        for cores in (0.1, 0.1, 0.9):
            node.set_share(task, cores)
        for _ in range(2):
            node.stop(task, 5.0)
        end = exit_of(node, task)
        assert (end.kind, end.signal) == (ExitKind.STOPPED, 15)
        node.start(task, self.spec(*FOREVER), 0.5)
        node.pause(task)
        node.resume(task)
        node.set_share(task, 0.1)
        node.stop(task, 5.0)
        assert exit_of(node, task) == end
        assert output_of(node, task) == "started\n"
        for _ in range(2):
            node.forget(task)
        assert list(node.tasks()) == []

    def test_what_is_not_here_is_refused(self, open_node: OpenNode) -> None:
        """But it may be stopped, handed or forgotten: it is not here any more."""
        node, task = open_node("n0"), task_id()
        node.hand(task)
        node.forget(task)
        for refused in (partial(node.pause, task), partial(node.resume, task), partial(node.take, task, 0.5)):
            try:
                refused()
            except DriverError:
                continue
            raise AssertionError("a task that is not on this host: must raise DriverError")

    def test_a_paused_task_uses_no_cpu(self, open_node: OpenNode) -> None:
        """It goes on where it was."""
        node, task = open_node("n0"), task_id()
        self.begin(node, task, "/bin/sh", "-c", "echo started; while :; do :; done")
        node.pause(task)
        before = usage_of(node, task)
        time.sleep(0.3)
        after = usage_of(node, task)
        assert after.time_s > before.time_s
        assert after.cpu_s - before.cpu_s < 0.1
        node.resume(task)
        wait_for(lambda: usage_of(node, task).cpu_s > after.cpu_s + 0.1)
        assert usage_of(node, task).memory_bytes > 0

    def test_a_task_that_does_not_end_when_asked_is_killed(self, open_node: OpenNode) -> None:
        """After the grace, not before; a paused one too."""
        node, task = open_node("n0"), task_id()
        self.begin(node, task, "/bin/sh", "-c", "trap '' TERM; echo started; while :; do sleep 0.05; done")
        node.pause(task)
        begin_s = time.monotonic()
        node.stop(task, 0.5)
        end = exit_of(node, task)
        assert time.monotonic() - begin_s > 0.4
        assert (end.kind, end.signal) == (ExitKind.STOPPED, 9)

    def test_tasks_outlive_their_agent(self, open_node: OpenNode) -> None:
        """A new driver finds what the one before started, running, paused and ended."""
        node = open_node("n0")
        self.begin(node, task_id(1))
        self.begin(node, task_id(2))
        node.pause(task_id(2))
        node.start(task_id(3), self.spec("/bin/sh", "-c", "exit 5"), 0.5)
        end = exit_of(node, task_id(3))
        node.close()
        again = open_node("n0")
        states = [state_of(again, task_id(job)) for job in (1, 2, 3)]
        assert states == [TaskState.RUNNING, TaskState.PAUSED, TaskState.EXITED]
        assert exit_of(again, task_id(3)) == end
        again.resume(task_id(2))
        assert state_of(again, task_id(2)) is TaskState.RUNNING

    def test_output_is_read_in_parts(self, open_node: OpenNode) -> None:
        """Each part says where it begins, and where all of it ends."""
        node, task = open_node("n0"), task_id()
        node.start(task, self.spec("/bin/sh", "-c", "echo one; echo two; echo three >&2"), 0.5)
        exit_of(node, task)
        assert node.output(task, "out", 0, 100) == (b"one\ntwo\n", 0, 8)
        assert node.output(task, "out", 4, 2) == (b"tw", 4, 8)
        assert node.output(task, "out", 20, 2) == (b"", 8, 8)
        assert node.output(task, "err", 0, 100) == (b"three\n", 0, 6)
        node.forget(task)
        assert node.output(task, "out", 0, 100) == (b"one\ntwo\n", 0, 8)

    def test_a_task_knows_what_it_is(self, open_node: OpenNode) -> None:
        """It finds its job, rank and peers in its environment, beside what was submitted."""
        node, task = open_node("n0"), task_id(7, 1, 2)
        script = 'echo "$MINE $DFRS_JOB_ID $DFRS_RANK $DFRS_TASKS $DFRS_PEERS $DFRS_NODE"; pwd'
        environment = {"PATH": "/usr/bin:/bin", "MINE": "own"}
        spec = self.spec("/bin/sh", "-c", script, tasks=2, peers=("a", "b"), directory="/tmp", environment=environment)  # noqa: S108 - nothing is written there
        node.start(task, spec, 0.5)
        assert exit_of(node, task).code == 0
        assert output_of(node, task) == "own 7 1 2 a,b n0\n/tmp\n"

    def test_a_running_task_goes_to_another_node(self, open_node: OpenNode) -> None:
        """It runs on between the two, and is on one of them at a time; an ended one brings its exit."""
        first, second, task = open_node("n0"), open_node("n1"), task_id()
        if not first.abilities.moves_on_host:
            _skip("it moves no running tasks")
        self.begin(first, task)
        for _ in range(2):
            first.hand(task)
            assert state_of(first, task) is TaskState.HANDED
        for _ in range(2):
            second.take(task, 0.5)
        assert state_of(second, task) is TaskState.RUNNING
        assert state_of(first, task) is TaskState.ABSENT
        assert output_of(second, task) == "started\n"
        second.stop(task, 5.0)
        end = exit_of(second, task)
        second.hand(task)
        first.take(task, 0.5)
        assert exit_of(first, task) == end
        assert state_of(second, task) is TaskState.ABSENT

    def test_a_driver_without_images_sends_and_takes_nothing(self, open_node: OpenNode) -> None:
        """The task that was to go to another host goes on."""
        node, task, stream = open_node("n0"), task_id(), BytesIO()
        if node.abilities.images is not None:
            _skip("its tasks go to other hosts")
        self.begin(node, task)
        try:
            node.send(task, stream)
        except CheckpointRefusedError:
            assert state_of(node, task) is TaskState.RUNNING
        else:
            raise AssertionError("a task that cannot be check-pointed: must raise CheckpointRefusedError")
        try:
            node.receive(task_id(2), self.spec(*FOREVER), stream)
        except DriverError:
            assert state_of(node, task_id(2)) is TaskState.ABSENT
        else:
            raise AssertionError("a driver without images: must raise DriverError")

    def test_memory_is_limited(self, open_node: OpenNode) -> None:
        """A task that takes more than it may is ended, and it is said why."""
        node, task = open_node("n0"), task_id()
        if not node.abilities.memory_limits:
            _skip("it limits no memory")
        # `tail` keeps all of a line without an end.
        node.start(task, self.spec("/bin/sh", "-c", "tail /dev/zero", memory_bytes=32 * MIB), 0.5)
        assert exit_of(node, task, 60.0).kind is ExitKind.OUT_OF_MEMORY


def _skip(why: str) -> None:
    import pytest  # noqa: PLC0415 - the rest of this module needs no pytest

    pytest.skip(why)
