"""How CPU is shared between jobs that are on nodes ([Stillwell2010] sections 5.2.5, 5.2.6)."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dfrs.kernels import average
from dfrs.kernels.shares import fill
from dfrs.model.decisions import Snapshot
from dfrs.model.instance import Floats, Ints
from dfrs.policies.fractional.objective import YIELDS, Objective, StretchObjective


class Shares(Protocol):
    """Gives yields."""

    def __call__(self, snapshot: Snapshot, slots: Ints, /) -> Floats:
        """(R,) yields for the jobs with nodes in `slots`, 0 for the others; no node gives out more than it has."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxMin:
    """OPT=MIN, and OPT=MAX for stretches: raise the lowest level as far as possible, then the next, and so on.

    With `even` nobody is raised above the minimum level: OPT=NONE.
    """

    objective: Objective = YIELDS
    even: bool = False

    def __call__(self, snapshot: Snapshot, slots: Ints, /) -> Floats:
        """As `dfrs.kernels.shares.fill`."""
        base, slope = self.objective(snapshot)
        yields = np.empty(len(base))
        fill(
            snapshot.jobs,
            snapshot.first,
            slots,
            snapshot.capacity,
            base,
            slope,
            self.objective.floor,
            self.even,
            yields,
        )
        return yields


@dataclass(frozen=True, slots=True, kw_only=True)
class AverageYield:
    """OPT=AVG: the largest average yield with nobody below the largest minimum."""

    objective: Objective = YIELDS

    def __call__(self, snapshot: Snapshot, slots: Ints, /) -> Floats:
        """As `dfrs.kernels.average.average_yields`."""
        base, slope = self.objective(snapshot)
        yields = np.empty(len(base))
        average.average_yields(snapshot.jobs, snapshot.first, slots, snapshot.capacity, base, slope, slope, yields)
        return yields


@dataclass(frozen=True, slots=True, kw_only=True)
class AverageStretch:
    """OPT=AVG where stretches are estimated: the least average one with nobody above the least maximum.

    The average is within a factor 1 + 1e-6 of the best one.
    """

    objective: StretchObjective

    def __call__(self, snapshot: Snapshot, slots: Ints, /) -> Floats:
        """As `dfrs.kernels.average.average_stretch`."""
        base, slope = self.objective(snapshot)
        yields = np.empty(len(base))
        average.average_stretch(
            snapshot.jobs, snapshot.first, slots, snapshot.capacity, base, slope, self.objective.floor, yields
        )
        return yields
