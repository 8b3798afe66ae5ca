"""Decisions of [Kumar2011]'s policies from the definitions, one explicit interval a job.

A moment is (time, phase): phase 0 of the present is when nodes of jobs past their estimate are still in use, phase 1 of
any time comes after. Who runs holds units over [begin, end) of moments.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, inf, isnan

from dfrs.model import tolerances
from dfrs.model.decisions import Reason, Snapshot
from tests.naive import subset

PROMISED, SAME_S = -1, 1e-6

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
    policy_state = jobs["policy_state"].tolist()
    if not open_nodes:
        return {}, policy_state
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
    _book(snapshot, booked, units, machine, policy_state, started)
    closed = len(snapshot.capacity) // unit - total
    _note(snapshot, booked, running, units, (total, free, closed), policy_state, started)
    queue = [r for r in waiting if r not in booked]
    if skips is None:
        _in_order(snapshot, queue, units, machine, started)
    else:
        _sets(snapshot, queue, units, machine, started, policy_state, skips, lookahead)
    return started, policy_state


def _book(snapshot, booked, units, machine, policy_state, started) -> None:
    jobs, left = snapshot.jobs, list(booked)
    wanted_s = {r: max(jobs["requested_start_s"][r], jobs["submit_s"][r]) for r in booked}
    since = {r: machine.now if wanted_s[r] <= machine.now_s else (wanted_s[r], 1) for r in booked}
    classes = [
        [r for r in booked if policy_state[r] == PROMISED and not jobs["extensions"][r]],
        [r for r in booked if policy_state[r] == PROMISED and jobs["extensions"][r]],
        [r for r in booked if policy_state[r] != PROMISED],
        booked,
    ]
    for stage, members in enumerate(classes):
        for r in members:
            begin = machine.earliest(units(r), since[r], jobs["estimate_s"][r]) if r in left else None
            on_time = begin is not None and wanted_s[r] >= machine.now_s - SAME_S and begin[0] <= since[r][0] + SAME_S
            if begin is None or (stage < 3 and not on_time):
                continue
            left.remove(r)
            machine.hold(units(r), begin, jobs["estimate_s"][r])
            if stage < 3 and policy_state[r] == 0:
                policy_state[r] = PROMISED
            if begin == machine.now:
                late = policy_state[r] > 0 and wanted_s[r] < machine.now_s - SAME_S
                started[r] = "ON_TIME" if isnan(jobs["start_s"][r]) else "FREED"
                if late and isnan(jobs["start_s"][r]):
                    started[r] = Reason(policy_state[r]).name


def _note(snapshot, booked, running, units, cluster, policy_state, started) -> None:
    jobs, (total, free, closed) = snapshot.jobs, cluster
    dedicated = {r for r in range(len(jobs)) if not isnan(jobs["requested_start_s"][r])}
    longer = {q for q in running if jobs["extensions"][q] or jobs["virtual_s"][q] >= jobs["estimate_s"][q] - SAME_S}
    for r in booked:
        if r in started or policy_state[r] > 0 or jobs["requested_start_s"][r] > snapshot.now_s:
            continue
        batch = [q for q in running if q not in dedicated and q not in longer]
        earlier = [q for q in batch if jobs["start_s"][q] <= jobs["submit_s"][r]]
        over = sum(map(units, longer))
        waiting = {q for q in dedicated if q not in running}
        policy_state[r] = (
            Reason.LATE_CLOSED
            if units(r) > total
            else Reason.LATE_LONGER
            if longer and free < units(r) <= free + over
            else Reason.LATE_EARLIER
            if earlier and free < units(r) <= free + over + sum(map(units, batch))
            else Reason.LATE_DEDICATED
            if (waiting | (dedicated & set(running)) - longer) - {r}
            else Reason.LATE_CLOSED
            if closed
            else Reason.LATE_CHANGED
            if jobs["changes"][r]
            else Reason.LATE_LONGER
        )


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


def _sets(snapshot, queue: Sequence[int], units, machine, started, policy_state, skips: int, lookahead: int) -> None:
    estimate_s = snapshot.jobs["estimate_s"]
    while rest := [r for r in queue if r not in started]:
        head = rest[0]
        can = machine.can(units(head), machine.now, estimate_s[head])
        if can and policy_state[head] >= skips:
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
            policy_state[head] += 1
