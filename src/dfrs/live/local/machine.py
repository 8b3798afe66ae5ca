"""This machine as the nodes of a small cluster: who owns which CPUs and how much memory."""

from collections.abc import Sequence
from dataclasses import dataclass

from dfrs.live.agent.capacity import HostCapacity
from dfrs.model.errors import InputError

LEAST_MEMORY_BYTES = 64 << 20
"""Of a node: less runs nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one node gets of the machine."""

    name: str
    capacity: HostCapacity


def partition(machine: HostCapacity, names: Sequence[str], memory_bytes: int | None = None) -> list[Part]:
    """Nodes of about equal size. Each owns CPUs where there are enough, and else has a quota of the time of all.

    `memory_bytes` is that of each node; None: an equal part. Raises InputError where there is not enough memory.
    """
    count, cpus = len(names), len(machine.cpus)
    each = (machine.memory_bytes // count) >> 20 << 20 if memory_bytes is None else memory_bytes
    if each < LEAST_MEMORY_BYTES or each * count > machine.memory_bytes:
        said = "--nodes" if memory_bytes is None else "--memory-per-node"
        raise InputError(
            f"{said}: {count} nodes of {each >> 20} MiB: must be at least {LEAST_MEMORY_BYTES >> 20} MiB each, "
            f"and at most {machine.memory_bytes >> 20} MiB together"
        )
    parts: list[Part] = []
    for index, name in enumerate(names):
        owns = cpus >= count
        chosen = machine.cpus[index * cpus // count : (index + 1) * cpus // count] if owns else machine.cpus
        cores = machine.cores * (len(chosen) / cpus if owns else 1 / count)
        parts.append(Part(name=name, capacity=HostCapacity(cpus=chosen, cores=cores, memory_bytes=each)))
    return parts
