"""Packing and placing on a farm by the text: a state is copied before anything is tried, and nothing is undone.

A placement is a dictionary from rows to the nodes of their tasks; loads are lists of [CPU, memory] by node.
"""

from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import inf, isnan
from typing import Any

import numpy as np

from tests.policy_cases import PolicyCase

Where = dict[int, list[int]]
Loads = list[list[float]]


@dataclass(frozen=True, kw_only=True)
class FarmCase:
    """A present state on a farm."""

    base: PolicyCase
    cluster: Any
    machine: Any
    known: Any
    memory: Any

    @property
    def site(self) -> Any:
        for array in (self.cluster, self.machine):
            array.setflags(write=False)
        return self.cluster, self.machine, self.base.capacity, self.base.open

    @property
    def clusters(self) -> int:
        return self.known.shape[1]

    def tasks(self, r: int) -> int:
        return int(self.base.jobs["tasks"][r])

    def need(self, r: int) -> float:
        return float(self.base.jobs["need"][r])

    def nodes_of(self, c: int) -> list[int]:
        return [n for n in range(len(self.cluster)) if self.cluster[n] == c and self.base.open[n]]


def relative(known: Any) -> list[list[list[float]]]:
    """Spread is at most as fast as together, what is not known as fast as the best."""
    table = []
    for job in known.tolist():
        pairs = [[a if isnan(a) or isnan(b) else min(a, b), b] for a, b in job]
        best = max((v for pair in pairs for v in pair if not isnan(v)), default=0.0)
        table.append([[1.0 if isnan(v) or best <= 0 else max(v / best, 1e-6) for v in pair] for pair in pairs])
    return table


def speed_at(case: FarmCase, r: int, nodes: list[int]) -> float:
    speed = relative(case.known)[r]
    if len({int(case.machine[n]) for n in nodes}) == 1:
        return speed[int(case.cluster[nodes[0]])][1]
    return min(speed[int(case.cluster[n])][0] for n in nodes)


def best_reachable(case: FarmCase, r: int) -> float:
    """Best speed where open nodes, of one machine or of many, have memory for all tasks; 0 if there is none."""
    speed, tasks, found = relative(case.known)[r], case.tasks(r), [0.0]
    for c in range(case.clusters):
        rooms: dict[int, int] = {}
        for n in case.nodes_of(c):
            if case.base.capacity[n][0] > 0:
                here = sum((k + 1) * case.memory[r] <= case.base.capacity[n][1] + 5e-10 for k in range(tasks))
                rooms[int(case.machine[n])] = rooms.get(int(case.machine[n]), 0) + here
        if max(rooms.values(), default=0) >= tasks:
            found.append(speed[c][1])
        elif sum(rooms.values()) >= tasks:
            found.append(speed[c][0])
    return max(found)


def _share(load: float, capacity: float) -> float:
    return load / capacity if capacity > 0 else 1.0


def lateness(case: FarmCase, rule: str, n: int, cpu: float, memory: float, loads: Loads) -> float:
    a, b = (_share(loads[n][d], float(case.base.capacity[n][d])) for d in (0, 1))
    return {"BEST_FIT": -(a + b), "LEAST_LOADED": a, "COMPLEMENT": a - b if cpu > memory else b - a}[rule]


def spread_out(
    case: FarmCase, nodes: list[int], tasks: int, cpu: float, memory: float, rule: str, loads: Loads, slack: float
) -> tuple[list[int], Loads] | None:
    loads, chosen = [list(load) for load in loads], []
    for _ in range(tasks):
        fitting = [
            n
            for n in nodes
            if loads[n][0] + cpu <= case.base.capacity[n][0] + slack
            and loads[n][1] + memory <= case.base.capacity[n][1] + slack
        ]
        if not fitting:
            return None
        n = min(fitting, key=lambda n: (lateness(case, rule, n, cpu, memory, loads), n))
        loads[n][0] += cpu
        loads[n][1] += memory
        chosen.append(n)
    return chosen, loads


def put(
    case: FarmCase, r: int, demand: float, rule: tuple[str, str, str], loads: Loads, slack: float
) -> tuple[list[int], Loads] | None:
    speed, tasks, need = relative(case.known)[r], case.tasks(r), case.need(r)
    options = []
    for c in range(case.clusters):
        nodes = case.nodes_of(c)
        total, busy = 0.0, 0.0
        for n in nodes:
            total += float(case.base.capacity[n][0])
            busy += loads[n][0]
        if total <= 0:
            continue
        for together in (1, 0):
            rate = speed[c][together]
            if rate < demand - 1e-12 or (together and not rate > speed[c][0]):
                continue
            fullness = (busy + tasks * need * demand / rate) / total
            options.append((-rate if rule[1] == "FASTEST" else fullness, c, -together))
    for _, c, together in sorted(options):
        nodes = case.nodes_of(c)
        cpu = need * min(1.0, demand / speed[c][-together])
        groups = [nodes]
        if together:
            every = [n for n in range(len(case.cluster)) if case.cluster[n] == c]
            sign = 1 if rule[2] == "LEAST_LOADED" else -1
            busy = {}
            for n in every:
                m = int(case.machine[n])
                busy[m] = busy.get(m, 0.0) + sign * loads[n][0]
            ranked = sorted(busy, key=lambda m: (busy[m], m))
            groups = [[n for n in nodes if case.machine[n] == m] for m in ranked]
        for group in groups:
            found = spread_out(case, group, tasks, cpu, float(case.memory[r]), rule[2], loads, slack)
            if found is not None:
                return found
    return None


def hold(
    case: FarmCase, r: int, demand: float, loads: Loads, slack: float, *, must: bool
) -> tuple[list[int], Loads] | None:
    nodes = case.base.before[case.base.slots(r)].tolist()
    rate = speed_at(case, r, nodes)
    if not must and rate < demand - 1e-12:
        return None
    cpu, loads = case.need(r) * min(1.0, demand / rate), [list(load) for load in loads]
    fits = True
    for n in nodes:
        loads[n][0] += cpu
        loads[n][1] += float(case.memory[r])
        fits = fits and loads[n][0] <= case.base.capacity[n][0] + slack
        fits = fits and (must or loads[n][1] <= case.base.capacity[n][1] + slack)
    return (nodes, loads) if fits else None


def key(case: FarmCase, r: int, level: float, order: str) -> float:
    best = best_reachable(case, r)
    demand = min(level, best)
    size = max(case.need(r) * demand / best, float(case.memory[r]))
    if order != "REGRET":
        return size * (case.tasks(r) if order == "WHOLE" else 1)
    speed = relative(case.known)[r]
    costs = sorted(
        case.tasks(r) * case.need(r) * demand / together for _, together in speed if together >= demand - 1e-12
    )
    return (min(costs[1] - costs[0], 1e3) if len(costs) > 1 else 1e3) + 0.001 * size


def pack(
    case: FarmCase,
    rows: set[int],
    pinned: set[int],
    level: float,
    rule: tuple[str, str, str],
    slack: float,
    *,
    stay: bool,
) -> Where | None:
    loads: Loads = [[0.0, 0.0] for _ in case.cluster]
    where: Where = {}
    for r in sorted(rows & pinned):
        held = hold(case, r, min(level, max(best_reachable(case, r), 1e-6)), loads, slack, must=True)
        if held is None:
            return None
        where[r], loads = held
    if any(best_reachable(case, r) <= 0 for r in rows - pinned):
        return None
    movable = [r for r in rows if best_reachable(case, r) > 0]
    order = sorted(movable, key=lambda r: (-key(case, r, level, rule[0]), r))
    if stay:
        for r in order:
            if r not in where and case.base.jobs["state"][r] == 1:
                held = hold(case, r, min(level, best_reachable(case, r)), loads, slack, must=False)
                if held is not None:
                    where[r], loads = held
    for r in order:
        if r not in where:
            found = put(case, r, min(level, best_reachable(case, r)), rule, loads, slack)
            if found is None:
                return None
            where[r], loads = found
    return where


def upper(case: FarmCase, rows: set[int]) -> float:
    total = float(case.base.capacity[:, 0].sum())
    best = {r: best_reachable(case, r) for r in sorted(rows)}

    def fits(level: float) -> bool:
        return sum(case.tasks(r) * case.need(r) * min(1.0, level / b) for r, b in best.items() if b > 0) <= total

    low, high = 0.0, max(best.values(), default=0.0)
    if fits(high):
        return high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return high


def search(
    case: FarmCase, pinned: set[int], order: list[int], rules: list[tuple[str, str, str]], near: float, slack: float
) -> tuple[float, Where]:
    rules, kept = list(rules), list(order)
    free = (len(case.cluster) + 1) * slack + 1e-9 + float(case.base.capacity[:, 1].sum())
    for k, r in enumerate(order):
        free -= float(case.memory[r]) * case.tasks(r)
        if free < 0 or best_reachable(case, r) <= 0:
            kept = order[:k]
            break

    def attempt(level: float, *, stay: bool) -> Where | None:
        for rule in rules:
            found = pack(case, set(kept), pinned, level, rule, slack, stay=stay)
            if found is not None:
                rules.remove(rule)
                rules.insert(0, rule)
                return found
        return None

    found = None
    while kept and (found := attempt(0.01, stay=False)) is None:
        kept = kept[:-1]
    if not kept or found is None:
        return 0.01, {}
    low, high = 0.01, upper(case, set(kept))
    target = high
    while high > low:
        other = attempt(target, stay=False)
        if other is None:
            high = target
        else:
            low, found = target, other
        if high - low <= 0.01:
            break
        target = (low + high) / 2
    eased = max(0.01, (1 - near) * low)
    still = attempt(eased, stay=True)
    return (low, found) if still is None else (eased, still)


def pressures(case: FarmCase, where: Where) -> Loads:
    loads: Loads = [[0.0, 0.0] for _ in case.cluster]
    for r, nodes in sorted(where.items()):
        for n in nodes:
            loads[n][0] += case.need(r) / speed_at(case, r, nodes)
            loads[n][1] += float(case.memory[r])
    return loads


def place_best(case: FarmCase, where: Where, r: int, slack: float, only: int = -1) -> Where | None:
    speed, loads = relative(case.known)[r], pressures(case, where)
    top: tuple[float, float] | None = None
    best: list[int] = []
    for c in range(case.clusters):
        if only not in (-1, c):
            continue
        machines = sorted({int(m) for m, k in zip(case.machine, case.cluster, strict=True) if k == c})
        for m in [-1, *(machines if speed[c][1] > speed[c][0] else [])]:
            nodes = [n for n in case.nodes_of(c) if case.base.capacity[n][0] > 0 and m in (-1, int(case.machine[n]))]
            mine: list[int] = []
            weight = case.need(r) / speed[c][0 if m < 0 else 1]
            for _ in range(case.tasks(r)):
                fitting = [
                    n
                    for n in nodes
                    if loads[n][1] + float(case.memory[r]) * (mine.count(n) + 1) <= case.base.capacity[n][1] + slack
                ]
                if not fitting:
                    break
                mine.append(
                    min(
                        fitting,
                        key=lambda n: ((loads[n][0] + weight * (mine.count(n) + 1)) / case.base.capacity[n][0], n),
                    )
                )
            if len(mine) < case.tasks(r):
                continue
            rate = speed_at(case, r, mine)
            level = min(
                [rate] + [case.base.capacity[n][0] / (loads[n][0] + case.need(r) / rate * mine.count(n)) for n in mine]
            )
            if top is None or level > top[0] + 1e-9 or (level > top[0] - 1e-9 and rate > top[1] + 1e-9):
                top, best = (level, rate), mine
    return None if top is None else {**where, r: best}


def readmit(case: FarmCase, order: list[int], slack: float) -> Where:
    where = {r: case.base.before[case.base.slots(r)].tolist() for r in case.base.where()}
    for r in order:
        if r not in where:
            where = place_best(case, where, r, slack) or where
    return where


def _room(case: FarmCase, where: Where, r: int, c: int, slack: float) -> int:
    loads, room = pressures(case, where), 0
    for n in case.nodes_of(c):
        free = float(case.base.capacity[n][1]) + slack - loads[n][1]
        if case.base.capacity[n][0] > 0 and free >= case.memory[r]:
            room += case.tasks(r) if free >= case.memory[r] * case.tasks(r) else int(free / case.memory[r])
    return room


def admit(case: FarmCase, r: int, order: list[int], slack: float) -> Where:
    where = {k: case.base.before[case.base.slots(k)].tolist() for k in case.base.where()}
    placed = place_best(case, where, r, slack)
    if placed is not None:
        return placed
    choices = []
    for c in range(case.clusters):
        marked: list[int] = []
        for k in reversed(order):
            left = {j: nodes for j, nodes in where.items() if j not in marked}
            if _room(case, left, r, c, slack) >= case.tasks(r):
                break
            if k != r and k in where and any(case.cluster[n] == c for n in where[k]):
                marked.append(k)
        if _room(case, {j: n for j, n in where.items() if j not in marked}, r, c, slack) < case.tasks(r):
            continue
        for k in order:
            others = [m for m in marked if m != k]
            if k in marked and _room(
                case, {j: n for j, n in where.items() if j not in others}, r, c, slack
            ) >= case.tasks(r):
                marked = others
        top = min((order.index(k) for k in marked), default=len(order))
        choices.append((top, relative(case.known)[r][c][1], -c, marked))
    if not choices:
        return where
    _, _, negative, marked = max(choices, key=lambda choice: choice[:3])
    left = {j: nodes for j, nodes in where.items() if j not in marked}
    placed = place_best(case, left, r, slack, -negative)
    if placed is None:
        return where
    for k in order:
        if k in marked:
            placed = place_best(case, placed, k, slack) or placed
    return placed


def exhaustive(case: FarmCase) -> float:
    """The largest minimum effective yield of all placements of all jobs, each within one sub-cluster; -inf if none."""
    best, rows = -inf, case.base.rows
    options = [_all_places(case, r) for r in range(rows)]

    def go(r: int, where: Where) -> None:
        nonlocal best
        loads = pressures(case, where)
        if any(loads[n][1] > case.base.capacity[n][1] + 1e-9 for n in range(len(loads))):
            return
        level = min(
            [speed_at(case, k, nodes) for k, nodes in where.items()]
            + [case.base.capacity[n][0] / load[0] for n, load in enumerate(loads) if load[0] > 0],
            default=inf,
        )
        if level <= best:
            return
        if r == rows:
            best = level
            return
        for nodes in options[r]:
            go(r + 1, {**where, r: nodes})

    go(0, {})
    return best


def _all_places(case: FarmCase, r: int) -> list[list[int]]:
    return [
        list(nodes)
        for c in range(case.clusters)
        for nodes in combinations_with_replacement(case.nodes_of(c), case.tasks(r))
        if all(case.base.capacity[n][0] > 0 for n in nodes)
    ]


def farm_case(source: Any, base: PolicyCase) -> FarmCase:
    """Nodes of `base` in machines of one to three, machines in up to three sub-clusters; speeds are powers of two."""
    nodes = len(base.capacity)
    machine, m = [], 0
    while len(machine) < nodes:
        machine += [m] * source.integer(1, 3)
        m += 1
    machine = np.array(machine[:nodes])
    clusters = source.integer(1, 3)
    home = np.array([source.integer(0, clusters - 1) for _ in range(m)])
    speeds = (0.25, 0.5, 1.0, 1.0, 2.0, 4.0)
    known = np.array([[[source.pick(speeds), source.pick(speeds)] for _ in range(clusters)] for _ in range(base.rows)])
    for r in range(base.rows):
        if source.integer(0, 4) == 0:
            known[r] = np.nan
    return FarmCase(
        base=base,
        cluster=home[machine].astype(np.int64),
        machine=machine.astype(np.int64),
        known=known,
        memory=base.jobs["memory"].copy(),
    )
