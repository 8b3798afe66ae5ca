"""Random clusters of virtual machines that run somewhere already: what ADAPT is measured on.

Three types of hosts, machines whose sizes are skewed, memory rigid and CPU fluid, and a present placement that fits in
memory but is unbalanced, as after weeks of arrivals that looked at memory only. The draws are NumPy's PCG64.
"""

from dataclasses import dataclass

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.instance import Floats, Instance, Ints
from dfrs.model.resources import Kind, Resource

GIB = float(2**30)
REFERENCE = (64.0, 512.0)
"""Cores and GiB of the reference node."""
HOSTS = ((32.0, 128.0), (64.0, 256.0), (64.0, 512.0))
"""Cores and GiB of the types of hosts."""
SHARES = (0.4, 0.4, 0.2)
SPREAD = (0.9, 0.5)
"""Standard deviations of the logarithms of a machine's memory, and of its CPU need for that memory."""
LARGEST = 0.5
"""A machine takes at most this part of the smallest host."""
SCALABLE = 0.8
"""Of what all machines take if they are as large as they may be, at most this part is asked for."""
SCALINGS = 40
TRIES = 50
"""Hosts that are drawn for a machine before it goes to the one with most memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineScenario:
    """N hosts and M machines; `memory` and `cpu` are requirements and needs over what all hosts have.

    `imbalance` is the standard deviation of the logarithm of how much a host attracts: 0 is none.
    """

    nodes: int
    machines: int
    memory: float = 0.75
    cpu: float = 1.2
    imbalance: float = 0.5

    def __post_init__(self) -> None:
        rules = {
            "nodes": (self.nodes, self.nodes >= 1, "at least 1"),
            "machines": (self.machines, self.machines >= 1, "at least 1"),
            "memory": (self.memory, 0.0 < self.memory <= 0.95, "above 0 and at most 0.95"),
            "cpu": (self.cpu, 0.0 < self.cpu <= 100.0, "above 0 and at most 100"),
            "imbalance": (self.imbalance, 0.0 <= self.imbalance <= 10.0, "in [0, 10]"),
        }
        for name, (value, holds, rule) in rules.items():
            if not holds:
                raise InputError(f"{name} = {value:g}: must be {rule}")


def machine_instance(scenario: MachineScenario, seed: int) -> tuple[Instance, Ints]:
    """A cluster of `scenario`, and where its machines run now (M,).

    No machine is larger than half of the smallest host; the others are scaled to the shares asked for. Raises
    InputError where the machines do not fit in memory, or cannot be so small: ask for less, or for more machines.
    """
    rng = np.random.default_rng(seed)
    kind = rng.choice(len(HOSTS), scenario.nodes, p=SHARES)
    capacity = (np.array(HOSTS) / REFERENCE)[kind]
    memory = np.exp(SPREAD[0] * rng.standard_normal(scenario.machines))
    cpu = memory * np.exp(SPREAD[1] * rng.standard_normal(scenario.machines))
    smallest = LARGEST * (np.array(HOSTS) / REFERENCE).min(axis=0)
    need = np.empty((scenario.machines, 2))
    for d, (size, share) in enumerate(((cpu, scenario.cpu), (memory, scenario.memory))):
        need[:, d] = _scaled(size, share * capacity[:, d].sum(), smallest[d])
    instance = Instance(
        name=f"machines-n{scenario.nodes}-m{scenario.machines}-memory{scenario.memory:g}-cpu{scenario.cpu:g}"
        f"-imbalance{scenario.imbalance:g}-seed{seed}",
        resources=(
            Resource(name="cpu", kind=Kind.FLUID),
            Resource(name="memory", kind=Kind.RIGID, bytes_per_node=REFERENCE[1] * GIB),
        ),
        nodes=tuple(f"h{n}" for n in range(scenario.nodes)),
        capacity=capacity,
        services=tuple(f"m{i}" for i in range(scenario.machines)),
        minimum_yield=np.zeros(scenario.machines),
        service_of=np.arange(scenario.machines),
        need=need,
        rigid=np.broadcast_to(np.array([False, True]), need.shape),
        move_cost=np.ones(scenario.machines),
    )
    return instance, _placed(need[:, 1], capacity[:, 1], scenario.imbalance, rng)


def _scaled(size: Floats, total: float, largest: float) -> Floats:
    """`size` times a factor, cut at `largest`, that add up to `total`."""
    if total > SCALABLE * largest * len(size):
        raise InputError(f"machines = {len(size)}: too few for what they are to take of these hosts; must be more")
    factor = total / size.sum()
    for _ in range(SCALINGS):
        factor *= total / np.minimum(size * factor, largest).sum()
    return np.minimum(size * factor, largest)


def _placed(memory: Floats, room: Floats, imbalance: float, rng: np.random.Generator) -> Ints:
    """(M,) a host with memory for each machine, large ones first, drawn by how much hosts have and attract."""
    attraction = room * np.exp(imbalance * rng.standard_normal(len(room)))
    until = np.cumsum(attraction / attraction.sum())
    free = room.tolist()
    place = np.empty(len(memory), dtype=np.int64)
    order = np.argsort(-memory, kind="stable")
    drawn = np.minimum(np.searchsorted(until, rng.random((len(memory), TRIES))), len(room) - 1).tolist()
    for i, size, hosts in zip(order.tolist(), memory[order].tolist(), drawn, strict=True):
        n = next((n for n in hosts if free[n] >= size), None)
        if n is None:
            n = int(np.argmax(free))
            if free[n] < size:
                raise InputError(f"machines: number {i} fits in no host's memory; lower memory, or add machines")
        free[n] -= size
        place[i] = n
    return place
