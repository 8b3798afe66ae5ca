"""As `test_mutations`, for the kernels that search among placements."""

import pytest

from dfrs.kernels import exact, genetic, local_search
from tests import search_cases as cases
from tests.mutations import (
    Assign,
    Backwards,
    Call,
    Condition,
    Constant,
    Drop,
    Keep,
    Negate,
    Operator,
    Part,
    Rewrite,
    Subject,
    Value,
    kernels_of,
    mutations_of,
)
from tests.naive import compare_search as compare

pytestmark = pytest.mark.slow

SUBJECTS = (
    Subject(
        exact,
        "branch_and_bound",
        compare.branch_and_bound,
        cases.exact_case,
        (
            Value("element", 5, 0.0),
            Value("element", 7, 0.0),
            Constant(1, 0, 3),
            Keep("logic", 0, 0),
            Keep("arithmetic", 2, 0),
            Value("comparison", 5, True),
            Condition(5, False),
            Value("element", 15, 0.0),
            Operator(">", ">=", 1),
            Keep("logic", 2, 1),
            Rewrite("i", "depth", 6),
            Value("element", 19, 1.0),
            Part("comparison", 9, 1, 0.0),
            Keep("call", 10, 0),
            Keep("arithmetic", 7, 1),
            Operator(">", ">=", 4),
            Value("assignment", 31, 0.0),
            Operator(">", ">=", 5),
            Keep("arithmetic", 12, 0),
            Rewrite("best[:]", "best[order]"),
            Operator(">=", ">", 3),
        ),
    ),
    Subject(
        local_search,
        "_draw",
        compare.draw,
        cases.climb_case,
        (
            Constant(13, 12),
            Operator(">>", "<<"),
            Constant(17, 16),
            Rewrite("state[0] = s", "state[0] ^= s"),
            Constant(33, 34),
        ),
    ),
    Subject(
        local_search,
        "_overload",
        compare.overload,
        cases.climb_case,
        (
            Part("call", 0, 0, 1),
            Operator("-", "+", 1),
            Operator("+", "-"),
            Keep("arithmetic", 1, 0),
            Condition(0, True),
        ),
    ),
    Subject(
        local_search,
        "_aimed_partner",
        compare.aimed_partner,
        cases.climb_case,
        (
            Keep("arithmetic", 1, 0),
            Operator(">", "<"),
            Value("assignment", 4, 0.0),
            Operator("-", "+", 1),
            Keep("arithmetic", 4, 1),
            Rewrite("worst", "0", 3),
            Part("arithmetic", 7, 1, 1),
            Rewrite("worst", "0", 4),
        ),
    ),
    Subject(
        local_search,
        "_fill",
        compare.fill,
        cases.climb_case,
        (
            Constant(0.0, 1.0),
            Keep("arithmetic", 1, 1),
            Rewrite("size", "base", 1),
            Operator(">", ">="),
            Value("sign", 0, 0),
            Rewrite("hots", "n", 2),
        ),
    ),
    Subject(
        local_search,
        "climb",
        compare.climb,
        cases.climb_case,
        (
            Constant(16, 15),
            Keep("logic", 0, 1),
            Operator("+", "-", 4),
            Value("assignment", 23, 0.0),
            Negate("call", 17, 0),
            Constant(0, 1, 3),
            Value("assignment", 36, 0.5),
            Constant(0, 1, 6),
            Constant(1, 2, 5),
            Keep("logic", 2, 1),
            Rewrite("count[b] == widest", "count[b] >= 3"),
            Keep("choice", 0, 1),
            Keep("arithmetic", 9, 0),
            Operator(">", ">=", 3),
            Keep("arithmetic", 18, 0),
            Condition(10, False),
            Keep("logic", 6, 1),
            Operator(">", ">=", 6),
            Rewrite("fee", "abs(fee)", 5),
            Rewrite("j", "i", 10),
            Rewrite("(slot[j], slot[i])", "(slot[i], slot[j])"),
            Rewrite("i", "last", 22),
            Rewrite("b", "a", 12),
            Rewrite("load[a, d] += out[d] - size[i, d]", "load[a, d] -= size[i, d]"),
            Keep("arithmetic", 23, 0),
            Rewrite("over_b", "over_a", 2),
            Rewrite("(a, b)", "(b, a)"),
            Rewrite("n", "hot[hots]", 14),
        ),
    ),
    Subject(
        genetic,
        "uniform",
        compare.uniform,
        cases.genetic_case,
        (Rewrite("_30", "_31"), Rewrite("_MIX_2", "_MIX_1"), Rewrite("_11", "_27"), Rewrite("_WEYL", "_MIX_1")),
    ),
    Subject(
        genetic,
        "below",
        compare.below,
        cases.genetic_case,
        (Rewrite("count", "count + 1"), Part("arithmetic", 0, 0, 0.5)),
    ),
    Subject(
        genetic,
        "shuffle",
        compare.shuffle,
        cases.genetic_case,
        (Constant(0, 1), Keep("arithmetic", 1, 0), Rewrite("(items[other], items[k])", "(k, other)")),
    ),
    Subject(
        genetic,
        "_overloaded",
        compare.is_overloaded,
        cases.genetic_case,
        (Assign(0), Operator("<", "<="), Part("comparison", 0, 1, 0.0)),
    ),
    Subject(
        genetic,
        "_count_fitting",
        compare.count_fitting,
        cases.genetic_case,
        (Condition(0), Assign(0), Part("call", 0, 0, 1)),
    ),
    Subject(
        genetic, "_sum_by_node", compare.sum_by_node, cases.genetic_case, (Drop(0), Assign(0), Rewrite("i", "0", 1))
    ),
    Subject(
        genetic,
        "_load",
        compare.load,
        cases.genetic_case,
        (Call("max", "min"), Constant(0.0, 1.0, 1), Keep("arithmetic", 0, 0)),
    ),
    Subject(
        genetic,
        "_least_loaded",
        compare.least_loaded,
        cases.genetic_case,
        (
            Operator("<", "<="),
            Keep("logic", 0, 0),
            Keep("arithmetic", 1, 0),
            Operator(">", ">="),
            Value("element", 5, 0.0),
        ),
    ),
    Subject(
        genetic,
        "repair",
        compare.repair,
        cases.genetic_case,
        (
            Drop(8),
            Backwards(0),
            Operator("and", "or"),
            Value("element", 9, 0.0),
            Value("element", 11, 0.0),
            Drop(14),
            Operator(">=", ">", 1),
        ),
    ),
    Subject(
        genetic,
        "settle",
        compare.settle,
        cases.genetic_case,
        (
            Rewrite("base", "slope", 1),
            Value("call", 5, 0.0),
            Constant(1.0, 2.0),
            Rewrite("slope", "base"),
            Keep("call", 9, 0),
            Rewrite("nodes * (1.0 + least)", "nodes + least"),
        ),
    ),
    Subject(
        genetic,
        "_select",
        compare.select,
        cases.genetic_case,
        (Value("sign", 0, 0), Value("arithmetic", 1, 0), Part("arithmetic", 0, 0, 0.5)),
    ),
    Subject(
        genetic,
        "_mutate",
        compare.mutate,
        cases.genetic_case,
        (Part("call", 0, 0, 1), Rewrite("place[i] != place[j]", "i != j"), Rewrite("i", "j", 3), Constant(False, True)),
    ),
    Subject(
        genetic,
        "_cross",
        compare.cross,
        cases.genetic_case,
        (
            Keep("arithmetic", 0, 0),
            Rewrite("mother", "father", 1),
            Rewrite("father", "mother"),
            Rewrite("mother", "father", 2),
        ),
    ),
    Subject(
        genetic,
        "evolve",
        compare.evolve,
        cases.genetic_case,
        (
            Call("np.argmax", "np.argmin"),
            Keep("arithmetic", 1, 1),
            Value("arithmetic", 0, 99.0),
            Operator("<", "<="),
            Rewrite("np.cumsum(old_score)", "np.arange(1.0, population + 1.0)"),
            Rewrite("crossover", "mutation", 1),
            Rewrite("mother", "father", 3),
            Rewrite("father", "mother", 3),
            Rewrite("(p, p + 1)", "(p + 1, p)"),
            Keep("logic", 2, 0),
            Condition(3, False),
            Call("np.argmin", "np.argmax"),
            Drop(23),
            Drop(24),
        ),
    ),
)


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_the_source_as_it_stands_agrees_with_its_twin(subject):
    subject.check_as_it_stands()


@pytest.mark.parametrize(("subject", "mutation"), mutations_of(SUBJECTS))
def test_a_broken_source_is_told_from_its_twin(subject, mutation):
    subject.check_told(mutation)


@pytest.mark.parametrize("module", [exact, local_search, genetic], ids=lambda module: module.__name__)
def test_every_kernel_is_broken_at_least_twice(module):
    assert kernels_of(module) == {s.name for s in SUBJECTS if s.module is module and len(set(s.mutations)) >= 2}
