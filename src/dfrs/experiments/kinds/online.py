"""Cells of on-line policies: a workload under a policy (000 sections 5.3 and 5.4, chapter 6; 002 section V).

Workloads are named, not stored: each process makes or reads its own.
"""

import time
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path

import polars as pl

from dfrs.experiments.cells import Kind, Row, Schema
from dfrs.experiments.files import check_digest
from dfrs.experiments.simulations import measured
from dfrs.model.jobs import Workload
from dfrs.model.run import Penalty
from dfrs.policies.names import find_policy
from dfrs.simulator.clock import Order
from dfrs.simulator.simulation import Settings, Simulation
from dfrs.workloads import elastic_model
from dfrs.workloads.annotate import to_workload
from dfrs.workloads.load import load_workload
from dfrs.workloads.lublin import Lublin, generate
from dfrs.workloads.transform import scale_to_load, slice_jobs, week

NODE_GB = 8.0
"""Memory of a node, for bandwidths (000 section 6.1)."""
GB = 1e9

_FIGURES = ("max", "mean", "p50", "p90", "p95", "p99")
METRICS = (
    "jobs_finished",
    "jobs_refused",
    "makespan_s",
    "span_s",
    *(f"{kind}_{figure}" for kind in ("stretch", "bounded_stretch") for figure in _FIGURES),
    *(f"{kind}_{figure}_s" for kind in ("wait", "flow") for figure in _FIGURES),
    "run_mean_s",
    "slowdown_of_means",
    "stretch_bound",
    "degradation_from_bound",
    "bounded_stretch_bound",
    "bounded_degradation_from_bound",
    "cpu_utilisation",
    "useful_cpu_utilisation",
    "memory_utilisation",
    "minimum_yield_mean",
    "median_yield_mean",
    "jain_index_mean",
    "jain_index_present_mean",
    "pauses_per_job",
    "pauses_per_hour",
    "migrations_per_job",
    "migrations_per_hour",
    "pause_gb_per_s",
    "pause_and_resume_gb_per_s",
    "migration_gb_per_s",
    "migration_of_whole_jobs_gb_per_s",
    "dedicated_jobs",
    "dedicated_on_time",
    "dedicated_delay_mean_s",
    "dedicated_delay_max_s",
    "commands",
    "commands_granted",
    "commands_refused",
)
"""Of `dfrs.runs.metrics.schedule.summarize`."""

SCHEMA: Schema = {
    "trace": pl.String,
    "number": pl.Int64,
    "nodes": pl.Int64,
    "target_load": pl.Float64,
    "load": pl.Float64,
    "jobs": pl.Int64,
    **dict.fromkeys(("ps", "pd", "pe", "pr"), pl.Float64),
    "policy": pl.String,
    "penalty_s": pl.Float64,
    "bandwidth_gb_s": pl.Float64,
    "node_memory_gb": pl.Float64,
    "order": pl.String,
    "command_limit": pl.Int64,
    **dict.fromkeys(METRICS, pl.Float64),
    "runtime_s": pl.Float64,
}
"""`number` is the trace's seed, or its week. `target_load` is null for traces as they come; `ps`, `pd`, `pe` and `pr`,
probabilities of the elastic workload model, are null for others. Metrics are null where the run failed. `runtime_s` is
the time of the simulation alone."""

_CODE = (
    "placement", "bounds", "engine", "kernels", "runs/metrics/elastic.py", "runs/metrics/farm.py",
    "runs/metrics/moves.py", "runs/metrics/schedule.py", "model", "policies", "simulator", "workloads",
    "experiments/files.py", "experiments/kinds/online.py", "experiments/simulations.py",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LublinTrace:
    """Trace `seed` of the Lublin model, as it comes or scaled to an offered load (000 section 5.3.2).

    `seed` is that of both the model (its own generator, so the reference traces bit for bit) and the annotation.
    """

    seed: int
    load: float | None = None
    jobs: int = 1_000
    nodes: int = 128
    annotate: str = "dfrs"
    estimates: str = "perfect"

    @property
    def name(self) -> str:
        """Says all of it."""
        return f"lublin-{self.seed} jobs={self.jobs} nodes={self.nodes} {_treated(self)}"

    def workload(self) -> Workload:
        """Generate it."""
        trace = generate(Lublin.of(jobs=self.jobs, nodes=self.nodes), seed=self.seed)
        workload, _ = to_workload(trace, annotate=self.annotate, estimates=self.estimates, seed=self.seed)
        return workload if self.load is None else scale_to_load(workload, self.load)

    def columns(self) -> Row:
        """What names it in the results."""
        return {"trace": "lublin", "number": self.seed, "nodes": self.nodes, "target_load": self.load}


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePart:
    """A trace file, or a week or some jobs of it, as it comes or scaled to an offered load.

    `digest` is that of the file, which may move but not change. `nodes` None is what its header says. `week` counts
    from 1, `first` and `end` from 0.
    """

    path: Path = field(compare=False)
    digest: str
    nodes: int | None = None
    annotate: str = "dfrs"
    estimates: str = "perfect"
    seed: int = 0
    week: int | None = None
    first: int | None = None
    end: int | None = None
    load: float | None = None

    @property
    def name(self) -> str:
        """Says all of it."""
        part = f" week={self.week}" if self.week is not None else ""
        part += f" jobs={self.first}:{self.end}" if self.first is not None else ""
        nodes = "" if self.nodes is None else f" nodes={self.nodes}"
        return f"{stem(self.path)}{part}{nodes} {_treated(self)} seed={self.seed} sha256={self.digest[:12]}"

    def workload(self) -> Workload:
        """Read it. Raises InputError where the file is gone or another, or has no such part."""
        check_digest(self.path, self.digest)
        workload = _whole(self.path, self.nodes, self.annotate, self.estimates, self.seed)
        if self.week is not None:
            workload = week(workload, self.week)
        if self.first is not None and self.end is not None:
            workload = slice_jobs(workload, self.first, self.end)
        return workload if self.load is None else scale_to_load(workload, self.load)

    def columns(self) -> Row:
        """What names it in the results."""
        number = self.seed if self.week is None else self.week
        return {"trace": stem(self.path), "number": number, "target_load": self.load}


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticTrace:
    """Trace `seed` of the elastic workload model, at an offered load or with its usual arrivals (002 section IV-D).

    The parameters are those of `ElasticModel`. Estimates are the run times.
    """

    seed: int
    jobs: int = 500
    procs: int = 320
    unit: int = 32
    ps: float = 0.5
    load: float | None = None
    pd: float = 0.0
    pe: float = 0.0
    pr: float = 0.0
    pep: float = 0.0
    prp: float = 0.0
    start_mean_s: float = 3_600.0
    amount_mean_s: float = 1_800.0
    annotate: str = "unit:32"

    @property
    def name(self) -> str:
        """Says all of it."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in {"seed", "annotate"}}
        told = " ".join(f"{name}={value:.12g}" for name, value in own.items() if value is not None)
        return f"cwf-{self.seed} {told} annotate={self.annotate}"

    def elastic_model(self) -> elastic_model.ElasticModel:
        """Raises InputError for parameters that it does not have."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in {"seed", "annotate"}}
        return elastic_model.ElasticModel(**own)

    def workload(self) -> Workload:
        """Generate it. Raises InputError where the load cannot be reached."""
        trace = elastic_model.generate(self.elastic_model(), seed=self.seed)
        workload, _ = to_workload(trace, annotate=self.annotate, seed=self.seed)
        return workload

    def columns(self) -> Row:
        """What names it in the results."""
        return {
            "trace": "cwf", "number": self.seed, "jobs": self.jobs, "target_load": self.load,
            "ps": self.ps, "pd": self.pd, "pe": self.pe, "pr": self.pr,
        }  # fmt: skip


def _treated(case: LublinTrace | TracePart) -> str:
    load = "" if case.load is None else f"load={case.load:.12g} "
    return f"{load}annotate={case.annotate} estimates={case.estimates}"


def stem(path: Path) -> str:
    """What results call a trace file."""
    return path.name.removesuffix(".gz").removesuffix(".swf").removesuffix(".cwf")


Case = LublinTrace | TracePart | ElasticTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A policy with its settings, under the label that tables give it."""

    label: str
    policy: str
    penalty_s: float = 300.0
    bandwidth_gb_s: float | None = None
    node_memory_gb: float = NODE_GB
    order: Order = "completions-first"
    command_limit: int | None = None
    """Of users' commands on one job at most so many are granted."""

    @property
    def name(self) -> str:
        """Policy and settings."""
        copied = "" if self.bandwidth_gb_s is None else f" bandwidth_gb_s={self.bandwidth_gb_s:.12g}"
        memory = f"node_memory_gb={self.node_memory_gb:.12g}"
        limit = "" if self.command_limit is None else f" command_limit={self.command_limit}"
        return f"{self.policy} | penalty_s={self.penalty_s:.12g}{copied} {memory} {self.order}{limit}"

    @property
    def settings(self) -> Settings:
        """Of the simulation."""
        rate = None if self.bandwidth_gb_s is None else self.bandwidth_gb_s * GB
        penalty = Penalty(seconds=self.penalty_s, bytes_per_s=rate, node_bytes=self.node_memory_gb * GB)
        return Settings(penalty=penalty, order=self.order, command_limit=self.command_limit)

    def columns(self) -> Row:
        """What names it in the results."""
        return {
            "policy": self.policy, "penalty_s": self.penalty_s, "bandwidth_gb_s": self.bandwidth_gb_s,
            "node_memory_gb": self.node_memory_gb, "order": self.order, "command_limit": self.command_limit,
        }  # fmt: skip


def run(workload: Workload, entry: Entry, seed: int, keep: Path | None) -> Row:
    """Simulate, and measure. Raises what the policy raises, StoppedError among it."""
    del seed  # policies are functions of their snapshots: nothing here is left to chance
    simulation = Simulation(workload, find_policy(entry.policy), entry.policy, entry.settings)
    started = time.perf_counter()
    result = simulation.run()
    seconds = time.perf_counter() - started
    metrics = measured(result, bound=True)
    if keep is not None:
        from dfrs.experiments.kept import keep_run  # noqa: PLC0415 - most runs are not kept, and need no pictures

        keep_run(result, metrics, keep)
    row: Row = {"status": "complete", "nodes": workload.nodes, "load": workload.load, "jobs": len(workload)}
    return row | {name: metrics[name] for name in METRICS if name in metrics} | {"runtime_s": seconds}


@lru_cache(maxsize=2)
def prepare(case: Case) -> Workload:
    """The case's workload."""
    return case.workload()


@lru_cache(maxsize=2)
def _whole(path: Path, nodes: int | None, annotate: str, estimates: str, seed: int) -> Workload:
    workload, _ = load_workload(path, nodes=nodes, annotate=annotate, estimates=estimates, seed=seed)
    return workload


def warm(entry: Entry) -> None:
    """Run the entry on a few jobs."""
    run(prepare(LublinTrace(seed=1, jobs=20)), entry, 0, None)


ONLINE = Kind(name="online", schema=SCHEMA, code=_CODE, prepare=prepare, run=run, warm=warm)
