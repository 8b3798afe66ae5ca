"""A simulated world in exact fractions, and the meaning of a run's log, row by row."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf

import numpy as np

from dfrs.model.run import Action, Run
from dfrs.model.true_speeds import TrueSpeeds

START, PAUSE, RESUME, MIGRATE, SHARE = range(5)
LOST = 6


@dataclass
class ExactJob:
    run: Fraction
    memory: Fraction
    done: Fraction = Fraction(0)
    rate: Fraction = Fraction(0)
    speed: Fraction = Fraction(1)
    ready: Fraction = Fraction(0)
    running: bool = False
    every: Fraction = Fraction(0)


class ExactWorld:
    """Progress is the integral of the yield times the speed where the job is, nothing before `ready`."""

    def __init__(self, run_s: Sequence[float], memory: Sequence[float], penalty_s: float, copy_s: float) -> None:
        self.jobs = [ExactJob(Fraction(run), Fraction(need)) for run, need in zip(run_s, memory, strict=True)]
        self.penalty, self.copy = Fraction(penalty_s), Fraction(copy_s)
        self.now = Fraction(0)

    def advance(self, now_s: float) -> None:
        now = Fraction(now_s)
        for job in self.jobs:
            if job.running and now > max(self.now, job.ready):
                job.done = min(job.run, job.done + job.rate * (now - max(self.now, job.ready)))
        self.now = now

    def possible(self, action: int, j: int) -> bool:
        job = self.jobs[j]
        if action in (START, RESUME):
            return not job.running
        return job.running

    def perform(self, action: int, j: int, yield_: float, moved: int, speed: float = 1.0) -> Fraction | None:
        """When the job placed makes progress, None if the command places none."""
        job = self.jobs[j]
        if action in (PAUSE, LOST):
            job.running, job.rate = False, Fraction(0)
            job.done = checkpointed(job.done, job.every) if action == LOST else job.done
            return None
        if action not in (START, RESUME, MIGRATE, SHARE):
            return None
        job.speed = job.speed if action == SHARE else Fraction(speed)
        job.running, job.rate = True, Fraction(yield_) * job.speed
        if action == SHARE:
            return None
        cost = Fraction(0) if action == START else self.penalty + self.copy * moved * job.memory
        job.ready = self.now + cost
        return job.ready

    def end_of(self, j: int) -> Fraction | float:
        """When job j is done if nothing changes."""
        job = self.jobs[j]
        if not job.running or (job.rate == 0 and job.done < job.run):
            return inf
        begin = max(self.now, job.ready)
        return begin if job.done == job.run else begin + (job.run - job.done) / job.rate

    def next_completion(self) -> tuple[Fraction | float, int]:
        ends = [(self.end_of(j), j) for j in range(len(self.jobs))]
        return min((pair for pair in ends if pair[0] < inf), default=(inf, -1))


def checkpointed(done: Fraction, every: Fraction) -> Fraction:
    """What is kept where a check-point is made after each `every` of progress; one that is nearly due is made."""
    return every * int(done / every + Fraction(1, 10**9)) if every else Fraction(0)


@dataclass
class _Place:
    state: str = "waiting"
    nodes: tuple[int, ...] = ()
    yield_: float = 0.0
    virtual: Fraction = Fraction(0)
    since: Fraction = Fraction(0)
    ready: Fraction = Fraction(0)
    speed: Fraction = Fraction(1)
    before: Fraction = Fraction(1)
    """Its speed where it was before the last migration."""
    moved: bool = False
    """Whether a migration brought it where it is."""

    def advance(self, now: Fraction) -> None:
        if self.state == "running" and now > max(self.since, self.ready):
            self.virtual += Fraction(self.yield_) * self.speed * (now - max(self.since, self.ready))
        self.since = now


def replayed(run: Run) -> list[Fraction]:
    """Exact virtual time of each job at the end of the log, all rules of which are asserted on the way."""
    jobs = [_Place() for _ in range(len(run.workload))]
    events, closed = run.events, set()
    plan: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = []
    assert (np.diff(events.time_s) >= 0).all(), "time goes back"
    for e in range(len(events)):
        now, action, j = Fraction(float(events.time_s[e])), Action(int(events.action[e])), int(events.job[e])
        named = tuple(events.nodes_of(e).tolist())
        if action in (Action.DOWN, Action.DRAIN, Action.UP):
            assert j == -1
            assert len(named) == 1
            (closed.discard if action == Action.UP else closed.add)(named[0])
        else:
            job = jobs[j]
            assert events.time_s[e] >= run.workload.submit_s[j]
            job.advance(now)
            if action == Action.MIGRATE:
                plan.append((j, job.nodes, named))
            _apply(run, job, j, action, named, float(events.yield_[e]), now, closed)
        if e + 1 == len(events) or events.time_s[e + 1] > events.time_s[e]:
            _within_capacity(run, jobs)
            if isinstance(run.speeds, TrueSpeeds) and plan:
                _move_as_planned(run, jobs, plan, Fraction(float(events.time_s[e])))
            plan = []
    end = Fraction(run.end_s)
    for job in jobs:
        job.advance(end)
    return [job.virtual for job in jobs]


def rate_on(run: Run, j: int, nodes: Sequence[int]) -> Fraction:
    """Progress per second of job j there at yield 1, task by task."""
    farm = run.speeds
    if not isinstance(farm, TrueSpeeds):
        return Fraction(1)
    shape = 1 if len({int(farm.machine[n]) for n in nodes}) == 1 else 0
    rate = min(Fraction(float(farm.rate[j, farm.partition[n], shape])) for n in nodes)
    wants = [Fraction(float(farm.memory[j])) * nodes.count(n) - Fraction(float(run.capacity[n, 1])) for n in nodes]
    return rate / Fraction(float(farm.thrash[j])) if max(wants) > Fraction(1, 10**9) else rate


def _move_as_planned(run: Run, jobs, plan, now: Fraction) -> None:
    """All migrations of an instant, with every process on the wire and off it again."""
    farm = run.speeds
    leaves, comes = Counter(), Counter()
    for _, old, new in plan:
        leaves.update(int(farm.machine[n]) for n in (Counter(old) - Counter(new)).elements())
        comes.update(int(farm.machine[n]) for n in (Counter(new) - Counter(old)).elements())
    count = max([*leaves.values(), *comes.values()]) if farm.parallel else sum(comes.values())
    took, stretch = Fraction(farm.copy_s) * count, Fraction(farm.stretch_s) * count
    for j in {j for j, _, _ in plan}:
        job = jobs[j]
        if job.state == "running" and job.moved:
            lost = 1 - min(job.before, job.speed) / job.speed
            job.ready = now + stretch + took * lost


def _apply(run, job, j, action, named, yield_, now, closed):
    if action == Action.START:
        assert job.state == "waiting"
        job.ready = now
    elif action == Action.RESUME:
        assert job.state == "paused"
        job.ready = now + _cost(run, j, len(named))
    elif action == Action.MIGRATE:
        assert job.state == "running"
        moved = sum((Counter(named) - Counter(job.nodes)).values())
        assert moved > 0, "a migration that moves no task"
        job.ready = now + _cost(run, j, moved)
    else:
        assert job.state == "running"
    if action in (Action.START, Action.RESUME, Action.MIGRATE):
        job.before, job.speed, job.moved = job.speed, rate_on(run, j, named), action == Action.MIGRATE
        assert len(named) == run.workload.tasks[j]
        arrivals = Counter(named) - Counter(job.nodes)
        assert not closed & arrivals.keys(), "a task came to a closed node"
        job.state, job.nodes = "running", named
    elif action == Action.PAUSE:
        job.state, job.nodes = "paused", ()
    elif action == Action.FINISH:
        job.state, job.nodes = "done", ()
        length = float(run.workload.run_s[j])
        assert abs(float(job.virtual) - length) <= 1e-9 * max(length, float(now)), "finished at another virtual time"
    elif action == Action.LOST:
        every = Fraction(float(run.workload.checkpoint_s[j]))
        job.state, job.nodes, job.virtual = "waiting", (), checkpointed(job.virtual, every)
    if action in (Action.FINISH, Action.LOST):
        assert np.isnan(yield_)
        job.yield_ = 0.0
    else:
        assert 0 <= yield_ <= 1
        job.yield_ = yield_


def _cost(run: Run, j: int, moved: int) -> Fraction:
    cost = Fraction(run.penalty.seconds)
    if run.penalty.bytes_per_s is not None:
        cost += Fraction(run.workload.memory[j] * moved * run.penalty.node_bytes / run.penalty.bytes_per_s)
    return cost


def _within_capacity(run: Run, jobs: Sequence[_Place]) -> None:
    used = np.zeros_like(run.capacity)
    for j, job in enumerate(jobs):
        for n in job.nodes:
            used[n] += run.workload.need[j] * job.yield_, run.workload.memory[j]
    assert (used <= run.capacity + 2e-9).all(), "a node is over capacity"
