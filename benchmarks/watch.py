"""`python -m benchmarks.watch`: a week of noisy demand, watched with patience, followed at every step, and left alone.

60 machines on 6 hosts, a decision every five minutes, three draws. For each way to decide: the mean and the lowest
minimum yield, the part of the time below 0.8, moves a machine and day, and machines that went back within an hour.
"""

import sys
import time

import numpy as np
from rich.table import Table

from benchmarks.common import console
from dfrs.placement.budget import Budget
from dfrs.rebalancing.solve import rebalance
from dfrs.rebalancing.watch import Watcher, WatchSettings
from dfrs.testing.watching import Decide, WatchReport, simulate_decisions, staying, watching

MACHINES, HOSTS, TICK_S, SEEDS = 60, 6, 300.0, (1, 2, 3)
LOW = 0.8
ROUNDS = 5


def _following(instance, place, now_s):
    """The best placement for the demand of now, whatever it takes."""
    found = rebalance(instance, place, rounds=ROUNDS)
    return place if found.plan is None else found.plan.final


def _watching() -> Decide:
    settings = WatchSettings(budget=Budget(moves=8.0))
    return watching(Watcher(settings, lambda i, p, b: rebalance(i, p, budget=b, rounds=ROUNDS)))


def main() -> None:
    days = float(sys.argv[1]) if len(sys.argv) > 1 else 7.0
    ticks = int(days * 86400 / TICK_S)
    console.print(f"{MACHINES} machines on {HOSTS} hosts, {days:g} days, a decision every {TICK_S:g} s, seeds {SEEDS}")
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("")
    for name in ("mean", "5th percentile", f"below {LOW}", "moves a machine and day", "back in an hour", "s"):
        table.add_column(name, justify="right")
    for name, make in (("never moving", lambda: staying), ("watching", _watching), ("following", lambda: _following)):
        began = time.perf_counter()
        reports: list[WatchReport] = [
            simulate_decisions(make(), machines=MACHINES, hosts=HOSTS, ticks=ticks, tick_s=TICK_S, seed=seed)
            for seed in SEEDS
        ]
        yields = np.concatenate([r.yields for r in reports])
        table.add_row(
            name,
            f"{yields.mean():.3f}",
            f"{np.percentile(yields, 5):.3f}",
            f"{100 * (yields < LOW).mean():.1f} %",
            f"{np.mean([r.per_machine_and_day for r in reports]):.2f}",
            str(sum(r.back_within_hour for r in reports)),
            f"{time.perf_counter() - began:.0f}",
        )
    console.print(table)


if __name__ == "__main__":
    main()
