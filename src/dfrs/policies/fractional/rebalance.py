"""Nothing idles while the bound is far: after each decision, moves that raise the least yields and pay for themselves.

Greedy places what comes and moves nobody when something ends, so that half of the nodes may idle until all jobs are
repacked. Here tasks leave the node with the least yield one by one, or change places with smaller ones, until the
minimum yield is within 5 % of its bound, or nothing more can be done. See docs/explanation/policies.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import numpy as np

from dfrs.engine.commands import DETACH
from dfrs.engine.reconcile import reconcile
from dfrs.kernels.rebalance import rebalance
from dfrs.kernels.reconcile import keep_slots
from dfrs.model.decisions import Snapshot, Target
from dfrs.model.instance import Bools, Ints
from dfrs.policies.fractional.actions import MARGIN
from dfrs.policies.fractional.objective import YIELDS, Objective

THRESHOLD = 0.2
"""By default, a minimum yield is left alone from which its bound is no further than this share of it."""
NEAR = 0.05
"""Where it is further, the minimum yield is brought as near to its bound, if possible."""
TIMES = 2.0
"""What a move must gain, over what it costs: that a job goes on for as long as it has run is a rough estimate."""
RESTS = 30.0
"""A job that moved rests so many times what a move costs. So moves cost it at most one part in that of its time."""
PASSES = 16
"""At most, over all nodes; the second nearly always moves nobody."""
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

    threshold: float = THRESHOLD
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
            self.threshold,
            min(self.threshold, NEAR),
            price_s,
            TIMES,
            RESTS * price_s,
            snapshot.now_s,
            inf if until_s is None else until_s,
            max(self.budget - snapshot.moved, 0.0),
            not retains,
        )
        _, slope = self.objective(snapshot)

        def moved(trial: Ints, why: Ints) -> float:
            """Move tasks in `trial` once; seconds until a move that waits will pay."""
            return rebalance(
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

        trial, why = slots.copy(), reasons.copy()
        again_s = _settled(moved, trial, why)
        while able is not None and (strays := _strays(snapshot, trial, island) & ~fixed).any():
            fixed = fixed | strays
            trial, why = slots.copy(), reasons.copy()
            again_s = _settled(moved, trial, why)
        if not retains or not _leaves_memory(snapshot, trial):
            slots[:] = trial
            reasons[:] = why
        return again_s


def _settled(moved: Callable[[Ints, Ints], float], trial: Ints, why: Ints) -> float:
    """Let `moved` go on until it moves nobody: what moved last may have made room for others."""
    again_s = inf
    for _ in range(PASSES):
        before = trial.copy()
        again_s = moved(trial, why)
        if (trial == before).all():
            break
    return again_s


def _strays(snapshot: Snapshot, slots: Ints, island: Ints) -> Bools:
    """(R,) running rows of which a task would leave its island, as commands name tasks: those that move by node."""
    strays, count = np.zeros(len(snapshot.jobs), np.bool_), np.zeros(len(island), np.int64)
    moves = np.flatnonzero(slots != snapshot.task_nodes)
    for row in np.unique(np.searchsorted(snapshot.first, moves, side="right") - 1).tolist():
        begin, end = int(snapshot.first[row]), int(snapshot.first[row + 1])
        before, after = snapshot.task_nodes[begin:end], slots[begin:end].copy()
        if before[0] >= 0 and after[0] >= 0:
            keep_slots(before, after, 0, len(after), count)
            strays[row] = bool((island[after] != island[before]).any())
    return strays


def _leaves_memory(snapshot: Snapshot, slots: Ints) -> bool:
    """Whether jobs wait for each other's nodes, so that one would have to leave before it can come."""
    _, _, _, steps = reconcile(snapshot, Target(slots, np.zeros(len(snapshot.jobs))))
    return bool((steps == DETACH).any())


def late_s(period_s: float) -> float:
    """How late a wake for a repacking may be and still be one; nothing else is asked for in that time."""
    return min(LEAST_S, LATE * period_s)


def is_repacking(now_s: float, period_s: float) -> bool:
    """Whether a wake at `now_s` is one at a multiple of the period."""
    # Rounded and not down: of a multiple that is no whole number the quotient may be just below one.
    return 0.0 <= now_s - period_s * round(now_s / period_s) < late_s(period_s)


def ask_again(now_s: float, after_s: float, wake_at_s: float | None, period_s: float | None) -> float | None:
    """When to wake: at `wake_at_s` for a repacking, or `after_s` from now if that is sooner, but not as if for one."""
    if after_s == inf:
        return wake_at_s
    at_s = now_s + max(after_s, LEAST_S)
    if period_s is not None and is_repacking(at_s, period_s):
        at_s += 2.0 * late_s(period_s)
    return at_s if wake_at_s is None else min(at_s, wake_at_s)
