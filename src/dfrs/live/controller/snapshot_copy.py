"""The core's present, copied after each decision, so that others may look while the core goes on."""

from dataclasses import dataclass, field, replace

import numpy as np

from dfrs.engine.core import Core
from dfrs.model.decisions import CPU, RUNNING, Jobs, Snapshot
from dfrs.model.instance import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotCopy:
    """Columns as in a snapshot; held jobs are not in it."""

    snapshot: Snapshot
    """With arrays of its own."""
    wake_at_s: float | None
    rows: dict[int, int] = field(repr=False)
    """Row by job id."""
    left: Floats | None = None
    """(N,) the part of each node's CPU that is left for tasks; None: all of it."""
    states: tuple[int, ...] = field(init=False, repr=False)
    """(R,) as in the column: of single rows numpy gives it ten times more slowly."""

    running: tuple[int, ...] = field(init=False, repr=False)
    """Ids of jobs that are on nodes: of tens of thousands few are, and others need not be looked at one by one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "states", tuple(self.jobs["state"].tolist()))
        object.__setattr__(self, "running", tuple(self.jobs["id"][self.jobs["state"] == RUNNING].tolist()))

    @property
    def jobs(self) -> Jobs:
        """(R,) of type JOB."""
        return self.snapshot.jobs

    def row(self, job: int) -> np.void | None:
        """The job's row, None where the policy does not see it."""
        row = self.rows.get(job)
        return None if row is None else self.jobs[row]

    def state(self, job: int) -> int | None:
        """The job's state, None where the policy does not see it."""
        row = self.rows.get(job)
        return None if row is None else self.states[row]

    def part_left(self, node: int) -> float:
        """Of a node's CPU: what the policy sees of it."""
        return 1.0 if self.left is None or node >= len(self.left) else float(self.left[node])

    def nodes_of(self, job: int) -> Ints:
        """One node number a task, -1 where it has none."""
        row = self.rows.get(job)
        if row is None:
            return np.zeros(0, np.int64)
        return self.snapshot.task_nodes[self.snapshot.first[row] : self.snapshot.first[row + 1]]

    def on(self, node: int) -> list[int]:
        """Ids of jobs with a task on a node."""
        slots = np.flatnonzero(self.snapshot.task_nodes == node)
        rows = np.unique(np.searchsorted(self.snapshot.first, slots, side="right") - 1)
        return self.jobs["id"][rows].tolist()


def copy_snapshot(core: Core) -> SnapshotCopy:
    """As it is now."""
    seen = core.snapshot()
    # Its columns of jobs are views of the core's, all else in it is read-only or made for it.
    own = replace(seen, jobs=seen.jobs.copy(), first=seen.first.copy(), task_nodes=seen.task_nodes.copy())
    names = own.jobs["id"].tolist()
    whole = core.capacity[:, CPU]
    left = np.divide(seen.capacity[:, CPU], whole, out=np.ones(len(whole)), where=whole > 0)
    return SnapshotCopy(own, core.wake_at_s, dict(zip(names, range(len(names)), strict=True)), left)


def virtual_s(row: np.void, then_s: float, now_s: float) -> float:
    """A job's virtual time at `now_s`, from its row at `then_s`."""
    grown = 0.0
    if row["state"] == RUNNING:
        grown = float(row["yield_"]) * max(0.0, now_s - max(then_s, float(row["ready_s"])))
    return float(row["virtual_s"]) + grown


def yields(picture: SnapshotCopy) -> Floats:
    """(R,) of all jobs that the policy sees; 0 for those without nodes."""
    return picture.jobs["yield_"]
