"""Studies of random workloads on a farm in a campaign file: `farms` and `policies` (after 003 section 8)."""

from itertools import product
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from dfrs.experiments.fields import Count, Loads, Numbers, Strict, one_or_several
from dfrs.experiments.kinds.farm_random import RESUME_S, Case
from dfrs.model.errors import DfrsError
from dfrs.policies.names import find_policy

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _policy(name: str) -> str:
    try:
        find_policy(name)
    except DfrsError as error:
        raise ValueError(str(error)) from None
    return name


def _named(value: object) -> object:
    """A name alone stands for a table with that name."""
    return {"policy": value} if isinstance(value, str) else value


class HeteroSource(Strict):
    """Random workloads on the farm of 003 Table 1: every seed at every load, or if `spread` each seed at one of them.

    With `spread` loads take turns, so that all workloads are of different jobs.
    """

    model: Literal["hetero"] = "hetero"
    name: str = "hetero"
    jobs: Count = 200
    seeds: Numbers
    loads: Annotated[Loads, Field(min_length=1)] = (1.0,)
    spread: bool = False

    def cases(self) -> tuple[Case, ...]:
        """In the order of the seeds."""
        loads = self.loads
        pairs = (
            [(seed, loads[k % len(loads)]) for k, seed in enumerate(self.seeds)]
            if self.spread
            else list(product(self.seeds, loads))
        )
        return tuple(Case(seed=seed, load=load, jobs=self.jobs) for seed, load in pairs)


class HeteroSettings(Strict):
    """Of all policies of a study that do not have their own."""

    resume_s: Annotated[tuple[Seconds, ...], BeforeValidator(one_or_several)] = (RESUME_S,)


class PolicyItem(Strict):
    """A policy."""

    policy: Annotated[str, AfterValidator(_policy)]
    label: str | None = None
    resume_s: Seconds | None = None

    def item(self) -> dict[str, Any]:
        """What it says, with a label."""
        return {"label": self.policy} | self.model_dump(exclude_none=True)


class HeteroStudy(Strict):
    """Every workload under every policy."""

    name: Annotated[str, Field(min_length=1, max_length=200)] = "main"
    sample: str = ""
    alone: Annotated[bool, Field(strict=True)] = False
    farms: Annotated[tuple[HeteroSource, ...], Field(min_length=1)]
    policies: Annotated[tuple[Annotated[PolicyItem, BeforeValidator(_named)], ...], Field(min_length=1)]
    settings: HeteroSettings = HeteroSettings()
