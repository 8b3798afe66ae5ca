"""Vector packing by the text of [Stillwell2010] section 4.2.5: everything is added up anew whenever it is asked for."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import combinations, permutations
from math import inf
from operator import sub

from tests.naive.sorting import in_turn, stable_order

Vector = Sequence[float]
Vectors = Sequence[Vector]
Packed = tuple[bool, list[int]]


@dataclass
class Node:
    capacity: Vector
    tolerance: float
    inside: list[Vector] = field(default_factory=list)

    def room(self) -> list[float]:
        return [
            reduce(sub, (vector[d] for vector in self.inside), c + self.tolerance) for d, c in enumerate(self.capacity)
        ]

    def fits(self, vector: Vector) -> bool:
        return within(vector, self.room())

    def loads(self) -> list[float]:
        """Share of each resource in use; a resource the node does not have counts as full."""
        return [in_turn(vector[d] / c for vector in self.inside) if c > 0 else 1.0 for d, c in enumerate(self.capacity)]

    def sum_of_loads(self) -> float:
        return in_turn(vector[d] / c for vector in self.inside for d, c in enumerate(self.capacity) if c > 0)


def within(vector: Vector, room: Vector) -> bool:
    return all(v <= r for v, r in zip(vector, room, strict=True))


def ratio(vector: Vector) -> float:
    if min(vector) > 0:
        return max(vector) / min(vector)
    return inf if max(vector) > 0 else 1.0


CRITERIA: dict[str, Callable[[Vector], float]] = {
    "SUM": in_turn,
    "MAX": max,
    "DIFF": lambda vector: max(vector) - min(vector),
    "RATIO": ratio,
}


def sort_order(size: Vectors, criterion: str, ascending: bool, lexicographic: Sequence[int]) -> list[int]:
    if criterion == "LEX":
        sign = 1.0 if ascending else -1.0
        return sorted(range(len(size)), key=lambda i: [sign * size[i][d] for d in lexicographic])
    return stable_order([CRITERIA[criterion](vector) for vector in size], ascending)


def _one_after_another(
    size: Vectors, order: Sequence[int], nodes: list[Node], partial: bool, preference: Callable[[Node], float]
) -> Packed:
    place = [-1] * len(size)
    for i in order:
        fitting = [n for n, node in enumerate(nodes) if node.fits(size[i])]
        if fitting:
            place[i] = max(fitting, key=lambda n: preference(nodes[n]))
            nodes[place[i]].inside.append(size[i])
        elif not partial:
            break
    return -1 not in place, place


def first_fit(size: Vectors, order: Sequence[int], capacity: Vectors, tolerance: float, partial: bool) -> Packed:
    nodes = [Node(c, tolerance) for c in capacity]
    return _one_after_another(size, order, nodes, partial, lambda _: 0.0)


def best_fit(size: Vectors, order: Sequence[int], capacity: Vectors, tolerance: float, partial: bool) -> Packed:
    nodes = [Node(c, tolerance) for c in capacity]
    return _one_after_another(size, order, nodes, partial, Node.sum_of_loads)


def largest(vector: Vector, window: int) -> list[int]:
    """The `window` largest coordinates, the largest first; a tie goes to the lower index."""
    return sorted(range(len(vector)), key=lambda d: -vector[d])[:window]


def list_name(dims: Sequence[int], ordered: bool) -> tuple[int, ...] | frozenset[int]:
    return tuple(dims) if ordered else frozenset(dims)


def lists_to_try(
    loads: Vector, window: int, ordered: bool, by_index: bool
) -> Iterator[tuple[int, ...] | frozenset[int]]:
    """Names of all lists: those of the least loaded dimensions first, as (s0,s1), (s0,s2), (s1,s2), (s0,s3), …"""
    ranked = sorted(range(len(loads)), key=lambda d: loads[d])
    for ranks in sorted(combinations(range(len(loads)), window), key=lambda ranks: ranks[::-1]):
        dims = [ranked[rank] for rank in ranks]
        if by_index:
            dims.sort()
        for choice in permutations(dims) if ordered else [dims]:
            yield list_name(choice, ordered)


def by_lists(
    size: Vectors,
    order: Sequence[int],
    capacity: Vectors,
    tolerance: float,
    *,
    window: int,
    ordered: bool,
    by_index: bool,
) -> Packed:
    """Permutation Pack if `ordered`, else Choose Pack; with a window of 1 the MCB algorithms of [Stillwell2008] 3.4."""
    place = [-1] * len(size)
    lists: dict[tuple[int, ...] | frozenset[int], list[int]] = {}
    for i in order:
        lists.setdefault(list_name(largest(size[i], window), ordered), []).append(i)
    for n, c in enumerate(capacity):
        node = Node(c, tolerance)
        while True:
            room = node.room()
            fitting = (
                (members, i)
                for name in lists_to_try(node.loads(), window, ordered, by_index)
                for members in [lists.get(name, [])]
                for i in members
                if within(size[i], room)
            )
            first = next(fitting, None)
            if first is None:
                break
            members, i = first
            members.remove(i)
            node.inside.append(size[i])
            place[i] = n
    return -1 not in place, place


def list_code(dims_chosen: Sequence[int], dims: int, ordered: bool) -> int:
    return sum(d * dims**p for p, d in enumerate(dims_chosen)) if ordered else sum(2**d for d in dims_chosen)


def grouped(
    size: Vectors, order: Sequence[int], window: int, ordered: bool, number: Callable[[int], int]
) -> list[list[int]]:
    """Members of each list in `order`; `number` gives the place of a list's code among all lists."""
    dims = len(size[0])
    names = [number(list_code(largest(vector, window), dims, ordered)) for vector in size]
    return [[i for i in order if names[i] == g] for g in range(max(names) + 1)]


def lowest(vectors: Vectors, dims: int) -> list[float]:
    return [min((vector[d] for vector in vectors), default=inf) for d in range(dims)]


def first_that_fits(vectors: Vectors, alive: Sequence[bool], cursor: int, end: int, room: Vector) -> int:
    return next((p for p in range(cursor, end) if alive[p] and within(vectors[p], room)), end)
