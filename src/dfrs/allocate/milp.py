"""OPT and its relaxation (000 section 4.1.2, 001 section 2.5), and OPT from where the tasks are now (000 6.2.2, 001 6.1).

Columns are e (T, N), whether a task is on a node, alpha (T, N), its unscaled yield there, and the minimum scaled
yield Y, which is maximised:

    sum over n of e[i, n] = 1                                                                (4.3)
    alpha[i, n] <= e[i, n]                                                                   (4.4)
    sum over i of need[i, d] * (e[i, n] if rigid[i, d] else alpha[i, n]) <= capacity[n, d]   (4.5)
    sum over n of alpha[i, n] >= minimum[i] + Y * (1 - minimum[i])                           (4.6)

All tasks of a service share one yield (000 equation 4.11), but only the least counts here: it is enough that
every task reaches it, so there is no row for that. Adaptation adds, with `present` the node of each task,

    sum over i, n other than present[i], of cost[i] * e[i, n] <= budget                      (6.7; 001 equation 31)
"""

from dataclasses import dataclass

import numpy as np

from dfrs.allocate.outcome import found, infeasible, placement_yield
from dfrs.allocate.packing import best_packing
from dfrs.allocate.solver import FEASIBILITY, LinearProgram, Solution, SolverStatus
from dfrs.bounds.yields import upper_bound
from dfrs.model import tolerances
from dfrs.model.allocation import Outcome
from dfrs.model.errors import InfeasibleError, InputError
from dfrs.model.instance import Floats, Instance, Ints


class YieldProgram(LinearProgram):
    """The program 4.1 to 4.6 of an instance, relaxed unless `integer`. `e`, `alpha` (T, N) and `y` are column numbers.

    `ceiling` is an upper bound on Y, to sharpen (4.4) with: no task needs more than it gets at Y = ceiling, and
    none gets less than its minimum, so minimum[i] * e <= alpha <= (minimum[i] + ceiling * (1 - minimum[i])) * e
    leaves the optimum over binary e, but not the relaxation's vertices, as they are. `tolerance` is how far
    rows may be passed.
    """

    def __init__(
        self,
        instance: Instance,
        *,
        integer: bool = False,
        ceiling: float | None = None,
        tolerance: float = FEASIBILITY,
    ) -> None:
        super().__init__(f"yield of {instance.name or 'an instance'}", tolerance)
        shape = (len(instance.need), len(instance.nodes))
        zero, one = np.zeros(shape), np.ones(shape)
        self.e = self.add_columns(zero, one, zero, integer)
        self.alpha = self.add_columns(zero, one, zero)
        self.y = int(self.add_columns(np.zeros(1), np.ones(1), np.ones(1))[0])
        minimum = instance.minimum_yield[instance.service_of]
        self._place_once()
        if ceiling is None:
            self._yield_where_placed(np.ones(shape[0]), upper=0.0)
        else:
            self._yield_where_placed(minimum + ceiling * (1.0 - minimum), upper=0.0)
            self._yield_where_placed(minimum, lower=0.0)
        self._fit(instance)
        self._reach_minimum(minimum)

    def assignment(self, values: Floats) -> Floats:
        """(T, N) the part of a solution that says where tasks are, without what rounding left outside [0, 1]."""
        return np.clip(values[self.e], 0.0, 1.0)

    def point(self, instance: Instance, place: Ints, yield_: float) -> Floats:
        """(C,) the feasible point where tasks are at `place` and every scaled yield is `yield_`."""
        tasks = np.arange(len(place))
        minimum = instance.minimum_yield[instance.service_of]
        values = np.zeros(self.columns)
        values[self.e[tasks, place]] = 1.0
        values[self.alpha[tasks, place]] = minimum + yield_ * (1.0 - minimum)
        values[self.y] = yield_
        return values

    def _place_once(self) -> None:
        tasks, nodes = self.e.shape
        start = np.arange(tasks) * nodes
        self.add_rows(start, self.e.ravel(), np.ones(self.e.size), lower=1.0, upper=1.0)

    def _yield_where_placed(self, factor: Floats, lower: float = -np.inf, upper: float = np.inf) -> None:
        """Rows lower <= alpha - factor (T,) * e <= upper."""
        index = np.stack((self.alpha, self.e), axis=-1)
        value = np.stack((np.ones(self.e.shape), np.broadcast_to(-factor[:, None], self.e.shape)), axis=-1)
        self.add_rows(np.arange(self.e.size) * 2, index.ravel(), value.ravel(), lower, upper)

    def _fit(self, instance: Instance) -> None:
        for d in range(len(instance.resources)):
            who = np.flatnonzero(instance.need[:, d] > 0)
            if not who.size:
                continue
            index = np.where(instance.rigid[who, d][:, None], self.e[who], self.alpha[who]).T
            start = np.arange(len(index)) * who.size
            value = np.tile(instance.need[who, d], len(index))
            self.add_rows(start, index.ravel(), value, upper=instance.capacity[:, d])

    def _reach_minimum(self, minimum: Floats) -> None:
        tasks, nodes = self.alpha.shape
        index = np.column_stack((self.alpha, np.full(tasks, self.y)))
        value = np.column_stack((np.ones((tasks, nodes)), minimum - 1.0))
        self.add_rows(np.arange(tasks) * (nodes + 1), index.ravel(), value.ravel(), lower=minimum)


@dataclass(frozen=True)
class Exact:
    """Stub, replaced within the hour."""

    time_limit_s: float | None = None


@dataclass(frozen=True)
class AdaptExact:
    """Stub, replaced within the hour."""

    present: Ints
    budget: float
    cost: Floats
    time_limit_s: float | None = None
