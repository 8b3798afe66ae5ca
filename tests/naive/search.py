"""The yield search of [Stillwell2010] section 4.2.5 and the degree of dominance it mentions, by the book."""

from collections.abc import Callable, Sequence

from tests.naive.packing import Vectors
from tests.naive.sorting import in_turn, stable_order


def dominance_order(size: Vectors, capacity: Vectors, place: Sequence[int]) -> list[int]:
    """Tasks by decreasing weighted sum; the weight of a resource is the number of (node, task) pairs it forbids.

    The share of the pairs, as the text has it, would be the same order, but ties would hang on rounding.
    """
    dims = range(len(size[0]))
    degree = []
    for d in dims:
        free = [
            c[d] - in_turn(vector[d] for vector, at in zip(size, place, strict=True) if at == n)
            for n, c in enumerate(capacity)
        ]
        degree.append(sum(vector[d] > room for room in free for vector in size))
    return stable_order([in_turn(degree[d] * vector[d] for d in dims) for vector in size], ascending=False)


def search_yield(
    packing_at: Callable[[float], list[int] | None], upper: float, width: float, ends: bool
) -> tuple[float, list[int] | None]:
    """Highest yield at which `packing_at` finds a packing, and that packing; -1 and None where there is none."""
    if ends:
        packing = packing_at(upper)
        if packing is not None:
            return upper, packing
    found: tuple[float, list[int] | None] = (-1.0, None)
    low, high = 0.0, upper
    while high - low > width:
        middle = (low + high) / 2
        packing = packing_at(middle)
        if packing is None:
            high = middle
        else:
            low = middle
            found = middle, packing
    if ends and found[1] is None:
        packing = packing_at(0.0)
        if packing is not None:
            found = 0.0, packing
    return found
