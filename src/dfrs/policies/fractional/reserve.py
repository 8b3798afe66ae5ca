"""Dedicated jobs beside batch jobs that share: a share reserved from the requested start on ([Kumar2011] III-B).

From its requested start to its end a dedicated job has nodes for all its tasks and yield 1; it is neither paused nor
moved. Others share what it leaves of its nodes: their snapshot has neither its row nor what it uses, so that every
action and every rule for shares serves as it is. Before its requested start a dedicated job takes part in nothing.

It gets the nodes of least CPU load among those where it disturbs nobody: where memory is free, and each batch job there
could still have a yield of 0.01 of what CPU is left, itself at least a hundredth of the node's. Where these are too few
for its tasks, batch jobs must leave, by the policy's priority and with the rule of GreedyP ([Stillwell2010] 5.2.3);
they are moved if the policy migrates jobs at all and there is room elsewhere, or else paused. Only other dedicated jobs
and closed nodes can make it late; then it is tried again at every decision, before all batch jobs.
"""

from dataclasses import dataclass, replace

import numpy as np

from dfrs.engine.aside import fitting
from dfrs.kernels import reserve as kernels
from dfrs.model.decisions import PAUSED, RUNNING, Cause, Jobs, Snapshot, Target, Traits
from dfrs.model.instance import Bools, Ints
from dfrs.policies.fractional.actions import MARGIN, Priority

ALSO_DUE = 1
"""Memo of a job whose requested start is also the time of the policy's own next wake."""


def dedicated_present(snapshot: Snapshot) -> bool:
    """Whether any job has a requested start."""
    return not bool(np.isnan(snapshot.jobs["requested_start_s"]).all())


@dataclass(frozen=True, slots=True, eq=False)
class Reserved:
    """What dedicated jobs have, and what is left for the others."""

    rest: Snapshot
    """The cluster as the others see it: their rows, where they are now, and the capacity that is left."""
    event: bool
    """Whether what happened concerns the others: not the submission or the requested start of a dedicated job."""
    changed: bool
    """Whether a dedicated job got nodes, or more CPU of those that another policy left it with."""
    snapshot: Snapshot
    rows: Bools
    """(R,) which rows `rest` has."""
    tasks: Bools
    """(slots,) which slots are theirs."""
    slots: Ints
    reasons: Ints
    policy_state: Ints
    kind: Ints

    def joined(self, target: Target) -> Target:
        """The target for all, from that for the others."""
        slots, policy_state, kind = self.slots.copy(), self.policy_state.copy(), self.kind
        slots[self.tasks] = target.task_nodes
        yields = (kind == kernels.HELD).astype(np.float64)
        yields[self.rows] = target.yields
        reasons = self.reasons.copy()
        if len(target.reasons):
            own = self._moved_on(slots)[self.rows] | (reasons[self.rows] == 0)
            reasons[self.rows] = np.where(own, target.reasons, reasons[self.rows])
        ahead = kind == kernels.AHEAD
        wake_at_s = target.wake_at_s
        if ahead.any():
            start_s = self.snapshot.jobs["requested_start_s"][ahead]
            policy_state[ahead] = np.where(start_s == (np.nan if wake_at_s is None else wake_at_s), ALSO_DUE, 0)
            soonest_s = float(start_s.min())
            wake_at_s = soonest_s if wake_at_s is None else min(wake_at_s, soonest_s)
        return Target(slots, yields, wake_at_s, reasons, policy_state=policy_state)

    def _moved_on(self, slots: Ints) -> Bools:
        """(R,) rows that the others' decision put elsewhere than this one did."""
        changes = np.flatnonzero(slots != self.slots)
        moved = np.zeros(len(self.rows), np.bool_)
        moved[np.searchsorted(self.snapshot.first, changes, side="right") - 1] = True
        return moved


def reserve(snapshot: Snapshot, priority: Priority, *, migrates: bool) -> Reserved:
    """Give dedicated jobs whose requested start came their nodes, as `dfrs.kernels.reserve.reserve`.

    Jobs that are paused for them by a policy that does not migrate are left out of `rest`: to be placed at once
    elsewhere would be a migration. So are those without nodes that could not run on what is left were they alone: a
    repacking pauses by increasing priority until the others fit, for such a job all of them, and in vain.
    """
    jobs = snapshot.jobs
    slots, policy_state = snapshot.task_nodes.copy(), jobs["policy_state"].copy()
    kind, reasons = np.empty((2, len(jobs)), np.int64)
    left = np.empty(snapshot.capacity.shape)
    placed = kernels.reserve(
        jobs,
        snapshot.first,
        snapshot.task_nodes,
        snapshot.capacity,
        snapshot.open,
        snapshot.now_s,
        priority.value,
        migrates,
        MARGIN,
        slots,
        kind,
        reasons,
        policy_state,
        left,
    )
    rows = kind == kernels.GUEST
    if not migrates:
        rows &= reasons != kernels.MADE_WAY
    chosen = snapshot.select(rows)
    own = slots[np.repeat(rows, jobs["tasks"])]
    rest = replace(chosen, capacity=left, jobs=_settled(snapshot, slots, rows), task_nodes=own)
    fits = fitting(rest, Traits())
    if not fits.all():
        rest = rest.select(fits)
        rows[rows] = fits
    tasks = np.repeat(rows, jobs["tasks"])
    grown = bool((jobs["yield_"][kind == kernels.HELD] < 1.0).any())
    event = snapshot.cause is not Cause.SUBMISSION or rest.subject >= 0
    if snapshot.cause is Cause.WAKE:
        event = not _only_requested(snapshot)
    return Reserved(
        rest=rest,
        event=event,
        changed=placed > 0 or grown,
        snapshot=snapshot,
        rows=rows,
        tasks=tasks,
        slots=slots,
        reasons=reasons,
        policy_state=policy_state,
        kind=kind,
    )


def _settled(snapshot: Snapshot, slots: Ints, rows: Bools) -> Jobs:
    """The chosen rows as they are once those that had to leave have left."""
    jobs = snapshot.jobs[rows]
    gone = (jobs["state"] == RUNNING) & (slots[snapshot.first[:-1][rows]] < 0)
    jobs["state"][gone] = PAUSED
    jobs["yield_"][gone] = 0.0
    return jobs


def _only_requested(snapshot: Snapshot) -> bool:
    """Whether a wake was for requested starts alone: some came that are not noted to be the policy's own time too."""
    jobs = snapshot.jobs
    came = (jobs["requested_start_s"] <= snapshot.now_s) & (jobs["policy_state"] <= ALSO_DUE)
    came &= snapshot.task_nodes[snapshot.first[:-1]] < 0
    return bool(came.any()) and not bool((jobs["policy_state"][came] == ALSO_DUE).any())
