"""Nodes that are shared by weights second by second while needs are found out ([Stillwell2010] section 7.3).

Nothing but usage reaches discovery; true needs decide what is used. A discovery and a policy are driven as the live
controller drives them: observe, step, set weights, tell the policy revised needs, migrate as it says. Chapter 7 has no
pauses: a task that the policy gives no node stays where it is.

A live migration takes `migration_s`, in which the task runs on where it is, with memory on both nodes, and then
`stop_s` in which it runs nowhere (pre-copy). Until one is done no other is begun.
"""

from dataclasses import dataclass
from math import ceil

import numpy as np

from dfrs.kernels import sharing
from dfrs.model.decisions import JOB, RUNNING, Cause, Policy, Snapshot
from dfrs.model.errors import InputError
from dfrs.model.instance import Floats, Ints
from dfrs.model.needs import UNKNOWN, USAGE, WEIGHTS, Discovery, Revision, Tasks, Usage, new_tasks


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scene:
    """Who is where at first, and what they will need."""

    capacity: Floats
    """(N,) CPU of each node, 1 on the reference node."""
    node: Ints
    """(T,) where each task starts; each is a job of its own."""
    need: Floats
    """(S, T) true needs in each second."""
    memory: Floats
    """(T,) of the reference node's."""

    def __post_init__(self) -> None:
        if self.need.ndim != 2 or self.need.shape[1] != len(self.node) or len(self.memory) != len(self.node):
            raise InputError(f"needs of {self.need.shape} for {len(self.node)} tasks: must be (seconds, tasks)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a host does to those it runs."""

    migration_s: int = 10
    stop_s: int = 1
    noise: float = 0.0
    """Standard deviation of what is measured as used, in CPU seconds a step."""
    seed: int = 0
    """Of the noise."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shared:
    """What came of it."""

    yields: Floats
    """(S, T) used / needed in each second; 1 where nothing is needed."""
    migrations: int
    told: int
    """How often the policy was told needs."""
    error: Floats
    """(T,) mean distance of the estimates in force from the true needs."""

    @property
    def average_minimum(self) -> float:
        """The least yield of each second, averaged: the service host's measure ([Stillwell2010] section 7.4)."""
        return float(self.yields.min(axis=1).mean())

    @property
    def minimum_average(self) -> float:
        """The least of the tasks' average yields: the computing centre's measure ([Stillwell2010] section 7.4)."""
        return float(self.yields.mean(axis=0).min())


COSTS = Costs()


def share(scene: Scene, discovery: Discovery, policy: Policy | None = None, costs: Costs = COSTS) -> Shared:
    """Run the scene to its end; without a policy nobody migrates."""
    return _Host(scene, discovery, policy, costs).run()


class _Host:
    """The state between two steps."""

    def __init__(self, scene: Scene, discovery: Discovery, policy: Policy | None, costs: Costs) -> None:
        self.scene, self.discovery, self.policy, self.costs = scene, discovery, policy, costs
        self.table: Tasks = np.concatenate([new_tasks(t, [n]) for t, n in enumerate(scene.node.tolist())])
        self.aim = scene.node.copy()
        self.moving_since = -1
        self.yields = np.empty(scene.need.shape)
        self.error = np.zeros(len(scene.node))
        self.migrations = self.told = 0
        self.rng = np.random.default_rng(costs.seed)

    def run(self) -> Shared:
        """What becomes of the scene, second by second."""
        seconds = len(self.scene.need)
        usage = np.zeros(len(self.table), USAGE)
        now = 0
        while now < seconds:
            if self._arrived(now):
                self._step(now, usage)
                self.table["node"] = self.aim
                self.moving_since = -1
                usage = np.zeros(len(self.table), USAGE)
            revision = self._step(now, usage)
            self._consider(now, revision)
            end = min(max(ceil(min(revision.next_step_s, seconds)), now + 1), self._next_turn(now), seconds)
            usage = self._run(now, end, revision.weights)
            now = end
        return Shared(
            yields=self.yields, migrations=self.migrations, told=self.told, error=self.error / max(seconds, 1)
        )

    def _step(self, now: int, usage: Usage) -> Revision:
        revision = self.discovery.step(float(now), self.table, usage, self.scene.capacity)
        self.table = revision.table
        self.told += bool(revision.needs)
        return revision

    def _run(self, begin: int, end: int, weights: Floats | None) -> Usage:
        scene, table = self.scene, self.table
        weight = np.full(len(table), WEIGHTS) if weights is None else weights
        node = np.ascontiguousarray(table["node"])
        stopped = (node != self.aim) & (self.moving_since >= 0) & (begin >= self.moving_since + self.costs.migration_s)
        used_s, granted = np.empty(len(table)), np.empty(len(table))
        sharing.run(begin, end, node, weight, stopped, scene.need, scene.capacity, self.yields, used_s)
        sharing.guaranteed(node, weight, scene.capacity, granted)
        self.error += np.abs(table["estimate"] - scene.need[begin:end]).sum(axis=0)
        if self.costs.noise:
            used_s = np.maximum(used_s + self.rng.normal(0.0, self.costs.noise, len(table)), 0.0)
        usage = np.zeros(len(table), USAGE)
        usage["seconds"] = np.where(stopped, 0.0, end - begin)
        usage["used_s"], usage["share"] = used_s, granted
        for name in UNKNOWN:
            usage[name] = np.nan
        return usage

    def _arrived(self, now: int) -> bool:
        return self.moving_since >= 0 and now >= self.moving_since + self.costs.migration_s + self.costs.stop_s

    def _next_turn(self, now: int) -> int:
        """When what is moving stops, or arrives."""
        if self.moving_since < 0:
            return len(self.scene.need)
        stop = self.moving_since + self.costs.migration_s
        return stop if now < stop else stop + self.costs.stop_s

    def _consider(self, now: int, revision: Revision) -> None:
        """Tell the policy, and begin what it wants."""
        if self.policy is None or not revision.needs or self.moving_since >= 0:
            return
        target = self.policy.decide(self._snapshot(float(now))).task_nodes
        aim = np.where(target >= 0, target, self.table["node"])
        moves = int((aim != self.table["node"]).sum())
        if moves:
            self.aim, self.moving_since = aim, now
            self.migrations += moves

    def _snapshot(self, now_s: float) -> Snapshot:
        tasks = len(self.table)
        jobs = np.zeros(tasks, JOB)
        jobs["id"] = jobs["serial"] = np.arange(tasks)
        jobs["state"], jobs["tasks"], jobs["weight"] = RUNNING, 1, 1.0
        jobs["need"], jobs["memory"] = self.table["told"], self.scene.memory
        jobs["estimate_s"] = jobs["requested_start_s"] = np.nan
        jobs["virtual_s"] = now_s
        capacity = np.column_stack([self.scene.capacity, np.ones(len(self.scene.capacity))])
        return Snapshot(
            now_s=now_s,
            cause=Cause.NEEDS,
            subject=-1,
            capacity=capacity,
            open=np.ones(len(capacity), np.bool_),
            jobs=jobs,
            first=np.arange(tasks + 1),
            task_nodes=np.ascontiguousarray(self.table["node"]),
            moved=0.0,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Oracle:
    """Knows the true needs of every second: what discovery could reach at best where yields are made equal."""

    need: Floats
    """(S, T)."""
    tell_s: float = 60.0
    """How often the policy is told."""

    @property
    def name(self) -> str:
        """As in results."""
        return "ORACLE"

    def step(self, now_s: float, table: Tasks, usage: Usage, capacity: Floats, /) -> Revision:
        """Weights in proportion to the needs."""
        del usage
        new = table.copy()
        new["estimate"] = self.need[int(now_s)]
        total = np.zeros(len(capacity))
        np.add.at(total, new["node"], new["estimate"])
        weights = np.where(total[new["node"]] > 0, WEIGHTS * new["estimate"] / np.maximum(total[new["node"]], 1e-12), 1)
        needs: dict[int, float] = {}
        if now_s % self.tell_s == 0 and (new["told"] != new["estimate"]).any():
            new["told"] = new["estimate"]
            needs = dict(zip(new["job"].tolist(), new["told"].tolist(), strict=True))
        return Revision(table=new, weights=weights, needs=needs, repack=bool(needs), next_step_s=now_s + 1.0)


def traces(rng: np.random.Generator, tasks: int, seconds: int, mean_s: float, hogs: int = 0) -> Floats:
    """(S, T) needs, uniform in [0, 1), each for a time from an exponential distribution; the last `hogs` need 1.

    The first value holds from 0 on ([Stillwell2010] section 7.3); a second has the need of its beginning.
    """
    need = np.ones((seconds, tasks + hogs))
    for t in range(tasks):
        at = 0.0
        while at < seconds:
            until = at + rng.exponential(mean_s)
            need[ceil(at) : ceil(until), t] = rng.random()
            at = until
    return need
