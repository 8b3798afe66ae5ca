"""Where every move that is left waits for another one: larger steps, and temporary moves.

A rule can keep tasks from moving one by one that may move as one step: those are tried first. Then a task goes to a
third node with room for a time. All tasks that stand in the way are tried, fewest bytes first, on all nodes, and one
temporary move is kept if it lets more tasks reach their targets than it takes away; if none does, two in a row, then
three. Tasks whose place does not change in the plan stand aside too, where nothing else helps, and come back.
"""

import time
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from dfrs.model.tolerances import PLACEMENT
from dfrs.placement.plan_order import Mark, Order, Step
from dfrs.placement.plan_state import NOWHERE, ROOM, RULE, Leg

PASSES = ((1, 3), (1, None), (2, 3), (2, None), (3, 3), (3, None))
"""Temporary moves in a row, and nodes tried for each task."""

SMALL = 200
"""With at most this many tasks any of them may make room for a temporary move; with more only those in the way."""


@dataclass(slots=True)
class Effort:
    """What looking for temporary moves may take in all."""

    tries: int
    until_s: float
    """By `time.monotonic`."""

    @property
    def over(self) -> bool:
        """Whether there is no try left."""
        return self.tries <= 0 or time.monotonic() > self.until_s

    def spend(self) -> bool:
        """Whether there is another try."""
        self.tries -= 1
        return self.tries >= 0 and time.monotonic() <= self.until_s


@dataclass(frozen=True, slots=True)
class Unit:
    """Tasks that stand aside together, and which block of the order they are; None where they were not to move."""

    tasks: tuple[int, ...]
    block: int | None


Trial = list[tuple[Step, Unit]]
"""Steps made on trial, and whose they are."""


def unlock(order: Order, effort: Effort | None) -> bool:
    """Make steps that let more tasks reach their targets; False if none were found.

    Without `effort` no move is temporary.
    """
    return _merge(order) or (effort is not None and Detours(order, effort).find())


def _merge(order: Order) -> bool:
    """Join blocks that a rule keeps from moving one by one, if they may move as one step."""
    for _, g in sorted(m for m, blocks in order.waiting.items() if m[0] == RULE and blocks):
        for blocks in _unions(order, g):
            legs = tuple(leg for k in blocks for leg in order.legs(order.blocks[k]))
            if order.blocker(legs) is None:
                order.make(Step(legs), blocks)
                return True
    return False


def _unions(order: Order, g: int) -> Iterator[list[int]]:
    """Sets of blocks that move members of group `g`, or of those linked to it: of one domain, then all."""
    groups = order.state.groups
    if groups is None:
        return
    place = order.state.place
    owner = {i: k for k in order.pending for i in order.blocks[k].tasks}
    for members in (groups.members(g), [i for x in groups.linked(g) for i in groups.members(x)]):
        found = list(dict.fromkeys(owner[i] for i in members if i in owner))
        by_domain: dict[int, list[int]] = defaultdict(list)
        for k in found:
            by_domain[groups.domain(g, place[order.blocks[k].tasks[0]])].append(k)
        yield from (blocks for _, blocks in sorted(by_domain.items()) if len(blocks) > 1)
        if len(by_domain) > 1:
            yield found


class Detours:
    """Looks for temporary moves that lead on from where `order` is."""

    def __init__(self, order: Order, effort: Effort) -> None:
        self.order = order
        self.state = order.state
        self.effort = effort
        self.trial: Trial = []
        self.parked: list[tuple[Mark, Unit]] = []
        """Units that were tried during the trial, and what they waited for."""
        self.seen: set[tuple[int, frozenset[tuple[int, int]]]] = set()
        self.least = 0
        """No tries are made below this many."""
        self._look()

    def _look(self) -> None:
        """Take note of where the order is."""
        self.owner = {i: k for k in self.order.pending for i in self.order.blocks[k].tasks}
        self._ruled: set[int] | None = None

    def find(self) -> bool:
        """Make steps that let more tasks reach their targets; False if none were found."""
        if not any(blocks and kind in {ROOM, RULE} for (kind, _), blocks in self.order.waiting.items()):
            return False
        return any(self._sweep(depth, width) for depth, width in PASSES)

    def _sweep(self, depth: int, width: int | None) -> bool:
        """Let each task in the way stand aside in turn; keep what leads on. Takes a part of the tries that are left."""
        found = False
        self.seen.clear()
        self.least = self.effort.tries * 2 // 3
        for unit in self._in_the_way(last=depth == 1):
            # What was kept since may have moved it.
            if found and (unit != self._unit(unit.tasks[0]) or (depth == 1 and not self._helps(unit))):
                continue
            if self._attempt(unit, depth, width):
                self._keep()
                found = True
            if self.effort.tries < self.least or self.effort.over:
                break
        return found

    def _search(self, depth: int, width: int | None) -> bool:
        """Whether `depth` temporary moves more lead on; `trial` has the steps then, and the state is after them."""
        return any(self._attempt(unit, depth, width) for unit in self._in_the_way(last=depth == 1))

    def _attempt(self, unit: Unit, depth: int, width: int | None) -> bool:
        """Whether it leads on that `unit` stands aside, and then up to `depth` - 1 others."""
        if self.effort.tries < self.least or not self.effort.spend():
            return False
        for c in self._refuges(unit, width):
            if self.effort.tries < self.least or not self.effort.spend():
                return False
            legs: tuple[Leg, ...] = tuple((i, self.state.place[i], c) for i in unit.tasks)
            if self.order.blocker(legs) is not None:
                continue
            made, parked = len(self.trial), len(self.parked)
            self._try(Step(legs, temporary=True), unit)
            if not self._been_here(depth):
                self._follow(legs)
                if self._leads_on() or (depth > 1 and self._search(depth - 1, width)):
                    return True
            self._take_back(made, parked)
        return False

    def _been_here(self, depth: int) -> bool:
        """Whether the same tasks stood on the same nodes before, in another order of leaving."""
        touched = {i for step, _ in self.trial for i, _, _ in step.legs}
        key = depth, frozenset((i, self.state.place[i]) for i in touched)
        if key in self.seen:
            return True
        self.seen.add(key)
        return False

    def _try(self, step: Step, unit: Unit) -> None:
        self.state.apply(step.legs)
        self.trial.append((step, unit))

    def _take_back(self, made: int, parked: int) -> None:
        for step, _ in reversed(self.trial[made:]):
            self.state.undo(step.legs)
        del self.trial[made:], self.parked[parked:]

    def _leads_on(self) -> bool:
        """Whether more tasks reached their target than left theirs."""
        place, target = self.state.place, self.order.target
        touched = {i for step, _ in self.trial for i, _, _ in step.legs}
        return sum((i in self.owner) - (place[i] != target[i]) for i in touched) > 0

    def _follow(self, legs: tuple[Leg, ...]) -> None:
        """Make the steps that `legs`, and then the steps themselves, make possible."""
        order = self.order
        first = self.trial[-1]
        queue = deque(order.freed(legs))
        aside = list(dict.fromkeys(unit for step, unit in self.trial if step.temporary))
        while queue:
            mark = queue.popleft()
            waiting = [Unit(order.blocks[k].tasks, k) for k in sorted(order.waiting.get(mark, ()))]
            for unit in (*waiting, *(unit for m, unit in self.parked if m == mark), *aside):
                way = self._way(unit)
                # To go straight back would lead nowhere.
                if not way or (self.trial[-1] is first and unit == first[1]):
                    continue
                blocker = order.blocker(way)
                if blocker is None:
                    self._try(Step(way), unit)
                    queue.extend(order.freed(way))
                elif unit not in aside:
                    self.parked.append(((blocker.kind, blocker.key), unit))

    def _way(self, unit: Unit) -> tuple[Leg, ...]:
        place, target = self.state.place, self.order.target
        return tuple((i, place[i], target[i]) for i in unit.tasks if place[i] != target[i])

    def _in_the_way(self, *, last: bool) -> list[Unit]:
        """Tasks whose leaving may let others move: fewest bytes first, where those that come back count twice."""
        state, groups = self.state, self.state.groups
        small = len(state.place) <= SMALL
        found: set[int] = set()
        for kind, key in self._marks(everywhere=small or not self.trial):
            if kind == ROOM:
                found |= state.tasks_on(key)
            elif kind == RULE and groups is not None:
                found.update(i for g in groups.linked(key) for i in groups.members(g))
        if small and not last:
            found.update(range(len(state.place)))
        found -= {i for step, _ in self.trial if step.temporary for i, _, _ in step.legs}
        units = dict.fromkeys(self._unit(i) for i in sorted(found) if state.place[i] != NOWHERE)
        cost = self.order.traffic.bytes

        def price(unit: Unit) -> tuple[float, bool, tuple[int, ...]]:
            legs = 1 if unit.block is not None else 2
            return legs * sum(cost[i] for i in unit.tasks), unit.block is None, unit.tasks

        return sorted((unit for unit in units if not last or self._helps(unit)), key=price)

    def _marks(self, *, everywhere: bool) -> set[Mark]:
        """What blocks wait for; or only what those wait for that steps of the trial may have led to."""
        waiting = self.order.waiting
        local = {mark for mark, _ in self.parked}
        if everywhere:
            return local | {mark for mark, blocks in waiting.items() if blocks}
        left = {mark for step, _ in self.trial if step.temporary for mark in self.order.freed(step.legs)}
        return local | {mark for mark in left if waiting.get(mark)}

    def _helps(self, unit: Unit) -> bool:
        """Whether a block could move at once if `unit` left; where a rule is waited for, perhaps."""
        state = self.state
        if self._ruled is None:
            groups = state.groups
            self._ruled = {
                i
                for (kind, g), blocks in self.order.waiting.items()
                if kind == RULE and blocks and groups is not None
                for x in groups.linked(g)
                for i in groups.members(x)
            }
        if not self._ruled.isdisjoint(unit.tasks) or any(mark[0] == RULE for mark, _ in self.parked):
            return True
        for n in {state.place[i] for i in unit.tasks}:
            leaving = [state.base[i] for i in unit.tasks if state.place[i] == n]
            room = [free + sum(size) for free, size in zip(state.room[n], zip(*leaving, strict=True), strict=True)]
            waiting = [Unit(self.order.blocks[k].tasks, k) for k in self.order.waiting.get((ROOM, n), ())]
            waiting += [other for mark, other in self.parked if mark == (ROOM, n)]
            for other in waiting:
                size = state.arrivals(self._way(other)).get(n)
                if size is not None and all(w <= 0.0 or w - f <= PLACEMENT for w, f in zip(size, room, strict=True)):
                    return True
        return False

    def _unit(self, i: int) -> Unit:
        """Task `i` and those that must be on its node with it."""
        k = self.owner.get(i)
        if k is not None and self._way(unit := Unit(self.order.blocks[k].tasks, k)):
            return unit
        groups = self.state.groups
        tasks, queue = {i}, [i]
        while groups is not None and queue:
            for g in groups.of(queue.pop()):
                if groups.most_domains[g] == 1 and groups.by_node(g):
                    new = [j for j in groups.members(g) if j not in tasks and self.state.place[j] != NOWHERE]
                    tasks.update(new)
                    queue += new
        return Unit(tuple(sorted(tasks)), k if k is not None and tasks == set(self.order.blocks[k].tasks) else None)

    def _refuges(self, unit: Unit, width: int | None) -> list[int]:
        """Nodes with room for the tasks: those first that were asked least, then those that no task waits for.

        Detours over one node follow one another; over several they are made at the same time.
        """
        state = self.state
        size = state.instance.base[list(unit.tasks)].sum(axis=0)
        slope = state.instance.slope[list(unit.tasks)].sum(axis=0)
        left = state.room_of - size
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = state.rate_of + slope
            value = np.where(rate > 0.0, left.clip(0.0) / rate, 1.0).min(axis=1)
        fits = ((left >= -PLACEMENT) | (size == 0.0)).all(axis=1)
        for i in unit.tasks:
            fits[[state.place[i], self.order.target[i]]] = False
        for (kind, key), blocks in self.order.waiting.items():
            if kind == ROOM and blocks:
                value[key] -= 2.0
        for n, times in self.order.hosted.items():
            value[n] -= 4.0 * times
        nodes = np.flatnonzero(fits)
        nodes = nodes[np.argsort(-value[nodes], kind="stable")]
        allowed = (int(n) for n in nodes if all(state.allowed(i, int(n)) for i in unit.tasks))
        return list(islice(allowed, width))

    def _keep(self) -> None:
        """Make the steps of the trial for good, through the order."""
        order, trial = self.order, list(self.trial)
        self._take_back(0, 0)
        guests: dict[Unit, int] = {}
        for step, unit in trial:
            if not step.temporary:
                order.make(step, (guests[unit] if unit.block is None else unit.block,))
                continue
            order.make(step)
            order.hosted.update({b for _, _, b in step.legs})
            if unit.block is not None:
                order.blocks[unit.block].done = False
                order.relocate(unit.block)
                order.push(unit.block)
            elif unit not in guests:
                guests[unit] = order.add(unit.tasks)
        order.drain()
        self._look()
