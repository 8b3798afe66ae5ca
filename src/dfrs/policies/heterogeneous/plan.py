"""A plan as single moves, in an order in which no machine runs out of memory ([Atif2011] section 6, Figure 7).

The migration assistant moves one process at a time: one comes to a partition, then one leaves it. While a process is
being moved it is on both machines, so its memory must be free on the target before it is freed at the source; and a
machine may have one process more than it has nodes, the one that comes before another leaves.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dfrs.model import tolerances
from dfrs.policies.heterogeneous.cluster_view import Board

MOST_TRIED = 4_000
"""Orders are searched for in so many states at most; a plan for which none is found then is not executed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMove:
    """One process of a job goes from one node to another."""

    row: int
    task: int
    """Of the job, from 0."""
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class _Kind:
    """Moves that are alike for the machines: same job, same machines, same memory at both ends."""

    row: int
    source: int
    target: int
    frees: float
    takes: float


def plan(board: Board, goals: Mapping[int, Sequence[int]]) -> list[PlannedMove] | None:
    """The moves that bring each row of `goals` to these nodes, one a task, in an order that can be performed.

    None where no order was found. All other jobs stay where they are on the board.
    """
    kinds: dict[_Kind, list[PlannedMove]] = {}
    for row in sorted(goals):
        for task, (a, b) in enumerate(zip(board.nodes[row], goals[row], strict=True)):
            if a != b:
                kind = _Kind(row, board.machine[a], board.machine[b], board.footprint(row, a), board.footprint(row, b))
                kinds.setdefault(kind, []).append(PlannedMove(row=row, task=task, source=a, target=b))
    order = _search(list(kinds), [len(moves) for moves in kinds.values()], *_machines(board))
    if order is None:
        return None
    queues = [list(reversed(moves)) for moves in kinds.values()]
    return [queues[k].pop() for k in order]


def units(board: Board, plans: Iterable[Sequence[PlannedMove]], *, parallel: bool) -> int:
    """How many processes are moved one after the other: all, or in parallel the most of one machine ([Atif2011] 9).

    In parallel each machine moves its processes one by one, out or in, and machines do not wait for each other.
    """
    moves = [move for each in plans for move in each]
    if not parallel:
        return len(moves)
    out: dict[int, int] = {}
    into: dict[int, int] = {}
    for move in moves:
        a, b = board.machine[move.source], board.machine[move.target]
        out[a], into[b] = out.get(a, 0) + 1, into.get(b, 0) + 1
    return max([*out.values(), *into.values()], default=0)


def _machines(board: Board) -> tuple[list[int], list[float]]:
    """Free places, counting the one above its nodes, and free memory of each machine. One past the end is negative."""
    count = max(board.machine) + 1
    places, memory = [1] * count, [tolerances.CAPACITY] * count
    for n, machine in enumerate(board.machine):
        places[machine] += 1
        memory[machine] += float(board.view.node_memory[n])
    for row, nodes in enumerate(board.nodes):
        for n in nodes:
            places[board.machine[n]] -= 1
            memory[board.machine[n]] -= board.footprint(row, n)
    return places, memory


def _search(kinds: list[_Kind], left: list[int], places: list[int], memory: list[float]) -> list[int] | None:
    """An order of kinds, each as often as `left` says, depth first; None where there is none, or after MOST_TRIED.

    What is on the machines follows from how many moves of each kind are left, so no such state is tried twice.
    """
    order: list[int] = []
    tried = {tuple(left)}
    choices = [_choices(kinds, left, places, memory)]
    while any(left):
        if choices[-1]:
            k = choices[-1].pop()
            _move(kinds[k], left, k, -1, places, memory)
            state = tuple(left)
            if state in tried or len(tried) >= MOST_TRIED:
                _move(kinds[k], left, k, 1, places, memory)
                continue
            tried.add(state)
            order.append(k)
            choices.append(_choices(kinds, left, places, memory))
        elif order:
            choices.pop()
            k = order.pop()
            _move(kinds[k], left, k, 1, places, memory)
        else:
            return None
    return order


def _choices(kinds: list[_Kind], left: list[int], places: list[int], memory: list[float]) -> list[int]:
    """Kinds that can move now, the best last: out of the fullest machine, into the emptiest; ties: the first kind."""
    able = [
        k
        for k, kind in enumerate(kinds)
        if left[k] and (kind.source == kind.target or (places[kind.target] > 0 and memory[kind.target] >= kind.takes))
    ]
    return sorted(able, key=lambda k: (-places[kinds[k].source], places[kinds[k].target], -k))


def _move(kind: _Kind, left: list[int], k: int, sign: int, places: list[int], memory: list[float]) -> None:
    """Perform one move of the kind, or with sign 1 take it back."""
    left[k] += sign
    places[kind.source] -= sign
    places[kind.target] += sign
    memory[kind.source] -= sign * kind.frees
    memory[kind.target] += sign * kind.takes
