"""Batch policies in the compiled event loop: FCFS, EASY and CONSERVATIVE decide, and what they want is done."""

import numpy as np

from dfrs.kernels.batch import EASY, EASY_SPARE, FCFS, whole_nodes
from dfrs.kernels.conservative import start_reserved
from dfrs.kernels.event_loop import ASK, COMPLETION, Plain, next_question, rows_present, take
from dfrs.kernels.jit import kernel

CONSERVATIVE = 3
assert CONSERVATIVE not in (FCFS, EASY, EASY_SPARE)


@kernel
def run_batch(rule: int, run: Plain, before_s: float, submissions_first: bool, steps: int) -> int:
    """Go on until there is no event that is for this loop, see `next_question`; `ASK` where it cannot decide."""
    now, cluster = run.account[0], run.cluster
    while True:
        why = next_question(run, before_s, submissions_first, steps)
        if why != ASK:
            return why
        jobs, first, nodes = rows_present(run)
        rows = len(jobs)
        after = np.empty(len(nodes), np.int64)
        yields = np.empty(rows)
        reasons = np.zeros(rows, np.int64)
        policy_state = np.empty(rows, np.int64)
        wake_at_s = np.inf
        if rule == CONSERVATIVE:
            policy_state[:] = jobs.policy_state
            reserved_s = policy_state.view(np.float64)
            changed = start_reserved(
                jobs,
                first,
                nodes,
                cluster.capacity,
                cluster.open,
                cluster.tolerance,
                now.now_s,
                now.subject,
                now.cause == COMPLETION,
                reserved_s,
                after,
                yields,
                reasons,
            )
            for r in range(rows):
                if reserved_s[r] > now.now_s:
                    wake_at_s = min(wake_at_s, reserved_s[r])
        else:
            changed = whole_nodes(
                rule,
                jobs,
                first,
                nodes,
                cluster.capacity,
                cluster.open,
                cluster.tolerance,
                now.now_s,
                now.subject,
                after,
                yields,
                reasons,
            )
        # What changes nothing is the present, which was checked when it became so.
        if changed < 0 or (changed > 0 and not take(run, after, yields, reasons)):
            return ASK
        now.wake_at_s = wake_at_s
        now.decisions += 1
        if rule == CONSERVATIVE:
            for r in range(rows):
                jobs[r].policy_state = policy_state[r]
