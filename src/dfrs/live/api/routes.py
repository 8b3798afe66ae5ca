"""The REST API of the controller, and the pages and figures beside it: everything under one ASGI application.

All JSON is below /api/v1. The document /api/v1/openapi.json describes every route, and asks for no token; nor do
/healthz and the page, which holds no data.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Annotated

import structlog
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Path, Query, Request, Response
from pydantic import Field
from starlette.types import ASGIApp, Receive, Scope, Send

from dfrs.live.api import agents, prometheus, shares
from dfrs.live.api.answers import HEADERS, RETRY_S, answer_problems, problem, reply, reply_all, reply_from
from dfrs.live.api.aside import AsideMiddleware
from dfrs.live.api.bodies import INPUT, SUBMISSION, read
from dfrs.live.api.openapi import body, describe, operation, problems, streamed
from dfrs.live.api.refused_tokens import RefusedTokens
from dfrs.live.api.security import ADMINS, READERS, USERS, Allow, AllowScraper, Caller, Pace, changes_pace
from dfrs.live.api.stream import EventStream as StreamOf
from dfrs.live.api.stream import change_events, log_lines
from dfrs.live.api.timing import Timed
from dfrs.live.drivers.base import InputPart, ProgramName, ProgramSpec, Stream
from dfrs.live.errors import NotFoundError
from dfrs.live.protocol.agent_door import AgentDoor
from dfrs.live.protocol.job_order import PATTERN
from dfrs.live.protocol.job_update import JobUpdate
from dfrs.live.protocol.observed import Name
from dfrs.live.protocol.ports import Aside, Instant, Piece, Service
from dfrs.live.protocol.resources import (
    ENDED,
    Activity,
    ApiModel,
    Cluster,
    ClusterSnapshot,
    ExpectedStart,
    Explanation,
    GanttBar,
    InputRequest,
    InputTaken,
    Job,
    JobPoint,
    JobRequest,
    JobState,
    NewToken,
    Node,
    OutputPart,
    Problem,
    ProgramRequest,
    Reason,
    Reservation,
    ReservationRequest,
    Role,
    ShadowChoice,
    TimePoint,
    TokenInfo,
    TokenRequest,
)
from dfrs.live.protocol.share_door import ShareDoor
from dfrs.live.protocol.wire import MOST_WAIT_S
from dfrs.live.web.files import add_page
from dfrs.version import __version__

_log = structlog.get_logger("dfrs.api")

PREFIX = "/api/v1"
MOST_LISTED = 1000
"""Jobs or activity in one answer."""
MOST_OUTPUT = 1 << 20
"""Bytes of output in one answer."""
HISTORY_S = 3600.0
"""How far points and bars reach back unless asked."""
MOST_SHOWN = 1_000_000
"""Jobs in one snapshot: all that there can be."""
SEQUENCE = "dfrs-snapshot"
"""Header with the sequence number of the snapshot from which an answer is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """What an operator may choose."""

    submissions_per_s: float | None = None
    """Of one token, on average; None: no limit."""
    open_metrics: bool = False
    """Whether /metrics needs no token from loopback."""
    near: frozenset[str] = frozenset()
    """Addresses of this machine that only its own programs can reach, as loopback."""


class Submitted(ApiModel):
    """The jobs that were made: one, or one for each of an array."""

    jobs: tuple[int, ...]


class Me(ApiModel):
    """Who asks."""

    user: str
    role: Role


Reader = Annotated[Caller, Depends(Allow(READERS))]
User = Annotated[Caller, Depends(Allow(USERS))]
Admin = Annotated[Caller, Depends(Allow(ADMINS))]
Number = Annotated[int, Field(ge=1, le=2**63 - 1)]
JobNumber = Annotated[Number, Path(description="The job's number.", examples=[1])]
NodeName = Annotated[Name, Path(description="The node's name.", examples=["node1"])]
Since = Annotated[
    float | None,
    Query(ge=0, le=1e11, allow_inf_nan=False, description="Wall clock, seconds since 1970; else an hour ago."),
]


api = APIRouter(prefix=PREFIX)


@api.post(
    "/jobs",
    tags=["jobs"],
    status_code=201,
    response_model=Submitted,
    responses=problems(400, 408, 413, 415),
    openapi_extra=body(
        JobRequest, {"command": ["./simulate", "--steps", "9"], "tasks": 4, "cpu_cores": 0.5, "memory_bytes": 1 << 29}
    ),
)
async def submit(request: Request, caller: User) -> Response:
    """Submit a job. The numbers come back when it is durable. Only an admin may name another `user`."""
    state = request.app.state
    state.pace.take(caller)
    wanted = await read(request, JobRequest, SUBMISSION)
    user = wanted.user or caller.user
    if not caller.owns(user):
        raise HTTPException(403, f"user {user}: only an admin may submit for another")
    state.meters.submissions.inc()
    made = await caller.service.submit(wanted, user, caller.user)
    return reply(Submitted(jobs=tuple(made)), 201)


States = Annotated[list[JobState] | None, Query(description="Repeat it for several; else all not ended.")]
Whose = Annotated[str | None, Query(max_length=128, description="Whose.")]
Before = Annotated[Number | None, Query(description="Only jobs with smaller numbers: the next page.")]
EndedSince = Annotated[
    float | None,
    Query(
        ge=0,
        le=1e11,
        allow_inf_nan=False,
        description="Of jobs that have ended, only those that did then or later: seconds since 1970.",
    ),
]

Sort = Annotated[
    str | None,
    Query(
        pattern=PATTERN,
        max_length=128,
        description="Only jobs that have not ended, by columns, as user,-age; - for the greatest first.",
        examples=["-age"],
    ),
]
Skip = Annotated[int, Query(ge=0, le=MOST_SHOWN, description="With sort: without so many of the first ones.")]


def _from(seen: Instant) -> dict[str, str]:
    return {SEQUENCE: str(seen.sequence)}


@api.get("/jobs", tags=["jobs"], response_model=list[Job], responses=problems())
async def jobs(
    caller: Reader,
    state: States = None,
    user: Whose = None,
    before: Before = None,
    since: EndedSince = None,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 100,
    sort: Sort = None,
    skip: Skip = 0,
) -> Response:
    """Jobs, the latest first. `command` is empty in jobs of others."""
    seen = await caller.service.latest()
    states = frozenset(state) if state else None
    found = caller.service.jobs(
        user=user, states=states, before=before, since=since, limit=limit, sort=sort, skip=skip, of=seen
    )
    return await reply_all([caller.shown(job) for job in found], _from(seen))


@api.get("/jobs/{job}", tags=["jobs"], response_model=Job, responses=problems(404))
async def job(job: JobNumber, caller: Reader) -> Response:
    """A job as it is now. `command` is empty in a job of another."""
    seen = await caller.service.latest()
    return reply(caller.shown(caller.service.job(job, of=seen)), headers=_from(seen))


@api.patch(
    "/jobs/{job}",
    tags=["jobs"],
    response_model=Job,
    responses=problems(400, 404, 408, 409, 413, 415),
    openapi_extra=body(JobUpdate, {"time_limit_s": 7200, "name": "longer"}),
)
async def update(job: JobNumber, request: Request, caller: User) -> Response:
    """Change fields of a job's request; those that are left out stay. Its owner or an admin. 409 where it has begun and
    can no longer be changed in that.
    """
    _may_change(job, request, caller)
    await caller.service.update(job, await read(request, JobUpdate, SUBMISSION), caller.user)
    return reply(caller.service.job(job))


@api.post("/jobs/{job}/cancel", tags=["jobs"], response_model=Job, responses=problems(404, 409))
async def cancel(job: JobNumber, request: Request, caller: User) -> Response:
    """End a job. Its owner or an admin."""
    _may_change(job, request, caller)
    await caller.service.cancel(job, caller.user)
    return reply(caller.service.job(job))


@api.post("/jobs/{job}/hold", tags=["jobs"], response_model=Job, responses=problems(404, 409))
async def hold(job: JobNumber, request: Request, caller: User) -> Response:
    """Keep a job from running until it is released. Its owner or an admin."""
    _may_change(job, request, caller)
    await caller.service.hold(job, caller.user)
    return reply(caller.service.job(job))


@api.post("/jobs/{job}/release", tags=["jobs"], response_model=Job, responses=problems(404, 409))
async def release(job: JobNumber, request: Request, caller: User) -> Response:
    """Let a held job run. Its owner or an admin."""
    _may_change(job, request, caller)
    await caller.service.release(job, caller.user)
    return reply(caller.service.job(job))


@api.post("/jobs/{job}/requeue", tags=["jobs"], response_model=Job, responses=problems(404, 409))
async def requeue(job: JobNumber, request: Request, caller: User) -> Response:
    """End what runs of a job and let it begin anew when there is room. Its owner or an admin."""
    _may_change(job, request, caller)
    await caller.service.requeue(job, caller.user)
    return reply(caller.service.job(job))


def _may_change(job: int, request: Request, caller: Caller) -> None:
    """Raises HTTPException unless the job is theirs, and they may change one now; NotFoundError."""
    caller.own(job)
    if caller.role != "admin":
        request.app.state.changes_pace.take(caller)


@api.get("/jobs/{job}/explain", tags=["jobs"], response_model=Explanation, responses=problems(404))
async def explain(job: JobNumber, caller: Reader) -> Response:
    """Why a job is where it is, and how it came there."""
    seen = await caller.service.latest()
    return reply(_explained(caller, job, seen), headers=_from(seen))


def _explained(caller: Caller, job: int, seen: Instant) -> Explanation:
    found = caller.service.explain(job, of=seen)
    return found.model_copy(update={"job": caller.shown(found.job)})


@api.get("/jobs/{job}/start", tags=["jobs"], response_model=ExpectedStart, responses=problems(404, 503))
async def expected_start(job: JobNumber, caller: Reader) -> Response:
    """When a job starts that waits, or goes on that is paused: the policy is asked what it would do from here on."""
    return reply(await caller.service.expected_start(job))


@api.get("/jobs/{job}/points", tags=["jobs"], response_model=list[JobPoint], responses=problems(404))
async def job_points(job: JobNumber, caller: Reader) -> Response:
    """How a job fared: at most a hundred instants since it first ran. None of one that ended long ago, nor from before
    the controller was started.
    """
    return await reply_all(caller.service.job_points(job))


@api.get("/jobs/{job}/output", tags=["jobs"], response_model=OutputPart, responses=problems(404))
async def output(
    job: JobNumber,
    caller: User,
    rank: Annotated[int, Query(ge=0, le=1_000_000, description="Which task.")] = 0,
    stream: Annotated[Stream, Query()] = "out",
    offset: Annotated[int, Query(ge=0, le=2**63 - 1, description="Bytes from the beginning.")] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_OUTPUT, description="Bytes.")] = 1 << 16,
    program: Annotated[ProgramName | None, Query(description="Of a program beside the task's own.")] = None,
    wait_s: Annotated[float, Query(ge=0, le=MOST_WAIT_S, description="Seconds to wait for more of it.")] = 0.0,
    raw: Annotated[bool, Query(description="All bytes in base64, instead of text.")] = False,
) -> Response:
    """A piece of a task's output, fetched from its node. Its owner or an admin; a viewer never."""
    caller.own(job)
    piece = Piece(stream=stream, offset=offset, limit=limit, program=program, wait_s=wait_s, raw=raw)
    return reply(await caller.service.output(job, rank, piece))


@api.post(
    "/jobs/{job}/input",
    tags=["jobs"],
    response_model=InputTaken,
    responses=problems(400, 404, 408, 409, 413, 415),
    openapi_extra=body(InputRequest, {"writer": "0123456789abcdef", "data": "aGVsbG8K"}),
)
async def send_input(job: JobNumber, request: Request, caller: User) -> Response:
    """Send a program of a job input, a size of its terminal, or a signal. Its owner or an admin."""
    caller.own(job)
    wanted = await read(request, InputRequest, INPUT)
    part = InputPart.model_validate(wanted.model_dump(exclude={"rank"}))
    return reply(InputTaken(taken=await caller.service.write(job, wanted.rank, part)))


@api.post(
    "/jobs/{job}/programs",
    tags=["jobs"],
    status_code=201,
    response_model=ProgramRequest,
    responses=problems(400, 404, 408, 409, 413, 415),
    openapi_extra=body(ProgramRequest, {"name": "0123456789abcdef", "command": ["ps", "x"]}),
)
async def execute(job: JobNumber, request: Request, caller: User) -> Response:
    """Start a program beside those of a job, with their account, limits and share. Its owner or an admin."""
    caller.own(job)
    request.app.state.pace.take(caller)
    wanted = await read(request, ProgramRequest, SUBMISSION)
    program = ProgramSpec.model_validate(wanted.model_dump(exclude={"rank"}))
    await caller.service.execute(job, wanted.rank, program)
    _log.info("program beside a job", job=job, rank=wanted.rank, by=caller.user, program=wanted.command[0])
    return reply(wanted, 201)


@api.get("/nodes", tags=["nodes"], response_model=list[Node], responses=problems())
async def nodes(caller: Reader) -> Response:
    """All nodes and what runs on them, by name."""
    seen = await caller.service.latest()
    return await reply_all(seen.nodes, _from(seen))


async def _node(service: Service, name: str) -> Node:
    for node in (await service.latest()).nodes:
        if node.name == name:
            return node
    raise NotFoundError(f"node {name}: there is no such node")


@api.post("/nodes/{node}/drain", tags=["nodes"], response_model=Node, responses=problems(404, 409))
async def drain(
    node: NodeName,
    caller: Admin,
    reason: Annotated[Reason, Query(description="Why, in words that all users see.")] = "",
) -> Response:
    """Let a node keep what it has and get nothing more. Admins."""
    await caller.service.drain(node, caller.user, reason)
    return reply(await _node(caller.service, node))


@api.post("/nodes/{node}/undrain", tags=["nodes"], response_model=Node, responses=problems(404, 409))
async def undrain(node: NodeName, caller: Admin) -> Response:
    """Let a drained node get tasks again. Admins."""
    await caller.service.undrain(node, caller.user)
    return reply(await _node(caller.service, node))


@api.get("/reservations", tags=["nodes"], response_model=list[Reservation], responses=problems())
async def reservations(caller: Reader) -> Response:
    """Nodes that are, or will be, reserved for maintenance, by the starts."""
    return await reply_all(caller.service.reservations())


@api.post(
    "/reservations",
    tags=["nodes"],
    status_code=201,
    response_model=Reservation,
    responses=problems(400, 408, 413, 415),
    openapi_extra=body(ReservationRequest, {"nodes": ["node1"], "duration_s": 14400, "reason": "new fans"}),
)
async def reserve(request: Request, caller: Admin) -> Response:
    """Reserve nodes for maintenance: from the start to the end they get nothing new. Admins."""
    wanted = await read(request, ReservationRequest)
    return reply(await caller.service.reserve(wanted, caller.user), 201)


@api.post(
    "/reservations/{reservation}/cancel", tags=["nodes"], response_model=Reservation, responses=problems(404, 409)
)
async def cancel_reservation(
    reservation: Annotated[Number, Path(description="The reservation's number.")], caller: Admin
) -> Response:
    """Let nodes get tasks again, or not be closed at all. Admins."""
    return reply(await caller.service.cancel_reservation(reservation, caller.user))


@api.get("/cluster", tags=["cluster"], response_model=Cluster, responses=problems())
async def cluster(caller: Reader) -> Response:
    """The whole, now."""
    seen = await caller.service.latest()
    return reply(seen.cluster, headers=_from(seen))


@api.get("/snapshot", tags=["cluster"], response_model=ClusterSnapshot, responses=problems())
async def snapshot(
    caller: Reader,
    state: States = None,
    user: Whose = None,
    before: Before = None,
    limit: Annotated[int, Query(ge=0, le=MOST_SHOWN, description="Jobs at most.")] = MOST_SHOWN,
    sort: Sort = None,
    skip: Skip = 0,
    queue: Annotated[int, Query(ge=0, le=MOST_LISTED, description="Jobs in the queue at most.")] = 0,
    job: Annotated[Number | None, Query(description="The job to explain.")] = None,
) -> Response:
    """The cluster, its nodes and jobs at one instant: all numbers agree. `command` is empty in jobs of others."""
    seen = await caller.service.latest()
    states = frozenset(state) if state else None
    if states and states & ENDED:
        limit = min(limit, MOST_LISTED)
    found = ()
    if limit:
        found = caller.service.jobs(user=user, states=states, before=before, limit=limit, sort=sort, skip=skip, of=seen)
    waiting = caller.service.queue(queue, of=seen) if queue else ()
    explanation = None
    if job is not None:
        with suppress(NotFoundError):
            explanation = _explained(caller, job, seen)
    shown = ClusterSnapshot.model_construct(
        sequence=seen.sequence,
        activity=seen.activity,
        cluster=seen.cluster,
        nodes=seen.nodes,
        jobs=tuple(caller.shown(each) for each in found),
        queue=tuple(caller.shown(each) for each in waiting),
        explanation=explanation,
    )
    return await reply_from(shown, _from(seen))


@api.get("/activity", tags=["cluster"], response_model=list[Activity], responses=problems())
async def activity(
    caller: Reader,
    after: Annotated[int, Query(ge=0, le=2**63 - 1, description="Only greater sequence numbers.")] = 0,
    job: Annotated[Number | None, Query(description="Only of this job.")] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 200,
) -> Response:
    """What happened, in order: the latest `limit`."""
    return await reply_all(caller.service.activity(after=after, job=job, limit=limit))


def _since(since: float | None) -> float:
    return time.time() - HISTORY_S if since is None else since


@api.get("/timeseries", tags=["cluster"], response_model=list[TimePoint], responses=problems())
async def timeseries(caller: Reader, since: Since = None) -> Response:
    """The cluster's history, thinned to some hundreds of instants."""
    return await reply_all(caller.service.timeseries(_since(since)))


@api.get("/gantt", tags=["cluster"], response_model=list[GanttBar], responses=problems())
async def gantt(caller: Reader, since: Since = None) -> Response:
    """Where tasks were, and with what share: the bars of a Gantt chart."""
    return await reply_all(caller.service.gantt(_since(since)))


@api.get("/shadow", tags=["cluster"], response_model=list[ShadowChoice], responses=problems())
async def shadow(caller: Reader, limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 100) -> Response:
    """What the shadow policy would have done differently, the latest first."""
    return await reply_all(caller.service.shadow(limit))


@api.get(
    "/log",
    tags=["cluster"],
    response_class=Response,
    responses=problems() | streamed("application/x-ndjson", "One JSON object a line: a header, events, jobs."),
)
async def log(caller: Admin) -> Response:
    """The durable log from its beginning to now. Admins, since it holds all commands."""
    return StreamOf(log_lines(caller.service), media_type="application/x-ndjson")


@api.get(
    "/changes",
    tags=["cluster"],
    response_class=Response,
    responses=problems() | streamed("text/event-stream", 'Events "change" with {"sequence": N}.'),
)
async def changes(request: Request, caller: Reader) -> Response:
    """Server-sent events: one whenever something changed, at most four a second, at least every 15 seconds."""
    state = request.app.state
    return StreamOf(change_events(caller, state.meters), media_type="text/event-stream", stopping=state.stopping)


@api.get("/tokens", tags=["tokens"], response_model=list[TokenInfo], responses=problems())
async def tokens(caller: Admin) -> Response:
    """All tokens, without their secrets. Admins."""
    return await reply_all(caller.service.tokens())


@api.post(
    "/tokens",
    tags=["tokens"],
    status_code=201,
    response_model=NewToken,
    responses=problems(400, 408, 413, 415),
    openapi_extra=body(TokenRequest, {"user": "alice", "role": "user", "days": 90}),
)
async def create_token(request: Request, caller: Admin) -> Response:
    """Make a token. This answer is the only time its secret is shown. Admins."""
    wanted = await read(request, TokenRequest)
    return reply(await caller.service.create_token(wanted, caller.user), 201)


@api.post("/tokens/{token}/revoke", tags=["tokens"], response_model=TokenInfo, responses=problems(404))
async def revoke_token(token: Annotated[Number, Path(description="The token's number.")], caller: Admin) -> Response:
    """End a token at once. Admins."""
    await caller.service.revoke_token(token, caller.user)
    return reply(next(info for info in caller.service.tokens() if info.id == token))


@api.post("/tokens/{token}/rebind", tags=["tokens"], response_model=TokenInfo, responses=problems(404, 409))
async def rebind_token(token: Annotated[Number, Path(description="The token's number.")], caller: Admin) -> Response:
    """Have an agent's token admit its node on another host, or with more CPU or memory, when it next comes. Admins."""
    await caller.service.rebind_token(token, caller.user)
    return reply(next(info for info in caller.service.tokens() if info.id == token))


@api.get("/me", tags=["tokens"], response_model=Me, responses=problems())
async def me(caller: Reader) -> Response:
    """Whose token this is, and what it may do."""
    return reply(Me(user=caller.user, role=caller.role))


beside = APIRouter()


@beside.get(
    "/healthz",
    tags=["cluster"],
    response_class=Response,
    responses={
        200: {"description": "Well.", "content": {"text/plain": {"schema": {"type": "string"}}}},
        503: {"model": Problem, "description": "What is wrong."},
    },
)
async def healthz(request: Request) -> Response:
    """Whether the controller is well. No token."""
    wrong = request.app.state.service.healthy()
    if wrong is not None:
        return problem(503, wrong, {"Retry-After": str(RETRY_S)})
    return Response("well\n", 200, HEADERS, "text/plain")


@beside.get(
    "/metrics",
    tags=["cluster"],
    response_class=Response,
    responses=problems() | streamed("text/plain", "Figures, as Prometheus reads them."),
)
async def metrics(request: Request, _: Annotated[None, Depends(AllowScraper())]) -> Response:
    """Figures for Prometheus. A token of any reading role; none from loopback, if the operator has so chosen."""
    seen = await request.app.state.service.latest()
    headers = HEADERS | _from(seen) | {"content-type": prometheus.CONTENT_TYPE}
    state = request.app.state
    return Response(state.meters.text(seen, state.service.measures()), 200, headers)


class _App(FastAPI):
    """Serves agents' connections beside the framework, whose layers would keep 30 KiB for each of them."""

    serve_agent: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Any request, or an agent's connection."""
        if scope["type"] == "websocket" and scope["path"] == agents.PATH:
            scope["app"] = self
            await self.serve_agent(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def create_app(
    service: Service,
    *,
    page: FilePath | None,
    settings: ApiSettings | None = None,
    aside: Callable[[], Aside | None] = lambda: None,
    agent_door: AgentDoor | None = None,
    share_door: ShareDoor | None = None,
) -> FastAPI:
    """The application that serves `service`, with the dashboard in the directory `page`; agents come by `agent_door`,
    agents that give shares alone by `share_door`.

    As long as `aside` says so it serves nobody. Whoever serves it sets `app.state.stopping` before it waits for
    connections to end.
    """
    app = _App(
        title="dfrs",
        version=__version__,
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=operation,
    )
    app.state.service = service
    app.state.agent_door = agent_door
    app.state.share_door = share_door
    app.state.settings = settings or ApiSettings()
    app.state.meters = prometheus.Meters()
    app.state.pace = Pace(app.state.settings.submissions_per_s)
    app.state.changes_pace = changes_pace()
    app.state.refused = RefusedTokens(app.state.meters)
    app.state.stopping = asyncio.Event()
    app.add_middleware(Timed, meters=app.state.meters)
    app.router.routes.extend((*api.routes, *beside.routes, *shares.router.routes))
    add_page(app, page)
    answer_problems(app)
    describe(app)
    app.add_middleware(AsideMiddleware, aside=aside)
    app.serve_agent = AsideMiddleware(agents.serve_agent, aside)
    return app
