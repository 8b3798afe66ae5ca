"""A first placement where requirements nearly fill some resources: of those resources alone, the rest after them.

Where no packing finds a placement, a few resources decide. Tasks that require nothing of these fit nearly anywhere, and
only are in the way of a search: it is made of fewer tasks and resources without them.
"""

import numpy as np

from dfrs.kernels.packing import SUM, pack_first_fit, sort_order
from dfrs.model import tolerances
from dfrs.model.instance import Bools, Instance, Ints

TIGHT = 0.8
"""A resource is tight where so much of all nodes' is required at yield 0."""


def tight_resources(instance: Instance) -> Bools:
    """(D,)"""
    return instance.base.sum(axis=0) >= TIGHT * instance.capacity.sum(axis=0)


def tight_part(instance: Instance) -> tuple[Instance, Ints] | None:
    """What is required of tight resources alone, and whose it is; None where that is everything, or nothing."""
    resources = tight_resources(instance)
    tasks = np.flatnonzero((instance.base[:, resources] > 0.0).any(axis=1))
    if tasks.size == 0 or (tasks.size == len(instance.need) and resources.all()):
        return None
    need = instance.base[np.ix_(tasks, np.flatnonzero(resources))]
    part = Instance(
        resources=tuple(r for r, tight in zip(instance.resources, resources, strict=True) if tight),
        nodes=instance.nodes,
        capacity=instance.capacity[:, resources],
        services=tuple(str(t) for t in tasks),
        minimum_yield=np.zeros(tasks.size),
        service_of=np.arange(tasks.size),
        need=need,
        rigid=np.ones(need.shape, dtype=np.bool_),
        move_cost=np.ones(tasks.size),
    )
    return part, tasks


def completed(instance: Instance, tasks: Ints, where: Ints) -> Ints | None:
    """(T,) a placement at yield 0 that has `tasks` at `where`, and all others by first fit; or None."""
    place = np.full(len(instance.need), -1, dtype=np.int64)
    place[tasks] = where
    others = np.flatnonzero(place < 0)
    left = instance.capacity.copy()
    np.subtract.at(left, where, instance.base[tasks])
    if (left < -tolerances.CAPACITY).any():
        return None
    sizes = instance.base[others]
    rest = np.full(others.size, -1, dtype=np.int64)
    order = sort_order(sizes, SUM, False, instance.lexicographic)
    if others.size and not pack_first_fit(sizes, order, left, tolerances.CAPACITY, False, rest):
        return None
    place[others] = rest
    return place
