"""The genetic algorithm with plain lists and Python's integers; loads are summed anew whenever they are wanted."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from tests.naive import yields
from tests.naive.packing import Vector, Vectors

MASK = 2**64 - 1


class SplitMix:
    """The generator's definition."""

    def __init__(self, word: int) -> None:
        self.word = word

    def uniform(self) -> float:
        self.word = (self.word + 0x9E3779B97F4A7C15) & MASK
        z = ((self.word ^ (self.word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return ((z ^ (z >> 31)) >> 11) / 2**53

    def below(self, count: int) -> int:
        return int(self.uniform() * count)

    def shuffled(self, count: int) -> list[int]:
        items = list(range(count))
        for k in reversed(range(1, count)):
            other = self.below(k + 1)
            items[k], items[other] = items[other], items[k]
        return items


def loads(amount: Vectors, place: Sequence[int], nodes: int) -> list[list[float]]:
    return yields.node_loads(amount, amount, nodes, place)[0]


def overloaded(load: Vector, capacity: Vector, tolerance: float) -> bool:
    return any(most - amount < -tolerance for amount, most in zip(load, capacity, strict=True))


def share(load: Vector, capacity: Vector) -> float:
    return max([0.0, *(amount / most for amount, most in zip(load, capacity, strict=True) if most > 0)])


def least_loaded(need: Vector, load: Vectors, capacity: Vectors, tolerance: float, home: int) -> int:
    able = [
        n
        for n in range(len(capacity))
        if n != home and all(f + x <= c + tolerance for f, x, c in zip(load[n], need, capacity[n], strict=True))
    ]
    return min(able, key=lambda n: share(load[n], capacity[n]), default=-1)


def repair(base: Vectors, capacity: Vectors, tolerance: float, draws: SplitMix, place: list[int]) -> None:
    for n in draws.shuffled(len(capacity)):
        for i in [i for i, at in enumerate(place) if at == n]:
            load = loads(base, place, len(capacity))
            if overloaded(load[n], capacity[n], tolerance):
                target = least_loaded(base[i], load, capacity, tolerance, n)
                place[i] = n if target < 0 else target


def fitness(base: Vectors, slope: Vectors, capacity: Vectors, tolerance: float, place: Sequence[int]) -> float:
    """[Stillwell2010] section 4.2.4: the number of nodes not overloaded, or where that is all, N * (1 + Y)."""
    nodes = len(capacity)
    load = loads(base, place, nodes)
    fitting = sum(not overloaded(load[n], capacity[n], tolerance) for n in range(nodes))
    if fitting < nodes:
        return float(fitting)
    return nodes * (1.0 + yields.minimum_yield(base, slope, capacity, place, tolerance))


def settle(
    base: Vectors, slope: Vectors, capacity: Vectors, tolerance: float, draws: SplitMix, place: list[int]
) -> float:
    if fitness(base, slope, capacity, tolerance, place) < len(capacity):
        repair(base, capacity, tolerance, draws, place)
    return fitness(base, slope, capacity, tolerance, place)


def select(draws: SplitMix, scores: Sequence[float]) -> int:
    wheel = list(accumulate(scores))
    return min(bisect_right(wheel, draws.uniform() * wheel[-1]), len(wheel) - 1)


def mutate(draws: SplitMix, place: list[int]) -> bool:
    for _ in place:
        i, j = draws.below(len(place)), draws.below(len(place))
        if place[i] != place[j]:
            place[i], place[j] = place[j], place[i]
            return True
    return False


def cross(draws: SplitMix, mother: list[int], father: list[int]) -> list[list[int]]:
    cut = draws.below(len(mother) + 1)
    return [mother[:cut] + father[cut:], father[:cut] + mother[cut:]]


def evolve(
    base: Vectors,
    slope: Vectors,
    capacity: Vectors,
    tolerance: float,
    settings: tuple[int, int, float, float],
    upper: float,
    seed: int,
) -> tuple[float, int, list[int]]:
    """Returns (fitness of the best, generations, the best)."""
    population, generations, crossover, mutation = settings
    draws, nodes = SplitMix(seed), len(capacity)

    def born(place: list[int]) -> tuple[float, list[int]]:
        score = settle(base, slope, capacity, tolerance, draws, place)
        return score, place

    people = [born([draws.below(nodes) for _ in base]) for _ in range(population)]
    for generation in range(generations + 1):
        best = max(people, key=lambda person: person[0])
        if generation == generations or best[0] >= nodes * (1.0 + upper):
            return best[0], generation, best[1]
        scores = [score for score, _ in people]
        children: list[tuple[float, list[int]]] = []
        for _ in range(population // 2):
            parents = [people[select(draws, scores)] for _ in range(2)]
            crossed = draws.uniform() < crossover
            genes = [list(place) for _, place in parents]
            if crossed:
                genes = cross(draws, *genes)
            for (score, _), place in zip(parents, genes, strict=True):
                mutated = draws.uniform() < mutation and mutate(draws, place)
                children.append(born(place) if crossed or mutated else (score, place))
        if max(score for score, _ in children) < best[0]:
            worst = min(range(population), key=lambda p: children[p][0])
            children[worst] = best
        people = children
    raise AssertionError
