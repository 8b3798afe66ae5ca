"""Jobs that are held: out of the policy's sight, with their progress and, where pauses keep it, their memory.

A held job is *resident* if some node of it cannot free the memory of a paused task, or if it has named resources. Then
all of its tasks keep their nodes and what they have there, and it must come back to just these: nobody else may ever be
given that memory.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from dfrs.model.decisions import JOB, WAITING, Jobs
from dfrs.model.instance import Bools, Floats, Ints


class Held:
    """Held jobs by id, in the order in which they came: the order in which their memory is added up."""

    def __init__(self) -> None:
        self._jobs: dict[int, tuple[np.void, Ints]] = {}
        self.resident = False
        """Whether any held job is on nodes."""

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._jobs

    def __getitem__(self, job_id: int) -> np.void:
        return self._jobs[job_id][0]

    def __iter__(self) -> Iterator[np.void]:
        return (job for job, _ in self._jobs.values())

    @property
    def residents(self) -> Iterator[tuple[np.void, Ints]]:
        """Held jobs that keep their nodes, and which."""
        return ((job, where) for job, where in self._jobs.values() if where[0] >= 0)

    def stays(self, job_id: int) -> bool:
        """Whether a held job keeps its nodes, with its memory there."""
        return bool(self._jobs[job_id][1][0] >= 0)

    def put(self, job: np.void, nodes: Ints) -> None:
        """Hold a job; `nodes` are those that it keeps, or all -1."""
        self._jobs[int(job["id"])] = job, nodes
        self._look()

    def take(self, job_id: int) -> tuple[np.void, Ints]:
        """A held job and its nodes, which is held no longer."""
        taken = self._jobs.pop(job_id)
        self._look()
        return taken

    def _look(self) -> None:
        self.resident = any(nodes[0] >= 0 for _, nodes in self._jobs.values())

    def memory(self, nodes: int) -> Floats:
        """(N,) what held jobs have of the memory of `nodes` nodes."""
        used = np.zeros(nodes)
        for job, where in self._jobs.values():
            if where[0] >= 0:
                np.add.at(used, where, job["memory"])
        return used

    def promised(self, nodes: int) -> Floats:
        """(N,) the CPU that the minimum yields of held jobs will take of `nodes` nodes when they come back there."""
        promised = np.zeros(nodes)
        for job, where in self._jobs.values():
            if where[0] >= 0:
                np.add.at(promised, where, job["need"] * job["minimum"])
        return promised

    def on(self, nodes: int) -> Bools:
        """(N,) on which of `nodes` nodes held jobs are."""
        here = np.zeros(nodes, np.bool_)
        for _, where in self._jobs.values():
            if where[0] >= 0:
                here[where] = True
        return here

    def lose_node(self, node: int) -> list[np.void]:
        """Jobs that were on a node lose their other nodes, too, and stay held; which."""
        lost: list[np.void] = []
        for job, where in self._jobs.values():
            if node in where:
                where[:] = -1
                job["state"] = WAITING
                lost.append(job)
        self._look()
        return lost

    def state(self) -> dict[str, np.ndarray]:
        """Everything, as arrays, for `restore`."""
        jobs: Jobs = np.zeros(len(self._jobs), JOB)
        for k, job in enumerate(self):
            jobs[k] = job
        nodes = [where for _, where in self._jobs.values()]
        return {"jobs": jobs, "nodes": np.concatenate([np.zeros(0, np.int64), *nodes])}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue where `state` was taken."""
        self._jobs, self.resident = {}, False
        bounds = np.cumsum(state["jobs"]["tasks"])
        for job, where in zip(state["jobs"], np.split(state["nodes"], bounds[:-1]), strict=False):
            self.put(job.copy(), np.array(where))


_NOWHERE = np.zeros(0, np.int64)


class LastIslands:
    """In which island each task of a paused job was: only there can it resume. Kept where there are several islands."""

    def __init__(self) -> None:
        self._islands: dict[int, Ints] = {}

    def note(self, serial: int, islands: Ints) -> None:
        """The job's tasks, slot by slot, were in these islands."""
        self._islands[serial] = islands

    def forget(self, serial: int) -> None:
        """The job is gone."""
        self._islands.pop(serial, None)

    def joined(self, island: int, into: int) -> None:
        """Two islands are one from now on."""
        for serial, islands in self._islands.items():
            self._islands[serial] = np.where(islands == island, into, islands)

    def of(self, serials: Sequence[int], tasks: Sequence[int]) -> Ints:
        """The island of each task of these jobs, one job after the other; -1 for one that was nowhere yet.

        `tasks`: how many each has.
        """
        known = [self._islands.get(serial, _NOWHERE) for serial in serials]
        for k, count in enumerate(tasks):
            if len(known[k]) != count:
                padded = np.full(count, -1, np.int64)
                padded[: len(known[k])] = known[k][:count]
                known[k] = padded
        return np.concatenate([_NOWHERE, *known])

    def state(self) -> dict[str, np.ndarray]:
        """Everything, as arrays, for `restore`."""
        names = np.array(list(self._islands), dtype=np.int64)
        widths = np.array([len(each) for each in self._islands.values()], dtype=np.int64)
        islands = np.concatenate([np.zeros(0, np.int64), *self._islands.values()])
        return {"serials": names, "widths": widths, "islands": islands}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue where `state` was taken."""
        parts = np.split(state["islands"], np.cumsum(state["widths"])[:-1])
        self._islands = {serial: np.array(part) for serial, part in zip(state["serials"].tolist(), parts, strict=False)}
