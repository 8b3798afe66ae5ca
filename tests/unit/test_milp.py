"""OPT, ADAPT_OPT and the programs under them: equal to brute force, above every heuristic, below every bound."""

import signal
import time
from _thread import interrupt_main
from dataclasses import replace
from itertools import product
from threading import Timer

import numpy as np
import pytest

from dfrs.model import tolerances
from dfrs.model.allocation import Status
from dfrs.model.errors import InfeasibleError, InputError
from dfrs.model.resources import Kind
from dfrs.placement import milp
from dfrs.placement.bounds import lp_bound, upper_bound
from dfrs.placement.greedy import greedy_best
from dfrs.placement.milp import AdaptExact, Exact, YieldProgram, relaxation
from dfrs.placement.outcome import placement_yield
from dfrs.placement.packing import VECTOR_PACKINGS, best_packing
from dfrs.placement.rounding import Diving, RandomizedRounding
from dfrs.placement.second_phase import equal_yields, maximize
from dfrs.placement.solver import LinearProgram, SolverStatus
from dfrs.workloads.services import (
    ServiceScenario,
    VirtualClusterScenario,
    dissertation_instance,
    virtual_cluster_instance,
)
from tests.cases import make_instance
from tests.naive.brute import best_placement

EQUAL, UNEQUAL = False, True


def tiny(seed, unequal):
    """At most six tasks on at most three nodes: QoS of every kind, services of several tasks, mixed resources."""
    rng = np.random.default_rng((seed, unequal))
    nodes, dims = int(rng.integers(2, 4)), int(rng.integers(1, 4))
    service_of = np.repeat(np.arange(6), rng.integers(1, 3, 6))[: rng.integers(3, 7)]
    services = int(service_of.max()) + 1
    need = rng.random((services, dims))[service_of] * rng.choice([0.4, 0.7, 1.0])
    rigid = np.tile(np.arange(dims) < dims // 2, (len(need), 1))
    if rng.random() < 0.3:
        rigid = rng.random((services, dims))[service_of] < 0.5
    return make_instance(
        need.round(int(rng.choice([1, 3, 12]))),
        capacity=rng.random((nodes, dims)) + 0.5 if unequal else np.ones((nodes, dims)),
        rigid=rigid,
        minimum_yield=rng.choice([0.0, 0.0, 0.25, 0.5, 1.0], services),
        service_of=service_of,
    )


def small(seed, services=9, **changes):
    scenario = {"nodes": 4, "services": services, "dims": 4, "slack": 0.4, "sigma": 0.5, "rho": 0.25} | changes
    return dissertation_instance(ServiceScenario(**scenario), seed)


def check(outcome, expected):
    if expected is None:
        assert outcome.status == Status.INFEASIBLE
        assert outcome.allocation is None
    else:
        assert outcome.status == Status.OPTIMAL
        assert outcome.minimum_yield == pytest.approx(expected, abs=1e-9)
        assert outcome.bound == outcome.minimum_yield


@pytest.mark.parametrize("unequal", [EQUAL, UNEQUAL])
@pytest.mark.parametrize("seed", range(25))
def test_opt_equals_brute_force(seed, unequal):
    instance = tiny(seed, unequal)
    check(Exact()(instance), best_placement(instance))


@pytest.mark.parametrize("unequal", [EQUAL, UNEQUAL])
@pytest.mark.parametrize("seed", range(20))
def test_adapt_opt_equals_brute_force_within_the_budget(seed, unequal):
    instance = tiny(seed + 100, unequal)
    rng = np.random.default_rng(seed)
    present = rng.integers(-1, len(instance.nodes), len(instance.need))
    cost = rng.choice([0.0, 1.0, 2.5, 0.1], len(present))
    budget = float(rng.random() * cost.sum())
    outcome = AdaptExact(present=present, cost=cost, budget=budget)(instance)
    check(outcome, best_placement(instance, present, cost, budget))


@pytest.mark.parametrize("nodes", [2, 3])
def test_symmetry_loses_no_optimum_where_all_tasks_and_nodes_are_alike(nodes):
    for tasks, need in product(range(2, 7), (0.3, 0.5, 0.8)):
        instance = make_instance([[need, 0.9]] * tasks, capacity=np.ones((nodes, 2)))
        check(Exact()(instance), best_placement(instance))


def test_opt_is_at_least_every_heuristic_and_at_most_the_bound(rng):
    heuristics = [*VECTOR_PACKINGS.values(), greedy_best, RandomizedRounding(nonzero=True), Diving(), Diving(slow=True)]
    for seed in range(6):
        instance = small(seed, dims=2 + 2 * (seed % 2))
        best = Exact()(instance)
        assert best.status == Status.OPTIMAL
        assert best.minimum_yield <= upper_bound(instance) + 1e-9
        assert best.allocation.loads(instance).max() <= 1 + 1e-9
        for heuristic in heuristics:
            value = heuristic(instance, rng).minimum_yield
            assert value is None or value <= best.minimum_yield + 1e-9


def several_tasks(seed):
    scenario = VirtualClusterScenario(nodes=4, tasks=9, slack=0.4, memory_cov=0.5, cpu_cov=0.5, parallel=True)
    return virtual_cluster_instance(scenario, seed)


def test_services_of_several_tasks_share_one_yield():
    instance = several_tasks(3)
    assert (instance.tasks_per_service > 1).any()
    outcome = Exact()(instance)
    assert outcome.status == Status.OPTIMAL
    assert (outcome.allocation.scaled_yields == outcome.minimum_yield).all()
    assert outcome.minimum_yield >= best_packing(instance).minimum_yield


@pytest.mark.parametrize("seed", range(8))
def test_the_relaxation_is_the_closed_form_for_equal_nodes_and_at_most_that_for_others(seed):
    equal = small(seed, nodes=3 + seed, services=20, slack=0.1 + 0.1 * seed)
    assert relaxation(equal) == pytest.approx(lp_bound(equal), abs=1e-7)
    rng = np.random.default_rng(seed)
    unequal = make_instance(equal.need * 0.6, capacity=rng.random(equal.capacity.shape) + 0.5)
    assert relaxation(unequal) <= lp_bound(unequal) + 1e-7


def test_the_relaxation_sees_what_the_closed_form_does_not():
    """One node has the memory, the other the CPU: their sums are not where a task can be."""
    instance = make_instance([[0.5, 1.0], [0.5, 1.0]], capacity=[[1.0, 0.1], [0.1, 1.0]])
    assert lp_bound(instance) == pytest.approx(0.55)
    assert relaxation(instance) < 0.2
    with pytest.raises(InfeasibleError, match="fractions"):
        relaxation(make_instance([[0.8, 0.8]], capacity=[[1.0, 0.1], [0.1, 1.0]], kinds=[Kind.RIGID] * 2))


@pytest.mark.parametrize(
    ("need", "nodes"),
    [([[0.6, 0.1]] * 3, 2), ([[1.2, 0.1]], 2), ([[0.9, 0.1]] * 3, 2), ([[0.6, 0.1], [0.6, 0.1], [0.55, 0.1]], 2)],
)
def test_an_instance_without_a_placement_is_proven_infeasible(need, nodes):
    outcome = Exact()(make_instance(need, capacity=np.ones((nodes, 2))))
    assert outcome.status == Status.INFEASIBLE
    assert outcome.details["reason"].startswith("infeasible: ")


def test_what_passes_a_capacity_by_less_than_the_solver_notices_is_cut_off():
    excess = 1.1 * tolerances.CAPACITY
    instance = make_instance([[0.5, 0.5], [0.5 + excess, 0.5], [0.7, 1.0]], capacity=np.ones((2, 2)))
    check(Exact()(instance), None)
    program, moves = YieldProgram(instance, integer=True, tolerance=1e-8), milp._Moves.free(instance)
    point = program.point(instance, np.array([0, 0, 1]), 1.0)
    program.start_from(point)
    assert program.maximize().values[program.e] == pytest.approx(point[program.e])
    assert milp._cut_off(program, instance, moves, np.array([0, 0, 1]))
    assert program.maximize().status == SolverStatus.INFEASIBLE
    roomy = make_instance([[0.5, 0.5], [0.5, 0.5], [0.7, 1.0]], capacity=np.ones((2, 2)))
    assert not milp._cut_off(program, roomy, moves, np.array([0, 0, 1]))


def test_what_passes_the_budget_by_less_than_the_solver_notices_is_cut_off():
    instance = make_instance([[0.1, 0.8], [0.1, 0.8]], capacity=np.ones((2, 2)))
    present, cost = np.zeros(2, dtype=np.int64), np.array([1e9, 1e9])
    staying = placement_yield(instance, present)
    short = AdaptExact(present=present, cost=cost, budget=1e9 - 5)(instance)
    assert short.minimum_yield == pytest.approx(staying)
    assert AdaptExact(present=present, cost=cost, budget=1e9)(instance).minimum_yield == 1.0


@pytest.fixture(scope="module")
def running():
    """Placed well, then the needs change: nine tasks, and three larger budgets that each buy something."""
    before = small(10)
    place = best_packing(before).allocation.place
    factor = np.random.default_rng(10).uniform(0.4, 1.1, before.need.shape)
    return make_instance((before.need * factor).clip(0, 1), capacity=before.capacity), place


def test_a_budget_of_nothing_stays_and_of_everything_gives_opt(running):
    instance, place = running
    cost = np.ones(len(place))
    staying = placement_yield(instance, place)
    assert staying >= 0
    outcome = AdaptExact(present=place, cost=cost, budget=0.0)(instance)
    assert (outcome.allocation.place == place).all()
    assert outcome.minimum_yield == staying
    free = AdaptExact(present=place, cost=cost, budget=np.inf)(instance)
    assert free.minimum_yield == pytest.approx(Exact()(instance).minimum_yield, abs=1e-9)
    assert free.minimum_yield > staying + 1e-3


def test_more_budget_never_gives_less_and_is_kept(running):
    instance, place = running
    cost = np.linspace(0.5, 2.0, len(place))
    values = []
    for budget in (0.0, 0.6, 1.5, 3.0, 6.0, cost.sum()):
        outcome = AdaptExact(present=place, cost=cost, budget=budget)(instance)
        assert outcome.status == Status.OPTIMAL
        assert cost[outcome.allocation.place != place].sum() <= budget + 1e-9
        values.append(outcome.minimum_yield)
    assert (np.diff(values) >= -1e-9).all()
    assert len({round(value, 6) for value in values}) == 4


def test_new_tasks_are_placed_for_free_and_no_placement_in_the_budget_is_infeasible(running):
    instance, place = running
    cost = np.ones(len(place))
    new = place.copy()
    new[:3] = -1
    outcome = AdaptExact(present=new, cost=cost, budget=0.0)(instance)
    assert (outcome.allocation.place[3:] == place[3:]).all()
    assert outcome.minimum_yield >= placement_yield(instance, place) - 1e-9
    crowded = np.zeros_like(place)
    outcome = AdaptExact(present=crowded, cost=cost, budget=1.0)(instance)
    assert outcome.status == Status.INFEASIBLE
    assert "budget" in outcome.details["reason"]


@pytest.mark.parametrize("cheap", [0, 1])
def test_of_two_equal_tasks_the_one_that_moves_for_less_moves(cheap):
    instance = make_instance([[0.1, 0.8]] * 2, capacity=np.ones((2, 2)))
    cost = np.array([5.0, 5.0])
    cost[cheap] = 1.0
    outcome = AdaptExact(present=np.zeros(2, dtype=np.int64), cost=cost, budget=1.0)(instance)
    assert outcome.minimum_yield == 1.0
    assert np.flatnonzero(outcome.allocation.place).tolist() == [cheap]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"present": np.zeros(2, dtype=np.int64)}, "present has shape"),
        ({"present": np.full(9, 4)}, r"present\[0\] = 4: must be a node, 0 to 3"),
        ({"cost": np.full(9, -1.0)}, r"cost\[0\] = -1"),
        ({"cost": np.full(9, np.nan)}, r"cost\[0\] = nan"),
        ({"budget": -1.0}, "budget -1.0: must be at least 0"),
        ({"budget": np.nan}, "budget nan"),
    ],
)
def test_adapt_opt_names_what_is_wrong(changes, message):
    given = {"present": np.zeros(9, dtype=np.int64), "cost": np.ones(9), "budget": 1.0} | changes
    with pytest.raises(InputError, match=message):
        AdaptExact(**given)(small(0))


def test_opt_starts_from_best_and_not_from_packings(monkeypatch):
    """HiGHS, which has no time here, adds nothing."""
    solve = YieldProgram.maximize
    monkeypatch.setattr(YieldProgram, "maximize", lambda self, _: solve(self, 0.0))
    instance = small(1, services=100, nodes=32, dims=4, slack=0.2)
    assert Exact(time_limit_s=3.0)(instance).minimum_yield > best_packing(instance).minimum_yield + 0.01


def test_at_the_time_limit_there_is_still_a_placement_and_a_bound(monkeypatch):
    instance = small(2, services=40, nodes=8, dims=6, slack=0.3)
    started = time.monotonic()
    outcome = Exact(time_limit_s=0.3)(instance)
    assert time.monotonic() - started < 20
    assert outcome.status == Status.FEASIBLE
    assert best_packing(instance).minimum_yield <= outcome.minimum_yield <= outcome.bound <= lp_bound(instance)
    solve, tighter = YieldProgram.maximize, 0.5 * (outcome.minimum_yield + lp_bound(instance))
    with monkeypatch.context() as patch:
        patch.setattr(YieldProgram, "maximize", lambda self, limit: replace(solve(self, limit), bound=tighter))
        assert Exact(time_limit_s=0.3)(instance).bound == pytest.approx(tighter, abs=1e-3)
    monkeypatch.setattr(milp, "_start", lambda *_: None)
    outcome = Exact(time_limit_s=0.0)(instance)
    assert outcome.status == Status.NOT_FOUND
    assert outcome.bound == pytest.approx(lp_bound(instance))


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_the_start_handed_over_satisfies_every_row_and_rule(seed, parallel):
    """With all columns fixed there, the program is feasible, and its objective is the placement's yield."""
    instance = several_tasks(seed) if parallel else small(seed, rho=0.5)
    moves = milp._Moves.free(instance)
    program = YieldProgram(instance, ceiling=upper_bound(instance))
    symmetry = milp._Symmetry.of(instance, moves, upper_bound(instance))
    symmetry.rule(program)
    place = best_packing(instance).allocation.place.copy()
    rng = np.random.default_rng(seed)
    for service in range(len(instance.services)):
        rng.shuffle(twins := place[instance.service_of == service])
        place[instance.service_of == service] = twins
    canonical = symmetry.canonical(place)
    assert placement_yield(instance, canonical) == pytest.approx(placement_yield(instance, place), abs=1e-12)
    point = program.point(instance, canonical, placement_yield(instance, place))
    program.set_bounds(np.arange(point.size), point, point)
    assert program.maximize().objective == pytest.approx(placement_yield(instance, place), abs=1e-7)


def test_the_average_by_program_is_at_least_the_greedy_one_and_equal_with_one_fluid_resource():
    """Equal where services come by increasing need: the greedy rule leaves ties open, and the order decides them."""
    gained = 0
    for seed in range(12):
        instance = small(seed, services=16, dims=4 if seed % 2 else 2, slack=0.6)
        order = np.argsort(instance.slope[:, -1], kind="stable")
        instance = make_instance(
            instance.need[order], capacity=instance.capacity, minimum_yield=instance.minimum_yield[order]
        )
        place = best_packing(instance).allocation.place
        start = equal_yields(instance, place, placement_yield(instance, place))
        greedy, program = (maximize(instance, start, phase).average_yield for phase in ("average", "average-lp"))
        assert program >= greedy - 1e-9
        if instance.need.shape[1] == 2:
            assert program == pytest.approx(greedy, abs=1e-7)
        gained += program > greedy + 1e-6
    assert gained > 0


def knapsack(items=200, rows=60):
    """A program that takes HiGHS far longer than a test may."""
    rng = np.random.default_rng(0)
    program = LinearProgram("knapsack", tolerance=1e-8)
    program.add_columns(np.zeros(items), np.ones(items), rng.random(items), integer=True)
    for _ in range(rows):
        program.add_row(np.arange(items), rng.random(items), upper=items / 8)
    return program


def test_a_number_of_nodes_cuts_a_program_at_the_same_point_each_time():
    one, other = (knapsack().maximize(nodes=3) for _ in range(2))
    assert one.status == SolverStatus.TIME_LIMIT
    assert one.known
    assert (one.values == other.values).all()
    assert 0.0 < one.objective < one.bound == other.bound


def test_rows_in_bulk_are_rows_one_by_one():
    rng = np.random.default_rng(1)
    cost, rows, limit = rng.random(7), rng.random((4, 7)), rng.random(4) + 0.5
    one, bulk = LinearProgram("one by one"), LinearProgram("bulk")
    for program in (one, bulk):
        columns = program.add_columns(np.zeros((7, 1)), np.ones((7, 1)), cost[:, None])
        assert columns.shape == (7, 1)
    for row, upper in zip(rows, limit, strict=True):
        one.add_row(np.arange(7), row, upper=float(upper))
    bulk.add_rows(np.arange(4) * 7, np.tile(np.arange(7), 4), rows.ravel(), upper=limit)
    first, second = one.maximize(), bulk.maximize()
    assert (first.values == second.values).all()
    assert (rows @ first.values <= limit + 1e-7).all()
    assert first.objective == pytest.approx(cost @ first.values)
    for method in ("primal", "interior"):
        assert bulk.maximize(method=method).objective == pytest.approx(first.objective, abs=1e-6)


def test_a_program_can_grow_and_be_solved_again():
    program = LinearProgram("grows")
    program.add_columns(np.zeros(2), np.ones(2), np.array([2.0, 1.0]))
    assert program.maximize().objective == pytest.approx(3.0)
    program.add_row(np.arange(2), np.ones(2), upper=1.5)
    assert program.maximize().values == pytest.approx([1.0, 0.5])
    program.set_bounds(np.array([0]), np.array([0.25]), np.array([0.25]))
    assert program.maximize().values == pytest.approx([0.25, 1.0])
    program.forget()
    program.add_row(np.array([1]), np.ones(1), lower=2.0)
    solution = program.maximize()
    assert solution.status == SolverStatus.INFEASIBLE
    assert not solution.known
    assert solution.bound == -np.inf


def test_integers_are_integers_and_the_optimum():
    program = LinearProgram("knapsack", tolerance=1e-8)
    value, weight = np.array([6.0, 10.0, 12.0, 7.0]), np.array([1.0, 2.0, 3.0, 2.0])
    program.add_columns(np.zeros(4), np.ones(4), value, integer=True)
    program.add_row(np.arange(4), weight, upper=5.0)
    solution = program.maximize()
    best = max(value @ pick for pick in product((0, 1), repeat=4) if weight @ pick <= 5)
    assert solution.objective == pytest.approx(best)
    assert solution.bound == pytest.approx(best)
    assert np.abs(solution.values - np.round(solution.values)).max() < 1e-7


def test_the_time_limit_counts_from_each_solve_anew():
    program = knapsack()
    for _ in range(3):
        started = time.monotonic()
        solution = program.maximize(time_limit_s=0.5)
        assert 0.4 < time.monotonic() - started < 30
        assert solution.status == SolverStatus.TIME_LIMIT
        assert solution.known
        assert solution.objective < solution.bound < np.inf


def test_the_time_limit_of_a_program_without_integers_counts_anew_too():
    rng = np.random.default_rng(0)
    program = LinearProgram("dense")
    program.add_columns(np.zeros(800), np.ones(800), rng.random(800))
    for _ in range(400):
        program.add_row(np.arange(800), rng.random(800), upper=10.0)
    cut_short = program.maximize(time_limit_s=0.0)
    assert (cut_short.status, cut_short.known, cut_short.bound) == (SolverStatus.TIME_LIMIT, False, np.inf)
    started = time.monotonic()
    best = program.maximize().objective
    # Eight times what the hardest solve took: ample for each of the easier ones, too little for all of them together.
    limit_s = 8 * (time.monotonic() - started)
    started = time.monotonic()
    fixed = 0
    while time.monotonic() - started < 2 * limit_s:
        fixed = fixed % 15 + 1
        program.set_bounds(np.arange(fixed), np.full(fixed, 0.5), np.full(fixed, 0.5))
        program.set_bounds(np.arange(fixed, 800), np.zeros(800 - fixed), np.ones(800 - fixed))
        again = program.maximize(time_limit_s=limit_s)
        assert again.status == SolverStatus.OPTIMAL
        assert again.objective < best


def test_ctrl_c_stops_the_solver(request):
    # Where the tests run in the background of a script, the signal is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    program = knapsack()
    started = time.monotonic()
    Timer(0.3, interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):
        program.maximize()
    assert time.monotonic() - started < 30
