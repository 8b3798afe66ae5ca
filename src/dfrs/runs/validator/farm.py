"""Reads a farm's file of a run for the independent checker, and judges what the log says by it (003 sections 5, 8).

Nothing here is shared with the simulator: the rates of placements and the costs of plans are worked out anew from their
definition. A job stands still for S, then has the smaller of two rates for D, then its new one.
"""

from collections import defaultdict
from collections.abc import Mapping
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
    """By sub-cluster: (spread, co-located)."""
    memory: float
    thrash: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFarm:
    """What farm.json says."""

    cluster: list[int]
    machine: list[int]
    stretch_s: float
    copy_s: float
    parallel: bool
    jobs: Mapping[int, Truth]

    def clusters(self, placement: Placement) -> set[int]:
        """The sub-clusters of these nodes."""
        return {self.cluster[node] for node in placement}

    def rate(self, job: int, placement: Placement, capacity: list[tuple[float, float]]) -> float:
        """Progress per second of the job on these nodes at yield 1: that of the slowest sub-cluster it is in."""
        if not placement:
            return 1.0
        truth = self.jobs[job]
        together = len({self.machine[node] for node in placement}) == 1
        rate = min(truth.rate[c][1 if together else 0] for c in self.clusters(placement))
        thrashes = any(truth.memory * tasks - capacity[node][1] > _SLACK for node, tasks in placement.items())
        return rate / truth.thrash if thrashes else rate


@dataclass(slots=True, kw_only=True)
class RecordedPlan:
    """The migrations of an instant."""

    farm: RecordedFarm
    moves: int = 0
    leaving: dict[int, int] = field(default_factory=lambda: defaultdict[int, int](int))
    """Tasks by machine."""
    arriving: dict[int, int] = field(default_factory=lambda: defaultdict[int, int](int))
    rates: dict[int, tuple[float, float]] = field(default_factory=dict[int, tuple[float, float]])
    """(before, after) of the jobs that are where it brought them."""

    def add(self, job: int, before: Placement, after: Placement, rates: tuple[float, float]) -> None:
        """A job migrates."""
        for node in before.keys() | after.keys():
            more = after.get(node, 0) - before.get(node, 0)
            self.moves += max(more, 0)
            side = self.arriving if more > 0 else self.leaving
            side[self.farm.machine[node]] += abs(more)
        self.rates[job] = rates

    def ready_s(self, now_s: float) -> dict[int, float]:
        """Until when the jobs of the plan make, on the whole, no progress."""
        farm, tasks = self.farm, self.moves
        if farm.parallel:
            tasks = max([*self.leaving.values(), *self.arriving.values()], default=0)
        until: dict[int, float] = {}
        for job, (before, after) in self.rates.items():
            done = farm.copy_s * tasks * min(before, after)
            until[job] = now_s + farm.stretch_s * tasks + (farm.copy_s * tasks - done / after)
        return until

    def clear(self) -> None:
        """The instant is over."""
        self.moves = 0
        for part in (self.leaving, self.arriving, self.rates):
            part.clear()


def read_farm(path: Path, nodes: int, names: list[int]) -> RecordedFarm:
    """The farm of a run on so many nodes with jobs of these names. Raises InputError."""
    fields = Fields(path, read_json(path))
    if fields.get("format") != FORMAT:
        raise fields.fail("format", fields.get("format"), f'"{FORMAT}"')
    clusters = len(fields.items("clusters"))
    cluster, machine = (_numbers(fields, name, nodes) for name in ("cluster", "machine"))
    if max(cluster) >= clusters:
        raise fields.fail("cluster", max(cluster), f"below {clusters}")
    jobs: dict[int, Truth] = {}
    for k, entry in enumerate(fields.items("jobs")):
        name, truth = _truth(fields, k, entry, clusters)
        jobs[name] = truth
    missing = [name for name in names if name not in jobs]
    if missing:
        raise InputError(f"{path}: jobs: job {missing[0]} of jobs.csv is missing")
    where: dict[int, set[int]] = defaultdict(set)
    for node, number in enumerate(machine):
        where[number].add(cluster[node])
    if any(len(of) > 1 for of in where.values()):
        raise InputError(f"{path}: machine: every machine must be in one sub-cluster")
    return RecordedFarm(
        cluster=cluster,
        machine=machine,
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


def _truth(fields: Fields, k: int, entry: Any, clusters: int) -> tuple[int, Truth]:  # noqa: ANN401
    if not isinstance(entry, dict):
        raise fields.fail(f"jobs[{k}]", entry, "an object")
    name, rate = entry.get("job_id"), entry.get("rate")
    if isinstance(name, bool) or not isinstance(name, int):
        raise fields.fail(f"jobs[{k}].job_id", name, "a job number")
    if not isinstance(rate, list) or len(rate) != clusters:
        raise fields.fail(f"jobs[{k}].rate", rate, f"{clusters} pairs")
    for pair in rate:
        if not isinstance(pair, list) or len(pair) != 2 or not all(is_amount(r) and 0 < r <= 1 for r in pair):
            raise fields.fail(f"jobs[{k}].rate", pair, "two numbers above 0, at most 1")
    memory, thrash = entry.get("memory"), entry.get("thrash")
    if not is_amount(memory):
        raise fields.fail(f"jobs[{k}].memory", memory, "a number from 0")
    if not is_amount(thrash) or thrash < 1:
        raise fields.fail(f"jobs[{k}].thrash", thrash, "a number from 1")
    return name, Truth(rate=[(float(a), float(b)) for a, b in rate], memory=float(memory), thrash=float(thrash))
