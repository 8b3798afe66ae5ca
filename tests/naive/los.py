"""Decisions of 002's policies from the definitions, one explicit interval a job.

A moment is (time, phase): phase 0 of the present is when nodes of jobs past their estimate are still in use, phase 1 of
any time comes after. Who runs holds units over [begin, end) of moments.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, inf, isnan

from dfrs.model import tolerances
from dfrs.model.decisions import Reason, Snapshot
from tests.naive import subset

Moment = tuple[float, int]


@dataclass
class Machine:
    total: int
    now_s: float
    held: list[tuple[Moment, Moment, int]] = field(default_factory=list)
    running: int = 0
    """So many of the held are running jobs; in small units these may want more than there is."""

    @property
    def now(self) -> Moment:
        return (self.now_s, 0)

    def free(self, at: Moment) -> int:
        held = [units if begin <= at < end else 0 for begin, end, units in self.held]
        return max(0, self.total - sum(held[: self.running])) - sum(held[self.running :])

    def moments(self, since: Moment) -> list[Moment]:
        edges = {m for begin, end, _ in self.held for m in (begin, end)}
        return sorted({since} | {m for m in edges if m > since})

    def can(self, units: int, begin: Moment, length_s: float) -> bool:
        end = (begin[0] + length_s, 1)
        return all(self.free(m) >= units for m in self.moments(begin) if m < end)

    def earliest(self, units: int, since: Moment, length_s: float) -> Moment | None:
        return next((m for m in self.moments(since) if self.can(units, m, length_s)), None)

    def hold(self, units: int, begin: Moment, length_s: float) -> None:
        self.held.append((begin, (begin[0] + length_s, 1), units))


def plan(
    snapshot: Snapshot, *, skips: int | None, lookahead: int = 10**9, unit: int = 1, dedicated: bool = True
) -> tuple[dict[int, str], list[int]]:
    """Reasons of the rows that start, and what is noted of each row."""
    jobs, slots = snapshot.jobs, snapshot.task_nodes.tolist()
    nodes = [slots[a:b] for a, b in zip(snapshot.first[:-1], snapshot.first[1:], strict=True)]
    open_nodes = [n for n in range(len(snapshot.capacity)) if snapshot.open[n]]
    memo = jobs["memo"].tolist()
    if not open_nodes:
        return {}, memo
    size = snapshot.capacity[open_nodes[0]]
    total = max(len(open_nodes) // unit, 1)

    def units(r: int) -> int:
        job = jobs[r]
        per = (size[0] + tolerances.CAPACITY) / job["need"]
        if job["memory"]:
            per = min(per, (size[1] + tolerances.CAPACITY) / job["memory"])
        own = ceil(job["tasks"] / int(min(per, job["tasks"]))) if per >= 1 else inf
        return min(ceil(own / unit), total) if own <= len(open_nodes) else total + 1

    machine = Machine(total, snapshot.now_s)
    running = [r for r in range(len(jobs)) if nodes[r][0] >= 0]
    left = {r: max(0.0, jobs["estimate_s"][r] - jobs["virtual_s"][r]) for r in running}
    for r in running:
        own = {n for n in nodes[r] if snapshot.open[n]}
        last = {n for n in own if r == min((q for q in running if n in nodes[q]), key=lambda q: (-left[q], q))}
        machine.hold(min(ceil(len(last) / unit), total), machine.now, left[r])
    machine.running = len(running)
    free = machine.free(machine.now)
    waiting = [r for r in range(len(jobs)) if nodes[r][0] < 0]
    booked = [r for r in waiting if dedicated and not isnan(jobs["requested_start_s"][r])]
    started: dict[int, str] = {}
    _book(snapshot, booked, units, machine, memo, started)
    _note(snapshot, booked, running, units, total, free, memo, started)
    queue = [r for r in waiting if r not in booked]
    if skips is None:
        _in_order(snapshot, queue, units, machine, started)
    else:
        _sets(snapshot, queue, units, machine, started, memo, skips, lookahead)
    return started, memo


def _book(snapshot, booked, units, machine, memo, started) -> None:
    served = set()
    for on_time in (True, False):
        for r in booked:
            wanted_s, length_s = snapshot.jobs["requested_start_s"][r], snapshot.jobs["estimate_s"][r]
            if r in served or (on_time and wanted_s < machine.now_s):
                continue
            since = machine.now if wanted_s <= machine.now_s else (wanted_s, 1)
            begin = machine.earliest(units(r), since, length_s)
            if begin is None or (on_time and begin != since):
                continue
            served.add(r)
            machine.hold(units(r), begin, length_s)
            if begin == machine.now:
                started[r] = Reason(memo[r] or Reason.ON_TIME).name


def _note(snapshot, booked, running, units, total, free, memo, started) -> None:
    jobs = snapshot.jobs
    for r in booked:
        if r in started or memo[r] or jobs["requested_start_s"][r] > snapshot.now_s:
            continue
        batch = [q for q in running if isnan(jobs["requested_start_s"][q])]
        earlier = [q for q in batch if jobs["start_s"][q] <= jobs["submit_s"][r]]
        longer = [
            q
            for q in batch
            if q not in earlier and (jobs["changes"][q] > 0 or jobs["virtual_s"][q] >= jobs["estimate_s"][q])
        ]
        if units(r) > total:
            memo[r] = Reason.LATE_CLOSED
        elif longer and units(r) <= free + sum(map(units, longer)):
            memo[r] = Reason.LATE_LONGER
        elif earlier and units(r) <= free + sum(map(units, batch)):
            memo[r] = Reason.LATE_EARLIER
        else:
            memo[r] = Reason.LATE_DEDICATED


def _in_order(snapshot, queue, units, machine, started) -> None:
    reserved = False
    for r in queue:
        length_s = snapshot.jobs["estimate_s"][r]
        if machine.can(units(r), machine.now, length_s):
            machine.hold(units(r), machine.now, length_s)
            started[r] = "BACKFILLED" if reserved else "QUEUE_HEAD"
        elif not reserved:
            reserved = True
            begin = machine.earliest(units(r), machine.now, length_s)
            if begin is not None:
                machine.hold(units(r), begin, length_s)


def _sets(snapshot, queue: Sequence[int], units, machine, started, memo, skips: int, lookahead: int) -> None:
    estimate_s = snapshot.jobs["estimate_s"]
    while rest := [r for r in queue if r not in started]:
        head = rest[0]
        can = machine.can(units(head), machine.now, estimate_s[head])
        if can and memo[head] >= skips:
            machine.hold(units(head), machine.now, estimate_s[head])
            started[head] = "QUEUE_HEAD"
            continue
        if not can:
            begin = machine.earliest(units(head), machine.now, estimate_s[head])
            if begin is not None:
                machine.hold(units(head), begin, estimate_s[head])
        candidates = [r for r in rest[:lookahead] if can or r != head]
        times = machine.moments(machine.now)
        crossing = [sum(m < (machine.now_s + estimate_s[r], 1) for m in times[1:]) for r in candidates]
        room = [machine.free(m) for m in times]
        chosen = subset.best([units(r) for r in candidates], crossing, room)
        for r, taken in zip(candidates, chosen, strict=True):
            if taken:
                machine.hold(units(r), machine.now, estimate_s[r])
                started[r] = "QUEUE_HEAD" if r == head else "FILLED"
        if not can:
            return
        if head not in started:
            memo[head] += 1
