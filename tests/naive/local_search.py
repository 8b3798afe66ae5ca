"""Annealing with plain lists: loads and overloads are summed anew whenever they are wanted."""

from bisect import bisect_left
from collections.abc import Sequence
from math import log

from dfrs.model.rule_scope import Part, Scope
from tests.naive import yields
from tests.naive.packing import Vector, Vectors
from tests.naive.rules import may_become

MASK = 2**64 - 1
NEAR = 16
SPARE = 16
STALE = 0.01


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


class Descent:
    """An annealing of `place`, for a tolerance of 0, that goes on from call to call of `climb`."""

    def __init__(
        self,
        base: Vectors,
        slope: Vectors,
        capacity: Vectors,
        parts: list[Part],
        scope: Scope,
        place: list[int],
        target: float,
        draws: Xorshift,
    ) -> None:
        self.parts, self.scope = parts, scope
        self.base, self.slope, self.capacity, self.draws = base, slope, capacity, draws
        self.place, self.target = list(place), target
        self.found, self.best = -1.0, None
        self.rank()
        self.lay_out()
        self.hot = self.overloaded()

    def sizes(self) -> list[list[float]]:
        return sizes(self.base, self.slope, self.target)

    def over(self, n: int, place: Sequence[int]) -> float:
        return overload(loads(self.sizes(), place, len(self.capacity))[n], self.capacity[n])

    def overloaded(self) -> list[int]:
        return [n for n in range(len(self.capacity)) if self.over(n, self.place) > 0]

    def rank(self) -> None:
        self.ranked_at, self.ranked_sizes = self.target, self.sizes()
        self.ranked = ranking(self.ranked_sizes)

    def lay_out(self) -> None:
        self.members = [[i for i, at in enumerate(self.place) if at == n] for n in range(len(self.capacity))]
        self.room = [len(here) + SPARE for here in self.members]
        self.crowded = False

    def rise(self, rise: float, upper: float) -> bool:
        while not self.hot:
            value = yields.minimum_yield(self.base, self.slope, self.capacity, self.place, 0.0)
            if value > self.found:
                self.found, self.best = value, list(self.place)
            if self.target >= upper or value >= upper:
                return False
            self.target = min(upper, max(value, self.target) + max(rise * (upper - value), 1e-5))
            self.hot = self.overloaded()
        if self.target > self.ranked_at + STALE:
            self.rank()
        return True

    def climb(self, aims: tuple[float, float], steps: int, heat: tuple[float, float]) -> bool:
        if self.crowded:
            self.lay_out()
        temperature = heat[0]
        for _ in range(steps):
            if not self.rise(*aims):
                return False
            temperature *= (heat[1] / heat[0]) ** (1.0 / max(1, steps))
            self.propose(temperature)
        return self.rise(*aims)

    def propose(self, temperature: float) -> None:
        draws, place, members = self.draws, self.place, self.members
        a = self.hot[draws.below(len(self.hot))]
        i = members[a][draws.below(len(members[a]))]
        proposal = draws.below(4)
        j = None if proposal == 0 else draws.below(len(place))
        if proposal > 1:
            size = self.sizes()
            load = loads(size, place, len(self.capacity))[a]
            j = aimed_partner(size[i], load, self.capacity[a], self.ranked, self.ranked_sizes, draws)
        b = draws.below(len(self.capacity)) if j is None else place[j]
        if b == a:
            return
        if j is None and len(members[b]) == self.room[b]:
            self.crowded = True
            return
        after = list(place)
        after[i] = b
        if j is not None:
            after[j] = a
        change = self.over(a, after) + self.over(b, after) - self.over(a, place) - self.over(b, place)
        if change > 0 and change > -temperature * log((draws.below(1 << 30) + 1) / (1 << 30)):
            return
        if not may_become(self.parts, self.scope, place, {i: b} if j is None else {i: b, j: a}):
            return
        self.exchange(i, b, j)
        for n in (a, b):
            if self.over(n, after) > 0 and n not in self.hot:
                self.hot.append(n)
            elif self.over(n, after) <= 0 and n in self.hot:
                take_last_for(self.hot, n)

    def exchange(self, i: int, b: int, j: int | None) -> None:
        """Task i goes to node b, and j, if any, from there to where i was."""
        a, members = self.place[i], self.members
        self.place[i] = b
        if j is None:
            take_last_for(members[a], i)
            members[b].append(i)
        else:
            self.place[j] = a
            members[a][members[a].index(i)] = j
            members[b][members[b].index(j)] = i


def take_last_for(items: list[int], gone: int) -> None:
    """Remove `gone` by putting the last one in its place."""
    last = items.pop()
    if last != gone:
        items[items.index(gone)] = last
