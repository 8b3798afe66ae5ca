"""How OBSERVE divides a node by estimates: shares beside what makes them the best, and what past yields change."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.kernels import observing
from dfrs.model.needs import new_tasks

AHEAD_S = 3600.0


def full_node(*rows):
    """Tasks of one node; rows are (estimate, mean yield so far, of how many seconds)."""
    table = np.concatenate([new_tasks(t, [0]) for t in range(len(rows))])
    for row, (estimate, mean, seconds) in zip(table, rows, strict=True):
        row["estimate"], row["used_s"], row["seen_s"] = estimate, mean * seconds, seconds
    return table


def offered(table, capacity, least):
    share = np.full(len(table), np.nan)
    observing._offer(table, np.arange(len(table)), capacity, least, AHEAD_S, share)
    return share


past = st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.one_of(st.just(0.0), st.floats(1.0, 14_400.0)))


@given(st.lists(past, min_size=1, max_size=6), st.floats(0.05, 0.99), st.floats(0.0, 1.0))
def test_what_is_left_is_for_the_least_mean_yield(rows, level, part):
    table = full_node(*rows)
    need = np.maximum(table["estimate"], observing.LEAST_WEIGHT)
    capacity = level * need.sum()
    least = part * level
    share = offered(table, capacity, least)
    assert share.sum() == pytest.approx(capacity, rel=1e-6)
    most = need * (1.0 + 2.0 * observing.RELATIVE) + 2.0 * observing.ABSOLUTE
    assert (share >= least * need * (1.0 - 1e-9)).all()
    assert (share <= most * (1.0 + 1e-9)).all()
    mean = (table["used_s"] + AHEAD_S * share / need) / (table["seen_s"] + AHEAD_S)
    gives, takes = share > least * need * (1.0 + 1e-6), share < most * (1.0 - 1e-6)
    if gives.any() and takes.any():
        assert mean[gives].max() <= mean[takes].min() + 1e-6, "to give from one to the other would raise the least"


def test_tasks_that_had_the_same_so_far_have_equal_yields():
    share = offered(full_node((0.2, 0.5, 900.0), (0.6, 0.5, 900.0), (0.8, 0.5, 900.0)), 0.8, 0.2)
    assert share == pytest.approx([0.1, 0.3, 0.4])


def test_who_had_less_has_more_as_far_as_the_others_keep_the_least():
    table = full_node((0.5, 0.1, 7200.0), (0.5, 0.9, 7200.0))
    assert offered(table, 0.5, 0.25) == pytest.approx([0.375, 0.125])


def test_a_lag_of_minutes_counts_less_than_one_of_hours():
    gaps = []
    for seconds in (600.0, 3600.0):
        few, many = offered(full_node((0.5, 0.4, seconds), (0.5, 0.5, seconds)), 0.5, 0.1)
        gaps.append(few - many)
    # The means are equal in an hour: a yield higher by 0.1 for as long as they differed so much.
    assert gaps == pytest.approx([0.5 * 0.1 * 600.0 / AHEAD_S, 0.5 * 0.1])


def test_a_node_that_has_more_than_all_need_gives_it_in_proportion():
    assert offered(full_node((0.2, 1.0, 60.0), (0.3, 0.0, 60.0)), 1.0, 0.4) == pytest.approx([0.4, 0.6])
