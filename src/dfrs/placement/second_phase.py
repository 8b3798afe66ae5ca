"""Yields on a fixed placement: all equal, the largest average, or max-min fair.

Sources: [Stillwell2010] sections 4.4.7 and 4.5.1, [Stillwell2008] sections 3.5 and 5.
"""

from typing import Literal

import numpy as np

from dfrs.kernels import yields as kernels
from dfrs.model import tolerances
from dfrs.model.allocation import Allocation
from dfrs.model.instance import Floats, Instance, Ints
from dfrs.placement.solver import LinearProgram

SecondPhase = Literal["none", "average", "average-lp", "max-min"]


def equal_yields(instance: Instance, place: Ints, minimum: float) -> Allocation:
    """Every service at the scaled yield `minimum`; 1 for those whose minimum yield is 1 ([Stillwell2010] 4.1)."""
    scaled = np.where(instance.minimum_yield >= 1.0, 1.0, minimum)
    return Allocation(place=place, scaled_yields=scaled)


def maximize(instance: Instance, allocation: Allocation, phase: SecondPhase) -> Allocation:
    """Hand out what is left, with every node assignment and the minimum yield kept.

    `average`: the documents' greedy rule where every service has one task, the linear program of [Stillwell2010] 4.5.1
    where not; `average-lp`: the program always; `max-min`: water-filling.
    """
    if phase == "none":
        return allocation
    single = bool((instance.tasks_per_service == 1).all())
    if phase == "average-lp" or (phase == "average" and not single):
        return _average_by_program(instance, allocation)
    room = instance.capacity - allocation.loads(instance)
    scaled = allocation.scaled_yields.copy()
    if phase == "average":
        kernels.fill_average(instance.slope, room, allocation.place, scaled, tolerances.CAPACITY)
    else:
        kernels.fill_max_min(instance.slope, room, allocation.place, instance.service_of, scaled, tolerances.CAPACITY)
    return Allocation(place=allocation.place, scaled_yields=np.clip(scaled, 0.0, 1.0))


def _average_by_program(instance: Instance, allocation: Allocation) -> Allocation:
    """[Stillwell2010] 4.7 to 4.14 with placement and minimum yield fixed: maximise the sum of the services' yields.

    All tasks of a service share one yield (4.11), so one variable a service is enough.
    """
    program = LinearProgram(name="average yield")
    low = allocation.scaled_yields
    program.add_columns(lower=low, upper=np.ones_like(low), cost=np.where(instance.minimum_yield < 1.0, 1.0, 0.0))
    rate = _rates(instance, allocation.place)
    room = instance.capacity - np.zeros_like(instance.capacity)
    np.subtract.at(room, allocation.place, instance.base)
    for n, d in np.argwhere(rate.any(axis=2)):
        services = np.flatnonzero(rate[n, d])
        program.add_row(services, rate[n, d, services], upper=float(room[n, d]))
    solution = program.maximize()
    scaled = np.clip(solution.values, low, 1.0)
    return Allocation(place=allocation.place, scaled_yields=scaled)


def _rates(instance: Instance, place: Ints) -> Floats:
    """(N, D, S) what one unit of a service's scaled yield takes of each resource on each node."""
    rate = np.zeros((len(instance.nodes), len(instance.resources), len(instance.services)))
    for d in range(rate.shape[1]):
        np.add.at(rate[:, d, :], (place, instance.service_of), instance.slope[:, d])
    return rate
