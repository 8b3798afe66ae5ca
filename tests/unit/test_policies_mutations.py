"""As `test_mutations`, for the kernels of DFRS decisions; inner kernels are compared through one that calls them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest

from dfrs.kernels import admission, group_packing, jit, loads, rebalance, relief, repack, shares
from tests import policy_cases as cases
from tests.cases import Seeded
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
    kernels_of,
    mutations_of,
)
from tests.naive import compare_policies as compare
from tests.rebalance_cases import rebalance_case

pytestmark = pytest.mark.slow

CASES = 60


@dataclass(frozen=True)
class Inner(Subject):
    """A kernel that is seen through one of its module or of `others`; kernels that they use are plain Python too."""

    through: str = ""
    others: tuple[ModuleType, ...] = ()

    def pairs(self, kernel: compare.Kernel) -> Iterator[compare.Pair]:
        return islice(Subject.pairs(self, kernel), CASES)

    def compiled_by_python(self, source: str) -> compare.Kernel:
        modules = (self.module, *self.others)
        namespace: dict[str, Any] = {name: value for module in modules for name, value in vars(module).items()}
        namespace["kernel"] = lambda function: function
        own = {module.__name__ for module in modules}
        for name, value in tuple(namespace.items()):
            if isinstance(value, jit.Kernel):
                space = namespace if value.py_func.__module__ in own else value.py_func.__globals__
                namespace[name] = FunctionType(value.py_func.__code__, _plain(space, namespace), name)
        exec(source, namespace)
        return namespace[self.through or self.name]


def _plain(space: dict[str, Any], namespace: dict[str, Any]) -> dict[str, Any]:
    if space is namespace:
        return namespace
    plain = dict(space)
    for name, value in space.items():
        if isinstance(value, jit.Kernel):
            plain[name] = FunctionType(value.py_func.__code__, plain, name)
    return plain


def admit(name, *mutations):
    return Inner(admission, name, compare.admit, cases.crowded_case, mutations, "admit")


def mcb(module, name, *mutations):
    return Inner(module, name, compare.repack, cases.policy_case, mutations, "repack", (group_packing, repack))


def fill(name, *mutations):
    return Inner(shares, name, compare.max_min, cases.placed_case, mutations, "fill")


@dataclass(frozen=True)
class Moving(Inner):
    """A kernel of rebalancing; it takes more cases until one has what a mutation changes."""

    def pairs(self, kernel: compare.Kernel) -> Iterator[compare.Pair]:
        for case in _placements():
            yield self.comparison(kernel, case)


@cache
def _placements():
    return [rebalance_case(Seeded(np.random.default_rng(seed))) for seed in range(500)]


def moves(module, name, *mutations):
    return Moving(module, name, compare.rebalance, rebalance_case, mutations, "rebalance", (relief, rebalance))


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
    Inner(
        loads,
        "sort_by_priority",
        compare.by_priority,
        cases.policy_case,
        (Operator(">", ">=", 2), Keep("sign", 0, 0)),
        "by_priority",
    ),
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
            Rewrite("slots[first[r]] < 0", "slots[first[r]] < 1"),
            Rewrite("memory * jobs[r].tasks <= free + slack", "memory * jobs[r].tasks <= 0.5 * free"),
            Rewrite("sort_by_priority(jobs, now_s, priorities, may[:count])", "0"),
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
    Inner(
        repack,
        "pin_stranded",
        compare.pin_stranded,
        cases.policy_case,
        (
            Rewrite("capacity[n, 1] + tolerance", "capacity[n, 0] + tolerance"),
            Rewrite("capacity[n, 0] > 0.0", "capacity[n, 0] >= 0.0"),
            Rewrite("left > 0", "left > 1"),
        ),
    ),
    mcb(group_packing, "sort_down", Keep("logic", 1, 1), Operator(">", "<", 1)),
    mcb(group_packing, "_next", Omit(2, 0), Rewrite("memory", "cpu", 1), Omit(2, 2), Rewrite("high", "end", 3)),
    mcb(group_packing, "_same_node", Omit(0, 3), Omit(0, 2), Value("comparison", 0, True)),
    mcb(
        group_packing,
        "_fill_node",
        Operator("<=", "<"),
        Keep("arithmetic", 0, 0),
        Operator("+", "-", 4),
        Rewrite("p = by_cpu", "p = groups"),
    ),
    mcb(
        group_packing,
        "_repeats",
        Part("arithmetic", 0, 1, 1),
        Assign(0),
        Rewrite("min(times, left[picks[k]] // taken[picks[k]])", "max(0, left[picks[k]] // taken[picks[k]])"),
    ),
    mcb(
        group_packing,
        "pack_groups",
        Constant(1, 2, 9),
        Value("arithmetic", 7, 0),
        Rewrite("middle", "0"),
        Part("arithmetic", 15, 0, 1.5),
        Condition(2, False),
        Value("comparison", 10, True),
    ),
    mcb(
        group_packing,
        "_volume_left",
        Rewrite("size[p, 0]", "2.0 * size[p, 0]"),
        Rewrite("capacity[n, 1] - preload[n, 1]", "0.5 * capacity[n, 1]"),
    ),
    mcb(repack, "yields_at", Omit(0, 0), Drop(2), Keep("call", 1, 0), Omit(0, 2)),
    mcb(
        repack,
        "_preload",
        Keep("arithmetic", 1, 0),
        Drop(2),
        Rewrite("fixed[r]", "before[first[r]] >= 0"),
        Rewrite("fits", "True", 2),
    ),
    mcb(repack, "pack_at", Omit(0, 1), Keep("arithmetic", 0, 1), Operator(">", ">="), Drop(4)),
    mcb(repack, "uncrowded", Drop(9), Constant(2.0, 4.0), Constant(0.0, 0.5, 1), Assign(1)),
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
        repack,
        "search_level",
        Rewrite("kept", "0", 5),
        Value("call", 8, 0.25),
        Rewrite("target", "0.5 * (low + target)", 2),
        Drop(14),
        Rewrite("0.5 * (low + high)", "0.3 * low + 0.7 * high"),
    ),
    mcb(repack, "_sorted_rows", Keep("sign", 0, 0), Rewrite("some", "np.arange(count)", 3)),
    mcb(repack, "settle", Keep("choice", 0, 0), Condition(2, False), Drop(3)),
    fill("fill", Value("arithmetic", 0, 0.5), Rewrite("capacity[n, 0]", "2.0 * capacity[n, 0]"), Operator("<", ">")),
    fill("_turn", Keep("arithmetic", 5, 1), Value("arithmetic", 0, 0.9), Constant(1.0, 0.0, 1)),
    fill("_leave", Drop(1), Part("arithmetic", 3, 1, 0.5)),
    Moving(
        rebalance,
        "least_pressure",
        compare.least_pressure,
        rebalance_case,
        (
            Rewrite("open_nodes.copy()", "np.ones_like(open_nodes)"),
            Drop(5),
            Assign(0),
            Rewrite("max(1.0, wanted / total, largest / most)", "max(wanted / total, largest / most)"),
            Rewrite("jobs[r].tasks", "1"),
        ),
        "least_pressure",
        (relief,),
    ),
    moves(rebalance, "_link", Rewrite("slots[s] = n", "pass"), Rewrite("ahead[head[n]] = s", "pass")),
    moves(
        rebalance,
        "_unlink",
        Rewrite("after[s] >= 0", "True"),
        Rewrite("ahead[after[s]] = ahead[s]", "pass"),
    ),
    moves(
        rebalance,
        "_add_use",
        Rewrite("rise * jobs[r].need", "jobs[r].need"),
        Rewrite("memory[n] += sign * jobs[r].memory", "pass"),
        Rewrite("jobs[r].minimum * jobs[r].need", "jobs[r].minimum"),
    ),
    moves(rebalance, "_shift", Rewrite("-1", "1"), Rewrite("target", "slots[u]")),
    moves(
        rebalance,
        "_fill",
        Rewrite("fixed[r] or jobs[r].state != RUNNING", "fixed[r]"),
        Rewrite("fixed[r] or jobs[r].state != RUNNING", "jobs[r].state != RUNNING"),
        Rewrite("before[s] >= 0 and n != before[s]", "before[s] >= 0"),
        Rewrite("before[s] >= 0 and n != before[s]", "n != before[s]"),
        Rewrite("before[s] >= 0 and n != before[s]", "False"),
    ),
    moves(rebalance, "_room_for", Rewrite("np.empty(moves)", "np.empty(1)")),
    moves(
        rebalance,
        "_fullest",
        Operator(">", ">="),
        Rewrite("worst = here", "worst = above"),
    ),
    moves(
        rebalance,
        "_make",
        Rewrite("kind_before[made] = kind[r]", "kind_before[made] = FREE"),
        Rewrite("reason_before[made] = reasons[r]", "reason_before[made] = 0"),
        Rewrite("at[made] = worst", "at[made] = np.inf"),
        Rewrite("kind[r] = FREE", "pass"),
        Rewrite("reasons[r] = BALANCED", "pass"),
    ),
    moves(
        rebalance,
        "_take_back",
        Rewrite("at[made - 1] <= worst / LESS", "at[made - 1] < worst"),
        Rewrite("at[made - 1] <= worst / LESS", "True"),
        Rewrite("kind[r] = kind_before[made]", "pass"),
        Rewrite("reasons[r] = reason_before[made]", "pass"),
        Rewrite("spent -= jobs[r].memory", "pass"),
    ),
    moves(
        rebalance,
        "_stop",
        Rewrite("level[r] == np.inf", "True"),
        Rewrite("kind[r] = STAYS", "pass"),
        Rewrite("slope[r] * jobs[r].need * level[r]", "jobs[r].need * level[r]"),
        Rewrite("1.0 / worst", "0.5 / worst"),
    ),
    moves(
        rebalance,
        "rebalance",
        Rewrite("1.0 + near", "1.0"),
        Rewrite("(1.0 + share) * least", "(1.0 + near) * least"),
        Rewrite("made == 0 and not settled and worst <= (1.0 + share) * least", "worst <= (1.0 + share) * least"),
        Rewrite("spent += jobs[tasks[0][u]].memory", "pass"),
        Rewrite("settled |= made > 0", "pass"),
        Rewrite("(t, a)", "(-1, a)"),
    ),
    moves(relief, "pressure", Rewrite("rate / left", "rate"), Rewrite("rate / left", "rate + left")),
    moves(
        relief,
        "_wait_s",
        Rewrite("times * price_s * high / (high - low)", "price_s * high / (high - low)"),
        Rewrite("times * price_s * high / (high - low)", "times * price_s / (high - low)"),
        Rewrite("min(virtual_s, jobs[r].virtual_s)", "virtual_s"),
        Rewrite("min(virtual_s, jobs[r].virtual_s)", "jobs[r].virtual_s"),
        Rewrite("lacking_s / low", "lacking_s"),
        Rewrite("max(wait_s, now_s - jobs[r].since_s)", "wait_s"),
        Rewrite("wait_s += jobs[r].ready_s - now_s", "pass"),
        Rewrite("now_s + wait_s + needed_s <= until_s", "now_s + wait_s <= until_s"),
        Rewrite("now_s + wait_s + needed_s <= until_s", "True"),
    ),
    moves(
        relief,
        "_dues",
        Rewrite("kind != PRICED", "False"),
        Rewrite("jobs[r].since_s > jobs[r].start_s", "True"),
        Rewrite("jobs[r].since_s + rest_s - now_s", "rest_s"),
    ),
    moves(
        relief,
        "_longest",
        Rewrite("r != row", "True"),
        Rewrite("virtual_s > next_most", "False"),
        Rewrite("next_most = most", "pass"),
    ),
    moves(
        relief,
        "_left_behind",
        Rewrite("next_most if r == row else most", "most"),
        Rewrite("virtual_s >= 0.0", "True"),
    ),
    moves(
        relief,
        "_fits",
        Rewrite("memory[n] + job.memory - out_memory", "memory[n] + job.memory"),
        Rewrite("more <= 0.0 or promised[n] + more <= capacity[n, 0] + tolerance", "more <= 0.0"),
        Rewrite("more <= 0.0 or promised[n] + more <= capacity[n, 0] + tolerance", "True"),
        Rewrite("capacity[n, 1] + tolerance", "capacity[n, 1] - 0.125"),
    ),
    moves(
        relief,
        "_better_move",
        Rewrite("kind[r] != STAYS and gone <= best and spent + jobs[r].memory <= budget", "kind[r] != STAYS"),
        Rewrite("spent + jobs[r].memory <= budget", "jobs[r].memory <= budget"),
        Rewrite("island[b] != island[a]", "False"),
        Rewrite("not open_nodes[b]", "False"),
        Rewrite("jobs[r].memory >= best_memory", "True"),
        Rewrite("jobs[r].memory >= best_memory", "jobs[r].memory > best_memory"),
        Rewrite("max(1.0, gone, pressure(rate[b] + size, count[b] + 1, left[b]))", "max(1.0, gone)"),
        Rewrite("max(rest_s, _wait_s(jobs, r, behind_s, worst, then, price, rule))", "rest_s"),
        Rewrite("wait_s < again_s", "True"),
        Backwards(0),
    ),
    moves(
        relief,
        "_better_swap",
        Rewrite("open_nodes[a]", "True"),
        Rewrite("kind[r] == STAYS", "False"),
        Rewrite("kind[q] != STAYS", "True"),
        Rewrite("spent + moved <= budget", "True"),
        Rewrite("moved < best_memory", "True"),
        Rewrite("moved < best_memory", "False"),
        Rewrite("price + price_too", "price"),
        Rewrite("price + price_too", "price_too"),
        Rewrite("max(rest_s, rests_too_s)", "rests_too_s"),
        Rewrite("(r, q)", "(r,)"),
        Rewrite("_fits(jobs[q], jobs[r].memory, one, a, capacity, memory, promised, tolerance)", "True"),
        Rewrite("_fits(jobs[r], jobs[q].memory, two, b, capacity, memory, promised, tolerance)", "True"),
    ),
    moves(
        relief,
        "best_step",
        Rewrite("worst * LESS", "2.0 * worst"),
        Rewrite("not rule[8]", "False"),
        Rewrite("step[2] >= 0 or not rule[8]", "True"),
        Rewrite("_is_in_doubt(step, later, again_s)", "False"),
        Rewrite("min(again_s, later[0])", "again_s"),
        Rewrite("min(again_s, later[0])", "later[0]", 1),
    ),
    moves(relief, "_is_in_doubt", Rewrite("later[1] >= step[0]", "False"), Rewrite("later[0] < again_s", "False")),
    fill("_freeze", Rewrite("level", "1000000000.0 * level")),
    fill("_on_full", Rewrite("level", "0.5 * level", 0), Rewrite("begin[k + 1]", "begin[k]")),
    fill("_next_event", Rewrite("event[r]", "2.0 * event[r] + 1.0")),
    fill("_next_full", Rewrite("rising[n] > 0", "rising[n] > 1")),
    fill("_rows_on", Rewrite("end[k]", "begin[k]", 0)),
)


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_the_source_as_it_stands_agrees_with_its_twin(subject):
    subject.check_as_it_stands()


@pytest.mark.parametrize(("subject", "mutation"), mutations_of(SUBJECTS))
def test_a_broken_source_is_told_from_its_twin(subject, mutation):
    subject.check_told(mutation)


@pytest.mark.parametrize("module", [rebalance, relief], ids=lambda module: module.__name__)
def test_every_kernel_of_rebalancing_is_broken(module):
    assert kernels_of(module) == {s.name for s in SUBJECTS if s.module is module}
