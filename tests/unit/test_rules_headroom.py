"""Failures against exhaustive search, and the reserve that survives them."""

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest

from dfrs.api import allocate
from dfrs.model.allocation import Outcome
from dfrs.model.errors import InputError
from dfrs.model.instance import Instance, Ints
from dfrs.model.rule_scope import GroupPart
from dfrs.model.rules import Apart, Headroom, Requires, Rules, Spread
from dfrs.placement.constructive import construct
from dfrs.placement.headroom import check_headroom, keep_headroom, least_reserve, survives
from dfrs.placement.outcome import found
from dfrs.placement.registry import Options
from dfrs.rebalancing.solve import rebalance
from tests.naive import rules as naive
from tests.rule_cases import random_instance


def room(instance: Instance, place: Ints, down: set[int]) -> bool:
    """Whether the tasks on the nodes `down` fit on others, by trying all ways."""
    assert instance.rules is not None
    assert instance.rules.scope is not None
    parts = [
        replace(part, fewest_domains=0) if isinstance(part, GroupPart) else part
        for rule, own in zip(instance.rules.rules, instance.rules.parts, strict=True)
        if rule.price is None
        for part in own
    ]
    victims = [i for i, n in enumerate(place.tolist()) if n in down]
    up = [n for n in range(len(instance.nodes)) if n not in down]
    for to in product(up, repeat=len(victims)):
        at = place.copy()
        at[victims] = to
        load = np.zeros_like(instance.capacity)
        np.add.at(load, at, instance.base)
        if (load <= instance.capacity + 1e-9).all() and not naive.broken(parts, instance.rules.scope, at.tolist()):
            return True
    return False


@pytest.mark.parametrize("failures", [1, 2])
@pytest.mark.parametrize("level", ["node", "rack"])
def test_what_is_survived_is_what_exhaustive_search_says(failures: int, level: str) -> None:
    said: list[bool] = []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        instance = random_instance(rng, tasks=int(rng.integers(2, 7)), nodes=4, rules=2, load=0.5)
        place = construct(instance, rng)
        if place is None:
            continue
        assert instance.rules is not None
        assert instance.rules.scope is not None
        names, domain = instance.rules.scope.domains(level)
        answers = check_headroom(instance, place, Headroom(failures, level))
        wanted = [
            room(instance, place, set(np.flatnonzero(np.isin(domain, failed)).tolist()))
            for failed in combinations(range(len(names)), failures)
        ]
        assert [f.survived for f in answers] == wanted
        assert all(f.proven for f in answers)
        assert all((f.left.size == 0) == f.survived for f in answers)
        assert survives(instance, place, Headroom(failures, level)) == all(wanted)
        said += wanted
    assert {True, False} == set(said)


def test_a_failure_that_is_not_survived_says_by_how_much() -> None:
    instance = Instance.from_arrays(
        np.ones((3, 2)), np.array([[0.6, 0.1], [0.6, 0.1], [0.3, 0.1]]), [True, False], rules=[Apart(["s0", "s1"])]
    )
    place = np.array([0, 1, 1])
    assert [f.text(instance) for f in check_headroom(instance, place)] == [
        "n0: survived",
        "n1: survived",
        "n2: survived",
    ]
    two = [f.text(instance) for f in check_headroom(instance, place, Headroom(failures=2))]
    assert two[1:] == [
        "n0 and n2: not survived: no room for s0: 0.6 of r0",
        "n1 and n2: not survived: no room for s1: 0.6 of r0",
    ]


def test_a_guest_needs_its_host_back_in_its_domain() -> None:
    labels = [{"rack": "a"}, {"rack": "a"}, {"rack": "b"}]
    instance = Instance.from_arrays(
        np.array([[1.0], [1.0], [2.0]]),
        np.array([[0.6], [0.6]]),
        [True],
        labels=labels,
        rules=[Requires(["s1"], ["s0"], level="rack"), Spread(["*"], at_least=1)],
    )
    host_fails = check_headroom(instance, np.array([0, 1]))[0]
    assert (host_fails.survived, host_fails.proven) == (False, True)
    roomy = replace(instance, capacity=np.array([[1.0], [1.3], [2.0]]))
    assert check_headroom(roomy, np.array([0, 1]))[0].survived


def test_no_placement_survives_the_failure_of_as_many_as_there_are_or_more() -> None:
    instance = Instance.from_arrays(np.ones((2, 1)), np.array([[0.1]]), [True])
    for failures in (2, 3):
        (both,) = check_headroom(instance, np.array([0]), Headroom(failures))
        assert both.text(instance) == "n0 and n1: not survived: no room for s0: 0.1 of r0"
        assert not survives(instance, np.array([0]), Headroom(failures))


def test_a_task_that_runs_nowhere_takes_no_room_and_fails_nowhere() -> None:
    """Of two nodes the last has room for the task of the first, unless the third task ran there."""
    instance = Instance.from_arrays(np.ones((2, 1)), np.array([[0.6], [0.2], [0.5]]), [True])
    place = np.array([0, 1, -1])
    assert [f.text(instance) for f in check_headroom(instance, place)] == ["n0: survived", "n1: survived"]
    full = check_headroom(instance, np.array([0, 1, 1]))
    assert [f.survived for f in full] == [False, False]
    assert survives(instance, np.array([-1, -1, -1]))


def test_what_is_told_is_of_the_placement_that_survives() -> None:
    """But for what is so whatever the placement, which the whole nodes say."""
    instance = Instance.from_arrays(np.ones((4, 1)), np.array([[0.6], [0.3], [0.5], [0.5], [0.5]]), [True])
    asked = replace(instance, rules=Rules(headroom=Headroom()))
    told = {"winner": "first", "moves": 0, "spent": {}, "bound_without_budget": 0.9, "staying_yield": 0.8}
    first = found(asked, np.array([0, 0, 1, 2, 3]), bound=1.0, details=told)
    other = {"winner": "other", "moves": 2, "bound_without_budget": 0.5, "staying_yield": None}
    kept = keep_headroom(asked, first, lambda _part, _rng: found(asked, np.array([0, 3, 1, 1, 2]), details=other), 0)
    own = {"winner": "other", "moves": 2, "reserve": 0.0625}
    assert kept.details == {**own, "bound_without_budget": 0.9, "staying_yield": 0.8}


def test_too_many_combinations_are_refused() -> None:
    instance = Instance.from_arrays(np.ones((100, 1)), np.ones((1, 1)), [True])
    with pytest.raises(InputError, match="combinations"):
        check_headroom(instance, np.array([0]), Headroom(failures=4))


def test_the_least_reserve_is_where_the_allocator_begins_to_leave_room() -> None:
    """Of 0.6 and 0.3 on one node and 0.5 on the other two, the 0.6 has nowhere to go; beside 0.3 alone it has."""
    instance = Instance.from_arrays(np.ones((4, 1)), np.array([[0.6], [0.3], [0.5], [0.5], [0.5]]), [True])
    full, roomy = np.array([0, 0, 1, 2, 3]), np.array([0, 3, 1, 1, 2])
    assert not survives(instance, full)
    assert survives(instance, roomy, Headroom())

    def allocator(part: Instance, _rng: np.random.Generator) -> Outcome:
        return found(instance, full if part.capacity[0, 0] > 0.8 else roomy)

    reserved = least_reserve(instance, allocator, width=0.01)
    assert reserved is not None
    assert reserved.outcome.allocation is not None
    assert reserved.outcome.allocation.place.tolist() == roomy.tolist()
    assert 0.2 <= reserved.reserve <= 0.21
    assert not any(good for reserve, good in reserved.tried.items() if reserve < 0.2)
    none = least_reserve(instance, lambda _part, _rng: found(instance, full))
    assert none is None
    asked = replace(instance, rules=Rules(headroom=Headroom(level="node")))
    already = least_reserve(asked, lambda _part, _rng: found(instance, roomy))
    assert already is not None
    assert (already.reserve, already.tried) == (0.0, {0.0: True})


def half_full(seed: int, headroom: Headroom | None = None) -> Instance:
    """Six nodes, memory 70 % required, more CPU wanted than there is."""
    rng = np.random.default_rng(seed)
    memory = rng.uniform(0.1, 0.5, 16)
    need = np.column_stack([memory * 0.7 * 6 / memory.sum(), rng.uniform(0.2, 0.8, 16)])
    instance = Instance.from_arrays(np.ones((6, 2)), need, [True, False])
    return replace(instance, rules=Rules(headroom=headroom)) if headroom else instance


def test_best_goes_on_until_what_it_finds_survives() -> None:
    mended = 0
    for seed in range(15):
        plain = allocate(half_full(seed), "BEST", options=Options(rounds=2))
        asked = half_full(seed, Headroom())
        outcome = allocate(asked, "BEST", options=Options(rounds=2))
        assert plain.allocation is not None
        assert outcome.allocation is not None
        good = survives(asked, outcome.allocation.place)
        assert (outcome.details["headroom"] == []) == good
        if good and not survives(asked, plain.allocation.place):
            mended += 1
            reserve = outcome.details["reserve"]
            assert isinstance(reserve, float)
            assert 0.0 < reserve <= 0.25
            assert outcome.minimum_yield is not None
            assert outcome.minimum_yield <= outcome.bound
    assert mended >= 2


def test_adapt_moves_to_where_failures_are_survived() -> None:
    for seed in range(4):
        asked = half_full(seed, Headroom())
        plain = allocate(half_full(seed), "BEST", options=Options(rounds=2))
        assert plain.allocation is not None
        made = rebalance(asked, plain.allocation.place, rounds=2)
        assert made.plan is not None
        if "reserve" in made.outcome.details:
            assert survives(asked, made.plan.final)


def test_where_no_reserve_helps_the_placement_stays_and_the_failures_are_told() -> None:
    instance = Instance.from_arrays(np.ones((2, 1)), np.array([[0.6], [0.6]]), [True])
    asked = replace(instance, rules=Rules(headroom=Headroom()))
    outcome = allocate(asked, "BEST", options=Options(rounds=1))
    assert outcome.allocation is not None
    assert outcome.details["headroom"] == [
        "n0: not survived: no room for s0: 0.6 of r0",
        "n1: not survived: no room for s1: 0.6 of r0",
    ]
