"""OPT under rules is what exhaustive search finds; algorithms that do not know rules say so."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from dfrs import allocate
from dfrs.kernels.rules import broken
from dfrs.model.allocation import Status
from dfrs.model.errors import UnsupportedError
from dfrs.model.instance import Instance
from dfrs.model.rules import Apart, Headroom, Licensed, Rule, Rules, Spread, Sticky, Together
from dfrs.placement.outcome import placement_yield
from dfrs.placement.registry import ALGORITHMS
from tests.rule_cases import random_instance


def best_of_all(instance: Instance) -> float:
    assert instance.rules is not None
    values = [
        placement_yield(instance, place)
        for way in product(range(len(instance.nodes)), repeat=len(instance.need))
        if broken(instance.rules.arrays, place := np.array(way)) == 0
    ]
    return max(values, default=-1.0)


@pytest.mark.parametrize("seed", range(12))
def test_opt_is_the_best_placement_that_keeps_the_rules(seed: int) -> None:
    rng = np.random.default_rng(seed)
    instance = random_instance(rng, tasks=int(rng.integers(2, 6)), nodes=int(rng.integers(2, 4)), rules=3, load=0.9)
    assert instance.rules is not None
    hard = [r for r, rule in enumerate(instance.rules.rules) if rule.price is None]
    instance = replace(instance, rules=instance.rules.only(hard))
    outcome, wanted = allocate(instance, "OPT"), best_of_all(instance)
    if wanted < 0:
        assert outcome.status == Status.INFEASIBLE
        return
    assert outcome.status == Status.OPTIMAL
    assert outcome.minimum_yield == pytest.approx(wanted, abs=1e-6)
    assert outcome.allocation is not None
    assert instance.rules is not None
    assert instance.rules.problems(outcome.allocation.place) == []


@pytest.mark.parametrize(
    ("rule", "used"),
    [
        (Spread(["s0"], at_least=3), 3),
        (Spread(["s0"], at_least=2, level="rack"), 2),
        (Licensed(["s0"], 1), 1),
        (Together(["s0"], level="rack"), 1),
    ],
)
def test_opt_counts_domains(rule: Rule, used: int) -> None:
    """One node of three times the capacity draws all tasks; small ones draw them apart."""
    large = isinstance(rule, Spread)
    instance = Instance.from_arrays(
        np.array([[1.0, 3.0 if large else 0.6], *[[1.0, 0.3 if large else 0.6]] * 3]),
        np.tile([0.3, 0.6], (3, 1)),
        [True, False],
        service_of=[0, 0, 0],
        labels=[{"rack": "a"}, {"rack": "a"}, {"rack": "a"}, {"rack": "b"}],
        rules=[rule],
    )
    outcome = allocate(instance, "OPT")
    assert outcome.status == Status.OPTIMAL
    assert outcome.allocation is not None
    assert instance.rules is not None
    assert instance.rules.scope is not None
    level = getattr(rule, "level", "node")
    assert len(set(instance.rules.scope.domains(level)[1][outcome.allocation.place].tolist())) == used
    assert outcome.minimum_yield == pytest.approx(best_of_all(instance), abs=1e-6)


def two_services(rules: Rules) -> Instance:
    return Instance.from_arrays(np.ones((2, 2)), np.full((2, 2), 0.3), [True, False], rules=rules)


@pytest.mark.parametrize(
    "name", [n for n, a in ALGORITHMS.items() if a.family in {"packing", "greedy", "rounding"}][::9]
)
def test_algorithms_that_do_not_know_rules_refuse_them(name: str) -> None:
    with pytest.raises(UnsupportedError, match=f"^{name} does not know placement rules: BEST, ADAPT and OPT do$"):
        allocate(two_services(Rules([Apart(["*"])])), name)
    assert allocate(two_services(Rules([Sticky(["*"], 2.0)], Headroom())), name).allocation is not None


def test_opt_does_not_weigh_prices() -> None:
    with pytest.raises(UnsupportedError, match=r"^OPT does not weigh rules with a price: BEST and ADAPT do$"):
        allocate(two_services(Rules([Apart(["*"], price=0.1)])), "OPT")
