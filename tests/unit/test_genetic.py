"""GA: its operators one by one, against slow twins, and certificates of its result."""

import numpy as np
import pytest

from dfrs.kernels import genetic as kernels
from dfrs.model import tolerances
from dfrs.model.allocation import Status
from dfrs.model.errors import InfeasibleError, InputError
from dfrs.placement.bounds import lp_bound, upper_bound
from dfrs.placement.genetic import Genetic
from dfrs.placement.outcome import placement_yield
from dfrs.workloads.services import ServiceScenario, dissertation_instance
from tests.cases import Seeded, make_instance, random_instance
from tests.naive.brute import best_placement, value

MASK = 2**64 - 1


def state(seed=0):
    return np.array([seed], dtype=np.uint64)


def sample(seed, nodes=8, services=24, slack=0.4, rho=0.25, dims=4):
    return dissertation_instance(
        ServiceScenario(nodes=nodes, services=services, dims=dims, slack=slack, sigma=0.5, rho=rho), seed
    )


def settle(instance, place, words):
    shape = instance.capacity.shape
    return kernels.settle(
        instance.base,
        instance.slope,
        instance.capacity,
        tolerances.CAPACITY,
        words,
        place,
        np.empty(shape),
        np.empty(shape),
    )


def requirements(instance, place):
    loads = np.zeros_like(instance.capacity)
    np.add.at(loads, place, instance.base)
    return loads


def overloaded(instance, place):
    return (requirements(instance, place) > instance.capacity + tolerances.CAPACITY).any(axis=1)


def splitmix(seed):
    """The generator's definition, in Python's integers."""
    word = seed
    while True:
        word = (word + 0x9E3779B97F4A7C15) & MASK
        z = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield z ^ (z >> 31)


def test_the_generator_is_splitmix64():
    words, expected = state(1234567), splitmix(1234567)
    # The first number of the published test vector.
    assert next(splitmix(1234567)) == 6457827717110365317
    for _ in range(100):
        assert kernels.uniform(words) == (next(expected) >> 11) / 2**53


def test_draws_are_in_range_and_even():
    words = state(1)
    draws = np.array([kernels.below(words, 7) for _ in range(7_000)])
    assert set(draws.tolist()) == set(range(7))
    assert np.bincount(draws) == pytest.approx(np.full(7, 1_000), rel=0.15)


def test_a_shuffle_is_any_permutation_and_equally_often():
    words, seen = state(2), {}
    for _ in range(6_000):
        items = np.arange(3)
        kernels.shuffle(words, items)
        seen[tuple(items.tolist())] = seen.get(tuple(items.tolist()), 0) + 1
    assert len(seen) == 6
    assert list(seen.values()) == pytest.approx([1_000] * 6, rel=0.15)


def naive_repair(instance, place, order):
    place = place.copy()
    for n in order:
        for i in [i for i in range(len(place)) if place[i] == n]:
            load = requirements(instance, place)
            if not overloaded(instance, place)[n]:
                break
            share = np.where(instance.capacity > 0, load / instance.capacity.clip(1e-300), 0.0).max(axis=1)
            fits = (load + instance.base[i] <= instance.capacity + tolerances.CAPACITY).all(axis=1)
            fits[n] = False
            if fits.any():
                place[i] = np.where(fits, share, np.inf).argmin()
    return place


@pytest.mark.parametrize("seed", range(60))
def test_repair_is_as_its_slow_twin_and_overloads_no_node_anew(seed):
    """On sums that are exact: in eighths."""
    rng = np.random.default_rng(seed)
    need = rng.integers(0, 4, (10, 2)) / 8
    nodes = int(rng.integers(3, 6))
    instance = make_instance(need, capacity=np.ones((nodes, 2)) if seed % 2 else rng.integers(4, 12, (nodes, 2)) / 8)
    place = rng.integers(0, nodes, 10)
    order = np.arange(nodes)
    kernels.shuffle(state(seed), order)
    expected = naive_repair(instance, place, order)
    repaired, fixed = place.copy(), requirements(instance, place)
    kernels.repair(instance.base, instance.capacity, tolerances.CAPACITY, state(seed), repaired, fixed)
    assert repaired.tolist() == expected.tolist()
    assert fixed == pytest.approx(requirements(instance, repaired))
    assert not (overloaded(instance, repaired) & ~overloaded(instance, place)).any()


def test_fitness_is_that_of_the_text():
    feasible = infeasible = 0
    for seed in range(200):
        source = Seeded(np.random.default_rng(seed))
        instance = random_instance(source, tasks_per_service=2)
        nodes = len(instance.nodes)
        place = np.array([source.integer(0, nodes - 1) for _ in range(len(instance.need))])
        score = settle(instance, place, state(seed))
        expected = value(instance, place)
        if expected is None:
            infeasible += 1
            assert score == (~overloaded(instance, place)).sum() < nodes
        else:
            feasible += 1
            assert score == pytest.approx(nodes * (1 + expected))
            assert score == nodes * (1 + placement_yield(instance, place))
    assert min(feasible, infeasible) > 10


def test_what_is_feasible_is_not_repaired():
    instance = sample(0, slack=0.9, rho=0.0)
    place = np.arange(24) % 8
    before, words = place.copy(), state(5)
    assert not overloaded(instance, place).any()
    settle(instance, place, words)
    assert (place == before).all()
    assert words[0] == 5


def test_a_mutation_swaps_two_tasks_on_different_nodes():
    words = state(4)
    for _ in range(200):
        place = np.array([0, 1, 1, 2, 0, 3])
        before = place.copy()
        assert kernels._mutate(words, place)
        changed = np.flatnonzero(place != before)
        assert changed.size == 2
        assert place[changed].tolist() == before[changed][::-1].tolist()
    assert not kernels._mutate(words, np.zeros(6, dtype=np.int64))


def test_the_wheel_turns_in_proportion_to_fitness():
    words, score = state(6), np.array([1.0, 0.0, 3.0, 4.0])
    picks = np.bincount([kernels._select(words, np.cumsum(score)) for _ in range(8_000)], minlength=4)
    assert picks / 8_000 == pytest.approx(score / 8, abs=0.02)
    assert kernels._select(words, np.cumsum(np.zeros(4))) == 3


def evolve(instance, generations, upper=2.0, population=20, crossover=0.25, mutation=0.1, seed=9):
    place = np.full(len(instance.need), -1, dtype=np.int64)
    settings = (population, generations, crossover, mutation)
    score, ran = kernels.evolve(
        instance.base, instance.slope, instance.capacity, tolerances.CAPACITY, settings, upper, seed, place
    )
    return score, ran, place


def test_the_best_never_gets_worse_and_does_get_better():
    instance = sample(1, nodes=16, services=80)
    scores = [evolve(instance, generations)[0] for generations in (0, 1, 2, 5, 20, 100, 400)]
    assert (np.diff(scores) >= 0).all()
    assert scores[-1] > scores[0] + 0.5


def test_without_crossover_and_mutation_only_selection_is_left():
    instance = sample(1, nodes=16, services=80)
    first = evolve(instance, 0)[0]
    assert evolve(instance, 50, crossover=0.0, mutation=0.0)[0] == first
    assert evolve(instance, 400, crossover=0.0)[0] > first
    assert evolve(instance, 400, mutation=0.0)[0] > first


def naive_evolve(instance, generations, population, crossover, mutation, seed):
    """GAlib's simple algorithm step by step, on the kernel's numbers and its operators."""
    words, nodes = state(seed), len(instance.nodes)
    people = []
    for _ in range(population):
        place = np.array([kernels.below(words, nodes) for _ in instance.need])
        people.append((settle(instance, place, words), place))
    for _ in range(generations):
        best = max(people, key=lambda person: person[0])
        wheel = np.cumsum([score for score, _ in people])
        children = []
        for _ in range(population // 2):
            parents = [people[kernels._select(words, wheel)] for _ in range(2)]
            pair = [(score, place.copy()) for score, place in parents]
            crossed = kernels.uniform(words) < crossover
            if crossed:
                kernels._cross(words, parents[0][1], parents[1][1], pair[0][1], pair[1][1])
            for score, place in pair:
                mutated = kernels.uniform(words) < mutation and kernels._mutate(words, place)
                children.append((settle(instance, place, words) if crossed or mutated else score, place))
        if max(score for score, _ in children) < best[0]:
            worst = min(range(population), key=lambda p: children[p][0])
            children[worst] = best
        people = children
    return max(people, key=lambda person: person[0])


@pytest.mark.parametrize("seed", range(5))
def test_a_run_is_as_its_slow_twin(seed):
    instance = sample(seed, nodes=8, services=32, slack=0.15)
    score, _, place = evolve(instance, 15, population=10, crossover=0.6, mutation=0.5, seed=seed)
    expected, expected_place = naive_evolve(instance, 15, 10, 0.6, 0.5, seed)
    assert score == expected
    assert place.tolist() == expected_place.tolist()


def test_a_crossover_takes_the_head_of_one_parent_and_the_tail_of_the_other():
    mother, father, words, cuts = np.zeros(5, dtype=np.int64), np.ones(5, dtype=np.int64), state(3), set()
    for _ in range(200):
        one, other = np.full(5, -1), np.full(5, -1)
        kernels._cross(words, mother, father, one, other)
        assert (one + other == 1).all()
        assert (np.diff(one) >= 0).all()
        cuts.add(int(other.sum()))
    assert cuts == set(range(6))


@pytest.mark.parametrize("seed", range(4))
def test_the_outcome_fits_and_is_below_the_bound(seed, rng):
    instance = sample(seed)
    outcome = Genetic(generations=300)(instance, rng)
    assert outcome.status in {Status.FEASIBLE, Status.OPTIMAL}
    assert outcome.minimum_yield <= lp_bound(instance) + 1e-9
    assert (outcome.allocation.loads(instance) <= instance.capacity + 1e-9).all()
    assert outcome.details["fitness"] == pytest.approx(8 * (1 + outcome.minimum_yield))


def test_results_repeat_bit_for_bit_from_the_seed():
    instance = sample(5)
    first, second, other = (Genetic(generations=100)(instance, np.random.default_rng(s)) for s in (1, 1, 2))
    assert (first.allocation.place == second.allocation.place).all()
    assert first.minimum_yield == second.minimum_yield
    assert (first.allocation.place != other.allocation.place).any()


def test_it_finds_the_optimum_of_a_tiny_instance(rng):
    instance = sample(7, nodes=3, services=6, slack=0.5)
    assert Genetic()(instance, rng).minimum_yield == pytest.approx(best_placement(instance))


def test_it_ends_early_where_the_bound_is_reached_and_only_there(rng):
    easy = make_instance([[0.1, 0.1]] * 4, capacity=np.ones((2, 2)))
    outcome = Genetic()(easy, rng)
    assert outcome.status == Status.OPTIMAL
    assert outcome.details["generations"] == 0
    hard = sample(3)
    assert upper_bound(hard) > Genetic(generations=50)(hard, rng).minimum_yield
    assert Genetic(generations=50)(hard, rng).details["generations"] == 50


def test_no_feasible_chromosome_is_not_found_and_too_much_is_infeasible(rng):
    outcome = Genetic(generations=20)(make_instance([[0.6, 0.1]] * 3, capacity=np.ones((2, 2))), rng)
    assert outcome.status == Status.NOT_FOUND
    assert outcome.details["fitness"] == 1.0
    with pytest.raises(InfeasibleError):
        Genetic()(make_instance([[0.9, 0.1]] * 3, capacity=np.ones((2, 2))), rng)


def test_unequal_nodes_one_task_and_one_node(rng):
    full = make_instance([[0.5, 1.0]] * 2, capacity=np.ones((1, 2)), minimum_yield=[0.5, 0.5])
    assert Genetic()(full, rng).minimum_yield == 0.0
    unequal = make_instance([[0.6, 0.5], [0.3, 0.5]], capacity=[[0.7, 0.4], [0.3, 0.5]])
    assert Genetic(generations=50)(unequal, rng).allocation.place.tolist() == [0, 1]
    single = make_instance([[0.6, 2.0]], capacity=np.ones((1, 2)))
    assert Genetic(generations=5)(single, rng).minimum_yield == pytest.approx(0.5)


@pytest.mark.parametrize(
    "setting", [{"population": 3}, {"population": 0}, {"generations": -1}, {"crossover": 1.1}, {"mutation": -0.1}]
)
def test_settings_out_of_range_are_named(setting):
    with pytest.raises(InputError, match=next(iter(setting))):
        Genetic(**setting)
