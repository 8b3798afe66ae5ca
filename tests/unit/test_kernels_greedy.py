import numpy as np
import pytest
from hypothesis import given

from dfrs.kernels import greedy as kernels
from tests import strategies
from tests.cases import empty_place
from tests.naive import compare


@given(strategies.greedies)
def test_every_rule_places_each_task_as_its_twin_does(case):
    got, expected = compare.place_greedily(kernels.place_greedily, case)
    assert got == expected


@given(strategies.greedies)
def test_the_main_dimension_is_the_first_largest(case):
    got, expected = compare.argmax(kernels._argmax, case)
    assert got == expected


@given(strategies.greedies)
def test_placing_by_load_is_as_its_twin_does(case):
    got, expected = compare.place_by_load(kernels.place_by_load, case)
    assert got == expected


@given(strategies.backtrackings)
def test_backtracking_tries_the_same_nodes_in_the_same_order_as_its_twin(case):
    got, expected = compare.place_by_load(kernels.place_by_load, case)
    assert got == expected


@given(strategies.decimal_backtrackings)
def test_a_step_back_leaves_no_rounding_behind(case):
    got, expected = compare.place_by_load(kernels.place_by_load, case)
    assert got == expected


@pytest.mark.parametrize(("rule", "node"), [(1, 1), (2, 0), (3, 0), (4, 1), (5, 1), (6, 0), (7, 0)])
def test_each_rule_prefers_the_node_the_text_says(rule, node):
    """Node 0 holds 0.5 in one task, node 1 holds 0.75 in two of 0.375; the other dimensions put them there."""
    base = np.array([[0.5, 0.125, 0.0], [0.375, 0.0, 0.125], [0.375, 0.0, 0.125], [0.125, 0.0, 0.0]])
    capacity = np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
    place = empty_place(4)
    assert kernels.place_greedily(base, base, np.arange(4), capacity, 0.0, rule, place)
    assert place.tolist() == [0, 1, 1, node]


def test_only_fluid_needs_count_for_the_first_two_rules():
    base = np.array([[0.5], [0.125], [0.125]])
    fluid = np.array([[0.125], [0.5], [0.25]])
    chosen = {}
    for rule in (2, 6):
        place = empty_place(3)
        assert kernels.place_greedily(base, fluid, np.arange(3), np.ones((2, 1)), 0.0, rule, place)
        chosen[rule] = place.tolist()
    assert chosen == {2: [0, 1, 0], 6: [0, 1, 1]}


def test_no_more_placements_are_made_than_attempts_allow():
    """Five tasks of which only four fit: the search has more than 10 placements to try."""
    base, work = np.full((5, 1), 0.5), np.ones(5)
    success, used = kernels.place_by_load(base, work, np.arange(5), np.ones((2, 1)), 1e-9, True, 10, empty_place(5))
    assert (success, used) == (False, 10)
