"""How many nodes could be turned off for a given loss of minimum yield ([Stillwell2010] section 4.4.7)."""

from dataclasses import dataclass

import numpy as np

from dfrs.model.allocation import Allocator, Outcome
from dfrs.model.errors import InfeasibleError, InputError
from dfrs.model.instance import Instance, Ints
from dfrs.placement.bounds import upper_bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """The fewest nodes found that keep the minimum yield within `loss` of what all nodes give."""

    keep: Ints
    """Indices of the nodes left on."""
    outcome: Outcome
    """The allocation on them; its task placement counts nodes of `keep`."""
    full_yield: float
    tried: dict[int, float | None]
    """Number of nodes → minimum yield found there, or None where no placement was."""


def shrink(instance: Instance, allocator: Allocator, loss: float, seed: int) -> Shrunk:
    """Bisect the number of nodes, turning off the smallest first (equal ones from the last).

    `loss` is an absolute difference of minimum yield. What is found is a certificate, not an optimum: a heuristic
    may fail with k nodes and a better one not. Raises InfeasibleError where all nodes together do not do.
    """
    if not 0.0 <= loss <= 1.0:
        raise InputError(f"shrink: {loss}: must be in [0, 1]")
    by_size = np.argsort(-instance.capacity.sum(axis=1), kind="stable")
    tried: dict[int, float | None] = {}
    outcomes: dict[int, Outcome] = {}

    def reached(count: int) -> float:
        """Minimum yield with the `count` largest nodes on, or -1; kept in `tried` and `outcomes`."""
        part = instance.on_nodes(np.sort(by_size[:count]))
        try:
            if upper_bound(part) < goal:
                tried[count] = None
                return -1.0
        except InfeasibleError:
            tried[count] = None
            return -1.0
        outcome = allocator(part, np.random.default_rng(seed))
        tried[count] = outcome.minimum_yield
        outcomes[count] = outcome
        return -1.0 if outcome.minimum_yield is None else outcome.minimum_yield

    goal = 0.0
    full = reached(len(instance.nodes))
    if full < 0:
        raise InfeasibleError("infeasible: no placement found even with all nodes on")
    goal = max(0.0, full - loss)
    low, high = 0, len(instance.nodes)
    while high - low > 1:
        middle = (low + high) // 2
        if reached(middle) >= goal - 1e-12:
            high = middle
        else:
            low = middle
    return Shrunk(keep=np.sort(by_size[:high]), outcome=outcomes[high], full_yield=full, tried=tried)
