"""The best set of jobs by trying all of them."""

from collections.abc import Sequence
from itertools import compress, product


def best(size: Sequence[int], crossing: Sequence[int], room: Sequence[int]) -> list[bool]:
    """Largest total; of those the first in the order of the queue."""
    sets = [s for s in product((True, False), repeat=len(size)) if _fits(s, size, crossing, room)]
    return list(max(sets, key=lambda s: (sum(compress(size, s)), s)))


def _fits(chosen: Sequence[bool], size: Sequence[int], crossing: Sequence[int], room: Sequence[int]) -> bool:
    return all(
        sum(s for s, c, taken in zip(size, crossing, chosen, strict=True) if taken and c >= g) <= most
        for g, most in enumerate(room)
    )
