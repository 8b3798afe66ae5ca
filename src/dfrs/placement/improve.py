"""The parts of BEST: a deadline, the incumbent, annealing in rounds, and exact search where small."""

import math
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

import numpy as np

from dfrs.kernels.compiling import compilation
from dfrs.kernels.exact import branch_and_bound, which_stay_broken
from dfrs.kernels.local_search import LEAST_RISE, aim_at, climb, start_descent
from dfrs.kernels.rules import broken
from dfrs.kernels.sorting import stable_order
from dfrs.model import tolerances
from dfrs.model.instance import Instance, Ints
from dfrs.model.rule_arrays import no_rules
from dfrs.placement.outcome import placement_yield

HEAT = (0.02, 3e-4)
"""First and last temperature, in node capacities of overload."""
WARM = (0.008, 1.5e-3)
"""The same as long as there is no placement at all: where requirements nearly fill the nodes, more is found so."""
RISE = 0.01
"""Share of the distance to the bound by which a success raises the yield aimed at."""
ROUND_STEPS = 20_000
"""Proposals in a round: the unit of work of `--rounds`, and the first guess of a timed round's size."""
ROUND_S = 0.02
"""Length of a timed round: how soon the temperature follows the clock, and Ctrl-C is heard."""
TRIALS_PER_S = 1.5e7
"""Trials of exact search a second, on the slow side; bounds its share of the time."""
FEWEST_TRIALS = 100_000
"""Trials that exact search may have in any case: a few milliseconds."""
THREAD_NAMES = "annealing"
ODD = 0x9E3779B97F4A7C15
"""Of generators' words, which are never zero."""
SMALL = 1e12
"""Placements, up to exchanging equal nodes, below which exact search is tried."""


@dataclass(kw_only=True)
class Effort:
    """How long to search: seconds of wall clock without compilation, or rounds, which repeat bit for bit."""

    time_limit_s: float = 1.0
    rounds: int | None = None
    started_s: float = field(default_factory=compilation.clock_s)

    def used(self) -> float:
        """Fraction of the time used; 0 where rounds count."""
        if self.rounds is not None:
            return 0.0
        return min(1.0, (compilation.clock_s() - self.started_s) / self.time_limit_s)

    def left_s(self) -> float:
        """Seconds left; infinite where rounds count."""
        if self.rounds is not None:
            return math.inf
        return max(0.0, self.started_s + self.time_limit_s - compilation.clock_s())


class Search:
    """The best placement so far, and what may still be better than it."""

    def __init__(self, instance: Instance, upper: float, effort: Effort, seed: int) -> None:
        self.instance = instance
        tasks, nodes = len(instance.need), len(instance.nodes)
        self.rules = instance.rules.arrays if instance.rules is not None else no_rules(tasks, nodes)
        self.ruled = instance.rules is not None and instance.rules.binding
        self.upper = upper
        self.effort = effort
        self.place: Ints | None = None
        self.value = -1.0
        self.source = ""
        self.proven = False
        self._word = (seed * 2 + 1) * ODD % 2**64
        self.on_improvement: Callable[[float], None] | None = None
        self._lock = Lock()
        self._ended = False
        self.unneeded: Callable[[], bool] = lambda: False

    @property
    def done(self) -> bool:
        """Whether nothing better can be found."""
        return self.proven or self.value >= self.upper - tolerances.CAPACITY

    @property
    def over(self) -> bool:
        """Whether to search no longer, whatever time is left."""
        return self.done or self._ended or self.unneeded()

    @property
    def small(self) -> bool:
        """Whether exact search is worth a try."""
        symmetry = sum(math.lgamma(int(k) + 1) for k in np.bincount(self._kinds()))
        return len(self.instance.need) * math.log(len(self.instance.nodes)) - symmetry <= math.log(SMALL)

    def _kinds(self) -> Ints:
        """(N,) equal numbers for nodes that may be exchanged: none where rules tell nodes apart."""
        if self.ruled:
            return np.arange(len(self.instance.nodes))
        return np.unique(self.instance.capacity, axis=0, return_inverse=True)[1].reshape(-1)

    def lower_bound_to(self, upper: float) -> None:
        """No placement is better than `upper`; below 0 there is none. Proven where it is as good as reached."""
        self.upper = min(self.upper, upper)
        self.proven |= self.value >= self.upper - tolerances.CERTIFICATE or upper < 0

    def offer(self, place: Ints, source: str) -> bool:
        """Keep `place` (T,) if it is valid, keeps the rules, and is better than what there is."""
        value = placement_yield(self.instance, place)
        if value <= self.value or (self.ruled and broken(self.rules, place) > 0):
            return False
        with self._lock:
            if value <= self.value:
                return False
            # In this order: another thread that sees the value finds the placement.
            self.place, self.source = place.copy(), source
            self.value = value
            if self.on_improvement:
                self.on_improvement(value)
        return True

    @contextmanager
    def beside(self, threads: int, work: Callable[[int], None]) -> Generator[None]:
        """Call `work` with the word of a generator in each of so many threads; they are told to end at the exit."""
        if threads < 1:
            yield
            return
        # A thread that failed says so here, and not only at the next use of what it should have found.
        with ThreadPoolExecutor(threads, THREAD_NAMES) as pool:
            running = [pool.submit(work, (self._word + k * ODD) % 2**64 | 1) for k in range(1, threads + 1)]
            try:
                yield
            finally:
                self._ended = True
            for future in running:
                future.result()

    def anneal(
        self,
        start: Ints,
        share: float = 1.0,
        heat: tuple[float, float] = HEAT,
        *,
        until_found: bool = False,
        word: int | None = None,
    ) -> None:
        """Anneal from `start` (T,) for `share` of the time (or rounds) that is left, as `heat` (first, last) falls.

        `until_found`: no longer than until there is a placement at all. `word`: of the generator, in another thread
        than the first. What one thread finds, the others aim above.
        """
        instance, effort = self.instance, self.effort
        value = max(placement_yield(instance, start), -1.0)
        target = 0.0 if value < 0 else value + RISE * (self.upper - value)
        begun, length = compilation.clock_s(), effort.left_s() * share
        rounds = max(1, round(share * effort.rounds)) if effort.rounds is not None else 0
        steps, done = ROUND_STEPS, 0
        descent = start_descent(
            instance.base,
            instance.slope,
            instance.capacity,
            tolerances.CAPACITY,
            self.rules,
            start,
            target,
            self._word if word is None else word,
        )
        going = True
        while going and not self.over and not (until_found and self.place is not None):
            if effort.rounds is not None:
                if done == rounds:
                    break
                now, then = done / rounds, (done + 1) / rounds
            else:
                now = (compilation.clock_s() - begun) / length if length > 0 else 1.0
                if now >= 1.0:
                    break
                then = min(1.0, now + ROUND_S / length)
            falling = (heat[0] * (heat[1] / heat[0]) ** now, heat[0] * (heat[1] / heat[0]) ** then)
            before = compilation.clock_s()
            if self.value >= descent.aim[0]:
                aim_at(descent, min(self.upper, self.value + max(RISE * (self.upper - self.value), LEAST_RISE)))
            going = climb(descent, tolerances.CAPACITY, (RISE, self.upper), steps, falling)
            done += 1
            if effort.rounds is None:
                pace = steps / max(compilation.clock_s() - before, 1e-6)
                steps = int(np.clip(pace * min(ROUND_S, effort.left_s()), 500, 1e7))
            if descent.aim[1] > self.value:
                self.offer(descent.best, "annealing")
        if word is None:
            self._word = int(descent.words[0])

    def exact(self, share: float = 1.0) -> None:
        """Branch and bound within `share` of what is left, if the instance is small; sets `proven` if it ends.

        It has FEWEST_TRIALS in any case: enough for a handful of tasks, at no cost to speak of.
        """
        if not self.small:
            return
        instance = self.instance
        tasks = len(instance.need)
        kind = self._kinds()
        order = stable_order((instance.need / instance.capacity.max(axis=0).clip(1e-12)).max(axis=1), False)
        twin = np.zeros(tasks, dtype=np.bool_)
        same = (instance.base[order[1:]] == instance.base[order[:-1]]) & (
            instance.slope[order[1:]] == instance.slope[order[:-1]]
        )
        twin[1:] = same.all(axis=1) & (not self.ruled)
        seconds = self.effort.left_s() * share if self.effort.rounds is None else self.effort.rounds * ROUND_S
        best = np.empty(tasks, dtype=np.int64)
        incumbent = self.value + tolerances.CAPACITY if self.value >= 0 else -tolerances.CAPACITY
        most = max(FEWEST_TRIALS, int(TRIALS_PER_S * seconds))
        found, complete, _ = branch_and_bound(
            instance.base,
            instance.slope,
            instance.capacity,
            tolerances.CAPACITY,
            order,
            twin,
            kind,
            which_stay_broken(self.rules),
            self.rules,
            (incumbent, self.upper, most),
            best,
        )
        if found >= 0:
            self.offer(best, "exact search")
        self.proven = complete
