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
    """What cells are run on, as a campaign file says it: a table with `model`, `name` and fields of its own."""

    @property
    def model(self) -> str:
        """Which source it is."""
        ...

    @property
    def name(self) -> str:
        """How tables call it; different for each source of a study."""
        ...

    def cases(self) -> Sequence[Scenario]:
        """In a fixed order. Raises InputError where there are none such."""
        ...

    def model_dump(self, *, exclude_defaults: bool = False) -> dict[str, Any]:
        """Its fields."""
        ...


class StudyModel(Strict):
    """A study in a campaign file. A kind's own adds its sources and entries, and `settings` where entries have any."""

    name: Annotated[str, Field(min_length=1, max_length=200)] = "main"
    sample: str = ""
    alone: Annotated[bool, Field(strict=True)] = False


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A kind of experiment."""

    kind: RunKind
    entry: type[Configuration]
    """Of what its studies' entries are."""
    study: type[StudyModel]
    """Its section of a campaign file."""
    sources: str
    """The field of `study` with what cells are run on ..."""
    entries: str
    """... and that with what is run."""
    item: str
    """The field of an entry, and of its table in a file, that names what is run."""
    build: Callable[[Any], Iterable[Configuration]]
    """The entries of a study."""
    said: Callable[[Any], Mapping[str, object]]
    """The settings of an entry that are not the usual ones, as a file says them."""
    measures: tuple[str, ...]
    """Columns that are summarised where a file does not say which."""
    along: tuple[str, ...]
    """What curves run along where a file does not say: the first of these columns that takes several values."""
    usual: bool = False
    """A study without sources is of this kind, where several have its entries."""
    drawn_by: str = "seed"
    """Results with the same value here are of one draw: bootstrap intervals draw them together."""


def combined(items: Iterable[dict[str, Any]], settings: Strict) -> Iterator[dict[str, Any]]:
    """Each item with each combination of the settings it does not have itself, which are added to its label."""
    lists: dict[str, tuple[Any, ...]] = {
        name: values for name, values in settings.model_dump().items() if values is not None
    }
    for item in items:
        free = {name: values for name, values in lists.items() if name not in item}
        for chosen in product(*free.values()):
            setting = dict(zip(free, chosen, strict=True))
            told = "".join(f" {name}={_brief(setting[name])}" for name, values in free.items() if len(values) > 1)
            yield setting | item | {"label": item["label"] + told}


def _brief(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def unusual(entry: _Dataclass, usual: _Dataclass) -> dict[str, object]:
    """Fields of an entry that have another value than those of `usual`."""
    values = {f.name: (getattr(entry, f.name), getattr(usual, f.name)) for f in fields(entry)}
    return {name: value for name, (value, other) in values.items() if value != other}
