"""From a placement to an outcome: the one place where yields are assigned and bounds attached."""

from collections.abc import Mapping

import numpy as np

from dfrs.kernels import yields as kernels
from dfrs.model import tolerances
from dfrs.model.allocation import Outcome, Status
from dfrs.model.errors import InfeasibleError
from dfrs.model.instance import Instance, Ints
from dfrs.placement.bounds import upper_bound
from dfrs.placement.second_phase import equal_yields


def placement_yield(instance: Instance, place: Ints) -> float:
    """The best minimum scaled yield of a placement (T,), or -1 where its requirements overload a node."""
    return float(kernels.minimum_yield(instance.base, instance.slope, instance.capacity, place, tolerances.PLACEMENT))


def found(
    instance: Instance,
    place: Ints | None,
    *,
    bound: float | None = None,
    optimal: bool = False,
    details: Mapping[str, object] | None = None,
) -> Outcome:
    """Outcome of a placement (T,), every service at the minimum yield; NOT_FOUND where `place` is None.

    `bound`: a tighter upper bound than the closed form, where the algorithm has proven one. A placement that
    reaches the bound is optimal, whoever found it.
    """
    limit = upper_bound(instance) if bound is None else min(bound, upper_bound(instance))
    if place is None:
        ended = "no placement found in time" if (details or {}).get("end") == "time_limit" else "no placement found"
        reason = {"reason": f"{ended}; {tightest(instance)}"}
        return Outcome(
            algorithm="",
            status=Status.NOT_FOUND,
            allocation=None,
            minimum_yield=None,
            bound=limit,
            details={**(details or {}), **reason},
        )
    value = placement_yield(instance, place)
    if value < 0:
        raise AssertionError("an algorithm returned a placement that overloads a node")
    optimal = optimal or value >= limit - tolerances.CAPACITY
    return Outcome(
        algorithm="",
        status=Status.OPTIMAL if optimal else Status.FEASIBLE,
        allocation=equal_yields(instance, np.ascontiguousarray(place), value),
        minimum_yield=value,
        bound=value if optimal else max(limit, value),
        details=details or {},
    )


def infeasible(error: InfeasibleError) -> Outcome:
    """Outcome where it is proven that no placement exists."""
    return Outcome(
        algorithm="",
        status=Status.INFEASIBLE,
        allocation=None,
        minimum_yield=None,
        bound=0.0,
        details={"reason": str(error)},
    )


def tightest(instance: Instance) -> str:
    """Names the resource whose requirements leave the least of the cluster free."""
    free = 1.0 - instance.base.sum(axis=0) / instance.capacity.sum(axis=0).clip(1e-300)
    d = int(free.argmin())
    return f"the tightest is {instance.resources[d].name}: requirements leave {100 * free[d]:.1f} % of it free"
