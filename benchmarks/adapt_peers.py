"""Other ways to rebalance a cluster, on the same model: what ADAPT is compared with."""

from fractions import Fraction

import numpy as np

from dfrs import Instance
from dfrs.model.instance import Floats, Ints

UNITS = 1_000_000
"""Integers that a solver of integers sees for one reference node."""


def hottest_to_coldest(instance: Instance, present: Ints, moves: int) -> Ints:
    """From the host with the lowest yield, move the machine that helps most to the host where it does least harm.

    As load balancers do that move one machine at a time: a move is made if it raises the lower yield of the two hosts.
    """
    place = present.copy()
    fixed, rate = np.zeros_like(instance.capacity), np.zeros_like(instance.capacity)
    np.add.at(fixed, place, instance.base)
    np.add.at(rate, place, instance.slope)
    for _ in range(moves):
        yields = _yields(instance.capacity - fixed, rate)
        a = int(yields.argmin())
        best, best_value = None, float(yields[a])
        for i in np.flatnonzero(place == a):
            left = _yields(instance.capacity[[a]] - fixed[a] + instance.base[i], rate[[a]] - instance.slope[i])[0]
            there = _yields(instance.capacity - fixed - instance.base[i], rate + instance.slope[i])
            there[a] = -1.0
            b = int(there.argmax())
            value = min(float(left), float(there[b]))
            if value > best_value:
                best, best_value = (i, b), value
        if best is None:
            break
        i, b = best
        for loads, part in ((fixed, instance.base), (rate, instance.slope)):
            loads[a] -= part[i]
            loads[b] += part[i]
        place[i] = b
    return place


def _yields(free: Floats, rate: Floats) -> Floats:
    """(N,) the yield that each host allows; -1 where not even 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(rate > 1e-15, np.maximum(free, 0.0) / rate, 1.0).min(axis=1)
    return np.where((free < -1e-9).any(axis=1), -1.0, np.minimum(ratio, 1.0))


def cp_sat(instance: Instance, present: Ints, moves: int, time_limit_s: float) -> Ints | None:
    """The same problem as a model of CP-SAT with one worker: rigid loads within capacities, fluid ones within a least
    multiple Z = 1/Y of them, at most so many moves; it starts from the present placement.

    None without the package `ortools`, or without a solution in time.
    """
    try:
        from ortools.sat.python import cp_model  # noqa: PLC0415 - may be missing
    except ImportError:
        return None
    tasks, nodes = len(present), len(instance.nodes)
    model = cp_model.CpModel()
    x = [[model.new_bool_var("") for _ in range(nodes)] for _ in range(tasks)]
    for i in range(tasks):
        model.add_exactly_one(x[i])
        for n in range(nodes):
            model.add_hint(x[i][n], bool(n == present[i]))
    model.add(sum(x[i][present[i]] for i in range(tasks)) >= tasks - moves)
    grain = 1_000
    z = model.new_int_var(grain, 1_000 * grain, "z")
    for d in range(len(instance.resources)):
        need = np.ceil(instance.need[:, d] * UNITS).astype(int).tolist()
        capacity = np.floor(instance.capacity[:, d] * UNITS).astype(int).tolist()
        fluid = bool(instance.slope[:, d].any())
        for n in range(nodes):
            load = sum(need[i] * x[i][n] for i in range(tasks) if need[i])
            if fluid:
                part = Fraction(capacity[n], grain)
                model.add(load * part.denominator <= z * part.numerator)
            else:
                model.add(load <= capacity[n])
    model.minimize(z)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit_s
    solver.parameters.num_workers = 1
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return np.array([next(n for n in range(nodes) if solver.value(x[i][n])) for i in range(tasks)])
