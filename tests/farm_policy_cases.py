"""Farms on which a policy decides round after round, and everything that must hold after each decision."""

import inspect
from dataclasses import dataclass, field
from types import FunctionType

import numpy as np

from dfrs.engine.check import check
from dfrs.model.decisions import JOB, RUNNING, WAITING, Cause, Snapshot
from dfrs.model.hardware import HardwareView
from dfrs.policies.heterogeneous.arrive_f import ArriveF
from dfrs.policies.heterogeneous.rules import Rules
from dfrs.policies.heterogeneous.search import PlanScenario
from tests.cases import Seeded, Source
from tests.frozen import frozen
from tests.naive import farm as naive

SPEEDS = (0.1, 0.5, 0.9, 1.0, 1.1, 2.0, 10.0)
ODD_SPEEDS = (*SPEEDS, float("nan"), 0.0, 1e-320, 1e300)


def nodes_of(shape, memory=None):
    """cluster, machine and node memory (N,) of sub-clusters given as (machines, cores)."""
    cluster, machine, sizes, count = [], [], [], 0
    for c, (machines, cores) in enumerate(shape):
        for _ in range(machines):
            cluster += [c] * cores
            machine += [count] * cores
            sizes += [1.0 if memory is None else memory[c]] * cores
            count += 1
    return np.array(cluster), np.array(machine), np.array(sizes)


def job_row(k, tasks, estimate_s, **given):
    values = {
        "id": 100 + k,
        "serial": k,
        "user": -1,
        "state": WAITING,
        "tasks": tasks,
        "need": 1.0,
        "memory": 0.0,
        "weight": 1.0,
        "estimate_s": estimate_s,
        "submit_s": 0.0,
        "virtual_s": 0.0,
        "yield_": 0.0,
        "start_s": np.nan,
        "since_s": 0.0,
        "ready_s": 0.0,
        "pauses": 0,
        "migrations": 0,
        "requested_start_s": np.nan,
        "policy_state": 0,
        "changes": 0,
        "extensions": 0,
        "minimum": 0.0,
        "speed": 1.0,
    }
    values |= given
    return tuple(values[name] for name in JOB.names)


def farm_snapshot(shape, jobs, *, now_s=1000.0, memory=None, cause=Cause.WAKE, subject=-1, closed=()):
    """From jobs as dicts: tasks, estimate_s, nodes (or None), speed [(spread, co-located) a sub-cluster], required,
    swapping, and any column of JOB. One that runs began at 0 unless it says since_s."""
    cluster, machine, sizes = nodes_of(shape, memory)
    rows, slots, speed, required, swapping = [], [], [], [], []
    for k, given in enumerate(jobs):
        job = dict(given)
        nodes, tasks = job.pop("nodes", None), job.pop("tasks")
        there = job.pop("speed", None)
        speed.append(np.full((len(shape), 2), np.nan) if there is None else np.array(there, float))
        if speed[-1].ndim == 1:
            speed[-1] = np.repeat(speed[-1][:, None], 2, axis=1)
        required.append(job.pop("required", np.nan))
        swapping.append(job.pop("swapping", False))
        if nodes is not None:
            job.setdefault("start_s", job.get("since_s", 0.0))
            job.setdefault("yield_", 1.0)
            job["state"] = RUNNING
        rows.append(job_row(k, tasks, **job))
        slots += [-1] * tasks if nodes is None else list(nodes)
    view = HardwareView(
        partition=cluster,
        machine=machine,
        node_memory=sizes,
        speed=np.array(speed).reshape(len(jobs), len(shape), 2),
        required=np.array(required, float),
        swapping=np.array(swapping, bool),
    )
    capacity = np.column_stack([np.ones(len(cluster)), sizes])
    is_open = np.array([n not in closed for n in range(len(cluster))])
    first = np.cumsum([0, *(row[4] for row in rows)])
    arrays = [capacity, is_open, np.array(rows, JOB), first, np.array(slots, np.int64)]
    return frozen(Snapshot(now_s, cause, subject, *arrays, 0.0, view))


def random_rules(source: Source) -> Rules:
    return Rules(
        beta=source.pick((2.0, 5.0, 20.0)),
        threshold=source.pick((0.0, 0.0, 0.01, 0.1)),
        stretch_s=source.pick((0.0, 0.7, 5.0)),
        copy_s=source.pick((1.0, 10.0, 60.0)),
        every=source.pick((1.0, 4.0)),
        parallel=source.pick((False, True)),
        head=source.pick((False, True)),
        one=source.pick((False, False, True)),
    )


@dataclass(kw_only=True)
class Toy:
    """A farm with jobs that come, run, move and go; the policy is told of predictions that contradict each other."""

    source: Source
    policy: ArriveF
    shape: list[tuple[int, int]]
    memory: list[float]
    odd: bool
    crowd: int
    """So many jobs come at first."""
    now_s: float = 0.0
    jobs: list[dict] = field(default_factory=list)
    made: int = 0
    wake_at_s: float | None = None
    left: dict[int, set[int]] = field(default_factory=dict)
    moving: list[tuple[int, set[int], float]] = field(default_factory=list)
    """Of each move: job, its two sub-clusters, and when the migration is over."""
    counts: dict[PlanScenario, int] = field(default_factory=dict)
    closed: tuple[int, ...] = ()

    @classmethod
    def of(cls, source: Source, rules: Rules | None = None) -> "Toy":
        shape = [(source.integer(1, 2), source.integer(1, 4)) for _ in range(source.integer(2, 4))]
        memory = [source.pick((0.25, 0.5, 1.0, 1.0, 1.0)) for _ in shape]
        rules = rules or random_rules(source)
        return cls(
            source=source,
            policy=ArriveF(rules=rules),
            shape=shape,
            memory=memory,
            odd=source.pick((False, False, True)),
            crowd=source.pick((4, 8, 14)),
        )

    @property
    def locks(self) -> dict[int, float]:
        """Sub-clusters that are locked. A migration of which all jobs are gone is over."""
        present = {job["id"] for job in self.jobs}
        found: dict[int, float] = {}
        for job, clusters, over_s in self.moving:
            if job in present and over_s > self.now_s:
                found |= {c: max(over_s, found.get(c, over_s)) for c in clusters}
        return found

    def predict(self, job: dict) -> None:
        """New predictions for a running job; of one that has too little memory there are none."""
        source, there = self.source, self.shape
        nodes = job["nodes"]
        cluster = nodes_of(self.shape)[0]
        short = job["wants"] > self.memory[cluster[nodes[0]]]
        job["required"] = job["wants"] if source.integer(0, 9) else float("nan")
        job["swapping"] = short
        speeds = ODD_SPEEDS if self.odd else SPEEDS
        job["speed"] = None if short else [[source.pick(speeds), source.pick(speeds)] for _ in there]

    def submit(self) -> None:
        most = max(machines * cores for machines, cores in self.shape)
        self.jobs.append(
            {
                "id": 100 + self.made,
                "serial": self.made,
                "tasks": self.source.integer(1, most),
                "estimate_s": self.source.pick((100.0, 400.0, 1500.0, 3000.0, 20_000.0, 50_000.0)),
                "wants": self.source.pick((0.05, 0.1, 0.2, 0.4, 0.9)),
            }
        )
        self.made += 1

    def round(self) -> None:
        """Something happens, and the policy decides."""
        source, cause = self.source, Cause.WAKE
        running = [job for job in self.jobs if job.get("nodes")]
        event = source.integer(0, 9)
        if (self.made < self.crowd or event < 2 or not running) and len(self.jobs) < 16:
            self.submit()
            cause = Cause.SUBMISSION
        elif event == 2 and running:
            self.jobs.remove(source.pick(running))
            cause = Cause.COMPLETION
        elif self.wake_at_s is not None:
            self.now_s = self.wake_at_s
        if cause is not Cause.WAKE and self.wake_at_s is not None:
            self.now_s = min(self.now_s + source.pick((0.0, 1.0, 30.0)), self.wake_at_s)
        if event == 9 and self.odd:
            nodes = sum(machines * cores for machines, cores in self.shape)
            self.closed = tuple(n for n in range(nodes) if not source.integer(0, 5))
        for job in self.jobs:
            if job.get("nodes") and source.integer(0, 2) and self.now_s - job["since_s"] >= 1.0:
                self.predict(job)
        self.decide(cause)

    def decide(self, cause: Cause) -> None:
        subject = len(self.jobs) - 1 if cause is Cause.SUBMISSION else -1
        shown = [{k: v for k, v in job.items() if k != "wants"} for job in self.jobs]
        shot = farm_snapshot(
            self.shape, shown, now_s=self.now_s, memory=self.memory, cause=cause, subject=subject, closed=self.closed
        )
        target = self.policy.decide(shot)
        check(shot, target)
        self.judge(shot, target)
        self.perform(shot, target)

    def judge(self, shot: Snapshot, target) -> None:
        rules, after = self.policy.rules, target.task_nodes
        moved = [
            r
            for r in range(len(self.jobs))
            if naive.slots(shot, r) and naive.slots(shot, r) != naive.slots(shot, r, after)
        ]
        locked = set(self.locks)
        plans = self.policy.plans(shot) if moved else []
        assert sorted(r for p in plans for r in p.trade.rows) == moved
        for r in range(len(self.jobs)):
            before, nodes = naive.slots(shot, r), naive.slots(shot, r, after)
            assert len(nodes) in {0, int(shot.jobs["tasks"][r])}
            assert len(naive.clusters_of(shot, nodes)) <= 1, "a job across sub-clusters"
            assert bool(nodes) >= bool(before)
            if nodes and not before:
                assert not naive.clusters_of(shot, nodes) & locked, "dispatched to a locked sub-cluster"
            if nodes != before:
                assert shot.open[nodes].all()
        used = after[after >= 0].tolist()
        assert len(used) == len(set(used)), "two processes on a node"
        assert not moved or rules.parallel or not locked, "two plans at a time"
        assert len(plans) <= 1 or rules.parallel
        touched = [c for p in plans for c in (p.trade.source, p.trade.target)]
        assert len(touched) == len(set(touched))
        for p in plans:
            self.judge_plan(shot, target, p, locked)
        naive.replay(shot, after, [move for p in plans for move in p.moves])

    def judge_plan(self, shot, target, plan, locked) -> None:
        trade, after, rules = plan.trade, target.task_nodes, self.policy.rules
        assert not {trade.source, trade.target} & locked
        self.counts[trade.scenario] = self.counts.get(trade.scenario, 0) + 1
        for r in trade.rows:
            nodes = naive.slots(shot, r, after)
            (there,) = naive.clusters_of(shot, nodes)
            job = self.jobs[r]
            assert there not in self.left.get(job["id"], set()), "a job returned"
            wanted = float(shot.hardware.required[r])
            if not np.isnan(wanted):
                assert all(wanted <= shot.hardware.node_memory[n] + 1e-9 for n in nodes), "a job has too little memory"
            if trade.scenario is not PlanScenario.MEMORY or r != trade.lead:
                rested = not self.left.get(job["id"]) or self.now_s - job["since_s"] >= rules.horizon_s
                assert rested, "moved again too soon"
            if trade.scenario not in {PlanScenario.MEMORY, PlanScenario.HEAD} and not rules.one:
                assert naive.left_s(shot, r) > rules.horizon_s
            assert target.why[job["id"]].startswith("moved from")
        if trade.scenario is PlanScenario.MEMORY:
            assert shot.hardware.swapping[trade.lead]
            return
        gain = self.gain(shot, target, trade)
        assert np.isclose(gain, trade.gain_s, rtol=1e-9, atol=1e-6)
        assert gain > 0.0, "nothing is gained"
        processes = sum(len(naive.slots(shot, r)) for r in trade.rows)
        if trade.scenario is not PlanScenario.HEAD:
            assert gain > rules.threshold * rules.beta * rules.tau_s * processes - 1e-6

    def gain(self, shot, target, trade) -> float:
        rules = self.policy.rules
        if trade.scenario is not PlanScenario.HEAD:
            return naive.gain(shot, target.task_nodes, trade.rows, rules)
        lenient = Rules(tau_s=rules.tau_s, beta=rules.beta, stretch_s=rules.stretch_s, one=True)
        own = naive.gain(shot, target.task_nodes, trade.rows, lenient)
        # The head is the first that waits still; its reservation is of before the move.
        head = next(r for r in range(len(self.jobs)) if not naive.slots(shot, r, target.task_nodes))
        before = target.task_nodes.copy()
        for r in range(len(self.jobs)):
            if naive.slots(shot, r):
                before[shot.first[r] : shot.first[r + 1]] = naive.slots(shot, r)
        tasks = int(shot.jobs["tasks"][head])
        reserved_s = naive.reservation(shot, before, tasks, self.locks)
        over_s = self.now_s + rules.copy_s * len(naive.slots(shot, trade.lead))
        saved_s = min(reserved_s, self.now_s + rules.horizon_s) - over_s
        assert saved_s > 0.0, "the head starts no earlier"
        return own + tasks * saved_s

    def perform(self, shot, target) -> None:
        """Take the target as the present, and note locks from what moved."""
        rules, machine = self.policy.rules, shot.hardware.machine
        out, into, moves, gone = {}, {}, 0, []
        for r, job in enumerate(self.jobs):
            before, nodes = naive.slots(shot, r), naive.slots(shot, r, target.task_nodes)
            job["policy_state"] = int(target.policy_state[r])
            if not nodes or nodes == before:
                continue
            if before:
                (here,) = naive.clusters_of(shot, before)
                self.left.setdefault(job["id"], set()).add(here)
                gone.append((job["id"], {here, *naive.clusters_of(shot, nodes)}))
                moves += len(nodes)
                for a, b in zip(before, nodes, strict=True):
                    out[int(machine[a])] = out.get(int(machine[a]), 0) + 1
                    into[int(machine[b])] = into.get(int(machine[b]), 0) + 1
            else:
                job["start_s"] = self.now_s
            job["migrations"] = job.get("migrations", 0) + bool(before)
            job["nodes"], job["since_s"], job["state"] = nodes, self.now_s, RUNNING
        if gone:
            count = max([*out.values(), *into.values()]) if rules.parallel else moves
            self.moving += [(job, clusters, self.now_s + rules.copy_s * count) for job, clusters in gone]
        self.wake_at_s = target.wake_at_s


def drive(source: Source, rounds: int = 40, rules: Rules | None = None) -> Toy:
    toy = Toy.of(source, rules)
    for _ in range(rounds):
        toy.round()
    return toy


def seeded(seed: int) -> Seeded:
    return Seeded(np.random.default_rng(seed))


def broken(monkeypatch, module, *changes: str) -> None:
    """Let every function of the module be what it would be with each old place of its source made new."""
    source = inspect.getsource(module)
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert source.count(old) == 1, "the source has changed: choose another mutation"
        source = source.replace(old, new)
    namespace = {"__name__": module.__name__}
    exec(compile(source, module.__file__, "exec"), namespace)
    for name, value in vars(module).items():
        if getattr(value, "__module__", None) == module.__name__:
            for ours, theirs in _functions(value, namespace[name]):
                monkeypatch.setattr(ours, "__code__", theirs.__code__)


def _functions(ours, theirs):
    """Pairs of functions of a function or class and its changed twin."""
    if isinstance(ours, FunctionType):
        yield ours, theirs
    elif isinstance(ours, type):
        for name, value in vars(ours).items():
            twin = vars(theirs).get(name)
            if isinstance(value, property):
                yield value.fget, twin.fget
            elif isinstance(value, FunctionType) and value.__code__.co_filename == inspect.getfile(ours):
                yield value, twin
            elif isinstance(value, classmethod):
                yield value.__func__, twin.__func__
