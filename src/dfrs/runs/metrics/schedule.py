"""What a run was worth, from its log alone: stretch, utilisation, yield over time, and what moving jobs cost.

Everything is derived from `job_intervals`. Sources: stretch and virtual time [Stillwell2010] section 5.1, degradation
from bound section 5.4, memory moved and its bandwidth section 6.1 and appendix B (`moves`); the ratio of means
[Kumar2011] section V; the modules `users`, `shares` and `window` name theirs.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass

import numpy as np

from dfrs.model.decisions import CPU, MEMORY, PAUSED, RUNNING, WAITING
from dfrs.model.errors import InputError
from dfrs.model.instance import Bools, Floats, Ints
from dfrs.model.run import Run
from dfrs.runs.metrics.elastic import elastic_metrics
from dfrs.runs.metrics.intervals import (
    Intervals,
    Steps,
    down_times,
    job_intervals,
    states_at_end,
    tasks_moved,
    tasks_of,
    unit_for,
)
from dfrs.runs.metrics.moves import move_metrics
from dfrs.runs.metrics.shares import cpu_shares
from dfrs.runs.metrics.users import user_metrics
from dfrs.runs.metrics.window import Trim, Window, whole_run

QUANTILES = (0.5, 0.9, 0.95, 0.99)
TAU_S = 10.0
"""Of bounded stretches, unless told otherwise: times below count as this."""

Metrics = dict[str, float | int | None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class YieldTimeline:
    """The yields of running jobs as K steps; NaN where no job runs."""

    time_s: Floats
    """(K + 1,) where steps begin and end."""
    minimum: Floats
    median: Floats
    maximum: Floats
    jain: Floats
    """(K,) Jain's index (sum y)^2 / (n sum y^2) over the n running jobs; 1 if all have yield 0."""
    jain_present: Floats
    """(K,) the same over the jobs present: who waits or is paused counts with yield 0; NaN where no job is present."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UtilisationTimeline:
    """What is in use as K steps, in reference nodes, and how many jobs are in which state."""

    time_s: Floats
    """(K + 1,) where steps begin and end."""
    cpu: Floats
    """(K,) CPU given out."""
    useful_cpu: Floats
    """(K,) of it, to jobs that make progress."""
    memory: Floats
    running: Ints
    paused: Ints
    waiting: Ints


def yield_timeline(run: Run) -> YieldTimeline:
    """Minimum, median, maximum and fairness of the running jobs' yields over time."""
    return _yield_timeline(job_intervals(run))


def _yield_timeline(intervals: Intervals) -> YieldTimeline:
    steps = Steps(intervals.begin_s, intervals.end_s)
    runs = intervals.state == RUNNING
    running, present = steps.total(runs), steps.total(np.ones(len(runs), np.bool_))
    steps.unit = unit_for(int(running.max(initial=0)))
    total = steps.total(intervals.yield_) / steps.unit
    squares = steps.total(intervals.yield_**2) / steps.unit
    fair = np.divide(total**2, squares, out=np.zeros(steps.count), where=squares > 0)
    nothing = np.full(steps.count, np.nan)
    idle = (running > 0) & (squares == 0)
    jain = np.where(idle, 1.0, np.divide(fair, running, out=nothing.copy(), where=running > 0))
    jain_present = np.where(idle, running, np.where(running > 0, fair, 0.0))
    jain_present = np.divide(jain_present, present, out=nothing, where=present > 0)
    low, middle, high = _order_statistics(intervals, runs, steps)
    return YieldTimeline(
        time_s=steps.time_s,
        minimum=low,
        median=middle,
        maximum=high,
        jain=np.minimum(jain, 1.0),
        jain_present=np.minimum(jain_present, 1.0),
    )


def _order_statistics(intervals: Intervals, runs: Bools, steps: Steps) -> tuple[Floats, Floats, Floats]:
    """Minimum, median and maximum yield of each step, by a sorted list of the yields that hold."""
    job, yields = intervals.job[runs], intervals.yield_[runs]
    begin, end = steps.begin[runs], steps.end[runs]
    if len(yields) and (yields == yields[0]).all():
        same = np.where(steps.total(runs) > 0, yields[0], np.nan)
        return same, same, same
    # A job that only moved, or kept its yield, changes nothing here.
    goes_on = (job[1:] == job[:-1]) & (begin[1:] == end[:-1]) & (yields[1:] == yields[:-1])
    comes = np.flatnonzero(np.append(True, ~goes_on)[: len(job)])
    goes = np.flatnonzero(np.append(~goes_on, True)[: len(job)])
    comes, goes = comes[np.argsort(begin[comes], kind="stable")], goes[np.argsort(end[goes], kind="stable")]
    coming, going = yields[comes].tolist(), yields[goes].tolist()
    edges = np.arange(steps.count)
    come_until = np.searchsorted(begin[comes], edges, side="right").tolist()
    go_until = np.searchsorted(end[goes], edges, side="right").tolist()
    found = np.full((3, steps.count), np.nan)
    values: list[float] = []
    came = gone = 0
    for k in range(steps.count):
        for value in going[gone : go_until[k]]:
            del values[bisect_left(values, value)]
        for value in coming[came : come_until[k]]:
            insort(values, value)
        came, gone = come_until[k], go_until[k]
        if values:
            half = len(values) // 2
            middle = values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2
            found[:, k] = values[0], middle, values[-1]
    return found[0], found[1], found[2]


def utilisation_timeline(run: Run) -> UtilisationTimeline:
    """CPU and memory in use and jobs by state over time."""
    pieces = job_intervals(run).cut_at_ready()
    steps = Steps(pieces.begin_s, pieces.end_s, unit_for(float(run.capacity.sum(axis=0).max())))
    work = run.workload
    tasks = tasks_of(run, pieces)
    cpu = tasks * work.need[pieces.job] * pieces.yield_
    useful = pieces.begin_s >= pieces.ready_s
    return UtilisationTimeline(
        time_s=steps.time_s,
        cpu=steps.total(cpu) / steps.unit,
        useful_cpu=steps.total(np.where(useful, cpu, 0.0)) / steps.unit,
        memory=steps.total(tasks * work.memory[pieces.job]) / steps.unit,
        running=steps.total(pieces.state == RUNNING),
        paused=steps.total(pieces.state == PAUSED),
        waiting=steps.total(pieces.state == WAITING),
    )


def summarize(
    run: Run,
    *,
    tau_s: float = TAU_S,
    stretch_bound: float | None = None,
    bounded_stretch_bound: float | None = None,
    trim: Trim | None = None,
) -> Metrics:
    """Every metric of a run, the unit in its key; None where nothing defines it (no job finished, say).

    Statistics of jobs are over finished ones; `stretch_p90` is the quantile 0.9 (linear between order statistics).
    The span is from the first submission to the end of the log; averages over time of yields are over the part of it
    in which a job runs (`jain_index_present_mean`: in which a job is present). Utilisation is relative to the
    nodes that are not down. One GB is 1e9 bytes. `stretch_bound` and `bounded_stretch_bound` are lower
    bounds on the maximum stretch and, for the same `tau_s`, on the maximum bounded stretch.

    With `trim`, jobs and time of warm-up and cool-down are left out of everything. Bounds of all jobs say nothing of
    those that remain: InputError where both are given, or where nothing remains.
    """
    if trim is not None and not (stretch_bound is None and bounded_stretch_bound is None):
        raise InputError(f"trim = {trim.name}: bounds on the stretch are of all jobs: give trim or bounds, not both")
    window = whole_run(run) if trim is None else trim.window(run)
    intervals = job_intervals(run)
    metrics = _job_metrics(run, window, tau_s)
    for kind, bound in (("", stretch_bound), ("bounded_", bounded_stretch_bound)):
        if bound is not None:
            worst = metrics[f"{kind}stretch_max"]
            metrics[f"{kind}stretch_bound"] = bound
            metrics[f"{kind}degradation_from_bound"] = None if worst is None else worst / bound
    done = window.jobs & np.isfinite(run.finish_s)
    metrics |= user_metrics(run.workload.user[done], bounded_stretch(run, tau_s)[done])
    inside = intervals if window.is_whole else intervals.within(window.from_s, window.to_s)
    metrics |= _use_metrics(run, window, inside) | cpu_shares(run, inside, window) | _yield_metrics(inside)
    jobs = int(window.jobs.sum()) - _refused(run, window)
    counts = window.holds(run.events.time_s)
    return metrics | move_metrics(run, window.span_s, tasks_moved(run), counts, jobs) | elastic_metrics(run, window)


def bounded_stretch(run: Run, tau_s: float) -> Floats:
    """(J,) flow time / processing time, each at least `tau_s`; NaN for jobs that did not finish."""
    return np.maximum(run.finish_s - run.workload.release_s, tau_s) / np.maximum(run.process_s, tau_s)


def _refused(run: Run, window: Window) -> int:
    return int(window.jobs[list(run.refused)].sum())


def _job_metrics(run: Run, window: Window, tau_s: float) -> Metrics:
    work = run.workload
    done = np.isfinite(run.finish_s) & window.jobs
    left = window.jobs & ~done
    flow, wait = (run.finish_s - work.release_s)[done], (run.start_s - work.release_s)[done]
    at_end = states_at_end(run)[left]
    jobs, finished, refused = int(window.jobs.sum()), int(done.sum()), _refused(run, window)
    metrics: Metrics = {
        "jobs": jobs,
        "jobs_finished": finished,
        "jobs_refused": refused,
        "jobs_unfinished": jobs - finished - refused,
        "jobs_running_at_end": int((at_end == RUNNING).sum()),
        "jobs_paused_at_end": int((at_end == PAUSED).sum()),
        "makespan_s": float(run.finish_s[done].max() - work.submit_s[window.jobs][0]) if finished else None,
        "span_s": window.span_s,
        "tau_s": tau_s,
    }
    metrics |= statistics_of("stretch", run.stretch[done])
    metrics |= statistics_of("bounded_stretch", bounded_stretch(run, tau_s)[done])
    metrics |= statistics_of("wait", wait, "_s") | statistics_of("flow", flow, "_s")
    run_s = float(run.process_s[done].mean()) if finished else None
    metrics["run_mean_s"] = run_s
    metrics["slowdown_of_means"] = None if run_s is None else (float(wait.mean()) + run_s) / run_s
    return metrics


def statistics_of(label: str, values: Floats, unit: str = "") -> Metrics:
    """Maximum, mean and quantiles of values, by key; None where there is no value."""
    names = [f"{label}_{figure}{unit}" for figure in ("max", "mean", *(f"p{round(100 * q)}" for q in QUANTILES))]
    if not len(values):
        return dict.fromkeys(names)
    figures = [values.max(), values.mean(), *np.quantile(values, QUANTILES)]
    return {name: float(figure) for name, figure in zip(names, figures, strict=True)}


def _use_metrics(run: Run, window: Window, intervals: Intervals) -> Metrics:
    work = run.workload
    tasks = tasks_of(run, intervals)
    cpu = tasks * work.need[intervals.job]
    down = down_times(run, window.from_s, window.to_s)
    offered = run.capacity.sum(axis=0) * window.span_s
    offered -= (run.capacity[down.node] * (down.end_s - down.begin_s)[:, None]).sum(axis=0)
    used = {
        "cpu_utilisation": (float((cpu * intervals.yield_ * intervals.length_s).sum()), CPU),
        "useful_cpu_utilisation": (float((cpu * intervals.useful_s).sum()), CPU),
        "memory_utilisation": (float((tasks * work.memory[intervals.job] * intervals.length_s).sum()), MEMORY),
    }
    return {name: amount / float(offered[d]) if offered[d] > 0 else None for name, (amount, d) in used.items()}


def _yield_metrics(intervals: Intervals) -> Metrics:
    timeline = _yield_timeline(intervals)
    length = np.diff(timeline.time_s)
    return {
        "minimum_yield_mean": _mean_over_time(timeline.minimum, length),
        "median_yield_mean": _mean_over_time(timeline.median, length),
        "jain_index_mean": _mean_over_time(timeline.jain, length),
        "jain_index_present_mean": _mean_over_time(timeline.jain_present, length),
    }


def _mean_over_time(values: Floats, length_s: Floats) -> float | None:
    known = np.isfinite(values)
    seconds = float(length_s[known].sum())
    return float((values * length_s)[known].sum()) / seconds if seconds > 0 else None
