"""Energy by a stated model of each node's power, which is linear in the CPU that is in use.

A node draws `idle_w` watts without work and `busy_w` when all of its CPU is given out: idle + (busy - idle) *
utilisation (X. Fan, W.-D. Weber, L. A. Barroso, Power Provisioning for a Warehouse-sized Computer, ISCA 2007). A node
without a task draws the same `idle_w`, or `empty_w` where it is switched off as soon as its last task leaves: at once,
and for nothing, which is the best that switching off could save. A node that is down draws nothing. CPU that a job has
during a penalty counts as in use, and so does nothing else: paused jobs draw no power, and the copying of their memory
is not modelled.
"""

from dataclasses import dataclass

import numpy as np

from dfrs.model.decisions import CPU
from dfrs.model.errors import InputError
from dfrs.model.instance import Floats, Ints
from dfrs.model.run import Run
from dfrs.runs.metrics.intervals import Intervals, down_times, job_intervals
from dfrs.runs.metrics.window import Window

J_PER_KWH = 3.6e6
MOST_W = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerModel:
    """Watts that each node draws. Raises InputError where it is not 0 <= empty <= idle <= busy."""

    idle_w: float
    busy_w: float
    empty_w: float | None = None
    """Without a task; None: as idle, nodes stay on."""

    def __post_init__(self) -> None:
        empty_w = 0.0 if self.empty_w is None else self.empty_w
        if not 0.0 <= empty_w <= self.idle_w <= self.busy_w <= MOST_W:
            off = "" if self.empty_w is None else f":{self.empty_w:g}"
            raise InputError(
                f"power = {self.idle_w:g}:{self.busy_w:g}{off}: watts must be from 0 to {MOST_W:g}, "
                "and a busy node's not below an idle one's, nor an idle one's below those of one that is off"
            )

    @classmethod
    def parse(cls, text: str) -> "PowerModel":
        """`IDLE:BUSY`, or `IDLE:BUSY:OFF` where empty nodes are switched off. Raises InputError."""
        try:
            watts = [float(part) for part in text.split(":")]
        except ValueError:
            watts = []
        if len(watts) not in {2, 3}:
            raise InputError(f'power = "{text}": must be IDLE:BUSY or IDLE:BUSY:OFF, watts of a node, as 100:250:0')
        return cls(idle_w=watts[0], busy_w=watts[1], empty_w=watts[2] if len(watts) == 3 else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """What the nodes draw in a window."""

    energy_kwh: float
    power_mean_w: float | None
    """Over the window; None where that has no length."""
    idle_kwh: float
    """Of it: drawn whatever is in use, by nodes that are on."""
    off_kwh: float
    """Of it: drawn by nodes that are switched off."""
    node_hours_on: float
    node_hours_empty: float
    """Of nodes that are not down and have no task, whether on or off."""
    kwh_per_cpu_hour: float | None
    """Energy for each hour of the reference node's CPU in which a job makes progress; None without any."""


def energy(run: Run, model: PowerModel, window: Window) -> Energy:
    """Energy of a run in a window of time by a model."""
    intervals = job_intervals(run).within(window.from_s, window.to_s)
    down = down_times(run, window.from_s, window.to_s)
    up_s = len(run.capacity) * window.span_s - float((down.end_s - down.begin_s).sum())
    at, node = _tasks(run, intervals)
    cpu, of = run.workload.need[intervals.job] * intervals.yield_ * intervals.length_s, run.capacity[node, CPU]
    # Shares of the nodes' CPU over time, as seconds of a node that is all in use; a node without CPU is never in use.
    busy_s = float(np.divide(cpu[at], of, out=np.zeros(len(at)), where=of > 0).sum())
    empty_s = max(0.0, up_s - _occupied_s(node, intervals.begin_s[at], intervals.end_s[at]))
    off_s = 0.0 if model.empty_w is None else empty_s
    idle_j = model.idle_w * (up_s - off_s)
    off_j = (model.empty_w or 0.0) * off_s
    total_j = idle_j + off_j + (model.busy_w - model.idle_w) * busy_s
    width = np.append(np.diff(run.events.first), 0)[intervals.placement]
    useful_h = float((width * run.workload.need[intervals.job] * intervals.useful_s).sum()) / 3600
    return Energy(
        energy_kwh=total_j / J_PER_KWH,
        power_mean_w=total_j / window.span_s if window.span_s > 0 else None,
        idle_kwh=idle_j / J_PER_KWH,
        off_kwh=off_j / J_PER_KWH,
        node_hours_on=(up_s - off_s) / 3600,
        node_hours_empty=empty_s / 3600,
        kwh_per_cpu_hour=total_j / J_PER_KWH / useful_h if useful_h > 0 else None,
    )


def _tasks(run: Run, intervals: Intervals) -> tuple[Ints, Ints]:
    """For each task of each interval in which its job runs: the interval and the node."""
    first = run.events.first
    runs = np.flatnonzero(intervals.placement >= 0)
    rows = intervals.placement[runs]
    width = first[rows + 1] - first[rows]
    before = np.cumsum(width) - width
    slots = np.arange(int(width.sum())) + np.repeat(first[rows] - before, width)
    return np.repeat(runs, width), run.events.nodes[slots]


def _occupied_s(node: Ints, begin_s: Floats, end_s: Floats) -> float:
    """Seconds, summed over nodes, in which a node has at least one of these tasks."""
    if not len(node):
        return 0.0
    order = np.lexsort((begin_s, node))
    node, begin_s, end_s = node[order], begin_s[order], end_s[order]
    seconds = 0.0
    starts = np.flatnonzero(np.append(True, node[1:] != node[:-1]))
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(node)], strict=True):
        # What until then has covered of the time: only what an interval has beyond that counts.
        covered = np.maximum.accumulate(end_s[start:stop])
        before = np.append(begin_s[start], covered[:-1])
        seconds += float(np.maximum(0.0, covered - np.maximum(before, begin_s[start:stop])).sum())
    return seconds
