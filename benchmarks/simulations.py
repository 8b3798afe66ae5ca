"""What whole simulations take, logs written: jobs a second of CPU and peak memory; and another state of the sources in
the same run.

`python -m benchmarks.simulations [--before PATH] [NAME...]` runs each policy of the table on the whole of HPC2N, and
the main policy on the reference Lublin traces, each in a new process after one that compiled. With a checkout at PATH
the two take turns, and what they write is compared. HPC2N is at $DFRS_TRACES (default: ../shared/traces).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import console, machine
from benchmarks.online import HPC2N, MAIN, table

TURNS = 3
LUBLIN_TRACES = 20
CHILD = """
import hashlib, json, sys, time
from pathlib import Path
import numpy as np
import dfrs
from dfrs.model.run import Penalty
from dfrs.runs.directory import write_run
from dfrs.workloads.annotate import to_workload
from dfrs.workloads.load import load_workload
from dfrs.workloads.lublin import Lublin, generate
policy, trace, seeds, first, out = json.loads(sys.argv[1])
if trace:
    workloads = [load_workload(Path(trace), nodes=120, annotate="hpc2n")[0]]
else:
    pairs = ((generate(Lublin(), seed=seed), seed) for seed in range(1, seeds + 1))
    workloads = [to_workload(made, nodes=128, annotate="dfrs", seed=seed)[0] for made, seed in pairs]
if first:
    workloads = [load.select(np.arange(first)) for load in workloads]
began_s, digest = time.process_time(), hashlib.sha256()
for load in workloads:
    write_run(dfrs.simulate(load, policy, penalty=Penalty(seconds=300.0)), Path(out), {}, "")
    digest.update(Path(out, "events.csv").read_bytes() + Path(out, "jobs.csv").read_bytes())
spent_s = time.process_time() - began_s
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if "HWM" in line)
print(json.dumps([spent_s, sum(map(len, workloads)), int(peak.split()[1]) / 1024, digest.hexdigest()]))
"""
GOALS = {"FCFS": "7", "EASY": "7", "CONSERVATIVE": "5", MAIN: "2.5"}
"""How many times as fast as at first each was to become."""


def simulate(root: Path, policy: str, *, first: int, out: Path) -> tuple[float, int, float, str]:
    """Seconds of CPU without reading, jobs, peak memory in MiB and a digest of what is written, by the tree at `root`.

    Only the `first` jobs of each trace, 0 for all.
    """
    trace = "" if policy == MAIN else str(HPC2N.resolve())
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps([policy, trace, LUBLIN_TRACES, first, str(out)])],
        env=os.environ | {"PYTHONPATH": str(root / "src")},
        check=True,
        capture_output=True,
        text=True,
    )
    return tuple(json.loads(done.stdout))


def main(arguments: Sequence[str] = ()) -> None:
    """The policies named, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulations")
    parser.add_argument("--before", type=Path, help="checkout of another state of the sources")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(GOALS)}; default: all")
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - GOALS.keys():
        parser.error(f"{', '.join(sorted(unknown))}: no such policy here")
    roots = [Path(__file__).parents[1], *([] if given.before is None else [given.before.resolve()])]
    columns = ["jobs", "CPU", "jobs/s", "peak", *(["CPU before", "ratio", "goal", "same"] if len(roots) > 1 else [])]
    made = table(f"Medians of {TURNS} simulations, logs written. {machine()}", "policy", *columns)
    with tempfile.TemporaryDirectory() as folder:
        for policy in given.names or GOALS:
            if policy != MAIN and not HPC2N.exists():
                console.print(f"{HPC2N} is not there: no {policy}. Set DFRS_TRACES.")
                continue
            made.add_row(policy, *_row(roots, policy, Path(folder)))
    console.print()
    console.print(made)


def _row(roots: Sequence[Path], policy: str, out: Path) -> list[str]:
    for root in roots:
        simulate(root, policy, first=500, out=out)
    turns = [[simulate(root, policy, first=0, out=out) for root in roots] for _ in range(TURNS)]
    spent_s, *before_s = (statistics.median(turn[k][0] for turn in turns) for k in range(len(roots)))
    _, jobs, peak, digest = turns[0][0]
    cells = [f"{jobs:,}", f"{spent_s:.2f} s", f"{jobs / spent_s:,.0f}", f"{peak:.0f} MiB"]
    for each_s in before_s:
        same = "yes" if turns[0][1][3] == digest else "NO"
        cells += [f"{each_s:.2f} s", f"{each_s / spent_s:.1f}", GOALS[policy], same]
    return cells


if __name__ == "__main__":
    main(sys.argv[1:])
