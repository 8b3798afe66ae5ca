"""Alibaba cluster trace 2018: batch_task.csv, and with it batch_instance.csv and container_meta.csv where given.

The files have no header; their columns, units and states are those of cluster-trace-v2018/schema.txt in
github.com/alibaba/clusterdata. CPU is in hundredths of a core, memory in hundredths of the largest machine's, times are
seconds from the beginning of the 8 days; a time of 0 is outside of them. Memory of -1 or 101 is invalid, by the
documentation. The reference node is one machine of the trace, 96 cores and all of that memory.

A row of batch_task.csv becomes one job with `instance_num` tasks: what the trace calls a job is a graph of such rows,
and a row starts when those that it depends on have ended. The trace has no submissions, so a job is submitted when it
started. Its run time is from start to end, or with batch_instance.csv the mean time of its instances that terminated,
which need not all run at once. A container of container_meta.csv becomes one job with one task, from its first row
until it is stopped. Numbers of jobs are those of lines.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from dfrs.model.errors import InputError
from dfrs.model.jobs import Workload
from dfrs.workloads.clouds.jobs import CloudJobs, CloudOptions, CloudReport, to_workload
from dfrs.workloads.clouds.tables import Column, csv_frames

TRACE = "Alibaba cluster trace 2018"
CORES = 96
"""Of each machine of the trace, by machine_meta.csv."""
NODE = f"a machine of the trace: {CORES} cores and 100 % of normalised memory"
UNIT = "batch tasks and containers"
PER_CORE = 100.0
LARGEST_MEMORY = 100.0

STATES = ("Ready", "Waiting", "Running", "Terminated", "Failed", "Cancelled", "Interrupted")
BEFORE_A_START = ("Ready", "Waiting")
CONTAINERS_FROM = 1_000_000_000
"""Added to the line of a container's first row for its number as a job."""
BATCH, ONLINE = 1.0, 2.0
"""Weights: the cluster runs batch jobs in what its online services leave."""

_TIMES = (Column(name="start_time"), Column(name="end_time"))
TASKS = (
    Column(name="task_name", dtype=pl.String, needed=True),
    Column(name="instance_num", least=0),
    Column(name="job_name", dtype=pl.String, needed=True),
    Column(name="task_type", dtype=pl.String),
    Column(name="status", dtype=pl.String, needed=True, values=STATES),
    *_TIMES,
    Column(name="plan_cpu", dtype=pl.Float64),
    Column(name="plan_mem", dtype=pl.Float64),
)
INSTANCES = (
    Column(name="instance_name", dtype=pl.String),
    Column(name="task_name", dtype=pl.String),
    Column(name="job_name", dtype=pl.String),
    Column(name="task_type", dtype=pl.String),
    Column(name="status", dtype=pl.String, needed=True, values=STATES),
    *_TIMES,
    Column(name="machine_id", dtype=pl.String),
    Column(name="seq_no"),
    Column(name="total_seq_no"),
    Column(name="cpu_avg", dtype=pl.Float64),
    Column(name="cpu_max", dtype=pl.Float64),
    Column(name="mem_avg", dtype=pl.Float64),
    Column(name="mem_max", dtype=pl.Float64),
)
CONTAINERS = (
    Column(name="container_id", dtype=pl.String, needed=True),
    Column(name="machine_id", dtype=pl.String),
    Column(name="time_stamp", needed=True),
    Column(name="app_du", dtype=pl.String),
    Column(name="status", dtype=pl.String),
    Column(name="cpu_request", dtype=pl.Float64),
    Column(name="cpu_limit", dtype=pl.Float64),
    Column(name="mem_size", dtype=pl.Float64),
)

MOST_ROWS = 2_000_000
"""Rows of measured tasks that wait until those of the same task are put together."""


def read(
    tasks: Iterable[Path],
    instances: Iterable[Path],
    containers: Iterable[Path],
    options: CloudOptions,
    *,
    source: str,
    name: str,
) -> tuple[Workload, CloudReport]:
    """The workload of files of any of the three tables; batch_instance only adds to batch_task. Raises InputError."""
    measured = _measured(instances)
    from_s, to_s = options.window_s or (-np.inf, np.inf)
    parts: list[pl.DataFrame] = []
    outside, last_s = 0, 0
    for frame in _one_table(tasks, TASKS):
        found = _task_columns(frame)
        last_s = max(last_s, *found.select(pl.col("start", "end").max()).row(0))
        # What is outside is counted here: of a whole trace, only the window is to stay in memory.
        kept = found.filter(pl.max_horizontal("start", 0).is_between(from_s, to_s, closed="left"))
        outside += found.height - kept.height
        parts.append(_with_measured(kept, measured))
    rows = list(_one_table(containers, CONTAINERS))
    if rows:
        online = pl.concat(rows)
        last_s = max(last_s, *online.select(pl.col("time_stamp").max()).row(0))
        parts.append(_container_columns(online))
    if not parts:
        raise InputError(f"{source}: files without a line: must have some")
    jobs = _jobs(pl.concat(parts), options, outside, last_s)
    return to_workload(jobs, options, source=source, name=name, trace=TRACE, node=NODE, unit=UNIT)


def _one_table(paths: Iterable[Path], columns: Sequence[Column]) -> Iterator[pl.DataFrame]:
    """Frames of files that are parts of one table: `line`, which becomes a job's number, goes on from file to file."""
    before = 0
    for path in paths:
        last = 0
        for frame in csv_frames(path, columns, header=False):
            last = int(frame["line"][-1])
            yield frame.with_columns(pl.col("line") + before)
        before += last


def _key() -> pl.Expr:
    # 64 bits in place of two names: among 14 million tasks, two have the same with a probability of 5e-6.
    return pl.struct("job_name", "task_name").hash().alias("key")


def _measured(instances: Iterable[Path]) -> pl.DataFrame | None:
    """By key of a task: how many of its instances terminated, and their seconds together; None without any file."""
    parts: list[pl.DataFrame] = []
    rows, read_any = 0, False
    for path in instances:
        for frame in csv_frames(path, INSTANCES, header=False):
            read_any = True
            ran = (pl.col("status") == "Terminated") & (pl.col("start_time") > 0)
            ran &= pl.col("end_time") >= pl.col("start_time")
            part = frame.filter(ran).select(
                _key(), seconds=pl.col("end_time") - pl.col("start_time"), instances=pl.lit(1, pl.Int64)
            )
            parts.append(_summed([part]))
            rows += parts[-1].height
            if rows > MOST_ROWS:
                parts = [_summed(parts)]
                # Twice what is kept may wait: each row is put together a constant number of times.
                rows = -parts[0].height
    return _summed(parts) if read_any else None


def _summed(parts: list[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(parts).group_by("key").agg(pl.col("seconds", "instances").sum())


def _task_columns(frame: pl.DataFrame) -> pl.DataFrame:
    start, end = pl.col("start_time").fill_null(0), pl.col("end_time").fill_null(0)
    return frame.select(
        _key(),
        number=pl.col("line"),
        start=start,
        end=pl.when(end >= start).then(end).otherwise(0),
        state=pl.col("status").replace_strict({name: k for k, name in enumerate(STATES)}, return_dtype=pl.Int8),
        tasks=pl.col("instance_num").fill_null(0),
        cpu=pl.col("plan_cpu"),
        memory=pl.col("plan_mem"),
    )


def _with_measured(found: pl.DataFrame, measured: pl.DataFrame | None) -> pl.DataFrame:
    """Tasks with the mean seconds of their instances, null where these are not known, in place of the key."""
    if measured is None:
        return found.drop("key").with_columns(mean_s=pl.lit(None, pl.Float64))
    mean_s = pl.col("seconds") / pl.col("instances")
    with_sums = found.join(measured, on="key", how="left", maintain_order="left").with_columns(mean_s=mean_s)
    return with_sums.drop("key", "seconds", "instances")


def _container_columns(rows: pl.DataFrame) -> pl.DataFrame:
    rows = rows.sort("time_stamp", "line")
    stop = pl.col("time_stamp").filter((pl.col("status") == "stopped") & (pl.col("time_stamp") > 0)).min()
    found = rows.group_by("container_id", maintain_order=True).agg(
        number=pl.col("line").min() + CONTAINERS_FROM,
        start=pl.col("time_stamp").first(),
        end=stop.fill_null(0),
        cpu=pl.col("cpu_request").drop_nulls().last(),
        memory=pl.col("mem_size").drop_nulls().last(),
    )
    running, stopped = STATES.index("Running"), STATES.index("Terminated")
    state = pl.when(pl.col("end") > 0).then(stopped).otherwise(running).cast(pl.Int8)
    return found.select(
        "number",
        "start",
        "end",
        state=state,
        tasks=pl.lit(1, pl.Int64),
        cpu="cpu",
        memory="memory",
        mean_s=pl.lit(None, pl.Float64),
    )


def _jobs(found: pl.DataFrame, options: CloudOptions, outside: int, last_s: int) -> CloudJobs:
    def column(name: str, otherwise: float = 0) -> np.ndarray:
        return found[name].fill_null(otherwise).to_numpy()

    number, start, end, state = column("number"), column("start"), column("end"), column("state")
    waiting = np.isin(state, [STATES.index(name) for name in BEFORE_A_START])
    going_on = np.isin(state, [STATES.index(name) for name in ("Running", "Interrupted")])
    before = (start <= 0) & ~waiting
    cut = (going_on | (end <= 0)) & ~waiting
    until = np.where(cut, last_s, end)
    mean_s = column("mean_s", np.nan)
    measured = ~np.isnan(mean_s) & ~cut & ~before
    run_s = np.where(measured, mean_s, until - np.maximum(start, 0))
    memory = column("memory", np.nan)
    invalid = (memory < 0) | (memory > LARGEST_MEMORY)
    online = number >= CONTAINERS_FROM
    drop = options.cut_off == "drop"
    cuts = (("started before the trace begins", before), ("cut off at its end", cut & ~before))
    return CloudJobs(
        job_id=number,
        submit_s=np.maximum(start, 0).astype(np.float64),
        tasks=np.maximum(column("tasks"), 1),
        need=column("cpu", np.nan) / (PER_CORE * CORES),
        memory=np.where(invalid, np.nan, memory / LARGEST_MEMORY),
        run_s=np.maximum(run_s, 0).astype(np.float64),
        user=np.full(len(number), -1),
        weight=np.where(online, ONLINE, BATCH),
        left_out=(("never started", waiting), *(cuts if drop else ()), ("without an instance", column("tasks") < 1)),
        notes=(
            ("containers", online),
            ("failed", state == STATES.index("Failed")),
            ("cancelled", state == STATES.index("Cancelled")),
            ("with the mean time of their instances", measured),
            *(() if drop else cuts),
        ),
        outside=outside,
    )
