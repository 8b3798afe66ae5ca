"""What simulated hardware does to jobs, which no policy is told: the measured rates in place of predicted ones.

[Atif2011] sections 7.4 and 8 compare predictions with what jobs really took; a simulation has both, and a saved run
carries what is true, so that its completions can be checked from the log.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.hardware import COLOCATED, SPREAD, Hardware
from dfrs.model.instance import Floats, Ints

STRETCH_S = 0.7
"""Seconds by which a job's wall clock grows for each process of a plan ([Atif2011]: T^M)."""
COPY_S = 10.0
"""Seconds that copying one process takes."""


class Placing(NamedTuple):
    """A row of a run's log that puts a job on nodes."""

    row: int
    job: int
    nodes: Sequence[int]


class Migration(NamedTuple):
    """A row of a run's log that moves a job from `before` to `after`."""

    row: int
    before: Sequence[int]
    after: Sequence[int]
    old: float
    """Progress per second where it was."""
    new: float
    """Progress per second where it is then."""


@dataclass(frozen=True)
class EqualSpeeds:
    """What holds where nodes are alike: every job's rate is 1 everywhere, and migrations cost the run's penalty."""

    def write_rates(self, speed: Floats, placings: Iterable[Placing], node_memory: Floats) -> None:
        """The rate of each placing is 1, which its row of `speed` (E,) says already."""

    def write_costs(self, seconds: Floats, plans: Iterable[Sequence[Migration]]) -> None:
        """Migrations cost the penalty, which their rows of `seconds` (E,) say already."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TrueSpeeds:
    """What holds of N nodes in C partitions and of J jobs. Raises InputError, naming field, value and rule.

    A job's processing time is the time it takes at rate 1 and yield 1. A job whose tasks are in several partitions
    gets on at the smallest of their rates for jobs that are spread. Jobs that migrate at one instant are one plan, of P
    tasks that move. One after the other it takes D = `copy_s` * P; in parallel ([Atif2011] section 9), with one stream
    a machine, D = `copy_s` * (the most tasks that leave a machine, or arrive at one). With S from `stretch_s` likewise,
    a job of it stands still for S, and has the smaller of its old and its new rate for D: which is the same as to stand
    still for S + D * (1 - smaller / new). Where nothing migrates, `dfrs.model.run.Penalty` applies.
    """

    name: str
    partitions: tuple[str, ...]
    """(C,) names."""
    partition: Ints
    """(N,) index of each node's partition."""
    machine: Ints
    """(N,) number of each node's machine."""
    rate: Floats
    """(J, C, 2) progress per second at yield 1, spread and co-located; above 0, at most 1."""
    memory: Floats
    """(J,) memory that a task really wants, as a fraction of the reference node's."""
    thrash: Floats
    """(J,) how many times slower a job is while tasks of it want more memory than their node has; at least 1."""
    stretch_s: float = STRETCH_S
    copy_s: float = COPY_S
    parallel: bool = False

    def __post_init__(self) -> None:
        nodes, jobs, partitions = len(self.partition), len(self.rate), len(self.partitions)
        if self.machine.shape != (nodes,):
            raise InputError(f"machine of shape {self.machine.shape}: must be one a node, {nodes}")
        if ((self.partition < 0) | (self.partition >= partitions)).any():
            raise InputError(f"cluster: must be from 0 to {partitions - 1}")
        if self.rate.shape != (jobs, partitions, 2):
            raise InputError(f"rate of shape {self.rate.shape}: must be (jobs, {partitions}, 2)")
        self._check("rate", (self.rate > 0) & (self.rate <= 1), "must be above 0 and at most 1")
        self._check("memory", (self.memory >= 0) & np.isfinite(self.memory), "must be finite and at least 0")
        self._check("thrash", (self.thrash >= 1) & np.isfinite(self.thrash), "must be finite and at least 1")
        for name in ("stretch_s", "copy_s"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value >= 0):
                raise InputError(f"{name} = {value}: must be a finite number of at least 0")

    def _check(self, name: str, holds: np.ndarray, rule: str) -> None:
        if len(holds) != len(self.rate):
            raise InputError(f"{name} of shape {holds.shape}: must have {len(self.rate)} rows, one a job")
        if not holds.all():
            job = int(np.argwhere(~holds)[0][0])
            raise InputError(f"{name}[{job}] = {getattr(self, name)[job]}: {rule}")

    def __len__(self) -> int:
        return len(self.rate)

    @classmethod
    def of(
        cls,
        hardware: Hardware,
        rate: Floats,
        *,
        memory: Floats | None = None,
        thrash: Floats | float = 1.0,
        stretch_s: float = STRETCH_S,
        copy_s: float = COPY_S,
        parallel: bool = False,
    ) -> "TrueSpeeds":
        """What holds on this hardware; without `memory`, tasks want none. Raises InputError."""
        rate = np.array(rate, dtype=np.float64)
        jobs = len(rate)
        return cls(
            name=hardware.name,
            partitions=tuple(each.name for each in hardware.partitions),
            partition=hardware.partition,
            machine=hardware.machine,
            rate=rate,
            memory=np.zeros(jobs) if memory is None else np.array(memory, dtype=np.float64),
            thrash=np.full(jobs, thrash) if isinstance(thrash, float | int) else np.array(thrash, dtype=np.float64),
            stretch_s=stretch_s,
            copy_s=copy_s,
            parallel=parallel,
        )

    def select(self, jobs: Ints | np.ndarray) -> "TrueSpeeds":
        """The same of some jobs, by index or mask."""
        return replace(self, rate=self.rate[jobs], memory=self.memory[jobs], thrash=self.thrash[jobs])

    def where(self, nodes: Sequence[int]) -> tuple[int, int]:
        """(partition, SPREAD or COLOCATED) of a job on these nodes; (-1, SPREAD) across partitions."""
        at = np.asarray(nodes, np.int64)
        machine, partition = self.machine[at], self.partition[at]
        if (machine == machine[0]).all():
            return int(partition[0]), COLOCATED
        return (int(partition[0]) if (partition == partition[0]).all() else -1), SPREAD

    def thrashing(self, job: int, nodes: Sequence[int], node_memory: Floats) -> bool:
        """Whether the job's tasks want more memory than a node of these has; `node_memory` (N,) as the capacity."""
        at, tasks = np.unique(np.asarray(nodes, np.int64), return_counts=True)
        return bool((tasks * self.memory[job] > node_memory[at] + 1e-9).any())

    def rate_on(self, job: int, nodes: Sequence[int], node_memory: Floats) -> float:
        """Progress per second of the job there at yield 1."""
        partition, shape = self.where(nodes)
        if partition >= 0:
            rate = float(self.rate[job, partition, shape])
        else:
            rate = float(self.rate[job, np.unique(self.partition[np.asarray(nodes)]), SPREAD].min())
        return rate / float(self.thrash[job]) if self.thrashing(job, nodes, node_memory) else rate

    def write_rates(self, speed: Floats, placings: Iterable[Placing], node_memory: Floats) -> None:
        """Write the rate of each placing into its row of `speed` (E,); `node_memory` (N,) as the capacity."""
        for row, job, nodes in placings:
            speed[row] = self.rate_on(job, nodes, node_memory)

    def write_costs(self, seconds: Floats, plans: Iterable[Sequence[Migration]]) -> None:
        """Write the seconds without progress that each migration of a plan brings into its row of `seconds` (E,)."""
        for plan in plans:
            leaving, arriving = Counter[int](), Counter[int]()
            for move in plan:
                here, there = Counter(move.before), Counter(move.after)
                for total, moved in ((leaving, here - there), (arriving, there - here)):
                    for node, tasks in moved.items():
                        total[int(self.machine[node])] += tasks
            count = max([*leaving.values(), *arriving.values()]) if self.parallel else arriving.total()
            for move in plan:
                slower = min(move.old, move.new) / move.new
                seconds[move.row] = self.stretch_s * count + self.copy_s * count * (1.0 - slower)
