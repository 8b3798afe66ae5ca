"""The stretch bound in ways too slow to use: the linear program of Theorem 1, and every cut in exact fractions.

A job is (release, run, rate); all numbers are fractions.
"""

from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any

import highspy

Job = tuple[Fraction, Fraction, Fraction]


def points(jobs: Sequence[Job], stretch: Fraction) -> list[Fraction]:
    return sorted({time for release, run, _ in jobs for time in (release, release + stretch * run)})


def work(jobs: Sequence[Job]) -> Fraction:
    return sum((run * rate for _, run, rate in jobs), Fraction(0))


def cut_capacity(jobs: Sequence[Job], capacity: Fraction, stretch: Fraction) -> Fraction:
    """What the jobs can get in all between releases and deadlines."""
    times = points(jobs, stretch)
    total = Fraction(0)
    for a, b in pairwise(times):
        rates = sum(rate for release, run, rate in jobs if release <= a and b <= release + stretch * run)
        total += min(capacity, rates) * (b - a)
    return total


def fails(jobs: Sequence[Job], capacity: Fraction, stretch: Fraction) -> bool:
    return cut_capacity(jobs, capacity, stretch) < work(jobs)


def root(jobs: Sequence[Job], capacity: Fraction) -> Fraction:
    """The least stretch of at least 1 that the jobs' cut allows: between two stretches at which events change places
    what they can get is linear."""
    turns = {Fraction(1)}
    for release, run, _ in jobs:
        for other, other_run, _ in jobs:
            turns.add((other - release) / run)
            if run != other_run:
                turns.add((other - release) / (run - other_run))
    order = sorted(turn for turn in turns if turn >= 1)
    k = bisect_left(order, True, key=lambda stretch: not fails(jobs, capacity, stretch))
    if k == 0:
        return Fraction(1)
    low = order[k - 1]
    high = order[k] if k < len(order) else low + 1
    at_low, at_high = (cut_capacity(jobs, capacity, stretch) for stretch in (low, high))
    return low + (work(jobs) - at_low) * (high - low) / (at_high - at_low)


def by_cuts(jobs: Sequence[Job], capacity: Fraction) -> Fraction:
    """Theorem 1's optimum as the largest root over all sets of jobs."""
    sets = (chosen for size in range(1, len(jobs) + 1) for chosen in combinations(jobs, size))
    return max(root(chosen, capacity) for chosen in sets)


def served(jobs: Sequence[Job], capacity: float, stretch: float) -> float:
    """The most work all jobs together can get by their deadlines: constraints (5.2) to (5.5), by HiGHS."""
    plain = [tuple(map(float, job)) for job in jobs]
    times = sorted({time for release, run, _ in plain for time in (release, release + stretch * run)})
    solver = highspy.Highs()
    solver.silent()
    for name in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
        solver.setOptionValue(name, 1e-10)
    by_job: list[list[Any]] = [[] for _ in plain]
    for a, b in pairwise(times):
        here = []
        for own, (release, run, rate) in zip(by_job, plain, strict=True):
            if release <= a and b <= release + stretch * run:
                here.append(solver.addVariable(0, (b - a) * rate))
                own.append(here[-1])
        if here:
            solver.addConstr(sum(here) <= capacity * (b - a))
    for own, (_, run, rate) in zip(by_job, plain, strict=True):
        solver.addConstr(sum(own) <= run * rate)
    solver.maximize(sum(x for own in by_job for x in own))
    return solver.getInfo().objective_function_value


def by_program(jobs: Sequence[Job], capacity: float, width: float = 1e-9) -> float:
    """Theorem 1's optimum by bisection on the linear program."""
    needed = float(work(jobs))

    def enough(stretch: float) -> bool:
        return served(jobs, capacity, stretch) >= needed * (1 - 1e-10)

    low, high = 1.0, 1.0
    while not enough(high):
        low, high = high, 2 * high
    while high - low > width * high:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def greedy(jobs: Sequence[Job], capacity: Fraction, stretch: Fraction) -> list[dict[int, Fraction]]:
    """For each interval what each job gets: first what it would miss by waiting, then by earliest deadline."""
    times = points(jobs, stretch)
    deadline = [release + stretch * run for release, run, _ in jobs]
    missing = [run * rate for _, run, rate in jobs]
    got: list[dict[int, Fraction]] = []
    for a, b in pairwise(times):
        present = [j for j, (release, _, _) in enumerate(jobs) if release <= a and b <= deadline[j]]
        present.sort(key=lambda j: (deadline[j], j))
        left = capacity * (b - a)
        now = dict.fromkeys(present, Fraction(0))
        for j in present:
            rate = jobs[j][2]
            now[j] = max(Fraction(0), min(missing[j] - rate * (deadline[j] - b), left, rate * (b - a)))
            left -= now[j]
        for j in present:
            more = min(jobs[j][2] * (b - a) - now[j], missing[j] - now[j], left)
            now[j] += more
            left -= more
        for j in present:
            missing[j] -= now[j]
        got.append({j: amount for j, amount in now.items() if amount})
    return got
