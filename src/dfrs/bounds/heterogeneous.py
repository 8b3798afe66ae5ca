"""An upper bound on the minimum effective yield of the jobs of a snapshot.

That of [Stillwell2010] section 4.2.1, on the partitions of [Atif2011].

At a level a job may be in a partition where its relative speed is at least the level. If jobs could be divided
between partitions, and a partition's nodes were one, that is a linear program without an objective; the bound is
the highest level at which it has a solution, at the width of the search.
"""

import numpy as np
from scipy.optimize import linprog

from dfrs.model import tolerances
from dfrs.model.decisions import CPU, MEMORY, Snapshot
from dfrs.model.hardware import COLOCATED, SPREAD, HardwareView
from dfrs.model.instance import Floats

WIDTH = 1e-3


def effective_yield_bound(snapshot: Snapshot, width: float = WIDTH) -> float:
    """No placement of all jobs, each in one partition, gives each a larger effective yield; in [0, 1].

    1 without jobs, 0 where some job has to wait. An effective yield is the yield times the predicted speed over the
    best one; what is not predicted counts as the best.
    """
    view = snapshot.hardware
    if not len(snapshot.jobs):
        return 1.0
    best = _best_speeds(snapshot, view)
    high = float(best.max(axis=1).min())
    if high <= 0.0 or not _possible(snapshot, view, best, 0.0):
        return 0.0
    low = 0.0
    if _possible(snapshot, view, best, high):
        return high
    while high - low > width:
        middle = 0.5 * (low + high)
        if _possible(snapshot, view, best, middle):
            low = middle
        else:
            high = middle
    return high


def _counted(snapshot: Snapshot) -> Floats:
    """(N, 2) capacity of the nodes that are open or in use, 0 of the others."""
    counts = snapshot.open.copy()
    counts[snapshot.task_nodes[snapshot.task_nodes >= 0]] = True
    return np.where(counts[:, None], snapshot.capacity, 0.0)


def _best_speeds(snapshot: Snapshot, view: HardwareView) -> Floats:
    """(R, C) relative speed of each job in each partition at its best; 0 where no node has memory for a task."""
    # As the policy has it: spread is at most as fast as together, what is not known as fast as the best.
    together = view.speed[..., COLOCATED]
    spread = np.where(np.isfinite(together), np.minimum(view.speed[..., SPREAD], together), view.speed[..., SPREAD])
    both = np.stack([spread, together], axis=-1)
    fastest = np.nan_to_num(both, nan=0.0).max(axis=(1, 2))[:, None, None]
    known = np.isfinite(both) & (fastest > 0.0)
    speed = np.where(known, both / np.where(fastest > 0.0, fastest, 1.0), 1.0).max(axis=2)
    capacity = _counted(snapshot)
    for c in range(view.partitions):
        here = (view.partition == c) & (capacity[:, CPU] > 0.0)
        roomiest = capacity[here, MEMORY].max(initial=-np.inf)
        speed[snapshot.jobs["memory"] > roomiest + tolerances.CAPACITY, c] = 0.0
    return speed


def _possible(snapshot: Snapshot, view: HardwareView, best: Floats, level: float) -> bool:
    """Whether jobs can be divided between partitions so that all have `level`."""
    jobs, capacity, partitions = snapshot.jobs, _counted(snapshot), view.partitions
    rows = len(jobs)
    allowed = (best > 0.0) & (best >= level)
    if not allowed.any(axis=1).all():
        return False
    cpu = (jobs["tasks"] * jobs["need"])[:, None] * level / np.where(allowed, best, 1.0)
    memory = np.repeat((jobs["tasks"] * jobs["memory"])[:, None], partitions, axis=1)
    totals = np.array([capacity[view.partition == c].sum(axis=0) for c in range(partitions)])
    nodes = np.array([(view.partition == c).sum() for c in range(partitions)])
    table = np.zeros((2 * partitions, rows * partitions))
    for c in range(partitions):
        table[c, c::partitions] = cpu[:, c]
        table[partitions + c, c::partitions] = memory[:, c]
    limit = np.concatenate([totals[:, CPU], totals[:, MEMORY]]) + np.tile(nodes, 2) * tolerances.CAPACITY
    once = np.kron(np.eye(rows), np.ones(partitions))
    bounds = np.column_stack([np.zeros(rows * partitions), allowed.reshape(-1).astype(np.float64)])
    found = linprog(np.zeros(rows * partitions), table, limit, once, np.ones(rows), bounds, method="highs")
    return bool(found.status == 0)
