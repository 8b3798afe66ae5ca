"""OPT and its relaxation, and OPT from a present placement, as mixed-integer linear programs.

Sources: [Stillwell2010] sections 4.1.2 and 6.2.2, [Stillwell2008] sections 2.5 and 6.1.

Columns are e (T, N), whether a task is on a node, alpha (T, N), its unscaled yield there, and the minimum scaled
yield Y, which is maximised:

    sum over n of e[i, n] = 1                                                                (4.3)
    alpha[i, n] <= e[i, n]                                                                   (4.4)
    sum over i of need[i, d] * (e[i, n] if rigid[i, d] else alpha[i, n]) <= capacity[n, d]   (4.5)
    sum over n of alpha[i, n] >= minimum[i] + Y * (1 - minimum[i])                           (4.6)

All tasks of a service share one yield ([Stillwell2010] equation 4.11), but only the least counts here: it is enough
that every task reaches it, so there is no row for that. Adaptation adds, with `present` the node of each task,

    sum over i, n other than present[i], of cost[i] * e[i, n] <= budget           (6.7; [Stillwell2008] 31)
"""

from dataclasses import dataclass
from itertools import pairwise
from time import monotonic

import numpy as np

from dfrs.kernels.rules import broken
from dfrs.model import tolerances
from dfrs.model.allocation import Outcome
from dfrs.model.errors import InfeasibleError, InputError
from dfrs.model.instance import Bools, Floats, Instance, Ints
from dfrs.placement.bounds import upper_bound
from dfrs.placement.outcome import found, infeasible, placement_yield
from dfrs.placement.packing import best_packing
from dfrs.placement.rule_rows import add_rules
from dfrs.placement.solver import FEASIBILITY, LinearProgram, Solution, SolverStatus

INTEGER_FEASIBILITY = 1e-8
"""How far the solver may pass a row, or an integer, here. Below 1e-9, an epsilon of its own, HiGHS loses optima."""

SYMMETRY_ENTRIES = 4_000_000
"""Above so many entries the rules against symmetry are left out: no program of that size is solved to the end."""

FRACTIONS_DO_NOT_FIT = (
    "infeasible: even tasks cut in fractions do not fit on these nodes; add nodes or lower requirements"
)


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
        top = np.ones(1) if ceiling is None else np.full(1, ceiling)
        self.y = int(self.add_columns(np.zeros(1), top, np.ones(1))[0])
        minimum = instance.minimum_yield[instance.service_of]
        self._place_once()
        if ceiling is None:
            self._yield_where_placed(np.ones(shape[0]), upper=0.0)
        else:
            self._yield_where_placed(minimum + ceiling * (1.0 - minimum), upper=0.0)
            self._yield_where_placed(minimum, lower=0.0)
        self._fit(instance)
        self._reach_minimum(minimum)
        self._domains = [] if instance.rules is None else add_rules(self, self.e, instance.rules.arrays)

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
        for z, members in self._domains:
            values[z] = values[members].max()
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


def relaxation(instance: Instance) -> float:
    """The optimum with tasks in fractions: `lp_bound` for equal nodes, at most that for others ([Stillwell2010] 4.2.3).

    Raises InfeasibleError where even fractions of tasks do not fit.
    """
    solution = YieldProgram(instance).maximize()
    if solution.status == SolverStatus.INFEASIBLE:
        raise InfeasibleError(FRACTIONS_DO_NOT_FIT)
    return solution.objective


@dataclass(frozen=True, slots=True, kw_only=True)
class Exact:
    """OPT: the program 4.1 to 4.6, to the end or for `time_limit_s` seconds.

    HiGHS starts from the best of the 14 vector packings. Interchangeable nodes are taken in the order of their
    first task, and interchangeable tasks in the order of their nodes: among the placements that differ only in
    such names, the lexicographically smallest obeys both rules, so no optimum is lost.
    """

    time_limit_s: float | None = None

    def __call__(self, instance: Instance, _rng: np.random.Generator | None = None, /) -> Outcome:
        """The best placement; INFEASIBLE where it is proven that there is none; what is known where time is up."""
        return _solve(instance, _Moves.free(instance), self.time_limit_s)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AdaptExact:
    """ADAPT_OPT: the best placement within `budget` of moves away from `present` (T,), -1 for tasks on no node.

    `cost` (T,) is what moving each task takes of the budget, in any unit: `Instance.move_cost`, `task_bytes`, or
    ones for a number of moves. New tasks are placed for free. The call raises InputError where an array has the
    wrong shape, a node does not exist, or budget or cost is negative.
    """

    present: Ints
    budget: float
    cost: Floats
    time_limit_s: float | None = None

    def __call__(self, instance: Instance, _rng: np.random.Generator | None = None, /) -> Outcome:
        """As OPT; INFEASIBLE also where no placement is within the budget."""
        moves = _Moves(np.asarray(self.present), np.asarray(self.cost, dtype=np.float64), float(self.budget))
        moves.check(instance)
        return _solve(instance, moves, self.time_limit_s)


@dataclass(frozen=True, slots=True, eq=False)
class _Moves:
    """Where tasks are (-1: nowhere), what moving them costs, and what may be spent."""

    present: Ints
    cost: Floats
    budget: float

    @staticmethod
    def free(instance: Instance) -> "_Moves":
        tasks = len(instance.need)
        return _Moves(np.full(tasks, -1, dtype=np.int64), np.zeros(tasks), np.inf)

    def check(self, instance: Instance) -> None:
        """Raises InputError, naming index, value and rule, where these do not belong to `instance`."""
        tasks, nodes = len(instance.need), len(instance.nodes)
        for label, array in (("present", self.present), ("cost", self.cost)):
            if array.shape != (tasks,):
                raise InputError(f"{label} has shape {array.shape}: must be one value for each of {tasks} tasks")
        wrong = np.flatnonzero((self.present < -1) | (self.present >= nodes))
        if wrong.size:
            raise InputError(f"present[{wrong[0]}] = {self.present[wrong[0]]}: must be a node, 0 to {nodes - 1}, or -1")
        wrong = np.flatnonzero(~(self.cost >= 0) | np.isinf(self.cost))
        if wrong.size:
            raise InputError(f"cost[{wrong[0]}] = {self.cost[wrong[0]]}: must be a finite number of at least 0")
        if not self.budget >= 0:
            raise InputError(f"budget {self.budget}: must be at least 0")

    def moved(self, place: Ints) -> Bools:
        """(T,) which tasks are not where they were."""
        return (self.present >= 0) & (place != self.present)

    def affords(self, place: Ints) -> bool:
        slack = tolerances.CAPACITY * max(self.budget, float(self.cost.max()))
        return float(self.cost[self.moved(place)].sum()) <= self.budget + slack

    def limit(self, program: YieldProgram) -> None:
        """Add equation 6.7, in units of the largest cost."""
        away = np.ones(program.e.shape, dtype=np.bool_)
        here = np.flatnonzero(self.present >= 0)
        away[here, self.present[here]] = False
        away[(self.present < 0) | (self.cost == 0)] = False
        if np.isfinite(self.budget) and away.any():
            unit = float(self.cost.max())
            cost = np.broadcast_to(self.cost[:, None], away.shape)[away]
            program.add_row(program.e[away], cost / unit, upper=self.budget / unit)


@dataclass(frozen=True, slots=True, eq=False)
class _Symmetry:
    """What is interchangeable: classes of nodes, and classes of tasks, both in the order the rules compare them."""

    order: Ints
    nodes: list[Ints]
    tasks: list[Ints]

    @staticmethod
    def of(instance: Instance, moves: _Moves, yield_: float) -> "_Symmetry":
        """Large tasks, at `yield_`, come first: the rules on nodes then bind where it matters.

        Where placement rules tell nodes or tasks apart, none are taken for interchangeable.
        """
        occupied = np.zeros(len(instance.nodes))
        here = np.unique(moves.present[moves.present >= 0])
        occupied[here] = here + 1.0
        size = instance.base + yield_ * instance.slope
        order = np.argsort(-size.max(axis=1), kind="stable")
        if instance.rules is not None and instance.rules.binding:
            each = [np.array([n]) for n in range(len(instance.nodes))]
            return _Symmetry(order=order, nodes=each, tasks=[np.array([i]) for i in order])
        alike = np.column_stack((instance.base, instance.slope, moves.present.astype(np.float64), moves.cost))
        return _Symmetry(
            order=order,
            nodes=_classes(np.column_stack((instance.capacity, occupied)), np.arange(len(occupied))),
            tasks=_classes(alike, order),
        )

    def rule(self, program: YieldProgram) -> None:
        """A task goes to a node only if one before it is on the node before; a task's node is not before its twin's."""
        tasks, nodes = program.e.shape
        if tasks * tasks * nodes > SYMMETRY_ENTRIES:
            return
        row, before = np.tril_indices(tasks)
        start = np.arange(tasks) * (np.arange(tasks) + 1) // 2
        ranked = program.e[self.order]
        value = np.where(before == row, 1.0, -1.0)
        for alike in self.nodes:
            for a, b in pairwise(alike):
                program.add_rows(start, np.where(before == row, ranked[row, b], ranked[before, a]), value, upper=0.0)
        number = np.arange(nodes, dtype=np.float64)
        for alike in self.tasks:
            for i, k in pairwise(alike):
                index = np.concatenate((program.e[i], program.e[k]))
                program.add_row(index, np.concatenate((number, -number)), upper=0.0)

    def canonical(self, place: Ints) -> Ints:
        """The same placement under names that obey the rules."""
        place = place.copy()
        while True:
            before = place.copy()
            for alike in self.tasks:
                place[alike] = np.sort(place[alike])
            name = np.arange(1 + max(int(alike.max()) for alike in self.nodes))
            for alike in self.nodes:
                used = [n for n in dict.fromkeys(place[self.order].tolist()) if n in alike]
                name[used + [n for n in alike if n not in used]] = alike
            place = name[place]
            if (place == before).all():
                return place


def _classes(key: Floats, order: Ints) -> list[Ints]:
    """Indices of equal rows of `key`, each class in `order`; classes of one included."""
    inverse = np.unique(key[order], axis=0, return_inverse=True)[1].ravel()
    return [order[inverse == c] for c in range(int(inverse.max()) + 1)]


def _solve(instance: Instance, moves: _Moves, time_limit_s: float | None) -> Outcome:
    started = monotonic()
    try:
        upper = upper_bound(instance)
    except InfeasibleError as error:
        return infeasible(error)
    start = _start(instance, moves)
    if start is not None and placement_yield(instance, start) >= upper:
        return found(instance, start)
    program = YieldProgram(instance, integer=True, ceiling=upper, tolerance=INTEGER_FEASIBILITY)
    moves.limit(program)
    symmetry = _Symmetry.of(instance, moves, upper)
    symmetry.rule(program)
    if start is not None:
        start = symmetry.canonical(start)
        program.start_from(program.point(instance, start, placement_yield(instance, start)))
    while True:
        left = None if time_limit_s is None else max(0.0, time_limit_s - (monotonic() - started))
        solution = program.maximize(left)
        if not solution.known:
            break
        place = program.assignment(solution.values).argmax(axis=1)
        if not _cut_off(program, instance, moves, place):
            start = _better(instance, [place] if start is None else [place, start])
            break
    return _outcome(instance, start, solution, np.isfinite(moves.budget))


def _start(instance: Instance, moves: _Moves) -> Ints | None:
    """The best placement at hand that the budget allows: staying, or one of the vector packings."""
    packed = best_packing(instance).allocation
    known = [] if packed is None else [packed.place]
    if (moves.present >= 0).all():
        known.append(moves.present)
    return _better(instance, [p for p in known if moves.affords(p) and placement_yield(instance, p) >= 0])


def _better(instance: Instance, places: list[Ints]) -> Ints | None:
    """The best of `places` that keep the rules, the first of equals; None where there is none."""
    rules = instance.rules
    places = [p for p in places if rules is None or broken(rules.arrays, p) == 0]
    return max(places, key=lambda p: placement_yield(instance, p), default=None)


def _cut_off(program: YieldProgram, instance: Instance, moves: _Moves, place: Ints) -> bool:
    """Forbid `place` where it passes a capacity or the budget by less than HiGHS notices; whether it did."""
    cut = False
    for n in np.unique(place):
        tasks = np.flatnonzero(place == n)
        load = instance.base[tasks].sum(axis=0)
        overloads = (instance.capacity - load < -tolerances.CAPACITY).any(axis=1)
        if overloads[n]:
            for other in np.flatnonzero(overloads):
                program.add_row(program.e[tasks, other], np.ones(tasks.size), upper=tasks.size - 1.0)
            cut = True
    if not moves.affords(place):
        tasks = np.flatnonzero(moves.moved(place) & (moves.cost > 0))
        program.add_row(program.e[tasks, moves.present[tasks]], np.ones(tasks.size), lower=1.0)
        cut = True
    return cut


def _outcome(instance: Instance, place: Ints | None, solution: Solution, limited: bool) -> Outcome:
    details = {"end": str(solution.status)}
    if solution.status == SolverStatus.INFEASIBLE:
        if place is not None:
            # A placement is better evidence than the solver's arithmetic.
            return found(instance, place, details=details)
        within = " within the budget for moves" if limited else ""
        return infeasible(InfeasibleError(f"infeasible: no placement{within} meets the requirements (exact search)"))
    # Proof is relative to the solver's tolerance: a value that falls short of its own bound is not called optimal.
    proven = (
        place is not None
        and solution.status == SolverStatus.OPTIMAL
        and placement_yield(instance, place) >= solution.bound - tolerances.CERTIFICATE
    )
    return found(instance, place, bound=solution.bound, optimal=proven, details=details)
