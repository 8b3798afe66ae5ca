"""From the jobs of a cloud trace to a workload: which are taken, which are left out and why, and what a node is.

A trace is a window on a cluster that ran before and ran on. Jobs that are cut off at an end of the window, because they
were submitted before it or had not ended when it did, are left out, or with `cut_off="keep"` taken with the part of
their time that the trace shows.
"""

from dataclasses import dataclass

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.instance import Bools, Floats, Ints
from dfrs.model.jobs import Workload
from dfrs.workloads.annotate import choose_estimates

CUT_OFF = ("drop", "keep")
LEAST_RUN_S = 1.0
"""What a run time of 0 is taken as, as in other traces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudOptions:
    """What a user decides about a cloud trace."""

    nodes: int
    estimates: str | float = "perfect"
    """As of `dfrs.workloads.annotate.to_workload`; users of these traces stated none."""
    window_s: tuple[float, float] | None = None
    """Only jobs submitted from the first to before the second of these times; the workload's clock starts there."""
    cut_off: str = "drop"
    machine: int | None = None
    """Of an Azure trace, the machine that is the reference node; None: that on which most requests can run."""

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise InputError(f"nodes = {self.nodes}: must be at least 1")
        if self.cut_off not in CUT_OFF:
            raise InputError(f'cut_off = "{self.cut_off}": must be one of {", ".join(CUT_OFF)}')
        if self.window_s is not None and not 0 <= self.window_s[0] < self.window_s[1]:
            raise InputError("window = {:g}:{:g}: must start at 0 or later, and end after that".format(*self.window_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudReport:
    """What was taken of a cloud trace."""

    source: str
    trace: str
    """Its name, with the year."""
    node: str
    """What the reference node is."""
    unit: str
    """What the trace calls those that become jobs."""
    jobs: int
    """Of them in the trace."""
    taken: int
    tasks: int
    """Of those taken."""
    notes: tuple[tuple[str, int], ...]
    """What else is to be known of those taken, and of how many."""
    left_out: tuple[tuple[str, int], ...]
    """Why others are not, and how many: each under the first reason that holds."""

    def lines(self) -> list[str]:
        """One line about what is taken, and one about what is not, if anything."""
        taken = f"{self.taken:,} of {self.jobs:,} {self.unit} taken, with {self.tasks:,} tasks"
        notes = f" ({_counted(self.notes)})" if self.notes else ""
        lines = [f"{self.source}: {self.trace}: {taken}{notes}; a node is {self.node}"]
        if self.left_out:
            lines.append(f"{self.source}: left out: {_counted(self.left_out)}")
        return lines


def _counted(reasons: tuple[tuple[str, int], ...]) -> str:
    return ", ".join(f"{count:,} {why}" for why, count in reasons)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CloudJobs:
    """J jobs as a trace has them, in any order; values may be out of the range of a workload's."""

    job_id: Ints
    submit_s: Floats
    tasks: Ints
    need: Floats
    """(J,) CPU request of a task, in nodes; NaN if the trace has none."""
    memory: Floats
    """(J,) memory request of a task, in nodes; NaN if the trace has none."""
    run_s: Floats
    user: Ints
    weight: Floats
    left_out: tuple[tuple[str, Bools], ...]
    """Why some are not taken, in the order in which reasons count, (J,) each."""
    notes: tuple[tuple[str, Bools], ...] = ()
    outside: int = 0
    """Jobs of the trace that are not among the J, since they were submitted outside the window."""


def to_workload(
    jobs: CloudJobs, options: CloudOptions, *, source: str, name: str, trace: str, node: str, unit: str
) -> tuple[Workload, CloudReport]:
    """The workload of those jobs that can be taken, by submission, ties by number; and what was not and why.

    Raises InputError where none remains.
    """
    keep = np.ones(len(jobs.job_id), np.bool_)
    known = len(keep) + jobs.outside
    left_out: list[tuple[str, int]] = []
    from_s, to_s = options.window_s or (-np.inf, np.inf)
    reasons = (
        ("submitted outside the window", (jobs.submit_s < from_s) | (jobs.submit_s >= to_s)),
        *jobs.left_out,
        ("without a CPU request", ~(jobs.need > 0)),
        ("without a memory request", ~(jobs.memory >= 0)),
        ("with tasks larger than a node", (jobs.need > 1) | (jobs.memory > 1)),
    )
    for k, (why, bad) in enumerate(reasons):
        count = int((bad & keep).sum()) + (jobs.outside if k == 0 else 0)
        if count:
            left_out.append((why, count))
            keep &= ~bad
    if not keep.any():
        why = f": left out: {_counted(tuple(left_out))}" if left_out else ""
        raise InputError(f"{source}: no {unit} of {known:,} can be taken{why}")
    order = np.lexsort((jobs.job_id, jobs.submit_s))
    order = order[keep[order]]
    short = jobs.run_s <= 0
    run_s = np.where(short, LEAST_RUN_S, jobs.run_s)[order]
    workload = Workload(
        job_id=jobs.job_id[order],
        submit_s=jobs.submit_s[order] - (options.window_s or (0.0,))[0],
        tasks=jobs.tasks[order],
        need=jobs.need[order],
        memory=jobs.memory[order],
        run_s=run_s,
        estimate_s=choose_estimates(options.estimates, run_s, run_s, np.maximum(run_s, 1.0)),
        user=jobs.user[order],
        weight=jobs.weight[order],
        nodes=options.nodes,
        name=name,
    )
    noted = (*jobs.notes, ("with a run time of 0, taken as 1 s", short))
    notes = [(why, int((those & keep).sum())) for why, those in noted]
    return workload, CloudReport(
        source=source,
        trace=trace,
        node=node,
        unit=unit,
        jobs=known,
        taken=len(order),
        tasks=int(workload.tasks.sum()),
        notes=tuple((why, count) for why, count in notes if count),
        left_out=tuple(left_out),
    )
