"""Whom a stretch serves: a greedy schedule of all jobs, and around those whom it leaves unserved a maximum flow.

An amount for each job in each interval of its window would be hundreds of millions for some years of a cluster. The
greedy schedule is made without keeping them. Whom it does not serve is served, or a cut is found that shows why not,
in a part of the time: what is moved within that is a flow of the whole, and a cut in which no job has more of its
window outside is one of the whole. Where one has, the part becomes longer.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dfrs.kernels import stretch as kernels
from dfrs.model.instance import Bools, Floats, Ints

SERVED = 1e-12
"""A job that lacks no more than this part of its work is served."""
AROUND = 4096
"""Intervals before and after a job's window that are looked at first."""
FEW = 2_000_000
"""Amounts: where there are no more, all of the time is one part."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Jobs in the order of submission, as columns (J,); see `dfrs.kernels.stretch`."""

    submit: Floats
    scale: Floats
    run: Floats
    rate: Floats
    capacity: float

    @property
    def work(self) -> Floats:
        """(J,) reference nodes times seconds; new on each access."""
        return self.run * self.rate


class Part:
    """A flow in the intervals from `low` to `high` of a timeline: at first what the greedy schedule does there."""

    def __init__(self, timeline: "Timeline", low: int, high: int) -> None:
        network = timeline.network
        self.low, self.high = low, high
        self.served: list[int] = []
        """Jobs that the flow was changed for."""
        inside = np.flatnonzero((network.begin <= high) & (network.end >= low))
        begin, end = np.maximum(network.begin[inside], low), np.minimum(network.end[inside], high)
        rows = np.concatenate([[0], np.cumsum(end - begin)])
        edge = np.zeros(len(network.rate), np.int64)
        edge[inside] = rows[:-1] - begin
        quiet = np.flatnonzero(timeline.flow.waiting[:low] == 0)
        start = int(quiet[-1]) + 1 if len(quiet) else 0
        flow = _nothing_done(timeline.problem, len(network.times) - 1, int(rows[-1]))
        kernels.serve(network._replace(edge=edge), timeline.deadline, flow, start, high, low)
        self.jobs: Ints = inside
        """Those with a part of their windows here, increasing."""
        self.cut_off: Bools = (network.begin[inside] < low) | (network.end[inside] > high)
        """Of each, whether it has more of its window elsewhere."""
        self.network = kernels.Network(
            network.run[inside],
            network.rate[inside],
            network.times[low : high + 1],
            begin - low,
            end - low,
            edge[inside] + low,
            network.capacity,
        )
        self.flow = kernels.Flow(flow.amount, flow.spare[low:high], flow.missing[inside], flow.waiting[low:high])

    @cached_property
    def _search(self) -> kernels.StretchSearch:
        network, intervals = self.network, self.high - self.low
        first, present = kernels.jobs_by_interval(network.begin, network.end, intervals)
        level, cursor, queue, path = (np.zeros(len(self.jobs) + intervals, np.int64) for _ in range(4))
        return kernels.StretchSearch(first, present, level, cursor, queue, path)

    def serve(self, job: int) -> tuple[Ints, float]:
        """Places in `jobs` of those that leave no room for the rest of its work, none if it is served; and the rest."""
        place = int(np.searchsorted(self.jobs, job))
        enough = SERVED * float(self.network.run[place] * self.network.rate[place])
        reached = self._search.queue[: kernels.augment(self.network, self.flow, self._search, place, enough)]
        return np.sort(reached[reached < len(self.jobs)]), float(self.flow.missing[place])


class Timeline:
    """All jobs at one stretch: releases and deadlines cut time into T intervals."""

    def __init__(self, problem: Problem, stretch: float) -> None:
        self.problem = problem
        self.deadline: Floats = problem.submit + stretch * problem.scale
        """(J,)"""
        times = np.unique(np.concatenate([problem.submit, self.deadline]))
        begin, end = np.searchsorted(times, problem.submit), np.searchsorted(times, self.deadline)
        self.network = kernels.Network(
            problem.run, problem.rate, times, begin, end, np.zeros(len(begin), np.int64), problem.capacity
        )
        """Without rows of amounts."""
        self._intervals = len(times) - 1
        self._parts: list[Part] = []
        self.flow = _nothing_done(problem, self._intervals, 0)
        """The greedy schedule without amounts; of those who were tried since, what they lack is as it came out."""
        if int((end - begin).sum()) <= FEW:
            self._parts.append(Part(self, 0, self._intervals))
            self.flow = self._parts[0].flow
        else:
            kernels.serve(self.network, self.deadline, self.flow, 0, self._intervals, self._intervals)
        lacking = self.flow.missing / problem.work
        jobs = np.flatnonzero(lacking > SERVED)
        self.unserved: list[int] = jobs[np.argsort(-lacking[jobs], kind="stable")].tolist()
        """Jobs that the greedy schedule leaves unserved, those that lack most first."""

    def cut(self, job: int) -> Ints:
        """The jobs, increasing, that leave no room for the rest of its work; none if it can be served, and then is."""
        begin, end = int(self.network.begin[job]), int(self.network.end[job])
        low, high = begin - AROUND, end + AROUND
        while True:
            part = self._part(max(low, 0), min(high, self._intervals))
            members, lacks = part.serve(job)
            if not part.cut_off[members].any():
                break
            among = part.jobs[members]
            length = part.high - part.low
            low = min(part.low - length, int(self.network.begin[among].min()))
            high = max(part.high + length, int(self.network.end[among].max()))
        self.flow.missing[job] = lacks
        if not len(members):
            part.served.append(job)
        return part.jobs[members]

    def whole(self) -> Part:
        """All of the time in one part, in which all those are served who can be."""
        part = self._part(0, self._intervals)
        for job in self.unserved:
            part.serve(job)
        return part

    def _part(self, low: int, high: int) -> Part:
        """One that has these intervals, and all that was changed in those that it meets."""
        served: list[int] = []
        while touched := [part for part in self._parts if part.low < high and low < part.high]:
            if len(touched) == 1 and touched[0].low <= low and high <= touched[0].high and not served:
                return touched[0]
            self._parts = [part for part in self._parts if part not in touched]
            served += [job for part in touched for job in part.served]
            low, high = min(low, *(part.low for part in touched)), max(high, *(part.high for part in touched))
        made = Part(self, low, high)
        for job in served:
            made.serve(job)
        made.served = served
        self._parts.append(made)
        return made


def _nothing_done(problem: Problem, intervals: int, amounts: int) -> kernels.Flow:
    return kernels.Flow(np.zeros(amounts), np.zeros(intervals), problem.work, np.zeros(intervals, np.int64))
