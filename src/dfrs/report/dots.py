"""A table of published and measured numbers as a picture: a panel a metric, a line a row, both numbers as dots."""

from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

from dfrs.report.saving import GRID, INK, QUIET, save

MEASURED, PUBLISHED = "#1d4e89", "#d1495b"
_WIDE = 30.0
"""Ratio of the largest to the smallest number from which on an axis is logarithmic."""
_ROW_INCHES, _PANEL_INCHES = 0.21, 2.6
_LETTER_INCHES = 0.082


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """One number of a row: NaN where there is none."""

    row: str
    metric: str
    measured: float
    published: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Dots:
    """A picture of `dots`, in their order from the top."""

    name: str
    title: str
    subtitle: str
    dots: tuple[Dot, ...]


def draw_dots(picture: Dots, directory: Path) -> Path:
    """Write `<name>.png` into `directory` and return its path. Raises InputError where that cannot be written."""
    return save(lambda: _figure(picture), directory / f"{picture.name}.png")


def _figure(picture: Dots) -> Figure:
    rows = list(dict.fromkeys(dot.row for dot in picture.dots))
    metrics = list(dict.fromkeys(dot.metric for dot in picture.dots))
    names = _LETTER_INCHES * max(map(len, rows))
    size = (max(9.0, names + _PANEL_INCHES * len(metrics)), 1.5 + _ROW_INCHES * len(rows))
    figure = plt.figure(figsize=size, layout="constrained")
    figure.suptitle(picture.title, x=0.012, ha="left", fontsize=14, fontweight="bold")
    figure.supxlabel(picture.subtitle, x=0.012, ha="left", fontsize=9, color=QUIET)
    first: Axes | None = None
    for k, metric in enumerate(metrics):
        axes = figure.add_subplot(1, len(metrics), k + 1, sharey=first)
        first = first or axes
        _panel(axes, metric, [dot for dot in picture.dots if dot.metric == metric], rows)
        axes.tick_params(labelleft=k == 0)
    return figure


def _panel(axes: Axes, metric: str, dots: list[Dot], rows: list[str]) -> None:
    place = {row: k for k, row in enumerate(rows)}
    y = np.array([place[dot.row] for dot in dots])
    measured, published, low, high = (
        np.array([getattr(dot, name) for dot in dots]) for name in ("measured", "published", "low", "high")
    )
    axes.hlines(y, np.fmin(measured, published), np.fmax(measured, published), color=GRID, linewidth=3.5, zorder=1)
    axes.hlines(y, low, high, color=MEASURED, linewidth=1.1, zorder=2)
    axes.plot(
        published,
        y,
        "D",
        color="white",
        markeredgecolor=PUBLISHED,
        markersize=5,
        markeredgewidth=1.3,
        zorder=3,
        label="published",
    )
    axes.plot(measured, y, "o", color=MEASURED, markersize=4.6, markeredgecolor="white", zorder=4, label="measured")
    axes.set_title(metric, fontsize=10, loc="left", color=INK)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    _scale(axes, np.concatenate((measured, published)))
    axes.tick_params(which="both", colors=QUIET, length=0)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.set_axisbelow(True)
    axes.grid(axis="x", color=GRID, linewidth=0.7)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _scale(axes: Axes, values: np.ndarray) -> None:
    known = values[np.isfinite(values)]
    if known.size and known.min() > 0 and known.max() > _WIDE * known.min():
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator())
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        return
    axes.xaxis.set_major_locator(MaxNLocator(4))
    if known.size and known.min() >= 0:
        axes.set_xlim(left=-0.03 * known.max() if known.max() > 0 else -0.03)
