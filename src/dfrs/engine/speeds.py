"""What is predicted of jobs on unequal hardware, kept between decisions ([Atif2011] 5): policies have no memory.

A prediction is of a job, not of where it is: it stays while the job moves, is held, or begins anew after its node
failed, and goes with the job. Where nodes are alike there is nothing to predict: every job's speed is 1.
"""

import sys
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from dfrs.engine.commands import DETACH
from dfrs.engine.events import Predicted
from dfrs.engine.rows import Rows
from dfrs.model.decisions import MEMORY, RUNNING, Jobs
from dfrs.model.errors import InputError
from dfrs.model.hardware import COLOCATED, SPREAD, HardwareView
from dfrs.model.instance import Bools, Floats, Ints
from dfrs.model.run import Action

_SHARE = int(Action.SHARE)


class Grouping(Protocol):
    """How nodes are grouped: a `dfrs.model.hardware.Hardware`, or anything that says the same of them."""

    @property
    def partition(self) -> Ints:
        """(N,) index of each node's partition."""
        ...

    @property
    def machine(self) -> Ints:
        """(N,) number of each node's machine."""
        ...

    @property
    def partitions(self) -> tuple[Any, ...]:
        """(C,) the partitions."""
        ...


class KnownSpeeds:
    """Of jobs on nodes that are alike: 1, so that there is nothing to keep."""

    most_nodes = sys.maxsize
    """So many nodes the cluster can have."""

    def refuse(self, event: Predicted) -> None:
        """Raise InputError."""
        raise InputError(f"job {event.job_id}: predicted on sub-clusters, but the cluster is no farm")

    def note(self, serial: int, event: Predicted) -> None:
        """Never asked for: the event was refused."""

    def forget(self, serial: int) -> None:
        """The job is gone."""

    def leaves(self, serial: int) -> None:
        """The job is no longer where it was."""

    def placed(self, rows: Rows, order: Ints, steps: Ints) -> None:
        """Rows `order` (K,) were placed, moved or paused by `steps` (K,)."""

    def settle(self, rows: Rows, row: int) -> None:
        """The row's speed is 1 wherever its job is."""

    def view(self, jobs: Jobs, capacity: Floats) -> None:
        """Nothing but what the snapshot says."""

    def state(self) -> dict[str, np.ndarray]:
        """Nothing."""
        return {}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """There is nothing to continue."""


class PredictedSpeeds:
    """Of the jobs of which something is known, by serial number ascending; read-only columns, new ones on changes."""

    def __init__(self, hardware: Grouping) -> None:
        self.partition: Ints = np.array(hardware.partition, dtype=np.int64)
        self.machine: Ints = np.array(hardware.machine, dtype=np.int64)
        self.partitions = len(hardware.partitions)
        if self.partition.shape != self.machine.shape or self.partition.ndim != 1:
            raise InputError("farm: cluster and machine must have one value a node")
        self.partition.setflags(write=False)
        self.machine.setflags(write=False)
        self._serials: Ints = np.zeros(0, np.int64)
        self._speed: Floats = np.zeros((0, self.partitions, 2))
        self._required: Floats = np.zeros(0)
        self._swapping: Bools = np.zeros(0, np.bool_)

    @property
    def most_nodes(self) -> int:
        """N: so many nodes the cluster can have."""
        return len(self.partition)

    def refuse(self, event: Predicted) -> None:
        """Raise InputError where `event` cannot be."""
        speed = np.asarray(event.speed)
        if speed.shape != (self.partitions, 2):
            raise InputError(
                f"job {event.job_id}: speed of shape {speed.shape}: must be ({self.partitions}, 2), a row a sub-cluster"
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

        Across partitions it is the smallest of theirs for a job that is spread, as the slowest task holds the others.
        """
        k = int(np.searchsorted(self._serials, serial))
        if k >= len(self._serials) or self._serials[k] != serial:
            return 1.0
        speed, machine = self._speed[k], self.machine[nodes]
        shape = COLOCATED if (machine == machine[0]).all() else SPREAD
        here = float(speed[np.unique(self.partition[nodes]), shape].min())
        return 1.0 if np.isnan(here) else here / float(np.nanmax(speed))

    def placed(self, rows: Rows, order: Ints, steps: Ints) -> None:
        """Rows `order` (K,) were placed, moved or paused by `steps` (K,): how fast they are where they are now."""
        for row in order[(steps != _SHARE) & (steps != DETACH)].tolist():
            self.leaves(int(rows.jobs["serial"][row]))
            self.settle(rows, row)

    def settle(self, rows: Rows, row: int) -> None:
        """Bring the row's speed in line with where its job is."""
        job = rows.jobs[row]
        job["speed"] = self.relative(int(job["serial"]), rows.slots(row)) if job["state"] == RUNNING else 1.0

    def view(self, jobs: Jobs, capacity: Floats) -> HardwareView:
        """The hardware as a policy sees it: `jobs` (R,) on nodes of `capacity` (N, 2)."""
        serials, rows, nodes = jobs["serial"], len(jobs), len(capacity)
        speed = np.full((rows, self.partitions, 2), np.nan)
        required, swapping = np.full(rows, np.nan), np.zeros(rows, np.bool_)
        if rows:
            at = np.minimum(np.searchsorted(serials, self._serials), rows - 1)
            here = serials[at] == self._serials
            at = at[here]
            speed[at], required[at], swapping[at] = self._speed[here], self._required[here], self._swapping[here]
        partition, machine = self.partition[:nodes], self.machine[:nodes]
        for array in (partition, machine, speed, required, swapping):
            array.setflags(write=False)
        return HardwareView(
            partition=partition,
            machine=machine,
            node_memory=capacity[:, MEMORY],
            speed=speed,
            required=required,
            swapping=swapping,
        )

    def state(self) -> dict[str, np.ndarray]:
        """What was predicted, as arrays, for `restore`."""
        return {"serials": self._serials, "speed": self._speed, "required": self._required, "swapping": self._swapping}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue where `state` was taken; from a core of nodes that were alike, nothing is known yet."""
        if "serials" not in state:
            return
        if state["speed"].shape[1:] != (self.partitions, 2):
            raise InputError(f"the state has predictions for {state['speed'].shape[1]} sub-clusters: {self.partitions}")
        self._serials, self._speed = np.array(state["serials"]), np.array(state["speed"])
        self._required, self._swapping = np.array(state["required"]), np.array(state["swapping"])


SpeedsKept = KnownSpeeds | PredictedSpeeds
"""What a core knows of speeds."""
EQUAL_NODES = KnownSpeeds()
