"""The greedy algorithms by the text of [Stillwell2010] section 4.2.2 and [Stillwell2008] section 3.3."""

from collections.abc import Sequence

from tests.naive.packing import Node, Packed, Vector, Vectors
from tests.naive.sorting import in_turn


def argmax(vector: Vector) -> int:
    return max(range(len(vector)), key=lambda d: vector[d])


def place_greedily(
    base: Vectors,
    fluid: Vectors,
    order: Sequence[int],
    capacity: Vectors,
    *,
    tolerance: float,
    rule: int,
) -> Packed:
    """Node picking options P1 to P7, first node among equals; stops at the first task without a node."""
    nodes = [Node(c, tolerance) for c in capacity]
    there: list[list[int]] = [[] for _ in capacity]
    place = [-1] * len(base)
    for i in order:
        fitting = [n for n, node in enumerate(nodes) if node.fits(base[i])]
        if not fitting:
            return False, place
        needs = fluid if rule in (1, 2) else base
        main = argmax(needs[i])
        most = {n: max((needs[j][main] for j in there[n]), default=0.0) for n in fitting}
        total = {n: in_turn(needs[j][main] for j in there[n]) for n in fitting}
        place[i] = {
            1: lambda nodes, most=most: min(nodes, key=most.get),
            2: lambda nodes, total=total: min(nodes, key=total.get),
            3: lambda nodes, most=most: max(nodes, key=most.get),
            4: lambda nodes, total=total: max(nodes, key=total.get),
            5: lambda nodes, most=most: min(nodes, key=most.get),
            6: lambda nodes, total=total: min(nodes, key=total.get),
            7: min,
        }[rule](fitting)
        nodes[place[i]].inside.append(base[i])
        there[place[i]].append(i)
    return True, place


def place_by_load(
    base: Vectors, work: Sequence[float], order: Sequence[int], capacity: Vectors, tolerance: float
) -> tuple[bool, int, list[int]]:
    """GR and SG: success, number of placements, and placement."""
    nodes = [Node(c, tolerance) for c in capacity]
    load = [0.0] * len(nodes)
    place = [-1] * len(base)
    for used, i in enumerate(order):
        fitting = [n for n, node in enumerate(nodes) if node.fits(base[i])]
        if not fitting:
            return False, used, place
        place[i] = min(fitting, key=lambda n: load[n])
        nodes[place[i]].inside.append(base[i])
        load[place[i]] += work[i]
    return True, len(order), place


class _OutOfAttemptsError(Exception):
    pass


def place_with_backtracking(
    base: Vectors,
    work: Sequence[float],
    order: Sequence[int],
    capacity: Vectors,
    *,
    tolerance: float,
    attempts: int,
) -> tuple[bool, int, list[int] | None]:
    """GB and SGB: depth first, each task on its nodes by increasing load, within a number of placements."""
    used = 0

    def place_from(k: int, placed: list[int]) -> list[int] | None:
        nonlocal used
        if k == len(order):
            return placed
        there = [[order[q] for q in range(k) if placed[q] == n] for n in range(len(capacity))]
        load = [in_turn(work[j] for j in members) for members in there]
        for n in sorted(range(len(capacity)), key=lambda n: load[n]):
            if Node(capacity[n], tolerance, [base[j] for j in there[n]]).fits(base[order[k]]):
                if used == attempts:
                    raise _OutOfAttemptsError
                used += 1
                whole = place_from(k + 1, [*placed, n])
                if whole is not None:
                    return whole
        return None

    try:
        placed = place_from(0, [])
    except _OutOfAttemptsError:
        placed = None
    if placed is None:
        return False, used, None
    place = [-1] * len(base)
    for i, n in zip(order, placed, strict=True):
        place[i] = n
    return True, used, place
