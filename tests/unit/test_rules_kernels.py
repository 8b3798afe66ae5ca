"""Rules in inner loops against their definition, on random rules and placements, also broken and partial ones."""

from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dfrs.kernels import rules as kernels
from dfrs.model.rule_arrays import Ints, RuleArrays, no_rules
from dfrs.model.rule_scope import GroupPart, MaskPart, Part, Scope, breaches, compile_parts
from tests.naive import rules as naive


class Case(NamedTuple):
    scope: Scope
    parts: list[Part]
    place: Ints


def random_parts(rng: np.random.Generator, scope: Scope) -> list[Part]:
    tasks, nodes = len(scope.service_of), len(scope.nodes)

    def some() -> Ints:
        return np.sort(rng.choice(tasks, size=int(rng.integers(1, tasks + 1)), replace=False))

    def level() -> str:
        return str(rng.choice(["node", "rack"]))

    kinds = [
        lambda: MaskPart(tasks=some(), allowed=rng.random(nodes) < 0.7),
        lambda: GroupPart(tasks=some(), level=level(), most=int(rng.integers(1, 3))),
        lambda: GroupPart(tasks=some(), level=level(), most_domains=int(rng.integers(1, 3))),
        lambda: GroupPart(tasks=some(), level=level(), fewest_domains=int(rng.integers(1, 4))),
        lambda: GroupPart(tasks=some(), level=level(), most=int(rng.integers(1, 3)), fewest_domains=2),
        lambda: GroupPart(tasks=some(), level=level(), host=some()),
    ]
    return [kinds[int(rng.integers(len(kinds)))]() for _ in range(int(rng.integers(0, 6)))]


def random_case(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    tasks, nodes = int(rng.integers(1, 9)), int(rng.integers(1, 7))
    labels = tuple({"rack": f"r{rng.integers(3)}"} for _ in range(nodes))
    scope = Scope(tuple(f"n{n}" for n in range(nodes)), tuple(f"s{i}" for i in range(tasks)), np.arange(tasks), labels)
    low = -1 if rng.random() < 0.3 else 0
    return Case(scope, random_parts(rng, scope), rng.integers(low, nodes, size=tasks))


def counted(rules: RuleArrays, place: Ints) -> tuple[Ints, Ints]:
    count, used = np.zeros(rules.offset[-1], dtype=np.int64), np.zeros(rules.level.size, dtype=np.int64)
    kernels.count_members(rules, place, count, used)
    return count, used


CASES = st.integers(0, 2**32 - 1).map(random_case)


@given(CASES)
@settings(max_examples=200)
def test_by_how_much_rules_are_broken(case: Case) -> None:
    scope, parts, place = case
    rules = compile_parts(parts, scope)
    assert kernels.broken(rules, place) == naive.broken(parts, scope, place.tolist())
    for part in parts:
        assert sum(b.amount for b in breaches(part, place, scope)) == sum(naive.terms([part], scope, place.tolist()))


@given(CASES)
@settings(max_examples=200)
def test_moves_and_swaps_break_nothing_more(case: Case) -> None:
    scope, parts, place = case
    rules = compile_parts(parts, scope)
    count, used = counted(rules, place)
    now = place.tolist()
    for i, a in enumerate(now):
        for b in range(len(scope.nodes)):
            wanted = naive.may_become(parts, scope, now, {i: b})
            assert kernels.may_move(rules, count, used, i, a, b) == wanted
            if a < 0:
                assert kernels.may_place(rules, count, used, i, b) == wanted
        for j, b in enumerate(now):
            if i != j and a >= 0 and b >= 0:
                wanted = naive.may_become(parts, scope, now, {i: b, j: a})
                assert kernels.may_swap(rules, count, used, i, a, j, b) == wanted


@given(CASES, st.integers(0, 2**32 - 1))
@settings(max_examples=100)
def test_counts_follow_moves(case: Case, seed: int) -> None:
    scope, parts, place = case
    rules = compile_parts(parts, scope)
    count, used = counted(rules, place)
    rng = np.random.default_rng(seed)
    for _ in range(10):
        i, b = int(rng.integers(len(place))), int(rng.integers(-1, len(scope.nodes)))
        kernels.record(rules, count, used, i, int(place[i]), b)
        place[i] = b
    again = counted(rules, place)
    assert (count == again[0]).all()
    assert (used == again[1]).all()


def test_no_rules_is_what_no_parts_compile_to() -> None:
    scope = Scope(("n0", "n1"), ("s0", "s1", "s2"), np.arange(3))
    for one, other in zip(no_rules(3, 2), compile_parts([], scope), strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert (one == other).all()
        assert (one.flags.writeable, other.flags.writeable) == (False, False)


def test_kernels_are_compiled_for_the_layout_there_is() -> None:
    assert kernels.LAYOUT.split() == list(RuleArrays._fields)
