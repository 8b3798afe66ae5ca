"""Nothing idles while the bound is far: after each decision, moves that raise the least yields and pay for themselves.

Greedy places what comes and moves nobody when something ends, so that half of the nodes may idle until all jobs are
repacked. Here tasks leave the node with the least yield one by one, or change places with smaller ones, until the
minimum yield is within `share` of its bound, or nothing more can be done. See docs/explanation/policies.md.
"""

from dataclasses import dataclass
from math import floor, inf

import numpy as np

from dfrs.engine.commands import DETACH
from dfrs.engine.reconcile import reconcile
from dfrs.kernels.rebalance import rebalance
from dfrs.model.decisions import Snapshot, Target
from dfrs.model.instance import Ints
from dfrs.policies.fractional.actions import MARGIN
from dfrs.policies.fractional.objective import YIELDS, Objective

SHARE = 0.05
"""Of the bound: a minimum yield as near to it is left alone."""
TIMES = 2.0
"""What a move must gain, over what it costs: that a job goes on for as long as it has run is a rough estimate."""
RESTS = 30.0
"""A job that moved rests so many times what a move costs. So moves cost it at most one part in that of its time."""
LEAST_S = 1.0
"""Between two decisions that the policy asks for, and by how much a repacking may come late and still be one."""
LATE = 1.0 / 30.0
"""The same as a part of the period."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance:
    """A move pays where it gains, over what its job is expected to have left, `TIMES` the progress that it costs it.

    A job is expected to go on for as long as it has run, but for no longer than those that it leaves on the node have
    run, and the gain counts until the next repacking.
    """

    share: float = SHARE
    objective: Objective = YIELDS
    budget: float = inf
    """Memory that may migrate in any hour, in reference nodes."""

    def __call__(self, snapshot: Snapshot, slots: Ints, reasons: Ints, until_s: float | None, /) -> float:
        """Move tasks in `slots` as `dfrs.kernels.rebalance.rebalance`; seconds until a move that waits will pay.

        `until_s`: when all is repacked, None: never. Where paused tasks stay in memory, no tasks change places: one of
        them would have to leave before the other can come.
        """
        able = snapshot.abilities
        island, fixed = np.zeros(len(snapshot.open), np.int64), np.zeros(len(snapshot.jobs), np.bool_)
        if able is not None:
            island, fixed = able.island, able.fixed
        retains = able is not None and able.retains
        price_s = snapshot.prices.move_s
        rule = (
            self.share,
            price_s,
            TIMES,
            RESTS * price_s,
            snapshot.now_s,
            inf if until_s is None else until_s,
            max(self.budget - snapshot.moved, 0.0),
            not retains,
        )
        _, slope = self.objective(snapshot)
        trial, why = slots.copy(), reasons.copy()
        again_s = rebalance(
            snapshot.jobs,
            snapshot.first,
            snapshot.task_nodes,
            snapshot.capacity,
            snapshot.open,
            island,
            fixed,
            slope,
            rule,
            MARGIN,
            trial,
            why,
        )
        if not retains or not _leaves_memory(snapshot, trial):
            slots[:] = trial
            reasons[:] = why
        return again_s


def _leaves_memory(snapshot: Snapshot, slots: Ints) -> bool:
    """Whether jobs wait for each other's nodes, so that one would have to leave before it can come."""
    _, _, _, steps = reconcile(snapshot, Target(slots, np.zeros(len(snapshot.jobs))))
    return bool((steps == DETACH).any())


def late_s(period_s: float) -> float:
    """How late a wake for a repacking may be and still be one; nothing else is asked for in that time."""
    return min(LEAST_S, LATE * period_s)


def is_repacking(now_s: float, period_s: float) -> bool:
    """Whether a wake at `now_s` is one at a multiple of the period."""
    return now_s - period_s * floor(now_s / period_s) < late_s(period_s)


def ask_again(now_s: float, after_s: float, wake_at_s: float | None, period_s: float | None) -> float | None:
    """When to wake: at `wake_at_s` for a repacking, or `after_s` from now if that is sooner, but not as if for one."""
    if after_s == inf:
        return wake_at_s
    at_s = now_s + max(after_s, LEAST_S)
    if period_s is not None and is_repacking(at_s, period_s):
        at_s += 2.0 * late_s(period_s)
    return at_s if wake_at_s is None else min(at_s, wake_at_s)
