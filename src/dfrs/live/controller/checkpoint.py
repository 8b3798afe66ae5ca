"""The controller's state as it is stored, and how it comes back: a checkpoint, and the events since."""

import io
import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa
import structlog
from sqlalchemy.engine import Connection, Row

from dfrs.engine.codec import decode
from dfrs.engine.core import Core
from dfrs.engine.events import Event
from dfrs.live.controller import fair_shares, tables
from dfrs.live.controller.activity import MOST_ACTIVITY, MOST_POINTS, activity_of
from dfrs.live.controller.checkpoint_data import pack, why_damaged
from dfrs.live.controller.damage import DamagedError
from dfrs.live.controller.ended_jobs import MOST_ENDED
from dfrs.live.controller.observing import Observer
from dfrs.live.controller.pruned import KEY, Pruned
from dfrs.live.controller.received import ReceivedTime
from dfrs.live.controller.records import JobOutcome, JobRecord, NodeRecord, TaskRecord
from dfrs.live.controller.state import ARRIVED, State
from dfrs.live.controller.tokens import Tokens
from dfrs.live.drivers.base import TaskId
from dfrs.live.protocol.job_update import changed
from dfrs.live.protocol.resources import (
    DEPENDENCIES,
    STORED,
    Job,
    JobRequest,
    JobState,
    TimePoint,
    TokenInfo,
)
from dfrs.model.decisions import JOB, Policy
from dfrs.model.errors import InputError
from dfrs.model.needs import TASK
from dfrs.model.nodes import Condition

RESTART = "restart"
"""Kind of the event that says that the controller came back; the core is not told of it."""

Find = Callable[[str], Policy]
"""A policy by its name; raises InputError."""

FORMAT = 1
"""Of what is stored; to be raised when the meaning of something in it changes."""

MOST_NAMED = 1000
"""Jobs that one statement names: databases take only some ten thousand values in one."""

log = structlog.get_logger(__name__)


def layout() -> str:
    """What a checkpoint must have been written with: its format, and the columns of its tables."""
    return json.dumps([FORMAT, JOB.descr, TASK.descr])


def arrays(core: Core, observer: Observer, shell: str) -> bytes:
    """What the core and discovery know, as npz that belongs to the text `shell`."""
    core_arrays = {f"core_{name}": array for name, array in core.state().items()}
    return pack({"layout": np.array(layout()), "needs": observer.state(), **core_arrays}, shell)


def _readable(row: Row[Any]) -> bool:
    """Whether this program can go on from that checkpoint; if not, it goes on from the events: none is lost.

    Raises DamagedError.
    """
    why = why_damaged(row.arrays, row.shell)
    if why is not None:
        raise DamagedError(f"checkpoint after event {row.sequence}: {why}")
    with np.load(io.BytesIO(row.arrays), allow_pickle=False) as found:
        written = str(found["layout"]) if "layout" in found.files else "none"
    if written != layout():
        log.warning("the checkpoint was written by another version: all events are replayed", sequence=row.sequence)
    return written == layout()


def shell(state: State) -> str:
    """Where tasks are or may be, and the policy's name, as JSON."""
    jobs = {str(job.id): _of_job(job, state.epoch) for job in state.jobs.values()}
    return json.dumps({"policy": state.settings.policy, "generation": state.placement.generation, "jobs": jobs})


def _of_job(job: JobRecord, epoch: float) -> Mapping[str, Any]:
    return {
        "attempt": job.attempt,
        "generation": job.generation,
        "placed": job.placed,
        "paused": job.paused,
        "kept": job.kept,
        "yield": job.yield_,
        "need": job.need,
        "why": job.why,
        "ungranted_s": job.ungranted_s,
        "tasks": [
            [task.target, task.started, list(task.at), task.transfers, task.received.state(epoch)] for task in job.tasks
        ],
        "old": [[task.id.rank, task.id.attempt, list(task.at), task.id.generation] for task in job.old],
    }


def restore_shell(state: State, text: str) -> None:
    """Put tasks where `text` says that they may be. Jobs that have ended since are passed over."""
    stored = json.loads(text)
    state.placement.generation = stored.get("generation", "")
    for name, found in stored["jobs"].items():
        job = state.jobs.get(int(name))
        if job is None:
            continue
        job.attempt, job.placed, job.paused = found["attempt"], found["placed"], found["paused"]
        job.ungranted_s = found.get("ungranted_s", 0.0)
        job.yield_, job.need, job.why, job.kept = found["yield"], found["need"], found["why"], found.get("kept", False)
        for rank, (target, started, nodes, *others) in enumerate(found["tasks"]):
            task_id = TaskId(job=job.id, rank=rank, attempt=job.attempt, generation=found.get("generation", ""))
            task = TaskRecord(task_id, target=target, started=started)
            task.transfers = others[0] if others else 0
            if len(others) > 1:
                task.received = ReceivedTime.restored(others[1], state.epoch)
            job.tasks.append(task)
            # No event says that it was told to its node since, when that had to wait for an earlier attempt's end.
            may_have = [target] if job.placed and not started and target >= 0 else []
            state.placement.restore(task, {*nodes, *may_have})
        for rank, attempt, nodes, *others in found["old"]:
            task_id = TaskId(job=job.id, rank=rank, attempt=attempt, generation=others[0] if others else "")
            task = TaskRecord(task_id, started=True)
            job.old.append(task)
            state.placement.restore(task, nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmState:
    """A checkpoint that is in no database: a standby made it of the one with number `base` and the events since."""

    base: int
    """0: of the first event."""
    sequence: int
    arrays: bytes
    shell: str
    missing: tuple[tuple[int, str], ...]
    """Digests, by event, that were not recorded when it was made."""


@dataclass(slots=True)
class Stored:
    """What a database has."""

    meta: Mapping[str, str]
    pruned: Pruned
    nodes: Sequence[Row[Any]]
    jobs: Sequence[Row[Any]]
    """Open ones, with their requests."""
    dependencies: Mapping[int, str]
    """State of ended jobs that open ones wait for."""
    ended: Sequence[str]
    """Those that ended last, in the order of their ends."""
    absent: int
    """The greatest number of an ended job that may be none of these; 0: there is none."""
    ended_counts: Mapping[str, int]
    last_job: int
    last_s: float
    checkpoint: Row[Any] | WarmState | None
    last_checkpoint: int
    """Number of the latest in the database, 0 without one."""
    events: Sequence[Row[Any]]
    """After the checkpoint."""
    last_event: int
    activity: Sequence[Row[Any]]
    points: Sequence[str]
    tokens: Sequence[Row[Any]]


def load(connection: Connection, warm: WarmState | None = None, *, past: bool = True) -> Stored:
    """Read all that a controller needs to go on, from `warm` if there is no later checkpoint.

    Without `past`, what only users are shown is left out. Raises DamagedError, and InputError where too much is pruned.
    """
    jobs, events = tables.jobs, tables.events
    most_ended, most_activity, most_points = (MOST_ENDED, MOST_ACTIVITY, MOST_POINTS) if past else (0, 0, 0)
    found = connection.execute(
        sa.select(jobs, tables.requests.c.body)
        .join(tables.requests, tables.requests.c.id == jobs.c.request)
        .where(jobs.c.state == "open")
        .order_by(jobs.c.id)
    ).all()
    meta = {row.key: row.value for row in connection.execute(sa.select(tables.meta))}
    with _reading("how far it is pruned"):
        pruned = Pruned.read(meta.get(KEY))
    latest = connection.execute(sa.select(sa.func.max(tables.checkpoints.c.sequence))).scalar() or 0
    stored = warm if warm is not None and warm.base >= latest else _checkpoint(connection)
    if stored is None:
        pruned.refuse_replay("database", stored=latest > 0)
    after = 0 if stored is None else stored.sequence
    names = {name for row in found for name in _dependencies(row)}
    # Time never goes back in them: the last one has the latest, and not all need to be read.
    newest = sa.select(events.c.sequence, events.c.time_s).order_by(events.c.sequence.desc()).limit(1)
    last = connection.execute(newest).first() or (0, 0.0)
    counts = connection.execute(
        sa.select(jobs.c.state, sa.func.count()).where(jobs.c.state != "open").group_by(jobs.c.state)
    )
    is_over = jobs.c.state != "open"
    ended = connection.execute(
        sa.select(jobs.c.ended_at, jobs.c.final).where(is_over).order_by(jobs.c.ended_at.desc()).limit(most_ended)
    ).all()
    absent = 0
    if ended and len(ended) == most_ended:
        # The sum has databases go from the greatest number down, instead of sorting all that ended before.
        before = (jobs.c.ended_at + 0.0) <= ended[-1].ended_at
        greatest = sa.select(jobs.c.id).where(is_over, before).order_by(jobs.c.id.desc()).limit(1)
        absent = connection.execute(greatest).scalar() or 0
    activity = sa.select(tables.activity).order_by(tables.activity.c.sequence.desc()).limit(most_activity)
    points = sa.select(tables.points.c.body).order_by(tables.points.c.time.desc()).limit(most_points)
    return Stored(
        meta=meta,
        pruned=pruned,
        nodes=connection.execute(sa.select(tables.nodes).order_by(tables.nodes.c.number)).all(),
        jobs=found,
        dependencies=states_of(connection, names),
        ended=[row.final for row in reversed(ended)],
        absent=absent,
        ended_counts={row[0]: row[1] for row in counts},
        last_job=connection.execute(sa.select(sa.func.max(jobs.c.id))).scalar() or 0,
        last_s=last[1],
        checkpoint=stored,
        last_checkpoint=latest,
        events=connection.execute(sa.select(events).where(events.c.sequence > after).order_by(events.c.sequence)).all(),
        last_event=last[0],
        activity=connection.execute(activity).all()[::-1],
        points=list(connection.execute(points).scalars())[::-1],
        tokens=connection.execute(sa.select(tables.tokens)).all(),
    )


def _dependencies(row: Row[Any]) -> Iterator[int]:
    """Jobs that a job comes after: as submitted, or as its user has said since."""
    document = json.loads(row.body) | json.loads(row.changes or "{}")
    for kind in DEPENDENCIES:
        yield from document.get(kind, ())


def _checkpoint(connection: Connection) -> Row[Any] | None:
    """The latest, if this program can go on from it."""
    newest_first = tables.checkpoints.c.sequence.desc()
    found = connection.execute(sa.select(tables.checkpoints).order_by(newest_first).limit(1)).first()
    return found if found is not None and _readable(found) else None


def states_of(connection: Connection, names: set[int]) -> Mapping[int, str]:
    """States of jobs, "open" for those that have not ended; unknown ones are left out."""
    jobs, ordered = tables.jobs.c, sorted(names)
    found: dict[int, str] = {}
    for first in range(0, len(ordered), MOST_NAMED):
        some = jobs.id.in_(ordered[first : first + MOST_NAMED])
        rows = connection.execute(sa.select(jobs.id, jobs.state).where(some))
        found.update((row.id, row.state) for row in rows)
    return found


def restore(state: State, observer: Observer, tokens: Tokens, stored: Stored, find: Find) -> list[tuple[int, str]]:
    """Bring everything back; digests (by event) that were not recorded yet. `find`: the policies of earlier starts.

    Raises DamagedError.
    """
    now = state.settings.clock()
    state.epoch = float(stored.meta.get("epoch", now))
    state.last_s = stored.last_s
    state.pruned = stored.pruned
    if "reference_cores" in stored.meta:
        state.set_reference(float(stored.meta["reference_cores"]), int(stored.meta["reference_bytes"]))
    with _reading("the table of nodes"):
        for row in stored.nodes:
            facts = state.facts.model_validate_json(row.hello)
            condition, reason = Condition(row.condition), row.drain_reason or ""
            node = NodeRecord(row.number, facts, row.island, condition, row.drained, reason)
            state.nodes.append(node)
            state.numbers[node.name] = node.number
    with _reading("the reservations"):
        state.reservations.restore(stored.meta)
    with _reading("the table of jobs"):
        _restore_jobs(state, stored)
    with _reading("the tables of activity, points and tokens"):
        _restore_past(state, tokens, stored)
    deciding = state.settings.policy
    if stored.checkpoint is not None:
        with np.load(io.BytesIO(stored.checkpoint.arrays), allow_pickle=False) as found:
            state.core.restore({name[5:]: found[name] for name in found.files if name.startswith("core_")})
            observer.restore(found["needs"])
        restore_shell(state, stored.checkpoint.shell)
        deciding = json.loads(stored.checkpoint.shell).get("policy", deciding)
    missing = _replay(state, stored.events, deciding, find)
    # What runs was counted by the controller before; of what only waited there was nothing to count.
    begun = (job.id for job in state.jobs.values() if any(task.started for task in job.tasks))
    with _reading("what was used under fair share"):
        state.fair_shares.restore(stored.meta.get(fair_shares.KEY), begun)
    state.sequence = stored.last_event
    state.picture, _ = state.inspect()
    for job in state.jobs.values():
        state.placement.touch(job)
    return missing


@contextmanager
def _reading(what: str) -> Generator[None]:
    """Raise DamagedError for what is not as it was written. Values are not repeated: they may be secrets."""
    try:
        yield
    except (ValueError, TypeError, KeyError, InputError) as error:
        raise DamagedError(f"{what} cannot be read ({type(error).__name__})") from error


def _restore_jobs(state: State, stored: Stored) -> None:
    requests: dict[int, JobRequest] = {}
    keys = {int(value): key.removeprefix(ARRIVED) for key, value in stored.meta.items() if key.startswith(ARRIVED)}
    for row in stored.jobs:
        request = requests.get(row.request)
        if request is None:
            request = requests[row.request] = JobRequest.model_validate_json(row.body, context=STORED)
        changes = {} if row.changes is None else json.loads(row.changes)
        job = JobRecord(
            row.id,
            row.request,
            changed(request, changes, STORED) if changes else request,
            row.owner,
            row.submitted_at,
            array_index=row.array_index,
            key=keys.get(row.id, ""),
            registered=row.registered,
            held=row.held,
            outcome=JobOutcome.of(row.outcome),
            started_at=row.started_at,
            lost=row.lost,
            changes=changes,
        )
        state.enter(job)
    for job in state.jobs.values():
        state.link(job, stored.dependencies)
        if not job.registered:
            state.candidates[job.id] = None


def _restore_past(state: State, tokens: Tokens, stored: Stored) -> None:
    for text in stored.ended:
        state.add_ended(Job.model_validate_json(text))
    state.ended.absent = max(state.ended.absent, stored.absent)
    state.ended_counts.clear()
    state.ended_counts.update({JobState(name): count for name, count in stored.ended_counts.items()})
    state.ended_counts.update({JobState(name): count for name, count in stored.pruned.jobs.items()})
    state.activity.restore(
        [activity_of(row.sequence, row.body) for row in stored.activity],
        [TimePoint.model_validate_json(text) for text in stored.points],
    )
    for row in stored.tokens:
        info = TokenInfo(
            id=row.id,
            user=row.owner,
            role=row.role,
            created_at=row.created_at,
            expires_at=row.expires_at,
            revoked=row.revoked,
            local=row.local,
            node=row.node,
            host=row.host,
            cpus=row.cpus,
            memory_bytes=row.memory_bytes,
            resources=None if row.resources is None else json.loads(row.resources),
        )
        tokens.add(row.hash, info)


def _policy(state: State, name: str, find: Find) -> Policy:
    """The one of that name; where it is not found any more, the present one decides for it."""
    if name != state.settings.policy:
        try:
            return find(name)
        except InputError as error:
            log.warning("the policy that decided before is not there", policy=name, problem=str(error))
    return state.policy


def _document(row: Row[Any]) -> Mapping[str, Any]:
    """Of an event, or of a restart, which has the policy that decides from then on."""
    with _reading(f"event {row.sequence}"):
        document = json.loads(row.event)
        if document["event"] == RESTART and not isinstance(document["policy"], str):
            raise TypeError
        return document


def _event(row: Row[Any], document: Mapping[str, Any]) -> Event:
    with _reading(f"event {row.sequence}"):
        return decode(document)


def _replay(state: State, rows: Sequence[Row[Any]], deciding: str, find: Find) -> list[tuple[int, str]]:
    """Tell the core all events again, under the policies that decided, at first the one named `deciding`.

    Where it decides otherwise than recorded, what runs on nodes is what counts.
    """
    core = state.core
    core.policy = _policy(state, deciding, find)
    missing: list[tuple[int, str]] = []
    for row in rows:
        document = _document(row)
        if document["event"] == RESTART:
            state.placement.generation = document.get("generation", "")
            if document["policy"] != deciding:
                deciding = document["policy"]
                core.hand_over(_policy(state, deciding, find))
            continue
        (decided,) = state.decide([_event(row, document)], row.time_s)
        state.apply(decided, replaying=True)
        if row.digest and decided.digest != row.digest:
            if not state.mismatches:
                log.error("recorded decisions come out otherwise", first=row.sequence, kind=document["event"])
            state.mismatches += 1
        elif decided.digest and not row.digest:
            missing.append((row.sequence, decided.digest))
    core.policy = state.policy
    if deciding != state.settings.policy:
        core.hand_over(state.policy)
    if state.mismatches:
        state.placement.suspect()
    return missing
