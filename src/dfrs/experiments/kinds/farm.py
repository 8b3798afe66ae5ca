"""The throughput experiments of 003 section 8: a stream of the appendix on its farm under a policy, as cells.

A stream says when jobs come and how long they take on sub-cluster A, which is also their users' estimate. How long they
take elsewhere is in `dfrs.farm.nas`. As a second's difference in one job's time gave other allocations there, each
seed but 0 has every time changed by some percent, estimates excepted.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import numpy as np
import polars as pl

from dfrs.experiments.cells import Kind, Row, Schema
from dfrs.experiments.kinds.farm_runs import ORDER, Prepared, measured, moves_of, placed, prepared, simulation
from dfrs.farm.streams import NasJob, split_name, stream
from dfrs.model.instance import Floats

JITTER = 0.01
"""Times are changed by up to this share, evenly."""
WITHOUT = {3: "C"}
"""Sub-clusters that an experiment does not have (003 section 8.3)."""

READ = {1: {6: "ft.B.4.20"}}
"""Jobs, by experiment and number, whose printed name cannot be theirs: job 6 of experiment 1 is printed as ft.A.4.750,
which by its iterations would take 1,105 s and not the 95 that are expected; Tables 11 and 12 are about an FT.B.4.20
which arrives about then, and which the stream does not have."""

SCHEMA: Schema = {
    "experiment": pl.Int64, "seed": pl.Int64, "jitter": pl.Float64, "order": pl.String, "printed": pl.Boolean,
    "exact": pl.Boolean,
    "policy": pl.String, "jobs": pl.Int64, "wait_s": pl.Float64, "turnaround_s": pl.Float64, "total_s": pl.Float64,
    "migrations": pl.Int64, "jobs_moved": pl.Int64, "tasks_moved": pl.Int64, "job_times": pl.String,
    "moves": pl.String,
}  # fmt: skip
"""`wait_s` and `turnaround_s` are averages, `total_s` is when the last job is done; `migrations` counts decisions, each
of which may move several jobs. `job_times` is a JSON object: number of the job from 1 to its start, its end and its
sub-clusters in turn; `moves` a JSON list of what was moved when, from where, to where, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A stream of the appendix, with the times of seed `seed`."""

    experiment: int
    seed: int
    jitter: float = JITTER
    order: str = ORDER
    """In which sub-clusters nodes are looked for."""
    printed: bool = False
    """Names as they are printed, see READ."""
    exact: bool = False
    """Predictions are true, and not as wrong as 003 measured them."""

    @property
    def name(self) -> str:
        """Says all of it."""
        told = f"arrive-f experiment={self.experiment} seed={self.seed} jitter={self.jitter:.12g}"
        return f"{told} order={self.order} printed={self.printed} exact={self.exact}"

    def columns(self) -> Row:
        """What names it in the results."""
        return {
            "experiment": self.experiment, "seed": self.seed, "jitter": self.jitter, "order": self.order,
            "printed": self.printed, "exact": self.exact,
        }  # fmt: skip


def factors(name: str, seed: int, jobs: int, jitter: float = JITTER) -> Floats:
    """(J,) by what each job's times are multiplied; 1 for seed 0."""
    if seed == 0:
        return np.ones(jobs)
    digest = sha256(f"arrive-f {name} {seed}".encode()).digest()
    return 1.0 + jitter * np.random.default_rng(int.from_bytes(digest[:6])).uniform(-1.0, 1.0, jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A policy."""

    label: str
    policy: str

    @property
    def name(self) -> str:
        """The policy's."""
        return self.policy

    def columns(self) -> Row:
        """What names it in the results."""
        return {"policy": self.policy}


def jobs_of(experiment: int, *, printed: bool = False) -> tuple[NasJob, ...]:
    """The stream of an experiment, names put right (READ) unless they shall be as `printed`. Raises InputError."""
    jobs = stream(experiment)
    if printed:
        return jobs
    found: list[NasJob] = []
    for job in jobs:
        name = READ.get(experiment, {}).get(job.job, job.name)
        benchmark, class_, processes, iterations = split_name(name)
        found.append(
            replace(job, name=name, benchmark=benchmark, class_=class_, processes=processes, iterations=iterations)
        )
    return tuple(found)


@lru_cache(maxsize=2)
def prepare(case: Case) -> Prepared:
    """The case's workload on its farm."""
    jobs, name = jobs_of(case.experiment, printed=case.printed), f"experiment-{case.experiment}"
    return prepared(
        jobs,
        name=name,
        without=WITHOUT.get(case.experiment, ""),
        order=case.order,
        factors=factors(name, case.seed, len(jobs), case.jitter),
        errors=not case.exact,
    )


def run(made: Prepared, entry: Entry, seed: int, keep: Path | None) -> Row:
    """Simulate it."""
    del seed, keep  # nothing is drawn in a run, and its moves and times are in the row
    done = simulation(made, entry.policy).run()
    moves = moves_of(done, made.farm)
    times = placed(done, made.farm)
    return {
        "status": "complete",
        "jobs": len(done.workload),
        **measured(done),
        "migrations": len({move.time_s for move in moves}),
        "jobs_moved": len({move.job for move in moves}),
        "tasks_moved": sum(move.tasks for move in moves),
        "job_times": json.dumps({str(job + 1): value for job, value in times.items()}),
        "moves": json.dumps([move.document() for move in moves]),
    }


def warm(entry: Entry) -> None:
    """Simulate the first jobs."""
    simulation(prepared(stream(1)[:20], name="warm"), entry.policy).run()


def times_of(row: Mapping[str, object]) -> dict[int, tuple[float, float, str]]:
    """From a row of results: number of the job from 1 to start, end, and sub-clusters in turn ("A", "A>B")."""
    document = json.loads(str(row["job_times"]))
    return {int(job): (value[0], value[1], value[2]) for job, value in document.items()}


FARM = Kind(
    name="farm",
    schema=SCHEMA,
    code=(
        "placement", "bounds", "engine", "farm", "kernels", "runs", "model", "policies", "simulator",
        "workloads",
        "experiments/kinds/farm.py", "experiments/kinds/farm_runs.py",
    ),
    prepare=prepare,
    run=run,
    warm=warm,
)  # fmt: skip
