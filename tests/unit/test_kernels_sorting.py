import numpy as np
import pytest
from hypothesis import given

from dfrs.kernels.sorting import stable_order
from tests import strategies
from tests.cases import KeyCase
from tests.naive import compare


@given(strategies.keys)
def test_keys_are_ordered_as_by_a_stable_sort(case):
    got, expected = compare.stable_order(stable_order, case)
    assert got == expected


@pytest.mark.parametrize("ascending", [False, True])
@pytest.mark.parametrize("count", [1499, 1500, 1501, 4000])
def test_both_sides_of_the_change_to_radix_sort_agree_with_a_stable_sort(count, ascending):
    rng = np.random.default_rng(count)
    key = rng.integers(0, 50, count) / 8
    key[rng.integers(0, count, 40)] = np.inf
    key[rng.integers(0, count, 40)] = -0.0
    got, expected = compare.stable_order(stable_order, KeyCase(key=key, ascending=ascending))
    assert got == expected


@pytest.mark.parametrize("count", [10, 2000])
def test_negative_and_positive_zero_are_equal(count):
    key = np.zeros(count)
    key[::2] = -0.0
    assert stable_order(key, True).tolist() == list(range(count))
    assert stable_order(key, False).tolist() == list(range(count))


@pytest.mark.parametrize("ascending", [False, True])
def test_every_magnitude_of_a_double_is_ordered(ascending):
    key = np.random.default_rng(1).permutation(np.ldexp(1.0, np.arange(-1074, 1024)))
    got, expected = compare.stable_order(stable_order, KeyCase(key=key, ascending=ascending))
    assert got == expected


def test_the_key_is_left_as_it_was():
    key = np.random.default_rng(2).random(2000)
    before = key.copy()
    stable_order(key, False)
    assert (key == before).all()
