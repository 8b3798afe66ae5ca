"""Pictures of campaigns: curves with their names at their ends, points by group, and points with their names beside."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter
from matplotlib.transforms import Bbox

from dfrs.report.saving import GRID, INK, QUIET, save

PALETTE = (
    "#1d4e89",
    "#d1495b",
    "#4f8a5b",
    "#e09f3e",
    "#2a9db5",
    "#7a5195",
    "#8c5e3c",
    "#c77dba",
    "#7f8c1f",
    "#56616d",
)
MARKERS = "osD^vPX*"

_AROUND = (
    (7, 0, "left", "center"),
    (-7, 0, "right", "center"),
    (0, 8, "center", "bottom"),
    (0, -8, "center", "top"),
    (6, 6, "left", "bottom"),
    (6, -6, "left", "top"),
    (-6, 6, "right", "bottom"),
    (-6, -6, "right", "top"),
    (0, 17, "center", "bottom"),
    (0, -17, "center", "top"),
    (11, 14, "left", "bottom"),
    (11, -14, "left", "top"),
    (-11, 14, "right", "bottom"),
    (-11, -14, "right", "top"),
)
"""Where a name may stand beside its point: offset in points, alignment."""

_THREAD = {"arrowstyle": "-", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3}
_GAP = 1.3
"""Least distance of two names at the ends of curves, in heights of their letters."""


Style = Literal["line", "dashed", "bound", "points", "marked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One curve, or one group of points, of equally many `x` and `y`; NaN leaves a gap.

    `bound` is drawn as a limit, `points` as markers without a line, `marked` as both. `names` are written beside
    the points. `low` and `high`, as many as there are of `y` or none, bound a band behind the curve.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    style: Style = "line"
    colour: int | None = None
    names: Sequence[str] = ()
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False
    x_ticks: Sequence[float] = ()
    y_from_zero: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Panels under one title, `columns` beside each other."""

    name: str
    title: str
    subtitle: str
    panels: tuple[Panel, ...]
    columns: int = 2


def draw(picture: Picture, directory: Path) -> Path:
    """Write `<name>.png` into `directory` and return its path. Raises InputError where that cannot be written."""
    return save(lambda: _figure(picture), directory / f"{picture.name}.png")


def _figure(picture: Picture) -> Figure:
    columns = min(picture.columns, len(picture.panels))
    rows = -(-len(picture.panels) // columns)
    width = {1: 9.0, 2: 13.33}.get(columns, 16.0)
    figure = plt.figure(figsize=(width, 1.05 + 4.1 * rows), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12, hspace=0.05, wspace=0.04)  # type: ignore[union-attr]
    figure.suptitle(picture.title, x=0.012, ha="left", fontsize=15, fontweight="bold")
    figure.supxlabel(picture.subtitle, x=0.012, ha="left", fontsize=9, color=QUIET)
    drawn = [
        (figure.add_subplot(rows, columns, k + 1), panel, _colours(panel)) for k, panel in enumerate(picture.panels)
    ]
    for axes, panel, colours in drawn:
        _panel(axes, panel, colours)
    # Names are placed by what the layout has made of the axes; the second layout makes room for them.
    for _ in range(2):
        figure.draw_without_rendering()
        for axes, panel, colours in drawn:
            for text in [t for t in axes.texts if t.get_gid() == "name"]:
                text.remove()
            _name_ends(axes, panel, colours)
            _name_points(axes, panel, colours)
    return figure


def _colours(panel: Panel) -> list[str]:
    colours: list[str] = []
    free = 0
    for series in panel.series:
        if series.style == "bound":
            colours.append(INK)
        elif series.colour is not None:
            colours.append(PALETTE[series.colour % len(PALETTE)])
        else:
            colours.append(PALETTE[free % len(PALETTE)])
            free += 1
    return colours


def _panel(axes: Axes, panel: Panel, colours: list[str]) -> None:
    for k, (series, colour) in enumerate(zip(panel.series, colours, strict=True)):
        if series.low:
            axes.fill_between(series.x, series.low, series.high, color=colour, alpha=0.15, linewidth=0.0, zorder=2)
        if series.style in {"points", "marked"}:
            marker = MARKERS[k % len(MARKERS)] if series.style == "points" and not series.names else "o"
            axes.plot(
                series.x,
                series.y,
                marker,
                color=colour,
                markersize=6.5,
                markeredgecolor="white",
                markeredgewidth=0.6,
                label=series.label,
                linestyle="-" if series.style == "marked" else "none",
                linewidth=2.0,
                zorder=3,
            )
        else:
            dashes = {"dashed": (0, (5, 2)), "bound": (0, (4, 3))}.get(series.style, "-")
            width = 1.2 if series.style == "bound" else 1.9
            over = 4 if series.style == "dashed" else 3
            axes.plot(series.x, series.y, color=colour, linewidth=width, linestyle=dashes, zorder=over)
    axes.set_title(panel.title, fontsize=11, loc="left", color=INK)
    axes.set_xlabel(panel.x_label, color=QUIET)
    axes.set_ylabel(panel.y_label, color=QUIET)
    if panel.log_x:
        axes.set_xscale("log")
        _plain_ticks(axes.xaxis)
    if panel.log_y:
        axes.set_yscale("log")
        _plain_ticks(axes.yaxis)
    elif panel.y_from_zero:
        axes.set_ylim(bottom=0.0)
    if panel.x_ticks:
        axes.set_xticks(list(panel.x_ticks), [f"{x:g}" for x in panel.x_ticks])
        axes.minorticks_off()
    axes.tick_params(which="both", colors=QUIET, length=0)
    axes.set_axisbelow(True)
    axes.grid(axis="both" if _grouped(panel) else "y", color=GRID)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    if _grouped(panel):
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), labelcolor=INK, handletextpad=0.2)


def _plain_ticks(axis: Axis) -> None:
    """1, 2, 5, 10 instead of powers, as many as have room."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def _grouped(panel: Panel) -> bool:
    return all(series.style == "points" and not series.names for series in panel.series)


def _name_ends(axes: Axes, panel: Panel, colours: list[str]) -> None:
    """Each curve's name right of its end, moved apart where ends are close, with a thin line back to the end."""
    height = axes.get_window_extent().height
    step = _GAP * 9.0 * axes.figure.dpi / 72.0 / height
    ends: list[tuple[float, float, int]] = []
    for k, series in enumerate(panel.series):
        known = np.flatnonzero(np.isfinite(np.asarray(series.y, dtype=float)))
        if series.style in {"points", "marked"} or not known.size:
            continue
        point = axes.transData.transform((series.x[known[-1]], series.y[known[-1]]))
        x, y = axes.transAxes.inverted().transform(point)
        ends.append((float(y), float(x), k))
    ends.sort()
    places = _spread([y for y, _, _ in ends], step)
    for (y, x, k), place in zip(ends, places, strict=True):
        line = {"arrowstyle": "-", "color": colours[k], "linewidth": 0.7, "shrinkA": 0, "shrinkB": 0}
        axes.annotate(
            panel.series[k].label,
            xy=(x, y),
            xytext=(1.045, place),
            xycoords="axes fraction",
            textcoords="axes fraction",
            color=colours[k],
            fontsize=9,
            va="center",
            annotation_clip=False,
            arrowprops=line | {"relpos": (0.0, 0.5)},
            gid="name",
        )


def _spread(wanted: list[float], step: float) -> list[float]:
    """Positions from 0 up at least `step` apart, in the order of `wanted` (ascending), as near to it as can be."""
    blocks: list[tuple[float, int]] = []
    for position in wanted:
        blocks.append((position, 1))
        while len(blocks) > 1:
            (low, n), (high, m) = blocks[-2:]
            if high - low >= step * (n + m) / 2.0:
                break
            blocks[-2:] = [((low * n + high * m) / (n + m), n + m)]
        centre, n = blocks[-1]
        if len(blocks) == 1:
            blocks[-1] = (max(centre, step * (n - 1) / 2.0), n)
    return [centre + step * (i - (n - 1) / 2.0) for centre, n in blocks for i in range(n)]


def _name_points(axes: Axes, panel: Panel, colours: list[str]) -> None:
    """Names beside points, on the side where they cover least of what is there."""
    figure = axes.get_figure()
    if figure is None:
        return
    taken = [box for series in panel.series for box in _covered(axes, series)]
    inside = axes.get_window_extent()
    for series, colour in zip(panel.series, colours, strict=True):
        for name, x, y in zip(series.names, series.x, series.y, strict=False):
            if not name:
                continue
            best: tuple[float, Text, Bbox] | None = None
            for dx, dy, ha, va in _AROUND:
                text = axes.annotate(
                    name,
                    (x, y),
                    (dx, dy),
                    textcoords="offset points",
                    ha=ha,
                    va=va,
                    fontsize=8.5,
                    color=colour,
                    gid="name",
                    arrowprops=_THREAD | {"color": colour} if abs(dx) + abs(dy) > 15 else None,
                )
                box = text.get_window_extent()
                cost = sum(_common(box, other) for other in taken) + 3.0 * (_area(box) - _common(box, inside))
                if best is not None and best[0] <= cost:
                    text.remove()
                    continue
                if best is not None:
                    best[1].remove()
                best = (cost, text, box)
                if cost == 0:
                    break
            if best is not None:
                taken.append(best[2])


def _covered(axes: Axes, series: Series) -> list[Bbox]:
    """Boxes that the marks of a series cover, and its line where it has one."""
    points = axes.transData.transform(np.column_stack((series.x, series.y)))
    if series.style == "marked":
        steps = [np.linspace(a, b, 24) for a, b in pairwise(points)]
        points = np.concatenate([points, *steps])
    return [Bbox.from_extents(x - 4, y - 4, x + 4, y + 4) for x, y in points if np.isfinite(x + y)]


def _area(box: Bbox) -> float:
    return float(box.width * box.height)


def _common(a: Bbox, b: Bbox) -> float:
    both = Bbox.intersection(a, b)
    return 0.0 if both is None else _area(both)
