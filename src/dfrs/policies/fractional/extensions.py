"""Parts beyond the documents, as [Stillwell2010] 8.3.1 asks: weights, decay, deadlines, periods, migration budgets."""

from dataclasses import dataclass
from math import floor, inf

import numpy as np

from dfrs.kernels.shares import fill
from dfrs.model.decisions import RUNNING, Prices, Snapshot
from dfrs.model.instance import Bools, Floats, Instance, Ints
from dfrs.model.resources import Kind, Resource
from dfrs.policies.fractional.actions import PolicyAction
from dfrs.policies.fractional.objective import YIELDS, Objective, YieldObjective, next_multiple

ROUNDS = 20
"""Effort of ADAPT at each wake that would pass the budget; rounds and not seconds, so that runs repeat to the bit."""
NO_LIMIT_S = 1e9
TIMES_WORSE = 2.0
"""Whoever comes in place of another must have a stretch so many times as large. By measurement: see
docs/explanation/policies.md."""
LEAST_PART = 1e-9
"""Nobody is due less than this part. MCB looks for levels up to 1 / the smallest part, to a width of 0.01: from 1e14 on
numbers are further apart than that, so that it would never end."""
_NO_TIME_S = 1e-9
"""For a job that has not run at all, whose stretch has no bound."""
RESOURCES = (Resource(name="cpu", kind=Kind.FLUID), Resource(name="memory", kind=Kind.RIGID))


@dataclass(frozen=True, slots=True)
class ScaledObjective(YieldObjective):
    """The level is a yield divided by what the job is due: its weight, less with every second it has run.

    A job's part is weight / largest weight of those present with `weighted`, times 1 / (1 + virtual time / `decay_s`),
    and at least `LEAST_PART`. Where nodes have CPU to spare everybody still goes up to yield 1.
    """

    weighted: bool = False
    decay_s: float = inf

    def __call__(self, snapshot: Snapshot, /) -> tuple[Floats, Floats]:
        """Yield = level * part."""
        jobs = snapshot.jobs
        part = 1.0 / (1.0 + jobs["virtual_s"] / self.decay_s)
        if self.weighted and len(jobs):
            part *= jobs["weight"] / jobs["weight"].max()
        return np.zeros(len(jobs)), np.maximum(part, LEAST_PART)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Wakes when some job's estimated stretch reaches the next power of 2, at a multiple of `least_s` at the earliest.

    The estimate is flow time / virtual time, with the present yields until then, and 1 for a job that has only started.
    A job without progress and without nodes is due at once.
    """

    least_s: float

    def __call__(self, snapshot: Snapshot, yields: Floats, /) -> float | None:
        """When to wake; None where no stretch can double."""
        flow, virtual = snapshot.flow_s, snapshot.jobs["virtual_s"]
        if not len(flow):
            return None
        started = virtual > 0
        if (~started & (yields == 0)).any():
            return next_multiple(snapshot.now_s, self.least_s)
        stretch = np.divide(flow, virtual, out=np.ones(len(flow)), where=started)
        due = np.exp2(np.floor(np.log2(np.maximum(stretch, 1.0))) + 1.0)
        gain = 1.0 - due * yields
        wait = np.where(gain > 0.0, np.maximum(due * virtual - flow, 0.0) / np.where(gain > 0.0, gain, 1.0), inf)
        soonest = float(wait.min())
        if soonest == inf:
            return None
        latest = self.least_s * floor((snapshot.now_s + soonest) / self.least_s)
        return max(next_multiple(snapshot.now_s, self.least_s), latest)


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedPeriod:
    """A period of so many times what it costs to pause and resume a job, or to move it.

    So a job that every repacking pauses or moves loses at most one part in `times` of its time.
    """

    times: float
    least_s: float
    most_s: float

    def __call__(self, prices: Prices, /) -> float:
        """Seconds."""
        return min(max(self.times * prices.most_s, self.least_s), self.most_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgeted:
    """A repacking that migrates at most `budget` of memory in any hour, in reference nodes; beyond it, ADAPT chooses.

    The jobs that the repacking puts on nodes are kept. Where their migrations would pass what is left of the hour's
    budget, ADAPT looks for the placement with the largest minimum yield within it, from where they run now
    ([Stillwell2010] section 6.2); where it finds none, everything stays as it is. Of jobs on closed nodes, those leave
    them for which the budget suffices, first those submitted first; the others stay where they are.
    """

    repack: PolicyAction
    budget: float

    def __call__(self, snapshot: Snapshot, slots: Ints, reasons: Ints, /) -> None:
        """As the repacking, within the budget."""
        trial, why = slots.copy(), reasons.copy()
        self.repack(snapshot, trial, why)
        left = max(self.budget - snapshot.moved, 0.0)
        if _moved(snapshot, trial) > left:
            within = self._adapted(snapshot, trial, left)
            if within is None:
                return
            trial = within
        slots[:] = trial
        reasons[:] = why

    def _adapted(self, snapshot: Snapshot, trial: Ints, left: float) -> Ints | None:
        stays, left = _staying(snapshot, trial, left)
        owner = np.repeat(np.arange(len(snapshot.jobs)), np.diff(snapshot.first))
        chosen = (trial >= 0) & ~(stays[owner] & _on_closed(snapshot, snapshot.task_nodes))
        if not chosen.any():
            return None
        rows = np.unique(owner[chosen])
        usable = np.flatnonzero(snapshot.open)
        index = np.full(len(snapshot.open), -1, np.int64)
        index[usable] = np.arange(len(usable))
        present = np.where(snapshot.task_nodes >= 0, index[snapshot.task_nodes], -1)[chosen]
        jobs = snapshot.jobs[owner[chosen]]
        memory = np.ascontiguousarray(jobs["memory"])
        instance = Instance(
            resources=RESOURCES,
            nodes=tuple(map(str, usable.tolist())),
            capacity=snapshot.capacity[usable],
            services=tuple(map(str, rows.tolist())),
            minimum_yield=np.zeros(len(rows)),
            service_of=np.searchsorted(rows, owner[chosen]),
            need=np.column_stack([jobs["need"], memory]),
            rigid=np.tile([False, True], (len(memory), 1)),
            # No budget moves the tasks of a job that stays.
            move_cost=np.where(stays[owner[chosen]], left + 1.0, memory),
        )
        # Of all policies only those with a budget need the search for placements.
        from dfrs.placement.adapt import Adapt  # noqa: PLC0415
        from dfrs.placement.budget import Budget  # noqa: PLC0415

        search = Adapt(present=present, budget=Budget(cost=left), time_limit_s=NO_LIMIT_S, rounds=ROUNDS)
        allocation = search(instance, np.random.default_rng(0)).allocation
        if allocation is None:
            return None
        within = np.where(stays[owner], snapshot.task_nodes, -1)
        within[chosen] = usable[allocation.place]
        return within


@dataclass(frozen=True, slots=True, kw_only=True)
class Improving:
    """A repacking that is adopted only where it improves the minimum yield by more than `threshold`, relative to it.

    Or where it leaves fewer jobs without nodes; never where it leaves more ([Stillwell2010] section 7.2.2).
    """

    repack: PolicyAction
    threshold: float

    def __call__(self, snapshot: Snapshot, slots: Ints, reasons: Ints, /) -> None:
        """As the repacking, or nothing."""
        trial, why = slots.copy(), reasons.copy()
        self.repack(snapshot, trial, why)
        less, least = _standing(snapshot, slots)
        less_then, least_then = _standing(snapshot, trial)
        if less_then < less or (less_then == less and least_then > least * (1.0 + self.threshold)):
            slots[:] = trial
            reasons[:] = why


@dataclass(frozen=True, slots=True, kw_only=True)
class Paying:
    """A repacking that is adopted only where it pays for its penalties before the next one.

    Where it takes nodes from jobs, it pays if another job gets some whose stretch, flow time / virtual time, is at
    least `TIMES_WORSE` times that of each of them. Elsewhere it pays if a job without nodes gets some, or if the least
    yield (with a scaled objective: level) is larger than if everything stayed; that of a job that is moved counts for
    the part of the period that its penalty leaves. So nobody is moved where everybody has all that they need.
    """

    repack: PolicyAction
    period_s: float | PricedPeriod
    """How long a repacking lasts."""
    objective: Objective = YIELDS

    def __call__(self, snapshot: Snapshot, slots: Ints, reasons: Ints, /) -> None:
        """As the repacking, or nothing."""
        trial, why = slots.copy(), reasons.copy()
        self.repack(snapshot, trial, why)
        if self._pays(snapshot, slots, trial):
            slots[:] = trial
            reasons[:] = why

    def _pays(self, snapshot: Snapshot, slots: Ints, trial: Ints) -> bool:
        before, after = slots[snapshot.first[:-1]] >= 0, trial[snapshot.first[:-1]] >= 0
        comes, goes = after & ~before, before & ~after
        if goes.any():
            stretch = snapshot.flow_s / np.maximum(snapshot.jobs["virtual_s"], _NO_TIME_S)
            return bool(stretch[comes].max(initial=0.0) >= TIMES_WORSE * stretch[goes].max())
        if comes.any():
            return True
        _, slope = self.objective(snapshot)
        return _least(snapshot, trial, slope, self._part(snapshot, trial)) > _least(snapshot, slots, slope, 1.0)

    def _part(self, snapshot: Snapshot, trial: Ints) -> Floats:
        """(R,) the part of the period that is left to each job of those that run now."""
        prices = snapshot.prices
        owner = np.repeat(np.arange(len(snapshot.jobs)), np.diff(snapshot.first))
        cost_s = np.zeros(len(snapshot.jobs))
        cost_s[owner[trial != snapshot.task_nodes]] = prices.move_s
        period_s = self.period_s(prices) if isinstance(self.period_s, PricedPeriod) else self.period_s
        return np.maximum(1.0 - cost_s / period_s, 0.0)


Limited = Budgeted | Improving | Paying
"""Repackings that are adopted as they are only sometimes."""


def unlimited(action: PolicyAction) -> PolicyAction:
    """The action itself, or the repacking that it limits."""
    while isinstance(action, Limited):
        action = action.repack
    return action


def _standing(snapshot: Snapshot, slots: Ints) -> tuple[int, float]:
    """How many jobs are without nodes, and the largest minimum yield of the others."""
    placed = slots[snapshot.first[:-1]] >= 0
    return int((~placed).sum()), min(_least(snapshot, slots, np.ones(len(placed)), 1.0), 1.0)


def _least(snapshot: Snapshot, slots: Ints, slope: Floats, part: Floats | float) -> float:
    """The least, over the jobs that have nodes, of `part` (R,) times the level of max-min fair yields."""
    yields = np.empty(len(slope))
    fill(snapshot.jobs, snapshot.first, slots, snapshot.capacity, np.zeros(len(slope)), slope, 0.0, False, yields)
    return float((yields / slope * part)[slots[snapshot.first[:-1]] >= 0].min(initial=inf))


def _moved(snapshot: Snapshot, trial: Ints) -> float:
    """Memory of the tasks that would change their node, in reference nodes."""
    running: Bools = snapshot.jobs["state"] == RUNNING
    owner = np.repeat(np.arange(len(snapshot.jobs)), np.diff(snapshot.first))
    moves = running[owner] & (trial >= 0) & (trial != snapshot.task_nodes)
    return float(snapshot.jobs["memory"][owner[moves]].sum())


def _on_closed(snapshot: Snapshot, slots: Ints) -> Bools:
    """(slots,) which tasks are on closed nodes."""
    return (slots >= 0) & ~snapshot.open[slots]


def _staying(snapshot: Snapshot, trial: Ints, left: float) -> tuple[Bools, float]:
    """(R,) jobs with tasks on closed nodes that stay where they are, and what the others leave of `left`.

    They stay where the repacking leaves tasks there, or where too little is left to move them.
    """
    rows = len(snapshot.jobs)
    owner = np.repeat(np.arange(rows), np.diff(snapshot.first))
    stays = np.bincount(owner[_on_closed(snapshot, trial)], minlength=rows) > 0
    there = np.bincount(owner[_on_closed(snapshot, snapshot.task_nodes)], minlength=rows)
    leaves = (there > 0) & ~stays & (trial[snapshot.first[:-1]] >= 0)
    for row in np.flatnonzero(leaves).tolist():
        memory = float(there[row] * snapshot.jobs["memory"][row])
        if memory > left:
            stays[row] = True
        else:
            left -= memory
    return stays, left
