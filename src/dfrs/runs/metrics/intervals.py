"""What each job did when: between two changes it waits, runs at one yield on fixed nodes, or is paused.

All metrics of a run, and its pictures, derive from these intervals and from the steps between the instants at which any
of them begins or ends. A job is there from its release: its submission, or for a dedicated job its requested start
where that is later. Virtual time is that of [Stillwell2010] section 5.1.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from dfrs.kernels.progress import checkpointed
from dfrs.model.decisions import PAUSED, RUNNING, WAITING
from dfrs.model.instance import Bools, Floats, Ints
from dfrs.model.run import PLACING, Action, Run
from dfrs.runs.metrics.speeds import speeds, with_plans

_GONE = -1
_STATE_AFTER = np.full(len(Action), _GONE, np.int64)
_STATE_AFTER[[*PLACING, Action.SHARE]] = RUNNING
_STATE_AFTER[Action.PAUSE] = PAUSED
_STATE_AFTER[Action.LOST] = WAITING

UNIT = 2.0**46
"""Levels over time are summed as integers of 2**-46: what a job adds is taken away exactly, however long the log is."""
_LARGEST = 2.0**16
"""Up to such a level."""


def unit_for(largest: float) -> float:
    """`UNIT`, or of levels that are larger than 2**16 so much less that 64 bits hold twice the `largest`."""
    return UNIT / 2.0 ** max(0, math.ceil(math.log2(max(largest, 1.0) / _LARGEST)))


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

    def within(self, from_s: float, to_s: float) -> "Intervals":
        """What of them is in this span of time."""
        inside = self.select((self.begin_s < to_s) & (self.end_s > from_s))
        return replace(inside, begin_s=np.maximum(inside.begin_s, from_s), end_s=np.minimum(inside.end_s, to_s))

    def cut_at_ready(self) -> "Intervals":
        """The same, cut where a penalty ends inside one: each makes progress all the time or never. Out of order."""
        ready = np.minimum(self.ready_s, self.end_s)
        late, goes_on = self.ready_s > self.begin_s, self.end_s > ready
        before, after = replace(self, end_s=ready).select(late), self.select(goes_on)
        return before.and_these(replace(after, begin_s=np.maximum(after.begin_s, ready[goes_on])))

    def cut(self, job: Ints, at_s: Floats) -> "Intervals":
        """The same, cut at each time (C,) that is inside an interval of that job, at most one in each. Out of order."""
        begun = _by_job(self)
        inside = [
            (k, time_s)
            for each, time_s in zip(job.tolist(), at_s.tolist(), strict=True)
            for k in begun(each, -np.inf, time_s)[-1:].tolist()
            if self.end_s[k] > time_s
        ]
        if not inside:
            return self
        here, times = (np.array(column) for column in zip(*inside, strict=True))
        begins, ends = self.begin_s.copy(), self.end_s.copy()
        begins[here] = ends[here] = times
        second = np.zeros(len(ends), np.bool_)
        second[here] = True
        return replace(self, end_s=ends).and_these(replace(self, begin_s=begins).select(second))

    def and_these(self, others: "Intervals") -> "Intervals":
        """These and others, in this order."""
        names = [each.name for each in fields(self)]
        return Intervals(**{name: np.concatenate([getattr(self, name), getattr(others, name)]) for name in names})


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


def states_at_end(run: Run) -> Ints:
    """(J,) WAITING, RUNNING or PAUSED at the end of the log, also of what began at that instant; -1: it has ended."""
    state = np.full(len(run.workload), WAITING)
    rows = np.flatnonzero(run.events.job >= 0)
    # Of several rows of a job the last one stays.
    state[run.events.job[rows]] = _STATE_AFTER[run.events.action[rows]]
    return state


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


@dataclass(frozen=True, slots=True)
class Loss:
    """A job lost a node, and the progress that it had made since `since_s`."""

    job: int
    at_s: float
    since_s: float
    """When it made its last check-point; -inf where all of its progress is lost."""
    kept_s: float
    """Of its virtual time."""


def losses(run: Run, intervals: Intervals) -> Sequence[Loss]:
    """All of them in order, of a run with those intervals, in the order of `job_intervals`."""
    events = run.events
    found: list[Loss] = []
    last: dict[int, Loss] = {}
    for row in np.flatnonzero(events.action == Action.LOST).tolist():
        job, at_s = int(events.job[row]), float(events.time_s[row])
        every_s = float(run.workload.checkpoint_s[job])
        before = last.get(job, Loss(job, -np.inf, -np.inf, 0.0))
        last[job] = _kept(before, intervals, every_s, at_s) if every_s > 0.0 else Loss(job, at_s, -np.inf, 0.0)
        found.append(last[job])
    return found


def _kept(before: Loss, intervals: Intervals, every_s: float, at_s: float) -> Loss:
    """What is lost `at_s` by a job that lost a node `before`."""
    mine = intervals.of(before.job)
    here = [k for k in mine if before.at_s <= intervals.begin_s[k] < at_s]
    gained = intervals.progress_s[here]
    reached = before.kept_s + np.concatenate([[0.0], np.cumsum(gained)])
    kept_s = float(checkpointed(float(reached[-1]), every_s))
    if kept_s <= before.kept_s:
        return Loss(before.job, at_s, max(before.at_s, before.since_s), before.kept_s)
    k = int(np.argmax(reached >= kept_s)) - 1 if (reached >= kept_s).any() else len(here) - 1
    begin_s = max(intervals.begin_s[here[k]], intervals.ready_s[here[k]])
    rate = intervals.yield_[here[k]] * intervals.speed[here[k]]
    return Loss(before.job, at_s, float(min(begin_s + (kept_s - reached[k]) / rate, at_s)), kept_s)


def virtual_time(run: Run) -> Floats:
    """(J,) integral of each job's yield (times speed) outside penalties, to the end of the log, less what is lost."""
    intervals = job_intervals(run)
    since, kept = np.full(len(run.workload), -np.inf), np.zeros(len(run.workload))
    for loss in losses(run, intervals):
        since[loss.job], kept[loss.job] = loss.at_s, loss.kept_s
    gained = np.where(intervals.begin_s >= since[intervals.job], intervals.progress_s, 0.0)
    return kept + np.bincount(intervals.job, gained, minlength=len(run.workload))


def in_vain(run: Run, intervals: Intervals) -> tuple[Intervals, Bools]:
    """The intervals, cut at check-points, and (K,) whether the progress in each was lost later. Out of order."""
    found = losses(run, job_intervals(run))
    until = np.full(len(run.workload), -np.inf)
    for loss in found:
        if loss.since_s == -np.inf:
            until[loss.job] = loss.at_s
    some = [loss for loss in found if loss.since_s > -np.inf]
    if some:
        jobs, since = np.array([loss.job for loss in some]), np.array([loss.since_s for loss in some])
        intervals = intervals.cut(jobs, since)
    lost = intervals.begin_s < until[intervals.job]
    if some:
        begun = _by_job(intervals)
        for loss in some:
            lost[begun(loss.job, loss.since_s, loss.at_s)] = True
    return intervals, lost


def _by_job(intervals: Intervals) -> Callable[[int, float, float], Ints]:
    """What finds the intervals of a job that begin from one time on and before another, in the order of time."""
    order = np.lexsort((intervals.begin_s, intervals.job))
    jobs, begins = intervals.job[order], intervals.begin_s[order]

    def begun(job: int, from_s: float, to_s: float) -> Ints:
        first, last = np.searchsorted(jobs, [job, job + 1])
        here = slice(*(first + np.searchsorted(begins[first:last], [from_s, to_s])).tolist())
        return order[here]

    return begun


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DownTimes:
    """K times in which a node is down."""

    node: Ints
    begin_s: Floats
    end_s: Floats


def down_times(run: Run, from_s: float, to_s: float) -> DownTimes:
    """When nodes are down between two times."""
    events = run.events
    found: list[tuple[int, float, float]] = []
    since: dict[int, float] = {}
    for row in np.flatnonzero((events.action == Action.DOWN) | (events.action == Action.UP)).tolist():
        at_s = float(events.time_s[row])
        for node in events.nodes_of(row).tolist():
            if events.action[row] == Action.DOWN:
                since.setdefault(node, at_s)
            elif node in since:
                found.append((node, since.pop(node), at_s))
    found += [(node, begin_s, to_s) for node, begin_s in since.items()]
    inside = [(node, max(begin, from_s), min(end, to_s)) for node, begin, end in found]
    inside = [(node, begin, end) for node, begin, end in inside if end > begin]
    return DownTimes(
        node=np.array([node for node, _, _ in inside], np.int64),
        begin_s=np.array([begin for _, begin, _ in inside], np.float64),
        end_s=np.array([end for _, _, end in inside], np.float64),
    )


class Steps:
    """The instants at which something begins or ends, and sums over what holds between them."""

    def __init__(self, begin_s: Floats, end_s: Floats, unit: float = UNIT) -> None:
        self.unit = unit
        self.time_s = np.unique(np.concatenate([begin_s, end_s]))
        self.count = max(0, len(self.time_s) - 1)
        self.begin = np.searchsorted(self.time_s, begin_s)
        self.end = np.searchsorted(self.time_s, end_s)

    @property
    def length_s(self) -> Floats:
        """(K,) seconds."""
        return np.diff(self.time_s)

    def total(self, amount: Floats | Bools) -> Ints:
        """(K,) sum over what holds; amounts of float type times `unit`."""
        whole = np.rint(amount * self.unit).astype(np.int64) if amount.dtype == np.float64 else amount.astype(np.int64)
        change = np.zeros(self.count + 1, np.int64)
        np.add.at(change, self.begin, whole)
        np.subtract.at(change, self.end, whole)
        return np.cumsum(change)[: self.count]
