"""A cluster with noisy demand, simulated: what a watcher's settings, or another way to decide, bring over days."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dfrs.model.instance import Floats, Instance, Ints
from dfrs.rebalancing.solve import present_yield
from dfrs.rebalancing.watch import Watcher
from dfrs.workloads.demand import DAY_S, DemandScenario, machine_demand

HOUR_S = 3600.0
SIZES, SIZE_SHARES = (0.125, 0.25, 0.5), (0.4, 0.4, 0.2)
"""CPUs of machines as parts of a host's, and how many machines have them."""

Decide = Callable[[Instance, Ints, float], Ints]
"""From the instance, where machines are, and the time in seconds to where they should be from the next tick on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchReport:
    """What deciding brought over a simulated time."""

    yields: Floats
    """(ticks,) minimum yield of what each tick asked for."""
    moves: int
    back_within_hour: int
    """Moves to a host that the machine had left less than an hour before."""
    per_machine_and_day: float

    @property
    def mean_yield(self) -> float:
        """Over all ticks."""
        return float(self.yields.mean())


def simulate_decisions(
    decide: Decide,
    *,
    machines: int,
    hosts: int,
    ticks: int,
    tick_s: float,
    seed: int,
    scenario: DemandScenario | None = None,
) -> WatchReport:
    """Let `decide` see demand tick by tick; what it decides is in force at the next one, whose demand it does not know.

    Machines have random sizes, memory that fits anywhere, and a random host at first.
    """
    rng = np.random.default_rng(seed)
    cpu = rng.choice(SIZES, machines, p=SIZE_SHARES)
    memory = rng.uniform(0.2, 0.6, machines) * hosts / machines
    place: Ints = (rng.permutation(machines) % hosts).astype(np.int64)
    demand = machine_demand(scenario or DemandScenario(), machines, ticks, tick_s, seed)
    left: dict[int, tuple[float, int]] = {}
    yields = np.empty(ticks)
    moves = back = 0
    for k in range(ticks):
        need = np.stack([memory, cpu * demand[k]], axis=1)
        now = Instance.from_arrays(np.ones((hosts, 2)), need, [True, False], resources=["memory", "cpu"])
        yields[k] = present_yield(now, place) or 0.0
        chosen = decide(now, place, k * tick_s)
        for i in np.flatnonzero(chosen != place).tolist():
            moves += 1
            at_s, source = left.get(i, (-np.inf, -1))
            back += int(source == chosen[i] and k * tick_s - at_s < HOUR_S)
            left[i] = k * tick_s, int(place[i])
        place = chosen
    days = ticks * tick_s / DAY_S
    return WatchReport(yields=yields, moves=moves, back_within_hour=back, per_machine_and_day=moves / machines / days)


def watching(watcher: Watcher) -> Decide:
    """What a watcher decides, carried out at once."""

    def decide(instance: Instance, place: Ints, now_s: float) -> Ints:
        found = watcher.decide(instance, place, now_s).rebalancing
        return place if found is None or found.plan is None else found.plan.final

    return decide


def staying(instance: Instance, place: Ints, now_s: float) -> Ints:
    """Never move anything."""
    return place
