"""Studies of allocations in a campaign file: `instances` and `algorithms`."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from dfrs.experiments.fields import Strict, one_or_several
from dfrs.experiments.kinds import offline
from dfrs.experiments.kinds.sources import Instances
from dfrs.model.errors import DfrsError
from dfrs.placement.registry import Options, expand
from dfrs.placement.second_phase import SecondPhase

Yes = Annotated[bool, Field(strict=True)]
Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=1, strict=True)]


def _algorithm(pattern: str) -> str:
    try:
        expand([pattern])
    except DfrsError as error:
        raise ValueError(str(error)) from None
    return pattern


def _named(value: object) -> object:
    """A name alone stands for a table with that name."""
    return {"algorithm": value} if isinstance(value, str) else value


class AlgorithmSettings(Strict):
    """What algorithms are run with; each combination of several values."""

    time_limit_s: Annotated[tuple[Amount, ...], BeforeValidator(one_or_several)] | None = None
    rounds: Annotated[tuple[Whole, ...], BeforeValidator(one_or_several)] | None = None
    window: Annotated[tuple[Whole, ...], BeforeValidator(one_or_several)] = (2,)
    pair_order: Annotated[tuple[Literal["load", "index"], ...], BeforeValidator(one_or_several)] = ("load",)
    search: Annotated[tuple[Literal["ends", "midpoints"], ...], BeforeValidator(one_or_several)] = ("ends",)
    dominance: Annotated[tuple[Yes, ...], BeforeValidator(one_or_several)] = (False,)
    second_phase: Annotated[tuple[SecondPhase, ...], BeforeValidator(one_or_several)] = ("none",)


class AlgorithmItem(Strict):
    """An algorithm or a pattern of names, with settings of its own."""

    algorithm: Annotated[str, AfterValidator(_algorithm)]
    label: str | None = None
    time_limit_s: Amount | None = None
    rounds: Whole | None = None
    window: Whole | None = None
    pair_order: Literal["load", "index"] | None = None
    search: Literal["ends", "midpoints"] | None = None
    dominance: Yes | None = None
    second_phase: SecondPhase | None = None


class OfflineStudy(Strict):
    """Every instance by every algorithm."""

    name: Annotated[str, Field(min_length=1, max_length=200)] = "main"
    sample: str = ""
    alone: Yes = False
    instances: Annotated[tuple[Instances, ...], Field(min_length=1)]
    algorithms: Annotated[tuple[Annotated[AlgorithmItem, BeforeValidator(_named)], ...], Field(min_length=1)]
    settings: AlgorithmSettings = AlgorithmSettings()


def algorithm_items(given: Sequence[AlgorithmItem]) -> list[dict[str, Any]]:
    """Each algorithm with its label and its own settings."""
    items: list[dict[str, Any]] = []
    for item in given:
        names = expand([item.algorithm])
        items += [{"label": name} | item.model_dump(exclude_none=True) | {"algorithm": name} for name in names]
    return items


def offline_entry(item: Mapping[str, Any], told: str) -> offline.Entry:
    """The entry of an item with settings; `told` is added to its label."""
    options = {name: item[name] for name in offline.OPTIONS if name in item}
    return offline.Entry(
        label=item["label"] + told,
        algorithm=item["algorithm"],
        second_phase=item["second_phase"],
        options=Options(**options),
    )
