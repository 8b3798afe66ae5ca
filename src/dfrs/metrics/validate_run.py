"""An independent checker of runs: replays a log and judges every instant, every job and the stated metrics.

It reads the three files of a run itself and shares no code with the simulator, the policies or the metrics. What nodes
give out is kept in integers of 2**-60 of the reference node, so that nothing drifts over a long log; averages are exact
to the last bit (`math.fsum`). All rows of one instant are applied before it is judged.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path

from dfrs.metrics.run_files import PLACING, Document, Placement, Row, Settings, read_events, read_jobs, read_settings
from dfrs.metrics.validate import FORGIVEN, Report
from dfrs.model.errors import InputError

FORGIVEN_S = 1e-4
"""Seconds of virtual time. What differs between two honest accounts is the rounding of times, at most 2.4e-7 s for
seconds since 1970 at each of some hundred changes, whatever the job's length: wider than that, and narrower than any
effect, as traces are in whole seconds."""

WAITING, RUNNING, PAUSED, FINISHED = "waiting", "running", "paused", "finished"
_FROM = {
    "start": WAITING, "pause": RUNNING, "resume": PAUSED, "migrate": RUNNING, "share": RUNNING, "finish": RUNNING,
    "lost": RUNNING,
}  # fmt: skip
_COPIED = ("starting_time", "finish_time")
_UNIT = 1 << 60
_SLACK = int(FORGIVEN * _UNIT)


@dataclass(slots=True, kw_only=True)
class _Job:
    """A row of jobs.csv, and what the replay knows of the job."""

    line: int
    stated: Document
    id: int
    tasks: int
    submit_s: float
    process_s: float
    need: float
    memory: int
    state: str = WAITING
    placement: Placement = field(default_factory=dict[int, int])
    yield_: float = 0.0
    cpu: int = 0
    """What each task gets."""
    since_s: float = 0.0
    ready_s: float = 0.0
    virtual_s: float = 0.0
    start_s: float | None = None
    finish_s: float | None = None
    pauses: int = 0
    migrations: int = 0


def run_directories(path: Path) -> list[Path]:
    """`path` if it is a run directory, else all run directories below it, sorted. Raises InputError if none is."""
    if any((path / name).is_file() for name in ("summary.json", "jobs.csv", "events.csv")):
        return [path]
    found = {file.parent for name in ("jobs.csv", "events.csv") for file in path.rglob(name)}
    if not found:
        raise InputError(f"{path}: no run directory: must have summary.json, jobs.csv and events.csv, or one below it")
    return sorted(found)


def validate_run(directory: Path) -> Report:
    """Check a run directory. Raises InputError where a file cannot be read or a value is not of its kind."""
    settings = read_settings(directory / "summary.json")
    jobs = {
        stated["job_id"]: _Job(
            line=line,
            stated=stated,
            id=stated["job_id"],
            tasks=stated["requested_number_of_resources"],
            submit_s=stated["submission_time"],
            process_s=stated["processing_time"],
            need=stated["cpu_need"],
            memory=round(stated["memory"] * _UNIT),
        )
        for line, stated in read_jobs(directory / "jobs.csv", len(settings.capacity))
    }
    report = Report()
    replay = _Replay(settings, jobs, report)
    changes = replay.run(directory / "events.csv")
    _check_jobs(settings, jobs, report)
    _check_summary(settings, jobs, replay, report)
    report.summary = f"{len(jobs)} jobs, {changes} events on {len(settings.capacity)} nodes, {report.checks} checks"
    return report


class _Replay:
    """Applies the log row by row; judges nodes at the end of each instant, jobs at their rows."""

    def __init__(self, settings: Settings, jobs: dict[int, _Job], report: Report) -> None:
        nodes = len(settings.capacity)
        self.settings, self.jobs, self.report = settings, jobs, report
        self.refused = set(settings.refused)
        self.limit = [(int(c * _UNIT) + _SLACK, int(m * _UNIT) + _SLACK) for c, m in settings.capacity]
        self.cpu, self.memory, self.owners = [0] * nodes, [0] * nodes, [0] * nodes
        self.condition = ["up"] * nodes
        self.running: dict[int, float] = {}
        self.first_s = min((j.submit_s for j in jobs.values()), default=0.0)
        self.now_s = -math.inf
        self.touched: set[int] = set()
        self.fell: set[int] = set()
        self.came: list[tuple[str, Placement, Placement]] = []
        self.lost: list[tuple[str, Placement]] = []
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
                self.elapse(max(row.time_s, self.now_s))
            self.apply(row)
        self.settle()
        self.check(
            self.settings.end_s >= self.now_s,
            f"summary.json: end_s = {self.settings.end_s!r}: before the last row of events.csv, {self.now_s!r}",
        )
        self.elapse(max(self.settings.end_s, self.now_s))
        for job in self.jobs.values():
            if job.state == RUNNING:
                self.advance(f"job {job.id}", job)
        return changes

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
            self.integrals["cpu"].append(self.total[0] / _UNIT * seconds)
            self.integrals["memory"].append(self.total[1] / _UNIT * seconds)
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

    def act(self, where: str, job: _Job, action: str, nodes: Placement, yield_: float) -> None:
        """One row of a job."""
        self.check(self.now_s >= job.submit_s, f"{where}: {action} before its submission at {job.submit_s!r}")
        self.check(job.id not in self.refused, f"{where}: {action}, but it was refused")
        self.report.checks += 1
        if job.state != _FROM[action]:
            self.report.problems.append(f"{where}: {action} while it is {job.state}")
            return
        self.advance(where, job)
        self.check_form(where, job, action, nodes, yield_)
        before = job.placement
        yield_ = min(max(yield_, 0.0), 1.0)
        if action != "share":
            self.leave(job)
        if action in PLACING:
            moved = job.tasks if action == "resume" else 0
            if action == "migrate":
                moved = sum(max(0, k - before.get(node, 0)) for node, k in nodes.items())
                self.check(moved > 0, f"{where}: migrate to where it is")
                job.migrations += 1
            penalty = self.settings.latency_s + self.settings.per_memory_s * moved * (job.memory / _UNIT)
            job.ready_s = self.now_s if action == "start" else self.now_s + penalty
            job.start_s = self.now_s if job.start_s is None else job.start_s
            job.state, job.placement = RUNNING, nodes
            if action != "start":
                self.moved_memory[action] += moved * (job.memory / _UNIT)
            self.came.append((where, nodes, before if action == "migrate" else {}))
            self.enter(job, yield_)
        elif action == "share":
            self.give(job, yield_)
        else:
            self.stop(where, job, action)

    def check_form(self, where: str, job: _Job, action: str, nodes: Placement, yield_: float) -> None:
        """What a row must say, whatever came before it."""
        tasks = sum(nodes.values())
        wanted = job.tasks if action in PLACING else 0
        self.check(tasks == wanted, f"{where}: {action} names nodes for {tasks} tasks, must be {wanted}")
        if action in PLACING or action == "share":
            self.check(0.0 <= yield_ <= 1.0, f"{where}: yield = {yield_!r}: must be from 0 to 1")
            if self.settings.exclusive:
                self.check(yield_ == 1.0, f"{where}: yield = {yield_!r}: must be 1 where jobs have nodes of their own")
        else:
            self.check(yield_ == 0.0, f"{where}: yield = {yield_!r}: must be 0 or empty for {action}")

    def stop(self, where: str, job: _Job, action: str) -> None:
        """It no longer runs."""
        if action == "pause":
            job.state = PAUSED
            job.pauses += 1
            self.moved_memory["pause"] += job.tasks * (job.memory / _UNIT)
        elif action == "lost":
            self.lost.append((where, job.placement))
            job.state, job.virtual_s = WAITING, 0.0
        else:
            self.check(
                abs(job.virtual_s - job.process_s) <= FORGIVEN_S,
                f"{where}: finish at virtual time {job.virtual_s!r}, processing time {job.process_s!r}",
            )
            job.state, job.finish_s = FINISHED, self.now_s

    def advance(self, where: str, job: _Job) -> None:
        """Bring its virtual time to now: nothing is gained in a penalty, nor beyond the processing time."""
        since_s = max(job.since_s, job.ready_s)
        if job.state == RUNNING and self.now_s > since_s:
            job.virtual_s += job.yield_ * (self.now_s - since_s)
        job.since_s = self.now_s
        self.report.checks += 1
        if job.virtual_s > job.process_s + FORGIVEN_S:
            self.report.problems.append(f"{where}: virtual time {job.virtual_s!r} passes {job.process_s!r}, unfinished")

    def enter(self, job: _Job, yield_: float) -> None:
        """Its tasks take their nodes."""
        job.cpu = 0
        for node, k in job.placement.items():
            self.memory[node] += job.memory * k
            self.owners[node] += 1
        self.total[1] += job.memory * sum(job.placement.values())
        self.give(job, yield_)

    def leave(self, job: _Job) -> None:
        """Its tasks leave their nodes; where they were remains known."""
        if job.id not in self.running:
            return
        self.give(job, 0.0)
        for node, k in job.placement.items():
            self.memory[node] -= job.memory * k
            self.owners[node] -= 1
        self.total[1] -= job.memory * sum(job.placement.values())
        del self.running[job.id]

    def give(self, job: _Job, yield_: float) -> None:
        """Its tasks get that yield."""
        cpu = round(job.need * yield_ * _UNIT)
        more = cpu - job.cpu
        for node, k in job.placement.items():
            self.cpu[node] += more * k
        self.total[0] += more * sum(job.placement.values())
        self.touched.update(job.placement)
        job.cpu, job.yield_ = cpu, yield_
        self.running[job.id] = yield_

    def settle(self) -> None:
        """Judge the instant that ends."""
        for node in self.touched:
            for kind, used, limit in (
                ("CPU", self.cpu[node], self.limit[node][0]),
                ("memory", self.memory[node], self.limit[node][1]),
            ):
                if used > limit:
                    has = (limit - _SLACK) / _UNIT
                    self.check(
                        False, f"at {self.now_s!r}: node {node}: {kind} is {used / _UNIT:.9g}, capacity {has:.9g}"
                    )
            down = self.condition[node] == "down" and self.owners[node] > 0
            shared = self.settings.exclusive and self.owners[node] > 1
            if down or shared:
                wrong = "tasks on it, but it is down" if down else "shared by jobs that have nodes of their own"
                self.check(False, f"at {self.now_s!r}: node {node}: {wrong}")
        self.report.checks += 4 * len(self.touched)
        for where, nodes, before in self.came:
            for node, k in nodes.items():
                if self.condition[node] == "drain" and k > before.get(node, 0):
                    self.check(False, f"{where}: comes to node {node}, which is drained")
        for where, nodes in self.lost:
            self.check(not self.fell.isdisjoint(nodes), f"{where}: lost, but no node of it is")
        for changed in (self.touched, self.fell, self.came, self.lost):
            changed.clear()


def _check_jobs(settings: Settings, jobs: dict[int, _Job], report: Report) -> None:
    """jobs.csv against the log."""
    refused = set(settings.refused)
    before = -math.inf
    for job in jobs.values():
        where = f"jobs.csv line {job.line}: job {job.id}"
        stated = job.stated
        report.check(job.submit_s >= before, f"{where}: submitted before the row above it")
        before = job.submit_s
        if settings.complete and job.id not in refused:
            report.check(job.state == FINISHED, f"{where}: never finishes: it is {job.state} at the end")
        start, finish = job.start_s, job.finish_s
        flow = None if finish is None else finish - job.submit_s
        truth: dict[str, float | None] = {
            "success": int(finish is not None),
            "starting_time": start,
            "finish_time": finish,
            "execution_time": None if finish is None or start is None else finish - start,
            "waiting_time": None if start is None else start - job.submit_s,
            "turnaround_time": flow,
            "stretch": None if flow is None else flow / job.process_s,
            "pauses": job.pauses,
            "migrations": job.migrations,
        }
        for column, value in truth.items():
            # The two times are copied from the log, so that nothing is forgiven; the others are computed from them.
            same = stated[column] == value if column in _COPIED else _same(stated[column], value)
            report.check(same, f"{where}: {column} = {stated[column]!r}: by the log {value!r}")
        report.check(
            abs(stated["virtual_time"] - job.virtual_s) <= FORGIVEN_S,
            f"{where}: virtual_time = {stated['virtual_time']!r}: by the log {job.virtual_s!r}",
        )
        report.check(
            stated["allocated_resources"] == job.placement,
            f"{where}: allocated_resources: not its last nodes by the log",
        )


def _check_summary(settings: Settings, jobs: dict[int, _Job], replay: _Replay, report: Report) -> None:
    """summary.json against the log."""
    count = settings.workload.get("jobs")
    report.check(count == len(jobs), f"summary.json: workload.jobs = {count!r}: jobs.csv has {len(jobs)}")
    for name in settings.refused:
        job = jobs.get(name)
        report.check(job is not None, f"summary.json: refused: job {name} is not in jobs.csv")
        if job is not None:
            room = sum(c >= job.need and m * _UNIT >= job.memory for c, m in settings.capacity)
            report.check(room < job.tasks, f"summary.json: refused: job {name} fits: {job.tasks} tasks on {room} nodes")
    for name, value in _metrics(settings, jobs, replay).items():
        if name not in settings.metrics:
            report.check(False, f"summary.json: metrics.{name} is missing: by the log {value!r}")
        else:
            stated = settings.metrics[name]
            report.check(_same(stated, value), f"summary.json: metrics.{name} = {stated!r}: by the log {value!r}")


def _metrics(settings: Settings, jobs: dict[int, _Job], replay: _Replay) -> dict[str, float | None]:
    done = [(j, j.finish_s, j.finish_s - j.submit_s) for j in jobs.values() if j.finish_s is not None]
    tau = settings.tau_s
    bounded = [max(flow, tau) / max(job.process_s, tau) for job, _, flow in done]
    stretch = [flow / job.process_s for job, _, flow in done]
    waits = [job.start_s - job.submit_s for job, _, _ in done if job.start_s is not None]
    whole = {name: math.fsum(parts) for name, parts in replay.integrals.items()}
    gigabytes = {name: moved * settings.node_bytes / 1e9 for name, moved in replay.moved_memory.items()}
    return {
        "jobs_finished": len(done),
        "stretch_max": max(stretch, default=None),
        "stretch_mean": _ratio(math.fsum(stretch), len(done)),
        "bounded_stretch_max": max(bounded, default=None),
        "wait_mean_s": _ratio(math.fsum(waits), len(done)),
        "flow_mean_s": _ratio(math.fsum(flow for _, _, flow in done), len(done)),
        "makespan_s": max((finish for _, finish, _ in done), default=replay.first_s) - replay.first_s if done else None,
        "pauses": sum(job.pauses for job in jobs.values()),
        "migrations": sum(job.migrations for job in jobs.values()),
        "cpu_utilisation": _ratio(whole["cpu"], whole["offered cpu"]),
        "memory_utilisation": _ratio(whole["memory"], whole["offered memory"]),
        "minimum_yield_mean": _ratio(whole["minimum yield"], whole["busy"]),
        "pause_gb": gigabytes["pause"],
        "pause_and_resume_gb": gigabytes["pause"] + gigabytes["resume"],
        "migration_gb": gigabytes["migrate"],
    }


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _same(stated: object, value: float | None) -> bool:
    if value is None or not isinstance(stated, int | float) or isinstance(stated, bool):
        return stated is None and value is None
    return math.isclose(stated, value, rel_tol=1e-9, abs_tol=FORGIVEN)
