"""What is measured of programs on a heterogeneous cluster: how fast each runs on a sub-cluster, and streams of jobs.

Measurements are brought by other packages, each under a name of its own in the entry-point group `dfrs.programs`:

    [project.entry-points."dfrs.programs"]
    arrive-f = "dfrs_reproduction.atif2011.programs:PROGRAMS"

Campaign files and commands then find them by that name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Protocol

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.hardware import Hardware
from dfrs.model.instance import Floats

GROUP = "dfrs.programs"
USUAL = "arrive-f"
"""What campaign files and commands mean where they name no measurements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamJob:
    """One job of a stream, which runs a program that measurements know."""

    job: int
    """Number in the stream."""
    arrival_s: float
    name: str
    """Of its program."""
    processes: int
    expected_s: float
    """The user's estimate: its time on the sub-cluster that times are relative to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What was published of a stream's run with migrations; seconds of the base run, and of the other."""

    throughput_percent: float
    wait_s: tuple[float, float]
    turnaround_s: tuple[float, float]
    total_s: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Jobs, the sub-clusters that they do not get, and what was published of it."""

    jobs: Sequence[StreamJob]
    without: str = ""
    published: Published | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Program:
    """A program on C sub-clusters; axes of 2 are (spread, co-located)."""

    name: str
    processes: int
    memory_bytes: int
    """Of a process."""
    times: Floats
    """(C, 2) relative to the expected time. Co-location that a machine has too few nodes for is never asked for."""
    predicted: Floats
    """(C, 2, C, 2) speeds that a profile predicts, taken on a sub-cluster, spread or co-located."""
    thrash: float
    """By how much it is slower where it has not the memory it needs."""


class Programs(Protocol):
    """Measurements of programs on a heterogeneous cluster."""

    @property
    def farm(self) -> Hardware:
        """The cluster."""
        ...

    @property
    def order(self) -> str:
        """Its sub-clusters, in the order in which nodes for a job are looked for."""
        ...

    @property
    def thrash(self) -> float:
        """As `Program.thrash`, of a program of which nothing else is known."""
        ...

    @property
    def streams(self) -> range:
        """Numbers of its streams."""
        ...

    def stream(self, number: int, *, printed: bool = False) -> Stream:
        """A stream, with names put right unless they shall be as `printed`. Raises InputError for another number."""
        ...

    def processes(self, name: str) -> int:
        """Of the program with this name. Raises InputError that says how names are made."""
        ...

    def program(self, name: str, clusters: tuple[str, ...]) -> Program:
        """What is known of a program on these sub-clusters. Raises InputError where nothing is."""
        ...

    def draw(self, size: int, rng: np.random.Generator) -> str:
        """The name of a random program of about `size` processes."""
        ...


def find_programs(name: str) -> Programs:
    """The measurements of that name. Raises InputError with the names that there are, or what to install."""
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in found:
        told = (
            f"there are {', '.join(sorted(found))}" if found else "in a checkout of dfrs, pip install -e reproduction"
        )
        raise InputError(f'programs = "{name}": there are no such measurements installed: {told}')
    return found[name].load()


def check_order(order: str, programs: Programs) -> None:
    """Raises InputError where it does not name each sub-cluster once."""
    if sorted(order) != sorted(cluster.name for cluster in programs.farm.partitions):
        raise InputError(f'order "{order}": must name each sub-cluster once, as {programs.order}')
