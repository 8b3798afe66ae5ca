"""What the figures of [Stillwell2008] have in common: yields, failures and times against slack or tasks."""

from collections.abc import Sequence

import numpy as np

from dfrs.model.instance import Floats
from dfrs.report.curves import Panel, Picture, Series, Style
from dfrs.report.tables import Grid, TableCell
from dfrs.workloads.services import SLACKS
from dfrs_reproduction.metrics import ResultTable, mean_series, nan

METRICS = ("minimum yield", "average yield", "failures, %")

LOOKS: dict[str, tuple[int, Style]] = {
    "OPT": (4, "line"),
    "GR": (1, "line"),
    "GB": (1, "dashed"),
    "SG": (2, "line"),
    "SGB": (2, "dashed"),
    "RRND": (3, "line"),
    "RRNZ": (3, "dashed"),
    **{
        f"MCB{k + 4 * descending}": (colour, "line" if descending else "dashed")
        for k, colour in ((1, 1), (2, 2), (3, 3), (4, 0))
        for descending in (False, True)
    },
}
"""Colour and style of each curve: what differs in one respect only has one colour."""

_RELAXED = {"minimum yield": "LP bound", "average yield": "LP solution"}

Curves = Sequence[tuple[str, ResultTable]]
"""Algorithms, each with the results that its curve is drawn from."""


def values(data: ResultTable, label: str, metric: str) -> Floats:
    """(I,) one metric of one algorithm; yields are NaN where it failed."""
    if metric == "failures, %":
        return 100.0 * np.isnan(data.column(label, "minimum_yield"))
    return data.column(label, "minimum_yield" if metric == "minimum yield" else "average_after")


def picture(name: str, title: str, subtitle: str, curves: Curves, times: Curves, *, bound: ResultTable) -> Picture:
    """Four panels: minimum yield, average yield and failures against the slack, time against the number of tasks.

    The relaxed program's solution has the same average yield as minimum yield: below 1 it uses everything up. So
    it bounds the one, not the other.
    """
    panels: list[Panel] = []
    for metric in METRICS:
        series = [_curve(label, data.parameter("slack"), values(data, label, metric)) for label, data in curves]
        if metric != "failures, %":
            series.append(mean_series(_RELAXED[metric], bound.parameter("slack"), bound.bound, "bound"))
        panels.append(
            Panel(
                title=metric.capitalize().replace(", %", ""),
                x_label="memory slack",
                y_label=metric,
                series=tuple(series),
                x_ticks=SLACKS,
                y_from_zero=metric == "failures, %",
            )
        )
    panels.append(_times(times))
    return Picture(name=name, title=title, subtitle=subtitle, panels=tuple(panels))


def _curve(label: str, x: Floats, y: Floats) -> Series:
    colour, style = LOOKS[label]
    return mean_series(label, x, y, style, colour)


def _times(times: Curves) -> Panel:
    series: list[Series] = []
    tasks: list[float] = []
    for label, data in times:
        curve = _curve(label, data.parameter("services"), 1000.0 * data.column(label, "runtime_s"))
        series.append(curve)
        tasks = sorted({*tasks, *curve.x})
    return Panel(
        title="Run time", x_label="tasks", y_label="milliseconds", series=tuple(series), log_y=True, x_ticks=tasks
    )


def grid(curves: Curves, bound: ResultTable, metric: str) -> Grid:
    """The numbers of one panel: a row a slack, a column an algorithm."""
    cells: list[TableCell] = []
    for slack in SLACKS:
        for label, data in curves:
            part = values(data, label, metric)[data.parameter("slack") == slack]
            known = part[~np.isnan(part)]
            if known.size:
                cells.append(_cell(slack, label, float(known.mean()), known.size, metric))
        limit = bound.bound[bound.parameter("slack") == slack]
        if metric != "failures, %" and limit.size:
            cells.append(_cell(slack, _RELAXED[metric], float(limit.mean()), limit.size, metric))
    return Grid(title=f"{metric.capitalize()} by slack", heading="slack", cells=tuple(cells))


def _cell(slack: float, label: str, value: float, count: int, metric: str) -> TableCell:
    decimals = 2 if metric == "failures, %" else 3
    return TableCell(row=f"{slack:g}", metric=label, measured=value, instances=count, decimals=decimals)


def average_at(data: ResultTable, label: str, metric: str, slacks: Sequence[float]) -> float:
    """The mean of a metric over the instances of some slacks; NaN of nothing."""
    chosen = np.isin(data.parameter("slack"), slacks)
    part = values(data, label, metric)[chosen]
    part = part[~np.isnan(part)]
    return nan(float(part.mean()) if part.size else None)
