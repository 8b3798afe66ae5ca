"""Constructed starts keep the rules, and are found where exhaustive search finds one."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfrs.model.instance import Instance, Ints
from dfrs.model.rules import Apart, Maintenance, Only, Requires, Rule, Rules, Spread, Together
from dfrs.placement.constructive import construct
from tests.naive import rules as naive
from tests.rule_cases import random_instance


def valid(instance: Instance, place: Ints) -> bool:
    load = np.zeros_like(instance.capacity)
    np.add.at(load, place, instance.base)
    assert instance.rules is not None
    parts = [part for own in instance.rules.parts for part in own]
    assert instance.rules.scope is not None
    return bool((load <= instance.capacity + 1e-9).all()) and not naive.broken(
        parts, instance.rules.scope, place.tolist()
    )


def feasible(instance: Instance) -> bool:
    nodes, tasks = len(instance.nodes), len(instance.need)
    return any(valid(instance, np.array(place)) for place in product(range(nodes), repeat=tasks))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_a_start_keeps_all_rules_and_capacities(seed: int) -> None:
    rng = np.random.default_rng(seed)
    instance = random_instance(rng, tasks=int(rng.integers(1, 14)), nodes=int(rng.integers(1, 8)), rules=4)
    place = construct(instance, np.random.default_rng(0), attempts=4)
    assert place is None or valid(instance, place)


@pytest.mark.parametrize("seed", range(24))
def test_small_instances_that_have_a_placement_get_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    instance = random_instance(rng, tasks=int(rng.integers(2, 5)), nodes=int(rng.integers(2, 4)), rules=3, load=0.6)
    place = construct(instance, np.random.default_rng(0))
    assert (place is not None) == feasible(instance)


def rules_kept_by(rng: np.random.Generator, instance: Instance, place: Ints) -> list[Rule]:
    """Many rules that one known placement keeps."""
    rack = np.array([n % 3 for n in range(len(instance.nodes))])
    names = [f"{instance.services[j]}" for j in range(len(instance.services))]
    rules: list[Rule] = [Maintenance([n]) for n in np.setdiff1d(instance.nodes, [instance.nodes[n] for n in place])[:3]]
    for _ in range(30):
        one, two = rng.choice(len(names), size=2, replace=False)
        tasks = np.flatnonzero(np.isin(instance.service_of, [one, two]))
        at, racks = place[tasks], rack[place[tasks]]
        if np.unique(at).size == at.size:
            rules.append(Apart([names[one], names[two]]))
        if np.unique(racks).size == 1:
            rules.append(Together([names[one], names[two]], level="rack"))
        if np.unique(racks).size > 1:
            rules.append(Spread([names[one], names[two]], at_least=2, level="rack"))
        hosts = racks[instance.service_of[tasks] == one]
        if np.isin(racks, hosts).all():
            rules.append(Requires([names[two]], [names[one]], level="rack"))
    free = int(rng.integers(len(names)))
    rules.append(Only([names[free]], [instance.nodes[n] for n in np.unique(place[instance.service_of == free])]))
    return rules


@pytest.mark.parametrize("seed", range(6))
def test_larger_instances_with_a_known_placement_get_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    instance = random_instance(rng, tasks=60, nodes=12, rules=0, load=0.7)
    place = construct(instance, rng)
    assert place is not None
    place = rng.permutation(12)[place]
    instance = Instance.from_arrays(
        instance.capacity,
        instance.need,
        instance.rigid,
        service_of=instance.service_of,
        labels=instance.labels,
        rules=Rules(rules_kept_by(rng, instance, place)),
    )
    assert valid(instance, place)
    again = construct(instance, np.random.default_rng(0))
    assert again is not None
    assert valid(instance, again)


def test_tasks_stay_where_they_are_unless_that_breaks_a_rule() -> None:
    instance = Instance.from_arrays(
        np.ones((3, 1)), np.full((4, 1), 0.3), [True], rules=[Apart(["s0", "s1"]), Maintenance(["n2"])]
    )
    place = construct(instance, np.random.default_rng(0), present=np.array([0, 0, 0, 2]))
    assert place is not None
    assert valid(instance, place)
    assert (place != [0, 0, 0, 2]).sum() == 2


def test_groups_that_require_each_other_find_a_domain() -> None:
    instance = Instance.from_arrays(
        np.ones((3, 1)), np.full((4, 1), 0.4), [True], rules=[Requires(["s0"], ["s1"]), Requires(["s1"], ["s0"])]
    )
    place = construct(instance, np.random.default_rng(0))
    assert place is not None
    assert place[0] == place[1]


def test_one_task_moves_to_make_room_for_another() -> None:
    instance = Instance.from_arrays(
        np.ones((2, 1)), np.array([[0.6], [0.5], [0.4]]), [True], rules=[Only(["s2"], ["n0"])]
    )
    place = construct(instance, np.random.default_rng(0), present=np.array([-1, 0, 0]))
    assert place is not None
    assert valid(instance, place)
