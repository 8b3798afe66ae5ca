"""What cannot be kept, against exhaustive search."""

from dataclasses import replace

import numpy as np
import pytest

from dfrs.model.instance import Instance
from dfrs.model.rules import Apart, Licensed, Maintenance, Only, Requires, Rule, Rules, Spread, Together
from dfrs.placement.conflicts import diagnose
from tests.rule_cases import random_instance
from tests.unit.test_rules_constructive import feasible

LABELS = [{"rack": "r0"}, {"rack": "r0"}, {"rack": "r1"}, {"rack": "r1"}]


def four_nodes(*rules: Rule, memory: float = 0.25) -> Instance:
    """db of four tasks and web of two on four nodes of two racks."""
    return Instance.from_arrays(
        np.ones((4, 1)),
        np.full((6, 1), memory),
        [True],
        services=["db", "web"],
        service_of=[0, 0, 0, 0, 1, 1],
        resources=["memory"],
        labels=LABELS,
        rules=Rules(rules),
    )


@pytest.mark.parametrize(
    ("rules", "which", "text"),
    [
        (
            [Apart(["web"]), Only(["db"], ["n1"]), Maintenance(["n1", "n2"])],
            (1, 2),
            "no placement keeps rules[1] (only db nodes=n1) and rules[2] (maintenance nodes=n1,n2): "
            "they leave db/0 no node",
        ),
        (
            [Apart(["db"], level="rack")],
            (0,),
            "no placement keeps rules[0] (apart db level=rack): 4 tasks, but 2 domains of level rack with at most 1 in "
            "each",
        ),
        (
            [Spread(["db"], at_least=3, level="rack")],
            (0,),
            "no placement keeps rules[0] (spread db at_least=3 level=rack): fewer domains of level rack (2) than it "
            "needs (3)",
        ),
        (
            [Spread(["web"], at_least=3)],
            (0,),
            "no placement keeps rules[0] (spread web at_least=3): fewer tasks (2) than the domains it needs (3)",
        ),
        (
            [Together(["db", "web"])],
            (0,),
            "no placement keeps rules[0] (together db,web): the tasks need 1.5 of memory, of the domains of level node "
            "the largest has 1",
        ),
        (
            [Licensed(["db"], 2), Apart(["web"]), Apart(["db"])],
            (0, 2),
            "no placement keeps rules[0] (licensed db at_most=2) and rules[2] (apart db): whatever the capacities",
        ),
        (
            [Only(["db", "web"], ["n0", "n1"]), Apart(["web"]), Requires(["web"], ["db"]), Maintenance(["n1"])],
            (0, 3),
            "no placement keeps rules[0] (only db,web nodes=n0,n1) and rules[3] (maintenance nodes=n1): with these "
            "capacities",
        ),
    ],
)
def test_a_conflict_names_a_least_set_of_rules(rules: list[Rule], which: tuple[int, ...], text: str) -> None:
    diagnosis = diagnose(four_nodes(*rules))
    assert diagnosis.feasible is False
    assert [c.rules for c in diagnosis.conflicts] == [which]
    assert [c.text for c in diagnosis.conflicts] == [text]
    assert all(c.minimal for c in diagnosis.conflicts)


def test_what_does_not_fit_without_rules_is_not_blamed_on_rules() -> None:
    diagnosis = diagnose(four_nodes(Apart(["web"]), memory=0.7))
    assert (diagnosis.feasible, [c.rules for c in diagnosis.conflicts]) == (False, [()])
    assert diagnosis.conflicts[0].text.startswith("no placement, even without rules")


def test_soft_rules_conflict_with_nothing() -> None:
    assert diagnose(four_nodes(Maintenance(["*"], price=0.1))).feasible


def test_without_time_nothing_is_claimed() -> None:
    diagnosis = diagnose(four_nodes(Licensed(["db"], 2), Apart(["db"])), time_limit_s=0.0)
    assert (diagnosis.feasible, diagnosis.conflicts) == (None, ())


@pytest.mark.parametrize("seed", range(40))
def test_conflicts_are_real_and_minimal(seed: int) -> None:
    rng = np.random.default_rng(seed)
    instance = random_instance(rng, tasks=int(rng.integers(2, 5)), nodes=int(rng.integers(2, 4)), rules=4, load=0.6)
    assert instance.rules is not None
    hard = [r for r, rule in enumerate(instance.rules.rules) if rule.price is None]
    instance = replace(instance, rules=instance.rules.only(hard))
    diagnosis = diagnose(instance)
    assert diagnosis.feasible == feasible(instance)
    assert bool(diagnosis.conflicts) == (not diagnosis.feasible)
    for conflict in diagnosis.conflicts:
        assert instance.rules is not None
        assert conflict.minimal
        assert not feasible(replace(instance, rules=instance.rules.only(conflict.rules)))
        for left_out in conflict.rules:
            rest = [r for r in conflict.rules if r != left_out]
            assert feasible(replace(instance, rules=instance.rules.only(rest)))
