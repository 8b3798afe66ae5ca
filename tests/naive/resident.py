"""Jobs by priority where a job that has started cannot go everywhere, on lists."""

from collections.abc import Mapping, Sequence
from typing import Any

Job = Mapping[str, Any]
At = list[list[int]]
RUNNING, PAUSED = 1, 2


class Nodes:
    """What is used of each node."""

    def __init__(self, capacity: Sequence[Sequence[float]], is_open: Sequence[bool], tolerance: float) -> None:
        self.capacity, self.open, self.tolerance = capacity, is_open, tolerance
        self.cpu, self.memory = [0.0] * len(capacity), [0.0] * len(capacity)

    def free(self, n: int) -> float:
        return self.capacity[n][1] + self.tolerance - self.memory[n]

    def add(self, job: Job, nodes: Sequence[int], sign: int = 1) -> None:
        for n in nodes:
            self.cpu[n] += sign * job["need"]
            self.memory[n] += sign * job["memory"]


LEVELS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)


def best_node(nodes: Nodes, job: Job, island: int, islands: Sequence[int], fixed: Sequence[bool], level: float) -> int:
    def load(n: int) -> float:
        return (nodes.cpu[n] + job["need"]) / nodes.capacity[n][0]

    usable = [
        n
        for n in range(len(islands))
        if nodes.open[n] and nodes.capacity[n][0] > 0 and nodes.free(n) >= job["memory"]
        if island in {-1, islands[n]}
    ]
    together = [n for n in usable if fixed[n] and load(n) <= level]
    if together:
        return min(together, key=nodes.free)
    return min(usable, key=load, default=-1)


def place_at(
    nodes: Nodes, job: Job, home: Sequence[int], islands: Sequence[int], fixed: Sequence[bool], level: float
) -> list[int]:
    """A node for each task, nothing where one finds none."""
    placed: list[int] = []
    for island in home:
        n = best_node(nodes, job, island, islands, fixed, level)
        if n < 0:
            nodes.add(job, placed, -1)
            return []
        nodes.add(job, [n])
        placed.append(n)
    return placed


def place(
    nodes: Nodes, job: Job, home: Sequence[int], islands: Sequence[int], fixed: Sequence[bool], spare: int
) -> list[int]:
    """At the lowest level that leaves so many nodes empty, or at the highest."""
    for level in LEVELS:
        placed = place_at(nodes, job, home, islands, fixed, level)
        empty = [n for n in range(len(fixed)) if fixed[n] and nodes.open[n] and nodes.memory[n] <= nodes.tolerance]
        if not placed or level == LEVELS[-1] or len(empty) >= spare:
            return placed
        nodes.add(job, placed, -1)
    raise AssertionError


def reserve(nodes: Nodes, job: Job, tasks: int) -> None:
    taken = [0] * len(nodes.open)
    for _ in range(tasks):
        usable = [
            n
            for n, (cpu, memory) in enumerate(nodes.capacity)
            if nodes.open[n] and cpu > 0 and job["memory"] * (taken[n] + 1) <= memory + nodes.tolerance
        ]
        if not usable:
            return
        n = max(usable, key=lambda n: nodes.capacity[n][1] - nodes.memory[n])
        taken[n] += 1
        nodes.memory[n] += job["memory"]


def settle(
    jobs: Sequence[Job],
    before: At,
    home: At,
    islands: Sequence[int],
    nodes: Nodes,
    fixed: Sequence[bool],
    spare: int,
    order: Sequence[int],
    movable: Sequence[bool],
    aged: int,
) -> At:
    after = [[-1] * len(at) for at in before]
    for r in order:
        job, where = jobs[r], [-1] * len(before[r])
        if job["state"] == RUNNING:
            nodes.add(job, before[r])
            if all(nodes.free(n) >= 0 for n in before[r]):
                after[r] = list(before[r])
                continue
            nodes.add(job, before[r], -1)
            if not movable[r]:
                continue
            where = [islands[n] for n in before[r]]
        elif job["state"] == PAUSED:
            where = home[r]
        placed = place(nodes, job, where, islands, fixed, spare)
        if placed:
            after[r] = placed
        elif r == aged:
            reserve(nodes, job, len(before[r]))
    return after
