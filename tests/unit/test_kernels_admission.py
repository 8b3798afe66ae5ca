"""Priorities, loads, Greedy, GreedyP and GreedyPM, beside their slow twins."""

import pytest
from hypothesis import given

from dfrs.kernels import admission, loads
from tests.naive import compare_policies as compare
from tests.policy_cases import crowded_case, drawn, policy_case


@pytest.mark.parametrize(
    ("kernel", "comparison"),
    [
        (loads.node_use, compare.node_use),
        (loads.largest_load, compare.largest_load),
        (loads.by_priority, compare.by_priority),
        (admission.count_room, compare.count_room),
        (admission.admit, compare.admit),
        (admission.readmit, compare.readmit),
    ],
    ids=lambda value: value.__name__,
)
@given(case=drawn(policy_case))
def test_the_kernel_equals_its_twin(kernel, comparison, case):
    got, expected = comparison(kernel, case)
    assert got == expected


@given(case=drawn(crowded_case))
def test_giving_way_equals_its_twin(case):
    got, expected = compare.admit(admission.admit, case)
    assert got == expected
