"""Moves of single tasks that raise the least yields, on lists: what nodes hold is added up anew for every question."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

RUNNING, BALANCED = 1, 27
LESS = 1 - 1e-6
NO_CPU = 1e-12

Moves = tuple[tuple[int, int], ...]
"""(slot, the node it goes to): one, or two that change places."""


class Rule(NamedTuple):
    share: float
    near: float
    price_s: float
    times: float
    rest_s: float
    now_s: float
    until_s: float
    budget: float
    swaps: bool


class Step(NamedTuple):
    """Moves that were made, as those that take them back, and the pressure that they were made for."""

    back: Moves
    pressure: float


@dataclass
class Cluster:
    jobs: Sequence[Mapping[str, Any]]
    owner: Sequence[int]
    """The row of each slot."""
    capacity: Sequence[Sequence[float]]
    is_open: Sequence[bool]
    island: Sequence[int]
    fixed: Sequence[bool]
    slope: Sequence[float]
    rule: Rule
    tolerance: float
    moved: float
    """Memory that moves already."""
    tasks: list[list[int]]
    """The slots on each node, the one that came last first."""
    steps: list[Step] = field(default_factory=list)
    levels: dict[int, float] = field(default_factory=dict)
    """Of rows that rise no more, in the order in which they stopped."""

    def node_of(self, slot: int) -> int:
        return next(n for n, slots in enumerate(self.tasks) if slot in slots)

    def size(self, row: int) -> float:
        return self.slope[row] * self.jobs[row]["need"]

    def least_pressure(self) -> float:
        usable = [n for n in range(len(self.tasks)) if self.is_open[n] or self.tasks[n]]
        wanted = [self.size(self.owner[s]) for slots in self.tasks for s in slots]
        most = max((self.capacity[n][0] for n in usable), default=0)
        if most <= 0:
            return inf
        total = sum(self.capacity[n][0] for n in usable)
        return max(1, sum(wanted) / total, max(wanted, default=0) / most)

    def pressure(self, n: int, slots: Sequence[int]) -> float:
        """Of node n if it had these tasks."""
        rising = [self.owner[s] for s in slots if self.owner[s] not in self.levels]
        left = self.capacity[n][0]
        for row, level in self.levels.items():
            for s in self.tasks[n]:
                if self.owner[s] == row:
                    left -= self.size(row) * level
        if not rising:
            return 0
        return sum(map(self.size, rising)) / left if left > NO_CPU else inf

    def now(self, n: int) -> float:
        return self.pressure(n, self.tasks[n])

    def after(self, n: int, moves: Moves) -> list[int]:
        gone = {s for s, _ in moves}
        return [s for s, to in moves if to == n] + [s for s in self.tasks[n] if s not in gone]

    def fits(self, n: int, moves: Moves) -> bool:
        after = [self.jobs[self.owner[s]] for s in self.after(n, moves)]
        before = [self.jobs[self.owner[s]] for s in self.tasks[n]]
        minima = [sum(job["minimum"] * job["need"] for job in jobs) for jobs in (before, after)]
        cpu, memory = self.capacity[n]
        in_memory = sum(job["memory"] for job in after) <= memory + self.tolerance
        return in_memory and minima[1] <= max(minima[0], cpu + self.tolerance)

    def memory(self, moves: Moves) -> float:
        return sum(self.jobs[self.owner[s]]["memory"] for s, _ in moves)

    def spent(self) -> float:
        return self.moved + sum(self.memory(step.back) for step in self.steps)

    def have_moved(self) -> set[int]:
        return {self.owner[s] for step in self.steps for s, _ in step.back}

    def may_move(self, slot: int) -> bool:
        row = self.owner[slot]
        return self.jobs[row]["state"] == RUNNING and not self.fixed[row] and row not in self.levels

    def single(self, a: int) -> Iterator[Moves]:
        for s in self.tasks[a]:
            for b in self.targets(a):
                yield ((s, b),)

    def exchanges(self, a: int) -> Iterator[Moves]:
        for s in self.tasks[a] if self.is_open[a] else ():
            for b in self.targets(a):
                for t in self.tasks[b]:
                    if self.size(self.owner[t]) < self.size(self.owner[s]):
                        yield ((s, b), (t, a))

    def targets(self, a: int) -> list[int]:
        return [b for b in range(len(self.tasks)) if b != a and self.is_open[b] and self.island[b] == self.island[a]]

    def best(self, a: int, possible: Iterator[Moves]) -> tuple[Moves | None, float]:
        """What lowers the greater pressure of the two nodes most, of equals what has least memory; the first of those.

        Also the seconds until something better pays.
        """
        worst = self.now(a)
        found = []
        for moves in possible:
            if not all(self.may_move(s) for s, _ in moves) or self.spent() + self.memory(moves) > self.rule.budget:
                continue
            if not all(self.fits(n, moves) for _, n in moves):
                continue
            then = max(1, *(self.pressure(n, self.after(n, moves)) for n in (a, moves[0][1])))
            if then <= worst * LESS and then < inf:
                found.append(((then, self.memory(moves)), self.wait_s(a, moves, worst, then), moves))
        paying = [(value, moves) for value, wait_s, moves in found if wait_s == 0]
        least = min((value for value, _ in paying), default=(inf, inf))
        again_s = min((wait_s for value, wait_s, _ in found if wait_s > 0 and value < least), default=inf)
        return next((moves for value, moves in paying if value == least), None), again_s

    def wait_s(self, a: int, moves: Moves, before: float, after: float) -> float:
        """Until all that move have rested, and for each of them what is gained is worth the price of all."""
        rows = [self.owner[s] for s, _ in moves]
        new = [r for r in rows if r not in self.have_moved()]
        price_s = len(new) * self.rule.price_s
        left = {self.owner[s] for s in self.tasks[a]} - {rows[0]} or {rows[0]}
        longest_s = max(self.jobs[r]["virtual_s"] for r in left)
        return max([self.rest_s(r) for r in new] + [self.pays_s(r, longest_s, before, after, price_s) for r in rows])

    def rest_s(self, row: int) -> float:
        job = self.jobs[row]
        if job["since_s"] <= job["start_s"]:
            return 0
        return max(0, job["since_s"] + self.rule.rest_s - self.rule.now_s)

    def pays_s(self, row: int, longest_s: float, before: float, after: float, price_s: float) -> float:
        job, rule = self.jobs[row], self.rule
        if price_s == 0:
            return 0
        low, high = min(1, 1 / before), min(1, 1 / after)
        # Over so many seconds, (high - low) * seconds = times * price * high.
        seconds = rule.times * price_s * high / (high - low)
        lacking = seconds * high - min(job["virtual_s"], longest_s)
        wait_s = 0.0
        if lacking > 0:
            wait_s = lacking / low if low > 0 else inf
            wait_s = (
                max(wait_s, rule.now_s - job["since_s"])
                if job["ready_s"] == inf
                else wait_s + max(0, job["ready_s"] - rule.now_s)
            )
        return wait_s if rule.now_s + wait_s + seconds <= rule.until_s else inf

    def move(self, moves: Moves) -> Moves:
        """Returns the moves back."""
        back = tuple((s, self.node_of(s)) for s, _ in moves)
        for (s, to), (_, source) in zip(moves, back, strict=True):
            self.tasks[source].remove(s)
            self.tasks[to].insert(0, s)
        return back

    def relieve(self) -> float:
        """Until nothing more can be done; the seconds until a move that does not pay yet will."""
        least, again_s, stuck, settled = self.least_pressure(), inf, set[int](), 0
        while len(stuck) < len(self.tasks):
            a = max((n for n in range(len(self.tasks)) if n not in stuck), key=self.now)
            worst = self.now(a)
            if worst <= (1 + (self.rule.near if self.steps else self.rule.share)) * least:
                break
            moves, wait_s = self.best(a, self.single(a))
            again_s = min(again_s, wait_s)
            if moves is None and self.rule.swaps:
                moves, wait_s = self.best(a, self.exchanges(a))
                again_s = min(again_s, wait_s)
            if moves is not None:
                self.steps.append(Step(self.move(moves), worst))
                continue
            while len(self.steps) > settled and self.steps[-1].pressure <= worst / LESS:
                self.move(self.steps.pop().back)
            settled = len(self.steps)
            stuck.add(a)
            for s in self.tasks[a]:
                self.levels.setdefault(self.owner[s], 1 / worst)
        return again_s


def rebalance(
    jobs: Sequence[Mapping[str, Any]],
    before: Sequence[Sequence[int]],
    slots: Sequence[Sequence[int]],
    capacity: Sequence[Sequence[float]],
    is_open: Sequence[bool],
    island: Sequence[int],
    fixed: Sequence[bool],
    slope: Sequence[float],
    rule: Rule,
    tolerance: float,
    reasons: Sequence[int],
) -> tuple[list[int], list[int], float]:
    """(node of each slot, reason of each row, seconds); `before` and `slots` have the nodes of each row's tasks."""
    owner = [r for r, nodes in enumerate(slots) for _ in nodes]
    was = [n for nodes in before for n in nodes]
    at = [n for nodes in slots for n in nodes]
    moved = sum(jobs[r]["memory"] for r, n, m in zip(owner, was, at, strict=True) if n >= 0 <= m != n)
    tasks = [[s for s in reversed(range(len(at))) if at[s] == n] for n in range(len(capacity))]
    cluster = Cluster(jobs, owner, capacity, is_open, island, fixed, slope, rule, tolerance, moved, tasks)
    again_s = cluster.relieve()
    for n, there in enumerate(cluster.tasks):
        for s in there:
            at[s] = n
    new = cluster.have_moved()
    return at, [BALANCED if r in new else reason for r, reason in enumerate(reasons)], again_s
