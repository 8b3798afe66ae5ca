"""The controller's one loop: plan, record, decide, record what was decided, have the backend bring it about.

Nothing is told to the core before its event is durable, and nothing to the backend before the decision's digest is. So
whatever a node was ever told follows from the record, and a controller that comes back decides just that again.
"""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import structlog

from dfrs.engine.codec import encode
from dfrs.engine.commands import DETACH
from dfrs.engine.events import Event
from dfrs.live.controller import cluster_views, tables, views
from dfrs.live.controller.backend import Backend, Newcomer
from dfrs.live.controller.best_yield import BestYield
from dfrs.live.controller.capacity_watch import CapacityWatch
from dfrs.live.controller.checkpointer import Checkpointer
from dfrs.live.controller.controller_plan import JobChange
from dfrs.live.controller.database import Change, Database
from dfrs.live.controller.node_choices import NodeChoices
from dfrs.live.controller.node_descriptions import NodeDescriptions
from dfrs.live.controller.node_lifecycle import NodeLifecycle
from dfrs.live.controller.observing import NeedsDiscovery, Observer
from dfrs.live.controller.outbox import Outbox
from dfrs.live.controller.planner import ControllerPlan, Planner, Request
from dfrs.live.controller.quotas import QuotaKeeper
from dfrs.live.controller.snapshot_copy import SnapshotCopy
from dfrs.live.controller.standby.lease import LEASE_S
from dfrs.live.controller.state import Decided, State
from dfrs.live.errors import UnavailableError, UncertainError
from dfrs.live.protocol.resources import Activity
from dfrs.model.decisions import Reason, Snapshot
from dfrs.model.errors import StoppedError
from dfrs.model.needs import Revision
from dfrs.model.run import Action

RETRY_S = 1.0
"""So long after a failure it is tried again."""
FLUSH_S, OURS_S = 1.0, 5.0
"""So often the number of the last transaction is flushed, and asked whether the database is still this controller's."""
NODES_SHOWN = 64

_WORDS = {
    int(Action.START): "start",
    int(Action.RESUME): "resume",
    int(Action.MIGRATE): "migrate",
    int(Action.PAUSE): "pause",
    int(Action.LOST): "lost",
}
_MOVES = (int(Action.START), int(Action.RESUME), int(Action.MIGRATE))

log = structlog.get_logger(__name__)
Bound = Callable[[Snapshot], float]


class ControllerLoop:
    """Changes the state, and is the only one to do so beside what the backend sees."""

    def __init__(
        self, state: State, database: Database, observer: Observer, bound: Bound | None, backend: Backend
    ) -> None:
        self.state = state
        self.backend = backend
        self.trouble: str | None = None
        """Why it does not get on; None if it does."""
        self.steps = 0
        self.checkpointer = Checkpointer(state, database, observer)
        self._database = database
        self._needs = NeedsDiscovery(state, observer)
        self._bound = bound
        self._bounding: asyncio.Task[None] | None = None
        self.quotas = QuotaKeeper(state)
        self.outbox = Outbox(state, database)
        self._planner = Planner(state, self.quotas, backend, self.outbox)
        self.lifecycle = NodeLifecycle(state, self._planner, backend)
        self.descriptions = NodeDescriptions(state, self.lifecycle)
        self._capacities = CapacityWatch(state, self._planner)
        self._choices = NodeChoices(state)
        self._requests: deque[Request] = deque()
        self._copies: list[asyncio.Future[Mapping[str, np.ndarray]]] = []
        """Those who wait for the core's state."""
        self._poke = asyncio.Event()
        self._rows: list[tuple[Any, Mapping[str, Any]]] = []
        """Of the database, with the next plan."""
        self._tick_at = 0.0
        self._stepped_at = 0.0
        self._stopping = False
        self.suspended = False
        """Whether another controller may lead by now."""
        self._flushed_at = self._asked_at = 0.0
        self.sound = True
        """Whether the state in memory is what the record says: only then may it be stored."""
        self.stopped = asyncio.Event()
        """Set when it cannot go on."""
        self.problem: StoppedError | None = None
        """Why not."""

    def begin(self, restored: int | None = None) -> None:
        """The state is as the record says: that of the checkpoint after event `restored`, and of the events since."""
        self.checkpointer.begin(restored)
        self._stepped_at = asyncio.get_running_loop().time()
        self.state.placement.given_up = self.backend.give_up
        self.state.placement.begin()
        # Where another controller led before, nodes may have been in contact with that one until its lease ended.
        contact_s = LEASE_S if self._database.shared else 0.0
        for node in self.state.nodes:
            node.seen_at = self.state.settings.steady() + contact_s
        self.backend.begin()

    def poke(self) -> None:
        """There is something to do."""
        self._poke.set()

    @property
    def leads(self) -> bool:
        """As `Control.leads`."""
        lease = self._database.lease
        return self.problem is None and (lease is None or lease.good)

    async def ask(self, verb: str, subject: int | str, by: str, why: str = "", change: JobChange | None = None) -> None:
        """Have something done; returns when it is durable. Raises NotFoundError, ConflictError, UnavailableError, and
        InputError for a `change` that cannot be.
        """
        if self._stopping:
            raise UnavailableError(self.trouble or "the controller is stopping")
        request = Request(verb, subject, by, asyncio.get_running_loop().create_future(), why, change)
        self._requests.append(request)
        self.poke()
        await request.done

    async def core_state(self) -> Mapping[str, np.ndarray]:
        """The core's state between two steps, as arrays of its own, for `Core.restore`. Raises UnavailableError."""
        if self._stopping:
            raise UnavailableError(self.trouble or "the controller is stopping")
        copy: asyncio.Future[Mapping[str, np.ndarray]] = asyncio.get_running_loop().create_future()
        self._copies.append(copy)
        self.poke()
        return await copy

    def stop(self) -> None:
        """End `run` after the step under way."""
        self._stopping = True
        self.poke()

    async def run(self) -> None:
        """Go on until stopped, whatever happens."""
        try:
            await self._go_on()
        finally:
            self._refuse_all("the controller is stopping")

    async def _go_on(self) -> None:
        while not self._stopping:
            try:
                await self._step()
                self.trouble = None
            except StoppedError as error:
                self.give_up(error)
                return
            except UnavailableError as error:
                await self._pause(error)
            except Exception as error:
                log.exception("a step of the controller failed")
                await self._pause(UnavailableError(f"the controller failed: {type(error).__name__}; its log says more"))
            await self._wait()

    def give_up(self, error: StoppedError) -> None:
        """Do nothing more, also in the middle of a step: nothing that is begun can be written."""
        # Not logged: whoever runs the controller says it, as the reason for its end.
        self.trouble, self.problem = str(error), error
        self.sound, self._stopping = False, True
        self._refuse_all(str(error))
        self.backend.let_go("the controller stops")
        self.stopped.set()

    def suspend(self, *, suspended: bool) -> None:
        """Where another controller may lead by now, let go of all nodes: they are to look for it, and may be fenced."""
        if suspended:
            self.backend.let_go("the controller cannot reach its database")
        elif self.suspended:
            now = self.state.settings.steady()
            for node in self.state.nodes:
                node.seen_at = max(node.seen_at, now)
            self.poke()
        self.suspended = suspended

    async def _pause(self, error: Exception) -> None:
        self.trouble = str(error)
        self._refuse_all(str(error))
        await asyncio.sleep(RETRY_S)

    def _refuse_all(self, why: str) -> None:
        while self._requests:
            request = self._requests.popleft()
            if not request.done.done():
                request.done.set_exception(UnavailableError(why))
        copies, self._copies = self._copies, []
        for copy in copies:
            if not copy.done():
                copy.set_exception(UnavailableError(why))

    def _hand_out_copies(self) -> None:
        copies, self._copies = [each for each in self._copies if not each.done()], []
        if copies:
            arrays = {name: array.copy() for name, array in self.state.core.state().items()}
            for copy in copies:
                copy.set_result(arrays)

    async def _wait(self) -> None:
        state = self.state
        left_s = max(0.0, self._tick_at - state.settings.steady())
        wake_at_s = state.picture.wake_at_s
        if wake_at_s is not None:
            left_s = min(left_s, max(0.0, wake_at_s - state.now_s()))
        left_s = min(left_s, self._needs.left_s())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(left_s, state.settings.report_s)):
                await self._poke.wait()

    async def _step(self) -> None:
        self._poke.clear()
        self._database.must_lead()
        self.steps += 1
        state = self.state
        now = state.settings.clock()
        self._forgive()
        if state.settings.steady() >= self._tick_at:
            self._tick_at = state.settings.steady() + state.settings.report_s
            await self._tick(now)
        await self._take_in()
        if self._database.trouble is not None:
            # Whether it works again shows only when something is written.
            await self._database.write([])
        else:
            await self._tend_database()
        revision = await self._needs.step()
        plan, strangers = self._plan(revision)
        if not plan.empty:
            await self._perform(plan, revision)
            await self._take_in()
        elif revision is not None:
            self._needs.take(revision)
        if plan.again:
            state.placement.inspect_again(plan.again)
            self.poke()
        if strangers:
            self.poke()
        self.backend.settle()
        state.changed()
        self._hand_out_copies()
        await self.checkpointer.store()

    async def _take_in(self) -> None:
        """Compare what nodes have that have come with what they shall have.

        What they shall not have is ended. So it is asked after they came whether this controller still leads: then no
        other one has told the node anything that is not in the record.
        """
        newcomers = self.backend.newcomers()
        if self._database.shared and newcomers:
            await self._database.must_be_ours()
        self.backend.take_in(newcomers)

    async def _tend_database(self) -> None:
        """Also where nothing is written for long, notice that another controller took over. Raises StoppedError."""
        now = asyncio.get_running_loop().time()
        if now - self._flushed_at >= FLUSH_S:
            await self._database.flush()
            self._flushed_at = now
        if now - self._asked_at >= OURS_S:
            await self._database.must_be_ours()
            self._asked_at = now

    def _forgive(self) -> None:
        """Where this controller was away for so long that nodes seem silent, it was not they who were."""
        state, before = self.state, self._stepped_at
        self._stepped_at = asyncio.get_running_loop().time()
        gap_s = self._stepped_at - before
        if gap_s >= state.settings.silent_s:
            now = state.settings.steady()
            for node in state.nodes:
                node.seen_at = min(now, node.seen_at + gap_s)

    # Plans.

    def _plan(self, revision: Revision | None) -> tuple[ControllerPlan, list[Newcomer]]:
        state = self.state
        now_s = state.now_s()
        plan = ControllerPlan(now_s, state.wall(now_s))
        rows, self._rows = self._rows, []
        plan.rows = list(rows)
        requests, self._requests = list(self._requests), deque[Request]()
        dirty = state.placement.take_dirty()
        try:
            return plan, self._fill(plan, requests, dirty, revision)
        except Exception:
            self._requests.extendleft(reversed(requests))
            self._rows = rows
            state.placement.inspect_again(dirty)
            raise

    def _fill(
        self, plan: ControllerPlan, requests: Sequence[Request], dirty: set[int], revision: Revision | None
    ) -> list[Newcomer]:
        """Put everything into the plan that there is to do; nodes that come for the first time."""
        planner, updates = self._planner, self._planner.updates
        # Others that came since nodes were last taken in get the next turn.
        strangers = [each for each in self.backend.newcomers() if self.lifecycle.known(each.facts) is None]
        self.lifecycle.join(plan, strangers)
        self.lifecycle.apply(plan, [each for each in requests if isinstance(each.subject, str)])
        self.lifecycle.watch(plan)
        self.lifecycle.evacuate(plan)
        self._capacities.plan(plan)
        self._choices.plan(plan)
        self._requests.extend(planner.apply(plan, [each for each in requests if isinstance(each.subject, int)]))
        planner.inspect(plan, dirty)
        self.descriptions.record(plan)
        updates.submit(plan)
        if revision is not None and not self.state.exclusive:
            updates.revise(plan, revision.needs)
        updates.price(plan)
        updates.progress(plan)
        updates.rebook(plan)
        updates.reweigh(plan)
        updates.wake(plan)
        plan.sort_events()
        if self._requests:
            self.poke()
        return strangers

    async def _perform(self, plan: ControllerPlan, revision: Revision | None) -> None:
        """Record the plan, let the core decide, record that."""
        state = self.state
        try:
            await self._database.write([*self._event_rows(plan.events, plan.now_s), *plan.changes()])
        except Exception as error:
            state.placement.inspect_again(plan.seen | plan.again)
            kind = UncertainError if isinstance(error, UncertainError) else UnavailableError
            for request in plan.answered:
                if not request.done.done():
                    request.done.set_exception(kind(str(error)))
            raise
        try:
            await self._carry_out(plan, revision)
        except (UnavailableError, StoppedError):
            raise
        except Exception as error:
            log.exception("what is recorded was not done")
            raise StoppedError(f"the controller failed ({type(error).__name__}) and stops: start it again") from error

    async def _carry_out(self, plan: ControllerPlan, revision: Revision | None) -> None:
        """What is durable now is done, all of it."""
        state = self.state
        state.sequence += len(plan.events)
        state.versions.advance(state.sequence)
        for after in plan.after:
            after()
        # They refer to the plan: only the collector of cycles, which looks rarely, would free it and its jobs.
        plan.after.clear()
        state.changed()
        state.activity.show(plan.happened)
        for request in plan.answered:
            if not request.done.done():
                request.done.set_result(None)
        if revision is not None:
            self._needs.take(revision)
        if plan.events:
            await self._decide(plan)

    def _event_rows(self, events: Sequence[Event], now_s: float) -> list[Change]:
        first = self.state.sequence + 1
        rows = [
            {"sequence": first + k, "time_s": now_s, "event": json.dumps(encode(event)), "digest": ""}
            for k, event in enumerate(events)
        ]
        return [(tables.ADD_EVENT, rows)]

    async def _decide(self, plan: ControllerPlan) -> None:
        state = self.state
        decided, picture, reasons, whys = await asyncio.to_thread(self._ask_core, plan.events, plan.now_s)
        touched: set[int] = set()
        happened: list[Activity] = []
        for each in decided:
            touched |= state.apply(each)
            self._describe(each, reasons, plan.at, happened)
        state.picture, state.whys = picture, whys
        state.changed()
        state.tasks_changed |= any(len(each.commands) for each in decided)
        problems = [each.problem for each in decided if each.problem]
        for problem in problems:
            log.error("the core could not decide", problem=problem)
        if any(each.digest for each in decided):
            state.policy_problem = None
        if problems:
            state.policy_problem = problems[-1]
        self._show_bars(touched, plan.at)
        await self._record(decided, happened)

    def _ask_core(
        self, events: Sequence[Event], now_s: float
    ) -> tuple[list[Decided], SnapshotCopy, tuple[str, ...], Mapping[int, str]]:
        decided = self.state.decide(list(events), now_s)
        picture, reasons = self.state.inspect()
        target = self.state.core.target
        return decided, picture, reasons, {} if target is None else target.why

    async def _record(self, decided: Sequence[Decided], happened: Sequence[Activity]) -> None:
        """Make the decision's digests durable, however long it takes: before that, no node is told."""
        state = self.state
        first = state.sequence - len(decided) + 1
        digests = [{"b_sequence": first + k, "b_digest": each.digest} for k, each in enumerate(decided) if each.digest]
        changes: list[Change] = [
            (tables.SET_DIGEST, digests),
            (tables.ADD_ACTIVITY, [state.activity.row(each) for each in happened]),
        ]
        if not digests and not happened:
            state.activity.changed()
            return
        while True:
            try:
                await self._database.write(changes)
                break
            except UnavailableError as error:
                if self._stopping:
                    raise
                await self._pause(error)
        self.trouble = None
        state.activity.show(happened)

    def _describe(self, decided: Decided, reasons: Sequence[str], now: float, into: list[Activity]) -> None:
        state, commands = self.state, decided.commands
        if not len(commands):
            return
        for command, reason in zip(commands, commands.reason.tolist(), strict=True):
            word = _WORDS.get(command.action)
            if command.action == Action.LOST and reason != Reason.NODE_LOST:
                word = "requeue"
            job = state.jobs.get(command.job_id)
            if word is None or job is None or job.outcome is not None or command.action == DETACH:
                continue
            why = str(reasons[reason]) if 0 <= reason < len(reasons) else ""
            job.why = why
            names = tuple(state.nodes[node].name for node in command.nodes[:NODES_SHOWN])
            into.append(
                state.activity.number(
                    {
                        "time": now,
                        "job": job.id,
                        "node": None,
                        "action": word,
                        "nodes": names,
                        "yield_": command.yield_ if command.action in _MOVES else None,
                        "why": why,
                    }
                )
            )

    def _show_bars(self, names: set[int], now: float) -> None:
        state = self.state
        for name in names:
            job = state.jobs.get(name)
            if job is None:
                continue
            if not job.tasks:
                state.activity.end_bars(name, now)
            for task in job.tasks:
                key = (name, task.id.rank)
                if task.target < 0 or task.exit is not None or job.outcome is not None:
                    state.activity.end_bar(key, now)
                    continue
                state.activity.bar(
                    key,
                    now,
                    name=job.name,
                    user=job.user,
                    node=state.nodes[task.target].name,
                    paused=job.paused,
                    share_cores=state.placement.share_cores(job, task),
                )

    # Once a second or so.

    async def _tick(self, now: float) -> None:
        """One thing after the other: on a large cluster each takes as long as an answer may be late."""
        state = self.state
        used = views.used_by_node(state)
        self._capacities.look(used)
        await asyncio.sleep(0)
        row = state.activity.point(cluster_views.point(state, now, used))
        if row is not None:
            self._rows.append((tables.ADD_POINT, row))
        await asyncio.sleep(0)
        for name, job in state.jobs.items():
            start_at = job.request.start_at
            if not job.registered and start_at is not None and start_at <= now:
                state.candidates.setdefault(name)
        self.lifecycle.starts.look()
        await asyncio.sleep(0)
        self._take_points(now)
        if self._bound is not None and (self._bounding is None or self._bounding.done()):
            self._bounding = asyncio.create_task(self._find_bound(self._bound))

    def _take_points(self, now: float) -> None:
        """How the jobs fare."""
        points, jobs = self.state.job_points, self.state.jobs
        for name in points.watched.union(self.state.picture.running):
            job = jobs.get(name)
            if job is not None and job.started_at is not None and points.due(name, now):
                points.add(name, views.job_point(self.state, job, now))

    async def _find_bound(self, bound: Bound) -> None:
        try:
            present = cluster_views.on_nodes(self.state)
            self.state.best = BestYield.of(present, await asyncio.to_thread(bound, present))
        except Exception:
            log.exception("the bound cannot be computed")
            self.state.best = None
        self.state.changed()

    async def store(self) -> None:
        """As a last act: store the state whatever its age."""
        await self.checkpointer.store(anyway=True)
