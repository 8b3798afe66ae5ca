"""The Gantt diagram of a run whose jobs share nodes: each node is a band as high as its CPU, filled by who has it.

A job takes need * yield of the band, so a fraction of CPU is a fraction of height; paused jobs take nothing, and jobs
in their penalty are hatched: they hold their share and make no progress. The picture is filled pixel by pixel from the
log, so its cost depends on its size and not on the number of changes.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dfrs.model.decisions import RUNNING
from dfrs.model.errors import InputError
from dfrs.model.instance import Bools, Ints
from dfrs.model.run import Action, Run
from dfrs.report.clock import clock, time_labels, time_ticks
from dfrs.report.saving import GRID, INK, QUIET, save
from dfrs.runs.metrics.intervals import job_intervals

JOB_COLOURS = (
    "#4477aa",
    "#ddcc77",
    "#cc6677",
    "#44aa99",
    "#aa4499",
    "#88ccee",
    "#999933",
    "#7a6fc0",
    "#ee8866",
    "#228b57",
    "#eeb4c8",
    "#8c5a3c",
    "#5fb3d9",
    "#b8c468",
    "#992f5c",
)
"""Told apart by hue and by lightness, also by the colour-blind; given to jobs in the order of their first start."""

DEFAULT_WINDOW_S = 6 * 3600.0
_DPI = 160
_WIDTH_IN, _LEFT_IN, _RIGHT_IN = 13.33, 0.75, 0.4
_MOST_NODES = 256
_SEPARATED = 8
"""Bands at least this high, in pixels, have a line between them."""
_HATCHED = 24
"""Bands at least this high have room for hatches; what is hatched there is pale in lower ones."""
_IDLE, _HATCH, _DOWN = "#f1f3f5", "#ffffff", "#c9ced4"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What part of a run is drawn: `from_s` to `to_s`, nodes 0 to `nodes` (exclusive)."""

    from_s: float
    to_s: float
    nodes: int


def window_of(run: Run, from_s: float | None = None, to_s: float | None = None, nodes: int | None = None) -> Window:
    """The asked part, or the busiest six hours of what is left open. Raises InputError for an empty part."""
    begin_s = float(run.workload.submit_s[0]) if len(run.workload) else 0.0
    nodes = min(len(run.capacity), _MOST_NODES if nodes is None else nodes)
    if from_s is not None and to_s is None:
        to_s = min(from_s + DEFAULT_WINDOW_S, max(run.end_s, from_s + 1.0))
    elif to_s is not None and from_s is None:
        from_s = max(to_s - DEFAULT_WINDOW_S, min(begin_s, to_s - 1.0))
    elif from_s is None or to_s is None:
        from_s, to_s = busiest(run, DEFAULT_WINDOW_S)
    if not from_s < to_s:
        raise InputError(f"--from {from_s:g} --to {to_s:g}: the end must be after the beginning")
    if to_s <= begin_s or from_s >= run.end_s:
        raise InputError(
            f"--from {from_s:g} --to {to_s:g}: outside of the run, which lasts from {begin_s:g} to {run.end_s:g}"
        )
    return Window(from_s=from_s, to_s=to_s, nodes=nodes)


def busiest(run: Run, length_s: float) -> tuple[float, float]:
    """The part of that length in which most jobs were placed, paused or done, the first where none was.

    The whole run where it is shorter.
    """
    begin_s = float(run.workload.submit_s[0]) if len(run.workload) else 0.0
    if run.end_s - begin_s <= length_s * 1.25:
        return begin_s, max(run.end_s, begin_s + 1.0)
    times = run.events.time_s[(run.events.action != Action.SHARE) & (run.events.job >= 0)]
    if not len(times):
        return begin_s, begin_s + length_s
    within = np.searchsorted(times, times + length_s) - np.arange(len(times))
    start_s = min(float(times[int(np.argmax(within))]), run.end_s - length_s)
    return start_s, start_s + length_s


def colour_index(run: Run) -> Ints:
    """(J,) index into JOB_COLOURS: jobs that start one after the other differ."""
    started = np.argsort(np.nan_to_num(run.start_s, nan=np.inf), kind="stable")
    rank = np.empty(len(started), np.int64)
    rank[started] = np.arange(len(started))
    return rank % len(JOB_COLOURS)


def fill(run: Run, window: Window, columns: int, band: int) -> tuple[Ints, Bools]:
    """Which job each pixel shows, and whether it is in its penalty: (nodes * band, columns), -1 where nobody is.

    Column c shows the instant of its centre. Within a band, jobs are stacked from below in order of submission, each
    as high as its share of the node's CPU.
    """
    spans = job_intervals(run)
    spans = spans.select((spans.state == RUNNING) & (spans.end_s > window.from_s) & (spans.begin_s < window.to_s))
    scale = columns / (window.to_s - window.from_s)
    low, high, ready = (
        np.ceil((at_s - window.from_s) * scale - 0.5).clip(0, columns).astype(np.int64)
        for at_s in (spans.begin_s, spans.end_s, spans.ready_s)
    )
    shown = np.flatnonzero(high > low)
    slots, slot_node = _slots(run, spans.placement[shown])
    here = slot_node < window.nodes
    span, node = shown[slots[here]], slot_node[here]
    # One entry for each task on screen and each column that it is in.
    entry, column = _ranges(low[span], high[span])
    span, node = span[entry], node[entry]
    order = np.lexsort((spans.job[span], node, column))
    span, node, column = span[order], node[order], column[order]
    cpu = np.where(run.capacity[:, 0] > 0, run.capacity[:, 0], 1.0)
    share = run.workload.need[spans.job[span]] * spans.yield_[span] / cpu[node]
    top = np.cumsum(share)
    stack = np.flatnonzero(np.diff(column * window.nodes + node, prepend=-1))
    below = np.repeat(top[stack] - share[stack], np.diff(stack, append=len(top)))
    usable = band - 1 if band >= _SEPARATED else band
    upper = np.rint((top - below) * usable).clip(0, usable).astype(np.int64)
    lower = np.rint((top - share - below) * usable).clip(0, usable).astype(np.int64)
    pixel, height = _ranges(lower, upper)
    row = node[pixel] * band + band - 1 - height
    jobs = np.full((window.nodes * band, columns), -1, np.int64)
    penalty = np.zeros(jobs.shape, np.bool_)
    jobs[row, column[pixel]] = spans.job[span[pixel]]
    penalty[row, column[pixel]] = column[pixel] < ready[span[pixel]]
    return jobs, penalty


def _slots(run: Run, placed: Ints) -> tuple[Ints, Ints]:
    """For log rows: which of them each task belongs to, and the task's node."""
    owner, position = _ranges(run.events.first[placed], run.events.first[placed + 1])
    return owner, run.events.nodes[position]


def _ranges(low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """All integers of all ranges `low` to `high` (exclusive), each with the index of its range."""
    lengths = np.maximum(high - low, 0)
    owner = np.repeat(np.arange(len(low)), lengths)
    before = np.cumsum(lengths) - lengths
    return owner, np.arange(int(lengths.sum())) - before[owner] + low[owner]


def paint(run: Run, jobs: Ints, penalty: Bools, window: Window, band: int) -> NDArray[np.uint8]:
    """The picture of `fill`'s answer: (rows, columns, 3)."""
    colours = np.array([to_rgb(c) for c in (*JOB_COLOURS, _IDLE)])
    index = np.append(colour_index(run), len(JOB_COLOURS))
    image = colours[index[jobs]]
    stripe = np.add.outer(np.arange(jobs.shape[0]), np.arange(jobs.shape[1])) % 6 < 3
    light = penalty & stripe if band >= _HATCHED else penalty
    pale = 0.75 if band >= _HATCHED else 0.55
    image[light] = (1 - pale) * image[light] + pale * np.array(to_rgb(_HATCH))
    for node, begin_s, end_s in _outages(run):
        if node < window.nodes:
            scale = jobs.shape[1] / (window.to_s - window.from_s)
            low, high = (int(np.clip((t - window.from_s) * scale, 0, jobs.shape[1])) for t in (begin_s, end_s))
            image[node * band : (node + 1) * band, low:high] = to_rgb(_DOWN)
    if band >= _SEPARATED:
        image[::band] = 1.0
    return np.rint(image * 255).astype(np.uint8)


def _outages(run: Run) -> list[tuple[int, float, float]]:
    """Node, beginning and end of each time that a node was down."""
    down: dict[int, float] = {}
    outages: list[tuple[int, float, float]] = []
    for row in np.flatnonzero(run.events.job < 0).tolist():
        for node in run.events.nodes_of(row).tolist():
            if run.events.action[row] == Action.DOWN:
                down.setdefault(node, float(run.events.time_s[row]))
            elif run.events.action[row] == Action.UP and node in down:
                outages.append((node, down.pop(node), float(run.events.time_s[row])))
    return outages + [(node, begin_s, run.end_s) for node, begin_s in sorted(down.items())]


def draw_gantt(
    run: Run, path: Path, from_s: float | None = None, to_s: float | None = None, nodes: int | None = None
) -> None:
    """Write the diagram to `path`. Raises InputError where that cannot be written, or for an empty part."""
    window = window_of(run, from_s, to_s, nodes)
    save(lambda: _figure(run, window), path, dpi=_DPI)


def _figure(run: Run, window: Window) -> Figure:
    band = int(np.clip(1800 // window.nodes, 3, 56))
    columns = int((_WIDTH_IN - _LEFT_IN - _RIGHT_IN) * _DPI)
    bands_in = window.nodes * band / _DPI
    below_in, above_in = 0.75, 0.85
    height_in = bands_in + below_in + above_in
    figure = plt.figure(figsize=(_WIDTH_IN, height_in))
    # Placed to the pixel, so that the image is shown as it was filled.
    axes = figure.add_axes(
        (_LEFT_IN / _WIDTH_IN, below_in / height_in, columns / _DPI / _WIDTH_IN, bands_in / height_in)
    )
    jobs, penalty = fill(run, window, columns, band)
    image = paint(run, jobs, penalty, window, band)
    axes.imshow(image, extent=(window.from_s, window.to_s, window.nodes, 0), aspect="auto", interpolation="nearest")
    _label(axes, run, jobs, window, band)
    _dress(axes, window)
    part = f"{clock(window.from_s)} to {clock(window.to_s)}"
    nodes = (
        f"{window.nodes} nodes"
        if window.nodes == len(run.capacity)
        else (f"nodes 0 to {window.nodes - 1} of {len(run.capacity)}")
    )
    figure.text(
        0.012,
        1 - 0.12 / height_in,
        f"{run.policy} on {run.workload.name or 'the workload'}",
        fontsize=15,
        fontweight="bold",
        va="top",
    )
    figure.text(
        0.012,
        1 - 0.47 / height_in,
        f"{nodes}, {part} of {clock(run.end_s)}. A band is a node; a job is as high as its share of the CPU; "
        f"{'hatched' if band >= _HATCHED else 'pale'}: in its penalty, no progress.",
        fontsize=9,
        color=QUIET,
        va="top",
    )
    return figure


def _dress(axes: Axes, window: Window) -> None:
    ticks = time_ticks(window.from_s, window.to_s)
    axes.set_xticks(ticks, time_labels(ticks))
    step = next(s for s in (1, 2, 4, 8, 16, 32, 64) if window.nodes / s <= 17 or s == 64)
    axes.set_yticks(np.arange(0, window.nodes, step) + 0.5, [str(n) for n in range(0, window.nodes, step)])
    axes.set_xlabel("time since the beginning of the workload", color=QUIET)
    axes.set_ylabel("node", color=QUIET)
    axes.tick_params(colors=QUIET, length=0)
    axes.grid(axis="x", color=GRID, linewidth=0.6, alpha=0.7)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)


def _label(axes: Axes, run: Run, jobs: Ints, window: Window, band: int) -> None:
    """Write each job's id once, where it is widest and there is room for the letters."""
    size_pt = 6.5
    letter_px, high_px = (f * size_pt * _DPI / 72 for f in (0.62, 0.95))
    best: dict[int, tuple[int, float, int]] = {}
    for node in range(window.nodes if band > high_px else 0):
        rows = jobs[node * band : (node + 1) * band]
        for low, high in pairwise(np.flatnonzero((np.diff(rows, axis=1, prepend=-2) != 0).any(axis=0)).tolist()):
            layers = rows[:, low]
            for job in set(layers.tolist()) - {-1}:
                held = np.flatnonzero(layers == job)
                if len(held) >= high_px and high - low > best.get(job, (0, 0.0, 0))[0]:
                    best[job] = (high - low, node + (float(held.mean()) + 0.5) / band, low)
    scale_s = (window.to_s - window.from_s) / jobs.shape[1]
    index = colour_index(run)
    for job, (width, y, low) in sorted(best.items()):
        text = str(run.workload.job_id[job])
        if width < letter_px * (len(text) + 1.2):
            continue
        dark = np.dot(to_rgb(JOB_COLOURS[index[job]]), (0.299, 0.587, 0.114)) > 0.55
        axes.text(
            window.from_s + (low + width / 2) * scale_s,
            y,
            text,
            fontsize=size_pt,
            ha="center",
            va="center_baseline",
            color=INK if dark else "white",
            clip_on=True,
        )
