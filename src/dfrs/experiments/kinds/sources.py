"""What a campaign is run on, as its file says it: each source gives cases, in a fixed order.

Sources are what `[[workloads]]` and `[[instances]]` of a campaign file hold. A sample of a set, `first` of its cases,
is contained in every larger one.
"""

import math
import os
from collections.abc import Sequence
from itertools import islice, product
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PrivateAttr

import dfrs
from dfrs.experiments.fields import (
    Annotate,
    Count,
    Counts,
    Estimates,
    Loads,
    Numbers,
    Parts,
    Slice,
    Strict,
    Weeks,
    at_most,
    different,
)
from dfrs.experiments.files import file_digest
from dfrs.experiments.kinds import offline, online
from dfrs.experiments.kinds.elastic_source import CwfSource
from dfrs.experiments.kinds.farm_random_study import HeteroSource
from dfrs.experiments.kinds.farm_study import FarmSource
from dfrs.experiments.kinds.needs_study import NeedsSource
from dfrs.model.errors import InputError
from dfrs.workloads.services import (
    LARGE_SERVICES,
    SMALL_SERVICES,
    Scenario,
    dissertation_sample,
    dissertation_scenarios,
    virtual_cluster_scenarios,
)


def spread(settings: int, count: int) -> list[tuple[int, int]]:
    """`count` pairs (setting, sample): all settings once before any twice, and any few of them spread evenly.

    Steps of about the golden section of the number of settings, prime to it, visit the slow loops of a nested
    list evenly and the fast ones in turn, which a division into equal parts would not.
    """
    step = next(s for s in range(round(settings * 0.618), settings + 1) if math.gcd(s, settings) == 1)
    return [(k % settings * step % settings, k // settings) for k in range(count)]


def find_trace(name: str, beside: Path) -> Path:
    """Where a trace file is: as named, or relative to `beside`, DFRS_TRACES, or shared/traces beside the checkout.

    Raises InputError where it is in none of them.
    """
    checkout = Path(dfrs.__file__).parents[3] / "shared" / "traces"
    places = [beside, Path(os.environ.get("DFRS_TRACES", checkout))]
    for place in places:
        if (path := (place / name).absolute()).is_file():
            return path
    looked = " and ".join(str(place) for place in places)
    raise InputError(f"{name}: there is no such file (looked in {looked}; DFRS_TRACES says where traces are)")


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

    def cases(self) -> tuple[online.Case, ...]:
        """Seeds in the slow, loads in the fast loop."""
        loads: Sequence[float | None] = self.loads or (None,)
        every = (
            online.LublinTrace(
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
            self._path = find_trace(self.file, _directory(context))
        except InputError as error:
            raise ValueError(str(error)) from None
        if not self.name:
            object.__setattr__(self, "name", online.stem(Path(self.file)))

    def cases(self) -> tuple[online.Case, ...]:
        """Weeks in the slow loop, then seeds, then loads. Raises InputError where the file cannot be read."""
        digest = file_digest(self._path)
        weeks: Sequence[int | None] = self.weeks or (None,)
        loads: Sequence[float | None] = self.loads or (None,)
        first, end = map(int, self.jobs.split(":")) if self.jobs else (None, None)
        return tuple(
            online.TracePart(
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


class ServicesSource(Strict):
    """Random instances as those of 000 section 4.3, every combination of the settings with every seed."""

    model: Literal["services"] = "services"
    name: str = "services"
    nodes: Counts = (64,)
    services: Counts
    dims: Counts = (2,)
    slack: Parts
    sigma: Parts = (0.5,)
    rho: Parts = (0.0,)
    seeds: Numbers

    def cases(self) -> tuple[offline.Case, ...]:
        """Nodes in the slowest loop, seeds in the fastest. Raises InputError for a scenario that is none."""
        settings = product(self.nodes, self.services, self.dims, self.slack, self.sigma, self.rho)
        scenarios = [
            Scenario(nodes=nodes, services=services, dims=dims, slack=slack, sigma=sigma, rho=rho)
            for nodes, services, dims, slack, sigma, rho in settings
        ]
        return tuple(offline.Case(scenario=scenario, seed=seed) for scenario in scenarios for seed in self.seeds)


class DissertationSource(Strict):
    """The `first` instances of the sets of 000: `large` (section 4.3: 64 nodes) or `small` (4.4.6: 4 nodes).

    Instances have the seeds of the whole set. Slack varies fastest, then services and resources: a multiple of their
    combinations has each equally often.
    """

    model: Literal["000"] = "000"
    name: str = "000"
    set: Literal["large", "small"]
    first: Count
    services: Counts | None = None
    """Only instances with so many."""

    def cases(self) -> tuple[offline.Case, ...]:
        """All scenarios once before any twice."""
        small = self.set == "small"
        whole = list(dissertation_scenarios(4 if small else 64, SMALL_SERVICES if small else LARGE_SERVICES))
        kept = [k for k, s in enumerate(whole) if self.services is None or s.services in self.services]
        if not kept:
            raise InputError(f"services = {list(self.services or ())}: the set has none of these")
        at_most(self.first, 100 * len(kept))
        kept.sort(key=lambda k: (whole[k].rho, whole[k].sigma, whole[k].dims, whole[k].services, whole[k].slack))
        return tuple(
            offline.Case(scenario=whole[kept[k]], seed=dissertation_sample(kept[k], sample))
            for k, sample in spread(len(kept), self.first)
        )


class VirtualClusterSource(Strict):
    """The `first` instances of the sets of 001 sections 4.1 and 5.2 (`parallel`). Slack varies fastest, then tasks."""

    model: Literal["001"] = "001"
    name: str = "001"
    set: Literal["large", "small"]
    first: Count
    parallel: bool = False

    def cases(self) -> tuple[offline.Case, ...]:
        """All settings once before any twice; the whole set has 10 samples a setting if small, 100 if large."""
        large = self.set == "large"
        whole = list(virtual_cluster_scenarios(large=large, parallel=self.parallel))
        order = sorted(
            range(len(whole)),
            key=lambda k: (whole[k].memory_cov, whole[k].cpu_cov, whole[k].tasks, whole[k].slack),
        )
        samples = 100 if large else 10
        at_most(self.first, samples * len(whole))
        return tuple(
            offline.Case(scenario=whole[order[k]], seed=order[k] * samples + sample)
            for k, sample in spread(len(whole), self.first)
        )


class InstanceFiles(Strict):
    """Instance files."""

    model: Literal["files"] = "files"
    name: str = "files"
    files: Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(different)]
    _paths: tuple[Path, ...] = PrivateAttr(default=())
    """Where they were found."""

    def model_post_init(self, context: object, /) -> None:
        """Find the files, relative to the campaign's directory."""
        self._paths = tuple((_directory(context) / name).absolute() for name in self.files)

    def cases(self) -> tuple[offline.FileCase, ...]:
        """In the order given. Raises InputError where one cannot be read."""
        return tuple(offline.FileCase(path=path, digest=file_digest(path)) for path in self._paths)


Workloads = Annotated[LublinSource | TraceSource | CwfSource, Field(discriminator="model")]
Instances = Annotated[
    ServicesSource | DissertationSource | VirtualClusterSource | InstanceFiles, Field(discriminator="model")
]
SOURCES = (
    LublinSource,
    TraceSource,
    CwfSource,
    ServicesSource,
    DissertationSource,
    VirtualClusterSource,
    InstanceFiles,
    NeedsSource,
    FarmSource,
    HeteroSource,
)
Source = (
    LublinSource
    | TraceSource
    | CwfSource
    | ServicesSource
    | DissertationSource
    | VirtualClusterSource
    | InstanceFiles
    | NeedsSource
    | FarmSource
    | HeteroSource
)


def _directory(context: object) -> Path:
    """Of the campaign's file; the present one where there is none."""
    return Path(context["directory"]) if isinstance(context, dict) else Path()
