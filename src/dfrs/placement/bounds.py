"""Upper bounds on the minimum yield: LPBOUND ([Stillwell2010] 4.2.3), and a tighter one for unequal nodes.

LPBOUND is also in [Stillwell2010b] section 4.4.
"""

import numpy as np

from dfrs.model import tolerances
from dfrs.model.errors import InfeasibleError
from dfrs.model.instance import Floats, Instance


def lp_bound(instance: Instance) -> float:
    """LPBOUND: the optimum of the relaxed program in closed form, in [0, 1].

    The aggregate of each resource, less all requirements, over the aggregate of what yields scale. Exact for
    equal nodes (every task spread evenly over them); for unequal ones still an upper bound on the relaxation.
    Raises InfeasibleError, naming the resource, where requirements alone pass the aggregate capacity.
    """
    free = instance.capacity.sum(axis=0) - instance.base.sum(axis=0)
    short = free < -tolerances.CAPACITY * len(instance.nodes)
    if short.any():
        d = int(np.argmin(free))
        need, have = instance.base[:, d].sum(), instance.capacity[:, d].sum()
        raise InfeasibleError(
            f"infeasible: the services require {need:.4g} of {instance.resources[d].name}, "
            f"all nodes together have {have:.4g}"
        )
    rate = instance.slope.sum(axis=0)
    limited = rate > 0
    if not limited.any():
        return 1.0
    return float(min(1.0, np.maximum(free[limited], 0.0).__truediv__(rate[limited]).min()))


def single_task_bound(instance: Instance) -> float:
    """The least, over tasks, of the yield a task would have alone on the node that suits it best.

    At most 1, and below it only where a task's full need passes every node. Raises InfeasibleError where a
    task's requirements fit on no node, naming the service and the resource that comes closest to blame.
    """
    bound = 1.0
    kinds, first = np.unique(instance.capacity, axis=0, return_index=True)
    best = np.full(len(instance.need), -1.0)
    for capacity in kinds[np.argsort(first)]:
        np.maximum(best, _alone(instance, capacity), out=best)
    worst = int(best.argmin())
    if best[worst] < 0:
        excess = instance.base[worst] - instance.capacity.max(axis=0)
        resource = instance.resources[int(excess.argmax())].name
        service = instance.services[int(instance.service_of[worst])]
        raise InfeasibleError(
            f"infeasible: no node has room for the requirements of a task of {service}; the scarcest is {resource}"
        )
    return min(bound, float(best[worst]))


def _alone(instance: Instance, capacity: Floats) -> Floats:
    free = capacity - instance.base
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(instance.slope > 0, np.maximum(free, 0.0) / instance.slope, np.inf)
    alone = np.minimum(1.0, ratio.min(axis=1))
    return np.where((free < -tolerances.CAPACITY).any(axis=1), -1.0, alone)


def upper_bound(instance: Instance) -> float:
    """The tightest of the bounds here: what `bound` and `gap` in an outcome refer to."""
    return min(lp_bound(instance), single_task_bound(instance))
