"""Annealing with plain lists: loads, overloads and spending are summed anew whenever they are wanted."""

from bisect import bisect_left
from collections.abc import Sequence
from math import log

from tests.naive import yields
from tests.naive.exact import price
from tests.naive.packing import Vector, Vectors

MASK = 2**64 - 1
NEAR = 16


class Xorshift:
    """The generator's definition, in Python's integers."""

    def __init__(self, word: int) -> None:
        self.word = word

    def below(self, count: int) -> int:
        s = self.word
        s ^= (s << 13) & MASK
        s ^= s >> 7
        s ^= (s << 17) & MASK
        self.word = s
        return (s >> 33) * count // 2**31


def overload(load: Vector, capacity: Vector) -> float:
    return sum(max(0.0, amount / most - 1.0) for amount, most in zip(load, capacity, strict=True))


def loads(size: Vectors, place: Sequence[int], nodes: int) -> list[list[float]]:
    return yields.node_loads(size, size, nodes, place)[0]


def sizes(base: Vectors, slope: Vectors, target: float) -> list[list[float]]:
    return [[b + target * s for b, s in zip(one, other, strict=True)] for one, other in zip(base, slope, strict=True)]


def ranking(size: Vectors) -> list[list[int]]:
    return [sorted(range(len(size)), key=lambda i: size[i][d]) for d in range(len(size[0]))]


def aimed_partner(
    size: Vector, load: Vector, capacity: Vector, ranked: list[list[int]], of: Vectors, draws: Xorshift
) -> int:
    """`ranked`: for each resource the tasks by size; `of`: the sizes they were ranked by."""
    beyond = [amount / most - 1.0 for amount, most in zip(load, capacity, strict=True)]
    worst = beyond.index(max(beyond))
    wanted = size[worst] - beyond[worst] * (0.5 + 1.5 * draws.below(1024) / 1024)
    near = bisect_left([of[i][worst] for i in ranked[worst]], wanted) + draws.below(2 * NEAR + 1) - NEAR
    return ranked[worst][min(max(near, 0), len(of) - 1)]


def climb(
    base: Vectors,
    slope: Vectors,
    capacity: Vectors,
    aims: tuple[float, float, float],
    place: list[int],
    origin: list[int],
    cost: list[float],
    budget: float,
    steps: int,
    heat: tuple[float, float],
    draws: Xorshift,
) -> tuple[float, float, list[int] | None]:
    """Anneals `place`, for a tolerance of 0; returns (yield or -1, yield aimed at last, best placement)."""
    nodes = len(capacity)
    target, rise, upper = aims
    at_first = sizes(base, slope, target)
    ranked = ranking(at_first)
    members = [[i for i, at in enumerate(place) if at == n] for n in range(nodes)]
    widest = min(len(place), max(map(len, members)) + 16)

    def over(n: int, placement: list[int]) -> float:
        return overload(loads(sizes(base, slope, target), placement, nodes)[n], capacity[n])

    hot = [n for n in range(nodes) if over(n, place) > 0]
    found, best, temperature = -1.0, None, heat[0]
    for _ in range(steps):
        while not hot:
            value = yields.minimum_yield(base, slope, capacity, place, 0.0)
            if value > found:
                found, best = value, list(place)
            if target >= upper or value >= upper:
                return found, target, best
            target = min(upper, max(value, target) + max(rise * (upper - value), 1e-5))
            hot = [n for n in range(nodes) if over(n, place) > 0]
        temperature *= (heat[1] / heat[0]) ** (1.0 / max(1, steps))
        a = hot[draws.below(len(hot))]
        i = members[a][draws.below(len(members[a]))]
        proposal = draws.below(4)
        j = None if proposal == 0 else draws.below(len(place))
        if proposal > 1:
            size = sizes(base, slope, target)
            j = aimed_partner(size[i], loads(size, place, nodes)[a], capacity[a], ranked, at_first, draws)
        b = draws.below(nodes) if j is None else place[j]
        if b == a or (j is None and len(members[b]) == widest):
            continue
        after = list(place)
        after[i] = b
        if j is not None:
            after[j] = a
        change = over(a, after) + over(b, after) - over(a, place) - over(b, place)
        if change > 0 and change > -temperature * log((draws.below(1 << 30) + 1) / (1 << 30)):
            continue
        fee = price(after, origin, cost) - price(place, origin, cost)
        if fee > 0 and price(after, origin, cost) > budget:
            continue
        place[:] = after
        if j is None:
            _take_last_for(members[a], i)
            members[b].append(i)
        else:
            members[a][members[a].index(i)] = j
            members[b][members[b].index(j)] = i
        for n in (a, b):
            if over(n, place) > 0 and n not in hot:
                hot.append(n)
            elif over(n, place) <= 0 and n in hot:
                _take_last_for(hot, n)
    if not hot:
        value = yields.minimum_yield(base, slope, capacity, place, 0.0)
        if value > found:
            found, best = value, list(place)
    return found, target, best


def _take_last_for(items: list[int], gone: int) -> None:
    """Remove `gone` by putting the last one in its place."""
    last = items.pop()
    if last != gone:
        items[items.index(gone)] = last
