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
from tests.naive import compare_policies as compare
from tests.unit.test_mutations import Subject, agrees, mutations_of

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
        loads, "largest_load", compare.largest_load, cases.policy_case,
        (
            ("most = 0.0", "most = 0.75"),
            ("most * capacity[n, 0]", "most"),
            ("else np.inf", "else 0.0"),
        ),
    ),
    Inner(
        loads, "add_use", compare.node_use, cases.policy_case,
        (
            ("sign * jobs[r].need", "jobs[r].memory"),
            ("used[slots[s], 1] += memory", "used[slots[s], 1] = memory"),
            ("range(first[r], first[r + 1])", "range(first[r] + 1, first[r + 1])"),
        ),
        "node_use",
    ),
    Inner(
        loads, "priority", compare.by_priority, cases.policy_case,
        (
            ("return np.inf", "return 0.0"),
            ("jobs[r].weight / virtual", "1.0 / virtual"),
            ("jobs[r].weight * flow", "flow"),
            ("now_s - jobs[r].submit_s", "now_s"),
            ("value / virtual if", "value if"),
        ),
        "by_priority",
    ),
    Inner(
        loads, "by_priority", compare.by_priority, cases.policy_case,
        (
            ("key[order[k - 1]] > key[r]", "key[order[k - 1]] >= key[r]"),
            ("-priority(", "priority("),
        ),
    ),
    Inner(
        admission, "_room_at", compare.count_room, cases.policy_case,
        (
            ("not open_nodes[n] or", ""),
            ("or capacity[n, 0] <= 0.0", ""),
            ("+ tolerance", "- tolerance"),
            ("- used[n, 1]", "- used[n, 0]"),
            ("return most", "return most + 1"),
        ),
        "count_room",
    ),
    admit(
        "place_by_load",
        ("level = min(level, load[n])", "level = 100.0"),
        ("if load[n] <= level:", "if load[n] < np.inf:"),
        ("used[n, 1] += jobs[r].memory", "pass"),
        ("room[n] -= 1", "pass"),
        ("above = min(above, load[n])", "above = load[n]"),
    ),
    admit(
        "_shift",
        ("used[n, 1] += sign", "used[n, 1] += 0.5 * sign"),
        ("used[n, 1] += sign * jobs[r].memory", "used[n, 1] -= sign * jobs[r].memory"),
        ("change = 0", "change = 1"),
    ),
    admit(
        "choose_to_pause",
        ("range(order.size - 1, -1, -1)", "range(order.size)"),
        ("for k in range(count - 1, -1, -1):\n        r = marked[k]", "for k in range(count):\n        r = marked[k]"),
        ("if room + change >= tasks:", "if room + change > tasks:"),
        ("            room += change\n", "            room += 0\n"),
        ("marked[k] = -1", "marked[k] = marked[k]"),
    ),
    admit(
        "admit",
        ("if mode == GREEDY:", "if mode != GREEDY_PM:"),
        ("if mode == GREEDY_PM:", "if mode >= GREEDY:"),
        ("reasons[marked[k]] = GAVE_WAY", "reasons[marked[k]] = ROOM"),
        ("reasons[r] = MOVED_FOR", "reasons[r] = reasons[r]"),
        ("for k in range(count - 1, -1, -1):", "for k in range(count):"),
        ("slots[first[marked[k]] : first[marked[k] + 1]] = -1", "slots[first[marked[0]] : first[marked[0] + 1]] = -1"),
    ),
    Inner(
        admission, "readmit", compare.readmit, cases.policy_case,
        (
            ("if idle == 0:", "if idle < 2:"),
            ("most = max(most, here)", "most = here"),
            ("free += max(here, 0.0)", "free = max(here, 0.0)"),
            ("r = order[k]", "r = k"),
            ("reasons[r] = FREED", "reasons[r] = ROOM"),
        ),
    ),
    Inner(
        repack, "find_pinned", compare.find_pinned, cases.policy_case,
        (
            ("pin == PIN_VIRTUAL", "pin == PIN_FLOW"),
            ("pin != NO_PIN and", ""),
            ("jobs[r].state == RUNNING and", ""),
            ("age < pin_s", "age <= 0.5 * pin_s"),
        ),
    ),
    mcb(
        "sort_down",
        ("key[order[p - 1]] < key[r] or", ""),
        ("order[p - 1] > r", "order[p - 1] < r"),
    ),
    mcb(
        "_next",
        ("left[cursor] == 0 or", ""),
        ("size[cursor, 1] > memory", "size[cursor, 1] > cpu"),
        ("or size[cursor, 0] > cpu", ""),
    ),
    mcb(
        "_same_node",
        ("and preload[a, 0] == preload[b, 0]\n        and preload[a, 1] == preload[b, 1]", ""),
        ("and capacity[a, 1] == capacity[b, 1]", ""),
        ("open_nodes[a] == open_nodes[b]", "True"),
    ),
    mcb(
        "_fill_node",
        ("memory_load <= cpu_load", "memory_load < cpu_load"),
        ("memory = capacity[n, 1] + tolerance - preload[n, 1]", "memory = capacity[n, 1] + tolerance"),
        ("cpu_load += size", "cpu_load -= size"),
        ("by_cpu = _next(size, left, by_cpu, groups, memory, cpu)\n                p = by_cpu", "p = groups"),
    ),
    mcb(
        "_repeats",
        ("// taken[picks[k]]", "// 1"),
        ("taken[picks[k]] += 1", "taken[picks[k]] = 1"),
        ("times = min(times,", "times = max(0,"),
    ),
    mcb(
        "pack_groups",
        ("times = 1 + _repeats", "times = 2 + _repeats"),
        ("left[p] -= n - begin - 1", "left[p] -= 0"),
        ("head = np.array([0, middle])", "head = np.array([0, 0])"),
        ("ahead[0] -= (capacity[begin, 0] - preload[begin, 0]) * (n - begin)", "ahead[0] -= 1.5 * (n - begin)"),
        ("if not open_nodes[n]:", "if False:"),
        ("return unplaced == 0", "return True"),
    ),
    mcb(
        "_volume_left",
        ("size[p, 0] * left[p]", "2.0 * size[p, 0] * left[p]"),
        ("capacity[n, 1] - preload[n, 1]", "0.5 * capacity[n, 1]"),
    ),
    mcb(
        "yields_at",
        ("if strict and", "if"),
        ("            value = 1.0\n", "            pass\n"),
        ("max(value, floor)", "value"),
        ("and rows[r]", ""),
    ),
    mcb(
        "_preload",
        ("* yields[r]", ""),
        ("preload[before[s], 1] += jobs[r].memory", "pass"),
        ("if fixed[r]:", "if before[first[r]] >= 0:"),
        ("return fits", "return True"),
    ),
    mcb(
        "pack_at",
        ("not pinned[r] and", ""),
        ("rows & pinned", "pinned"),
        ("cpu[r] > jobs[r].memory", "cpu[r] >= jobs[r].memory"),
        ("sort_down(cpu, by_cpu)", "pass"),
    ),
    mcb(
        "uncrowded",
        ("tasks -= 0 if open_nodes[before[s]] else 1", "pass"),
        ("2.0 * jobs[r].memory", "4.0 * jobs[r].memory"),
        ("free < 0.0", "free < 0.5"),
        ("hosts += 1", "hosts = 1"),
    ),
    Inner(
        repack, "upper_end", compare.upper_end, cases.policy_case,
        (
            ("or anchored", ""),
            ("low = min(low, end)", "low = end"),
            ("high = max(high, end)", "high = end"),
            ("if turn > 0 and base", "if turn > 5 and base"),
            ("need * base[r]", "0.0"),
            ("low if strict else high", "high"),
        ),
    ),
    mcb(
        "search_level",
        ("rows[order[kept]] = False", "rows[order[0]] = False"),
        ("width = max(width, relative * high)", "width = 0.25"),
        ("            low = target\n", "            low = 0.5 * (low + target)\n"),
        ("slots[:] = spare", "pass"),
        ("target = 0.5 * (low + high)", "target = 0.3 * low + 0.7 * high"),
    ),
    mcb(
        "_sorted_rows",
        ("-jobs[some[k]].memory", "jobs[some[k]].memory"),
        ("some[np.argsort(memory", "np.arange(count)[np.argsort(memory"),
    ),
    mcb(
        "settle",
        ("PACKED if chosen[r] else LEFT_OUT", "PACKED"),
        ("elif pinned[r]:", "elif False:"),
        ("slots[begin:end] = -1", "pass"),
    ),
    fill(
        "fill",
        ("event[r] = (floor - base[r]) / slope[r]", "event[r] = 0.5"),
        ("if used[n, 0] > capacity[n, 0]:", "if used[n, 0] > 2.0 * capacity[n, 0]:"),
        ("if here < step:", "if here > step:"),
    ),
    fill(
        "_turn",
        ("rate[n] += need * slope[r]", "rate[n] += slope[r]"),
        ("event[r] = (1.0 - base[r]) / slope[r]", "event[r] = 0.9"),
        ("_leave(r, need, 1.0,", "_leave(r, need, 0.0,"),
    ),
    fill(
        "_leave",
        ("room[n] -= need * value", "pass"),
        ("rate[n] -= need * slope[r]", "rate[n] -= need"  " * 0.5"),
    ),
    fill(
        "_freeze_full",
        ("<= level", "<= 1e9 * level"),
        ("min(1.0, max(0.0, base[r] + slope[r] * level))", "1.0"),
        ("stopped += 1", "stopped += 2"),
    ),
)  # fmt: skip


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_the_source_as_it_stands_agrees_with_its_twin(subject):
    for got, expected in subject.pairs(subject.compiled_by_python(subject.source)):
        assert got == expected


@pytest.mark.parametrize(("subject", "old", "new"), mutations_of(SUBJECTS))
def test_a_broken_source_is_told_from_its_twin(subject, old, new):
    assert subject.source.count(old) == 1, "the source has changed: choose another mutation"
    mutant = subject.compiled_by_python(subject.source.replace(old, new))
    assert not agrees(subject, mutant)
