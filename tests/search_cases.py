"""Inputs for the kernels that search among placements, on sums that are exact: in sixteenths, on powers of two."""

from dataclasses import dataclass

import numpy as np

from dfrs.model.instance import Bools, Floats, Ints
from dfrs.model.rule_arrays import RuleArrays
from dfrs.model.rule_scope import GroupPart, MaskPart, Part, Scope, compile_parts
from tests.cases import Source


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactCase:
    base: Floats
    slope: Floats
    capacity: Floats
    tolerance: float
    order: Ints
    twin: Bools
    kind: Ints
    parts: list[Part]
    scope: Scope
    limits: tuple[float, float, int]

    @property
    def rules(self) -> RuleArrays:
        return compile_parts(self.parts, self.scope)


@dataclass(frozen=True, kw_only=True, eq=False)
class ClimbCase:
    base: Floats
    slope: Floats
    capacity: Floats
    aims: tuple[float, float, float]
    """The yield aimed at first; the share of what is left that a success adds; the highest."""
    place: Ints
    steps: int
    heats: tuple[tuple[float, float], ...]
    seed: int
    parts: list[Part]
    """Placement rules, of which some may be broken at first."""
    scope: Scope

    @property
    def rules(self) -> RuleArrays:
        return compile_parts(self.parts, self.scope)


def exact_case(source: Source) -> ExactCase:
    """Few kinds of tasks and nodes, so that there are twins; where there are rules, no two are alike."""
    tasks, nodes, dims = source.integer(1, 6), source.pick((3, 2, 1, 3)), source.integer(1, 2)
    pattern = np.array([source.integer(0, 2) for _ in range(tasks)])
    base = source.values((3, dims), 16, 0.5)[pattern]
    slope = source.values((3, dims), 16, source.pick((0.5, 1.0)))[pattern]
    enough = np.ceil(base.sum(axis=0) / nodes * 8) / 8 + source.pick((0.0, 0.125, 0.5))
    alike = np.array([source.integer(0, 1) for _ in range(nodes)])
    tolerance = source.pick((0.0, 0.0, 1 / 64))
    capacity = np.array([enough, enough + source.values((dims,), 8, 0.5)])[alike] - source.pick((0.0, tolerance))
    bound = bool(source.integer(0, 1))
    scope = _scope(tasks, nodes)
    kind = np.unique(capacity, axis=0, return_inverse=True)[1].reshape(-1)
    order = source.permutation(tasks)
    if source.integer(0, 2):
        order = order[np.argsort(pattern[order], kind="stable")]
    twin = np.zeros(tasks, dtype=np.bool_)
    if not bound:
        twin[1:] = pattern[order[1:]] == pattern[order[:-1]]
    return ExactCase(
        base=base,
        slope=slope,
        capacity=capacity,
        tolerance=tolerance,
        order=order,
        twin=twin,
        kind=np.arange(nodes) if bound else kind,
        parts=_parts(np.random.default_rng(source.integer(0, 2**32 - 1)), scope, tasks, nodes) if bound else [],
        scope=scope,
        limits=(source.pick((-1 / 64, 0.0, 0.5)), source.pick((2.0, 1.0, 0.5)), source.pick((10**6, 10**6, 20))),
    )


def climb_case(source: Source) -> ClimbCase:
    """Tasks all of different sizes in each resource at first.

    The yields aimed at are the first one and, as a success adds all that is left, 1: both exact. Now and then a node
    holds everything and the other little, so that tasks crowd there.
    """
    crowd = source.integer(0, 9) == 9
    dims, start = source.integer(1, 3), source.pick((0.0, 0.0, 0.5))
    tasks, nodes = (36, 2) if crowd else (source.integer(2, 12), source.integer(2, 5))
    base = np.stack([source.permutation(48)[:tasks] + 1 for _ in range(dims)], axis=1) / 16
    slope = source.values((tasks, dims), 16, source.pick((0.0, 0.5)) if start == 0.0 else 1 / 16)
    share = base.sum(axis=0) / nodes * source.pick((1.0, 2.0))
    powers = np.array([source.pick((0.0, 1.0, 1.0)) for _ in range(nodes)])
    capacity = 2.0 ** (np.floor(np.log2(share))[None, :] + powers[:, None])
    if crowd:
        capacity[:] = 0.25
        capacity[source.integer(0, nodes - 1)] = 128.0
    place = np.arange(tasks) % nodes if crowd else np.array([source.integer(0, nodes - 1) for _ in range(tasks)])
    scope = _scope(tasks, nodes)
    rng = np.random.default_rng(source.integer(0, 2**32 - 1))
    return ClimbCase(
        base=base,
        slope=slope,
        capacity=capacity,
        aims=(start, 1.0, 1.0),
        place=place,
        steps=250 if crowd else source.integer(1, 60),
        heats=source.pick((((0.5, 0.25), (0.25, 0.1)), ((0.02, 3e-4),), ((0.1, 0.05), (0.05, 0.01), (0.01, 1e-3)))),
        seed=source.integer(1, 2**62),
        parts=_parts(rng, scope, tasks, nodes) if source.integer(0, 2) == 2 else [],
        scope=scope,
    )


def _scope(tasks: int, nodes: int) -> Scope:
    names = tuple(f"n{n}" for n in range(nodes)), tuple(f"s{i}" for i in range(tasks))
    return Scope(*names, np.arange(tasks), tuple({"rack": f"r{n % 3}"} for n in range(nodes)))


def _parts(rng: np.random.Generator, scope: Scope, tasks: int, nodes: int) -> list[Part]:
    some = [np.sort(rng.choice(tasks, size=int(rng.integers(1, tasks + 1)), replace=False)) for _ in range(5)]
    level = str(rng.choice(["node", "rack"]))
    kinds: list[Part] = [
        MaskPart(tasks=some[0], allowed=rng.random(nodes) < 0.7),
        GroupPart(tasks=some[1], level=level, most=int(rng.integers(1, 4))),
        GroupPart(tasks=some[2], level=level, fewest_domains=2, most_domains=int(rng.integers(2, 4))),
        GroupPart(tasks=some[3], level=level, host=some[4]),
    ]
    return [kinds[k] for k in np.flatnonzero(rng.random(4) < 0.5)]


@dataclass(frozen=True, kw_only=True, eq=False)
class GeneticCase:
    base: Floats
    slope: Floats
    capacity: Floats
    tolerance: float
    place: Ints
    settings: tuple[int, int, float, float]
    upper: float
    seed: int


def genetic_case(source: Source) -> GeneticCase:
    """Nodes with room for about what the tasks require; one of them may lack a resource."""
    tasks, nodes, dims = source.integer(2, 10), source.integer(2, 5), source.integer(1, 3)
    base = source.values((tasks, dims), 16, 0.5)
    tolerance = source.pick((0.0, 1 / 64))
    enough = np.ceil(base.sum(axis=0) / nodes * 8) / 8 + source.pick((0.0, 0.125, 0.5, 0.5))
    capacity = enough + source.values((nodes, dims), 8, source.pick((0.0, 0.5))) - source.pick((0.0, tolerance))
    if source.integer(0, 2) == 0:
        capacity[source.integer(0, nodes - 1), source.integer(0, dims - 1)] = 0.0
    return GeneticCase(
        base=base,
        slope=source.values((tasks, dims), 16, source.pick((0.25, 1.0))),
        capacity=capacity.clip(0.0),
        tolerance=tolerance,
        place=np.array([source.integer(0, nodes - 1) for _ in range(tasks)]),
        settings=(source.pick((2, 6)), source.integer(0, 5), source.pick((0.0, 0.5)), source.pick((0.0, 0.5))),
        upper=source.pick((1.0, 2.0, 0.25)),
        seed=source.integer(0, 2**63 - 1),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class PricingCase:
    size: Floats
    capacity: Floats
    worth: Floats
    threshold: float


def pricing_case(source: Source) -> PricingCase:
    """Sizes and worths in sixteenths: every sum is exact."""
    tasks, dims = source.integer(1, 7), source.integer(1, 3)
    return PricingCase(
        size=source.values((tasks, dims), 16, source.pick((0.375, 0.75))),
        capacity=source.values((dims,), 16, 1.5),
        worth=source.values((tasks,), 16, 0.5),
        threshold=source.pick((0.0, 0.25, 0.5, 1.0)),
    )
