"""Max-min shares are beyond improvement, averages are the best, and no node gives out more than it has."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.kernels import average, convex, shares, simplex
from dfrs.placement.solver import LinearProgram
from dfrs.testing import SnapshotJob, build_snapshot
from tests.cases import Seeded
from tests.naive import compare_policies as compare
from tests.policy_cases import drawn, loads, placed_case

FLOOR = 0.01
HORIZON_S = 600.0
KINDS = ("yield", "weighted", "stretch")
DAYS_S = np.array(
    [
        *(929104.663, 1080245.127, 813432.039, 1112920.516, 1015432.27),
        *(1119150.743, 1131777.822, 1071897.939, 993691.001, 864739.676),
    ]
)
"""Virtual times of a node's jobs that leave little of yields over a horizon of a second."""


def lines_of(case, kind):
    """(base, slope, floor)."""
    if kind == "stretch":
        base, slope = np.empty(case.rows), np.empty(case.rows)
        shares.stretch_objective(case.jobs, case.now_s, HORIZON_S, base, slope)
        return base, slope, FLOOR
    slope = np.ones(case.rows) if kind == "yield" else case.jobs["weight"].copy()
    return np.zeros(case.rows), slope, 0.0


def filled(case, kind, *, one_step=False):
    base, slope, floor = lines_of(case, kind)
    yields = np.full(case.rows, 7.0)
    stop = shares.fill(case.jobs, case.first, case.before, case.capacity, base, slope, floor, one_step, yields)
    return yields, stop


def feasible(case, yields, slack=1e-10):
    where = case.where()
    inside = all(0 <= y <= 1 if r in where else y == 0 for r, y in enumerate(yields))
    return inside and bool((loads(case, case.before, yields) <= case.capacity[:, 0] + slack).all())


def effective_floor(case, floor):
    """Where not even the floor is there for all, it is what the fullest node has for each."""
    wanted = loads(case, case.before, np.ones(case.rows))
    fitting = [c / w for c, w in zip(case.capacity[:, 0].tolist(), wanted.tolist(), strict=True) if w > 0]
    return min([floor, *fitting])


@given(case=drawn(placed_case))
def test_max_min_yields_are_those_of_exact_water_filling(case):
    got, expected = compare.max_min(shares.fill, case)
    assert np.array(got) == pytest.approx(np.array(expected), abs=2e-8)


@pytest.mark.parametrize("kind", KINDS)
@given(case=drawn(placed_case))
def test_every_row_below_one_is_held_by_a_full_node_where_nobody_is_better_off(kind, case):
    """The certificate of max-min fairness: to raise it, someone no better off must be lowered."""
    base, slope, floor = lines_of(case, kind)
    floor = effective_floor(case, floor)
    yields, _ = filled(case, kind)
    assert feasible(case, yields)
    where = case.where()
    used = loads(case, case.before, yields)
    for r, nodes in where.items():
        assert yields[r] >= floor - 1e-12
        if yields[r] > 1 - 1e-9:
            continue
        level = (yields[r] - base[r]) / slope[r]
        full = [n for n in nodes if used[n] >= case.capacity[n, 0] - 1e-9]
        assert any(
            all(yields[q] <= max(floor, base[q] + slope[q] * level) + 1e-9 for q in where if n in where[q])
            for n in full
        )


@pytest.mark.parametrize("kind", KINDS)
@given(case=drawn(placed_case))
def test_one_step_is_the_largest_common_level(kind, case):
    base, slope, floor = lines_of(case, kind)
    floor = effective_floor(case, floor)
    yields, level = filled(case, kind, one_step=True)
    where = case.where()
    if not where:
        return
    assert feasible(case, yields)
    for r in where:
        assert yields[r] == pytest.approx(np.clip(base[r] + slope[r] * level, floor, 1.0), abs=1e-9)
    higher = np.array(
        [np.clip(base[r] + slope[r] * (level + 1e-6), floor, None) if r in where else 0.0 for r in range(case.rows)]
    )
    assert not feasible(case, higher)


@pytest.mark.parametrize(
    ("need", "base", "slope", "floor"),
    [
        ([0.5, 1.0], np.zeros(2), np.array([1.0, 1e-9]), 0.0),
        ([1.0] * len(DAYS_S), -DAYS_S, 10.0 * DAYS_S + 1.0, FLOOR),
    ],
    ids=["weights", "stretch"],
)
def test_no_node_gives_out_more_than_it_has_where_rounding_is_coarse(need, base, slope, floor):
    shot = build_snapshot([SnapshotJob(nodes=[0], need=each, yield_=0.0) for each in need], nodes=1)
    yields = np.empty(len(need))
    shares.fill(shot.jobs, shot.first, shot.task_nodes, shot.capacity, base, slope, floor, False, yields)
    given = float(shot.jobs["need"] @ yields)
    assert given <= 1.0 + 2.0 * shares.OVER
    assert given == pytest.approx(1.0, abs=1e-7)


def slack_rows(case):
    """Sums of needs by node, as a program's rows: for each node (rows, coefficients)."""
    where = case.where()
    for n in range(len(case.capacity)):
        rows = [r for r in where if n in where[r]]
        yield n, np.array(rows, np.int64), np.array([case.jobs["need"][r] * where[r].count(n) for r in rows])


@pytest.mark.parametrize("kind", ["yield", "weighted"])
@given(case=drawn(placed_case))
def test_average_yields_are_those_of_the_linear_program(kind, case):
    base, slope, _ = lines_of(case, kind)
    yields = np.full(case.rows, 7.0)
    average.average_yields(case.jobs, case.first, case.before, case.capacity, base, slope, slope, yields)
    low, _ = filled(case, kind, one_step=True)
    assert feasible(case, yields)
    assert (yields >= low - 1e-9).all()
    program = LinearProgram(name="twin", tolerance=1e-9)
    upper = np.array([1.0 if r in case.where() else 0.0 for r in range(case.rows)])
    program.add_columns(low, upper, slope)
    for n, rows, coefficients in slack_rows(case):
        if len(rows):
            program.add_row(rows, coefficients, upper=float(case.capacity[n, 0]) + 1e-12)
    assert slope @ yields == pytest.approx(program.maximize().objective, abs=1e-6)


@given(case=drawn(placed_case))
def test_average_stretch_is_no_worse_than_max_min_and_keeps_the_least_maximum(case):
    base, slope, floor = lines_of(case, "stretch")
    yields = np.full(case.rows, 7.0)
    average.average_stretch(case.jobs, case.first, case.before, case.capacity, base, slope, floor, yields)
    low, _ = filled(case, "stretch", one_step=True)
    fair, _ = filled(case, "stretch")
    assert feasible(case, yields)
    assert (yields >= low - 1e-9).all()
    placed = sorted(case.where())
    if effective_floor(case, floor) == 0:
        return
    mean, other = (sum(slope[r] / (y[r] - base[r]) for r in placed) for y in (yields, fair))
    assert mean <= other * (1 + 2e-6)


# The programs behind the averages.


@st.composite
def programs(draw, most=12):
    """(matrix, limit, upper): often with many rows that are full at the same point."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows, columns = draw(st.integers(0, most)), draw(st.integers(1, most))
    grain = draw(st.sampled_from([4, 10, 1000]))
    matrix = rng.integers(1, grain + 1, (rows, columns)) / grain * (rng.random((rows, columns)) < 0.4)
    limit = rng.integers(draw(st.integers(0, 1)), grain + 1, rows) / grain
    return matrix, limit, rng.integers(1, grain + 1, columns) / grain


@given(program=programs(), seed=st.integers(0, 9))
def test_the_simplex_reaches_the_optimum(program, seed):
    matrix, limit, upper = program
    cost = np.random.default_rng(seed).choice([1.0, 1.0, 0.5, 2.0], len(upper))
    x = np.empty(len(upper))
    assert simplex.maximize(cost, matrix.copy(), limit, upper, x)
    assert (matrix @ x <= limit + 1e-9).all()
    assert ((x >= 0) & (x <= upper)).all()
    exact = LinearProgram(name="twin", tolerance=1e-9)
    exact.add_columns(np.zeros(len(upper)), upper, cost)
    for row, most in zip(matrix, limit, strict=True):
        exact.add_row(np.arange(len(upper)), row, upper=float(most))
    assert cost @ x == pytest.approx(exact.maximize().objective, abs=1e-7)


@given(program=programs(), seed=st.integers(0, 9))
def test_the_least_sum_of_inverses_has_a_certificate(program, seed):
    matrix, limit, upper = program
    limit = limit + 0.001
    rng = np.random.default_rng(seed)
    cost, offset = np.exp(rng.normal(0, 2, len(upper))), np.exp(rng.normal(-1, 2, len(upper))) + 0.01
    x = np.empty(len(upper))
    bound = convex.minimize_inverse(cost, offset, matrix, limit, upper, x)
    value = (cost / (offset + x)).sum()
    assert (matrix @ x <= limit + 1e-9).all()
    assert ((x >= 0) & (x <= upper)).all()
    assert bound <= value * (1 + 1e-12)
    assert value <= bound * (1 + 2e-6)


@given(program=programs(), seed=st.integers(0, 99))
def test_no_price_makes_the_bound_too_high(program, seed):
    matrix, limit, upper = program
    rng = np.random.default_rng(seed)
    cost, offset = np.exp(rng.normal(0, 2, len(upper))), np.exp(rng.normal(-1, 1, len(upper)))
    price = np.exp(rng.normal(0, 3, len(limit))) * (rng.random(len(limit)) < 0.7)
    x = upper * rng.random(len(upper))
    used = matrix @ x
    x *= min([1.0, *(limit[used > 0] / used[used > 0]).tolist()])
    bound = convex.dual_bound(cost, offset, matrix, limit, upper, price)
    assert bound <= (cost / (offset + x)).sum() * (1 + 1e-12) + 1e-12


@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 12))
def test_cholesky_solves(seed, size):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(size, size))
    matrix, right = root @ root.T + np.eye(size), rng.normal(size=size)
    x = right.copy()
    convex.cholesky_solve(matrix.copy(), x)
    assert matrix @ x == pytest.approx(right, abs=1e-8)


@given(case=drawn(placed_case))
def test_nodes_that_hold_the_same_make_one_constraint(case):
    matrix, limit = np.empty((len(case.capacity), case.rows)), np.empty(len(case.capacity))
    count = average.constraints(
        case.jobs, case.first, case.before, case.capacity, matrix, limit, np.empty(len(case.capacity), np.int64)
    )
    wanted = set()
    for n, rows, coefficients in slack_rows(case):
        if coefficients.sum() > case.capacity[n, 0] + 1e-12:
            row = np.zeros(case.rows)
            row[rows] = coefficients
            wanted.add((*row.round(9).tolist(), float(case.capacity[n, 0])))
    assert {
        (*row.round(9).tolist(), size) for row, size in zip(matrix[:count], limit[:count].tolist(), strict=True)
    } >= wanted
    assert count <= len(wanted) + sum(1 for n, _, c in slack_rows(case) if abs(c.sum() - case.capacity[n, 0]) <= 1e-12)


def test_overfilled_nodes_are_scaled_down():
    case = next(c for c in (placed(seed) for seed in range(100)) if len(c.where()) > 2)
    yields = np.where([r in case.where() for r in range(case.rows)], 1.0, 0.0)
    shares.within_capacity(case.jobs, case.first, case.before, case.capacity, 0.0, yields)
    assert feasible(case, yields)


def placed(seed):
    case = placed_case(Seeded(np.random.default_rng(seed)))
    return replace(case, capacity=np.maximum(case.capacity, 0.5))
