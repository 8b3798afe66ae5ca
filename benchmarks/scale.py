"""The scale part: time and memory of long traces on large clusters, and how both grow with jobs and nodes.

    python -m benchmarks.scale                                   # 1,000,000 jobs on 5,000 nodes; SDSC-BLUE whole
    python -m benchmarks.scale --jobs 20000 --nodes 500 --blue 5000

Traces are of the Lublin model at load 0.7; growth is measured at a hundredth, a tenth and a third of the jobs on all
nodes, and at a tenth of the jobs on a tenth, a third and all of the nodes, and drawn into out/bench/scale.png. Every
run is a process of its own, after compilation. "Before" is the memory of the process before the run, with the trace;
"run" is by how much that grows at most; "log" is what the columns of the run's log take, once. A run has the log two to
three times, as columns that grow and as the result. What it needs beside that must not grow with the trace.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from benchmarks.common import console, current_memory_mib
from dfrs.model.jobs import Workload
from dfrs.model.run import Events, Penalty
from dfrs.policies.names import find_policy
from dfrs.simulator.simulation import Simulation, SimulationSettings
from dfrs.workloads.annotate import to_workload
from dfrs.workloads.load import load_workload
from dfrs.workloads.lublin import Lublin, generate
from dfrs.workloads.transform import scale_to_load

POLICIES = ("EASY", "GreedyPM*/per/OPT=MIN/MVT=600", "GreedyPM*/per/OPT=MIN/MVT=600/PAYS")
BLUE = Path(os.environ.get("DFRS_TRACES", "../shared/traces")) / "SDSC-BLUE-2000-4.2-cln.swf.gz"
BLUE_JOBS, BLUE_NODES = 243_306, 1_152
LOAD = 0.7
WARM_UP_JOBS = 50
PICTURE = Path("out/bench/scale.png")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one run took."""

    policy: str
    jobs: int
    nodes: int
    seconds: float
    """CPU of the simulation alone."""
    before_mib: float
    peak_mib: float
    log_mib: float
    present: int
    """Most jobs that were in the system at once."""


def lublin(jobs: int, nodes: int) -> Workload:
    """The trace of seed 1, annotated as the dissertation's, at LOAD."""
    return scale_to_load(
        to_workload(generate(Lublin.of(jobs=jobs, nodes=nodes), seed=1), annotate="dfrs", seed=1)[0], LOAD
    )


def blue(jobs: int) -> Workload:
    """The first jobs of SDSC-BLUE, or all; of the log's 243,306 lines those that name no run time are none."""
    found = load_workload(BLUE, nodes=BLUE_NODES, annotate="dfrs", seed=1)[0]
    return found.select(np.arange(min(jobs, len(found))))


def measure(workload: Workload, policy: str) -> Figures:
    """Run it in this process, which should have done nothing else."""
    settings = SimulationSettings(penalty=Penalty(seconds=300.0))
    Simulation(workload.select(np.arange(WARM_UP_JOBS)), find_policy(policy), policy, settings).run()
    simulation = Simulation(workload, find_policy(policy), policy, settings)
    before_mib, began_s = current_memory_mib(), time.process_time()
    run = simulation.run()
    return Figures(
        policy=policy,
        jobs=len(workload),
        nodes=workload.nodes,
        seconds=time.process_time() - began_s,
        before_mib=before_mib,
        peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        log_mib=log_mib(run.events),
        present=most_present(workload.submit_s, run.finish_s),
    )


def log_mib(events: Events) -> float:
    """What the log's columns take."""
    columns = (events.time_s, events.job, events.action, events.yield_, events.why, events.first, events.nodes)
    return sum(column.nbytes for column in columns) / 2**20


def most_present(submit_s: np.ndarray, finish_s: np.ndarray) -> int:
    """Most jobs between their submission and their end at one time; those that end come first."""
    times = np.concatenate([finish_s[np.isfinite(finish_s)], submit_s])
    steps = np.repeat([-1, 1], [len(times) - len(submit_s), len(submit_s)])
    return int(np.cumsum(steps[np.argsort(times, kind="stable")]).max(initial=0))


def in_a_process(kind: str, jobs: int, nodes: int, policy: str) -> Figures:
    """The figures of a run in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.scale", "--child", kind, str(jobs), str(nodes), policy]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Figures(**json.loads(done.stdout.splitlines()[-1]))


def child(kind: str, jobs: str, nodes: str, policy: str) -> None:
    """The other side of `in_a_process`."""
    workload = blue(int(jobs)) if kind == "blue" else lublin(int(jobs), int(nodes))
    found = measure(workload, policy)
    print(json.dumps({name: getattr(found, name) for name in Figures.__slots__}))


def show(title: str, rows: Sequence[Figures]) -> None:
    """A line for each run."""
    made = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for heading in ("policy", "jobs", "nodes", "CPU s", "jobs/s", "present", "before", "run", "log, MiB"):
        made.add_column(heading, justify="left" if heading == "policy" else "right", no_wrap=True)
    for row in rows:
        made.add_row(
            row.policy,
            f"{row.jobs:,}",
            f"{row.nodes:,}",
            f"{row.seconds:,.1f}",
            f"{row.jobs / row.seconds:,.0f}",
            f"{row.present:,}",
            f"{row.before_mib:,.0f}",
            f"{row.peak_mib - row.before_mib:,.0f}",
            f"{row.log_mib:,.0f}",
        )
    console.print()
    console.print(made)


def draw(by_jobs: Sequence[Figures], by_nodes: Sequence[Figures]) -> None:
    """CPU time and memory over jobs and over nodes, a line for each policy."""
    from dfrs.report.curves import plt  # noqa: PLC0415 - children draw nothing

    figure, axes = plt.subplots(2, 2, figsize=(9, 6), layout="constrained")
    for column, (rows, of) in enumerate(((by_jobs, "jobs"), (by_nodes, "nodes"))):
        for policy in POLICIES:
            own = [row for row in rows if row.policy == policy]
            at = [getattr(row, of) for row in own]
            axes[0, column].plot(at, [row.seconds for row in own], marker="o", label=policy)
            axes[1, column].plot(at, [row.peak_mib for row in own], marker="o", label=policy)
        for row, what in enumerate(("CPU time (s)", "peak memory (MiB)")):
            axes[row, column].set(xscale="log", yscale="log", xlabel=of, ylabel=what)
    axes[0, 0].legend(fontsize=7)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=120)
    console.print(f"\n{PICTURE}")


def main() -> None:
    """The large runs, then growth."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.scale")
    options.add_argument("--jobs", type=int, default=1_000_000)
    options.add_argument("--nodes", type=int, default=5_000)
    options.add_argument("--blue", type=int, default=BLUE_JOBS)
    options.add_argument("--child", nargs=4)
    given = options.parse_args()
    if given.child:
        child(*given.child)
        return
    if BLUE.exists():
        show(
            "SDSC-BLUE",
            [in_a_process("blue", given.blue, BLUE_NODES, policy) for policy in POLICIES],
        )
    else:
        console.print(f"\n{BLUE} is not there: nothing on SDSC-BLUE. Set DFRS_TRACES.")
    parts = [
        [in_a_process("lublin", jobs, given.nodes, policy) for policy in POLICIES]
        for jobs in (given.jobs // 100, given.jobs // 10, given.jobs // 3, given.jobs)
    ]
    by_jobs = [row for part in parts for row in part]
    show("Lublin model, growth with jobs", by_jobs)
    smaller = [
        in_a_process("lublin", given.jobs // 10, nodes, policy)
        for nodes in (given.nodes // 10, given.nodes // 3)
        for policy in POLICIES
    ]
    by_nodes = [*smaller, *parts[1]]
    show("Lublin model, growth with nodes", by_nodes)
    draw(by_jobs, by_nodes)


if __name__ == "__main__":
    main()
