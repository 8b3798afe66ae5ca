"""What is said of nodes and tasks, whoever says it: an agent over its connection, or another engine that runs jobs."""

from typing import Annotated, Literal

from pydantic import Field

from dfrs.live.drivers.base import DriverAbilities, ResourceCounts, TaskId, Wire

PROBLEM_CHARS = 1000

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
Name = Annotated[str, Field(pattern=NAME)]
MOST_FEATURES = 64
"""Of a node."""
FEATURE = r"^[A-Za-z0-9][A-Za-z0-9._:=+-]{0,62}$"
Feature = Annotated[str, Field(pattern=FEATURE)]
"""Of a node: what its operator says of it, such as `avx512` or `rack:a`."""
Seconds = Annotated[float, Field(ge=0, le=1e15)]
Cores = Annotated[float, Field(ge=0, le=1e15)]
Bytes = Annotated[int, Field(ge=0, le=1 << 60)]
Version = Annotated[int, Field(ge=0, lt=1 << 63)]


class NodeFacts(Wire):
    """What is known of a node, and recorded. A backend may record more: by a class of its own that has these fields."""

    node: Name
    host: Name
    """Nodes of one host can hand tasks to each other."""
    boot: str = Field(default="", max_length=255)
    """Another one than before: all processes of the host have ended since, and what it knew of them may be gone."""
    address: str = Field(max_length=255)
    """Under which tasks on other nodes reach this one."""
    cpus: float = Field(gt=0, le=65536)
    memory_bytes: int = Field(gt=0, le=1 << 60)
    abilities: DriverAbilities
    resources: ResourceCounts = Field(default_factory=dict)
    """How many of each named resource it has."""
    problem: str = Field(default="", max_length=PROBLEM_CHARS)
    """Why it is to get no jobs, in words; empty if it may."""
    version: str
    features: tuple[Feature, ...] = Field(default=(), max_length=MOST_FEATURES)

    @property
    def ways(self) -> frozenset[object]:
        """How tasks come to it and leave it: nodes that have one in common exchange tasks that have started."""
        return frozenset({self.host}) if self.abilities.moves_on_host else frozenset()


CostVerb = Literal["pause", "resume", "move"]


class Cost(Wire):
    """How long the last pause, resume or move of a task took. It may be told again and again."""

    verb: CostVerb
    version: Version
    """Of the desired state for which that was done."""
    seconds: Seconds


class Sample(Wire):
    """One task's use over one second or so. Counters as in `drivers.base.Usage`."""

    task: TaskId
    cpu_s: Seconds
    memory_bytes: Bytes
    swap_bytes: Bytes | None = None
    read_bytes: Bytes | None = None
    written_bytes: Bytes | None = None
    throttled_s: Seconds | None = None
    waiting_s: Seconds | None = None
    watched_s: Seconds | None = None
    delayed_s: Seconds | None = None


class HostUse(Wire):
    """What the CPUs of a node have done since its host started, for tasks and for all else, in CPU seconds."""

    cpus: tuple[Annotated[int, Field(ge=0, lt=65536)], ...] = Field(max_length=65536)
    """Their numbers: nodes of a host may have the same ones."""
    busy_s: Seconds
    steal_s: Seconds
    """Wanted by this host, and given to another virtual machine."""
