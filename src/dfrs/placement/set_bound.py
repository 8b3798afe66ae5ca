"""Where nodes hold few tasks: sets of tasks instead of fractions of them, for a bound and for placements near it.

At a fixed yield Y, a placement chooses for each node one of the sets of tasks that fit there. With P(k) the sets that
fit on a node of kind k, of which there are N(k), and x[S] how many nodes have set S, its relaxation is

    for each task i: the sum over S with i of x[S] is at least 1;  for each k: the sum over S in P(k) is at most N(k),

for bins of one size that of Gilmore and Gomory (1961). It has no solution, and there is no placement at Y, where there
are worths w[i] of at least 0 with

    sum over i of w[i]  >  sum over k of N(k) * max over S in P(k) of the worth of S                               (*)

Worths come from the linear program dual to the relaxation over the sets known so far; `price_sets` finds the maxima,
and the sets that have them are added. (*) is checked with those maxima, on nodes larger by FORGIVEN, so that no
tolerance of the linear program matters: whatever worths satisfy it are a proof. The yield is bisected. Then the sets
worth nearly the most, under the worths of the last proof, are what placements close to the bound are made of: a
mixed-integer program chooses among KEPT of them.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dfrs.kernels.set_pricing import price_sets
from dfrs.model.instance import Bools, Floats, Instance, Ints
from dfrs.placement.solver import LinearProgram, SolverStatus

FORGIVEN = 1e-8
"""How far a set may pass a capacity: more than evaluating a placement forgives."""
MARGIN = 1e-7
"""By how much (*) must hold, of worths of at most 1: more than the rounding of its sums."""
STEP = 9e-7
"""The first yield above that of a known placement: so far apart, FORGIVEN decides nothing."""
WIDTH = 1e-4
"""Bisection ends at this part of the bound."""
TRIALS = 10_000_000
"""Of one pricing; where that is not enough, nodes hold too many tasks for this bound."""
FULL_TRIALS = 200_000_000
"""Of enumerating the sets that fill a node: as many as there are sets of three of a thousand tasks."""
FULL = 1e-7
"""Part of a resource's capacity that may be left over where nodes are called full."""
WIDEST = 16
"""Tasks in a set that is kept."""
KEPT = 2_500
"""Sets of each kind of node in the mixed-integer program, and the room for those looked at."""
ROOM = 30_000
SMOOTHING = 0.6
"""Part of the best worths so far in those that are priced: the linear program's alone swing between vertices."""
MOST_FAILURES = 3
"""Mixed-integer programs without an answer, one after the other, before it is left at that."""
LONGEST_S = 2.0
"""Of one mixed-integer program."""


@dataclass(kw_only=True, eq=False)
class SetPacking:
    """Sets of tasks known so far, and the bound that they prove: no placement has a minimum yield above `bound`."""

    instance: Instance
    bound: float
    deadline_s: float = np.inf
    """On the clock of `time.perf_counter`; what is proven by then counts."""
    _worth: Floats | None = None
    _sets: list[tuple[int, Ints]] = field(default_factory=list[tuple[int, Ints]])
    _known: set[tuple[int, ...]] = field(default_factory=set[tuple[int, ...]])

    def __post_init__(self) -> None:
        capacity, kind = np.unique(self.instance.capacity, axis=0, return_inverse=True)
        self._capacity, self._kind = capacity, kind.reshape(-1)
        self._nodes = np.bincount(self._kind)
        for i in range(len(self.instance.need)):
            for k in range(len(capacity)):
                self._add(k, np.array([i]))

    @property
    def over(self) -> bool:
        """Whether time is over."""
        return time.perf_counter() >= self.deadline_s

    def _left_s(self) -> float | None:
        left = self.deadline_s - time.perf_counter()
        return None if np.isinf(left) else max(0.0, left)

    def offer(self, place: Ints) -> None:
        """Know the sets of a placement (T,)."""
        for n in np.unique(place):
            self._add(int(self._kind[n]), np.flatnonzero(place == n))

    def tighten(self, value: float) -> float:
        """Lower the bound as far as the relaxation does, but not below `value` (of a known placement, or -1) + STEP."""
        low = max(value + STEP, 0.0)
        target = low + 0.02 * (self.bound - low)
        if value < 0 and not self.over and self.impossible(0.0):
            self.bound = -1.0
        # Where no size depends on the yield, neither does the answer.
        while self.instance.slope.any() and not self.over and self.bound - low > WIDTH * self.bound:
            if self.impossible(target):
                self.bound = target
                self._slide(low)
            else:
                low = target
            target = 0.5 * (low + self.bound)
        if self._worth is None and not self.over and self.bound >= 0:
            self.impossible(max(value, 0.0), nearest=True)
        return self.bound

    def impossible(self, target: float, *, nearest: bool = False) -> bool:
        """Whether no placement has yield `target`, by proof: not where the relaxation has it, or time is over.

        `nearest`: then go on to the worths that come nearest to a proof, on nodes with sets worth 1 on the average.
        """
        tasks, kinds = len(self.instance.need), len(self._nodes)
        program = LinearProgram("worths of tasks", 1e-9)
        worth = program.add_columns(np.zeros(tasks), np.ones(tasks), np.ones(tasks))
        most = program.add_columns(np.zeros(kinds), np.full(kinds, float(tasks)), -self._nodes.astype(float))
        self._limit(program, worth, most, np.flatnonzero(self._fitting(target)))
        if nearest:
            total = float(self._nodes.sum())
            program.add_row(most, self._nodes.astype(float), lower=total, upper=total)
        centre, best = self._worth, -np.inf
        if centre is None:
            # Large tasks are worth more: not so bad a guess, where all of equal worth is the worst.
            centre = (self.instance.base + target * self.instance.slope).dot(
                1.0 / self._capacity.max(axis=0).clip(1e-12)
            )
            centre /= max(centre.max(), 1e-12)
        while not self.over:
            solution = program.maximize(self._left_s())
            if not solution.known or (solution.objective <= MARGIN and not nearest):
                return False
            exact = np.clip(solution.values[worth], 0.0, 1.0)
            trials = [SMOOTHING * centre + (1.0 - SMOOTHING) * exact, exact]
            progress = False
            for trial in trials:
                before = len(self._sets)
                excess = self._excess(target, trial, add=True)
                if excess > best:
                    best, centre = excess, trial
                if excess > MARGIN:
                    self._worth = trial
                    return True
                new = range(before, len(self._sets))
                self._limit(program, worth, most, new)
                progress = any(
                    exact[self._sets[s][1]].sum() > solution.values[most[self._sets[s][0]]] + 1e-9 for s in new
                )
                if progress or self.over:
                    break
            if nearest:
                self._worth = centre
            if not progress:
                return False
        return False

    def place_at(self, target: float, time_limit_s: float) -> tuple[Ints | None, bool]:
        """A placement (T,) of yield `target` from the sets worth the most; or None, and whether none exists."""
        if self._worth is None:
            return None, False
        # Every task must be in some set: none is worth nothing here.
        worth = self._worth + 1e-5
        most, sure = self._highest(target, worth, add=False)
        slack = float(self._nodes @ most - worth.sum())
        if slack < -MARGIN:
            return None, sure
        chosen, complete = self._near(target, worth, most, slack, TRIALS)
        complete &= sure
        known = {(k, *sorted(s.tolist())) for k, s in chosen}
        fits = self._fitting(target)
        chosen += [
            (k, s)
            for (k, s), fit in zip(self._sets, fits, strict=True)
            if fit and (k, *sorted(s.tolist())) not in known
        ]
        return self._choose(chosen, complete, time_limit_s)

    def place_full(self, time_limit_s: float) -> tuple[Ints | None, bool]:
        """A placement at yield 0 where requirements fill some resources to the last; or None, and whether none exists.

        Then every node must be full of these, and few sets do that: a task is worth what it requires of them.
        """
        total, used = self.instance.capacity.sum(axis=0), self.instance.base.sum(axis=0)
        full = (used >= (1.0 - FULL) * total) & (total > 0)
        if not full.any():
            return None, False
        scale = np.where(full, len(self.instance.nodes) / total.clip(1e-300), 0.0) / full.sum()
        worth, most = self.instance.base @ scale, self._capacity @ scale
        slack = float(self._nodes @ most - worth.sum())
        if slack < -MARGIN:
            return None, True
        chosen, complete = self._near(0.0, worth, most + 1e-9, max(slack, 0.0), FULL_TRIALS)
        # A task that requires nothing of these is worth nothing: it is in no set, and must be.
        complete &= bool((worth > 0.0).all())
        return self._choose(chosen, complete, time_limit_s) if chosen else (None, complete)

    def _near(
        self, target: float, worth: Floats, most: Floats, slack: float, trials: int
    ) -> tuple[list[tuple[int, Ints]], bool]:
        """KEPT sets of each kind whose worth is nearest to the highest; whether a placement can have no others.

        Together the nodes' sets are short of their highest worths by `slack`: no set can be short by more than that.
        """
        size = self.instance.base + target * self.instance.slope
        sets, length = np.empty((ROOM, WIDEST), dtype=np.int64), np.empty(ROOM, dtype=np.int64)
        value = np.empty(ROOM)
        chosen: list[tuple[int, Ints]] = []
        complete = True
        for k, capacity in enumerate(self._capacity):
            short = slack + 1e-6
            while True:
                found, all_seen = price_sets(
                    size, capacity + FORGIVEN, worth, most[k] - short, True, trials, sets, length, value
                )
                complete &= all_seen
                if found < ROOM or short < 1e-9:
                    break
                short *= 0.5
            complete &= found <= KEPT and bool((length[:found] > 0).all())
            chosen += [(k, sets[r, : length[r]].copy()) for r in np.argsort(-value[:found])[:KEPT] if length[r]]
        return chosen, complete

    def _choose(self, sets: list[tuple[int, Ints]], complete: bool, time_limit_s: float) -> tuple[Ints | None, bool]:
        """Nodes for sets so that every task is in one, by HiGHS."""
        tasks = len(self.instance.need)
        kinds = np.array([k for k, _ in sets])
        flat = np.concatenate([s for _, s in sets])
        of = np.repeat(np.arange(len(sets)), [len(s) for _, s in sets])
        counts = np.bincount(flat, minlength=tasks)
        if (counts == 0).any():
            return None, complete
        program = LinearProgram("sets of tasks")
        x = program.add_columns(np.zeros(len(sets)), np.ones(len(sets)), np.zeros(len(sets)), integer=True)
        start = np.concatenate(([0], np.cumsum(counts)[:-1]))
        program.add_rows(start, x[of[np.argsort(flat, kind="stable")]], np.ones(flat.size), lower=1.0)
        for k in np.unique(kinds):
            who = np.flatnonzero(kinds == k)
            program.add_row(x[who], np.ones(who.size), upper=float(self._nodes[k]))
        solution = program.maximize(max(0.0, time_limit_s))
        if not solution.known:
            return None, complete and solution.status == SolverStatus.INFEASIBLE
        place = np.full(tasks, -1, dtype=np.int64)
        free = [np.flatnonzero(self._kind == k).tolist() for k in range(len(self._nodes))]
        for s in np.flatnonzero(solution.values[x] > 0.5):
            k, members = sets[s]
            place[members] = free[k].pop()
        return place, False

    def _slide(self, low: float) -> None:
        """Lower the bound as far as the worths of its proof are one."""
        high = self.bound
        while self._worth is not None and not self.over and high - low > WIDTH * high:
            target = 0.5 * (low + high)
            if self._excess(target, self._worth, add=False) > MARGIN:
                self.bound = high = target
            else:
                low = target

    def _excess(self, target: float, worth: Floats, *, add: bool) -> float:
        """By how much (*) holds; minus infinity where that is not known."""
        most, sure = self._highest(target, worth, add=add)
        return float(worth.sum() - self._nodes @ most) if sure else -np.inf

    def _highest(self, target: float, worth: Floats, *, add: bool) -> tuple[Floats, bool]:
        """(K,) the highest worth of a set that fits, rounded up, and whether all were looked at.

        `add` the sets worth more than any known one.
        """
        size = self.instance.base + target * self.instance.slope
        tasks = len(worth)
        sets, length = np.empty((tasks, WIDEST), dtype=np.int64), np.empty(tasks, dtype=np.int64)
        value = np.empty(tasks)
        most, sure = np.zeros(len(self._nodes)), True
        fits = self._fitting(target)
        worths = np.add.reduceat(worth[self._flat], self._first)
        np.maximum.at(most, np.array([k for k, _ in self._sets])[fits], worths[fits])
        for k, capacity in enumerate(self._capacity):
            found, complete = price_sets(size, capacity + FORGIVEN, worth, most[k], False, TRIALS, sets, length, value)
            most[k] = max(most[k], value[:found].max(initial=0.0)) + 1e-9
            sure &= complete
            if add:
                for r in np.argsort(-value[:found])[: max(10, 2 * len(self.instance.nodes))]:
                    if length[r]:
                        self._add(k, sets[r, : length[r]].copy())
        return most, sure

    def _fitting(self, target: float) -> Bools:
        """(S,) which of the known sets fit at yield `target`."""
        self._flat = np.concatenate([members for _, members in self._sets])
        counts = np.array([len(members) for _, members in self._sets])
        self._first = np.concatenate(([0], np.cumsum(counts)[:-1]))
        size = self.instance.base + target * self.instance.slope
        load = np.add.reduceat(size[self._flat], self._first, axis=0)
        return np.all(load <= self._capacity[[k for k, _ in self._sets]] + FORGIVEN, axis=1)

    def _add(self, kind: int, members: Ints) -> None:
        key = (kind, *sorted(members.tolist()))
        if key not in self._known:
            self._known.add(key)
            self._sets.append((kind, members))

    def _limit(self, program: LinearProgram, worth: Ints, most: Ints, which: Sequence[int] | Ints) -> None:
        """Rows: no set of `which` is worth more than the most of its kind."""
        if not len(which):
            return
        sets = [self._sets[s] for s in which]
        index = np.concatenate([part for k, members in sets for part in (worth[members], most[k : k + 1])])
        value = np.concatenate([part for _, members in sets for part in (np.ones(len(members)), -np.ones(1))])
        counts = np.array([len(members) + 1 for _, members in sets])
        program.add_rows(np.concatenate(([0], np.cumsum(counts)[:-1])), index, value, upper=0.0)
