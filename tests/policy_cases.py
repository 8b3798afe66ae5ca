"""Snapshots for DFRS policies and their kernels, built from a source of choices as in `tests.cases`."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from dfrs.model.decisions import PAUSED, RUNNING, WAITING, Cause, Snapshot
from dfrs.model.instance import Bools, Floats, Ints
from tests import strategies
from tests.cases import Source
from tests.frozen import frozen
from tests.online_cases import job_table, random_nodes

EXACT = (4, 8)
"""Grains at which sums of sizes are exact, so that ties are ties."""
VIRTUAL_S = (0.0, 0.0, 5.0, 60.0, 300.0, 599.0, 601.0, 4000.0)


@dataclass(frozen=True, kw_only=True)
class PolicyCase:
    """A present state. The row `subject` waits; whoever places it may assume that it was just submitted."""

    now_s: float
    jobs: Any
    first: Ints
    before: Ints
    capacity: Floats
    open: Bools
    subject: int
    moved: float = 0.0

    def __post_init__(self) -> None:
        for array in (self.jobs, self.first, self.before, self.capacity, self.open):
            array.setflags(write=False)

    @property
    def rows(self) -> int:
        return len(self.jobs)

    def slots(self, row: int) -> slice:
        return slice(int(self.first[row]), int(self.first[row + 1]))

    def where(self, at: Ints | None = None) -> dict[int, list[int]]:
        """Sorted nodes of each row that has some."""
        slots = self.before if at is None else at
        found = {r: sorted(slots[self.slots(r)].tolist()) for r in range(self.rows)}
        return {r: nodes for r, nodes in found.items() if nodes[0] >= 0}

    def snapshot(self, cause: Cause = Cause.WAKE) -> Snapshot:
        subject = self.subject if cause is Cause.SUBMISSION else -1
        arrays = (self.capacity, self.open, self.jobs, self.first, self.before)
        return frozen(Snapshot(self.now_s, cause, subject, *arrays, self.moved))


def present_yields(jobs: Any, first: Ints, capacity: Floats, at: Ints) -> Floats:
    """The largest equal yield for all that are on nodes."""
    load = np.zeros(len(capacity))
    placed = [r for r in range(len(jobs)) if at[first[r]] >= 0]
    for r in placed:
        np.add.at(load, at[first[r] : first[r + 1]], jobs["need"][r])
    busy = load > 0
    fair = min([1.0, *(capacity[busy, 0] / load[busy]).tolist()])
    return np.array([fair if r in placed else 0.0 for r in range(len(jobs))])


def policy_case(source: Source, *, grains: tuple[int, ...] = EXACT, crowded: bool = False) -> PolicyCase:
    """With ties, and nodes of several sizes, some of them closed. With `crowded` many run where one more wants in."""
    grain = source.pick(grains)
    nodes, count = source.integer(1, 6), source.integer(1, 8)
    if crowded:
        nodes, count = source.integer(2, 4), source.integer(6, 12)
    now_s = 5_000.0
    capacity = np.ones((nodes, 2))
    is_open = np.ones(nodes, np.bool_)
    if source.integer(0, 2) == 0:
        sizes = [(source.pick((0.0, 0.5, 1.0, 1.0, 1.0, 2.0)), source.pick((0.5, 1.0, 2.0))) for _ in range(nodes)]
        capacity = np.array(sizes)
    if source.integer(0, 2) == 0:
        is_open = np.array([source.integer(0, 3) > 0 for _ in range(nodes)])
    jobs, first = job_table(source, count, now_s, grain)
    largest = source.pick((grain // 2, grain))
    subject = source.integer(0, count - 1)
    for r in range(count):
        jobs["memory"][r] = source.integer(0, largest) / grain
        if crowded:
            jobs["memory"][r] = source.integer(1, grain // 2 if r != subject else grain) / grain
        jobs["submit_s"][r] = now_s - source.pick((0.0, 30.0, 200.0, 700.0, 4500.0))
        jobs["weight"][r] = source.pick((1.0, 1.0, 1.0, 2.0, 0.5))
    jobs["submit_s"].sort()
    order = source.permutation(count).tolist()
    order.remove(subject)
    if not crowded:
        order = order[: source.pick((count, count // 2, count // 4))]
    before = random_nodes(source, jobs, first, capacity, order)
    for r in range(count):
        if before[first[r]] < 0 and r != subject and source.integer(0, 1):
            jobs["state"][r] = PAUSED
        elif before[first[r]] >= 0:
            jobs["state"][r] = RUNNING
        else:
            jobs["state"][r] = WAITING
        flow = now_s - jobs["submit_s"][r]
        jobs["virtual_s"][r] = 0.0 if jobs["state"][r] == WAITING else min(flow, source.pick(VIRTUAL_S))
    jobs["yield_"] = present_yields(jobs, first, capacity, before)
    return PolicyCase(
        now_s=now_s,
        jobs=jobs,
        first=first,
        before=before,
        capacity=capacity,
        open=is_open,
        subject=subject,
        moved=source.pick((0.0, 0.0, 0.5, 3.0)),
    )


def crowded_case(source: Source) -> PolicyCase:
    return policy_case(source, crowded=True)


def placed_case(source: Source) -> PolicyCase:
    """For shares: more CPU is wanted than there is, and sizes need not be exact."""
    case = policy_case(source, grains=(4, 8, 10))
    jobs = case.jobs.copy()
    jobs["memory"] /= 4
    before = random_nodes(source, jobs, case.first, case.capacity, source.permutation(case.rows).tolist())
    jobs["state"] = np.where(before[case.first[:-1]] >= 0, RUNNING, WAITING)
    jobs["yield_"] = present_yields(jobs, case.first, case.capacity, before)
    return replace(case, jobs=jobs, before=before)


def drawn(build: Any) -> st.SearchStrategy[PolicyCase]:
    @st.composite
    def case(draw: st.DrawFn) -> PolicyCase:
        return build(strategies.Drawn(draw))

    return case()


def loads(case: PolicyCase, at: Ints, yields: Floats) -> Floats:
    """(N,) CPU given out."""
    used = np.zeros(len(case.capacity))
    for r, nodes in case.where(at).items():
        np.add.at(used, nodes, case.jobs["need"][r] * yields[r])
    return used
