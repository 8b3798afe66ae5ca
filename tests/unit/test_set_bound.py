"""Sets of tasks: what fits beside its twin, and bounds and proofs beside all placements of tiny instances."""

import numpy as np
import pytest
from hypothesis import given, settings

from dfrs import allocate, generate_services
from dfrs.kernels.set_pricing import SAME, join_resources, price_sets
from dfrs.model.resources import Kind
from dfrs.placement.bounds import upper_bound
from dfrs.placement.outcome import placement_yield
from dfrs.placement.registry import Options
from dfrs.placement.set_bound import STEP, WIDTH, SetPacking
from dfrs.placement.set_diving import dive
from dfrs.placement.set_relaxation import Deadline, Relaxation
from tests import strategies
from tests.cases import Seeded, make_instance, random_instance
from tests.checks import outcome_or_none
from tests.naive import brute, set_packing


def pricing(seed):
    """Sizes and worths in sixteenths: every sum is exact."""
    rng = np.random.default_rng(seed)
    tasks, dims = int(rng.integers(1, 8)), int(rng.integers(1, 4))
    size = rng.integers(0, int(rng.choice([6, 12])), (tasks, dims)) / 16
    capacity = rng.integers(0, 24, dims) / 16
    worth = rng.integers(0, 9, tasks) / 16
    return size, capacity, worth, float(rng.choice([0.0, 0.25, 0.5, 1.0]))


def priced(size, capacity, worth, threshold, every, rows=200, most=10**6):
    sets, length, value = np.full((rows, 8), -1), np.zeros(rows, dtype=np.int64), np.zeros(rows)
    found, complete = price_sets(size, capacity, worth, threshold, every, most, sets, length, value)
    return [tuple(sorted(sets[r, : length[r]].tolist())) for r in range(found)], value[:found], complete


@pytest.mark.parametrize("seed", range(150))
def test_the_sets_worth_the_most_are_those_of_the_twin(seed):
    size, capacity, worth, threshold = pricing(seed)
    lists = size.tolist(), capacity.tolist(), worth.tolist()
    sets, value, complete = priced(size, capacity, worth, threshold, False)
    assert complete
    assert max(threshold, value.max(initial=0.0)) == max(threshold, set_packing.highest(*lists))
    assert set(sets) <= set_packing.above(*lists, threshold)
    assert [sum(worth[list(each)]) for each in sets] == value.tolist()


@pytest.mark.parametrize("seed", range(150))
def test_every_set_above_the_threshold_is_found_once(seed):
    size, capacity, worth, threshold = pricing(seed)
    sets, _, complete = priced(size, capacity, worth, threshold, True)
    assert complete
    assert len(sets) == len(set(sets))
    assert set(sets) == set_packing.above(size.tolist(), capacity.tolist(), worth.tolist(), threshold)


def test_a_search_cut_short_says_so():
    size, capacity, worth = np.full((7, 1), 1 / 16), np.ones(1), np.ones(7)
    assert not priced(size, capacity, worth, 0.0, True, rows=20)[2]
    assert not priced(size, capacity, worth, 0.0, True, most=20)[2]


@pytest.mark.parametrize("seed", range(40))
def test_what_fits_weighs_at_most_one_whatever_the_resources(seed):
    size, capacity, worth, _ = pricing(seed)
    joint = np.empty(len(size))
    inside = (size <= capacity).all(axis=1)
    join_resources(size[inside], capacity, worth[inside], joint[: inside.sum()])
    weights = joint[: inside.sum()]
    for chosen in set_packing.fitting(size[inside].tolist(), capacity.tolist()):
        assert weights[list(chosen)].sum() <= 1.0 + 1e-9


@settings(max_examples=40, deadline=None)
@given(strategies.instances)
def test_no_placement_of_a_tiny_instance_is_above_its_bound(instance):
    check_tiny(instance)


@pytest.mark.parametrize("seed", range(60))
def test_no_placement_of_a_seeded_instance_is_above_its_bound(seed):
    check_tiny(random_instance(Seeded(np.random.default_rng(seed)), tasks_per_service=1))


def check_tiny(instance):
    """Bounds, proofs that there is nothing, and placements, at yields above, at and below the optimum."""
    if len(instance.nodes) ** len(instance.need) > 3_000 or outcome_or_none(upper_bound, instance) is None:
        return
    highest = brute.best_placement(instance)
    packing = SetPacking(instance=instance, bound=upper_bound(instance))
    bound = packing.tighten(-1.0)
    assert bound >= (-1.0 if highest is None else highest)
    for target in (0.0, 0.5 * bound, bound - 0.01):
        if target < 0:
            continue
        place, impossible = packing.place_at(target, Deadline())
        if impossible:
            assert highest is None or highest < target
        if place is not None:
            assert placement_yield(instance, place) >= target - 1e-6
            assert highest is not None
    if highest is not None:
        assert not packing.impossible(highest)


def test_three_tasks_on_two_nodes_share_at_best_one_half():
    """The closed form says 2/3; sets of tasks say that two must share a node."""
    instance = make_instance([[1.0]] * 3, capacity=[[1.0], [1.0]])
    assert upper_bound(instance) == pytest.approx(2 / 3)
    assert SetPacking(instance=instance, bound=2 / 3).tighten(0.5) == pytest.approx(0.5, abs=2 * WIDTH)


def test_unequal_nodes_have_sets_of_their_own():
    """The large task and one of the small ones share the large node: 1 of 1.5."""
    instance = make_instance([[1.0], [0.5], [0.5]], capacity=[[1.0], [0.6]])
    assert upper_bound(instance) == pytest.approx(0.8)
    assert SetPacking(instance=instance, bound=0.8).tighten(0.6) == pytest.approx(2 / 3, abs=2 * WIDTH)


def test_that_there_is_no_placement_is_proven():
    instance = make_instance([[0.6, 0.1]] * 3, capacity=[[1.0, 1.0]] * 2)
    assert SetPacking(instance=instance, bound=1.0).tighten(-1.0) == -1.0


def test_best_proves_the_optimum_where_nodes_hold_few_tasks():
    instance = generate_services(nodes=18, services=40, resources=4, slack=0.3, seed=9)
    outcome = allocate(instance, "BEST", options=Options(time_limit_s=4.0), second_phase="none")
    assert outcome.minimum_yield is not None
    assert outcome.bound - outcome.minimum_yield < 0.005
    assert outcome.bound < upper_bound(instance)
    assert STEP > SAME


def full_bins(seed, bins, dims):
    """Three items fill each bin in all dimensions, to the last sixty-fourth."""
    rng = np.random.default_rng(seed)
    first = rng.integers(8, 28, (bins, dims))
    second = rng.integers(8, 28, (bins, dims))
    items = np.concatenate([first, second, 64 - first - second]) / 64
    return make_instance(rng.permutation(items), capacity=np.ones((bins, dims)), kinds=[Kind.RIGID] * dims)


@pytest.mark.parametrize("dims", [3, 10])
@pytest.mark.parametrize("seed", range(3))
def test_bins_that_must_be_full_are_filled(seed, dims):
    instance = full_bins(seed, 20, dims)
    place, impossible = SetPacking(instance=instance, bound=1.0).place_full(Deadline())
    assert not impossible
    assert placement_yield(instance, place) >= 0.0


def test_that_nothing_fills_the_bins_is_a_proof():
    instance = make_instance([[0.6], [0.6], [0.5], [0.3]], capacity=np.ones((2, 1)), kinds=[Kind.RIGID])
    assert SetPacking(instance=instance, bound=1.0).place_full(Deadline()) == (None, True)
    roomy = make_instance([[0.6], [0.6], [0.5]], capacity=np.ones((2, 1)), kinds=[Kind.RIGID])
    assert SetPacking(instance=roomy, bound=1.0).place_full(Deadline()) == (None, False)
    over = make_instance([[0.9], [0.9], [0.9]], capacity=np.ones((2, 1)), kinds=[Kind.RIGID])
    assert SetPacking(instance=over, bound=1.0).place_full(Deadline()) == (None, True)


@given(strategies.instances)
@settings(max_examples=60)
def test_full_nodes_agree_with_all_placements(instance):
    if len(instance.nodes) ** len(instance.need) > 3_000:
        return
    place, impossible = SetPacking(instance=instance, bound=1.0).place_full(Deadline())
    exists = brute.best_placement(instance) is not None
    assert not (impossible and exists)
    if place is not None:
        assert placement_yield(instance, place) >= 0.0


def test_best_packs_what_fills_all_bins():
    instance = full_bins(0, 60, 3)
    outcome = allocate(instance, "BEST", options=Options(time_limit_s=10.0), second_phase="none")
    assert outcome.minimum_yield is not None


def relaxed(instance, target, nodes=None):
    packing = SetPacking(instance=instance, bound=1.0)
    relaxation = Relaxation(packing.size(target), packing.capacity, packing.nodes, packing.fitting(target))
    if nodes is not None:
        rest = np.arange(len(instance.need)) % 3 > 0
        relaxation.restrict(rest, nodes)
        return relaxation, rest, relaxation.solve(Deadline())
    return relaxation, np.ones(len(instance.need), dtype=bool), relaxation.solve(Deadline())


@pytest.mark.parametrize("seed", range(20))
def test_fractions_cover_what_is_left_and_use_no_more_nodes_than_there_are(seed):
    instance = generate_services(nodes=8, services=24, resources=2, slack=0.4, seed=seed)
    target = 0.6 * upper_bound(instance)
    for nodes in (None, np.array([6])):
        relaxation, rest, covered = relaxed(instance, target, nodes)
        if covered is None or not covered:
            continue
        assert (relaxation.fractions >= -1e-9).all()
        assert relaxation.fractions.sum() <= relaxation.nodes.sum() + 1e-6
        times = np.zeros(len(instance.need))
        for fraction, (kind, members) in zip(relaxation.fractions, relaxation.sets, strict=True):
            times[members] += fraction
            size = (instance.base + target * instance.slope)[members].sum(axis=0)
            assert (size <= instance.capacity[kind] + 1e-7).all()
        assert (times[rest] >= 1.0 - 1e-6).all()


def test_what_the_relaxation_of_a_part_has_no_room_for_is_proven():
    instance = make_instance([[0.6, 0.1]] * 4, capacity=[[1.0, 1.0]] * 4)
    packing = SetPacking(instance=instance, bound=1.0)
    relaxation = Relaxation(packing.size(0.0), packing.capacity, packing.nodes, packing.fitting(0.0))
    assert relaxation.solve(Deadline())
    rest = np.array([True, True, True, False])
    relaxation.restrict(rest, np.array([3]))
    assert relaxation.solve(Deadline())
    relaxation.restrict(rest, np.array([2]))
    assert relaxation.solve(Deadline()) is False
    relaxation.restrict(np.ones(4, dtype=bool), np.array([4]))
    assert relaxation.solve(Deadline())


@settings(max_examples=60, deadline=None)
@given(strategies.instances)
def test_a_dive_finds_placements_only_where_there_are_some(instance):
    if len(instance.nodes) ** len(instance.need) > 3_000 or outcome_or_none(upper_bound, instance) is None:
        return
    highest = brute.best_placement(instance)
    packing = SetPacking(instance=instance, bound=1.0)
    for target in (0.0, 0.5 * (highest or 0.5)):
        place = dive(packing, target, np.random.default_rng(0), Deadline().part(1.0, 0.3))
        if place is not None:
            assert placement_yield(instance, place) >= target - 1e-6
            assert highest is not None


@pytest.mark.parametrize("seed", range(3))
def test_a_dive_comes_near_the_bound(seed):
    instance = generate_services(nodes=12, services=40, resources=4, slack=0.3, seed=seed)
    bound = SetPacking(instance=instance, bound=upper_bound(instance)).tighten(0.0)
    packing = SetPacking(instance=instance, bound=1.0)
    place = dive(packing, 0.97 * bound, np.random.default_rng(seed), Deadline().part(1.0, 60.0))
    assert place is not None
    assert placement_yield(instance, place) >= 0.97 * bound - 1e-6


def test_best_places_what_fills_some_resources_of_all_nodes_beside_what_does_not():
    full = full_bins(1, 24, 3)
    others = np.random.default_rng(0).uniform(0.02, 0.1, 150)
    need = np.zeros((72 + 150, 4))
    need[:72, :3] = full.need
    need[72:, 3] = others
    instance = make_instance(need, capacity=np.ones((24, 4)), kinds=[Kind.RIGID] * 4)
    outcome = allocate(instance, "BEST", options=Options(time_limit_s=20.0), second_phase="none")
    assert outcome.minimum_yield is not None
    assert outcome.details["winner"] == "sets of tasks"
