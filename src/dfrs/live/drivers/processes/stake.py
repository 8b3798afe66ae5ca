"""What a task has of its node while it is there, as its own record says it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from dfrs.live.drivers.base import TaskSpec

Numbers = Mapping[str, tuple[int, ...]]
"""Which of each named resource, numbered from 0 on each node."""
NO_NUMBERS: Numbers = MappingProxyType({})
NO_RESOURCES: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Stake:
    """Of one task."""

    memory_bytes: int
    alone: bool = False
    """Whether no task of another job may be there meanwhile."""
    numbers: Numbers = field(default_factory=lambda: NO_NUMBERS)


def stake_entries(spec: TaskSpec, numbers: Numbers) -> list[tuple[str, str]]:
    """What the record of a task says of it, and what its program is told by its environment."""
    entries = [("exclusive", "1")] if spec.exclusive else []
    if numbers:
        entries.append(("resources", " ".join(f"{name}={_listed(which)}" for name, which in numbers.items())))
    for name, which in numbers.items():
        entries.append(("environment", f"DFRS_RESOURCE_{name.upper().replace('-', '_')}={_listed(which)}"))
        if name == "gpu":
            entries.append(("environment", f"CUDA_VISIBLE_DEVICES={_listed(which)}"))
    return entries


def stake_of(entries: Mapping[str, str]) -> Stake:
    """That of a task with such a record; one of an earlier version has no more than memory."""
    pairs = (word.partition("=") for word in entries.get("resources", "").split())
    numbers = {name: tuple(map(int, which.split(","))) for name, _, which in pairs}
    memory_bytes = int(entries.get("memory_bytes", "0"))
    return Stake(memory_bytes=memory_bytes, alone=entries.get("exclusive") == "1", numbers=numbers)


def _listed(which: tuple[int, ...]) -> str:
    return ",".join(map(str, which))
