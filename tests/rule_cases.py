"""Random instances with labels and rules of every kind."""

from collections.abc import Callable

import numpy as np

from dfrs.model.instance import Instance
from dfrs.model.rules import (
    Apart,
    Features,
    Licensed,
    Maintenance,
    Never,
    Only,
    Requires,
    Rule,
    Rules,
    Spread,
    Sticky,
    Together,
)


def random_rules(rng: np.random.Generator, services: int, nodes: int, count: int) -> list[Rule]:
    """`count` rules on services s0, s1.. and nodes n0, n1.. of racks r0 to r2, some of them soft."""

    def some() -> tuple[str, ...]:
        names = [f"s{j}" for j in range(services)]
        return tuple(rng.choice(names, size=int(rng.integers(1, min(3, services) + 1)), replace=False))

    def where() -> tuple[str, ...]:
        if rng.random() < 0.3:
            return ("n*[02468]",)
        return tuple(f"n{n}" for n in rng.choice(nodes, size=int(rng.integers(1, nodes + 1)), replace=False))

    def drawn() -> dict[str, object]:
        return {"level": str(rng.choice(["node", "rack"])), "each": bool(rng.random() < 0.5)}

    def price() -> dict[str, float]:
        return {"price": 0.05} if rng.random() < 0.3 else {}

    def number() -> int:
        return int(rng.integers(1, 4))

    kinds: list[Callable[[], Rule]] = [
        lambda: Together(some(), **drawn(), **price()),
        lambda: Apart(some(), at_most=number(), **drawn(), **price()),
        lambda: Spread(some(), at_least=number(), **drawn(), **price()),
        lambda: Spread(some(), at_least=2, at_most=number(), **drawn(), **price()),
        lambda: Only(some(), where(), **price()),
        lambda: Never(some(), where(), **price()),
        lambda: Features(("s*",), ("ssd",), **price()),
        lambda: Features(some(), (f"rack=r{rng.integers(3)}",), **price()),
        lambda: Maintenance((f"n{rng.integers(nodes)}",), **price()),
        lambda: Requires(some(), some(), level=str(rng.choice(["node", "rack"])), **price()),
        lambda: Licensed(some(), number(), level=str(rng.choice(["node", "rack"])), **price()),
        lambda: Apart(("s*/0",), at_most=number(), **price()),
        lambda: Sticky(some(), 3.0),
    ]
    return [kinds[int(rng.integers(len(kinds)))]() for _ in range(count)]


def random_instance(
    rng: np.random.Generator, tasks: int, nodes: int, rules: int, load: float = 0.5, resources: int = 2
) -> Instance:
    """Tasks in services of one to three, on nodes of three racks; requirements take `load` of the cluster."""
    of = np.cumsum(rng.random(tasks) < 0.6).astype(np.int64)
    of -= of[0]
    services = int(of[-1]) + 1
    need = rng.uniform(0.2, 1.0, (tasks, resources))
    need *= load * nodes / need.sum(axis=0)
    need = np.minimum(need, 0.9)
    labels = [{"rack": f"r{n % 3}", **({"ssd": "yes"} if n % 4 else {})} for n in range(nodes)]
    return Instance.from_arrays(
        np.ones((nodes, resources)),
        need,
        [d % 2 == 0 for d in range(resources)],
        service_of=of,
        labels=labels,
        rules=Rules(random_rules(rng, services, nodes, rules)),
    )
