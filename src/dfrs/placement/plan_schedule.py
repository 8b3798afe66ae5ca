"""When each step of an order starts: list scheduling on a clock that goes from one end of a step to the next.

A step may start before earlier ones of the order, if it fits beside all that is under way, which takes its room at both
ends, and if what is left of the order can still be made one after another (the banker's argument). So no schedule gets
stuck. Steps that a binding rule makes depend on each other follow one another; a rule binds if it would not be kept
whatever the order of all its group's moves.

Two priorities are tried, the order itself and the longest work first: the one that is done earlier is taken, and of two
that hardly differ the one with the higher yields on the way.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from dfrs.model import tolerances
from dfrs.placement.plan_binding import binding
from dfrs.placement.plan_order import Step
from dfrs.placement.plan_state import PlanState
from dfrs.placement.plan_traffic import Traffic

Urgency = tuple[float, ...]
Mark = tuple[str, int]
_ALL: Mark = ("all", 0)


class Timed(NamedTuple):
    """A step with its times."""

    step: Step
    start_s: float
    end_s: float


class Schedule:
    """Gives times to the steps of an order that begins at `state`, which is left as it is."""

    def __init__(self, state: PlanState, steps: list[Step], traffic: Traffic) -> None:
        self.steps = steps
        self.limits = traffic.limits
        self.lasts = [traffic.lasts(step.legs) for step in steps]
        self.moves = [traffic.moves(step.legs) for step in steps]
        self.nodes = [traffic.nodes(step.legs) for step in steps]
        self.links = [traffic.links(step.legs) for step in steps]
        self.arrivals = [state.arrivals(step.legs) for step in steps]
        self.departures = [state.arrivals(tuple((i, b, a) for i, a, b in step.legs if a >= 0)) for step in steps]
        self.line: dict[int, list[int]] = defaultdict(list)
        """Steps that enter or leave a node, in order."""
        for k in range(len(steps)):
            for n in dict.fromkeys((*self.arrivals[k], *self.departures[k])):
                self.line[n].append(k)
        self.room = {n: list(state.room[n]) for n in self.line}
        self.after, self.before = self._dependencies(state)
        self.tail = self._tails()

    def _dependencies(self, state: PlanState) -> tuple[list[list[int]], list[int]]:
        """(steps that wait for each one's end, how many each waits for)."""
        last: dict[tuple[str, int], int] = {}
        after: list[list[int]] = [[] for _ in self.steps]
        before = [0] * len(self.steps)
        keys = binding(state.groups, self.steps)
        for k, step in enumerate(self.steps):
            own = [*(("task", i) for i, _, _ in step.legs), *keys[k]]
            for earlier in sorted({last[key] for key in own if key in last}):
                after[earlier].append(k)
                before[k] += 1
            last.update(dict.fromkeys(own, k))
        return after, before

    def _tails(self) -> list[float]:
        """Time from each step's start to the end of the longest chain of steps that waits for it."""
        tail = list(self.lasts)
        entering: dict[int, float] = defaultdict(float)
        for k in reversed(range(len(self.steps))):
            waits = [tail[j] for j in self.after[k]] + [entering[a] for a in self.departures[k]]
            tail[k] += max(waits, default=0.0)
            for b, size in self.arrivals[k].items():
                if _lacks(self.room[b], size):
                    entering[b] = max(entering[b], tail[k])
        return tail

    def run(self, longest_first: bool) -> list[Timed]:
        """All steps in the order in which they start."""
        return _Run(self, longest_first).run()


class _Run:
    """One pass over the clock."""

    def __init__(self, plan: Schedule, longest_first: bool) -> None:
        self.plan = plan
        self.urgency: Callable[[int], Urgency] = self._work if longest_first else lambda k: (k,)
        steps = len(plan.steps)
        self.left = list(plan.before)
        self.started = [False] * steps
        self.head = dict.fromkeys(plan.line, 0)
        self.now_room = {n: list(room) for n, room in plan.room.items()}
        """Free with all that is under way at both ends."""
        self.then_room = {n: list(room) for n, room in plan.room.items()}
        """Free once what is under way has ended."""
        self.running = 0
        self.on_node: dict[int, int] = defaultdict(int)
        self.on_link: dict[int, int] = defaultdict(int)
        self.node_work: dict[int, float] = defaultdict(float)
        self.link_work: dict[int, float] = defaultdict(float)
        self._add_work(range(steps), 1.0)
        self.waiting: dict[Mark, list[int]] = defaultdict(list)
        self.ready: list[tuple[Urgency, int]] = []
        self.arriving: list[tuple[Urgency, int]] = []
        """Of `ready`, steps in which no task moves: they count in no limit."""
        for k in range(steps):
            if not self.left[k]:
                self._push(k)

    def run(self) -> list[Timed]:
        """Start what can start, go to the next end, until all steps have ended."""
        timed: list[Timed] = []
        ends: list[tuple[float, int]] = []
        now = 0.0
        while True:
            for k in self._starts():
                end = now + self.plan.lasts[k]
                timed.append(Timed(self.plan.steps[k], now, end))
                heapq.heappush(ends, (end, k))
            if not ends:
                break
            now = ends[0][0]
            while ends and ends[0][0] == now:
                self._end(heapq.heappop(ends)[1])
        if len(timed) != len(self.plan.steps):
            raise AssertionError("a step of a plan never became possible")
        return timed

    def _push(self, k: int) -> None:
        heapq.heappush(self.ready if self.plan.moves[k] else self.arriving, (self.urgency(k), k))

    def _work(self, k: int) -> Urgency:
        """Longest first: the chain that waits for the step, or the moves left on its busiest node or link."""
        plan = self.plan
        most = plan.tail[k]
        if plan.limits.per_node is not None:
            most = max(most, *(self.node_work[n] / plan.limits.per_node for n in plan.nodes[k]), most)
        if plan.limits.per_link is not None:
            most = max(most, *(self.link_work[n] / plan.limits.per_link for n in plan.links[k]), most)
        return -most, -plan.lasts[k]

    def _add_work(self, steps: range | tuple[int, ...], sign: float) -> None:
        for k in steps:
            for n, count in self.plan.nodes[k].items():
                self.node_work[n] += sign * count * self.plan.lasts[k]
            for n, count in self.plan.links[k].items():
                self.link_work[n] += sign * count * self.plan.lasts[k]

    def _starts(self) -> list[int]:
        """Start every step that may start now, the most urgent first."""
        found: list[int] = []
        while started := [*self._take(self.arriving, None), *self._take(self.ready, self.plan.limits.at_once)]:
            found += started
        return found

    def _take(self, heap: list[tuple[Urgency, int]], at_once: int | None) -> list[int]:
        found: list[int] = []
        while heap and (at_once is None or self.running < at_once):
            k = heapq.heappop(heap)[1]
            urgency = self.urgency(k)
            if heap and urgency > heap[0][0]:
                heapq.heappush(heap, (urgency, k))
                continue
            mark = self._blocked(k)
            if mark is None:
                self._start(k)
                found.append(k)
            else:
                self.waiting[mark].append(k)
        return found

    def _blocked(self, k: int) -> Mark | None:
        """What the step waits for; None if it can start."""
        plan, limits = self.plan, self.plan.limits
        if limits.at_once is not None and self.running + plan.moves[k] > limits.at_once:
            return _ALL
        if limits.per_node is not None:
            for n, count in plan.nodes[k].items():
                if self.on_node[n] + count > limits.per_node:
                    return "slot", n
        if limits.per_link is not None:
            for n, count in plan.links[k].items():
                if self.on_link[n] + count > limits.per_link:
                    return "link", n
        for b, size in plan.arrivals[k].items():
            if _lacks(self.now_room[b], size) or self._robs(k, b, size):
                return "room", b
        return None

    def _robs(self, k: int, b: int, size: list[float]) -> bool:
        """Whether a step that is earlier in the order and has not started would lack room on `b` after step `k`."""
        line = self.plan.line[b]
        room: list[float] | None = None
        for at in range(self.head[b], len(line)):
            r = line[at]
            if r >= k:
                break
            if self.started[r]:
                continue
            if room is None:
                room = [free - wanted for free, wanted in zip(self.then_room[b], size, strict=True)]
            arriving, departing = self.plan.arrivals[r].get(b), self.plan.departures[r].get(b)
            if arriving is not None:
                if _lacks(room, arriving):
                    return True
                room = [free - wanted for free, wanted in zip(room, arriving, strict=True)]
            if departing is not None:
                room = [free + given for free, given in zip(room, departing, strict=True)]
        return False

    def _start(self, k: int) -> None:
        plan = self.plan
        self.started[k] = True
        self._add_work((k,), -1.0)
        self._use(k, 1)
        for b, size in plan.arrivals[k].items():
            _add(self.now_room[b], size, -1.0)
            _add(self.then_room[b], size, -1.0)
        for a, size in plan.departures[k].items():
            _add(self.then_room[a], size, 1.0)
        for n in dict.fromkeys((*plan.arrivals[k], *plan.departures[k])):
            line = plan.line[n]
            while self.head[n] < len(line) and self.started[line[self.head[n]]]:
                self.head[n] += 1
            self._wake(("room", n))

    def _end(self, k: int) -> None:
        plan = self.plan
        self._use(k, -1)
        for a, size in plan.departures[k].items():
            _add(self.now_room[a], size, 1.0)
            self._wake(("room", a))
        self._wake(_ALL)
        for n in plan.nodes[k]:
            self._wake(("slot", n))
        for n in plan.links[k]:
            self._wake(("link", n))
        for j in plan.after[k]:
            self.left[j] -= 1
            if not self.left[j]:
                self._push(j)

    def _use(self, k: int, sign: int) -> None:
        self.running += sign * self.plan.moves[k]
        for n, count in self.plan.nodes[k].items():
            self.on_node[n] += sign * count
        for n, count in self.plan.links[k].items():
            self.on_link[n] += sign * count

    def _wake(self, mark: Mark) -> None:
        for k in self.waiting.pop(mark, ()):
            self._push(k)


def _lacks(room: list[float], size: list[float]) -> bool:
    return any(wanted > 0.0 and wanted - free > tolerances.PLACEMENT for free, wanted in zip(room, size, strict=True))


def _add(room: list[float], size: list[float], sign: float) -> None:
    for d, value in enumerate(size):
        room[d] += sign * value
