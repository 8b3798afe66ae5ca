"""Depth-first search by recursion with every sum taken afresh, and the optimum by trying all placements."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product

from dfrs.model.rule_scope import GroupPart, Part, Scope
from tests.naive import yields
from tests.naive.packing import Vectors
from tests.naive.rules import broken, may_become


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
        parts: Sequence[Part],
        scope: Scope,
        limits: tuple[float, float, int],
    ) -> None:
        self.base, self.slope, self.capacity, self.tolerance = base, slope, capacity, tolerance
        self.order, self.twin, self.kind = order, twin, kind
        self.parts, self.scope = parts, scope
        self.lasting = [
            replace(part, host=None, fewest_domains=0) if isinstance(part, GroupPart) else part for part in parts
        ]
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
            place = self._place(chosen)
            if broken(self.parts, self.scope, place) > 0:
                return
            self.found = self._yield(chosen)
            self.incumbent = self.found + self.tolerance
            self.best = place
            if self.found >= self.upper:
                raise _EndError
            return
        for node in range(chosen[-1] if depth and self.twin[depth] else 0, len(self.capacity)):
            if node not in chosen and any(q not in chosen and self.kind[q] == self.kind[node] for q in range(node)):
                continue
            longer = [*chosen, node]
            if not may_become(self.lasting, self.scope, self._place(chosen), {self.order[depth]: node}):
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

    def _place(self, chosen: list[int]) -> list[int]:
        place = [-1] * len(self.order)
        for i, node in zip(self.order, chosen, strict=False):
            place[i] = node
        return place

    def _yield(self, chosen: list[int]) -> float:
        placed = self.order[: len(chosen)]
        return yields.minimum_yield(
            [self.base[i] for i in placed], [self.slope[i] for i in placed], self.capacity, chosen, self.tolerance
        )


def optimum(
    base: Vectors, slope: Vectors, capacity: Vectors, tolerance: float, parts: Sequence[Part], scope: Scope
) -> float:
    """The best minimum yield of all placements that keep the rules; -1 where there is none."""
    return max(
        (
            yields.minimum_yield(base, slope, capacity, place, tolerance)
            for place in product(range(len(capacity)), repeat=len(base))
            if broken(parts, scope, place) == 0
        ),
        default=-1.0,
    )
