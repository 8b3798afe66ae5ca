"""What users want to be told of their jobs, until it has been sent: each at least once.

A notification is recorded in the transaction that records its cause, and removed from the record once it was sent. So
none is lost, and none that is known as sent is sent again. It is sent twice where the controller dies between the two,
or an older copy of the database is put back: its `id` is then the same.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from dfrs.live.controller import tables
from dfrs.live.controller.controller_plan import ControllerPlan
from dfrs.live.controller.database import Database
from dfrs.live.controller.records import JobOutcome, JobRecord, TaskRecord
from dfrs.live.controller.state import State
from dfrs.live.drivers.base import ExitKind
from dfrs.live.errors import UnavailableError
from dfrs.live.protocol.resources import JobEvent, JobState
from dfrs.model.errors import StoppedError

PREFIX = "notify "
"""Of keys of `tables.meta`; the name of a channel and the id of a notification follow."""
SEND_S = 30.0
"""Time that one notification may take."""
DELAYS_S = (1.0, 10.0, 60.0, 600.0)
"""After each failure; after one more it is given up."""
RETRY_S = 1.0
"""So long after the database could not be written it is tried again."""
MOST, MOST_OF_USER = 20_000, 2_000
"""So many wait in a channel, and of one user there; more are not taken."""

Document = Mapping[str, Any]
Send = Callable[[Document], Awaitable[None]]
"""Sends a notification. Raises OSError that says why it could not."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Pending:
    key: str
    document: Document
    due: float = 0.0
    """By the event loop's clock."""
    failures: int = 0

    @property
    def user(self) -> str:
        return self.document["user"]


@dataclass(slots=True)
class _Channel:
    """A way in which notifications go, one at a time: of each user in turn, those that failed after the others."""

    name: str
    send: Send
    pending: dict[str, _Pending] = field(default_factory=dict[str, _Pending])
    added: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: Counter[str] = field(default_factory=Counter[str])
    """How many are pending of each user."""
    turns: dict[str, int] = field(default_factory=dict[str, int])
    """When each user that has some had a turn, in turns."""
    dropped: set[str] = field(default_factory=set[str])
    """Users of whose notifications it was said that they are dropped, and none of whose was taken since."""

    def key(self, notification: str) -> str:
        return f"{PREFIX}{self.name} {notification}"

    def has_room(self, user: str) -> bool:
        return len(self.pending) < MOST and self.waiting[user] < MOST_OF_USER

    def take(self, key: str, document: Document) -> None:
        one = _Pending(key, document)
        self.pending[key] = one
        self.waiting[one.user] += 1
        self.dropped.discard(one.user)
        self.added.set()

    def first(self) -> _Pending | None:
        """That which is to be sent next, of those that are due first."""
        return min(self.pending.values(), key=lambda each: (each.due, self.turns.get(each.user, 0)), default=None)

    def turn(self, one: _Pending) -> None:
        """Its user has a turn, and the next one when all others have had theirs."""
        self.turns[one.user] = max(self.turns.values(), default=0) + 1

    def drop(self, one: _Pending) -> None:
        del self.pending[one.key]
        self.waiting[one.user] -= 1
        if not self.waiting[one.user]:
            del self.waiting[one.user]
            self.turns.pop(one.user, None)


def _ran(task: TaskRecord) -> bool:
    return task.exit is not None and task.exit.kind not in {ExitKind.NOT_STARTED, ExitKind.LOST}


def _when(document: Document) -> float:
    return document["ended_at"] or document["started_at"] or 0.0


class Outbox:
    """Records notifications, and sends them by the channels of the settings' `notify`."""

    def __init__(self, state: State, database: Database) -> None:
        self._state = state
        self._database = database
        self._channels = [_Channel(name, send) for name, send in state.settings.notify.items()]
        self.tasks: list[asyncio.Task[None]] = []

    def begun(self, plan: ControllerPlan, job: JobRecord, now: float) -> None:
        """It runs, for the first time."""
        self._add(plan, job, "begin", {"state": JobState.RUNNING.value, "started_at": now})

    def ended(self, plan: ControllerPlan, job: JobRecord, outcome: JobOutcome, now: float) -> None:
        """It has ended: of one that did not end well, who wants to hear of that is told so."""
        if job.started_at is None and any(_ran(task) for task in job.tasks):
            # It was over before the controller saw it run.
            self.begun(plan, job, now)
        failed = outcome.state is not JobState.DONE and "fail" in job.request.notify
        facts = {"state": outcome.state.value, "exit": outcome.exit, "exit_code": outcome.code, "ended_at": now}
        self._add(plan, job, "fail" if failed else "end", facts)

    def _add(self, plan: ControllerPlan, job: JobRecord, event: JobEvent, facts: Document) -> None:
        if event not in job.request.notify:
            return
        document = self._document(job, event, facts)
        for channel in self._channels:
            if not channel.has_room(job.user):
                self._say_dropped(channel, job.user)
                continue
            key = channel.key(document["id"])
            plan.rows.append((tables.ADD_META, {"key": key, "value": json.dumps(document)}))
            plan.after.append(lambda channel=channel, key=key: channel.take(key, document))

    def _say_dropped(self, channel: _Channel, user: str) -> None:
        if user not in channel.dropped:
            waiting = {"waiting": len(channel.pending), "of_this_user": channel.waiting[user]}
            log.error("notifications are dropped: too many wait", channel=channel.name, user=user, **waiting)
        channel.dropped.add(user)

    def _document(self, job: JobRecord, event: JobEvent, facts: Document) -> Document:
        return {
            "id": f"{job.id}.{job.attempt}.{job.generation}.{event}",
            "event": event,
            "cluster": self._state.settings.cluster,
            "to": job.request.notify_to,
            "job": job.id,
            "array_job": None if job.array_index is None else job.request_id,
            "array_index": job.array_index,
            "name": job.name,
            "user": job.user,
            "command": list(job.request.command),
            "directory": job.request.directory,
            "nodes": sorted({self._state.nodes[task.target].name for task in job.tasks if task.target >= 0}),
            "submitted_at": job.submitted_at,
            "started_at": job.started_at,
            "ended_at": None,
            "exit": None,
            "exit_code": None,
            **facts,
        }

    def begin(self, meta: Mapping[str, str]) -> None:
        """Send what comes, and before that what `meta`, the record, has from before."""
        for channel in self._channels:
            found = {key: json.loads(value) for key, value in meta.items() if key.startswith(channel.key(""))}
            for key in sorted(found, key=lambda each: _when(found[each])):
                channel.take(key, found[key])
        self.tasks = [asyncio.create_task(self._run(channel)) for channel in self._channels]

    async def stop(self) -> None:
        """Send no more; what waits is sent after the next start."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _run(self, channel: _Channel) -> None:
        while True:
            try:
                self._database.must_lead()
                await self._send_next(channel)
            except StoppedError:
                return
            except UnavailableError:
                await asyncio.sleep(RETRY_S)

    async def _send_next(self, channel: _Channel) -> None:
        """Send that which is due first, if one is, or wait until there may be one."""
        now = asyncio.get_running_loop().time()
        first = channel.first()
        if first is None or first.due > now:
            channel.added.clear()
            try:
                async with asyncio.timeout(None if first is None else first.due - now):
                    await channel.added.wait()
            except TimeoutError:
                return
            return
        channel.turn(first)
        if await self._settled(channel, first):
            channel.drop(first)
            await self._removed(first)

    async def _settled(self, channel: _Channel, one: _Pending) -> bool:
        """Send it; whether that is done, or given up."""
        try:
            async with asyncio.timeout(SEND_S):
                await channel.send(one.document)
        except TimeoutError:
            why = f"it took more than {SEND_S:g} s"
        except OSError as error:
            why = str(error)
        except Exception as error:
            log.exception("a notification cannot be sent")
            why = type(error).__name__
        else:
            return True
        one.failures += 1
        known = {"channel": channel.name, "notification": one.document["id"], "problem": why}
        if one.failures > len(DELAYS_S):
            log.error("a notification is given up", **known)
            return True
        delay_s = DELAYS_S[one.failures - 1]
        log.warning("a notification could not be sent", again_in_s=delay_s, **known)
        one.due = asyncio.get_running_loop().time() + delay_s
        return False

    async def _removed(self, one: _Pending) -> None:
        """Have it off the record, however long that takes: this controller knows that it is sent."""
        while True:
            try:
                await self._database.write([(tables.DROP_META, [{"b_key": one.key}])])
            except UnavailableError:
                await asyncio.sleep(RETRY_S)
            else:
                return
