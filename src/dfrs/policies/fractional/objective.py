"""What a policy maximises: the minimum level over all jobs, each of which has a line of yields over levels.

The line says which yield a job must have for a level: base + slope * level. Repacking and sharing use the same
objective, so that both work for the same aim. See `dfrs.kernels.shares`.
"""

from dataclasses import dataclass
from math import floor
from typing import Protocol

import numpy as np

from dfrs.kernels.repack import Search
from dfrs.kernels.shares import stretch_objective
from dfrs.model.decisions import Snapshot
from dfrs.model.instance import Floats

LEAST_YIELD = 0.01
"""Below this MCB does not look for a packing, and no job's target falls when stretches are optimised."""
WIDTH = 0.01
"""The search for the best level ends at this width; for levels that are inverse stretches, of the upper end."""

SHORTEST_HORIZON_S = 1.0
"""Stretches are estimated for the next wake, but at least so far ahead: yields would jump for no gain."""


class Objective(Protocol):
    """An aim."""

    @property
    def search(self) -> Search:
        """How MCB searches for the best level."""
        ...

    @property
    def floor(self) -> float:
        """The least yield of a job on nodes, where there is that much CPU."""
        ...

    def __call__(self, snapshot: Snapshot, /) -> tuple[Floats, Floats]:
        """Base and slope (R,) of each row; slopes are above 0."""
        ...


@dataclass(frozen=True, slots=True)
class YieldObjective:
    """The level is the yield ([Stillwell2010] section 5.2.2)."""

    @property
    def search(self) -> Search:
        """From 0.01 on, to a width of 0.01."""
        return (False, LEAST_YIELD, WIDTH, 0.0, 0.0)

    @property
    def floor(self) -> float:
        """None: every yield is at least the smallest common one."""
        return 0.0

    def __call__(self, snapshot: Snapshot, /) -> tuple[Floats, Floats]:
        """Yield = level."""
        rows = len(snapshot.jobs)
        return np.zeros(rows), np.ones(rows)


@dataclass(frozen=True, slots=True)
class StretchObjective:
    """The level is the inverse of the stretch estimated for the next wake ([Stillwell2010] section 5.2.6).

    The documents leave open what a job gets that needs no CPU to stay below the stretch aimed at: it gets yield 0.01.
    The estimate is for the next multiple of the period, also between two wakes: yields that were best at a wake stay so
    until a job goes.
    """

    period_s: float

    @property
    def search(self) -> Search:
        """From stretch infinity on; a level at which a job would need more than yield 1 is not feasible."""
        return (True, 0.0, 0.0, WIDTH, LEAST_YIELD)

    @property
    def floor(self) -> float:
        """As in the search."""
        return LEAST_YIELD

    def __call__(self, snapshot: Snapshot, /) -> tuple[Floats, Floats]:
        """Yield = (level * (flow time + T) - virtual time) / T, with T seconds until the next wake."""
        rows = len(snapshot.jobs)
        base, slope = np.empty(rows), np.empty(rows)
        horizon_s = max(next_multiple(snapshot.now_s, self.period_s) - snapshot.now_s, SHORTEST_HORIZON_S)
        stretch_objective(snapshot.jobs, snapshot.now_s, horizon_s, base, slope)
        return base, slope


YIELDS = YieldObjective()


def next_multiple(now_s: float, period_s: float) -> float:
    """The first multiple of `period_s` after `now_s`."""
    k = floor(now_s / period_s) + 1
    return k * period_s if k * period_s > now_s else (k + 1) * period_s
