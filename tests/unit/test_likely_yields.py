"""Shares by what is believed of needs: the kernel beside samples of the beliefs and beside all combinations."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.kernels import likely_yields
from dfrs.model.needs import new_tasks

UNSURE, SLACK, EXTRA = 0.15, 0.04, 0.04


def tasks(beliefs, node=None):
    """A table: beliefs are (low, high, trust, used), the most that each may need is 1."""
    table = np.concatenate([new_tasks(t, [0 if node is None else node[t]]) for t in range(len(beliefs))])
    for row, (low, high, trust, used) in zip(table, beliefs, strict=True):
        row["low"], row["high"], row["trust"], row["most"] = low, high, trust, 1.0
        row["estimate"] = trust * (low + high) / 2.0 + (1.0 - trust) * (used + 1.0) / 2.0
        row["error"] = 0.2 if trust < 1.0 else (high - low) / np.sqrt(12.0)
    return table


@st.composite
def beliefs(draw):
    low = draw(st.floats(0.0, 1.0))
    high = draw(st.one_of(st.just(low), st.floats(low, 1.0)))
    return low, high, draw(st.one_of(st.just(1.0), st.floats(0.0, 0.99))), draw(st.floats(0.0, 0.95))


def samples(belief, rng, size):
    low, high, trust, used = belief
    return np.where(rng.random(size) < trust, rng.uniform(low, high, size), rng.uniform(used, 1.0, size))


@given(beliefs(), st.floats(0.0, 1.2))
def test_a_chance_is_the_part_of_all_needs_that_are_believed(belief, cpu):
    needs = samples(belief, np.random.default_rng(7), 20_000)
    found = likely_yields.chance(tasks([belief])[0], cpu)
    # A need that is known exactly may lie on the limit.
    assert (needs < cpu - 1e-6).mean() - 0.02 <= found <= (needs <= cpu + 1e-6).mean() + 0.02


def test_a_declared_need_is_certain():
    table = tasks([(0.0, 1.0, 0.3, 0.0)])
    table["declared"], table["estimate"] = 1, 0.4
    assert [likely_yields.chance(table[0], cpu) for cpu in (0.39, 0.4)] == [0.0, 1.0]


@given(st.lists(beliefs(), min_size=1, max_size=5), st.floats(0.1, 3.0))
def test_fair_shares_are_equal_but_for_those_that_need_less(found, capacity):
    table = tasks(found)
    fair = np.zeros(len(table))
    likely_yields.fair_shares(table, np.arange(len(table)), capacity, UNSURE, SLACK, EXTRA, fair)
    limit = np.where(
        table["error"] <= UNSURE, (table["estimate"] + 2.0 * table["error"]) * (1.0 + SLACK) + EXTRA, table["most"]
    )
    assert fair.sum() == pytest.approx(min(capacity, limit.sum()))
    assert (fair <= limit + 1e-9).all()
    short = fair < limit - 1e-9
    assert np.ptp(fair[short]) < 1e-9 if short.any() else True
    assert fair[~short].max(initial=0.0) <= fair[short].min(initial=np.inf) + 1e-9


def naive_expected(table, share):
    """Sum over levels of how probable it is that every yield is above, by `chance` alone."""
    levels = (np.arange(likely_yields.LEVELS) + 0.5) / likely_yields.LEVELS
    total = 0.0
    for level in levels:
        total += np.prod([max(likely_yields.chance(row, s / level), 0.0) for row, s in zip(table, share, strict=True)])
    return total


@given(st.lists(beliefs(), min_size=2, max_size=4), st.integers(0, 2**32 - 1))
def test_on_one_node_the_best_part_is_taken(found, seed):
    table = tasks(found)
    rng = np.random.default_rng(seed)
    share, fair = rng.dirichlet(np.ones(len(table)), 2)
    parts = np.linspace(0.0, 1.0, likely_yields.PARTS + 1)
    values = [naive_expected(table, (1.0 - p) * share + p * fair) for p in parts]
    taken = share.copy()
    likely_yields.even_out(table, np.ones(1), np.array([True]), fair, taken)
    assert naive_expected(table, taken) >= max(values) * (1.0 - 1e-6) - 1e-9
    if not any(values):
        assert taken == pytest.approx(fair)


@given(st.lists(beliefs(), min_size=4, max_size=4), st.integers(0, 2**32 - 1))
def test_nodes_are_evened_out_together(found, seed):
    """Never worse than fair shares everywhere, by the same measure; a node that is not full stays as it is."""
    node = [0, 0, 1, 1]
    table = tasks(found, node)
    rng = np.random.default_rng(seed)
    share, fair = np.concatenate([rng.dirichlet(np.ones(2), 2) for _ in range(2)], axis=1)
    for full in product([True, False], repeat=2):
        taken = share.copy()
        likely_yields.even_out(table, np.ones(2), np.array(full), fair, taken)
        many = np.repeat(full, 2)
        assert (taken[~many] == share[~many]).all()
        start = np.where(many, fair, share)
        assert naive_expected(table, taken) >= naive_expected(table, start) * (1.0 - 1e-6) - 1e-9


def test_hundreds_of_nodes_still_differ():
    """Where it is nearly certain that some yield is small, what is best is still told apart."""
    table = tasks([(0.2, 0.2, 1.0, 0.2), (0.8, 0.8, 1.0, 0.8)] * 300, np.repeat(np.arange(300), 2).tolist())
    share = np.tile([0.1, 0.4], 300)
    fair = np.full(600, 0.25)
    likely_yields.even_out(table, np.full(300, 0.5), np.ones(300, bool), fair, share)
    assert share == pytest.approx(np.tile([0.1, 0.4], 300))


@given(beliefs(), st.floats(0.01, 0.99))
def test_a_quantile_is_where_the_chance_is_that_part(belief, part):
    row = tasks([belief])[0]
    found = likely_yields.quantile(row, part)
    assert likely_yields.chance(row, found) >= part - 1e-9
    assert found == pytest.approx(0.0, abs=2e-6) or likely_yields.chance(row, found - 2e-6) <= part + 1e-9
