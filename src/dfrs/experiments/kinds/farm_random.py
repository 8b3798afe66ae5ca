"""Runs of policies on a heterogeneous cluster with random workloads (after [Atif2011] section 8).

Workloads are named, not stored: each process makes its own (`dfrs.workloads.farm_random`). All policies run in the same
world; one that ignores sub-clusters may spread a job over several, where it is as slow as in the slowest. A study in a
campaign file has `farms` and `policies`.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import polars as pl
from pydantic import BeforeValidator, Field

import dfrs
from dfrs.experiments.experiment import Experiment, StudyModel, combined, unusual
from dfrs.experiments.fields import Count, Loads, Numbers, PolicyName, ProgramsName, Seconds, Several, Strict, named
from dfrs.experiments.planned_runs import SIMULATION, PolicyConfiguration, Row, RunKind, Schema
from dfrs.kernels.compiling import compilation
from dfrs.model.errors import InputError
from dfrs.model.run import PLACING, Penalty, Run
from dfrs.model.true_speeds import EqualSpeeds
from dfrs.policies.names import find_policy
from dfrs.runs.directory import write_run
from dfrs.runs.metrics.schedule import TAU_S, summarize
from dfrs.runs.validator.runs import validate_run
from dfrs.simulator.heterogeneous import HardwareSettings, hardware_capacity
from dfrs.simulator.simulation import Simulation, SimulationSettings
from dfrs.workloads.farm_random import FarmWorkload, farm_workload
from dfrs.workloads.programs import GROUP, USUAL, find_programs

RESUME_S = 40.0
"""Seconds without progress after a pause, what moving a job of four processes takes: ARRIVE-F never pauses."""

METRICS = (
    "stretch_max",
    "stretch_mean",
    "bounded_stretch_max",
    "bounded_stretch_mean",
    "wait_mean_s",
    "flow_mean_s",
    "makespan_s",
    "migrations_per_job",
    "pauses_per_job",
)
SCHEMA: Schema = {
    "seed": pl.Int64,
    "jobs": pl.Int64,
    "target_load": pl.Float64,
    "policy": pl.String,
    "resume_s": pl.Float64,
    **dict.fromkeys(METRICS, pl.Float64),
    "spanning": pl.Float64,
    "decisions": pl.Int64,
    "runtime_s": pl.Float64,
}
"""`spanning` is the share of the jobs that were ever in several sub-clusters at once; `decisions` counts the rows of
the log; `runtime_s` is the time of the simulation alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FarmRandomScenario:
    """Random workload `seed` of programs on their farm."""

    seed: int
    load: float
    jobs: int = 200
    programs: str = USUAL

    @property
    def name(self) -> str:
        """Says all of it."""
        other = "" if self.programs == USUAL else f" programs={self.programs}"
        return f"farm-random-{self.seed} jobs={self.jobs} load={self.load:.12g}{other}"

    def columns(self) -> Row:
        """What names it in the results."""
        return {"seed": self.seed, "jobs": self.jobs, "target_load": self.load}


@dataclass(frozen=True, slots=True, kw_only=True)
class FarmRandomConfiguration(PolicyConfiguration):
    """A policy."""

    label: str
    resume_s: float = RESUME_S

    @property
    def name(self) -> str:
        """Policy and setting."""
        return f"{self.policy} | resume_s={self.resume_s:.12g}{self.code_in_name}"

    def columns(self) -> Row:
        """What names it in the results."""
        return {"policy": self.policy, "resume_s": self.resume_s}


@lru_cache(maxsize=2)
def prepare(scenario: FarmRandomScenario) -> FarmWorkload:
    """The scenario's workload on its farm."""
    return farm_workload(find_programs(scenario.programs), seed=scenario.seed, jobs=scenario.jobs, load=scenario.load)


def simulation(made: FarmWorkload, configuration: FarmRandomConfiguration) -> Simulation:
    """Of the workload under the policy."""
    settings = SimulationSettings(
        capacity=hardware_capacity(made.farm),
        penalty=Penalty(seconds=configuration.resume_s),
        hardware=HardwareSettings(truth=made.truth, prediction=made.predicted),
    )
    return Simulation(made.workload, find_policy(configuration.policy), configuration.policy, settings)


def run(made: FarmWorkload, configuration: FarmRandomConfiguration, seed: int, save_in: Path | None) -> Row:
    """Simulate, have the run checked, and measure. Raises InputError where the checker objects."""
    del seed  # policies are functions of their snapshots: nothing here is left to chance
    started_s = compilation.clock_s()
    done = simulation(made, configuration).run()
    seconds = compilation.clock_s() - started_s
    metrics = summarize(done, tau_s=TAU_S)
    with tempfile.TemporaryDirectory(prefix="dfrs-farm-") as directory:
        write_run(done, Path(directory), metrics, dfrs.__version__)
        _check(Path(directory), configuration)
    if save_in is not None:
        from dfrs.experiments.saved_runs import save_run  # noqa: PLC0415 - most runs are not saved, and need no pictures

        save_run(done, metrics, save_in)
    row: Row = {"status": "complete", "jobs": len(done.workload), "spanning": spanning(done)}
    row |= {name: metrics[name] for name in METRICS if name in metrics}
    return row | {"decisions": len(done.events), "runtime_s": seconds}


def _check(directory: Path, configuration: FarmRandomConfiguration) -> None:
    problems = validate_run(directory).problems
    if problems:
        raise InputError(
            f"policy {configuration.policy}: the checker found {len(problems)} faults; the first: {problems[0]}"
        )


def spanning(done: Run) -> float:
    """Share of the jobs that were ever in several sub-clusters at once."""
    if isinstance(done.speeds, EqualSpeeds) or not len(done.workload):
        return 0.0
    events, cluster = done.events, done.speeds.partition
    rows = np.flatnonzero(np.isin(events.action, PLACING)).tolist()
    jobs = {int(events.job[row]) for row in rows if len(np.unique(cluster[events.nodes_of(row)])) > 1}
    return len(jobs) / len(done.workload)


def warm(configuration: FarmRandomConfiguration) -> None:
    """Simulate a few jobs."""
    simulation(prepare(FarmRandomScenario(seed=0, load=1.0, jobs=20)), configuration).run()


FARM_RANDOM = RunKind(
    name="hetero",
    schema=SCHEMA,
    code=(
        *SIMULATION,
        "experiments/kinds/farm_random.py",
        f"group:{GROUP}",
    ),
    prepare=prepare,
    run=run,
    warm=warm,
)


class FarmRandomSource(Strict):
    """Random workloads on a heterogeneous cluster: every seed at every load, or if `spread` each seed at one of them.

    With `spread` loads take turns, so that all workloads are of different jobs.
    """

    model: Literal["hetero"] = "hetero"
    name: str = "hetero"
    programs: Annotated[ProgramsName, Field(validate_default=True)] = USUAL
    jobs: Count = 200
    seeds: Numbers
    loads: Annotated[Loads, Field(min_length=1)] = (1.0,)
    spread: bool = False

    def scenarios(self) -> tuple[FarmRandomScenario, ...]:
        """In the order of the seeds."""
        loads = self.loads
        pairs = (
            [(seed, loads[k % len(loads)]) for k, seed in enumerate(self.seeds)]
            if self.spread
            else list(product(self.seeds, loads))
        )
        return tuple(
            FarmRandomScenario(seed=seed, load=load, jobs=self.jobs, programs=self.programs) for seed, load in pairs
        )


class FarmRandomSettings(Strict):
    """Of all policies of a study that do not have their own."""

    resume_s: Several[Seconds] = (RESUME_S,)


class FarmRandomPolicySpec(Strict):
    """A policy."""

    policy: PolicyName
    label: str | None = None
    resume_s: Seconds | None = None

    def labelled(self) -> dict[str, Any]:
        """What it says, with a label."""
        return {"label": self.policy} | self.model_dump(exclude_none=True)


class FarmRandomStudy(StudyModel):
    """Every workload under every policy."""

    farms: Annotated[tuple[FarmRandomSource, ...], Field(min_length=1)]
    policies: Annotated[
        tuple[Annotated[FarmRandomPolicySpec, BeforeValidator(named("policy"))], ...], Field(min_length=1)
    ]
    settings: FarmRandomSettings = FarmRandomSettings()


def _configurations(study: FarmRandomStudy) -> Iterator[FarmRandomConfiguration]:
    return (
        FarmRandomConfiguration(**table)
        for table in combined((table.labelled() for table in study.policies), study.settings)
    )


def _unusual_settings(configuration: FarmRandomConfiguration) -> dict[str, object]:
    return unusual(configuration, FarmRandomConfiguration(label=configuration.label, policy=configuration.policy))


EXPERIMENT = Experiment(
    kind=FARM_RANDOM,
    configuration=FarmRandomConfiguration,
    study=FarmRandomStudy,
    sources="farms",
    configurations="policies",
    named_by="policy",
    build=_configurations,
    unusual_settings=_unusual_settings,
    metrics=("bounded_stretch_max", "bounded_stretch_mean", "flow_mean_s", "migrations_per_job"),
    x_columns=("target_load",),
)
