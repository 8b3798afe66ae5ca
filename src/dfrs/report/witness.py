"""What a job was doing at one instant of a run, and why."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dfrs.model.errors import InputError
from dfrs.model.run import Action, Run
from dfrs.report.clock import clock
from dfrs.report.pauses import finite, jobs_text, nodes_text, pause_of, pause_text, priority_text, room_for
from dfrs.runs.replay import Replay


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessAnswer:
    """What a job was doing at an instant."""

    job_id: int
    time_s: float
    state: str
    """absent, booked (before its requested start), waiting, running, penalty, paused or finished; refused for a job
    that fits nowhere."""
    flow_s: float
    virtual_s: float
    nodes: str
    yield_: float
    sentences: tuple[str, ...]


def answer(run: Run, job: int, time_s: float) -> WitnessAnswer:
    """What the job of that index was doing at `time_s`, and why. What happens at that instant has happened."""
    if time_s > run.end_s:
        raise InputError(f"--at {time_s:g}: the run ends at {run.end_s:g} s ({clock(run.end_s)})")
    replay = Replay(run)
    paused = ""
    for instant in replay:
        if instant.time_s > time_s:
            break
        if any(replay.job[row] == job and replay.action[row] == Action.PAUSE for row in instant.rows):
            paused = pause_text(pause_of(run, replay, job, instant))
    work = run.workload
    flow_s = time_s - float(work.release_s[job])
    here = replay.running.get(job)
    state, sentences = _Witness(run, replay, paused).state(job, time_s)
    if job in replay.finished:
        flow_s = float(run.finish_s[job] - work.release_s[job])
    return WitnessAnswer(
        job_id=int(work.job_id[job]),
        time_s=time_s,
        state=state,
        flow_s=max(0.0, flow_s),
        virtual_s=replay.virtual_s(job, time_s),
        nodes=nodes_text(here.nodes) if here else "",
        yield_=here.yield_ if here else 0.0,
        sentences=tuple(sentences),
    )


class _Witness:
    """Answers for one instant, with a replay that has applied what happened until then."""

    def __init__(self, run: Run, replay: Replay, paused: str) -> None:
        self.run, self.replay, self.paused = run, replay, paused
        self.ids = run.workload.job_id

    def state(self, job: int, time_s: float) -> tuple[str, list[str]]:
        """What the job was doing, in a word, and sentences about it."""
        work, replay = self.run.workload, self.replay
        if time_s < work.submit_s[job]:
            return "absent", [f"It was not there yet: it is submitted at {clock(float(work.submit_s[job]))}."]
        if job in replay.refused:
            return "refused", ["It was refused: it needs more than this cluster has."]
        if time_s < work.release_s[job]:
            requested = clock(float(work.requested_start_s[job]))
            return "booked", [f"It was submitted, to start at {requested}: it did not wait yet."]
        if job in replay.finished:
            return "finished", [f"It had finished, at {clock(float(self.run.finish_s[job]))}."]
        if job in replay.running:
            return self._running(job, time_s)
        room = self._room(job, time_s)
        if job in replay.paused:
            since_s = float(self.run.events.time_s[replay.paused[job]])
            then = f"It was paused at {clock(since_s)}: {self.paused}"
            return "paused", [then, room, self._standing(job, time_s)]
        return "waiting", [f"It was waiting, for {clock(time_s - float(work.release_s[job]))}.", room]

    def _running(self, job: int, time_s: float) -> tuple[str, list[str]]:
        here = self.replay.running[job]
        word = "nodes" if len(here.nodes) > 1 else "node"
        sentences = [f"It ran on {word} {nodes_text(here.nodes)} at yield {here.yield_:.3f}."]
        sentences.append(self._because(here.placed))
        sentences.append(self._share(job))
        if time_s < here.ready_s:
            sentences.append(f"It made no progress: its penalty lasted until {clock(here.ready_s)}.")
            return "penalty", sentences
        return "running", sentences

    def _because(self, row: int) -> str:
        events = self.run.events
        what = Action(int(events.action[row]))
        verb = {Action.START: "Started", Action.RESUME: "Resumed", Action.RESIZE: "Resized"}.get(what, "Moved")
        why = events.reasons[int(events.why[row])] or "the log gives no reason"
        return f"{verb} there at {clock(float(events.time_s[row]))}: {why}."

    def _share(self, job: int) -> str:
        """The fullest of its nodes, which is what limits its yield."""
        work, here = self.run.workload, self.replay.running[job]
        need: dict[int, float] = dict.fromkeys(here.nodes, 0.0)
        given: dict[int, float] = dict.fromkeys(here.nodes, 0.0)
        others: dict[int, list[int]] = {node: [] for node in here.nodes}
        for other, there in self.replay.running.items():
            for node in there.nodes:
                if node in need:
                    need[node] += float(work.need[other])
                    given[node] += float(work.need[other]) * there.yield_
                    if other != job and int(self.ids[other]) not in others[node]:
                        others[node].append(int(self.ids[other]))
        cpu = self.run.capacity[:, 0]
        node = max(need, key=lambda n: (need[n] / cpu[n] if cpu[n] > 0 else 0.0, -n))
        shared = f"shared with {jobs_text(sorted(others[node]))}" if others[node] else "which it had alone"
        return (
            f"Its fullest node was {node}, {shared}: needs of {need[node]:.2f} for a CPU of {cpu[node]:g}, "
            f"of which {given[node]:.2f} was given out."
        )

    def _room(self, job: int, time_s: float) -> str:
        replay, work = self.replay, self.run.workload
        fits = room_for(self.run, replay, job, set(), time_s)
        running = f"{len(replay.running)} jobs were running" if len(replay.running) != 1 else "one job was running"
        tasks = f"{fits} of its {replay.tasks(job, time_s)} tasks"
        text = f"{running.capitalize()}; "
        if replay.exclusive:
            text += f"free nodes had room for {tasks}."
        else:
            text += f"memory was free for {tasks} ({float(work.memory[job]):g} of a node each)."
        closed = int((~replay.takes).sum())
        if closed:
            text += f" Of {len(replay.takes)} nodes {closed} took no new tasks."
        return text

    def _standing(self, job: int, time_s: float) -> str:
        replay = self.replay
        mine = replay.priority(job, time_s)
        lower = sum(replay.priority(other, time_s) < mine for other in replay.running)
        return (
            f"Its priority was {priority_text(finite(mine))}, above that of {lower} of the {len(replay.running)} "
            f"running jobs."
        )


def answer_document(found: WitnessAnswer) -> Mapping[str, Any]:
    """An answer as JSON, times in seconds."""
    return {
        "job_id": found.job_id,
        "time_s": found.time_s,
        "clock": clock(found.time_s),
        "state": found.state,
        "flow_s": found.flow_s,
        "virtual_s": found.virtual_s,
        "nodes": found.nodes,
        "yield": found.yield_,
        "sentences": list(found.sentences),
    }
