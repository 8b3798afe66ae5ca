"""An upper bound on the minimum yield of the jobs of a snapshot: the closed form of LPBOUND, and each job alone.

As `yields.upper_bound`, on the columns of a snapshot: cheap enough to be asked at every decision.
"""

import numpy as np

from dfrs.model import tolerances
from dfrs.model.decisions import CPU, MEMORY, Snapshot


def snapshot_bound(snapshot: Snapshot) -> float:
    """No placement of all jobs present gives each of them more than this yield, in [0, 1]; 1 without jobs.

    0 where their memory does not fit on all nodes together, or a task's on none: then some job has to wait. A node
    that is closed counts while tasks are on it, so the bound also holds for nodes that are being emptied.
    """
    jobs = snapshot.jobs
    if not len(jobs):
        return 1.0
    counts = snapshot.open.copy()
    counts[snapshot.task_nodes[snapshot.task_nodes >= 0]] = True
    capacity = snapshot.capacity[counts]
    if not len(capacity):
        return 0.0
    tasks, need, memory = jobs["tasks"], jobs["need"], jobs["memory"]
    slack = tolerances.CAPACITY * len(capacity)
    if float(tasks @ memory) > float(capacity[:, MEMORY].sum()) + slack:
        return 0.0
    # The node with the most CPU of those whose memory suffices: over nodes by falling memory, the best CPU so far.
    order = np.argsort(-capacity[:, MEMORY], kind="stable")
    best = np.concatenate(([0.0], np.maximum.accumulate(capacity[order, CPU])))
    enough = np.searchsorted(-capacity[order, MEMORY], -(memory - tolerances.CAPACITY), side="right")
    alone = best[enough] / np.maximum(need, tolerances.CAPACITY)
    together = float(capacity[:, CPU].sum()) / max(float(tasks @ need), tolerances.CAPACITY)
    return float(min(1.0, together, alone.min()))
