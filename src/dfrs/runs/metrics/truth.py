"""What a recorded schedule was worth: the jobs of a workload as they ran in truth, under another scheduler.

The keys are those of `summarize`, as far as starts and ends decide them, so that the two can stand side by side.
"""

import numpy as np
import polars as pl

from dfrs.model.instance import Floats
from dfrs.model.jobs import Workload
from dfrs.runs.metrics.schedule import Metrics, statistics_of


def truth_metrics(workload: Workload, start_s: Floats, end_s: Floats, capacity: Floats, *, tau_s: float) -> Metrics:
    """Metrics of J jobs that ran from `start_s` to `end_s` (J,) on nodes of `capacity` (N, 2), all of them to the end.

    Utilisation is of the CPU that they needed and the memory that they had while they were on nodes.
    """
    flow_s = end_s - workload.release_s
    bounded = np.maximum(flow_s, tau_s) / np.maximum(workload.run_s, tau_s)
    span_s = float(end_s.max() - workload.submit_s[0])
    node_s = workload.tasks * workload.run_s
    cpu_s, memory_s = capacity.sum(axis=0) * span_s
    metrics: Metrics = {
        "jobs": len(workload),
        "jobs_finished": len(workload),
        "makespan_s": span_s,
        "span_s": span_s,
        "tau_s": tau_s,
        "run_mean_s": float(workload.run_s.mean()),
        "cpu_utilisation": float((node_s * workload.need).sum() / cpu_s) if cpu_s > 0 else None,
        "memory_utilisation": float((node_s * workload.memory).sum() / memory_s) if memory_s > 0 else None,
    }
    metrics |= statistics_of("stretch", flow_s / workload.run_s) | statistics_of("bounded_stretch", bounded)
    return metrics | statistics_of("wait", start_s - workload.release_s, "_s") | statistics_of("flow", flow_s, "_s")


def truth_table(workload: Workload, start_s: Floats, end_s: Floats) -> str:
    """The same jobs as CSV, in the columns of `jobs.csv` that starts and ends (J,) decide."""
    flow_s = end_s - workload.release_s
    return pl.DataFrame(
        {
            "job_id": workload.job_id,
            "submission_time": workload.submit_s,
            "starting_time": start_s,
            "execution_time": end_s - start_s,
            "finish_time": end_s,
            "waiting_time": start_s - workload.release_s,
            "turnaround_time": flow_s,
            "stretch": flow_s / workload.run_s,
            "processing_time": workload.run_s,
        }
    ).write_csv()
