"""Yields on a placement: the least one in plain floats, the two ways to hand out the rest, one in exact fractions."""

from collections.abc import Sequence
from fractions import Fraction
from math import inf

from tests.naive.packing import Vector, Vectors
from tests.naive.sorting import in_turn

Table = list[list[float]]
ROUNDING = 1e-9


def node_loads(base: Vectors, slope: Vectors, nodes: int, place: Sequence[int]) -> tuple[Table, Table]:
    return _sums(base, nodes, place), _sums(slope, nodes, place)


def _sums(vectors: Vectors, nodes: int, place: Sequence[int]) -> Table:
    return [
        [
            in_turn(vector[d] for vector, at in zip(vectors, place, strict=True) if at == n)
            for d in range(len(vectors[0]))
        ]
        for n in range(nodes)
    ]


def minimum_yield(base: Vectors, slope: Vectors, capacity: Vectors, place: Sequence[int], tolerance: float) -> float:
    fixed, rate = node_loads(base, slope, len(capacity), place)
    cells = [(n, d) for n in range(len(capacity)) for d in range(len(capacity[0]))]
    if any(capacity[n][d] - fixed[n][d] < -tolerance for n, d in cells):
        return -1.0
    limits = [max(capacity[n][d] - fixed[n][d], 0.0) / rate[n][d] for n, d in cells if rate[n][d] > 0]
    return min([1.0, *limits])


def fill_average(slope: Vectors, room: Vectors, place: Sequence[int], yields: Vector) -> list[float]:
    """[Stillwell2010] 4.4.7: node by node, all the task with the largest possible gain can get, then the next one.

    Of equal gains, as of all tasks that can have their full need, the one that takes least: [Stillwell2008] section 3.5
    has the smallest first, without which the rule is not the optimal one that both documents say it is.
    """
    raised = list(yields)
    for n, free in enumerate(room):
        left = list(free)
        waiting = [i for i, at in enumerate(place) if at == n]
        while waiting:
            gain = {i: _gain(slope[i], left, raised[i]) for i in waiting}
            equal = [i for i in waiting if gain[i] >= max(gain.values()) - ROUNDING]
            best = min(equal, key=lambda i: in_turn(slope[i]))
            raised[best] += gain[best]
            left = [room - s * gain[best] for room, s in zip(left, slope[best], strict=True)]
            waiting.remove(best)
    return raised


def _gain(slope: Vector, left: Vector, present: float) -> float:
    limits = (max(room, 0.0) / s if s > 0 else inf for room, s in zip(left, slope, strict=True))
    return min(1.0 - present, *limits)


def fill_max_min(
    slope: Vectors, room: Vectors, place: Sequence[int], service_of: Sequence[int], yields: Vector
) -> list[Fraction]:
    """Raise all services together in exact arithmetic; who reaches 1 or needs a resource used up stays behind."""
    rising = set(range(len(yields)))
    level = [Fraction(y) for y in yields]
    free = [[max(Fraction(r), Fraction(0)) for r in row] for row in room]
    exact = [[Fraction(s) for s in vector] for vector in slope]
    cells = [(n, d) for n in range(len(room)) for d in range(len(room[0]))]
    while rising:
        moving = [i for i, j in enumerate(service_of) if j in rising]
        rate = {(n, d): sum((exact[i][d] for i in moving if place[i] == n), Fraction(0)) for n, d in cells}
        step = min(1 - level[j] for j in rising)
        step = min([step, *(free[n][d] / rate[n, d] for n, d in cells if rate[n, d] > 0)])
        for j in rising:
            level[j] += step
        for n, d in cells:
            free[n][d] -= rate[n, d] * step
        rising -= {j for j in rising if level[j] == 1}
        rising -= {
            service_of[i] for i in moving for d in range(len(room[0])) if exact[i][d] > 0 and free[place[i]][d] == 0
        }
    return level
