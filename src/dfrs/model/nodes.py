"""What becomes of nodes, and what they hold."""

from dataclasses import dataclass
from enum import Enum

import numpy as np

from dfrs.model import tolerances
from dfrs.model.instance import Bools, Floats, Ints


class Condition(Enum):
    """What became of a node."""

    DOWN = "down"
    """It failed: what ran there lost its progress and waits."""
    DRAIN = "drain"
    """No task may come to it; those there may stay."""
    UP = "up"


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A node, by index, failed, is being drained, or is back.

    Unless it is the `last` of those at its instant, the policy is not asked yet.
    """

    node: int
    condition: Condition
    last: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class NodeLimits:
    """What cannot be done with jobs that have started; N nodes."""

    keeps: Bools
    """(N,) where a paused task stays in memory: there policies pause nobody."""
    island: Ints
    """(N,) jobs that have started move, and resume, only between nodes of the same island."""


@dataclass(frozen=True, slots=True)
class Join:
    """A node is added: it becomes the last row of the capacity. One that is not open takes no task until it is UP."""

    cpu: float
    memory: float
    island: int = 0
    """Jobs that have started move, and resume, only between nodes of the same island."""
    pause_frees_memory: bool = True
    """False where a paused task stays in memory: policies pause nobody there."""
    open: bool = True


@dataclass(frozen=True, slots=True)
class PauseAbility:
    """From now on pauses free memory on a node, or do so no more."""

    node: int
    frees_memory: bool


@dataclass(frozen=True, slots=True)
class IslandsJoined:
    """From now on jobs that have started can move between the nodes of two islands: all are in one of them."""

    island: int
    into: int


@dataclass(frozen=True, slots=True)
class Capacity:
    """A closed node that holds no job's memory has another capacity from now on. Nobody is asked: it is closed."""

    node: int
    cpu: float
    memory: float


@dataclass(frozen=True, slots=True)
class CapacityLeft:
    """Of a node's CPU so much is left for its tasks from now on: programs that are no jobs use the rest, or no more do.

    Memory is as before, and jobs stay. What they have together is made to fit at once, and the policy is asked, unless
    this is not the `last` node of which that is said at its instant. To an exclusive policy, whose jobs have all of
    their need or nothing, it changes nothing.
    """

    node: int
    cpu: float
    """Above 0, and at most the node's capacity, in the same unit."""
    last: bool = True


def most_tasks(capacity: Floats, need: float, memory: float, *, exclusive: bool) -> float:
    """How many tasks of that kind nodes of `capacity` (N, 2) hold by their memory and, if `exclusive`, by full need.

    Nodes without CPU hold none: a task there would never get on.
    """
    room = np.full(len(capacity), np.inf)
    if memory > 0:
        room = np.floor((capacity[:, 1] + tolerances.CAPACITY) / memory)
    if exclusive:
        room = np.minimum(room, np.floor((capacity[:, 0] + tolerances.CAPACITY) / need))
    return float(room[capacity[:, 0] > 0].sum())
