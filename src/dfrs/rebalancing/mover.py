"""Carrying out a plan: a protocol for what moves machines, and the loop that gives it the moves in their order.

A move begins when all that the plan has ended before it are done and verified. The first failure ends it: what runs is
waited for, nothing more is begun. It is safe to carry out the same plan again: what is where it should be is not moved.
"""

import math
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Protocol

from dfrs.model.errors import DfrsError, InputError


class MigrationError(DfrsError):
    """A machine could not be moved: the message says which, from where to where, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One move of a plan; times are the plan's, from its beginning."""

    machine: str
    source: str
    target: str
    start_s: float
    end_s: float


class Mover(Protocol):
    """What can move machines between hosts while they run."""

    def where(self, hosts: Collection[str] | None = None) -> Mapping[str, str]:
        """The host of each machine that runs on one of `hosts`, by default on any. Raises DfrsError."""
        ...

    def move(self, move: Migration, /) -> None:
        """Move a machine and return when it runs on the target. Raises MigrationError; it then runs on the source."""
        ...

    def abort(self, move: Migration, /) -> None:
        """Have a `move` that another thread waits for end soon; nothing if it cannot."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How carrying out a plan ended."""

    done: tuple[Migration, ...]
    skipped: tuple[Migration, ...]
    """Those whose machine was already where they lead, or further."""
    remaining: tuple[Migration, ...]
    failure: str = ""
    """In one line: what failed first, or that it was interrupted; empty if all was done."""
    where: Mapping[str, str]
    """The host of each machine that a move concerns, as found at the end; where hosts did not answer then, as the moves
    that were made say, without machines whose move failed."""

    @property
    def complete(self) -> bool:
        """Whether everything is where the plan wants it."""
        return not self.failure and not self.remaining


class Stop:
    """Asks a running execution to end: once, begin nothing more; twice and each time after, abort what runs."""

    def __init__(self) -> None:
        self._asked = 0
        self._changed = threading.Event()

    def ask(self) -> int:
        """Ask once more; how often that was."""
        self._asked += 1
        self._changed.set()
        return self._asked

    @property
    def asked(self) -> int:
        """How often it was asked."""
        return self._asked


def check_moves(moves: Iterable[Migration], where: Mapping[str, str]) -> tuple[list[Migration], list[Migration]]:
    """(to do, already done) of `moves` in their order, given where machines run. Raises InputError.

    A machine that is on the way of its moves is taken from there. One that its moves lead back to where it was before
    has made them only as far as moves of others show, which begin after them.
    """
    chains: dict[str, list[Migration]] = {}
    listed = sorted(moves, key=lambda m: (m.start_s, m.end_s))
    for move in listed:
        chains.setdefault(move.machine, []).append(move)
    possible = {machine: _possible(machine, chain, where.get(machine)) for machine, chain in chains.items()}
    latest = -math.inf
    while True:
        # What ends before a move begins that was made was made too.
        made = {
            machine: next((n for n in counts if n >= sum(m.end_s <= latest for m in chains[machine])), counts[-1])
            for machine, counts in possible.items()
        }
        begun = max((chains[machine][n - 1].start_s for machine, n in made.items() if n), default=latest)
        if begun <= latest:
            break
        latest = begun
    finished = {id(move) for machine, n in made.items() for move in chains[machine][:n]}
    return [m for m in listed if id(m) not in finished], [m for m in listed if id(m) in finished]


def _possible(machine: str, chain: Sequence[Migration], here: str | None) -> list[int]:
    """How many of its moves a machine may have made that runs `here`, in ascending order. Raises InputError."""
    if here is None:
        raise InputError(f'machine "{machine}" runs on none of the hosts: take a new snapshot')
    stops = [chain[0].source, *(move.target for move in chain)]
    counts = [n for n, host in enumerate(stops) if host == here]
    if not counts:
        raise InputError(
            f'machine "{machine}" runs on {here}: the plan has it on {chain[0].source}; take a new snapshot'
        )
    return counts


def carry_out(
    moves: Sequence[Migration],
    mover: Mover,
    *,
    stop: Stop | None = None,
    told: Callable[[str, Migration, str], None] = lambda what, move, why: None,
    tick_s: float = 0.1,
) -> Execution:
    """Move what is not yet where `moves` lead, in the order and side by side as their times say.

    `told(what, move, why)` hears of each move that "begins", is "done", has "failed" or is "skipped". Raises InputError
    where a machine is somewhere that the plan does not know.
    """
    stop = stop or Stop()
    began = mover.where()
    todo, skipped = check_moves(moves, began)
    for move in skipped:
        told("skipped", move, "")
    done: list[Migration] = []
    failed: set[str] = set()
    waiting = list(todo)
    running: dict[Future[None], Migration] = {}
    failure = ""
    # How often it had been asked to stop when moves were last aborted; the first time aborts nothing.
    aborted_at = 1
    with ThreadPoolExecutor(max_workers=max(1, len(todo))) as pool:
        while running or (waiting and not failure and not stop.asked):
            if not failure and not stop.asked:
                for move in _ready(waiting, running.values()):
                    waiting.remove(move)
                    told("begins", move, "")
                    running[pool.submit(_moved, mover, move)] = move
            ended, _ = wait(running, timeout=tick_s, return_when=FIRST_COMPLETED)
            for future in ended:
                move = running.pop(future)
                error = future.exception()
                if error is None:
                    done.append(move)
                    told("done", move, "")
                    continue
                why = str(error) if isinstance(error, DfrsError) else f"{type(error).__name__}: {error}"
                told("failed", move, why)
                failed.add(move.machine)
                first = "interrupted" if aborted_at > 1 else f"{move.machine}: {move.source} to {move.target}: {why}"
                failure = failure or first
            # Each time again: a move that had only just begun may have had nothing yet to abort.
            if stop.asked > aborted_at:
                aborted_at = stop.asked
                for move in running.values():
                    mover.abort(move)
    if not failure and waiting:
        failure = "interrupted"
    try:
        found = mover.where()
    except DfrsError:
        # What was done and what remains has to be told all the more when a host is gone.
        found = {**began, **{move.machine: move.target for move in done}}
        found = {machine: host for machine, host in found.items() if machine not in failed}
    remaining = [m for m in todo if m not in done]
    concerned = sorted({m.machine for m in moves})
    return Execution(
        done=tuple(done),
        skipped=tuple(skipped),
        remaining=tuple(remaining),
        failure=failure,
        where={machine: found[machine] for machine in concerned if machine in found},
    )


def _ready(waiting: Sequence[Migration], running: Iterable[Migration]) -> list[Migration]:
    """Those of `waiting` for which nothing that the plan ends before them is waiting or running.

    Moves that take no time and are due at the same one would wait for each other: the first in the list goes first.
    """
    under_way, found = list(running), list[Migration]()
    for k, move in enumerate(waiting):
        times = move.start_s, move.end_s
        later = (m for m in waiting[k + 1 :] if (m.start_s, m.end_s) != times)
        if not any(m.end_s <= move.start_s for m in (*under_way, *waiting[:k], *later)):
            found.append(move)
    return found


def _moved(mover: Mover, move: Migration) -> None:
    mover.move(move)
    # A host may say that it is done and be wrong: the next moves count on the memory that this one freed.
    if mover.where([move.target]).get(move.machine) != move.target:
        raise MigrationError(f"said to be moved, but does not run on {move.target}")
