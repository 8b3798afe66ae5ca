"""Studies on a farm in a campaign file: `streams` and `policies` (003 section 8)."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from dfrs.experiments.fields import Numbers, Strict
from dfrs.experiments.kinds.farm import JITTER, Case
from dfrs.experiments.kinds.farm_runs import ORDER
from dfrs.model.errors import DfrsError
from dfrs.policies.names import find_policy


def _policy(name: str) -> str:
    try:
        find_policy(name)
    except DfrsError as error:
        raise ValueError(str(error)) from None
    return name


def _order(value: str) -> str:
    if sorted(value) != sorted(ORDER):
        raise ValueError(f"must name each sub-cluster once, as {ORDER}")
    return value


def _named(value: object) -> object:
    """A name alone stands for a table with that name."""
    return {"policy": value} if isinstance(value, str) else value


class FarmSource(Strict):
    """A stream of 003's appendix on its farm, once for each seed."""

    model: Literal["farm"] = "farm"
    name: str = "farm"
    experiment: int = Field(ge=1, le=3, strict=True)
    seeds: Numbers
    jitter: float = Field(default=JITTER, ge=0, lt=1, allow_inf_nan=False)
    order: Annotated[str, AfterValidator(_order)] = ORDER
    printed: Annotated[bool, Field(strict=True)] = False
    exact: Annotated[bool, Field(strict=True)] = False

    def cases(self) -> tuple[Case, ...]:
        """In the order of the seeds."""
        own = self.model_dump(exclude={"model", "name", "seeds"})
        return tuple(Case(seed=seed, **own) for seed in self.seeds)


class PolicyItem(Strict):
    """A policy of the farm."""

    policy: Annotated[str, AfterValidator(_policy)]
    label: str | None = None

    def item(self) -> dict[str, Any]:
        """What it says, with a label."""
        return {"label": self.policy} | self.model_dump(exclude_none=True)


class FarmStudy(Strict):
    """Every stream under every policy."""

    name: Annotated[str, Field(min_length=1, max_length=200)] = "main"
    sample: str = ""
    alone: Annotated[bool, Field(strict=True)] = False
    streams: Annotated[tuple[FarmSource, ...], Field(min_length=1)]
    policies: Annotated[tuple[Annotated[PolicyItem, BeforeValidator(_named)], ...], Field(min_length=1)]
