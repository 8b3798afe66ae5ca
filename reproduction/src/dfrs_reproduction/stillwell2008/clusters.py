"""What the figures of [Stillwell2008] have in common: yields, failures and times against slack or tasks."""

from collections.abc import Sequence

import numpy as np

from dfrs.model.instance import Floats
from dfrs.report.curves import Panel, Picture, Series, Style
from dfrs.report.tables import Grid, TableCell
from dfrs.workloads.services import SLACKS
from dfrs_reproduction.metrics import ResultTable, mean_series, nan

MEASURES = ("minimum yield", "average yield", "failures, %")

LOOKS: dict[str, tuple[int, Style]] = {
    "OPT": (4, "line"),
    "GR": (1, "line"), "GB": (1, "dashed"), "SG": (2, "line"), "SGB": (2, "dashed"),
    "RRND": (3, "line"), "RRNZ": (3, "dashed"),
    **{f"MCB{k + 4 * descending}": (colour, "line" if descending else "dashed")
       for k, colour in ((1, 1), (2, 2), (3, 3), (4, 0)) for descending in (False, True)},
}  # fmt: skip
"""Colour and style of each curve: what differs in one respect only has one colour."""

_RELAXED = {"minimum yield": "LP bound", "average yield": "LP solution"}

Curves = Sequence[tuple[str, ResultTable]]
"""Algorithms, each with the results that its curve is drawn from."""


def values(sheet: ResultTable, label: str, measure: str) -> Floats:
    """(I,) one measure of one algorithm; yields are NaN where it failed."""
    if measure == "failures, %":
        return 100.0 * np.isnan(sheet.column(label, "minimum_yield"))
    return sheet.column(label, "minimum_yield" if measure == "minimum yield" else "average_after")


def picture(name: str, title: str, subtitle: str, curves: Curves, times: Curves, *, bound: ResultTable) -> Picture:
    """Four panels: minimum yield, average yield and failures against the slack, time against the number of tasks.

    The relaxed program's solution has the same average yield as minimum yield: below 1 it uses everything up. So
    it bounds the one, not the other.
    """
    panels: list[Panel] = []
    for measure in MEASURES:
        series = [_curve(label, sheet.parameter("slack"), values(sheet, label, measure)) for label, sheet in curves]
        if measure != "failures, %":
            series.append(mean_series(_RELAXED[measure], bound.parameter("slack"), bound.bound, "bound"))
        panels.append(
            Panel(
                title=measure.capitalize().replace(", %", ""),
                x_label="memory slack",
                y_label=measure,
                series=tuple(series),
                x_ticks=SLACKS,
                y_from_zero=measure == "failures, %",
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
    for label, sheet in times:
        curve = _curve(label, sheet.parameter("services"), 1000.0 * sheet.column(label, "runtime_s"))
        series.append(curve)
        tasks = sorted({*tasks, *curve.x})
    return Panel(
        title="Run time", x_label="tasks", y_label="milliseconds", series=tuple(series), log_y=True, x_ticks=tasks
    )


def grid(curves: Curves, bound: ResultTable, measure: str) -> Grid:
    """The numbers of one panel: a row a slack, a column an algorithm."""
    cells: list[TableCell] = []
    for slack in SLACKS:
        for label, sheet in curves:
            part = values(sheet, label, measure)[sheet.parameter("slack") == slack]
            known = part[~np.isnan(part)]
            if known.size:
                cells.append(_cell(slack, label, float(known.mean()), known.size, measure))
        limit = bound.bound[bound.parameter("slack") == slack]
        if measure != "failures, %" and limit.size:
            cells.append(_cell(slack, _RELAXED[measure], float(limit.mean()), limit.size, measure))
    return Grid(title=f"{measure.capitalize()} by slack", heading="slack", cells=tuple(cells))


def _cell(slack: float, label: str, value: float, count: int, measure: str) -> TableCell:
    decimals = 2 if measure == "failures, %" else 3
    return TableCell(row=f"{slack:g}", measure=label, measured=value, instances=count, decimals=decimals)


def average_at(sheet: ResultTable, label: str, measure: str, slacks: Sequence[float]) -> float:
    """The mean of a measure over the instances of some slacks; NaN of nothing."""
    chosen = np.isin(sheet.parameter("slack"), slacks)
    part = values(sheet, label, measure)[chosen]
    part = part[~np.isnan(part)]
    return nan(float(part.mean()) if part.size else None)
