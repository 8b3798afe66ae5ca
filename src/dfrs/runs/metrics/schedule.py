"""What a run was worth, from its log alone: stretch, utilisation, yield over time, and what moving jobs cost.

Everything is derived from `job_intervals`: between two changes a job waits, runs at one yield on fixed nodes, or is
paused. Sources: stretch and virtual time [Stillwell2010] section 5.1, degradation from bound section 5.4, memory moved
and its bandwidth section 6.1 and appendix B (`moves`); the ratio of means [Kumar2011] section V. A job is there from
its release: its submission, or for a dedicated job its requested start where that is later.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass

import numpy as np

from dfrs.model.decisions import PAUSED, RUNNING, WAITING
from dfrs.model.instance import Bools, Floats, Ints
from dfrs.model.run import PLACING, Action, Run
from dfrs.runs.metrics.elastic import elastic_metrics
from dfrs.runs.metrics.moves import move_metrics
from dfrs.runs.metrics.speeds import speeds, with_plans

QUANTILES = (0.5, 0.9, 0.95, 0.99)

_GONE = -1
_STATE_AFTER = np.full(len(Action), _GONE, np.int64)
_STATE_AFTER[[*PLACING, Action.SHARE]] = RUNNING
_STATE_AFTER[Action.PAUSE] = PAUSED
_STATE_AFTER[Action.LOST] = WAITING

_UNIT = 2.0**46
"""Levels over time are summed as integers of 2**-46: what a job adds is taken away exactly, however long the log is."""

Metrics = dict[str, float | int | None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Intervals:
    """K intervals of positive length, by job and then time; a job has none before its release or after its end."""

    job: Ints
    """(K,) index in the workload."""
    begin_s: Floats
    end_s: Floats
    state: Ints
    """(K,) WAITING, RUNNING or PAUSED of `dfrs.model.decisions`."""
    yield_: Floats
    """(K,) 0 unless it runs."""
    ready_s: Floats
    """(K,) when its last penalty ends: it makes no progress before."""
    placement: Ints
    """(K,) the row of the log that names its nodes (`run.events.nodes_of`), -1 unless it runs."""
    speed: Floats
    """(K,) progress per second at yield 1 where it is; 1 where nodes are alike."""

    @property
    def length_s(self) -> Floats:
        """(K,) seconds."""
        return self.end_s - self.begin_s

    @property
    def progress_s(self) -> Floats:
        """(K,) virtual time gained."""
        return self.useful_s * self.speed

    @property
    def useful_s(self) -> Floats:
        """(K,) seconds in which it makes progress, times its yield."""
        return self.yield_ * np.maximum(0.0, self.end_s - np.maximum(self.begin_s, self.ready_s))

    def of(self, job: int) -> range:
        """The intervals of one job, by index."""
        return range(*np.searchsorted(self.job, [job, job + 1]).tolist())

    def select(self, keep: Bools) -> "Intervals":
        """The intervals of a mask."""
        return Intervals(
            job=self.job[keep],
            begin_s=self.begin_s[keep],
            end_s=self.end_s[keep],
            state=self.state[keep],
            yield_=self.yield_[keep],
            ready_s=self.ready_s[keep],
            placement=self.placement[keep],
            speed=self.speed[keep],
        )


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


def job_intervals(run: Run) -> Intervals:
    """What each job did from its release to its end, or to the end of the log."""
    events, release_s = run.events, run.workload.release_s
    present = release_s <= run.end_s
    present[list(run.refused)] = False
    arrivals = np.flatnonzero(present)
    rows = np.flatnonzero(events.job >= 0)
    # A job's release is put before its rows, so that one stable sort makes each row's end the next one's beginning.
    # It is row -1 of columns that end in what a release is: the job waits, as one that lost its node.
    job = np.concatenate([arrivals, events.job[rows]])
    row = np.concatenate([np.full(len(arrivals), -1), rows])
    order = np.argsort(job, kind="stable")
    job, row = job[order], row[order]
    action = np.append(events.action, Action.LOST)[row]
    begin = np.where(row < 0, release_s[job], np.append(events.time_s, 0.0)[row])
    state = _STATE_AFTER[action]
    last = np.append(job[1:] != job[:-1], True)[: len(job)]
    end = np.where(last, run.end_s, np.append(begin[1:], run.end_s)[: len(job)])
    placing = np.isin(action, PLACING)
    placed = _last(placing)
    # Another size does not end a penalty.
    ready = (begin + np.append(penalties(run), 0.0)[row])[_last(placing & (action != Action.RESIZE))]
    runs = state == RUNNING
    return Intervals(
        job=job,
        begin_s=begin,
        end_s=end,
        state=state,
        yield_=np.where(runs, np.append(events.yield_, 0.0)[row], 0.0),
        ready_s=np.where(runs, ready, begin),
        placement=np.where(runs, row[placed], -1),
        speed=np.where(runs, np.append(speeds(run), 1.0)[row[placed]], 1.0),
    ).select((state != _GONE) & (end > begin))


def _last(holds: Bools) -> Ints:
    """(K,) the last place until each at which it holds."""
    return np.maximum.accumulate(np.where(holds, np.arange(len(holds)), 0))


def tasks_of(run: Run, intervals: Intervals) -> Ints:
    """(K,) how many tasks the job has on nodes in each interval; 0 unless it runs."""
    width = np.append(np.diff(run.events.first), 0)
    return width[intervals.placement]


def tasks_moved(run: Run) -> Ints:
    """(E,) tasks whose memory each RESUME brings back (all) or each MIGRATE carries to another node; 0 elsewhere."""
    events = run.events
    width = np.diff(events.first)
    moved = np.where(events.action == Action.RESUME, width, 0)
    rows = np.flatnonzero(np.isin(events.action, PLACING))
    rows = rows[np.argsort(events.job[rows], kind="stable")]
    at = np.flatnonzero(events.action[rows] == Action.MIGRATE)
    after, before = rows[at], rows[at - 1]
    old, old_count = np.unique(_keys(run, before), return_counts=True)
    new, new_count = np.unique(_keys(run, after), return_counts=True)
    common, in_old, in_new = np.intersect1d(old, new, assume_unique=True, return_indices=True)
    stay = np.zeros(len(at), np.int64)
    np.add.at(stay, common // len(run.capacity), np.minimum(old_count[in_old], new_count[in_new]))
    moved[after] = width[after] - stay
    return moved


def _keys(run: Run, rows: Ints) -> Ints:
    """One number for each (k, node of a task) of the k-th of these rows."""
    first = run.events.first
    width = first[rows + 1] - first[rows]
    owner = np.repeat(np.arange(len(rows)), width)
    slots = np.arange(len(owner)) + np.repeat(first[rows] - (np.cumsum(width) - width), width)
    return owner * len(run.capacity) + run.events.nodes[slots]


def penalties(run: Run) -> Floats:
    """(E,) seconds without progress that each row brings; 0 but for RESUME and MIGRATE ([Stillwell2010] 5.3.1)."""
    events, penalty = run.events, run.penalty
    costs = (events.action == Action.RESUME) | (events.action == Action.MIGRATE)
    seconds = np.where(costs, penalty.seconds, 0.0)
    if penalty.bytes_per_s is not None:
        memory = np.append(run.workload.memory, 0.0)[events.job]
        seconds += memory * tasks_moved(run) * (penalty.node_bytes / penalty.bytes_per_s)
    return with_plans(run, seconds)


def virtual_time(run: Run) -> Floats:
    """(J,) integral of each job's yield (times speed) outside penalties, to the end of the log; anew where lost."""
    return _virtual_time(run, job_intervals(run))


def _virtual_time(run: Run, intervals: Intervals) -> Floats:
    since = np.full(len(run.workload), -np.inf)
    lost = run.events.action == Action.LOST
    np.maximum.at(since, run.events.job[lost], run.events.time_s[lost])
    counts = intervals.begin_s >= since[intervals.job]
    gained = np.where(counts, intervals.progress_s, 0.0)
    return np.bincount(intervals.job, gained, minlength=len(run.workload)).astype(np.float64)


class _Steps:
    """The instants at which intervals begin or end, and sums over what holds between them."""

    def __init__(self, intervals: Intervals) -> None:
        self.time_s = np.unique(np.concatenate([intervals.begin_s, intervals.end_s]))
        self.count = max(0, len(self.time_s) - 1)
        self.begin = np.searchsorted(self.time_s, intervals.begin_s)
        self.end = np.searchsorted(self.time_s, intervals.end_s)

    def total(self, amount: Floats | Bools) -> Ints:
        """(K,) sum over the intervals that hold; amounts of float type in units of 2**-46."""
        whole = np.rint(amount * _UNIT).astype(np.int64) if amount.dtype == np.float64 else amount.astype(np.int64)
        change = np.zeros(self.count + 1, np.int64)
        np.add.at(change, self.begin, whole)
        np.subtract.at(change, self.end, whole)
        return np.cumsum(change)[: self.count]


def yield_timeline(run: Run) -> YieldTimeline:
    """Minimum, median, maximum and fairness of the running jobs' yields over time."""
    return _yield_timeline(job_intervals(run))


def _yield_timeline(intervals: Intervals) -> YieldTimeline:
    steps = _Steps(intervals)
    runs = intervals.state == RUNNING
    running, present = steps.total(runs), steps.total(np.ones(len(runs), np.bool_))
    total = steps.total(intervals.yield_) / _UNIT
    squares = steps.total(intervals.yield_**2) / _UNIT
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


def _order_statistics(intervals: Intervals, runs: Bools, steps: _Steps) -> tuple[Floats, Floats, Floats]:
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
    whole = job_intervals(run)
    late = whole.ready_s > whole.begin_s
    split = np.minimum(whole.ready_s, whole.end_s)
    # Where a penalty ends within an interval, what is useful changes: cut it there.
    before, after = whole.select(late), whole.select(whole.end_s > split)
    late_begin = split[whole.end_s > split]
    pieces = Intervals(
        job=np.concatenate([before.job, after.job]),
        begin_s=np.concatenate([before.begin_s, np.maximum(after.begin_s, late_begin)]),
        end_s=np.concatenate([split[late], after.end_s]),
        state=np.concatenate([before.state, after.state]),
        yield_=np.concatenate([before.yield_, after.yield_]),
        ready_s=np.concatenate([before.ready_s, after.ready_s]),
        placement=np.concatenate([before.placement, after.placement]),
        speed=np.concatenate([before.speed, after.speed]),
    )
    steps = _Steps(pieces)
    work = run.workload
    tasks = tasks_of(run, pieces)
    cpu = tasks * work.need[pieces.job] * pieces.yield_
    useful = pieces.begin_s >= pieces.ready_s
    return UtilisationTimeline(
        time_s=steps.time_s,
        cpu=steps.total(cpu) / _UNIT,
        useful_cpu=steps.total(np.where(useful, cpu, 0.0)) / _UNIT,
        memory=steps.total(tasks * work.memory[pieces.job]) / _UNIT,
        running=steps.total(pieces.state == RUNNING),
        paused=steps.total(pieces.state == PAUSED),
        waiting=steps.total(pieces.state == WAITING),
    )


def summarize(
    run: Run, *, tau_s: float = 10.0, stretch_bound: float | None = None, bounded_stretch_bound: float | None = None
) -> Metrics:
    """Every metric of a run, the unit in its key; None where nothing defines it (no job finished, say).

    Statistics of jobs are over finished ones; `stretch_p90` is the quantile 0.9 (linear between order statistics).
    The span is from the first submission to the end of the log; averages over time of yields are over the part of it
    in which a job runs (`jain_index_present_mean`: in which a job is present). Utilisation is relative to the
    nodes that are not down. One GB is 1e9 bytes. `stretch_bound` and `bounded_stretch_bound` are lower
    bounds on the maximum stretch and, for the same `tau_s`, on the maximum bounded stretch.
    """
    intervals = job_intervals(run)
    metrics = _job_metrics(run, intervals, tau_s)
    for kind, bound in (("", stretch_bound), ("bounded_", bounded_stretch_bound)):
        if bound is not None:
            worst = metrics[f"{kind}stretch_max"]
            metrics[f"{kind}stretch_bound"] = bound
            metrics[f"{kind}degradation_from_bound"] = None if worst is None else worst / bound
    metrics |= _use_metrics(run, intervals) | _yield_metrics(intervals)
    return metrics | move_metrics(run, _span(run), tasks_moved(run)) | elastic_metrics(run)


def _job_metrics(run: Run, intervals: Intervals, tau_s: float) -> Metrics:
    work, jobs = run.workload, len(run.workload)
    done = np.isfinite(run.finish_s)
    flow, wait = (run.finish_s - work.release_s)[done], (run.start_s - work.release_s)[done]
    stretch = run.stretch[done]
    bounded = np.maximum(flow, tau_s) / np.maximum(run.process_s[done], tau_s)
    finished = int(done.sum())
    at_end = intervals.state[(intervals.end_s >= run.end_s) & ~done[intervals.job]]
    unfinished = jobs - finished - len(run.refused)
    metrics: Metrics = {
        "jobs": jobs,
        "jobs_finished": finished,
        "jobs_refused": len(run.refused),
        "jobs_unfinished": unfinished,
        "jobs_running_at_end": int((at_end == RUNNING).sum()),
        "jobs_paused_at_end": int((at_end == PAUSED).sum()),
        "makespan_s": float(run.finish_s[done].max() - work.submit_s[0]) if finished else None,
        "span_s": _span(run),
        "tau_s": tau_s,
    }
    metrics |= statistics_of("stretch", stretch) | statistics_of("bounded_stretch", bounded)
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


def _span(run: Run) -> float:
    return max(0.0, float(run.end_s - run.workload.submit_s[0])) if len(run.workload) else 0.0


def _use_metrics(run: Run, intervals: Intervals) -> Metrics:
    work = run.workload
    tasks = tasks_of(run, intervals)
    cpu = tasks * work.need[intervals.job]
    offered = _node_seconds(run)
    used = {
        "cpu_utilisation": (float((cpu * intervals.yield_ * intervals.length_s).sum()), 0),
        "useful_cpu_utilisation": (float((cpu * intervals.useful_s).sum()), 0),
        "memory_utilisation": (float((tasks * work.memory[intervals.job] * intervals.length_s).sum()), 1),
    }
    return {name: amount / offered[d] if offered[d] > 0 else None for name, (amount, d) in used.items()}


def _node_seconds(run: Run) -> tuple[float, float]:
    """CPU and memory of the nodes that are not down, times seconds of the span."""
    events = run.events
    offered = run.capacity.sum(axis=0) * _span(run)
    down_s: dict[int, float] = {}
    begin = run.end_s - _span(run)

    def lack(node: int, until_s: float) -> None:
        offered[:] -= run.capacity[node] * max(0.0, until_s - max(begin, down_s.pop(node)))

    for row in np.flatnonzero((events.action == Action.DOWN) | (events.action == Action.UP)).tolist():
        for node in events.nodes_of(row).tolist():
            if events.action[row] == Action.DOWN:
                down_s.setdefault(node, float(events.time_s[row]))
            elif node in down_s:
                lack(node, float(events.time_s[row]))
    for node in list(down_s):
        lack(node, run.end_s)
    return float(offered[0]), float(offered[1])


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
