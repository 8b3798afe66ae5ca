"""BEST: at least as good as what it contains, optimal where small, repeatable by rounds."""

import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfrs import Status, allocate, generate_services
from dfrs.kernels.rules import broken
from dfrs.placement.best import MEMBERS
from dfrs.placement.registry import Options
from tests import rule_cases
from tests.cases import make_instance
from tests.naive.brute import best_placement
from tests.naive.brute import value as brute_value
from tests.strategies import instances


@pytest.mark.parametrize("seed", range(4))
def test_best_is_at_least_as_good_as_every_member(seed):
    instance = generate_services(nodes=16, services=48, slack=0.2, rho=0.25, seed=seed)
    best = allocate(instance, "BEST", options=Options(rounds=2))
    assert best.details["members"] == list(MEMBERS)
    for name in MEMBERS:
        member = allocate(instance, name)
        if member.minimum_yield is not None:
            assert best.minimum_yield is not None
            assert best.minimum_yield >= member.minimum_yield


@settings(max_examples=40)
@given(instances)
def test_best_equals_brute_force_on_tiny_instances(instance):
    if len(instance.nodes) ** len(instance.need) > 3_000:
        return
    outcome = allocate(instance, "BEST", options=Options(rounds=1))
    expected = best_placement(instance)
    if expected is None:
        assert outcome.status == Status.INFEASIBLE
    else:
        assert outcome.status == Status.OPTIMAL
        assert outcome.minimum_yield == pytest.approx(expected, abs=1e-7)


def test_annealing_improves_on_the_packings_where_there_is_room():
    instance = generate_services(nodes=32, services=100, slack=0.2, seed=1)
    packed = allocate(instance, "VP_BEST").minimum_yield
    best = allocate(instance, "BEST", options=Options(rounds=20))
    assert packed is not None
    assert best.minimum_yield is not None
    assert best.details["winner"] == "annealing"
    assert best.minimum_yield > packed


def test_annealing_rescues_where_every_packing_and_greedy_fails():
    rescued = 0
    for seed in range(12):
        instance = generate_services(nodes=24, services=60, resources=6, slack=0.1, sigma=0.25, rho=0.0, seed=seed)
        if allocate(instance, "VP_BEST").minimum_yield is None and allocate(instance, "GREEDY").minimum_yield is None:
            rescued += allocate(instance, "BEST", options=Options(rounds=30)).minimum_yield is not None
    assert rescued > 0


@given(st.integers(0, 100))
@settings(max_examples=5)
def test_rounds_repeat_to_the_bit_and_seeds_differ(seed):
    instance = generate_services(nodes=12, services=40, slack=0.2, seed=3)
    first, second = (allocate(instance, "BEST", options=Options(rounds=2), seed=seed) for _ in range(2))
    assert first.allocation is not None
    assert second.allocation is not None
    assert np.array_equal(first.allocation.place, second.allocation.place)
    assert first.minimum_yield == second.minimum_yield


def test_annealing_ends_where_the_aim_is_the_bound_and_the_yield_a_rounding_below():
    code = (
        "import numpy as np\n"
        "from dfrs.placement.improve import Effort, Search\n"
        "from tests.cases import make_instance\n"
        "search = Search(make_instance([[0.1]] * 6, capacity=[[0.3], [0.3]]), 1.0, Effort(rounds=3), 1)\n"
        "search.anneal(np.zeros(6, dtype=np.int64))\n"
        "print(search.value)\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=100)
    assert float(done.stdout) == pytest.approx(1.0)


def test_the_time_limit_is_kept():
    instance = generate_services(nodes=64, services=200, slack=0.1, resources=6, seed=1)
    allocate(instance, "BEST", options=Options(rounds=1))
    outcome = allocate(instance, "BEST", options=Options(time_limit_s=0.3), second_phase="none")
    assert outcome.runtime_s < 1.5


@pytest.mark.parametrize("seed", range(6))
def test_what_best_finds_keeps_the_rules(seed):
    instance = rule_cases.random_instance(np.random.default_rng(seed), 24, 8, 5, load=0.4)
    outcome = allocate(instance, "BEST", options=Options(rounds=3), second_phase="none")
    assert instance.rules is not None
    if outcome.allocation is not None:
        assert broken(instance.rules.arrays, outcome.allocation.place) == 0


@pytest.mark.parametrize("seed", range(40))
def test_best_equals_brute_force_under_rules_on_tiny_instances(seed):
    instance = rule_cases.random_instance(np.random.default_rng(seed), 5, 3, 3, load=0.4)
    outcome = allocate(instance, "BEST", options=Options(rounds=1), second_phase="none")
    assert instance.rules is not None
    kept = [
        brute_value(instance, np.array(place))
        for place in product(range(3), repeat=5)
        if broken(instance.rules.arrays, np.array(place)) == 0
    ]
    expected = max((value for value in kept if value is not None), default=None)
    if expected is None:
        assert outcome.allocation is None
    else:
        assert outcome.minimum_yield == pytest.approx(expected, abs=1e-7)


def test_more_resources_than_bits_in_a_set():
    rng = np.random.default_rng(1)
    instance = make_instance(rng.uniform(0.1, 0.4, (30, 24)), capacity=np.ones((16, 24)))
    assert allocate(instance, "BEST", options=Options(rounds=1), second_phase="none").minimum_yield is not None
