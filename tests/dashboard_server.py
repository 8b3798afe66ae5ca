"""A cluster that is only told: the real API with its real page, in front of a made-up service with a day's history."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

import uvicorn

from dfrs.live.api.routes import create_app
from dfrs.live.errors import ConflictError, NotFoundError
from dfrs.live.protocol.ports import Piece
from dfrs.live.protocol.resources import (
    ENDED,
    Activity,
    Cluster,
    ClusterSnapshot,
    Explanation,
    GanttBar,
    Job,
    JobPoint,
    JobState,
    Node,
    NodeState,
    OutputPart,
    ShadowChoice,
    TimePoint,
    shown_yield,
)
from dfrs.live.web.files import PAGE
from tests.job_orders import sort_jobs
from tests.live_service import queue_of

NASTY = '<img src=x onerror="window.hacked=1">'
SPAN_S = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class Caller:
    """Who a secret belongs to."""

    user: str
    role: str


CALLERS = {
    "root-secret": Caller("ada", "admin"),
    "alice-secret": Caller("alice", "user"),
    "eye-secret": Caller("eve", "viewer"),
}


@dataclass(slots=True)
class Told:
    """What `dfrs.live.protocol.ports.Service` asks for, as far as the page needs it."""

    now0: float
    nodes_: dict[str, Node] = field(default_factory=dict)
    jobs_: dict[int, Job] = field(default_factory=dict)
    bars_: list[GanttBar] = field(default_factory=list)
    points_: list[TimePoint] = field(default_factory=list)
    activity_: list[Activity] = field(default_factory=list)
    shadow_: list[ShadowChoice] = field(default_factory=list)
    asked: list[tuple[str, object, str]] = field(default_factory=list)
    shadow_policy: str | None = "EASY"
    broken: bool = False
    snapshots_: int = 0

    def tell(
        self, action: str, why: str = "", *, job: int | None = None, node: str | None = None, **more: object
    ) -> None:
        sequence = len(self.activity_) + 1
        fields = {"time": time.time(), **more}
        self.activity_.append(Activity(sequence=sequence, job=job, node=node, action=action, why=why, **fields))

    def change(self, job: int, **fields: object) -> None:
        self.jobs_[job] = self.job(job).model_copy(update=fields)

    async def latest(self) -> ClusterSnapshot:
        if self.broken:
            raise RuntimeError("broken on purpose")
        self.snapshots_ += 1
        return ClusterSnapshot(
            sequence=self.snapshots_,
            activity=len(self.activity_),
            cluster=self.cluster(),
            nodes=tuple(self.nodes_.values()),
            jobs=tuple(self._open()),
        )

    def _open(self) -> Sequence[Job]:
        return [job for _, job in sorted(self.jobs_.items(), reverse=True) if job.state not in ENDED]

    def queue(self, limit: int, *, of: ClusterSnapshot) -> Sequence[Job]:
        return queue_of(of.jobs)[:limit]

    def job(self, job: int, *, of: ClusterSnapshot | None = None) -> Job:
        if job not in self.jobs_:
            raise NotFoundError(f"job {job}: there is no such job")
        return self.jobs_[job]

    def owner(self, job: int) -> str:
        return self.job(job).user

    def jobs(
        self, *, of, user=None, states=None, before=None, since=None, limit=100, sort=None, skip=0
    ) -> Sequence[Job]:
        wanted = frozenset(JobState) - ENDED if states is None else states
        latest = sorted(self.jobs_, reverse=True)
        found = (self.jobs_[k] for k in latest if before is None or k < before)
        chosen = [job for job in found if job.state in wanted and user in (None, job.user)]
        return chosen[:limit] if sort is None else sort_jobs(chosen, sort)[skip : skip + limit]

    def cluster(self) -> Cluster:
        shown = [job for job in self.jobs_.values() if shown_yield(job) is not None]
        live = [shown_yield(job) for job in shown]
        nodes = self.nodes_.values()
        square = sum(value * value for value in live)
        return Cluster(
            name="attic",
            version="0.1.0",
            policy="GreedyPM*/per/OPT=MIN/MVT=600",
            discovery="OBSERVE",
            shadow=self.shadow_policy,
            now=time.time(),
            started_at=self.now0 - SPAN_S,
            jobs={state: sum(job.state is state for job in self.jobs_.values()) for state in JobState},
            nodes={state: sum(node.state is state for node in nodes) for state in NodeState},
            cpus=sum(node.cpus for node in nodes),
            used_cores=sum(node.used_cores for node in nodes),
            minimum_yield=min(live) if live else None,
            median_yield=median(live) if live else None,
            jain=sum(live) ** 2 / (len(live) * square) if square else None,
            unmeasured=sum(job.yield_received is None for job in shown),
            bound=min(1.0, min(live) * 1.14 + 0.02) if live else None,
            decisions=1284,
            decision_s=0.0042,
            shadow_differs=len(self.shadow_) * 9,
        )

    def activity(self, *, after=0, job=None, limit=200) -> Sequence[Activity]:
        return [one for one in self.activity_ if one.sequence > after and job in (None, one.job)][-limit:]

    def timeseries(self, since: float) -> Sequence[TimePoint]:
        found = [point for point in self.points_ if point.time >= since]
        return found[:: max(1, len(found) // 300)]

    def gantt(self, since: float) -> Sequence[GanttBar]:
        return [bar for bar in self.bars_ if bar.end is None or bar.end >= since]

    def explain(self, job: int, *, of: ClusterSnapshot) -> Explanation:
        found = self.job(job)
        history = tuple(self.activity(job=job))
        return Explanation(job=found, now=found.why, history=history, bound=of.cluster.bound, cluster=of.cluster)

    def job_points(self, job: int) -> Sequence[JobPoint]:
        """Up and down, from its start to its end."""
        found = self.job(job)
        if found.started_at is None:
            return ()
        end = found.ended_at or time.time()
        return [
            JobPoint(
                time=found.started_at + (end - found.started_at) * k / 59,
                yield_granted=0.5 + 0.2 * (k // 15 % 2),
                yield_received=None if k < 2 else 0.48 + 0.2 * ((k - 1) // 15 % 2) + 0.01 * (k % 3),
                need_cores=found.need_cores,
                used_cores=found.need_cores * found.tasks * (0.5 + 0.2 * (k // 15 % 2)),
                used_bytes=found.memory_bytes * found.tasks * min(1.0, 0.2 + k / 60),
            )
            for k in range(60)
        ]

    def shadow(self, limit: int = 100) -> Sequence[ShadowChoice]:
        return self.shadow_[:limit]

    async def output(self, job: int, rank: int, piece: Piece) -> OutputPart:
        stream, offset, limit = piece.stream, piece.offset, piece.limit
        text = f"{NASTY}\n" + "".join(
            f"task {rank} {stream}: step {k} of 400, residual {0.9**k:.3e}\n" for k in range(60)
        )
        part = text.encode()[offset : offset + limit]
        return OutputPart(text=part.decode(), offset=offset, next_offset=offset + len(part), ended=False)

    async def cancel(self, job: int, by: str) -> None:
        if self.job(job).state in ENDED:
            raise ConflictError(f"job {job}: it has ended")
        self.asked.append(("cancel", job, by))
        self.change(job, state=JobState.CANCELLED, ended_at=time.time(), exit="cancelled", yield_granted=None, nodes=())
        self.tell("cancel", job=job, by=by)

    async def hold(self, job: int, by: str) -> None:
        self.asked.append(("hold", job, by))
        self.change(job, state=JobState.HELD, why=f"held by {by}", yield_granted=None)
        self.tell("hold", job=job, by=by)

    async def release(self, job: int, by: str) -> None:
        self.asked.append(("release", job, by))
        self.change(job, state=JobState.WAITING, why="waits for the next decision")
        self.tell("release", job=job, by=by)

    async def drain(self, node: str, by: str, reason: str = "") -> None:
        self.asked.append(("drain", node, by))
        self._set_drained(node, drained=True, reason=reason)
        self.tell("drain", node=node, by=by, why=reason)

    async def undrain(self, node: str, by: str) -> None:
        self.asked.append(("undrain", node, by))
        if self.nodes_[node].reservations and not self.nodes_[node].drained:
            raise ConflictError(f"node {node}: is reserved, not drained")
        self._set_drained(node, drained=False)
        self.tell("undrain", node=node, by=by)

    def _set_drained(self, name: str, *, drained: bool, reason: str = "") -> None:
        """A silent node stays silent, and a reserved one closed."""
        node = self.nodes_[name]
        state = node.state
        if state in {NodeState.UP, NodeState.DRAINING}:
            state = NodeState.DRAINING if drained or node.reservations else NodeState.UP
        changes = {"drained": drained, "drain_reason": reason, "state": state}
        self.nodes_[name] = node.model_copy(update=changes)

    async def changes(self) -> AsyncIterator[int]:
        seen = -1
        while True:
            if len(self.activity_) != seen:
                seen = len(self.activity_)
                yield seen
            await asyncio.sleep(0.05)

    def healthy(self) -> str | None:
        return None

    def identify(self, secret: str) -> Caller | None:
        return CALLERS.get(secret)


@contextmanager
def serving(told: Told):
    """The address of the real API and page in front of `told`, while it is used."""
    app = create_app(told, page=PAGE)
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", timeout_graceful_shutdown=1)
    )
    loop: list[asyncio.AbstractEventLoop] = []

    async def run() -> None:
        loop.append(asyncio.get_running_loop())
        await server.serve()

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    deadline = time.monotonic() + 30
    while not server.started:
        assert thread.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        loop[0].call_soon_threadsafe(app.state.stopping.set)
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()
