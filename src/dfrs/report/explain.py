"""Why a job ran, waited, was paused or moved: its story, told from the log of a run.

The log gives a short reason for each change. What makes it understandable is what held at that instant, which is
recomputed: the job's flow and virtual time, its priority among the others, whom it gave way to, and how much memory was
free (`dfrs.report.pauses`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dfrs.kernels.progress import checkpointed
from dfrs.model.errors import InputError
from dfrs.model.run import PLACING, Action, Run
from dfrs.model.tolerances import SAME_S
from dfrs.report.clock import clock
from dfrs.report.command_texts import command_text, commands_text
from dfrs.report.pauses import NAMED, Pause, nodes_text, pause_of, pause_text
from dfrs.runs.metrics.intervals import tasks_moved
from dfrs.runs.replay import Instant, Replay


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryStep:
    """One line of a story; `virtual_s` and `flow_s` are those at that instant."""

    time_s: float
    action: str
    """submit, start, pause, resume, migrate, resize, shares (several changes of the yield), command, finish, lost,
    refused."""
    text: str
    flow_s: float
    virtual_s: float
    nodes: str = ""
    yield_: float | None = None
    why: str = ""
    penalty_s: float = 0.0
    row: int = -1
    """Row of the log, -1 for a submission or a command."""
    pause: Pause | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """All that happened to a job."""

    job_id: int
    policy: str
    tasks: int
    need: float
    memory: float
    run_s: float
    submit_s: float
    steps: tuple[StoryStep, ...]
    summary: str


def find_job(run: Run, job_id: int) -> int:
    """Index of a job by its id. Raises InputError, naming the nearest ids."""
    ids = run.workload.job_id
    at = np.flatnonzero(ids == job_id)
    if len(at):
        return int(at[0])
    near = sorted(ids[np.argsort(np.abs(ids - job_id), kind="stable")[:NAMED]].tolist())
    raise InputError(f"job {job_id}: is not in this run; the nearest ids are {', '.join(map(str, near))}")


def tell(run: Run, job: int) -> Story:
    """The story of the job of that index."""
    return stories(run, [job])[0]


def stories(run: Run, jobs: Sequence[int]) -> list[Story]:
    """The stories of the jobs of these indices, by one pass over the log."""
    replay = Replay(run)
    teller = Teller(run, replay)
    told = {job: teller.beginning(job) for job in jobs}
    for instant in replay:
        for row in instant.rows:
            steps = told.get(replay.job[row])
            if steps is not None:
                teller.row(steps, replay.job[row], row, instant)
        if replay.finished.issuperset(told):
            break
    work = run.workload
    for job, steps in told.items():
        teller.close_shares(steps, job)
        teller.commands(steps, job, np.inf)
    return [
        Story(
            job_id=int(work.job_id[job]),
            policy=run.policy,
            tasks=int(work.tasks[job]),
            need=float(work.need[job]),
            memory=float(work.memory[job]),
            run_s=float(run.process_s[job]),
            submit_s=float(work.submit_s[job]),
            steps=tuple(steps),
            summary=_summary(run, replay, job, steps),
        )
        for job, steps in told.items()
    ]


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


class Teller:
    """Turns rows of the log into steps, with what the replay knows just before them."""

    def __init__(self, run: Run, replay: Replay) -> None:
        self.run, self.replay = run, replay
        self.moved: list[int] = tasks_moved(run).tolist()
        self._commands: dict[int, list[int]] = {}
        for k, name in reversed(list(enumerate(run.answers.job_id.tolist()))):
            self._commands.setdefault(name, []).append(k)
        self._shares: dict[int, list[tuple[float, float, float, float]]] = {}
        self._yield: dict[int, float] = {}

    def beginning(self, job: int) -> list[StoryStep]:
        """What comes before any row: its submission, after commands that were too early."""
        steps: list[StoryStep] = []
        self.commands(steps, job, float(self.run.workload.submit_s[job]))
        return [*steps, self._submission(job)]

    def commands(self, steps: list[StoryStep], job: int, until_s: float, *, granted: bool = False) -> None:
        """Add the commands on a job before that time; with `granted` also those at it, up to the last granted one."""
        answers, work, left = (
            self.run.answers,
            self.run.workload,
            self._commands.get(int(self.run.workload.job_id[job]), []),
        )
        last = [k for k in left if granted and answers.granted[k] and answers.time_s[k] == until_s][:1]
        while left and (answers.time_s[left[-1]] < until_s or (last and left[-1] <= last[0])):
            k = left.pop()
            self.close_shares(steps, job)
            now_s = float(answers.time_s[k])
            flow_s = max(
                0.0, min(now_s, float(np.nan_to_num(self.run.finish_s[job], nan=now_s))) - float(work.release_s[job])
            )
            steps.append(
                StoryStep(
                    time_s=now_s,
                    action="command",
                    text=command_text(answers, k),
                    flow_s=flow_s,
                    virtual_s=self.replay.virtual_s(job, now_s),
                )
            )

    def _submission(self, job: int) -> StoryStep:
        work = self.run.workload
        refused = job in self.replay.refused
        text = "submitted"
        if work.dedicated[job]:
            text += f", to start at {clock(float(work.requested_start_s[job]))}"
        if refused:
            text += ", and refused: it needs more than this cluster has"
        return StoryStep(
            time_s=float(work.submit_s[job]),
            action="refused" if refused else "submit",
            text=text,
            flow_s=0.0,
            virtual_s=0.0,
        )

    def row(self, steps: list[StoryStep], job: int, row: int, instant: Instant) -> None:
        """Add the step of a row; changes of the yield are gathered until something else happens."""
        replay, events = self.replay, self.run.events
        action, now_s = Action(replay.action[row]), instant.time_s
        flow_s, virtual_s = now_s - float(self.run.workload.release_s[job]), replay.virtual_s(job, now_s)
        yields = replay.yield_[row]
        self.commands(steps, job, now_s, granted=action in {Action.RESIZE, Action.FINISH})
        if action == Action.SHARE:
            self._shares.setdefault(job, []).append((now_s, yields, flow_s, virtual_s))
            return
        self.close_shares(steps, job)
        pause = pause_of(self.run, replay, job, instant) if action == Action.PAUSE else None
        why = events.reasons[int(events.why[row])]
        text = self._text(job, row, instant, pause)
        if pause is None and why:
            text += f": {why}" if "; " not in text else f" ({why})"
        steps.append(
            StoryStep(
                time_s=now_s,
                action=action.name.lower(),
                text=text,
                flow_s=flow_s,
                virtual_s=virtual_s,
                nodes=nodes_text(replay.nodes(row)) if action in PLACING else "",
                yield_=yields if np.isfinite(yields) else None,
                why=why,
                penalty_s=replay.penalty_s[row],
                row=row,
                pause=pause,
            )
        )
        self._yield[job] = yields if action in PLACING else 0.0

    def close_shares(self, steps: list[StoryStep], job: int) -> None:
        """Add one step for the changes of the yield since the last other step."""
        shares = self._shares.pop(job, None)
        if shares is None:
            return
        first_s, _, flow_s, virtual_s = shares[0]
        last_s, last, *_ = shares[-1]
        before = self._yield.get(job, 0.0)
        if len(shares) == 1:
            text = f"yield {before:.3f} → {last:.3f}{self._company(job, first_s)}"
        else:
            values = [value for _, value, _, _ in shares]
            text = (
                f"yield changed {_times(len(values))} until {clock(last_s)}: "
                f"{before:.3f} → {last:.3f}, between {min(values):.3f} and {max(values):.3f}"
            )
        steps.append(
            StoryStep(time_s=first_s, action="shares", text=text, flow_s=flow_s, virtual_s=virtual_s, yield_=last)
        )
        self._yield[job] = last

    def _company(self, job: int, time_s: float) -> str:
        """What else happened at that instant, where that is one thing."""
        events, ids = self.run.events, self.run.workload.job_id
        low, high = np.searchsorted(events.time_s, [time_s, np.nextafter(time_s, np.inf)])
        rows = [r for r in range(low, high) if self.replay.job[r] not in {job, -1}]
        for action, verb in ((Action.START, "started"), (Action.FINISH, "finished"), (Action.RESUME, "was resumed")):
            named = [int(ids[self.replay.job[r]]) for r in rows if self.replay.action[r] == action]
            if len(named) == 1:
                return f", when job {named[0]} {verb}"
        return ""

    def _text(self, job: int, row: int, instant: Instant, pause: Pause | None) -> str:
        replay, work = self.replay, self.run.workload
        action, now_s = Action(replay.action[row]), instant.time_s
        on = (
            f"on node {nodes_text(replay.nodes(row))}"
            if len(replay.nodes(row)) == 1
            else (f"on nodes {nodes_text(replay.nodes(row))}")
        )
        at = f"{on} at yield {replay.yield_[row]:.3f}"
        cost = f"; no progress for {replay.penalty_s[row]:g} s" if replay.penalty_s[row] else ""
        if action == Action.START:
            if self.run.start_s[job] < now_s:
                return f"started anew {at}"
            waited_s = now_s - float(work.release_s[job])
            if work.dedicated[job]:
                return f"started {at}, " + (
                    f"{clock(waited_s)} after its requested start" if waited_s > SAME_S else "on time"
                )
            return f"started {at}, " + (f"after waiting {clock(waited_s)}" if waited_s > 0 else "at once")
        if action == Action.RESIZE:
            return f"had {len(replay.nodes(row))} tasks from then on, {at}"
        if action == Action.RESUME:
            since_s = float(self.run.events.time_s[replay.paused[job]]) if job in replay.paused else now_s
            return f"resumed {at} after a pause of {clock(now_s - since_s)}{cost}"
        if action == Action.MIGRATE:
            old = replay.running[job].nodes if job in replay.running else ()
            return (
                f"moved {self.moved[row]} of {len(replay.nodes(row))} tasks: from {nodes_text(old)} "
                f"to {nodes_text(replay.nodes(row))}, at yield {replay.yield_[row]:.3f}{cost}"
            )
        if pause is not None:
            return f"paused: {pause_text(pause)}"
        if action == Action.FINISH:
            return "finished"
        from_s = checkpointed(replay.virtual_s(job, now_s), float(self.run.workload.checkpoint_s[job]))
        return (
            f"lost: it starts anew, from {'zero virtual time' if from_s == 0 else f'{clock(from_s)} of virtual time'}"
        )


def _summary(run: Run, replay: Replay, job: int, steps: Sequence[StoryStep]) -> str:
    pauses = sum(step.action == "pause" for step in steps)
    moves = sum(step.action == "migrate" for step in steps)
    lost_s = sum(step.penalty_s for step in steps)
    parts = [f"paused {_times(pauses)}" if pauses else "never paused", f"moved {_times(moves)}" if moves else ""]
    if lost_s:
        parts.append(f"{lost_s:g} s lost to penalties")
    stretch = float(run.stretch[job])
    if np.isfinite(stretch):
        flow_s = float(run.finish_s[job] - run.workload.release_s[job])
        parts.insert(0, f"stretch {stretch:.3f}: {clock(flow_s)} for {clock(float(run.process_s[job]))} of work")
    elif job in replay.refused:
        parts = ["refused: it needs more than this cluster has"]
    else:
        parts.insert(0, f"not finished when the log ends: virtual time {clock(replay.virtual_s(job, run.end_s))}")
    parts.append(commands_text(run.answers, int(run.workload.job_id[job])))
    return "; ".join(filter(None, parts))


def story_document(story: Story) -> Mapping[str, Any]:
    """A story as JSON, times in seconds."""
    return {
        "job_id": story.job_id,
        "policy": story.policy,
        "tasks": story.tasks,
        "cpu_need": story.need,
        "memory": story.memory,
        "processing_time_s": story.run_s,
        "submission_time_s": story.submit_s,
        "summary": story.summary,
        "steps": [_step_document(step) for step in story.steps],
    }


def _step_document(step: StoryStep) -> dict[str, Any]:
    document: dict[str, Any] = {
        "time_s": step.time_s,
        "clock": clock(step.time_s),
        "action": step.action,
        "text": step.text,
        "flow_s": step.flow_s,
        "virtual_s": step.virtual_s,
        "nodes": step.nodes,
        "yield": step.yield_,
        "why": step.why,
        "penalty_s": step.penalty_s,
    }
    pause = step.pause
    if pause is not None:
        document["pause"] = {
            "cause": pause.cause,
            "for_jobs": list(pause.for_jobs),
            "priority": pause.priority,
            "rank": pause.rank,
            "room_for_tasks": pause.room,
            "tasks": pause.tasks,
            "others": [
                {
                    "job_id": r.job_id,
                    "flow_s": r.flow_s,
                    "virtual_s": r.virtual_s,
                    "priority": r.priority,
                    "fate": r.fate,
                }
                for r in pause.rivals
            ],
        }
    return document
