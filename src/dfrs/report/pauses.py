"""Why a job was paused: what held just before, which the log's short reason does not say.

A greedy policy that needs room for a submitted job pauses running jobs by increasing priority; a packing leaves out, of
all jobs present, those of lowest priority ([Stillwell2010] sections 5.2.2 and 5.2.3).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dfrs.model.instance import Ints
from dfrs.model.nodes import most_tasks
from dfrs.model.run import PLACING, Action, Run
from dfrs.runs.node_sets import node_set
from dfrs.runs.replay import Instant, Replay

NAMED = 4
"""So many other jobs are named; more are counted."""

_ON_NODES = {"kept", "moved", "resumed", "started"}
_FATES = {
    Action.PAUSE: "paused",
    Action.MIGRATE: "moved",
    Action.RESUME: "resumed",
    Action.START: "started",
    Action.LOST: "lost",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """A job that competed with one that was paused."""

    job_id: int
    flow_s: float
    virtual_s: float
    priority: float | None
    """Infinite, before any progress: None."""
    fate: str
    """At that instant: kept, moved, resumed, started; paused, lost; or it stays paused or waiting (out)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """What held when a job was paused."""

    cause: str
    """submission, requested start, packing or other."""
    for_jobs: tuple[int, ...]
    """Ids of jobs that came to its nodes at that instant; those just released first."""
    priority: float | None
    rank: int
    """1: the lowest priority of all."""
    rivals: tuple[Rival, ...]
    """By increasing priority: the others that ran; for a packing, all others that were there."""
    room: int | None
    """Tasks of the submitted job that had room in memory before anyone was paused; None if none was."""
    tasks: int | None
    """Tasks of that job."""


def pause_of(run: Run, replay: Replay, job: int, instant: Instant) -> Pause:
    """What held just before the instant, which `replay` has reached, at which the job is paused."""
    work, now_s = run.workload, instant.time_s
    release_s = work.release_s
    acts = {replay.job[r]: Action(replay.action[r]) for r in instant.rows if replay.action[r] != Action.SHARE}
    done = {j for j, action in acts.items() if action == Action.FINISH}
    comers = list(dict.fromkeys(_comers(replay, job, instant)))
    started = [j for j, action in acts.items() if action == Action.START and release_s[j] == now_s]
    new = next((j for j in started if j in comers), started[0] if started else None)
    row = next(r for r in instant.rows if replay.job[r] == job and replay.action[r] == Action.PAUSE)
    packed = "pack" in run.events.reasons[int(run.events.why[row])] or (new is None and bool(comers))
    rivals = [j for j in replay.running if j not in done]
    if packed:
        rivals += [*replay.paused, *replay.waiting]
    rivals.sort(key=lambda j: (replay.priority(j, now_s), -j))
    comers.sort(key=lambda j: j != new)
    came = "" if new is None else "submission" if work.submit_s[new] == now_s else "requested start"
    return Pause(
        cause="packing" if packed else came or "other",
        for_jobs=tuple(int(work.job_id[j]) for j in comers),
        priority=finite(replay.priority(job, now_s)),
        rank=rivals.index(job) + 1,
        rivals=tuple(_rival(run, replay, j, now_s, acts.get(j)) for j in rivals if j != job),
        room=None if new is None else room_for(run, replay, new, done, now_s),
        tasks=None if new is None else replay.tasks(new, now_s),
    )


def _comers(replay: Replay, job: int, instant: Instant) -> list[int]:
    """Other jobs that are placed at that instant on a node the job is on."""
    mine = set(replay.running[job].nodes)
    placing = (r for r in instant.rows if replay.action[r] in PLACING and replay.job[r] != job)
    return [replay.job[r] for r in placing if mine & set(replay.nodes(r))]


def _rival(run: Run, replay: Replay, job: int, now_s: float, act: Action | None) -> Rival:
    return Rival(
        job_id=int(run.workload.job_id[job]),
        flow_s=now_s - float(run.workload.release_s[job]),
        virtual_s=replay.virtual_s(job, now_s),
        priority=finite(replay.priority(job, now_s)),
        fate=_FATES[act] if act is not None and act in _FATES else "kept" if job in replay.running else "out",
    )


def room_for(run: Run, replay: Replay, job: int, without: set[int], time_s: float) -> int:
    """How many tasks of a job there is room for beside the running jobs, those of `without` left out."""
    work = run.workload
    need, memory = float(work.need[job]), float(work.memory[job])
    most = most_tasks(replay.room(without), need, memory, exclusive=replay.exclusive)
    return int(min(replay.tasks(job, time_s), most))


def pause_text(pause: Pause) -> str:
    """A pause in words."""
    came = jobs_text(pause.for_jobs) if pause.for_jobs else ""
    if pause.cause in {"submission", "requested start"}:
        what = "submitted" if pause.cause == "submission" else "to start"
        text = f"gave way to {came or 'a job'}, {what} at that instant"
        if pause.room is not None and pause.tasks is not None:
            text += f": memory was free for {pause.room} of its {pause.tasks} tasks"
    elif pause.cause == "packing":
        text = "left out when all jobs were packed anew" + (f"; {came} took its place" if came else "")
    else:
        text = "taken off its nodes" + (f" for {came}" if came else "")
    among = "jobs that were there" if pause.cause == "packing" else "running jobs"
    if not pause.rivals:
        return f"{text}. {'No other job was there' if pause.cause == 'packing' else 'Nothing else ran'}."
    packing = pause.cause == "packing"
    rank = "the lowest" if pause.rank == 1 else f"number {pause.rank} from below"
    text += f". Its priority, {priority_text(pause.priority)}, was {rank} of {len(pause.rivals) + 1} {among}"
    below, above = pause.rivals[: pause.rank - 1], pause.rivals[pause.rank - 1 :]
    spared = [rival.job_id for rival in below if rival.fate in _ON_NODES]
    if len(spared) < len(below):
        text += f"; of those below, {len(below) - len(spared)} had to {'stay out' if packing else 'go'} too"
    if spared:
        text += f"; {jobs_text(spared)}, lower, {'had room' if packing else 'could stay'}"
    following = next((rival for rival in above if rival.fate in _ON_NODES), None)
    if following is not None:
        text += f"; the next above that {'got' if packing else 'kept its'} nodes was "
        text += f"job {following.job_id} with {priority_text(following.priority)}"
    return text + "."


def nodes_text(nodes: Sequence[int] | Ints) -> str:
    """Nodes as the log writes them."""
    return node_set(np.asarray(nodes, dtype=np.int64)) if len(nodes) else ""


def jobs_text(ids: Sequence[int]) -> str:
    """`job 3`, `jobs 3 and 4`, `jobs 3, 4, 5, 6 and 12 more`."""
    named = [str(k) for k in ids[:NAMED]]
    if len(ids) > NAMED:
        named.append(f"{len(ids) - NAMED} more")
    text = named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
    return ("job " if len(ids) == 1 else "jobs ") + text


def priority_text(value: float | None) -> str:
    """A priority to three digits."""
    return "infinite (no progress yet)" if value is None else f"{value:.3g}"


def finite(value: float) -> float | None:
    """None for infinity, which JSON does not have."""
    return float(value) if np.isfinite(value) else None
