"""Depth-first branch and bound for small instances: the best minimum yield, with proof."""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

import numpy as np

from dfrs.kernels.jit import Bools, Floats, Ints, kernel
from dfrs.kernels.rules import RuleArrays, broken, may_place, record
from dfrs.model.rule_arrays import frozen


def which_stay_broken(rules: RuleArrays) -> RuleArrays:
    """The rules that, once broken by some of the tasks, more tasks cannot mend: not those of hosts."""
    nobody = np.full_like(rules.host, -1)
    return frozen(rules._replace(host=nobody, guest=nobody))


@kernel
def branch_and_bound(
    base: Floats,
    slope: Floats,
    capacity: Floats,
    tolerance: float,
    order: Ints,
    twin: Bools,
    kind: Ints,
    partial: RuleArrays,
    rules: RuleArrays,
    limits: tuple[float, float, int],
    best: Ints,
) -> tuple[float, bool, int]:
    """Search all placements of the tasks in `order` (T,) for a minimum yield above `limits[0]`.

    `limits` = (incumbent, upper, most): stop when `upper` is reached or after `most` trials. `twin` (T,): whether a
    task equals the one before it in `order`, so that their nodes may be taken in index order; `kind` (N,): equal
    numbers mark interchangeable nodes, of which only the first empty one is tried. What breaks the rules `partial` is
    not tried: those of `rules` that more tasks cannot mend; a placement must keep all of `rules`. Fills `best` (T,) on
    success. Returns (yield found or -1, whether the search was complete, trials).
    """
    tasks, dims = base.shape
    nodes = capacity.shape[0]
    incumbent, upper, most = limits
    fixed = np.zeros((nodes, dims))
    rate = np.zeros((nodes, dims))
    count = np.zeros(nodes, dtype=np.int64)
    place = np.full(tasks, -1, dtype=np.int64)
    value = np.ones(tasks + 1)
    ruled = rules.level.size > 0 or not rules.allowed.all()
    members = np.zeros(rules.offset[rules.level.size], dtype=np.int64)
    used = np.zeros(rules.level.size, dtype=np.int64)
    found = -1.0
    trials = 0
    depth = 0
    while depth >= 0:
        i = order[depth]
        n = place[i]
        if n >= 0:
            count[n] -= 1
            if ruled:
                record(partial, members, used, i, n, -1)
            for d in range(dims):
                fixed[n, d] -= base[i, d]
                rate[n, d] -= slope[i, d]
        elif depth > 0 and twin[depth]:
            n = place[order[depth - 1]] - 1
        chosen = -1
        for m in range(n + 1, nodes):
            if count[m] == 0:
                repeated = False
                for q in range(m):
                    if count[q] == 0 and kind[q] == kind[m]:
                        repeated = True
                        break
                if repeated:
                    continue
            if ruled and not may_place(partial, members, used, i, m):
                continue
            trials += 1
            reach = value[depth]
            for d in range(dims):
                free = capacity[m, d] - fixed[m, d] - base[i, d]
                speed = rate[m, d] + slope[i, d]
                if free < -tolerance:
                    reach = -1.0
                    break
                if speed > 0.0 and speed * reach > free:
                    reach = max(free, 0.0) / speed
            if reach > incumbent:
                chosen = m
                value[depth + 1] = reach
                break
        if trials > most:
            return found, False, trials
        place[i] = chosen
        if chosen < 0:
            depth -= 1
            continue
        count[chosen] += 1
        if ruled:
            record(partial, members, used, i, -1, chosen)
        for d in range(dims):
            fixed[chosen, d] += base[i, d]
            rate[chosen, d] += slope[i, d]
        depth += 1
        if depth == tasks:
            depth -= 1
            if ruled and broken(rules, place) > 0:
                continue
            found = value[tasks]
            # A strictly better yield is asked for from here on; equal ones are not worth visiting.
            incumbent = found + tolerance
            best[:] = place
            if found >= upper:
                return found, True, trials
    return found, True, trials
