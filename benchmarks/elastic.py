"""Sets of jobs: whole traces under Delayed-LOS beside EASY, and the dynamic program beside its published form.

Times are of one core, of the whole simulation through the control core, after compilation, without reading traces or
writing files. Traces are looked for at $DFRS_TRACES (default: ../shared/traces); what is not there is left out.
"""

import os
import time
from pathlib import Path

import numba
import numpy as np

from benchmarks.common import console
from benchmarks.online import seconds, table
from dfrs.kernels.subset import select
from dfrs.workloads.load import load_workload

KTH_GOAL_S = 6.0
TRACES = {
    "KTH-SP2": ("KTH-SP2-1996-2.1-cln-REBUILT.swf.gz", KTH_GOAL_S),
    "SDSC-BLUE": ("SDSC-BLUE-2000-4.2-cln.swf.gz", None),
}
POLICIES = ("EASY", "LOS", "Delayed-LOS", "Delayed-LOS/LOOKAHEAD=50", "Hybrid-LOS")
QUEUE, ROUNDS = 50, 20


def whole_traces() -> None:
    """Every policy on every whole trace, estimates as in the trace but at least the run time; no lookahead limit."""
    directory = Path(os.environ.get("DFRS_TRACES", "../shared/traces"))
    for name, (file, goal_s) in TRACES.items():
        path = directory / file
        if not path.exists():
            console.print(f"\n{path} is not there: left out. Set DFRS_TRACES.")
            continue
        workload, _ = load_workload(path, annotate="none", estimates="raised")
        made = table(
            f"{name}, {len(workload):,} jobs, {workload.nodes:,} nodes", "policy", "time", "jobs/s", "EASY = 1", "goal"
        )
        easy_s = 0.0
        for policy in POLICIES:
            seconds(workload.select(np.arange(1_000)), policy)
            took_s = seconds(workload, policy)
            easy_s = easy_s or took_s
            has_goal = goal_s is not None and policy == "Delayed-LOS"
            met = f"{goal_s:g} s: {'yes' if took_s <= goal_s else 'NO'}" if has_goal and goal_s else ""
            made.add_row(policy, f"{took_s:.2f} s", f"{len(workload) / took_s:,.0f}", f"{took_s / easy_s:.2f}", met)
        console.print()
        console.print(made)


@numba.njit(cache=True)
def published(size, crossing, free, spare):  # type: ignore[no-untyped-def]
    """The largest total by the table of Shmueli and Feitelson: jobs x free nodes x nodes free at the reservation."""
    best = np.zeros((len(size) + 1, free + 1, spare + 1), np.int64)
    for j in range(1, len(size) + 1):
        s = size[j - 1]
        frozen = s if crossing[j - 1] > 0 else 0
        for a in range(free + 1):
            for b in range(spare + 1):
                best[j, a, b] = best[j - 1, a, b]
                if s <= a and frozen <= b:
                    best[j, a, b] = max(best[j, a, b], best[j - 1, a - s, b - frozen] + s)
    return best[len(size), free, spare]


def programs() -> None:
    """Reservation_DP on random queues: this one, and the published table compiled by the same compiler."""
    made = table(f"Reservation_DP, queue of {QUEUE} jobs", "free nodes", "here", "published form", "ratio")
    for free in (100, 320, 1_152):
        rng = np.random.default_rng(free)
        spare = free // 2
        spent = [0.0, 0.0]
        for k in range(ROUNDS + 1):
            size = rng.integers(1, free, QUEUE)
            crossing = rng.integers(0, 2, QUEUE)
            room, chosen = np.array([free, spare]), np.empty(QUEUE, np.bool_)
            begun = time.perf_counter()
            ours = select(size, crossing, room, chosen)
            between = time.perf_counter()
            theirs = published(size, crossing, free, spare)
            ended = time.perf_counter()
            if ours != theirs:
                raise AssertionError(f"{ours} here, {theirs} by the published form")
            if k:
                spent[0] += between - begun
                spent[1] += ended - between
        here_ms, theirs_ms = (1_000 * s / ROUNDS for s in spent)
        made.add_row(f"{free:,}", f"{here_ms:.3f} ms", f"{theirs_ms:.2f} ms", f"{theirs_ms / here_ms:.0f}")
    console.print()
    console.print(made)


def main() -> None:
    """Both."""
    programs()
    whole_traces()
