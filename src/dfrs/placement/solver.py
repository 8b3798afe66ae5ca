"""The one door to HiGHS: every linear and mixed-integer program of ours is built and solved here.

The documents used GLPK ([Stillwell2010] section 4.2.1). Programs are maximised; every column has finite bounds, so none
is unbounded. One thread and a fixed seed: the same program gives the same values.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from threading import Event, Thread
from typing import TYPE_CHECKING, Literal

import numpy as np

from dfrs.kernels.compiling import compilation
from dfrs.model import tolerances
from dfrs.model.errors import DfrsError
from dfrs.model.instance import Floats, Ints

if TYPE_CHECKING:
    import highspy

Method = Literal["dual", "primal", "interior"]

FEASIBILITY = 1e-7
"""How far HiGHS lets a row be passed unless told otherwise: its own default."""

_DUAL, _PRIMAL = 1, 4
_POLL_S = 0.1
_ALL_NODES = 2**31 - 1


class SolverStatus(StrEnum):
    """How a solve ended."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    TIME_LIMIT = "time_limit"
    """Of time, or of nodes; with values where a feasible point was known by then."""


class SolverError(DfrsError):
    """HiGHS gave up for numerical reasons: the message names the program.

    Values many orders of magnitude apart are the usual cause: give needs and capacities in a larger unit.
    """


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """Result of one solve."""

    values: Floats
    """(C,) value of each column; empty where no feasible point is known."""
    duals: Floats
    """(R,) by how much the objective grows with each row's limit; of linear programs solved to the end, else empty."""
    objective: float
    """Of `values`; minus infinity without them."""
    bound: float
    """No feasible point has a larger objective; minus infinity where there is none."""
    status: SolverStatus

    @property
    def known(self) -> bool:
        """Whether there are values."""
        return self.values.size > 0


@dataclass(slots=True)
class _Columns:
    lower: list[Floats] = field(default_factory=list[Floats])
    upper: list[Floats] = field(default_factory=list[Floats])
    cost: list[Floats] = field(default_factory=list[Floats])
    integer: list[Ints] = field(default_factory=list[Ints])


@dataclass(slots=True)
class _Rows:
    start: list[Ints] = field(default_factory=list[Ints])
    index: list[Ints] = field(default_factory=list[Ints])
    value: list[Floats] = field(default_factory=list[Floats])
    lower: list[Floats] = field(default_factory=list[Floats])
    upper: list[Floats] = field(default_factory=list[Floats])
    entries: int = 0


class LinearProgram:
    """A program that grows and is solved again from where the last solve ended.

    `tolerance` is how far a row may be passed. Columns are numbered in the order they are added. Not for use by
    two threads at a time.
    """

    def __init__(self, name: str, tolerance: float = FEASIBILITY) -> None:
        self.name = name
        self.columns = 0
        self._tolerance = tolerance
        self._highs: highspy.Highs | None = None
        self._new_columns = _Columns()
        self._new_rows = _Rows()
        self._integer = False
        self._stop = Event()

    def add_columns(self, lower: Floats, upper: Floats, cost: Floats, integer: bool = False) -> Ints:
        """Add columns with finite bounds and objective `cost`, all of one shape; their numbers, in that shape."""
        first, count = self.columns, lower.size
        self.columns += count
        self._new_columns.lower.append(lower.ravel())
        self._new_columns.upper.append(upper.ravel())
        self._new_columns.cost.append(cost.ravel())
        numbers = np.arange(first, first + count)
        if integer:
            self._new_columns.integer.append(numbers)
            self._integer = True
        return numbers.reshape(lower.shape)

    def add_row(self, index: Ints, value: Floats, lower: float = -np.inf, upper: float = np.inf) -> None:
        """Add the row lower <= sum of value * column[index] <= upper."""
        self.add_rows(np.zeros(1, dtype=np.int64), index, value, np.array([lower]), np.array([upper]))

    def add_rows(
        self,
        start: Ints,
        index: Ints,
        value: Floats,
        lower: Floats | float = -np.inf,
        upper: Floats | float = np.inf,
    ) -> None:
        """Add R rows: row r has the entries from start[r] up to start[r + 1] of `index` and `value`."""
        rows = self._new_rows
        rows.start.append(np.asarray(start) + rows.entries)
        rows.index.append(np.asarray(index))
        rows.value.append(np.asarray(value, dtype=np.float64))
        rows.lower.append(np.broadcast_to(lower, start.shape))
        rows.upper.append(np.broadcast_to(upper, start.shape))
        rows.entries += index.size

    def set_bounds(self, index: Ints, lower: Floats, upper: Floats) -> None:
        """Change the bounds of the columns `index` (K,); the next solve starts from the present basis."""
        highs = self._flush()
        highs.changeColsBounds(index.size, index.astype(np.int32), lower, upper)

    def set_costs(self, index: Ints, cost: Floats) -> None:
        """Change the objective of the columns `index` (K,); the next solve starts from the present basis."""
        highs = self._flush()
        highs.changeColsCost(index.size, index.astype(np.int32), cost)

    def start_from(self, values: Floats) -> None:
        """Give a mixed-integer program a feasible point (C,) to start from; ignored where it is not feasible."""
        highs = self._flush()
        highs.setSolution(values.size, np.arange(values.size, dtype=np.int32), np.asarray(values))

    def forget(self) -> None:
        """Drop the present basis: the next solve starts with presolve, which pays where much is fixed by now."""
        self._flush().clearSolver()

    def maximize(
        self, time_limit_s: float | None = None, method: Method = "dual", nodes: int | None = None
    ) -> Solution:
        """Solve, for at most `time_limit_s` seconds of wall clock, or `nodes` nodes of branch and bound.

        Seconds depend on what else the machine does; with `nodes` the same program always gives the same solution.
        `method` is the simplex by default, whose solution is a vertex; "primal" is the primal simplex, as in
        GLPK; "interior" the interior point method without crossover, whose solution is not a vertex. Raises
        SolverError where HiGHS ends without an answer. Ctrl-C stops HiGHS and is raised as usual; the program is
        then of no more use.
        """
        highs = self._flush()
        highs.setOptionValue("solver", "ipm" if method == "interior" else "simplex")
        highs.setOptionValue("run_crossover", "off")
        if time_limit_s is not None and not self._integer:
            # For linear programs the clock of HiGHS runs on from solve to solve.
            time_limit_s += highs.getRunTime()
        highs.setOptionValue("time_limit", np.inf if time_limit_s is None else time_limit_s)
        highs.setOptionValue("mip_max_nodes", _ALL_NODES if nodes is None else nodes)
        highs.setOptionValue("simplex_strategy", _PRIMAL if method == "primal" else _DUAL)
        _run(highs, self._stop)
        solution = self._read(highs)
        if solution is None:
            # A basis kept from an earlier solve can be a bad start, and the primal simplex is the frailer one.
            highs.clearSolver()
            highs.setOptionValue("simplex_strategy", _DUAL)
            _run(highs, self._stop)
            solution = self._read(highs)
        if solution is None:
            status = highs.modelStatusToString(highs.getModelStatus())
            raise SolverError(
                f"HiGHS ended the program '{self.name}' with status '{status}': "
                "check for needs or capacities many orders of magnitude apart"
            )
        return solution

    def _open(self) -> "highspy.Highs":
        with compilation.loading():
            import highspy  # noqa: PLC0415 - most algorithms and policies solve no program, or only sometimes

        highs = highspy.Highs()
        for option, value in (
            ("output_flag", False),
            ("threads", 1),
            ("parallel", "off"),
            ("random_seed", 0),
            ("mip_rel_gap", 0.0),
            ("mip_abs_gap", tolerances.CAPACITY),
            ("primal_feasibility_tolerance", self._tolerance),
            ("mip_feasibility_tolerance", self._tolerance),
        ):
            highs.setOptionValue(option, value)
        highs.changeObjectiveSense(highspy.ObjSense.kMaximize)
        # The callback must not refer to the solver: HiGHS keeps it where the garbage collector cannot see.
        stop = self._stop

        def check(event: "highspy.HighsCallbackEvent") -> None:
            if stop.is_set():
                event.interrupt()

        highs.cbSimplexInterrupt.subscribe(check)
        highs.cbIpmInterrupt.subscribe(check)
        highs.cbMipInterrupt.subscribe(check)
        return highs

    def _flush(self) -> "highspy.Highs":
        """Hand over what was added since the last solve, all at once: HiGHS copies its matrix on every addition."""
        if self._highs is None:
            self._highs = self._open()
        highs, columns, rows = self._highs, self._new_columns, self._new_rows
        none, nothing = np.zeros(0, dtype=np.int32), np.zeros(0)
        if columns.lower:
            lower, upper = np.concatenate(columns.lower), np.concatenate(columns.upper)
            start = np.zeros(lower.size, dtype=np.int32)
            highs.addCols(lower.size, np.concatenate(columns.cost), lower, upper, 0, start, none, nothing)
            if columns.integer:
                integer = np.concatenate(columns.integer).astype(np.int32)
                highs.changeColsIntegrality(integer.size, integer, np.ones(integer.size, dtype=np.uint8))
            self._new_columns = _Columns()
        if rows.start:
            start = np.concatenate(rows.start).astype(np.int32)
            index, value = np.concatenate(rows.index).astype(np.int32), np.concatenate(rows.value)
            lower, upper = np.concatenate(rows.lower), np.concatenate(rows.upper)
            highs.addRows(start.size, lower, upper, index.size, start, index, value)
            self._new_rows = _Rows()
        return highs

    def _read(self, highs: "highspy.Highs") -> Solution | None:
        """The solution as HiGHS left it, or None where it has no answer."""
        import highspy  # noqa: PLC0415 - as above

        status, info = highs.getModelStatus(), highs.getInfo()
        kinds = highspy.HighsModelStatus
        if status in (kinds.kInfeasible, kinds.kUnboundedOrInfeasible):
            nothing = np.zeros(0)
            return Solution(
                values=nothing, duals=nothing, objective=-np.inf, bound=-np.inf, status=SolverStatus.INFEASIBLE
            )
        if status not in (kinds.kOptimal, kinds.kTimeLimit, kinds.kSolutionLimit):
            return None
        timed_out = status != kinds.kOptimal
        # A linear program cut short is between vertices: its values need not be feasible.
        known = not timed_out or (
            self._integer and info.primal_solution_status == int(highspy.SolutionStatus.kSolutionStatusFeasible)
        )
        objective = float(info.objective_function_value) if known else -np.inf
        bound = objective
        if self._integer:
            bound = float(info.mip_dual_bound)
        elif timed_out:
            bound = np.inf
        found = highs.getSolution()
        return Solution(
            values=np.array(found.col_value) if known else np.zeros(0),
            duals=np.zeros(0) if self._integer or timed_out else np.array(found.row_dual),
            objective=objective,
            bound=bound,
            status=SolverStatus.TIME_LIMIT if timed_out else SolverStatus.OPTIMAL,
        )


def _run(highs: "highspy.Highs", stop: Event) -> None:
    """Solve in a second thread, so that Ctrl-C reaches this one; it sets `stop`, which HiGHS looks at now and then."""
    done = Event()

    def work() -> None:
        try:
            highs.run()
        finally:
            done.set()

    stop.clear()
    Thread(target=work, daemon=True).start()
    # Not Thread.join: interrupted, it takes a running thread for a finished one (Python before 3.13).
    try:
        while not done.wait(_POLL_S):
            pass
    except BaseException:
        stop.set()
        # An impatient second Ctrl-C must not leave HiGHS running in a process that ends.
        while not done.is_set():
            with suppress(KeyboardInterrupt):
                done.wait()
        raise
