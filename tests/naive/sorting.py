"""Orders, by Python's own stable sort."""

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add


def in_turn(values: Iterable[float]) -> float:
    """Sum from left to right: `sum` compensates rounding from Python 3.12 on, which would break other ties."""
    return reduce(add, values, 0.0)


def stable_order(key: Sequence[float], ascending: bool) -> list[int]:
    sign = 1.0 if ascending else -1.0
    return sorted(range(len(key)), key=lambda i: sign * key[i])
