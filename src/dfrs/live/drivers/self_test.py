"""Whether a driver can do its work: a small task of no job is started, shared, paused, resumed, stopped and forgotten.

What a test leaves behind when its agent is killed is removed by the next one, and ends by itself before long.
"""

import secrets
import threading
import time
from collections.abc import Callable

from dfrs.live.drivers.base import NO_JOB, Driver, NotYetError, RefusedError, TaskId, TaskSpec, TaskState, TaskStatus
from dfrs.model.errors import DfrsError

PATIENCE_S = 10.0
"""So long a step may take: a loaded host is slow, but not unable."""
GROWTH_S = 0.03
"""A task that has used so much more CPU time runs: three times the least that all hosts can count."""
STILL_S, MOST_STILL_S = 0.1, 2.0
"""A pause is watched for as long as running took to show, but at least and at most so long."""
REST_S, MOST_REST_S = 0.005, 0.1
AGAIN_S = 1.0
"""A call that shows no effect is repeated after so long."""
MEMORY_BYTES = 64 << 20
LIMIT_S = 120.0
"""After so much running the task ends by itself, if nobody else ends it."""
COMMAND = ("/bin/sh", "-c", "while :; do :; done")


class SelfTestStoppedError(DfrsError):
    """The test was told to stop before it had a result."""


class _FailedError(DfrsError):
    """The step and the reason, in a sentence."""


def self_test(
    driver: Driver,
    *,
    cores: float,
    memory_bytes: int,
    patience_s: float = PATIENCE_S,
    stopped: threading.Event | None = None,
) -> str:
    """Why the node, of `cores` and `memory_bytes`, cannot do its work, in a sentence; empty if it can.

    Takes well under a second on an idle host, and at most `patience_s` a step. Raises NotYetError where other tasks
    have the memory, so that nothing was found out, and SelfTestStoppedError soon after `stopped` was set.
    """
    task = TaskId(job=NO_JOB, rank=secrets.randbelow(1 << 31), attempt=0)
    test = _Test(driver, task, patience_s, stopped or threading.Event())
    try:
        test.run(cores, min(memory_bytes, MEMORY_BYTES))
    except _FailedError as error:
        return f"self-test failed: {error}"
    finally:
        test.clean_up()
    return ""


class _Test:
    """One test of a driver by a task."""

    def __init__(self, driver: Driver, task: TaskId, patience_s: float, stopped: threading.Event) -> None:
        self._driver = driver
        self._task = task
        self._patience_s = patience_s
        self._stopped = stopped
        self._admitted = False
        """It has the memory that it needs."""

    def run(self, cores: float, memory_bytes: int) -> None:
        """All steps. Raises _FailedError, NotYetError, SelfTestStoppedError."""
        driver, task = self._driver, self._task
        spec = TaskSpec(
            command=COMMAND,
            directory="/",
            environment={"PATH": "/usr/bin:/bin"},
            tasks=1,
            peers=("127.0.0.1",),
            memory_bytes=memory_bytes,
            time_limit_s=LIMIT_S,
        )
        self._step("remove what an earlier test left", self._sweep, lambda: "")
        self._step("start a task", lambda: driver.start(task, spec, cores), self._is(TaskState.RUNNING))
        self._admitted = True
        self._step("see a task run", _nothing, self._grows())
        # Downwards: without privileges a share cannot be raised.
        self._step("give a task a share", lambda: driver.set_share(task, cores / 2), lambda: "")
        begin_s = time.monotonic()
        self._step("see a task run on its share", _nothing, self._grows())
        watch_s = min(MOST_STILL_S, max(STILL_S, time.monotonic() - begin_s))
        # Where its memory cannot be freed it is stopped even so.
        self._step("pause a task", lambda: driver.pause(task, keep=True), self._is(TaskState.PAUSED))
        self._step("keep a paused task from running", _nothing, lambda: self._stands_still(watch_s))
        self._step("resume a task", lambda: driver.resume(task), self._is(TaskState.RUNNING))
        self._step("see a resumed task run", _nothing, self._grows())
        self._step("stop a task", lambda: driver.stop(task, 0.0), self._is(TaskState.EXITED))
        self._step("forget a task", lambda: driver.forget(task), self._is(TaskState.ABSENT))

    def clean_up(self) -> None:
        """Remove the task wherever it got to, if that can be done."""
        try:
            self._driver.forget(self._task)
        except Exception:
            # The next test tries again.
            return

    def _step(self, step: str, call: Callable[[], None], why_not: Callable[[], str]) -> None:
        """Call, and again at times, until `why_not` says nothing.

        Raises _FailedError, NotYetError, SelfTestStoppedError.
        """
        end_s, again_s, rest_s = time.monotonic() + self._patience_s, 0.0, REST_S
        while True:
            error: Exception | None = None
            try:
                if time.monotonic() >= again_s:
                    again_s = time.monotonic() + rest_s
                    call()
                    again_s = time.monotonic() + AGAIN_S
                if not (why := why_not()):
                    return
            except (RefusedError, _FailedError) as refused:
                raise _FailedError(f"could not {step}: {self._words(refused)}") from None
            except Exception as raised:
                # Whatever a driver may say is its reason.
                error, why = raised, self._words(raised)
            if isinstance(error, NotYetError) and not self._admitted:
                raise error
            if time.monotonic() >= end_s:
                if isinstance(error, NotYetError):
                    raise error
                raise _FailedError(f"could not {step} within {self._patience_s:g} s: {why}")
            if self._stopped.wait(rest_s):
                raise SelfTestStoppedError("the self-test was stopped")
            rest_s = min(MOST_REST_S, 2 * rest_s)

    def _words(self, error: Exception) -> str:
        said = " ".join(str(error).split()) or type(error).__name__
        return said.removeprefix(f"task {self._task}: ")

    def _sweep(self) -> None:
        for status in self._driver.tasks():
            if status.task.job == NO_JOB:
                self._driver.forget(status.task)

    def _found(self) -> TaskStatus | None:
        return next((status for status in self._driver.tasks() if status.task == self._task), None)

    def _is(self, wanted: TaskState) -> Callable[[], str]:
        def why_not() -> str:
            """Why the task is not in that state, empty if it is."""
            status = self._found()
            state = TaskState.ABSENT if status is None else status.state
            if state is wanted:
                return ""
            if status is not None and status.exit is not None and wanted in {TaskState.RUNNING, TaskState.PAUSED}:
                said = f": {status.exit.message}" if status.exit.message else ""
                raise _FailedError(f"it ended: {status.exit.kind}{said}")
            return f"it is {state}"

        return why_not

    def _cpu_s(self) -> float | None:
        return next((row.cpu_s for row in self._driver.usage() if row.task == self._task), None)

    def _grows(self) -> Callable[[], str]:
        """Whether it uses CPU time from now on."""
        first: list[float] = []

        def why_not() -> str:
            """Why it is not known to compute, empty if it is."""
            now_s = self._cpu_s()
            if now_s is None:
                self._is(TaskState.RUNNING)()
                return "nothing is measured of it"
            if not first:
                first.append(now_s)
            grown_s = now_s - first[0]
            return "" if grown_s >= GROWTH_S else f"it used {grown_s:.3f} s of CPU time"

        return why_not

    def _stands_still(self, watch_s: float) -> str:
        """What is measured of it must not grow while it is watched; in an image nothing may be."""
        before_s = self._cpu_s()
        if self._stopped.wait(watch_s):
            raise SelfTestStoppedError("the self-test was stopped")
        after_s = self._cpu_s()
        if before_s is None or after_s is None:
            return self._is(TaskState.PAUSED)()
        grown_s = after_s - before_s
        return "" if grown_s < GROWTH_S / 2 else f"it used {grown_s:.3f} s of CPU time in {watch_s:.2f} s"


def _nothing() -> None:
    pass
