"""Where a plan that leaves tasks behind had best end: moves that were to pay together may do harm without the rest.

What counts is, in this order: the tasks that run, the hard rules that are kept, and the minimum yield less the price of
soft rules that are broken.
"""

import math
from collections import defaultdict

import numpy as np

from dfrs.model.instance import Instance, Ints
from dfrs.placement.plan_reasons import yields_after
from dfrs.placement.plan_schedule import Timed
from dfrs.placement.plan_state import PlanState

DIGITS = 9
"""Of yields that are compared; the rest is rounding."""


def best_beginning(instance: Instance, state: PlanState, timed: list[Timed], target: Ints) -> list[Timed]:
    """The steps of `timed` that end by the time at which tasks are best placed: all, unless more of them is worse.

    No task is on a temporary stop then. `state` is where the plan begins, and is left as it was.
    """
    present = np.array(state.place)
    place = present.copy()
    ending: dict[float, list[tuple[Timed, float | None]]] = defaultdict(list)
    for now, value in zip(timed, yields_after(state, timed), strict=True):
        ending[now.end_s].append((now, value))
    before = state.minimum_yield
    last = best = _worth(instance, place, before if before >= 0 else None)
    until_s = -math.inf
    for end_s in sorted(ending):
        for now, _ in ending[end_s]:
            for i, _, b in now.step.legs:
                place[i] = b
        last = _worth(instance, place, ending[end_s][0][1])
        if last > best and ((place == present) | (place == target)).all():
            best, until_s = last, end_s
    return timed if last >= best else [now for now in timed if now.end_s <= until_s]


def _worth(instance: Instance, place: Ints, value: float | None) -> tuple[int, int, float]:
    """How good a placement (T,) is; `value`: its minimum yield, None where requirements do not fit."""
    running = int((place >= 0).sum())
    rules = instance.rules
    if rules is None:
        return running, 0, -math.inf if value is None else round(value, DIGITS)
    hard = np.array([rule.price is None for rule in rules.rules], dtype=np.bool_)
    broken = int(rules.broken(place)[hard].sum())
    return running, -broken, -math.inf if value is None else round(value - rules.cost(place), DIGITS)
