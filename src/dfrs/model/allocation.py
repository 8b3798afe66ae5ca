"""What an algorithm gives back: a placement, the yields on it, and how far it is from the best possible."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

import numpy as np

from dfrs.model.instance import Floats, Instance, Ints
from dfrs.model.shown import Shown


class Status(StrEnum):
    """How an algorithm ended."""

    OPTIMAL = "optimal"
    """A placement, proven the best."""
    FEASIBLE = "feasible"
    """A placement."""
    NOT_FOUND = "not_found"
    """None found; there may be one."""
    INFEASIBLE = "infeasible"
    """None exists; proven."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Allocation(Shown):
    """Where each task runs and what yield each service has."""

    place: Ints
    """(T,) index of each task's node."""
    scaled_yields: Floats
    """(S,) (yield - minimum)/(1 - minimum); 1 for a service whose minimum is 1."""

    @property
    def minimum_yield(self) -> float:
        """The least scaled yield: the objective."""
        return float(self.scaled_yields.min())

    @property
    def average_yield(self) -> float:
        """The mean scaled yield over services, not tasks ([Stillwell2008] section 5)."""
        return float(self.scaled_yields.mean())

    def _figures(self) -> Mapping[str, object]:
        return {
            "tasks": len(self.place),
            "nodes in use": len(np.unique(self.place)),
            "services": len(self.scaled_yields),
            "minimum yield": self.minimum_yield,
            "average yield": self.average_yield,
        }

    def yields(self, instance: Instance) -> Floats:
        """(S,) unscaled yields: the fraction of its needs that each service gets."""
        low = instance.minimum_yield
        return low + self.scaled_yields * (1.0 - low)

    def shares(self, instance: Instance) -> Floats:
        """(T, D) what each task is given of each resource, as fractions of the reference node."""
        return instance.base + self.scaled_yields[instance.service_of][:, None] * instance.slope

    def loads(self, instance: Instance) -> Floats:
        """(N, D) what is given out on each node."""
        loads = np.zeros_like(instance.capacity)
        np.add.at(loads, self.place, self.shares(instance))
        return loads

    def utilization(self, instance: Instance) -> float:
        """Share of the cluster in use, over the resources that are not purely rigid ([Stillwell2010] section 4.4.7)."""
        counted = ~(instance.rigid | (instance.need == 0)).all(axis=0)
        total = float(instance.capacity[:, counted].sum())
        return float(self.loads(instance)[:, counted].sum()) / total if total > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Outcome(Shown):
    """Result of one algorithm on one instance. `bound` is an upper bound on any placement's minimum yield."""

    algorithm: str
    status: Status
    allocation: Allocation | None
    minimum_yield: float | None
    bound: float
    runtime_s: float = 0.0
    details: Mapping[str, object] = field(default_factory=dict[str, object])

    def _figures(self) -> Mapping[str, object]:
        return {
            "algorithm": self.algorithm,
            "status": self.status.value,
            "minimum yield": self.minimum_yield,
            "bound": float(self.bound),
            "nodes in use": None if self.allocation is None else len(np.unique(self.allocation.place)),
            "runtime_s": float(self.runtime_s),
        }

    @property
    def proven_optimal(self) -> bool:
        """Whether no placement can have a higher minimum yield."""
        return self.status == Status.OPTIMAL

    @property
    def gap(self) -> float | None:
        """Relative distance from the bound, (bound - minimum yield)/bound, at least 0; None without a placement."""
        if self.minimum_yield is None:
            return None
        return max(0.0, (self.bound - self.minimum_yield) / self.bound) if self.bound > 0 else 0.0

    def with_allocation(self, allocation: Allocation) -> "Outcome":
        """The same result with what was left handed out."""
        return replace(self, allocation=allocation)

    def named(self, algorithm: str, runtime_s: float) -> "Outcome":
        """The same result under the name and with the time of the whole run."""
        return replace(self, algorithm=algorithm, runtime_s=runtime_s)


class Allocator(Protocol):
    """An off-line algorithm. It has no state: the same instance and generator give the same outcome."""

    def __call__(self, instance: Instance, rng: np.random.Generator, /) -> Outcome:
        """Place all tasks, or say that it could not."""
        ...
