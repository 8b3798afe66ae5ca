"""Dynamic fractional resource scheduling: a policy composed of actions and a rule for shares ([Stillwell2010] 5.2)."""

from dataclasses import dataclass, field, fields
from functools import partial

import numpy as np

from dfrs.kernels.fractional_loop import run_fractional
from dfrs.model.decisions import Cause, EventLoop, Snapshot, Target, Traits
from dfrs.model.instance import Floats, Ints
from dfrs.policies.fractional.actions import Admit, Mode, PolicyAction, Priority, Readmit
from dfrs.policies.fractional.compiled import compiled_actions
from dfrs.policies.fractional.expand import on_shared_nodes
from dfrs.policies.fractional.extensions import Deadlines, PricedPeriod, unlimited
from dfrs.policies.fractional.objective import next_multiple
from dfrs.policies.fractional.rebalance import Rebalance, ask_again, is_repacking
from dfrs.policies.fractional.reserve import dedicated_present, reserve
from dfrs.policies.fractional.resident import Residence
from dfrs.policies.fractional.shares import Shares

_COMPILED = {"on_submission", "on_completion", "on_wake", "shares", "period_s"}
"""Fields of a policy that the compiled loop is told."""
_IRRELEVANT = {"name", "on_nodes", "on_needs", "weighted", "residence"}
"""Fields that decide nothing while it runs: nodes do not change then, no needs are revised, and every job can be paused
and moved. Weights are in `shares`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dfrs:
    """One action for each cause, None for nothing; yields are given out anew whatever the cause.

    A submission without an action changes nothing at all; a user's command on a job is as a completion. Dedicated jobs
    have their share reserved (`dfrs.policies.fractional.reserve`).
    """

    name: str
    on_submission: PolicyAction | None
    on_completion: PolicyAction | None
    on_wake: PolicyAction | None
    on_nodes: PolicyAction | None
    """When a node failed, is being drained or came back."""
    shares: Shares
    on_needs: PolicyAction | None = None
    """When needs were revised; None: as on a completion, which uses CPU that is found to be free."""
    period_s: float | None = None
    """Wakes are at the multiples of this, while there are jobs."""
    priced: PricedPeriod | None = None
    """Wakes are at the multiples of this instead."""
    deadlines: Deadlines | None = None
    """Wakes are at these instead."""
    rebalance: Rebalance | None = None
    """Moves after each decision. Then wakes that are not at multiples of the period are as completions."""
    weighted: bool = False
    """Whether `shares` follow the weights of jobs."""
    residence: Residence = field(default_factory=Residence)
    """How it places jobs that cannot be paused or moved."""

    @property
    def traits(self) -> Traits:
        """What it is, beyond its decisions."""
        return Traits(dedicated=True, elastic=True, weighted=self.weighted)

    def decide(self, snapshot: Snapshot, /) -> Target:
        """The target for this snapshot."""
        action = self._action(snapshot)
        if not dedicated_present(snapshot):
            return self._share(snapshot, action, idle=action is None and self.rebalance is None)
        reserved = reserve(snapshot, self._priority, migrates=self._migrates)
        if not reserved.event:
            action = None
        idle = action is None and not reserved.changed and self.rebalance is None
        return reserved.joined(self._share(reserved.rest, action, idle=idle))

    @property
    def event_loop(self) -> EventLoop | None:
        """As `dfrs.kernels.fractional_loop.run_fractional`; None where that does not know all that the policy does."""
        others = (each for each in fields(self) if each.name not in _COMPILED | _IRRELEVANT)
        if any(getattr(self, each.name) != each.default for each in others):
            return None
        actions = compiled_actions(self.on_submission, self.on_completion, self.on_wake, self.shares, self.period_s)
        return None if actions is None else partial(run_fractional, actions)

    def expand(self, snapshot: Snapshot, row: int, more: int, /) -> Ints | None:
        """(more,) nodes for more tasks, as `dfrs.policies.fractional.expand.on_shared_nodes`."""
        return on_shared_nodes(snapshot, row, more)

    def _action(self, snapshot: Snapshot) -> PolicyAction | None:
        cause = snapshot.cause
        if cause is Cause.SUBMISSION:
            return self.on_submission
        if cause is Cause.COMPLETION or cause is Cause.COMMAND:
            return self.on_completion
        if cause is Cause.NEEDS:
            return self.on_completion if self.on_needs is None else self.on_needs
        if cause is Cause.NODES:
            return self.on_nodes
        period_s = self._period_s(snapshot)
        if self.rebalance is not None and (period_s is None or not is_repacking(snapshot.now_s, period_s)):
            return self.on_completion
        return self.on_wake

    def _share(self, snapshot: Snapshot, action: PolicyAction | None, *, idle: bool) -> Target:
        """What `action` and the shares make of the snapshot; a submission where all is `idle` leaves it as it is."""
        slots = snapshot.task_nodes.copy()
        if idle and snapshot.cause is Cause.SUBMISSION:
            yields = snapshot.jobs["yield_"].copy()
            return Target(slots, yields, self._wake_at(snapshot, yields))
        reasons = np.zeros(len(snapshot.jobs), np.int64)
        if action is not None and snapshot.abilities is not None:
            action = self.residence.within(action)
        if action is not None:
            action(snapshot, slots, reasons)
        yields = self.shares(snapshot, slots)
        wake_at_s = self._wake_at(snapshot, yields)
        if self.rebalance is not None and not self._reserves_memory(snapshot):
            placed = slots.copy()
            again_s = self.rebalance(snapshot, slots, reasons, wake_at_s)
            if (slots != placed).any():
                yields = self.shares(snapshot, slots)
                wake_at_s = self._wake_at(snapshot, yields)
            wake_at_s = ask_again(snapshot.now_s, again_s, wake_at_s, self._period_s(snapshot))
        return Target(slots, yields, wake_at_s, reasons)

    def _reserves_memory(self, snapshot: Snapshot) -> bool:
        """Whether memory is kept for a job that has waited for long: then nobody moves to it."""
        return snapshot.abilities is not None and self.residence.aged(snapshot) >= 0

    @property
    def _actions(self) -> list[PolicyAction]:
        """Those there are; a repacking that is not always adopted as it is stands for the one it limits."""
        actions = (self.on_submission, self.on_completion, self.on_wake, self.on_nodes, self.on_needs)
        return [unlimited(action) for action in actions if action is not None]

    @property
    def _migrates(self) -> bool:
        """Whether any action ever moves a running job."""
        if self.rebalance is not None:
            return True
        still = [
            isinstance(a, Readmit) or (isinstance(a, Admit) and a.mode is not Mode.GREEDY_PM) for a in self._actions
        ]
        return not all(still)

    @property
    def _priority(self) -> Priority:
        """By which the actions choose among jobs."""
        found = (getattr(action, "priority", None) for action in self._actions)
        return next((each for each in found if each is not None), Priority.FLOW_VIRTUAL_SQUARED)

    def _wake_at(self, snapshot: Snapshot, yields: Floats) -> float | None:
        if self.deadlines is not None:
            return self.deadlines(snapshot, yields)
        period_s = self._period_s(snapshot)
        return None if period_s is None or not len(snapshot.jobs) else next_multiple(snapshot.now_s, period_s)

    def _period_s(self, snapshot: Snapshot) -> float | None:
        """Of whose multiples repackings are at; None where there are none."""
        return self.period_s if self.period_s is None or self.priced is None else self.priced(snapshot.prices)
