"""The controller: what `dfrs.live.protocol.ports.Service` promises, kept by an engine, a state and a database."""

import asyncio
import base64
import codecs
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TypeVar

from dfrs.live.controller import checkpoint, fair_shares, tables, views
from dfrs.live.controller.admissions import Limits
from dfrs.live.controller.backend import Backend
from dfrs.live.controller.cluster_snapshots import ClusterSnapshots
from dfrs.live.controller.control import Control
from dfrs.live.controller.controller_plan import JobChange
from dfrs.live.controller.damage import DamagedError, damaged
from dfrs.live.controller.database import DOUBTFUL, REPLACED, Change, Database
from dfrs.live.controller.engine import Bound, ControllerLoop
from dfrs.live.controller.expected_starts import ExpectedStarts
from dfrs.live.controller.export import lines
from dfrs.live.controller.job_queries import JobQueries
from dfrs.live.controller.observing import Observer
from dfrs.live.controller.pruned import KEY
from dfrs.live.controller.records import NodeRecord
from dfrs.live.controller.retention import Retention
from dfrs.live.controller.settings import ControllerSettings
from dfrs.live.controller.shadow import Shadowed
from dfrs.live.controller.shielded_tasks import ShieldedTasks
from dfrs.live.controller.standby.following import Follower
from dfrs.live.controller.standby.lease import LeaseKeeper
from dfrs.live.controller.standby.waiting import Standby
from dfrs.live.controller.state import State
from dfrs.live.controller.submissions import Submissions
from dfrs.live.controller.tokens import Tokens, Who
from dfrs.live.drivers.base import InputPart, ProgramSpec, TaskId
from dfrs.live.errors import ConflictError, NotFoundError, UnavailableError
from dfrs.live.protocol.durations import Measures
from dfrs.live.protocol.job_update import JobUpdate, changed
from dfrs.live.protocol.ports import Aside, Chosen, Facts, Instant, Piece
from dfrs.live.protocol.resources import (
    ENDED,
    Activity,
    Cluster,
    ExpectedStart,
    Explanation,
    GanttBar,
    Job,
    JobPoint,
    JobRequest,
    JobState,
    NewToken,
    Node,
    OutputPart,
    Reservation,
    ReservationRequest,
    Role,
    ShadowChoice,
    TimePoint,
    TokenInfo,
    TokenRequest,
)
from dfrs.model.decisions import Policy
from dfrs.model.errors import DfrsError, InputError, ReplacedError
from dfrs.model.needs import Discovery
from dfrs.version import __version__

MOST_READ = 1 << 19
"""Bytes of output in one answer."""
STOP_S = 30.0
WATCH_S = 0.25
"""Between two looks at the lease."""

T = TypeVar("T")


def _as_text(data: bytes, *, last: bool) -> tuple[str, int]:
    """The text, and how many bytes at the end are only a part of a character: none where these are the `last` ones."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return decoder.decode(data, last), len(decoder.getstate()[0])


class _NotStartedError(ConflictError):
    """The job may run later."""


class Controller:
    """A `Service`. Between `start` and `stop` it schedules real jobs, which `backend` runs: it belongs to this one.

    `find` gives policies by the names of earlier starts: what they decided is decided again by them. `writer` runs the
    transactions of the database, one after the other; by default it is a thread.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        policy: Policy,
        discovery: Discovery | None = None,
        shadow: Policy | None = None,
        bound: Bound | None = None,
        *,
        backend: Backend,
        find: checkpoint.Find,
        writer: Executor | None = None,
    ) -> None:
        self.settings = settings
        self.database = Database(settings.database, writer)
        self._shadowed = None if shadow is None else Shadowed(policy, shadow, self._node_name, settings.clock)
        self.state = State(settings, policy if self._shadowed is None else self._shadowed, backend.facts)
        observed = None if discovery is None or discovery.name == "NONE" else discovery
        self._observer = Observer(observed, weighted=self.state.weighted)
        self.engine = ControllerLoop(self.state, self.database, self._observer, bound, backend)
        self._find = find
        self.retention = Retention(self.state, self.database, self.engine.checkpointer)
        self.shielded = ShieldedTasks()
        self._submissions = Submissions(
            self.state, self.database, self.engine.quotas, self.shielded, self.retention.lock, self.engine.poke
        )
        backend.open(Control(self.state, self.engine, self._submissions))
        self._url = ""
        self._standby: Standby | None = None
        if settings.standby:
            follower = Follower(settings, self.state.policy, observed, find, backend.facts)
            self._standby = Standby(self.database, follower, settings)
        self._watching: asyncio.Task[None] | None = None
        self.snapshots = ClusterSnapshots(self.state, self._counters)
        self._queries = JobQueries(self.state, self.database, self.snapshots.make)
        self._starts = ExpectedStarts(self.state, self.engine.core_state)
        self._tokens = Tokens()
        self._running: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None

    def announce(self, url: str) -> None:
        """Before `start`: users find it at `url`, also those who ask a standby."""
        self._url = url

    def aside(self) -> Aside | None:
        """Why it serves nobody now; None where it leads."""
        if isinstance(self.engine.problem, ReplacedError):
            return Aside(str(self.engine.problem))
        if self._running is None and self._standby is not None:
            leader = self._standby.leader
            return Aside(
                f"standby: {f'the leader is {leader}' if leader else 'takes over, or looks who leads'}", leader
            )
        return Aside(DOUBTFUL) if self.engine.suspended else None

    async def start(self) -> None:
        """Open the database, bring back what it has, and begin to schedule. Raises InputError, UnavailableError.

        A standby waits before that as long as another controller leads.
        """
        taken, warm = None, None
        if self._standby is not None:
            taken = await self._standby.take_over(self._url)
            warm = await self.database.read(self._standby.follower.confirm)
        else:
            await asyncio.to_thread(self.database.open, url=self._url)
        try:
            stored = await self.database.read(partial(checkpoint.load, warm=warm))
            missing = await asyncio.to_thread(
                checkpoint.restore, self.state, self._observer, self._tokens, stored, self._find
            )
        except DamagedError as error:
            raise InputError(damaged(self.database.name, error.why)) from None
        if isinstance(stored.checkpoint, checkpoint.WarmState):
            missing = [*stored.checkpoint.missing, *missing]
        self._submissions.next_job = stored.last_job + 1
        self.state.start_clock(*(() if taken is None else (taken.now_s, taken.at)))
        await self._mark_start(missing, stored)
        if self._shadowed is not None:
            self._shadowed.awake = True
        if self.database.lease is not None:
            self.database.lease.now_s = self.state.running_s
            self._watching = asyncio.create_task(self._watch(self.database.lease))
        self._running = asyncio.create_task(self.engine.run())
        self.engine.outbox.begin(stored.meta)
        self._checking = asyncio.create_task(asyncio.to_thread(self.database.check_large))
        if self.settings.keep_s is not None:
            pruning = asyncio.create_task(self.retention.run())
            self._running.add_done_callback(lambda _: pruning.cancel())

    async def _watch(self, lease: LeaseKeeper) -> None:
        """Notice that another controller leads, or may lead, also while a step waits for the database."""
        while not lease.replaced:
            if lease.standbys != self.state.standbys:
                self.state.standbys = lease.standbys
                self.state.changed()
            self.engine.suspend(suspended=lease.stood_by and not lease.good)
            await asyncio.sleep(WATCH_S)
        self.engine.give_up(ReplacedError(REPLACED))

    async def _mark_start(self, missing: Sequence[tuple[int, str]], stored: checkpoint.Stored) -> None:
        """Record that it came back, so that versions from now on are higher than all before, and in which generation.

        The number of that event and the wall clock together do not come a second time, whatever copy was restored.
        """
        state = self.state
        sequence = state.sequence + 1
        generation = hashlib.sha256(f"{sequence} {self.settings.clock()!r}".encode()).hexdigest()[:8]
        marker = {
            "event": checkpoint.RESTART,
            "policy": self.settings.policy,
            "version": __version__,
            "generation": generation,
        }
        row = {"sequence": sequence, "time_s": state.now_s(), "event": json.dumps(marker), "digest": ""}
        changes: list[Change] = [
            (tables.ADD_EVENT, [row]),
            (tables.SET_DIGEST, [{"b_sequence": number, "b_digest": digest} for number, digest in missing]),
        ]
        first = {
            "epoch": repr(state.epoch),
            KEY: state.pruned.text(),
            fair_shares.KEY: state.fair_shares.row()["b_value"],
        }
        rows = [{"key": key, "value": value} for key, value in first.items() if key not in stored.meta]
        changes.append((tables.ADD_META, rows))
        await self.database.write(changes)
        state.sequence = sequence
        state.placement.generation = generation
        state.versions.advance(sequence)
        # What a standby began with is in no database: pruning counts on what is.
        known = 0 if stored.checkpoint is None else stored.last_checkpoint
        self.engine.begin(known or None)

    async def stop(self) -> None:
        """Schedule no more; jobs run on."""
        if self._watching is not None:
            self._watching.cancel()
        await self.engine.outbox.stop()
        if self._running is not None:
            await self.engine.backend.end()
            self.engine.stop()
            await asyncio.wait({self._running}, timeout=STOP_S)
            # In the middle of a step, the state in memory is of no one moment: the record has all of it.
            whole = self._running.done() and self.engine.sound
            self._running.cancel()
            if whole:
                with contextlib.suppress(DfrsError):
                    await self.engine.store()
        await asyncio.to_thread(self.database.close)

    async def stopped(self) -> DfrsError:
        """Return when it cannot go on: why."""
        await self.engine.stopped.wait()
        assert self.engine.problem is not None
        return self.engine.problem

    def healthy(self) -> str | None:
        """As `Service.healthy`."""
        aside = self.aside()
        if aside is not None:
            return aside.detail
        if self._running is None or self._running.done():
            return self.engine.trouble or "the controller does not run"
        return self.database.trouble or self.engine.trouble or self.state.policy_problem

    def measures(self) -> Measures:
        """As `Service.measures`."""
        return Measures(
            commits=self.database.durations,
            decisions=self.state.decisions,
            database_bytes=self.database.bytes(),
            events=self.state.sequence,
            pruned_events=self.state.pruned.events,
            database_trouble=self.database.trouble is not None,
            retention_trouble=self.retention.trouble is not None,
        )

    # Jobs.

    async def submit(self, request: JobRequest, user: str, by: str) -> Sequence[int]:
        """As `Service.submit`. InputError also where another engine has the queue."""
        if self.engine.backend.intake:
            raise InputError(self.engine.backend.intake)
        return await self._submissions.submit(request, user, by)

    async def cancel(self, job: int, by: str) -> None:
        """As `Service.cancel`."""
        await self._ask("cancel", job, by)

    async def hold(self, job: int, by: str) -> None:
        """As `Service.hold`."""
        await self._ask("hold", job, by)

    async def release(self, job: int, by: str) -> None:
        """As `Service.release`."""
        await self._ask("release", job, by)

    async def requeue(self, job: int, by: str) -> None:
        """As `Service.requeue`."""
        await self._ask("requeue", job, by)

    async def update(self, job: int, update: JobUpdate, by: str) -> None:
        """As `Service.update`. ConflictError also where another engine has the queue."""
        record = self.state.jobs.get(job)
        if record is not None and record.key:
            raise ConflictError(f"job {job}: came by the queue of another scheduler: change it there")
        async with AsyncExitStack() as held:
            ended: Mapping[int, str] = {}
            if record is not None and changed(record.request, update.fields).dependencies:
                # As long as none is pruned, and no other change says what it is to come after.
                await held.enter_async_context(self.retention.lock)
                ended = await self._submissions.ended_dependencies(changed(record.request, update.fields))
            await self._ask("update", job, by, JobChange(update.fields, ended))

    async def _ask(self, verb: str, job: int, by: str, change: JobChange | None = None) -> None:
        if job not in self.state.jobs:
            raise ConflictError(f"job {job}: has ended: {self.job(job).state}")
        await self.engine.ask(verb, job, by, change=change)

    async def latest(self) -> Instant:
        """As `Service.latest`."""
        return await self.snapshots.latest()

    def job(self, job: int, *, of: Instant | None = None) -> Job:
        """As `Service.job`."""
        return self._queries.job(job, of=of)

    def owner(self, job: int) -> str:
        """As `Service.owner`."""
        return self._queries.owner(job)

    def jobs(
        self,
        *,
        user: str | None = None,
        states: frozenset[JobState] | None = None,
        before: int | None = None,
        since: float | None = None,
        limit: int = 100,
        sort: str | None = None,
        skip: int = 0,
        of: Instant | None = None,
    ) -> Sequence[Job]:
        """As `Service.jobs`."""
        chosen = Chosen(user=user, states=states, before=before, since=since)
        return self._queries.jobs(chosen, limit=limit, sort=sort, skip=skip, of=of)

    def queue(self, limit: int, *, of: Instant) -> Sequence[Job]:
        """As `Service.queue`."""
        return of.open.queue(limit)

    def explain(self, job: int, *, of: Instant | None = None) -> Explanation:
        """As `Service.explain`."""
        return self._queries.explain(job, of=of)

    def job_points(self, job: int) -> Sequence[JobPoint]:
        """As `Service.job_points`."""
        self.job(job)
        return self.state.job_points.of(job)

    async def expected_start(self, job: int) -> ExpectedStart:
        """As `Service.expected_start`."""
        record = self.state.jobs.get(job)
        if record is not None:
            return await self._starts.of(record)
        return ExpectedStart(at=self.job(job).started_at, why="it has ended")

    async def output(self, job: int, rank: int, piece: Piece) -> OutputPart:
        """As `Service.output`."""
        found, record = self._of_rank(job, rank), self.state.jobs.get(job)
        if rank >= len(found.nodes):
            nothing = "" if piece.raw else None
            return OutputPart(
                text="",
                data=nothing,
                offset=piece.offset,
                next_offset=piece.offset,
                ended=found.state in ENDED,
                attempt=found.attempt,
            )
        task = None if record is None else record.tasks[rank]
        node = self.engine.lifecycle.find(found.nodes[rank])
        if node is not None and task is not None and task.at and node.number not in task.at:
            node = self.state.nodes[next(iter(task.at))]
        if node is None or not node.connected:
            raise UnavailableError(f"node {found.nodes[rank]}: is away: its output can be read when it is back")
        name = TaskId(job=job, rank=rank, attempt=found.attempt, generation=found.generation)
        answer = await self.engine.backend.read(node, name, replace(piece, limit=min(piece.limit, MOST_READ)))
        over = record is None or (task is not None and task.exit is not None)
        if answer.error:
            if not over and piece.program is None:
                return OutputPart(
                    text="", offset=piece.offset, next_offset=piece.offset, ended=False, attempt=found.attempt
                )
            raise NotFoundError(f"job {job}: task {rank}: {answer.error}")
        if piece.program is not None:
            over = answer.exit_code is not None
        end = answer.offset + len(answer.data)
        ended = over and end >= answer.end
        text, data = "", None
        if piece.raw:
            data = base64.b64encode(answer.data).decode()
        else:
            text, held_back = _as_text(answer.data, last=ended)
            if held_back == len(answer.data) and (end < answer.end or piece.wait_s):
                # Less than a character was asked for; or who waits for more would be told nothing over and over.
                text, held_back = _as_text(answer.data, last=True)
            end -= held_back
        return OutputPart(
            text=text,
            data=data,
            offset=answer.offset,
            next_offset=end,
            end_offset=answer.end,
            ended=ended,
            exit_code=answer.exit_code,
            attempt=found.attempt,
        )

    async def write(self, job: int, rank: int, part: InputPart) -> int:
        """As `Service.write`."""
        try:
            node, task = self._present(job, rank)
        except _NotStartedError as error:
            raise UnavailableError(str(error)) from None
        return await self.engine.backend.write(node, task, part)

    async def execute(self, job: int, rank: int, program: ProgramSpec) -> None:
        """As `Service.execute`."""
        await self.engine.backend.execute(*self._present(job, rank), program)

    def _of_rank(self, job: int, rank: int) -> Job:
        found = self.job(job)
        if not 0 <= rank < found.tasks:
            raise NotFoundError(f"job {job}: task {rank}: it has tasks 0 to {found.tasks - 1}")
        return found

    def _present(self, job: int, rank: int) -> tuple[NodeRecord, TaskId]:
        """Where a task runs, and its name. Raises NotFoundError; ConflictError where it does not run."""
        found, record = self._of_rank(job, rank), self.state.jobs.get(job)
        if record is None or (rank < len(record.tasks) and record.tasks[rank].exit is not None):
            raise ConflictError(
                f"job {job}: has ended: {found.state}" if record is None else f"job {job}: task {rank} has ended"
            )
        holder = record.tasks[rank].holder if rank < len(record.tasks) else None
        if holder is None:
            raise _NotStartedError(f"job {job}: has not started: {found.state}")
        return self.state.nodes[holder], record.tasks[rank].id

    # Nodes.

    async def drain(self, node: str, by: str, reason: str = "") -> None:
        """As `Service.drain`."""
        await self.engine.ask("drain", node, by, reason)

    async def undrain(self, node: str, by: str) -> None:
        """As `Service.undrain`."""
        await self.engine.ask("undrain", node, by)

    async def reserve(self, request: ReservationRequest, by: str) -> Reservation:
        """As `Service.reserve`."""
        now = self.settings.clock()
        known = {node.name for node in views.present_nodes(self.state)}
        made = self.state.reservations.make(request, by, now, known)
        await self.shielded.run(
            self._record_reservation("reserve", by, made, self.state.reservations.addition(made, now))
        )
        return made

    async def cancel_reservation(self, reservation: int, by: str) -> Reservation:
        """As `Service.cancel_reservation`."""
        changed = self.state.reservations.cancelled(reservation, self.settings.clock())
        await self.shielded.run(
            self._record_reservation("unreserve", by, changed, [self.state.reservations.change(changed)])
        )
        return changed

    async def _record_reservation(
        self, action: str, by: str, reservation: Reservation, changes: Sequence[Change]
    ) -> None:
        noted = [self._note(action, by, reservation.reason, node=name) for name in reservation.nodes]
        await self.database.write([*changes, *(change for _, change in noted)])
        self.state.reservations.put(reservation)
        self.state.changed()
        self.state.activity.show(activity for activity, _ in noted)
        self.engine.poke()

    def reservations(self) -> Sequence[Reservation]:
        """As `Service.reservations`."""
        return self.state.reservations.open(self.settings.clock())

    def nodes(self) -> Sequence[Node]:
        """Of a snapshot made now."""
        return self.snapshots.make().nodes

    async def admit(self, facts: Facts, secret: str, *, here: bool) -> Facts:
        """As `Service.admit`."""
        node = self.engine.lifecycle.find(facts.node)
        known = None if node is None else node.facts
        admission = self._tokens.admit(secret, facts, known, self.settings.clock(), here=here)
        self.engine.lifecycle.refuse(facts, self.settings.steady())
        if admission.bound is not None:
            before = self._tokens.check(admission.bound.id)
            # Before it is written: another node may come with it meanwhile.
            self._tokens.bind(admission.bound)
            await self.shielded.run(self._record_binding(before, admission.bound))
        return admission.facts

    async def _record_binding(self, before: TokenInfo, bound: TokenInfo) -> None:
        limits = Limits(bound.cpus or 0.0, bound.memory_bytes or 0, bound.resources or {})
        what = f"token {bound.id}: {limits}, host {bound.host}"
        activity, change = self._note("admit", "controller", what, node=bound.node)
        try:
            await self.database.write([_binding(bound), change])
        except BaseException:
            self._tokens.bind(before)
            raise
        self.state.activity.show([activity])

    def _node_name(self, number: int) -> str:
        return self.state.nodes[number].name

    # The whole.

    def cluster(self) -> Cluster:
        """Of a snapshot made now."""
        return self.snapshots.make().cluster

    def _counters(self) -> tuple[int, int]:
        return self.state.core.decisions, 0 if self._shadowed is None else self._shadowed.differs

    def activity(self, *, after: int = 0, job: int | None = None, limit: int = 200) -> Sequence[Activity]:
        """As `Service.activity`."""
        if job is None:
            return self.state.activity.latest(after, limit)
        return self._queries.activity(job, after=after, limit=limit)

    def timeseries(self, since: float) -> Sequence[TimePoint]:
        """As `Service.timeseries`."""
        return self.state.activity.timeseries(since)

    def gantt(self, since: float) -> Sequence[GanttBar]:
        """As `Service.gantt`."""
        return self.state.activity.gantt(since)

    def shadow(self, limit: int = 100) -> Sequence[ShadowChoice]:
        """As `Service.shadow`."""
        return () if self._shadowed is None else self._shadowed.choices(limit)

    def changes(self) -> AsyncIterator[int]:
        """As `Service.changes`."""
        return self.state.activity.changes()

    def log(self) -> AsyncIterator[str]:
        """As `Service.log`."""
        return lines(self.state, self.database, self.retention.reading)

    # Tokens.

    async def create_token(self, request: TokenRequest, by: str) -> NewToken:
        """As `Service.create_token`."""
        return await self.shielded.run(self._create_token(request, by))

    async def _create_token(self, request: TokenRequest, by: str) -> NewToken:
        made, row = self._tokens.make(request, self.settings.clock())
        activity, change = self._note("token", by, f"token {made.id} for {made.user}, role {made.role}")
        await self.database.write([(tables.ADD_TOKEN, [row]), change])
        self._tokens.add(row["hash"], TokenInfo(**made.model_dump(exclude={"token"})))
        self.state.activity.show([activity])
        return made

    async def revoke_token(self, token: int, by: str) -> None:
        """As `Service.revoke_token`."""
        self._tokens.check(token)
        await self.shielded.run(self._revoke_token(token, by))

    async def _revoke_token(self, token: int, by: str) -> None:
        activity, change = self._note("revoke", by, f"token {token}")
        await self.database.write([(tables.REVOKE_TOKEN, [{"b_id": token}]), change])
        self._tokens.revoke(token)
        self.state.activity.show([activity])

    async def rebind_token(self, token: int, by: str) -> None:
        """As `Service.rebind_token`."""
        found = self._tokens.check(token)
        if found.role != "agent":
            raise ConflictError(f"token {token}: has role {found.role}; only agents' tokens are bound to nodes")
        await self.shielded.run(self._rebind_token(found, by))

    async def _rebind_token(self, token: TokenInfo, by: str) -> None:
        free = token.model_copy(update=dict.fromkeys(set(tables.BINDING) - {"node"}))
        activity, change = self._note("rebind", by, f"token {token.id}")
        await self.database.write([_binding(free), change])
        self._tokens.bind(free)
        self.state.activity.show([activity])

    def _note(self, action: str, by: str, why: str, *, node: str | None = None) -> tuple[Activity, Change]:
        activity = self.state.activity
        made = activity.number(
            {"time": self.settings.clock(), "job": None, "node": node, "action": action, "why": why, "by": by}
        )
        return made, (tables.ADD_ACTIVITY, [activity.row(made)])

    def tokens(self) -> Sequence[TokenInfo]:
        """As `Service.tokens`."""
        return self._tokens.all()

    async def first_tokens(self, user: str) -> Mapping[Role, NewToken]:
        """An admin's token for `user` and one for agents, for each of the two roles that has none in force."""
        now = self.settings.clock()
        had = {info.role for info in self._tokens.all() if not info.revoked and info.expires_at > now}
        wanted: Mapping[Role, str] = {"admin": user, "agent": "agent"}
        return {
            role: await self.create_token(TokenRequest(user=name, role=role, local=role == "agent"), by="controller")
            for role, name in wanted.items()
            if role not in had
        }

    def identify(self, secret: str) -> Who | None:
        """As `Service.identify`."""
        return self._tokens.identify(secret, self.settings.clock())


def _binding(token: TokenInfo) -> Change:
    row = {f"b_{name}": getattr(token, name) for name in ("id", *tables.BINDING)}
    counts = None if token.resources is None else json.dumps(token.resources, sort_keys=True)
    return tables.BIND_TOKEN, [row | {"b_resources": counts}]
