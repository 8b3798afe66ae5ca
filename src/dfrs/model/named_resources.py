"""Named resources of nodes, such as GPUs and licences: whole numbers, of which each task has its own."""

from dataclasses import dataclass

import numpy as np

from dfrs.model.instance import Bools, Ints

Counts = tuple[tuple[str, int], ...]
"""How many of each named resource, by name, each above 0."""


@dataclass(frozen=True, slots=True)
class NodeResources:
    """A node, by index, has so many of each named resource from now on: the event that says so.

    Tasks keep what they have, also where there is less now.
    """

    node: int
    counts: Counts


@dataclass(frozen=True, slots=True, eq=False)
class NamedResources:
    """What nodes have and what jobs want, at one instant: K resources, N nodes, R jobs. All arrays are read-only.

    A task that has started has what it asked for until it ends: its job is neither paused nor moved, and where its user
    holds it, it keeps all that it has. A job that is *alone* has its nodes to itself, as long as it is on them.
    """

    names: tuple[str, ...]
    """(K,)"""
    counts: Ints
    """(N, K) what nodes have."""
    held: Ints
    """(N, K) what held jobs keep of that."""
    claims: Ints
    """(R, K) what each task of a job has."""
    alone: Bools
    """(R,) jobs that have nodes to themselves."""
    inhabited: Bools
    """(N,) nodes with held jobs: nobody is alone there."""
    shut: Bools
    """(N,) nodes with held jobs that are alone there: nobody comes."""

    @property
    def claimed(self) -> Bools:
        """(R,) jobs that have or want any."""
        claimed: Bools = np.any(self.claims > 0, axis=1)
        return claimed

    def select(self, rows: Bools) -> "NamedResources":
        """The same nodes with the chosen rows (R,) only."""
        claims, alone = self.claims[rows], self.alone[rows]
        claims.setflags(write=False)
        alone.setflags(write=False)
        return NamedResources(self.names, self.counts, self.held, claims, alone, self.inhabited, self.shut)


def on_nodes(slots: Ints, each: Ints, nodes: int) -> Ints:
    """(N, K) the sum of `each` (slots, K) over the tasks on a node."""
    there = slots >= 0
    total = np.zeros((nodes, each.shape[1]), np.int64)
    np.add.at(total, slots[there], each[there])
    return total
