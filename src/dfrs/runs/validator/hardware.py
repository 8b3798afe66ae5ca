"""The hardware of a run for the independent checker: of equal nodes, or what `farm.json` says ([Atif2011] 5, 8).

Nothing here is shared with the simulator: the rates of placements and the costs of plans are worked out anew from their
definition. A job stands still for S, then has the smaller of two rates for D, then its new one.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dfrs.model.errors import InputError
from dfrs.runs.validator.files import Fields, Placement, is_amount, read_json

FORMAT = "dfrs-run-farm/1"
_SLACK = 1e-9
"""Of the reference node's memory, when the needs of several tasks are added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What farm.json says of a job."""

    rate: list[tuple[float, float]]
    """By partition: (spread, co-located)."""
    memory: float
    thrash: float


class EqualNodes:
    """Nodes that are alike: one partition, where all rates are 1 and migrations cost the penalty."""

    def place(self, job: int, before: Placement, after: Placement, *, migrates: bool) -> float:
        """A job has come to nodes: its rate there."""
        return 1.0

    def leave(self, job: int) -> None:
        """A job is on no node any more."""

    def settle(self, now_s: float) -> Mapping[int, float]:
        """No job is ready at another time than the penalty says."""
        return {}

    def across(self, placement: Placement) -> int:
        """Over how many partitions a job is."""
        return 1

    def largest(self, room: Sequence[float]) -> float:
        """The room of the partition that has most, from that of each node."""
        return sum(room)


@dataclass(slots=True, kw_only=True)
class RecordedHardware:
    """What farm.json says, and which migrations this instant has."""

    partition: list[int]
    machine: list[int]
    capacity: list[tuple[float, float]]
    stretch_s: float
    copy_s: float
    parallel: bool
    jobs: Mapping[int, Truth]
    rates: dict[int, float] = field(default_factory=dict[int, float])
    """Of the jobs that were placed, where they were at last."""
    arriving: dict[int, int] = field(default_factory=lambda: defaultdict[int, int](int))
    """Tasks by machine, of this instant's migrations."""
    leaving: dict[int, int] = field(default_factory=lambda: defaultdict[int, int](int))
    moved: dict[int, tuple[float, float]] = field(default_factory=dict[int, tuple[float, float]])
    """(before, after) of the jobs that are where this instant's migrations brought them."""

    def place(self, job: int, before: Placement, after: Placement, *, migrates: bool) -> float:
        """A job has come to nodes: its rate there."""
        rate = self.rate(job, after)
        self.moved.pop(job, None)
        if migrates:
            for node in before.keys() | after.keys():
                more = after.get(node, 0) - before.get(node, 0)
                side = self.arriving if more > 0 else self.leaving
                side[self.machine[node]] += abs(more)
            self.moved[job] = self.rates.get(job, 1.0), rate
        self.rates[job] = rate
        return rate

    def rate(self, job: int, placement: Placement) -> float:
        """Progress per second of the job on these nodes at yield 1: that of the slowest partition it is in."""
        if not placement:
            return 1.0
        truth = self.jobs[job]
        together = len({self.machine[node] for node in placement}) == 1
        rate = min(truth.rate[c][1 if together else 0] for c in {self.partition[node] for node in placement})
        thrashes = any(truth.memory * tasks - self.capacity[node][1] > _SLACK for node, tasks in placement.items())
        return rate / truth.thrash if thrashes else rate

    def leave(self, job: int) -> None:
        """A job is on no node any more."""
        self.moved.pop(job, None)

    def settle(self, now_s: float) -> Mapping[int, float]:
        """The instant is over: until when the jobs that migrated make, on the whole, no progress."""
        tasks = sum(self.arriving.values())
        if self.parallel:
            tasks = max([*self.leaving.values(), *self.arriving.values()], default=0)
        until: dict[int, float] = {}
        for job, (before, after) in self.moved.items():
            done = self.copy_s * tasks * min(before, after)
            until[job] = now_s + self.stretch_s * tasks + (self.copy_s * tasks - done / after)
        for part in (self.leaving, self.arriving, self.moved):
            part.clear()
        return until

    def across(self, placement: Placement) -> int:
        """Over how many partitions a job is."""
        return len({self.partition[node] for node in placement})

    def largest(self, room: Sequence[float]) -> float:
        """The room of the partition that has most, from that of each node."""
        found = defaultdict[int, float](float)
        for partition, here in zip(self.partition, room, strict=True):
            found[partition] += here
        return max(found.values())


def read_hardware(path: Path, capacity: list[tuple[float, float]], names: list[int]) -> RecordedHardware:
    """The hardware of a run on nodes of this capacity (CPU, memory) with jobs of these names. Raises InputError."""
    nodes = len(capacity)
    fields = Fields(path, read_json(path))
    if fields.get("format") != FORMAT:
        raise fields.fail("format", fields.get("format"), f'"{FORMAT}"')
    partitions = len(fields.items("clusters"))
    partition, machine = (_numbers(fields, name, nodes) for name in ("cluster", "machine"))
    if max(partition) >= partitions:
        raise fields.fail("cluster", max(partition), f"below {partitions}")
    jobs: dict[int, Truth] = {}
    for k, entry in enumerate(fields.items("jobs")):
        name, truth = _truth(fields, k, entry, partitions)
        jobs[name] = truth
    missing = [name for name in names if name not in jobs]
    if missing:
        raise InputError(f"{path}: jobs: job {missing[0]} of jobs.csv is missing")
    where: dict[int, set[int]] = defaultdict(set)
    for node, number in enumerate(machine):
        where[number].add(partition[node])
    if any(len(of) > 1 for of in where.values()):
        raise InputError(f"{path}: machine: every machine must be in one sub-cluster")
    return RecordedHardware(
        partition=partition,
        machine=machine,
        capacity=capacity,
        stretch_s=fields.number("stretch_s"),
        copy_s=fields.number("copy_s"),
        parallel=fields.flag("parallel"),
        jobs=jobs,
    )


def _numbers(fields: Fields, name: str, count: int) -> list[int]:
    values = fields.items(name)
    if len(values) != count or not all(
        isinstance(value, int) and not isinstance(value, bool) and value >= 0 for value in values
    ):
        raise fields.fail(name, values, f"{count} whole numbers from 0, one a node")
    return values


def _truth(fields: Fields, k: int, entry: Any, partitions: int) -> tuple[int, Truth]:  # noqa: ANN401
    if not isinstance(entry, dict):
        raise fields.fail(f"jobs[{k}]", entry, "an object")
    name, rate = entry.get("job_id"), entry.get("rate")
    if isinstance(name, bool) or not isinstance(name, int):
        raise fields.fail(f"jobs[{k}].job_id", name, "a job number")
    if not isinstance(rate, list) or len(rate) != partitions:
        raise fields.fail(f"jobs[{k}].rate", rate, f"{partitions} pairs")
    for pair in rate:
        if not isinstance(pair, list) or len(pair) != 2 or not all(is_amount(r) and 0 < r <= 1 for r in pair):
            raise fields.fail(f"jobs[{k}].rate", pair, "two numbers above 0, at most 1")
    memory, thrash = entry.get("memory"), entry.get("thrash")
    if not is_amount(memory):
        raise fields.fail(f"jobs[{k}].memory", memory, "a number from 0")
    if not is_amount(thrash) or thrash < 1:
        raise fields.fail(f"jobs[{k}].thrash", thrash, "a number from 1")
    return name, Truth(rate=[(float(a), float(b)) for a, b in rate], memory=float(memory), thrash=float(thrash))
