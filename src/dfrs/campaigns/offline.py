"""Runs off-line algorithms over many instances, and keeps what came out.

A study is a list of instances and a list of algorithms. Its result is one row per pair; it is a function of the
study, but for the times and for what a time limit allows. Rows are stored as Parquet under a key made of the study
and of the code that ran it, so that asking again costs nothing and a change of either runs it anew.
"""

import hashlib
import multiprocessing
import signal
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import polars as pl

import dfrs
from dfrs.allocate.registry import Options, find
from dfrs.allocate.second_phase import SecondPhase, maximize
from dfrs.bounds.yields import lp_bound
from dfrs.model.allocation import Outcome, Status
from dfrs.model.errors import DfrsError, InfeasibleError, InputError
from dfrs.model.instance import Instance
from dfrs.workloads.services import (
    Scenario,
    VirtualClusterScenario,
    dissertation_instance,
    virtual_cluster_instance,
)

Row = dict[str, object]
Advance = Callable[[int], None]

SCHEMA: dict[str, type[pl.DataType]] = {
    "nodes": pl.Int64, "services": pl.Int64, "dims": pl.Int64, "slack": pl.Float64, "sigma": pl.Float64,
    "rho": pl.Float64, "memory_cov": pl.Float64, "cpu_cov": pl.Float64, "parallel": pl.Boolean, "seed": pl.Int64,
    "algorithm": pl.String, "status": pl.String, "bound": pl.Float64, "minimum_yield": pl.Float64,
    "searched_yield": pl.Float64, "average_before": pl.Float64, "average_after": pl.Float64,
    "utilization_before": pl.Float64, "utilization_after": pl.Float64, "runtime_s": pl.Float64,
}  # fmt: skip
"""`bound` is LPBOUND, null where it is infeasible: nothing was run then. `minimum_yield` is null without a placement;
`searched_yield` also for algorithms that do not search. `before` and `after` are about the second phase. `runtime_s`
is the time of the algorithm alone."""

_CODE = ("allocate", "bounds", "kernels", "model", "workloads", "campaigns/offline.py")


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
    def key(self) -> str:
        """Changes with the instances, the algorithms, their options, and the code that is run."""
        told = repr((self.cases, self.entries, self.timed)) + _code_digest()
        return hashlib.sha256(told.encode()).hexdigest()[:16]


class Runner:
    """Runs studies on `workers` processes and keeps their results under `directory`.

    Raises InputError where a result cannot be written.
    """

    def __init__(self, directory: Path, workers: int, advance: Advance = lambda _: None) -> None:
        self.directory = directory
        self.workers = workers
        self.advance = advance
        self._pool: ProcessPoolExecutor | None = None
        self._known: dict[str, pl.DataFrame] = {}

    def results(self, study: Study) -> pl.DataFrame:
        """One row per instance and algorithm, with the columns of SCHEMA; from the store if they are there."""
        if study.key not in self._known:
            self._known[study.key] = self._stored_or_run(study)
        return self._known[study.key]

    def _stored_or_run(self, study: Study) -> pl.DataFrame:
        path = self.directory / f"{study.name}-{study.key}.parquet"
        if path.exists():
            self.advance(study.runs)
            return pl.read_parquet(path)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.directory}: cannot write results there: {error.strerror}") from None
        rows = self._alone(study) if study.timed or self.workers == 1 else self._together(study)
        frame = pl.DataFrame([row for part in rows for row in part], schema=SCHEMA)
        try:
            partial_file = path.with_suffix(".part")
            frame.write_parquet(partial_file)
            partial_file.replace(path)
        except OSError as error:
            raise InputError(f"{path}: cannot write the results: {error.strerror}") from None
        return frame

    def _alone(self, study: Study) -> Iterator[list[Row]]:
        warm(study.entries)
        for case in study.cases:
            yield run_case(study.entries, case)
            self.advance(len(study.entries))

    def _together(self, study: Study) -> Iterator[list[Row]]:
        # Compiled here, once, so that the workers only load what is compiled.
        warm(study.entries)
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self.workers, mp_context=multiprocessing.get_context("spawn"), initializer=_start_worker
            )
        some = max(1, min(16, len(study.cases) // (8 * self.workers)))
        try:
            for rows in self._pool.map(partial(run_case, study.entries), study.cases, chunksize=some):
                yield rows
                self.advance(len(study.entries))
        except BrokenProcessPool:
            raise DfrsError(
                f"{study.name}: a worker process ended, for want of memory perhaps: try --workers 1"
            ) from None

    def close(self) -> None:
        """End the processes, without waiting for what they have not begun."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def runner(directory: Path, workers: int, advance: Advance) -> Generator[Runner]:
    """A Runner whose processes end with the block."""
    made = Runner(directory, workers, advance)
    try:
        yield made
    finally:
        made.close()


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


def _start_worker() -> None:
    # The terminal sends Ctrl-C to all processes: workers then end at once and leave the message to the parent.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@cache
def _code_digest() -> str:
    root = Path(dfrs.__file__).parent
    digest = hashlib.sha256()
    for part in _CODE:
        path = root / part
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(file.read_bytes())
    return digest.hexdigest()
