"""Discovery of needs on shared nodes, second by second, in campaigns ([Stillwell2010] section 7.3).

A study in a campaign file has `scenes` and `methods`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import polars as pl
from pydantic import AfterValidator, BeforeValidator, Field

from dfrs.experiments.experiment import Experiment, StudyModel, combined, unusual
from dfrs.experiments.fields import LARGEST, Count, Limit, Numbers, Seconds, Several, Strict, known_policy, named
from dfrs.experiments.planned_runs import PolicyConfiguration, Row, RunKind, Schema
from dfrs.model.errors import DfrsError
from dfrs.model.needs import Discovery
from dfrs.policies.discovery.methods import find_discovery
from dfrs.policies.names import find_policy
from dfrs.simulator.discovery import Costs, Oracle, Scene, share, traces

ORACLE = "ORACLE"
"""The method that knows the needs."""
MEMORY = 0.25
"""Of a task, so that at most four are on a node ([Stillwell2010] section 7.3)."""

SCHEMA: Schema = {
    "seed": pl.Int64,
    "nodes": pl.Int64,
    "tasks": pl.Int64,
    "hogs": pl.Int64,
    "seconds": pl.Int64,
    "change_s": pl.Float64,
    "method": pl.String,
    "policy": pl.String,
    "migration_s": pl.Int64,
    "stop_s": pl.Int64,
    "noise": pl.Float64,
    "average_minimum_yield": pl.Float64,
    "minimum_average_yield": pl.Float64,
    "estimate_error": pl.Float64,
    "migrations": pl.Int64,
    "told": pl.Int64,
}
"""The two yields are those of [Stillwell2010] 7.4; `estimate_error` is the mean distance of estimates from true needs;
`told` is how often the policy was told needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryScenario:
    """Trace `seed`: `tasks` on each node with needs that change after `change_s` on average, and hogs that need 1."""

    seed: int
    nodes: int = 4
    tasks: int = 3
    hogs: int = 0
    seconds: int = 43_200
    change_s: float = 1_200.0

    @property
    def name(self) -> str:
        """Says all of it."""
        return (
            f"needs-{self.seed} nodes={self.nodes} tasks={self.tasks} hogs={self.hogs} seconds={self.seconds} "
            f"change_s={self.change_s:.12g}"
        )

    def scene(self) -> Scene:
        """Generate it; each hog starts on a node of its own."""
        rng = np.random.default_rng(int.from_bytes(sha256(self.name.encode()).digest()[:6]))
        need = traces(rng, self.nodes * self.tasks, self.seconds, self.change_s, self.hogs)
        node = np.concatenate([np.repeat(np.arange(self.nodes), self.tasks), np.arange(self.hogs) % self.nodes])
        return Scene(capacity=np.ones(self.nodes), node=node, need=need, memory=np.full(len(node), MEMORY))

    def columns(self) -> Row:
        """What names it in the results."""
        return {
            "seed": self.seed,
            "nodes": self.nodes,
            "tasks": self.tasks,
            "hogs": self.hogs,
            "seconds": self.seconds,
            "change_s": self.change_s,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryConfiguration(PolicyConfiguration):
    """A method, the policy that migrates (none: nobody does), and what the host does."""

    label: str
    method: str
    policy: str = ""
    migration_s: int = 10
    stop_s: int = 1
    noise: float = 0.0

    @property
    def name(self) -> str:
        """All of it."""
        told = f"{self.method} | policy={self.policy} migration_s={self.migration_s} stop_s={self.stop_s}"
        return told + (f" noise={self.noise:.12g}" if self.noise else "") + self.code_in_name

    def columns(self) -> Row:
        """What names it in the results."""
        return {
            "method": self.method,
            "policy": self.policy,
            "migration_s": self.migration_s,
            "stop_s": self.stop_s,
            "noise": self.noise,
        }


def run(scene: Scene, configuration: DiscoveryConfiguration, seed: int, save_in: Path | None) -> Row:
    """Drive the method over the scene."""
    del save_in  # a run is its numbers: there is no log to save
    method: Discovery = (
        Oracle(need=scene.need) if configuration.method == ORACLE else find_discovery(configuration.method)
    )
    policy = find_policy(configuration.policy) if configuration.policy else None
    costs = Costs(
        migration_s=configuration.migration_s, stop_s=configuration.stop_s, noise=configuration.noise, seed=seed
    )
    found = share(scene, method, policy, costs)
    return {
        "status": "complete",
        "average_minimum_yield": found.average_minimum,
        "minimum_average_yield": found.minimum_average,
        "estimate_error": float(found.error.mean()),
        "migrations": found.migrations,
        "told": found.told,
    }


@lru_cache(maxsize=2)
def prepare(scenario: DiscoveryScenario) -> Scene:
    """The scenario's scene."""
    return scenario.scene()


def warm(configuration: DiscoveryConfiguration) -> None:
    """Run the configuration for some minutes."""
    run(prepare(DiscoveryScenario(seed=0, seconds=600)), configuration, 0, None)


DISCOVERY = RunKind(
    name="needs",
    schema=SCHEMA,
    code=("placement", "kernels", "model", "policies", "simulator/discovery.py", "experiments/kinds/discovery.py"),
    prepare=prepare,
    run=run,
    warm=warm,
    saves=False,
)


def _method(name: str) -> str:
    try:
        if name != ORACLE:
            find_discovery(name)
    except DfrsError as error:
        raise ValueError(str(error)) from None
    return name


def _policy(name: str) -> str:
    return known_policy(name) if name else name


class DiscoverySource(Strict):
    """Traces as those of [Stillwell2010] section 7.3, one for each seed."""

    model: Literal["needs"] = "needs"
    name: str = "needs"
    nodes: Count = 4
    tasks: Count = 3
    hogs: int = Field(default=0, ge=0, le=LARGEST)
    seconds: Count = 43_200
    change_s: float = Field(default=1_200.0, gt=0, allow_inf_nan=False)
    seeds: Numbers

    def scenarios(self) -> tuple[DiscoveryScenario, ...]:
        """In the order of the seeds."""
        own = self.model_dump(exclude={"model", "name", "seeds"})
        return tuple(DiscoveryScenario(seed=seed, **own) for seed in self.seeds)


class DiscoverySettings(Strict):
    """Of all methods of a study that do not have their own."""

    migration_s: Several[Limit] = (10,)
    stop_s: Several[Limit] = (1,)
    noise: Several[Seconds] = (0.0,)


class MethodSpec(Strict):
    """A method, and the policy that migrates."""

    method: Annotated[str, AfterValidator(_method)]
    label: str | None = None
    policy: Annotated[str, AfterValidator(_policy)] | None = None
    migration_s: Limit | None = None
    stop_s: Limit | None = None
    noise: Seconds | None = None

    def labelled(self) -> dict[str, Any]:
        """What it says, with a label."""
        return {"label": self.method} | self.model_dump(exclude_none=True)


class DiscoveryStudy(StudyModel):
    """Every scene under every method."""

    scenes: Annotated[tuple[DiscoverySource, ...], Field(min_length=1)]
    methods: Annotated[tuple[Annotated[MethodSpec, BeforeValidator(named("method"))], ...], Field(min_length=1)]
    settings: DiscoverySettings = DiscoverySettings()


def _configurations(study: DiscoveryStudy) -> Iterator[DiscoveryConfiguration]:
    return (
        DiscoveryConfiguration(**table)
        for table in combined((table.labelled() for table in study.methods), study.settings)
    )


def _unusual_settings(configuration: DiscoveryConfiguration) -> dict[str, object]:
    return unusual(configuration, DiscoveryConfiguration(label=configuration.label, method=configuration.method))


EXPERIMENT = Experiment(
    kind=DISCOVERY,
    configuration=DiscoveryConfiguration,
    study=DiscoveryStudy,
    sources="scenes",
    configurations="methods",
    named_by="method",
    build=_configurations,
    unusual_settings=_unusual_settings,
    metrics=("average_minimum_yield", "minimum_average_yield", "estimate_error", "migrations"),
    x_columns=("hogs",),
)
