"""Hypothesis strategies for everything in `tests.cases`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dfrs.model.instance import Floats, Ints
from tests import cases, search_cases

T = TypeVar("T")
_ELEMENT_BY_ELEMENT = 60


@dataclass(frozen=True)
class Drawn:
    """Choices made by hypothesis; large tables, and half of the others, come from a drawn seed.

    Large ones would not shrink anyway, and hypothesis on its own draws many that are almost all zero.
    """

    draw: st.DrawFn

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def pick(self, options: Sequence[T]) -> T:
        return self.draw(st.sampled_from(options))

    def _seeded(self) -> cases.Seeded:
        return cases.Seeded(np.random.default_rng(self.draw(st.integers(0, 2**32 - 1))))

    def values(self, shape: tuple[int, ...], grain: int | None, top: float) -> Floats:
        if np.prod(shape) > _ELEMENT_BY_ELEMENT or self.draw(st.booleans()):
            return self._seeded().values(shape, grain, top)
        if grain is None:
            # An amount below the tolerance is none: it would be forgiven here and counted there.
            return self.draw(
                arrays(np.float64, shape, elements=st.just(0.0) | st.floats(0.001, top), fill=st.nothing())
            )
        each = st.integers(0, round(grain * top))
        return self.draw(arrays(np.float64, shape, elements=each, fill=st.nothing())) / grain

    def permutation(self, count: int) -> Ints:
        if count > _ELEMENT_BY_ELEMENT:
            return self._seeded().permutation(count)
        return np.array(self.draw(st.permutations(range(count))), dtype=np.int64)


def _strategy(build: Callable[[cases.Source], T]) -> st.SearchStrategy[T]:
    @st.composite
    def built(draw: st.DrawFn) -> T:
        return build(Drawn(draw))

    return built()


keys = _strategy(cases.key_case)
packings = _strategy(cases.packing_case)
searches = _strategy(cases.search_case)
greedies = _strategy(cases.greedy_case)
backtrackings = _strategy(partial(cases.backtracking_case, grain=8))
decimal_backtrackings = _strategy(partial(cases.backtracking_case, grain=10))
averages = _strategy(cases.average_case)
placements = _strategy(cases.yield_case)
parallel_placements = _strategy(partial(cases.yield_case, tasks_per_service=3))
instances = _strategy(cases.random_instance)
parallel_instances = _strategy(partial(cases.random_instance, tasks_per_service=3))
exact_searches = _strategy(search_cases.exact_case)
climbs = _strategy(search_cases.climb_case)
genetics = _strategy(search_cases.genetic_case)
