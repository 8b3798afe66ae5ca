"""Campaign files: which workloads under which policies, or instances under which algorithms, with which settings.

A campaign is one or more studies; a study is every scenario of its sources under every configuration. A file of one
study needs no `[[studies]]`. `spec_text` turns what `Campaign` holds into a file again, without loss.
"""

import difflib
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import polars as pl
from pydantic import BaseModel, Field, ValidationError

from dfrs.experiments.experiment import Experiment, Source
from dfrs.experiments.fields import Strict
from dfrs.experiments.kinds import experiments
from dfrs.experiments.planned_runs import Configuration, PlannedRun, RunKind
from dfrs.model.errors import InputError

FORMAT = "dfrs-campaign/1"
LARGEST_FILE_BYTES = 10_000_000
_OWN = ("format", "name", "description", "keep_runs", "report")
"""What a file says about the whole; the rest is about its one study, where it has no `[[studies]]`."""
M = TypeVar("M", bound=Strict)


Yes = Annotated[bool, Field(strict=True)]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class ReportSettings(Strict):
    """What tables and the page show of the results."""

    measures: tuple[str, ...] = ()
    x: str | None = None
    """The column that curves run along."""
    baseline: str | None = None
    """The label of the configuration that others are compared with, on the same scenarios."""


class _File(Strict):
    format: Literal["dfrs-campaign/1"] = FORMAT
    name: Name
    description: str = ""
    keep_runs: Yes = False
    report: ReportSettings = ReportSettings()
    studies: Annotated[tuple[dict[str, Any], ...], Field(min_length=1)]


def _within(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A model, and those that its fields hold."""
    yield model
    pending: list[Any] = [field.annotation for field in model.model_fields.values()]
    while pending:
        part = pending.pop()
        if isinstance(part, type) and issubclass(part, BaseModel):
            yield from _within(part)
        else:
            pending += get_args(part)


@cache
def models() -> tuple[type[BaseModel], ...]:
    """All that a file consists of."""
    roots = (ReportSettings, _File, *(experiment.study for experiment in experiments().values()))
    return tuple(dict.fromkeys(model for root in roots for model in _within(root)))


def _tags(experiment: Experiment) -> tuple[str, ...]:
    """Values of `model` that tell its sources from each other; none where it has only one."""
    held = [model for model in _within(experiment.study) if "model" in model.model_fields]
    return tuple(str(model.model_fields["model"].default) for model in held) if len(held) > 1 else ()


_PLAIN = {
    "missing": "is missing",
    "too_short": "must have at least one",
    "tuple_type": "must be a list",
    "model_type": "must be a table",
}
"""What pydantic says in terms of Python."""
_TAG_AT = 2
"""Where pydantic puts the tag of a source into places: sources, number, model, field."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """Every scenario of `sources` under every configuration. `sample` says in a sentence what that is run on.

    `alone`: one run at a time with no other run beside it, as their times are measured.
    """

    name: str
    sources: tuple[Source, ...]
    configurations: tuple[Configuration, ...]
    sample: str = ""
    alone: bool = False

    @property
    def kind(self) -> RunKind:
        """What its runs are."""
        return self.experiment.kind

    @property
    def experiment(self) -> Experiment:
        """What is declared of that kind."""
        return next(each for each in experiments().values() if isinstance(self.configurations[0], each.configuration))

    @cached_property
    def runs(self) -> tuple[PlannedRun, ...]:
        """Scenario by scenario, and for each scenario in the order of the configurations."""
        return tuple(run for source in self.sources for run in self.runs_of(source))

    def runs_of(self, source: Source) -> list[PlannedRun]:
        """Those of one source."""
        return [
            PlannedRun(kind=self.kind, scenario=scenario, configuration=configuration, alone=self.alone)
            for scenario, configuration in product(source.scenarios(), self.configurations)
        ]


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """What a campaign file says. With `keep_runs` the store also has a directory for each run."""

    name: str
    studies: tuple[Study, ...]
    description: str = ""
    keep_runs: Yes = False
    report: ReportSettings = field(default_factory=ReportSettings)

    @property
    def kinds(self) -> tuple[RunKind, ...]:
        """Of its runs, each once."""
        return tuple({study.kind.name: study.kind for study in self.studies}.values())

    @cached_property
    def runs(self) -> tuple[PlannedRun, ...]:
        """Of all studies, each once."""
        return tuple({run.key: run for study in self.studies for run in study.runs}.values())


def read_campaign(path: Path) -> Campaign:
    """The campaign of a TOML file. Raises InputError with file, field, value and rule, or the nearest names."""
    try:
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise InputError(f"{path}: must be at most {LARGEST_FILE_BYTES} bytes")
        document = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start}: not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not TOML: {error}") from None
    try:
        return build_campaign(document, path.parent)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def build_campaign(document: Mapping[str, Any], directory: Path) -> Campaign:
    """The campaign that a TOML document says; files it names are relative to `directory`. Raises InputError."""
    inline = "studies" not in document
    if inline:
        study = {key: value for key, value in document.items() if key not in _OWN}
        document = {key: value for key, value in document.items() if key in _OWN} | {"studies": [study]}
    file = _validated(_File, document, "", directory)
    places = [("" if inline else f"studies[{k}]") for k in range(len(file.studies))]
    studies = [_study(study, where, directory) for study, where in zip(file.studies, places, strict=True)]
    names = [study.name for study in studies]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f'studies: name "{twice}" stands twice')
    campaign = Campaign(
        name=file.name,
        description=file.description,
        keep_runs=file.keep_runs,
        report=file.report,
        studies=tuple(studies),
    )
    report = campaign.report
    check_columns(campaign, report.measures, "report.measures")
    check_columns(campaign, [report.x] if report.x else [], "report.x")
    check_baseline(campaign, report.baseline, "report.baseline")
    return campaign


def _study(document: Mapping[str, Any], where: str, directory: Path) -> Study:
    experiment = _experiment(document, where)
    spec = _validated(experiment.study, document, where, directory, experiment)
    sources: tuple[Source, ...] = getattr(spec, experiment.sources)
    configurations = tuple(experiment.build(spec))
    for what, names in (("labels", [e.label for e in configurations]), ("names of sources", [s.name for s in sources])):
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f'{where or "the campaign"}: "{twice}" stands twice: {what} must be different')
    for k, source in enumerate(sources):
        try:
            source.scenarios()
        except InputError as error:
            raise InputError(f"{where + '.' if where else ''}{experiment.sources}[{k}]: {error}") from None
    return Study(name=spec.name, sample=spec.sample, alone=spec.alone, sources=sources, configurations=configurations)


def _experiment(document: Mapping[str, Any], where: str) -> Experiment:
    """The kind whose sources or configurations are there. Raises InputError if they fit several kinds, or none."""
    kinds = list(experiments().values())
    said = {word for kind in kinds for word in (kind.sources, kind.configurations) if word in document}
    fitting = [kind for kind in kinds if said and said <= {kind.sources, kind.configurations}]
    if len(fitting) > 1:
        fitting = [kind for kind in fitting if kind.preferred]
    if len(fitting) == 1:
        return fitting[0]
    *others, last = sorted(f"{kind.sources} and {kind.configurations}" for kind in kinds)
    raise InputError(f"{where + ': ' if where else ''}must have either {', '.join(others)}, or {last}")


def check_columns(campaign: Campaign, names: Iterable[str], place: str) -> None:
    """Raises InputError, with the nearest names, where results have no such column of numbers. `place` asks for it."""
    schemas = [study.kind.schema for study in campaign.studies]
    known = {name for schema in schemas for name, dtype in schema.items() if dtype in {pl.Float64, pl.Int64}}
    for name in names:
        if name not in known:
            raise InputError(f'{place} = "{name}": results have no such column of numbers{_near(name, known)}')


def check_baseline(campaign: Campaign, name: str | None, place: str) -> None:
    """Raises InputError, with the nearest names, where no study has such a configuration. `place` asks for it."""
    labels = {configuration.label for study in campaign.studies for configuration in study.configurations}
    if name is not None and name not in labels:
        raise InputError(f'{place} = "{name}": there is no such configuration{_near(name, labels)}')


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _validated(
    model: type[M], document: Mapping[str, Any], where: str, directory: Path, experiment: Experiment | None = None
) -> M:
    """The model of a document. Raises InputError with one line for the first thing wrong."""
    try:
        return model.model_validate(document, context={"directory": directory})
    except ValidationError as error:
        problems = error.errors(include_url=False)
    places = [problem["loc"] for problem in problems]
    # A list with a bad item is also told to be too short: speak of the item alone.
    told = [
        problem
        for problem in problems
        if not any(place[: len(problem["loc"])] == problem["loc"] and place != problem["loc"] for place in places)
    ]
    first = told[0]
    tags = () if experiment is None or first["loc"][:1] != (experiment.sources,) else _tags(experiment)
    place = where
    for k, part in enumerate(first["loc"]):
        if isinstance(part, int):
            place += f"[{part}]"
        elif k != _TAG_AT or part not in tags:
            place += f".{part}" if place else part
    more = f" (and {len(told) - 1} more)" if len(told) > 1 else ""
    kind, message = first["type"], first["msg"].removeprefix("Value error, ")
    value = "" if kind in {"missing", "extra_forbidden", "too_short"} else f" = {_short(first['input'])}"
    if kind == "extra_forbidden":
        message = f"there is no such field{_near(str(first['loc'][-1]), _fields())}"
    elif kind == "union_tag_not_found":
        message = f"model is missing: must be one of {', '.join(sorted(tags))}"
    raise InputError(f"{place}{value}: {_PLAIN.get(kind, message[0].lower() + message[1:])}{more}")


def _fields() -> set[str]:
    return {name for model in models() for name in model.model_fields}


def _short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
