"""What dedicated jobs and users' commands add to the metrics of a run ([Kumar2011] sections III and IV)."""

import numpy as np

from dfrs.model.run import Run
from dfrs.model.tolerances import SAME_S
from dfrs.runs.metrics.window import Window


def elastic_metrics(run: Run, window: Window) -> dict[str, float | int | None]:
    """How many dedicated jobs there are and how late they started, and how many commands were granted, in a window.

    A delay is from the job's release, and on time is who starts within SAME_S of it: what jobs before it had left is
    known up to rounding. The statistics are over dedicated jobs that started, None if none did.
    """
    work, answers = run.workload, run.answers
    dedicated = work.dedicated & window.jobs
    delay_s = (run.start_s - work.release_s)[dedicated & np.isfinite(run.start_s)]
    counts = window.holds(answers.time_s)
    commands, granted = int(counts.sum()), int((answers.granted & counts).sum())
    return {
        "dedicated_jobs": int(dedicated.sum()),
        "dedicated_on_time": int((delay_s <= SAME_S).sum()),
        "dedicated_delay_mean_s": float(delay_s.mean()) if len(delay_s) else None,
        "dedicated_delay_max_s": float(delay_s.max()) if len(delay_s) else None,
        "commands": commands,
        "commands_granted": granted,
        "commands_refused": commands - granted,
    }
