"""Made-up clusters for the dashboard: a small one with six hours of history, and one of a thousand nodes."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

import numpy as np

from dfrs.live.protocol.resources import GanttBar, Job, JobState, Node, NodeState, NodeTask, ShadowChoice, TimePoint
from tests.dashboard_server import NASTY, SPAN_S, Told

GIB = 1 << 30
PROGRAMS = ("train-resnet", "cfd-mesh", "genome-align", "render", "monte-carlo", "parse-logs", "notebook", "sweep")
USERS = ("alice", "bob", "carol", "dan")


@dataclass(slots=True)
class Story:
    """A job's life, made up."""

    id: int
    name: str
    user: str
    nodes: tuple[str, ...]
    need: float
    begin: float
    end: float
    pauses: tuple[tuple[float, float], ...] = ()
    declared: bool = True

    def active(self, time_: float) -> bool:
        return self.begin <= time_ < self.end and not self.paused(time_)

    def paused(self, time_: float) -> bool:
        return any(begin <= time_ < end for begin, end in self.pauses)


def job_of(story: Story, state: JobState, why: str, now: float, granted: float | None, **more: object) -> Job:
    runs = granted is not None
    fields = {
        "id": story.id,
        "name": story.name,
        "user": story.user,
        "state": state,
        "why": why,
        "command": (f"./{story.name}", "--steps", "400", "--out", "a b"),
        "tasks": max(1, len(story.nodes)),
        "cpu_cores": story.need if story.declared else None,
        "need_cores": story.need,
        "need_error_cores": None if story.declared else round(0.06 * story.need, 3),
        "memory_bytes": int(GIB * (0.5 + story.id % 3)),
        "minimum_yield": 0.2 if story.id % 5 == 0 else 0.0,
        "yield_granted": granted,
        "yield_received": granted * (0.9 + 0.02 * (story.id % 6)) if runs else None,
        "yield_received_error": 0.01 if runs else None,
        "used_cores": granted * story.need * 0.95 * max(1, len(story.nodes)) if runs else None,
        "used_bytes": int(GIB * 0.4 * max(1, len(story.nodes))) if runs else None,
        "cpu_s": max(0.0, now - story.begin) * 0.6 * story.need,
        "nodes": story.nodes,
        "submitted_at": story.begin - 2,
        "started_at": story.begin if story.nodes else None,
        "ended_at": None,
        "start_at": None,
        "virtual_s": max(0.0, now - story.begin) * 0.6,
        "stretch": 1.6 if runs else None,
        "estimate_s": None,
        "after": (),
        "array_index": None,
        "attempt": 0,
        "pauses": len(story.pauses),
        "migrations": 0,
        "exit": "",
        "exit_code": None,
        **more,
    }
    return Job(**fields)


def node_of(name: str, now: float, tasks: Sequence[NodeTask] = (), *, cpus: float = 4.0, **more: object) -> Node:
    memory = 16 * GIB
    return Node(
        **{
            "name": name,
            "host": "box",
            "state": NodeState.UP,
            "cpus": cpus,
            "memory_bytes": memory,
            "memory_free_bytes": int(memory * max(0.08, 0.82 - 0.17 * len(tasks))),
            "used_cores": sum(task.used_cores or 0.0 for task in tasks),
            "granted_cores": sum(task.share_cores for task in tasks),
            "tasks": tuple(tasks),
            "shares": "cgroup-v2",
            "caps": True,
            "pause_frees_memory": False,
            "notes": (),
            "connected": True,
            "seen_at": now,
            "version": "0.1.0",
            **more,
        }
    )


def yields(stories: Sequence[Story], cpus: float, at: float) -> dict[int, float]:
    """Each active job's yield at a time: what the fullest of its nodes can give to all."""
    load: dict[str, float] = {}
    for story in stories:
        if story.active(at):
            for node in story.nodes:
                load[node] = load.get(node, 0.0) + story.need
    return {story.id: min(1.0, *(cpus / load[node] for node in story.nodes)) for story in stories if story.active(at)}


def make_stories(names: Sequence[str], now: float, rng: np.random.Generator, count: int) -> list[Story]:
    stories = []
    for k in range(count):
        begin = now - SPAN_S + SPAN_S * (k + 0.3 * rng.random()) / count
        end = begin + float(rng.lognormal(8.2, 0.7))
        width = int(rng.choice([1, 1, 1, 2, 3]))
        place = tuple(str(name) for name in rng.choice(names, min(width, len(names)), replace=False))
        pauses = ((begin + 0.3 * (end - begin), begin + 0.45 * (end - begin)),) if k % 4 == 1 else ()
        need = round(float(rng.choice([0.5, 1.0, 1.6, 2.4])), 2)
        name = PROGRAMS[k % len(PROGRAMS)]
        stories.append(Story(k + 1, name, USERS[k % 4], place, need, begin, end, pauses, declared=k % 3 != 0))
    stories[-1].end = stories[-2].end = now + 900
    stories[-3].end, stories[-3].pauses = now + 2000, ((now - 600, now + 1800),)
    return stories


def tell_history(told: Told, stories: Sequence[Story], queued: Sequence[Story], cpus: float, now: float) -> None:
    times = sorted({t for s in stories for t in (s.begin, s.end, *(x for p in s.pauses for x in p)) if t < now} | {now})
    latest: dict[tuple[int, int], GanttBar] = {}
    events: list[tuple[float, str, Story, float | None, str]] = []
    for begin, end in pairwise(times):
        at = (begin + end) / 2
        now_yields = yields(stories, cpus, at)
        for story in stories:
            on = story.begin <= at < story.end
            share = now_yields.get(story.id, 0.0) * story.need
            for rank, node in enumerate(story.nodes):
                last = latest.get((story.id, rank))
                if last and (not on or abs(last.share_cores - share) > 1e-9 or last.paused != story.paused(at)):
                    told.bars_.append(replace(last, end=begin))
                    del latest[story.id, rank]
                    if on and rank == 0 and share > 0 and not last.paused:
                        events.append((begin, "share", story, now_yields[story.id], ""))
                if on and (story.id, rank) not in latest:
                    latest[story.id, rank] = GanttBar(
                        job=story.id,
                        rank=rank,
                        name=story.name,
                        user=story.user,
                        node=node,
                        begin=begin,
                        end=None,
                        share_cores=share,
                        paused=story.paused(at),
                    )
        waiting = int(2 + 2 * np.sin(at / 2500))
        values = list(now_yields.values())
        least = min(values, default=None)
        told.points_ += [
            TimePoint(
                time=t,
                minimum_yield=least,
                median_yield=median(values) if values else None,
                jain=sum(values) ** 2 / len(values) / sum(v * v for v in values) if values else None,
                bound=None if least is None else min(1.0, 1.14 * least + 0.02),
                running=len(values),
                waiting=waiting,
                used_cores=3.0 * len(values),
            )
            for t in np.arange(begin, end, 30.0)
        ]
    told.bars_ += latest.values()
    events += [(story.begin - 2, "submit", story, None, "") for story in stories] + [
        (story.begin, "submit", story, None, "") for story in queued
    ]
    for story in stories:
        events.append((story.begin, "start", story, 1.0, "there was room: the fullest of its nodes gives 0.74 to all"))
        events += [
            (begin, "pause", story, None, "gave way: its virtual time was the largest")
            for begin, _ in story.pauses
            if begin < now
        ]
        events += [
            (end, "resume", story, 0.5, "its turn: the smallest virtual time of those paused")
            for _, end in story.pauses
            if end < now
        ]
        if story.end < now:
            events.append((story.end, "finish", story, None, "all its tasks ended with status 0"))
    for at, action, story, share, why in sorted(events, key=lambda event: event[0]):
        by = story.user if action == "submit" else ""
        nodes = () if action == "submit" else story.nodes
        told.tell(action, why, job=story.id, time=at, nodes=nodes, yield_=share, by=by)


def small_cluster(nodes: int = 6, count: int = 60, seed: int = 3) -> Told:
    """A few nodes of every state, jobs in every state, six hours of history."""
    now, rng, cpus = time.time(), np.random.default_rng(seed), 4.0
    told = Told(now0=now)
    names = [f"node{k}" for k in range(1, nodes + 1)]
    stories = make_stories(names[:-1], now, rng, count)
    queued = [
        Story(count + 1 + k, NASTY if k == 0 else "post-process", USERS[k], (), 1.5, now - 400 + 90 * k, now + 1e4)
        for k in range(3)
    ]
    tell_history(told, stories, queued, cpus, now)
    present = yields(stories, cpus, now - 1)
    tasks: dict[str, list[NodeTask]] = {name: [] for name in names}
    for story in stories:
        granted, paused = present.get(story.id), story.paused(now)
        if story.end <= now:
            state, fields = (
                JobState.DONE,
                {"ended_at": story.end, "exit": "all tasks ended with status 0", "exit_code": 0},
            )
            told.jobs_[story.id] = job_of(story, state, "", now, None, **fields)
            continue
        why = (
            "gave way: its virtual time was the largest"
            if paused
            else f"the fullest of its nodes gives {granted:.2f} to all"
        )
        told.jobs_[story.id] = job_of(story, JobState.PAUSED if paused else JobState.RUNNING, why, now, granted)
        for rank, name in enumerate(story.nodes):
            share = (granted or 0.0) * story.need
            tasks[name].append(
                NodeTask(
                    job=story.id,
                    rank=rank,
                    user=story.user,
                    name=story.name,
                    share_cores=share,
                    used_cores=share * (0.55 + 0.08 * (story.id % 7)),
                    paused=paused,
                )
            )
    for name in names:
        told.nodes_[name] = node_of(name, now, tasks[name], cpus=cpus)
    for k, state, age, notes in (
        (-3, NodeState.DRAINING, 0, ("no cgroups: shares by nice",)),
        (-2, NodeState.SILENT, 42, ()),
        (-1, NodeState.LOST, 900, ()),
    ):
        told.nodes_[names[k]] = node_of(names[k], now - age, tasks[names[k]], state=state, drained=k == -3, notes=notes)
    whys = ("memory: no node has 2.5 GiB free", "waits for job 40 to end well", f"held by {USERS[1]}")
    for story, state, why in zip(queued, (JobState.WAITING, JobState.PENDING, JobState.HELD), whys, strict=True):
        told.jobs_[story.id] = job_of(story, state, why, now, None)
    failed = Story(count + 4, "broken", "alice", (), 1.0, now - 900, now - 800)
    told.jobs_[failed.id] = job_of(
        failed, JobState.FAILED, "", now, None, ended_at=now - 800, exit="task 0: killed, out of memory", exit_code=137
    )
    told.shadow_ = [
        ShadowChoice(time=now - 60 * k, job=count - k, did="ran at 0.62", would="wait for 3 free nodes")
        for k in range(5)
    ]
    return told


def large_cluster(nodes: int = 1000, count: int = 10_000) -> Told:
    """Many nodes and jobs, all running, an hour in which each task's share changed once."""
    now, rng = time.time(), np.random.default_rng(11)
    told = Told(now0=now, shadow_policy=None)
    tasks: list[list[NodeTask]] = [[] for _ in range(nodes)]
    for k in range(1, count + 1):
        n = int(rng.integers(nodes))
        story = Story(k, PROGRAMS[k % 8], USERS[k % 4], (f"n{n:04d}",), 0.6, now - 1800, now + 9e4)
        told.jobs_[k] = job_of(story, JobState.RUNNING, "runs", now, 0.5 + 0.4 * (k % 9) / 9)
        task = NodeTask(job=k, rank=0, user=story.user, name=story.name, share_cores=0.25, used_cores=0.2, paused=False)
        tasks[n].append(task)
        for begin, end, share in ((now - 1800, now - 600, 0.3), (now - 600, None, 0.25)):
            bar = GanttBar(
                job=k,
                rank=0,
                name=story.name,
                user=story.user,
                node=story.nodes[0],
                begin=begin,
                end=end,
                share_cores=share,
            )
            told.bars_.append(bar)
    for n in range(nodes):
        state = {3: NodeState.DRAINING, 500: NodeState.SILENT, 777: NodeState.LOST}.get(n, NodeState.UP)
        share = min(0.25, 4.0 / max(1, len(tasks[n])))
        fair = [replace(task, share_cores=share, used_cores=0.8 * share) for task in tasks[n]]
        told.nodes_[f"n{n:04d}"] = node_of(
            f"n{n:04d}", now, fair if state is not NodeState.LOST else (), state=state, drained=n == 3
        )
    told.points_ = [
        TimePoint(
            time=now - 3600 + 12 * k,
            minimum_yield=0.5,
            median_yield=0.7,
            jain=0.96,
            bound=0.6,
            running=count,
            waiting=0,
            used_cores=2000.0,
        )
        for k in range(300)
    ]
    return told
