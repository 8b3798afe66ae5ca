"""The nodes as the core knows them: what they have, whether they are open, and what executors can do on them."""

from collections.abc import Mapping

import numpy as np

from dfrs.model.decisions import CPU
from dfrs.model.errors import InputError
from dfrs.model.instance import Bools, Floats, Ints
from dfrs.model.nodes import (
    Capacity,
    CapacityLeft,
    Condition,
    IslandsJoined,
    Join,
    NodeChange,
    NodeLimits,
    PauseAbility,
)

_COLUMNS = ("capacity", "left", "open", "island", "keeps")


class NodeTable:
    """Columns by node, read-only; each change makes new ones, so that a snapshot keeps what it saw.

    Without `limits` the first nodes are all of island 0, and pauses free memory on them.
    """

    def __init__(self, capacity: Floats, limits: NodeLimits | None = None) -> None:
        nodes = len(capacity)
        self.capacity: Floats = np.array(capacity, dtype=np.float64)
        """(N, 2) CPU and memory that nodes have."""
        self.left: Floats = self.capacity[:, CPU].copy()
        """(N,) CPU of them that is left for tasks."""
        self.open: Bools = np.ones(nodes, np.bool_)
        self.island: Ints = np.zeros(nodes, np.int64) if limits is None else np.array(limits.island)
        """(N,) between nodes of equal numbers a job that has started can move."""
        self.keeps: Bools = np.zeros(nodes, np.bool_) if limits is None else np.array(limits.keeps)
        """(N,) where a paused task stays in memory."""
        self._shrunk = False
        self._settle()

    def __len__(self) -> int:
        return len(self.open)

    def _settle(self) -> None:
        for name in _COLUMNS:
            getattr(self, name).setflags(write=False)
        in_force = self.capacity.reshape(-1, 2).copy()
        in_force[:, CPU] = self.left
        in_force.setflags(write=False)
        self.in_force: Floats = in_force
        """(N, 2) CPU and memory that tasks can have."""
        self.empty = not len(self.open)
        """Whether there is no node at all."""
        self.several = bool((self.island[1:] != self.island[:-1]).any())
        """Whether there is more than one island."""
        self.whole = not self._shrunk and bool(self.open.all())
        """Whether every node is open and none has less than at first: then each job fits that ever did."""
        self.limited = self.several or bool(self.keeps.any())
        """Whether executors cannot do all that a policy may ask for."""

    def refuse(self, event: NodeChange | Join | Capacity | CapacityLeft | PauseAbility) -> None:
        """Raise InputError where `event` cannot be."""
        if not isinstance(event, Join) and not 0 <= event.node < len(self):
            raise InputError(f"node {event.node}: there are {len(self)}")
        if isinstance(event, NodeChange | PauseAbility):
            return
        who = f"node {len(self) if isinstance(event, Join) else event.node}"
        if isinstance(event, CapacityLeft):
            most = float(self.capacity[event.node, CPU])
            if not 0 < event.cpu <= most:
                raise InputError(f"{who}: cpu = {event.cpu}: must be above 0 and at most its capacity, {most}")
            return
        for label, value in (("cpu", event.cpu), ("memory", event.memory)):
            if not (np.isfinite(value) and value >= 0):
                raise InputError(f"{who}: {label} = {value}: must be a finite number of at least 0")
        if isinstance(event, Capacity) and self.open[event.node]:
            raise InputError(f"{who}: is open: its capacity can change only while it is down or drained")

    def change(self, event: NodeChange) -> None:
        """A node is open from now on, or closed."""
        self.open = self.open.copy()
        self.open[event.node] = event.condition == Condition.UP
        self._settle()

    def join(self, event: Join) -> None:
        """A node more."""
        self.capacity = np.vstack([self.capacity.reshape(-1, 2), (event.cpu, event.memory)])
        self.left = np.append(self.left, event.cpu)
        self.open = np.append(self.open, event.open)
        self.island = np.append(self.island, event.island)
        self.keeps = np.append(self.keeps, not event.pause_frees_memory)
        self._settle()

    def resize(self, event: Capacity) -> None:
        """A node has another capacity."""
        self._shrunk |= bool((self.capacity[event.node] > (event.cpu, event.memory)).any())
        self.capacity = self.capacity.copy()
        self.capacity[event.node] = event.cpu, event.memory
        self._leave(event.node, event.cpu)

    def leave(self, event: CapacityLeft) -> None:
        """Of a node's CPU so much is left."""
        self._leave(event.node, event.cpu)

    def _leave(self, node: int, cpu: float) -> None:
        self.left = self.left.copy()
        self.left[node] = cpu
        self._settle()

    def forget_left(self) -> None:
        """All of the nodes' CPU counts as left."""
        self.left = self.capacity[:, CPU].copy()
        self._settle()

    def set_pauses(self, event: PauseAbility) -> None:
        """Pauses free memory on a node from now on, or do so no more."""
        self.keeps = self.keeps.copy()
        self.keeps[event.node] = not event.frees_memory
        self._settle()

    def join_islands(self, event: IslandsJoined) -> None:
        """Jobs can move between the nodes of both from now on."""
        self.island = np.where(self.island == event.island, event.into, self.island)
        self._settle()

    def state(self) -> dict[str, np.ndarray]:
        """Everything, as arrays, for `restore`."""
        return {"shrunk": np.array(self._shrunk)} | {name: getattr(self, name) for name in _COLUMNS}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue where `state` was taken."""
        # Earlier versions knew of nothing that others take.
        known = {"left": np.asarray(state["capacity"]).reshape(-1, 2)[:, CPU]} | dict(state)
        for name in _COLUMNS:
            setattr(self, name, np.array(known[name]))
        self._shrunk = bool(state.get("shrunk", False))
        self._settle()
