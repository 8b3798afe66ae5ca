"""When a cluster that is watched should be rebalanced: not whenever a better placement exists.

Demand is noisy and a move is not free. What a machine needs is a high percentile of what it asked for lately. Moves are
made where the gain in minimum yield pays for them: it must pass a threshold that grows with their number. A machine
that was moved stays for a while, and does not go back, unless requirements or rules cannot be kept otherwise.
"""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.instance import Floats, Instance, Ints
from dfrs.model.rules import Never, Only, Rule
from dfrs.placement.bounds import upper_bound
from dfrs.placement.budget import Budget
from dfrs.rebalancing.solve import Rebalancing, Solver, add_rules, present_yield

Kind = Literal["wait", "improve", "repair"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings:
    """How patient a watcher is. Raises InputError for a value out of its range."""

    window: int = 6
    """Samples of a machine's demand that count."""
    percentile: float = 90.0
    """Of these samples: what the machine is taken to need."""
    least_gain: float = 0.05
    """Minimum yield that any change must gain."""
    price: float = 0.01
    """Minimum yield that each move must gain on top."""
    hold_off_s: float = 3600.0
    """How long a machine stays after it was moved."""
    budget: Budget = field(default_factory=Budget)
    """Of one change."""

    def __post_init__(self) -> None:
        rules = {
            "window": (self.window, self.window >= 1, "at least 1"),
            "percentile": (self.percentile, 0 <= self.percentile <= 100, "in [0, 100]"),
            "least_gain": (self.least_gain, 0 <= self.least_gain <= 1, "in [0, 1]"),
            "price": (self.price, 0 <= self.price <= 1, "in [0, 1]"),
            "hold_off_s": (self.hold_off_s, 0 <= self.hold_off_s < math.inf, "a number of seconds of at least 0"),
        }
        for name, (value, holds, rule) in rules.items():
            if not holds:
                raise InputError(f"{name} = {value:g}: must be {rule}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What to do now. `rebalancing` is there unless `kind` is "wait" or no repair was found."""

    kind: Kind
    why: str
    now_yield: float | None
    """With demand as smoothed; None where requirements do not fit."""
    instance: Instance
    """With demand as smoothed: what a minimum yield of `rebalancing` promises is a part of that."""
    rebalancing: Rebalancing | None = None


class Watcher:
    """Sees one snapshot after another and says when to act. It remembers demand and moves, by task name."""

    def __init__(self, settings: WatchSettings, solve: Solver) -> None:
        self._settings = settings
        self._solve = solve
        self._samples: dict[str, deque[Floats]] = {}
        self._last: dict[str, str] = {}
        self._moved: dict[str, tuple[float, str]] = {}
        """By task: when it was last moved, and from where."""
        self._reference: object = None

    def decide(self, instance: Instance, present: Ints, now_s: float) -> Verdict:
        """What to do about this snapshot; `now_s` is any clock that goes forward. Moves are seen by the next call."""
        smooth = self._smoothed(instance, present, now_s)
        now_yield = present_yield(smooth, present)
        problems = [] if smooth.rules is None else smooth.rules.problems(present)
        if now_yield is None or problems or (present < 0).any():
            return self._repair(smooth, present, now_s, now_yield, problems)
        possible = upper_bound(smooth) - now_yield
        threshold = self._settings.least_gain + self._settings.price
        if possible < threshold:
            why = f"no placement can gain more than {max(0.0, possible):.3f}: must be {threshold:.3f} for one move"
            return Verdict(kind="wait", why=why, now_yield=now_yield, instance=smooth)
        return self._improve(smooth, present, now_s, now_yield)

    def _improve(self, instance: Instance, present: Ints, now_s: float, now_yield: float) -> Verdict:
        """The change with the most gain less its price, of those with 1, 2, 4, ... moves."""
        held = add_rules(instance, self._stay(instance, present, now_s))
        best: Rebalancing | None = None
        best_net = -math.inf
        for budget in self._budgets(instance):
            found = self._solve(held, present, budget)
            if found.minimum_yield is None:
                continue
            net = found.minimum_yield - now_yield - self._settings.price * found.migrations
            if net > best_net:
                best, best_net = found, net
            if found.minimum_yield >= upper_bound(held) - self._settings.price:
                break
        if best is None or best.moves == 0 or best_net < self._settings.least_gain:
            gain = 0.0 if best is None else best_net
            why = f"the best change gains {gain:.3f} after its price: must be {self._settings.least_gain:.3f}"
            return Verdict(kind="wait", why=why, now_yield=now_yield, instance=instance)
        gained = (best.minimum_yield or 0.0) - now_yield
        number = "one move" if best.migrations == 1 else f"{best.migrations} moves"
        why = f"gains {gained:.3f} of minimum yield with {number}"
        return Verdict(kind="improve", why=why, now_yield=now_yield, instance=instance, rebalancing=best)

    def _repair(
        self, instance: Instance, present: Ints, now_s: float, now_yield: float | None, problems: list[str]
    ) -> Verdict:
        """The first repair found: without machines on hold-off, without sending any back, with all."""
        why = problems[0] if problems else "new machines" if now_yield is not None else "requirements do not fit"
        stages = (self._stay(instance, present, now_s), self._not_back(instance, now_s), [])
        for extra in stages:
            for budget in self._budgets(instance):
                found = self._solve(add_rules(instance, extra), present, budget)
                if found.plan is not None and found.plan.complete:
                    return Verdict(kind="repair", why=why, now_yield=now_yield, instance=instance, rebalancing=found)
        why = f"{why}; no repair found within the budget"
        return Verdict(kind="repair", why=why, now_yield=now_yield, instance=instance)

    def _budgets(self, instance: Instance) -> Iterable[Budget]:
        """The budget with 1, 2, 4, ... moves at most, and as it is: temporary moves may be more than machines."""
        given = self._settings.budget.moves
        most = len(instance.need) if given is None else min(given, len(instance.need))
        number = 1
        while number < most:
            yield replace(self._settings.budget, moves=float(number))
            number *= 2
        yield self._settings.budget

    def _stay(self, instance: Instance, present: Ints, now_s: float) -> list[Rule]:
        """Rules that keep tasks on hold-off where they are."""
        names = task_names(instance)
        return [
            Only(services=[names[i]], nodes=[instance.nodes[n]])
            for i, n in enumerate(present.tolist())
            if n >= 0 and self._on_hold(names[i], now_s)
        ]

    def _not_back(self, instance: Instance, now_s: float) -> list[Rule]:
        """Rules that keep tasks on hold-off from where they came from."""
        nodes = set(instance.nodes)
        return [
            Never(services=[name], nodes=[self._moved[name][1]])
            for name in task_names(instance)
            if self._on_hold(name, now_s) and self._moved[name][1] in nodes
        ]

    def _on_hold(self, name: str, now_s: float) -> bool:
        return name in self._moved and now_s - self._moved[name][0] < self._settings.hold_off_s

    def _smoothed(self, instance: Instance, present: Ints, now_s: float) -> Instance:
        """The instance with each fluid need the percentile of its last samples; notes what has moved since."""
        reference = (instance.nodes, instance.capacity.tobytes())
        if reference != self._reference:
            # Needs are fractions of the largest node, which may be another now.
            self._samples.clear()
            self._reference = reference
        names = task_names(instance)
        need = instance.need.copy()
        here: dict[str, str] = {}
        for i, name in enumerate(names):
            samples = self._samples.setdefault(name, deque(maxlen=self._settings.window))
            samples.append(instance.need[i].copy())
            high = np.percentile(np.array(samples), self._settings.percentile, axis=0)
            need[i] = np.where(instance.rigid[i], need[i], high)
            if present[i] >= 0:
                here[name] = instance.nodes[int(present[i])]
                before = self._last.get(name, here[name])
                if before != here[name]:
                    self._moved[name] = (now_s, before)
        for gone in self._samples.keys() - set(names):
            del self._samples[gone]
        self._last = here
        self._moved = {name: move for name, move in self._moved.items() if name in here}
        return replace(instance, need=need)


def task_names(instance: Instance) -> list[str]:
    """(T,) a service's name, with /rank behind it where it has several tasks: what rules call a task."""
    first = np.searchsorted(instance.service_of, instance.service_of)
    return [
        instance.services[j] if instance.tasks_per_service[j] == 1 else f"{instance.services[j]}/{i - int(first[i])}"
        for i, j in enumerate(instance.service_of.tolist())
    ]
