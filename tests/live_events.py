"""Random histories of everything that can happen to a live core, and an executor that checks what it is told to do.

The executor keeps its own account of who is where, from the commands alone, and knows which pauses free memory and
between which nodes tasks can move. It fails where a command asks for what it cannot do.
"""

from dataclasses import dataclass, field, fields

import numpy as np

from dfrs.engine.codec import digest, encode
from dfrs.engine.commands import DETACH
from dfrs.engine.core import Core
from dfrs.engine.events import (
    Amend,
    Change,
    Complete,
    Hold,
    MoveRefused,
    PauseRefused,
    Permitted,
    Ready,
    Revise,
    Submit,
    Unhold,
    Wake,
    Withdraw,
)
from dfrs.engine.refusals import REFUSED_S
from dfrs.model.decisions import Prices
from dfrs.model.elastic import CommandKind
from dfrs.model.named_resources import NodeResources
from dfrs.model.nodes import Capacity, CapacityLeft, Condition, IslandsJoined, Join, NodeChange
from dfrs.model.run import Action

TOLERANCE = 2e-9


@dataclass(frozen=True, kw_only=True)
class Site:
    """What nodes are like."""

    islands: int = 1
    frees: tuple[bool, ...] = (True,)
    """Drawn from for each node."""
    alike: bool = False
    dedicated: bool = False
    """Some jobs have a requested start."""
    minimum: bool = True
    changes: bool = True
    """Users change jobs, nodes their size."""
    revisions: bool = True
    refusals: bool = False
    """Nodes cannot free the memory of some jobs."""
    moves: bool = False
    """Some jobs cannot leave their nodes; islands are joined."""
    prices: bool = False
    """What pauses, resumes and moves cost changes."""
    restarts: bool = False
    """Some jobs may be ended, to begin anew."""
    outside: bool = False
    """Programs that are no jobs use CPU of nodes."""
    choices: bool = False
    """Some jobs may use some nodes only, and these change."""
    resources: bool = False
    """Nodes have named resources, which jobs want, or nodes for themselves."""
    amendments: bool = False
    """Users change what jobs ask for, and take jobs back."""


@dataclass
class Job:
    tasks: int
    need: float
    memory: float
    nodes: tuple[int, ...] = ()
    """Where its memory is."""
    islands: tuple[int, ...] = ()
    """Where its tasks were when it was paused."""
    running: bool = False
    yield_: float = 0.0
    held: bool = False
    left: tuple[int, ...] = ()
    """Where it was when it was paused, as long as a pause can be refused there."""
    refused_s: float = -np.inf
    came_from: tuple[int, ...] = ()
    """Where it was before it moved, as long as the move can be refused."""
    fixed_s: float = -np.inf
    constraint: int = 0
    stood: tuple[int, ...] = ()
    """Where it was when it left its nodes for a moment."""
    claims: dict[str, int] = field(default_factory=dict)
    alone: bool = False


class Executor:
    """Performs commands on paper."""

    def __init__(self) -> None:
        self.jobs: dict[int, Job] = {}
        self.capacity: list[list[float]] = []
        self.left: list[float] = []
        """CPU of each node that others leave."""
        self.exclusive = False
        self.open: list[bool] = []
        self.island: list[int] = []
        self.frees: list[bool] = []
        self.permitted: dict[int, frozenset[int]] = {}
        self.counts: list[dict[str, int]] = []
        self.in_use: dict[tuple[int, str], int] = {}
        """What tasks had when a node came to have less: so much they may keep."""
        self.now_s = 0.0

    def told(self, event) -> None:
        if isinstance(event, Submit):
            self.jobs[event.job_id] = Job(
                event.tasks,
                event.need,
                event.memory,
                constraint=event.constraint,
                claims=dict(event.resources),
                alone=event.alone,
            )
        elif isinstance(event, Permitted):
            self.permitted[event.constraint] = frozenset(event.nodes.tolist())
        elif isinstance(event, Complete | Withdraw):
            del self.jobs[event.job_id]
        elif isinstance(event, Revise):
            self.jobs[event.job_id].need = event.need
        elif isinstance(event, Amend):
            job = self.jobs[event.job_id]
            job.need, job.memory = event.changed.get("need", job.need), event.changed.get("memory", job.memory)
        elif isinstance(event, Hold | Unhold):
            self.jobs[event.job_id].held = isinstance(event, Hold)
        elif isinstance(event, Join):
            self.capacity.append([event.cpu, event.memory])
            self.left.append(event.cpu)
            self.open.append(event.open)
            self.island.append(event.island)
            self.frees.append(event.pause_frees_memory)
            self.counts.append({})
        elif isinstance(event, NodeResources):
            self.counts[event.node] = dict(event.counts)
            self.in_use |= {(event.node, name): count for name, count in self.used(event.node).items()}
        elif isinstance(event, Capacity):
            self.capacity[event.node] = [event.cpu, event.memory]
            self.left[event.node] = event.cpu
        elif isinstance(event, CapacityLeft):
            self.left[event.node] = event.cpu
        elif isinstance(event, NodeChange):
            self.open[event.node] = event.condition is Condition.UP
            if event.condition is Condition.DOWN:
                for job in self.jobs.values():
                    job.left = () if event.node in job.left else job.left
                    job.came_from = () if event.node in job.came_from else job.came_from
        elif isinstance(event, PauseRefused):
            self.jobs[event.job_id].refused_s = self.now_s
        elif isinstance(event, IslandsJoined):
            self.island = [event.into if name == event.island else name for name in self.island]
            for job in self.jobs.values():
                job.islands = tuple(event.into if name == event.island else name for name in job.islands)
        elif isinstance(event, MoveRefused):
            job = self.jobs[event.job_id]
            job.fixed_s = self.now_s
            if job.running:
                # It is where it was, paused for a moment.
                job.running, job.yield_, job.nodes, job.left = False, 0.0, (), job.came_from
                job.islands = tuple(self.island[n] for n in job.left)

    def resized(self, core: Core) -> None:
        """Commands of users change numbers of tasks; those that run are told to the core's executor by the shell."""
        shot = core.snapshot()
        for r, row in enumerate(shot.jobs):
            job = self.jobs[int(row["id"])]
            if job.tasks != row["tasks"]:
                job.tasks = int(row["tasks"])
                job.islands = (job.islands + (-1,) * job.tasks)[: job.tasks] if job.islands else ()
                if job.running:
                    job.nodes = tuple(shot.task_nodes[shot.first[r] : shot.first[r + 1]].tolist())

    def keeps(self, job: Job) -> bool:
        memory_stays = any(not self.frees[n] for n in job.nodes) or self.now_s - job.refused_s < REFUSED_S
        return memory_stays or bool(job.claims)

    def used(self, node: int) -> dict[str, int]:
        used: dict[str, int] = {}
        for job in self.jobs.values():
            for name, count in job.claims.items():
                used[name] = used.get(name, 0) + count * job.nodes.count(node)
        return used

    def check_resources(self) -> None:
        """Called where all commands of a decision are performed: on the way alone is who has not yet left, too."""
        for node, counts in enumerate(self.counts):
            for name, count in self.used(node).items():
                kept = self.in_use.get((node, name), 0)
                assert count <= max(counts.get(name, 0), kept), f"{name} of node {node} is overcommitted"
                self.in_use[node, name] = min(kept, count)
            # A held job whose pause was refused is back there, whoever came since and cannot leave.
            jobs = [job for job in self.jobs.values() if not (job.held and job.refused_s > -np.inf)]
            there = [job for job in jobs if node in job.nodes]
            assert len(there) < 2 or not any(job.alone for job in there), f"a job is not alone on node {node}"

    def perform(self, commands) -> None:
        for c in commands:
            job = self.jobs[c.job_id]
            if c.action in (Action.PAUSE, DETACH, Action.MIGRATE) and job.claims and job.running and not job.held:
                assert c.nodes == job.nodes, f"job {c.job_id} would leave what it has"
            if c.action == Action.LOST:
                job.nodes, job.islands, job.running, job.yield_, job.left = (), (), False, 0.0, ()
            elif c.action == Action.PAUSE and job.fixed_s == self.now_s and not job.running and job.left:
                assert not job.nodes
            elif c.action in (Action.PAUSE, DETACH):
                assert job.running
                job.islands = tuple(self.island[n] for n in job.nodes)
                if self.keeps(job):
                    assert c.action == Action.PAUSE, f"job {c.job_id} would leave its memory behind for a moment"
                    assert job.held, f"job {c.job_id} paused where its memory stays"
                elif c.action == Action.PAUSE:
                    job.left, job.nodes = job.nodes, ()
                job.running, job.yield_ = False, 0.0
                if c.action == DETACH:
                    job.running, job.nodes, job.stood = True, (), job.left or job.nodes
            elif c.action == Action.SHARE:
                assert job.running
                job.yield_ = c.yield_
            else:
                self.place(job, c)
            self.check_memory()
        self.check_resources()
        assert all(len(job.nodes) == job.tasks for job in self.jobs.values() if job.running)

    def place(self, job: Job, c) -> None:
        assert len(c.nodes) == job.tasks
        assert not job.held
        assert c.action == (Action.MIGRATE if job.running else Action.RESUME if job.islands else Action.START)
        before = job.islands if not job.running or not job.nodes else tuple(self.island[n] for n in job.nodes)
        if before:
            for n, island in zip(c.nodes, before, strict=True):
                assert island in {-1, self.island[n]}, f"job {c.job_id} would leave its island"
        if not job.running and job.nodes:
            assert c.nodes == job.nodes, f"job {c.job_id} would leave its memory behind"
        if job.running and self.now_s - job.fixed_s < REFUSED_S:
            assert c.nodes == job.nodes or not job.nodes, f"job {c.job_id} cannot move"
        for s, n in enumerate(c.nodes):
            there = job.left if self.now_s in (job.refused_s, job.fixed_s) else job.nodes
            assert self.open[n] or (there and there[s] == n)
            if job.constraint and n not in self.permitted.get(job.constraint, ()):
                stay = (*there, *job.stood)
                assert c.nodes.count(n) <= stay.count(n), f"job {c.job_id} may not use node {n}"
        job.stood = ()
        moves = c.action == Action.MIGRATE and len(job.nodes) == len(c.nodes)
        job.came_from = job.nodes if moves else ()
        job.nodes, job.running, job.yield_, job.left = c.nodes, True, c.yield_, ()

    def cannot_leave(self, event: PauseRefused) -> bool:
        """Whether any job that is on the nodes of a refused pause can neither be paused nor give back its memory."""
        others = [other for other in self.jobs.values() if set(other.nodes) & set(event.nodes.tolist())]
        return any(self.keeps(other) for other in others)

    def refused(self, event: PauseRefused, core: Core, commands, *, blocked: bool) -> None:
        """The job goes on where it was, or keeps its memory there, unless those who had it then could not leave.

        By the decision that follows, whoever could not may have been ended, to begin anew; so may the job, or be moved.
        """
        job = self.jobs[event.job_id]
        resumed = (c.nodes for c in commands if c.job_id == event.job_id and c.action == Action.RESUME)
        went_on = next(resumed, job.nodes)
        if went_on:
            # One that others with named resources keep out goes on where the next decision has room for it.
            there = (other for other in self.jobs.values() if set(other.nodes) & set(event.nodes.tolist()))
            assert went_on == tuple(event.nodes.tolist()) or (blocked and any(other.claims for other in there))
            return
        if job.held and core._state.held.stays(event.job_id):
            job.nodes = tuple(event.nodes.tolist())
            self.check_memory()
            return
        assert blocked

    def check_memory(self) -> None:
        used = np.zeros(len(self.capacity))
        for job in self.jobs.values():
            np.add.at(used, list(job.nodes), job.memory)
        assert (used <= np.array(self.capacity).reshape(-1, 2)[:, 1] + TOLERANCE).all(), "memory is overcommitted"

    def check_cpu(self) -> None:
        used = np.zeros(len(self.capacity))
        for job in self.jobs.values():
            if job.running:
                np.add.at(used, list(job.nodes), job.need * job.yield_)
        most = np.array(self.capacity).reshape(-1, 2)[:, 0] if self.exclusive else np.array(self.left)
        assert (used <= most + TOLERANCE).all(), "CPU is overcommitted"

    def check(self, core: Core) -> None:
        """The core's account is this one."""
        self.check_cpu()
        shot = core.snapshot()
        assert (np.diff(shot.jobs["serial"]) > 0).all()
        seen = {int(row["id"]): r for r, row in enumerate(shot.jobs)}
        assert set(seen) == {name for name, job in self.jobs.items() if not job.held}
        assert core.present == len(self.jobs)
        assert shot.first[-1] == len(shot.task_nodes)
        for name, r in seen.items():
            job, nodes = self.jobs[name], tuple(shot.task_nodes[shot.first[r] : shot.first[r + 1]].tolist())
            assert nodes == (job.nodes if job.running else (-1,) * job.tasks)
            assert shot.jobs["yield_"][r] == job.yield_
            assert shot.jobs["need"][r] == job.need

    def check_minimums(self, core: Core, exclusive: bool) -> None:
        """Where a node can give all their minimum yields, its jobs have them."""
        shot = core.snapshot()
        if exclusive or not (shot.jobs["minimum"] > 0).any():
            return
        promised = np.zeros(len(shot.capacity))
        placed = [r for r in range(len(shot.jobs)) if shot.task_nodes[shot.first[r]] >= 0]
        nodes = {r: shot.task_nodes[shot.first[r] : shot.first[r + 1]] for r in placed}
        for r in placed:
            np.add.at(promised, nodes[r], shot.jobs["need"][r] * shot.jobs["minimum"][r])
        for r in placed:
            dedicated = not np.isnan(shot.jobs["requested_start_s"]).all()
            if not dedicated and (promised[nodes[r]] <= shot.capacity[nodes[r], 0] + TOLERANCE).all():
                assert shot.jobs["yield_"][r] >= shot.jobs["minimum"][r] - 1e-6


@dataclass
class History:
    """Draws events that are possible now."""

    rng: np.random.Generator
    site: Site
    executor: Executor = field(default_factory=Executor)
    count: int = 0

    def pick(self, options):
        return options[int(self.rng.integers(len(options)))]

    def join(self) -> Join:
        size = (1.0, 1.0) if self.site.alike else self.pick([(1.0, 1.0), (0.5, 1.0), (1.0, 0.5), (2.0, 1.5)])
        return Join(*size, int(self.rng.integers(self.site.islands)), self.pick(self.site.frees))

    def submit(self, now_s: float, last: bool = True) -> Submit:
        self.count += 1
        minimum = self.pick([0.0, 0.0, 0.3, 0.8, 1.0]) if self.site.minimum else 0.0
        start_s = now_s + self.pick([0.0, 50.0]) if self.site.dedicated and self.rng.random() < 0.2 else np.nan
        return Submit(
            10_000 - self.count,
            int(self.rng.integers(1, 4)),
            self.pick([0.1, 0.25, 0.5, 1.0]),
            self.pick([0.0, 0.1, 0.25, 0.5, 1.0]),
            self.pick([20.0, 300.0, 5000.0]),
            1.0,
            -1,
            start_s,
            minimum,
            self.site.restarts and self.rng.random() < 0.6,
            last,
            self.pick([0, 1, 2]) if self.site.choices else 0,
            **(self.wants() if self.site.resources else {}),
        )

    def wants(self) -> dict[str, object]:
        claims = [(), (), (("gpu", 1),), (("gpu", 2),), (("gpu", 1), ("licence", 2)), (("gpu", 3),)]
        return {"resources": self.pick(claims), "alone": bool(self.rng.random() < 0.2)}

    def node_resources(self) -> NodeResources:
        counts = [(), (("gpu", 1),), (("gpu", 2),), (("gpu", 4), ("licence", 3)), (("gpu", 2), ("licence", 2))]
        return NodeResources(int(self.rng.integers(len(self.executor.open))), self.pick(counts))

    def events(self, now_s: float) -> list[object]:
        """The next one, or several at one instant."""
        world, kind = self.executor, int(self.rng.integers(20))
        free = [name for name, job in world.jobs.items() if not job.held]
        held = [name for name, job in world.jobs.items() if job.held]
        if kind in (7, 11, 13) and world.open and self.site.outside:
            several = self.pick([1, 1, 2])
            return [self.less_left(last=k == several - 1 or self.rng.random() < 0.2) for k in range(several)]
        if kind in (4, 9) and world.open and self.site.resources:
            return [self.node_resources()]
        if kind < 6 or not world.jobs:
            several = self.pick([1, 1, 2, 4])
            return [self.submit(now_s, last=k == several - 1) for k in range(several)]
        if kind < 8:
            return [Complete(self.pick(list(world.jobs)), self.rng.random() < 0.8)]
        if kind < 10 and self.site.amendments and self.rng.random() < 0.7:
            return self.amendments()
        if kind < 10 and self.site.revisions:
            return [Revise(self.pick(list(world.jobs)), self.pick([0.05, 0.3, 0.7, 1.0]), self.rng.random() < 0.8)]
        if kind < 12 and free:
            return [Hold(self.pick(free))]
        if kind < 14 and held:
            return [Unhold(self.pick(held))]
        if kind == 14 and len(world.open) < 5:
            return [self.join()]
        if kind in (15, 16) and world.open:
            return self.node_events()
        if kind == 18 and self.site.refusals:
            paused = [name for name, job in world.jobs.items() if job.left and not job.running and not job.nodes]
            if paused:
                name = self.pick(paused)
                return [PauseRefused(name, np.array(world.jobs[name].left))]
        if kind == 19 and self.site.moves:
            return self.move_events()
        if kind == 17 and self.site.prices:
            return [Prices(*(self.pick([0.0, 0.5, 8.0, 90.0]) for _ in range(3)))]
        if kind == 17 and self.site.choices and world.open and self.rng.random() < 0.7:
            nodes = np.flatnonzero(self.rng.random(len(world.open)) < self.pick([0.2, 0.6]))
            return [Permitted(self.pick([1, 2]), nodes)]
        if kind == 17 and self.site.changes:
            name = self.pick(list(world.jobs))
            return [Change(name, self.pick(list(CommandKind)), float(self.rng.integers(1, 3)))]
        return [Wake()]

    def amendments(self) -> list[object]:
        """Some jobs are taken back, others are changed, all at one instant."""
        world = self.executor
        waiting = [name for name, job in world.jobs.items() if not (job.running or job.islands or job.nodes)]
        gone = [name for name in waiting if self.rng.random() < 0.3]
        changed = [name for name in world.jobs if name not in gone and self.rng.random() < 0.5]
        events: list[object] = [Withdraw(name, last=not changed and name == gone[-1]) for name in gone]
        for name in changed:
            told = {"minimum": self.pick([0.0, 0.3, 1.0]), "estimate_s": self.pick([20.0, 300.0])}
            if self.rng.random() < 0.5:
                told["weight"] = self.pick([0.1, 1.0, 4.0])
            if self.rng.random() < 0.5:
                told["need"] = self.pick([0.05, 0.3, 1.0])
            if name in waiting:
                told["memory"] = self.pick([0.0, 0.25, 1.0])
            events.append(Amend(name, **told, last=name == changed[-1]))
        return events or [Wake()]

    def less_left(self, *, last: bool) -> CapacityLeft:
        node = int(self.rng.integers(len(self.executor.open)))
        part = self.pick([0.05, 0.3, 0.55, 0.8, 1.0, 1.0])
        return CapacityLeft(node, part * self.executor.capacity[node][0], last)

    def move_events(self) -> list[object]:
        world = self.executor
        islands = sorted(set(world.island))
        if len(islands) > 1 and self.rng.random() < 0.05:
            return [IslandsJoined(islands[-1], islands[0])]
        moved = [name for name, job in world.jobs.items() if job.came_from and job.running and not job.held]
        frees = [name for name in moved if all(world.frees[n] for n in world.jobs[name].came_from)]
        if not frees:
            return [Wake()]
        name = self.pick(frees)
        return [MoveRefused(name, np.array(world.jobs[name].came_from))]

    def node_events(self) -> list[object]:
        closed = [n for n, is_open in enumerate(self.executor.open) if not is_open]
        if closed and self.rng.random() < 0.7:
            node = self.pick(closed)
            events: list[object] = [NodeChange(node, Condition.UP)]
            if self.site.changes and not self.site.alike and self.rng.random() < 0.5:
                events = [NodeChange(node, Condition.DOWN, False), Capacity(node, self.pick([0.5, 1.0]), 1.0), *events]
            return events
        return [NodeChange(int(self.rng.integers(len(self.executor.open))), self.pick(list(Condition)))]


def acknowledged(commands, now_s: float) -> Ready | None:
    placed = np.isin(commands.action, (Action.START, Action.RESUME, Action.MIGRATE))
    if not placed.any():
        return None
    return Ready(commands.serial[placed], now_s + np.where(commands.action[placed] == Action.START, 0.0, 2.0))


def columns(commands) -> list[list[float]]:
    return [getattr(commands, f.name).tolist() for f in fields(commands)]


def drive(core: Core, seed: int, site: Site, steps: int = 120):
    """Run a random history; (record of (time, document, digest), events with their commands)."""
    history = History(np.random.default_rng(seed), site)
    world, now_s, record, log = history.executor, 0.0, [], []
    exclusive = world.exclusive = core.traits.exclusive

    def handle(event) -> None:
        decisions, world.now_s = core.decisions, now_s
        commands = core.handle(event, now_s)
        decided = core.decisions > decisions
        record.append((now_s, encode(event), digest(core.target) if decided else ""))
        log.append((event, now_s, columns(commands)))
        world.told(event)
        world.resized(core)
        blocked = isinstance(event, PauseRefused) and world.cannot_leave(event)
        world.perform(commands)
        if isinstance(event, PauseRefused):
            world.refused(event, core, commands, blocked=blocked)
        world.check(core)
        if decided:
            world.check_minimums(core, exclusive)
        ready = acknowledged(commands, now_s)
        if ready is not None:
            handle(ready)

    handle(Submit(1, 1, 0.5, 0.1, 100.0))
    for _ in range(steps):
        for event in history.events(now_s):
            handle(event)
        gap_s = float(history.rng.choice([0.0, 0.1, 1 / 3, 5.0, 40.0, 700.0]))
        if core.wake_at_s is not None and core.wake_at_s <= now_s + gap_s:
            now_s = core.wake_at_s
            handle(Wake())
        else:
            now_s += gap_s
    return record, log
