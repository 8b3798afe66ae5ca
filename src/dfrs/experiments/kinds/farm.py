"""Throughput on a heterogeneous cluster: a stream of jobs under a policy (after [Atif2011] section 8).

A stream says when jobs come and how long they are expected to take; how long they take on each sub-cluster is measured
of their programs (`dfrs.workloads.programs`). As a second's difference in one job's time gave other allocations there,
each seed but 0 has every time changed by some percent, estimates excepted. A study in a campaign file has `streams` and
`policies`.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import polars as pl
from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from dfrs.experiments.experiment import Experiment, StudyModel, unusual
from dfrs.experiments.farm_runs import PreparedStream, measured, moves_of, placed, prepare_stream, simulation
from dfrs.experiments.fields import Numbers, PolicyName, ProgramsName, Strict, named
from dfrs.experiments.planned_runs import SIMULATION, PolicyConfiguration, Row, RunKind, Schema
from dfrs.model.errors import InputError
from dfrs.model.instance import Floats
from dfrs.workloads.programs import GROUP, USUAL, check_order, find_programs

JITTER = 0.01
"""Times are changed by up to this share, evenly."""
_FEW = 20

SCHEMA: Schema = {
    "experiment": pl.Int64,
    "seed": pl.Int64,
    "jitter": pl.Float64,
    "order": pl.String,
    "printed": pl.Boolean,
    "exact": pl.Boolean,
    "policy": pl.String,
    "jobs": pl.Int64,
    "wait_s": pl.Float64,
    "turnaround_s": pl.Float64,
    "total_s": pl.Float64,
    "migrations": pl.Int64,
    "jobs_moved": pl.Int64,
    "tasks_moved": pl.Int64,
    "job_times": pl.String,
    "moves": pl.String,
}
"""`wait_s` and `turnaround_s` are averages, `total_s` is when the last job is done; `migrations` counts decisions, each
of which may move several jobs. `job_times` is a JSON object: number of the job from 1 to its start, its end and its
sub-clusters in turn; `moves` a JSON list of what was moved when, from where, to where, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FarmScenario:
    """A stream, with the times of seed `seed`."""

    experiment: int
    """Number of the stream."""
    seed: int
    jitter: float = JITTER
    order: str
    """In which sub-clusters nodes are looked for."""
    printed: bool = False
    """Names are as they were printed, also where they cannot be."""
    exact: bool = False
    """Predictions are true, and not as wrong as they were measured."""
    programs: str = USUAL
    """The measurements that have the stream."""

    @property
    def name(self) -> str:
        """Says all of it."""
        told = f"{self.programs} experiment={self.experiment} seed={self.seed} jitter={self.jitter:.12g}"
        return f"{told} order={self.order} printed={self.printed} exact={self.exact}"

    def columns(self) -> Row:
        """What names it in the results."""
        return {
            "experiment": self.experiment,
            "seed": self.seed,
            "jitter": self.jitter,
            "order": self.order,
            "printed": self.printed,
            "exact": self.exact,
        }


def factors(name: str, seed: int, jobs: int, jitter: float = JITTER) -> Floats:
    """(J,) by what each job's times are multiplied; 1 for seed 0."""
    if seed == 0:
        return np.ones(jobs)
    digest = sha256(f"arrive-f {name} {seed}".encode()).digest()
    return 1.0 + jitter * np.random.default_rng(int.from_bytes(digest[:6])).uniform(-1.0, 1.0, jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class FarmConfiguration(PolicyConfiguration):
    """A policy."""

    label: str

    @property
    def name(self) -> str:
        """The policy's."""
        return self.policy + self.code_in_name

    def columns(self) -> Row:
        """What names it in the results."""
        return {"policy": self.policy}


@lru_cache(maxsize=2)
def prepare(scenario: FarmScenario) -> PreparedStream:
    """The scenario's workload on its farm."""
    programs, name = find_programs(scenario.programs), f"experiment-{scenario.experiment}"
    stream = programs.stream(scenario.experiment, printed=scenario.printed)
    return prepare_stream(
        programs,
        stream.jobs,
        name=name,
        without=stream.without,
        order=scenario.order,
        factors=factors(name, scenario.seed, len(stream.jobs), scenario.jitter),
        errors=not scenario.exact,
    )


def run(made: PreparedStream, configuration: FarmConfiguration, seed: int, save_in: Path | None) -> Row:
    """Simulate it."""
    del seed, save_in  # nothing is drawn in a run, and its moves and times are in the row
    done = simulation(made, configuration.policy).run()
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


def warm(configuration: FarmConfiguration) -> None:
    """Simulate the first jobs of a stream."""
    programs = find_programs(USUAL)
    jobs = programs.stream(programs.streams[0]).jobs[:_FEW]
    simulation(prepare_stream(programs, jobs, name="warm"), configuration.policy).run()


def times_of(row: Mapping[str, object]) -> dict[int, tuple[float, float, str]]:
    """From a row of results: number of the job from 1 to start, end, and sub-clusters in turn ("A", "A>B")."""
    document = json.loads(str(row["job_times"]))
    return {int(job): (value[0], value[1], value[2]) for job, value in document.items()}


FARM = RunKind(
    name="farm",
    schema=SCHEMA,
    code=(
        *SIMULATION,
        "experiments/farm_runs.py",
        "experiments/kinds/farm.py",
        f"group:{GROUP}",
    ),
    prepare=prepare,
    run=run,
    warm=warm,
    saves=False,
)


class FarmSource(Strict):
    """A stream of a heterogeneous cluster, once for each seed."""

    model: Literal["farm"] = "farm"
    name: str = "farm"
    programs: Annotated[ProgramsName, Field(validate_default=True)] = USUAL
    experiment: Annotated[int, Field(strict=True)]
    seeds: Numbers
    jitter: float = Field(default=JITTER, ge=0, lt=1, allow_inf_nan=False)
    order: str | None = None
    printed: Annotated[bool, Field(strict=True)] = False
    exact: Annotated[bool, Field(strict=True)] = False

    @field_validator("experiment")
    @classmethod
    def _there(cls, value: int, info: ValidationInfo) -> int:
        streams = find_programs(info.data["programs"]).streams if "programs" in info.data else ()
        if streams and value not in streams:
            raise ValueError(f"must be from {streams[0]} to {streams[-1]}")
        return value

    @field_validator("order")
    @classmethod
    def _each_once(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and "programs" in info.data:
            try:
                check_order(value, find_programs(info.data["programs"]))
            except InputError as error:
                raise ValueError(str(error).partition(": ")[2]) from None
        return value

    def scenarios(self) -> tuple[FarmScenario, ...]:
        """In the order of the seeds."""
        own = self.model_dump(exclude={"model", "name", "seeds", "order"})
        order = self.order or find_programs(self.programs).order
        return tuple(FarmScenario(seed=seed, order=order, **own) for seed in self.seeds)


class FarmPolicySpec(Strict):
    """A policy of the farm."""

    policy: PolicyName
    label: str | None = None

    def labelled(self) -> dict[str, Any]:
        """What it says, with a label."""
        return {"label": self.policy} | self.model_dump(exclude_none=True)


class FarmStudy(StudyModel):
    """Every stream under every policy."""

    streams: Annotated[tuple[FarmSource, ...], Field(min_length=1)]
    policies: Annotated[tuple[Annotated[FarmPolicySpec, BeforeValidator(named("policy"))], ...], Field(min_length=1)]


def _configurations(study: FarmStudy) -> Iterator[FarmConfiguration]:
    return (FarmConfiguration(**table.labelled()) for table in study.policies)


def _unusual_settings(configuration: FarmConfiguration) -> dict[str, object]:
    return unusual(configuration, FarmConfiguration(label=configuration.label, policy=configuration.policy))


EXPERIMENT = Experiment(
    kind=FARM,
    configuration=FarmConfiguration,
    study=FarmStudy,
    sources="streams",
    configurations="policies",
    named_by="policy",
    build=_configurations,
    unusual_settings=_unusual_settings,
    metrics=("wait_s", "turnaround_s", "total_s", "migrations"),
    x_columns=("experiment",),
)
