"""Mutations say what they change, whatever names and layout are; where nothing is at their address they say so."""

import pytest

from tests.mutations import (
    AddressError,
    Assign,
    Backwards,
    Condition,
    Constant,
    Drop,
    Exchange,
    Keep,
    Omit,
    Operator,
    Rewrite,
    Separate,
    Shift,
    Swap,
    mutated,
)
from tests.unit import test_mutations, test_mutations_online, test_mutations_search, test_policies_mutations

SOURCE = """
def f(n, m):
    total = 0
    for k in range(n):
        if k < m and n > 1:
            total += max(k, 2)
        elif m > 3:
            total = k
    return total
"""


@pytest.mark.parametrize(
    ("mutation", "expected"),
    [
        (Operator("<", "<="), "k <= m and n > 1"),
        (Operator(">", "!=", 1), "m != 3"),
        (Operator("+", "-"), "total -= max(k, 2)"),
        (Constant(1, 7), "n > 7"),
        (Condition(1, False), "elif False"),
        (Condition(0), "if not (k < m and n > 1)"),
        (Keep("call", 1, 1), "total += 2"),
        (Omit(0, 0), "if n > 1:"),
        (Swap("call", 1), "max(2, k)"),
        (Shift(0, 0, -1), "range(n - 1)"),
        (Backwards(0), "range(n)[::-1]"),
        (Assign(0), "total = max(k, 2)"),
        (Drop(2), "elif m > 3:\n            pass"),
        (Separate(0), "\n        if m > 3:"),
        (Rewrite("total", "n", 3), "return n"),
    ],
    ids=str,
)
def test_each_operator(mutation, expected):
    assert expected in mutated(SOURCE, mutation)
    assert expected not in SOURCE
    layout = SOURCE.replace("k < m and n > 1", "(k <\n   m and (n > 1))").replace(
        "total = 0", "total = 0  # nothing yet"
    )
    assert mutated(layout, mutation) == mutated(SOURCE, mutation)
    if not isinstance(mutation, Rewrite):
        assert mutated(SOURCE.replace("total", "found"), mutation).replace("found", "total") == mutated(
            SOURCE, mutation
        )


@pytest.mark.parametrize(
    ("mutation", "words"),
    [
        (Operator("<", "<=", 1), "no operator < number 1: there are 1: k < m"),
        (Keep("call", 0, 1), r"range\(n\): has 1 parts"),
        (Rewrite("k < n", "k"), "`k < n` number 0: there are 0; near it: .*k < m"),
        (Constant(1, 1), "changes nothing"),
    ],
    ids=str,
)
def test_an_address_that_leads_nowhere_is_told(mutation, words):
    with pytest.raises(AddressError, match=words):
        mutated(SOURCE, mutation)


def test_statements_change_places():
    assert mutated("def f(a):\n    a += 1\n    a *= 2", Exchange(0)) == "def f(a):\n    a *= 2\n    a += 1"


@pytest.mark.parametrize(
    "module",
    [test_mutations, test_mutations_online, test_mutations_search, test_policies_mutations],
    ids=lambda module: module.__name__,
)
def test_every_listed_mutation_has_its_place(module):
    for subject in module.SUBJECTS:
        for mutation in subject.mutations:
            assert mutated(subject.source, mutation)
