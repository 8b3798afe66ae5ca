"""Cells of off-line algorithms: an instance under an algorithm (000 section 4.3, 001 section 4.1)."""

import time
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import polars as pl

from dfrs.experiments.cells import Kind, Row, Schema
from dfrs.experiments.files import check_digest
from dfrs.model.allocation import Outcome, Status
from dfrs.model.errors import InfeasibleError
from dfrs.model.instance import Instance
from dfrs.placement.bounds import lp_bound
from dfrs.placement.registry import Options, find
from dfrs.placement.second_phase import SecondPhase, maximize
from dfrs.workloads.files import read_instance
from dfrs.workloads.services import Scenario, VirtualClusterScenario, dissertation_instance, virtual_cluster_instance

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
    "experiments/files.py", "experiments/kinds/offline.py",
)  # fmt: skip
OPTIONS = ("time_limit_s", "rounds", "window", "pair_order", "search", "dominance")
"""The options that a campaign may set."""
_MOMENT_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One random instance: its scenario and seed."""

    scenario: Scenario | VirtualClusterScenario
    seed: int

    @property
    def name(self) -> str:
        """Says all of it."""
        said = " ".join(f"{f.name}={_short(getattr(self.scenario, f.name))}" for f in fields(self.scenario))
        which = "services" if isinstance(self.scenario, Scenario) else "virtual-clusters"
        return f"{which}-{self.seed} {said}"

    def instance(self) -> Instance:
        """Generate it."""
        if isinstance(self.scenario, Scenario):
            return dissertation_instance(self.scenario, self.seed)
        return virtual_cluster_instance(self.scenario, self.seed)

    def columns(self) -> Row:
        """What names it in the results."""
        s = self.scenario
        if isinstance(s, Scenario):
            own: Row = {"services": s.services, "dims": s.dims, "sigma": s.sigma, "rho": s.rho, "parallel": False}
        else:
            own = {
                "services": s.tasks, "dims": 2, "memory_cov": s.memory_cov, "cpu_cov": s.cpu_cov,
                "parallel": s.parallel,
            }  # fmt: skip
        return {"nodes": s.nodes, "slack": s.slack, "seed": self.seed} | own


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCase:
    """An instance file. `digest` is that of the file, which may move but not change."""

    path: Path = field(compare=False)
    digest: str

    @property
    def name(self) -> str:
        """Says all of it."""
        return f"{self.path.name} sha256={self.digest[:12]}"

    def instance(self) -> Instance:
        """Read it. Raises InputError where it is gone or another."""
        check_digest(self.path, self.digest)
        return read_instance(self.path)

    def columns(self) -> Row:
        """What names it in the results."""
        return {"file": self.path.name}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
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
class Prepared:
    """An instance and its LPBOUND, None where that is infeasible."""

    instance: Instance
    bound: float | None


@lru_cache(maxsize=2)
def prepare(case: Case | FileCase) -> Prepared:
    """Generate or read the instance, and bound it."""
    instance = case.instance()
    try:
        return Prepared(instance=instance, bound=lp_bound(instance))
    except InfeasibleError:
        return Prepared(instance=instance, bound=None)


def run(prepared: Prepared, entry: Entry, seed: int, keep: Path | None) -> Row:
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
        from dfrs.experiments.kept import keep_allocation  # noqa: PLC0415 - most are not kept, and need no pictures

        keep_allocation(instance, outcome, entry.label, keep)
    if outcome is None:
        return shape | {"status": str(Status.INFEASIBLE), "bound": bound}
    told = {"status": str(outcome.status), "bound": bound, "runtime_s": seconds}
    return shape | told | _measures(instance, entry, outcome)


def _measures(instance: Instance, entry: Entry, outcome: Outcome) -> Row:
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


def warm(entry: Entry) -> None:
    """Run the entry on a few services, for a moment."""
    tiny = Case(scenario=Scenario(nodes=2, services=4, dims=4, slack=0.5, sigma=0.25, rho=0.5), seed=0)
    limit_s = entry.options.time_limit_s
    brief = replace(entry.options, time_limit_s=_MOMENT_S if limit_s is None else min(limit_s, _MOMENT_S))
    run(prepare(tiny), replace(entry, options=brief), 0, None)


OFFLINE = Kind(name="offline", schema=SCHEMA, code=_CODE, prepare=prepare, run=run, warm=warm)
