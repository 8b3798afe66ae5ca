"""Runs of off-line algorithms: an instance under an algorithm ([Stillwell2010] 4.3, [Stillwell2008] 4.1).

A study in a campaign file has `instances` and `algorithms`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import polars as pl
from pydantic import AfterValidator, BeforeValidator, Field

from dfrs.experiments.experiment import Experiment, StudyModel, combined
from dfrs.experiments.fields import Count, Positive, Several, Strict, named
from dfrs.experiments.planned_runs import Row, RunKind, Schema
from dfrs.experiments.sources.instances import InstanceFile, Instances, RandomInstance
from dfrs.kernels.compiling import compilation
from dfrs.model.allocation import Outcome, Status
from dfrs.model.errors import DfrsError, InfeasibleError
from dfrs.model.instance import Instance
from dfrs.placement.bounds import lp_bound
from dfrs.placement.registry import Options, expand, find
from dfrs.placement.second_phase import SecondPhase, maximize
from dfrs.workloads.services import ServiceScenario

SCHEMA: Schema = {
    "nodes": pl.Int64,
    "services": pl.Int64,
    "dims": pl.Int64,
    "slack": pl.Float64,
    "sigma": pl.Float64,
    "rho": pl.Float64,
    "memory_cov": pl.Float64,
    "cpu_cov": pl.Float64,
    "parallel": pl.Boolean,
    "seed": pl.Int64,
    "file": pl.String,
    "method": pl.String,
    "settings": pl.String,
    "bound": pl.Float64,
    "minimum_yield": pl.Float64,
    "searched_yield": pl.Float64,
    "average_before": pl.Float64,
    "average_after": pl.Float64,
    "utilization_before": pl.Float64,
    "utilization_after": pl.Float64,
    "runtime_s": pl.Float64,
}
"""`bound` is LPBOUND, null where it is infeasible: nothing was run then. `minimum_yield` is null without a placement;
`searched_yield` also for algorithms that do not search. `before` and `after` are about the second phase. `runtime_s`
is the time of the algorithm alone."""

_CODE = (
    "placement",
    "bounds",
    "kernels",
    "model",
    "workloads/documents.py",
    "workloads/files.py",
    "workloads/rule_documents.py",
    "workloads/rule_files.py",
    "workloads/services.py",
    "experiments/files.py",
    "experiments/kinds/offline.py",
    "experiments/sources/instances.py",
)
OPTIONS = ("time_limit_s", "rounds", "window", "pair_order", "search", "dominance")
"""The options that a campaign may set."""
_MOMENT_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineConfiguration:
    """One algorithm with its options, under the label that tables give it."""

    label: str
    algorithm: str
    options: Options = field(default_factory=Options)
    second_phase: SecondPhase = "none"

    @property
    def settings(self) -> str:
        """Every option that is set otherwise than it would be, and the second phase."""
        usual = Options()
        said = {name: getattr(self.options, name) for name in OPTIONS}
        told = [f"{name}={_short(value)}" for name, value in said.items() if value != getattr(usual, name)]
        return " ".join([*told, f"second_phase={self.second_phase}"])

    @property
    def name(self) -> str:
        """Algorithm and settings."""
        return f"{self.algorithm} | {self.settings}"

    def columns(self) -> Row:
        """What names it in the results."""
        return {"method": self.algorithm, "settings": self.settings}


def _short(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BoundedInstance:
    """An instance and its LPBOUND, None where that is infeasible."""

    instance: Instance
    bound: float | None


@lru_cache(maxsize=2)
def prepare(scenario: RandomInstance | InstanceFile) -> BoundedInstance:
    """Generate or read the instance, and bound it."""
    instance = scenario.instance()
    try:
        return BoundedInstance(instance=instance, bound=lp_bound(instance))
    except InfeasibleError:
        return BoundedInstance(instance=instance, bound=None)


def run(prepared: BoundedInstance, configuration: OfflineConfiguration, seed: int, save_in: Path | None) -> Row:
    """One row. An instance without LPBOUND has no solution: nothing is run on it."""
    instance, bound = prepared.instance, prepared.bound
    shape: Row = {"nodes": len(instance.nodes), "services": len(instance.services), "dims": len(instance.resources)}
    outcome: Outcome | None = None
    seconds = None
    if bound is not None:
        # The campaign's processes have the CPUs.
        algorithm = find(configuration.algorithm).build(replace(configuration.options, threads=1))
        rng = np.random.default_rng(seed)
        started_s = compilation.clock_s()
        try:
            outcome = algorithm(instance, rng)
            seconds = compilation.clock_s() - started_s
        except InfeasibleError:
            pass
    if save_in is not None:
        from dfrs.experiments.saved_runs import save_allocation  # noqa: PLC0415 - most are not saved, and need no pictures

        save_allocation(instance, outcome, configuration.label, save_in)
    if outcome is None:
        return shape | {"status": str(Status.INFEASIBLE), "bound": bound}
    told = {"status": str(outcome.status), "bound": bound, "runtime_s": seconds}
    return shape | told | _metrics(instance, configuration, outcome)


def _metrics(instance: Instance, configuration: OfflineConfiguration, outcome: Outcome) -> Row:
    before = outcome.allocation
    if before is None:
        return {}
    searched = outcome.details.get("searched_yield")
    row: Row = {
        "minimum_yield": outcome.minimum_yield,
        "searched_yield": searched if isinstance(searched, float) and searched >= 0 else None,
        "average_before": before.average_yield,
        "utilization_before": before.utilization(instance),
    }
    if configuration.second_phase != "none":
        after = maximize(instance, before, configuration.second_phase)
        row |= {"average_after": after.average_yield, "utilization_after": after.utilization(instance)}
    return row


def warm(configuration: OfflineConfiguration) -> None:
    """Run the configuration on a few services, for a moment."""
    tiny = RandomInstance(
        parameters=ServiceScenario(nodes=2, services=4, dims=4, slack=0.5, sigma=0.25, rho=0.5), seed=0
    )
    limit_s = configuration.options.time_limit_s
    brief = replace(configuration.options, time_limit_s=_MOMENT_S if limit_s is None else min(limit_s, _MOMENT_S))
    run(prepare(tiny), replace(configuration, options=brief), 0, None)


OFFLINE = RunKind(name="offline", schema=SCHEMA, code=_CODE, prepare=prepare, run=run, warm=warm)

Yes = Annotated[bool, Field(strict=True)]


def _algorithm(pattern: str) -> str:
    try:
        expand([pattern])
    except DfrsError as error:
        raise ValueError(str(error)) from None
    return pattern


class AlgorithmSettings(Strict):
    """What algorithms are run with; each combination of several values."""

    time_limit_s: Several[Positive] | None = None
    rounds: Several[Count] | None = None
    window: Several[Count] = (2,)
    pair_order: Several[Literal["load", "index"]] = ("load",)
    search: Several[Literal["ends", "midpoints"]] = ("ends",)
    dominance: Several[Yes] = (False,)
    second_phase: Several[SecondPhase] = ("none",)


class AlgorithmSpec(Strict):
    """An algorithm or a pattern of names, with settings of its own."""

    algorithm: Annotated[str, AfterValidator(_algorithm)]
    label: str | None = None
    time_limit_s: Positive | None = None
    rounds: Count | None = None
    window: Count | None = None
    pair_order: Literal["load", "index"] | None = None
    search: Literal["ends", "midpoints"] | None = None
    dominance: Yes | None = None
    second_phase: SecondPhase | None = None


class OfflineStudy(StudyModel):
    """Every instance by every algorithm."""

    instances: Annotated[tuple[Instances, ...], Field(min_length=1)]
    algorithms: Annotated[
        tuple[Annotated[AlgorithmSpec, BeforeValidator(named("algorithm"))], ...], Field(min_length=1)
    ]
    settings: AlgorithmSettings = AlgorithmSettings()


def _configurations(study: OfflineStudy) -> Iterator[OfflineConfiguration]:
    return (_configuration(table) for table in combined(_labelled(study.algorithms), study.settings))


def _labelled(given: Sequence[AlgorithmSpec]) -> Iterator[dict[str, Any]]:
    """Each algorithm with its label and its own settings."""
    for table in given:
        own = table.model_dump(exclude_none=True)
        yield from ({"label": name} | own | {"algorithm": name} for name in expand([table.algorithm]))


def _configuration(table: Mapping[str, Any]) -> OfflineConfiguration:
    options = {name: table[name] for name in OPTIONS if name in table}
    return OfflineConfiguration(
        label=table["label"],
        algorithm=table["algorithm"],
        second_phase=table["second_phase"],
        options=Options(**options),
    )


def _unusual_settings(configuration: OfflineConfiguration) -> dict[str, object]:
    usual = Options()
    own = {name: getattr(configuration.options, name) for name in OPTIONS}
    said: dict[str, object] = {name: value for name, value in own.items() if value != getattr(usual, name)}
    if configuration.second_phase != "none":
        said["second_phase"] = configuration.second_phase
    return said


EXPERIMENT = Experiment(
    kind=OFFLINE,
    configuration=OfflineConfiguration,
    study=OfflineStudy,
    sources="instances",
    configurations="algorithms",
    named_by="algorithm",
    build=_configurations,
    unusual_settings=_unusual_settings,
    metrics=("minimum_yield", "average_before", "utilization_before"),
    x_columns=("slack", "services", "nodes"),
)
