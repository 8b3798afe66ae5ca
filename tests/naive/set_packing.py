"""Sets of tasks that fit on a node, all of them looked at."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from tests.naive.packing import Vector, Vectors


def fitting(size: Vectors, capacity: Vector) -> Iterator[tuple[int, ...]]:
    """Every set, the empty one too."""
    for count in range(len(size) + 1):
        for chosen in combinations(range(len(size)), count):
            if all(sum(size[i][d] for i in chosen) <= most for d, most in enumerate(capacity)):
                yield chosen


def highest(size: Vectors, capacity: Vector, worth: Sequence[float]) -> float:
    return max(sum(worth[i] for i in chosen) for chosen in fitting(size, capacity))


def above(size: Vectors, capacity: Vector, worth: Sequence[float], threshold: float) -> set[tuple[int, ...]]:
    """The sets of tasks of some worth that are worth more than `threshold`."""
    return {
        chosen
        for chosen in fitting(size, capacity)
        if all(worth[i] > 0 for i in chosen) and sum(worth[i] for i in chosen) > threshold
    }


def fractional(worth: Sequence[float], weight: Sequence[float], first: int, room: float) -> float:
    """Worth of what fills `room` in turn from `first` on, the last task in part."""
    total = 0.0
    for value, each in zip(worth[first:], weight[first:], strict=True):
        part = min(1.0, room / each)
        total += value * part
        room -= each * part
    return total
