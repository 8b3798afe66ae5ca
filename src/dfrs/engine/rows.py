"""The jobs present, in the order of submission: a table that grows and shrinks by rows, with slots for their tasks."""

from collections.abc import Mapping

import numpy as np

from dfrs.kernels import ledger
from dfrs.kernels.columns import grown
from dfrs.model.decisions import JOB, Jobs
from dfrs.model.instance import Ints

NewJob = tuple[int, int, int, float, float, float, float, float, float]
"""Id, user, tasks, need, memory, weight, estimate, requested start and minimum, as `ledger.add_row` takes them."""


class Rows:
    """`jobs`, `first` and `nodes` as in `dfrs.model.decisions`, longer than the `count` rows that they hold."""

    def __init__(self) -> None:
        self.jobs: Jobs = np.zeros(64, JOB)
        self.first: Ints = np.zeros(65, np.int64)
        self.nodes: Ints = np.full(256, -1, np.int64)
        self.count = 0

    def views(self) -> tuple[Jobs, Ints, Ints]:
        """Jobs, first and task nodes, read-only and of the length in use."""
        jobs, first = self.jobs[: self.count], self.first[: self.count + 1]
        nodes = self.nodes[: self.first[self.count]]
        jobs.flags.writeable = first.flags.writeable = nodes.flags.writeable = False
        return jobs, first, nodes

    def find(self, job_id: int) -> int:
        """The job's row, or -1."""
        return ledger.row_of(self.jobs, self.count, job_id)

    def slots(self, row: int) -> Ints:
        """The nodes of a row's tasks, to be read or written."""
        return self.nodes[self.first[row] : self.first[row + 1]]

    def add(self, serial: int, now_s: float, job: NewJob) -> int:
        """Append a job submitted now, without nodes; its row."""
        row = self.count
        self.reserve(job[2])
        ledger.add_row(self.jobs, self.first, self.nodes, row, serial, now_s, job)
        self.count += 1
        return row

    def insert(self, job: np.void, nodes: Ints) -> int:
        """Put a job that was taken out back to its place in the order of submission; its row."""
        row = int(np.searchsorted(self.jobs["serial"][: self.count], job["serial"]))
        end, begin, width = self.reserve(len(nodes)), int(self.first[row]), len(nodes)
        self.nodes[begin + width : end] = self.nodes[begin : end - width].copy()
        self.nodes[begin : begin + width] = nodes
        self.first[row + 1 : self.count + 2] = self.first[row : self.count + 1] + width
        self.jobs[row + 1 : self.count + 1] = self.jobs[row : self.count].copy()
        self.jobs[row] = job
        self.count += 1
        return row

    def remove(self, row: int) -> None:
        """Take a row out."""
        ledger.remove_row(self.jobs, self.first, self.nodes, self.count, row)
        self.count -= 1

    def resize(self, row: int, tasks: int) -> None:
        """Another number of tasks: the last ones go, or new ones without nodes come."""
        self.nodes = grown(self.nodes, int(self.first[self.count]) + tasks)
        ledger.resize_row(self.jobs, self.first, self.nodes, self.count, row, tasks)

    def reserve(self, tasks: int, rows: int = 1) -> int:
        """Make room for so many rows more, and so many tasks; where the last slot would then end."""
        if self.count + rows >= len(self.jobs):
            self.jobs = grown(self.jobs, self.count + rows + 1)
            self.first = grown(self.first, len(self.jobs) + 1)
        end = int(self.first[self.count]) + tasks
        self.nodes = grown(self.nodes, end)
        return end

    def state(self) -> dict[str, np.ndarray]:
        """Everything, as arrays, for `restore`."""
        jobs, first, nodes = self.views()
        return {"jobs": jobs, "first": first, "nodes": nodes}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue where `state` was taken."""
        self.count = len(state["jobs"])
        self.jobs = grown(np.array(state["jobs"]), self.count + 64)
        self.first = grown(np.array(state["first"]), len(self.jobs) + 1)
        self.nodes = grown(np.array(state["nodes"]), len(state["nodes"]) + 64)
