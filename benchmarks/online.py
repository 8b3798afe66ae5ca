"""The on-line part: seconds a trace, jobs a second, memory, and AccaSim in the same run.

Times are of the whole simulation through the control core, after compilation, without reading traces or writing files.
Where the published HPC2N trace is not at $DFRS_TRACES (default: ../shared/traces), what needs it is left out.
"""

import os
import statistics
import time
from pathlib import Path

import numpy as np
from rich.table import Table

from benchmarks.accasim_peer import accasim_cpu_s
from benchmarks.common import console, peak_memory_mib
from dfrs.bounds.stretch import stretch_bound
from dfrs.model.jobs import Workload
from dfrs.model.run import Penalty
from dfrs.policies.names import TABLE_5_1, find_policy
from dfrs.simulator.simulation import Simulation, SimulationSettings
from dfrs.workloads.annotate import to_workload
from dfrs.workloads.load import load_workload
from dfrs.workloads.lublin import Lublin, generate

MAIN = "GreedyPM*/per/OPT=MIN/MVT=600"
MAIN_GOAL_S, ANY_GOAL_S, BOUND_GOAL_S, BATCH_GOAL, MEMORY_GOAL_MIB = 0.25, 0.8, 1.0, 10_000, 500
TRACES, SAMPLE, PEER_JOBS = 100, 10, 20_000
HPC2N = Path(os.environ.get("DFRS_TRACES", "../shared/traces")) / "HPC2N-2002-2.2-cln.swf.gz"


def lublin(seed: int) -> Workload:
    """The reference trace of that seed, annotated as the dissertation's."""
    return to_workload(generate(Lublin(), seed=seed), nodes=128, annotate="dfrs", seed=seed)[0]


def seconds(workload: Workload, name: str) -> float:
    simulation = Simulation(workload, find_policy(name), name, SimulationSettings(penalty=Penalty(seconds=300.0)))
    started = time.perf_counter()
    simulation.run()
    return time.perf_counter() - started


def table(title: str, *columns: str) -> Table:
    made = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    made.add_column(columns[0], no_wrap=True)
    for column in columns[1:]:
        made.add_column(column, justify="right")
    return made


def dfrs_policies() -> None:
    """The main policy on all traces, every policy of Table 5.1 on some."""
    workloads = [lublin(seed) for seed in range(1, TRACES + 1)]
    made = table("1,000-job Lublin traces, 128 nodes, penalty 300 s", "policy", "traces", "mean", "max", "goal", "met")
    named = {name: f"{name}/OPT={'MAX' if 'stretch' in name else 'MIN'}" for name in TABLE_5_1}
    limited = [f"{name}/MVT=600" for name in named.values() if "per" in name or "MCB" in name]
    for name in dict.fromkeys((MAIN, *named.values(), *limited)):
        seconds(workloads[0], name)
        chosen = workloads if name == MAIN else workloads[:SAMPLE]
        times = [seconds(workload, name) for workload in chosen]
        goal = MAIN_GOAL_S if name == MAIN else ANY_GOAL_S
        mean = statistics.mean(times)
        made.add_row(
            name, str(len(times)), f"{mean:.3f} s", f"{max(times):.3f} s", f"{goal} s", "yes" if mean <= goal else "NO"
        )
    console.print()
    console.print(made)
    stretch_bound(workloads[0])
    times = []
    for workload in workloads:
        started = time.perf_counter()
        stretch_bound(workload)
        times.append(time.perf_counter() - started)
    console.print(
        f"Stretch bound: mean {statistics.mean(times):.3f} s, max {max(times):.3f} s (goal: {BOUND_GOAL_S} s a trace) "
        f"{'yes' if max(times) <= BOUND_GOAL_S else 'NO'}"
    )


def batch_policies() -> None:
    """FCFS and EASY on the whole of HPC2N, and AccaSim on its first jobs."""
    if not HPC2N.exists():
        console.print(f"\n{HPC2N} is not there: no batch policies on HPC2N. Set DFRS_TRACES.")
        return
    workload, _ = load_workload(HPC2N, nodes=120, annotate="hpc2n")
    made = table(f"HPC2N, {len(workload):,} jobs, 120 nodes", "policy", "time", "jobs/s", "goal", "met")
    for name in ("FCFS", "EASY", "CONSERVATIVE"):
        seconds(workload.select(np.arange(1_000)), name)
        rate = len(workload) / seconds(workload, name)
        goal = "-" if name == "CONSERVATIVE" else f"{BATCH_GOAL:,}"
        met = "-" if name == "CONSERVATIVE" else ("yes" if rate >= BATCH_GOAL else "NO")
        made.add_row(name, f"{len(workload) / rate:.1f} s", f"{rate:,.0f}", goal, met)
    console.print()
    console.print(made)
    peak = peak_memory_mib(
        f"import dfrs\nw = dfrs.read_workload({str(HPC2N)!r}, nodes=120, annotate='hpc2n')\ndfrs.simulate(w, 'EASY')\n"
    )
    console.print(
        f"Peak memory of a process that reads it and simulates EASY: {peak:.0f} MiB (goal: under {MEMORY_GOAL_MIB}) "
        f"{'yes' if peak < MEMORY_GOAL_MIB else 'NO'}"
    )
    whole, _ = load_workload(HPC2N, nodes=240, annotate="none")
    some = whole.select(np.arange(PEER_JOBS))
    made = table(
        f"Peer: HPC2N's first {PEER_JOBS:,} jobs on 240 whole processors", "policy", "AccaSim", "dfrs", "ratio"
    )
    for name in ("FCFS", "EASY"):
        theirs, ours = accasim_cpu_s(some, name), seconds(some, name)
        made.add_row(name, f"{theirs:.1f} s CPU", f"{ours:.2f} s", f"{theirs / ours:.1f}")
    console.print()
    console.print(made)


def main() -> None:
    """All of it, in order."""
    dfrs_policies()
    batch_policies()
