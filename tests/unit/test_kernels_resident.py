"""Jobs by priority where a job that has started cannot go everywhere."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dfrs.kernels import resident as kernels
from dfrs.model import tolerances
from dfrs.model.decisions import PAUSED
from tests import online_cases
from tests.naive import resident as naive
from tests.naive.compare_online import lists, rows_of
from tests.strategies import Drawn

EIGHTHS = 8.0
"""Amounts in eighths: sums are exact, whichever way they are added up."""


@st.composite
def resident_case(draw):
    """(case, islands, home, fixed, spare, order, movable, aged)."""
    source = Drawn(draw)
    case = online_cases.reconcile_case(source)
    jobs = case.jobs.copy()
    for name in ("need", "memory"):
        jobs[name] = np.ceil(jobs[name] * EIGHTHS) / EIGHTHS
    capacity = np.ceil(case.capacity * EIGHTHS) / EIGHTHS
    nodes, rows = len(capacity), case.rows
    islands = [source.integer(0, 2) for _ in range(nodes)]
    home = np.full(len(case.before), -1)
    for r in np.flatnonzero(jobs["state"] == PAUSED):
        home[case.slots(r)] = [source.pick([*islands, -1]) for _ in range(jobs["tasks"][r])]
    fixed = [source.integer(0, 1) == 1 for _ in range(nodes)]
    spare = source.integer(0, nodes)
    order = draw(st.permutations(range(rows)))[: source.integer(0, rows)]
    movable = [source.integer(0, 1) == 1 for _ in range(rows)]
    aged = source.pick((-1, *order))
    return replace(case, jobs=jobs, capacity=capacity), islands, home, fixed, spare, order, movable, aged


def settled(case, islands, home, fixed, spare, order, movable, aged):
    slots = np.empty(len(case.before), np.int64)
    kernels.settle_resident(
        case.jobs,
        case.first,
        case.before,
        home,
        np.array(islands),
        case.capacity,
        case.open,
        np.array(fixed, np.bool_),
        spare,
        tolerances.CAPACITY,
        np.array(order, np.int64),
        np.array(movable, np.bool_),
        aged,
        slots,
    )
    return slots


@settings(max_examples=300)
@given(drawn=resident_case())
def test_the_kernel_equals_its_twin(drawn):
    case, islands, home, fixed, spare, order, movable, aged = drawn
    slots = settled(case, islands, home, fixed, spare, order, movable, aged)
    expected = naive.settle(
        rows_of(case.jobs),
        lists(case, case.before),
        lists(case, home),
        islands,
        naive.Nodes(case.capacity.tolist(), case.open.tolist(), tolerances.CAPACITY),
        fixed,
        spare,
        order,
        movable,
        aged,
    )
    assert lists(case, slots) == expected


@settings(max_examples=100)
@given(drawn=resident_case())
def test_no_memory_is_overcommitted_and_who_has_started_stays_in_its_island(drawn):
    case, islands, home, fixed, spare, order, movable, _ = drawn
    slots = settled(case, islands, home, fixed, spare, order, movable, -1)
    island = np.array(islands)
    used = np.zeros(len(case.capacity))
    for r in range(case.rows):
        part = case.slots(r)
        placed = slots[part] >= 0
        assert placed.all() or not placed.any()
        if not placed.any():
            continue
        assert r in order
        np.add.at(used, slots[part], case.jobs["memory"][r])
        bound = island[case.before[part]] if case.before[part][0] >= 0 else home[part]
        assert ((bound < 0) | (island[slots[part]] == bound)).all()
    assert (used <= case.capacity[:, 1] + 2 * tolerances.CAPACITY).all()
