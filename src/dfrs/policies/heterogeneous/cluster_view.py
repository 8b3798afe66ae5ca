"""Who is where: what decisions about partitions read, made once from the snapshot ([Atif2011] section 6.1).

Plain lists: these clusters have tens of nodes, and decisions look at them one by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf, isfinite

import numpy as np

from dfrs.model import tolerances
from dfrs.model.decisions import CPU, MEMORY, Snapshot
from dfrs.model.hardware import COLOCATED, SPREAD, HardwareView
from dfrs.policies.heterogeneous import rules as policy_rules
from dfrs.policies.heterogeneous.rules import MOST_PARTITIONS, Rules, TooManyPartitionsError

WAITS, ACROSS = -1, -2
"""Values of `Board.home`: no nodes; nodes in several partitions, as another policy may have left it."""


@dataclass(slots=True, kw_only=True)
class Board:
    """R rows, N nodes, C partitions. Starting a job is all that changes it."""

    snapshot: Snapshot
    view: HardwareView
    partitions: int
    partition: list[int]
    """(N,) partition of each node."""
    machine: list[int]
    """(N,)"""
    open: list[bool]
    """(N,)"""
    users: list[int]
    """(N,) tasks on each node."""
    free: list[list[int]]
    """(C,) open nodes without tasks, ascending."""
    nodes: list[list[int]]
    """(R,) nodes of each row's tasks, empty where it waits."""
    home: list[int]
    """(R,) partition of each row, or WAITS or ACROSS."""
    tasks: list[int]
    """(R,)"""
    policy_state: list[int]
    """(R,)"""
    fresh: set[int] = field(default_factory=set[int])
    """Rows that this decision starts."""

    @classmethod
    def of(cls, snapshot: Snapshot, policy: str) -> "Board":
        """The present of a snapshot. Raises TooManyPartitionsError, in which `policy` is named."""
        view = snapshot.hardware
        partitions = max(view.partitions, int(view.partition.max()) + 1)
        if partitions > MOST_PARTITIONS:
            wrong = f"{policy} knows at most {MOST_PARTITIONS} sub-clusters, the farm has {partitions}"
            raise TooManyPartitionsError(None, wrong)
        partition, first = view.partition.tolist(), snapshot.first.tolist()
        slots, is_open = snapshot.task_nodes.tolist(), snapshot.open.tolist()
        nodes = [slots[a:b] if b > a and slots[a] >= 0 else [] for a, b in pairwise(first)]
        users = np.bincount(snapshot.task_nodes[snapshot.task_nodes >= 0], minlength=len(partition)).tolist()
        free: list[list[int]] = [[] for _ in range(partitions)]
        for n, c in enumerate(partition):
            if is_open[n] and not users[n]:
                free[c].append(n)
        return cls(
            snapshot=snapshot,
            view=view,
            partitions=partitions,
            partition=partition,
            machine=view.machine.tolist(),
            open=is_open,
            users=users,
            free=free,
            nodes=nodes,
            home=[_home(partition, each) for each in nodes],
            tasks=snapshot.jobs["tasks"].tolist(),
            policy_state=snapshot.jobs["policy_state"].tolist(),
        )

    def start(self, row: int, nodes: list[int]) -> None:
        """Note that a waiting job starts on these nodes, anew: what it left before does not count."""
        self.nodes[row], self.home[row], self.policy_state[row] = nodes, self.partition[nodes[0]], 0
        self.fresh.add(row)
        for n in nodes:
            self.users[n] += 1
            self.free[self.partition[n]].remove(n)

    def holds(self, row: int, node: int) -> bool:
        """Whether a node is open and has the CPU and memory that a task of the job declares."""
        capacity, job = self.snapshot.capacity[node], self.snapshot.jobs[row]
        margin = tolerances.CAPACITY
        fits = job["need"] <= capacity[CPU] + margin and job["memory"] <= capacity[MEMORY] + margin
        return bool(self.open[node] and fits)

    def suits(self, row: int, node: int) -> bool:
        """Whether it moreover has the memory that a task is known to want; unknown is taken to be little."""
        wanted = float(self.view.required[row])
        enough = not isfinite(wanted) or wanted <= float(self.view.node_memory[node]) + tolerances.CAPACITY
        return enough and self.holds(row, node)

    def colocated(self, nodes: Sequence[int]) -> bool:
        """Whether these nodes are on one machine."""
        return len({self.machine[n] for n in nodes}) == 1

    def choose(self, tasks: int, among: Sequence[int]) -> list[int] | None:
        """Nodes for so many tasks of those `among`, which ascend: the first machine that holds all, else the first.

        None where there are too few ([Atif2011] section 9: co-located if possible).
        """
        if len(among) < tasks:
            return None
        on: dict[int, list[int]] = {}
        for n in among:
            here = on.setdefault(self.machine[n], [])
            here.append(n)
        whole = [here for here in on.values() if len(here) >= tasks]
        return list(whole[0][:tasks]) if whole else list(among[:tasks])

    def speed(self, row: int, partition: int, *, colocated: bool) -> float:
        """Predicted progress of a job there; NaN where it is not known, or is none."""
        if partition >= self.view.partitions:
            return float("nan")
        found = float(self.view.speed[row, partition, COLOCATED if colocated else SPREAD])
        return found if 0.0 < found < float("inf") else float("nan")

    def left_s(self, row: int) -> float:
        """T^rem of [Atif2011] eq. 11: estimate - elapsed wall clock, below 0 past its end; NaN without an estimate."""
        job = self.snapshot.jobs[row]
        return float(job["estimate_s"] - (self.snapshot.now_s - job["start_s"]))

    def footprint(self, row: int, node: int) -> float:
        """Memory that a task takes on a node: what it is known to want, at most all; all of one not profiled yet."""
        most = float(self.view.node_memory[node])
        wanted = float(self.view.required[row])
        if isfinite(wanted):
            return min(wanted, most)
        if np.isfinite(self.view.speed[row]).any():
            return min(float(self.snapshot.jobs["memory"][row]), most)
        return most

    def locks(self, rules: Rules) -> dict[int, float]:
        """Partitions between which jobs are being moved, each with the time when that is over ([Atif2011] 6.1)."""
        found: dict[int, float] = {}
        for row, home in enumerate(self.home):
            over_s = self.arrives_s(row, rules)
            if home >= 0 and over_s > self.snapshot.now_s:
                for c in (policy_rules.source(self.policy_state[row]), home):
                    found[c] = max(over_s, found.get(c, over_s))
        return found

    def arrives_s(self, row: int, rules: Rules) -> float:
        """When the last migration of a job is, or was, over; minus infinity where none is noted."""
        if policy_rules.source(self.policy_state[row]) < 0:
            return -inf
        return float(self.snapshot.jobs["since_s"][row]) + rules.lasts_s(self.policy_state[row])


def _home(partition: list[int], nodes: list[int]) -> int:
    if not nodes:
        return WAITS
    home = partition[nodes[0]]
    return home if all(partition[n] == home for n in nodes) else ACROSS
