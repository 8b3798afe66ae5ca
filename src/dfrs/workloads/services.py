"""Generators of the documents' off-line instances: [Stillwell2010] 4.3 and [Stillwell2008] 4.1 and 5.2.

All draw from CPython's Mersenne Twister and its `normalvariate`, so an instance is a function of its
parameters and one integer seed, on every platform.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.instance import Instance
from dfrs.model.resources import Kind, Resource

SLACKS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
LARGE_SERVICES = (100, 200, 500)
SMALL_SERVICES = (8, 10, 12)

# Two-stage log-uniform number of tasks, "whole sample" parameters of the Lublin-Feitelson model.
_SERIAL, _POWER_OF_2 = 0.244, 0.576
_LOG2_LOW, _LOG2_MEDIUM, _STAGE = 0.8, 4.5, 0.86


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceScenario:
    """One of the settings of [Stillwell2010] section 4.3: N nodes, J services, D resources (half rigid, half fluid)."""

    nodes: int
    services: int
    dims: int
    slack: float
    sigma: float
    rho: float
    mu: float = 0.5
    qos: float = 0.5

    def __post_init__(self) -> None:
        rules = {
            "nodes": (self.nodes, self.nodes >= 1, "at least 1"),
            "services": (self.services, self.services >= 1, "at least 1"),
            "resources": (self.dims, self.dims >= 2 and self.dims % 2 == 0, "even and at least 2"),
            "slack": (self.slack, 0.0 <= self.slack < 1.0, "in [0, 1)"),
            "sigma": (self.sigma, 0.0 <= self.sigma <= 10.0, "in [0, 10]"),
            "rho": (self.rho, 0.0 <= self.rho <= 1.0, "in [0, 1]"),
            "qos": (self.qos, 0.0 <= self.qos <= 1.0, "in [0, 1]"),
            "mu": (self.mu, 0.01 <= self.mu <= 1.0, "in [0.01, 1]"),
        }
        for name, (value, holds, rule) in rules.items():
            if not holds:
                raise InputError(f"{name} = {value:g}: must be {rule}")


def dissertation_scenarios(nodes: int = 64, services: tuple[int, ...] = LARGE_SERVICES) -> Iterator[ServiceScenario]:
    """The 729 scenarios of [Stillwell2010] 4.3 (with 4 nodes and 8, 10, 12 services: those of 4.4.6), D outermost."""
    for dims, count, slack, sigma, rho in product((2, 4, 6), services, SLACKS, (0.25, 0.5, 1.0), (0.0, 0.25, 0.5)):
        yield ServiceScenario(nodes=nodes, services=count, dims=dims, slack=slack, sigma=sigma, rho=rho)


def dissertation_sample(scenario_index: int, sample: int, samples: int = 100, per_set: int = 243) -> int:
    """Seed of sample `sample` of scenario `scenario_index`: 0, 1, 2, … within the data set of one D."""
    return (scenario_index % per_set) * samples + sample


def dissertation_instance(scenario: ServiceScenario, seed: int) -> Instance:
    """One instance of `scenario` ([Stillwell2010] section 4.3).

    Per service: a QoS minimum with probability rho, then D/2 requirements and D/2 needs from Normal(mu, sigma),
    each redrawn while outside [0.01, 1]. Each rigid resource is scaled to leave exactly `slack` of the cluster
    free; values then above 1 are clipped, and all are rounded to three decimals.
    """
    rng = random.Random(seed)  # noqa: S311 - a workload repeats from its seed
    half = scenario.dims // 2
    minimum = np.zeros(scenario.services)
    need = np.empty((scenario.services, scenario.dims))
    for j in range(scenario.services):
        if rng.random() <= scenario.rho:
            minimum[j] = scenario.qos
        for d in range(scenario.dims):
            need[j, d] = _truncated_normal(rng, scenario.mu, scenario.sigma, 0.01)
    target = (1.0 - scenario.slack) * scenario.nodes
    for d in range(half):
        # Added one by one: from Python 3.12 on `sum` compensates, and the rounded values would differ.
        total = float(np.add.accumulate(need[:, d])[-1])
        need[:, d] = np.minimum(need[:, d] * (target / total), 1.0)
    need = np.array([[round(value, 3) for value in row] for row in need.tolist()])
    kinds = [Kind.RIGID] * half + [Kind.FLUID] * half
    return _instance(
        f"dissertation-n{scenario.nodes}-j{scenario.services}-d{scenario.dims}-slack{scenario.slack:g}"
        f"-sigma{scenario.sigma:g}-rho{scenario.rho:g}-seed{seed}",
        scenario.nodes,
        _resources(kinds),
        minimum,
        need,
        np.ones(scenario.services, dtype=np.int64),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualClusterScenario:
    """One of the settings of [Stillwell2008] section 4.1: H nodes, J tasks, memory rigid and CPU fluid."""

    nodes: int
    tasks: int
    slack: float
    memory_cov: float
    cpu_cov: float
    parallel: bool = False

    def __post_init__(self) -> None:
        rules = {
            "nodes": (self.nodes, self.nodes >= 1, "at least 1"),
            "tasks": (self.tasks, self.tasks >= 1, "at least 1"),
            "slack": (self.slack, 0.0 <= self.slack < 1.0, "in [0, 1)"),
            "memory-cov": (self.memory_cov, 0.0 <= self.memory_cov <= 10.0, "in [0, 10]"),
            "cpu-cov": (self.cpu_cov, 0.0 <= self.cpu_cov <= 10.0, "in [0, 10]"),
        }
        for name, (value, holds, rule) in rules.items():
            if not holds:
                raise InputError(f"{name} = {value:g}: must be {rule}")
        if self.nodes * (1.0 - self.slack) > self.tasks:
            raise InputError("slack: mean memory per task would be above 1; must leave nodes*(1 - slack) <= tasks")


def virtual_cluster_scenarios(*, large: bool, parallel: bool = False) -> Iterator[VirtualClusterScenario]:
    """The 144 small or 108 large settings of [Stillwell2008] 4.1 (10 and 100 instances each in the document)."""
    nodes, sizes = (64, (100, 250, 500)) if large else (4, (6, 8, 10, 12))
    for tasks, slack, memory_cov, cpu_cov in product(sizes, SLACKS, (0.25, 0.75), (0.25, 0.75)):
        yield VirtualClusterScenario(
            nodes=nodes, tasks=tasks, slack=slack, memory_cov=memory_cov, cpu_cov=cpu_cov, parallel=parallel
        )


def virtual_cluster_instance(scenario: VirtualClusterScenario, seed: int) -> Instance:
    """One instance of `scenario` ([Stillwell2008] section 4.1; 5.2 where parallel).

    Memory and CPU from normal distributions redrawn outside [0, 1], with means H(1 - slack)/J and 0.5; memory
    is then scaled to the exact slack ([Stillwell2010] states it for its own sets) and clipped at 1. A parallel job has
    1 to 64 tasks by the two-stage log-uniform model, and jobs are drawn until there are J tasks.
    """
    rng = random.Random(seed)  # noqa: S311 - as above
    sizes: list[int] = []
    while sum(sizes) < scenario.tasks:
        sizes.append(min(_parallel_tasks(rng), scenario.tasks - sum(sizes)) if scenario.parallel else 1)
    mean = scenario.nodes * (1.0 - scenario.slack) / scenario.tasks
    need = np.empty((len(sizes), 2))
    for j in range(len(sizes)):
        need[j, 0] = _truncated_normal(rng, mean, scenario.memory_cov * mean, 0.0)
        need[j, 1] = _truncated_normal(rng, 0.5, scenario.cpu_cov * 0.5, 0.0)
    total = float((need[:, 0] * sizes).sum())
    need[:, 0] = np.minimum(need[:, 0] * (scenario.nodes * (1.0 - scenario.slack) / total), 1.0)
    return _instance(
        f"virtual-clusters-n{scenario.nodes}-t{scenario.tasks}-slack{scenario.slack:g}-mem{scenario.memory_cov:g}"
        f"-cpu{scenario.cpu_cov:g}{'-parallel' if scenario.parallel else ''}-seed{seed}",
        scenario.nodes,
        (Resource(name="memory", kind=Kind.RIGID), Resource(name="cpu", kind=Kind.FLUID)),
        np.zeros(len(sizes)),
        need,
        np.array(sizes, dtype=np.int64),
    )


def _truncated_normal(rng: random.Random, mean: float, deviation: float, low: float) -> float:
    if deviation == 0.0:
        return min(max(mean, low), 1.0)
    while True:
        value = rng.normalvariate(mean, deviation)
        if low <= value <= 1.0:
            return value


def _parallel_tasks(rng: random.Random, largest: int = 64) -> int:
    u = rng.random()
    if u <= _SERIAL:
        return 1
    top = math.log2(largest)
    low, high = (_LOG2_LOW, _LOG2_MEDIUM) if rng.random() <= _STAGE else (_LOG2_MEDIUM, top)
    exponent = low + rng.random() * (high - low)
    if u <= _SERIAL + _POWER_OF_2:
        exponent = math.floor(exponent + 0.5)
    return math.floor(2.0**exponent + 0.5)


def _resources(kinds: list[Kind]) -> tuple[Resource, ...]:
    count = {Kind.RIGID: 0, Kind.FLUID: 0}
    named: list[Resource] = []
    usual = {Kind.RIGID: ("memory", "disk", "licenses"), Kind.FLUID: ("cpu", "network", "io")}
    for kind in kinds:
        names = usual[kind]
        k = count[kind]
        named.append(Resource(name=names[k] if k < len(names) else f"{kind}{k}", kind=kind))
        count[kind] += 1
    return tuple(named)


def _instance(
    name: str,
    nodes: int,
    resources: tuple[Resource, ...],
    minimum: np.ndarray,
    need: np.ndarray,
    tasks: np.ndarray,
) -> Instance:
    service_of = np.repeat(np.arange(len(tasks)), tasks)
    task_need = need[service_of]
    rigid = np.array([r.kind == Kind.RIGID for r in resources])
    return Instance(
        name=name,
        resources=resources,
        nodes=tuple(f"n{n}" for n in range(nodes)),
        capacity=np.ones((nodes, len(resources))),
        services=tuple(f"s{j}" for j in range(len(tasks))),
        minimum_yield=minimum,
        service_of=service_of,
        need=task_need,
        rigid=np.broadcast_to(rigid, task_need.shape),
        move_cost=np.ones(len(service_of)),
    )
