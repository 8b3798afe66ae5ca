"""How fast each job is on each sub-cluster of a farm, relative to the one that suits it best ([Atif2011] 5.5).

Layout as in `dfrs.kernels.loads`. `speed` (R, C, 2) holds relative speeds on each sub-cluster, spread over machines
[..., 0] and on one machine [..., 1]; a *site* is the sub-cluster and the machine of each node, the capacity (N, 2), and
which nodes are open.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

import numpy as np

from dfrs.kernels.jit import Bools, Floats, Ints, kernel

Site = tuple[Ints, Ints, Floats, Bools]
"""(cluster (N,), machine (N,), capacity (N, 2), open (N,))."""

SLOWEST = 1e-6
"""No relative speed is less."""
ALIKE = 1e-12
"""Speeds that differ by less are equal."""


@kernel
def relative_speeds(known: Floats, speed: Floats) -> None:
    """Relative speeds (R, C, 2), 1 for the best, of predicted ones in any unit; into `speed`.

    What is not known (NaN) is as good as the best. Spread is never taken for faster than together, so that tasks that
    happen to come together keep what they were promised.
    """
    rows, clusters, _ = known.shape
    for r in range(rows):
        best = 0.0
        for c in range(clusters):
            spread, together = known[r, c, 0], known[r, c, 1]
            speed[r, c, 0] = min(spread, together) if np.isfinite(spread) and np.isfinite(together) else spread
            speed[r, c, 1] = together
            for k in range(2):
                if np.isfinite(speed[r, c, k]):
                    best = max(best, speed[r, c, k])
        for c in range(clusters):
            for k in range(2):
                value = speed[r, c, k]
                speed[r, c, k] = 1.0 if not np.isfinite(value) or best <= 0.0 else max(value / best, SLOWEST)


@kernel
def speed_at(speed: Floats, r: int, slots: Ints, begin: int, end: int, site: Site) -> float:
    """Relative speed of row `r` with its tasks on slots[begin:end]: the slowest part's if it is in several."""
    cluster, machine, _, _ = site
    together = True
    for s in range(begin, end):
        together &= machine[slots[s]] == machine[slots[begin]]
    if together:
        return speed[r, cluster[slots[begin]], 1]
    value = np.inf
    for s in range(begin, end):
        value = min(value, speed[r, cluster[slots[s]], 0])
    return value


@kernel
def speeds_at(first: Ints, slots: Ints, speed: Floats, site: Site, out: Floats) -> None:
    """The same for all rows, into `out` (R,); 1 for rows without nodes."""
    for r in range(out.size):
        placed = slots[first[r]] >= 0
        out[r] = speed_at(speed, r, slots, first[r], first[r + 1], site) if placed else 1.0


@kernel
def best_reachable(tasks: Ints, memory: Floats, speed: Floats, site: Site, tolerance: float, best: Floats) -> None:
    """The best relative speed of each row where open nodes have memory for all of its tasks, into `best` (R,).

    Nobody else is on them. 0 where there is no such sub-cluster: then the row can be packed nowhere, at no level.
    """
    cluster, machine, capacity, open_nodes = site
    on = np.empty(machine.max() + 1, dtype=np.int64)
    for r in range(best.size):
        best[r] = 0.0
        for c in range(speed.shape[1]):
            on[:] = 0
            room = 0
            for n in range(cluster.size):
                free = capacity[n, 1] + tolerance
                if cluster[n] == c and open_nodes[n] and capacity[n, 0] > 0.0 and free >= memory[r]:
                    here = tasks[r] if free >= memory[r] * tasks[r] else int(free / memory[r])
                    room += here
                    on[machine[n]] += here
            if on.max() >= tasks[r]:
                best[r] = max(best[r], speed[r, c, 1])
            elif room >= tasks[r]:
                best[r] = max(best[r], speed[r, c, 0])
