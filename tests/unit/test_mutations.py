"""Proof that the comparisons of kernels with their twins can fail.

Each kernel's source is broken in one place, run as plain Python with the kernels it calls, and put through the same
comparison, on seeded cases, as the compiled kernel: the comparison must tell. As it stands the source must pass.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest
from numba.core.registry import CPUDispatcher

from dfrs.kernels import greedy, packing, search, sorting, yields
from tests import cases
from tests.naive import compare

pytestmark = pytest.mark.slow

CASES = 200


@dataclass(frozen=True)
class Subject:
    """A kernel, the comparison it is put through, what builds the cases, and single changes that must be noticed."""

    module: ModuleType
    name: str
    comparison: Callable[[compare.Kernel, Any], compare.Pair]
    build: Callable[[cases.Source], Any]
    mutations: tuple[tuple[str, str], ...]

    @property
    def source(self) -> str:
        return inspect.getsource(getattr(self.module, self.name).py_func)

    def compiled_by_python(self, source: str) -> compare.Kernel:
        """`source` as plain Python; what it calls of its own module is plain Python too."""
        namespace: dict[str, Any] = {**vars(self.module), "kernel": lambda function: function}
        for name, value in vars(self.module).items():
            if isinstance(value, CPUDispatcher) and value.py_func.__module__ == self.module.__name__:
                namespace[name] = FunctionType(value.py_func.__code__, namespace, name)
        exec(source, namespace)
        return namespace[self.name]

    def pairs(self, kernel: compare.Kernel) -> Iterator[compare.Pair]:
        for case in _seeded_cases(self.build):
            yield self.comparison(kernel, case)


@cache
def _seeded_cases(build: Callable[[cases.Source], Any]) -> list[Any]:
    return [build(cases.Seeded(np.random.default_rng(seed))) for seed in range(CASES)]


parallel_yield_case = partial(cases.yield_case, tasks_per_service=3)
exact_backtracking_case = partial(cases.backtracking_case, grain=8)


def load_case(source: cases.Source) -> cases.GreedyCase:
    return (exact_backtracking_case if source.integer(0, 1) else cases.greedy_case)(source)


SUBJECTS = (
    Subject(
        sorting, "stable_order", compare.stable_order, cases.key_case,
        (
            ("key if ascending else -key", "-key if ascending else key"),
            ("(key + 0.0).view", "key.view"),
            ("bits = ~bits", "bits = bits[::-1]"),
            ("range(_DIGITS)", "range(_DIGITS - 1)"),
            ("shift = np.uint64(digit * _BITS)", "shift = np.uint64(digit * (_BITS + 1))"),
            ("for k in range(count):", "for k in range(count - 1, -1, -1):"),
            ("start[b + 1] += start[b]", "start[b + 1] = start[b]"),
            ("if start.max() == count:", "if start.max() >= count // 2:"),
        ),
    ),
    Subject(
        packing, "sort_order", compare.sort_order, cases.packing_case,
        (
            ("range(dims - 1, -1, -1)", "range(dims)"),
            ("lexicographic[k]", "k"),
            ("order = order[stable_order", "order = np.arange(tasks)[stable_order"),
            ("high = max(high", "high = min(high"),
            ("low = min(low", "low = max(low"),
            ("value = high - low", "value = high"),
            ("np.inf if high > 0.0 else 1.0", "1.0"),
            ("return stable_order(key, ascending)", "return stable_order(key, not ascending)"),
        ),
    ),
    Subject(
        packing, "pack_first_fit", compare.pack_first_fit, cases.packing_case,
        (
            ("size[i, d] <= most[b, d]", "size[i, d] < most[b, d]"),
            ("row[n] >= need", "row[n] > need"),
            ("capacity[n, d] + tolerance", "capacity[n, d]"),
            ("row[chosen] = was - size[i, d]", "row[chosen] = was"),
            ("most[b, d] = row.max()", "most[b, d] = row.min()"),
            ("for b in range(blocks):", "for b in range(blocks - 1, -1, -1):"),
            ("place[i] = b * BLOCK + chosen", "place[i] = (b + 1) * BLOCK + chosen"),
            ("room = np.full((blocks, dims, BLOCK), -1.0)", "room = np.full((blocks, dims, BLOCK), 1.0)"),
            ("if not partial:", "if partial:"),
            ("packed = False", "packed = True"),
        ),
    ),
    Subject(
        packing, "pack_best_fit", compare.pack_best_fit, cases.packing_case,
        (
            ("load[n] > fullest", "load[n] >= fullest"),
            ("row[n] >= need", "row[n] > need"),
            ("size[i, d] / capacity[chosen, d]", "size[i, d]"),
            ("room[d, chosen] -= size[i, d]", "room[d, chosen] -= 0.0"),
            ("min(1, nodes) if equal else nodes", "min(1, nodes)"),
            ("seen += 1", "seen += 0"),
            ("fullest = -1.0", "fullest = 0.0"),
            ("if not partial:", "if partial:"),
        ),
    ),
    Subject(
        packing, "_code", compare.list_code, cases.packing_case,
        (
            ("range(dims_chosen.size - 1, -1, -1)", "range(dims_chosen.size)"),
            ("if ordered:", "if not ordered:"),
            ("code |= 1", "code += 2"),
        ),
    ),
    Subject(
        packing, "_largest", compare.largest, cases.packing_case,
        (
            ("vector[d] > vector[best]", "vector[d] >= vector[best]"),
            ("vector[d] > vector[best]", "vector[d] < vector[best]"),
            ("for q in range(p):", "for q in range(p - 1):"),
        ),
    ),
    Subject(
        packing, "_group", compare.group, cases.packing_case,
        (
            ("i = order[k]", "i = k"),
            ("start[list_of_task[i] + 1] += 1", "start[list_of_task[i]] += 1"),
            ("start[g + 1] += start[g]", "start[g + 1] += 0"),
            ("vector[p, d] = size[i, d]", "vector[i, d] = size[i, d]"),
            ("cursor[list_of_task[i]] += 1", "cursor[list_of_task[i]] += 0"),
        ),
    ),
    Subject(
        packing, "_block_low", compare.block_low, cases.packing_case,
        (
            ("range(begin, end)", "range(begin, end - 1)"),
            ("range(begin, end)", "range(begin + 1, end)"),
            ("if alive[p]:", "if True:"),
            ("min(low[d], vector[p, d])", "max(low[d], vector[p, d])"),
        ),
    ),
    Subject(
        packing, "_first_that_fits", compare.first_that_fits, cases.packing_case,
        (
            ("p = cursor", "p = begin"),
            ("block = (p - begin) // BLOCK", "block = p // BLOCK"),
            ("low[first_block + block, d]", "low[block, d]"),
            ("low[first_block + block, d] > room[d]", "low[first_block + block, d] >= room[d]"),
            ("vector[p, d] > room[d]", "vector[p, d] >= room[d]"),
            ("if alive[p]:", "if True:"),
            ("begin + (block + 1) * BLOCK", "begin + (block + 2) * BLOCK"),
        ),
    ),
    Subject(
        packing, "pack_by_lists", compare.pack_by_lists, cases.packing_case,
        (
            ("load[rank[k - 1]] > load[d]", "load[rank[k - 1]] >= load[d]"),
            ("load[rank[k - 1]] > load[d]", "load[rank[k - 1]] < load[d]"),
            ("if by_index:", "if not by_index:"),
            ("chosen[p] = picked[permutations[t, p]]", "chosen[p] = picked[p]"),
            ("room[d] -= vector[p, d]", "room[d] -= 0.0"),
            ("left[d] -= vector[p, d]", "left[d] += vector[p, d]"),
            ("load[d] += vector[p, d] / capacity[n, d]", "load[d] += vector[p, d]"),
            ("0.0 if capacity[n, d] > 0.0 else 1.0", "0.0"),
            ("place[task[p]] = n", "place[p] = n"),
            ("alive[p] = False", "alive[p] = n > 0"),
            ("ahead[d] -= capacity[n, d]", "ahead[d] -= 2 * capacity[n, d]"),
            ("head[g] += 1", "head[g] += 2"),
            ("room[d] = capacity[n, d] + tolerance", "room[d] = capacity[n, d] - tolerance"),
            ("begin = start[found] + b * BLOCK", "begin = start[found]"),
        ),
    ),
    Subject(
        packing, "pack", compare.pack, cases.packing_case,
        (
            ("method == FIRST_FIT", "method == BEST_FIT"),
            ("method == BEST_FIT", "method == BY_LISTS"),
            ("return pack_best_fit(size, order,", "return pack_best_fit(size, order[::-1],"),
            ("return pack_by_lists(size, order", "return pack_by_lists(size, order[::-1]"),
        ),
    ),
    Subject(
        search, "dominance_order", compare.dominance_order, cases.packing_case,
        (
            ('side="right"', 'side="left"'),
            ("if place[i] >= 0:", "if place[i] > 0:"),
            ("stable_order(key, False)", "stable_order(key, True)"),
            ("degree[d] * size[i, d]", "size[i, d]"),
            ("capacity[n, d] - load[n, d]", "capacity[n, d]"),
        ),
    ),
    Subject(
        search, "search_yield", compare.search_yield, cases.search_case,
        (
            ("target = 0.5 * (low + high)", "target = 0.75 * low + 0.25 * high"),
            ("stage = 0 if ends else 1", "stage = 1"),
            ("elif ends and found < 0.0", "elif found < 0.0"),
            ("high - low > width", "high - low > 2 * width"),
            ("if not success and dominance:", "if False:"),
            ("place[:] = trial", "place[:] = 0"),
            ("base + target * slope", "base + slope"),
            ("low = target", "low = target + width"),
            ("(stage == 0 and success)", "(stage == 0 and not success)"),
            ("sort_order(size, criterion, ascending", "sort_order(base, criterion, ascending"),
        ),
    ),
    Subject(
        greedy, "_argmax", compare.argmax, cases.greedy_case,
        (
            ("vector[d] > vector[best]", "vector[d] >= vector[best]"),
            ("best = d", "best = 0"),
        ),
    ),
    Subject(
        greedy, "place_greedily", compare.place_greedily, cases.greedy_case,
        (
            ("fluid if rule <= LOW_SUM_NEED", "fluid if rule < LOW_SUM_NEED"),
            ("(HIGH_MAX, HIGH_SUM)", "(HIGH_MAX, LOW_SUM)"),
            ("(LOW_MAX_NEED, HIGH_MAX, LOW_MAX)", "(LOW_MAX_NEED, HIGH_MAX)"),
            ("value < best", "value <= best"),
            ("base[i, d] > room[n, d]", "base[i, d] >= room[n, d]"),
            ("least[k, d] > room[first_open, d]", "least[k, d] >= room[first_open, d]"),
            ("_argmax(measure[i])", "_argmax(base[i])"),
            ("room[chosen, d] -= base[i, d]", "room[chosen, d] -= 0.0"),
            ("highest[d, chosen] = max(highest[d, chosen], measure[i, d])", "highest[d, chosen] = measure[i, d]"),
            ("total[d, chosen] += measure[i, d]", "total[d, chosen] += base[i, d]"),
            ("min(least[k + 1, d], base[order[k], d])", "base[order[k], d]"),
        ),
    ),
    Subject(
        greedy, "place_by_load", compare.place_by_load, load_case,
        (
            ("np.argsort(total, kind=", "np.argsort(-total, kind="),
            ("candidates[depth if backtrack else 0]", "candidates[0]"),
            ("room[n, d] -= base[i, d]", "room[n, d] -= 0.0"),
            ("base[i, d] > room[n, d]", "base[i, d] >= room[n, d]"),
            ("used == attempts", "used > attempts"),
            ("total[n] += work[i]", "total[n] += base[i, 0]"),
            ("if not fresh and not backtrack:", "if not fresh:"),
            ("capacity + tolerance", "capacity - tolerance"),
        ),
    ),
    Subject(
        yields, "node_loads", compare.node_loads, cases.yield_case,
        (
            ("fixed[n, d] += base[i, d]", "fixed[n, d] = base[i, d]"),
            ("rate[n, d] += slope[i, d]", "rate[n, d] += base[i, d]"),
        ),
    ),
    Subject(
        yields, "minimum_yield", compare.minimum_yield, cases.yield_case,
        (
            ("free < -tolerance", "free < tolerance"),
            ("rate[n, d] * best > free", "rate[n, d] > free"),
            ("best = 1.0", "best = 2.0"),
            ("capacity[n, d] - fixed[n, d]", "capacity[n, d]"),
            ("range(capacity.shape[1])", "range(1)"),
        ),
    ),
    Subject(
        yields, "fill_average", compare.fill_average, cases.average_case,
        (
            ("room[n, d] -= slope[i, d] * best_gain", "room[n, d] -= 0.0"),
            ("gain = 1.0 - yields[i]", "gain = 1.0"),
            ("slope[i, d] * gain > room[n, d]", "slope[i, d] > room[n, d]"),
            ("yields[i] += best_gain", "yields[i] = best_gain"),
            ("for _ in range(done.size):", "for _ in range(1):"),
        ),
    ),
    Subject(
        yields, "fill_max_min", compare.fill_max_min, parallel_yield_case,
        (
            ("1.0 - yields[j] < step", "1.0 - yields[j] > step"),
            ("if not frozen[j]:\n                yields", "if True:\n                yields"),
            ("room[n, d] -= rate[n, d] * step", "room[n, d] -= 0.0 * step"),
            ("slope[i, d] > 0.0 and room", "room"),
            ("room[place[i], d] <= tolerance", "room[place[i], d] <= 0.1"),
            ("yields[j] >= 1.0 - tolerance", "yields[j] >= 0.5"),
        ),
    ),
)  # fmt: skip


def mutations_of(subjects):
    """One pytest parameter for each single change of each subject."""
    return [
        pytest.param(subject, old, new, id=f"{subject.name}-{k}")
        for subject in subjects
        for k, (old, new) in enumerate(subject.mutations)
    ]


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_the_source_as_it_stands_agrees_with_its_twin(subject):
    for got, expected in subject.pairs(subject.compiled_by_python(subject.source)):
        assert got == expected


@pytest.mark.parametrize(("subject", "old", "new"), mutations_of(SUBJECTS))
def test_a_broken_source_is_told_from_its_twin(subject, old, new):
    assert subject.source.count(old) == 1, "the source has changed: choose another mutation"
    mutant = subject.compiled_by_python(subject.source.replace(old, new))
    assert not agrees(subject, mutant)


def agrees(subject, mutant):
    try:
        return all(got == expected for got, expected in subject.pairs(mutant))
    except (IndexError, ValueError):
        return False


@pytest.mark.parametrize("module", [sorting, packing, search, greedy, yields], ids=lambda module: module.__name__)
def test_every_kernel_is_broken_at_least_twice(module):
    assert kernels_of(module) == {s.name for s in SUBJECTS if s.module is module and len(set(s.mutations)) >= 2}


def kernels_of(module):
    return {
        name
        for name, value in vars(module).items()
        if isinstance(value, CPUDispatcher) and value.py_func.__module__ == module.__name__
    }
