"""Campaign files: which workloads under which policies, or instances under which algorithms, with which settings.

A campaign is one or more studies; a study is every case of its sources under every entry. A file of one study may say
it without `[[studies]]`. What a file says and what `Campaign` holds turn into each other without loss.
"""

import difflib
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tomli_w
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from dfrs.allocate.registry import Options, expand
from dfrs.allocate.second_phase import SecondPhase
from dfrs.campaigns import offline, online
from dfrs.campaigns.cells import Cell, Kind
from dfrs.campaigns.sources import Instances, Source, Strict, Workloads, one_or_several
from dfrs.model.errors import DfrsError, InputError
from dfrs.policies.registry import SETS, find_policy
from dfrs.sim.kernel import Order

FORMAT = "dfrs-campaign/1"
LARGEST_FILE_BYTES = 10_000_000
_OWN = ("format", "name", "description", "keep_runs", "report")
"""What a file says about the whole; the rest is about its one study, where it has no `[[studies]]`."""
_Entry = online.Entry | offline.Entry
M = TypeVar("M", bound=Strict)


def _policy(name: str) -> str:
    try:
        find_policy(name)
    except DfrsError as error:
        raise ValueError(str(error)) from None
    return name


Policy = Annotated[str, AfterValidator(_policy)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=1, strict=True)]


class Report(Strict):
    """What tables and the page show of the results."""

    measures: tuple[str, ...] = ()
    x: str | None = None
    """The column that curves run along."""
    baseline: str | None = None
    """The entry that others are compared with, on the same cases."""


class _PolicySettings(Strict):
    penalty_s: Annotated[tuple[Seconds, ...], BeforeValidator(one_or_several)] = (300.0,)
    bandwidth_gb_s: Annotated[tuple[Amount, ...], BeforeValidator(one_or_several)] | None = None
    node_memory_gb: Annotated[tuple[Amount, ...], BeforeValidator(one_or_several)] = (online.NODE_GB,)
    order: Annotated[tuple[Order, ...], BeforeValidator(one_or_several)] = ("completions-first",)


class _PolicyItem(Strict):
    policy: Policy
    label: str | None = None
    penalty_s: Seconds | None = None
    bandwidth_gb_s: Amount | None = None
    node_memory_gb: Amount | None = None
    order: Order | None = None


class _AlgorithmSettings(Strict):
    time_limit_s: Annotated[tuple[Amount, ...], BeforeValidator(one_or_several)] | None = None
    rounds: Annotated[tuple[Whole, ...], BeforeValidator(one_or_several)] | None = None
    window: Annotated[tuple[Whole, ...], BeforeValidator(one_or_several)] = (2,)
    pair_order: Annotated[tuple[Literal["load", "index"], ...], BeforeValidator(one_or_several)] = ("load",)
    search: Annotated[tuple[Literal["ends", "midpoints"], ...], BeforeValidator(one_or_several)] = ("ends",)
    dominance: Annotated[tuple[bool, ...], BeforeValidator(one_or_several)] = (False,)
    second_phase: Annotated[tuple[SecondPhase, ...], BeforeValidator(one_or_several)] = ("none",)


class _AlgorithmItem(Strict):
    algorithm: str
    label: str | None = None
    time_limit_s: Amount | None = None
    rounds: Whole | None = None
    window: Whole | None = None
    pair_order: Literal["load", "index"] | None = None
    search: Literal["ends", "midpoints"] | None = None
    dominance: bool | None = None
    second_phase: SecondPhase | None = None


class _OnlineStudy(Strict):
    name: str = "main"
    sample: str = ""
    alone: bool = False
    workloads: Annotated[tuple[Workloads, ...], Field(min_length=1)]
    policies: Annotated[tuple[str | _PolicyItem, ...], Field(min_length=1)]
    settings: _PolicySettings = _PolicySettings()


class _OfflineStudy(Strict):
    name: str = "main"
    sample: str = ""
    alone: bool = False
    instances: Annotated[tuple[Instances, ...], Field(min_length=1)]
    algorithms: Annotated[tuple[str | _AlgorithmItem, ...], Field(min_length=1)]
    settings: _AlgorithmSettings = _AlgorithmSettings()


class _File(Strict):
    format: Literal["dfrs-campaign/1"] = FORMAT
    name: str
    description: str = ""
    keep_runs: bool = False
    report: Report = Report()
    studies: Annotated[tuple[dict[str, Any], ...], Field(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class Study:
    """Every case of `sources` under every entry. `sample` says in a sentence what that is run on.

    `alone`: one cell at a time with nothing else of ours beside it, as their times are what is asked for.
    """

    name: str
    sources: tuple[Source, ...]
    entries: tuple[_Entry, ...]
    sample: str = ""
    alone: bool = False

    @property
    def kind(self) -> Kind:
        """What its cells are."""
        return online.ONLINE if isinstance(self.entries[0], online.Entry) else offline.OFFLINE

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Case by case, and for each case in the order of the entries."""
        return tuple(cell for source in self.sources for cell in self.cells_of(source))

    def cells_of(self, source: Source) -> list[Cell]:
        """Those of one source."""
        return [
            Cell(kind=self.kind, case=case, entry=entry, alone=self.alone)
            for case, entry in product(source.cases(), self.entries)
        ]


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """What a campaign file says. With `keep_runs` each cell's run directory is kept in the store."""

    name: str
    studies: tuple[Study, ...]
    description: str = ""
    keep_runs: bool = False
    report: Report = field(default_factory=Report)

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Of all studies, each once."""
        return tuple({cell.key: cell for study in self.studies for cell in study.cells}.values())


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
        name=file.name, description=file.description, keep_runs=file.keep_runs, report=file.report,
        studies=tuple(studies),
    )  # fmt: skip
    report = campaign.report
    check_report(campaign, (*report.measures, *([report.x] if report.x else [])), report.baseline)
    return campaign


def _study(document: Mapping[str, Any], where: str, directory: Path) -> Study:
    if ("policies" in document or "workloads" in document) == ("algorithms" in document or "instances" in document):
        place = f"{where}: " if where else ""
        raise InputError(f"{place}must have either workloads and policies, or instances and algorithms")
    if "policies" in document or "workloads" in document:
        spec = _validated(_OnlineStudy, document, where, directory)
        sources, items = spec.workloads, _policy_items(spec.policies, where)
        entries = [_online_entry(*pair) for pair in _combined(items, spec.settings)]
    else:
        spec = _validated(_OfflineStudy, document, where, directory)
        sources, items = spec.instances, _algorithm_items(spec.algorithms, where)
        entries = [_offline_entry(*pair) for pair in _combined(items, spec.settings)]
    for what, names in (("labels", [e.label for e in entries]), ("names of sources", [s.name for s in sources])):
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f'{where or "the campaign"}: "{twice}" stands twice: {what} must be different')
    return Study(name=spec.name, sample=spec.sample, alone=spec.alone, sources=tuple(sources), entries=tuple(entries))


def _policy_items(given: Sequence[str | _PolicyItem], where: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for k, item in enumerate(given):
        if isinstance(item, _PolicyItem):
            items.append({"label": item.policy} | item.model_dump(exclude_none=True))
            continue
        if item.startswith("@") and item[1:] not in SETS:
            near = difflib.get_close_matches(item[1:], SETS, n=3, cutoff=0.4) or list(SETS)
            raise InputError(f'{_at(where, "policies", k)} = "{item}": no such set; there are @{", @".join(near)}')
        for name in SETS[item[1:]] if item.startswith("@") else (item,):
            try:
                find_policy(name)
            except DfrsError as error:
                raise InputError(f"{_at(where, 'policies', k)}: {error}") from None
            items.append({"label": name, "policy": name})
    return items


def _algorithm_items(given: Sequence[str | _AlgorithmItem], where: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for k, item in enumerate(given):
        try:
            names = expand([item if isinstance(item, str) else item.algorithm])
        except DfrsError as error:
            raise InputError(f"{_at(where, 'algorithms', k)}: {error}") from None
        said = {} if isinstance(item, str) else item.model_dump(exclude_none=True)
        items += [{"label": name} | said | {"algorithm": name} for name in names]
    return items


def _at(where: str, name: str, k: int) -> str:
    return f"{where}.{name}[{k}]" if where else f"{name}[{k}]"


def _combined(items: Iterable[dict[str, Any]], settings: Strict) -> Iterable[tuple[dict[str, Any], str]]:
    """Each item with each combination of the settings it does not have itself, and what to add to its label."""
    lists: dict[str, tuple[Any, ...]] = {
        name: values for name, values in settings.model_dump().items() if values is not None
    }
    for item in items:
        free = {name: values for name, values in lists.items() if name not in item}
        for chosen in product(*free.values()):
            setting = dict(zip(free, chosen, strict=True))
            told = "".join(f" {name}={_brief(setting[name])}" for name, values in free.items() if len(values) > 1)
            yield setting | item, told


def _brief(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _online_entry(item: Mapping[str, Any], told: str) -> online.Entry:
    return online.Entry(**{**item, "label": item["label"] + told})


def _offline_entry(item: Mapping[str, Any], told: str) -> offline.Entry:
    options = {name: item[name] for name in offline.OPTIONS if name in item}
    return offline.Entry(
        label=item["label"] + told, algorithm=item["algorithm"], second_phase=item["second_phase"],
        options=Options(**options),
    )  # fmt: skip


def check_report(campaign: Campaign, columns: Iterable[str], baseline: str | None) -> None:
    """Raises InputError, with the nearest names, where results have no such column or the campaign no such entry."""
    known = {name for study in campaign.studies for name in study.kind.schema}
    for name in columns:
        if name not in known:
            raise InputError(f'"{name}": results have no such column{_near(name, known)}')
    labels = {entry.label for study in campaign.studies for entry in study.entries}
    if baseline is not None and baseline not in labels:
        raise InputError(f'baseline = "{baseline}": there is no such entry{_near(baseline, labels)}')


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _validated(model: type[M], document: Mapping[str, Any], where: str, directory: Path) -> M:
    """The model of a document. Raises InputError with one line for the first thing wrong."""
    try:
        return model.model_validate(document, context={"directory": directory})
    except ValidationError as error:
        problems = error.errors(include_url=False)
    first = problems[0]
    place = where
    for part in first["loc"]:
        if isinstance(part, int):
            place += f"[{part}]"
        elif part in {"lublin", "swf", "services", "000", "001", "files", "str", "_PolicyItem", "_AlgorithmItem"}:
            continue
        else:
            place += f".{part}" if place else part
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    value = "" if first["type"] in {"missing", "extra_forbidden"} else f" = {_short(first['input'])}"
    message = first["msg"].removeprefix("Value error, ")
    raise InputError(f"{place}{value}: {message[0].lower()}{message[1:]}{more}")


def _short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def campaign_toml(campaign: Campaign) -> str:
    """The file that says the campaign."""
    document: dict[str, Any] = {"format": FORMAT, "name": campaign.name}
    if campaign.description:
        document["description"] = campaign.description
    if campaign.keep_runs:
        document["keep_runs"] = True
    if report := campaign.report.model_dump(exclude_defaults=True):
        document["report"] = report
    document["studies"] = [_study_document(study) for study in campaign.studies]
    return tomli_w.dumps(document)


def _study_document(study: Study) -> dict[str, Any]:
    items = [_item(entry) for entry in study.entries]
    shared = {
        key: value
        for key, value in items[0].items()
        if key not in {"policy", "algorithm", "label"} and all(item.get(key) == value for item in items)
    }
    short = [{key: value for key, value in item.items() if key not in shared} for item in items]
    said = [next(iter(item.values())) if len(item) == 1 else item for item in short]
    on, under = ("workloads", "policies") if study.kind is online.ONLINE else ("instances", "algorithms")
    document: dict[str, Any] = {"name": study.name}
    if study.sample:
        document["sample"] = study.sample
    if study.alone:
        document["alone"] = True
    document[under] = said
    if shared:
        document["settings"] = shared
    document[on] = [{"model": s.model} | s.model_dump(exclude_defaults=True) for s in study.sources]
    return document


def _item(entry: _Entry) -> dict[str, Any]:
    """Name, label where it is another, and every setting that is not the usual one."""
    if isinstance(entry, online.Entry):
        named = {"policy": entry.policy}
        usual = online.Entry(label="", policy="")
        own = {f.name: getattr(entry, f.name) for f in fields(entry) if f.name not in {"label", "policy"}}
        said = {name: value for name, value in own.items() if value != getattr(usual, name)}
    else:
        named = {"algorithm": entry.algorithm}
        own = {name: getattr(entry.options, name) for name in offline.OPTIONS}
        said = {name: value for name, value in own.items() if value != getattr(Options(), name)}
        if entry.second_phase != "none":
            said["second_phase"] = entry.second_phase
    name = next(iter(named.values()))
    return named | ({"label": entry.label} if entry.label != name else {}) | said
