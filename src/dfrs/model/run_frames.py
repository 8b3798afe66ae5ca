"""A run as polars frames. Times are in seconds; what did not happen is null."""

from itertools import pairwise
from typing import Literal

import polars as pl

from dfrs.model.instance import Floats
from dfrs.model.run import Action, Run

Table = Literal["jobs", "events"]


def run_frame(run: Run, table: Table) -> pl.DataFrame:
    """See `Run.to_frame`."""
    return _jobs(run) if table == "jobs" else _events(run)


def _optional(values: Floats) -> pl.Series:
    return pl.Series(values, dtype=pl.Float64, nan_to_null=True)


def _jobs(run: Run) -> pl.DataFrame:
    work = run.workload
    return pl.DataFrame(
        {
            "job_id": work.job_id,
            "user": work.user,
            "tasks": work.tasks,
            "need": work.need,
            "memory": work.memory,
            "weight": work.weight,
            "submit_s": work.submit_s,
            "release_s": work.release_s,
            "estimate_s": _optional(work.estimate_s),
            "process_s": run.process_s,
            "start_s": _optional(run.start_s),
            "finish_s": _optional(run.finish_s),
            "wait_s": _optional(run.start_s - work.release_s),
            "flow_s": _optional(run.finish_s - work.release_s),
            "stretch": _optional(run.stretch),
            "pauses": run.count(Action.PAUSE),
            "migrations": run.count(Action.MIGRATE),
        }
    )


def _events(run: Run) -> pl.DataFrame:
    events = run.events
    ids = run.workload.job_id.tolist()
    names = [Action(action).name.lower() for action in events.action.tolist()]
    first, nodes = events.first.tolist(), events.nodes.tolist()
    return pl.DataFrame(
        {
            "time_s": events.time_s,
            "job_id": pl.Series([None if job < 0 else ids[job] for job in events.job.tolist()], dtype=pl.Int64),
            "action": pl.Series(names, dtype=pl.String),
            "nodes": pl.Series([nodes[a:b] for a, b in pairwise(first)], dtype=pl.List(pl.Int64)),
            "yield": _optional(events.yield_),
            "why": pl.Series([events.reasons[why] for why in events.why.tolist()], dtype=pl.String),
        }
    )
