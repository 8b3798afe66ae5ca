"""Where nodes hold few tasks: sets of tasks instead of fractions of them, for a bound and for placements near it.

At a fixed yield, a placement chooses for each node one of the sets of tasks that fit there. Where the relaxation of
that (`set_relaxation`) has no solution, there is no placement. This is checked on nodes larger by FORGIVEN, so that no
tolerance of the linear program matters: whatever worths satisfy (*) there are a proof. The yield is bisected. Then the
sets worth nearly the most, under the worths of the last proof, are what placements close to the bound are made of: a
mixed-integer program chooses among KEPT of them, or `set_diving` fixes one set after the other.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from dfrs.kernels.set_pricing import price_sets
from dfrs.model.instance import Floats, Instance, Ints
from dfrs.placement.set_relaxation import FORGIVEN, MARGIN, TRIALS, WIDEST, Deadline, NodeSet, Relaxation, highest
from dfrs.placement.solver import LinearProgram, SolverStatus

STEP = 9e-7
"""The first yield above that of a known placement: so far apart, FORGIVEN decides nothing."""
WIDTH = 1e-4
"""Bisection ends at this part of the bound."""
FULL_TRIALS = 200_000_000
"""Of enumerating the sets that fill a node: as many as there are sets of three of a thousand tasks."""
FULL = 1e-7
"""Part of a resource's capacity that may be left over where nodes are called full."""
KEPT = 2_500
"""Sets of each kind of node in the mixed-integer program, and the room for those looked at."""
ROOM = 30_000
MOST_FAILURES = 3
"""Yields without a placement, one after the other, before it is left at that."""
LONGEST_S = 10.0
"""Of one dive, or mixed-integer program."""


@dataclass(kw_only=True, eq=False)
class SetPacking:
    """Sets of tasks known so far, and the bound that they prove: no placement has a minimum yield above `bound`."""

    instance: Instance
    bound: float
    deadline: Deadline = field(default_factory=Deadline)
    """What is proven by then counts."""
    capacity: Floats = field(init=False)
    """(K, D) of each kind of node."""
    kind: Ints = field(init=False)
    """(N,) of each node."""
    nodes: Ints = field(init=False)
    """(K,) how many there are of each kind."""
    _worth: Floats | None = None
    _sets: list[NodeSet] = field(default_factory=list[NodeSet])
    _known: set[tuple[int, ...]] = field(default_factory=set[tuple[int, ...]])

    def __post_init__(self) -> None:
        self.capacity, kind = np.unique(self.instance.capacity, axis=0, return_inverse=True)
        self.kind = kind.reshape(-1)
        self.nodes = np.bincount(self.kind)
        self.add((k, np.array([i])) for i in range(len(self.instance.need)) for k in range(len(self.capacity)))

    def size(self, target: float) -> Floats:
        """(T, D) of the tasks at yield `target`."""
        return self.instance.base + target * self.instance.slope

    def add(self, sets: Iterable[NodeSet]) -> None:
        """Know these sets."""
        for k, members in sets:
            key = (k, *sorted(members.tolist()))
            if key not in self._known:
                self._known.add(key)
                self._sets.append((k, members))

    def offer(self, place: Ints) -> None:
        """Know the sets of a placement (T,)."""
        self.add((int(self.kind[n]), np.flatnonzero(place == n)) for n in np.unique(place))

    def place_on_nodes(self, sets: Iterable[NodeSet]) -> Ints:
        """(T,) each set on a node of its kind; -1 for tasks in none."""
        place = np.full(len(self.instance.need), -1, dtype=np.int64)
        free = [np.flatnonzero(self.kind == k).tolist() for k in range(len(self.nodes))]
        for k, members in sets:
            place[members] = free[k].pop()
        return place

    def tighten(self, value: float) -> float:
        """Lower the bound as far as the relaxation does, but not below `value` (of a known placement, or -1) + STEP."""
        low = max(value + STEP, 0.0)
        target = low + 0.02 * (self.bound - low)
        if value < 0 and not self.deadline.over:
            self.disprove(0.0, 0.0)
        # Where no size depends on the yield, neither does the answer.
        while self.instance.slope.any() and not self.deadline.over and self.bound - low > WIDTH * self.bound:
            if not self.disprove(target, low):
                low = target
            target = 0.5 * (low + self.bound)
        return self.bound

    def disprove(self, target: float, low: float) -> bool:
        """Whether no placement has yield `target`, by proof; then the bound is that, or nearer to `low`: -1 at 0."""
        if not self.impossible(target):
            return False
        self.bound = target if target > 0.0 else -1.0
        self._slide(low)
        return True

    def impossible(self, target: float, *, nearest: bool = False) -> bool:
        """Whether no placement has yield `target`, by proof: not where the relaxation has it, or time is over.

        `nearest`: then go on to the worths that come nearest to a proof, on nodes with sets worth 1 on the average.
        """
        relaxation = Relaxation(self.size(target), self.capacity, self.nodes, self.fitting(target), nearest=nearest)
        covered = relaxation.solve(self.deadline, self._worth)
        self.add(relaxation.sets)
        if relaxation.worth is not None:
            self._worth = relaxation.worth
        return covered is False

    def place_at(self, target: float, deadline: Deadline) -> tuple[Ints | None, bool]:
        """A placement (T,) of yield `target` from the sets worth the most; or None, and whether none exists."""
        if self._worth is None:
            self.impossible(target, nearest=True)
        if self._worth is None:
            return None, False
        # Every task must be in some set: none is worth nothing here.
        worth = self._worth + 1e-5
        most, sure = self._highest(target, worth)
        slack = float(self.nodes @ most - worth.sum())
        if slack < -MARGIN:
            return None, sure
        chosen, complete = self._near(target, worth, most, slack, TRIALS)
        complete &= sure
        known = {(k, *sorted(s.tolist())) for k, s in chosen}
        chosen += [(k, s) for k, s in self.fitting(target) if (k, *sorted(s.tolist())) not in known]
        return self._choose(chosen, complete, deadline)

    def place_full(self, deadline: Deadline) -> tuple[Ints | None, bool]:
        """A placement at yield 0 where requirements fill some resources to the last; or None, and whether none exists.

        Then every node must be full of these, and few sets do that: a task is worth what it requires of them.
        """
        total, used = self.instance.capacity.sum(axis=0), self.instance.base.sum(axis=0)
        full = (used >= (1.0 - FULL) * total) & (total > 0)
        if not full.any():
            return None, False
        scale = np.where(full, len(self.instance.nodes) / total.clip(1e-300), 0.0) / full.sum()
        worth, most = self.instance.base @ scale, self.capacity @ scale
        slack = float(self.nodes @ most - worth.sum())
        if slack < -MARGIN:
            return None, True
        chosen, complete = self._near(0.0, worth, most + 1e-9, max(slack, 0.0), FULL_TRIALS)
        # A task that requires nothing of these is worth nothing: it is in no set, and must be.
        complete &= bool((worth > 0.0).all())
        return self._choose(chosen, complete, deadline) if chosen else (None, complete)

    def _near(
        self, target: float, worth: Floats, most: Floats, slack: float, trials: int
    ) -> tuple[list[NodeSet], bool]:
        """KEPT sets of each kind whose worth is nearest to the highest; whether a placement can have no others.

        Together the nodes' sets are short of their highest worths by `slack`: no set can be short by more than that.
        """
        size = self.size(target)
        sets, length = np.empty((ROOM, WIDEST), dtype=np.int64), np.empty(ROOM, dtype=np.int64)
        value = np.empty(ROOM)
        chosen: list[NodeSet] = []
        complete = True
        for k, capacity in enumerate(self.capacity):
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

    def _choose(self, sets: list[NodeSet], complete: bool, deadline: Deadline) -> tuple[Ints | None, bool]:
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
            program.add_row(x[who], np.ones(who.size), upper=float(self.nodes[k]))
        solution = program.maximize(deadline.left_s)
        if not solution.known:
            return None, complete and solution.status == SolverStatus.INFEASIBLE
        return self.place_on_nodes(sets[s] for s in np.flatnonzero(solution.values[x] > 0.5)), False

    def _slide(self, low: float) -> None:
        """Lower the bound as far as the worths of its proof are one."""
        high = self.bound
        while self._worth is not None and not self.deadline.over and high - low > WIDTH * high:
            target = 0.5 * (low + high)
            if self._excess(target, self._worth) > MARGIN:
                self.bound = high = target
            else:
                low = target

    def _excess(self, target: float, worth: Floats) -> float:
        """By how much (*) holds; minus infinity where that is not known."""
        most, sure = self._highest(target, worth)
        return float(worth.sum() - self.nodes @ most) if sure else -np.inf

    def _highest(self, target: float, worth: Floats) -> tuple[Floats, bool]:
        """(K,) the highest worth of a set that fits, rounded up, and whether all were looked at."""
        return highest(self.size(target), self.capacity, self.nodes, worth, self.fitting(target))[:2]

    def fitting(self, target: float) -> list[NodeSet]:
        """Which of the known sets fit at yield `target`."""
        flat = np.concatenate([members for _, members in self._sets])
        counts = np.array([len(members) for _, members in self._sets])
        load = np.add.reduceat(self.size(target)[flat], np.concatenate(([0], np.cumsum(counts)[:-1])), axis=0)
        fits = np.all(load <= self.capacity[[k for k, _ in self._sets]] + FORGIVEN, axis=1)
        return [self._sets[s] for s in np.flatnonzero(fits)]
