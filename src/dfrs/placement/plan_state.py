"""A placement that steps change: what is free on each node, the node's yield, and how groups spread over domains.

A step is a set of moves that start together and count as done together. While it lasts each of its tasks takes its
base on both nodes, so a step asks for room on the nodes it enters before any task of it leaves.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from dfrs.model import tolerances
from dfrs.model.instance import Floats, Instance, Ints
from dfrs.model.rule_arrays import RuleArrays

NOWHERE = -1

Leg = tuple[int, int, int]
"""A task, the node it leaves (NOWHERE: it starts), the node it goes to."""

ROOM, RULE, BARRED, LIMIT = range(4)


class Blocker(NamedTuple):
    """Why a step cannot be made now: a node without room, a group's rule, or a node that a task may not be on."""

    kind: int
    key: int
    """The node (ROOM, BARRED) or the group (RULE); the size of the step (LIMIT)."""
    resource: int = -1
    lacking: float = 0.0
    text: str = ""


class Groups:
    """Members of each group in each domain of its level, counted when a group is first asked for."""

    def __init__(self, rules: RuleArrays, place: list[int]) -> None:
        self._place = place
        self.rules = rules
        self._first = rules.first.tolist()
        self._group = rules.group.tolist()
        self._level = rules.level.tolist()
        self._domain: list[list[int]] = rules.domain.tolist()
        self.most: list[int] = rules.most.tolist()
        self.most_domains: list[int] = rules.most_domains.tolist()
        self.fewest_domains: list[int] = rules.fewest_domains.tolist()
        self.host: list[int] = rules.host.tolist()
        self.guest: list[int] = rules.guest.tolist()
        self._count: dict[int, dict[int, int]] = {}
        owner = np.repeat(np.arange(len(rules.first) - 1), np.diff(rules.first))
        self._owner = owner[np.argsort(rules.group, kind="stable")]
        self._start = np.searchsorted(np.sort(rules.group), np.arange(len(rules.level) + 1))

    def of(self, i: int) -> list[int]:
        """Groups of task `i`."""
        return self._group[self._first[i] : self._first[i + 1]]

    def members(self, g: int) -> list[int]:
        """Tasks of group `g`."""
        return self._owner[self._start[g] : self._start[g + 1]].tolist()

    def domain(self, g: int, n: int) -> int:
        """Domain of node `n` at the level of group `g`; NOWHERE for NOWHERE."""
        return self._domain[self._level[g]][n] if n >= 0 else NOWHERE

    def by_node(self, g: int) -> bool:
        """Whether the group counts nodes, not larger domains."""
        return self._level[g] == 0

    def linked(self, g: int) -> list[int]:
        """The group, and the groups whose rule its members decide with it."""
        return [g, *(x for x in (self.host[g], self.guest[g]) if x >= 0)]

    def count(self, g: int) -> dict[int, int]:
        """Domain to members, without domains that have none."""
        found = self._count.get(g)
        if found is None:
            found = {}
            for i in self.members(g):
                at = self.domain(g, self._place[i])
                if at >= 0:
                    found[at] = found.get(at, 0) + 1
            self._count[g] = found
        return found

    def changes(self, legs: Iterable[Leg]) -> dict[int, dict[int, int]]:
        """Group to domain to members more (or fewer) once the step is done; groups without any are left out."""
        found: dict[int, dict[int, int]] = {}
        for i, a, b in legs:
            for g in self.of(i):
                source, target = self.domain(g, a), self.domain(g, b)
                if source != target:
                    change = found.setdefault(g, defaultdict(int))
                    if source >= 0:
                        change[source] -= 1
                    if target >= 0:
                        change[target] += 1
        found = {g: {k: v for k, v in change.items() if v} for g, change in found.items()}
        return {g: change for g, change in found.items() if change}

    def apply(self, changes: dict[int, dict[int, int]]) -> None:
        """Count the members of a step where they are now."""
        for g, change in changes.items():
            count = self.count(g)
            for at, more in change.items():
                count[at] = count.get(at, 0) + more
                if not count[at]:
                    del count[at]

    def gain(self, changes: dict[int, dict[int, int]]) -> tuple[int, int]:
        """(group whose rule the step breaks or makes worse, or -1; by how much it mends rules in all)."""
        mended = 0
        for g, change in changes.items():
            for better in (*self._spread(g, change), *self._strays(changes, g)):
                if better < 0:
                    return g, 0
                mended += better
        return -1, mended

    def _spread(self, g: int, change: dict[int, int]) -> tuple[int, int, int]:
        count = self.count(g)
        most, used = self.most[g], len(count)
        excess = opened = 0
        for at, more in change.items():
            c = count.get(at, 0)
            excess += max(0, c - most) - max(0, c + more - most)
            opened += int(c == 0) - int(c + more == 0)
        top, low = self.most_domains[g], self.fewest_domains[g]
        beyond = max(0, used - top) - max(0, used + opened - top)
        missing = max(0, low - used) - max(0, low - used - opened)
        return excess, beyond, missing

    def _strays(self, changes: dict[int, dict[int, int]], g: int) -> list[int]:
        better: list[int] = []
        # A pair of groups that both change is looked at once, as the guest's.
        pairs = [(g, self.host[g])] if self.host[g] >= 0 else []
        if self.guest[g] >= 0 and self.guest[g] not in changes:
            pairs.append((self.guest[g], g))
        for guest, host in pairs:
            guests, hosts = self.count(guest), self.count(host)
            to_guests, to_hosts = changes.get(guest, {}), changes.get(host, {})
            total = 0
            for at in {*to_guests, *to_hosts}:
                before, under = guests.get(at, 0), hosts.get(at, 0)
                total += before if under == 0 else 0
                total -= before + to_guests.get(at, 0) if under + to_hosts.get(at, 0) == 0 else 0
            better.append(total)
        return better


class PlanState:
    """Where tasks are, with loads, yields and groups kept up to date."""

    def __init__(self, instance: Instance, place: Ints, rules: RuleArrays | None) -> None:
        self.instance = instance
        self.place: list[int] = place.tolist()
        self.base: list[list[float]] = instance.base.tolist()
        self.slope: list[list[float]] = instance.slope.tolist()
        placed = place >= 0
        nodes, dims = instance.capacity.shape
        rate = np.zeros((nodes, dims))
        load = np.zeros((nodes, dims))
        for d in range(dims):
            load[:, d] = np.bincount(place[placed], instance.base[placed, d], nodes)
            rate[:, d] = np.bincount(place[placed], instance.slope[placed, d], nodes)
        self.room_of: Floats = instance.capacity - load
        self.rate_of: Floats = rate
        self.room: list[list[float]] = self.room_of.tolist()
        self.rate: list[list[float]] = rate.tolist()
        self.node_yield = node_yields(self.room_of, rate)
        self.groups = Groups(rules, self.place) if rules is not None and rules.level.size else None
        self._allowed = rules.allowed if rules is not None and not rules.allowed.all() else None
        self._kind_of = rules.kind_of if rules is not None else None
        self._tasks_on: list[set[int]] | None = None

    @property
    def minimum_yield(self) -> float:
        """Least scaled yield of the tasks that are placed; -1 where a node's requirements pass its capacity."""
        return float(self.node_yield.min())

    def tasks_on(self, n: int) -> set[int]:
        """Tasks on node `n`."""
        if self._tasks_on is None:
            self._tasks_on = [set[int]() for _ in self.room]
            for i, at in enumerate(self.place):
                if at >= 0:
                    self._tasks_on[at].add(i)
        return self._tasks_on[n]

    def allowed(self, i: int, n: int) -> bool:
        """Whether task `i` may be on node `n`, other tasks apart."""
        if self._allowed is None or self._kind_of is None:
            return True
        return bool(self._allowed[self._kind_of[i], n])

    def lacks(self, n: int, size: list[float]) -> tuple[int, float] | None:
        """(resource, amount) that node `n` lacks for `size` (D,); None where it has room."""
        for d, (free, wanted) in enumerate(zip(self.room[n], size, strict=True)):
            if wanted > 0.0 and wanted - free > tolerances.PLACEMENT:
                return d, wanted - max(free, 0.0)
        return None

    def blocker(self, legs: tuple[Leg, ...]) -> Blocker | None:
        """What keeps a step from being made now, all earlier ones done; None if nothing does."""
        for i, _, b in legs:
            if self._allowed is not None and not self.allowed(i, b):
                return Blocker(BARRED, b)
        for b, size in self.arrivals(legs).items():
            lacking = self.lacks(b, size)
            if lacking is not None:
                return Blocker(ROOM, b, *lacking)
        if self.groups is not None:
            harmed, _ = self.groups.gain(self.groups.changes(legs))
            if harmed >= 0:
                return Blocker(RULE, harmed)
        return None

    def arrivals(self, legs: tuple[Leg, ...]) -> dict[int, list[float]]:
        """Node to the base (D,) that a step brings there."""
        if len(legs) == 1:
            return {legs[0][2]: self.base[legs[0][0]]}
        found: dict[int, list[float]] = {}
        for i, _, b in legs:
            size = found.get(b)
            found[b] = list(self.base[i]) if size is None else [x + y for x, y in zip(size, self.base[i], strict=True)]
        return found

    def apply(self, legs: tuple[Leg, ...]) -> None:
        """Make a step: its tasks are on the nodes they went to, and no longer on those they left."""
        if self.groups is not None:
            self.groups.apply(self.groups.changes(legs))
        for i, a, b in legs:
            self.place[i] = b
            if a >= 0:
                self._add(a, i, -1.0)
            if b >= 0:
                self._add(b, i, 1.0)
            if self._tasks_on is not None:
                if a >= 0:
                    self._tasks_on[a].discard(i)
                if b >= 0:
                    self._tasks_on[b].add(i)

    def undo(self, legs: tuple[Leg, ...]) -> None:
        """The reverse of `apply`."""
        self.apply(tuple((i, b, a) for i, a, b in legs))

    def yield_with(self, n: int, size: list[float], slope: list[float]) -> float:
        """Yield of node `n` with `size` and `slope` (D,) more on it."""
        value = 1.0
        for free, rate, more, steeper in zip(self.room[n], self.rate[n], size, slope, strict=True):
            left = free - more
            if left < -tolerances.PLACEMENT:
                return -1.0
            # Below 0 by rounding alone: where nothing is shared, nothing can be too little.
            left = max(left, 0.0)
            if (rate + steeper) * value > left:
                value = left / (rate + steeper)
        return value

    def _add(self, n: int, i: int, sign: float) -> None:
        room, rate = self.room[n], self.rate[n]
        for d, (size, slope) in enumerate(zip(self.base[i], self.slope[i], strict=True)):
            room[d] -= sign * size
            rate[d] += sign * slope
            # Of a node that is empty again only rounding is left.
            if rate[d] < _ROUNDING:
                rate[d] = 0.0
        self.room_of[n] = room
        self.rate_of[n] = rate
        self.node_yield[n] = self.yield_with(n, _NONE[len(room)], _NONE[len(room)])


_ROUNDING = 1e-13
_NONE = [[0.0] * dims for dims in range(65)]


def node_yields(room: Floats, rate: Floats) -> Floats:
    """(N,) yield of each node with `room` (N, D) free at yield 0 and needs `rate` (N, D) above it; -1 if over."""
    with np.errstate(divide="ignore", invalid="ignore"):
        limit = np.where(rate > 0.0, room.clip(0.0) / rate, 1.0).min(axis=1).clip(0.0, 1.0)
    return np.where((room < -tolerances.PLACEMENT).any(axis=1), -1.0, limit)
