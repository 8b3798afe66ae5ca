"""Fractional policies in the compiled event loop: actions on placements, then max-min fair yields.

What is not expressed by `Actions`, as repacking within a budget or by another packing, is decided by the interpreted
policy; so is all that happens while a dedicated job is present.
"""

from typing import NamedTuple

import numpy as np

from dfrs.kernels.admission import admit, readmit
from dfrs.kernels.event_loop import ASK, COMPLETION, SUBMISSION, Plain, next_question, rows_present, take
from dfrs.kernels.jit import kernel
from dfrs.kernels.loads import by_priority
from dfrs.kernels.repack import Search, find_pinned, pin_stranded, repack
from dfrs.kernels.shares import fill

NOTHING, ADMIT, READMIT, REPACK = range(4)
"""What is done about placements."""

MOST_COUNTED = 2.0**53
"""From here on a double is not always one more than the one before."""


class Actions(NamedTuple):
    """A policy: what is done at each cause, how, and how CPU is shared then."""

    on_submission: int
    on_completion: int
    on_wake: int
    mode: int
    """Of ADMIT."""
    priority: int
    pin: int
    """Of REPACK, see `dfrs.kernels.repack.find_pinned`."""
    pin_s: float
    search: Search
    floor: float
    """The least yield of a job on nodes, where there is that much CPU."""
    even: bool
    """Whether nobody is raised beyond the least happy."""
    period_s: float
    """Wakes are at its multiples, while there are jobs; 0: none."""
    margin: float
    """How far memory may pass a node's capacity."""


@kernel
def run_fractional(actions: Actions, run: Plain, before_s: float, submissions_first: bool, steps: int) -> int:
    """Go on until there is no event that is for this loop, see `next_question`; `ASK` where it cannot decide."""
    now, cluster = run.account[0], run.cluster
    while True:
        why = next_question(run, before_s, submissions_first, steps)
        if why != ASK:
            return why
        jobs, first, nodes = rows_present(run)
        rows = len(jobs)
        dedicated = False
        for r in range(rows):
            dedicated |= not np.isnan(jobs[r].requested_start_s)
        wake_at_s = _next_multiple(now.now_s, actions.period_s) if actions.period_s > 0.0 and rows > 0 else np.inf
        if dedicated or not wake_at_s > now.now_s:
            return ASK
        action = actions.on_wake
        if now.cause == SUBMISSION:
            action = actions.on_submission
        elif now.cause == COMPLETION:
            action = actions.on_completion
        if now.cause != SUBMISSION or action != NOTHING:
            slots = nodes.copy()
            yields = np.empty(rows)
            reasons = np.zeros(rows, np.int64)
            base = np.zeros(rows)
            slope = np.ones(rows)
            if action == ADMIT:
                admit(
                    jobs,
                    first,
                    nodes,
                    cluster.capacity,
                    cluster.open,
                    now.subject,
                    actions.mode,
                    now.now_s,
                    actions.priority,
                    actions.margin,
                    slots,
                    reasons,
                )
            elif action == READMIT:
                readmit(
                    jobs,
                    first,
                    cluster.capacity,
                    cluster.open,
                    now.now_s,
                    actions.priority,
                    actions.margin,
                    slots,
                    reasons,
                )
            elif action == REPACK:
                order = np.empty(rows, np.int64)
                pinned = np.empty(rows, np.bool_)
                by_priority(jobs, now.now_s, actions.priority, order)
                find_pinned(jobs, now.now_s, actions.pin, actions.pin_s, pinned)
                pin_stranded(jobs, first, nodes, cluster.capacity, cluster.open, actions.margin, pinned)
                repack(
                    jobs,
                    first,
                    nodes,
                    cluster.capacity,
                    cluster.open,
                    order,
                    pinned,
                    base,
                    slope,
                    actions.search,
                    actions.margin,
                    slots,
                    reasons,
                )
            fill(jobs, first, slots, cluster.capacity, base, slope, actions.floor, actions.even, yields)
            if not take(run, slots, yields, reasons):
                return ASK
        now.wake_at_s = wake_at_s
        now.decisions += 1


@kernel
def _next_multiple(now_s: float, period_s: float) -> float:
    """The first multiple of `period_s` after `now_s`; NaN where there were more than a double counts."""
    k = np.floor(now_s / period_s) + 1.0
    if not abs(k) < MOST_COUNTED:
        return np.nan
    return k * period_s if k * period_s > now_s else (k + 1.0) * period_s
