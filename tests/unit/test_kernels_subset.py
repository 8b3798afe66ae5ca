"""Basic_DP, Reservation_DP and their extension against trying all sets."""

from functools import cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dfrs.kernels import subset as kernels
from tests.naive import subset as naive
from tests.unit.test_kernels_batch import as_python


@st.composite
def queues(draw, most_jobs=14, most_rooms=5):
    """Sizes, crossings and rooms; often of a common divisor, often too large."""
    unit = draw(st.sampled_from([1, 1, 2, 32]))
    size = draw(st.lists(st.integers(1, 12), max_size=most_jobs))
    rooms = draw(st.lists(st.integers(0, 30), min_size=1, max_size=most_rooms, unique=True))
    room = sorted(rooms, reverse=True)
    crossing = [draw(st.integers(0, len(room) - 1)) for _ in size]
    return [unit * s for s in size], crossing, [unit * r + draw(st.integers(0, unit - 1)) for r in room]


def selected(module, size, crossing, room):
    chosen = np.ones(len(size), np.bool_)
    total = module.select(np.array(size, np.int64), np.array(crossing, np.int64), np.array(room, np.int64), chosen)
    assert total == sum(s for s, c in zip(size, chosen, strict=True) if c)
    return chosen.tolist()


@pytest.mark.parametrize("rooms", [1, 2, 3, 5], ids=["basic", "reservation", "two-reservations", "four-reservations"])
@settings(max_examples=150)
@given(data=st.data())
def test_the_set_is_the_one_found_by_trying_all(rooms, data):
    size, crossing, room = data.draw(queues(most_jobs=14 if rooms < 3 else 11, most_rooms=rooms))
    assert selected(kernels, size, crossing, room) == naive.best(size, crossing, room)


def test_figure_2_the_last_two_of_three_jobs_fill_the_machine():
    assert selected(kernels, [7, 4, 6], [0, 0, 0], [10]) == [False, True, True]


def test_of_equal_sets_the_one_with_the_earlier_job_is_chosen():
    assert selected(kernels, [2, 3, 3, 2, 5], [0] * 5, [5]) == [True, True, False, False, False]
    assert selected(kernels, [5, 5], [1, 0], [5, 4]) == [False, True]


def test_no_jobs_and_no_room():
    assert selected(kernels, [], [], [5]) == []
    assert selected(kernels, [3, 4], [0, 0], [2]) == [False, False]
    assert selected(kernels, [3], [1], [3, 0]) == [False]


@given(st.integers(1, 400), st.integers(1, 40))
@example(32, 32)
@example(33, 32)
def test_processors_are_counted_in_whole_units(processors, unit):
    units = kernels.in_units(processors, unit)
    assert (units - 1) * unit < processors <= units * unit


@cache
def seeded():
    found = []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        room = sorted(rng.choice(25, size=1 + seed % 4, replace=False).tolist(), reverse=True)
        size = rng.integers(1, 9, size=rng.integers(1, 9)).tolist()
        crossing = rng.integers(0, len(room), size=len(size)).tolist()
        found.append((size, crossing, room, naive.best(size, crossing, room)))
    return found


def differs(module):
    try:
        return any(selected(module, size, crossing, room) != best for size, crossing, room, best in seeded())
    except (AssertionError, IndexError):
        return True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("divisor = np.gcd(divisor, size[j])", "divisor = 2"),
        ("room[0] < divisor", "room[0] <= divisor"),
        ("spare = room[1] if", "spare = room[0] if"),
        ("after[a - s] + frozen", "after[a - s]"),
        ("least[0, total] > spare", "least[0, total] >= _NEVER"),
        ("<= spare:\n            chosen", "< spare:\n            chosen"),
        ("spare -= frozen", "spare -= 0"),
        ("left -= size[j]", "left -= 0"),
        ("longest_first, chosen) < total", "longest_first, chosen) <= total"),
        ("left[s, g] = room[g] // s", "left[s, g] = 1"),
        ("if taken == total:", "if taken > 0:"),
        ("np.argsort(-crossing", "np.argsort(crossing"),
        ("reached[a] and not taken[j]", "reached[a]"),
        ("reached[room[g] + 1 :] = False", "reached[room[0] + 1 :] = False"),
    ],
)
def test_a_changed_kernel_is_noticed(old, new):
    assert differs(as_python(kernels, old=old, new=new)) == (old != new)
