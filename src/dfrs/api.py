"""The library's front door: the same names as the command line's verbs."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dfrs.kernels.compiling import compilation
from dfrs.model.allocation import Outcome
from dfrs.model.decisions import Policy
from dfrs.model.errors import InfeasibleError
from dfrs.model.instance import Floats, Instance, Ints
from dfrs.model.jobs import Workload
from dfrs.model.nodes import NodeChange
from dfrs.model.run import Penalty, Run
from dfrs.placement.bounds import upper_bound
from dfrs.placement.outcome import infeasible
from dfrs.placement.registry import Options, find
from dfrs.placement.rule_report import under_rules
from dfrs.placement.second_phase import SecondPhase, maximize
from dfrs.simulator.clock import Order
from dfrs.simulator.limits import Pauses
from dfrs.workloads import files
from dfrs.workloads.load import load_workload
from dfrs.workloads.machines import MachineScenario, machine_instance
from dfrs.workloads.services import (
    ServiceScenario,
    VirtualClusterScenario,
    dissertation_instance,
    virtual_cluster_instance,
)


def allocate(
    instance: Instance,
    algorithm: str = "BEST",
    *,
    options: Options | None = None,
    second_phase: SecondPhase = "average",
    seed: int = 0,
) -> Outcome:
    """Place the services of `instance` by the named algorithm; see `dfrs algorithms` for the names.

    What is left after the minimum yield is handed out as `second_phase` says ("average", "average-lp", "max-min",
    "none"). Raises InputError for a name or option that does not exist; an instance without a solution is not an
    error: the outcome's status says so.
    """
    run = find(algorithm).build(options or Options())
    started_s = compilation.clock_s()
    try:
        upper_bound(instance)
        outcome = run(instance, np.random.default_rng(seed))
    except InfeasibleError as error:
        outcome = infeasible(error)
    if instance.rules is not None:
        outcome = under_rules(instance, outcome)
    if outcome.allocation is not None:
        outcome = outcome.with_allocation(maximize(instance, outcome.allocation, second_phase))
    return outcome.named(algorithm, compilation.clock_s() - started_s)


def read_instance(path: str | Path, *, nodes: int | None = None) -> Instance:
    """An instance from a JSON or CSV file; `nodes` equal nodes replace the file's. Raises InputError."""
    return files.read_instance(Path(path), nodes)


def generate_services(
    *,
    nodes: int = 64,
    services: int = 200,
    resources: int = 4,
    slack: float = 0.5,
    sigma: float = 0.5,
    rho: float = 0.25,
    qos: float = 0.5,
    seed: int = 0,
) -> Instance:
    """A random instance of [Stillwell2010] section 4.3: half of the resources rigid, half fluid. Raises InputError."""
    scenario = ServiceScenario(
        nodes=nodes, services=services, dims=resources, slack=slack, sigma=sigma, rho=rho, qos=qos
    )
    return dissertation_instance(scenario, seed)


def generate_virtual_clusters(
    *,
    nodes: int = 64,
    tasks: int = 250,
    slack: float = 0.5,
    memory_cov: float = 0.25,
    cpu_cov: float = 0.25,
    parallel: bool = False,
    seed: int = 0,
) -> Instance:
    """A random instance of [Stillwell2008] 4.1 (5.2 if parallel): memory rigid, CPU fluid. Raises InputError."""
    scenario = VirtualClusterScenario(
        nodes=nodes, tasks=tasks, slack=slack, memory_cov=memory_cov, cpu_cov=cpu_cov, parallel=parallel
    )
    return virtual_cluster_instance(scenario, seed)


def generate_machines(
    *,
    nodes: int = 200,
    machines: int = 5_000,
    memory: float = 0.75,
    cpu: float = 1.2,
    imbalance: float = 0.5,
    seed: int = 0,
) -> tuple[Instance, Ints]:
    """A random cluster of virtual machines, and the node of each now (M,): fits in memory, unbalanced in CPU.

    Raises InputError.
    """
    scenario = MachineScenario(nodes=nodes, machines=machines, memory=memory, cpu=cpu, imbalance=imbalance)
    return machine_instance(scenario, seed)


def read_workload(
    path: str | Path,
    *,
    nodes: int | None = None,
    annotate: str = "dfrs",
    estimates: str = "perfect",
    overrun: str = "keep",
    seed: int = 0,
) -> Workload:
    """A workload from an SWF or CWF file; see `dfrs.workloads.load.load_workload`, which also tells what was odd."""
    return load_workload(Path(path), nodes=nodes, annotate=annotate, estimates=estimates, overrun=overrun, seed=seed)[0]


def simulate(
    workload: Workload,
    policy: str | Policy = "GreedyPM*/per/OPT=MIN/MVT=600",
    *,
    penalty: float | Penalty = 300.0,
    capacity: Floats | None = None,
    order: Order = "completions-first",
    node_events: Sequence[tuple[float, NodeChange]] = (),
    command_limit: int | None = None,
    pauses: Pauses = "free",
    moves: str = "anywhere",
    hosts: Sequence[str] | None = None,
    seed: int = 0,
) -> Run:
    """Run `workload` under a policy: a name (see `dfrs policies`), or an object with `decide(snapshot) -> Target`.

    `penalty`: seconds without progress after a resume or a migration, or a model of them. `capacity` (N, 2): CPU and
    memory of each node, by default `workload.nodes` reference nodes. `pauses`: "free", or "keep" where the memory of
    paused jobs stays taken; `moves`: "anywhere", "none", "host" between nodes of equal `hosts` (N,), or "host:K".

    Raises InputError for a name that does not exist, `dfrs.simulator.simulation.PolicyStoppedError` (a DfrsError, with
    the log so far in `run`) where the policy does something that cannot be.
    """
    # All policies and the engine: who allocates needs neither.
    from dfrs.policies.names import find_policy  # noqa: PLC0415
    from dfrs.simulator.simulation import Simulation, SimulationSettings  # noqa: PLC0415

    settings = SimulationSettings(
        capacity=capacity,
        penalty=penalty if isinstance(penalty, Penalty) else Penalty(seconds=penalty),
        order=order,
        node_events=node_events,
        command_limit=command_limit,
        pauses=pauses,
        moves=moves,
        hosts=hosts,
        seed=seed,
    )
    if isinstance(policy, str):
        return Simulation(workload, find_policy(policy), policy, settings).run()
    return Simulation(workload, policy, type(policy).__name__, settings).run()


def read_run(path: str | Path) -> Run:
    """The run in a run directory, as `dfrs simulate` and exports of a live cluster write them. Raises InputError."""
    from dfrs.runs import directory  # noqa: PLC0415 - loads polars, which most of these functions do without

    return directory.read_run(Path(path))
