"""Decisions on placements by [Stillwell2010] 5.2.1 to 5.2.4, task by task; loads are added up anew each time.

A placement is a dictionary from rows to the nodes of their tasks.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from tests.naive.packing import Node, largest, within
from tests.naive.sorting import in_turn
from tests.policy_cases import PolicyCase

Where = dict[int, list[int]]

PRIORITIES: tuple[Callable[[float, float], float], ...] = (
    lambda _flow, virtual: 1 / virtual,
    lambda flow, virtual: flow / virtual,
    lambda flow, virtual: flow / virtual / virtual,
)


def priority(job: Any, now_s: float, kind: int) -> float:
    virtual = float(job["virtual_s"])
    if virtual == 0:
        return inf
    return float(job["weight"]) * PRIORITIES[kind](now_s - float(job["submit_s"]), virtual)


def by_priority(jobs: Any, now_s: float, kind: int) -> list[int]:
    return sorted(range(len(jobs)), key=lambda r: -priority(jobs[r], now_s, kind))


def use(case: PolicyCase, where: Where, column: str) -> list[float]:
    return [
        in_turn(float(case.jobs[column][r]) for r in sorted(where) for m in where[r] if m == n)
        for n in range(len(case.capacity))
    ]


def greedy(case: PolicyCase, where: Where, r: int, tolerance: float) -> Where | None:
    """`where` with row `r` placed task by task, or None."""
    need, memory = float(case.jobs["need"][r]), float(case.jobs["memory"][r])
    mine: list[int] = []
    for _ in range(int(case.jobs["tasks"][r])):
        load, full = (use(case, {**where, r: mine}, column) for column in ("need", "memory"))
        fitting = [
            n
            for n, (cpu, size) in enumerate(case.capacity.tolist())
            if case.open[n] and cpu > 0 and full[n] + memory <= size + tolerance
        ]
        if not fitting:
            return None
        mine = [*mine, min(fitting, key=lambda n: ((load[n] + need) / float(case.capacity[n, 0]), n))]
    return {**where, r: mine}


def without(where: Where, rows: Iterable[int]) -> Where:
    gone = set(rows)
    return {r: nodes for r, nodes in where.items() if r not in gone}


def admit(case: PolicyCase, mode: str, kind: int, tolerance: float) -> Where:
    where, subject = case.where(), case.subject
    placed = greedy(case, where, subject, tolerance)
    if placed is not None or mode == "Greedy":
        return where if placed is None else placed
    marked: list[int] = []
    for r in reversed(by_priority(case.jobs, case.now_s, kind)):
        if placed is None and r in where:
            marked.append(r)
            placed = greedy(case, without(where, marked), subject, tolerance)
    if placed is None:
        return where
    for r in list(reversed(marked)):
        others = [m for m in marked if m != r]
        if greedy(case, without(where, others), subject, tolerance) is not None:
            marked = others
    placed = greedy(case, without(where, marked), subject, tolerance)
    assert placed is not None
    if mode == "GreedyPM":
        for r in reversed(marked):
            placed = greedy(case, placed, r, tolerance) or placed
    return placed


def readmit(case: PolicyCase, kind: int, tolerance: float) -> Where:
    where = case.where()
    for r in by_priority(case.jobs, case.now_s, kind):
        if r not in where:
            where = greedy(case, where, r, tolerance) or where
    return where


@dataclass(frozen=True)
class Objective:
    """Yields over a common level; see `dfrs.kernels.repack.Search`."""

    base: Sequence[float]
    slope: Sequence[float]
    strict: bool
    least: float
    width: float
    relative: float
    floor: float

    def yields(self, level: float, rows: Iterable[int]) -> dict[int, float] | None:
        found: dict[int, float] = {}
        for r in rows:
            value = self.base[r] + self.slope[r] * level
            if self.strict and value > 1 + 1e-12:
                return None
            found[r] = max(min(value, 1.0), self.floor)
        return found


def pack(case: PolicyCase, rows: Iterable[int], pinned: set[int], objective: Objective, level: float, tolerance: float):
    """Choose Pack with a window of 1 around what the pinned rows take; the placement, or None."""
    yields = objective.yields(level, rows)
    if yields is None:
        return None
    jobs, here = case.jobs, case.where()
    size = {r: (float(jobs["memory"][r]), float(jobs["need"][r]) * yields[r]) for r in yields}
    stay = {r: here[r] for r in yields if r in pinned}
    nodes = [Node((float(memory), float(cpu)), tolerance) for cpu, memory in case.capacity.tolist()]
    for n, node in enumerate(nodes):
        amount = [in_turn(size[r][d] for r in sorted(stay) for m in stay[r] if m == n) for d in (0, 1)]
        if amount[1] > node.capacity[1] + tolerance:
            return None
        node.inside.append(amount)
    tasks = [r for r in sorted(size) if r not in pinned for _ in range(int(jobs["tasks"][r]))]
    tasks.sort(key=lambda r: -max(size[r]))
    lists = [[r for r in tasks if largest(size[r], 1) == [d]] for d in (0, 1)]
    where: Where = {}
    for n, node in enumerate(nodes):
        while case.open[n]:
            ranked = sorted((0, 1), key=lambda d: node.loads()[d])
            fitting = ((d, r) for d in ranked for r in lists[d] if within(size[r], node.room()))
            d, r = next(fitting, (0, -1))
            if r < 0:
                break
            lists[d].remove(r)
            node.inside.append(size[r])
            where.setdefault(r, []).append(n)
    return None if lists[0] or lists[1] else {**stay, **where}


def upper_end(case: PolicyCase, rows: Iterable[int], pinned: set[int], objective: Objective) -> float:
    """The level at which the sum of CPU is used up, or all yields (if strict, the first) are 1, by halving."""
    rows = sorted(rows)
    counted = [case.open[n] or bool(pinned & set(rows)) for n in range(len(case.capacity))]
    total = in_turn(float(c) for c, counts in zip(case.capacity[:, 0], counted, strict=True) if counts)
    ends = [(1 - objective.base[r]) / objective.slope[r] for r in rows]
    high = min(ends) if objective.strict else max(ends)

    def wanted(level: float) -> float:
        return in_turn(
            float(case.jobs["need"][r] * case.jobs["tasks"][r])
            * min(1.0, objective.base[r] + objective.slope[r] * level)
            for r in rows
        )

    if wanted(high) <= total:
        return high
    low = -1e9
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if wanted(middle) <= total else (low, middle)
    return low


def mcb(
    case: PolicyCase,
    kind: int,
    pinned: set[int],
    objective: Objective,
    tolerance: float,
    end: Callable[..., float] = upper_end,
) -> tuple[float, Where]:
    """(level, placement): rows leave from the last by priority until there is a packing at the least level."""
    rows = set(range(case.rows))
    best = pack(case, rows, pinned, objective, objective.least, tolerance)
    for r in reversed(by_priority(case.jobs, case.now_s, kind)):
        if best is None:
            rows.discard(r)
            best = pack(case, rows, pinned, objective, objective.least, tolerance)
    if not rows or best is None:
        return objective.least, {}
    low, high = objective.least, end(case, rows, pinned, objective)
    width = max(objective.width, objective.relative * high)
    target = high
    while high > low:
        found = pack(case, rows, pinned, objective, target, tolerance)
        low, high, best = (low, target, best) if found is None else (target, high, found)
        if high - low <= width:
            break
        target = 0.5 * (low + high)
    return low, best
