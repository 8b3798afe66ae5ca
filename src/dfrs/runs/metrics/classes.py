"""Bounded stretch by class of job: who pays for a good mean.

The default classes are the sixteen of R. Kettimuthu, V. Subramani, S. Srinivasan, T. Gopalsamy, D. K. Panda and
P. Sadayappan (Selective Preemption Strategies for Parallel Job Scheduling, ICPP 2002): sequential, narrow (2 to 8),
wide (9 to 32) and very wide jobs, each very short (up to 10 minutes), short (up to an hour), long (up to 8 hours) and
very long. Sizes are tasks, as submitted; run times are processing times.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.run import Run
from dfrs.runs.metrics.schedule import bounded_stretch
from dfrs.runs.metrics.window import Window

SIZES = (1, 8, 32)
TIMES_S = (600.0, 3600.0, 28800.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobClass:
    """Jobs with more than `above_tasks` and at most `most_tasks` tasks, and likewise by processing time."""

    above_tasks: int
    most_tasks: int | None
    """None: any number."""
    above_s: float
    most_s: float | None
    jobs: int
    """Those that finished; the figures are None without one."""
    bounded_stretch_mean: float | None
    bounded_stretch_max: float | None
    wait_mean_s: float | None


def job_classes(
    run: Run,
    window: Window,
    tau_s: float,
    sizes: Sequence[int] = SIZES,
    times_s: Sequence[float] = TIMES_S,
) -> list[JobClass]:
    """All classes of the jobs of a window, by size and then by time; `sizes` and `times_s` are the limits between them.

    Raises InputError where limits are not above 0 and ascending.
    """
    for label, limits in (("sizes", sizes), ("times", times_s)):
        if any(not before < after for before, after in pairwise((0, *limits))):
            shown = ",".join(f"{limit:g}" for limit in limits)
            raise InputError(f"{label} = {shown}: limits must be above 0 and ascending")
    done = window.jobs & np.isfinite(run.finish_s)
    size = np.searchsorted(np.array(sizes, np.float64), run.workload.tasks)
    length = np.searchsorted(np.array(times_s, np.float64), run.process_s)
    stretch, wait_s = bounded_stretch(run, tau_s), run.start_s - run.workload.release_s
    found: list[JobClass] = []
    for k, (above_tasks, most_tasks) in enumerate(pairwise((0, *sizes, None))):
        for i, (above_s, most_s) in enumerate(pairwise((0.0, *times_s, None))):
            own = done & (size == k) & (length == i)
            any_ = bool(own.any())
            found.append(
                JobClass(
                    above_tasks=above_tasks or 0,
                    most_tasks=most_tasks,
                    above_s=above_s or 0.0,
                    most_s=most_s,
                    jobs=int(own.sum()),
                    bounded_stretch_mean=float(stretch[own].mean()) if any_ else None,
                    bounded_stretch_max=float(stretch[own].max()) if any_ else None,
                    wait_mean_s=float(wait_s[own].mean()) if any_ else None,
                )
            )
    return found
