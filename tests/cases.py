"""Inputs for kernels and algorithms, built from a source of choices: a seeded generator or hypothesis.

Coordinates come mostly from coarse grids, so that ties, exact fits and zeros happen: of eighths and sixteenths, where
sums are exact, and of tenths, where they are not. Some cases pass 64 nodes or 64 tasks, the size of a kernel's block.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from dfrs.model import tolerances
from dfrs.model.instance import Bools, Floats, Instance, Ints
from dfrs.model.resources import Kind, Resource
from dfrs.placement.packing import Plan, _list_plan
from tests.naive import yields

T = TypeVar("T")
EXACT = (8, 16)
GRAINS = (*EXACT, 10, None)
TOPS = (0.25, 0.5, 1.0)
POWERS = np.array([0.0, 0.125, 0.25, 0.5, 1.0])


class Source(Protocol):
    def integer(self, low: int, high: int) -> int: ...

    def pick(self, options: Sequence[T]) -> T: ...

    def values(self, shape: tuple[int, ...], grain: int | None, top: float) -> Floats: ...

    def permutation(self, count: int) -> Ints: ...


@dataclass(frozen=True)
class Seeded:
    rng: np.random.Generator

    def integer(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high, endpoint=True))

    def pick(self, options: Sequence[T]) -> T:
        return options[self.integer(0, len(options) - 1)]

    def values(self, shape: tuple[int, ...], grain: int | None, top: float) -> Floats:
        if grain is None:
            return self.rng.random(shape) * top
        return self.rng.integers(0, round(grain * top), shape, endpoint=True) / grain

    def permutation(self, count: int) -> Ints:
        return self.rng.permutation(count)


@dataclass(frozen=True, kw_only=True)
class KeyCase:
    key: Floats
    ascending: bool


@dataclass(frozen=True, kw_only=True)
class PackingCase:
    size: Floats
    order: Ints
    capacity: Floats
    tolerance: float
    partial: bool
    criterion: str
    ascending: bool
    lexicographic: Ints
    window: int
    ordered: bool
    by_index: bool

    @property
    def plan(self) -> tuple[int, Plan, Ints]:
        return _list_plan(self.size.shape[1], self.window, self.ordered, self.by_index)


@dataclass(frozen=True, kw_only=True)
class SearchCase:
    packing: PackingCase
    slope: Floats
    method: str
    dominance: bool
    upper: float
    width: float
    ends: bool


@dataclass(frozen=True, kw_only=True)
class GreedyCase:
    base: Floats
    fluid: Floats
    order: Ints
    capacity: Floats
    tolerance: float
    rule: int
    attempts: int | None


@dataclass(frozen=True, kw_only=True)
class YieldCase:
    base: Floats
    slope: Floats
    capacity: Floats
    place: Ints
    service_of: Ints
    level: float
    tolerance: float = tolerances.CAPACITY

    @property
    def room(self) -> Floats:
        used = np.zeros_like(self.capacity)
        np.add.at(used, self.place, self.base + self.level * self.slope)
        return self.capacity - used


def key_case(source: Source) -> KeyCase:
    count = _count(source, 20, (1501, 2500))
    grain = source.pick(GRAINS)
    key = source.values((count,), grain, source.pick((0.25, 1.0, 1024.0)))
    for special in (np.inf, -0.0, 0.0):
        for _ in range(source.integer(0, 3)):
            key[source.integer(0, count - 1)] = special
    return KeyCase(key=key, ascending=source.pick((False, True)))


def packing_case(source: Source) -> PackingCase:
    dims, grain, size = _sizes(source)
    return PackingCase(
        size=size,
        order=source.permutation(len(size)),
        capacity=_capacity(source, size, grain),
        tolerance=source.pick((0.0, tolerances.CAPACITY)),
        partial=source.pick((False, True)),
        criterion=source.pick(("SUM", "MAX", "LEX", "DIFF", "RATIO")),
        ascending=source.pick((False, True)),
        lexicographic=source.permutation(dims),
        window=min(source.pick((2, 1, 3)), dims),
        ordered=source.pick((False, True)),
        by_index=source.pick((False, True)),
    )


def search_case(source: Source) -> SearchCase:
    packing = packing_case(source)
    method = source.pick(("FF", "BF", "LISTS"))
    grain = source.pick(GRAINS)
    return SearchCase(
        packing=packing,
        slope=source.values(packing.size.shape, grain, source.pick(TOPS)),
        method=method,
        dominance=method != "LISTS" and source.pick((False, True)),
        upper=source.integer(0, 8) / 8,
        width=source.pick((0.25, 0.01)),
        ends=source.pick((False, True)),
    )


def greedy_case(source: Source) -> GreedyCase:
    """With backtracking, numbers are exact: what rounding does there has cases of its own."""
    attempts = source.integer(0, 300) if source.integer(0, 1) else None
    grains = GRAINS if attempts is None else EXACT
    dims, grain, base = _sizes(source, grains)
    return GreedyCase(
        base=base,
        fluid=source.values((len(base), dims), source.pick(grains), 1.0),
        order=source.permutation(len(base)),
        capacity=_capacity(source, base, grain),
        tolerance=source.pick((0.0, tolerances.CAPACITY)),
        rule=source.integer(1, 7),
        attempts=attempts,
    )


def backtracking_case(source: Source, *, grain: int) -> GreedyCase:
    """Few tasks on few nodes with hardly more room than they need: half of such cases force a step back."""
    tasks, nodes = source.integer(3, 8), source.integer(2, 3)
    base = source.values((tasks, 1), 8, 0.5) + 0.125
    capacity = np.tile(np.ceil(base.sum(axis=0) / nodes * 8) / 8, (nodes, 1))
    capacity.setflags(write=False)
    return GreedyCase(
        base=base,
        fluid=source.values((tasks, 1), grain, 1.0),
        order=np.arange(tasks),
        capacity=capacity,
        tolerance=tolerances.CAPACITY,
        rule=1,
        attempts=source.integer(0, 300),
    )


def yield_case(source: Source, *, tasks_per_service: int = 1) -> YieldCase:
    """All services at the highest common yield."""
    tasks, nodes, dims = _count(source, 12, (60, 80)), source.integer(1, 5), source.integer(1, 4)
    grain = source.pick(EXACT)
    slope = source.values((tasks, dims), grain, source.pick(TOPS))
    base, capacity, place = _placed(source, slope, nodes, grain)
    new_service = np.array([k > 0 and source.integer(1, tasks_per_service) == 1 for k in range(tasks)])
    level = yields.minimum_yield(base.tolist(), slope.tolist(), capacity.tolist(), place.tolist(), 0.0)
    return YieldCase(
        base=base,
        slope=slope,
        capacity=capacity,
        place=place,
        service_of=np.cumsum(new_service, dtype=np.int64),
        level=level,
    )


def average_case(source: Source) -> YieldCase:
    """All services at a common yield in eighths; needs are powers of two, so that no gain is rounded and ties are."""
    tasks, nodes, dims = _count(source, 12, (60, 80)), source.integer(1, 5), source.integer(1, 4)
    exact = source.integer(0, 3) < 3
    slope = source.values((tasks, dims), 4 if exact else None, 1.0)
    if exact:
        slope = POWERS[np.rint(slope * 4).astype(int)]
    base, capacity, place = _placed(source, slope, nodes, 8)
    level = yields.minimum_yield(base.tolist(), slope.tolist(), capacity.tolist(), place.tolist(), 0.0)
    return YieldCase(
        base=base,
        slope=slope,
        capacity=capacity,
        place=place,
        service_of=np.arange(tasks),
        level=math.floor(level * 8) / 8,
    )


def _placed(source: Source, slope: Floats, nodes: int, grain: int) -> tuple[Floats, Floats, Ints]:
    """Requirements, capacities that leave room for some of the needs, and a placement."""
    tasks, dims = slope.shape
    base = source.values((tasks, dims), grain, source.pick(TOPS))
    place = np.array([source.integer(0, nodes - 1) for _ in range(tasks)])
    capacity = source.values((nodes, dims), grain, source.pick((0.5, 2.0, 8.0)))
    np.add.at(capacity, place, base)
    return base, capacity, place


def _count(source: Source, few: int, many: tuple[int, int]) -> int:
    return source.integer(*many) if source.integer(0, 3) == 3 else source.integer(1, few)


def _sizes(source: Source, grains: Sequence[int | None] = GRAINS) -> tuple[int, int | None, Floats]:
    """Sizes of tasks, half of which may do without one resource."""
    dims, grain = source.pick((2, 1, 3, 4, 5, 6)), source.pick(grains)
    tasks = _count(source, 10, (65, 150))
    size = source.values((tasks, dims), grain, source.pick(TOPS))
    if source.integer(0, 2) == 0:
        size[: (tasks + 1) // 2, source.integer(0, dims - 1)] = 0.0
    return dims, grain, size


def _capacity(source: Source, size: Floats, grain: int | None) -> Floats:
    """Nodes all alike, or alike and only just enough, or each its own; half of them may lack one resource."""
    tasks, dims = size.shape
    nodes = source.integer(65, 100) if tasks > 64 and source.integer(0, 1) else _count(source, 6, (65, 100))
    kind = source.pick(("ones", "tight", "tight", "alike", "unequal"))
    if kind == "ones":
        capacity = np.ones((nodes, dims))
    elif kind == "alike":
        capacity = np.tile(source.values((dims,), grain, 2.0), (nodes, 1))
    elif kind == "tight":
        enough = np.ceil(size.sum(axis=0) / nodes * 8) / 8 + source.integer(0, 2) / 8
        capacity = np.tile(enough, (nodes, 1))
    else:
        capacity = source.values((nodes, dims), grain, source.pick((1.0, 2.0, 4.0)))
    if source.integer(0, 2) == 0:
        capacity[: (nodes + 1) // 2, source.integer(0, dims - 1)] = 0.0
    capacity.setflags(write=False)
    return capacity


def make_instance(
    need: Sequence[Sequence[float]] | Floats,
    *,
    capacity: Sequence[Sequence[float]] | Floats,
    kinds: Sequence[Kind] | None = None,
    rigid: Bools | None = None,
    minimum_yield: Sequence[float] | Floats | None = None,
    service_of: Sequence[int] | Ints | None = None,
) -> Instance:
    """An instance from its numbers; the first half of the resources is rigid unless `kinds` says otherwise."""
    needs, capacities = np.array(need, dtype=float), np.array(capacity, dtype=float)
    tasks, dims = needs.shape
    if kinds is None:
        kinds = [Kind.RIGID] * (dims // 2) + [Kind.FLUID] * (dims - dims // 2)
    if rigid is None:
        rigid = np.tile([kind == Kind.RIGID for kind in kinds], (tasks, 1))
    of = np.arange(tasks) if service_of is None else np.array(service_of, dtype=np.int64)
    services = int(of.max()) + 1
    minimum = np.zeros(services) if minimum_yield is None else np.array(minimum_yield, dtype=float)
    return Instance(
        resources=tuple(Resource(name=f"r{d}", kind=kind) for d, kind in enumerate(kinds)),
        nodes=tuple(f"n{n}" for n in range(len(capacities))),
        capacity=capacities,
        services=tuple(f"s{j}" for j in range(services)),
        minimum_yield=minimum,
        service_of=of,
        need=needs,
        rigid=rigid,
        move_cost=np.ones(tasks),
    )


def random_instance(source: Source, *, tasks_per_service: int = 1) -> Instance:
    """Three to sixteen tasks on two to five nodes that just hold them; now and then a resource of mixed kind."""
    tasks, dims, nodes = source.integer(3, 16), source.pick((2, 1, 3, 4)), source.integer(2, 5)
    grain = source.pick(GRAINS)
    need = source.values((tasks, dims), grain, source.pick(TOPS))
    kinds = [source.pick((Kind.RIGID, Kind.FLUID)) for _ in range(dims)]
    rigid = np.tile([kind == Kind.RIGID for kind in kinds], (tasks, 1))
    if source.integer(0, 3) == 0:
        rigid ^= source.values((tasks, dims), 8, 1.0) > 0.75
    scarce = np.array([source.pick((1.0, 1.25) if k == Kind.RIGID else (0.5, 0.75, 0.25, 1.0)) for k in kinds])
    share = np.ceil(need.sum(axis=0) / nodes * scarce * 8) / 8
    capacity = np.tile(np.maximum(share, 0.25), (nodes, 1))
    if source.integer(0, 2) == 0:
        capacity += source.values((nodes, dims), 8, 1.0)
    new_service = np.array([k > 0 and source.integer(1, tasks_per_service) == 1 for k in range(tasks)])
    service_of = np.cumsum(new_service, dtype=np.int64)
    minimum = [source.pick((0.0, 0.0, 0.5, 0.25, 1.0)) for _ in range(int(service_of.max()) + 1)]
    return make_instance(
        need, capacity=capacity, kinds=kinds, rigid=rigid, minimum_yield=minimum, service_of=service_of
    )


def empty_place(tasks: int) -> Ints:
    return np.full(tasks, -1, dtype=np.int64)
