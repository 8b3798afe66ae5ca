"""Studies of simulations in a campaign file: `workloads` and `policies`."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from dfrs.experiments.fields import Strict, one_or_several
from dfrs.experiments.kinds import online
from dfrs.experiments.kinds.sources import Workloads
from dfrs.model.errors import DfrsError, InputError
from dfrs.policies.names import SETS, find_policy
from dfrs.simulator.clock import Order

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Limit = Annotated[int, Field(ge=0, strict=True)]


def _policy(name: str) -> str:
    try:
        if not name.startswith("@"):
            find_policy(name)
        elif name[1:] not in SETS:
            raise InputError(f"there is no such set; there are @{', @'.join(SETS)}")
    except DfrsError as error:
        raise ValueError(str(error)) from None
    return name


def _named(value: object) -> object:
    """A name alone stands for a table with that name."""
    return {"policy": value} if isinstance(value, str) else value


class PolicySettings(Strict):
    """What simulations are run with; each combination of several values."""

    penalty_s: Annotated[tuple[Seconds, ...], BeforeValidator(one_or_several)] = (300.0,)
    bandwidth_gb_s: Annotated[tuple[Amount, ...], BeforeValidator(one_or_several)] | None = None
    node_memory_gb: Annotated[tuple[Amount, ...], BeforeValidator(one_or_several)] = (online.NODE_GB,)
    order: Annotated[tuple[Order, ...], BeforeValidator(one_or_several)] = ("completions-first",)
    command_limit: Annotated[tuple[Limit, ...], BeforeValidator(one_or_several)] | None = None


class PolicyItem(Strict):
    """A policy or a set of policies, with settings of its own."""

    policy: Annotated[str, AfterValidator(_policy)]
    label: str | None = None
    penalty_s: Seconds | None = None
    bandwidth_gb_s: Amount | None = None
    node_memory_gb: Amount | None = None
    order: Order | None = None
    command_limit: Limit | None = None


class OnlineStudy(Strict):
    """Every workload under every policy."""

    name: Annotated[str, Field(min_length=1, max_length=200)] = "main"
    sample: str = ""
    alone: Annotated[bool, Field(strict=True)] = False
    workloads: Annotated[tuple[Workloads, ...], Field(min_length=1)]
    policies: Annotated[tuple[Annotated[PolicyItem, BeforeValidator(_named)], ...], Field(min_length=1)]
    settings: PolicySettings = PolicySettings()


def policy_items(given: Sequence[PolicyItem]) -> list[dict[str, Any]]:
    """Each policy with its label and its own settings."""
    items: list[dict[str, Any]] = []
    for item in given:
        names = SETS[item.policy[1:]] if item.policy.startswith("@") else (item.policy,)
        items += [{"label": name} | item.model_dump(exclude_none=True) | {"policy": name} for name in names]
    return items
