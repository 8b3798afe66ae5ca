"""The jobs of a run as the job set of evalys, a tool that analyses and draws schedules (its `JobSet.from_csv`).

A job set has a row for each job, with one set of nodes from its start to its end. A job that was paused or moved is
there with its last nodes and no gap: what it did meanwhile only dfrs's own files say. Jobs that did not finish have no
row.
"""

from pathlib import Path

import numpy as np
import polars as pl

from dfrs.model.run import PLACING, Run
from dfrs.model.writing import write_text
from dfrs.runs.node_sets import node_set


def write_evalys(run: Run, path: Path) -> int:
    """Write the job set, and return how many of its jobs were paused or moved. Raises InputError where that fails."""
    work, events = run.workload, run.events
    placing = np.flatnonzero(np.isin(events.action, PLACING))
    last = np.full(len(work), -1, np.int64)
    last[events.job[placing]] = placing
    done = np.flatnonzero(np.isfinite(run.finish_s))
    flow_s, run_s = run.finish_s - work.submit_s, run.finish_s - run.start_s
    frame = pl.DataFrame(
        {
            "job_id": work.job_id[done],
            "workload_name": [work.name] * len(done),
            "submission_time": work.submit_s[done],
            "requested_number_of_resources": work.tasks[done],
            "requested_time": pl.Series(work.estimate_s[done], dtype=pl.Float64, nan_to_null=True),
            "success": np.ones(len(done), np.int64),
            "starting_time": run.start_s[done],
            "execution_time": run_s[done],
            "finish_time": run.finish_s[done],
            "waiting_time": (run.start_s - work.submit_s)[done],
            "turnaround_time": flow_s[done],
            "stretch": flow_s[done] / run_s[done],
            "allocated_resources": [node_set(np.unique(events.nodes_of(int(last[job])))) for job in done.tolist()],
        }
    )
    write_text(path, frame.write_csv())
    return int((np.bincount(events.job[placing], minlength=len(work))[done] > 1).sum())
