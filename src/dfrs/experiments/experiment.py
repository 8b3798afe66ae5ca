"""What a kind of experiment declares about itself: its section of a campaign file, how it is run, and what is shown.

A kind is one file in `dfrs.experiments.kinds` that ends with `EXPERIMENT = Experiment(...)`; nothing else names it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import Annotated, Any, ClassVar, Protocol

from pydantic import Field

from dfrs.experiments.fields import Strict
from dfrs.experiments.planned_runs import Configuration, RunKind, Scenario


class Source(Protocol):
    """Where scenarios come from, as a campaign file says it: a table with `model`, `name` and fields of its own."""

    @property
    def model(self) -> str:
        """Which source it is."""
        ...

    @property
    def name(self) -> str:
        """How tables call it; different for each source of a study."""
        ...

    def scenarios(self) -> Sequence[Scenario]:
        """In a fixed order. Raises InputError where there are none such."""
        ...

    def model_dump(self, *, exclude_defaults: bool = False) -> dict[str, Any]:
        """Its fields."""
        ...


class StudyModel(Strict):
    """A study in a campaign file. Each kind adds its sources, its configurations, and `settings` if it has any."""

    name: Annotated[str, Field(min_length=1, max_length=200)] = "main"
    sample: str = ""
    alone: Annotated[bool, Field(strict=True)] = False


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A kind of experiment."""

    kind: RunKind
    configuration: type[Configuration]
    """What it runs on a scenario: a policy or an algorithm with its options."""
    study: type[StudyModel]
    """Its section of a campaign file."""
    sources: str
    """The field of `study` that has the sources of scenarios ..."""
    configurations: str
    """... and the one that has the configurations."""
    named_by: str
    """The field of a configuration, and of its table in a file, that names the policy, algorithm or method."""
    build: Callable[[Any], Iterable[Configuration]]
    """The configurations of a study."""
    unusual_settings: Callable[[Any], Mapping[str, object]]
    """The settings of a configuration that differ from the defaults, as a file says them."""
    metrics: tuple[str, ...]
    """Columns that are summarised by default."""
    x_columns: tuple[str, ...]
    """The default x axis of curves: the first of these columns that takes several values."""
    preferred: bool = False
    """A study without sources is of this kind if its configurations fit several."""
    cluster_by: str = "seed"
    """Results with the same value in this column are resampled together by bootstrap intervals."""


def combined(tables: Iterable[dict[str, Any]], settings: Strict) -> Iterator[dict[str, Any]]:
    """Each table with each combination of the settings it does not have itself, which are added to its label."""
    lists: dict[str, tuple[Any, ...]] = {
        name: values for name, values in settings.model_dump().items() if values is not None
    }
    for table in tables:
        free = {name: values for name, values in lists.items() if name not in table}
        for chosen in product(*free.values()):
            setting = dict(zip(free, chosen, strict=True))
            told = "".join(f" {name}={_brief(setting[name])}" for name, values in free.items() if len(values) > 1)
            yield setting | table | {"label": table["label"] + told}


def _brief(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def unusual(configuration: _Dataclass, usual: _Dataclass) -> dict[str, object]:
    """Fields of a configuration that have another value than those of `usual`."""
    values = {f.name: (getattr(configuration, f.name), getattr(usual, f.name)) for f in fields(configuration)}
    return {name: value for name, (value, other) in values.items() if value != other}
