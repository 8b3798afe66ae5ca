"""Studies of off-line algorithms: every algorithm on every random instance."""

import hashlib
import time
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import polars as pl

from dfrs.allocate.registry import Options, find
from dfrs.allocate.second_phase import SecondPhase, maximize
from dfrs.bounds.yields import lp_bound
from dfrs.campaigns.runner import Part, Row, Schema, study_key
from dfrs.model.allocation import Outcome, Status
from dfrs.model.errors import DfrsError, InfeasibleError
from dfrs.model.instance import Instance
from dfrs.workloads.services import (
    Scenario,
    VirtualClusterScenario,
    dissertation_instance,
    virtual_cluster_instance,
)

SCHEMA: Schema = {
    "nodes": pl.Int64, "services": pl.Int64, "dims": pl.Int64, "slack": pl.Float64, "sigma": pl.Float64,
    "rho": pl.Float64, "memory_cov": pl.Float64, "cpu_cov": pl.Float64, "parallel": pl.Boolean, "seed": pl.Int64,
    "algorithm": pl.String, "status": pl.String, "bound": pl.Float64, "minimum_yield": pl.Float64,
    "searched_yield": pl.Float64, "average_before": pl.Float64, "average_after": pl.Float64,
    "utilization_before": pl.Float64, "utilization_after": pl.Float64, "runtime_s": pl.Float64,
}  # fmt: skip
"""`bound` is LPBOUND, null where it is infeasible: nothing was run then. `minimum_yield` is null without a placement;
`searched_yield` also for algorithms that do not search. `before` and `after` are about the second phase. `runtime_s`
is the time of the algorithm alone."""

_CODE = (
    "allocate", "bounds/yields.py", "kernels", "model", "workloads/services.py", "campaigns/offline.py",
    "campaigns/runner.py",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One random instance: its scenario and seed."""

    scenario: Scenario | VirtualClusterScenario
    seed: int

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
class Entry:
    """One algorithm with its options, under the label that the results give it."""

    label: str
    algorithm: str
    options: Options = field(default_factory=Options)
    second_phase: SecondPhase = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Every entry on every case. `sample` says in a sentence which instances these are.

    `timed`: run one at a time, with nothing else of ours beside it.
    """

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
        """Changes with the instances, the algorithms, their options, and the code that is run."""
        return study_key((self.cases, self.entries, self.timed), _CODE)

    def warm(self) -> None:
        """Load or compile what the entries need."""
        warm(self.entries)

    def parts(self) -> list[Part]:
        """Every entry on one instance, for each."""
        return [partial(run_case, self.entries, case) for case in self.cases]


def run_case(entries: tuple[Entry, ...], case: Case) -> list[Row]:
    """One row per entry. An instance without LPBOUND has no solution: nothing is run on it."""
    instance = case.instance()
    try:
        bound = lp_bound(instance)
    except InfeasibleError:
        bound = None
    shared = dict.fromkeys(SCHEMA) | case.columns() | {"bound": bound}
    return [
        shared | {"algorithm": entry.label} | (_run(instance, entry) if bound is not None else _hopeless())
        for entry in entries
    ]


def _run(instance: Instance, entry: Entry) -> Row:
    told = f"{instance.name} {entry.label}"
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(told.encode()).digest()[:8]))
    algorithm = find(entry.algorithm).build(entry.options)
    started = time.perf_counter()
    try:
        outcome = algorithm(instance, rng)
    except InfeasibleError:
        return _hopeless()
    except DfrsError as error:
        return {"status": f"error: {error}", "runtime_s": time.perf_counter() - started}
    seconds = time.perf_counter() - started
    return {"status": str(outcome.status), "runtime_s": seconds} | _measures(instance, entry, outcome)


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


def _hopeless() -> Row:
    return {"status": str(Status.INFEASIBLE)}


def warm(entries: tuple[Entry, ...]) -> None:
    """Load or compile what the entries need, on instances of a few services."""
    tiny = dissertation_instance(Scenario(nodes=2, services=4, dims=4, slack=0.5, sigma=0.25, rho=0.5), 0)
    for entry in {(e.algorithm, e.second_phase): e for e in entries}.values():
        limit = None if entry.options.time_limit_s is None else min(entry.options.time_limit_s, 0.05)
        _run(tiny, replace(entry, options=replace(entry.options, time_limit_s=limit)))
