"""How high any placement within a budget can raise the minimum yield, and how many moves a yield takes at least.

At yield Y the tasks of a node take base + Y * slope. Where that passes its capacity, tasks must leave, whatever comes
to the node: a covering problem for each node. The fewest tasks that cover one resource are the largest, and a node
needs as many as its worst resource. Of a cost, a node takes at least what its cheapest tasks of that number cost, and
what the relaxation costs, in which a part of a task can leave, the cheapest for their size first. Tasks that may not
stay where they are leave in any case. The sum over nodes grows with Y, so the largest Y within every limit is found by
bisection. Nothing is assumed about where the tasks go: the bound holds for all placements, and is not always reached.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dfrs.kernels.adapt_bound import departures, members_of
from dfrs.kernels.yields import node_loads
from dfrs.model import tolerances
from dfrs.model.instance import Bools, Floats, Instance, Ints

STEPS = 50
"""Halvings at most."""
ADDITIONS = 1e-12
"""Rounding of some hundred additions of numbers of order 1."""
ROUNDING = 1e-9
"""By how much a sum of costs may pass a limit, relative to it: what adding in another order does."""


def forgiven(instance: Instance, tolerance: float) -> Floats:
    """(D,) by how much a node's load may pass its capacity: where requirements are in it by `tolerance`.

    The yield of a placement divides what is free among needs: where there are only these, nothing but rounding.
    """
    required = ((instance.base > 0) & (instance.slope == 0)).any(axis=0)
    return np.where(required, tolerance, ADDITIONS)


@dataclass(frozen=True, kw_only=True, eq=False)
class Departures:
    """The covering problems of a present placement (T,), -1 for tasks on no node.

    `leaving` (T,) marks tasks that may not stay; `costs` (B, T) and `amounts` (B,) are the budget's.
    """

    instance: Instance
    present: Ints
    leaving: Bools
    costs: Floats
    amounts: Floats

    @cached_property
    def _staying(self) -> tuple[Floats, Floats, Floats, Ints, Ints]:
        """Room, fixed loads, rates and tasks of each node, without the tasks that leave in any case."""
        instance = self.instance
        stay = np.where(self.leaving, -1, self.present)
        here = np.flatnonzero(stay >= 0)
        nodes = len(instance.nodes)
        fixed, rate = node_loads(instance.base[here], instance.slope[here], nodes, stay[here])
        room = instance.capacity + forgiven(instance, tolerances.PLACEMENT)
        return room, fixed, rate, *members_of(stay, nodes)

    @cached_property
    def _forced(self) -> tuple[Ints, Floats]:
        """(N,) tasks that leave each node in any case, and (B,) what they cost."""
        gone = np.flatnonzero(self.leaving & (self.present >= 0))
        count = np.bincount(self.present[gone], minlength=len(self.instance.nodes))
        return count.astype(np.int64), self.costs[:, gone].sum(axis=1)

    def at(self, yield_: float) -> tuple[Ints, Floats]:
        """(N,) how many tasks must leave each node, and (B,) what that takes of each limit, both at least."""
        instance = self.instance
        fewest, least = np.zeros(len(instance.nodes), dtype=np.int64), np.zeros(len(self.amounts))
        departures(instance.base, instance.slope, *self._staying, self.costs, yield_, fewest, least)
        count, cost = self._forced
        return fewest + count, least + cost

    def fewest(self, yield_: float) -> int:
        """At least so many tasks must move for a minimum yield of `yield_`."""
        return int(self.at(yield_)[0].sum())

    def within(self, yield_: float) -> bool:
        """Whether no limit rules out a minimum yield of `yield_`."""
        return bool((self.at(yield_)[1] <= self.amounts * (1.0 + ROUNDING)).all())

    def highest(self, upper: float) -> float | None:
        """The largest yield up to `upper` that no limit rules out; None where not even 0 is within the budget."""
        if not self.within(0.0):
            return None
        if self.within(upper):
            return upper
        low, high = 0.0, upper
        for _ in range(STEPS):
            middle = 0.5 * (low + high)
            if high - low < ADDITIONS:
                break
            low, high = (middle, high) if self.within(middle) else (low, middle)
        return high
