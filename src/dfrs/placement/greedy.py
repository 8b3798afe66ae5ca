"""The greedy algorithms: [Stillwell2010] 4.2.2 (49, GREEDY, GREEDYLIGHT) and [Stillwell2008] 3.3 (GR, SG, GB, SGB).

They place by requirements alone; the yield is what the placement then allows.
"""

from dataclasses import dataclass

import numpy as np

from dfrs.kernels import greedy as kernels
from dfrs.kernels.sorting import stable_order
from dfrs.model import tolerances
from dfrs.model.allocation import Outcome
from dfrs.model.instance import Floats, Instance, Ints
from dfrs.placement.bounds import lp_bound
from dfrs.placement.outcome import found, placement_yield

BACKTRACKING_ATTEMPTS = 500_000
"""[Stillwell2008] section 3.3: "an arbitrary bound on the number of job placement attempts"."""


def _fluid(instance: Instance) -> Floats:
    return np.where(instance.rigid, 0.0, instance.need)


def _order(instance: Instance, fluid: Floats, sort: int, rng: np.random.Generator) -> Ints:
    """Order S1 to S7 of [Stillwell2010] section 4.2.2."""
    if sort == 1:
        return rng.permutation(len(instance.need))
    measure = {2: fluid, 3: fluid, 4: instance.base, 5: instance.base, 6: instance.need, 7: instance.need}[sort]
    key = measure.max(axis=1) if sort % 2 == 0 else measure.sum(axis=1)
    return stable_order(key, False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Greedy:
    """GREEDY_Sx_Py: sort by option `sort` (1 to 7), choose nodes by option `rule` (1 to 7)."""

    sort: int
    rule: int

    def __call__(self, instance: Instance, rng: np.random.Generator, /) -> Outcome:
        """Place every task once; NOT_FOUND where one has no node."""
        return found(instance, self.place(instance, _fluid(instance), rng))

    def place(self, instance: Instance, fluid: Floats, rng: np.random.Generator) -> Ints | None:
        """The placement (T,), or None."""
        order = _order(instance, fluid, self.sort, rng)
        place = np.full(len(instance.need), -1, dtype=np.int64)
        success = kernels.place_greedily(
            instance.base, fluid, order, instance.capacity, tolerances.CAPACITY, self.rule, place
        )
        return place if success else None


GREEDIES = {f"GREEDY_S{sort}_P{rule}": Greedy(sort=sort, rule=rule) for sort in range(1, 8) for rule in range(1, 8)}
"""All 49."""

LIGHT = ("S3_P2", "S2_P2", "S6_P2", "S5_P1", "S7_P1", "S3_P1", "S6_P1", "S2_P1", "S5_P4")
"""The members of GREEDYLIGHT by increasing average distance from bound, as measured on one instance of each
scenario of [Stillwell2010] section 4.3. The text counts ten members and names these nine."""


def greedy_best(instance: Instance, rng: np.random.Generator, /) -> Outcome:
    """GREEDY: the best of all 49."""
    fluid, upper = _fluid(instance), lp_bound(instance)
    best, best_yield, winner = None, -1.0, ""
    for name, member in GREEDIES.items():
        place = member.place(instance, fluid, rng)
        value = -1.0 if place is None else placement_yield(instance, place)
        if value > best_yield:
            best, best_yield, winner = place, value, name
        if best_yield >= upper:
            break
    return found(instance, best, details={"winner": winner} if winner else {})


def greedy_light(instance: Instance, rng: np.random.Generator, /) -> Outcome:
    """GREEDYLIGHT: the members of LIGHT in turn, until one succeeds."""
    fluid = _fluid(instance)
    for name in LIGHT:
        place = GREEDIES[f"GREEDY_{name}"].place(instance, fluid, rng)
        if place is not None:
            return found(instance, place, details={"winner": f"GREEDY_{name}"})
    return found(instance, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadGreedy:
    """GR, SG, GB and SGB: nodes by increasing total fluid need, tasks as submitted or by decreasing requirement.

    `attempts` bounds the placements tried with backtracking; None goes straight through.
    """

    by_requirement: bool
    attempts: int | None = None

    def __call__(self, instance: Instance, _rng: np.random.Generator | None = None, /) -> Outcome:
        """Place every task; NOT_FOUND where one has no node and the attempts are used up."""
        tasks = len(instance.need)
        order = np.arange(tasks)
        if self.by_requirement:
            order = stable_order(np.where(instance.rigid, instance.need, 0.0).sum(axis=1), False)
        place = np.full(tasks, -1, dtype=np.int64)
        success, used = kernels.place_by_load(
            instance.base,
            _fluid(instance).sum(axis=1),
            order,
            instance.capacity,
            tolerances.CAPACITY,
            self.attempts is not None,
            self.attempts or 0,
            place,
        )
        return found(instance, place if success else None, details={"attempts": int(used)})


LOAD_GREEDIES: dict[str, LoadGreedy] = {
    "GR": LoadGreedy(by_requirement=False),
    "SG": LoadGreedy(by_requirement=True),
    "GB": LoadGreedy(by_requirement=False, attempts=BACKTRACKING_ATTEMPTS),
    "SGB": LoadGreedy(by_requirement=True, attempts=BACKTRACKING_ATTEMPTS),
}
