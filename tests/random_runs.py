"""Random runs that keep every rule, of all kinds of events: what measures and checks runs is tried on them."""

import math

import numpy as np

from dfrs.model.run import ROOM_FREED, Action, Penalty
from tests.toy_runs import run_of, workload

PENALTIES = (
    Penalty(),
    Penalty(seconds=7.0),
    Penalty(seconds=1.5, bytes_per_s=1e9, node_bytes=4e9),
)
ROOM = 1e-9


class _World:
    """A cluster whose policy is chance, until `calm_s`; then jobs run as fast as they can."""

    def __init__(self, load, capacity, penalty, rng, calm_s, exclusive):
        self.load, self.capacity, self.penalty, self.rng = load, capacity, penalty, rng
        self.calm_s, self.exclusive = calm_s, exclusive
        self.now, self.rows = 0.0, []
        self.where, self.yields, self.ready = {}, {}, {}
        self.virtual = np.zeros(len(load))
        self.state = ["absent"] * len(load)
        self.condition = ["up"] * len(capacity)

    def log(self, job, action, nodes=(), yield_=math.nan, why=""):
        self.rows.append([self.now, job, action, sorted(nodes), yield_, why])

    def advance(self, to_s):
        for job in self.where:
            self.virtual[job] += self.yields[job] * max(0.0, to_s - max(self.now, self.ready[job]))
        self.now = to_s

    def ends(self):
        return {
            job: max(self.now, self.ready[job]) + (self.load.run_s[job] - self.virtual[job]) / self.yields[job]
            for job in self.where
            if self.yields[job] > 0
        }

    def memory_free(self):
        free = self.capacity[:, 1].copy()
        for job, nodes in self.where.items():
            for node in nodes:
                free[node] -= self.load.memory[job]
        return free

    def nodes_for(self, job, old=()):
        """Random nodes with room for all tasks, or None; `old` may be kept even where no task may come."""
        free = self.memory_free()
        taken = {node for nodes in self.where.values() for node in nodes}
        nodes = []
        for node in self.rng.permutation(len(free)).tolist():
            if self.exclusive and node in taken:
                continue
            room = 99 if self.load.memory[job] == 0 else int((free[node] + ROOM) / self.load.memory[job])
            if self.exclusive:
                room = min(room, int((self.capacity[node, 0] + ROOM) / self.load.need[job]))
            if self.condition[node] != "up":
                room = min(room, list(old).count(node)) if self.condition[node] == "drain" else 0
            most = min(room, self.load.tasks[job] - len(nodes))
            nodes += [node] * int(self.rng.integers(min(1, most), most + 1) if self.now < self.calm_s else most)
        return sorted(nodes) if len(nodes) == self.load.tasks[job] else None

    def delay(self, job, moved):
        seconds = self.penalty.seconds
        if self.penalty.bytes_per_s is not None:
            seconds += self.load.memory[job] * moved * self.penalty.node_bytes / self.penalty.bytes_per_s
        return seconds

    def finish(self):
        for job, end in sorted(self.ends().items()):
            if end <= self.now:
                self.log(job, Action.FINISH, why="done")
                self.state[job] = "finished"
                del self.where[job]

    def change_nodes(self):
        for node, before in enumerate(self.condition):
            now = "up" if self.now >= self.calm_s else str(self.rng.choice(["up", "up", "drain", "down"]))
            if now != before:
                self.condition[node] = now
                self.log(-1, Action[now.upper()], [node])
                for job in [j for j, nodes in self.where.items() if now == "down" and node in nodes]:
                    self.log(job, Action.LOST)
                    self.state[job], self.virtual[job] = "waiting", 0.0
                    del self.where[job]

    def decide(self):
        calm = self.now >= self.calm_s
        before = dict(self.yields)
        fresh = {}
        for job in list(self.where):
            if not calm and self.rng.random() < 0.15:
                self.log(job, Action.PAUSE, yield_=0.0)
                self.state[job] = "paused"
                del self.where[job]
        for job in list(self.where):
            if not calm and self.rng.random() < 0.2:
                old = self.where.pop(job)
                new = self.nodes_for(job, old)
                kept = list(old)
                moved = sum(1 for node in new or () if node not in kept or kept.remove(node))
                self.where[job] = new if moved else old
                if moved:
                    self.ready[job] = self.now + self.delay(job, moved)
                    fresh[job] = Action.MIGRATE
        for job in self.rng.permutation(len(self.load)).tolist():
            if self.state[job] in {"waiting", "paused"} and (calm or self.rng.random() < 0.6):
                nodes = self.nodes_for(job)
                if nodes is not None:
                    again = self.state[job] == "paused"
                    self.where[job], self.state[job] = nodes, "running"
                    self.ready[job] = self.now + (self.delay(job, len(nodes)) if again else 0.0)
                    fresh[job] = Action.RESUME if again else Action.START
        self.share(calm)
        for job in sorted(self.where):
            if job not in fresh and self.yields[job] != before[job]:
                self.log(job, Action.SHARE, yield_=self.yields[job], why="a, b")
        for job, action in fresh.items():
            self.log(job, action, self.where[job], self.yields[job], ROOM_FREED if job % 2 else "")

    def share(self, calm):
        load = np.zeros(len(self.capacity))
        for job, nodes in self.where.items():
            np.add.at(load, nodes, self.load.need[job])
        for job, nodes in self.where.items():
            fair = min(1.0, *(float(self.capacity[n, 0] / load[n]) for n in nodes), 1.0)
            part = (
                1.0
                if calm or self.exclusive
                else float(self.rng.choice([0.0, 0.4, 0.77, 1.0], p=[0.05, 0.3, 0.3, 0.35]))
            )
            self.yields[job] = 1.0 if self.exclusive else fair * part


def random_run(seed, *, partial=False, exclusive=False, node_events=True):
    """A run that keeps every rule; `partial` cuts its log at a random time."""
    rng = np.random.default_rng(seed)
    nodes, jobs = int(rng.integers(1, 5)), int(rng.integers(1, 9))
    rows = [
        (
            100 + k,
            float(rng.integers(0, 60)),
            int(rng.integers(1, 5)),
            rng.choice([0.25, 0.6, 1.0]),
            rng.choice([0.0, 0.1, 0.35, 0.5]),
            float(np.round(rng.uniform(3, 60), 3)),
        )
        for k in range(jobs)
    ]
    load = workload(rows, nodes)
    capacity = np.ones((nodes, 2)) if rng.random() < 0.5 else rng.choice([0.5, 1.0, 2.0], (nodes, 2))
    penalty = PENALTIES[int(rng.integers(len(PENALTIES)))]
    world = _World(load, capacity, penalty, rng, 150.0, exclusive)
    world.now = world.calm_s
    refused = tuple(job for job in range(jobs) if world.nodes_for(job) is None)
    world.now = 0.0
    for job in refused:
        world.state[job] = "refused"
    while any(state not in {"finished", "refused"} for state in world.state):
        comes = [float(s) for job, s in enumerate(load.submit_s) if world.state[job] == "absent"]
        later = world.now + float(rng.exponential(9.0)) if world.now < world.calm_s else math.inf
        at_s = min([later, *comes, *world.ends().values(), *([world.calm_s] if world.now < world.calm_s else [])])
        world.advance(at_s)
        world.finish()
        for job in range(jobs):
            if world.state[job] == "absent" and load.submit_s[job] <= at_s:
                world.state[job] = "waiting"
        if node_events and not exclusive and (at_s == world.calm_s or (at_s < world.calm_s and rng.random() < 0.15)):
            world.change_nodes()
        world.decide()
    end_s = world.now
    kept = world.rows
    if partial:
        end_s = float(rng.uniform(0.0, end_s))
        kept = [row for row in kept if row[0] <= end_s]
    return run_of(
        load,
        kept,
        penalty=penalty,
        capacity=capacity,
        policy="chance/*",
        end_s=end_s,
        complete=not partial,
        refused=refused,
        seed=seed,
        configuration={"exclusive": exclusive},
    )
