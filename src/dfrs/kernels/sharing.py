"""What tasks get of nodes that are shared by weights and never idle while there is work to do ([Stillwell2010] 7.2.1).

A node's CPU is offered in proportion to the weights; what a task does not need is offered to the others in the same
way, and so on. Layout: T tasks, each on node `node` (T,), N nodes with `capacity` (N,) of CPU, 1 on the reference node.
"""

import numpy as np

from dfrs.kernels.jit import Bools, Floats, Ints, kernel


@kernel
def guaranteed(node: Ints, weight: Floats, capacity: Floats, share: Floats) -> None:
    """What each task can have whatever the others need, into `share` (T,): capacity * weight / weights on its node."""
    total = np.zeros(capacity.size)
    for t in range(node.size):
        total[node[t]] += weight[t]
    for t in range(node.size):
        share[t] = capacity[node[t]] * weight[t] / total[node[t]] if weight[t] > 0.0 else 0.0


@kernel
def divide(node: Ints, weight: Floats, need: Floats, capacity: Floats, used: Floats) -> None:
    """What each task uses, into `used` (T,): at most its need, in proportion to the weights where that is too much."""
    tasks, nodes = node.size, capacity.size
    room = capacity.copy()
    total = np.zeros(nodes)
    open_ = np.ones(tasks, dtype=np.bool_)
    for t in range(tasks):
        used[t] = 0.0
        if weight[t] > 0.0 and need[t] > 0.0:
            total[node[t]] += weight[t]
        else:
            open_[t] = False
    # Each turn somebody is satisfied, or what is left of every node is given out.
    more = True
    while more:
        more = False
        level = np.zeros(nodes)
        for n in range(nodes):
            if total[n] > 0.0:
                level[n] = max(room[n], 0.0) / total[n]
        for t in range(tasks):
            n = node[t]
            if open_[t] and need[t] <= weight[t] * level[n]:
                used[t] = need[t]
                open_[t] = False
                room[n] -= need[t]
                total[n] -= weight[t]
                more = True
        if not more:
            for t in range(tasks):
                if open_[t]:
                    used[t] = weight[t] * level[node[t]]


@kernel
def run(
    begin: int,
    end: int,
    node: Ints,
    weight: Floats,
    stopped: Bools,
    need: Floats,
    capacity: Floats,
    yields: Floats,
    used_s: Floats,
) -> None:
    """Seconds `begin` to `end` under the same weights: `yields` (S, T) of each second, and CPU seconds `used_s` (T,).

    `need` (S, T) holds in each second. Tasks that are `stopped` (T,) get nothing. The yield of a task that needs
    nothing is 1.
    """
    tasks = node.size
    used = np.empty(tasks)
    now = np.empty(tasks)
    used_s[:] = 0.0
    for s in range(begin, end):
        for t in range(tasks):
            now[t] = 0.0 if stopped[t] else need[s, t]
        divide(node, weight, now, capacity, used)
        for t in range(tasks):
            used_s[t] += used[t]
            yields[s, t] = used[t] / need[s, t] if need[s, t] > 0.0 else 1.0
