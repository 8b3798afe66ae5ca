"""What the tables share: workloads, policies, studies, and how one policy compares with another (section V)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from dfrs.experiments.kinds.online import OnlineConfiguration
from dfrs.experiments.sources.traces import CwfSource, ElasticTrace
from dfrs.experiments.spec import Study
from dfrs.model.instance import Floats
from dfrs.report.curves import Panel, Series, Style
from dfrs.report.tables import Claim, Grid, TableCell
from dfrs.runs.metrics.statistics import paired
from dfrs_reproduction.metrics import ResultTable, drawn_as, mean, mean_cell, mean_series, nan
from dfrs_reproduction.sizes import Size

LOADS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
LONG = 10_000
SKIPS = {0.2: 7, 0.5: 7, 0.8: 3}
"""C_s of Delayed-LOS and Hybrid-LOS for each P_S."""
PUBLISHED_SIZES = {0.2: 180.84, 0.5: 139.35, 0.8: 89.72}
"""Mean sizes that [Kumar2011] section V-A states."""
COMMANDS = (0.2, 0.1)
"""Probabilities of commands for more and for less time ([Kumar2011] section IV-D)."""
HOUR_S = 3_600.0

UTILISATION, WAIT, SLOWDOWN = "cpu_utilisation", "wait_mean_s", "slowdown_of_means"
"""The document's three metrics, as columns of results."""
METRICS = {"Utilization": UTILISATION, "Job waiting time": WAIT, "Slowdown": SLOWDOWN}
"""The same as Tables IV to VII call them."""

WORKLOADS = (
    "Every seed is a workload of its own, which is run at every load: the same jobs with other gaps. The document has "
    "one run a point; ours are means over seeds, with intervals. Improvements are of these means; their intervals are "
    "of the paired differences on the same workloads, relative to the other policy's mean."
)
SKIPPED = (
    "C_s is 7 for P_S = 0.2 and 0.5, and 3 for P_S = 0.8. The document takes the best C_s for each P_S, which it found "
    "by experiment, and says it for Figures 5 and 6 only (7 or 8, and 3); what ours gives for every C_s is in "
    "kumar2011-figure-5, kumar2011-figure-6 and kumar2011-adaptive."
)
WAITING = (
    "The wait of a dedicated job counts from its requested start. Slowdown is (mean wait + mean run time) / mean run "
    "time. Utilization is over the time from the first submission to the last completion."
)
SATURATED = (
    "Where the load comes near to what the policies can use of the machine, the queue grows as long as jobs come: "
    "waits are then several times the mean run time, and differ more between seeds than between policies. The "
    "document's own numbers say as much: slowdown improves by 0.95 times what wait does, so that, if both are at one "
    "load, the mean wait is about 19 mean run times."
)
"""Notes of the pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """A new policy and those it is compared with, by label."""

    new: str
    los: str
    easy: str

    @property
    def labels(self) -> tuple[str, str, str]:
        """In the order of curves and columns."""
        return self.easy, self.los, self.new

    def configurations(self, ps: float) -> tuple[OnlineConfiguration, ...]:
        """With the C_s for this P_S."""
        named = OnlineConfiguration(label=self.new, policy=f"{self.new}/CS={SKIPS[ps]}")
        return *(OnlineConfiguration(label=name, policy=name) for name in (self.easy, self.los)), named


BATCH = Contest(new="Delayed-LOS", los="LOS", easy="EASY")
BATCH_E = Contest(new="Delayed-LOS-E", los="LOS-E", easy="EASY-E")
MIXED = Contest(new="Hybrid-LOS", los="LOS-D", easy="EASY-D")
MIXED_E = Contest(new="Hybrid-LOS-E", los="LOS-DE", easy="EASY-DE")


def study(
    name: str,
    runs: Iterable[OnlineConfiguration],
    *,
    ps: float,
    seeds: int,
    loads: Sequence[float] = LOADS,
    pd: float = 0.0,
    commands: bool = False,
    jobs: int = 500,
) -> Study:
    """`runs` on traces 1 to `seeds` of the elastic workload model at every load."""
    configurations = tuple(runs)
    pe, pr = COMMANDS if commands else (0.0, 0.0)
    source = CwfSource(
        name=name, jobs=jobs, ps=(ps,), loads=tuple(loads), pd=pd, pe=pe, pr=pr, seeds=tuple(range(1, seeds + 1))
    )
    told = f"P_S = {ps:g}" + (f", P_D = {pd:g}" if pd else "") + (f", P_E = {pe:g}, P_R = {pr:g}" if commands else "")
    span = " to ".join(dict.fromkeys(f"{load:g}" for load in (loads[0], loads[-1])))
    return Study(
        name=name,
        sample=f"Elastic workload model, 320 processors in groups of 32, {jobs:,} jobs, {told}, load {span}: "
        f"{seeds} {'seeds' if seeds > 1 else 'seed'} a point; {len(configurations)} policies.",
        sources=(source,),
        configurations=configurations,
    )


def batch(size: Size, ps: float) -> Study:
    """Batch jobs alone: Figures 7 and 8."""
    return study(f"batch-{ps:g}", BATCH.configurations(ps), ps=ps, seeds=size.elastic)


def mixed(size: Size, ps: float, pd: float) -> Study:
    """With dedicated jobs: Figures 9 and 10."""
    return study(f"mixed-{ps:g}-{pd:g}", MIXED.configurations(ps), ps=ps, pd=pd, seeds=size.elastic)


def batch_commands(size: Size) -> Study:
    """Batch jobs with users' commands: Figure 11."""
    return study("batch-commands", BATCH_E.configurations(0.5), ps=0.5, commands=True, seeds=size.elastic)


def mixed_commands(size: Size) -> Study:
    """Batch and dedicated jobs with users' commands: Figure 11."""
    return study("mixed-commands", MIXED_E.configurations(0.5), ps=0.5, pd=0.5, commands=True, seeds=size.elastic)


@cache
def _mean_size(ps: float, seed: int) -> float:
    return 32.0 * float(ElasticTrace(seed=seed, ps=ps).workload().tasks.mean())


def mean_sizes(ps: float, data: ResultTable) -> Floats:
    """(S,) processors of a job on average, in each of the workloads of `data`; dedicated or not they are the same."""
    return np.array([_mean_size(ps, int(seed)) for seed in sorted(set(data.parameter("number").tolist()))])


def size_claim(ps: float, data: ResultTable, published: float) -> Claim:
    """The mean size of jobs that a figure states, within 5 %."""
    ours = mean_sizes(ps, data)
    return Claim(
        claim=f"The mean size of jobs at P_S = {ps:g}, processors; within 5 %",
        published=f"{published:g}",
        measured=f"{ours.mean():.2f}; seeds from {ours.min():.1f} to {ours.max():.1f}",
        holds=bool(abs(ours.mean() / published - 1.0) <= 0.05),
        instances=len(ours),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """By how many percent the mean of a metric is better than another policy's, with its interval where shown."""

    percent: float
    low: float | None
    high: float | None
    count: int

    @property
    def sure(self) -> bool | None:
        """Whether it is another than 0 by its interval."""
        return None if self.low is None or self.high is None else self.low > 0.0 or self.high < 0.0


def improvement(data: ResultTable, new: str, old: str, metric: str) -> Change:
    """Of `new` over `old` on the same workloads, all of one load; above 0 it is better."""
    return change(
        data.column(new, metric),
        data.column(old, metric),
        f"[Kumar2011]/{new}/{old}/{metric}",
        more=metric == UTILISATION,
    )


def change(new: Floats, old: Floats, seed: str, *, more: bool = False) -> Change:
    """Of the mean of (S,) values over that of others of the same workloads; with `more`, more is better.

    NaN where there is nothing to compare. `seed` is of the interval.
    """
    both = ~np.isnan(new) & ~np.isnan(old)
    base = nan(mean(old[both]))
    if not base > 0.0:
        same = base == 0.0 and not new[both].any()
        return Change(percent=0.0 if same else np.nan, low=None, high=None, count=int(both.sum()))
    found = paired(new, old, seed=drawn_as(seed)).difference.shown
    scale = (1.0 if more else -1.0) * 100.0 / base
    low, high = found.low, found.high
    if low is not None and high is not None:
        low, high = sorted((scale * low, scale * high))
    return Change(percent=scale * nan(found.mean), low=low, high=high, count=found.count)


def loads_of(data: ResultTable) -> list[float]:
    """Those of which there are results."""
    return sorted(set(data.parameter("target_load").tolist()))


def improvements(data: ResultTable, new: str, old: str, metric: str) -> dict[float, Change]:
    """At each load."""
    return {load: improvement(data.where(target_load=load), new, old, metric) for load in loads_of(data)}


def better_claim(claim: str, data: ResultTable, new: str, old: str, metric: str = WAIT) -> Claim:
    """That `new` is better than `old` at every load."""
    found = improvements(data, new, old, metric)
    return Claim(
        claim=claim,
        published="yes, no number",
        measured=f"{say_range(found)}; {say_sure(found.values())}",
        holds=all_above_zero(change.percent for change in found.values()),
        instances=len(data),
    )


def all_above_zero(percents: Iterable[float]) -> bool | None:
    """Whether they are; None where it depends on those that are NaN."""
    values = np.array(list(percents))
    if (values <= 0.0).any():
        return False
    return None if np.isnan(values).any() else True


def known(found: Mapping[float, Change]) -> dict[float, Change]:
    """At the loads where there is something to compare."""
    return {load: change for load, change in found.items() if not np.isnan(change.percent)}


def say_range(found: Mapping[float, Change]) -> str:
    """The least and the largest improvement, each with its load; and the loads without one."""
    there = known(found)
    lacking = ", ".join(f"{load:g}" for load in found if load not in there)
    without = f"nothing to compare at load {lacking}"
    if not there:
        return without
    least, most = (pick(there, key=lambda load: there[load].percent) for pick in (min, max))
    span = f"by {there[least].percent:+.1f} % (load {least:g}) to {there[most].percent:+.1f} % (load {most:g})"
    return f"{span}; {without}" if lacking else span


def say_sure(found: Iterable[Change]) -> str:
    """How many of the intervals have 0 in them."""
    changes = list(found)
    if any(change.sure is None for change in changes):
        return "too few seeds for intervals"
    above, below = (sum(bool(c.sure and (c.percent > 0) == up) for c in changes) for up in (True, False))
    return f"of {len(changes)} intervals {above} above 0, {below} below"


_STYLES: dict[str, tuple[int, Style]] = {"EASY": (9, "line"), "LOS": (1, "line"), "Delayed-LOS": (0, "line")}


def style(label: str) -> tuple[int, Style]:
    """Colour and style of the curve of a policy of [Kumar2011] Table III."""
    return _STYLES["EASY" if label.startswith("EASY") else "LOS" if label.startswith("LOS") else "Delayed-LOS"]


def panel(data: ResultTable, labels: Sequence[str], metric: str, title: str, *, hours: bool = False) -> Panel:
    """The means of a metric against the load, in the bands of their intervals."""
    unit = HOUR_S if hours else 1.0
    series = tuple(
        mean_series(
            label,
            data.parameter("target_load"),
            data.column(label, metric) / unit,
            style(label)[1],
            style(label)[0],
            seed=f"[Kumar2011]/{label}/{metric}",
        )
        for label in labels
    )
    return Panel(
        title=title,
        x_label="load",
        y_label="mean wait, hours" if hours else "utilization",
        series=series,
        x_ticks=loads_of(data),
        y_from_zero=hours,
    )


def over_panel(data: ResultTable, labels: Mapping[str, tuple[int, Style]], old: str, title: str) -> Panel:
    """By how much the mean wait is better than that of `old`, against the load."""
    series = [zero(loads_of(data), old)]
    for label, (colour, line) in labels.items():
        found = improvements(data, label, old, WAIT)
        series.append(change_series(label, found, colour, line))
    return Panel(
        title=title,
        x_label="load",
        y_label=f"mean wait below that of {old}, %",
        series=tuple(series),
        x_ticks=loads_of(data),
        y_from_zero=False,
    )


def zero(x: Sequence[float], label: str) -> Series:
    """The policy that others are compared with."""
    return Series(label=label, x=list(x), y=[0.0] * len(x), style="bound")


def change_series(label: str, found: Mapping[float, Change], colour: int, line: Style = "line") -> Series:
    """Improvements as a curve in the band of their intervals."""
    changes = found.values()
    return Series(
        label=label,
        x=list(found),
        y=[c.percent for c in changes],
        low=[nan(c.low) for c in changes],
        high=[nan(c.high) for c in changes],
        colour=colour,
        style=line,
    )


def contest_panels(data: ResultTable, contest: Contest, told: str, *, utilisation: bool = True) -> list[Panel]:
    """Utilization, wait, and wait relative to EASY's, against the load."""
    panels = [panel(data, contest.labels, UTILISATION, told)] if utilisation else []
    return [
        *panels,
        panel(data, contest.labels, WAIT, told, hours=True),
        over_panel(data, {label: style(label) for label in contest.labels[1:]}, contest.easy, told),
    ]


def means_grid(data: ResultTable, labels: Sequence[str], title: str) -> Grid:
    """Utilization in percent and wait in hours, by load."""
    parts = {"utilization, %": (UTILISATION, 0.01), "wait, h": (WAIT, HOUR_S)}
    cells = [
        mean_cell(
            at.column(label, metric) / unit,
            report=f"[Kumar2011]/{title}",
            row=f"load {load:g}",
            metric=f"{label}: {name}",
        )
        for load in loads_of(data)
        for at in [data.where(target_load=load)]
        for name, (metric, unit) in parts.items()
        for label in labels
    ]
    return Grid(title=title, heading="load", cells=tuple(cells))


def change_cell(change: Change, row: str, metric: str, published: float | None = None) -> TableCell:
    """One improvement as a cell."""
    known = None if np.isnan(change.percent) else change.percent
    return TableCell(
        row=row,
        metric=metric,
        measured=known,
        low=change.low,
        high=change.high,
        instances=change.count,
        published=published,
    )


def improvements_grid(data: ResultTable, contest: Contest, title: str) -> Grid:
    """The improvement of each metric over LOS and EASY, in percent, by load."""
    cells = [
        change_cell(improvements(data, contest.new, old, metric)[load], f"load {load:g}", f"{name} over {old}, %")
        for load in loads_of(data)
        for name, metric in METRICS.items()
        for old in (contest.los, contest.easy)
    ]
    return Grid(title=title, heading="load", cells=tuple(cells))
