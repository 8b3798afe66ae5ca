"""Traces that on-line policies are run on: of models, or parts of files; and their tables in a campaign file.

Traces are named, not stored: each process makes or reads its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from itertools import islice, product
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PrivateAttr

from dfrs.experiments.fields import (
    Annotate,
    Count,
    Estimates,
    Loads,
    Numbers,
    Probabilities,
    Probability,
    Slice,
    Strict,
    Weeks,
    at_most,
)
from dfrs.experiments.files import check_digest, directory_of, file_digest, find_trace
from dfrs.experiments.planned_runs import Row
from dfrs.model.errors import InputError
from dfrs.model.jobs import Workload
from dfrs.workloads import elastic_model
from dfrs.workloads.annotate import to_workload
from dfrs.workloads.load import load_workload
from dfrs.workloads.lublin import Lublin, generate
from dfrs.workloads.transform import scale_to_load, slice_jobs, week


@dataclass(frozen=True, slots=True, kw_only=True)
class LublinTrace:
    """Trace `seed` of the Lublin model, as it comes or scaled to an offered load ([Stillwell2010] section 5.3.2).

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
        workload = _whole(self.path, self.digest, self.nodes, self.annotate, self.estimates, self.seed)
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
    """Trace `seed` of the elastic workload model, at an offered load or with its usual arrivals ([Kumar2011] IV-D).

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
            "trace": "cwf",
            "number": self.seed,
            "jobs": self.jobs,
            "target_load": self.load,
            "ps": self.ps,
            "pd": self.pd,
            "pe": self.pe,
            "pr": self.pr,
        }


def _treated(scenario: LublinTrace | TracePart) -> str:
    load = "" if scenario.load is None else f"load={scenario.load:.12g} "
    return f"{load}annotate={scenario.annotate} estimates={scenario.estimates}"


def stem(path: Path) -> str:
    """What results call a trace file."""
    return path.name.removesuffix(".gz").removesuffix(".swf").removesuffix(".cwf")


Trace = LublinTrace | TracePart | ElasticTrace


@lru_cache(maxsize=2)
def _whole(path: Path, _digest: str, nodes: int | None, annotate: str, estimates: str, seed: int) -> Workload:
    # The digest is in the key: a process that lasts must not give what the file held when it was read before.
    workload, _ = load_workload(path, nodes=nodes, annotate=annotate, estimates=estimates, seed=seed)
    return workload


class LublinSource(Strict):
    """Traces of the Lublin model: every seed as it comes, or at every load; seed by seed."""

    model: Literal["lublin"] = "lublin"
    name: str = "lublin"
    jobs: Count = 1_000
    nodes: Count = 128
    seeds: Numbers
    loads: Loads = ()
    annotate: Annotate = "dfrs"
    estimates: Estimates = "perfect"
    first: Count | None = None
    """Only so many of them."""

    def scenarios(self) -> tuple[Trace, ...]:
        """Seeds in the slow, loads in the fast loop."""
        loads: Sequence[float | None] = self.loads or (None,)
        every = (
            LublinTrace(
                seed=seed, load=load, jobs=self.jobs, nodes=self.nodes, annotate=self.annotate, estimates=self.estimates
            )
            for seed, load in product(self.seeds, loads)
        )
        whole = len(self.seeds) * len(loads)
        at_most(whole if self.first is None else self.first, whole, "traces")
        return tuple(islice(every, self.first))


class TraceSource(Strict):
    """A trace file, SWF or CWF: the whole of it, weeks, or a slice of its jobs; each as it comes, or at every load."""

    model: Literal["swf"] = "swf"
    name: str = ""
    """The file's name where none is given."""
    file: str
    nodes: Count | None = None
    annotate: Annotate = "dfrs"
    estimates: Estimates = "perfect"
    seeds: Numbers = (0,)
    """Of the annotation."""
    weeks: Weeks = None
    jobs: Slice | None = None
    loads: Loads = ()
    _path: Path = PrivateAttr(default=Path())
    """Where the file was found."""

    def model_post_init(self, context: object, /) -> None:
        """Find the file, relative to the campaign's directory."""
        try:
            self._path = find_trace(self.file, directory_of(context))
        except InputError as error:
            raise ValueError(str(error)) from None
        if not self.name:
            object.__setattr__(self, "name", stem(Path(self.file)))

    def scenarios(self) -> tuple[Trace, ...]:
        """Weeks in the slow loop, then seeds, then loads. Raises InputError where the file cannot be read."""
        digest = file_digest(self._path)
        weeks: Sequence[int | None] = self.weeks or (None,)
        loads: Sequence[float | None] = self.loads or (None,)
        first, end = map(int, self.jobs.split(":")) if self.jobs else (None, None)
        return tuple(
            TracePart(
                path=self._path,
                digest=digest,
                nodes=self.nodes,
                annotate=self.annotate,
                estimates=self.estimates,
                seed=seed,
                week=number,
                first=first,
                end=end,
                load=load,
            )
            for number, seed, load in product(weeks, self.seeds, loads)
        )


Mean = Annotated[float, Field(ge=1, le=1e9)]
"""As `ElasticModel` has it."""


class CwfSource(Strict):
    """Traces of the elastic workload model ([Kumar2011] section IV-D).

    Every seed at every share of small jobs, as it comes or at every load; seed by seed.
    """

    model: Literal["cwf"] = "cwf"
    name: str = "cwf"
    jobs: Count = 500
    procs: Count = 320
    unit: Count = 32
    """Processors in a group."""
    ps: Probabilities = (0.5,)
    """Probabilities of a small job."""
    seeds: Numbers
    loads: Loads = ()
    pd: Probability = 0.0
    """Of a dedicated job."""
    pe: Probability = 0.0
    pr: Probability = 0.0
    """Of commands for more and for less time ..."""
    pep: Probability = 0.0
    prp: Probability = 0.0
    """... and processors."""
    start_mean_s: Mean = 3_600.0
    amount_mean_s: Mean = 1_800.0
    annotate: Annotate | None = None
    """`unit:UNIT` where none is given."""
    first: Count | None = None
    """Only so many of them."""

    def scenarios(self) -> tuple[ElasticTrace, ...]:
        """Seeds in the slowest loop, loads in the fastest. Raises InputError where the model has no such trace."""
        loads: Sequence[float | None] = self.loads or (None,)
        own = self.model_dump(exclude={"model", "name", "ps", "seeds", "loads", "annotate", "first"})
        annotate = self.annotate or f"unit:{self.unit}"
        every = (
            ElasticTrace(seed=seed, ps=ps, load=load, annotate=annotate, **own)
            for seed, ps, load in product(self.seeds, self.ps, loads)
        )
        whole = len(self.seeds) * len(self.ps) * len(loads)
        at_most(whole if self.first is None else self.first, whole, "traces")
        scenarios = tuple(islice(every, self.first))
        for scenario in scenarios[: len(self.ps) * len(loads)]:
            scenario.elastic_model()
        return scenarios


Workloads = Annotated[LublinSource | TraceSource | CwfSource, Field(discriminator="model")]
