"""Ours: fractional sharing by predicted speeds beside ARRIVE-F on 100 random workloads (after [Atif2011] section 8)."""

from dfrs.experiments.kinds.farm_random import RESUME_S, FarmRandomConfiguration, FarmRandomSource
from dfrs.experiments.spec import Study
from dfrs.report.curves import Panel, Picture, Style
from dfrs.report.tables import Claim, Content, Grid, TableCell
from dfrs.runs.metrics.schedule import TAU_S
from dfrs.runs.metrics.statistics import Paired, paired
from dfrs_reproduction.exhibit import Exhibit, Needs, Results
from dfrs_reproduction.metrics import ResultTable, mean_cell, mean_series
from dfrs_reproduction.sizes import Size

_NAME = "farm-100"
_WORKLOADS = 100
_LOADS = (0.5, 0.7, 0.9, 1.1, 1.3)
OURS, ARRIVE, BATCH, WHOLE, PLAIN = "DFRS-FARM", "ARRIVE-F", "FARM-EASY", "EASY, whole farm", "DFRS, whole farm"
POLICIES = {
    OURS: "DFRS-FARM",
    ARRIVE: "ARRIVE-F",
    BATCH: "FARM-EASY",
    WHOLE: "EASY",
    PLAIN: "GreedyPM*/per/OPT=MIN/MVT=600",
}
_CURVES: dict[str, tuple[int, Style]] = {
    OURS: (0, "line"),
    ARRIVE: (1, "line"),
    BATCH: (1, "dashed"),
    WHOLE: (9, "line"),
    PLAIN: (2, "line"),
}
_STRETCHES = {
    "max bounded stretch": "bounded_stretch_max",
    "mean bounded stretch": "bounded_stretch_mean",
    "max stretch": "stretch_max",
    "mean stretch": "stretch_mean",
}
_OTHERS: dict[str, tuple[str, float, int]] = {
    "wait, s": ("wait_mean_s", 1.0, 0),
    "turnaround, s": ("flow_mean_s", 1.0, 0),
    "last job done, h": ("makespan_s", 3_600.0, 2),
    "migrations a job": ("migrations_per_job", 1.0, 2),
    "pauses a job": ("pauses_per_job", 1.0, 3),
    "jobs across sub-clusters, %": ("spanning", 0.01, 1),
}
"""Column, its unit, and decimals."""
_WHAT = (
    "The farm is that of [Atif2011] Table 1: sub-clusters A to D with 32 nodes. A workload has 200 jobs of four merged "
    "Lublin streams, each job a random NAS benchmark and class, and takes its time of the model on A; what it takes "
    "elsewhere is measured or modelled ([Atif2011] and ours), with a random error of 10 % for each job and sub-cluster "
    "that no prediction knows. Loads are those the farm would have if jobs ran where they fall: 0.5 to 1.3, in turn, "
    "one for each workload. Profiles take 50 s and are as wrong as those of [Atif2011]; migrating a process costs 0.7 "
    f"s and 10 s of copying, a resume after a pause {RESUME_S:g} s."
)
_STRETCH = (
    "The stretch of a job is its time from submission to end over its time alone where it is fastest. Bounded: times "
    f"below {TAU_S:g} s count as {TAU_S:g} s. Intervals are 95 % BCa bootstrap intervals of the mean over workloads; "
    "ratios are geometric means of the ratio on the same workload."
)
_BLIND = (
    "EASY and DFRS over the whole farm know nothing of sub-clusters: they spread jobs over several, and such a job is "
    "as slow as in the slowest of them, with messages over the network. That is why they lose to the policies that "
    "queue or share alike but see the farm: EASY to FARM-EASY, DFRS to DFRS-FARM. Estimates, which the batch policies "
    "need and DFRS does not, are times on A, as in [Atif2011]."
)
_CHECKED = "Every run is checked by the independent checker; one that it objects to counts as failed."


def _needs(size: Size) -> Needs:
    count = min(size.unscaled, _WORKLOADS)
    source = FarmRandomSource(name="random", seeds=tuple(range(1, count + 1)), loads=_LOADS, spread=True)
    told = f"all {_WORKLOADS}" if count == _WORKLOADS else f"{count} of the {_WORKLOADS}"
    sample = f"Random heterogeneous workloads of 200 jobs on 32 nodes: {told}; {len(POLICIES)} policies."
    configurations = tuple(FarmRandomConfiguration(label=label, policy=policy) for label, policy in POLICIES.items())
    return {"random": Study(name="farm-100", sample=sample, sources=(source,), configurations=configurations)}


def _content(results: Results) -> Content:
    data = results["random"]
    picture = Picture(
        name=_NAME,
        title="Stretches on random heterogeneous workloads",
        subtitle="means over workloads; bands: 95 % bootstrap confidence intervals",
        panels=tuple(_panel(data, metric, column) for metric, column in list(_STRETCHES.items())[:2]),
    )
    return Content(
        grids=(
            _stretches(data),
            *(_by_load(data, *each) for each in list(_STRETCHES.items())[:2]),
            _ratios(data),
            _others(data),
        ),
        claims=tuple(_claims(data)),
        pictures=(picture,),
        notes=(_WHAT, _STRETCH, _BLIND, _CHECKED),
    )


def _stretches(data: ResultTable) -> Grid:
    cells = [
        mean_cell(data.column(label, column), report=_NAME, row=label, metric=metric)
        for label in data.labels
        for metric, column in _STRETCHES.items()
    ]
    return Grid(title="Stretches, means over all workloads", heading="policy", cells=tuple(cells))


def _by_load(data: ResultTable, metric: str, column: str) -> Grid:
    loads = sorted(set(data.parameter("target_load").tolist())) if data.labels else []
    cells = [
        mean_cell(
            data.where(target_load=load).column(label, column),
            report=f"{_NAME}/{metric}",
            row=label,
            metric=f"load {load:g}",
        )
        for label in data.labels
        for load in loads
    ]
    return Grid(title=f"{metric.capitalize()} by load", heading="policy", cells=tuple(cells))


def _others(data: ResultTable) -> Grid:
    cells = [
        mean_cell(data.column(label, column) / unit, report=_NAME, row=label, metric=metric, decimals=decimals)
        for label in data.labels
        for metric, (column, unit, decimals) in _OTHERS.items()
    ]
    return Grid(title="What it takes, means over all workloads", heading="policy", cells=tuple(cells))


def _compared(data: ResultTable, better: str, worse: str, column: str) -> Paired:
    seed = f"{_NAME}/{better}/{worse}/{column}"
    return paired(data.column(better, column), data.column(worse, column), seed=seed)


def _ratios(data: ResultTable) -> Grid:
    cells: list[TableCell] = []
    for label in data.labels:
        if label == OURS:
            continue
        for metric, column in _STRETCHES.items():
            found = _compared(data, OURS, label, column)
            ratio = found.ratio.shown if found.ratio is not None else None
            cells.append(
                TableCell(
                    row=label,
                    metric=metric,
                    measured=None if ratio is None else ratio.mean,
                    low=None if ratio is None else ratio.low,
                    high=None if ratio is None else ratio.high,
                    instances=found.count,
                    decimals=3,
                )
            )
    return Grid(title=f"{OURS} over another policy, on the same workload", heading="over", cells=tuple(cells))


def _panel(data: ResultTable, metric: str, column: str) -> Panel:
    load = data.parameter("target_load")
    series = tuple(
        mean_series(
            label,
            load,
            data.column(label, column),
            _CURVES[label][1],
            _CURVES[label][0],
            seed=f"{_NAME}/{label}/{column}",
        )
        for label in data.labels
    )
    return Panel(title="", x_label="load", y_label=metric, series=series, log_y=True, x_ticks=_LOADS)


def _claims(data: ResultTable) -> list[Claim]:
    rows = [(OURS, label) for label in data.labels if label != OURS] + [(ARRIVE, BATCH), (BATCH, WHOLE)]
    return [
        _claim(data, better, worse, metric, column)
        for better, worse in rows
        for metric, column in list(_STRETCHES.items())[:2]
    ]


def _claim(data: ResultTable, better: str, worse: str, metric: str, column: str) -> Claim:
    found = _compared(data, better, worse, column)
    shown = found.difference.shown
    sure = "" if shown.low is None or shown.high is None else f" [{shown.low:+,.1f}, {shown.high:+,.1f}]"
    return Claim(
        claim=f"{metric}: {better} is better than {worse}",
        published="ours",
        measured="no instance"
        if shown.mean is None
        else f"{shown.mean:+,.1f}{sure}, better on {found.wins} of {found.count} workloads",
        holds=None if shown.mean is None else shown.mean < 0.0,
        instances=found.count,
    )


EXHIBIT = Exhibit(
    name=_NAME,
    title="Fractional sharing of an unequal farm: 100 random heterogeneous workloads",
    source="ours, after [Atif2011] section 8",
    needs=_needs,
    content=_content,
)
