from hypothesis import given

from dfrs.kernels import yields as kernels
from tests import strategies
from tests.naive import compare


@given(strategies.placements)
def test_loads_are_the_sums_over_the_tasks_of_a_node(case):
    got, expected = compare.node_loads(kernels.node_loads, case)
    assert got == expected


@given(strategies.placements)
def test_the_minimum_yield_is_the_tightest_ratio_of_free_to_rate(case):
    got, expected = compare.minimum_yield(kernels.minimum_yield, case)
    assert got == expected


@given(strategies.averages)
def test_the_average_is_raised_as_the_text_has_it(case):
    got, expected = compare.fill_average(kernels.fill_average, case)
    assert got == expected


@given(strategies.parallel_placements)
def test_water_filling_agrees_with_exact_fractions(case):
    got, expected = compare.fill_max_min(kernels.fill_max_min, case)
    assert got == expected
