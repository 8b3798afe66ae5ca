"""Gantt diagrams of runs below each other: nodes by partition and machine, time, and who has them.

It is the picture of [Atif2011] Figure 9, turned: one panel a run, a job the same colour in all of them. Jobs that were
moved in any run have strong colours and their names; where a job moves, a line leads from its old nodes to its new
ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke

from dfrs.model.decisions import RUNNING
from dfrs.model.errors import InputError
from dfrs.model.hardware import Hardware
from dfrs.model.instance import Floats
from dfrs.model.run import Action, Run
from dfrs.report.clock import time_ticks
from dfrs.report.gantt import JOB_COLOURS
from dfrs.report.saving import GRID, INK, QUIET, save
from dfrs.runs.metrics.intervals import Intervals, job_intervals

FIRST_S = 2_000.0
"""What [Atif2011] Figure 9 shows."""
STRONG = ("#d1495b", "#2e8b57", "#3a6ea5", "#e08e1b", "#7d4ea8", "#1f9e9e", "#b8488f", "#8a6a1f")
"""Of jobs that moved."""
_DPI = 160
_WIDTH_IN, _LEFT_IN, _RIGHT_IN, _ABOVE_IN, _BELOW_IN, _TITLE_IN = 13.33, 1.15, 0.25, 0.72, 0.65, 0.42
_BAND_IN, _MACHINE_GAP, _PARTITION_GAP = 0.155, 0.18, 0.75
"""Height of a node in inches, gaps in heights of a node."""
_PALE = 0.42
"""How much white is in the colours of jobs that never moved."""
_NAME_PT, _SMALL_PT = 7.5, 6.0
_LETTER = 0.6
"""Width of a letter as a share of its height."""
_BACKGROUND = "#f3f5f7"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GanttPanel:
    """A run and what stands above it."""

    label: str
    run: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """A job on nodes of one block without a gap: `low` to `high` (exclusive) in node numbers."""

    job: int
    low: int
    high: int
    begin_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True, eq=False)
class GanttLayout:
    """Where nodes are drawn: machines and partitions have gaps between them."""

    hardware: Hardware

    @cached_property
    def top(self) -> Floats:
        """(N,) upper edge of each node, in heights of a node."""
        hardware = self.hardware
        new_machine = np.diff(hardware.machine, prepend=hardware.machine[0]) != 0
        new_partition = np.diff(hardware.partition, prepend=hardware.partition[0]) != 0
        gaps = np.where(new_partition, _PARTITION_GAP, np.where(new_machine, _MACHINE_GAP, 0.0))
        return np.arange(float(hardware.nodes)) + np.cumsum(gaps)

    @property
    def height(self) -> float:
        """Of a panel, in heights of a node."""
        return float(self.top[-1]) + 1.0

    def blocks(self, nodes: Sequence[int]) -> list[tuple[int, int]]:
        """Runs of neighbouring nodes of one machine, `low` to `high` (exclusive)."""
        found: list[tuple[int, int]] = []
        for node in sorted(set(nodes)):
            if found and found[-1][1] == node and self.hardware.machine[node] == self.hardware.machine[node - 1]:
                found[-1] = (found[-1][0], node + 1)
            else:
                found.append((node, node + 1))
        return found


def moved_jobs(runs: Sequence[Run]) -> list[int]:
    """Jobs that were migrated in any of these runs, in the order of their first migration."""
    found: dict[int, None] = {}
    for run in runs:
        found |= dict.fromkeys(run.events.job[run.events.action == Action.MIGRATE].tolist())
    return list(found)


def stays(run: Run, layout: GanttLayout, from_s: float, to_s: float) -> list[Stay]:
    """Who is on which nodes when, in the part from `from_s` to `to_s`; changes of yield do not cut a stay."""
    spans = job_intervals(run)
    spans = spans.select((spans.state == RUNNING) & (spans.end_s > from_s) & (spans.begin_s < to_s))
    found: list[Stay] = []
    for first, last in _joined(spans):
        nodes = run.events.nodes_of(int(spans.placement[first])).tolist()
        begin_s, end_s = max(float(spans.begin_s[first]), from_s), min(float(spans.end_s[last]), to_s)
        job = int(spans.job[first])
        found += [Stay(job=job, low=low, high=high, begin_s=begin_s, end_s=end_s) for low, high in layout.blocks(nodes)]
    return found


def _joined(spans: Intervals) -> list[tuple[int, int]]:
    """First and last index of spans that are of one placement and follow each other."""
    found: list[tuple[int, int]] = []
    for k in range(len(spans.job)):
        if k and spans.placement[k] == spans.placement[k - 1] and spans.begin_s[k] == spans.end_s[k - 1]:
            found[-1] = (found[-1][0], k)
        else:
            found.append((k, k))
    return found


def colours(jobs: int, moved: Sequence[int]) -> list[tuple[float, float, float]]:
    """(J,) one colour a job: strong ones for those that moved, in their order, pale ones for the others."""
    found = [_paled(JOB_COLOURS[job % len(JOB_COLOURS)]) for job in range(jobs)]
    for k, job in enumerate(moved):
        found[job] = to_rgb(STRONG[k % len(STRONG)])
    return found


def _paled(colour: str) -> tuple[float, float, float]:
    red, green, blue = (part + (1.0 - part) * _PALE for part in to_rgb(colour))
    return red, green, blue


def draw_partitions(
    panels: Sequence[GanttPanel],
    hardware: Hardware,
    names: Sequence[str],
    path: Path,
    *,
    from_s: float = 0.0,
    to_s: float = FIRST_S,
    title: str = "",
) -> None:
    """Write the diagram of runs of one workload; `names` (J,) of its jobs. Raises InputError where it cannot be.

    `to_s` may be later than the ends: what is drawn ends with the last run.
    """
    if not panels or any(len(panel.run.capacity) != hardware.nodes for panel in panels):
        raise InputError(f"{path}: cannot draw: there must be runs on the {hardware.nodes} nodes of the farm")
    end_s = max(panel.run.end_s for panel in panels)
    until_s = min(to_s, end_s)
    if not from_s < until_s:
        raise InputError(f"{path}: from {from_s:g} to {to_s:g} s: outside of the runs, which end at {end_s:g} s")
    save(lambda: _figure(panels, hardware, names, (from_s, until_s), title), path, dpi=_DPI)


def _figure(
    panels: Sequence[GanttPanel], hardware: Hardware, names: Sequence[str], part: tuple[float, float], title: str
) -> Figure:
    layout = GanttLayout(hardware=hardware)
    panel_in = layout.height * _BAND_IN
    height_in = _ABOVE_IN + len(panels) * (panel_in + _TITLE_IN) + _BELOW_IN
    figure = plt.figure(figsize=(_WIDTH_IN, height_in))
    moved = moved_jobs([panel.run for panel in panels])
    shades = colours(len(names), moved)
    for k, panel in enumerate(panels):
        below_in = _BELOW_IN + (len(panels) - 1 - k) * (panel_in + _TITLE_IN)
        axes = figure.add_axes(
            (_LEFT_IN / _WIDTH_IN, below_in / height_in, 1 - (_LEFT_IN + _RIGHT_IN) / _WIDTH_IN, panel_in / height_in)
        )
        _dress(axes, layout, part, last=k == len(panels) - 1)
        _fill(axes, panel.run, layout, names, part, shades, moved)
        figure.text(
            _LEFT_IN / _WIDTH_IN,
            (below_in + panel_in + 0.08) / height_in,
            panel.label,
            fontsize=10.5,
            fontweight="bold",
            va="bottom",
        )
    figure.text(
        0.012, 1 - 0.13 / height_in, title or f"Jobs on {hardware.name}", fontsize=15, fontweight="bold", va="top"
    )
    figure.text(
        0.012,
        1 - 0.47 / height_in,
        "A band is a node, a block a machine. A job has the same colour in every panel; strong colours: jobs that were "
        "moved, with a line from their old nodes to their new ones.",
        fontsize=9,
        color=QUIET,
        va="top",
    )
    return figure


def _dress(axes: Axes, layout: GanttLayout, part: tuple[float, float], *, last: bool) -> None:
    hardware, top = layout.hardware, layout.top
    axes.set_xlim(*part)
    axes.set_ylim(layout.height, 0.0)
    for machine in np.unique(hardware.machine):
        own = top[hardware.machine == machine]
        axes.add_patch(
            Rectangle((part[0], float(own[0])), part[1] - part[0], len(own), facecolor=_BACKGROUND, linewidth=0)
        )
    middles: list[float] = []
    for index in range(len(hardware.partitions)):
        own = top[hardware.partition == index]
        middles.append(float(own[0] + own[-1] + 1.0) / 2.0)
    axes.set_yticks(middles, [_partition_text(hardware, index) for index in range(len(hardware.partitions))])
    ticks = time_ticks(*part)
    axes.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks] if last else [""] * len(ticks))
    if last:
        axes.set_xlabel("seconds", color=QUIET)
    axes.tick_params(colors=QUIET, length=0, labelsize=9)
    axes.grid(axis="x", color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)


def _partition_text(hardware: Hardware, index: int) -> str:
    partition = hardware.partitions[index]
    return f"{partition.name}\n{partition.machines} machines\nof {partition.cores}"


def _fill(
    axes: Axes,
    run: Run,
    layout: GanttLayout,
    names: Sequence[str],
    part: tuple[float, float],
    shades: list[tuple[float, float, float]],
    moved: Sequence[int],
) -> None:
    found = stays(run, layout, *part)
    top, strong = layout.top, set(moved)
    for stay in found:
        y, height = float(top[stay.low]), float(stay.high - stay.low)
        axes.add_patch(
            Rectangle(
                (stay.begin_s, y),
                stay.end_s - stay.begin_s,
                height,
                facecolor=shades[stay.job],
                edgecolor="white",
                linewidth=0.5,
                zorder=3 if stay.job in strong else 2,
            )
        )
    scale = (_WIDTH_IN - _LEFT_IN - _RIGHT_IN) / (part[1] - part[0])
    _lines(axes, found, top, shades, strong)
    _labels(axes, found, top, names, scale, shades, strong)


def _lines(
    axes: Axes, found: list[Stay], top: Floats, shades: list[tuple[float, float, float]], strong: set[int]
) -> None:
    """From where a job leaves to where it comes."""
    for job in strong:
        own = [stay for stay in found if stay.job == job]
        for at_s in sorted({stay.begin_s for stay in own}):
            left = [stay for stay in own if stay.end_s == at_s]
            come = [stay for stay in own if stay.begin_s == at_s]
            if left and come:
                ends = [
                    np.mean([(top[stay.low] + top[stay.high - 1] + 1) / 2 for stay in side]) for side in (left, come)
                ]
                axes.plot(
                    [at_s, at_s],
                    ends,
                    color=shades[job],
                    linewidth=1.8,
                    zorder=5,
                    solid_capstyle="round",
                    marker="o",
                    markersize=3.2,
                    path_effects=[withStroke(linewidth=3.2, foreground="white")],
                )


def _labels(
    axes: Axes,
    found: list[Stay],
    top: Floats,
    names: Sequence[str],
    scale: float,
    shades: list[tuple[float, float, float]],
    strong: set[int],
) -> None:
    """The name of each job once a placement, in its widest block, where there is room for the letters.

    One that moved has its name at least once, beside it where it must be.
    """
    best: dict[tuple[int, float], Stay] = {}
    for stay in found:
        key = (stay.job, stay.begin_s)
        if key not in best or stay.high - stay.low > best[key].high - best[key].low:
            best[key] = stay
    named = {stay.job for stay in best.values() if _fits(stay, names, scale, strong)}
    for (job, _), stay in sorted(best.items()):
        fits = _fits(stay, names, scale, strong)
        if not fits and (job not in strong or job in named):
            continue
        named.add(job)
        middle = float(top[stay.low] + top[stay.high - 1] + 1) / 2
        dark = float(np.dot(shades[job], (0.299, 0.587, 0.114))) > 0.55
        inside = INK if dark and job not in strong else "white"
        axes.text(
            (stay.begin_s + stay.end_s) / 2 if fits else stay.begin_s,
            middle,
            names[job],
            fontsize=_NAME_PT if job in strong else _SMALL_PT,
            ha="center" if fits else "left",
            va="center_baseline",
            zorder=6,
            clip_on=True,
            color=inside if fits else INK,
            fontweight="bold" if job in strong else "normal",
            path_effects=[] if fits else [withStroke(linewidth=2.0, foreground="white")],
        )


def _fits(stay: Stay, names: Sequence[str], scale: float, strong: set[int]) -> bool:
    """Whether the letters have room in the block."""
    size = _NAME_PT if stay.job in strong else _SMALL_PT
    wide = (stay.end_s - stay.begin_s) * scale > (len(names[stay.job]) + 1) * size * _LETTER / 72
    return wide and (stay.high - stay.low) * _BAND_IN > size * 1.05 / 72
