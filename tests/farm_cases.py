"""Farms, what is true of jobs on them, and policies that go everywhere on them."""

from collections.abc import Callable

import numpy as np

from dfrs.model.decisions import RUNNING, Placement, Snapshot, Target, Traits
from dfrs.model.hardware import Hardware, Partition
from dfrs.model.instance import Floats
from dfrs.model.jobs import Workload
from dfrs.model.true_speeds import TrueSpeeds
from dfrs.simulator.heterogeneous import HardwareSettings, hardware_capacity
from dfrs.simulator.simulation import SimulationSettings
from tests.online_cases import random_workload

MEGABYTE = 1 << 20
SHAPES = ((1, 2, 1024), (2, 2, 512), (3, 1, 1024))
"""(machines, cores, MB of a node): 9 nodes on 6 machines in 3 sub-clusters."""


def farm_of(shapes=SHAPES) -> Hardware:
    return Hardware(
        name="three",
        partitions=tuple(
            Partition(
                name="ABCDEFGH"[k],
                machines=machines,
                cores=cores,
                frequency_hz=2e9,
                cycles={},
                latency=None,
                node_memory_bytes=size * MEGABYTE,
                machine_memory_bytes=size * cores * MEGABYTE,
            )
            for k, (machines, cores, size) in enumerate(shapes)
        ),
    )


def random_truth(seed: int, jobs: int, farm: Hardware, **options: float) -> TrueSpeeds:
    """Rates of all sizes, some jobs thrash on small nodes."""
    rng = np.random.default_rng(seed + 7)
    rate = rng.choice([1.0, 0.9, 0.5, 1 / 3, 0.2], (jobs, len(farm.partitions), 2))
    rate[np.arange(jobs), rng.integers(len(farm.partitions), size=jobs), rng.integers(2, size=jobs)] = 1.0
    return TrueSpeeds.of(
        farm,
        rate,
        memory=rng.choice([0.0, 0.3, 0.5, 0.6, 0.75], jobs),
        thrash=rng.choice([1.0, 2.5, 12.5], jobs),
        **options,
    )


def farm_workload(seed: int, jobs: int = 30, nodes: int = 9) -> Workload:
    """No job has more tasks, or larger ones, than some sub-cluster has room for."""
    workload = random_workload(seed, jobs=jobs, nodes=3)
    return workload.with_columns(memory=np.minimum(workload.memory, 0.5))


def settings_of(truth: TrueSpeeds, farm: Hardware, **options: object) -> SimulationSettings:
    more = {name: options.pop(name) for name in ("prediction", "tau_s") if name in options}
    hardware = HardwareSettings(truth=truth, **more)
    return SimulationSettings(capacity=hardware_capacity(farm), hardware=hardware, **options)


class Clustered:
    """Jobs as they come, each within a sub-cluster, one task a node; at every wake some of them go elsewhere."""

    traits = Traits(clustered=True, exclusive=True)

    def __init__(self, period_s: float = 83.0, look: Callable[[Snapshot], None] | None = None) -> None:
        self.period_s, self.look = period_s, look

    def decide(self, snapshot: Snapshot, /) -> Target:
        view = snapshot.hardware
        if self.look is not None:
            self.look(snapshot)
        free = snapshot.open.copy()
        placed: dict[int, tuple[int, ...]] = {}
        jobs, turn = snapshot.jobs, int(snapshot.now_s) // 7
        moves = {r for r in range(len(jobs)) if (r + turn) % 3 == 0}
        for r in np.flatnonzero(jobs["state"] == RUNNING).tolist():
            if r not in moves:
                placed[r] = tuple(snapshot.task_nodes[snapshot.first[r] : snapshot.first[r + 1]].tolist())
                free[list(placed[r])] = False
        for r in range(len(jobs)):
            if r in placed:
                continue
            for c in range(view.partitions):
                room = view.nodes_of((c + turn + r) % view.partitions)
                room = room[free[room] & (snapshot.capacity[room, 1] >= jobs["memory"][r])]
                if len(room) >= jobs["tasks"][r]:
                    placed[r] = tuple(room[: int(jobs["tasks"][r])].tolist())
                    free[list(placed[r])] = False
                    break
        where = {int(jobs["id"][r]): Placement(nodes, 1.0) for r, nodes in placed.items()}
        return Target.of(snapshot, where, snapshot.now_s + self.period_s)


def exact(array: Floats) -> list[str]:
    return [repr(value) for value in array.reshape(-1).tolist()]
