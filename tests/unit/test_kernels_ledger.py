import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.kernels import columns, ledger
from tests import online_cases, strategies
from tests.naive import compare_online as compare


@st.composite
def online(draw):
    return online_cases.reconcile_case(strategies.Drawn(draw))


@pytest.mark.parametrize(
    ("kernel", "comparison"),
    [
        (ledger.advance, compare.advance),
        (ledger.row_of, compare.row_of),
        (ledger.add_row, compare.add_row),
        (ledger.remove_row, compare.remove_row),
        (ledger.resize_row, compare.resize_row),
        (ledger.row_of_serial, compare.row_of_serial),
        (ledger.set_ready, compare.set_ready),
        (ledger.set_virtual, compare.set_virtual),
        (ledger.lose_node, compare.lose_node),
        (columns.append_commands, compare.append_commands),
        (columns.write_rows, compare.write_rows),
    ],
    ids=lambda value: value.__name__,
)
@given(case=online())
def test_the_kernel_equals_its_twin(kernel, comparison, case):
    got, expected = comparison(kernel, case)
    assert got == expected


def test_an_array_grows_to_at_least_twice_its_length_and_keeps_what_it_has():
    array = np.arange(5)
    assert columns.grown(array, 5) is array
    larger = columns.grown(array, 6)
    assert larger.tolist() == [0, 1, 2, 3, 4, 0, 0, 0, 0, 0]
    assert len(columns.grown(array, 50)) == 50
    assert len(columns.grown(array[:0], 1)) == 1
