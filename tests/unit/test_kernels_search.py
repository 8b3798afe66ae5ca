"""Branch and bound and annealing: beside their slow twins, and what must hold on any numbers."""

import numpy as np
import pytest
from hypothesis import given, settings

from dfrs.kernels import exact, genetic, local_search
from dfrs.kernels.yields import minimum_yield
from dfrs.model import tolerances
from dfrs.model.rule_arrays import no_rules
from tests import strategies
from tests.cases import Seeded, make_instance
from tests.naive import brute, compare_search
from tests.naive.exact import optimum
from tests.naive.rules import broken
from tests.search_cases import exact_case


@given(strategies.exact_searches)
def test_branch_and_bound_tries_the_same_placements_in_the_same_order_as_its_twin(case):
    got, expected = compare_search.branch_and_bound(exact.branch_and_bound, case)
    assert got == expected


@pytest.mark.parametrize("seed", range(300))
def test_what_branch_and_bound_finds_is_the_optimum_and_keeps_the_rules(seed):
    case = exact_case(Seeded(np.random.default_rng(seed)))
    (found, complete, trials, best), _ = compare_search.branch_and_bound(exact.branch_and_bound, case)
    incumbent, upper, most = case.limits
    highest = optimum(
        case.base.tolist(),
        case.slope.tolist(),
        case.capacity.tolist(),
        case.tolerance,
        case.parts,
        case.scope,
    )
    assert complete == (trials <= most)
    assert found <= highest
    if best is None:
        assert found == -1.0
        assert not complete or highest <= incumbent
    else:
        assert found > incumbent
        assert broken(case.parts, case.scope, best) == 0
        assert found == minimum_yield(case.base, case.slope, case.capacity, np.array(best), case.tolerance)
        assert not complete or found >= min(upper, highest - case.tolerance)


def random_tiny(seed):
    """An instance of any numbers at all, and a placement to start from."""
    rng = np.random.default_rng(seed)
    tasks, nodes, dims = int(rng.integers(3, 7)), int(rng.integers(2, 4)), int(rng.integers(1, 4))
    instance = make_instance(rng.random((tasks, dims)), capacity=rng.uniform(0.6, 1.5, (nodes, dims)) * tasks / nodes)
    return instance, rng.integers(0, nodes, tasks)


@pytest.mark.parametrize("seed", range(60))
def test_branch_and_bound_is_right_about_any_numbers(seed):
    instance, _ = random_tiny(seed)
    tasks, nodes = len(instance.need), len(instance.nodes)
    best = np.full(tasks, -1)
    found, complete, _ = exact.branch_and_bound(
        instance.base,
        instance.slope,
        instance.capacity,
        tolerances.CAPACITY,
        np.arange(tasks),
        np.zeros(tasks, dtype=np.bool_),
        np.arange(nodes),
        no_rules(tasks, nodes),
        no_rules(tasks, nodes),
        (-1e-9, 1.0, 10**6),
        best,
    )
    highest = brute.best_placement(instance)
    assert complete
    assert found == pytest.approx(-1.0 if highest is None else highest)
    if highest is not None:
        assert brute.value(instance, best) == pytest.approx(highest)


@given(strategies.climbs)
def test_a_drawn_number_is_xorshifts(case):
    got, expected = compare_search.draw(local_search.draw, case)
    assert got == expected


@given(strategies.climbs)
def test_overload_is_as_its_twin_says(case):
    got, expected = compare_search.overload(local_search._overload, case)
    assert got == expected


@given(strategies.climbs)
def test_an_aimed_swap_has_the_partner_its_twin_chooses(case):
    got, expected = compare_search.aimed_partner(local_search._aimed_partner, case)
    assert got == expected


DESCENT = {
    "aim_at": compare_search.aim_at,
    "lay_out": compare_search.lay_out,
    "rank": compare_search.rank,
    "_note": compare_search.note,
    "_exchange": compare_search.exchange,
    "_may": compare_search.may,
    "_rise": compare_search.rise,
}


@pytest.mark.parametrize("name", DESCENT)
@settings(max_examples=40, deadline=None)
@given(case=strategies.climbs)
def test_each_part_of_annealing_is_as_its_twin_says(name, case):
    got, expected = DESCENT[name](getattr(local_search, name), case)
    assert got == expected


@settings(max_examples=40, deadline=None)
@given(strategies.climbs)
def test_annealing_goes_the_way_its_twin_goes_call_after_call(case):
    got, expected = compare_search.climb(local_search.climb, case)
    assert got == expected


def test_draws_are_even():
    state = np.array([88172645463325252], dtype=np.uint64)
    counts = np.bincount([local_search.draw(state, 7) for _ in range(7_000)], minlength=7)
    assert counts == pytest.approx(np.full(7, 1_000), rel=0.15)


@pytest.mark.parametrize("seed", range(60))
def test_whatever_the_numbers_annealing_stays_valid_and_tells_its_yield_truly(seed):
    """Call after call, as an annealing in rounds does it, each from where the one before stopped."""
    instance, place = random_tiny(seed)
    nodes, highest = len(instance.nodes), brute.best_placement(instance)
    numbers = instance.base, instance.slope, instance.capacity, tolerances.CAPACITY
    rules = no_rules(len(place), nodes)
    descent = local_search.start_descent(*numbers, rules, place, 0.0, seed + 1)
    before = 0.0
    for heat in ((0.1, 0.05), (0.05, 0.01), (0.01, 1e-3)):
        local_search.climb(descent, tolerances.CAPACITY, (0.01, 1.0), 400, heat)
        target, found, _ = descent.aim
        assert before <= target <= 1.0
        before = target
        assert ((descent.place >= 0) & (descent.place < nodes)).all()
        load = np.zeros(instance.capacity.shape)
        np.add.at(load, descent.place, instance.base + target * instance.slope)
        assert descent.load == pytest.approx(load)
        if found >= 0:
            assert found == pytest.approx(brute.value(instance, descent.best))
            assert highest is not None
            assert found <= highest + 1e-9
        else:
            assert (descent.best == -1).all()


GENETIC = {
    "_least_loaded": compare_search.least_loaded,
    "repair": compare_search.repair,
    "settle": compare_search.settle,
    "_select": compare_search.select,
    "_mutate": compare_search.mutate,
    "_cross": compare_search.cross,
    "evolve": compare_search.evolve,
}


@pytest.mark.parametrize("name", GENETIC)
@settings(max_examples=50, deadline=None)
@given(case=strategies.genetics)
def test_the_genetic_algorithm_and_its_operators_are_as_their_twins(name, case):
    got, expected = GENETIC[name](getattr(genetic, name), case)
    assert got == expected


@given(strategies.genetics)
def test_repair_overloads_no_node_anew(case):
    def over(place):
        load = np.zeros(case.capacity.shape)
        np.add.at(load, place, case.base)
        return load, (load > case.capacity + case.tolerance).any(axis=1)

    repaired, (fixed, before) = case.place.copy(), over(case.place)
    genetic.repair(case.base, case.capacity, case.tolerance, np.array([case.seed], dtype=np.uint64), repaired, fixed)
    assert not (over(repaired)[1] & ~before).any()
