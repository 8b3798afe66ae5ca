"""Random clusters with a present placement, a target and limits on moves, full enough for moves to wait."""

from dataclasses import dataclass, replace

import numpy as np

from dfrs.model.instance import Instance, Ints
from dfrs.model.move_limits import MoveLimits
from dfrs.model.resources import Kind, Resource
from dfrs.model.rules import Rules
from dfrs.placement.plan_state import PlanState
from tests.rule_cases import random_rules


@dataclass(frozen=True)
class Case:
    instance: Instance
    present: Ints
    target: Ints
    limits: MoveLimits


def random_case(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    nodes, tasks = int(rng.integers(2, 7)), int(rng.integers(1, 13))
    of = np.cumsum(rng.random(tasks) < 0.6)
    of -= of[0]
    services = int(of[-1]) + 1
    need = rng.integers(1, 5, (tasks, 2)) / 8
    labels = [{"rack": f"r{n % 3}", **({"ssd": "yes"} if n % 4 else {})} for n in range(nodes)]
    rules = random_rules(rng, services, nodes, int(rng.integers(0, 4)))
    sized = rng.random() < 0.8
    instance = Instance.from_arrays(
        rng.choice([1.0, 1.0, 1.5], (nodes, 2)),
        need,
        [True, False],
        resources=[
            Resource(name="memory", kind=Kind.RIGID, bytes_per_node=64e9 if sized else None),
            Resource(name="cpu", kind=Kind.FLUID),
        ],
        service_of=of,
        minimum_yield=rng.choice([0.0, 0.25, 0.5], services),
        labels=labels,
        rules=Rules(rules),
    )
    present = placed(rng, instance, broken=rng.random() < 0.2)
    target = placed(rng, instance, broken=rng.random() < 0.1)
    target = np.where(target < 0, np.maximum(present, 0), target)
    if rng.random() < 0.3:
        present = np.where(rng.random(tasks) < 0.2, -1, present)
    return Case(instance, present, target, random_limits(rng))


def random_limits(rng: np.random.Generator) -> MoveLimits:
    def some(top: int) -> int | None:
        return int(rng.integers(1, top)) if rng.random() < 0.5 else None

    limits = MoveLimits(
        at_once=some(4),
        per_node=some(3),
        per_link=some(3),
        link_level="rack",
        bandwidth_bytes_per_s=1e9 if rng.random() < 0.7 else None,
        latency_s=float(rng.choice([0.0, 2.0])),
    )
    return limits if limits.per_link is not None else replace(limits, link_level=None)


def placed(rng: np.random.Generator, instance: Instance, broken: bool) -> Ints:
    """(T,) a random placement that fits and keeps the rules as far as that goes; with `broken`, any."""
    tasks, nodes = len(instance.need), len(instance.nodes)
    if broken:
        return rng.integers(0, nodes, tasks)
    rules = instance.rules.hard_only.arrays if instance.rules is not None else None
    state = PlanState(instance, np.full(tasks, -1), rules)
    for i in rng.permutation(tasks).tolist():
        for n in rng.permutation(nodes).tolist():
            if state.blocker(((i, -1, n),)) is None:
                state.apply(((i, -1, n),))
                break
    return np.array(state.place)
