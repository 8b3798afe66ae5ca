"""What must hold for any algorithm's answer, checked with loops over plain numbers."""

from collections.abc import Callable

from dfrs.model import tolerances
from dfrs.model.allocation import Allocation, Outcome, Status
from dfrs.model.errors import InfeasibleError
from dfrs.model.instance import Instance

SLACK = tolerances.CERTIFICATE


def outcome_or_none(algorithm: Callable[..., Outcome], instance: Instance, *rng: object) -> Outcome | None:
    """The outcome; None where it is proven before any search that no placement exists."""
    try:
        return algorithm(instance, *rng)
    except InfeasibleError:
        return None


def assert_within_capacity(instance: Instance, allocation: Allocation) -> None:
    used = [[0.0] * len(instance.resources) for _ in instance.nodes]
    for i, n in enumerate(allocation.place.tolist()):
        j = int(instance.service_of[i])
        low = float(instance.minimum_yield[j])
        share = low + float(allocation.scaled_yields[j]) * (1.0 - low)
        for d in range(len(instance.resources)):
            need = float(instance.need[i, d])
            used[n][d] += need if instance.rigid[i, d] else need * share
    for row, capacity in zip(used, instance.capacity.tolist(), strict=True):
        for amount, limit in zip(row, capacity, strict=True):
            assert amount <= limit + SLACK


def assert_sound(instance: Instance, outcome: Outcome) -> None:
    """A certificate: every task has a node, nothing is overloaded, all get the yield, and it is within the bound."""
    if outcome.allocation is None:
        assert outcome.status == Status.NOT_FOUND
        assert outcome.minimum_yield is None
        return
    assert outcome.status in {Status.FEASIBLE, Status.OPTIMAL}
    assert len(outcome.allocation.place) == len(instance.need)
    assert ((outcome.allocation.place >= 0) & (outcome.allocation.place < len(instance.nodes))).all()
    assert_within_capacity(instance, outcome.allocation)
    assert outcome.minimum_yield is not None
    assert 0.0 <= outcome.minimum_yield <= outcome.bound <= 1.0
    assert (outcome.allocation.scaled_yields >= outcome.minimum_yield).all()


def value(outcome: Outcome | None) -> float:
    """The minimum yield, or -1 without a placement."""
    return -1.0 if outcome is None or outcome.minimum_yield is None else outcome.minimum_yield
