"""RRND, RRNDNZ, FASTDIVING and SLOWDIVING: faithful to what the text says they do, and certificates of the result."""

import numpy as np
import pytest

from dfrs.model.allocation import Status
from dfrs.model.errors import InfeasibleError
from dfrs.model.resources import Kind
from dfrs.placement import rounding
from dfrs.placement.bounds import lp_bound, upper_bound
from dfrs.placement.milp import YieldProgram
from dfrs.placement.rounding import EPSILON, START, Diving, RandomizedRounding, round_off
from dfrs.placement.solver import SolverStatus
from dfrs.workloads.services import ServiceScenario, dissertation_instance
from tests.cases import Seeded, make_instance, random_instance

ALL = {
    "RRND": RandomizedRounding(),
    "RRNDNZ": RandomizedRounding(nonzero=True),
    "FASTDIVING": Diving(),
    "SLOWDIVING": Diving(slow=True),
}


def sample(seed, nodes=8, services=24, slack=0.5, rho=0.25, dims=4):
    scenario = ServiceScenario(nodes=nodes, services=services, dims=dims, slack=slack, sigma=0.5, rho=rho)
    return dissertation_instance(scenario, seed)


@pytest.mark.parametrize("algorithm", ALL.values(), ids=ALL)
def test_what_is_placed_fits_and_is_below_the_bound(algorithm, rng):
    placed = 0
    for seed in range(12):
        instance = sample(seed, slack=0.3 + 0.05 * seed)
        outcome = algorithm(instance, rng)
        assert outcome.status in {Status.FEASIBLE, Status.OPTIMAL, Status.NOT_FOUND}
        assert outcome.details["relaxation"] == pytest.approx(lp_bound(instance), abs=1e-7)
        if outcome.allocation is not None:
            placed += 1
            assert outcome.minimum_yield <= lp_bound(instance) + 1e-9
            assert (outcome.allocation.loads(instance) <= instance.capacity + 1e-9).all()
    assert placed >= 3


@pytest.mark.parametrize("algorithm", ALL.values(), ids=ALL)
def test_instances_of_every_kind_are_taken(algorithm, rng):
    """Unequal nodes, services of several tasks, mixed resources, minimum yields of 1."""
    placed = 0
    for seed in range(15):
        instance = random_instance(Seeded(np.random.default_rng(seed)), tasks_per_service=3)
        try:
            upper_bound(instance)
        except InfeasibleError:
            continue
        outcome = algorithm(instance, rng)
        if outcome.allocation is not None:
            placed += 1
            assert (outcome.allocation.loads(instance) <= instance.capacity + 1e-8).all()
    assert placed > 0


@pytest.mark.parametrize("algorithm", ALL.values(), ids=ALL)
def test_the_same_seed_gives_the_same_placement(algorithm):
    instance = sample(3, slack=0.7)
    first, second = (algorithm(instance, np.random.default_rng(5)) for _ in range(2))
    assert first.minimum_yield == second.minimum_yield
    assert first.details == second.details
    if first.allocation is not None:
        assert (first.allocation.place == second.allocation.place).all()


@pytest.mark.parametrize("algorithm", ALL.values(), ids=ALL)
def test_the_time_limit_ends_it_without_a_placement(algorithm, rng):
    instance = sample(1, nodes=32, services=100)
    outcome = type(algorithm)(**{name: getattr(algorithm, name) for name in flags(algorithm)}, time_limit_s=0.0)(
        instance, rng
    )
    assert outcome.status == Status.NOT_FOUND
    assert outcome.details["end"] == SolverStatus.TIME_LIMIT
    assert outcome.bound == pytest.approx(lp_bound(instance))


def flags(algorithm):
    return ["nonzero"] if isinstance(algorithm, RandomizedRounding) else ["slow"]


@pytest.mark.parametrize("algorithm", ALL.values(), ids=ALL)
def test_where_even_fractions_do_not_fit_it_is_proven_infeasible(algorithm, rng):
    instance = make_instance([[0.8, 0.8]] * 2, capacity=[[1.0, 0.6], [0.7, 1.0]], kinds=[Kind.RIGID] * 2)
    assert lp_bound(instance) == 1.0
    outcome = algorithm(instance, rng)
    assert outcome.status == Status.INFEASIBLE
    assert "fractions" in outcome.details["reason"]


def test_the_start_is_a_vertex_and_no_even_split():
    """A basic solution has no more positive values than rows: 4.3, 4.5, 4.6, and 4.4 where it binds."""
    instance = sample(2, services=40)
    program = YieldProgram(instance)
    e = program.assignment(program.maximize(method=START).values)
    tasks, nodes = e.shape
    assert e.sum(axis=1) == pytest.approx(np.ones(tasks))
    assert (e > 1e-9).sum() <= 2 * tasks + nodes * instance.need.shape[1]
    assert (e > 1 - 1e-9).any()
    assert np.median(e.max(axis=1)) > 3 / nodes


def test_tasks_are_drawn_with_their_probabilities_among_the_nodes_with_room(rng):
    instance = make_instance([[0.6, 0.1], [0.6, 0.1]], capacity=np.ones((3, 2)))
    chance = np.array([[1.0, 0.0, 0.0], [0.8, 0.15, 0.05]])
    drawn = np.array([round_off(instance, chance, rng) for _ in range(4_000)])
    assert (drawn[:, 0] == 0).all()
    # The node of the first task has no room left: 0.15 and 0.05 become three quarters and one quarter.
    assert np.bincount(drawn[:, 1], minlength=3) / 4_000 == pytest.approx([0.0, 0.75, 0.25], abs=0.03)


def test_only_requirements_count_against_a_node(rng):
    instance = make_instance([[0.4, 1.0], [0.4, 1.0]], capacity=np.ones((2, 2)))
    chance = np.array([[1.0, 0.0], [1.0, 0.0]])
    assert round_off(instance, chance, rng).tolist() == [0, 0]
    needy = make_instance([[0.4, 1.0], [0.4, 1.0]], capacity=np.ones((2, 2)), minimum_yield=[0.6, 0.6])
    assert round_off(needy, chance, rng) is None


def test_without_zeros_a_task_finds_the_node_that_rounding_missed(monkeypatch):
    """Both tasks are whole on one node that has room for one only."""
    instance = make_instance([[0.6, 0.1], [0.6, 0.1]], capacity=np.ones((2, 2)))
    monkeypatch.setattr(YieldProgram, "assignment", lambda *_: np.array([[1.0, 0.0], [1.0, 0.0]]))
    assert RandomizedRounding()(instance, np.random.default_rng(0)).status == Status.NOT_FOUND
    outcome = RandomizedRounding(nonzero=True)(instance, np.random.default_rng(0))
    assert sorted(outcome.allocation.place.tolist()) == [0, 1]
    assert EPSILON == 0.01


def test_rounding_without_zeros_succeeds_at_least_as_often():
    plain = with_all = 0
    for seed in range(20):
        instance = sample(seed, slack=0.3)
        plain += RandomizedRounding()(instance, np.random.default_rng(seed)).allocation is not None
        with_all += RandomizedRounding(nonzero=True)(instance, np.random.default_rng(seed)).allocation is not None
    assert with_all > plain


def free(shape):
    return np.ones(shape, dtype=np.bool_)


def test_fast_diving_fixes_whole_tasks_and_the_one_with_the_largest_share():
    e = np.array([[0.5, 0.5, 0.0], [0.0, 0.3, 0.7], [0.0, 1.0, 0.0], [0.6, 0.4, 0.0]])
    fixed, target = rounding._nearest_task(e, free(e.shape))
    assert fixed.all(axis=1).tolist() == [False, True, True, False]
    assert fixed.any(axis=1).tolist() == [False, True, True, False]
    assert target[[1, 2]].tolist() == [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    fixed, _ = rounding._nearest_task(e, ~fixed)
    assert fixed.all(axis=1).tolist() == [False, False, False, True]


def test_slow_diving_fixes_integers_and_the_one_variable_nearest_to_one():
    e = np.array([[0.5, 0.5, 0.0], [0.04, 0.06, 0.9], [0.0, 1.0, 0.0]])
    fixed, target = rounding._nearest_variable(e, free(e.shape))
    assert fixed.tolist() == [[False, False, True], [True, False, False], [True, True, True]]
    assert target[fixed].tolist() == [0.0, 0.0, 0.0, 1.0, 0.0]
    fixed, target = rounding._nearest_variable(np.array([[0.02, 0.98]]), np.array([[False, True]]))
    assert fixed.tolist() == [[False, True]]
    assert target[0, 1] == 1.0


@pytest.mark.parametrize("slow", [False, True])
def test_a_dive_never_gains_and_what_it_fixes_stays(slow, monkeypatch):
    """Each solve has more fixed than the one before, so its optimum cannot be higher."""
    objectives, pinned = [], []
    solve, fix = YieldProgram.maximize, YieldProgram.set_bounds

    def recording_solve(self, *args):
        solution = solve(self, *args)
        if solution.known:
            for index, value in pinned:
                assert solution.values[index] == pytest.approx(value, abs=1e-6)
        objectives.append(solution.objective)
        return solution

    def recording_fix(self, index, lower, upper):
        assert (lower == upper).all()
        assert np.isin(lower, (0.0, 1.0)).all()
        pinned.append((index.copy(), lower.copy()))
        fix(self, index, lower, upper)

    monkeypatch.setattr(YieldProgram, "maximize", recording_solve)
    monkeypatch.setattr(YieldProgram, "set_bounds", recording_fix)
    outcome = Diving(slow=slow)(sample(1, slack=0.7))
    assert outcome.details["solves"] == len(objectives) > 2
    assert (np.diff(objectives) <= 1e-7).all()
    if outcome.allocation is not None:
        assert outcome.minimum_yield == pytest.approx(objectives[-1], abs=1e-6)


def test_a_dive_from_an_integral_vertex_is_one_solve():
    instance = make_instance([[0.9, 0.9], [0.9, 0.9]], capacity=np.ones((1, 2)) * 2)
    for algorithm in (Diving(), Diving(slow=True)):
        outcome = algorithm(instance)
        assert outcome.status == Status.OPTIMAL
        assert outcome.details["solves"] == 1
