"""Brings each task of a node to what the controller desires, and tells what each is.

Level-triggered: a message only changes what is desired; what is done follows from looking at what the driver has. So
repeated and late messages, failed calls and a restart of the agent all come to the same end. Calls of the driver block
and run in threads, one at a time for each task; tasks do not wait for each other.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO, Protocol

import structlog

from dfrs.live.agent.accounts import AGENTS_OWN, Accounts
from dfrs.live.agent.next_action import COSTS, DONE, LIVE, NextAction, TaskAction, Verb, may_come, plan, plan_fenced
from dfrs.live.drivers.base import (
    NO_JOB,
    Driver,
    DriverError,
    Exit,
    ExitKind,
    NotYetError,
    PauseRefusedError,
    RefusedError,
    TaskId,
    TaskState,
    TaskStatus,
)
from dfrs.live.protocol.observed import Cost
from dfrs.live.protocol.wire import Desired, Grant, Source, StatusMessage

POLL_S = 0.2
"""Seconds between two looks at the driver."""
FIRST_RETRY_S, LAST_RETRY_S = 0.2, 5.0
"""A failing call is repeated after so long, doubled each time up to the last."""
FENCE_GRACE_S = 10.0
RECENT_S = 60.0
"""For so long after it is gone a task is still told about; then only its version is kept."""
MOST_RETIRED = 10_000
"""Versions kept of tasks that are gone, against very late messages."""
THREADS = 16
ERROR_CHARS = 2000

log = structlog.get_logger(__name__)


class Transfers(Protocol):
    """Gives tasks to other hosts, and fetches them from there."""

    def allow(self, task: TaskId, grant: Grant | None, /) -> None:
        """Who shows the grant may fetch the task, once; with None, nobody."""
        ...

    def fetch(self, task: TaskId, source: Source, receive: Callable[[BinaryIO], None], /) -> None:
        """Have `receive` read the task. Raises DriverError, and what `receive` raises."""
        ...


@dataclass(slots=True, kw_only=True)
class _Task:
    """What is known of one task."""

    task: TaskId
    version: int = 0
    """The highest that the controller named."""
    desired: Desired | None = None
    dismissed: bool = False
    """A Welcome did not name it: it is to go, whatever `desired` says."""
    fenced: bool = False
    state: TaskState = TaskState.ABSENT
    exit: Exit | None = None
    refused: Exit | None = None
    """Why the driver was not even asked to start it; until it is forgotten."""
    since_s: float
    brought: int = 0
    """The last version that was brought about."""
    error: str = ""
    waits: bool = False
    """As in `StatusMessage`."""
    kept: bool | None = False
    """As in `TaskStatus`."""
    note: str = ""
    """As in `TaskStatus`."""
    refusal: tuple[int, str] = (0, "")
    """Version of the Desired at which it could not be paused, or check-pointed, and why."""
    transfers: int = 0
    """As in `TaskStatus`."""
    cost: Cost | None = None
    offered: Grant | None = None
    """That which the transfers know."""
    share_cores: float | None = None
    was_here: bool = False
    busy: bool = False
    """A call of the driver is under way."""
    seen_after: int = 0
    """Looks at the driver up to this one began before its last action ended, and say nothing."""
    last: TaskAction | None = None
    retry_at: float = 0.0
    retry_s: float = FIRST_RETRY_S
    reported: tuple[TaskState, Exit | None, str, int, int, int] | None = None

    @property
    def wanted(self) -> Desired | None:
        """What it shall be now; None as long as the controller has not said."""
        if self.dismissed:
            return Desired(task=self.task, version=max(1, self.version), state=TaskState.ABSENT)
        return self.desired

    @property
    def report(self) -> tuple[TaskState, Exit | None, str, int, int, int]:
        """What the controller is to know of it."""
        return self.state, self.exit, self.error or self.note, self.brought, self.refused_version, self.transfers

    @property
    def refused_version(self) -> int:
        """See `StatusMessage.refused`."""
        wanted = self.wanted
        if wanted is not None and self.grant is not None:
            return wanted.version if self.refusal[0] == wanted.version else 0
        if wanted is None or wanted.state is not TaskState.PAUSED or self.state not in LIVE:
            return 0
        stays = self.state is TaskState.PAUSED and self.kept is True
        return wanted.version if stays or self.refusal[0] == wanted.version else 0

    @property
    def grant(self) -> Grant | None:
        """By which a node of another host may fetch it now."""
        wanted = self.wanted
        offered = wanted is not None and wanted.state is TaskState.HANDED and self.state in LIVE and not self.fenced
        return wanted.grant if wanted is not None and offered else None

    @property
    def may_come(self) -> bool:
        """It is not here, and this node may be about to start or take it."""
        return self.busy or may_come(self.wanted, was_here=self.was_here)

    @property
    def is_over(self) -> bool:
        """It is gone, and shall be."""
        wanted = self.wanted
        return (wanted is None or wanted.state is TaskState.ABSENT) and self.state is TaskState.ABSENT

    def plan(self) -> NextAction:
        """What to do next."""
        if self.fenced:
            return plan_fenced(self.state, FENCE_GRACE_S)
        wanted = self.wanted
        if wanted is None:
            return DONE
        version, why = self.refusal
        if (wanted.state is TaskState.PAUSED or self.grant) and wanted.version == version and self.state in LIVE:
            return NextAction(problem=why)
        return plan(wanted, self.state, share_cores=self.share_cores, was_here=self.was_here, kept=self.kept)

    def see(self, found: TaskStatus | None) -> None:
        """Take over what the driver says of it."""
        state, ended = (TaskState.ABSENT, None) if found is None else (found.state, found.exit)
        self.kept = False if found is None else found.kept
        self.transfers = 0 if found is None else found.transfers
        self.note = "" if found is None else found.note
        if found is None and self.refused is not None:
            state, ended = TaskState.EXITED, self.refused
        if (state, ended) != (self.state, self.exit):
            self.state, self.exit = state, ended
            self.since_s = time.time() if ended is None else max(0.0, ended.time_s)
        # A start that came to nothing may be repeated: the driver sees to it that nothing runs twice.
        self.was_here |= state not in {TaskState.ABSENT, TaskState.STARTING}
        if state not in LIVE:
            self.share_cores = None

    def status(self) -> StatusMessage:
        """As it is told to the controller."""
        return StatusMessage(
            task=self.task,
            version=self.brought,
            state=self.state,
            exit=self.exit,
            error=self.error or self.note,
            waits=self.waits and bool(self.error),
            since_s=self.since_s,
            refused=self.refused_version,
            transfers=self.transfers,
            cost=self.cost,
        )


class TaskReconciler:
    """The tasks of one node. `send` is called with the status of a task whenever it has changed.

    Each task runs under the account that `accounts` says, or ends as not started.
    Everything but calls of the driver happens on the event loop of `run`. Without `transfers` no task goes to another
    host.
    """

    def __init__(
        self,
        driver: Driver,
        send: Callable[[StatusMessage], None],
        *,
        accounts: Accounts = AGENTS_OWN,
        transfers: Transfers | None = None,
        poll_s: float = POLL_S,
    ) -> None:
        self.looked = asyncio.Event()
        """Set once it is known what the driver has."""
        self.told = 0
        """The highest version that the controller named, for any task."""
        self.shared = asyncio.Event()
        """Set whenever a share has changed; who waits for it clears it."""
        self._driver = driver
        self._send_status = send
        self._accounts = accounts
        self._transfers = transfers
        self._poll_s = poll_s
        self._tasks: dict[TaskId, _Task] = {}
        self._retired: OrderedDict[TaskId, int] = OrderedDict()
        self._poke = asyncio.Event()
        self._begun = 0
        self._steps: set[asyncio.Task[None]] = set()
        self._callers = ThreadPoolExecutor(THREADS, thread_name_prefix="dfrs-step")
        self._watcher = ThreadPoolExecutor(1, thread_name_prefix="dfrs-look")

    def desire(self, desired: Sequence[Desired], *, complete: bool = False) -> None:
        """Take over what tasks shall be; older versions than the known ones change nothing.

        `complete`: the controller has just said everything, so any other task is to go, and nothing is fenced.
        """
        for one in desired:
            self._accept(self._known(one.task), one, complete)
        if complete:
            named = {one.task: one for one in desired}
            for task in self._tasks.values():
                task.dismissed = task.dismissed if task.task in named else True
                task.fenced = False
        self._poke.set()

    def refuse(self, task: TaskId, token: str, why: str) -> None:
        """A task could not be check-pointed when it was to be fetched by this token."""
        known = self._tasks.get(task)
        wanted = None if known is None else known.wanted
        if known is not None and wanted is not None and wanted.grant is not None and wanted.grant.token == token:
            known.refusal = wanted.version, why[:ERROR_CHARS]
            self._poke.set()

    def fence(self) -> int:
        """Stop all tasks, start none, until the controller has said everything again. How many that ends."""
        live = 0
        for task in self._tasks.values():
            task.fenced = True
            live += task.state in LIVE
        self._poke.set()
        return live

    def is_paused(self, task: TaskId) -> bool:
        """Whether it is, as far as is known."""
        known = self._tasks.get(task)
        return known is not None and known.state is TaskState.PAUSED

    def lives(self, task: TaskId) -> bool:
        """Whether it has not ended, or may yet begin here."""
        known = self._tasks.get(task)
        return known is not None and (known.state in LIVE or known.may_come)

    def statuses(self) -> tuple[StatusMessage, ...]:
        """All tasks that this node has or may yet come to have, to be sent now. What else is known is sent again."""
        here: list[StatusMessage] = []
        for task in self._tasks.values():
            if task.state is TaskState.ABSENT and not task.may_come:
                task.reported = None
            else:
                task.reported = task.report
                here.append(task.status())
        self._poke.set()
        return tuple(here)

    def tell_again(self) -> None:
        """Tell the status of each task that is here or has been lately, in case a message was lost or overtaken."""
        for task in self._tasks.values():
            task.reported = None
        self._poke.set()

    async def run(self) -> None:
        """Watch the driver and perform steps, until cancelled; steps under way are waited for."""
        loop = asyncio.get_running_loop()
        failing = ""
        try:
            while True:
                self._poke.clear()
                self._begun += 1
                try:
                    found = await loop.run_in_executor(self._watcher, self._driver.tasks)
                except Exception as error:
                    # Whatever is wrong with the host: the agent stays, and asks again.
                    if failing != (failing := _line(error)):
                        log.warning("the driver cannot tell its tasks", error=failing)
                else:
                    failing = ""
                    self._look(found)
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._poll_s):
                        await self._poke.wait()
        finally:
            self._watcher.shutdown(wait=False)
            await asyncio.gather(*self._steps, return_exceptions=True)
            self._callers.shutdown(wait=False)

    def _known(self, task: TaskId) -> _Task:
        known = self._tasks.get(task)
        if known is None:
            known = _Task(task=task, since_s=time.time(), version=self._retired.pop(task, 0))
            self._tasks[task] = known
        return known

    def _accept(self, task: _Task, desired: Desired, complete: bool) -> None:
        # Told again in any case: who repeats a message has not heard, or is behind.
        task.reported = None
        self.told = max(self.told, desired.version)
        if desired.version > task.version:
            task.version, task.desired = desired.version, desired
            task.dismissed = False
            task.retry_at = 0.0
        elif desired.version < task.version:
            log.info("older message ignored", task=str(task.task), version=desired.version, known=task.version)
        elif complete:
            task.desired, task.dismissed = desired, False

    def _look(self, listing: Sequence[TaskStatus]) -> None:
        found = {status.task: status for status in listing if status.task.job != NO_JOB}
        for one in found:
            self._known(one)
        now_s = time.time()
        for task in list(self._tasks.values()):
            if task.busy or task.seen_after >= self._begun:
                continue
            task.see(found.get(task.task))
            self._advance(task)
            if task.is_over and not task.busy and now_s - task.since_s > RECENT_S:
                self._retire(task)
        self.looked.set()

    def _advance(self, task: _Task) -> None:
        if self._transfers is not None and task.offered != task.grant:
            task.offered = task.grant
            # One without a certificate is nobody's.
            self._transfers.allow(task.task, task.grant if task.grant and task.grant.certificate else None)
        action = (planned := task.plan()).action
        if action is None:
            task.error, task.waits = planned.problem, False
            task.last = None
            if not planned.problem and not task.fenced:
                task.was_here &= not task.is_over
                task.brought = task.brought if task.dismissed else task.version
        elif action != task.last or time.monotonic() >= task.retry_at:
            task.busy = True
            running = asyncio.get_running_loop().create_task(self._perform(task, action, task.desired))
            self._steps.add(running)
            running.add_done_callback(self._steps.discard)
        self._tell(task)

    async def _perform(self, task: _Task, action: TaskAction, desired: Desired | None) -> None:
        loop = asyncio.get_running_loop()
        if action != task.last:
            task.retry_s = FIRST_RETRY_S
        task.last = action
        if action.verb is Verb.FETCH:
            # It may take long: what went wrong before says nothing of it.
            task.error = ""
            self._tell(task)
        try:
            took_s = await loop.run_in_executor(self._callers, self._timed, task.task, action, desired)
        except RefusedError as error:
            task.refused = Exit(kind=ExitKind.NOT_STARTED, time_s=time.time(), message=_line(error)[:ERROR_CHARS])
            task.error = ""
        except PauseRefusedError as error:
            task.error = _line(error)[:ERROR_CHARS]
            assert desired is not None
            task.refusal = desired.version, task.error
        except NotYetError as error:
            task.error = _line(error)[:ERROR_CHARS]
            task.waits = True
            task.retry_at = time.monotonic() + FIRST_RETRY_S
        except Exception as error:
            # A bug of the driver ends no agent either: it is told to the operator, with all that is known of it.
            if not isinstance(error, DriverError | OSError):
                log.exception("the driver failed", task=str(task.task), action=action.verb)
            task.error = f"{action.verb}: {_line(error)}"[:ERROR_CHARS]
            task.waits = False
            task.retry_at = time.monotonic() + task.retry_s
            task.retry_s = min(LAST_RETRY_S, 2 * task.retry_s)
        else:
            task.error = ""
            task.retry_at = time.monotonic() + action.patience_s
            if desired is not None and action.verb in COSTS:
                task.cost = Cost(verb=COSTS[action.verb], version=desired.version, seconds=took_s)
            if action.verb in {Verb.START, Verb.TAKE, Verb.FETCH, Verb.SET_SHARE}:
                task.share_cores = action.share_cores
                self.shared.set()
            elif action.verb is Verb.FORGET:
                task.refused = None
        finally:
            task.busy = False
            task.seen_after = self._begun
            self._poke.set()
        if task.error:
            self._tell(task)

    def _timed(self, task: TaskId, action: TaskAction, desired: Desired | None) -> float:
        """Call the driver; how many seconds that took."""
        begin_s = time.monotonic()
        self._call(task, action, desired)
        return time.monotonic() - begin_s

    def _call(self, task: TaskId, action: TaskAction, desired: Desired | None) -> None:
        driver = self._driver
        match action.verb:
            case Verb.START:
                assert desired is not None
                assert desired.spec is not None
                driver.start(task, self._accounts.apply(desired.spec), action.share_cores)
            case Verb.TAKE:
                driver.take(task, action.share_cores)
            case Verb.FETCH:
                assert desired is not None
                self._fetch(task, desired)
                driver.take(task, action.share_cores)
            case Verb.SET_SHARE:
                driver.set_share(task, action.share_cores)
            case Verb.HAND:
                driver.hand(task)
            case Verb.PAUSE:
                driver.pause(task, keep=action.keep)
            case Verb.RESUME:
                driver.resume(task)
            case Verb.STOP:
                driver.stop(task, action.grace_s)
            case Verb.FORGET:
                driver.forget(task)

    def _fetch(self, task: TaskId, desired: Desired) -> None:
        if self._transfers is None:
            raise DriverError("this node takes no tasks from other hosts")
        assert desired.spec is not None
        assert desired.source is not None
        try:
            spec = self._accounts.apply(desired.spec)
        except RefusedError as error:
            # It has not ended by that: it goes on where it is.
            raise DriverError(str(error)) from error
        self._transfers.fetch(task, desired.source, lambda stream: self._driver.receive(task, spec, stream))

    def _tell(self, task: _Task) -> None:
        if task.reported != task.report:
            task.reported = task.report
            self._send_status(task.status())

    def _retire(self, task: _Task) -> None:
        del self._tasks[task.task]
        self._retired[task.task] = task.version
        while len(self._retired) > MOST_RETIRED:
            self._retired.popitem(last=False)


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
