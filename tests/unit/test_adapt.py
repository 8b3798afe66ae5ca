"""ADAPT: within the budget, never worse than staying, optimal where small."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfrs import InputError, Status, allocate, generate_services
from dfrs.placement.adapt import Budget
from dfrs.placement.outcome import placement_yield
from dfrs.placement.registry import Options
from tests.naive.brute import best_placement
from tests.strategies import instances


def adapt(instance, present, unit, amount, rounds=4):
    budget = Budget(unit=unit, amount=amount)
    return allocate(
        instance, "ADAPT", options=Options(present=present, budget=budget, rounds=rounds), second_phase="none"
    )


@pytest.fixture(scope="module")
def running():
    instance = generate_services(nodes=12, services=40, slack=0.4, seed=2)
    outcome = allocate(instance, "GREEDYLIGHT")
    assert outcome.allocation is not None
    return instance, outcome.allocation.place


@pytest.mark.parametrize("moves", [0, 1, 3, 10, 40])
def test_never_worse_than_staying_and_never_over_budget(running, moves):
    instance, present = running
    outcome = adapt(instance, present, "moves", moves)
    assert outcome.allocation is not None
    assert outcome.minimum_yield is not None
    assert outcome.minimum_yield >= placement_yield(instance, present)
    assert (outcome.allocation.place != present).sum() <= moves
    assert outcome.details["moves"] == (outcome.allocation.place != present).sum()


def test_a_large_budget_gives_what_best_gives(running):
    instance, present = running
    packed = allocate(instance, "VP_BEST").minimum_yield
    outcome = adapt(instance, present, "moves", 1_000)
    assert packed is not None
    assert outcome.minimum_yield is not None
    assert outcome.minimum_yield >= packed


def test_budgets_in_cost_and_bytes_are_kept(running):
    instance, present = running
    outcome = adapt(instance, present, "cost", 2.5)
    assert outcome.details["spent"] <= 2.5
    with pytest.raises(InputError, match="bytes"):
        adapt(instance, present, "bytes", 10)
    with pytest.raises(InputError, match="at least 0"):
        Budget(unit="moves", amount=-1)


@settings(max_examples=30)
@given(instances, st.integers(0, 3), st.randoms(use_true_random=False))
def test_equals_brute_force_on_tiny_instances(instance, moves, random):
    tasks, nodes = len(instance.need), len(instance.nodes)
    if nodes**tasks > 1_000:
        return
    present = np.array([random.randrange(-1, nodes) for _ in range(tasks)])
    outcome = adapt(instance, present, "moves", moves, rounds=1)
    expected = best_placement(instance, present, np.ones(tasks), moves)
    if expected is None:
        assert outcome.status == Status.INFEASIBLE
    else:
        assert outcome.status == Status.OPTIMAL
        assert outcome.minimum_yield == pytest.approx(expected, abs=1e-7)


def test_new_services_are_placed_for_free(running):
    instance, present = running
    partly = present.copy()
    partly[::4] = -1
    outcome = adapt(instance, partly, "moves", 0)
    assert outcome.allocation is not None
    known = partly >= 0
    assert np.array_equal(outcome.allocation.place[known], partly[known])
