"""The picture of a rebalancing: what each node has to carry now and afterwards, and the minimum yield on the way."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from dfrs.model.instance import Floats, Instance, Ints
from dfrs.report.saving import GRID, INK, QUIET, save

LIMIT = "#c0392b"
STAYS, MOVES, STARTS = "#c3cfda", "#2a7f9e", "#8ab17d"
NAMED = 24
"""Up to so many nodes have their names and yields in the picture."""


def draw_rebalancing(
    instance: Instance,
    present: Ints,
    target: Ints,
    on_the_way: Sequence[float | None],
    bound: float,
    title: str,
    path: Path,
) -> None:
    """Write the picture to `path` (its ending chooses the format).

    `present` and `target` (T,) are nodes, -1 in `present` for tasks that run nowhere yet; `on_the_way` the minimum
    yield now and after each step, None while requirements do not fit. Raises InputError where it cannot be written.
    """
    save(lambda: _figure(instance, present, target, on_the_way, bound, title), path)


def _figure(
    instance: Instance,
    present: Ints,
    target: Ints,
    on_the_way: Sequence[float | None],
    bound: float,
    title: str,
) -> Figure:
    dims = len(instance.resources)
    figure = plt.figure(figsize=(13.33, 2.4 + 1.7 * dims), layout="constrained")
    grid = figure.add_gridspec(dims, 3, width_ratios=[1.35, 1.35, 1.0])
    colours = np.where(present < 0, STARTS, np.where(present != target, MOVES, STAYS))
    for d in range(dims):
        pair: list[Axes] = []
        for column, (place, words) in enumerate(((present, "now"), (target, "afterwards"))):
            axes = figure.add_subplot(grid[d, column], sharey=pair[0] if pair else None)
            pair.append(axes)
            highest = _stack(axes, instance, place, d, colours)
            axes.set_ylim(0.0, max(1.15, 1.12 * highest, axes.get_ylim()[1] if column else 0.0))
            _decorate(axes, instance, place, d, bottom=d == dims - 1, left=column == 0)
            if d == 0:
                axes.set_title(words, loc="left", color=INK)
    legend = [(STAYS, "stays"), (MOVES, "moves"), *([(STARTS, "starts")] if (present < 0).any() else [])]
    figure.axes[0].legend(
        handles=[Patch(color=colour, label=label) for colour, label in legend],
        loc="upper right",
        frameon=False,
        fontsize=9,
        ncols=len(legend),
    )
    _way(figure.add_subplot(grid[:, 2]), on_the_way, bound)
    figure.suptitle(title, x=0.012, ha="left", fontsize=15, fontweight="bold")
    return figure


def _stack(axes: Axes, instance: Instance, place: Ints, d: int, colours: np.ndarray) -> float:
    """One resource: a bar a node, a segment a task, as high as the node's part that it needs; the highest bar."""
    running = np.flatnonzero(place >= 0)
    capacity = instance.capacity[place[running], d]
    need = instance.need[running, d]
    relative = np.divide(need, capacity, out=np.zeros_like(need), where=capacity > 0)
    order = np.lexsort((-relative, colours[running] != STAYS, place[running]))
    order = order[relative[order] > 0]
    height = np.zeros(len(instance.nodes))
    top = np.empty(len(order))
    for k, i in enumerate(order):
        n = place[running[i]]
        height[n] += relative[i]
        top[k] = height[n]
    node, bottom = place[running[order]].astype(float), top - relative[order]
    half = 0.42 if len(instance.nodes) <= 200 else 0.5
    corners = [np.stack([node + x, y], axis=1) for x, y in ((-half, bottom), (half, bottom), (half, top), (-half, top))]
    axes.add_collection(
        PolyCollection(
            cast("list[Floats]", list(np.stack(corners, axis=1))),
            facecolors=colours[running[order]].tolist(),
            edgecolors="white",
            linewidths=0.6 if len(instance.nodes) <= 200 else 0.0,
        )
    )
    return float(height.max(initial=0.0))


def _decorate(axes: Axes, instance: Instance, place: Ints, d: int, *, bottom: bool, left: bool) -> None:
    nodes = len(instance.nodes)
    axes.axhline(1.0, color=LIMIT, linewidth=1.2)
    axes.set_xlim(-0.8, nodes - 0.2)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    axes.set_xticks(range(nodes) if nodes <= NAMED else [])
    if nodes <= NAMED and bottom:
        axes.set_xticklabels(instance.nodes, rotation=0 if nodes <= 6 else 60, fontsize=8)
    else:
        axes.set_xticklabels([])
    if bottom and nodes > NAMED:
        axes.set_xlabel(f"{nodes} nodes", color=QUIET)
    axes.tick_params(colors=QUIET, length=0, labelleft=left)
    resource = instance.resources[d]
    if left:
        axes.set_ylabel(f"{resource.name}\n({resource.kind})", fontsize=10)
    if resource.kind == "fluid" and nodes <= NAMED:
        _name_yields(axes, instance, place, d)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=GRID)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _name_yields(axes: Axes, instance: Instance, place: Ints, d: int) -> None:
    """The yield of each node that has less than its tasks need, over its bar."""
    running = place >= 0
    count = len(instance.nodes)
    base = np.bincount(place[running], instance.base[running, d], count)
    slope = np.bincount(place[running], instance.slope[running, d], count)
    for n in np.flatnonzero(base + slope > instance.capacity[:, d]):
        value = (instance.capacity[n, d] - base[n]) / slope[n] if slope[n] > 0 else 0.0
        height = (base[n] + slope[n]) / instance.capacity[n, d]
        axes.text(float(n), height, f"{max(0.0, value):.2f}", ha="center", va="bottom", fontsize=8, color=LIMIT)


def _way(axes: Axes, on_the_way: Sequence[float | None], bound: float) -> None:
    values = [np.nan if value is None else value for value in on_the_way]
    steps = np.arange(len(values))
    axes.step(steps, values, where="post", color="#1d4e89", linewidth=2.0)
    if np.isfinite(values).any():
        last = int(np.flatnonzero(np.isfinite(values))[-1])
        axes.plot(last, values[last], "o", color="#1d4e89")
    over = [k for k, value in enumerate(on_the_way) if value is None]
    if over:
        axes.plot(over, np.zeros(len(over)), "x", color=LIMIT, label="requirements do not fit")
        axes.legend(loc="lower right", frameon=False, fontsize=9)
    axes.axhline(bound, color=LIMIT, linewidth=1.2, linestyle=(0, (4, 3)))
    axes.text(0.0, bound + 0.012, f"no more than {bound:.3f} within the budget", color=LIMIT, va="bottom", fontsize=9)
    axes.set_ylim(-0.02, 1.08)
    axes.set_xlim(-0.3, max(1.0, len(values) - 0.7))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title("minimum yield", loc="left", color=INK)
    axes.set_xlabel("moves done", color=QUIET)
    axes.yaxis.tick_right()
    axes.tick_params(colors=QUIET, length=0)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=GRID)
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
