import numpy as np
import pytest
from hypothesis import given

from dfrs.kernels import packing as kernels
from dfrs.kernels import search
from dfrs.placement.packing import _list_plan
from tests import strategies
from tests.cases import empty_place
from tests.naive import compare
from tests.naive import packing as naive


@given(strategies.packings)
def test_tasks_are_sorted_as_the_text_has_it(case):
    got, expected = compare.sort_order(kernels.sort_order, case)
    assert got == expected


@given(strategies.packings)
def test_first_fit_places_each_task_as_its_twin_does(case):
    got, expected = compare.pack_first_fit(kernels.pack_first_fit, case)
    assert got == expected


@given(strategies.packings)
def test_best_fit_places_each_task_as_its_twin_does(case):
    got, expected = compare.pack_best_fit(kernels.pack_best_fit, case)
    assert got == expected


@given(strategies.packings)
def test_packing_by_lists_places_each_task_as_its_twin_does(case):
    got, expected = compare.pack_by_lists(kernels.pack_by_lists, case)
    assert got == expected


@given(strategies.packings)
def test_every_method_is_reached_by_its_number(case):
    got, expected = compare.pack(kernels.pack, case)
    assert got == expected


@given(strategies.packings)
def test_the_largest_coordinates_come_in_decreasing_order(case):
    got, expected = compare.largest(kernels._largest, case)
    assert got == expected


@given(strategies.packings)
def test_a_list_has_the_number_of_its_dimensions(case):
    got, expected = compare.list_code(kernels._code, case)
    assert got == expected


@given(strategies.packings)
def test_lists_hold_their_tasks_in_sorted_order(case):
    got, expected = compare.group(kernels._group, case)
    assert got == expected


@given(strategies.packings)
def test_the_lowest_coordinates_of_a_block_are_those_of_its_living_vectors(case):
    got, expected = compare.block_low(kernels._block_low, case)
    assert got == expected


@given(strategies.packings)
def test_passing_over_blocks_finds_the_first_vector_that_fits(case):
    got, expected = compare.first_that_fits(kernels._first_that_fits, case)
    assert got == expected


@given(strategies.packings)
def test_dominance_orders_tasks_as_its_twin_does(case):
    got, expected = compare.dominance_order(search.dominance_order, case)
    assert got == expected


def test_dominance_leaves_tied_tasks_in_their_order():
    """Resource 0 forbids two pairs of three, resource 1 all three: tasks 0 and 1 both weigh 2.125/3."""
    size = np.array([[0.875, 0.125], [0.125, 0.625], [0.5, 0.625]])
    capacity = np.array([[0.25, 0.625]])
    capacity.setflags(write=False)
    assert search.dominance_order(size, capacity, np.array([-1, 0, -1])).tolist() == [2, 0, 1]


@given(strategies.searches)
def test_the_yield_search_finds_the_packing_its_twin_finds(case):
    got, expected = compare.search_yield(search.search_yield, case)
    assert got == expected


def test_lists_are_tried_from_the_least_loaded_dimensions_on():
    """The order of [Stillwell2010] with w = 2: (s0,s1), (s0,s2), (s1,s2), (s0,s3), (s1,s3), (s2,s3)."""
    loads = [0.3, 0.0, 0.1, 0.2]
    pairs = list(naive.lists_to_try(loads, 2, ordered=False, by_index=False))
    assert pairs == [frozenset(p) for p in [(1, 2), (1, 3), (2, 3), (1, 0), (2, 0), (3, 0)]]
    window, (subsets, orders, _, _), _ = _list_plan(4, 2, False, False)
    assert window == 2
    assert subsets.tolist() == [[0, 1], [0, 2], [1, 2], [0, 3], [1, 3], [2, 3]]
    assert orders.tolist() == [[0, 1]] * 6


def test_permutation_pack_in_the_texts_order_looks_in_the_list_led_by_the_least_loaded_dimension_first():
    """With task 0 there, dimension 1 is less loaded than 0; `by_index` looks in the list led by 0 all the same."""
    size = np.array([[0.25, 0.125, 0.0], [0.25, 0.375, 0.0], [0.375, 0.25, 0.0]])
    order, capacity = np.arange(3), np.array([[0.625, 0.625, 1.0], [1.0, 1.0, 1.0]])
    placed = {}
    for by_index in (False, True):
        window, plan, list_of_code = _list_plan(3, 2, True, by_index)
        place = empty_place(3)
        assert kernels.pack_by_lists(size, order, capacity, 1e-9, window, plan, list_of_code, place)
        placed[by_index] = place.tolist()
    assert placed == {False: [0, 0, 1], True: [0, 1, 0]}


@pytest.mark.parametrize("method", [kernels.FIRST_FIT, kernels.BEST_FIT, kernels.BY_LISTS])
def test_a_partial_packing_marks_every_task_it_could_not_place(method):
    size = np.array([[0.875, 0.125], [0.875, 0.125], [0.125, 0.125]])
    window, plan, list_of_code = _list_plan(2, 2, True, False)
    place = np.full(3, 99, dtype=np.int64)
    success = kernels.pack(size, np.arange(3), np.ones((1, 2)), 1e-9, method, True, window, plan, list_of_code, place)
    assert not success
    assert set(place.tolist()) <= {-1, 0}
