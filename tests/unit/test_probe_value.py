"""Whether a probe is worth what it costs: the kernel beside the same written plainly."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dfrs.kernels import likely_yields, observing
from tests.unit.test_likely_yields import beliefs, tasks

EVEN, LEAST_EVEN, AHEAD_S, KEEP = RATES = 0.9, 0.4, 3600.0, 0.05
CHANGE_S = 600.0


def believed(table, own, share):
    """[level] how probable it is that all of `own` have a yield above it."""
    levels = (np.arange(likely_yields.LEVELS) + 0.5) / likely_yields.LEVELS
    return np.array([np.prod([likely_yields.chance(table[t], share[t] / level) for t in own]) for level in levels])


def parts_of(table, own, capacity, common):
    """Shares by the estimates, equal ones, and those between."""
    share, fair = np.zeros(len(table)), np.zeros(len(table))
    load = np.maximum(table["estimate"][own], observing.LEAST_WEIGHT).sum()
    common = min(common, capacity / load)
    observing._offer(table, own, capacity, max(EVEN * common, LEAST_EVEN * capacity / load), AHEAD_S, share)
    slack = 2.0 * observing.RELATIVE
    likely_yields.fair_shares(table, own, capacity, observing.UNSURE, slack, 2.0 * observing.ABSOLUTE, fair)
    parts = np.arange(likely_yields.PARTS, -1, -1) / likely_yields.PARTS
    return [(1.0 - part) * share + part * fair for part in parts]


def plainly(table, capacity, probe_s):
    """(what a probe is expected to gain, what it costs)."""
    common, logs = observing._share_out(table, capacity, np.array(RATES[:3]), np.zeros(2), np.zeros(len(table)))
    chances = np.exp(logs)
    now, gain = chances.prod(axis=0).sum(), 0.0
    for c in np.flatnonzero(table["chosen"] == 1):
        n = table["node"][c]
        own = np.flatnonzero(table["node"] == n)
        others = np.delete(chances, n, axis=0).prod(axis=0)
        known = []
        for k in range(observing.OUTCOMES):
            found = table.copy()
            need = likely_yields.quantile(table[c], (k + 0.5) / observing.OUTCOMES)
            for name in ("low", "high", "estimate"):
                found[name][c] = need
            found["trust"][c], found["error"][c] = 1.0, 0.0
            shares = parts_of(found, own, capacity[n], common)
            known.append(max((others * believed(found, own, share)).sum() for share in shares))
        rate = ((1.0 + table["changes"][own]) / (CHANGE_S + table["age_s"][own])).sum()
        gain += (np.mean(known) - now) / rate
    return gain, probe_s * (1.0 - KEEP) * now


def pays(table, capacity, probe_s):
    return observing.pays(table, capacity, *RATES, probe_s, CHANGE_S)


@st.composite
def overloaded(draw):
    found = draw(st.lists(beliefs(), min_size=4, max_size=7))
    table = tasks(found, [k % 2 for k in range(len(found))])
    table["age_s"] = draw(st.lists(st.floats(0.0, 5000.0), min_size=len(found), max_size=len(found)))
    table["changes"] = draw(st.lists(st.integers(0, 5), min_size=len(found), max_size=len(found)))
    table["chosen"][draw(st.integers(0, len(found) - 1))] = 1
    return table


@given(overloaded(), st.floats(0.2, 1.0), st.floats(0.1, 60.0))
def test_a_probe_pays_if_it_is_expected_to_gain_more_than_it_costs(table, capacity, probe_s):
    before, nodes = table.copy(), np.full(2, capacity)
    gain, cost = plainly(table, nodes, probe_s)
    found = pays(table, nodes, probe_s)
    assert (table == before).all(), "what is only thought of is not kept"
    if abs(gain - cost) > 1e-3 * (1.0 + cost):
        assert found == (gain > cost)


def test_what_is_known_is_not_probed_and_nothing_is_probed_for_an_hour():
    table = tasks([(0.7, 0.7, 1.0, 0.0), (0.0, 1.0, 1.0, 0.0), (0.5, 0.5, 1.0, 0.0)])
    nodes = np.ones(1)
    table["chosen"] = [1, 0, 0]
    assert not pays(table, nodes, 2.0)
    table["chosen"] = [0, 1, 0]
    assert pays(table, nodes, 2.0)
    assert not pays(table, nodes, 3600.0)


def test_what_changes_all_the_time_is_not_probed():
    table = tasks([(0.7, 0.7, 1.0, 0.0), (0.0, 1.0, 1.0, 0.0), (0.5, 0.5, 1.0, 0.0)])
    table["chosen"] = [0, 1, 0]
    table["changes"], table["age_s"] = 100, 600.0
    assert not pays(table, np.ones(1), 2.0)
