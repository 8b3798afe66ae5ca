"""Batch policies written from their definitions: node by node, event by event.

A point of time is (seconds, 0) for the decision itself and (seconds, 1) for anything after what is due then has ended:
a job that should have ended by now holds its nodes from (now, 0) until (now, 1).
"""

import math
from dataclasses import dataclass

import numpy as np

from dfrs.model.decisions import Cause, Snapshot

Point = tuple[float, int]
Nodes = list[int]


@dataclass(frozen=True)
class Job:
    row: int
    tasks: int
    need: float
    memory: float
    estimate_s: float
    nodes: Nodes
    left_s: float


@dataclass
class Booking:
    """`amount` nodes of each kind from `begin` until `end`."""

    begin: Point
    end: Point
    amount: list[int]


class Cluster:
    def __init__(self, snapshot: Snapshot) -> None:
        self.now: Point = (snapshot.now_s, 0)
        self.capacity = [tuple(pair) for pair in snapshot.capacity.tolist()]
        self.open = [n for n in range(len(self.capacity)) if snapshot.open[n]]
        self.kinds = list(dict.fromkeys(self.capacity[n] for n in self.open))
        first = snapshot.first.tolist()
        self.jobs = []
        for r, job in enumerate(snapshot.jobs):
            nodes = [n for n in snapshot.task_nodes[first[r] : first[r + 1]].tolist() if n >= 0]
            left_s = max(float(job["estimate_s"] - job["virtual_s"]), 0.0)
            values = (float(job[name]) for name in ("need", "memory", "estimate_s"))
            self.jobs.append(Job(r, int(job["tasks"]), *values, nodes, left_s))
        self.busy_until: dict[int, Point] = {}
        for job in self.jobs:
            for n in job.nodes:
                end = (snapshot.now_s + job.left_s, 1)
                self.busy_until[n] = max(end, self.busy_until.get(n, end))
        self.queue = [job for job in self.jobs if not job.nodes]

    def free(self, at: Point) -> Nodes:
        """Open nodes by kind, then index, whose tasks have all ended by then."""
        nodes = [n for n in self.open if n not in self.busy_until or self.busy_until[n] <= at]
        return sorted(nodes, key=lambda n: (self.kinds.index(self.capacity[n]), n))

    def fits(self, job: Job, kind: tuple[float, ...]) -> int:
        """How many of the job's tasks a node of that capacity holds."""
        cpu, memory = kind
        count = 0
        while count < job.tasks and (count + 1) * job.need <= cpu + 1e-9 and (count + 1) * job.memory <= memory + 1e-9:
            count += 1
        return count

    def placed(self, job: Job, nodes: Nodes) -> Nodes | None:
        """One node a task, as many on each as fit; None if they do not all find one."""
        tasks = [n for n in nodes for _ in range(self.fits(job, self.capacity[n]))]
        return tasks[: job.tasks] if len(tasks) >= job.tasks else None

    def start(self, job: Job, nodes: Nodes, lasts_s: float | None = None) -> None:
        for n in nodes:
            self.busy_until[n] = (self.now[0] + (job.estimate_s if lasts_s is None else lasts_s), 1)

    def reservation(self, job: Job) -> Point:
        """The earliest point at which the job can be placed, if nothing else starts."""
        points = [self.now, *sorted(self.busy_until.values())]
        return next((p for p in points if self.placed(job, self.free(p)) is not None), (math.inf, 1))


Started = dict[int, tuple[Nodes, str]]
"""By row: a node for each task, and the reason."""


def fcfs(snapshot: Snapshot) -> Started:
    cluster = Cluster(snapshot)
    return _in_order(cluster)


def _in_order(cluster: Cluster) -> Started:
    started: Started = {}
    for job in cluster.queue:
        nodes = cluster.placed(job, cluster.free(cluster.now))
        if nodes is None:
            break
        cluster.start(job, nodes)
        started[job.row] = nodes, "QUEUE_HEAD"
    return started


def head_reservation(snapshot: Snapshot) -> tuple[int, float] | None:
    """The first waiting job's row and the earliest time, by estimates, at which it can start; None without a queue."""
    cluster = Cluster(snapshot)
    return (cluster.queue[0].row, cluster.reservation(cluster.queue[0])[0]) if cluster.queue else None


def easy_spare(snapshot: Snapshot) -> Started:
    """Who passes the first job must leave its reservation as it is even if it never ends."""
    return easy(snapshot, passes_lasting_s=math.inf)


def easy(snapshot: Snapshot, passes_lasting_s: float | None = None) -> Started:
    cluster = Cluster(snapshot)
    started = _in_order(cluster)
    waiting = [job for job in cluster.queue if job.row not in started]
    for job in waiting[1:]:
        nodes = cluster.placed(job, cluster.free(cluster.now))
        if nodes is None:
            continue
        promised = cluster.reservation(waiting[0])
        before = dict(cluster.busy_until)
        cluster.start(job, nodes, passes_lasting_s)
        if cluster.reservation(waiting[0]) <= promised:
            started[job.row] = nodes, "BACKFILLED"
        else:
            cluster.busy_until = before
    return started


def conservative(snapshot: Snapshot) -> Started:
    return {row: (nodes, "RESERVED") for row, (begin, nodes) in reservations(snapshot).items() if begin[1] == 0}


def reservations(snapshot: Snapshot) -> dict[int, tuple[Point, Nodes]]:
    """By row of the queue: when its reservation begins, and its nodes if that is now. Left out: never enough nodes.

    Reservations that the snapshot notes are put back by their begins; then the queue is gone through in its order.
    """
    cluster = Cluster(snapshot)
    running = []
    for n, end in cluster.busy_until.items():
        if n in cluster.open:
            amount = [int(kind == cluster.capacity[n]) for kind in cluster.kinds]
            running.append(Booking(cluster.now, end, amount))
    booked: dict[int, Booking] = {}
    noted_s = snapshot.jobs["policy_state"].copy().view(np.float64).tolist()
    kept = [job for job in cluster.queue if noted_s[job.row] > 0 and job.row != snapshot.subject]
    for job in sorted(kept, key=lambda job: noted_s[job.row]):
        noted = (noted_s[job.row], 1)
        _book(cluster, job, cluster.now if noted[0] <= cluster.now[0] else noted, running, booked)
    moving = snapshot.cause not in {Cause.SUBMISSION, Cause.WAKE}
    for job in cluster.queue:
        if job.row not in booked or (moving and booked[job.row].begin != cluster.now):
            booked.pop(job.row, None)
            _book(cluster, job, cluster.now, running, booked)
    found: dict[int, tuple[Point, Nodes]] = {}
    for job in cluster.queue:
        if job.row in booked:
            begin, take = booked[job.row].begin, booked[job.row].amount
            found[job.row] = begin, _start_on(cluster, job, take) if begin == cluster.now else []
    return found


def _book(cluster: Cluster, job: Job, soonest: Point, running: list[Booking], booked: dict[int, Booking]) -> None:
    """Reserve for a job at the earliest point from `soonest` on at which it has enough nodes until its end, if any."""
    bookings = [*running, *booked.values()]
    for begin in sorted({soonest} | {booking.end for booking in bookings if booking.end > soonest}):
        end = (begin[0] + job.estimate_s, 1)
        take = _take(cluster, job, _free_throughout(cluster, bookings, begin, end))
        if take is not None:
            booked[job.row] = Booking(begin, end, take)
            break


def _free_throughout(cluster: Cluster, bookings: list[Booking], begin: Point, end: Point) -> list[int]:
    total = [sum(cluster.capacity[n] == kind for n in cluster.open) for kind in cluster.kinds]
    points = [begin, *(b.begin for b in bookings if begin < b.begin < end)]
    in_use = [[sum(b.amount[k] for b in bookings if b.begin <= p < b.end) for p in points] for k in range(len(total))]
    return [total[k] - max(in_use[k]) for k in range(len(total))]


def _take(cluster: Cluster, job: Job, available: list[int]) -> list[int] | None:
    """How many nodes of each kind the job takes of those, or None if they do not hold it."""
    left = job.tasks
    take = []
    for kind, count in zip(cluster.kinds, available, strict=True):
        taken = 0
        while left > 0 and taken < count and cluster.fits(job, kind) > 0:
            taken += 1
            left -= cluster.fits(job, kind)
        take.append(taken)
    return take if left <= 0 else None


def _start_on(cluster: Cluster, job: Job, take: list[int]) -> Nodes:
    nodes: Nodes = []
    for kind, count in zip(cluster.kinds, take, strict=True):
        nodes += [n for n in cluster.free(cluster.now) if cluster.capacity[n] == kind][:count]
    placed = cluster.placed(job, nodes)
    assert placed is not None
    cluster.start(job, nodes)
    return placed


def equipartition(snapshot: Snapshot) -> tuple[list[Nodes], list[float]]:
    """Nodes and yield of each row."""
    cluster = Cluster(snapshot)
    places = [list(job.nodes) for job in cluster.jobs]
    for job in cluster.queue:
        mine: Nodes = []
        for _ in range(job.tasks):
            tasks = [n for place in [*places, mine] for n in place]
            memory = {
                n: sum(cluster.jobs[r].memory * places[r].count(n) for r in range(len(places)))
                + job.memory * mine.count(n)
                for n in cluster.open
            }
            able = [
                n
                for n in cluster.open
                if cluster.capacity[n][0] > 0 and memory[n] + job.memory <= cluster.capacity[n][1] + 1e-9
            ]
            if not able:
                break
            mine.append(min(able, key=tasks.count))
        if len(mine) == job.tasks:
            places[job.row] = mine
    everybody = [n for place in places for n in place]
    return places, [
        min(1.0, min(cluster.capacity[n][0] / everybody.count(n) for n in place) / job.need) if place else 0.0
        for job, place in zip(cluster.jobs, places, strict=True)
    ]
