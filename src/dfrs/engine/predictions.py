"""What is predicted of jobs on a farm, kept between decisions (003 section 5): the core's, as policies have no memory.

A prediction is of a job, not of where it is: it stays while the job moves, is held, or begins anew after its node
failed, and goes with the job.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from dfrs.engine.events import Predicted
from dfrs.engine.rows import Rows
from dfrs.model.decisions import MEMORY, RUNNING
from dfrs.model.errors import InputError
from dfrs.model.farm import COLOCATED, SPREAD, FarmView
from dfrs.model.instance import Bools, Floats, Ints


class Layout(Protocol):
    """Where nodes are: a `dfrs.model.farm.Farm`, or anything that says the same of them."""

    @property
    def cluster(self) -> Ints:
        """(N,) index of each node's sub-cluster."""
        ...

    @property
    def machine(self) -> Ints:
        """(N,) number of each node's machine."""
        ...

    @property
    def clusters(self) -> tuple[Any, ...]:
        """(C,) the sub-clusters."""
        ...


class Predictions:
    """Of the jobs of which something is known, by serial number ascending; read-only columns, new ones on changes."""

    def __init__(self, farm: Layout) -> None:
        self.cluster: Ints = np.array(farm.cluster, dtype=np.int64)
        self.machine: Ints = np.array(farm.machine, dtype=np.int64)
        self.clusters = len(farm.clusters)
        if self.cluster.shape != self.machine.shape or self.cluster.ndim != 1:
            raise InputError("farm: cluster and machine must have one value a node")
        self.cluster.setflags(write=False)
        self.machine.setflags(write=False)
        self._serials: Ints = np.zeros(0, np.int64)
        self._speed: Floats = np.zeros((0, self.clusters, 2))
        self._required: Floats = np.zeros(0)
        self._swapping: Bools = np.zeros(0, np.bool_)

    def __len__(self) -> int:
        return len(self.cluster)

    def refuse(self, event: Predicted) -> None:
        """Raise InputError where `event` cannot be."""
        speed = np.asarray(event.speed)
        if speed.shape != (self.clusters, 2):
            raise InputError(
                f"job {event.job_id}: speed of shape {speed.shape}: must be ({self.clusters}, 2), a row a sub-cluster"
            )
        if not (np.isnan(speed) | ((speed > 0) & np.isfinite(speed))).all():
            raise InputError(f"job {event.job_id}: speed = {speed.tolist()}: must be above 0 and finite, or NaN")
        if not np.isnan(event.required) and not (np.isfinite(event.required) and event.required >= 0):
            raise InputError(f"job {event.job_id}: required = {event.required}: must be at least 0 and finite, or NaN")

    def note(self, serial: int, event: Predicted) -> None:
        """A job's profile says this."""
        k = int(np.searchsorted(self._serials, serial))
        speed, required = np.array(event.speed, dtype=np.float64), float(event.required)
        if k < len(self._serials) and self._serials[k] == serial:
            speed = np.where(np.isnan(speed), self._speed[k], speed)
            required = float(self._required[k]) if np.isnan(required) else required
            self._take(np.arange(len(self._serials)) != k)
        self._serials = np.insert(self._serials, k, serial)
        self._speed = np.insert(self._speed, k, speed, axis=0)
        self._required = np.insert(self._required, k, required)
        self._swapping = np.insert(self._swapping, k, event.swapping)

    def forget(self, serial: int) -> None:
        """The job is gone."""
        k = int(np.searchsorted(self._serials, serial))
        if k < len(self._serials) and self._serials[k] == serial:
            self._take(np.arange(len(self._serials)) != k)

    def leaves(self, serial: int) -> None:
        """The job is no longer where it was profiled: whether it thrashes where it is now is not known."""
        k = int(np.searchsorted(self._serials, serial))
        if k < len(self._serials) and self._serials[k] == serial and self._swapping[k]:
            self._swapping = self._swapping.copy()
            self._swapping[k] = False

    def _take(self, kept: Bools) -> None:
        self._serials, self._speed = self._serials[kept], self._speed[kept]
        self._required, self._swapping = self._required[kept], self._swapping[kept]

    def relative(self, serial: int, nodes: Ints) -> float:
        """Speed of the job on these nodes relative to where it would be fastest; 1 where it is not known.

        Across sub-clusters it is the smallest of theirs for a job that is spread, as the slowest task holds the others.
        """
        k = int(np.searchsorted(self._serials, serial))
        if k >= len(self._serials) or self._serials[k] != serial:
            return 1.0
        speed, machine = self._speed[k], self.machine[nodes]
        shape = COLOCATED if (machine == machine[0]).all() else SPREAD
        here = float(speed[np.unique(self.cluster[nodes]), shape].min())
        return 1.0 if np.isnan(here) else here / float(np.nanmax(speed))

    def settle(self, rows: Rows, row: int) -> None:
        """Bring the row's speed in line with where its job is."""
        job = rows.jobs[row]
        job["speed"] = self.relative(int(job["serial"]), rows.slots(row)) if job["state"] == RUNNING else 1.0

    def view(self, serials: Ints, capacity: Floats) -> FarmView:
        """The farm as a policy sees it: jobs by serial numbers, ascending, on nodes of `capacity` (N, 2)."""
        rows, nodes = len(serials), len(capacity)
        speed = np.full((rows, self.clusters, 2), np.nan)
        required, swapping = np.full(rows, np.nan), np.zeros(rows, np.bool_)
        if rows:
            at = np.minimum(np.searchsorted(serials, self._serials), rows - 1)
            here = serials[at] == self._serials
            at = at[here]
            speed[at], required[at], swapping[at] = self._speed[here], self._required[here], self._swapping[here]
        cluster, machine = self.cluster[:nodes], self.machine[:nodes]
        for array in (cluster, machine, speed, required, swapping):
            array.setflags(write=False)
        return FarmView(
            cluster=cluster,
            machine=machine,
            node_memory=capacity[:, MEMORY],
            speed=speed,
            required=required,
            swapping=swapping,
        )

    def state(self) -> dict[str, np.ndarray]:
        """What was predicted, as arrays, for `restore`."""
        return {
            "serials": self._serials, "speed": self._speed, "required": self._required, "swapping": self._swapping,
        }  # fmt: skip

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue where `state` was taken; from a core that had no farm, nothing is known yet."""
        if "serials" not in state:
            return
        if state["speed"].shape[1:] != (self.clusters, 2):
            raise InputError(f"the state has predictions for {state['speed'].shape[1]} sub-clusters: {self.clusters}")
        self._serials, self._speed = np.array(state["serials"]), np.array(state["speed"])
        self._required, self._swapping = np.array(state["required"]), np.array(state["swapping"])
