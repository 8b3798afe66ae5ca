"""What Slurm's accounting says of jobs: a record for each time a job was queued, with the steps that ran in it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

AGAIN = frozenset({"REQUEUED", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED", "RESIZING"})
"""States of a record after which another of the same job may follow."""
WAITING = frozenset({"PENDING", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT", "CONFIGURING"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of a job: `batch`, `extern`, or what one `srun` started."""

    start: float | None
    end: float | None
    nodes: int
    tasks: int
    memory: float
    """Bytes, the peak of the largest of its tasks (MaxRSS); 0 where not measured."""
    cpu_s: float
    """CPU time of all its tasks; 0 where not measured."""


@dataclass(slots=True, kw_only=True)
class Record:
    """One time that a job was queued. Instants are in seconds on the site's clock; None where they have not come."""

    where: str
    """File and place in it, for messages."""
    line: int
    """0 where the file has no lines that mean anything."""
    name: str
    """`123`, `123_4` or `123+0`."""
    number: int | None
    """Slurm's own number of this job, or of this task of an array."""
    state: str
    user: str
    submit: float
    eligible: float | None
    start: float | None
    end: float | None
    elapsed_s: float
    """On nodes, without the time in which it was suspended."""
    cpus: int
    nodes: int
    limit_s: float | None
    requested: float | None
    """Bytes on each node."""
    cpu_s: float
    """Of the record as a whole; 0 where not measured."""
    gpus: bool
    steps: list[Step] = field(default_factory=list[Step])

    @property
    def ran(self) -> bool:
        """Whether it was on nodes and has ended.

        Who never started has no start, or one that is its end: then only AllocNodes tells, or that there is no step.
        """
        if self.start is None or self.end is None or not (self.cpus and self.nodes):
            return False
        return self.elapsed_s > 0 or bool(self.steps) or self.state == "COMPLETED"

    @property
    def measured_cpu_s(self) -> float | None:
        """CPU time of its steps, or of the record where these have none; None where neither says."""
        return sum(step.cpu_s for step in self.steps) or self.cpu_s or None

    @property
    def measured_memory(self) -> float | None:
        """Bytes on each node at its peak; None where no step was measured. See `peak_memory`."""
        return peak_memory(self.steps, self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounting:
    """The records of a file, in its order."""

    source: str
    name: str
    records: tuple[Record, ...]
    unix: bool
    """Whether instants are Unix time; else they are the site's wall clock as if that were UTC."""


def peak_memory(steps: Sequence[Step], nodes: int) -> float | None:
    """Bytes that a job had on each of its nodes; None where no step was measured.

    Accounting knows the peak of the largest task of each step. On a node that is taken for all its tasks, and the job
    had the larger of two: the most that a single step had on a node, and the mean over the job's nodes of all steps
    that ran at the same time.
    """
    measured = [step for step in steps if step.memory > 0]
    if not measured:
        return None
    single = max(step.memory * math.ceil(step.tasks / step.nodes) for step in measured)
    changes: list[tuple[float, float]] = []
    for step in measured:
        whole = step.memory * step.tasks
        changes.append((-math.inf if step.start is None else step.start, whole))
        changes.append((math.inf if step.end is None else step.end, -whole))
    present = together = 0.0
    # What ends at an instant is gone before what begins then.
    for _, change in sorted(changes):
        present += change
        together = max(together, present)
    return max(single, together / nodes)
