"""Runs of on-line policies: a workload under a policy ([Stillwell2010] 5.3 and 5.4, chapter 6; [Kumar2011] V).

A study in a campaign file has `workloads` and `policies`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import polars as pl
from pydantic import AfterValidator, BeforeValidator, Field

from dfrs.experiments.experiment import Experiment, StudyModel, combined, unusual
from dfrs.experiments.fields import Limit, Positive, Seconds, Several, Strict, known_policy, named
from dfrs.experiments.planned_runs import PolicyConfiguration, Row, RunKind, Schema
from dfrs.experiments.simulations import measured
from dfrs.experiments.sources.traces import LublinTrace, Trace, Workloads
from dfrs.kernels.compiling import compilation
from dfrs.model.errors import InputError
from dfrs.model.jobs import Workload
from dfrs.model.run import Penalty, Run
from dfrs.policies.names import SETS, find_policy
from dfrs.runs.metrics.schedule import TAU_S, Metrics, summarize
from dfrs.runs.metrics.shares import SHARES
from dfrs.runs.metrics.window import Trim
from dfrs.simulator.clock import Order
from dfrs.simulator.limits import ANYWHERE, FREE, Pauses, node_limits
from dfrs.simulator.simulation import Simulation, SimulationSettings

NODE_GB = 8.0
"""Memory of a node, for bandwidths ([Stillwell2010] section 6.1)."""
GB = 1e9
UNTRIMMED = "0"

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
    "users",
    "user_bounded_stretch_max",
    "user_bounded_stretch_mean",
    "user_bounded_stretch_jain_index",
    "user_bounded_stretch_gini",
    *SHARES,
    "pauses_per_job",
    "pauses_per_hour",
    "migrations_per_job",
    "migrations_per_hour",
    "pauses_as_published_per_job",
    "pauses_as_published_per_hour",
    "migrations_as_published_per_job",
    "migrations_as_published_per_hour",
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
"""Of `dfrs.runs.metrics.schedule.summarize`, those that are columns of results."""
NOT_IN_CAMPAIGNS = frozenset(
    {
        "jobs_unfinished",
        "jobs_running_at_end",
        "jobs_paused_at_end",
        "tau_s",
        "pauses",
        "migrations",
        "pauses_as_published",
        "migrations_as_published",
        "pause_gb",
        "pause_and_resume_gb",
        "migration_gb",
        "migration_of_whole_jobs_gb",
    }
)
"""The others. In a campaign all runs are complete, and tau is the same; totals depend on how long a trace is, and are
there per job, hour or second."""

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
    "pauses": pl.String,
    "moves": pl.String,
    "trim": pl.String,
    **dict.fromkeys(METRICS, pl.Float64),
    "runtime_s": pl.Float64,
}
"""`number` is the trace's seed, or its week. `target_load` is null for traces as they come; `ps`, `pd`, `pe` and `pr`,
probabilities of the elastic workload model, are null for others. Metrics are null where the run failed. `runtime_s` is
the time of the simulation alone."""

_CODE = (
    "placement",
    "bounds",
    "engine",
    "kernels",
    "runs/metrics/elastic.py",
    "runs/metrics/intervals.py",
    "runs/metrics/moves.py",
    "runs/metrics/schedule.py",
    "runs/metrics/shares.py",
    "runs/metrics/speeds.py",
    "runs/metrics/users.py",
    "runs/metrics/window.py",
    "model",
    "policies",
    "simulator",
    "workloads",
    "experiments/checkpoint.py",
    "experiments/files.py",
    "experiments/kinds/online.py",
    "experiments/simulations.py",
    "experiments/sources/traces.py",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineConfiguration(PolicyConfiguration):
    """A policy with its settings, under the label that tables give it."""

    label: str
    penalty_s: float = 300.0
    bandwidth_gb_s: float | None = None
    node_memory_gb: float = NODE_GB
    order: Order = "completions-first"
    command_limit: int | None = None
    """Of users' commands on one job at most so many are granted."""
    pauses: Pauses = FREE
    """Whether pauses free memory."""
    moves: str = ANYWHERE
    """Where jobs that have started may go."""
    trim: str = UNTRIMMED
    """What the metrics leave out as warm-up and cool-down."""

    @property
    def name(self) -> str:
        """Policy, settings, and the code of a policy that is not built in."""
        copied = "" if self.bandwidth_gb_s is None else f" bandwidth_gb_s={self.bandwidth_gb_s:.12g}"
        memory = f"node_memory_gb={self.node_memory_gb:.12g}"
        limit = "" if self.command_limit is None else f" command_limit={self.command_limit}"
        limits = "" if self.pauses == FREE else f" pauses={self.pauses}"
        limits += "" if self.moves == ANYWHERE else f" moves={self.moves}"
        limits += "" if self.trim == UNTRIMMED else f" trim={self.trim}"
        settings = f"penalty_s={self.penalty_s:.12g}{copied} {memory} {self.order}{limit}{limits}"
        return f"{self.policy} | {settings}{self.code_in_name}"

    @property
    def settings(self) -> SimulationSettings:
        """Of the simulation."""
        rate = None if self.bandwidth_gb_s is None else self.bandwidth_gb_s * GB
        penalty = Penalty(seconds=self.penalty_s, bytes_per_s=rate, node_bytes=self.node_memory_gb * GB)
        return SimulationSettings(
            penalty=penalty,
            order=self.order,
            command_limit=self.command_limit,
            pauses=self.pauses,
            moves=self.moves,
        )

    def columns(self) -> Row:
        """What names it in the results."""
        return {
            "policy": self.policy,
            "penalty_s": self.penalty_s,
            "bandwidth_gb_s": self.bandwidth_gb_s,
            "node_memory_gb": self.node_memory_gb,
            "order": self.order,
            "command_limit": self.command_limit,
            "pauses": self.pauses,
            "moves": self.moves,
            "trim": self.trim,
        }


def run(workload: Workload, configuration: OnlineConfiguration, seed: int, save_in: Path | None) -> Row:
    """Simulate and measure. Raises what the policy raises, PolicyStoppedError among it."""
    del seed  # policies are functions of their snapshots: nothing here is left to chance
    simulation = Simulation(workload, find_policy(configuration.policy), configuration.policy, configuration.settings)
    started_s = compilation.clock_s()
    result = simulation.run()
    seconds = compilation.clock_s() - started_s
    metrics = _metrics(result, configuration.trim)
    if save_in is not None:
        from dfrs.experiments.saved_runs import save_run  # noqa: PLC0415 - most runs are not saved, and need no pictures

        # A run directory states the metrics of its whole log.
        save_run(result, metrics if configuration.trim == UNTRIMMED else _metrics(result, UNTRIMMED), save_in)
    row: Row = {"status": "complete", "nodes": workload.nodes, "load": workload.load, "jobs": len(workload)}
    return row | {name: metrics[name] for name in METRICS if name in metrics} | {"runtime_s": seconds}


def _metrics(result: Run, trim: str) -> Metrics:
    return measured(result, bound=True) if trim == UNTRIMMED else summarize(result, tau_s=TAU_S, trim=Trim.parse(trim))


@lru_cache(maxsize=2)
def prepare(scenario: Trace) -> Workload:
    """The scenario's workload."""
    return scenario.workload()


def warm(configuration: OnlineConfiguration) -> None:
    """Run the configuration on a few jobs."""
    run(prepare(LublinTrace(seed=1, jobs=20)), configuration, 0, None)


ONLINE = RunKind(name="online", schema=SCHEMA, code=_CODE, prepare=prepare, run=run, warm=warm)


def _moves(moves: str) -> str:
    node_limits(FREE, moves, 1)
    return moves


Moves = Annotated[str, AfterValidator(_moves)]


def _trim(trim: str) -> str:
    try:
        Trim.parse(trim)
    except InputError as error:
        raise ValueError(str(error).partition(": ")[2]) from None
    return trim


TrimText = Annotated[str, AfterValidator(_trim)]


def _policy(name: str) -> str:
    if not name.startswith("@"):
        return known_policy(name)
    if name[1:] not in SETS:
        raise ValueError(f"there is no such set; there are @{', @'.join(SETS)}")
    return name


class PolicySettings(Strict):
    """What simulations are run with; each combination of several values."""

    penalty_s: Several[Seconds] = (300.0,)
    bandwidth_gb_s: Several[Positive] | None = None
    node_memory_gb: Several[Positive] = (NODE_GB,)
    order: Several[Order] = ("completions-first",)
    command_limit: Several[Limit] | None = None
    pauses: Several[Pauses] = (FREE,)
    moves: Several[Moves] = (ANYWHERE,)
    trim: Several[TrimText] = (UNTRIMMED,)


class OnlinePolicySpec(Strict):
    """A policy or a set of policies, with settings of its own."""

    policy: Annotated[str, AfterValidator(_policy)]
    label: str | None = None
    penalty_s: Seconds | None = None
    bandwidth_gb_s: Positive | None = None
    node_memory_gb: Positive | None = None
    order: Order | None = None
    command_limit: Limit | None = None
    pauses: Pauses | None = None
    moves: Moves | None = None
    trim: TrimText | None = None


class OnlineStudy(StudyModel):
    """Every workload under every policy."""

    workloads: Annotated[tuple[Workloads, ...], Field(min_length=1)]
    policies: Annotated[tuple[Annotated[OnlinePolicySpec, BeforeValidator(named("policy"))], ...], Field(min_length=1)]
    settings: PolicySettings = PolicySettings()


def _configurations(study: OnlineStudy) -> Iterator[OnlineConfiguration]:
    return (OnlineConfiguration(**table) for table in combined(_labelled(study.policies), study.settings))


def _labelled(given: Sequence[OnlinePolicySpec]) -> Iterator[dict[str, Any]]:
    """Each policy with its label and its own settings."""
    for table in given:
        names = SETS[table.policy[1:]] if table.policy.startswith("@") else (table.policy,)
        yield from ({"label": name} | table.model_dump(exclude_none=True) | {"policy": name} for name in names)


def _unusual_settings(configuration: OnlineConfiguration) -> dict[str, object]:
    return unusual(configuration, OnlineConfiguration(label=configuration.label, policy=configuration.policy))


EXPERIMENT = Experiment(
    kind=ONLINE,
    configuration=OnlineConfiguration,
    study=OnlineStudy,
    sources="workloads",
    configurations="policies",
    named_by="policy",
    build=_configurations,
    unusual_settings=_unusual_settings,
    metrics=("bounded_degradation_from_bound", "bounded_stretch_mean", "minimum_yield_mean", "pauses_per_job"),
    x_columns=("target_load", "ps"),
    preferred=True,
    cluster_by="number",
)
