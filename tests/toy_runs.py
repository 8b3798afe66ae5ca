"""Small runs made without the simulator, so that pictures and stories are tested by themselves."""

import math

import numpy as np

from dfrs.model.jobs import Workload
from dfrs.model.run import Action, Events, Penalty, Run


def workload(rows, nodes, name="toy"):
    """From rows of (id, submission, tasks, need, memory, processing time)."""
    columns = list(zip(*rows, strict=True))
    jobs = len(rows)
    return Workload(
        job_id=np.array(columns[0]),
        submit_s=np.array(columns[1], float),
        tasks=np.array(columns[2]),
        need=np.array(columns[3], float),
        memory=np.array(columns[4], float),
        run_s=np.array(columns[5], float),
        estimate_s=np.full(jobs, np.nan),
        user=np.arange(jobs) % 5,
        weight=np.ones(jobs),
        nodes=nodes,
        name=name,
    )


def run_of(load, rows, *, penalty=300.0, policy="GreedyPM*/per/OPT=MIN/MVT=600", end_s=None, complete=True, **more):
    """From rows of (time, job index, action, nodes, yield, why)."""
    reasons = sorted({row[5] for row in rows} | {""})
    first = np.cumsum([0, *(len(row[3]) for row in rows)])
    return Run(
        workload=load,
        policy=policy,
        capacity=more.pop("capacity", np.ones((load.nodes, 2))),
        penalty=penalty if isinstance(penalty, Penalty) else Penalty(seconds=penalty),
        events=Events(
            time_s=np.array([row[0] for row in rows], float),
            job=np.array([row[1] for row in rows], np.int64),
            action=np.array([row[2] for row in rows], np.int64),
            yield_=np.array([row[4] for row in rows], float),
            why=np.array([reasons.index(row[5]) for row in rows], np.int64),
            first=first.astype(np.int64),
            nodes=np.array([node for row in rows for node in sorted(row[3])], np.int64),
            reasons=tuple(reasons),
        ),
        complete=complete,
        end_s=rows[-1][0] if end_s is None else end_s,
        **more,
    )


def story_run():
    """Three nodes; job 30 arrives, and job 10, of lowest priority, gives way, comes back, moves and ends last.

    Penalty 300 s. Virtual time of job 10 (index 0): 1000 s at 1 until 1000; 500 s at 0.5 = 250 until 1500 (1250);
    paused until 2100; penalty until 2400; 600 s at 0.5 = 300 until 3000 (1550); moved, penalty until 3300; 450 s at 1.
    """
    load = workload(
        [(10, 0, 2, 1.0, 0.4, 2000), (20, 1000, 2, 1.0, 0.3, 500), (30, 1500, 2, 0.5, 0.7, 600)], nodes=3, name="story"
    )
    a = Action
    nan = float("nan")
    return run_of(
        load,
        [
            (0, 0, a.START, [0, 1], 1.0, "there was room at submission"),
            (1000, 0, a.SHARE, [], 0.5, ""),
            (1000, 1, a.START, [0, 1], 0.5, "there was room at submission"),
            (1500, 0, a.PAUSE, [], 0.0, "gave way to a submitted job"),
            (1500, 2, a.START, [0, 2], 2 / 3, "there was room at submission"),
            (1500, 1, a.SHARE, [], 2 / 3, ""),
            (1875, 1, a.FINISH, [], nan, ""),
            (1875, 2, a.SHARE, [], 1.0, ""),
            (2100, 0, a.RESUME, [1, 1], 0.5, "room became free"),
            (2225, 2, a.FINISH, [], nan, ""),
            (3000, 0, a.MIGRATE, [1, 2], 1.0, "all jobs were packed anew"),
            (3750, 0, a.FINISH, [], nan, ""),
        ],
    )


class _Toy:
    """A greedy policy with pausing, enough to look like the real one; every log it writes is admissible."""

    def __init__(self, load, penalty, batch):
        self.load, self.penalty, self.batch = load, penalty, batch
        self.rows = []
        self.where, self.yields, self.virtual, self.ready = {}, {}, np.zeros(len(load)), {}
        self.memory, self.cpu = np.ones(load.nodes), np.zeros(load.nodes)
        self.queue, self.begun, self.now = [], set(), 0.0

    def advance(self, to_s):
        for job, y in self.yields.items():
            self.virtual[job] += y * max(0.0, to_s - max(self.now, self.ready[job]))
        self.now = to_s

    def next_end(self):
        ends = [
            (max(self.now, self.ready[j]) + (self.load.run_s[j] - self.virtual[j]) / y, j)
            for j, y in self.yields.items()
        ]
        return min(ends, default=(math.inf, -1))

    def places(self, job):
        need = 1.0 if self.batch else self.load.memory[job]
        memory, cpu, nodes = self.memory.copy(), self.cpu.copy(), []
        for _ in range(self.load.tasks[job]):
            fits = np.flatnonzero(memory >= need - 1e-9)
            if not len(fits):
                return None
            node = fits[np.argmin(cpu[fits])]
            nodes.append(int(node))
            memory[node] -= need
            cpu[node] += self.load.need[job]
        return sorted(nodes)

    def put(self, job, nodes, sign=1):
        for node in nodes:
            self.memory[node] -= sign * (1.0 if self.batch else self.load.memory[job])
            self.cpu[node] += sign * self.load.need[job]

    def take(self, job):
        self.put(job, self.where.pop(job), -1)
        self.yields.pop(job)

    def bring(self, job, nodes, why):
        action = Action.RESUME if job in self.begun else Action.START
        self.ready[job] = self.now + (self.penalty if job in self.begun else 0.0)
        self.begun.add(job)
        self.put(job, nodes)
        self.where[job], self.yields[job] = nodes, 0.0
        return [self.now, job, action, nodes, 0.0, why]

    def priority(self, job):
        return (self.now - self.load.submit_s[job]) / max(self.virtual[job], 1e-9) ** 2

    def share(self, rows):
        """Equal treatment of what runs on the fullest node of each job; writes the rows of the instant in order."""
        fresh = {row[1] for row in rows if row[2] in (Action.START, Action.RESUME, Action.MIGRATE)}
        lower, higher = [], []
        for job in sorted(self.where):
            y = 1.0 if self.batch else min(1.0, 1.0 / max(self.cpu[node] for node in self.where[job]))
            if job not in fresh and y != self.yields[job]:
                (lower if y < self.yields[job] else higher).append([self.now, job, Action.SHARE, [], y, ""])
            self.yields[job] = y
        for row in rows:
            if row[1] in fresh and row[2] != Action.PAUSE:
                row[4] = self.yields[row[1]]
        rank = {Action.FINISH: 0, Action.PAUSE: 1, Action.MIGRATE: 3}
        rows.sort(key=lambda row: rank.get(row[2], 4))
        split = sum(row[2] in (Action.FINISH, Action.PAUSE) for row in rows)
        self.rows += rows[:split] + lower + rows[split:] + higher

    def finish(self, job):
        self.take(job)
        rows = [[self.now, job, Action.FINISH, [], float("nan"), ""]]
        waiting = sorted(self.queue) if self.batch else sorted(self.queue, key=lambda j: -self.priority(j))
        for other in waiting:
            nodes = self.places(other)
            if nodes is None and self.batch:
                break
            if nodes is not None:
                self.queue.remove(other)
                rows.append(self.bring(other, nodes, "room became free"))
        self.share(rows)

    def submit(self, job):
        rows, nodes = [], self.places(job) if not (self.batch and self.queue) else None
        for other in [] if self.batch else sorted(self.where, key=self.priority):
            if nodes is not None:
                break
            self.take(other)
            self.queue.append(other)
            rows.append([self.now, other, Action.PAUSE, [], 0.0, "gave way to a submitted job"])
            nodes = self.places(job)
        if nodes is None:
            self.queue.append(job)
        else:
            rows.append(self.bring(job, nodes, "there was room at submission"))
        self.share(rows)

    def tick(self):
        rows = []
        for job in sorted(self.where, key=lambda j: -max(self.cpu[self.where[j]]))[:3]:
            old = self.where[job]
            if self.ready[job] > self.now or self.virtual[job] < 600:
                continue
            self.put(job, old, -1)
            new = self.places(job)
            if new is not None and max(self.cpu[new]) + 0.3 < max(self.cpu[old]):
                self.put(job, new)
                self.where[job], self.ready[job] = new, self.now + self.penalty
                rows.append([self.now, job, Action.MIGRATE, new, 0.0, "all jobs were packed anew"])
            else:
                self.put(job, old)
        self.share(rows)


def toy_run(nodes=16, jobs=120, seed=1, *, batch=False, penalty=300.0, load=1.0):
    """A run of `jobs` jobs that looks like the real thing; `batch`: first come, first served on whole nodes."""
    rng = np.random.default_rng(seed)
    tasks = np.minimum(2 ** rng.integers(0, max(1, int(np.log2(nodes))), jobs), nodes)
    run_s = np.round(np.exp(rng.normal(6.8, 1.8, jobs))).clip(1, 6e4)
    submit_s = np.round(np.cumsum(rng.exponential((tasks * run_s).mean() / nodes / load, jobs)))
    rows = zip(
        range(1, jobs + 1),
        submit_s - submit_s[0],
        tasks,
        rng.choice([0.25, 1.0], jobs, p=[0.25, 0.75]),
        rng.choice([0.1, 0.2, 0.3, 0.5], jobs, p=[0.3, 0.2, 0.3, 0.2]),
        run_s,
        strict=True,
    )
    toy = _Toy(workload(list(rows), nodes), penalty, batch)
    arrived, tick_s = 0, 600.0
    while arrived < jobs or toy.where:
        ends_s, job = toy.next_end()
        comes_s = toy.load.submit_s[arrived] if arrived < jobs else math.inf
        at_s = min(ends_s, comes_s, math.inf if batch else tick_s)
        toy.advance(at_s)
        if at_s == ends_s:
            toy.virtual[job] = toy.load.run_s[job]
            toy.finish(job)
        elif at_s == comes_s:
            toy.submit(arrived)
            arrived += 1
        else:
            tick_s += 600.0
            toy.tick()
    return run_of(
        toy.load, toy.rows, penalty=penalty, policy="FCFS" if batch else "GreedyPM*/per/OPT=MIN/MVT=600", seed=seed
    )
