"""Depth-first search by recursion with every sum taken afresh, and the optimum by trying all placements."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import product

from tests.naive import yields
from tests.naive.packing import Vectors


class _EndError(Exception):
    pass


class Search:
    """What the search has found, in plain lists; `run` fills it."""

    def __init__(
        self,
        base: Vectors,
        slope: Vectors,
        capacity: Vectors,
        tolerance: float,
        order: Sequence[int],
        twin: Sequence[bool],
        kind: Sequence[int],
        origin: Sequence[int],
        cost: Sequence[float],
        budget: float,
        limits: tuple[float, float, int],
    ) -> None:
        self.base, self.slope, self.capacity, self.tolerance = base, slope, capacity, tolerance
        self.order, self.twin, self.kind = order, twin, kind
        self.origin, self.cost, self.budget = origin, cost, budget
        self.incumbent, self.upper, self.most = limits
        self.found, self.trials, self.complete = -1.0, 0, True
        self.best: list[int] | None = None

    def run(self) -> tuple[float, bool, int, list[int] | None]:
        with suppress(_EndError):
            self._descend([])
        return self.found, self.complete, self.trials, self.best

    def _descend(self, chosen: list[int]) -> None:
        """`chosen`: the nodes of the first tasks of the order."""
        depth = len(chosen)
        if depth == len(self.order):
            self.found = self._yield(chosen)
            self.incumbent = self.found + self.tolerance
            self.best = [node for _, node in sorted(zip(self.order, chosen, strict=True))]
            if self.found >= self.upper:
                raise _EndError
            return
        for node in range(chosen[-1] if depth and self.twin[depth] else 0, len(self.capacity)):
            if node not in chosen and any(q not in chosen and self.kind[q] == self.kind[node] for q in range(node)):
                continue
            longer = [*chosen, node]
            if self.origin[self.order[depth]] not in {-1, node} and self._price(longer) > self.budget:
                continue
            self.trials += 1
            if self._yield(longer) > self.incumbent:
                self._go_on()
                self._descend(longer)
        self._go_on()

    def _go_on(self) -> None:
        if self.trials > self.most:
            self.complete = False
            raise _EndError

    def _price(self, chosen: list[int]) -> float:
        return price(
            chosen,
            [self.origin[i] for i in self.order[: len(chosen)]],
            [self.cost[i] for i in self.order[: len(chosen)]],
        )

    def _yield(self, chosen: list[int]) -> float:
        placed = self.order[: len(chosen)]
        return yields.minimum_yield(
            [self.base[i] for i in placed], [self.slope[i] for i in placed], self.capacity, chosen, self.tolerance
        )


def price(place: Sequence[int], origin: Sequence[int], cost: Sequence[float]) -> float:
    return sum(c for n, o, c in zip(place, origin, cost, strict=True) if o not in {-1, n})


def optimum(
    base: Vectors,
    slope: Vectors,
    capacity: Vectors,
    tolerance: float,
    origin: Sequence[int],
    cost: Sequence[float],
    budget: float,
) -> float:
    """The best minimum yield of all placements within `budget`; -1 where there is none."""
    return max(
        (
            yields.minimum_yield(base, slope, capacity, place, tolerance)
            for place in product(range(len(capacity)), repeat=len(base))
            if price(place, origin, cost) <= budget
        ),
        default=-1.0,
    )
