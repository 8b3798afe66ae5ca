"""Studies of discovery in a campaign file: `scenes` and `methods` (000 section 7.3)."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from dfrs.experiments.fields import Count, Numbers, Strict, one_or_several
from dfrs.experiments.kinds.needs import ORACLE, Case
from dfrs.model.errors import DfrsError
from dfrs.policies.discovery.methods import find_discovery
from dfrs.policies.names import find_policy

Limit = Annotated[int, Field(ge=0, strict=True)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _method(name: str) -> str:
    try:
        if name != ORACLE:
            find_discovery(name)
    except DfrsError as error:
        raise ValueError(str(error)) from None
    return name


def _policy(name: str) -> str:
    try:
        if name:
            find_policy(name)
    except DfrsError as error:
        raise ValueError(str(error)) from None
    return name


def _named(value: object) -> object:
    """A name alone stands for a table with that name."""
    return {"method": value} if isinstance(value, str) else value


class NeedsSource(Strict):
    """Traces as those of 000 section 7.3, one for each seed."""

    model: Literal["needs"] = "needs"
    name: str = "needs"
    nodes: Count = 4
    tasks: Count = 3
    hogs: int = Field(default=0, ge=0)
    seconds: Count = 43_200
    change_s: float = Field(default=1_200.0, gt=0, allow_inf_nan=False)
    seeds: Numbers

    def cases(self) -> tuple[Case, ...]:
        """In the order of the seeds."""
        own = self.model_dump(exclude={"model", "name", "seeds"})
        return tuple(Case(seed=seed, **own) for seed in self.seeds)


class NeedsSettings(Strict):
    """Of all methods of a study that do not have their own."""

    migration_s: Annotated[tuple[Limit, ...], BeforeValidator(one_or_several)] = (10,)
    stop_s: Annotated[tuple[Limit, ...], BeforeValidator(one_or_several)] = (1,)
    noise: Annotated[tuple[Amount, ...], BeforeValidator(one_or_several)] = (0.0,)


class MethodItem(Strict):
    """A method, and the policy that migrates."""

    method: Annotated[str, AfterValidator(_method)]
    label: str | None = None
    policy: Annotated[str, AfterValidator(_policy)] | None = None
    migration_s: Limit | None = None
    stop_s: Limit | None = None
    noise: Amount | None = None

    def item(self) -> dict[str, Any]:
        """What it says, with a label."""
        return {"label": self.method} | self.model_dump(exclude_none=True)


class NeedsStudy(Strict):
    """Every scene under every method."""

    name: Annotated[str, Field(min_length=1, max_length=200)] = "main"
    sample: str = ""
    alone: Annotated[bool, Field(strict=True)] = False
    scenes: Annotated[tuple[NeedsSource, ...], Field(min_length=1)]
    methods: Annotated[tuple[Annotated[MethodItem, BeforeValidator(_named)], ...], Field(min_length=1)]
    settings: NeedsSettings = NeedsSettings()
