"""ADAPT: from a present placement and a budget for moves, the best minimum yield within reach.

The documents ([Stillwell2010] section 6.2, [Stillwell2008] section 6.1) give the exact program, ADAPT_OPT, and leave
heuristics to future work. This one aims at a yield, lets the nodes that it would overload shed the fewest tasks, and
places each where it fits best; it aims first at the bound for the budget, so the first placement is often the best.
`docs/explanation/adapt.md` says how, and how well.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dfrs.kernels.rules import RuleArrays, no_rules
from dfrs.model.allocation import Outcome, Status
from dfrs.model.errors import InfeasibleError, InputError
from dfrs.model.instance import Instance, Ints
from dfrs.model.rules import Rules
from dfrs.placement.adapt_search import AdaptSearch, Clock
from dfrs.placement.bounds import upper_bound
from dfrs.placement.budget import Budget
from dfrs.placement.budget_bound import Departures
from dfrs.placement.outcome import found, infeasible, tightest
from dfrs.placement.repair import repair

EXACT_TASKS = 64
"""Up to so many tasks branch and bound is tried."""
EXACT_TRIALS = 300_000
"""Trials that it may have first: some milliseconds."""
TILTS = (0.1, 0.3, 1.0)
"""Spreads of the factors by which tasks are taken in another order."""
AIMS = (1 / 2, 1 / 8, 1 / 32)
"""Parts of the distance to the bound that searches in another order aim at."""
HEATS = ((3e-3, 1e-4), (1e-2, 1e-4), (2e-2, 3e-4))
"""First and last temperatures of annealing, in node capacities of overload: cold, then warmer."""
FIRST = 0.5
"""Of the time, what the search under all rules takes where some have a price; the others share the rest."""
FEWER = 3
"""Further searches in another order for as good a placement with fewer moves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapt:
    """Anytime search from `present` (T,), -1 for tasks that run nowhere yet and are placed for free.

    The call raises InputError where `present` does not belong to the instance, or sizes that the budget needs are
    not known.
    """

    present: Ints
    budget: Budget
    time_limit_s: float = 1.0
    rounds: int | None = None
    on_improvement: Callable[[float], None] | None = None

    def __call__(self, instance: Instance, rng: np.random.Generator, /) -> Outcome:
        """The best placement within the budget, with the bound for it.

        INFEASIBLE where it is proven that none is valid; NOT_FOUND where none was found.
        """
        clock = Clock(time_limit_s=self.time_limit_s, rounds=self.rounds)
        seed = int(rng.integers(2**62))
        present = _checked(instance, self.present)
        rules = instance.rules
        if rules is None or not rules.soft:
            return self._under(instance, present, rules, clock, seed)
        best = self._under(instance, present, rules, clock.part(FIRST), seed)
        return self._conceding(instance, present, rules, clock, seed, best)

    def _conceding(
        self, instance: Instance, present: Ints, rules: Rules, clock: Clock, seed: int, best: Outcome
    ) -> Outcome:
        """Drop the soft rule whose loss pays most, as long as one does: yields count less what broken rules cost."""
        worth, share = _worth(rules, best), (1.0 - FIRST) / len(rules.soft)
        better: Rules | None = rules
        while better is not None:
            rules, better = better, None
            for k in range(len(rules.soft)):
                if k in rules.dropped or clock.over:
                    continue
                trial = rules.without(k)
                outcome = self._under(instance, present, trial, clock.part(share), seed)
                if _worth(rules, outcome) > worth + 1e-12:
                    best, worth, better = outcome, _worth(rules, outcome), trial
        # A proof is one under the rules in force: nothing is proven about those that might be dropped.
        if best.allocation is None:
            return replace(best, status=Status.NOT_FOUND)
        bound = self._bound(instance, present, rules.hard_only)
        details = dict(best.details) | {"conceded": rules.concessions(best.allocation.place), "worth": worth}
        return found(instance, best.allocation.place, bound=bound, details=details)

    def _bound(self, instance: Instance, present: Ints, rules: Rules | None) -> float:
        highest = self._departures(instance, present, _arrays(instance, rules)).highest(upper_bound(instance))
        return 0.0 if highest is None else highest

    def _departures(self, instance: Instance, present: Ints, arrays: RuleArrays) -> Departures:
        running = present >= 0
        leaving = np.zeros(len(present), dtype=np.bool_)
        leaving[running] = ~arrays.allowed[arrays.kind_of[running], present[running]]
        costs = np.where(running, self.budget.costs(instance), 0.0)
        return Departures(instance=instance, present=present, leaving=leaving, costs=costs, amounts=self.budget.amounts)

    def _under(self, instance: Instance, present: Ints, rules: Rules | None, clock: Clock, seed: int) -> Outcome:
        """The best placement that keeps the rules in force."""
        arrays = _arrays(instance, rules)
        departures = self._departures(instance, present, arrays)
        limit = upper_bound(instance)
        highest = departures.highest(limit)
        if highest is None:
            needed = departures.fewest(0.0)
            reason = f"no placement within the budget: at least {needed} tasks must move; {tightest(instance)}"
            return infeasible(InfeasibleError(f"infeasible: {reason}"))
        search = AdaptSearch(
            instance,
            present,
            departures.costs,
            departures.amounts,
            arrays,
            highest,
            clock,
            np.random.default_rng(seed),
        )
        search.on_improvement = self.on_improvement
        staying = -1.0
        if (present >= 0).all():
            search.offer(present, "staying")
            staying = search.value
        if search.value < 0:
            repair(search, departures)
        _improve(search, seed)
        _save_moves(search)
        return self._outcome(search, departures, limit, staying)

    def _outcome(self, search: AdaptSearch, departures: Departures, limit: float, staying: float) -> Outcome:
        instance = search.instance
        details: dict[str, object] = {
            "winner": search.source,
            "budget": self.budget.limits,
            "bound_without_budget": limit,
        }
        if search.place is not None:
            details |= {
                "staying_yield": staying if staying >= 0 else None,
                "spent": self.budget.spent(instance, search.present, search.place),
                "moves": search.moved(search.place),
                "moves_needed": departures.fewest(search.value),
            }
        if search.repaired is not None:
            details["repair_moves"] = search.repaired
        outcome = found(instance, search.place, bound=search.upper, optimal=search.proven, details=details)
        if search.place is None and search.proven:
            reason = f"exact search: no placement within the budget; {tightest(instance)}"
            return replace(outcome, status=Status.INFEASIBLE, details=details | {"reason": reason})
        return outcome


def _improve(search: AdaptSearch, seed: int) -> None:
    """Relief from the present placement, descent from the best, the plain greedy; then other orders and annealing."""
    search.bisect(search.present, "relief")
    search.descend()
    if search.stopped:
        return
    search.cool()
    search.descend()
    if search.stopped:
        return
    small = len(search.present) <= EXACT_TASKS
    if small:
        search.exact(EXACT_TRIALS)
    state = np.array([(seed * 2 + 1) * 0x9E3779B97F4A7C15 % 2**64], dtype=np.uint64)
    turn = 0
    while not search.stopped:
        _another_order(search, turn)
        search.anneal(HEATS[turn % len(HEATS)], 1 + turn, state)
        search.tilt(0.0)
        search.descend()
        turn += 1


def _another_order(search: AdaptSearch, turn: int) -> None:
    """Relief with the tasks in other orders, from where they run and from the best placement."""
    for k, part in enumerate(AIMS):
        if search.stopped:
            return
        search.tilt(TILTS[(turn + k) % len(TILTS)])
        target = search.value + part * (search.upper - search.value) if search.value >= 0 else 0.0
        start = search.present if search.place is None or (turn + k) % 2 == 0 else search.place
        search.aim(start, target, "relief in another order")


def _save_moves(search: AdaptSearch) -> None:
    """As good a placement with fewer moves: those not needed are undone, and a few others are tried."""
    search.give_back()
    for turn in range(FEWER):
        if search.place is None or search.clock.over or search.moved(search.place) == 0:
            return
        search.tilt(0.0 if turn == 0 else TILTS[turn % len(TILTS)])
        place = search.relieve(search.present, search.value)
        if place is not None and search.offer(place, search.source):
            search.give_back()


def _worth(rules: Rules, outcome: Outcome) -> float:
    """The minimum yield less what broken soft rules cost; minus infinity without a placement."""
    if outcome.allocation is None or outcome.minimum_yield is None:
        return -math.inf
    return outcome.minimum_yield - rules.cost(outcome.allocation.place)


def _arrays(instance: Instance, rules: Rules | None) -> RuleArrays:
    return no_rules(len(instance.need), len(instance.nodes)) if rules is None else rules.arrays


def _checked(instance: Instance, present: Ints) -> Ints:
    """`present` as integers; raises InputError where it does not belong to `instance`."""
    place = np.array(present, dtype=np.int64)
    tasks, nodes = len(instance.need), len(instance.nodes)
    if place.shape != (tasks,):
        raise InputError(f"present has shape {place.shape}: must be one node for each of {tasks} tasks")
    wrong = np.flatnonzero((place < -1) | (place >= nodes))
    if wrong.size:
        raise InputError(f"present[{wrong[0]}] = {place[wrong[0]]}: must be a node, 0 to {nodes - 1}, or -1")
    return place
