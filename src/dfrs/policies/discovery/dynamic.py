"""DYNAMIC and DYNAMIC+MIGRATION, discovery as in [Stillwell2010] 7.2.2: phases of discovery, allocation, execution."""

import math
from dataclasses import dataclass

import numpy as np

from dfrs.kernels import average
from dfrs.model.decisions import JOB, RUNNING
from dfrs.model.instance import Floats
from dfrs.model.needs import WEIGHTS, Revision, Tasks, Usage, job_needs, mark_told

DISCOVERY, ALLOCATION, EXECUTION = range(3)
LEAST_WEIGHT = 1.0
"""Of 100: what a task has that another is discovered beside, and the least that any has, unless there are too many."""
LEAST_DISCOVERED = 50.0
"""Of 100: what the task that is discovered has at least."""
SAME = 1e-6
"""Weights on a node that add up to WEIGHTS within this are of this node's present tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dynamic:
    """Phases lie at multiples of their period since time 0, so a restarted controller is in the same one.

    Of a TASK this uses `phase`, the number of the phase it was last seen in (three a period); `chosen`, 1 while it is
    discovered; `used_s` and `seen_s`, CPU seconds and seconds of the phase in which it is.
    """

    name: str
    migrates: bool = False
    discovery_s: float = 60.0
    allocation_s: float = 60.0
    execution_s: float = 60.0
    step_s: float = 10.0
    """How often estimates are adjusted outside discovery; the document does not say."""
    margin: float = 0.01
    """Usage is less, or more, than an estimate from this difference on, of the reference node."""

    def step(self, now_s: float, table: Tasks, usage: Usage, capacity: Floats, /) -> Revision:
        """See the module."""
        new = table.copy()
        number, ends_s = self._phase(now_s)
        before = int(new["phase"].max()) if len(new) else number
        fresh = before != number
        if before >= 0 and before % 3 == DISCOVERY:
            _measure(now_s, new, usage, done=fresh)
        elif before >= 0:
            self._adjust(now_s, new, usage, capacity)
        new["phase"] = number
        if number % 3 == DISCOVERY:
            _discover(new, len(capacity))
            return Revision(table=new, weights=new["weight"].copy(), next_step_s=ends_s)
        _allocate(new, capacity, everywhere=fresh and number % 3 == ALLOCATION)
        needs: dict[int, float] = {}
        if fresh and number % 3 == ALLOCATION:
            told = dict(zip(new["job"].tolist(), new["told"].tolist(), strict=True))
            needs = {job: need for job, need in job_needs(new).items() if need != told[job]}
            mark_told(now_s, new, needs)
        return Revision(
            table=new,
            weights=new["weight"].copy(),
            needs=needs,
            repack=self.migrates and bool(needs),
            next_step_s=min(now_s + self.step_s, ends_s),
        )

    def _phase(self, now_s: float) -> tuple[int, float]:
        """Number of the phase, and when it ends."""
        lengths = (self.discovery_s, self.allocation_s, self.execution_s)
        period = math.floor(now_s / sum(lengths))
        ends_s = period * sum(lengths)
        for k, length_s in enumerate(lengths):
            ends_s += length_s
            if now_s < ends_s:
                return 3 * period + k, ends_s
        return 3 * (period + 1), ends_s + lengths[0]

    def _adjust(self, now_s: float, table: Tasks, usage: Usage, capacity: Floats) -> None:
        """Estimates follow what is used, and the weight of those that use less goes to the others in equal parts."""
        seen = usage["seconds"] > 0
        used = np.divide(usage["used_s"], usage["seconds"], out=np.zeros(len(table)), where=seen)
        free = seen & (table["declared"] == 0)
        less = free & (used < np.minimum(table["estimate"], usage["share"]) - self.margin)
        more = free & (used > table["estimate"] + self.margin)
        table["estimate"] = np.where(less | more, np.minimum(used, table["most"]), table["estimate"])
        table["discovered_s"][less] = now_s
        table["error"][less] = self.margin
        for n in np.unique(table["node"][less]).tolist():
            here = table["node"] == n
            give, take = here & less, here & ~less
            if not take.any():
                continue
            keep = np.clip(WEIGHTS * used[give] / capacity[n], LEAST_WEIGHT, table["weight"][give])
            slack = float((table["weight"][give] - keep).sum())
            table["weight"][give] = keep
            table["weight"][take] += slack / take.sum()


def _measure(now_s: float, table: Tasks, usage: Usage, *, done: bool) -> None:
    """Add up what chosen tasks use; when the phase is `done` the average is the estimate."""
    chosen = table["chosen"] == 1
    table["used_s"][chosen] += usage["used_s"][chosen]
    table["seen_s"][chosen] += usage["seconds"][chosen]
    if not done:
        return
    found = chosen & (table["seen_s"] > 0) & (table["declared"] == 0)
    table["estimate"][found] = np.minimum(table["used_s"][found] / table["seen_s"][found], table["most"][found])
    table["error"][found] = 0.0
    table["discovered_s"][found] = now_s
    table["chosen"] = 0


def _discover(table: Tasks, nodes: int) -> None:
    """On each node the least recently discovered task has all but one hundredth for each other; ties as documented.

    Of more than 51 tasks it has half, and the others share the rest.
    """
    order = np.lexsort((table["rank"], table["job"], table["estimate"], table["discovered_s"]))
    for n in range(nodes):
        here = order[table["node"][order] == n]
        if not len(here):
            continue
        chosen = here[table["chosen"][here] == 1]
        one = chosen[0] if len(chosen) else here[0]
        if not len(chosen):
            table["used_s"][one] = table["seen_s"][one] = 0.0
        table["chosen"][here] = 0
        table["chosen"][one] = 1
        others = len(here) - 1
        least = min(LEAST_WEIGHT, (WEIGHTS - LEAST_DISCOVERED) / max(others, 1))
        table["weight"][here] = least
        table["weight"][one] = WEIGHTS - least * others


def _allocate(table: Tasks, capacity: Floats, *, everywhere: bool) -> None:
    """Weights from the estimates, or only on nodes whose tasks are not those that the weights are of."""
    total = np.bincount(table["node"], weights=table["weight"], minlength=len(capacity))
    stale = (np.abs(total - WEIGHTS) > SAME)[table["node"]]
    stale |= np.isin(table["node"], table["node"][table["weight"] <= 0])
    if everywhere:
        stale[:] = True
    if stale.any():
        table["weight"][stale] = best_weights(table, capacity)[stale]


def best_weights(table: Tasks, capacity: Floats) -> Floats:
    """(T,) weights for the largest minimum yield at the present places, then the best average ([Stillwell2010] 4.4.7).

    What is left on a node when all of its tasks have yield 1 is for all of them alike.
    """
    names, row = np.unique(table["job"], return_inverse=True)
    order = np.argsort(row, kind="stable")
    jobs = np.zeros(len(names), JOB)
    jobs["tasks"] = np.bincount(row, minlength=len(names))
    jobs["state"] = RUNNING
    np.maximum.at(jobs["need"], row, table["estimate"])
    first = np.concatenate([[0], np.cumsum(jobs["tasks"])])
    slots = np.ascontiguousarray(table["node"][order])
    both = np.column_stack([capacity, np.ones(len(capacity))])
    yields, ones = np.empty(len(names)), np.ones(len(names))
    average.average_yields(jobs, first, slots, both, np.zeros(len(names)), ones, ones, yields)
    share = WEIGHTS * (jobs["need"] * yields)[row] / capacity[table["node"]]
    given = np.bincount(table["node"], weights=share, minlength=len(capacity))
    count = np.bincount(table["node"], minlength=len(capacity))
    share += (np.maximum(WEIGHTS - given, 0.0) / np.maximum(count, 1))[table["node"]]
    share = np.maximum(share, LEAST_WEIGHT)
    total = np.bincount(table["node"], weights=share, minlength=len(capacity))
    return share * WEIGHTS / total[table["node"]]
