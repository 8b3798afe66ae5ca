"""Replays the log of a run for its independent checker, and judges every instant.

What nodes give out is kept in integers of 2**-60 of the reference node, so that nothing drifts over a long log;
averages are exact to the last bit (`math.fsum`). All rows of one instant are applied before it is judged, and the
users' commands of the instant after its rows: they are what comes last, and what they change shows when jobs end.
"""

import math
from collections import Counter, deque
from pathlib import Path

from dfrs.runs.validator.allocations import FORGIVEN, ValidationReport
from dfrs.runs.validator.commands import Judge
from dfrs.runs.validator.files import PLACING, Placement, RecordedCommand, Row, RunSettings, read_events
from dfrs.runs.validator.hardware import EqualNodes, RecordedHardware
from dfrs.runs.validator.jobs import FINISHED, FORGIVEN_S, PAUSED, RUNNING, UNIT, WAITING, RecordedJob

_FROM = {
    "start": WAITING,
    "pause": RUNNING,
    "resume": PAUSED,
    "migrate": RUNNING,
    "resize": RUNNING,
    "share": RUNNING,
    "finish": RUNNING,
    "lost": RUNNING,
}
_SLACK = int(FORGIVEN * UNIT)


class CheckedReplay:
    """Applies the log row by row; judges nodes at the end of each instant, jobs at their rows."""

    def __init__(
        self,
        settings: RunSettings,
        jobs: dict[int, RecordedJob],
        commands: list[RecordedCommand],
        report: ValidationReport,
        hardware: EqualNodes | RecordedHardware,
    ) -> None:
        nodes = len(settings.capacity)
        self.settings, self.jobs, self.report = settings, jobs, report
        self.refused = set(settings.refused)
        self.judge = Judge(settings, jobs, commands, report)
        self.limit = [(int(c * UNIT) + _SLACK, int(m * UNIT) + _SLACK) for c, m in settings.capacity]
        # Jobs that have nodes for themselves have all of their CPU.
        self.left = deque(() if settings.exclusive else settings.left)
        self.cpu, self.memory, self.owners = [0] * nodes, [0] * nodes, [0] * nodes
        self.condition = ["up"] * nodes
        self.hardware = hardware
        self.running: dict[int, float] = {}
        self.first_s = min((j.submit_s for j in jobs.values()), default=0.0)
        self.now_s = -math.inf
        self.touched: set[int] = set()
        self.fell: set[int] = set()
        self.lost: list[tuple[str, Placement]] = []
        self.finished: list[tuple[str, RecordedJob]] = []
        self.rows: Counter[int] = Counter()
        """How many rows of this instant each job has."""
        self.total = [0, 0]
        self.offered = [math.fsum(c[d] for c in settings.capacity) for d in (0, 1)]
        self.moved_memory = {"pause": 0.0, "resume": 0.0, "migrate": 0.0}
        self.integrals: dict[str, list[float]] = {
            name: [] for name in ("cpu", "memory", "offered cpu", "offered memory", "minimum yield", "busy")
        }

    def run(self, path: Path) -> int:
        """Apply and judge the whole file; how many rows it has."""
        changes = 0
        for row in read_events(path, len(self.condition)):
            changes += 1
            if row.time_s != self.now_s:
                self.settle()
                ordered = row.time_s > self.now_s
                self.check(ordered, f"events.csv line {row.line}: time_s = {row.time_s!r}: before the row above it")
                self.catch_up(row.time_s)
                self.elapse(max(row.time_s, self.now_s))
                self.judge.begin(self.now_s)
            self.apply(row)
        self.settle()
        self.check(
            self.settings.end_s >= self.now_s,
            f"summary.json: end_s = {self.settings.end_s!r}: before the last row of events.csv, {self.now_s!r}",
        )
        end_s = max(self.settings.end_s, self.now_s)
        self.catch_up(math.nextafter(end_s, math.inf))
        self.elapse(end_s)
        for job in self.jobs.values():
            if job.state == RUNNING:
                self.advance(f"job {job.id}", job)
        self.judge.finish(end_s)
        return changes

    def catch_up(self, until_s: float) -> None:
        """Judge the instants before that at which the log has no row: of commands, and of nodes with less CPU left."""
        while (next_s := min(self.judge.next_s, self.left[0][0] if self.left else math.inf)) < until_s:
            self.elapse(max(next_s, self.now_s))
            self.judge.begin(self.now_s)
            self.settle()

    def apply(self, row: Row) -> None:
        """One row."""
        where = f"events.csv line {row.line}"
        nodes: Placement = row.nodes or {}
        self.check(row.nodes is not None, f"{where}: nodes: must be ascending and below {len(self.condition)}")
        if row.job is None:
            self.change_nodes(row.action, nodes)
            return
        job = self.jobs.get(row.job)
        self.check(job is not None, f"{where}: job {row.job} is not in jobs.csv")
        if job is not None:
            self.act(f"{where}: job {row.job}", job, row.action, nodes, row.yield_)

    def check(self, holds: bool, problem: str) -> None:
        """Count a check, and note the problem if it fails."""
        self.report.check(holds, problem)

    def elapse(self, until_s: float) -> None:
        """Add up what the time from now on until then gives."""
        seconds = until_s - max(self.now_s, self.first_s)
        self.now_s = until_s
        if seconds <= 0:
            return
        self.integrals["offered cpu"].append(self.offered[0] * seconds)
        self.integrals["offered memory"].append(self.offered[1] * seconds)
        if self.running:
            self.integrals["cpu"].append(self.total[0] / UNIT * seconds)
            self.integrals["memory"].append(self.total[1] / UNIT * seconds)
            self.integrals["minimum yield"].append(min(self.running.values()) * seconds)
            self.integrals["busy"].append(seconds)

    def change_nodes(self, action: str, nodes: Placement) -> None:
        """A node goes down, is drained or comes back; what is down remains so until it is back."""
        for node in nodes:
            was = self.condition[node]
            if was == "down" and action == "drain":
                continue
            self.condition[node] = action
            if (was == "down") != (action == "down"):
                sign = -1 if action == "down" else 1
                for d in (0, 1):
                    self.offered[d] += sign * self.settings.capacity[node][d]
            if action == "down":
                self.fell.add(node)
                self.touched.add(node)

    def act(self, where: str, job: RecordedJob, action: str, nodes: Placement, yield_: float) -> None:
        """One row of a job."""
        self.check(self.now_s >= job.submit_s, f"{where}: {action} before its submission at {job.submit_s!r}")
        if job.submit_s < job.release_s:
            self.check(
                self.now_s >= job.release_s, f"{where}: {action} before its requested start at {job.release_s!r}"
            )
        self.check(job.id not in self.refused, f"{where}: {action}, but it was refused")
        self.report.checks += 1
        if job.state != _FROM[action]:
            self.report.problems.append(f"{where}: {action} while it is {job.state}")
            return
        self.advance(where, job)
        self.check_form(where, job, action, nodes, yield_)
        yield_ = min(max(yield_, 0.0), 1.0)
        if action != "share":
            self.leave(job)
        if action in PLACING:
            self.place(where, job, action, nodes)
            self.enter(job, yield_)
        elif action == "share":
            self.give(job, yield_)
        else:
            self.stop(where, job, action)
        self.rows[job.id] += 1

    def place(self, where: str, job: RecordedJob, action: str, nodes: Placement) -> None:
        """Its tasks have come to other nodes, or become more or fewer."""
        before, tasks = job.placement, sum(nodes.values())
        for node, k in nodes.items():
            if self.condition[node] == "drain" and (action in {"start", "resume"} or k > before.get(node, 0)):
                self.check(False, f"{where}: comes to node {node}, which is drained")
        job.state, job.placement = RUNNING, nodes
        if action == "resize":
            self.check_resize(where, before, nodes)
            return
        self.arrive(where, job, action, before)
        if self.settings.hosts is not None and action != "start" and sum(before.values()) == tasks:
            same = self.by_host(before) == self.by_host(nodes)
            self.check(same, f"{where}: {action} to another host, which nodes here cannot do")
        moved = tasks if action == "resume" else 0
        if action == "migrate":
            moved = sum(max(0, k - before.get(node, 0)) for node, k in nodes.items())
            self.check(moved > 0, f"{where}: migrate to where it is")
            job.migrations += 1
        penalty = self.settings.latency_s + self.settings.per_memory_s * moved * (job.memory / UNIT)
        job.ready_s = self.now_s if action == "start" else self.now_s + penalty
        job.start_s = self.now_s if job.start_s is None else job.start_s
        if action != "start":
            self.moved_memory[action] += moved * (job.memory / UNIT)

    def by_host(self, nodes: Placement) -> Counter[int]:
        """How many tasks each host has."""
        found: Counter[int] = Counter()
        for node, tasks in nodes.items():
            found[self.settings.hosts[node] if self.settings.hosts else 0] += tasks
        return found

    def arrive(self, where: str, job: RecordedJob, action: str, before: Placement) -> None:
        """How fast it is where it is now, and whether a migration brought it there."""
        job.speed = self.hardware.place(job.id, before, job.placement, migrates=action == "migrate")
        if self.settings.clustered:
            across = self.hardware.across(job.placement)
            self.check(across == 1, f"{where}: {action} across {across} sub-clusters, must be within one")

    def check_resize(self, where: str, before: Placement, nodes: Placement) -> None:
        """Tasks come or go, none moves."""
        fewer = sum(nodes.values()) < sum(before.values())
        inner, outer = (nodes, before) if fewer else (before, nodes)
        stay = all(k <= outer.get(node, 0) for node, k in inner.items())
        self.check(stay, f"{where}: resize moves tasks to other nodes")

    def check_form(self, where: str, job: RecordedJob, action: str, nodes: Placement, yield_: float) -> None:
        """What a row must say, whatever came before it."""
        self.check_tasks(where, job, action, sum(nodes.values()))
        if action == "resize":
            self.check(yield_ == job.yield_, f"{where}: yield = {yield_!r}: a resize keeps it, {job.yield_!r}")
        if action in PLACING or action == "share":
            self.check(0.0 <= yield_ <= 1.0, f"{where}: yield = {yield_!r}: must be from 0 to 1")
            if self.settings.promised:
                kept = yield_ >= job.minimum - FORGIVEN
                self.check(kept, f"{where}: yield = {yield_!r}: must be at least {job.minimum!r}, the job's minimum")
            if self.settings.exclusive:
                self.check(yield_ == 1.0, f"{where}: yield = {yield_!r}: must be 1 where jobs have nodes of their own")
        else:
            self.check(yield_ == 0.0, f"{where}: yield = {yield_!r}: must be 0 or empty for {action}")

    def check_tasks(self, where: str, job: RecordedJob, action: str, tasks: int) -> None:
        """A row names a node for each task that commands have left the job by then, or none."""
        if action not in PLACING:
            self.check(tasks == 0, f"{where}: {action} names nodes for {tasks} tasks, must be 0")
            return
        possible = job.possible(action)
        job.reached = {k for k in possible if job.sizes[k] == tasks}
        wanted = " or ".join(map(str, sorted({job.sizes[k] for k in possible})))
        wrong = f"names nodes for {tasks} tasks, must be {wanted}" if wanted else "no command changes its size then"
        self.check(bool(job.reached), f"{where}: {action}{' ' if wanted else ': '}{wrong}")
        job.reached = job.reached or possible or {len(job.sizes) - 1}

    def stop(self, where: str, job: RecordedJob, action: str) -> None:
        """It no longer runs."""
        self.hardware.leave(job.id)
        if action == "pause":
            self.check(not self.settings.keeps, f"{where}: pause, but here the memory of paused jobs is not freed")
            job.state = PAUSED
            job.pauses += 1
            self.moved_memory["pause"] += sum(job.placement.values()) * (job.memory / UNIT)
        elif action == "lost":
            self.lost.append((where, job.placement))
            # All since its last check-point is lost; one that is due to the rounding of times has been made.
            every_s = job.checkpoint_s
            job.virtual_s = every_s * int(job.virtual_s / every_s + 1e-9) if every_s else 0.0
            job.state = WAITING
        else:
            self.finished.append((where, job))
            job.state, job.finish_s = FINISHED, self.now_s

    def advance(self, where: str, job: RecordedJob) -> None:
        """Bring its virtual time to now: nothing is gained in a penalty, nor beyond the processing time."""
        since_s = max(job.since_s, job.ready_s)
        if job.state == RUNNING and self.now_s > since_s:
            job.virtual_s += job.yield_ * job.speed * (self.now_s - since_s)
        job.since_s = self.now_s
        self.report.checks += 1
        if job.virtual_s > job.process_s + FORGIVEN_S:
            self.report.problems.append(f"{where}: virtual time {job.virtual_s!r} passes {job.process_s!r}, unfinished")

    def enter(self, job: RecordedJob, yield_: float) -> None:
        """Its tasks take their nodes."""
        job.cpu = 0
        for node, k in job.placement.items():
            self.memory[node] += job.memory * k
            self.owners[node] += 1
        self.total[1] += job.memory * sum(job.placement.values())
        self.give(job, yield_)

    def leave(self, job: RecordedJob) -> None:
        """Its tasks leave their nodes; where they were remains known."""
        if job.id not in self.running:
            return
        self.give(job, 0.0)
        for node, k in job.placement.items():
            self.memory[node] -= job.memory * k
            self.owners[node] -= 1
        self.total[1] -= job.memory * sum(job.placement.values())
        del self.running[job.id]

    def give(self, job: RecordedJob, yield_: float) -> None:
        """Its tasks get that yield."""
        cpu = round(job.need * yield_ * UNIT)
        more = cpu - job.cpu
        for node, k in job.placement.items():
            self.cpu[node] += more * k
        self.total[0] += more * sum(job.placement.values())
        self.touched.update(job.placement)
        job.cpu, job.yield_ = cpu, yield_
        self.running[job.id] = yield_

    def settle(self) -> None:
        """Judge the instant that ends."""
        while self.left and self.left[0][0] <= self.now_s:
            _, node, cpu = self.left.popleft()
            self.limit[node] = int(cpu * UNIT) + _SLACK, self.limit[node][1]
            self.touched.add(node)
        for job in self.judge.concerned():
            self.advance(f"at {self.now_s!r}: job {job.id}", job)
        self.judge.settle(self.now_s, self.rows)
        for name, ready_s in self.hardware.settle(self.now_s).items():
            self.jobs[name].ready_s = ready_s
        for where, job in self.finished:
            self.check(
                abs(job.virtual_s - job.process_s) <= FORGIVEN_S,
                f"{where}: finish at virtual time {job.virtual_s!r}, processing time {job.process_s!r}",
            )
        for node in self.touched:
            for kind, used, limit in (
                ("CPU", self.cpu[node], self.limit[node][0]),
                ("memory", self.memory[node], self.limit[node][1]),
            ):
                if used > limit:
                    has = (limit - _SLACK) / UNIT
                    self.check(
                        False, f"at {self.now_s!r}: node {node}: {kind} is {used / UNIT:.9g}, capacity {has:.9g}"
                    )
            down = self.condition[node] == "down" and self.owners[node] > 0
            shared = self.settings.exclusive and self.owners[node] > 1
            if down or shared:
                wrong = "tasks on it, but it is down" if down else "shared by jobs that have nodes of their own"
                self.check(False, f"at {self.now_s!r}: node {node}: {wrong}")
        self.report.checks += 4 * len(self.touched)
        for where, nodes in self.lost:
            self.check(not self.fell.isdisjoint(nodes), f"{where}: lost, but no node of it is")
        for changed in (self.touched, self.fell, self.lost, self.finished, self.rows):
            changed.clear()
