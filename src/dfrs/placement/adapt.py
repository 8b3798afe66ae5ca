"""ADAPT: from a present placement and a budget for moves, the best minimum yield within reach.

The documents ([Stillwell2010] section 6.2, [Stillwell2008] section 6.1) give the exact program, ADAPT_OPT, and leave
heuristics to future work. This one starts from staying, so it is never worse than that, and searches as BEST does,
refusing every step that would pass the budget.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from dfrs.model.allocation import Outcome, Status
from dfrs.model.errors import InputError
from dfrs.model.instance import Floats, Instance, Ints
from dfrs.placement.best import MEMBERS
from dfrs.placement.bounds import upper_bound
from dfrs.placement.improve import Effort, Search, warm
from dfrs.placement.outcome import found, tightest
from dfrs.placement.packing import VECTOR_PACKINGS

Unit = Literal["moves", "bytes", "cost"]

EXACT_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What may be spent on moving tasks: a number of moves, bytes copied, or cost in the user's unit."""

    unit: Unit
    amount: float

    def __post_init__(self) -> None:
        if not self.amount >= 0:
            raise InputError(f"budget of {self.unit}: {self.amount}: must be at least 0")

    def costs(self, instance: Instance) -> Floats:
        """(T,) what moving each task takes of the budget."""
        if self.unit == "moves":
            return np.ones(len(instance.need))
        if self.unit == "cost":
            return instance.move_cost
        if instance.task_bytes is None:
            raise InputError(
                'a budget in bytes needs the size of a resource: give its reference node\'s "bytes" in the instance'
            )
        return instance.task_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapt:
    """Anytime search around `present` (T,), -1 for tasks that run nowhere yet and are placed for free."""

    present: Ints
    budget: Budget
    time_limit_s: float = 1.0
    rounds: int | None = None
    on_improvement: Callable[[float], None] | None = None

    def __call__(self, instance: Instance, rng: np.random.Generator, /) -> Outcome:
        """The best placement within the budget; NOT_FOUND where the present one no longer fits and no repair did."""
        warm()
        effort = Effort(time_limit_s=self.time_limit_s, rounds=self.rounds)
        search = Search(
            instance,
            upper_bound(instance),
            effort,
            int(rng.integers(2**62)),
            present=self.present,
            cost=self.budget.costs(instance),
            budget=self.budget.amount,
        )
        search.on_improvement = self.on_improvement
        start = _complete(instance, self.present)
        search.offer(start, "staying")
        staying = search.value
        _offer_packings(search)
        if not search.done:
            search.exact(0.0)
        if not search.done:
            search.anneal(start if search.place is None else search.place, EXACT_SHARE)
        if not search.done:
            search.exact()
        if not search.done:
            search.anneal(start if search.place is None else search.place)
        details: dict[str, object] = {
            "winner": search.source,
            "budget": {self.budget.unit: self.budget.amount},
        }
        if search.place is not None:
            moved = (self.present >= 0) & (self.present != search.place)
            details |= {
                "staying_yield": staying if staying >= 0 else None,
                "spent": search.price(search.place),
                "moves": int(moved.sum()),
            }
        # The closed-form bound does not know the budget; only complete search proves more here.
        outcome = found(instance, search.place, optimal=search.proven, details=details)
        if search.place is None and search.proven:
            reason = f"exact search: no placement within the budget; {tightest(instance)}"
            return replace(outcome, status=Status.INFEASIBLE, details=details | {"reason": reason})
        return outcome


def _complete(instance: Instance, present: Ints) -> Ints:
    """`present` (T,) with every new task on the node that it leaves least loaded."""
    place = present.copy()
    load = np.zeros_like(instance.capacity)
    running = present >= 0
    np.add.at(load, present[running], instance.need[running])
    capacity = instance.capacity.clip(1e-12)
    new = np.flatnonzero(~running)
    for i in new[np.argsort(-instance.need[new].max(axis=1), kind="stable")]:
        n = int(((load + instance.need[i]) / capacity).max(axis=1).argmin())
        place[i] = n
        load[n] += instance.need[i]
    return place


def _offer_packings(search: Search) -> None:
    """Offer each packing, its nodes renamed to keep as much as possible in place; most will pass the budget."""
    if search.price(np.full_like(search.present, -2)) > 4 * search.budget:
        return
    place = np.full(len(search.present), -1, dtype=np.int64)
    for name in MEMBERS:
        if search.done or search.effort.used() >= EXACT_SHARE:
            return
        if VECTOR_PACKINGS[name].search(search.instance, place, search.upper) >= 0:
            search.offer(_renamed(search, place), name)


def _renamed(search: Search, place: Ints) -> Ints:
    """`place` (T,) with interchangeable nodes matched, largest overlap first, to those where the tasks run now."""
    instance = search.instance
    nodes = len(instance.nodes)
    running = search.present >= 0
    overlap = np.zeros((nodes, nodes))
    np.add.at(overlap, (place[running], search.present[running]), search.cost[running])
    alike = (instance.capacity[:, None, :] == instance.capacity[None, :, :]).all(axis=2)
    overlap = np.where(alike, overlap, -1.0)
    name = np.full(nodes, -1, dtype=np.int64)
    for _ in range(nodes):
        flat = int(overlap.argmax())
        here, there = divmod(flat, nodes)
        name[here] = there
        overlap[here, :] = -2.0
        overlap[:, there] = -2.0
    return name[place]
