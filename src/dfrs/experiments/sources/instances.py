"""Instances for off-line algorithms: random ones, published sets, files; and their tables in a campaign file.

A sample of a set, the `first` of its instances, is contained in every larger one.
"""

from dataclasses import dataclass, field, fields
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PrivateAttr

from dfrs.experiments.fields import Count, Counts, Numbers, Parts, Strict, at_most, different, spread
from dfrs.experiments.files import check_digest, directory_of, file_digest
from dfrs.experiments.planned_runs import Row
from dfrs.model.errors import InputError
from dfrs.model.instance import Instance
from dfrs.workloads.files import read_instance
from dfrs.workloads.services import (
    LARGE_SERVICES,
    SMALL_SERVICES,
    ServiceScenario,
    VirtualClusterScenario,
    dissertation_instance,
    dissertation_sample,
    dissertation_scenarios,
    virtual_cluster_instance,
    virtual_cluster_scenarios,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomInstance:
    """A random instance: the parameters of its generator, and its seed."""

    parameters: ServiceScenario | VirtualClusterScenario
    seed: int

    @property
    def name(self) -> str:
        """Says all of it."""
        said = " ".join(f"{f.name}={_short(getattr(self.parameters, f.name))}" for f in fields(self.parameters))
        which = "services" if isinstance(self.parameters, ServiceScenario) else "virtual-clusters"
        return f"{which}-{self.seed} {said}"

    def instance(self) -> Instance:
        """Generate it."""
        if isinstance(self.parameters, ServiceScenario):
            return dissertation_instance(self.parameters, self.seed)
        return virtual_cluster_instance(self.parameters, self.seed)

    def columns(self) -> Row:
        """What names it in the results."""
        s = self.parameters
        if isinstance(s, ServiceScenario):
            own: Row = {"services": s.services, "dims": s.dims, "sigma": s.sigma, "rho": s.rho, "parallel": False}
        else:
            own = {
                "services": s.tasks,
                "dims": 2,
                "memory_cov": s.memory_cov,
                "cpu_cov": s.cpu_cov,
                "parallel": s.parallel,
            }
        return {"nodes": s.nodes, "slack": s.slack, "seed": self.seed} | own


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceFile:
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


def _short(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)


class ServicesSource(Strict):
    """Random instances as those of [Stillwell2010] section 4.3, every combination of the settings with every seed."""

    model: Literal["services"] = "services"
    name: str = "services"
    nodes: Counts = (64,)
    services: Counts
    dims: Counts = (2,)
    slack: Parts
    sigma: Parts = (0.5,)
    rho: Parts = (0.0,)
    seeds: Numbers

    def scenarios(self) -> tuple[RandomInstance, ...]:
        """Nodes in the slowest loop, seeds in the fastest. Raises InputError for a scenario that is none."""
        settings = product(self.nodes, self.services, self.dims, self.slack, self.sigma, self.rho)
        parameters = [
            ServiceScenario(nodes=nodes, services=services, dims=dims, slack=slack, sigma=sigma, rho=rho)
            for nodes, services, dims, slack, sigma, rho in settings
        ]
        return tuple(RandomInstance(parameters=each, seed=seed) for each in parameters for seed in self.seeds)


class DissertationSource(Strict):
    """The `first` instances of the sets of [Stillwell2010]: `large` (4.3: 64 nodes) or `small` (4.4.6: 4 nodes).

    Instances have the seeds of the whole set. Slack varies fastest, then services and resources: a multiple of their
    combinations has each equally often.
    """

    model: Literal["000"] = "000"
    name: str = "000"
    set: Literal["large", "small"]
    first: Count
    services: Counts | None = None
    """Only instances with so many."""

    def scenarios(self) -> tuple[RandomInstance, ...]:
        """All scenarios once before any twice."""
        small = self.set == "small"
        whole = list(dissertation_scenarios(4 if small else 64, SMALL_SERVICES if small else LARGE_SERVICES))
        kept = [k for k, s in enumerate(whole) if self.services is None or s.services in self.services]
        if not kept:
            raise InputError(f"services = {list(self.services or ())}: the set has none of these")
        at_most(self.first, 100 * len(kept))
        kept.sort(key=lambda k: (whole[k].rho, whole[k].sigma, whole[k].dims, whole[k].services, whole[k].slack))
        return tuple(
            RandomInstance(parameters=whole[kept[k]], seed=dissertation_sample(kept[k], sample))
            for k, sample in spread(len(kept), self.first)
        )


class VirtualClusterSource(Strict):
    """The `first` instances of the sets of [Stillwell2008] sections 4.1 and 5.2 (`parallel`).

    Slack varies fastest, then the number of tasks.
    """

    model: Literal["001"] = "001"
    name: str = "001"
    set: Literal["large", "small"]
    first: Count
    parallel: bool = False

    def scenarios(self) -> tuple[RandomInstance, ...]:
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
            RandomInstance(parameters=whole[order[k]], seed=order[k] * samples + sample)
            for k, sample in spread(len(whole), self.first)
        )


class InstanceFilesSource(Strict):
    """Instance files."""

    model: Literal["files"] = "files"
    name: str = "files"
    files: Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(different)]
    _paths: tuple[Path, ...] = PrivateAttr(default=())
    """Where they were found."""

    def model_post_init(self, context: object, /) -> None:
        """Find the files, relative to the campaign's directory."""
        self._paths = tuple((directory_of(context) / name).absolute() for name in self.files)

    def scenarios(self) -> tuple[InstanceFile, ...]:
        """In the order given. Raises InputError where one cannot be read."""
        return tuple(InstanceFile(path=path, digest=file_digest(path)) for path in self._paths)


Instances = Annotated[
    ServicesSource | DissertationSource | VirtualClusterSource | InstanceFilesSource, Field(discriminator="model")
]
