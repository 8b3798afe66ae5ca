"""Rebalancing beside its slow twin, and where it once differed."""

import numpy as np
import pytest
from hypothesis import given, settings

from dfrs.kernels import rebalance as kernels
from dfrs.model.decisions import JOB, RUNNING
from tests.naive import compare_policies as compare
from tests.naive.rebalance import Rule
from tests.policy_cases import drawn
from tests.rebalance_cases import NOW_S, RebalanceCase, rebalance_case


@settings(max_examples=400)
@given(case=drawn(rebalance_case))
def test_the_kernel_equals_its_twin(case):
    got, expected = compare.rebalance(kernels.rebalance, case)
    assert got == expected


@given(case=drawn(rebalance_case))
def test_the_bound_equals_its_twin(case):
    got, expected = compare.least_pressure(kernels.least_pressure, case)
    assert got == pytest.approx(expected, rel=1e-12)


def placed(*jobs, nodes, price_s=0.0):
    """Jobs as (nodes, need, memory, virtual time), all of them on nodes of size 1."""
    table = np.zeros(len(jobs), JOB)
    table["state"], table["start_s"], table["since_s"], table["ready_s"] = RUNNING, 100.0, 100.0, 100.0
    table["tasks"] = [len(at) for at, *_ in jobs]
    for name, column in zip(("need", "memory", "virtual_s"), list(zip(*jobs, strict=True))[1:], strict=True):
        table[name] = column
    slots = np.concatenate([at for at, *_ in jobs]).astype(np.int64)
    rule = Rule(0.2, 0.05, price_s, 2.0, 0.0, NOW_S, np.inf, np.inf, True)
    return RebalanceCase(
        now_s=NOW_S,
        jobs=table,
        first=np.concatenate([[0], np.cumsum(table["tasks"])]).astype(np.int64),
        before=slots,
        after=slots.copy(),
        yields=np.zeros(len(jobs)),
        capacity=np.ones((nodes, 2)),
        open=np.ones(nodes, np.bool_),
        reasons=np.zeros(len(jobs), np.int64),
        island=np.zeros(nodes, np.int64),
        fixed=np.zeros(len(jobs), np.bool_),
        slope=np.ones(len(jobs)),
        rule=rule,
    )


def moved(case):
    got, expected = compare.rebalance(kernels.rebalance, case)
    assert got == expected
    slots, _, again_s = got
    return slots, float(again_s)


def test_who_waits_for_less_than_was_found_since_asks_for_nothing():
    """The job that came last would pay later; another that leaves the node now does more, and then all is even."""
    young, old = ((0,), 0.25, 0.1, 1.0), ((0,), 0.75, 0.1, 900.0)
    assert moved(placed(old, ((0,), 0.75, 0.1, 900.0), young, nodes=2, price_s=1.0)) == ([0, 1, 0], np.inf)


def test_of_equal_exchanges_that_of_the_least_memory_is_made():
    """Jobs of 1 and 1 here; of 0.5 each on either of two other nodes, in more memory or in less."""
    here = [((0,), 1.0, 0.5, 0.0), ((0,), 1.0, 0.5, 0.0)]
    others = [((n,), 0.5, memory, 0.0) for n, memory in ((1, 0.5), (1, 0.5), (2, 0.4), (2, 0.4))]
    slots, _ = moved(placed(*here, *others, nodes=3))
    assert slots.count(0) == 2
    assert 0 in slots[4:]
    assert 0 not in slots[2:4]
