"""As `test_mutations`, for the kernels of DFRS decisions; inner kernels are compared through one that calls them."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from types import FunctionType
from typing import Any

import pytest
from numba.core.registry import CPUDispatcher

from dfrs.kernels import admission, loads, repack, shares
from tests import policy_cases as cases
from tests.mutations import (
    Assign,
    Backwards,
    Condition,
    Constant,
    Drop,
    Keep,
    Omit,
    Operator,
    Part,
    Rewrite,
    Shift,
    Subject,
    Value,
    mutations_of,
)
from tests.naive import compare_policies as compare

pytestmark = pytest.mark.slow

CASES = 60


@dataclass(frozen=True)
class Inner(Subject):
    """A kernel that is seen through another one of its module; kernels of other modules are plain Python too."""

    through: str = ""

    def pairs(self, kernel: compare.Kernel) -> Iterator[compare.Pair]:
        return islice(Subject.pairs(self, kernel), CASES)

    def compiled_by_python(self, source: str) -> compare.Kernel:
        namespace: dict[str, Any] = {**vars(self.module), "kernel": lambda function: function}
        for name, value in vars(self.module).items():
            if isinstance(value, CPUDispatcher):
                space = namespace if value.py_func.__module__ == self.module.__name__ else value.py_func.__globals__
                namespace[name] = FunctionType(value.py_func.__code__, _plain(space, namespace), name)
        exec(source, namespace)
        return namespace[self.through or self.name]


def _plain(space: dict[str, Any], namespace: dict[str, Any]) -> dict[str, Any]:
    if space is namespace:
        return namespace
    plain = dict(space)
    for name, value in space.items():
        if isinstance(value, CPUDispatcher):
            plain[name] = FunctionType(value.py_func.__code__, plain, name)
    return plain


def admit(name, *mutations):
    return Inner(admission, name, compare.admit, cases.crowded_case, mutations, "admit")


def mcb(name, *mutations):
    return Inner(repack, name, compare.repack, cases.policy_case, mutations, "repack")


def fill(name, *mutations):
    return Inner(shares, name, compare.max_min, cases.placed_case, mutations, "fill")


SUBJECTS = (
    Inner(
        loads,
        "largest_load",
        compare.largest_load,
        cases.policy_case,
        (Constant(0.0, 0.75), Keep("arithmetic", 0, 0), Part("choice", 0, 1, 0.0)),
    ),
    Inner(
        loads,
        "add_use",
        compare.node_use,
        cases.policy_case,
        (Rewrite("sign * jobs[r].need", "jobs[r].memory"), Assign(1), Shift(0, 0, 1)),
        "node_use",
    ),
    Inner(
        loads,
        "priority",
        compare.by_priority,
        cases.policy_case,
        (
            Rewrite("np.inf", "0.0"),
            Part("arithmetic", 0, 0, 1.0),
            Keep("arithmetic", 3, 1),
            Keep("arithmetic", 1, 0),
            Keep("arithmetic", 4, 0),
        ),
        "by_priority",
    ),
    Inner(loads, "by_priority", compare.by_priority, cases.policy_case, (Operator(">", ">=", 2), Keep("sign", 0, 0))),
    Inner(
        admission,
        "_room_at",
        compare.count_room,
        cases.policy_case,
        (
            Keep("logic", 0, 1),
            Keep("logic", 0, 0),
            Operator("+", "-"),
            Constant(1, 0, 1),
            Rewrite("most", "most + 1", 1),
        ),
        "count_room",
    ),
    admit(
        "place_by_load",
        Value("call", 2, 100.0),
        Rewrite("load[n] <= level", "load[n] < np.inf"),
        Drop(12),
        Drop(13),
        Keep("call", 4, 1),
    ),
    admit("_shift", Rewrite("sign", "0.5 * sign", 1), Operator("+", "-", 2), Constant(0, 1)),
    admit(
        "choose_to_pause",
        Backwards(0),
        Backwards(1),
        Operator(">=", ">", 2),
        Value("assignment", 8, 0),
        Rewrite("-1", "marked[k]", 4),
    ),
    admit(
        "admit",
        Rewrite("mode == GREEDY", "mode != GREEDY_PM"),
        Rewrite("mode == GREEDY_PM", "mode >= GREEDY"),
        Rewrite("GAVE_WAY", "ROOM"),
        Rewrite("MOVED_FOR", "reasons[r]"),
        Backwards(1),
        Rewrite("slots[first[marked[k]]:first[marked[k] + 1]]", "slots[first[marked[0]]:first[marked[0] + 1]]"),
    ),
    Inner(
        admission,
        "readmit",
        compare.readmit,
        cases.policy_case,
        (
            Rewrite("idle == 0", "idle < 2"),
            Keep("call", 7, 1),
            Assign(1),
            Rewrite("order[k]", "k"),
            Rewrite("FREED", "ROOM"),
        ),
    ),
    Inner(
        repack,
        "find_pinned",
        compare.find_pinned,
        cases.policy_case,
        (Rewrite("PIN_VIRTUAL", "PIN_FLOW"), Omit(0, 0), Omit(0, 1), Rewrite("age < pin_s", "age <= 0.5 * pin_s")),
    ),
    mcb("sort_down", Keep("logic", 1, 1), Operator(">", "<", 1)),
    mcb("_next", Omit(1, 0), Rewrite("memory", "cpu"), Omit(1, 2)),
    mcb("_same_node", Omit(0, 3), Omit(0, 2), Value("comparison", 0, True)),
    mcb(
        "_fill_node",
        Operator("<=", "<"),
        Keep("arithmetic", 0, 0),
        Operator("+", "-", 4),
        Rewrite("p = by_cpu", "p = groups"),
    ),
    mcb(
        "_repeats",
        Part("arithmetic", 0, 1, 1),
        Assign(0),
        Rewrite("min(times, left[picks[k]] // taken[picks[k]])", "max(0, left[picks[k]] // taken[picks[k]])"),
    ),
    mcb(
        "pack_groups",
        Constant(1, 2, 9),
        Value("arithmetic", 7, 0),
        Rewrite("middle", "0"),
        Part("arithmetic", 15, 0, 1.5),
        Condition(2, False),
        Value("comparison", 10, True),
    ),
    mcb(
        "_volume_left",
        Rewrite("size[p, 0]", "2.0 * size[p, 0]"),
        Rewrite("capacity[n, 1] - preload[n, 1]", "0.5 * capacity[n, 1]"),
    ),
    mcb("yields_at", Omit(0, 0), Drop(2), Keep("call", 1, 0), Omit(0, 2)),
    mcb(
        "_preload",
        Keep("arithmetic", 1, 0),
        Drop(2),
        Rewrite("fixed[r]", "before[first[r]] >= 0"),
        Rewrite("fits", "True", 2),
    ),
    mcb("pack_at", Omit(0, 1), Keep("arithmetic", 0, 1), Operator(">", ">="), Drop(4)),
    mcb("uncrowded", Drop(9), Constant(2.0, 4.0), Constant(0.0, 0.5, 1), Assign(1)),
    Inner(
        repack,
        "upper_end",
        compare.upper_end,
        cases.policy_case,
        (
            Keep("logic", 0, 0),
            Keep("call", 1, 1),
            Keep("call", 2, 1),
            Constant(0, 5, 2),
            Value("arithmetic", 6, 0.0),
            Keep("choice", 0, 1),
        ),
    ),
    mcb(
        "search_level",
        Rewrite("kept", "0", 5),
        Value("call", 8, 0.25),
        Rewrite("target", "0.5 * (low + target)", 2),
        Drop(14),
        Rewrite("0.5 * (low + high)", "0.3 * low + 0.7 * high"),
    ),
    mcb("_sorted_rows", Keep("sign", 0, 0), Rewrite("some", "np.arange(count)", 3)),
    mcb("settle", Keep("choice", 0, 0), Condition(2, False), Drop(3)),
    fill("fill", Value("arithmetic", 0, 0.5), Rewrite("capacity[n, 0]", "2.0 * capacity[n, 0]"), Operator("<", ">")),
    fill("_turn", Keep("arithmetic", 5, 1), Value("arithmetic", 0, 0.9), Constant(1.0, 0.0, 1)),
    fill("_leave", Drop(1), Part("arithmetic", 3, 1, 0.5)),
    fill("_freeze_full", Rewrite("level", "1000000000.0 * level"), Keep("call", 4, 0), Constant(1, 2, 1)),
)


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_the_source_as_it_stands_agrees_with_its_twin(subject):
    subject.check_as_it_stands()


@pytest.mark.parametrize(("subject", "mutation"), mutations_of(SUBJECTS))
def test_a_broken_source_is_told_from_its_twin(subject, mutation):
    subject.check_told(mutation)
