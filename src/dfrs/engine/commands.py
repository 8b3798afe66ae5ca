"""What the core wants done, as columns: one row a command, in an order that overcommits no node at any moment."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np

from dfrs.model.instance import Floats, Ints
from dfrs.model.run import Action

DETACH = 11
"""First half of a migration within a cycle of jobs that wait for each other's nodes; its MIGRATE follows."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command, for executors that act job by job. `action` is an Action or DETACH."""

    action: int
    job_id: int
    nodes: tuple[int, ...]
    """One node index a task for START, RESUME and MIGRATE; empty otherwise."""
    yield_: float


@dataclass(frozen=True, slots=True, eq=False)
class Commands(Iterable[Command]):
    """K commands."""

    action: Ints
    serial: Ints
    """(K,) the job's number in the order of submission."""
    job_id: Ints
    yields: Floats
    """(K,) after the command."""
    moved: Ints
    """(K,) tasks that change their node: all of them on START and RESUME, none where a held job's memory stayed."""
    reason: Ints
    """(K,) index into the event log's reasons."""
    first: Ints
    """(K + 1,) where each command's nodes begin."""
    nodes: Ints

    def __len__(self) -> int:
        return len(self.action)

    def __iter__(self) -> Iterator[Command]:
        bounds, nodes = self.first.tolist(), self.nodes.tolist()
        columns = zip(self.action.tolist(), self.job_id.tolist(), self.yields.tolist(), strict=True)
        for k, (action, job_id, yield_) in enumerate(columns):
            yield Command(action, job_id, tuple(nodes[bounds[k] : bounds[k + 1]]), yield_)


class Executor(Protocol):
    """Performs commands: the simulated world, or the agents of real nodes."""

    def perform(self, commands: Commands, now_s: float, /) -> None:
        """Carry them out in order. What came of it is told by events."""
        ...


def without_nodes(action: int, serial: Ints, job_id: Ints, reason: int) -> Commands:
    """One command for each job that stops it."""
    count = len(serial)
    none = np.zeros(0, np.int64)
    return Commands(
        np.full(count, action),
        serial,
        job_id,
        np.zeros(count),
        np.zeros(count, np.int64),
        np.full(count, reason),
        np.zeros(count + 1, np.int64),
        none,
    )


def one(action: int, job: np.void, yield_: float, reason: int, nodes: Ints | None = None) -> Commands:
    """The command for one record of jobs that leaves its tasks where they are, and names `nodes` if it must."""
    where = np.zeros(0, np.int64) if nodes is None else nodes
    return Commands(
        np.array([action]),
        np.array([job["serial"]]),
        np.array([job["id"]]),
        np.array([yield_]),
        np.zeros(1, np.int64),
        np.array([reason]),
        np.array([0, len(where)]),
        where,
    )


NOTHING = without_nodes(Action.PAUSE, np.zeros(0, np.int64), np.zeros(0, np.int64), 0)


def joined(earlier: Commands, later: Commands) -> Commands:
    """All commands of both, in order."""
    if not len(earlier):
        return later
    pairs = ((getattr(earlier, f.name), getattr(later, f.name)) for f in fields(Commands) if f.name != "first")
    columns = dict(
        zip((f.name for f in fields(Commands) if f.name != "first"), map(np.concatenate, pairs), strict=True)
    )
    bounds = np.concatenate([earlier.first, later.first[1:] + earlier.first[-1]])
    return Commands(first=bounds, **columns)
