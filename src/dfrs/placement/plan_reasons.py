"""What each move is for, found by making the moves again on the clock, and the minimum yield after each of them."""

from collections import defaultdict, deque

import numpy as np

from dfrs.model.instance import Ints
from dfrs.placement.plan_names import Names, listed
from dfrs.placement.plan_schedule import Timed
from dfrs.placement.plan_state import Leg, PlanState

LONGEST_CYCLE = 5
"""Nodes of an exchange that is named as one."""


def yields_after(state: PlanState, timed: list[Timed]) -> list[float | None]:
    """Minimum yield once all steps that end no later than each one have ended; None while a node is over capacity."""
    order = sorted(range(len(timed)), key=lambda k: (timed[k].end_s, k))
    values: list[float | None] = [None] * len(timed)
    at = 0
    while at < len(order):
        same = at
        while same < len(order) and timed[order[same]].end_s == timed[order[at]].end_s:
            state.apply(timed[order[same]].step.legs)
            same += 1
        value = state.minimum_yield
        for k in order[at:same]:
            values[k] = value if value >= 0 else None
        at = same
    for k in reversed(order):
        state.undo(timed[k].step.legs)
    return values


class Reasons:
    """Reasons of the moves of a plan that goes from `state` to `final` (T,)."""

    def __init__(self, state: PlanState, timed: list[Timed], final: Ints, names: Names) -> None:
        self.state = state
        self.timed = timed
        self.final: list[int] = final.tolist()
        self.names = names
        self._used = np.bincount(final[final >= 0], minlength=len(state.room))
        self._entering: dict[int, list[tuple[float, Leg]]] = defaultdict(list)
        self._ways: dict[int, list[int]] = defaultdict(list)
        for step, start_s, _ in timed:
            for leg in step.legs:
                self._entering[leg[2]].append((start_s, leg))
                if leg[1] >= 0 and not step.temporary:
                    self._ways[leg[1]].append(leg[2])
        self._aside: set[int] = set()

    def all(self) -> list[list[str]]:
        """For each step the reasons of its moves; the state is left as it was."""
        ends = sorted(range(len(self.timed)), key=lambda k: (self.timed[k].end_s, k))
        ended: list[int] = []
        found: list[list[str]] = []
        for k, now in enumerate(self.timed):
            while len(ended) < len(ends) and ends[len(ended)] < k:
                earlier = ends[len(ended)]
                if self.timed[earlier].end_s > now.start_s:
                    break
                self.state.apply(self.timed[earlier].step.legs)
                ended.append(earlier)
            found.append([self._reason(now, leg) for leg in now.step.legs])
            if now.step.temporary:
                self._aside |= {i for i, _, _ in now.step.legs}
        for k in reversed(ended):
            self.state.undo(self.timed[k].step.legs)
        return found

    def _reason(self, now: Timed, leg: Leg) -> str:
        i, a, _ = leg
        if a < 0:
            return "starts"
        if now.step.temporary:
            return self._detour(now, leg)
        return (
            self._repair(now, leg)
            or self._room_for(now, leg)
            or self._gain(i, a)
            or "brings no yield by itself: its place in the target"
        )

    def _repair(self, now: Timed, leg: Leg) -> str:
        """A node over its capacity, or a rule that is broken."""
        state, names = self.state, self.names
        i, a, _ = leg
        for d, (free, size) in enumerate(zip(state.room[a], state.base[i], strict=True)):
            if state.node_yield[a] < 0 and free < 0 < size:
                return f"relieves {names.node(a)} ({names.resource(d)} {-free:.2g} over capacity)"
        if not state.allowed(i, a):
            return names.leaving(i, a)
        if state.groups is not None:
            own = set(state.groups.of(i))
            for g, change in state.groups.changes(now.step.legs).items():
                if g in own and state.groups.gain({g: change})[1] > 0:
                    return names.keeping(g)
        return ""

    def _next(self, now: Timed, leg: Leg) -> Leg | None:
        """The first task that enters the node afterwards and has no room there yet."""
        i, a, _ = leg
        for start_s, other in self._entering[a]:
            if start_s >= now.end_s and other[0] != i:
                lacking = self.state.lacks(a, self.state.base[other[0]])
                if lacking is not None and self.state.base[i][lacking[0]] > 0.0:
                    return other
        return None

    def _room_for(self, now: Timed, leg: Leg) -> str:
        other = self._next(now, leg)
        return f"makes room on {self.names.node(leg[1])} for {self.names.task(other[0])}" if other else ""

    def _gain(self, i: int, a: int) -> str:
        node, value = self.names.node(a), float(self.state.node_yield[a])
        if value < 1.0 and value <= self.state.minimum_yield:
            return f"relieves {node} (yield {value:.2f}, the lowest)"
        if i in self._aside:
            return f"leaves {node}, where it was for a time"
        if not self._used[a]:
            return f"empties {node}"
        return f"relieves {node} (yield {value:.2f})" if value < 1.0 else ""

    def _detour(self, now: Timed, leg: Leg) -> str:
        i, a, _ = leg
        cycle = self._cycle(a, self.final[i])
        if cycle:
            return f"temporary: {listed([self.names.node(n) for n in cycle])} exchange"
        back = ", and comes back" if self.final[i] == a else ""
        other = self._next(now, leg)
        if other is not None:
            return f"temporary: makes room on {self.names.node(a)} for {self.names.task(other[0])}{back}"
        return f"temporary: lets others move{back}"

    def _cycle(self, a: int, b: int) -> list[int]:
        """Nodes from `a` over `b` and on along moves back to `a`; none where there is no short way."""
        if a == b:
            return []
        queue = deque([[a, b]])
        seen = {b}
        while queue:
            path = queue.popleft()
            for n in self._ways[path[-1]]:
                if n == a:
                    return path
                if n not in seen and len(path) < LONGEST_CYCLE:
                    seen.add(n)
                    queue.append([*path, n])
        return []
