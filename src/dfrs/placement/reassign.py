"""Machine reassignment by annealing in cycles, in one or more threads that share what they found between cycles.

Each thread anneals from its own seed. A cycle begins hot, or warm from the best assignment of all; it ends cold.
Bounded by rounds instead of seconds, the result repeats bit for bit for a number of threads: they meet only between
cycles.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Event

import numpy as np

from dfrs.kernels.reassign_search import anneal
from dfrs.placement.reassign_state import CostParts, cost_parts, make_state, require_feasible
from dfrs.workloads.reassignment import Ints, Reassignment

ROUND_STEPS = 200_000
"""Moves drawn in a round, the unit of `rounds`: some 40 ms, how soon the temperature follows the clock."""
MIX = np.array([0.2, 0.6, 0.95, 0.95, 0.003])
"""Shares, cumulative, of shifts, swaps and ejections, the rest are cycles of three; how often a shift or ejection goes
to the first machine of the process; and how often a push is made, which takes as long as some 200 others.

There are many ways from the first machine and one back, and transient resources stay taken until the process is back:
drawn alike, the walk would fill them with moves that bring nothing."""
WAIT_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """A part of the time, and its first and last temperature, times the mean cost of a process before the search."""

    share: float
    hot: float
    cold: float


CYCLES = (
    Cycle(share=0.75, hot=4.0, cold=0.01),
    Cycle(share=0.15, hot=0.2, cold=0.005),
    # Down to what a single move of a process costs.
    Cycle(share=0.1, hot=0.01, cold=1e-6),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reassigned:
    """The best assignment found."""

    place: Ints
    """(P,)"""
    before: CostParts
    after: CostParts
    steps: int
    """Moves that were drawn, in all threads."""
    made: int
    """Moves that were made."""
    runtime_s: float
    interrupted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Effort:
    """How long to search, and whether to stop now."""

    time_limit_s: float
    rounds: int | None
    started_s: float
    stop: Event

    def clock(self, first: float, last: float) -> "_Clock":
        """Of a cycle from the share `first` to the share `last` of the whole."""
        if self.rounds is not None:
            rounds = round(self.rounds * last) - round(self.rounds * first)
            return _Clock(effort=self, rounds=rounds, start_s=0.0, length_s=0.0)
        now_s = time.perf_counter()
        end_s = self.started_s + last * self.time_limit_s
        return _Clock(effort=self, rounds=None, start_s=now_s, length_s=max(0.0, end_s - now_s))


@dataclass(slots=True, kw_only=True)
class _Clock:
    """When a cycle of one thread is over: by the time, or after some rounds."""

    effort: _Effort
    rounds: int | None
    start_s: float
    length_s: float
    done: int = 0

    def span(self) -> tuple[float, float] | None:
        """Where in the cycle the next round begins and ends, from 0 to 1; None when the cycle is over."""
        if self.effort.stop.is_set() or (self.rounds is not None and self.done >= self.rounds):
            return None
        if self.rounds is not None:
            self.done += 1
            return (self.done - 1) / self.rounds, self.done / self.rounds
        now_s = time.perf_counter() - self.start_s
        if now_s >= self.length_s:
            return None
        # A round takes as long as those before it; how long the first one takes is not known.
        round_s = now_s / self.done if self.done else 0.0
        self.done += 1
        return now_s / self.length_s, min(1.0, (now_s + round_s) / self.length_s)

    def used(self) -> float:
        """The share of the cycle that is over."""
        if self.rounds is not None:
            return self.done / max(1, self.rounds)
        return min(1.0, (time.perf_counter() - self.start_s) / max(self.length_s, WAIT_S))


@dataclass(slots=True, kw_only=True)
class _Walker:
    """One thread's search."""

    instance: Reassignment
    words: np.ndarray
    best: Ints
    least: int
    steps: int = 0
    made: int = 0

    def walk(self, cycle: Cycle, clock: _Clock) -> None:
        """Anneal through a cycle from `best`, until the clock says that it is over."""
        scale = cost_parts(self.instance, self.instance.first).total / len(self.instance.need)
        state = make_state(self.instance, self.best)
        while (span := clock.span()) is not None:
            hot, cold = (max(1.0, scale) * cycle.hot * (cycle.cold / cycle.hot) ** at for at in span)
            self.least, made = anneal(state, self.words, ROUND_STEPS, hot, cold, MIX, self.best, self.least)
            self.steps += ROUND_STEPS
            self.made += made


def search(
    instance: Reassignment,
    *,
    time_limit_s: float = 300.0,
    rounds: int | None = None,
    threads: int = 1,
    seed: int = 0,
    report: Callable[[int, float], None] | None = None,
) -> Reassigned:
    """Search for `time_limit_s` seconds, or `rounds` rounds in each thread.

    `report` is told the least cost so far and the share of the time that is used. Ctrl-C ends the search early. Raises
    InputError where the first assignment breaks a hard constraint.
    """
    require_feasible(instance, instance.first, "first assignment")
    before = cost_parts(instance, instance.first)
    walkers = [
        _Walker(instance=instance, words=words, best=instance.first.copy(), least=before.total)
        for words in np.random.SeedSequence(seed).generate_state(threads, np.uint64).reshape(threads, 1)
    ]
    _compile(walkers[0])
    effort = _Effort(time_limit_s=time_limit_s, rounds=rounds, started_s=time.perf_counter(), stop=Event())
    with ThreadPoolExecutor(threads) as pool:
        try:
            first = 0.0
            for cycle in CYCLES:
                _run_cycle(pool, walkers, cycle, (first, first + cycle.share), effort, report)
                first += cycle.share
        except KeyboardInterrupt:
            effort.stop.set()
    _share(walkers)
    best = walkers[0].best
    require_feasible(instance, best, "search")
    return Reassigned(
        place=best,
        before=before,
        after=cost_parts(instance, best),
        steps=sum(walker.steps for walker in walkers),
        made=sum(walker.made for walker in walkers),
        runtime_s=time.perf_counter() - effort.started_s,
        interrupted=effort.stop.is_set(),
    )


def _compile(walker: _Walker) -> None:
    """Have the kernels compiled before the time counts."""
    words, best = walker.words.copy(), walker.best.copy()
    anneal(make_state(walker.instance, best), words, 0, 1.0, 1.0, MIX, best, walker.least)


def _run_cycle(
    pool: ThreadPoolExecutor,
    walkers: list[_Walker],
    cycle: Cycle,
    span: tuple[float, float],
    effort: _Effort,
    report: Callable[[int, float], None] | None,
) -> None:
    """One cycle in all threads; then all have the best."""
    clocks = [effort.clock(*span) for _ in walkers]
    running = [pool.submit(walker.walk, cycle, clock) for walker, clock in zip(walkers, clocks, strict=True)]
    while wait(running, WAIT_S).not_done:
        if report is not None:
            used = min(clock.used() for clock in clocks)
            report(min(walker.least for walker in walkers), span[0] + used * cycle.share)
    for each in running:
        each.result()
    _share(walkers)


def _share(walkers: list[_Walker]) -> None:
    """All go on from the best of all."""
    best = min(walkers, key=lambda walker: walker.least)
    for walker in walkers:
        walker.best, walker.least = best.best.copy(), best.least
