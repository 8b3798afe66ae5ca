"""Nodes that are reserved for maintenance, and when.

Which node is closed follows from the reservations and the wall clock alone: nothing is done at a start or an end. So it
makes no difference whether a controller was there then, or which one.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from dfrs.live.controller import tables
from dfrs.live.controller.database import Change
from dfrs.live.errors import ConflictError, NotFoundError
from dfrs.live.protocol.resources import Reservation, ReservationRequest
from dfrs.model.errors import InputError

KEY = "reservation "
"""Begins the key of a reservation in the table of single values, before its number."""
KEPT_S = 30 * 86400.0
"""So long after its end it is kept, as the wall clock may have been wrong."""
LATEST_START_S = 10 * 366 * 86400.0
"""So far ahead it may start."""


class Reservations:
    """All that are recorded, also those that have ended or were cancelled."""

    def __init__(self) -> None:
        self._all: dict[int, Reservation] = {}
        self._by_node: dict[str, tuple[Reservation, ...]] = {}
        """Those that were not cancelled, by their starts."""
        self._next = 1

    def restore(self, meta: Mapping[str, str]) -> None:
        """Take in what is recorded. Raises ValueError."""
        texts = (value for key, value in meta.items() if key.startswith(KEY))
        self._all = {each.id: each for each in map(Reservation.model_validate_json, texts)}
        self._next = max(self._all, default=0) + 1
        self._index()

    def make(self, request: ReservationRequest, by: str, now: float, known: Collection[str]) -> Reservation:
        """A new one, of `known` nodes. Raises InputError."""
        start_at = now if request.start_at is None else request.start_at
        if start_at < now:
            raise InputError(f"start_at: {start_at:.0f}: must not be over; leave it out to begin now")
        if start_at > now + LATEST_START_S:
            raise InputError(f"start_at: {start_at:.0f}: must be at most 10 years ahead")
        for name in request.nodes:
            if name not in known:
                raise InputError(f"nodes: {name}: there is no such node")
        made = Reservation(
            id=self._next,
            nodes=tuple(dict.fromkeys(request.nodes)),
            start_at=start_at,
            end_at=start_at + request.duration_s,
            reason=request.reason,
            evacuate=request.evacuate,
            by=by,
        )
        self._next += 1
        return made

    def addition(self, made: Reservation, now: float) -> list[Change]:
        """What records a new one, and forgets those that ended long ago."""
        old = [each for each in self._all.values() if each.end_at + KEPT_S < now]
        return [
            (tables.DROP_META, [{"b_key": f"{KEY}{each.id}"} for each in old]),
            (tables.ADD_META, [{"key": f"{KEY}{made.id}", "value": made.model_dump_json()}]),
        ]

    def cancelled(self, number: int, now: float) -> Reservation:
        """That one, cancelled. Raises NotFoundError; ConflictError where it is over."""
        found = self._all.get(number)
        if found is None:
            raise NotFoundError(f"reservation {number}: there is no such reservation")
        if found.cancelled or found.end_at <= now:
            raise ConflictError(f"reservation {number}: {'was cancelled' if found.cancelled else 'has ended'}")
        return found.model_copy(update={"cancelled": True})

    def change(self, changed: Reservation) -> Change:
        """What records that one is other than before."""
        return tables.SET_META, [{"b_key": f"{KEY}{changed.id}", "b_value": changed.model_dump_json()}]

    def put(self, each: Reservation) -> None:
        """It is recorded so."""
        self._all[each.id] = each
        self._index()

    def _index(self) -> None:
        found: dict[str, list[Reservation]] = {}
        for each in sorted(self._all.values(), key=_order):
            for name in () if each.cancelled else each.nodes:
                found.setdefault(name, []).append(each)
        self._by_node = {name: tuple(those) for name, those in found.items()}

    def open(self, now: float) -> Sequence[Reservation]:
        """Those that have not ended, by their starts."""
        return sorted((each for each in self._all.values() if not each.cancelled and now < each.end_at), key=_order)

    def of_node(self, name: str, now: float) -> tuple[Reservation, ...]:
        """Those of a node that have not ended, by their starts."""
        return tuple(each for each in self._by_node.get(name, ()) if now < each.end_at)

    def on(self, name: str, now: float) -> Reservation | None:
        """The one that closes a node now; of several the one that does so longest."""
        return last_of(each for each in self._by_node.get(name, ()) if each.is_on(now))

    def emptied(self, name: str, now: float) -> Reservation | None:
        """The one by which jobs that are on a node now are queued again."""
        return last_of(each for each in self._by_node.get(name, ()) if each.is_on(now) and each.evacuate)


def last_of(reservations: Iterable[Reservation]) -> Reservation | None:
    """The one that ends last; None of none."""
    return max(reservations, key=lambda each: each.end_at, default=None)


def _order(each: Reservation) -> tuple[Any, ...]:
    return each.start_at, each.id
