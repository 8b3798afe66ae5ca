"""Which sets of tasks nodes shall have, in fractions, at a fixed yield: sets are priced in until that is known.

With P(k) the sets that fit on a node of kind k, of which there are N(k), and x[S] how many nodes have set S:

    for each task i: the sum over S with i of x[S] is at least 1;  for each k: the sum over S in P(k) is at most N(k),

for bins of one size the relaxation of Gilmore and Gomory (1961). It has no solution where there are worths w[i] with

    sum over i of w[i]  >  sum over k of N(k) * max over S in P(k) of the worth of S.                              (*)

The program solved is the dual one, over the sets known so far: its columns are worths of tasks in [0, 1], and the worth
of the best set of each kind; the duals of its rows, one for each set, are the x.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dfrs.kernels.compiling import compilation
from dfrs.kernels.set_pricing import price_sets
from dfrs.model.instance import Bools, Floats, Ints
from dfrs.placement.solver import LinearProgram

FORGIVEN = 1e-8
"""How far a set may pass a capacity: more than evaluating a placement forgives."""
MARGIN = 1e-7
"""By how much (*) must hold, of worths of at most 1: more than the rounding of its sums."""
TRIALS = 10_000_000
"""Of one pricing; where that is not enough, nodes hold too many tasks for a proof."""
WIDEST = 16
"""Tasks in a set that is kept."""
SMOOTHING = 0.6
"""Part of the best worths so far in those that are priced: the linear program's alone swing between vertices."""

NodeSet = tuple[int, Ints]
"""A kind of node, and tasks that fit there together."""


@dataclass(kw_only=True, eq=False)
class Deadline:
    """By `compilation.clock_s`."""

    at_s: float = np.inf

    @property
    def over(self) -> bool:
        """Whether time is over."""
        return compilation.clock_s() >= self.at_s

    def part(self, share: float, most_s: float) -> "Deadline":
        """An earlier one, after so much of the time left, and no later than in `most_s`."""
        return Deadline(at_s=compilation.clock_s() + min(share * self.left_s, most_s))

    @property
    def left_s(self) -> float:
        """Seconds left."""
        return max(0.0, self.at_s - compilation.clock_s())


class Relaxation:
    """Tasks of `size` (T, D) on `nodes` (K,) of the kinds with `capacity` (K, D).

    `nearest`: worths that come nearest to (*) where it does not hold, on nodes with sets worth 1 on the average.
    """

    def __init__(
        self, size: Floats, capacity: Floats, nodes: Ints, sets: Iterable[NodeSet], *, nearest: bool = False
    ) -> None:
        tasks, kinds = len(size), len(nodes)
        self.size, self.capacity, self.nodes, self.nearest = size, capacity, nodes, nearest
        self.sets: list[NodeSet] = []
        self.worth: Floats | None = None
        """(T,) those of a proof, or the nearest to one."""
        self.fractions = np.zeros(0)
        """(S,) of each of `sets`, how many nodes have it; where all tasks are covered."""
        self._known: set[tuple[int, ...]] = set()
        self._program = LinearProgram("worths of tasks", 1e-9)
        self._worth = self._program.add_columns(np.zeros(tasks), np.ones(tasks), np.ones(tasks))
        self._most = self._program.add_columns(np.zeros(kinds), np.full(kinds, float(tasks)), -nodes.astype(float))
        self._first = int(nearest)
        self._rest = np.ones(tasks)
        # Large tasks are worth more: not so bad a guess, where all of equal worth is the worst.
        relative = size.dot(1.0 / capacity.max(axis=0).clip(1e-12))
        self._guess = relative / max(relative.max(), 1e-12)
        if nearest:
            total = float(nodes.sum())
            self._program.add_row(self._most, nodes.astype(float), lower=total, upper=total)
        self.add(sets)

    def add(self, sets: Iterable[NodeSet]) -> None:
        """Sets that fit; those that are known already are left out."""
        new: list[NodeSet] = []
        for kind, members in sets:
            key = (kind, *sorted(members.tolist()))
            if key not in self._known:
                self._known.add(key)
                new.append((kind, members))
        if new:
            self.sets += new
            # No set is worth more than the most of its kind.
            index = [part for k, members in new for part in (self._worth[members], self._most[k : k + 1])]
            value = [part for _, members in new for part in (np.ones(len(members)), -np.ones(1))]
            counts = np.array([len(members) + 1 for _, members in new])
            start = np.concatenate(([0], np.cumsum(counts)[:-1]))
            self._program.add_rows(start, np.concatenate(index), np.concatenate(value), upper=0.0)

    def restrict(self, rest: Bools, nodes: Ints) -> None:
        """To the tasks of `rest` (T,), on so many `nodes` (K,) of each kind: of sets, what is left of them counts."""
        self.nodes, self._rest = nodes, rest.astype(np.float64)
        self._program.set_bounds(self._worth, np.zeros(len(rest)), self._rest)
        self._program.set_costs(self._most, -nodes.astype(np.float64))

    def solve(self, deadline: Deadline, centre: Floats | None = None, trials: int = TRIALS) -> bool | None:
        """Price sets in until all tasks are covered (True) or (*) holds (False); None where neither is known in time.

        `centre` (T,) are worths to begin with. With `nearest` it is gone on as long as worths come nearer to (*).
        """
        best = -np.inf
        # What is taken out is worth nothing.
        middle = (self._guess if centre is None else centre) * self._rest
        while not deadline.over:
            solution = self._program.maximize(deadline.left_s)
            if not solution.known:
                return None
            if solution.objective <= MARGIN and not self.nearest:
                self.fractions = solution.duals[self._first :]
                return True
            exact, most = np.clip(solution.values[self._worth], 0.0, 1.0), solution.values[self._most]
            progress = False
            for worth in (SMOOTHING * middle + (1.0 - SMOOTHING) * exact, exact):
                before = len(self.sets)
                excess = self._price(worth, trials)
                if excess > best:
                    best, middle = excess, worth
                if excess > MARGIN:
                    self.worth = worth
                    return False
                progress = any(exact[members].sum() > most[kind] + 1e-9 for kind, members in self.sets[before:])
                if progress or deadline.over:
                    break
            if self.nearest:
                self.worth = middle
            if not progress:
                return None
        return None

    def _price(self, worth: Floats, trials: int) -> float:
        """Add the sets worth more than any known one; by how much (*) holds, minus infinity where that is not known."""
        most, sure, sets = highest(self.size, self.capacity, self.nodes, worth, self.sets, trials)
        self.add(sets)
        return float(worth.sum() - self.nodes @ most) if sure else -np.inf


def highest(
    size: Floats, capacity: Floats, nodes: Ints, worth: Floats, known: list[NodeSet], trials: int = TRIALS
) -> tuple[Floats, bool, list[NodeSet]]:
    """(K,) the highest worth of a set that fits, rounded up; whether all were looked at; better ones than are `known`.

    For each task at most one better set for each kind, and of these some for each node.
    """
    tasks = len(worth)
    sets, length = np.empty((tasks, WIDEST), dtype=np.int64), np.empty(tasks, dtype=np.int64)
    value = np.empty(tasks)
    most, sure = np.zeros(len(nodes)), True
    if known:
        flat = np.concatenate([members for _, members in known])
        counts = np.array([len(members) for _, members in known])
        worths = np.add.reduceat(worth[flat], np.concatenate(([0], np.cumsum(counts)[:-1])))
        np.maximum.at(most, np.array([kind for kind, _ in known]), worths)
    better: list[NodeSet] = []
    for k in np.flatnonzero(nodes):
        found, complete = price_sets(size, capacity[k] + FORGIVEN, worth, most[k], False, trials, sets, length, value)
        most[k] = max(most[k], value[:found].max(initial=0.0)) + 1e-9
        sure &= complete
        rows = np.argsort(-value[:found])[: max(10, 2 * int(nodes.sum()))]
        better += [(int(k), sets[r, : length[r]].copy()) for r in rows if length[r]]
    return most, sure, better
