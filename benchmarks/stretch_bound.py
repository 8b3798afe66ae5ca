"""Times of the stretch bound on one core after compilation: Lublin traces, as they are and scaled, and HPC2N weeks.

    python -m benchmarks.stretch_bound [--whole]

Reading traces is not timed. With --whole also the whole HPC2N log in one.
"""

import os
import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from dfrs.bounds.stretch import stretch_bound
from dfrs.model.jobs import Workload
from dfrs.workloads.load import load_workload
from dfrs.workloads.transform import scale_to_load, weeks

TRACES = Path(os.environ.get("DFRS_TRACES", Path(__file__).parents[2] / "shared" / "traces"))
LOADS = (0.1, 0.3, 0.5, 0.7, 0.9)
GOAL_S = 1.0


def row(table: Table, title: str, workloads: list[Workload], goal_s: float | None = GOAL_S) -> None:
    seconds: list[float] = []
    bounds = []
    for workload in workloads:
        started = time.perf_counter()
        bounds.append(stretch_bound(workload))
        seconds.append(time.perf_counter() - started)
    values = [bound.value for bound in bounds]
    table.add_row(
        title,
        f"{len(workloads)}",
        f"{max(map(len, workloads)):,}",
        f"{np.mean(values):.3f}",
        f"{max(values):.3f}",
        f"{np.mean([bound.iterations for bound in bounds]):.1f}",
        f"{max(bound.certificate.shortfall for bound in bounds):.0e}",
        f"{1e3 * np.mean(seconds):.1f} ms",
        f"{1e3 * max(seconds):.1f} ms",
        "-" if goal_s is None else "yes" if max(seconds) <= goal_s else "NO",
    )


def main() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    lublin = [load_workload(file, nodes=128)[0] for file in sorted((TRACES / "lublin128").glob("*.swf.gz"))]
    hpc2n, _ = load_workload(TRACES / "HPC2N-2002-2.2-cln.swf.gz", nodes=120, annotate="hpc2n")
    stretch_bound(lublin[0])
    table = Table("workloads", "number", "most jobs", "mean bound", "largest", "mean steps", "shortfall", "mean time")
    table.add_column("longest")
    table.add_column(f"at most {GOAL_S:g} s")
    row(table, "Lublin", lublin)
    for load in LOADS:
        row(table, f"Lublin, load {load:g}", [scale_to_load(workload, load) for workload in lublin])
    row(table, "HPC2N weeks", weeks(hpc2n))
    if "--whole" in sys.argv[1:]:
        row(table, "HPC2N, whole log", [hpc2n], None)
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
