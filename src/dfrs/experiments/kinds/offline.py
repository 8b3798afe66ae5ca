"""Cells of off-line algorithms: an instance under an algorithm ([Stillwell2010] 4.3, [Stillwell2008] 4.1).

A study in a campaign file has `instances` and `algorithms`.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import polars as pl
from pydantic import AfterValidator, BeforeValidator, Field

from dfrs.experiments.experiment import Experiment, StudyModel, combined
from dfrs.experiments.fields import Count, Positive, Strict, named, one_or_several
from dfrs.experiments.planned_runs import Row, RunKind, Schema
from dfrs.experiments.sources.instances import InstanceFile, Instances, RandomInstance
from dfrs.model.allocation import Outcome, Status
from dfrs.model.errors import DfrsError, InfeasibleError
from dfrs.model.instance import Instance
from dfrs.placement.bounds import lp_bound
from dfrs.placement.registry import Options, expand, find
from dfrs.placement.second_phase import SecondPhase, maximize
from dfrs.workloads.services import ServiceScenario

SCHEMA: Schema = {
    "nodes": pl.Int64, "services": pl.Int64, "dims": pl.Int64, "slack": pl.Float64, "sigma": pl.Float64,
    "rho": pl.Float64, "memory_cov": pl.Float64, "cpu_cov": pl.Float64, "parallel": pl.Boolean, "seed": pl.Int64,
    "file": pl.String, "method": pl.String, "settings": pl.String, "bound": pl.Float64, "minimum_yield": pl.Float64,
    "searched_yield": pl.Float64, "average_before": pl.Float64, "average_after": pl.Float64,
    "utilization_before": pl.Float64, "utilization_after": pl.Float64, "runtime_s": pl.Float64,
}  # fmt: skip
"""`bound` is LPBOUND, null where it is infeasible: nothing was run then. `minimum_yield` is null without a placement;
`searched_yield` also for algorithms that do not search. `before` and `after` are about the second phase. `runtime_s`
is the time of the algorithm alone."""

_CODE = (
    "placement", "bounds", "kernels", "model", "workloads/documents.py", "workloads/files.py", "workloads/services.py",
    "experiments/files.py", "experiments/kinds/offline.py", "experiments/sources/instances.py",
)  # fmt: skip
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
def prepare(case: RandomInstance | InstanceFile) -> BoundedInstance:
    """Generate or read the instance, and bound it."""
    instance = case.instance()
    try:
        return BoundedInstance(instance=instance, bound=lp_bound(instance))
    except InfeasibleError:
        return BoundedInstance(instance=instance, bound=None)


def run(prepared: BoundedInstance, entry: OfflineConfiguration, seed: int, keep: Path | None) -> Row:
    """One row. An instance without LPBOUND has no solution: nothing is run on it."""
    instance, bound = prepared.instance, prepared.bound
    shape: Row = {"nodes": len(instance.nodes), "services": len(instance.services), "dims": len(instance.resources)}
    outcome: Outcome | None = None
    seconds = None
    if bound is not None:
        algorithm = find(entry.algorithm).build(entry.options)
        rng = np.random.default_rng(seed)
        started = time.perf_counter()
        try:
            outcome = algorithm(instance, rng)
            seconds = time.perf_counter() - started
        except InfeasibleError:
            pass
    if keep is not None:
        from dfrs.experiments.saved_runs import keep_allocation  # noqa: PLC0415 - most are not kept, and need no pictures

        keep_allocation(instance, outcome, entry.label, keep)
    if outcome is None:
        return shape | {"status": str(Status.INFEASIBLE), "bound": bound}
    told = {"status": str(outcome.status), "bound": bound, "runtime_s": seconds}
    return shape | told | _measures(instance, entry, outcome)


def _measures(instance: Instance, entry: OfflineConfiguration, outcome: Outcome) -> Row:
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
    if entry.second_phase != "none":
        after = maximize(instance, before, entry.second_phase)
        row |= {"average_after": after.average_yield, "utilization_after": after.utilization(instance)}
    return row


def warm(entry: OfflineConfiguration) -> None:
    """Run the entry on a few services, for a moment."""
    tiny = RandomInstance(scenario=ServiceScenario(nodes=2, services=4, dims=4, slack=0.5, sigma=0.25, rho=0.5), seed=0)
    limit_s = entry.options.time_limit_s
    brief = replace(entry.options, time_limit_s=_MOMENT_S if limit_s is None else min(limit_s, _MOMENT_S))
    run(prepare(tiny), replace(entry, options=brief), 0, None)


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

    time_limit_s: Annotated[tuple[Positive, ...], BeforeValidator(one_or_several)] | None = None
    rounds: Annotated[tuple[Count, ...], BeforeValidator(one_or_several)] | None = None
    window: Annotated[tuple[Count, ...], BeforeValidator(one_or_several)] = (2,)
    pair_order: Annotated[tuple[Literal["load", "index"], ...], BeforeValidator(one_or_several)] = ("load",)
    search: Annotated[tuple[Literal["ends", "midpoints"], ...], BeforeValidator(one_or_several)] = ("ends",)
    dominance: Annotated[tuple[Yes, ...], BeforeValidator(one_or_several)] = (False,)
    second_phase: Annotated[tuple[SecondPhase, ...], BeforeValidator(one_or_several)] = ("none",)


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


def _entries(study: OfflineStudy) -> Iterator[OfflineConfiguration]:
    return (_entry(item) for item in combined(_items(study.algorithms), study.settings))


def _items(given: Sequence[AlgorithmSpec]) -> Iterator[dict[str, Any]]:
    """Each algorithm with its label and its own settings."""
    for item in given:
        own = item.model_dump(exclude_none=True)
        yield from ({"label": name} | own | {"algorithm": name} for name in expand([item.algorithm]))


def _entry(item: Mapping[str, Any]) -> OfflineConfiguration:
    options = {name: item[name] for name in OPTIONS if name in item}
    return OfflineConfiguration(
        label=item["label"],
        algorithm=item["algorithm"],
        second_phase=item["second_phase"],
        options=Options(**options),
    )


def _said(entry: OfflineConfiguration) -> dict[str, object]:
    usual = Options()
    own = {name: getattr(entry.options, name) for name in OPTIONS}
    said: dict[str, object] = {name: value for name, value in own.items() if value != getattr(usual, name)}
    if entry.second_phase != "none":
        said["second_phase"] = entry.second_phase
    return said


EXPERIMENT = Experiment(
    kind=OFFLINE,
    entry=OfflineConfiguration,
    study=OfflineStudy,
    sources="instances",
    entries="algorithms",
    item="algorithm",
    build=_entries,
    said=_said,
    measures=("minimum_yield", "average_before", "utilization_before"),
    along=("slack", "services", "nodes"),
)
