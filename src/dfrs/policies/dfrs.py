"""Dynamic fractional resource scheduling: a policy composed of actions and a rule for shares (000 section 5.2)."""

from dataclasses import dataclass

import numpy as np

from dfrs.model.decisions import Cause, Snapshot, Target
from dfrs.model.instance import Floats
from dfrs.policies.actions import Action
from dfrs.policies.beyond import Deadlines
from dfrs.policies.lines import next_multiple
from dfrs.policies.shares import Shares


@dataclass(frozen=True, slots=True, kw_only=True)
class Dfrs:
    """One action for each cause, None for nothing; yields are given out anew whatever the cause.

    A submission without an action changes nothing at all.
    """

    name: str
    on_submission: Action | None
    on_completion: Action | None
    on_wake: Action | None
    on_nodes: Action | None
    """When a node failed, is being drained or came back."""
    shares: Shares
    period_s: float | None = None
    """Wakes are at the multiples of this, while there are jobs."""
    deadlines: Deadlines | None = None
    """Wakes are at these instead."""

    def decide(self, snapshot: Snapshot, /) -> Target:
        """The target for this snapshot."""
        cause = snapshot.cause
        if cause is Cause.SUBMISSION:
            action = self.on_submission
        elif cause is Cause.COMPLETION:
            action = self.on_completion
        elif cause is Cause.WAKE:
            action = self.on_wake
        else:
            action = self.on_nodes
        slots = snapshot.task_nodes.copy()
        if action is None and cause is Cause.SUBMISSION:
            yields = snapshot.jobs["yield_"].copy()
            return Target(slots, yields, self._wake_at(snapshot, yields))
        reasons = np.zeros(len(snapshot.jobs), np.int64)
        if action is not None:
            action(snapshot, slots, reasons)
        yields = self.shares(snapshot, slots)
        return Target(slots, yields, self._wake_at(snapshot, yields), reasons)

    def _wake_at(self, snapshot: Snapshot, yields: Floats) -> float | None:
        if self.deadlines is not None:
            return self.deadlines(snapshot, yields)
        if self.period_s is None or not len(snapshot.jobs):
            return None
        return next_multiple(snapshot.now_s, self.period_s)
