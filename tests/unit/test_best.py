"""BEST: at least as good as what it contains, optimal where small, repeatable by rounds."""

import subprocess
import sys
import threading
import time
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from benchmarks import quality
from hypothesis import given, settings
from hypothesis import strategies as st

from dfrs import Status, allocate, generate_services
from dfrs.kernels.rules import broken
from dfrs.model.resources import Kind
from dfrs.placement.best import MEMBERS, anneal_beside, search_first
from dfrs.placement.bounds import lp_bound
from dfrs.placement.improve import THREAD_NAMES, Effort, Search
from dfrs.placement.outcome import placement_yield
from dfrs.placement.registry import Options
from dfrs.placement.tight import completed, tight_part
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


def annealing_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith(THREAD_NAMES)]


def test_threads_find_what_is_valid_and_end_in_time():
    instance = generate_services(nodes=32, services=100, slack=0.2, seed=1)
    began = time.perf_counter()
    found = allocate(instance, "BEST", options=Options(time_limit_s=1.0, threads=3))
    assert time.perf_counter() - began < 5.0
    assert placement_yield(instance, found.allocation.place) >= found.minimum_yield - 1e-9
    assert found.minimum_yield <= found.bound + 1e-9
    assert not annealing_threads()


def test_a_thread_that_fails_is_not_silent():
    search = Search(generate_services(nodes=4, services=12, seed=0), 1.0, Effort(time_limit_s=1.0), 0)

    def fail(word):
        raise ValueError(word)

    with pytest.raises(ValueError, match=r"\d"), search.beside(1, fail):
        pass
    assert search.over


def test_an_interrupted_search_leaves_no_thread():
    search = Search(generate_services(nodes=4, services=12, seed=0), 1.0, Effort(time_limit_s=60.0), 0)
    with pytest.raises(KeyboardInterrupt), search.beside(2, lambda word: anneal_beside(search, word)):
        raise KeyboardInterrupt
    assert not annealing_threads()


RIGID = [Kind.RIGID, Kind.RIGID]


def tight_instance(seed, nodes=12, tasks=40):
    """Memory is nearly idle, disks are nearly full, and a third of the tasks need none."""
    rng = np.random.default_rng(seed)
    disk = np.where(rng.random(tasks) < 0.33, 0.0, rng.uniform(0.1, 0.6, tasks))
    disk *= 0.87 * nodes / disk.sum()
    need = np.column_stack([rng.uniform(0.01, 0.1, tasks), disk, rng.uniform(0.0, 0.3, tasks)])
    return make_instance(need, capacity=np.ones((nodes, 3)), kinds=[Kind.RIGID, Kind.RIGID, Kind.FLUID])


@pytest.mark.parametrize("seed", range(5))
def test_what_is_tight_is_placed_first_and_the_rest_with_it(seed):
    instance = tight_instance(seed)
    part, tasks = tight_part(instance)
    assert [r.name for r in part.resources] == [instance.resources[1].name]
    assert (tasks == np.flatnonzero(instance.need[:, 1] > 0)).all()
    search = Search(instance, 1.0, Effort(rounds=50), 0)
    search_first(search, np.random.default_rng(0), 1.0)
    assert search.place is not None
    assert placement_yield(instance, search.place) == search.value >= 0.0


def test_there_is_no_tight_part_where_all_is_tight_or_nothing():
    everything = make_instance(np.full((4, 1), 0.45), capacity=np.ones((2, 1)), kinds=[Kind.RIGID])
    nothing = make_instance(np.full((4, 1), 0.1), capacity=np.ones((2, 1)), kinds=[Kind.RIGID])
    assert tight_part(everything) is None
    assert tight_part(nothing) is None


def test_what_does_not_fit_beside_the_tight_part_is_no_placement():
    instance = make_instance([[0.9, 0.1], [0.9, 0.9], [0.0, 0.5], [0.0, 0.5]], capacity=np.ones((2, 2)), kinds=RIGID)
    assert completed(instance, np.array([0, 1]), np.array([0, 1])) is None
    assert completed(instance, np.array([0, 1]), np.array([0, 0])) is None
    fits = make_instance([[0.9, 0.1], [0.9, 0.1], [0.0, 0.5], [0.0, 0.5]], capacity=np.ones((2, 2)), kinds=RIGID)
    assert completed(fits, np.array([0, 1]), np.array([0, 1])).tolist()[:2] == [0, 1]


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
        "from dfrs.placement.improve import THREAD_NAMES, Effort, Search\n"
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


@pytest.mark.parametrize(("given", "threads"), [((), 1), (("--threads", "2"), 2)])
def test_the_benchmark_of_quality_has_one_thread_or_those_asked_for(given, threads, monkeypatch, capsys):
    asked = []

    def allocated(instance, name, **settings):
        asked.append((name, settings["options"].threads))
        return allocate(instance, name, **settings)

    instance = generate_services(nodes=4, services=8, slack=0.5, seed=1)
    monkeypatch.setattr(quality, "instances", lambda _sample: iter([(instance, lp_bound(instance))]))
    monkeypatch.setattr(quality, "allocate", allocated)
    monkeypatch.setattr(sys, "argv", ["quality", "--limit", "0.05", *given])
    quality.main()
    assert ("BEST", threads) in asked
    assert "1 instances, closed" in capsys.readouterr().out


def test_the_benchmark_of_quality_says_where_there_is_nothing_to_average(monkeypatch, capsys):
    instance = generate_services(nodes=4, services=8, slack=0.5, seed=1)
    monkeypatch.setattr(quality, "instances", lambda _sample: iter([(instance, lp_bound(instance))]))
    monkeypatch.setattr(sys, "argv", ["quality", "--limit", "0.05", "--hard"])
    quality.main()
    told = "1 instances, closed no instance, distance no instance, failures 0 (VP_CPSUM 0)"
    assert told in capsys.readouterr().out
