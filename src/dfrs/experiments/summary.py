"""What the results of a campaign say: means with intervals, paired comparisons, curves, and the page with all of it."""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

import dfrs
from dfrs.experiments.kinds import experiments
from dfrs.experiments.planned_runs import FAILED, PlannedRun
from dfrs.experiments.results import study_frame
from dfrs.experiments.spec import Campaign, Study
from dfrs.experiments.store import Store, front
from dfrs.model.instance import Floats, Ints
from dfrs.report.campaign_page import CampaignPage, Comparison, Curve, Metric, PagePoint, PageRun, Summary
from dfrs.runs.metrics.statistics import Interval, Paired, mean_interval, paired

_HIGH = ("yield", "jain", "utilis", "utiliz", "average_", "finished", "share_useful", "granted", "on_time")
"""Parts of the names of metrics of which more is better."""
_TITLES = {
    "bounded_degradation_from_bound": "degradation from bound",
    "degradation_from_bound": "degradation from bound, plain stretch",
    "average_before": "average yield",
    "utilization_before": "utilization",
    "average_after": "average yield after the second phase",
    "utilization_after": "utilization after the second phase",
}
_UNITS = {"_gb_per_s": "GB/s", "_gb_s": "GB/s", "_s": "s", "_gb": "GB"}
_NOTES = (
    "Means are over the runs that have a value: those that failed or found nothing have none, and are counted apart. "
    "[low, high] are 95 % bootstrap confidence intervals; what is made of one trace or one seed is drawn as a whole, "
    "and of fewer than six such there is none.",
    "A ratio is the geometric mean over the scenarios on which both have a value: below 1 the first has less. p is of "
    "Wilcoxon's signed-rank test.",
)


def metric(key: str) -> Metric:
    """A column of results as tables and pages call it."""
    unit = next((name for ending, name in _UNITS.items() if key.endswith(ending)), "")
    ending = next((ending for ending in _UNITS if key.endswith(ending)), "")
    title = _TITLES.get(key, key.removesuffix(ending).replace("_", " "))
    return Metric(key=key, title=title, unit=unit, better="high" if any(part in key for part in _HIGH) else "low")


Keys = dict[tuple[str, str, str], str]
"""By group, configuration and run, the page's own key of a run: a run of two groups or labels is there twice."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """The results of one set of workloads or instances of a study: `frame` has a row for each result."""

    name: str
    study: Study
    frame: pl.DataFrame

    @cached_property
    def parts(self) -> Mapping[str, pl.DataFrame]:
        """The rows of each configuration that has any, in the order of the scenarios; configurations as in the file."""
        there = self.frame.partition_by("algorithm", as_dict=True)
        labels = [configuration.label for configuration in self.study.configurations]
        return {label: there[label,] for label in labels if (label,) in there}

    def clusters(self, frame: pl.DataFrame) -> Ints:
        """(I,) which rows are of one trace, or of instances drawn from one seed."""
        own = pl.col(self.study.experiment.cluster_by)
        return frame.select(own.fill_null(-1 - pl.int_range(pl.len()))).to_series().to_numpy()


class Summaries:
    """The results of a campaign in `store`, by its own metrics and baseline or those given."""

    def __init__(
        self, campaign: Campaign, store: Store, *, metrics: Sequence[str] = (), baseline: str | None = None
    ) -> None:
        self.campaign = campaign
        self._store = store
        usual = [name for kind in campaign.kinds for name in experiments()[kind.name].metrics]
        self.metrics = tuple(metric(name) for name in metrics or campaign.report.measures or usual)
        self._baseline = baseline or campaign.report.baseline

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """In the order of the file, each named by what tells it from the others."""
        found: list[Group] = []
        several = len(self.campaign.studies) > 1
        for study in self.campaign.studies:
            frame = study_frame(study, self._store)
            for source in study.sources:
                name = source.name if not several else study.name
                name = f"{study.name}: {source.name}" if several and len(study.sources) > 1 else name
                found.append(Group(name=name, study=study, frame=frame.filter(pl.col("source") == source.name)))
        return tuple(found)

    def means(self) -> Iterator[tuple[Group, str, Metric, Interval, int]]:
        """Group, configuration, metric, its mean, and of how many runs; a run that failed has no value."""
        for group in self.groups:
            for label, part in group.parts.items():
                for m in self.metrics_of(group):
                    seed = f"{group.name} {m.key}"
                    mean = mean_interval(_floats(part, m.key), seed=seed, clusters=group.clusters(part))
                    yield group, label, m, mean.shown, len(part)

    def comparisons(self) -> Iterator[tuple[Group, str, str, Metric, Paired]]:
        """Group, configuration, baseline, metric, and how the two compare on the scenarios that both have."""
        for group in self.groups:
            baseline = self.baseline_of(group)
            for label, m in ((label, m) for label in group.parts for m in self.metrics_of(group)):
                if label == baseline or baseline is None:
                    continue
                both = group.parts[label].join(
                    group.parts[baseline], on="case", suffix="_baseline", maintain_order="left"
                )
                yield (
                    group,
                    label,
                    baseline,
                    m,
                    paired(
                        _floats(both, m.key),
                        _floats(both, f"{m.key}_baseline"),
                        seed=f"{group.name} {m.key}",
                        lower_is_better=m.better == "low",
                        clusters=group.clusters(both),
                    ),
                )

    def curves(self) -> Iterator[tuple[Group, str, Metric, float, Interval, tuple[str, ...]]]:
        """Group, configuration, metric, x, the mean there, and the keys of the runs it is of."""
        for group in self.groups:
            x = self._x_of(group)
            if x is None:
                continue
            for label, part in group.parts.items():
                places = part.filter(pl.col(x).is_not_null()).partition_by(x, as_dict=True)
                for place in sorted(places):
                    for m in self.metrics_of(group):
                        there = places[place].filter(pl.col(m.key).is_not_null())
                        seed = f"{group.name} {m.key} {place[0]}"
                        mean = mean_interval(_floats(there, m.key), seed=seed, clusters=group.clusters(there))
                        yield group, label, m, float(place[0]), mean.shown, tuple(there["key"].to_list())

    def page(self, file: Path, directory: Path) -> CampaignPage:
        """The page for a campaign read from `file`, to be written into `directory`, from where links lead on."""
        planned = {run.key: run for run in self.campaign.runs}
        keys: Keys = {}
        runs = [run for group in self.groups for run in self._runs(group, planned, file, directory, keys)]
        curves: dict[tuple[str, str, str], list[PagePoint]] = {}
        for group, label, m, x, mean, found in self.curves():
            if mean.mean is not None:
                shown = tuple(keys[group.name, label, key] for key in found)
                point = PagePoint(x=x, mean=mean.mean, low=mean.low, high=mean.high, runs=shown)
                curves.setdefault((group.name, m.key, label), []).append(point)
        return CampaignPage(
            name=self.campaign.name,
            description=self.campaign.description,
            facts=self._facts(len(planned), runs),
            x_label=self._x_label(),
            metrics=self.metrics,
            runs=tuple(runs),
            curves=tuple(
                Curve(group=group, metric=key, configuration=label, points=tuple(points))
                for (group, key, label), points in curves.items()
            ),
            summaries=tuple(_summary(*row) for row in self.means()),
            comparisons=tuple(_comparison(*row) for row in self.comparisons()),
            notes=_NOTES,
        )

    def _runs(
        self,
        group: Group,
        planned: Mapping[str, PlannedRun],
        file: Path,
        directory: Path,
        keys: dict[tuple[str, str, str], str],
    ) -> Iterator[PageRun]:
        """The runs of a group. Adds their keys on the page to `keys`."""
        taken = set(keys.values())
        saved = self._store.saved_runs(group.study.kind)
        x = self._x_of(group)
        for row in group.frame.iter_rows(named=True):
            run = planned[row["key"]]
            page = front(saved / run.key)
            place = (group.name, str(row["algorithm"]), run.key)
            key = run.key if run.key not in taken else hashlib.sha256(" ".join(place).encode()).hexdigest()[:16]
            taken.add(key)
            keys[place] = key
            yield PageRun(
                key=key,
                name=run.name,
                group=group.name,
                scenario=run.scenario.name,
                configuration=row["algorithm"],
                x=None if x is None else row[x],
                values=tuple(row.get(m.key) for m in self.metrics),
                failed=row["message"] if row["status"] == FAILED else None,
                link=None if page is None else _relative(page, directory),
                command=f"dfrs campaign show {file.name} {run.key}" if run.kind.saves else None,
            )

    def _facts(self, planned: int, runs: Sequence[PageRun]) -> tuple[tuple[str, str], ...]:
        failed = sum(run.failed is not None for run in runs)
        folders = [self._store.folder(kind).name for kind in self.campaign.kinds]
        return (
            ("runs", f"{len(runs):,} of {planned:,}"),
            ("failed", f"{failed:,}"),
            ("scenarios", f"{len({run.scenario for run in runs}):,}"),
            ("configurations", f"{len({run.configuration for run in runs}):,}"),
            ("dfrs", dfrs.__version__),
            ("code", ", ".join(name.rpartition("-")[2] for name in folders)),
        )

    def metrics_of(self, group: Group) -> list[Metric]:
        """Those that the kind of its runs has."""
        return [m for m in self.metrics if m.key in group.frame.columns]

    def baseline_of(self, group: Group) -> str | None:
        """The configuration that others of the group are compared with; None where it has no results there."""
        baseline = group.study.configurations[0].label if self._baseline is None else self._baseline
        return baseline if baseline in group.parts else None

    def _x_of(self, group: Group) -> str | None:
        named = (self.campaign.report.x,) if self.campaign.report.x else group.study.experiment.x_columns
        for name in named:
            if name in group.frame.columns and group.frame[name].drop_nulls().n_unique() > 1:
                return name
        return None

    def _x_label(self) -> str:
        names = dict.fromkeys(name for group in self.groups if (name := self._x_of(group)) is not None)
        return ", ".join("offered load" if name == "target_load" else name.replace("_", " ") for name in names)


def _relative(path: Path, directory: Path) -> str:
    return Path(os.path.relpath(path.resolve(), directory.resolve())).as_posix()


def _floats(frame: pl.DataFrame, name: str) -> Floats:
    return frame[name].cast(pl.Float64).fill_null(np.nan).to_numpy()


def _summary(group: Group, label: str, m: Metric, mean: Interval, runs: int) -> Summary:
    return Summary(
        group=group.name,
        configuration=label,
        metric=m.key,
        mean=mean.mean,
        low=mean.low,
        high=mean.high,
        count=mean.count,
        failed=runs - mean.count,
    )


def _comparison(group: Group, label: str, baseline: str, m: Metric, found: Paired) -> Comparison:
    ratio = None if found.ratio is None else found.ratio.shown
    return Comparison(
        group=group.name,
        metric=m.key,
        configuration=label,
        baseline=baseline,
        count=found.count,
        wins=found.wins,
        ties=found.ties,
        losses=found.losses,
        ratio=None if ratio is None else ratio.mean,
        ratio_low=None if ratio is None else ratio.low,
        ratio_high=None if ratio is None else ratio.high,
        p_value=found.p_value,
    )
