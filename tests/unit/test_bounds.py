import numpy as np
import pytest
from hypothesis import given, settings

from dfrs.model.errors import InfeasibleError
from dfrs.model.resources import Kind
from dfrs.placement.bounds import lp_bound, single_task_bound, upper_bound
from dfrs.placement.greedy import GREEDIES, LoadGreedy
from dfrs.placement.outcome import placement_yield
from dfrs.placement.packing import MULTI_CAPACITY, VECTOR_PACKINGS
from tests import strategies
from tests.cases import make_instance
from tests.checks import SLACK, outcome_or_none, value


def bound_of(bound, instance):
    try:
        return bound(instance)
    except InfeasibleError:
        return None


def closed_form(instance):
    """[Stillwell2010] 4.2.3 with the nodes' capacities in place of N; None where requirements alone are too much."""
    best = 1.0
    for d in range(len(instance.resources)):
        free = instance.capacity[:, d].sum()
        rate = 0.0
        for i, j in enumerate(instance.service_of):
            low, need = instance.minimum_yield[j], instance.need[i, d]
            free -= need if instance.rigid[i, d] else need * low
            rate += 0.0 if instance.rigid[i, d] else need * (1.0 - low)
        if free < -SLACK:
            return None
        if rate > 0:
            best = min(best, max(free, 0.0) / rate)
    return best


def alone(instance, i, n):
    """The yield of task `i` alone on node `n`; -1 where it does not fit."""
    best = 1.0
    for d in range(len(instance.resources)):
        free = instance.capacity[n, d] - instance.base[i, d]
        if free < -SLACK:
            return -1.0
        if instance.slope[i, d] > 0:
            best = min(best, max(free, 0.0) / instance.slope[i, d])
    return best


@given(strategies.parallel_instances)
def test_the_lp_bound_is_the_closed_form(instance):
    expected = closed_form(instance)
    got = bound_of(lp_bound, instance)
    assert got == (None if expected is None else pytest.approx(expected, abs=1e-9))


def test_the_lp_bound_of_a_small_cluster_by_hand():
    """Two nodes; CPU needs add up to 4 of which 1 is required: (2 - 1) / 3."""
    instance = make_instance([[0.25, 1.0]] * 4, capacity=[[1.0, 1.0]] * 2, minimum_yield=[0.5, 0.5, 0.0, 0.0])
    assert lp_bound(instance) == pytest.approx(1.0 / 3.0)


def test_nothing_limits_services_without_fluid_needs():
    assert lp_bound(make_instance([[0.5, 0.0]], capacity=[[1.0, 1.0]])) == 1.0
    assert lp_bound(make_instance([[0.5, 1.0]], capacity=[[1.0, 1.0]], minimum_yield=[1.0])) == 1.0


@given(strategies.parallel_instances)
def test_the_single_task_bound_is_the_least_yield_of_a_task_alone_on_its_best_node(instance):
    tasks, nodes = range(len(instance.need)), range(len(instance.nodes))
    expected = min(max(alone(instance, i, n) for n in nodes) for i in tasks)
    got = bound_of(single_task_bound, instance)
    assert got == (None if expected < 0 else pytest.approx(expected, abs=1e-9))


def test_the_single_task_bound_beats_the_lp_bound_where_a_task_is_larger_than_a_node():
    instance = make_instance([[0.25, 2.0], [0.25, 0.0]], capacity=[[1.0, 1.0]] * 4)
    assert lp_bound(instance) == 1.0
    assert single_task_bound(instance) == 0.5
    assert upper_bound(instance) == 0.5


def test_too_much_of_a_resource_in_all_is_named():
    instance = make_instance(
        [[0.5, 0.75, 0.25]] * 3, capacity=[[1.0, 1.0, 1.0]] * 2, kinds=[Kind.RIGID, Kind.RIGID, Kind.FLUID]
    )
    with pytest.raises(InfeasibleError, match=r"require 2\.25 of r1, all nodes together have 2$"):
        lp_bound(instance)


def test_constrained_needs_count_as_requirements():
    instance = make_instance([[0.1, 1.0]] * 3, capacity=[[1.0, 1.0]], minimum_yield=[0.5, 0.5, 0.25])
    with pytest.raises(InfeasibleError, match=r"require 1\.25 of r1, all nodes together have 1$"):
        lp_bound(instance)


def test_a_task_too_large_for_every_node_is_named_with_its_resource():
    instance = make_instance([[0.25, 0.25], [0.25, 0.75]], capacity=[[0.5, 0.5]] * 4, kinds=[Kind.RIGID] * 2)
    with pytest.raises(InfeasibleError, match=r"a task of s1; the scarcest is r1$"):
        single_task_bound(instance)


def test_a_task_that_no_single_node_suits_is_infeasible():
    instance = make_instance([[0.75, 0.75]], capacity=[[1.0, 0.5], [0.5, 1.0]], kinds=[Kind.RIGID] * 2)
    with pytest.raises(InfeasibleError, match="a task of s0"):
        single_task_bound(instance)


@settings(max_examples=60)
@given(strategies.parallel_instances)
def test_no_algorithm_passes_the_bounds(instance):
    bounds = [bound_of(bound, instance) for bound in (lp_bound, single_task_bound)]
    algorithms = [
        *VECTOR_PACKINGS.values(),
        *MULTI_CAPACITY.values(),
        *GREEDIES.values(),
        *(LoadGreedy(by_requirement=by, attempts=most) for by in (False, True) for most in (None, 500)),
    ]
    for algorithm in algorithms:
        reached = value(outcome_or_none(algorithm, instance, np.random.default_rng(0)))
        for bound in bounds:
            assert reached <= (-1.0 if bound is None else bound + SLACK)


@given(strategies.parallel_instances)
def test_no_random_placement_passes_the_bounds(instance):
    rng = np.random.default_rng(len(instance.need))
    for _ in range(20):
        place = rng.integers(len(instance.nodes), size=len(instance.need))
        reached = placement_yield(instance, place)
        for bound in (lp_bound, single_task_bound):
            limit = bound_of(bound, instance)
            assert reached <= (-1.0 if limit is None else limit + SLACK)
