"""An order in which moves can be made one after another, each with room at both ends, and no rule broken on the way.

Moves that relieve a node over its capacity, or mend a rule, come first; then those that leave the node with the lowest
yield; whoever must leave first to make room is as urgent as who waits for it. Where every move that is left waits for
another one, `plan_detours` looks for temporary moves.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dfrs.model.instance import Ints
from dfrs.placement.plan_state import ROOM, RULE, Blocker, Leg, PlanState
from dfrs.placement.plan_traffic import Traffic

Key = tuple[float, float, float, float]
Mark = tuple[int, int]
"""What a block waits for: (ROOM, node) or (RULE, group)."""

RELIEF, EARLY, GAIN, LATE = 0.0, 1.0, 2.0, 3.0
"""Classes of steps, first to last; tasks that start come before or after the moves."""


class Step(NamedTuple):
    """Moves that start together."""

    legs: tuple[Leg, ...]
    temporary: bool = False


@dataclass(slots=True)
class Block:
    """Tasks that move in one step; one task, but for those that a rule keeps together."""

    tasks: tuple[int, ...]
    noise: float = 0.0
    key: Key | None = None
    waits: Mark | None = None
    done: bool = False


class Order:
    """Makes steps on `state` until all tasks are at `target`, or no step is possible."""

    def __init__(
        self,
        state: PlanState,
        target: Ints,
        traffic: Traffic,
        *,
        starts_last: bool = False,
        rng: np.random.Generator | None = None,
    ) -> None:
        self.state = state
        self.target: list[int] = target.tolist()
        self.traffic = traffic
        self.steps: list[Step] = []
        self._starts_last = starts_last
        self._heap: list[tuple[Key, int]] = []
        self.waiting: dict[Mark, set[int]] = defaultdict(set)
        """Blocks by what they wait for."""
        self._hurting: dict[int, set[int]] = defaultdict(set)
        self._urgent: dict[int, Key] = {}
        self.leaving: dict[int, set[int]] = defaultdict(set)
        """Blocks by the nodes that they are on."""
        self.hosted: Counter[int] = Counter()
        """Nodes by how many temporary moves went there."""
        away = np.flatnonzero(np.array(state.place) != target).tolist()
        self.blocks: list[Block] = []
        for tasks in joined(state, self.target, away):
            self.add(tasks, 0.0 if rng is None else float(rng.random()))

    @property
    def pending(self) -> list[int]:
        """Blocks whose tasks are not all at their targets."""
        return [k for k, block in enumerate(self.blocks) if not block.done]

    def legs(self, block: Block) -> tuple[Leg, ...]:
        """The moves that take a block from where it is now to its target."""
        place, target = self.state.place, self.target
        return tuple((i, place[i], target[i]) for i in block.tasks if place[i] != target[i])

    def add(self, tasks: tuple[int, ...], noise: float = 0.0) -> int:
        """A new block that is to move."""
        k = len(self.blocks)
        self.blocks.append(Block(tasks, noise))
        self.relocate(k)
        self.push(k)
        return k

    def relocate(self, k: int) -> None:
        """Note the nodes that block `k` is on."""
        for i in self.blocks[k].tasks:
            self.leaving[self.state.place[i]].add(k)

    def blocker(self, legs: tuple[Leg, ...]) -> Blocker | None:
        """What keeps a step from being made now."""
        return self.traffic.too_much(legs) or self.state.blocker(legs)

    def push(self, k: int) -> None:
        """Look at block `k` again, and at those that become as urgent as it is, for it needs what they take."""
        queue = [k]
        while queue:
            k = queue.pop()
            block = self.blocks[k]
            if block.done:
                continue
            if block.waits is not None:
                self.waiting[block.waits].discard(k)
                block.waits = None
            block.key, hurt = self._key(block)
            heapq.heappush(self._heap, (block.key, k))
            if hurt >= 0:
                self._hurting[hurt].add(k)
                queue += self._hurry(hurt, (*block.key[:1], 0.0, *block.key[2:]))

    def drain(self) -> None:
        """Make every step that is possible, the most urgent first."""
        while self._heap:
            key, k = heapq.heappop(self._heap)
            block = self.blocks[k]
            if block.done or key != block.key or block.waits is not None:
                continue
            if self._key(block)[0] > key:
                self.push(k)
                continue
            legs = self.legs(block)
            blocker = self.blocker(legs)
            if blocker is None:
                self.make(Step(legs), (k,))
            else:
                self._park(k, blocker, key)

    def make(self, step: Step, finished: Iterable[int] = ()) -> None:
        """Make a step; blocks that waited for what it frees are looked at again."""
        for k in finished:
            self.blocks[k].done = True
        self.state.apply(step.legs)
        self.steps.append(step)
        for mark in self.freed(step.legs):
            self.wake(mark)

    def freed(self, legs: tuple[Leg, ...]) -> list[Mark]:
        """What a step may have made possible: room on the nodes it left, and moves of its groups."""
        marks: list[Mark] = [(ROOM, a) for a in dict.fromkeys(a for _, a, _ in legs) if a >= 0]
        groups = self.state.groups
        if groups is not None:
            changed = dict.fromkeys(x for g in groups.changes(legs) for x in groups.linked(g))
            marks += [(RULE, g) for g in changed]
        return marks

    def wake(self, mark: Mark) -> None:
        """Look again at the blocks that wait for `mark`."""
        for k in sorted(self.waiting.pop(mark, ())):
            self.blocks[k].waits = None
            self.push(k)
        if mark[0] == ROOM:
            self._urgent.pop(mark[1], None)
            for k in sorted(self._hurting.pop(mark[1], ())):
                if not self.blocks[k].done and self.blocks[k].waits is None:
                    self.push(k)

    def _park(self, k: int, blocker: Blocker, key: Key) -> None:
        mark = (blocker.kind, blocker.key)
        self.blocks[k].waits = mark
        self.waiting[mark].add(k)
        if blocker.kind == ROOM:
            for other in self._hurry(blocker.key, key):
                self.push(other)

    def _hurry(self, n: int, key: Key) -> list[int]:
        """Blocks on node `n` that become as urgent as one of `key` that needs room there."""
        if n in self._urgent and self._urgent[n] <= key:
            return []
        self._urgent[n] = key
        blocks = self.blocks
        return [k for k in sorted(self.leaving[n]) if not blocks[k].done and (blocks[k].key or key) > key]

    def _key(self, block: Block) -> tuple[Key, int]:
        """(class, whether the target's yield falls below the source's, source's yield, bytes); that target, or -1."""
        state = self.state
        legs = self.legs(block)
        sources = [a for _, a, _ in legs if a >= 0]
        cost = sum(self.traffic.bytes[i] for i, _, _ in legs)
        if not sources:
            return (LATE if self._starts_last else EARLY, 0.0, block.noise, cost), -1
        value = min(float(state.node_yield[a]) for a in sources)
        relieves = self._relieves(legs)
        lower = (b for i, _, b in legs if state.yield_with(b, state.base[i], state.slope[i]) < value)
        hurt = -1 if relieves else next(lower, -1)
        own = (RELIEF if relieves else GAIN, float(hurt >= 0), value + block.noise, cost)
        return min([own, *(self._urgent[a] for a in sources if a in self._urgent)]), hurt

    def _relieves(self, legs: tuple[Leg, ...]) -> bool:
        """Whether a step leaves a node that is over a capacity, or mends a rule."""
        state = self.state
        for i, a, _ in legs:
            if state.node_yield[a] < 0 and any(
                free < 0 < size for free, size in zip(state.room[a], state.base[i], strict=True)
            ):
                return True
            if not state.allowed(i, a):
                return True
        return state.groups is not None and state.groups.gain(state.groups.changes(legs))[1] > 0


def joined(state: PlanState, target: list[int], away: list[int]) -> list[tuple[int, ...]]:
    """Tasks of `away` in the sets that move in one step: members of a group that fills one domain and leaves it."""
    groups = state.groups
    if groups is None:
        return [(i,) for i in away]
    leader = {i: i for i in away}

    def root(i: int) -> int:
        while leader[i] != i:
            leader[i] = leader[leader[i]]
            i = leader[i]
        return i

    ways: dict[tuple[int, int, int], int] = {}
    for i in away:
        for g in groups.of(i):
            source, to = groups.domain(g, state.place[i]), groups.domain(g, target[i])
            if groups.most_domains[g] == 1 and source >= 0 and source != to:
                first = ways.setdefault((g, source, to), i)
                leader[root(i)] = root(first)
    sets: dict[int, list[int]] = defaultdict(list)
    for i in away:
        sets[root(i)].append(i)
    return [tuple(tasks) for tasks in sets.values()]
