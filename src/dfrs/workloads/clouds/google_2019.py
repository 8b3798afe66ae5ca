"""Google cluster data 2019: the tables collection_events and instance_events of one cell, as JSON lines or CSV.

The trace is in BigQuery, with a copy as files `instance_events-000000000000.json.gz` and so on. BigQuery writes whole
numbers as texts in JSON, and leaves out fields without a value; a CSV cannot have nested fields, so CPU and memory of
`resource_request` are columns of their own. Fields, events and priorities: clusterdata_trace_format_v3.proto, "Google
cluster-usage traces v3" and the analysis notebook in github.com/google/cluster-data.

Times are microseconds; the trace begins at 600 s; 0 is before it, 2^63 - 1 after its end. A collection is a job, with
instances that are its tasks, or an alloc set, which reserves room for other jobs. Requests are fractions of the largest
machine's CPU and memory, so that machine is the reference node.

A collection becomes one job. Its tasks are the instances that were started. Each one's time is that of its last
attempt, from the last SCHEDULE to the first end after that: an attempt that was evicted or failed, and was followed by
another, is the cost of how the cell was scheduled. The job's run time is the mean of them, so that tasks times run time
is the time that they took together; its CPU need is the mean of their requests, its memory the largest. Submission is
the first SUBMIT of the collection, or of its instances where collection_events are not given.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import polars as pl

from dfrs.model.errors import InputError
from dfrs.model.instance import Bools, Floats, Ints
from dfrs.model.jobs import Workload
from dfrs.workloads.clouds.jobs import CloudJobs, CloudOptions, CloudReport, to_workload
from dfrs.workloads.clouds.tables import Column, csv_frames, first_line, json_frames

TRACE = "Google cluster data 2019"
NODE = "the largest machine of the trace: 1 NCU and 1 of normalised memory"

SUBMIT, SCHEDULE, EVICT, FAIL, FINISH, KILL, LOST = 0, 3, 4, 5, 6, 7, 8
ENDS = (EVICT, FAIL, FINISH, KILL, LOST)
KNOWN_ENDS = (FAIL, FINISH, KILL)
ALLOC_SET = 1
AFTER_US = 2**63 - 1
BEGIN_US = 600_000_000
TIERS = (100, 116, 120)
"""Priorities from which on a job is best-effort batch, mid-tier, production; below it is of the free tier."""

MOST_ROWS = 2_000_000
"""Rows that wait until they are put together with those that came before."""

_COMMON = (
    Column(name="time", needed=True, least=0),
    Column(name="type", needed=True, least=0, most=10),
    Column(name="collection_id", needed=True),
    Column(name="priority"),
    Column(name="collection_type", least=0, most=1),
)
COLLECTIONS = (*_COMMON, Column(name="user", dtype=pl.String))
INSTANCES = (
    *_COMMON,
    Column(name="instance_index", needed=True, least=0),
    Column(
        name="resource_request.cpus",
        dtype=pl.Float64,
        least=0,
        also=("resource_request_cpus", "cpus", "requested_cpus"),
    ),
    Column(
        name="resource_request.memory",
        dtype=pl.Float64,
        least=0,
        also=("resource_request_memory", "memory", "requested_memory"),
    ),
)
_INSTANCE = ["collection_id", "instance_index"]
_CPUS, _MEMORY = "resource_request.cpus", "resource_request.memory"


class Collections:
    """What events say of collections: one row for each, whatever the number of events."""

    def __init__(self) -> None:
        self._parts: list[pl.DataFrame] = []
        self._rows = 0
        self.last_us = BEGIN_US
        """The latest time of any event in the trace."""

    @property
    def seen(self) -> bool:
        """Whether there was any event."""
        return bool(self._parts)

    def outside(self, window_s: tuple[float, float]) -> Ints:
        """In order, the collections that are known to have been submitted outside of a window."""
        table = self.table().filter(pl.col("submit").is_not_null())
        submit_s = _submit_s(table)
        return table["collection_id"].to_numpy()[(submit_s < window_s[0]) | (submit_s >= window_s[1])]

    def add(self, events: pl.DataFrame) -> None:
        """Put a block of events of collections, or of instances, to what is known."""
        if "user" not in events.columns:
            events = events.with_columns(user=pl.lit(None, pl.String))
        inside = events.filter(pl.col("time") < AFTER_US)
        self.last_us = max(self.last_us, int(inside["time"].max() or 0))  # type: ignore[arg-type]
        submits = pl.col("time").filter(pl.col("type") == SUBMIT).min()
        part = inside.group_by("collection_id").agg(
            submit=submits,
            first=pl.col("time").min(),
            priority=pl.col("priority").max(),
            collection_type=pl.col("collection_type").max(),
            user=pl.col("user").max(),
        )
        self._parts.append(part)
        self._rows += part.height
        if self._rows > MOST_ROWS:
            self._parts = [self.table()]
            # Twice what is kept may wait: each row is put together a constant number of times.
            self._rows = -self._parts[0].height

    def table(self) -> pl.DataFrame:
        """By collection_id: submit (null if never), first, priority, collection_type, user."""
        together = pl.concat(self._parts).group_by("collection_id")
        least = (pl.col("submit", "first").min(), pl.col("priority", "collection_type", "user").max())
        return together.agg(*least).sort("collection_id")


class Instances:
    """Events of instances that can matter: starts, and ends that no later start has followed."""

    def __init__(self) -> None:
        self._parts: list[pl.DataFrame] = []
        self._rows = 0

    @property
    def seen(self) -> bool:
        """Whether there was any event, of whatever type."""
        return bool(self._parts)

    def add(self, events: pl.DataFrame) -> None:
        """Put a block of events to what is known."""
        part = events.filter(
            pl.col("type").is_in((SCHEDULE, *ENDS)),
            pl.col("time") < AFTER_US,
            pl.col("collection_type").fill_null(0) != ALLOC_SET,
        ).select(*_INSTANCE, "time", pl.col("type").cast(pl.Int8), _CPUS, _MEMORY)
        self._parts.append(part)
        self._rows += part.height
        if self._rows > MOST_ROWS:
            self._parts = [self._recent()]
            self._rows = -self._parts[0].height

    def _recent(self) -> pl.DataFrame:
        events = pl.concat(self._parts)
        started = pl.col("time").filter(pl.col("type") == SCHEDULE).max().over(_INSTANCE)
        return events.filter((pl.col("time") >= started).fill_null(True))

    def attempts(self) -> pl.DataFrame:
        """The last attempt of each instance that was started, by collection and index.

        start, end (null where it has none) in microseconds, and the type of the last event that ends it.
        """
        events = self._recent()
        last = events.filter(pl.col("type") == SCHEDULE).sort("time", _CPUS, _MEMORY)
        last = last.unique(_INSTANCE, keep="last", maintain_order=True).rename({"time": "start"}).drop("type")
        ends = events.filter(pl.col("type") != SCHEDULE).select(*_INSTANCE, "time", "type")
        ends = ends.join(last.select(*_INSTANCE, "start"), on=_INSTANCE)
        # An end at the very time of the start is that of the attempt before, unless it is the only one.
        ends = ends.with_columns(at_start=pl.col("time") == pl.col("start")).sort("at_start", "time", "type")
        first = ends.unique(_INSTANCE, keep="first", maintain_order=True).select(*_INSTANCE, end="time")
        ends = ends.sort("at_start", "time", "type", descending=[True, False, False])
        final = ends.unique(_INSTANCE, keep="last", maintain_order=True).select(*_INSTANCE, "type")
        found = last.join(first, on=_INSTANCE, how="left").join(final, on=_INSTANCE, how="left")
        return found.sort(_INSTANCE)


def read(
    instances: Iterable[Path], collections: Iterable[Path], options: CloudOptions, *, source: str, name: str
) -> tuple[Workload, CloudReport]:
    """The workload of files of both tables, of which collection_events may be missing. Raises InputError."""
    known, started = Collections(), Instances()
    for path in collections:
        for frame in _frames(path, COLLECTIONS):
            known.add(frame)
    # Of a whole trace, only the window's instances are to stay in memory.
    outside = known.outside(options.window_s) if options.window_s and known.seen else np.zeros(0, np.int64)
    for path in instances:
        for frame in _frames(path, INSTANCES):
            known.add(frame)
            started.add(frame.filter(~_among(outside, frame["collection_id"].to_numpy())))
    if not started.seen:
        raise InputError(f"{source}: instance_events without a line: must have some")
    jobs = _jobs(known, started, options)
    return to_workload(jobs, options, source=source, name=name, trace=TRACE, node=NODE, unit="collections")


def _among(ids: Ints, collections: Ints) -> Bools:
    """(R,) which of some collections are among `ids`, which are in order."""
    if not len(ids):
        return np.zeros(len(collections), np.bool_)
    return ids[np.minimum(np.searchsorted(ids, collections), len(ids) - 1)] == collections


def _frames(path: Path, columns: tuple[Column, ...]) -> Iterator[pl.DataFrame]:
    return json_frames(path, columns) if first_line(path).startswith("{") else csv_frames(path, columns, header=True)


def _jobs(known: Collections, started: Instances, options: CloudOptions) -> CloudJobs:
    table = known.table()
    attempts = started.attempts()
    ids = table["collection_id"].to_numpy()
    owner = np.searchsorted(ids, attempts["collection_id"].to_numpy())
    tasks = np.bincount(owner, minlength=len(ids))
    begun = tasks > 0
    first = np.searchsorted(owner, np.flatnonzero(begun))

    def of_tasks(values: np.ndarray, put: np.ufunc, otherwise: float) -> np.ndarray:
        # One job after the other in the order of instances, so that sums are the same to the bit each time.
        found = np.full(len(ids), otherwise, values.dtype)
        found[begun] = put.reduceat(values, first) if len(values) else values
        return found

    final = attempts["type"].fill_null(-1).to_numpy()
    start = attempts["start"].to_numpy()
    end = attempts["end"].fill_null(known.last_us).to_numpy()
    ran = np.maximum(end - np.maximum(start, BEGIN_US), 0)
    heard_before = (table["submit"].fill_null(table["first"]) == 0).to_numpy()
    before = heard_before | of_tasks(start == 0, np.logical_or, 0)
    cut = of_tasks(~np.isin(final, KNOWN_ENDS), np.logical_or, 0)
    failed = of_tasks(final == FAIL, np.logical_or, 0)
    killed = of_tasks(final == KILL, np.logical_or, 0) & ~failed
    count = np.maximum(tasks, 1)
    drop = options.cut_off == "drop"
    cuts = (
        ("submitted before the trace begins", before),
        ("cut off, evicted or lost without a known end", cut & ~before),
    )
    return CloudJobs(
        job_id=ids,
        submit_s=_submit_s(table),
        tasks=tasks,
        need=of_tasks(attempts[_CPUS].fill_null(np.nan).to_numpy(), np.add, np.nan) / count,
        memory=of_tasks(attempts[_MEMORY].fill_null(np.nan).to_numpy(), np.maximum, np.nan),
        run_s=of_tasks(ran, np.add, 0) / count / 1e6,
        user=_users(table["user"], _submit_s(table)),
        weight=tier(table["priority"].fill_null(0).to_numpy()),
        left_out=(
            ("alloc sets", (table["collection_type"].fill_null(0) == ALLOC_SET).to_numpy()),
            ("never started", ~begun),
            *(cuts if drop else ()),
        ),
        notes=(("with a failed task", failed), ("killed", killed), *(() if drop else cuts)),
    )


def tier(priority: Ints) -> Floats:
    """(J,) 1 for the free tier, 2 for best-effort batch, 3 for mid, 4 for production."""
    return (1 + np.searchsorted(np.array(TIERS), priority, side="right")).astype(np.float64)


def _submit_s(table: pl.DataFrame) -> Floats:
    """(J,) when each collection was submitted, or else was first heard of; not before the trace begins."""
    submit_us = np.maximum(table["submit"].fill_null(table["first"]).to_numpy(), BEGIN_US)
    return submit_us.astype(np.float64) / 1e6


def _users(names: pl.Series, submit_s: Floats) -> Ints:
    """(J,) numbers of users from 1, in the order of their first submission; -1 where the trace has no name."""
    order = np.argsort(submit_s, kind="stable")
    ranked = names.gather(order)
    distinct = ranked.drop_nulls().unique(maintain_order=True)
    numbers = dict(zip(distinct.to_list(), range(1, len(distinct) + 1), strict=True))
    found = np.empty(len(names), np.int64)
    found[order] = ranked.replace_strict(numbers, default=-1, return_dtype=pl.Int64).to_numpy()
    return found
