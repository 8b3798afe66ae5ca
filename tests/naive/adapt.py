"""What ADAPT's kernels do, from the definitions: sums taken anew each time, subsets and placements tried one by one."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, product

import numpy as np

from dfrs.kernels.rules import RuleArrays
from dfrs.kernels.rules import broken as broken_kernel
from tests.naive.local_search import NEAR, Xorshift

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


def departures(size: list[Row], room: list[Row], place: Sequence[int], cost: list[Row]) -> tuple[list[int], Row]:
    """How many tasks leave each node at least, and the least that all departures cost of each limit."""
    counts, costs = [], [0.0] * len(cost)
    for n, have in enumerate(room):
        here = [i for i, m in enumerate(place) if m == n]
        some = [size[i] for i in here]
        excess = [math.fsum(row[d] for row in some) - have[d] for d in range(len(have))]
        counts.append(fewest(some, excess))
        for b, row in enumerate(cost):
            costs[b] += least_cover(some, [row[i] for i in here], excess)
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


def cool(
    problem: tuple[list[Row], list[Row], list[Row]],
    limits: tuple[Sequence[int], list[Row], Row],
    may: Callable[[list[int], dict[int, int]], bool],
    place: list[int],
    steps: int,
) -> int:
    """Moves from the node with the lowest yield, each the best for the lower yield of its two nodes; their number."""
    base, slope, capacity = problem
    origin, cost, amount = limits

    def value(n: int, placement: list[int]) -> float:
        here = [i for i, m in enumerate(placement) if m == n]
        return minimum([base[i] for i in here], [slope[i] for i in here], [capacity[n]], [0] * len(here))

    for step in range(steps):
        now = [value(n, place) for n in range(len(capacity))]
        a = now.index(min(now))
        best, chosen = now[a], None
        for i, b in product((i for i, m in enumerate(place) if m == a), range(len(capacity))):
            after = [b if k == i else m for k, m in enumerate(place)]
            dear = origin[i] == a and any(s > most for s, most in zip(spent(cost, origin, after), amount, strict=True))
            lower = min(value(a, after), value(b, after))
            if b != a and not dear and lower > best and may(place, {i: b}):
                best, chosen = lower, after
        if chosen is None:
            return step
        place[:] = chosen
    return steps


def over(size: list[Row], capacity: list[Row], place: Sequence[int], n: int) -> float:
    """Overload of node `n`, relative to its capacity."""
    lacks = [(-left / have) for left, have in zip(free(size, capacity, place)[n], capacity[n], strict=True)]
    return sum(max(0.0, lack) for lack in lacks)


def partner(size: list[Row], left: Row, capacity: Row, i: int, ranked: list[list[int]], draws: Xorshift) -> int:
    """A task about as much smaller than `i` as what the scarcest resource of its node lacks."""
    parts = [amount / have for amount, have in zip(left, capacity, strict=True)]
    worst = parts.index(min(parts))
    wanted = size[i][worst] + left[worst] * (0.5 + 1.5 * draws.below(1024) / 1024)
    near = bisect_left([size[k][worst] for k in ranked[worst]], wanted) + draws.below(2 * NEAR + 1) - NEAR
    return ranked[worst][min(max(near, 0), len(size) - 1)]


def anneal(
    problem: tuple[list[Row], list[Row], list[Row]],
    limits: tuple[list[int], list[Row], Row],
    may: Callable[[list[int], dict[int, int]], bool],
    aims: tuple[float, float, float],
    place: list[int],
    steps: int,
    heat: tuple[float, float],
    draws: Xorshift,
) -> tuple[float, float, list[int] | None]:
    """Anneals `place`; returns (yield or -1, yield aimed at last, best placement).

    `problem` = (base, slope, capacity); `limits` = (origin, cost, amount); `may` is asked whether rules allow changes.
    """
    base, slope, capacity = problem
    origin, cost, amount = limits
    nodes = len(capacity)
    target, rise, upper = aims
    size = sizes(base, slope, target)
    ranked = [sorted(range(len(size)), key=lambda i: size[i][d]) for d in range(len(size[0]))]
    members = [[i for i, at in enumerate(place) if at == n] for n in range(nodes)]
    hot = [n for n in range(nodes) if over(size, capacity, place, n) > 0]
    found, best, temperature = -1.0, None, heat[0]
    for _ in range(steps):
        while not hot:
            value = minimum(base, slope, capacity, place)
            if value > found:
                found, best = value, list(place)
            if target >= upper or value >= upper:
                return found, target, best
            target = min(upper, max(value, target) + max(rise * (upper - value), 1e-5))
            size = sizes(base, slope, target)
            hot = [n for n in range(nodes) if over(size, capacity, place, n) > 0]
        temperature *= (heat[1] / heat[0]) ** (1.0 / max(1, steps))
        a = hot[draws.below(len(hot))]
        i = members[a][draws.below(len(members[a]))]
        proposal = draws.below(4)
        j = None if proposal == 0 else draws.below(len(place)) if proposal == 1 else None
        if proposal > 1:
            j = partner(size, free(size, capacity, place)[a], capacity[a], i, ranked, draws)
        b = draws.below(nodes) if j is None else place[j]
        if b == a:
            continue
        changes = {i: b} if j is None else {i: b, j: a}
        after = [changes.get(k, n) for k, n in enumerate(place)]
        one, other = over(size, capacity, after, a), over(size, capacity, after, b)
        change = one + other - over(size, capacity, place, a) - over(size, capacity, place, b)
        if change > 0 and change > -temperature * math.log((draws.below(1 << 30) + 1) / (1 << 30)):
            continue
        now, then = spent(cost, origin, place), spent(cost, origin, after)
        if any(t > n and t > most for n, t, most in zip(now, then, amount, strict=True)) or not may(place, changes):
            continue
        members[a].remove(i)
        if j is not None:
            members[b].remove(j)
            members[a].insert(0, j)
        members[b].insert(0, i)
        place[:] = after
        for n in (a, b):
            if over(size, capacity, place, n) > 0 and n not in hot:
                hot.append(n)
            elif over(size, capacity, place, n) <= 0 and n in hot:
                last = hot.pop()
                if last != n:
                    hot[hot.index(n)] = last
    if not hot:
        value = minimum(base, slope, capacity, place)
        if value > found:
            found, best = value, list(place)
    return found, target, best
