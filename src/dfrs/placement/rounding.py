"""RRND, RRNDNZ, FASTDIVING and SLOWDIVING: integers from a vertex of the relaxed program.

Sources: [Stillwell2010] section 4.2.3, [Stillwell2008] section 3.2.

The trivial optimum of the relaxation splits every task evenly, which says nothing about where to put it; a vertex,
as the simplex method finds it, has most tasks on one or two nodes. Which vertex depends on the solver: the
documents used GLPK, and HiGHS ends in another one.
"""

from dataclasses import dataclass
from time import monotonic

import numpy as np

from dfrs.model import tolerances
from dfrs.model.allocation import Outcome
from dfrs.model.errors import InfeasibleError
from dfrs.model.instance import Bools, Floats, Instance, Ints
from dfrs.placement.milp import FRACTIONS_DO_NOT_FIT, YieldProgram
from dfrs.placement.outcome import found, infeasible, placement_yield
from dfrs.placement.solver import Method, Solution, SolverStatus

EPSILON = 0.01
"""What RRNDNZ puts in the place of a probability of zero ([Stillwell2010] section 4.2.3)."""

START: Method = "primal"
"""For the first vertex: what GLPK does unless told otherwise, and faster here than the dual simplex."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomizedRounding:
    """RRND, or with `nonzero` RRNDNZ (in [Stillwell2008] RRNZ): task i to node n with probability e[i, n].

    RRNDNZ has EPSILON in the place of 0.

    Tasks are placed in the order of submission; a node without room for the task's requirements is left out and
    the other probabilities scaled up. `time_limit_s` bounds the time for the relaxed program.
    """

    nonzero: bool = False
    time_limit_s: float | None = None

    def __call__(self, instance: Instance, rng: np.random.Generator, /) -> Outcome:
        """Place every task; NOT_FOUND where one has no node of positive probability left, or time was up."""
        program = YieldProgram(instance)
        solution = program.maximize(self.time_limit_s, START)
        if solution.status != SolverStatus.OPTIMAL:
            return _without_vertex(instance, solution)
        chance = program.assignment(solution.values)
        # What the solver's arithmetic leaves above zero is no probability.
        chance[chance <= tolerances.CAPACITY] = EPSILON if self.nonzero else 0.0
        place = round_off(instance, chance, rng)
        return found(instance, place, details={"relaxation": solution.objective})


def round_off(instance: Instance, chance: Floats, rng: np.random.Generator) -> Ints | None:
    """A placement (T,) drawn task by task from `chance` (T, N) among the nodes with room, or None."""
    room = instance.capacity + tolerances.CAPACITY
    place = np.full(len(instance.need), -1, dtype=np.int64)
    for i, base in enumerate(instance.base):
        open_to_it = np.where((base <= room).all(axis=1), chance[i], 0.0)
        total = float(open_to_it.sum())
        if total <= 0.0:
            return None
        place[i] = rng.choice(open_to_it.size, p=open_to_it / total)
        room[place[i]] -= base
    return place


@dataclass(frozen=True, slots=True, kw_only=True)
class Diving:
    """FASTDIVING, and SLOWDIVING with `slow`: fix what is nearest to an integer, solve again, until all is fixed.

    FASTDIVING fixes all e of the task with the largest e, SLOWDIVING the one e nearest to 0 or 1. What is integral
    in the present vertex is fixed without a solve of its own: the vertex stays feasible, and so optimal.
    `time_limit_s` bounds the whole dive.
    """

    slow: bool = False
    time_limit_s: float | None = None

    def __call__(self, instance: Instance, _rng: np.random.Generator | None = None, /) -> Outcome:
        """Dive; NOT_FOUND where what is fixed leaves the program without a solution, or time was up."""
        started = monotonic()
        program = YieldProgram(instance)
        solution = program.maximize(self.time_limit_s, START)
        if solution.status != SolverStatus.OPTIMAL:
            return _without_vertex(instance, solution)
        details: dict[str, object] = {"relaxation": solution.objective}
        free = np.ones(program.e.shape, dtype=np.bool_)
        settle = _nearest_variable if self.slow else _nearest_task
        solves = 1
        while True:
            e = program.assignment(solution.values)
            fixed, target = settle(e, free)
            free &= ~fixed
            if not free.any():
                break
            program.set_bounds(program.e[fixed], target[fixed], target[fixed])
            if self.slow:
                # With all zeros fixed little is left: presolve finds it sooner than the large basis is mended.
                program.forget()
            left = None if self.time_limit_s is None else max(0.0, self.time_limit_s - (monotonic() - started))
            solution = program.maximize(left)
            solves += 1
            if solution.status != SolverStatus.OPTIMAL:
                return found(instance, None, details=details | {"solves": solves, "end": str(solution.status)})
        place = e.argmax(axis=1)
        # The solver lets a row be passed by more than we do.
        feasible = placement_yield(instance, place) >= 0
        return found(instance, place if feasible else None, details=details | {"solves": solves})


def _nearest_task(e: Floats, free: Bools) -> tuple[Bools, Floats]:
    """FASTDIVING's choice: which of `e` (T, N) to fix, and at what, given which are still `free`."""
    target = np.zeros(e.shape)
    target[np.arange(len(e)), e.argmax(axis=1)] = 1.0
    largest = np.where(free.any(axis=1), e.max(axis=1), -1.0)
    chosen = largest >= 1.0 - tolerances.CAPACITY
    split = np.where(chosen, -1.0, largest)
    if split.max() >= 0.0:
        chosen[split.argmax()] = True
    return free & chosen[:, None], target


def _nearest_variable(e: Floats, free: Bools) -> tuple[Bools, Floats]:
    """SLOWDIVING's choice: which of `e` (T, N) to fix, and at what, given which are still `free`."""
    distance = np.where(free, np.minimum(e, 1.0 - e), np.inf)
    fixed = distance <= tolerances.CAPACITY
    distance[fixed] = np.inf
    nearest = np.unravel_index(distance.argmin(), e.shape)
    if np.isfinite(distance[nearest]):
        fixed[nearest] = True
    return fixed, np.round(e)


def _without_vertex(instance: Instance, solution: Solution) -> Outcome:
    if solution.status == SolverStatus.INFEASIBLE:
        return infeasible(InfeasibleError(FRACTIONS_DO_NOT_FIT))
    return found(instance, None, details={"end": str(solution.status)})
