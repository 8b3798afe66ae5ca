"""Hosts in memory between which machines move: for tests of what carries out plans."""

import threading
import time
from collections.abc import Collection, Mapping

from dfrs.rebalancing.mover import Migration, MigrationError


class InMemoryMover:
    """A `Mover` that knows where machines are and refuses what real hosts cannot do.

    While a machine moves its memory counts on both hosts. `capacity` and `memory` are by host and by machine, in any
    unit; without them everything fits. `fails` says by machine why its next move fails, `lies` names machines whose
    moves are said to be done and are not, `gone` hosts that do not answer any more. A move lasts `lasts_s`, or until it
    is aborted.
    """

    def __init__(
        self,
        place: Mapping[str, str],
        *,
        capacity: Mapping[str, float] | None = None,
        memory: Mapping[str, float] | None = None,
        lasts_s: float = 0.0,
    ) -> None:
        self.place = dict(place)
        self.fails: dict[str, str] = {}
        self.lies: set[str] = set()
        self.gone: set[str] = set()
        self.begun: list[Migration] = []
        self.most_at_once = 0
        self._capacity, self._memory = dict(capacity or {}), dict(memory or {})
        self._lasts_s = lasts_s
        self._running: dict[str, tuple[Migration, threading.Event]] = {}
        self._lock = threading.Lock()

    def where(self, hosts: Collection[str] | None = None) -> Mapping[str, str]:
        """The host of each machine on `hosts`, by default on all. Raises MigrationError where one of them is gone."""
        with self._lock:
            if silent := sorted(self.gone if hosts is None else self.gone & set(hosts)):
                raise MigrationError(f"{silent[0]}: no answer")
            return {name: host for name, host in self.place.items() if hosts is None or host in hosts}

    def move(self, move: Migration, /) -> None:
        """Move a machine. Raises MigrationError where it is not on the source, does not fit, or shall fail."""
        aborted = threading.Event()
        with self._lock:
            if self.place.get(move.machine) != move.source:
                raise MigrationError(f"is not on {move.source}")
            self._check_room(move)
            self.begun.append(move)
            self._running[move.machine] = move, aborted
            self.most_at_once = max(self.most_at_once, len(self._running))
        stopped = aborted.wait(self._lasts_s) if self._lasts_s else False
        with self._lock:
            del self._running[move.machine]
            if stopped:
                raise MigrationError("aborted")
            if why := self.fails.pop(move.machine, ""):
                raise MigrationError(why)
            if move.machine not in self.lies:
                self.place[move.machine] = move.target

    def abort(self, move: Migration, /) -> None:
        """End a running move; the machine stays on its source."""
        with self._lock:
            if move.machine in self._running:
                self._running[move.machine][1].set()

    def wait_until_moving(self, count: int, timeout_s: float = 10.0) -> None:
        """Return when `count` machines move. Raises TimeoutError."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            with self._lock:
                if len(self._running) >= count:
                    return
            time.sleep(0.002)
        raise TimeoutError(f"{count} machines do not move after {timeout_s:g} s")

    def _check_room(self, move: Migration) -> None:
        if move.target not in self._capacity:
            return
        here = [name for name, host in self.place.items() if host == move.target]
        coming = [name for name, (other, _) in self._running.items() if other.target == move.target]
        taken = sum(self._memory.get(name, 0.0) for name in {*here, *coming, move.machine})
        if taken > self._capacity[move.target] + 1e-9:
            raise MigrationError(f"does not fit on {move.target}: {taken:g} of {self._capacity[move.target]:g}")
