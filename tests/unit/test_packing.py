from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given

from dfrs.model import tolerances
from dfrs.model.allocation import Status
from dfrs.model.errors import UnsupportedError
from dfrs.model.resources import Kind
from dfrs.placement.bounds import lp_bound
from dfrs.placement.greedy import GREEDIES
from dfrs.placement.packing import MULTI_CAPACITY, VECTOR_PACKINGS, VectorPacking, best_packing
from tests import cases, strategies
from tests.cases import make_instance
from tests.checks import SLACK, assert_sound, outcome_or_none, value
from tests.naive import packing as naive
from tests.naive.search import search_yield

PACKINGS = VECTOR_PACKINGS | MULTI_CAPACITY
MIDPOINTS_ONLY = {name: replace(packing, ends=False) for name, packing in PACKINGS.items()}
MCB_SORTS = {
    "MCB1": ("SUM", True),
    "MCB2": ("DIFF", True),
    "MCB3": ("RATIO", True),
    "MCB4": ("MAX", True),
    "MCB5": ("SUM", False),
    "MCB6": ("DIFF", False),
    "MCB7": ("RATIO", False),
    "MCB8": ("MAX", False),
}


@cache
def seeded_instances(count, tasks_per_service=1):
    sources = [cases.Seeded(np.random.default_rng(seed)) for seed in range(count)]
    return [cases.random_instance(source, tasks_per_service=tasks_per_service) for source in sources]


def naive_search(name, instance, *, ends):
    """The yield and placement of the algorithm called `name` in the documents, by twins alone."""

    def packing_at(target):
        size = (instance.base + target * instance.slope).tolist()
        if name in MCB_SORTS:
            criterion, ascending = MCB_SORTS[name]
        else:
            criterion, ascending = name[5:], False
        order = naive.sort_order(size, criterion, ascending, instance.lexicographic.tolist())
        nodes = size, order, instance.capacity.tolist(), tolerances.CAPACITY
        if name[3:5] in ("FF", "BF"):
            success, place = {"FF": naive.first_fit, "BF": naive.best_fit}[name[3:5]](*nodes, False)
        else:
            window = 1 if name in MCB_SORTS else min(2, len(instance.resources))
            ordered = name[3:5] != "CP"
            success, place = naive.by_lists(*nodes, window=window, ordered=ordered, by_index=False)
        return place if success else None

    return search_yield(packing_at, lp_bound(instance), tolerances.YIELD_SEARCH_WIDTH, ends)


def is_midpoint(searched, upper):
    """Whether a bisection of [0, upper] down to the published width can stop at `searched`."""
    low, high = 0.0, upper
    while high - low > tolerances.YIELD_SEARCH_WIDTH:
        middle = 0.5 * (low + high)
        if searched == middle:
            return True
        low, high = (middle, high) if searched > middle else (low, middle)
    return False


def test_the_documents_names_are_all_there():
    assert len(VECTOR_PACKINGS) == 14
    assert set(VECTOR_PACKINGS) == {
        *(f"VP_{method}{key}" for method in ("FF", "BF") for key in ("SUM", "MAX", "LEX")),
        *(f"VP_{method}{key}" for method in ("CP", "PP") for key in ("SUM", "MAX", "DIFF", "RATIO")),
    }
    assert list(MULTI_CAPACITY) == list(MCB_SORTS)


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("name", PACKINGS)
def test_each_name_stands_for_what_the_documents_say(name, ends):
    for instance in seeded_instances(12):
        algorithm = replace(PACKINGS[name], ends=ends)
        outcome = outcome_or_none(algorithm, instance)
        if outcome is None:
            continue
        searched, place = naive_search(name, instance, ends=ends)
        assert outcome.details["searched_yield"] == searched
        assert (None if outcome.allocation is None else outcome.allocation.place.tolist()) == place


@given(strategies.parallel_instances)
def test_every_packing_is_sound_and_reaches_at_least_the_yield_it_searched(instance):
    for packing in PACKINGS.values():
        outcome = outcome_or_none(packing, instance)
        if outcome is None:
            continue
        assert_sound(instance, outcome)
        assert value(outcome) >= outcome.details["searched_yield"] - SLACK


@given(strategies.parallel_instances)
def test_the_published_search_stops_at_a_midpoint(instance):
    for packing in MIDPOINTS_ONLY.values():
        outcome = outcome_or_none(packing, instance)
        if outcome is not None and outcome.allocation is not None:
            assert is_midpoint(outcome.details["searched_yield"], lp_bound(instance))


@given(strategies.parallel_instances)
def test_trying_the_ends_finds_no_less_than_midpoints_alone(instance):
    for name, packing in PACKINGS.items():
        both = outcome_or_none(packing, instance), outcome_or_none(MIDPOINTS_ONLY[name], instance)
        if None not in both:
            assert both[0].details["searched_yield"] >= both[1].details["searched_yield"]


def test_only_the_ends_can_find_the_bound_and_zero():
    easy = make_instance([[0.25, 0.25]], capacity=[[1.0, 1.0]])
    assert VECTOR_PACKINGS["VP_FFSUM"](easy).details["searched_yield"] == 1.0
    assert 1.0 - 1e-3 <= MIDPOINTS_ONLY["VP_FFSUM"](easy).details["searched_yield"] < 1.0
    full = make_instance([[0.5, 0.0, 1.0], [0.5, 1.0, 0.0]], capacity=[[1.0, 1e-4, 1e-4], [0.25, 1.0, 1.0]])
    assert VECTOR_PACKINGS["VP_FFSUM"](full).details["searched_yield"] == 0.0
    assert MIDPOINTS_ONLY["VP_FFSUM"](full).status == Status.NOT_FOUND


def wide_instance(dims):
    return make_instance([[1 / 8] * dims] * 3, capacity=[[1.0] * dims] * 2)


@pytest.mark.parametrize(
    ("method", "window", "dims"),
    [("PP", 5, 10), ("PP", 8, 8), ("CP", 8, 16), ("PP", 3, 19), ("CP", 4, 40), ("CP", 16, 17)],
)
def test_too_many_lists_are_refused_with_their_number(method, window, dims):
    packing = VectorPacking(method=method, criterion="SUM", window=window)
    with pytest.raises(UnsupportedError, match=f"window {window} with {dims} resources makes \\d+ lists: at most"):
        packing(wide_instance(dims))


@pytest.mark.parametrize(("dims", "window"), [(17, 2), (20, 2), (75, 1)])
@pytest.mark.parametrize("method", ["CP", "PP"])
def test_any_number_of_resources_is_packed_with_the_default_window_or_one(method, dims, window):
    """As the twin packs, whose lists are known by name; a window of one where two make too many lists."""
    rng = np.random.default_rng(dims)
    size = np.round(rng.random((12, dims)) * 0.4, 3)
    instance = make_instance(size, capacity=np.ones((6, dims)), rigid=np.ones((12, dims), dtype=np.bool_))
    outcome = VectorPacking(method=method, criterion="SUM")(instance)
    order = naive.sort_order(instance.base.tolist(), "SUM", False, instance.lexicographic.tolist())
    ordered = method == "PP"
    numbers = instance.base.tolist(), order, instance.capacity.tolist(), tolerances.CAPACITY
    narrow = window if ordered or dims < 75 else 2
    success, place = naive.by_lists(*numbers, window=narrow, ordered=ordered, by_index=False)
    assert success == (outcome.allocation is not None)
    assert success
    assert outcome.allocation.place.tolist() == place


@pytest.mark.parametrize("method", ["CP", "PP"])
def test_a_window_below_one_is_refused(method):
    with pytest.raises(UnsupportedError, match="window 0: must be at least 1"):
        VectorPacking(method=method, criterion="SUM", window=0)(wide_instance(2))


@pytest.mark.parametrize(("method", "window", "dims"), [("PP", 7, 7), ("CP", 6, 14), ("PP", 3, 2), ("CP", 9, 4)])
def test_windows_up_to_the_limit_or_wider_than_the_resources_are_taken(method, window, dims):
    instance = wide_instance(dims)
    outcome = VectorPacking(method=method, criterion="SUM", window=window)(instance)
    assert_sound(instance, outcome)
    assert outcome.minimum_yield == 1.0


def test_first_and_best_fit_know_no_window():
    for method in ("FF", "BF"):
        outcome = VectorPacking(method=method, criterion="LEX", window=0)(wide_instance(20))
        assert outcome.minimum_yield == 1.0


@given(strategies.parallel_instances)
def test_the_dominance_add_on_never_breaks_a_packing_nor_loses_yield(instance):
    """For the six algorithms [Stillwell2010] section 4.2.5 has it for."""
    for name, packing in VECTOR_PACKINGS.items():
        if packing.method not in ("FF", "BF"):
            continue
        plain, added = (outcome_or_none(p, instance) for p in (packing, replace(packing, dominance=True)))
        if plain is None:
            continue
        assert_sound(instance, added)
        assert added.details["searched_yield"] >= plain.details["searched_yield"], name


def test_the_dominance_add_on_finds_a_packing_where_the_plain_order_fails():
    gained = 0
    for instance in seeded_instances(400):
        for criterion in ("SUM", "MAX", "LEX"):
            packing = VectorPacking(method="FF", criterion=criterion)
            plain, added = (outcome_or_none(p, instance) for p in (packing, replace(packing, dominance=True)))
            gained += value(added) > value(plain) + SLACK
    assert gained > 0


def test_the_best_packing_is_as_good_as_each_of_the_fourteen():
    for seed, instance in enumerate(seeded_instances(400)):
        best = value(outcome_or_none(best_packing, instance))
        for name, packing in VECTOR_PACKINGS.items():
            assert best >= value(outcome_or_none(packing, instance)) - SLACK, (seed, name)


def test_the_best_packing_counts_what_a_placement_allows_beyond_the_yield_searched():
    """VP_PPSUM stops at a yield below that of VP_FFSUM's placement, but its own placement allows more."""
    instance = make_instance(
        [
            [0.5, 0.125],
            [0.375, 0.375],
            [0.5, 0.625],
            [0.25, 0.625],
            [0.125, 0.875],
            [1.0, 0.625],
            [0.25, 1.0],
        ],
        capacity=[[1.0, 1.0]] * 3,
    )
    assert value(best_packing(instance)) >= value(VECTOR_PACKINGS["VP_PPSUM"](instance))


@given(strategies.instances)
def test_the_best_packing_names_the_winner_whose_placement_it_has(instance):
    best = outcome_or_none(best_packing, instance)
    assume(best is not None)
    assert_sound(instance, best)
    assert ("winner" in best.details) == (best.allocation is not None)
    if best.allocation is not None:
        assert best.details["winner"] in VECTOR_PACKINGS


@pytest.mark.parametrize("name", ["VP_FFSUM", "GREEDY_S5_P7"])
def test_a_node_filled_up_to_the_tolerance_is_an_outcome(name):
    """A packer takes half a node and half a node and 1e-9; what adds up its loads must forgive the same."""
    instance = make_instance([[0.5, 0.125], [0.500000001, 0.125]], capacity=[[1.0, 1.0], [0.25, 0.25]])
    outcome = (PACKINGS | GREEDIES)[name](instance, np.random.default_rng(0))
    assert_sound(instance, outcome)


@pytest.mark.parametrize("name", PACKINGS)
def test_the_same_instance_gives_the_same_outcome(name):
    instance = seeded_instances(40, 3)[7]
    first, second = (outcome_or_none(PACKINGS[name], instance) for _ in range(2))
    assert value(first) == value(second)


def test_resources_may_be_rigid_for_one_service_and_fluid_for_another():
    instance = make_instance(
        [[0.5, 0.5], [0.5, 1.0]],
        capacity=[[1.0, 1.0]],
        kinds=[Kind.RIGID, Kind.FLUID],
        rigid=np.array([[True, True], [True, False]]),
    )
    for packing in PACKINGS.values():
        outcome = packing(instance)
        assert outcome.minimum_yield == pytest.approx(0.5)
        assert outcome.proven_optimal
