"""Proof that the comparisons of kernels with their twins can fail.

Each kernel is broken in one place (`tests.mutations`), run as plain Python with the kernels it calls, and put through
the same comparison, on seeded cases, as the compiled kernel: the comparison must tell. As it stands it must pass.
"""

from functools import partial

import pytest

from dfrs.kernels import greedy, packing, search, sorting, yields
from tests import cases
from tests.mutations import (
    Assign,
    Backwards,
    Call,
    Condition,
    Constant,
    Keep,
    Negate,
    Omit,
    Operator,
    Part,
    Rewrite,
    Shift,
    Subject,
    Swap,
    Value,
    kernels_of,
    mutations_of,
)
from tests.naive import compare

pytestmark = pytest.mark.slow

parallel_yield_case = partial(cases.yield_case, tasks_per_service=3)
exact_backtracking_case = partial(cases.backtracking_case, grain=8)


def load_case(source: cases.Source) -> cases.GreedyCase:
    return (exact_backtracking_case if source.integer(0, 1) else cases.greedy_case)(source)


SUBJECTS = (
    Subject(
        sorting,
        "stable_order",
        compare.stable_order,
        cases.key_case,
        (
            Swap("choice", 0),
            Keep("arithmetic", 2, 0),
            Rewrite("~bits", "bits[::-1]"),
            Shift(5, 0, -1),
            Rewrite("_BITS", "_BITS + 1", 1),
            Backwards(3),
            Assign(1),
            Rewrite("start.max() == count", "start.max() >= count // 2"),
        ),
    ),
    Subject(
        packing,
        "sort_order",
        compare.sort_order,
        cases.packing_case,
        (
            Backwards(0),
            Rewrite("lexicographic[k]", "k"),
            Rewrite("order", "np.arange(tasks)", 2),
            Call("max", "min"),
            Call("min", "max"),
            Keep("arithmetic", 1, 0),
            Keep("choice", 0, 1),
            Rewrite("ascending", "not ascending", 1),
        ),
    ),
    Subject(
        packing,
        "pack_first_fit",
        compare.pack_first_fit,
        cases.packing_case,
        (
            Operator("<=", "<"),
            Operator(">=", ">"),
            Keep("arithmetic", 5, 0),
            Keep("arithmetic", 12, 0),
            Rewrite("row.max", "row.min"),
            Backwards(3),
            Rewrite("b", "b + 1", 3),
            Keep("sign", 0, 0),
            Condition(5),
            Constant(False, True, 1),
        ),
    ),
    Subject(
        packing,
        "pack_best_fit",
        compare.pack_best_fit,
        cases.packing_case,
        (
            Operator(">", ">="),
            Operator(">=", ">"),
            Keep("arithmetic", 1, 0),
            Value("element", 16, 0.0),
            Keep("choice", 0, 0),
            Constant(1, 0, 4),
            Value("sign", 1, 0.0),
            Condition(4),
        ),
    ),
    Subject(
        packing,
        "_code",
        compare.list_code,
        cases.packing_case,
        (Backwards(0), Condition(0), Rewrite("code |= 1 << dims_chosen[p]", "code += 2 << dims_chosen[p]")),
    ),
    Subject(
        packing,
        "_largest",
        compare.largest,
        cases.packing_case,
        (Operator(">", ">="), Operator(">", "<"), Shift(2, 0, -1)),
    ),
    Subject(
        packing,
        "_group",
        compare.group,
        cases.packing_case,
        (
            Rewrite("order[k]", "k"),
            Keep("arithmetic", 1, 0),
            Value("element", 6, 0),
            Rewrite("p", "i", 2),
            Constant(1, 0, 5),
        ),
    ),
    Subject(
        packing,
        "_block_low",
        compare.block_low,
        cases.packing_case,
        (Shift(1, 1, -1), Shift(1, 0, 1), Condition(0, True), Call("min", "max")),
    ),
    Subject(
        packing,
        "_first_that_fits",
        compare.first_that_fits,
        cases.packing_case,
        (
            Rewrite("cursor", "begin"),
            Keep("arithmetic", 1, 0),
            Keep("arithmetic", 5, 1),
            Operator(">", ">="),
            Operator(">", ">=", 1),
            Condition(4, True),
            Constant(1, 2),
        ),
    ),
    Subject(
        packing,
        "pack_by_lists",
        compare.pack_by_lists,
        cases.packing_case,
        (
            Operator(">", ">=", 4),
            Operator(">", "<", 4),
            Condition(5),
            Rewrite("permutations[t, p]", "p"),
            Value("element", 68, 0.0),
            Operator("-", "+", 10),
            Keep("arithmetic", 35, 0),
            Keep("choice", 0, 0),
            Rewrite("task[p]", "p"),
            Rewrite("False", "n > 0", 1),
            Rewrite("capacity[n, d]", "2 * capacity[n, d]", 3),
            Constant(1, 2, 11),
            Operator("+", "-", 18),
            Keep("arithmetic", 29, 0),
        ),
    ),
    Subject(
        packing,
        "pack",
        compare.pack,
        cases.packing_case,
        (
            Rewrite("FIRST_FIT", "BEST_FIT"),
            Rewrite("BEST_FIT", "BY_LISTS"),
            Rewrite("order", "order[::-1]", 1),
            Rewrite("order", "order[::-1]", 2),
        ),
    ),
    Subject(
        search,
        "dominance_order",
        compare.dominance_order,
        cases.packing_case,
        (
            Constant("right", "left"),
            Operator(">=", ">"),
            Constant(False, True),
            Keep("arithmetic", 2, 1),
            Keep("arithmetic", 0, 0),
        ),
    ),
    Subject(
        search,
        "search_yield",
        compare.search_yield,
        cases.search_case,
        (
            Rewrite("0.5 * (low + high)", "0.75 * low + 0.25 * high"),
            Keep("choice", 0, 1),
            Omit(0, 0),
            Rewrite("width", "2 * width", 1),
            Condition(5, False),
            Value("assignment", 16, 0),
            Keep("arithmetic", 4, 1),
            Rewrite("target", "target + width", 5),
            Rewrite("success", "not success", 4),
            Rewrite("size", "base", 1),
        ),
    ),
    Subject(greedy, "_argmax", compare.argmax, cases.greedy_case, (Operator(">", ">="), Value("assignment", 1, 0))),
    Subject(
        greedy,
        "place_greedily",
        compare.place_greedily,
        cases.greedy_case,
        (
            Operator("<=", "<"),
            Rewrite("HIGH_SUM", "LOW_SUM"),
            Rewrite("(LOW_MAX_NEED, HIGH_MAX, LOW_MAX)", "(LOW_MAX_NEED, HIGH_MAX)"),
            Operator("<", "<=", 1),
            Operator(">", ">=", 1),
            Operator(">", ">="),
            Rewrite("measure", "base", 1),
            Value("element", 17, 0.0),
            Keep("call", 12, 1),
            Rewrite("measure", "base", 3),
            Keep("call", 5, 1),
        ),
    ),
    Subject(
        greedy,
        "place_by_load",
        compare.place_by_load,
        load_case,
        (
            Negate("call", 5, 0),
            Keep("choice", 1, 1),
            Value("element", 25, 0.0),
            Operator(">", ">="),
            Operator("==", ">"),
            Rewrite("work[i]", "base[i, 0]"),
            Keep("logic", 1, 0),
            Operator("+", "-"),
        ),
    ),
    Subject(yields, "node_loads", compare.node_loads, cases.yield_case, (Assign(0), Rewrite("slope", "base"))),
    Subject(
        yields,
        "minimum_yield",
        compare.minimum_yield,
        cases.yield_case,
        (
            Keep("sign", 0, 0),
            Keep("arithmetic", 1, 0),
            Constant(1.0, 2.0),
            Keep("arithmetic", 0, 0),
            Part("call", 2, 0, 1),
        ),
    ),
    Subject(
        yields,
        "fill_average",
        compare.fill_average,
        cases.average_case,
        (
            Value("arithmetic", 12, 0.0),
            Keep("arithmetic", 6, 0),
            Keep("arithmetic", 7, 0),
            Assign(3),
            Part("call", 8, 0, 1),
        ),
    ),
    Subject(
        yields,
        "fill_max_min",
        compare.fill_max_min,
        parallel_yield_case,
        (
            Operator("<", ">"),
            Condition(4, True),
            Part("arithmetic", 4, 0, 0.0),
            Keep("logic", 2, 1),
            Part("comparison", 7, 1, 0.1),
            Value("arithmetic", 5, 0.5),
        ),
    ),
)


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_the_source_as_it_stands_agrees_with_its_twin(subject):
    subject.check_as_it_stands()


@pytest.mark.parametrize(("subject", "mutation"), mutations_of(SUBJECTS))
def test_a_broken_source_is_told_from_its_twin(subject, mutation):
    subject.check_told(mutation)


@pytest.mark.parametrize("module", [sorting, packing, search, greedy, yields], ids=lambda module: module.__name__)
def test_every_kernel_is_broken_at_least_twice(module):
    assert kernels_of(module) == {s.name for s in SUBJECTS if s.module is module and len(set(s.mutations)) >= 2}
