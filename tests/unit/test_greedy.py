import numpy as np
import pytest
from hypothesis import given, settings

from dfrs.model import tolerances
from dfrs.model.allocation import Status
from dfrs.placement.greedy import (
    BACKTRACKING_ATTEMPTS,
    GREEDIES,
    LIGHT,
    LOAD_GREEDIES,
    LoadGreedy,
    greedy_best,
    greedy_light,
)
from tests import cases, strategies
from tests.cases import make_instance
from tests.checks import SLACK, assert_sound, outcome_or_none, value
from tests.naive import greedy as naive
from tests.naive.packing import in_turn
from tests.naive.sorting import stable_order

FEW_ATTEMPTS = {
    name: LoadGreedy(by_requirement=greedy.by_requirement, attempts=greedy.attempts and 300)
    for name, greedy in LOAD_GREEDIES.items()
}
GOOD_WITH_BACKTRACKING = [[0.375, 0.875], [0.5, 0.125], [0.25, 0.5], [0.25, 0.375], [0.625, 0.75]]


def some_instances(count):
    return [cases.random_instance(cases.Seeded(np.random.default_rng(seed))) for seed in range(count)]


def fluid_needs(instance):
    return np.where(instance.rigid, 0.0, instance.need).tolist()


def naive_order(sort, instance, rng):
    """S1 to S7 of [Stillwell2010] section 4.2.2; a constrained need is what is left of a fluid one at yield 0."""
    tasks = len(instance.need)
    if sort == 1:
        return rng.permutation(tasks).tolist()
    measured = {
        2: (max, fluid_needs(instance)),
        3: (in_turn, fluid_needs(instance)),
        4: (max, instance.base.tolist()),
        5: (in_turn, instance.base.tolist()),
        6: (max, instance.need.tolist()),
        7: (in_turn, instance.need.tolist()),
    }
    measure, vectors = measured[sort]
    return stable_order([measure(vector) for vector in vectors], ascending=False)


def placement(outcome):
    return None if outcome.allocation is None else outcome.allocation.place.tolist()


def test_there_are_49_names():
    assert list(GREEDIES) == [f"GREEDY_S{x}_P{y}" for x in range(1, 8) for y in range(1, 8)]
    assert list(LOAD_GREEDIES) == ["GR", "SG", "GB", "SGB"]


@pytest.mark.parametrize("name", GREEDIES)
def test_each_name_stands_for_what_the_text_says(name):
    sort, rule = int(name[8]), int(name[11])
    for seed, instance in enumerate(some_instances(15)):
        outcome = outcome_or_none(GREEDIES[name], instance, np.random.default_rng(seed))
        if outcome is None:
            continue
        success, place = naive.place_greedily(
            instance.base.tolist(),
            fluid_needs(instance),
            naive_order(sort, instance, np.random.default_rng(seed)),
            instance.capacity.tolist(),
            tolerance=tolerances.CAPACITY,
            rule=rule,
        )
        assert placement(outcome) == (place if success else None)


@pytest.mark.parametrize("name", LOAD_GREEDIES)
def test_each_load_greedy_is_what_001_says(name):
    for instance in some_instances(25):
        outcome = outcome_or_none(FEW_ATTEMPTS[name], instance)
        if outcome is None:
            continue
        required = [in_turn(v) for v in np.where(instance.rigid, instance.need, 0.0).tolist()]
        sorted_first = name.startswith("S")
        order = stable_order(required, ascending=False) if sorted_first else list(range(len(instance.need)))
        work = np.array(fluid_needs(instance)).sum(axis=1).tolist()
        arguments = instance.base.tolist(), work, order, instance.capacity.tolist()
        if name.endswith("B"):
            success, used, place = naive.place_with_backtracking(
                *arguments, tolerance=tolerances.CAPACITY, attempts=300
            )
        else:
            success, used, place = naive.place_by_load(*arguments, tolerances.CAPACITY)
        assert placement(outcome) == (place if success else None)
        assert outcome.details["attempts"] == used


@settings(max_examples=50)
@given(strategies.parallel_instances)
def test_every_greedy_outcome_is_sound(instance):
    for algorithm in (*GREEDIES.values(), *FEW_ATTEMPTS.values(), greedy_best, greedy_light):
        outcome = outcome_or_none(algorithm, instance, np.random.default_rng(1))
        if outcome is not None:
            assert_sound(instance, outcome)


@settings(max_examples=50)
@given(strategies.parallel_instances)
def test_greedy_is_the_best_of_the_49_run_one_after_the_other(instance):
    rng = np.random.default_rng(2)
    best = outcome_or_none(greedy_best, instance, np.random.default_rng(2))
    each = {name: value(outcome_or_none(member, instance, rng)) for name, member in GREEDIES.items()}
    assert value(best) == pytest.approx(max(each.values()), abs=SLACK)
    if value(best) >= 0:
        assert each[best.details["winner"]] == value(best)


@settings(max_examples=50)
@given(strategies.parallel_instances)
def test_greedylight_is_the_first_of_its_members_that_succeeds(instance):
    light = outcome_or_none(greedy_light, instance, np.random.default_rng(3))
    for name in LIGHT:
        member = outcome_or_none(GREEDIES[f"GREEDY_{name}"], instance, np.random.default_rng(3))
        if member is not None and member.allocation is not None:
            assert light.details["winner"] == f"GREEDY_{name}"
            assert placement(light) == placement(member)
            return
    assert light is None or light.status == Status.NOT_FOUND


def test_the_members_of_greedylight_are_of_the_49():
    assert {f"GREEDY_{name}" for name in LIGHT} <= set(GREEDIES)
    assert len(set(LIGHT)) == 9


@given(strategies.instances)
def test_no_more_placements_are_tried_than_allowed(instance):
    for attempts in (0, 1, 7):
        for by_requirement in (False, True):
            outcome = outcome_or_none(LoadGreedy(by_requirement=by_requirement, attempts=attempts), instance)
            if outcome is not None:
                assert outcome.details["attempts"] <= attempts


def test_backtracking_finds_a_placement_where_going_straight_fails():
    """Two nodes whose memory the five tasks fill exactly."""
    instance = make_instance(GOOD_WITH_BACKTRACKING, capacity=[[1.0, 1.0]] * 2)
    assert LOAD_GREEDIES["SG"](instance).status == Status.NOT_FOUND
    outcome = LOAD_GREEDIES["SGB"](instance)
    assert_sound(instance, outcome)
    assert placement(outcome) == [0, 1, 1, 1, 0]
    assert outcome.details["attempts"] == 7


def test_one_attempt_less_than_needed_is_not_enough():
    instance = make_instance(GOOD_WITH_BACKTRACKING, capacity=[[1.0, 1.0]] * 2)
    assert LoadGreedy(by_requirement=True, attempts=6)(instance).status == Status.NOT_FOUND
    assert LoadGreedy(by_requirement=True, attempts=7)(instance).status != Status.NOT_FOUND


def test_backtracking_is_bounded_as_in_the_document():
    assert LOAD_GREEDIES["GB"].attempts == LOAD_GREEDIES["SGB"].attempts == BACKTRACKING_ATTEMPTS == 500_000
    assert LOAD_GREEDIES["GR"].attempts is LOAD_GREEDIES["SG"].attempts is None


@given(strategies.instances)
def test_backtracking_places_wherever_going_straight_does_and_in_the_same_way(instance):
    for straight, back in (("GR", "GB"), ("SG", "SGB")):
        plain, tried = (outcome_or_none(FEW_ATTEMPTS[name], instance) for name in (straight, back))
        if plain is not None and plain.allocation is not None:
            assert placement(tried) == placement(plain)


def test_the_random_order_is_the_generators(rng):
    instance = some_instances(10)[4]
    first = GREEDIES["GREEDY_S1_P7"].place(instance, np.zeros_like(instance.need), rng)
    again = GREEDIES["GREEDY_S1_P7"].place(instance, np.zeros_like(instance.need), np.random.default_rng(20_100_401))
    assert (first is None) == (again is None)
    assert first is None or first.tolist() == again.tolist()
