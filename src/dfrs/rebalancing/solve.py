"""From a snapshot to a plan: ADAPT within the budget, then the order in which its moves can be made."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from dfrs.model import tolerances
from dfrs.model.allocation import Outcome
from dfrs.model.errors import InfeasibleError
from dfrs.model.instance import Instance, Ints
from dfrs.model.move_limits import MoveLimits
from dfrs.model.rules import Rule, Rules
from dfrs.placement.bounds import upper_bound
from dfrs.placement.budget import Budget
from dfrs.placement.budget_bound import ROUNDING
from dfrs.placement.outcome import infeasible
from dfrs.placement.plan import Plan, make_plan
from dfrs.placement.plan_names import listed
from dfrs.placement.registry import Options, find
from dfrs.rebalancing.mover import Migration

SMALLEST_SHARE, LARGEST_SHARE = 2, 10_000
"""What both versions of control groups take as weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalancing:
    """A better placement within a budget, and how to get there."""

    outcome: Outcome
    """The placement; its `bound` holds for every placement within the budget."""
    plan: Plan | None
    """None where there is no placement."""
    present_yield: float | None
    """The minimum yield of what runs, where nothing moves; None where requirements do not fit."""
    minimum_yield: float | None
    """After the plan; None where there is none, or requirements do not fit then."""
    moves: int
    """Tasks that end up on another node."""

    @property
    def migrations(self) -> int:
        """How many moves the plan has, temporary ones counted too."""
        return 0 if self.plan is None else len(_moving(self.plan))


class Solver(Protocol):
    """How a watcher finds rebalancings."""

    def __call__(self, instance: Instance, present: Ints, budget: Budget, /) -> Rebalancing:
        """The best within the budget."""
        ...


def rebalance(
    instance: Instance,
    present: Ints,
    *,
    budget: Budget | None = None,
    limits: MoveLimits | None = None,
    time_limit_s: float | None = None,
    rounds: int | None = None,
    seed: int = 0,
    on_improvement: Callable[[float], None] | None = None,
) -> Rebalancing:
    """The best placement of `instance` that is reached from `present` (T,) within a budget, as an ordered plan.

    `present` has the node of each task, -1 for one that runs nowhere yet. `budget`: what may be spent, by default
    without limit; temporary moves count, and a plan that cannot afford them has none. `limits`: how many moves at once
    and how fast, by default the instance's own. `time_limit_s`: of the search, by default 1 s; `rounds` instead of it
    repeats to the bit. Rules and labels are the instance's. Where some moves wait for each other in vain, the plan has
    of the others those that do not make it worse.

    An instance without a solution is not an error: the outcome's status says so, and there is no plan.
    """
    place = np.ascontiguousarray(present, dtype=np.int64)
    budget = budget or Budget()
    options = Options(
        present=place,
        budget=budget,
        time_limit_s=time_limit_s,
        rounds=rounds,
        on_improvement=on_improvement,
    )
    try:
        upper_bound(instance)
        outcome = find("ADAPT").build(options)(instance, np.random.default_rng(seed))
    except InfeasibleError as error:
        outcome = infeasible(error)
    now = present_yield(instance, place)
    if outcome.allocation is None:
        return Rebalancing(outcome=outcome, plan=None, present_yield=now, minimum_yield=None, moves=0)
    plan = _plan_within(budget, instance, place, outcome.allocation.place, limits, seed)
    # Where some moves wait for each other in vain, what is reached is not what was aimed at.
    reached = outcome.minimum_yield if plan.complete else present_yield(instance, plan.final)
    moves = int(((place >= 0) & (place != plan.final)).sum())
    return Rebalancing(outcome=outcome, plan=plan, present_yield=now, minimum_yield=reached, moves=moves)


def _plan_within(
    budget: Budget, instance: Instance, present: Ints, target: Ints, limits: MoveLimits | None, seed: int
) -> Plan:
    """A plan that keeps the budget, as its target does: without temporary moves where these pass it."""

    def planned(not_temporary: str) -> Plan:
        rng = np.random.default_rng(seed)
        return make_plan(instance, present, target, limits, rng=rng, best_end=True, not_temporary=not_temporary)

    plan = planned("")
    passed = _passed(budget, instance, plan) if plan.temporary else []
    return planned(f"temporary moves would pass the budget of {listed(passed)}") if passed else plan


def _passed(budget: Budget, instance: Instance, plan: Plan) -> list[str]:
    """The units of the budget of which the moves of a plan take more."""
    spent = budget.costs(instance)[:, _moving(plan)].sum(axis=1)
    most = budget.amounts * (1.0 + ROUNDING)
    return [unit for unit, is_passed in zip(budget.limits, spent > most, strict=True) if is_passed]


def _moving(plan: Plan) -> list[int]:
    """The task of each move of a plan; those that start are none."""
    return [move.task for move in plan.steps if move.source >= 0]


def migrations(instance: Instance, plan: Plan) -> list[Migration]:
    """The moves of a plan of services of one task each, by the names of the instance. Tasks that start are none."""
    return [
        Migration(
            machine=move.service,
            source=instance.nodes[move.source],
            target=instance.nodes[move.target],
            start_s=move.start_s,
            end_s=move.end_s,
        )
        for move in plan.steps
        if move.source >= 0
    ]


def promised_parts(instance: Instance, found: Rebalancing) -> dict[str, float]:
    """What the minimum yield means for services of one task: the part of the reference node's CPU."""
    parts = instance.base + (found.minimum_yield or 0.0) * instance.slope
    fluid = parts.max(axis=1, where=~instance.rigid, initial=0.0)
    return dict(zip(instance.services, fluid.tolist(), strict=True))


def cpu_shares(instance: Instance, found: Rebalancing) -> dict[str, int]:
    """Weights of services of one task in the sharing of CPU: in proportion to what they are promised.

    With equal weights a hypervisor gives machines that need little all of it, and the others less than the yield.
    """
    promised = promised_parts(instance, found)
    largest = max(promised.values())
    if largest <= 0:
        return dict.fromkeys(promised, LARGEST_SHARE)
    return {name: max(SMALLEST_SHARE, round(part / largest * LARGEST_SHARE)) for name, part in promised.items()}


def present_yield(instance: Instance, place: Ints) -> float | None:
    """The highest minimum scaled yield of the tasks that run at `place` (T,), -1 for nowhere.

    None where their requirements do not fit.
    """
    running = place >= 0
    base, slope = np.zeros_like(instance.capacity), np.zeros_like(instance.capacity)
    np.add.at(base, place[running], instance.base[running])
    np.add.at(slope, place[running], instance.slope[running])
    free = instance.capacity - base
    if (free < -tolerances.PLACEMENT).any():
        return None
    yields = np.divide(free.clip(0.0), slope, out=np.ones_like(free), where=slope > 0)
    return float(min(1.0, yields.min()))


def add_rules(instance: Instance, rules: Iterable[Rule]) -> Instance:
    """The same instance with these rules after its own."""
    more = tuple(rules)
    if not more:
        return instance
    own = instance.rules or Rules()
    return replace(instance, rules=replace(own, rules=(*own.rules, *more)))
