"""60 jobs of real programs on four nodes of Slurm: decided by dfrs, in simulation, and by Slurm's own backfill.

Needs root, control groups of version 1 and Debian's Slurm; takes some eight minutes, where a second stands for a minute
of a cluster's; with `--speed 20`, where it stands for a third of that, 25. Programs compute, but for some that sleep;
needs are parts of a node, and memory is what jobs wait for. The simulation has the jobs that `dfrs export` tells, as
they came and as their work was measured. First a program on each node says what a node gives to one that is alone.

Two CPUs are four nodes: two share each, and a cap leaves a node `CORES` of it. Slurm counts whole CPUs, so dfrs takes
each node for a whole one. Where that is not reached, dfrs grants all needs, and Linux shares what there is in their
proportion, as the policy would; the simulation has nodes of `CORES`. Slurm's backfill gives a whole node to each job,
as it has no parts of a CPU.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import polars as pl
from tests.slurm_cluster import Node, SlurmCluster, why_not
from tests.slurm_site import CONF, Site, until

from benchmarks.common import console, machine
from benchmarks.online import table
from dfrs.model.instance import Floats
from dfrs.runs.directory import slug
from dfrs.workloads.live_log import read_live_log

NODES, CORES, MEMORY_MB = 4, 0.4, 1000
JOBS, LOAD = 60, 0.9
SPEED = 60.0
"""So many seconds of a cluster's are one here."""
SHORTEST_S, MEDIAN_S, LONGEST_S, SPREAD = 300.0, 600.0, 2400.0, 0.7
"""Of the time that a job takes alone, log-normal."""
KINDS = {"whole node": (1.0, 0.4), "half": (0.5, 0.2), "quarter": (0.25, 0.2), "sleeper": (0.02, 0.2)}
"""What a job says that it needs, as part of a node, and how many are such."""
SMALL, SMALLEST, LARGEST = 0.4, 0.3, 0.8
"""Part of the jobs that have a tenth of a node's memory; others have so much of it."""
LEAST_S = 10.0
"""Of a bounded stretch."""
PERIOD_S, LIMIT_S = 600.0, 7200.0
"""Of the policy, and the time limit of all jobs."""
QUICK = "SchedulerParameters=batch_sched_delay=0\n"
"""What is released starts at once: else it may wait for three seconds."""
BACKFILL = "SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1\n"
"""As quick as Slurm can be told to be; limits are whole minutes."""
GOAL = 0.05
PATIENCE_S = 420.0
PACED = Path(__file__).with_name("paced.py")
DFRS = (sys.executable, "-m", "dfrs.cli.main")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is submitted."""

    kind: str
    at_s: float
    cores: float
    alone_s: float
    """So long its program takes where it gets all that it needs."""
    memory_mb: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What became of it."""

    submitted: float
    began: float
    ended: float
    used_s: float

    def received(self, job: Job) -> float:
        """Its mean yield, from its program's begin to its end."""
        return job.alone_s / (self.ended - self.began)

    def stretch(self, job: Job, least_s: float) -> float:
        """Bounded."""
        return max(self.ended - self.submitted, least_s) / max(job.alone_s, least_s)


ALONE = [
    Job(kind="whole node", at_s=0.0, cores=CORES, alone_s=12.0, memory_mb=int(0.6 * MEMORY_MB)) for _ in range(NODES)
]
"""One for each node; before they have ended, all that dfrs needs is compiled."""


def policy(speed: float) -> str:
    """Its name, in seconds here."""
    return f"GreedyPM*/per={PERIOD_S / speed:g}/OPT=MIN/MVT={PERIOD_S / speed:g}"


def workload(jobs: int, seed: int, speed: float) -> list[Job]:
    """The jobs, in the order in which they come; times are seconds here."""
    rng = np.random.default_rng(seed)
    kinds = rng.choice(list(KINDS), jobs, p=[part for _, part in KINDS.values()]).tolist()
    alone_s = np.clip(np.exp(rng.normal(np.log(MEDIAN_S), SPREAD, jobs)), SHORTEST_S, LONGEST_S) / speed
    memory = np.where(rng.random(jobs) < SMALL, 0.1, rng.uniform(SMALLEST, LARGEST, jobs))
    cores = np.array([KINDS[kind][0] * CORES for kind in kinds])
    at_s = np.cumsum(rng.exponential(1.0, jobs))
    at_s = (at_s - at_s[0]) / at_s[-1] * float((cores * alone_s).sum()) / (NODES * CORES) / LOAD
    return [
        Job(
            kind=kinds[k],
            at_s=float(at_s[k]),
            cores=float(cores[k]),
            alone_s=float(alone_s[k]),
            memory_mb=int(memory[k] * MEMORY_MB),
        )
        for k in range(jobs)
    ]


def submit(slurm: SlurmCluster, jobs: Sequence[Job], speed: float) -> dict[int, float]:
    """When each was submitted, by Slurm's number, in order."""
    begin, found = time.time() + 1.0, dict[int, float]()
    for job in jobs:
        time.sleep(max(0.0, begin + job.at_s - time.time()))
        came = time.time()
        paced = 0.0 if job.kind == "sleeper" else job.cores
        program = f"exec {sys.executable} -I -S {PACED} {job.alone_s:.3f} {paced:g} {said(slurm)}"
        limit = f"--time={LIMIT_S / speed / 60:.0f}"
        needs = ("--comment", f"dfrs: cpu={job.cores:g}", f"--mem={job.memory_mb}", limit)
        found[slurm.sbatch("--chdir=/", *needs, wrap=program)] = came
    return found


def said(slurm: SlurmCluster) -> Path:
    """The file in which programs say when they ran."""
    return slurm.folder / "told"


def await_all(slurm: SlurmCluster, submitted: Mapping[int, float], speed: float) -> list[Ran]:
    """What became of the jobs, in the order in which they came."""
    patience_s = PATIENCE_S * SPEED / speed
    until(lambda: set(submitted) <= {int(words[0]) for words in _lines(slurm)}, "all have ended", patience_s)
    by_number = {int(words[0]): tuple(map(float, words[1:])) for words in _lines(slurm)}
    return [
        Ran(submitted=came, began=by_number[number][0], ended=by_number[number][1], used_s=by_number[number][2])
        for number, came in submitted.items()
    ]


def _lines(slurm: SlurmCluster) -> list[list[str]]:
    return [line.split() for line in said(slurm).read_text().splitlines()] if said(slurm).exists() else []


def cluster(conf: str) -> SlurmCluster:
    """Four nodes."""
    nodes = {f"n{k}": Node(memory_mb=MEMORY_MB, cores=CORES) for k in range(1, NODES + 1)}
    return SlurmCluster(nodes, conf=conf, accounting=False)


def decided(jobs: Sequence[Job], folder: Path, speed: float) -> list[Ran]:
    """By dfrs; its log is in `folder/live`."""
    options = ("--policy", policy(speed), "--report-every", "1")
    with cluster(QUICK + CONF) as slurm, Site(slurm, folder / "state", *options) as site:
        alone = await_all(slurm, submit(slurm, ALONE, speed), speed)
        until(lambda: not site.get("/jobs"), "dfrs knows that the first have ended", PATIENCE_S)
        ran = await_all(slurm, submit(slurm, jobs, speed), speed)
        until(lambda: not site.get("/jobs"), "dfrs knows that all have ended", PATIENCE_S)
        environment = {**os.environ, "DFRS_STATE": str(site.path)}
        subprocess.run([*DFRS, "export", "-o", str(folder / "live")], env=environment, check=True)
    given = [each.used_s / (each.ended - each.began) for each in alone]
    console.print(f"a node gives {', '.join(f'{cores:.3f}' for cores in given)} CPU to a program that is alone there")
    return ran


def backfilled(jobs: Sequence[Job], speed: float) -> list[Ran]:
    """By Slurm's own backfill."""
    with cluster(BACKFILL + CONF) as slurm:
        return await_all(slurm, submit(slurm, jobs, speed), speed)


def keep(path: Path, what: Sequence[Job] | Sequence[Ran]) -> None:
    """Write it down."""
    path.write_text(json.dumps([asdict(each) for each in what]))


def simulated(folder: Path, speed: float) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Of the export in `folder`, a row a job in the order in which they came: (live, simulated)."""
    nodes = folder / "nodes.csv"
    nodes.write_text("cpu,memory\n" + f"{CORES},1\n" * NODES)
    words = ["simulate", "--from-log", str(folder / "live"), "--node-file", str(nodes), "-p", policy(speed)]
    again = [*DFRS, *words, "--pauses", "keep", "--moves", "none", "-o", str(folder / "again")]
    subprocess.run(again, check=True, stdout=subprocess.DEVNULL)
    runs = [pl.read_csv(folder / name / "jobs.csv") for name in ("live", f"again/{slug(policy(speed))}")]
    live, model = (run.sort("job_id")[len(ALONE) :] for run in runs)
    return live, model


def measured(folder: Path) -> Floats:
    """The mean yield of each job that dfrs measured, in the order in which they came; NaN where it saw only its end."""
    jobs = read_live_log(folder / "live").jobs
    rows = [jobs[number] for number in sorted(jobs)][len(ALONE) :]
    return np.array([row["virtual_s"] / (row["ended_at"] - (row["started_at"] or np.nan)) for row in rows])


def swapped(first: Floats, second: Floats, apart_s: float) -> int:
    """Pairs of jobs that start in another order, where both times the starts are more than so many seconds apart."""
    d, e = (starts[:, None] - starts[None, :] for starts in (first, second))
    return int(((d > apart_s) & (e < -apart_s)).sum())


def tell_yields(jobs: Sequence[Job], live: Floats, told: Floats, model: Floats) -> None:
    """By kind."""
    made = table(
        *("mean yields", "kind", "jobs", "live", "by dfrs", "simulated", "mean off", "most off"), f"within {GOAL:.0%}"
    )
    off = np.abs(live / model - 1.0)
    kinds = np.array([job.kind for job in jobs])
    for kind in (*KINDS, "all"):
        of = np.flatnonzero((kinds == kind) | (kind == "all"))
        if len(of):
            made.add_row(
                *(kind, str(len(of)), *(f"{np.nanmean(each[of]):.3f}" for each in (live, told, model))),
                *(f"{off[of].mean():.1%}", f"{off[of].max():.1%}", str((off[of] <= GOAL).sum())),
            )
    console.print(made)


def tell_starts(live: pl.DataFrame, ran: Sequence[Ran], model: Floats) -> None:
    """Whether jobs start in the same order as in the simulation."""
    pairs = len(ran) * (len(ran) - 1) // 2
    for what, starts in (
        ("starts as dfrs decided them", live["starting_time"].to_numpy()),
        ("begins of programs", np.array([each.began for each in ran])),
    ):
        found = [swapped(starts, model, apart_s) for apart_s in (0.0, 1.0)]
        console.print(f"{what}: of {pairs} pairs {found[0]} in another order, {found[1]} by more than 1 s")


def main() -> None:
    """The benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=4, help="of the jobs")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--speed", type=float, default=SPEED, help="so many seconds of a cluster's are one here")
    parser.add_argument("--keep", type=Path, help="directory for the export, the simulation, and all that was measured")
    options = parser.parse_args()
    if reason := why_not(accounting=False):
        console.print(f"Jobs through Slurm are not measured: {reason}")
        return
    speed, least_s = options.speed, LEAST_S / options.speed
    jobs = workload(options.jobs, options.seed, speed)
    under = f"seed {options.seed}, {policy(speed)}"
    console.print(f"{machine()}: {len(jobs)} jobs on {NODES} nodes of {CORES:g} CPU, {under}")
    with tempfile.TemporaryDirectory(prefix="dfrs-slurm-jobs-") as name:
        folder = options.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        keep(folder / "jobs.json", jobs)
        ran = decided(jobs, folder, speed)
        keep(folder / "dfrs.json", ran)
        live, model = simulated(folder, speed)
        other = backfilled(jobs, speed)
        keep(folder / "backfill.json", other)
        told = measured(folder)
    waits = [np.array([each.began - each.submitted for each in of]) for of in (ran, other)]
    received = np.array([each.received(job) for each, job in zip(ran, jobs, strict=True)])
    tell_yields(jobs, received, told, (model["processing_time"] / model["execution_time"]).to_numpy())
    tell_starts(live, ran, model["starting_time"].to_numpy())
    console.print(f"from sbatch to a program's begin: least {waits[0].min():.2f} s, {waits[1].min():.2f} s by backfill")
    flow_s = np.maximum(model["turnaround_time"].to_numpy(), least_s)
    alone_s = np.maximum([job.alone_s for job in jobs], least_s)
    made = table("bounded stretch", "", "maximum", "mean", "median", "mean wait s")
    for what, found, wait_s in (
        ("dfrs", _stretches(ran, jobs, least_s), waits[0]),
        ("dfrs, simulated", flow_s / alone_s, model["waiting_time"].to_numpy()),
        ("Slurm's backfill", _stretches(other, jobs, least_s), waits[1]),
    ):
        made.add_row(
            what, f"{found.max():.2f}", f"{found.mean():.2f}", f"{np.median(found):.2f}", f"{wait_s.mean():.1f}"
        )
    console.print(made)


def _stretches(ran: Sequence[Ran], jobs: Sequence[Job], least_s: float) -> Floats:
    return np.array([each.stretch(job, least_s) for each, job in zip(ran, jobs, strict=True)])


if __name__ == "__main__":
    main()
