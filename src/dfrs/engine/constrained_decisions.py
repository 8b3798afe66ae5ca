"""A decision where some jobs may not use all nodes, of which no policy knows.

The policy is asked, and the guard gives jobs other nodes where it must. Jobs that the policy wanted to have nodes and
that find no room on those that they may use are left out when it is asked again: nobody else waits for room that they
have no use for. What they may use and nobody wants they get all the same.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dfrs.engine.aside import Seen, fitting, without
from dfrs.engine.check import check, check_permitted, check_resources
from dfrs.engine.claims import claim
from dfrs.engine.node_constraints import NodeConstraints
from dfrs.engine.permitted_nodes import lacking, stuck
from dfrs.engine.resource_room import room_of
from dfrs.model.decisions import RUNNING, Snapshot, Target, Traits
from dfrs.model.instance import Bools, Ints

MOST_ASKED_AGAIN = 8
"""So often in one decision."""


@dataclass(frozen=True, slots=True, eq=False)
class ConstrainedDecision:
    """One decision on a snapshot with `permitted`."""

    snapshot: Snapshot
    traits: Traits
    constraints: NodeConstraints
    wake_at_s: float | None
    """When the policy wanted to be asked again before this."""
    decide: Callable[[Snapshot, Seen], Target]
    """What the policy wants, of what it sees."""
    fit: Callable[[Snapshot, Target], Target]
    """That as executors can perform it."""

    def target(self) -> tuple[Target | None, float | None]:
        """What is to be, None where nothing is to be decided, and when the policy wants to be asked again.

        Raises PolicyError.
        """
        snapshot, off = self.snapshot, self.snapshot.jobs["state"] != RUNNING
        fits, wake_at_s = fitting(snapshot, self.traits), self.wake_at_s
        aside = self.constraints.due(snapshot.jobs) & off & fits & self.traits.exclusive
        left = Target(np.full(len(snapshot.task_nodes), -1), np.zeros(len(off)))
        wanted, target = self._beside(fits, aside, left)
        for _ in range(MOST_ASKED_AGAIN):
            if wanted is None or target is None or not (rows := stuck(snapshot, wanted, target)).any():
                break
            wake_at_s = wanted.wake_at_s
            if self.traits.exclusive:
                self.constraints.make_due(snapshot.jobs, rows)
            else:
                left = _joined(snapshot, left, replace(wanted, task_nodes=self._forbidden), rows)
            aside = aside | rows | lacking(snapshot, target, exclusive=self.traits.exclusive)
            wanted, target = self._beside(fits, aside, left)
        return target, wake_at_s

    @property
    def _forbidden(self) -> Ints:
        """(slots,) for each task a node that it may not use, if there is one: the guard finds it another, or none."""
        assert self.snapshot.permitted is not None
        return np.repeat(self.snapshot.permitted.argmin(axis=1), self.snapshot.jobs["tasks"])

    def _beside(self, fits: Bools, aside: Bools, left: Target) -> tuple[Target | None, Target | None]:
        """What the policy wants without the rows `aside`, and what is to be; None where it is not asked.

        Those of them that are due (`dfrs.engine.claims`) have what is free of their nodes, those that have nodes in
        `left` what nobody else is to have.
        """
        snapshot, off = self.snapshot, self.snapshot.jobs["state"] != RUNNING
        due = self.constraints.due(snapshot.jobs) & off & self.traits.exclusive
        claims = claim(snapshot, aside & due, room_of(snapshot, self.traits))
        rest = claims.beside(snapshot)
        seen = without(rest, aside | ~fits, self.traits, aside & fits)
        wanted = target = None
        if seen.concerns:
            wanted = self.decide(rest, seen)
            check(rest, wanted)
            target = self.fit(rest, _joined(snapshot, wanted, left, left.task_nodes[snapshot.first[:-1]] >= 0))
        if claims.starts:
            target = claims.added(snapshot, self._unchanged() if target is None else target)
        if target is not None:
            target = replace(target, why=_of_waiting(snapshot, target, aside))
            check(snapshot, target)
            check_permitted(snapshot, target)
            check_resources(snapshot, target)
        return wanted, target

    def _unchanged(self) -> Target:
        """The present as a target."""
        snapshot = self.snapshot
        later = self.wake_at_s is not None and self.wake_at_s > snapshot.now_s
        return Target(snapshot.task_nodes, snapshot.jobs["yield_"], self.wake_at_s if later else None)


def _joined(snapshot: Snapshot, target: Target, other: Target, rows: Bools) -> Target:
    """The target, but in these rows the `other` one."""
    if not rows.any():
        return target
    tasks = np.repeat(rows, snapshot.jobs["tasks"])
    slots = np.where(tasks, other.task_nodes, target.task_nodes)
    return replace(target, task_nodes=slots, yields=np.where(rows, other.yields, target.yields))


def _of_waiting(snapshot: Snapshot, target: Target, aside: Bools) -> dict[int, str]:
    """What is said of jobs, but not for what those wait that were left out and have nodes after all."""
    placed = aside & (target.task_nodes[snapshot.first[:-1]] >= 0)
    names = set(snapshot.jobs["id"][placed].tolist())
    return {name: why for name, why in target.why.items() if name not in names}
