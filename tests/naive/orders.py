"""EASY as simulators of batch systems have it: a heap of events, one pass after each, a profile of estimates.

At one instant submissions come before completions. Two ties are left, on which such simulators differ: whether
simultaneous completions are in the order of starts or of submissions, and whether processors of a job whose estimate
ends now are free, although its completion is still in the heap.
"""

import heapq
from collections.abc import Sequence

SUBMISSION, COMPLETION = 0, 1

Job = tuple[float, int, float, float]
"""Submission, processors, run time, and an estimate that is no less."""


def easy_starts(jobs: Sequence[Job], processors: int, *, by_start: bool, by_estimate: bool) -> list[float]:
    """When each job starts."""
    heap = [(job[0], SUBMISSION, k, k) for k, job in enumerate(jobs)]
    heapq.heapify(heap)
    running: dict[int, float] = {}
    waiting: list[int] = []
    starts: dict[int, float] = {}
    while heap:
        now_s, kind, _, k = heapq.heappop(heap)
        if kind == SUBMISSION:
            waiting.append(k)
        else:
            del running[k]
        # A job that is expected to end now, but has not, is expected to end at any moment.
        held = {j: (end_s, 0) for j, end_s in running.items()}
        if by_estimate:
            held = {j: point for j, point in held.items() if point > (now_s, 0)}
        else:
            held = {j: max(point, (now_s, 1)) for j, point in held.items()}
        for j in _pass(jobs, processors, held, waiting, now_s):
            _, _, run_s, estimate_s = jobs[j]
            waiting.remove(j)
            running[j] = now_s + estimate_s
            starts[j] = now_s
            heapq.heappush(heap, (now_s + run_s, COMPLETION, len(starts) if by_start else j, j))
    return [starts[k] for k in range(len(jobs))]


def _pass(
    jobs: Sequence[Job], processors: int, held: dict[int, tuple[float, int]], waiting: Sequence[int], now_s: float
) -> list[int]:
    """Which jobs start now: those first in the queue that fit, then those that do not delay the first that does not."""
    held, queue, started = dict(held), list(waiting), []

    def free(point: tuple[float, int]) -> int:
        return processors - sum(jobs[j][1] for j, end in held.items() if end > point)

    def start(j: int) -> None:
        held[j] = (now_s + jobs[j][3], 0)
        started.append(j)

    def earliest(j: int) -> tuple[float, int]:
        return next(point for point in sorted([(now_s, 0), *held.values()]) if free(point) >= jobs[j][1])

    while queue and free((now_s, 0)) >= jobs[queue[0]][1]:
        start(queue.pop(0))
    for j in queue[1:]:
        if free((now_s, 0)) >= jobs[j][1]:
            promised = earliest(queue[0])
            start(j)
            if earliest(queue[0]) > promised:
                del held[started.pop()]
    return started
