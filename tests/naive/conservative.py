"""Conservative backfilling in the plain way: how many nodes are free in each second, and who has reserved them.

Times are whole seconds; all jobs are known by how many nodes they take, how long they run and what was estimated, which
is at least that. At one instant jobs are submitted, then others end, each followed by a pass, then reserved jobs start.
"""

import numpy as np


def schedule(submit_s, nodes_of, run_s, estimate_s, nodes):
    """When each job starts, and when it was to start when it had just been submitted."""
    free = np.full(int(max(submit_s) + sum(estimate_s)) + 1, nodes)
    begin_s: dict[int, int] = {}
    promised_s: dict[int, int] = {}
    waiting: list[int] = []
    running: list[int] = []

    def reserve(job, now_s):
        begin = next(t for t in range(now_s, len(free)) if (free[t : t + estimate_s[job]] >= nodes_of[job]).all())
        begin_s[job] = begin
        free[begin : begin + estimate_s[job]] -= nodes_of[job]

    def give_back(job, from_s):
        free[from_s : begin_s[job] + estimate_s[job]] += nodes_of[job]

    for now_s in range(len(free)):
        for job in np.flatnonzero(submit_s == now_s).tolist():
            reserve(job, now_s)
            promised_s[job] = begin_s[job]
            waiting.append(job)
        for job in sorted(running):
            if begin_s[job] + run_s[job] == now_s:
                running.remove(job)
                give_back(job, now_s)
                for other in waiting:
                    give_back(other, begin_s[other])
                    reserve(other, now_s)
        for job in [job for job in waiting if begin_s[job] == now_s]:
            waiting.remove(job)
            running.append(job)
    return begin_s, promised_s
