"""Pictures of a run over time and over its jobs: yields, utilisation, queues, stretches; and of several runs together.

A run has far more steps than a picture has columns: each curve is the mean over a column's time, and the band around it
shows the extremes within. Distributions of the stretch are drawn from above, as the share of jobs that fare worse, so
that the few worst, which are what counts ([Stillwell2010] section 5.1), are at the end of the curve and not lost in a
corner.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, PercentFormatter, StrMethodFormatter

from dfrs.model.instance import Floats, Ints
from dfrs.model.run import Action, Run
from dfrs.report.allocation import LIMIT
from dfrs.report.clock import clock, time_labels, time_ticks
from dfrs.report.curves import PALETTE
from dfrs.report.saving import GRID, INK, QUIET, save
from dfrs.runs.metrics.schedule import TAU_S, bounded_stretch, utilisation_timeline, yield_timeline

COLUMNS = 700
_BLUE, _RED, _GREEN, _AMBER = PALETTE[:4]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Resampled:
    """A step function in K columns: mean, least and greatest value in each; NaN where there is none."""

    mean: Floats
    low: Floats
    high: Floats


def resample(time_s: Floats, values: Floats | Ints, edges_s: Floats) -> Resampled:
    """The step function that has `values[k]` from `time_s[k]` to `time_s[k + 1]`, in the columns between `edges_s`."""
    columns = len(edges_s) - 1
    cuts = np.union1d(time_s, edges_s)
    cuts = cuts[(cuts >= edges_s[0]) & (cuts <= edges_s[-1])]
    step = np.searchsorted(time_s, cuts[:-1], side="right") - 1
    inside = (step >= 0) & (step < len(values))
    value = np.full(len(step), np.nan)
    value[inside] = values[step[inside]]
    length = np.diff(cuts)
    column = np.searchsorted(edges_s, cuts[:-1], side="right") - 1
    known = np.isfinite(value)
    weight = np.bincount(column[known], length[known], minlength=columns)
    total = np.bincount(column[known], (length * value)[known], minlength=columns)
    low, high = np.full(columns, np.nan), np.full(columns, np.nan)
    np.fmin.at(low, column, value)
    np.fmax.at(high, column, value)
    mean = np.divide(total, weight, out=np.full(columns, np.nan), where=weight > 0)
    return Resampled(mean=mean, low=low, high=high)


def worse_share(stretch: Floats) -> tuple[Floats, Floats]:
    """Stretches of finished jobs in ascending order, and the share of jobs whose stretch is at least that."""
    known = np.sort(stretch[np.isfinite(stretch)])
    return known, 1.0 - np.arange(len(known)) / max(1, len(known))


def draw_yields(run: Run, path: Path) -> None:
    """Yields of the running jobs, utilisation, and jobs by state, over the whole run. Raises InputError."""
    save(lambda: _yields_figure(run), path)


def draw_stretches(run: Run, path: Path, bound: float | None = None) -> None:
    """How the stretch is distributed, and on which jobs it falls. `bound`: lower bound on the maximum stretch."""
    save(lambda: _stretches_figure(run, bound), path)


def draw_comparison(
    runs: Sequence[Run], names: Sequence[str], bounds: Sequence[float | None], path: Path, *, tau_s: float = TAU_S
) -> None:
    """Several runs in one picture: who fares worse, the least yield over time, and the distance from the bound.

    `bounds`: lower bounds on the maximum bounded stretch, for that `tau_s`.
    """
    save(lambda: _comparison_figure(runs, names, bounds, tau_s), path)


def _edges(run: Run) -> Floats:
    begin_s = float(run.workload.submit_s[0]) if len(run.workload) else 0.0
    return np.linspace(begin_s, max(run.end_s, begin_s + 1.0), COLUMNS + 1)


def _yields_figure(run: Run) -> Figure:
    edges = _edges(run)
    middle = (edges[1:] + edges[:-1]) / 2
    figure = plt.figure(figsize=(13.33, 8.6), layout="constrained")
    figure.suptitle(_title(run), x=0.012, ha="left", fontsize=15, fontweight="bold")
    figure.supxlabel(
        f"each of {COLUMNS} columns shows {clock(float(edges[1] - edges[0]))}: lines are means over it, "
        "bands the extremes within it",
        x=0.012,
        ha="left",
        fontsize=9,
        color=QUIET,
    )
    top, use, jobs = figure.subplots(3, 1, sharex=True, height_ratios=[1.25, 1.0, 1.0])
    yields = yield_timeline(run)
    low, half = (resample(yields.time_s, v, edges) for v in (yields.minimum, yields.median))
    top.fill_between(middle, low.low, half.high, step="mid", color=_BLUE, alpha=0.13, linewidth=0)
    _line(top, middle, half.mean, PALETTE[4], "median")
    _line(top, middle, low.mean, _BLUE, "minimum")
    top.set_ylim(0, 1.03)
    _dress(top, "Yield of the running jobs", "yield")
    used = utilisation_timeline(run)
    cpu, memory = run.capacity.sum(axis=0)
    for values, capacity, colour, label in (
        (used.cpu, cpu, _GREEN, "CPU given out"),
        (used.memory, memory, _AMBER, "memory"),
    ):
        share = resample(used.time_s, values / max(capacity, 1e-300), edges)
        use.fill_between(middle, share.low, share.high, step="mid", color=colour, alpha=0.16, linewidth=0)
        _line(use, middle, share.mean, colour, label)
    idle = resample(used.time_s, (used.cpu - used.useful_cpu) / max(cpu, 1e-300), edges)
    _line(use, middle, idle.mean, _RED, "CPU in penalties", thin=True)
    use.set_ylim(0, 1.03)
    use.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    _dress(use, "Share of the cluster in use", "")
    for values, colour, label in (
        (used.running, _BLUE, "running"),
        (used.paused, _RED, "paused"),
        (used.waiting, _AMBER, "waiting"),
    ):
        count = resample(used.time_s, values, edges)
        jobs.fill_between(middle, count.low, count.high, step="mid", color=colour, alpha=0.16, linewidth=0)
        _line(jobs, middle, count.mean, colour, label)
    jobs.set_ylim(bottom=0)
    _dress(jobs, "Jobs in the system", "jobs")
    _time_axis(jobs, edges)
    return figure


def _line(axes: Axes, x: Floats, y: Floats, colour: str, label: str, *, thin: bool = False) -> None:
    axes.plot(x, y, color=colour, linewidth=1.0 if thin else 1.7, label=label, zorder=3, solid_joinstyle="round")


def _dress(axes: Axes, title: str, y_label: str, *, legend: bool = True) -> None:
    axes.set_title(title, fontsize=11, loc="left", color=INK)
    axes.set_ylabel(y_label, color=QUIET)
    axes.tick_params(which="both", colors=QUIET, length=0)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=GRID)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    if legend:
        axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=4, labelcolor=INK, fontsize=9)


def _time_axis(axes: Axes, edges: Floats, most: int = 12) -> None:
    ticks = time_ticks(float(edges[0]), float(edges[-1]), most)
    axes.set_xticks(ticks, time_labels(ticks))
    axes.set_xlim(edges[0], edges[-1])
    axes.set_xlabel("time since the beginning of the workload", color=QUIET)


def _plain_log(axis: Axis) -> None:
    """1, 2, 5, 10 over few decades, 1, 10, 100 over many."""
    low, high = sorted(float(v) for v in axis.get_view_interval())
    few = high / max(low, 1e-300) < 2e3
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
    axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axis.set_minor_formatter(NullFormatter())


def _percent_log(axis: Axis) -> None:
    axis.set_major_locator(LogLocator())
    axis.set_major_formatter(FuncFormatter(_percent))
    axis.set_minor_formatter(NullFormatter())


def _percent(share: float, _: int | None) -> str:
    return f"{100 * share:g} %"


def _title(run: Run) -> str:
    partial = "" if run.complete else " (interrupted)"
    return f"{run.policy} on {run.workload.name or 'the workload'}{partial}"


def _stretches_figure(run: Run, bound: float | None) -> Figure:
    figure = plt.figure(figsize=(13.33, 5.6), layout="constrained")
    figure.suptitle(_title(run), x=0.012, ha="left", fontsize=15, fontweight="bold")
    left, right = figure.subplots(1, 2, width_ratios=[1.0, 1.0])
    _tails(left, [run.stretch], [""], [bound])
    left.set_xlabel("stretch: flow time / processing time", color=QUIET)
    _dress(left, "Share of jobs whose stretch is at least …", "jobs", legend=False)
    left.grid(axis="x", color=GRID)
    process_s, stretch = run.process_s, run.stretch
    done = np.isfinite(stretch)
    paused = done & (run.count(Action.PAUSE) > 0)
    for chosen, colour, label in ((done & ~paused, _BLUE, "never paused"), (paused, _RED, "paused at least once")):
        right.scatter(
            process_s[chosen], stretch[chosen], s=14, color=colour, alpha=0.55, linewidths=0, label=label, zorder=3
        )
    right.set_xscale("log")
    right.set_yscale("log")
    # Where no job finished there is nothing from which limits could follow.
    right.set_xlim(float(process_s.min()) * 0.7, float(process_s.max()) * 1.4)
    right.set_ylim(0.92, _worst([stretch]) * 1.25)
    if bound is not None:
        right.axhline(bound, color=LIMIT, linewidth=1.2, linestyle=(0, (4, 3)))
    _plain_log(right.xaxis)
    _plain_log(right.yaxis)
    right.set_xlabel("processing time, s", color=QUIET)
    _dress(right, "Stretch by processing time", "stretch")
    return figure


def _worst(stretches: Sequence[Floats]) -> float:
    """The largest stretch of any job of any run, at least 1.5."""
    return max([1.5, *(float(each) for stretch in stretches for each in stretch[np.isfinite(stretch)])])


def _tails(axes: Axes, stretches: Sequence[Floats], names: Sequence[str], bounds: Sequence[float | None]) -> None:
    """Complementary distributions of the jobs' stretches of each run, with its worst job as a dot."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    for k, (stretch, name) in enumerate(zip(stretches, names, strict=True)):
        x, y = worse_share(stretch)
        if not len(x):
            continue
        colour = PALETTE[k % len(PALETTE)]
        axes.plot(x, y, color=colour, linewidth=1.9, drawstyle="steps-pre", label=name, zorder=3)
        axes.plot(x[-1:], y[-1:], "o", color=colour, markersize=6, markeredgecolor="white", zorder=4)
        if len(stretches) == 1:
            axes.annotate(
                f"worst: {x[-1]:,.2f}",
                (x[-1], y[-1]),
                (-10, -4),
                textcoords="offset points",
                ha="right",
                va="top",
                color=colour,
                fontsize=9,
            )
    axes.set_xlim(0.92, max([_worst(stretches), *(b for b in bounds if b is not None)]) * 1.15)
    axes.set_ylim(0.7 / max(2, *(int(np.isfinite(stretch).sum()) for stretch in stretches)), 1.4)
    known = sorted({b for b in bounds if b is not None})
    for bound in known:
        axes.axvline(bound, color=LIMIT, linewidth=1.2, linestyle=(0, (4, 3)), zorder=2)
    if known:
        axes.annotate(
            "lower bound",
            (known[0], 1.0),
            (4, -2),
            textcoords="offset points",
            color=LIMIT,
            fontsize=8,
            va="top",
            xycoords=("data", "axes fraction"),
        )
    _plain_log(axes.xaxis)
    _percent_log(axes.yaxis)


def _comparison_figure(
    runs: Sequence[Run], names: Sequence[str], bounds: Sequence[float | None], tau_s: float
) -> Figure:
    bars_in = 1.0 + 0.34 * len(runs)
    figure = plt.figure(figsize=(13.33, bars_in + 5.6), layout="constrained")
    loads = list(dict.fromkeys(run.workload.name for run in runs))
    title = f"{len(runs)} runs of {loads[0] or 'one workload'}" if len(loads) == 1 else f"{len(runs)} runs"
    figure.suptitle(title, x=0.012, ha="left", fontsize=15, fontweight="bold")
    grid = figure.add_gridspec(2, 2, height_ratios=[bars_in, 5.0])
    bars = figure.add_subplot(grid[0, :])
    tail, least = figure.add_subplot(grid[1, 0]), figure.add_subplot(grid[1, 1])
    stretches = [bounded_stretch(run, tau_s) for run in runs]
    _tails(tail, stretches, names, bounds)
    tail.set_xlabel(f"bounded stretch: flow time / processing time, each at least {tau_s:g} s", color=QUIET)
    _dress(tail, "Share of jobs whose bounded stretch is at least …", "jobs", legend=False)
    tail.grid(axis="x", color=GRID)
    _bars(bars, stretches, names, bounds)
    begin_s = min(float(_edges(run)[0]) for run in runs)
    edges = np.linspace(begin_s, max(float(_edges(run)[-1]) for run in runs), COLUMNS // 4 + 1)
    for k, run in enumerate(runs):
        timeline = yield_timeline(run)
        curve = resample(timeline.time_s, timeline.minimum, edges).mean
        _line(least, (edges[1:] + edges[:-1]) / 2, curve, PALETTE[k % len(PALETTE)], names[k])
    least.set_ylim(0, 1.03)
    _dress(least, "Least yield of the running jobs over time", "yield", legend=False)
    _time_axis(least, edges, most=7)
    return figure


def _bars(axes: Axes, stretches: Sequence[Floats], names: Sequence[str], bounds: Sequence[float | None]) -> None:
    """Worst bounded stretch of each run as a bar; relative to the bound where every run has one."""
    relative = all(bound is not None for bound in bounds)
    worst = [float(np.nanmax(stretch)) if np.isfinite(stretch).any() else np.nan for stretch in stretches]
    values = [w / b if relative and b else w for w, b in zip(worst, bounds, strict=True)]
    place = np.arange(len(stretches))
    axes.barh(
        place,
        [v - 1 for v in values],
        left=1.0,
        height=0.62,
        zorder=3,
        color=[PALETTE[k % len(PALETTE)] for k in range(len(stretches))],
    )
    axes.set_xscale("log")
    known = [v for v in values if np.isfinite(v)]
    axes.set_xlim(1.0, max([*known, 1.5]) ** 1.1)
    for k, value in enumerate(values):
        text = f"{value:,.2f}" if np.isfinite(value) else "no job finished"
        axes.annotate(
            text,
            (value if np.isfinite(value) else 1.0, k),
            (5, 0),
            textcoords="offset points",
            va="center",
            color=INK,
            fontsize=9,
        )
    axes.set_yticks(place, names)
    axes.invert_yaxis()
    _plain_log(axes.xaxis)
    title = "Worst bounded stretch, times the lower bound" if relative else "Worst bounded stretch"
    _dress(axes, title, "", legend=False)
    axes.tick_params(axis="y", labelcolor=INK, labelsize=9)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color=GRID)
