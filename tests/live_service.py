"""A controller in memory that keeps its promises to the API and runs nothing."""

import asyncio
import base64
import hashlib
import secrets
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field

from dfrs.live.controller.reservations import Reservations
from dfrs.live.drivers.base import InputPart, ProgramSpec
from dfrs.live.errors import ConflictError, NotAdmittedError, NotFoundError, UnavailableError
from dfrs.live.protocol.agent_door import Link
from dfrs.live.protocol.durations import Durations, Measures
from dfrs.live.protocol.job_update import JobUpdate
from dfrs.live.protocol.ports import Piece
from dfrs.live.protocol.resources import (
    ENDED,
    Activity,
    Cluster,
    ClusterSnapshot,
    ExpectedStart,
    Explanation,
    GanttBar,
    Job,
    JobPoint,
    JobRequest,
    JobState,
    NewToken,
    Node,
    NodeState,
    OutputPart,
    Reservation,
    ReservationRequest,
    Role,
    ShadowChoice,
    TimePoint,
    TokenInfo,
    TokenRequest,
)
from dfrs.live.protocol.wire import FromAgent, Hello, StatusMessage, Welcome
from dfrs.model.errors import DfrsError, InputError
from tests.job_orders import sort_jobs


@dataclass(frozen=True)
class Somebody:
    user: str
    role: Role


@dataclass
class Attached:
    """One agent's connection, as the fake sees it."""

    service: "FakeService"
    hello: Hello
    link: Link
    received: list[FromAgent] = field(default_factory=list)
    detached: int = 0

    def receive(self, message: FromAgent) -> None:
        if isinstance(message, StatusMessage) and message.task.job not in self.service.by_id:
            raise InputError(f"task {message.task}: is not a task of this node")
        self.received.append(message)

    def detach(self) -> None:
        self.detached += 1
        if self.service.agents.get(self.hello.node) is self:
            del self.service.agents[self.hello.node]


class FakeService:
    """Implements `ports.Service`, and `agent_door.AgentDoor`."""

    def __init__(self) -> None:
        self.by_id: dict[int, Job] = {}
        self.requests: list[JobRequest] = []
        self.updates: list[tuple[int, Mapping[str, object]]] = []
        self.infos: dict[int, TokenInfo] = {}
        self.digests: dict[bytes, int] = {}
        self.nodes_by_name: dict[str, Node] = {}
        self.made = Reservations()
        self.agents: dict[str, Attached] = {}
        self.attachments: list[Attached] = []
        self.wrong: str | None = None
        self.unavailable = False
        self.not_admitted = ""
        self.sequence = 0
        self.changed = asyncio.Event()
        self.watchers = 0
        self.log_size = 3
        self.most_tasks = 100_000

    def token(self, user: str, role: Role, days: float = 1.0) -> str:
        secret = "dfrs_" + secrets.token_urlsafe(32)
        now = time.time()
        info = TokenInfo(
            id=len(self.infos) + 1, user=user, role=role, created_at=now, expires_at=now + days * 86400, revoked=False
        )
        self.infos[info.id] = info
        self.digests[hashlib.sha256(secret.encode()).digest()] = info.id
        return secret

    def add_node(self, name: str) -> None:
        self.nodes_by_name[name] = Node(
            name=name,
            host="here",
            state=NodeState.UP,
            cpus=2.0,
            memory_bytes=1 << 30,
            memory_free_bytes=1 << 30,
            used_cores=0.0,
            granted_cores=0.0,
            tasks=(),
            shares="nice",
            caps=False,
            pause_frees_memory=False,
            notes=(),
            connected=True,
            seen_at=0.0,
            version="1",
        )

    def tell(self) -> None:
        self.sequence += 1
        self.changed.set()
        self.changed = asyncio.Event()

    def measures(self):
        return Measures(commits=Durations(), decisions=Durations(), database_bytes=4096, events=self.sequence)

    async def submit(self, request: JobRequest, user: str, by: str) -> Sequence[int]:
        if self.unavailable:
            raise UnavailableError("the database cannot be written:\ndisk full")
        if request.tasks > self.most_tasks:
            raise InputError(f"tasks: {request.tasks}: no set of nodes has room")
        self.requests.append(request)
        ids = range(len(self.by_id) + 1, len(self.by_id) + 1 + (request.array or 1))
        for i in ids:
            self.by_id[i] = _job(i, request, user)
        self.tell()
        return list(ids)

    def _set(self, job: int, state: JobState) -> None:
        found = self.job(job)
        if found.state in ENDED:
            raise ConflictError(f"job {job}: has ended")
        self.by_id[job] = found.model_copy(update={"state": state})
        self.tell()

    async def cancel(self, job: int, by: str) -> None:
        self._set(job, JobState.CANCELLED)

    async def hold(self, job: int, by: str) -> None:
        self._set(job, JobState.HELD)

    async def release(self, job: int, by: str) -> None:
        self._set(job, JobState.WAITING)

    async def requeue(self, job: int, by: str) -> None:
        self._set(job, JobState.WAITING)
        self.by_id[job] = self.by_id[job].model_copy(update={"attempt": self.by_id[job].attempt + 1})

    async def update(self, job: int, update: JobUpdate, by: str) -> None:
        if self.job(job).state in ENDED:
            raise ConflictError(f"job {job}: has ended")
        self.updates.append((job, update.fields))
        shown = {name: value for name, value in update.fields.items() if name in Job.model_fields and value}
        self.by_id[job] = self.by_id[job].model_copy(update=shown)

    def _node(self, node: str) -> Node:
        if node not in self.nodes_by_name:
            raise NotFoundError(f"node {node}: there is no such node")
        return self.nodes_by_name[node]

    async def drain(self, node: str, by: str, reason: str = "") -> None:
        changes = {"state": NodeState.DRAINING, "drained": True, "drain_reason": reason}
        self.nodes_by_name[node] = self._node(node).model_copy(update=changes)

    async def undrain(self, node: str, by: str) -> None:
        self.nodes_by_name[node] = self._node(node).model_copy(
            update={"state": NodeState.UP, "drained": False, "drain_reason": ""}
        )

    async def reserve(self, request: ReservationRequest, by: str) -> Reservation:
        made = self.made.make(request, by, time.time(), self.nodes_by_name)
        self._put(made)
        return made

    async def cancel_reservation(self, reservation: int, by: str) -> Reservation:
        cancelled = self.made.cancelled(reservation, time.time())
        self._put(cancelled)
        return cancelled

    def _put(self, reservation: Reservation) -> None:
        self.made.put(reservation)
        for name in reservation.nodes:
            changes = {"reservations": self.made.of_node(name, time.time())}
            self.nodes_by_name[name] = self._node(name).model_copy(update=changes)

    def reservations(self) -> Sequence[Reservation]:
        return self.made.open(time.time())

    async def latest(self) -> ClusterSnapshot:
        return self.snapshot()

    def snapshot(self) -> ClusterSnapshot:
        return ClusterSnapshot.model_construct(
            sequence=self.sequence + 1000,
            activity=self.sequence,
            cluster=self.cluster(),
            nodes=tuple(self.nodes()),
            jobs=tuple(self.jobs(limit=1_000_000)),
        )

    def job(self, job: int, *, of: ClusterSnapshot | None = None) -> Job:
        if job not in self.by_id:
            raise NotFoundError(f"job {job}: there is no such job")
        return self.by_id[job]

    def owner(self, job: int) -> str:
        return self.job(job).user

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
        of: ClusterSnapshot | None = None,
    ) -> Sequence[Job]:
        wanted = states or frozenset(JobState) - ENDED
        found = [
            job
            for job in reversed(self.by_id.values())
            if job.state in wanted
            and user in {None, job.user}
            and (before is None or job.id < before)
            and (since is None or job.ended_at is None or job.ended_at >= since)
        ]
        return found[:limit] if sort is None else sort_jobs(found, sort)[skip : skip + limit]

    def nodes(self) -> Sequence[Node]:
        return sorted(self.nodes_by_name.values(), key=lambda node: node.name)

    def cluster(self) -> Cluster:
        return Cluster(
            name="fake",
            version="1",
            policy="FCFS",
            discovery="NONE",
            shadow=None,
            now=time.time(),
            started_at=0.0,
            jobs={JobState.WAITING: len(self.by_id)},
            nodes={NodeState.UP: len(self.nodes_by_name)},
            cpus=2.0,
            used_cores=0.5,
            minimum_yield=0.25,
            median_yield=None,
            jain=None,
            bound=0.5,
            decisions=7,
            decision_s=0.001,
            shadow_differs=0,
        )

    def activity(self, *, after: int = 0, job: int | None = None, limit: int = 200) -> Sequence[Activity]:
        rows = range(max(after, self.sequence - limit) + 1, self.sequence + 1)
        return [Activity(sequence=i, time=1.0, job=job or i, node=None, action="submit") for i in rows]

    def timeseries(self, since: float) -> Sequence[TimePoint]:
        return [
            TimePoint(
                time=since,
                minimum_yield=None,
                median_yield=None,
                jain=None,
                bound=None,
                running=0,
                waiting=0,
                used_cores=0.0,
            )
        ]

    def gantt(self, since: float) -> Sequence[GanttBar]:
        return [GanttBar(job=1, rank=0, name="a", user="u", node="n", begin=since, end=None, share_cores=0.5)]

    def queue(self, limit: int, *, of: ClusterSnapshot) -> Sequence[Job]:
        return queue_of(of.jobs)[:limit]

    def explain(self, job: int, *, of: ClusterSnapshot) -> Explanation:
        return Explanation.model_construct(
            job=self.job(job), now="it waits", history=(), bound=None, cluster=of.cluster
        )

    def job_points(self, job: int) -> Sequence[JobPoint]:
        found = self.job(job)
        return [
            JobPoint(
                time=found.submitted_at + k,
                yield_granted=found.yield_granted,
                yield_received=found.yield_received,
                need_cores=found.need_cores,
                used_cores=found.used_cores,
                used_bytes=found.used_bytes,
            )
            for k in range(3)
        ]

    async def expected_start(self, job: int) -> ExpectedStart:
        self.job(job)
        return ExpectedStart(at=2e9, why="if all goes well")

    def shadow(self, limit: int = 100) -> Sequence[ShadowChoice]:
        return [ShadowChoice(time=1.0, job=1, did="start", would="wait")][:limit]

    async def write(self, job: int, rank: int, part: InputPart) -> int:
        self.job(job)
        return len(base64.b64decode(part.data))

    async def execute(self, job: int, rank: int, program: ProgramSpec) -> None:
        self.job(job)

    async def output(self, job: int, rank: int, piece: Piece) -> OutputPart:
        if rank >= self.job(job).tasks:
            raise NotFoundError(f"task {job}.{rank}: there is no such task")
        whole = f"the output of job {job}"
        text = whole[piece.offset : piece.offset + piece.limit]
        end = piece.offset + len(text)
        return OutputPart(text=text, offset=piece.offset, next_offset=end, end_offset=len(whole), ended=False)

    async def changes(self) -> AsyncGenerator[int]:
        self.watchers += 1
        try:
            while True:
                changed = self.changed
                yield self.sequence
                await asyncio.wait_for(changed.wait(), 15.0)
        finally:
            self.watchers -= 1

    async def log(self) -> AsyncGenerator[str]:
        yield '{"format": "dfrs-log/1"}'
        for i in range(self.log_size):
            yield f'{{"time_s": {i}.0}}'

    def healthy(self) -> str | None:
        return self.wrong

    async def create_token(self, request: TokenRequest, by: str) -> NewToken:
        secret = self.token(request.user, request.role, request.days)
        return NewToken(**self.infos[len(self.infos)].model_dump(), token=secret)

    async def revoke_token(self, token: int, by: str) -> None:
        if token not in self.infos:
            raise NotFoundError(f"token {token}: there is no such token")
        self.infos[token] = self.infos[token].model_copy(update={"revoked": True})

    def tokens(self) -> Sequence[TokenInfo]:
        return list(self.infos.values())

    def identify(self, secret: str) -> Somebody | None:
        info = self.infos.get(self.digests.get(hashlib.sha256(secret.encode()).digest(), 0))
        if info is None or info.revoked or info.expires_at <= time.time():
            return None
        return Somebody(info.user, info.role)

    async def admit(self, hello: Hello, secret: str, *, here: bool) -> Hello:
        if self.not_admitted:
            raise NotAdmittedError(self.not_admitted)
        return hello

    async def rebind_token(self, token: int, by: str) -> None:
        if token not in self.infos:
            raise NotFoundError(f"token {token}: there is no such token")
        self.infos[token] = self.infos[token].model_copy(update={"host": None})

    def attach(self, hello: Hello, link: Link) -> Attached:
        if hello.node in self.agents:
            raise ConflictError(f"node {hello.node}: is connected already")
        attached = self.agents[hello.node] = Attached(self, hello, link)
        self.attachments.append(attached)
        link.send(Welcome(report_s=1.0, desired=()))
        return attached

    async def start(self) -> None:
        """Nothing to do."""

    async def stop(self) -> None:
        """Nothing to do."""

    async def stopped(self) -> DfrsError:
        """It always goes on."""
        await asyncio.Event().wait()
        raise AssertionError


def queue_of(jobs: Sequence[Job]) -> Sequence[Job]:
    """Those that wait, the longest first."""
    waiting = [job for job in jobs if job.state in {JobState.WAITING, JobState.PENDING, JobState.HELD}]
    return sorted(waiting, key=lambda job: (job.submitted_at, job.id))


def _job(number: int, request: JobRequest, user: str) -> Job:
    return Job.model_construct(
        id=number,
        name=request.name or "job",
        user=user,
        state=JobState.HELD if request.held else JobState.WAITING,
        why="no node is there",
        command=request.command,
        tasks=request.tasks,
        cpu_cores=request.cpu_cores,
        need_cores=request.cpu_cores or 1.0,
        need_error_cores=None,
        memory_bytes=request.memory_bytes or 1 << 28,
        minimum_yield=request.minimum_yield,
        yield_granted=None,
        yield_received=None,
        yield_received_error=None,
        used_cores=None,
        used_bytes=None,
        cpu_s=0.0,
        nodes=(),
        submitted_at=time.time(),
        started_at=None,
        ended_at=None,
        start_at=request.start_at,
        output_file=request.output_file,
        error_file=request.error_file,
        virtual_s=0.0,
        stretch=None,
        estimate_s=request.estimate_s,
        after=request.after,
        after_failed=request.after_failed,
        after_any=request.after_any,
        after_start=request.after_start,
        array_index=None,
        attempt=0,
        pauses=0,
        migrations=0,
        exit="",
        exit_code=None,
        nodelist=request.nodelist,
        exclude=request.exclude,
        constraint=request.constraint,
        account=request.account,
    )
