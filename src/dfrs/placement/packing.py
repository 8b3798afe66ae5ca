"""VP_*: bisection on the yield around a vector packing ([Stillwell2010] 4.2.5); MCB1 to 8 ([Stillwell2008] 3.4)."""

from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations, permutations
from math import comb, perm
from typing import Literal

import numpy as np

from dfrs.kernels import packing as kernels
from dfrs.kernels.search import search_yield
from dfrs.model import tolerances
from dfrs.model.allocation import Outcome
from dfrs.model.errors import UnsupportedError
from dfrs.model.instance import Instance, Ints
from dfrs.placement.bounds import lp_bound
from dfrs.placement.outcome import found, placement_yield

MOST_LISTS = 5_040
BIT_SETS = 16
"""Most resources for which a list is numbered by a set of bits; above, by digits, one for each resource chosen."""
MOST_CODES = 1_000_000
DEFAULT_WINDOW = 2

Method = Literal["FF", "BF", "CP", "PP"]
Criterion = Literal["SUM", "MAX", "LEX", "DIFF", "RATIO"]

_CRITERIA: dict[Criterion, int] = {
    "SUM": kernels.SUM,
    "MAX": kernels.MAX,
    "LEX": kernels.LEX,
    "DIFF": kernels.DIFF,
    "RATIO": kernels.RATIO,
}

Plan = tuple[Ints, Ints, bool, bool]


@dataclass(frozen=True, kw_only=True)
class VectorPacking:
    """One vector packing heuristic with its yield search; call it on an instance.

    `window` is the w of Permutation and Choose Pack; the default becomes 1 where there are so many resources that it
    would make more than MOST_LISTS lists. `by_index` tries the lists of a pair of dimensions in
    order of their index, as the published figures of VP_PP* do, instead of the less loaded dimension first, as
    the text has it. `ends` also tries the upper end of the search (first) and yield 0 (last); the published
    search tries midpoints only. `dominance` packs a second time, in the order of the degree of dominance.
    """

    method: Method
    criterion: Criterion
    ascending: bool = False
    window: int = DEFAULT_WINDOW
    by_index: bool = False
    ends: bool = True
    dominance: bool = False

    def __call__(self, instance: Instance, _rng: np.random.Generator | None = None, /) -> Outcome:
        """Pack at the highest yield the bisection finds."""
        place = np.full(len(instance.need), -1, dtype=np.int64)
        searched = self.search(instance, place, lp_bound(instance))
        return found(instance, place if searched >= 0 else None, details={"searched_yield": searched})

    def search(self, instance: Instance, place: Ints, upper: float) -> float:
        """Fill `place` (T,) with the packing at the highest yield found in [0, upper]; that yield, or -1."""
        window, plan, list_of_code = self._lists(len(instance.resources))
        return float(
            search_yield(
                instance.base,
                instance.slope,
                instance.capacity,
                tolerances.CAPACITY,
                (upper, tolerances.YIELD_SEARCH_WIDTH, self.ends),
                self._method,
                _CRITERIA[self.criterion],
                self.ascending,
                instance.lexicographic,
                window,
                plan,
                list_of_code,
                self.dominance,
                place,
            )
        )

    @cached_property
    def _method(self) -> int:
        return {"FF": kernels.FIRST_FIT, "BF": kernels.BEST_FIT}.get(self.method, kernels.BY_LISTS)

    def _lists(self, dims: int) -> tuple[int, Plan, Ints]:
        if self._method != kernels.BY_LISTS:
            return _list_plan(1, 1, False, False)
        if self.window < 1:
            raise UnsupportedError(f"window {self.window}: must be at least 1")
        ordered, window = self.method == "PP", min(self.window, dims)
        if window == DEFAULT_WINDOW and _number_of_lists(dims, window, ordered) > MOST_LISTS:
            window = 1
        return _list_plan(dims, window, ordered, self.by_index)


def _number_of_lists(dims: int, window: int, ordered: bool) -> int:
    return perm(dims, window) if ordered else comb(dims, window)


@cache
def _list_plan(dims: int, window: int, ordered: bool, by_index: bool) -> tuple[int, Plan, Ints]:
    """Which lists exist for the `window` largest of `dims` coordinates, and in which order a node tries them.

    Subsets of the node's dimensions, ranked by increasing load, in colexicographic order: those that avoid the
    most loaded dimensions come first. In a subset, permutations in lexicographic order. The plan's third part says
    that lists are numbered by digits.
    """
    lists = _number_of_lists(dims, window, ordered)
    digits = ordered or dims > BIT_SETS
    if window > 1 and (lists > MOST_LISTS or (digits and dims**window > MOST_CODES)):
        raise UnsupportedError(
            f"window {window} with {dims} resources makes {lists} lists: at most {MOST_LISTS}; choose a smaller window"
        )
    subsets = sorted(combinations(range(dims), window), key=lambda ranks: ranks[::-1])
    orders = list(permutations(range(window))) if ordered else [tuple(range(window))]
    chosen = list(combinations(range(dims), window))
    if digits:
        # A list without order has as many numbers as its resources have orders.
        codes = [sum(d * dims**p for p, d in enumerate(order)) for subset in chosen for order in permutations(subset)]
    else:
        codes = [sum(1 << d for d in subset) for subset in chosen]
    list_of_code = np.zeros(max(codes) + 1, dtype=np.int64)
    list_of_code[codes] = np.arange(len(codes)) // (len(codes) // lists)
    plan = (
        np.array([s for s in subsets for _ in orders], dtype=np.int64),
        np.array([o for _ in subsets for o in orders], dtype=np.int64),
        digits,
        by_index,
    )
    return window, plan, list_of_code


_FAMILY: tuple[tuple[Method, tuple[Criterion, ...]], ...] = (
    ("FF", ("SUM", "MAX", "LEX")),
    ("BF", ("SUM", "MAX", "LEX")),
    ("CP", ("SUM", "MAX", "DIFF", "RATIO")),
    ("PP", ("SUM", "MAX", "DIFF", "RATIO")),
)

VECTOR_PACKINGS: dict[str, VectorPacking] = {
    f"VP_{method}{criterion}": VectorPacking(method=method, criterion=criterion)
    for method, criteria in _FAMILY
    for criterion in criteria
}
"""The 14 of [Stillwell2010] section 4.2.5."""


def best_packing(instance: Instance, _rng: np.random.Generator | None = None, /) -> Outcome:
    """The best of the 14, each searched to its end: a placement often allows more than its search asked for."""
    upper = lp_bound(instance)
    best, best_yield, winner = None, -1.0, ""
    for name, packing in VECTOR_PACKINGS.items():
        place = np.full(len(instance.need), -1, dtype=np.int64)
        if packing.search(instance, place, upper) >= 0:
            value = placement_yield(instance, place)
            if value > best_yield:
                best, best_yield, winner = place, value, name
        if best_yield >= upper:
            break
    return found(instance, best, details={"winner": winner} if winner else {})


MULTI_CAPACITY: dict[str, VectorPacking] = {
    f"MCB{4 * descending + k + 1}": VectorPacking(method="PP", criterion=criterion, ascending=not descending, window=1)
    for descending in (False, True)
    for k, criterion in enumerate(("SUM", "DIFF", "RATIO", "MAX"))
}
"""The 8 of [Stillwell2008] section 3.4: Permutation Pack by the largest coordinate alone, lists sorted eight ways."""
