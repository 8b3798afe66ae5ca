"""The picture of an allocation: each node's resources as stacked shares, and every service's yield, sorted."""

from pathlib import Path
from typing import cast

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from dfrs.model.allocation import Allocation
from dfrs.model.instance import Floats, Instance
from dfrs.report.saving import GRID, INK, QUIET, save

LIMIT = "#c0392b"
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
        figure.axes[dims - 1].set_xlabel(f"{len(instance.nodes)} nodes", color=QUIET)
    side = figure.add_subplot(grid[:, 1])
    _yields(side, instance, allocation, bound, norm)
    figure.suptitle(title, x=0.012, ha="left", fontsize=15, fontweight="bold")
    return figure


def _stack(axes: Axes, instance: Instance, allocation: Allocation, d: int, norm: Normalize) -> None:
    """One resource: a bar a node, a segment a task, coloured by its service's yield, in fractions of the node."""
    share = allocation.shares(instance)[:, d]
    capacity = instance.capacity[allocation.place, d]
    relative = np.divide(share, capacity, out=np.zeros_like(share), where=capacity > 0)
    scaled = allocation.scaled_yields[instance.service_of]
    order = np.lexsort((np.arange(len(share)), scaled, allocation.place))
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
    axes.axhline(1.0, color=LIMIT, linewidth=1.2)
    axes.set_xlim(-0.8, len(instance.nodes) - 0.2)
    axes.set_ylim(0.0, 1.12)
    axes.set_yticks([0, 0.5, 1.0], ["0", "50 %", "100 %"])
    resource = instance.resources[d]
    axes.set_ylabel(f"{resource.name}\n({resource.kind})", fontsize=10)
    axes.tick_params(colors=QUIET, length=0)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=GRID)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _yields(axes: Axes, instance: Instance, allocation: Allocation, bound: float, norm: Normalize) -> None:
    scaled = np.sort(allocation.scaled_yields)
    position = (np.arange(len(scaled)) + 0.5) / len(scaled) * 100.0
    axes.bar(position, scaled, width=100.0 / len(scaled), color=YIELD_COLOURS(norm(scaled)), linewidth=0)
    axes.axhline(bound, color=LIMIT, linewidth=1.2, linestyle=(0, (4, 3)))
    low = allocation.minimum_yield
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
        f"minimum yield {low:.3f}   average {allocation.average_yield:.3f}\n"
        f"utilization {100 * allocation.utilization(instance):.1f} % of fluid resources",
        fontsize=10,
        loc="left",
        color=INK,
    )
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("% of services, least happy first", color=QUIET)
    axes.yaxis.set_label_position("right")
    axes.yaxis.tick_right()
    axes.set_ylabel("yield (scaled)", color=QUIET)
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
