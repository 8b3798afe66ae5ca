"""Studies of on-line policies: every policy on every workload (000 sections 5.3 and 5.4, chapter 6).

One row is one cell: a workload, a policy, its settings and a seed. Workloads are named, not stored: each process makes
or reads its own.
"""

import hashlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from pathlib import Path

import polars as pl

import dfrs
from dfrs.campaigns.runner import Part, Row, Schema, study_key
from dfrs.campaigns.simulations import measured
from dfrs.model.jobs import Workload
from dfrs.model.run import Penalty
from dfrs.policies.registry import find_policy
from dfrs.sim.run import Settings, Simulation, StoppedError
from dfrs.workloads.annotate import to_workload
from dfrs.workloads.load import load_workload
from dfrs.workloads.lublin import Lublin, generate
from dfrs.workloads.transform import scale_to_load, week

LUBLIN_JOBS = 1_000
HPC2N_FILE = "HPC2N-2002-2.2-cln.swf.gz"
HPC2N_NODES = 120
NODE_BYTES = 8e9
"""Memory of a node, for bandwidths (000 section 6.1)."""

_METRICS = (
    "stretch_max", "stretch_mean", "bounded_stretch_max", "bounded_stretch_mean", "pauses_per_job", "pauses_per_hour",
    "migrations_per_job", "migrations_per_hour", "pause_gb_per_s", "pause_and_resume_gb_per_s", "migration_gb_per_s",
    "migration_of_whole_jobs_gb_per_s",
)  # fmt: skip

SCHEMA: Schema = {
    "trace": pl.String, "number": pl.Int64, "target_load": pl.Float64, "load": pl.Float64, "jobs": pl.Int64,
    "algorithm": pl.String, "policy": pl.String, "penalty_s": pl.Float64,
    "status": pl.String, "stretch_bound": pl.Float64, "degradation": pl.Float64, "bounded_degradation": pl.Float64,
    **dict.fromkeys(_METRICS, pl.Float64), "runtime_s": pl.Float64,
}  # fmt: skip
"""`target_load` is null for traces as they come. `degradation` is the maximum stretch over `stretch_bound`,
`bounded_degradation` the maximum bounded stretch over its own bound. Metrics are those of
`dfrs.metrics.schedule.summarize`; null where the policy ended the run (`status` says why). `runtime_s` is the time of
the simulation alone."""

_CODE = (
    "allocate/packing.py", "bounds/stretch.py", "control", "kernels", "metrics/schedule.py", "model", "policies", "sim",
    "workloads", "campaigns/online.py", "campaigns/runner.py", "campaigns/simulations.py",
)  # fmt: skip
_TOGETHER = 8
"""Entries that one part runs on a case: enough to spread few cases over processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LublinTrace:
    """Trace `number` of the Lublin model on 128 nodes, as it comes or scaled to an offered load (000 section 5.3.2).

    `number` is the seed of both the model (its own generator, so the reference traces bit for bit) and the annotation
    "dfrs".
    """

    number: int
    load: float | None = None
    jobs: int = LUBLIN_JOBS

    def workload(self) -> Workload:
        """Generate it."""
        trace = generate(Lublin.of(jobs=self.jobs), seed=self.number)
        workload, _ = to_workload(trace, annotate="dfrs", estimates="perfect", seed=self.number)
        return workload if self.load is None else scale_to_load(workload, self.load)

    def columns(self) -> Row:
        """What names it in the results."""
        return {"trace": "lublin", "number": self.number, "target_load": self.load}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hpc2nWeek:
    """Week `number`, from 1, of the HPC2N trace on 120 nodes (000 section 5.3.2). `digest` is that of its file."""

    number: int
    digest: str
    path: Path = field(repr=False)

    def workload(self) -> Workload:
        """Read it. Raises InputError where the file is gone or there is no such week."""
        return week(_hpc2n(self.path), self.number)

    def columns(self) -> Row:
        """What names it in the results."""
        return {"trace": "hpc2n", "number": self.number}


Case = LublinTrace | Hpc2nWeek


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A policy with its settings, under the label that the results give it."""

    label: str
    policy: str
    penalty_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Every entry on every case. `sample` says in a sentence which workloads these are."""

    name: str
    sample: str
    cases: tuple[Case, ...]
    entries: tuple[Entry, ...]
    timed: bool = False

    @property
    def runs(self) -> int:
        """How many rows it gives."""
        return len(self.cases) * len(self.entries)

    @property
    def schema(self) -> Schema:
        """The columns of a row."""
        return SCHEMA

    @property
    def key(self) -> str:
        """Changes with the workloads, the policies, their settings, and the code that is run."""
        return study_key((self.cases, self.entries, self.timed), _CODE)

    def warm(self) -> None:
        """Load or compile what the entries need, on a trace of a few jobs."""
        run_case(self.entries, LublinTrace(number=1, jobs=20))

    def parts(self) -> list[Part]:
        """A few entries on one workload, for each."""
        groups = [self.entries[k : k + _TOGETHER] for k in range(0, len(self.entries), _TOGETHER)]
        return [partial(run_case, group, case) for case in self.cases for group in groups]


def run_case(entries: tuple[Entry, ...], case: Case) -> list[Row]:
    """One row per entry."""
    workload = _prepared(case)
    shared = dict.fromkeys(SCHEMA) | case.columns()
    shared |= {"load": workload.load, "jobs": len(workload)}
    return [shared | _run(workload, entry) for entry in entries]


def _run(workload: Workload, entry: Entry) -> Row:
    named: Row = {"algorithm": entry.label, "policy": entry.policy, "penalty_s": entry.penalty_s}
    policy = find_policy(entry.policy)
    settings = Settings(penalty=Penalty(seconds=entry.penalty_s, node_bytes=NODE_BYTES))
    started = time.perf_counter()
    try:
        run = Simulation(workload, policy, entry.policy, settings).run()
    except StoppedError as error:
        return named | {"status": f"error: {error}", "runtime_s": time.perf_counter() - started}
    seconds = time.perf_counter() - started
    metrics = measured(run, bound=True)
    return named | {name: metrics[name] for name in _METRICS} | {
        "status": "complete",
        "stretch_bound": metrics["stretch_bound"],
        "degradation": metrics["degradation_from_bound"],
        "bounded_degradation": metrics["bounded_degradation_from_bound"],
        "runtime_s": seconds,
    }  # fmt: skip


@lru_cache(maxsize=2)
def _prepared(case: Case) -> Workload:
    return case.workload()


@cache
def _hpc2n(path: Path) -> Workload:
    workload, _ = load_workload(path, nodes=HPC2N_NODES, annotate="hpc2n", estimates="perfect")
    return workload


def hpc2n_weeks(numbers: Iterable[int]) -> tuple[Hpc2nWeek, ...]:
    """These weeks of the HPC2N trace; none where its file is not there.

    It is looked for in the directory DFRS_TRACES, else in shared/traces beside the checkout.
    """
    beside = Path(dfrs.__file__).parents[3] / "shared" / "traces"
    path = Path(os.environ.get("DFRS_TRACES", beside)) / HPC2N_FILE
    if not path.is_file():
        return ()
    digest = _file_digest(path)
    return tuple(Hpc2nWeek(number=number, digest=digest, path=path) for number in numbers)


@cache
def _file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
