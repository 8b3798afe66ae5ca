"""The documents' metrics: distance from bound, failures, degradation from the best.

The first two are of [Stillwell2010] section 4.3, the third is of [Stillwell2008] section 4.2.1.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from dfrs.experiments.planned_runs import FAILED
from dfrs.model import tolerances
from dfrs.model.instance import Bools, Floats
from dfrs.report.curves import Series, Style
from dfrs.report.tables import TableCell
from dfrs.runs.metrics.statistics import Interval, Labels, mean_interval

Published = tuple[float | None, float | None, float | None, float | None, float | None]
"""Average dfb, the same in percent of LPBOUND, 90th percentile, the same in percent, failure rate in percent."""

UNPUBLISHED: Published = (None, None, None, None, None)

DISTANCES = ("dfb", "dfb, %", "90th dfb", "90th dfb, %")
FAILURES = ("failures, % of all", "% of those with a bound", "% of those that a published algorithm solves")


class ResultTable:
    """A study's results as columns: one value per instance, instances in one order for all algorithms."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self.frame = frame
        self.labels: list[str] = frame["algorithm"].unique(maintain_order=True).to_list()
        self._parts: Mapping[str, pl.DataFrame] = {
            str(key[0]): part for key, part in frame.partition_by("algorithm", as_dict=True).items()
        }

    def column(self, label: str, name: str) -> Floats:
        """(I,) a column of one algorithm's results; NaN where it is null."""
        return self._parts[label][name].cast(pl.Float64).fill_null(np.nan).to_numpy()

    def yields(self, label: str, *, exact: bool = False) -> Floats:
        """(I,) the yield an algorithm's search reached, or its placement's own where it does not search or `exact`.

        NaN where it failed. The published figures of algorithms that search are of the yield reached.
        """
        own = self.column(label, "minimum_yield")
        searched = self.column(label, "searched_yield")
        return own if exact else np.where(np.isnan(searched), own, searched)

    def status(self, label: str) -> list[str]:
        """(I,) how one algorithm ended."""
        return self._parts[label]["status"].to_list()

    def messages(self, label: str) -> list[str]:
        """Why runs of one algorithm failed: one message each."""
        return self._parts[label].filter(pl.col("status") == FAILED)["message"].to_list()

    @cached_property
    def bound(self) -> Floats:
        """(I,) LPBOUND; NaN where there is none. A run that failed does not know it, others do."""
        return np.fmax.reduce([self.column(label, "bound") for label in self.labels])

    def parameter(self, name: str) -> Floats:
        """(I,) one of the columns that name an instance."""
        return self.column(self.labels[0], name)

    def solved_by(self, labels: Iterable[str]) -> Bools:
        """(I,) whether any of these algorithms solved it."""
        return np.any([~np.isnan(self.column(label, "minimum_yield")) for label in labels], axis=0)

    @property
    def solvable(self) -> Bools:
        """(I,) whether any algorithm of the documents solved it."""
        return self.solved_by(label for label in self.labels if not label.startswith("BEST"))

    def where(self, **parameters: float | bool) -> "ResultTable":
        """The instances with these parameters."""
        return ResultTable(self.frame.filter(*(pl.col(name) == value for name, value in parameters.items())))

    def first(self, count: int) -> "ResultTable":
        """The first `count` instances."""
        return ResultTable(self.frame.head(count * len(self.labels)))

    def __len__(self) -> int:
        return len(self._parts[self.labels[0]]) if self.labels else 0


def failures(datasets: Iterable[ResultTable]) -> tuple[str, ...]:
    """A note on each entry with failed runs, with the first message."""
    notes: list[str] = []
    for data in datasets:
        for label in data.labels:
            messages = data.messages(label)
            if messages:
                notes.append(f"{label}: {len(messages)} of {len(data)} runs failed; the first: {messages[0]}")
    return tuple(notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """Distance from bound over the instances solved; percentages are of LPBOUND."""

    average: float | None
    relative: float | None
    high: float | None
    relative_high: float | None
    solved: int


def relative_to(bound: Floats, below: Floats) -> Floats:
    """(I,) by how many percent of `bound` a value is below it; 0 where the bound is 0, NaN where either is."""
    gap = bound - below
    return 100.0 * np.divide(gap, bound, out=np.where(np.isnan(gap), np.nan, 0.0), where=bound > tolerances.CAPACITY)


def distance(bound: Floats, yields: Floats) -> Distance:
    """dfb as average and 90th percentile over the instances solved."""
    solved = ~np.isnan(yields)
    if not solved.any():
        return Distance(average=None, relative=None, high=None, relative_high=None, solved=0)
    gap, relative = (bound - yields)[solved], relative_to(bound, yields)[solved]
    return Distance(
        average=float(gap.mean()),
        relative=float(relative.mean()),
        high=float(np.quantile(gap, 0.9)),
        relative_high=float(np.quantile(relative, 0.9)),
        solved=int(solved.sum()),
    )


def distance_cells(data: ResultTable, row: str, yields: Floats, published: Published = UNPUBLISHED) -> list[TableCell]:
    """One row of Tables 4.1, 4.3 and 4.4: dfb, and failures on three bases."""
    d = distance(data.bound, yields)
    averages = (data.bound - yields, relative_to(data.bound, yields))
    cells = [
        mean_cell(
            values, report="distance", row=row, metric=metric, published=known, decimals=2 if "%" in metric else 3
        )
        for metric, known, values in zip(DISTANCES[:2], published[:2], averages, strict=True)
    ]
    cells += [
        TableCell(
            row=row,
            metric=metric,
            published=known,
            measured=value,
            instances=d.solved,
            decimals=2 if "%" in metric else 3,
        )
        for metric, known, value in zip(DISTANCES[2:], published[2:4], (d.high, d.relative_high), strict=True)
    ]
    failed = np.isnan(yields)
    bases = (np.ones_like(failed), ~np.isnan(data.bound), data.solvable)
    for metric, base, known in zip(FAILURES, bases, (published[4], None, None), strict=True):
        cells.append(
            TableCell(
                row=row, metric=metric, published=known, measured=percent(failed, base), instances=int(base.sum())
            )
        )
    return cells


def percent(what: Bools, among: Bools) -> float | None:
    """Share of `among` that is also `what`; None of nothing."""
    return 100.0 * float((what & among).sum()) / float(among.sum()) if among.any() else None


def advantage(a: Floats, b: Floats) -> Floats:
    """(K,) by how many percent of `b` yield `a` is above it, where both succeed and `b` is above 0."""
    both = ~np.isnan(a) & ~np.isnan(b) & (b > tolerances.CAPACITY)
    return 100.0 * (a[both] - b[both]) / b[both]


def mean(values: Floats) -> float | None:
    """The mean of what is not NaN; None of nothing."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


def interval(values: Floats, *seed: str, clusters: Labels | None = None) -> Interval:
    """The mean of what is not NaN with its 95 % confidence interval, unless that is of too few to be shown.

    `seed` says which it is: report, row, metric. The instances of one of (I,) `clusters` are drawn together.
    """
    return mean_interval(values, seed=drawn_as("/".join(seed)), clusters=clusters).shown


_DRAWN_AS = {
    "[Stillwell2010]": "000",
    "[Stillwell2008]": "001",
    "[Kumar2011]": "002",
    "[Atif2011]": "003",
    "kumar2011-": "002-",
}
"""How seeds spell documents: under other names the intervals in `results` would be drawn otherwise."""


def drawn_as(seed: str) -> str:
    """What a bootstrap interval is drawn with, from a seed that names a document."""
    for name, spelled in _DRAWN_AS.items():
        if seed.startswith(name):
            return spelled + seed.removeprefix(name)
    return seed


def mean_cell(
    values: Floats,
    *,
    report: str,
    row: str,
    metric: str,
    decimals: int = 2,
    published: float | None = None,
    clusters: Labels | None = None,
) -> TableCell:
    """The mean of (I,) `values` with its interval, over the instances on which they are not NaN."""
    found = interval(values, report, row, metric, clusters=clusters)
    return TableCell(
        row=row,
        metric=metric,
        measured=found.mean,
        low=found.low,
        high=found.high,
        instances=found.count,
        published=published,
        decimals=decimals,
    )


def quantile(values: Floats, q: float) -> float | None:
    """A quantile of what is not NaN; None of nothing."""
    known = values[~np.isnan(values)]
    return float(np.quantile(known, q)) if known.size else None


def degradation(yields: Mapping[str, Floats]) -> dict[str, Floats]:
    """(I,) by how many percent each algorithm's yield is below the best one's, 100 where it fails.

    See [Stillwell2008] section 4.2.1. NaN on instances that none solves.
    """
    best = np.fmax.reduce(list(yields.values()))
    return {
        label: np.where(np.isnan(best), np.nan, np.where(np.isnan(y), 100.0, relative_to(best, y)))
        for label, y in yields.items()
    }


def along(x: Floats, values: Floats) -> tuple[list[float], list[float]]:
    """The different values of `x`, and the mean of `values` at each, without NaN."""
    places = sorted(set(x.tolist()))
    return places, [nan(mean(values[x == place])) for place in places]


def mean_series(
    label: str,
    x: Floats,
    values: Floats,
    style: Style = "line",
    colour: int | None = None,
    *,
    seed: str | None = None,
    clusters: Labels | None = None,
) -> Series:
    """The curve of the means of `values` over `x`; with a seed, in the band of their 95 % confidence intervals."""
    places, means = along(x, values)
    if seed is None:
        return Series(label=label, x=places, y=means, style=style, colour=colour)
    found = [
        interval(values[there], seed, f"{place:g}", clusters=None if clusters is None else clusters[there])
        for place in places
        for there in [x == place]
    ]
    low, high = [nan(i.low) for i in found], [nan(i.high) for i in found]
    return Series(label=label, x=places, y=means, low=low, high=high, style=style, colour=colour)


def nan(value: float | None) -> float:
    """For pictures: NaN where there is no value."""
    return np.nan if value is None else value


def say(value: float | None, form: str = ".2f", unit: str = " %") -> str:
    """A number in a sentence."""
    return "no instance" if value is None else f"{value:{form}}{unit}"
