"""What ADAPT's kernels do, from the definitions: sums taken anew each time, subsets and placements tried one by one."""

import math
from collections.abc import Iterator, Sequence
from itertools import combinations, product

import numpy as np

from dfrs.kernels.rules import RuleArrays
from dfrs.kernels.rules import broken as broken_kernel

Row = list[float]


def sizes(base: list[Row], slope: list[Row], target: float) -> list[Row]:
    """What each task takes at yield `target`."""
    return [[b + target * s for b, s in zip(*row, strict=True)] for row in zip(base, slope, strict=True)]


def free(size: list[Row], capacity: list[Row], place: Sequence[int]) -> list[Row]:
    """What each node has left; tasks at -1 are nowhere."""
    return [
        [have - math.fsum(size[i][d] for i, m in enumerate(place) if m == n) for d, have in enumerate(row)]
        for n, row in enumerate(capacity)
    ]


def spent(cost: list[Row], origin: Sequence[int], place: Sequence[int]) -> Row:
    """Of each limit, what the tasks cost that are not where they were."""
    away = [i for i, home in enumerate(origin) if home >= 0 and place[i] != home]
    return [math.fsum(row[i] for i in away) for row in cost]


def fewest(size: list[Row], excess: Row) -> int:
    """The fewest tasks that cover the worst resource, by trying all subsets."""
    worst = 0
    for d, much in enumerate(excess):
        for count in range(len(size) + 1):
            if any(math.fsum(size[i][d] for i in some) >= much for some in combinations(range(len(size)), count)):
                break
        worst = max(worst, count)
    return worst


def covers(size: list[Row], some: Sequence[int], lack: Row) -> bool:
    """Whether what `some` tasks take is at least what lacks."""
    return all(math.fsum(size[i][d] for i in some) >= much for d, much in enumerate(lack))


def least_cover(size: list[Row], cost: Row, lack: Row) -> float:
    """The least cost of tasks that together cover every resource; infinite where none do."""
    tasks = range(len(size))
    subsets = (some for count in range(len(size) + 1) for some in combinations(tasks, count))
    return min((math.fsum(cost[i] for i in some) for some in subsets if covers(size, some, lack)), default=math.inf)


def departures(
    size: list[Row], capacity: list[Row], place: Sequence[int], leaving: Sequence[bool], cost: list[Row], tolerance: Row
) -> tuple[list[int], Row]:
    """How many tasks leave each node at least, and the least that all departures cost of each limit together."""
    counts, costs = [], [0.0] * len(cost)
    for n, have in enumerate(capacity):
        here = [i for i, m in enumerate(place) if m == n]
        forced = [i for i in here if leaving[i]]
        stay = [i for i in here if not leaving[i]]
        some = [size[i] for i in stay]
        excess = [math.fsum(row[d] for row in some) - have[d] - tolerance[d] for d in range(len(have))]
        counts.append(len(forced) + fewest(some, excess))
        for b, row in enumerate(cost):
            costs[b] += math.fsum(row[i] for i in forced) + least_cover(some, [row[i] for i in stay], excess)
    return counts, costs


def minimum(base: list[Row], slope: list[Row], capacity: list[Row], place: Sequence[int]) -> float:
    """The largest yield at which no node is overloaded, -1 where one is at 0."""
    best = 1.0
    for n, have in enumerate(capacity):
        here = [i for i, m in enumerate(place) if m == n]
        for d, much in enumerate(have):
            left = much - math.fsum(base[i][d] for i in here)
            rate = math.fsum(slope[i][d] for i in here)
            if left < 0:
                return -1.0
            if rate > 0:
                best = min(best, left / rate)
    return best


def placements(
    origin: Sequence[int], cost: list[Row], amount: Row, nodes: int, rules: RuleArrays
) -> Iterator[tuple[int, ...]]:
    """Every placement within the limits that keeps the rules."""
    for place in product(range(nodes), repeat=len(origin)):
        within = all(s <= a for s, a in zip(spent(cost, origin, place), amount, strict=True))
        if within and broken_kernel(rules, np.array(place)) == 0:
            yield place
