"""The picture of an allocation: each node's resources as stacked shares, and every service's yield, sorted.

Nodes are as high as they are large: of each resource, the largest node is 100 %.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dfrs.model.allocation import Allocation
from dfrs.model.instance import Floats, Instance
from dfrs.report.saving import GRID, INK, QUIET, save

LIMIT = "#c0392b"
MOST_NAMED, MOST_TOLD = 24, 12
"""Nodes whose names there is room for, and nodes so wide that there is room for services' names on them."""
NAME_IN, LETTER_IN = 9.0, 0.09
"""Width of all nodes together, and of a letter, in inches."""
LOWEST = 0.08
"""A segment at least so high, as a part of the largest node, has its service's name on it."""
DARK = 0.45
"""Light letters stand on colours darker than that."""
YIELD_COLOURS = LinearSegmentedColormap.from_list("yield", ["#d1495b", "#edae49", "#8ab17d", "#2a7f9e", "#1d4e89"])


def draw_allocation(instance: Instance, allocation: Allocation, bound: float, title: str, path: Path) -> None:
    """Write the picture to `path` (its ending chooses the format). Raises InputError where that cannot be written."""
    save(lambda: _figure(instance, allocation, bound, title), path)


def _figure(instance: Instance, allocation: Allocation, bound: float, title: str) -> Figure:
    dims = len(instance.resources)
    figure = plt.figure(figsize=(13.33, 2.6 + 1.55 * dims), layout="constrained")
    grid = figure.add_gridspec(dims, 2, width_ratios=[2.7, 1.0])
    norm = Normalize(0.0, 1.0)
    shared = None
    for d in range(dims):
        axes = figure.add_subplot(grid[d, 0], sharex=shared)
        shared = shared or axes
        _stack(axes, instance, allocation, d, norm)
        axes.tick_params(labelbottom=d == dims - 1)
    if shared is not None:
        _name_nodes(figure.axes[dims - 1], instance.nodes)
    side = figure.add_subplot(grid[:, 1])
    _yields(side, instance, allocation, bound, norm)
    figure.suptitle(title, x=0.012, ha="left", fontsize=15, fontweight="bold")
    return figure


def _stack(axes: Axes, instance: Instance, allocation: Allocation, d: int, norm: Normalize) -> None:
    """One resource: a bar a node, a segment a task, coloured by its service's yield."""
    largest = float(instance.capacity[:, d].max()) or 1.0
    limits = instance.capacity[:, d] / largest
    relative = allocation.shares(instance)[:, d] / largest
    scaled = allocation.scaled_yields[instance.service_of]
    order = np.lexsort((np.arange(len(relative)), scaled, allocation.place))
    order = order[relative[order] > 0]
    top = np.empty(len(order))
    height = np.zeros(len(instance.nodes))
    for k, i in enumerate(order):
        height[allocation.place[i]] += relative[i]
        top[k] = height[allocation.place[i]]
    node = allocation.place[order].astype(float)
    bottom = top - relative[order]
    half = 0.42 if len(instance.nodes) <= 200 else 0.5
    corners = np.stack(
        [
            np.stack([node - half, bottom], axis=1),
            np.stack([node + half, bottom], axis=1),
            np.stack([node + half, top], axis=1),
            np.stack([node - half, top], axis=1),
        ],
        axis=1,
    )
    edge = 0.6 if len(instance.nodes) <= 200 else 0.0
    axes.add_collection(
        PolyCollection(
            cast("list[Floats]", list(corners)),
            facecolors=YIELD_COLOURS(norm(scaled[order])),
            edgecolors="white",
            linewidths=edge,
        )
    )
    if len(instance.nodes) <= MOST_TOLD:
        most = int(NAME_IN / len(instance.nodes) / LETTER_IN)
        for k, i in enumerate(order):
            if relative[i] >= LOWEST:
                name = shortened(instance.services[instance.service_of[i]], most)
                _tell(axes, name, (node[k], (bottom[k] + top[k]) / 2), np.array(YIELD_COLOURS(norm(scaled[i]))))
    numbers = np.arange(len(instance.nodes))
    axes.hlines(limits, numbers - 0.5, numbers + 0.5, color=LIMIT, linewidth=1.2)
    axes.set_xlim(-0.8, len(instance.nodes) - 0.2)
    axes.set_ylim(0.0, 1.12)
    axes.set_yticks([0, 0.5, 1.0], ["0", "50 %", "100 %"])
    resource = instance.resources[d]
    of = "" if limits.min() == 1.0 else "\nof the largest node"
    axes.set_ylabel(f"{resource.name}\n({resource.kind}){of}", fontsize=10)
    axes.tick_params(colors=QUIET, length=0)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=GRID)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _tell(axes: Axes, name: str, where: tuple[float, float], colour: Floats) -> None:
    """A service's name on the middle of one of its segments, which has that colour."""
    red, green, blue, _ = colour
    light = 0.299 * red + 0.587 * green + 0.114 * blue < DARK
    axes.text(*where, name, ha="center", va="center", fontsize=7, color="white" if light else INK, parse_math=False)


def _name_nodes(axes: Axes, names: Sequence[str]) -> None:
    """Below the axis, or how many there are."""
    if len(names) > MOST_NAMED:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel(f"{len(names)} nodes", color=QUIET)
        return
    most = int(NAME_IN / len(names) / LETTER_IN)
    shown = [shortened(name, max(most, 12)) for name in names]
    aslant = max(map(len, shown)) > most
    turned, side = (30, "right") if aslant else (0, "center")
    axes.set_xticks(range(len(names)), shown, rotation=turned, ha=side, parse_math=False)


def shortened(name: str, most: int) -> str:
    """With an ellipsis in its middle, where it has more letters than that; both of its ends tell it from others."""
    if len(name) <= most:
        return name
    end = (max(most, 2) - 1) // 2
    return f"{name[: max(most, 2) - 1 - end]}…{name[len(name) - end :] if end else ''}"


def _yields(axes: Axes, instance: Instance, allocation: Allocation, bound: float, norm: Normalize) -> None:
    scaled = np.sort(allocation.scaled_yields)
    position = (np.arange(len(scaled)) + 0.5) / len(scaled) * 100.0
    axes.bar(position, scaled, width=100.0 / len(scaled), color=YIELD_COLOURS(norm(scaled)), linewidth=0)
    axes.axhline(bound, color=LIMIT, linewidth=1.2, linestyle=(0, (4, 3)))
    near_top = bound > 0.9
    axes.text(
        1.0,
        bound + (-0.012 if near_top else 0.012),
        f"no minimum above {bound:.3f}",
        color=LIMIT,
        va="top" if near_top else "bottom",
        fontsize=9,
    )
    axes.set_title(
        f"{_least(instance, allocation)}   average {allocation.average_yield:.3f}\n"
        f"utilization {100 * allocation.utilization(instance):.1f} % of fluid resources",
        fontsize=10,
        loc="left",
        color=INK,
    )
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("% of services, lowest yield first", color=QUIET)
    axes.yaxis.set_label_position("right")
    axes.yaxis.tick_right()
    apart = bool((instance.minimum_yield > 0.0).any())
    axes.set_ylabel("scaled yield: part of what is above a service's minimum" if apart else "yield", color=QUIET)
    axes.tick_params(colors=QUIET, length=0)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=GRID)
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    figure = axes.get_figure()
    if figure is not None:
        bar = figure.colorbar(
            ScalarMappable(norm=norm, cmap=YIELD_COLOURS),
            ax=axes,
            orientation="horizontal",
            pad=0.02,
            shrink=0.8,
        )
        bar.set_label("colour: the service's yield", color=QUIET, fontsize=9)
        bar.ax.tick_params(colors=QUIET, length=0, labelsize=8)
        cast("object", bar.outline).set_visible(False)  # type: ignore[attr-defined]


def _least(instance: Instance, allocation: Allocation) -> str:
    """The minimum yield in words; where services have minimum yields, scaled and as it is."""
    least = f"{allocation.minimum_yield:.3f}"
    if not (instance.minimum_yield > 0.0).any():
        return f"minimum yield {least}"
    return f"minimum yield {allocation.yields(instance).min():.3f}, scaled {least}"
