"""The search of ADAPT: relief at a yield aimed at, from the present placement and from the best one so far.

Work is cut in slices of a fixed size, and the clock is looked at between them: more time is more slices of the same
sequence, so no result is worse with more time, and a number of rounds gives the same bits each time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dfrs.kernels import adapt_anneal, adapt_cool, adapt_exact, adapt_mend, adapt_relief
from dfrs.kernels.adapt_state import Board, Moves, set_up
from dfrs.kernels.compiling import compilation
from dfrs.kernels.rules import RuleArrays, broken
from dfrs.model import tolerances
from dfrs.model.instance import Floats, Instance, Ints
from dfrs.placement.budget_bound import ROUNDING, forgiven
from dfrs.placement.outcome import placement_yield

ROUND_WORK = 1_000_000
"""Elementary steps in a round: the unit of `--rounds`."""
SLICE_WORK = 4_000_000
"""Elementary steps between two looks at the clock: some milliseconds."""
ROOM_WORK = 10
"""Elementary steps for each task of the instance in making room for one."""
BACK_OFF = (0.0, 1 / 64, 1 / 16, 1 / 4, 1.0)
"""Parts of the distance from the bound down to the best yield by which the yield aimed at goes back while it fails."""
HALVINGS = 6
"""Between a yield that was reached and one that was not."""
CLIMBS = (1.0, 1 / 4, 1 / 16, 1 / 64, 1 / 256)
"""Parts of the distance from the best yield up to the bound that a descent aims at, the first that is reached."""
BUMPS = 3
"""How often a relief begins anew with a task first that it could not place."""
NO_GAIN = 1e-12
BETWEEN = 0.5 * (tolerances.CAPACITY + tolerances.PLACEMENT)
"""More than a packer may pass a capacity by, less than evaluating a placement forgives."""


@dataclass(kw_only=True)
class Clock:
    """How long to search: seconds of wall clock without compilation, or rounds of work."""

    time_limit_s: float
    rounds: int | None
    work: float = 0.0
    started_s: float = field(default_factory=compilation.clock_s)

    def spend(self, work: float) -> None:
        """Count elementary steps."""
        self.work += work

    def part(self, share: float) -> "Clock":
        """A clock that starts now: `share` of the seconds, or all the rounds."""
        return Clock(time_limit_s=self.time_limit_s * share, rounds=self.rounds)

    @property
    def over(self) -> bool:
        """Whether time or rounds are up."""
        if self.rounds is not None:
            return self.work >= self.rounds * ROUND_WORK
        return self.left_s <= 0

    def affords(self, work: float) -> bool:
        """Whether there is time left; where rounds count, for so many elementary steps."""
        return not self.over and (self.rounds is None or self.work + work <= self.rounds * ROUND_WORK)

    @property
    def left_s(self) -> float:
        """Seconds left, where they count."""
        return max(0.0, self.started_s + self.time_limit_s - compilation.clock_s())


class AdaptSearch:
    """The best placement so far, from `present` (T,) within `amounts` (B,) of `costs` (B, T), under `rules`.

    `upper` is the bound for that budget.
    """

    def __init__(
        self,
        instance: Instance,
        present: Ints,
        costs: Floats,
        amounts: Floats,
        rules: RuleArrays,
        upper: float,
        clock: Clock,
        rng: np.random.Generator,
    ) -> None:
        tasks, dims = instance.need.shape
        self.instance, self.rules, self.upper, self.clock, self.rng = instance, rules, upper, clock, rng
        self.present = present
        costs = np.where(present >= 0, costs, 0.0)
        self.moves = Moves(
            base=instance.base,
            slope=instance.slope,
            capacity=_frozen(instance.capacity + forgiven(instance, BETWEEN)),
            origin=_frozen(present),
            cost=_frozen(costs),
            amount=_frozen(amounts * (1.0 + ROUNDING)),
            price=_frozen(_prices(costs, amounts)),
        )
        groups = rules.level.size
        self.board = Board(
            place=np.empty(tasks, dtype=np.int64),
            head=np.empty(len(instance.nodes), dtype=np.int64),
            after=np.empty(tasks, dtype=np.int64),
            before=np.empty(tasks, dtype=np.int64),
            size=np.empty((tasks, dims)),
            free=np.empty_like(instance.capacity),
            scale=np.empty(dims),
            tilt=np.ones(tasks),
            spent=np.zeros(len(amounts)),
            source=np.empty(tasks, dtype=np.int64),
            counts=np.zeros(int(rules.offset[-1]), dtype=np.int64),
            used=np.zeros(groups, dtype=np.int64),
        )
        self.place: Ints | None = None
        self.value = -1.0
        self.source = ""
        self.proven = False
        self.repaired: int | None = None
        """Moves of the repair that made the present placement valid, where it was not."""
        self.on_improvement: Callable[[float], None] | None = None

    @property
    def done(self) -> bool:
        """Whether nothing better can be found."""
        return self.proven or self.value >= self.upper - tolerances.CAPACITY

    @property
    def stopped(self) -> bool:
        """Whether to look no further."""
        return self.done or self.clock.over

    def moved(self, place: Ints) -> int:
        """How many tasks are not where they were."""
        return int(((self.present >= 0) & (place != self.present)).sum())

    def kept(self, place: Ints) -> bool:
        """Whether `place` (T,) keeps all limits and all rules."""
        away = place != self.present
        if (self.moves.cost[:, away].sum(axis=1) > self.moves.amount).any():
            return False
        return broken(self.rules, place) == 0

    def offer(self, place: Ints, source: str) -> bool:
        """Keep `place` (T,) if it is valid, and better than what there is or as good with fewer moves."""
        value = placement_yield(self.instance, place)
        better = value > self.value + NO_GAIN
        fewer = self.place is not None and self.moved(place) < self.moved(self.place)
        if value < 0 or not (better or (fewer and value >= self.value - NO_GAIN)):
            return False
        if not self.kept(place):
            return False
        self.place, self.value, self.source = place.copy(), value, source
        if better and self.on_improvement:
            self.on_improvement(value)
        return True

    def relieve(self, start: Ints, target: float) -> Ints | None:
        """A placement of yield `target` at least, from `start` (T,; -1 for nowhere), or None."""
        first: list[int] = []
        for _ in range(BUMPS + 1):
            pending = self._pending(start, target)
            if pending is None:
                return None
            if first:
                pending = np.concatenate((first, pending[~np.isin(pending, first)])).astype(np.int64)
            failed = self._settle(pending)
            if failed == len(pending):
                return self.board.place.copy()
            if self.clock.over or pending[failed] in first or len(pending) == 1:
                return None
            first.insert(0, int(pending[failed]))
        return None

    def _pending(self, start: Ints, target: float) -> Ints | None:
        """Set up the board for `start` at `target`, and lift who must go; None where limits do not let enough go."""
        tasks, nodes = len(start), len(self.instance.nodes)
        set_up(self.moves, self.rules, self.board, start, target)
        self.clock.spend(4 * tasks)
        pending = np.empty(tasks, dtype=np.int64)
        new = np.flatnonzero(start < 0)
        pending[: new.size] = new
        count = adapt_mend.evict(self.moves, self.rules, self.board, pending, new.size)
        step = max(1, SLICE_WORK * nodes // (8 * tasks))
        for low in range(0, nodes, step):
            if count < 0 or self.clock.over:
                return None
            high = min(nodes, low + step)
            count = adapt_relief.shed(self.moves, self.rules, self.board, low, high, pending, count)
            self.clock.spend(tasks * (high - low) / nodes)
        return None if count < 0 else adapt_relief.by_weight(self.board, pending[:count])

    def _settle(self, pending: Ints) -> int:
        """Place `pending`; the index of the first task that could not be, or of the next when time was up."""
        tasks, (nodes, dims) = len(self.present), self.instance.capacity.shape
        step = max(1, SLICE_WORK // (nodes * dims))
        rooms = max(1, SLICE_WORK // (ROOM_WORK * tasks))
        low, stuck = 0, False
        while low < len(pending) and not stuck and not self.clock.over:
            high = min(len(pending), low + step)
            after, looked, stuck = adapt_relief.settle(self.moves, self.rules, self.board, pending, low, high, rooms)
            self.clock.spend((after - low + 1) * nodes * dims + looked * ROOM_WORK * tasks)
            low = after
        return low

    def aim(self, start: Ints, target: float, source: str) -> bool:
        """Relieve and offer: whether the best yield rose."""
        before = self.value
        place = self.relieve(start, target)
        return place is not None and self.offer(place, source) and self.value > before

    def bisect(self, start: Ints, source: str) -> None:
        """Aim from the bound downward until something is reached, then between that and what was not."""
        low, failed = max(self.value, 0.0), self.upper
        span = self.upper - low
        for part in BACK_OFF:
            target = self.upper - part * span
            if self.stopped or target <= self.value:
                break
            if self.aim(start, target, source):
                break
            failed = target
        for _ in range(HALVINGS):
            low = max(self.value, 0.0)
            if self.stopped or self.value < 0 or failed - low < tolerances.CERTIFICATE:
                return
            middle = 0.5 * (low + failed)
            if not self.aim(start, middle, source):
                failed = middle

    def descend(self, source: str = "descent") -> None:
        """From the best placement, relieve what limits it, as long as that helps."""
        rising = True
        while rising and self.place is not None:
            rising = False
            for part in CLIMBS:
                if self.stopped:
                    return
                target = self.value + part * (self.upper - self.value)
                if self.aim(self.place, target, source):
                    rising = True
                    break

    def cool(self) -> None:
        """The plain greedy from the present placement: one move after the other from the node with the lowest yield."""
        if (self.present < 0).any():
            return
        tasks, nodes = len(self.present), len(self.instance.nodes)
        set_up(self.moves, self.rules, self.board, self.present, 0.0)
        steps = max(1, SLICE_WORK // (2 * tasks))
        while not self.stopped:
            made = adapt_cool.cool(self.moves, self.rules, self.board, steps)
            self.clock.spend(2 * tasks * (made + 1) + nodes)
            if made < steps:
                break
        self.offer(self.board.place, "greedy")

    def tilt(self, spread: float) -> None:
        """Let tasks be taken in another order, by factors of that spread; 0 for the usual order."""
        tilt = self.board.tilt
        tilt[:] = 1.0 if spread == 0 else np.exp(spread * self.rng.standard_normal(len(tilt)))

    def exact(self, most: int) -> None:
        """Branch and bound for at most `most` trials; sets `proven` if it ends."""
        instance = self.instance
        order = np.argsort(-(instance.need / instance.capacity.max(axis=0).clip(1e-12)).max(axis=1), kind="stable")
        best = np.empty_like(self.present)
        incumbent = self.value + tolerances.CAPACITY if self.value >= 0 else -tolerances.CAPACITY
        self.board.counts[:] = 0
        self.board.used[:] = 0
        found, complete, trials = adapt_exact.search(
            self.moves, self.rules, self.board.counts, self.board.used, order, (incumbent, self.upper, most), best
        )
        self.clock.spend(trials * 10)
        if found >= 0:
            self.offer(best, "exact search")
        self.proven = complete

    def give_back(self) -> None:
        """Undo the moves that the best yield does not need."""
        if self.place is None:
            return
        self.tilt(0.0)
        set_up(self.moves, self.rules, self.board, self.place, self.value)
        if adapt_relief.give_back(self.moves, self.rules, self.board):
            place = self.board.place.copy()
            value = placement_yield(self.instance, place)
            if value >= self.value - tolerances.CAPACITY and self.kept(place):
                self.place, self.value = place, value

    def anneal(self, heat: tuple[float, float], slices: int, state: np.ndarray) -> None:
        """Anneal from the best placement for `slices` slices of work, the temperature falling from `heat`."""
        if self.place is None:
            return
        steps = SLICE_WORK // 100
        target = self.value + adapt_rise(self.upper - self.value)
        set_up(self.moves, self.rules, self.board, self.place, target)
        best = np.empty_like(self.present)
        for k in range(slices):
            if self.stopped:
                return
            falls = [heat[0] * (heat[1] / heat[0]) ** (part / slices) for part in (k, k + 1)]
            found, target = adapt_anneal.anneal(
                self.moves,
                self.rules,
                self.board,
                (target, RISE, self.upper),
                steps,
                (falls[0], falls[1]),
                state,
                best,
            )
            self.clock.spend(steps * 40 + 8 * len(self.present))
            if found > self.value:
                self.offer(best, "annealing")


RISE = 0.01
"""Share of the distance to the bound by which annealing raises the yield aimed at."""


def adapt_rise(gap: float) -> float:
    """How much above the best yield annealing aims first."""
    return max(RISE * gap, 1e-5)


def _frozen(array: np.ndarray) -> np.ndarray:
    fixed = np.array(array, order="C", copy=True)
    fixed.setflags(write=False)
    return fixed


def _prices(costs: Floats, amounts: Floats) -> Floats:
    """(T,) the largest part of a limit that each task takes; limits of 0 or none do not compare tasks."""
    price = np.zeros(costs.shape[1])
    for cost, amount in zip(costs, amounts.tolist(), strict=True):
        unit = amount if 0 < amount < np.inf else float(cost.max(initial=0.0))
        if unit > 0:
            np.maximum(price, cost / unit, out=price)
    return price
