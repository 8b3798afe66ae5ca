"""Every placement, one after the other: the optimum of an instance of a few thousand placements."""

from itertools import product

import numpy as np

from dfrs.model.instance import Floats, Instance, Ints


def value(instance: Instance, place: Ints) -> float | None:
    """The best minimum scaled yield of `place`, or None where requirements overload a node."""
    best = 1.0
    for n in range(len(instance.nodes)):
        here = [i for i in range(len(place)) if place[i] == n]
        for d in range(len(instance.resources)):
            free = instance.capacity[n, d] - sum(instance.base[i, d] for i in here)
            rate = sum(instance.slope[i, d] for i in here)
            if free < -1e-9:
                return None
            if rate > 0:
                best = min(best, max(free, 0.0) / rate)
    return best


def best_placement(
    instance: Instance, present: Ints | None = None, cost: Floats | None = None, budget: float = 0.0
) -> float | None:
    """The optimum, or None where no placement is feasible (and, with `present`, within `budget`)."""
    best = None
    for choice in product(range(len(instance.nodes)), repeat=len(instance.need)):
        place = np.array(choice)
        if present is not None and cost is not None:
            moved = (present >= 0) & (place != present)
            if cost[moved].sum() > budget + 1e-9:
                continue
        found = value(instance, place)
        if found is not None and (best is None or found > best):
            best = found
    return best
