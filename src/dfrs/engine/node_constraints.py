"""Jobs that may use some nodes only: which these are, and which of the jobs take their nodes as they become free.

The core knows constraints by numbers. What they say, of names and features, is the shell's: it tells the nodes that
each permits, and again when these are others. Until it has, a constraint permits none.
"""

from collections.abc import Mapping

import numpy as np

from dfrs.model.decisions import Jobs
from dfrs.model.instance import Bools, Ints

NONE = 0
"""Number of a job's constraint that has none."""


class NodeConstraints:
    """Constraints of jobs, which are known by their number in the order of submission."""

    def __init__(self) -> None:
        self._nodes: dict[int, Ints] = {}
        """By constraint; of those that permit none, and of those that nobody uses, nothing is kept."""
        self._of: dict[int, int] = {}
        self._due: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._of)

    @property
    def nodes(self) -> Mapping[int, Ints]:
        """Numbers of the nodes that each constraint permits, as they were last told; what is missing permits none."""
        return self._nodes

    def permit(self, constraint: int, nodes: Ints) -> None:
        """From now on it permits these nodes, in ascending order, and no others."""
        if len(nodes):
            self._nodes[constraint] = nodes
        else:
            self._nodes.pop(constraint, None)

    def is_used(self, constraint: int) -> bool:
        """Whether any job has it."""
        return constraint in self._of.values()

    def bind(self, serial: int, constraint: int) -> None:
        """The job has that constraint."""
        if constraint != NONE:
            self._of[serial] = constraint

    def forget(self, serial: int) -> None:
        """The job is done."""
        self._of.pop(serial, None)
        self._due.discard(serial)

    def permitted(self, jobs: Jobs, nodes: int) -> Bools | None:
        """(R, N) which of `nodes` nodes tasks of each job may come to; None where no job has a constraint."""
        rows = _rows(jobs, self._of)
        if not len(rows):
            return None
        names, which = np.unique([self._of[serial] for serial in jobs["serial"][rows].tolist()], return_inverse=True)
        each = np.zeros((len(names), nodes), np.bool_)
        for k, name in enumerate(names.tolist()):
            each[k, self._nodes.get(name, np.zeros(0, np.int64))] = True
        permitted = np.ones((len(jobs), nodes), np.bool_)
        permitted[rows] = each[which]
        return permitted

    def make_due(self, jobs: Jobs, rows: Bools) -> None:
        """It was the turn of these rows, but not on nodes that they may use: now they take those as they become free.

        To be told of exclusive policies only.
        """
        self._due.update(jobs["serial"][rows].tolist())

    def due(self, jobs: Jobs) -> Bools:
        """(R,) whose turn it was."""
        rows = np.zeros(len(jobs), np.bool_)
        rows[_rows(jobs, self._due)] = True
        return rows

    def state(self) -> dict[str, np.ndarray]:
        """Everything, as arrays, for `restore`."""
        widths = [len(each) for each in self._nodes.values()]
        return {
            "names": np.array(list(self._nodes), np.int64),
            "widths": np.array(widths, np.int64),
            "nodes": np.concatenate([np.zeros(0, np.int64), *self._nodes.values()]),
            "serials": np.array(list(self._of), np.int64),
            "of": np.array(list(self._of.values()), np.int64),
            "due": np.array(sorted(self._due), np.int64),
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue where `state` was taken; earlier versions knew of no constraints."""
        none = np.zeros(0, np.int64)
        parts = np.split(state.get("nodes", none), np.cumsum(state.get("widths", none))[:-1])
        names = state.get("names", none).tolist()
        self._nodes = {name: np.array(part) for name, part in zip(names, parts, strict=False)}
        self._of = dict(zip(state.get("serials", none).tolist(), state.get("of", none).tolist(), strict=True))
        self._due = set(state.get("due", none).tolist())


def _rows(jobs: Jobs, serials: Mapping[int, int] | set[int]) -> Ints:
    """Rows of the jobs of these numbers that are there."""
    wanted = np.fromiter(serials, np.int64, len(serials))
    return np.flatnonzero(np.isin(jobs["serial"], wanted))
