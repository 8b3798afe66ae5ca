"""VP_CHEKURI: yield search around the O(ln D)-guaranteed packing of Chekuri and Khanna ([Stillwell2010] 4.2.5, [178]).

At a fixed yield tasks are vectors x, as fractions of a node. The least number m of nodes on which they fit in
fractions is the largest aggregate, rounded up. A basic solution of

    sum over n < m of x[i, n] = 1,    sum over i of size[i, d] * x[i, n] <= 1

has at most T + D*m positive values, so at most D*m tasks are split: the others stay, the split ones are packed
greedily (the text says no more; here first fit by decreasing sum) on the nodes that are left.
"""

from dataclasses import dataclass
from math import ceil

import numpy as np

from dfrs.kernels.packing import SUM, pack_first_fit, sort_order
from dfrs.model import tolerances
from dfrs.model.allocation import Outcome
from dfrs.model.errors import UnsupportedError
from dfrs.model.instance import Floats, Instance, Ints
from dfrs.placement.bounds import lp_bound
from dfrs.placement.outcome import found, placement_yield
from dfrs.placement.solver import LinearProgram, SolverStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A packing at a fixed yield: (T,) nodes, and of how many nodes the program was and how many tasks it split."""

    place: Ints
    nodes: int
    split: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chekuri:
    """VP_CHEKURI, for equal nodes. The search tries LPBOUND first and yield 0 last, like that of the other VP_*."""

    def __call__(self, instance: Instance, _rng: np.random.Generator | None = None, /) -> Outcome:
        """Pack at the highest yield the bisection finds. Raises UnsupportedError for nodes of different capacity."""
        if not instance.equal_nodes:
            raise UnsupportedError(
                "VP_CHEKURI takes equal nodes only: for nodes of different capacity use VP_*, GREEDY or BEST"
            )
        searched, packed = _search(instance, lp_bound(instance))
        if packed is None:
            return found(instance, None)
        details = {"searched_yield": searched, "program_nodes": packed.nodes, "split": packed.split}
        return found(instance, packed.place, details=details)


def _search(instance: Instance, upper: float) -> tuple[float, Packed | None]:
    """The highest yield found in [0, `upper`] and its packing."""
    packed = pack(instance, upper)
    if packed is not None:
        return upper, packed
    low, high = 0.0, upper
    while high - low > tolerances.YIELD_SEARCH_WIDTH:
        middle = 0.5 * (low + high)
        trial = pack(instance, middle)
        if trial is None:
            high = middle
        else:
            low, packed = middle, trial
    return low, packed or pack(instance, 0.0)


def pack(instance: Instance, yield_: float) -> Packed | None:
    """Pack all tasks at the scaled yield `yield_` on equal nodes, or None."""
    capacity = instance.capacity[0]
    used = capacity > 0
    size = (instance.base + yield_ * instance.slope)[:, used] / capacity[used]
    most = float(size.sum(axis=0).max(initial=0.0))
    nodes = max(1, ceil(most - tolerances.CAPACITY * len(instance.nodes)))
    if nodes > len(instance.nodes):
        return None
    fraction = _basic_solution(size, nodes)
    if fraction is None:
        return None
    whole = fraction.max(axis=1) >= 1.0 - tolerances.CAPACITY
    place = np.where(whole, fraction.argmax(axis=1), -1)
    split = np.flatnonzero(~whole)
    left = np.ones((len(instance.nodes) - nodes, size.shape[1]))
    extra = np.full(split.size, -1, dtype=np.int64)
    order = sort_order(size[split], SUM, False, np.arange(size.shape[1]))
    if split.size and not pack_first_fit(size[split], order, left, tolerances.CAPACITY, False, extra):
        return None
    place[split] = nodes + extra
    # The solver lets a row be passed by more than we do.
    return Packed(place=place, nodes=nodes, split=split.size) if placement_yield(instance, place) >= 0 else None


def _basic_solution(size: Floats, nodes: int) -> Floats | None:
    """(T, `nodes`) share of each task on each node: a vertex of the relaxed packing, or None where there is none."""
    tasks, dims = size.shape
    program = LinearProgram("vector packing at a fixed yield")
    shape = (tasks, nodes)
    x = program.add_columns(np.zeros(shape), np.ones(shape), np.zeros(shape))
    program.add_rows(np.arange(tasks) * nodes, x.ravel(), np.ones(x.size), lower=1.0, upper=1.0)
    for d in range(dims):
        who = np.flatnonzero(size[:, d] > 0)
        if who.size:
            program.add_rows(np.arange(nodes) * who.size, x[who].T.ravel(), np.tile(size[who, d], nodes), upper=1.0)
    solution = program.maximize()
    return solution.values[x] if solution.status == SolverStatus.OPTIMAL else None
