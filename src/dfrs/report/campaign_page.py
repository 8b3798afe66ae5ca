"""One HTML page for a campaign: a file that opens anywhere, where every mean leads to the runs it is the mean of.

Thousands of runs make a few megabytes: numbers travel in columns, and texts as numbers of words, since names and
commands of one campaign are made of the same words. Pictures and tables are made by the browser.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dfrs.model.errors import InputError
from dfrs.report.page_parts import assemble, pack, write

_KEY = re.compile("[0-9a-f]{16}")
_WORD = re.compile("[^ ]* |[^ ]+")
_OWN_KEY = 0
"""Number of the word that stands for the run's own key, which is in its link and in its command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One figure of a run."""

    key: str
    title: str
    unit: str = ""
    better: Literal["low", "high"] = "low"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRun:
    """One run of the campaign, `key` its 16 hexadecimal digits.

    `group` is the set of workloads that the workload `scenario` belongs to, `configuration` the label of the policy
    with its settings. `x` is its place on the axis of curves, if it has one. `values` are one per metric, None where
    the run has none. `failed` is the message of a run that failed, `link` the relative path of the run's own page if
    it was saved, `command` what repeats the run and makes its page, if it can have one.
    """

    key: str
    name: str
    group: str
    scenario: str
    configuration: str
    x: float | None
    values: tuple[float | None, ...]
    failed: str | None
    link: str | None
    command: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePoint:
    """A mean with its interval, and the keys of the runs it is the mean of."""

    x: float
    mean: float
    low: float | None
    high: float | None
    runs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The means of a metric, by its key, along x."""

    group: str
    metric: str
    configuration: str
    points: tuple[PagePoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The mean over `count` runs of a group; `failed` more have none. A group that no run names stands for all runs."""

    group: str
    configuration: str
    metric: str
    mean: float | None
    low: float | None
    high: float | None
    count: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A configuration against a baseline on the same `count` workloads: how often it was better, and by what ratio."""

    group: str
    metric: str
    configuration: str
    baseline: str
    count: int
    wins: int
    ties: int
    losses: int
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    p_value: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignPage:
    """What the page shows, in this order. `facts` are (label, text); `x_label` says what curves run along."""

    name: str
    description: str
    facts: tuple[tuple[str, str], ...]
    x_label: str
    metrics: tuple[Metric, ...]
    runs: tuple[PageRun, ...]
    curves: tuple[Curve, ...]
    summaries: tuple[Summary, ...]
    comparisons: tuple[Comparison, ...]
    notes: tuple[str, ...]


def campaign_page(page: CampaignPage) -> str:
    """The page as text; the same page makes the same text.

    Raises InputError where there is no metric, where a key is no key or not unique, where a run has not one value per
    metric, and where a curve, summary or comparison names a run or a metric that the page has not.
    """
    return assemble(
        "campaign.html",
        title=page.name,
        styles=("base.css", "campaign.css"),
        scripts=("base.js", "campaign_data.js", "campaign_draw.js", "campaign_tables.js", "campaign.js"),
        document=_document(page),
    )


def write_campaign_page(page: CampaignPage, path: Path) -> None:
    """Write the page to `path`. Raises InputError as `campaign_page` does, and where the file cannot be written."""
    write(campaign_page(page), path)


@dataclass(frozen=True, slots=True)
class _Index:
    """Numbers of what the page names."""

    runs: dict[str, int]
    metrics: dict[str, int]
    groups: dict[str, int]
    configurations: dict[str, int]

    def metric(self, key: str) -> int:
        if key not in self.metrics:
            raise InputError(f"metric {key!r}: must be one of {', '.join(self.metrics)}")
        return self.metrics[key]

    def run(self, key: str) -> int:
        if key not in self.runs:
            raise InputError(f"a curve rests on run {key!r}: the page has no such run")
        return self.runs[key]


def _document(page: CampaignPage) -> dict[str, Any]:
    index = _index(page)
    return {
        "name": page.name,
        "description": page.description,
        "facts": [list(fact) for fact in page.facts],
        "x": page.x_label,
        "notes": list(page.notes),
        "measures": [{"key": m.key, "title": m.title, "unit": m.unit, "better": m.better} for m in page.metrics],
        "groups": list(index.groups),
        "entries": list(index.configurations),
        "runs": _runs(page, index),
        **_curves(page.curves, index),
        "summaries": _summaries(page.summaries, index),
        "comparisons": _comparisons(page.comparisons, index),
    }


def _index(page: CampaignPage) -> _Index:
    """Groups and configurations in the order of the summaries, then of whatever else names them."""
    if not page.metrics:
        raise InputError(f"{page.name}: a campaign's page needs a metric")
    runs = _numbers(run.key for run in page.runs)
    if len(runs) < len(page.runs):
        raise InputError(f"{page.name}: {len(page.runs)} runs have {len(runs)} keys: must be unique")
    for run in page.runs:
        if not _KEY.fullmatch(run.key):
            raise InputError(f"run {run.key!r}: a key must be 16 hexadecimal digits")
        if len(run.values) != len(page.metrics):
            raise InputError(f"run {run.key}: {len(run.values)} values for {len(page.metrics)} metrics")
    named = (*page.summaries, *page.curves, *page.comparisons, *page.runs)
    return _Index(
        runs,
        _numbers(metric.key for metric in page.metrics),
        _numbers(one.group for one in named),
        _numbers(chain((one.configuration for one in named), (one.baseline for one in page.comparisons))),
    )


def _numbers(names: Iterable[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(dict.fromkeys(names))}


def _runs(page: CampaignPage, index: _Index) -> dict[str, Any]:
    runs = page.runs
    scenarios = _numbers(run.scenario for run in runs)
    values = _floats(value for run in runs for value in run.values).reshape(len(runs), len(page.metrics))
    return {
        "key": pack(np.frombuffer(bytes.fromhex("".join(run.key for run in runs)), np.uint8), "u1"),
        "group": pack([index.groups[run.group] for run in runs], "u2"),
        "entry": pack([index.configurations[run.configuration] for run in runs], "u2"),
        "case": pack([scenarios[run.scenario] for run in runs], "u4"),
        "cases": list(scenarios),
        "x": pack(_floats(run.x for run in runs), "f8"),
        "values": [pack(column, "f4") for column in values.T],
        "name": _texts([run.name for run in runs], runs),
        "failed": _texts([run.failed for run in runs], runs),
        "link": _texts([run.link for run in runs], runs),
        "command": _texts([run.command for run in runs], runs),
    }


def _texts(texts: Sequence[str | None], runs: Sequence[PageRun]) -> dict[str, Any]:
    """Each text as numbers of words, every word stored once; None has no words."""
    known: dict[str, int] = {}
    numbers: list[int] = []
    lengths: list[int] = []
    for text, run in zip(texts, runs, strict=True):
        # An empty text is a text all the same.
        words = [""] if text == "" else _words(text or "", run.key)
        numbers.extend(_OWN_KEY if word == run.key else known.setdefault(word, len(known) + 1) for word in words)
        lengths.append(len(words))
    return {"words": ["", *known], "number": _small(numbers), "length": _small(lengths)}


def _words(text: str, key: str) -> list[str]:
    """The words with the spaces behind them; the key is one wherever it stands."""
    first, *others = text.split(key)
    return [*_WORD.findall(first), *(word for part in others for word in (key, *_WORD.findall(part)))]


def _small(numbers: Sequence[int]) -> tuple[str, str]:
    """An array of as few bytes as hold all numbers, and its type."""
    kind = np.min_scalar_type(max(numbers, default=0)).str[1:]
    return pack(numbers, kind), kind


def _curves(curves: Sequence[Curve], index: _Index) -> dict[str, Any]:
    """The curves' points end to end, and the lists of runs they rest on, equal ones stored once."""
    points = [point for curve in curves for point in curve.points]
    lists: dict[tuple[str, ...], int] = {}
    which = [lists.setdefault(point.runs, len(lists)) for point in points]
    return {
        "curves": {
            "group": pack([index.groups[curve.group] for curve in curves], "u2"),
            "entry": pack([index.configurations[curve.configuration] for curve in curves], "u2"),
            "measure": pack([index.metric(curve.metric) for curve in curves], "u2"),
            "first": pack(np.cumsum([0, *(len(curve.points) for curve in curves)]), "u4"),
            "x": pack(_floats(point.x for point in points), "f8"),
            "list": pack(which, "u4"),
            "mean": pack(_floats(point.mean for point in points), "f8"),
            "low": pack(_floats(point.low for point in points), "f8"),
            "high": pack(_floats(point.high for point in points), "f8"),
        },
        "lists": {
            "first": pack(np.cumsum([0, *map(len, lists)]), "u4"),
            "run": pack([index.run(key) for keys in lists for key in keys], "u4"),
        },
    }


def _summaries(rows: Sequence[Summary], index: _Index) -> dict[str, str]:
    return {
        "group": pack([index.groups[row.group] for row in rows], "u2"),
        "entry": pack([index.configurations[row.configuration] for row in rows], "u2"),
        "measure": pack([index.metric(row.metric) for row in rows], "u2"),
        "mean": pack(_floats(row.mean for row in rows), "f8"),
        "low": pack(_floats(row.low for row in rows), "f8"),
        "high": pack(_floats(row.high for row in rows), "f8"),
        "count": pack([row.count for row in rows], "u4"),
        "failed": pack([row.failed for row in rows], "u4"),
    }


def _comparisons(rows: Sequence[Comparison], index: _Index) -> dict[str, str]:
    return {
        "group": pack([index.groups[row.group] for row in rows], "u2"),
        "entry": pack([index.configurations[row.configuration] for row in rows], "u2"),
        "baseline": pack([index.configurations[row.baseline] for row in rows], "u2"),
        "measure": pack([index.metric(row.metric) for row in rows], "u2"),
        "count": pack([row.count for row in rows], "u4"),
        "wins": pack([row.wins for row in rows], "u4"),
        "ties": pack([row.ties for row in rows], "u4"),
        "losses": pack([row.losses for row in rows], "u4"),
        "ratio": pack(_floats(row.ratio for row in rows), "f8"),
        "low": pack(_floats(row.ratio_low for row in rows), "f8"),
        "high": pack(_floats(row.ratio_high for row in rows), "f8"),
        "p": pack(_floats(row.p_value for row in rows), "f8"),
    }


def _floats(values: Iterable[float | None]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """NaN for None."""
    return np.fromiter((np.nan if value is None else value for value in values), np.float64)
