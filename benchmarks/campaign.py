"""The campaign part: what two processes gain over one, and what a Dask cluster costs.

Wall-clock time of whole campaigns into an empty store, compiled kernels there, workers started within the time. Needs
as many idle cores as there are processes.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.table import Table

from benchmarks.common import console
from dfrs.experiments.campaign_engine import CampaignEngine
from dfrs.experiments.kinds.online import ONLINE, OnlineConfiguration
from dfrs.experiments.planned_runs import PlannedRun
from dfrs.experiments.runners import InProcess, Processes, Runner
from dfrs.experiments.sources.traces import LublinTrace
from dfrs.experiments.store import Store
from dfrs.policies.names import TABLE_5_2

TRACES, JOBS, SCALING_GOAL = 10, 3_000, 1.8
TRIVIAL_CELLS = 2_000


def dask() -> Runner:
    from dfrs.experiments.dask_runner import DaskRunner  # noqa: PLC0415 - Dask is an extra

    return DaskRunner(local=2)


RUNNERS: dict[str, Callable[[], Runner]] = {"two processes": lambda: Processes(2), "Dask, two workers": dask}


def cells(traces: int, jobs: int, policies: tuple[str, ...] = TABLE_5_2) -> list[PlannedRun]:
    """Every policy on every trace."""
    return [
        PlannedRun(
            kind=ONLINE,
            scenario=LublinTrace(seed=seed, jobs=jobs),
            configuration=OnlineConfiguration(label=policy, policy=policy),
        )
        for seed in range(1, traces + 1)
        for policy in policies
    ]


def run(chosen: list[PlannedRun], start: Callable[[], Runner]) -> tuple[float, float]:
    """Wall-clock seconds of the campaign, and the seconds that its cells took, added up."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store")
        started = time.perf_counter()
        runner = start()
        CampaignEngine(store, runner).run(chosen)
        seconds = time.perf_counter() - started
        spent = float(store.results(ONLINE)["cell_s"].sum())
        store.close()
    runner.close()
    return seconds, spent


def main() -> None:
    """Two tables."""
    chosen = cells(TRACES, JOBS)
    run(cells(1, 50), InProcess)
    title = f"{len(chosen)} cells: {len(TABLE_5_2)} policies, {TRACES} Lublin traces of {JOBS:,} jobs"
    made = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for column in ("runner", "wall, s", "cells, core s", "times as fast", "overhead, %"):
        made.add_column(column, justify="left" if column == "runner" else "right")
    one_s, spent_s = run(chosen, InProcess)
    made.add_row("this process", f"{one_s:.1f}", f"{spent_s:.1f}", "1.00", f"{100 * (one_s / spent_s - 1):.1f}")
    for name, start in RUNNERS.items():
        seconds, spent = run(chosen, start)
        made.add_row(
            name, f"{seconds:.1f}", f"{spent:.1f}", f"{one_s / seconds:.2f}", f"{100 * (2 * seconds / spent - 1):.1f}"
        )
    console.print(made)
    console.print(
        f"goal: two processes {SCALING_GOAL} times as fast as one. Overhead: wall times workers, over the cells'."
    )
    small = cells(TRIVIAL_CELLS // 2, 10, ("FCFS", "EASY"))
    for name, start in RUNNERS.items():
        seconds, spent = run(small, start)
        each_ms = 1000 * (seconds - spent / 2) / len(small)
        console.print(f"{len(small):,} cells of 10 jobs, {name}: {seconds:.1f} s, {each_ms:.2f} ms each beside the run")
