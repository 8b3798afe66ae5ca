"""A run as a trace for Perfetto (ui.perfetto.dev) and chrome://tracing, in the Trace Event Format of Chrome.

Each node is a process. A stay of a job's tasks on it, from one placement to the next change of nodes, pause or end, is
a slice; stays at the same time are on different threads. The job's yield during a stay is a counter of the node, by
the number of the thread. The process `cluster` counts jobs by state, CPU in use and the smallest yield. Times are in
microseconds, as the format has them.
"""

import gzip
import heapq
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dfrs.model.run import Action, Run
from dfrs.model.writing import write_bytes
from dfrs.runs.metrics.intervals import Intervals, job_intervals
from dfrs.runs.metrics.schedule import utilisation_timeline, yield_timeline

CLUSTER = 1
FIRST_NODE = 2
"""Process numbers: of the whole cluster, and of node 0. Viewers hide process 0."""
PER_S = 1e6

Event = dict[str, Any]


def write_perfetto(run: Run, path: Path) -> None:
    """Write the trace of a run, gzip where the name ends in `.gz`. Raises InputError where that fails."""
    document = {"displayTimeUnit": "ms", "traceEvents": list(trace_events(run))}
    data = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    write_bytes(path, gzip.compress(data, compresslevel=6, mtime=0) if path.suffix == ".gz" else data)


def trace_events(run: Run) -> Iterator[Event]:
    """All events: names first, then those of each process in the order of time."""
    yield from _named(CLUSTER, "cluster")
    for node in range(len(run.capacity)):
        yield from _named(FIRST_NODE + node, f"node {node}")
    yield from _cluster(run)
    yield from _stays(run)
    yield from _conditions(run)


def _micros(at_s: float) -> int:
    # Whole ones: of two slices that abut, Perfetto drops the later where they overlap by a nanosecond of rounding.
    return round(at_s * PER_S)


def _named(process: int, name: str) -> Iterator[Event]:
    yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": process}}


def _count(process: int, name: str, at_s: float, value: float) -> Event:
    return {"ph": "C", "name": name, "pid": process, "ts": _micros(at_s), "args": {"value": value}}


def _cluster(run: Run) -> Iterator[Event]:
    use, yields = utilisation_timeline(run), yield_timeline(run)
    levels = {"running": use.running, "paused": use.paused, "waiting": use.waiting, "CPU in use": use.cpu}
    for name, values in levels.items():
        yield from _changes(name, use.time_s.tolist(), [*values.tolist(), 0])
    yield from _changes("minimum yield", yields.time_s.tolist(), [*np.nan_to_num(yields.minimum).tolist(), 0.0])


def _changes(name: str, times_s: list[float], values: list[float]) -> Iterator[Event]:
    before = None
    for at_s, value in zip(times_s, values, strict=False):
        if value != before:
            yield _count(CLUSTER, name, at_s, value)
        before = value


def _stays(run: Run) -> Iterator[Event]:
    intervals = job_intervals(run)
    free: list[list[tuple[float, int]]] = [[] for _ in run.capacity]
    lanes = [0] * len(run.capacity)
    for first, last in _stay_bounds(intervals):
        job, row = int(intervals.job[first]), int(intervals.placement[first])
        begin_s, end_s = float(intervals.begin_s[first]), float(intervals.end_s[last])
        steps = [(float(intervals.begin_s[k]), float(intervals.yield_[k])) for k in range(first, last + 1)]
        for node, tasks in sorted(Counter(run.events.nodes_of(row).tolist()).items()):
            if free[node] and free[node][0][0] <= begin_s:
                _, lane = heapq.heappop(free[node])
            else:
                lanes[node] += 1
                lane = lanes[node]
            heapq.heappush(free[node], (end_s, lane))
            process = FIRST_NODE + node
            yield {
                "ph": "X",
                "name": f"job {run.workload.job_id[job]}",
                "pid": process,
                "tid": lane,
                "ts": _micros(begin_s),
                "dur": _micros(end_s) - _micros(begin_s),
                "args": {"tasks": tasks, "of": len(run.events.nodes_of(row)), "user": int(run.workload.user[job])},
            }
            for at_s, value in steps:
                yield _count(process, f"yield {lane}", at_s, value)
            yield _count(process, f"yield {lane}", end_s, 0.0)


def _stay_bounds(intervals: Intervals) -> list[tuple[int, int]]:
    """First and last interval of each stay, by its beginning."""
    runs = intervals.placement >= 0
    goes_on = np.zeros(len(runs), np.bool_)
    goes_on[1:] = (
        runs[1:]
        & (intervals.job[1:] == intervals.job[:-1])
        & (intervals.placement[1:] == intervals.placement[:-1])
        & (intervals.begin_s[1:] == intervals.end_s[:-1])
    )
    first = np.flatnonzero(runs & ~goes_on)
    last = np.flatnonzero(runs & ~np.append(goes_on[1:], False)[: len(runs)])
    order = np.argsort(intervals.begin_s[first], kind="stable")
    return list(zip(first[order].tolist(), last[order].tolist(), strict=True))


def _conditions(run: Run) -> Iterator[Event]:
    events = run.events
    for row in np.flatnonzero(np.isin(events.action, (Action.DOWN, Action.DRAIN, Action.UP))).tolist():
        for node in events.nodes_of(row).tolist():
            yield {
                "ph": "i",
                "s": "p",
                "name": Action(events.action[row]).name.lower(),
                "pid": FIRST_NODE + node,
                "tid": 0,
                "ts": _micros(float(events.time_s[row])),
            }
