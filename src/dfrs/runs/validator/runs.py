"""An independent checker of runs: replays a log and judges every instant, every job and the stated metrics.

It reads the files of a run itself and shares no code with the simulator, the policies or the metrics. See
`dfrs.runs.validator.replay` for the log and `dfrs.runs.validator.commands` for users' commands.
"""

import math
import os
from pathlib import Path

from dfrs.model.errors import InputError
from dfrs.runs.validator.allocations import FORGIVEN, ValidationReport
from dfrs.runs.validator.files import Document, RecordedCommand, RunSettings, read_commands, read_jobs, read_settings
from dfrs.runs.validator.hardware import EqualNodes, read_hardware
from dfrs.runs.validator.jobs import FINISHED, FORGIVEN_S, PAUSED, RUNNING, UNIT, RecordedJob, room_by_node
from dfrs.runs.validator.replay import CheckedReplay

_COPIED = ("starting_time", "finish_time")


def run_directories(path: Path) -> tuple[list[Path], dict[Path, InputError]]:
    """`path` if it is a run directory, else all run directories below it, sorted; and what could not be looked into.

    Raises InputError if no run is found: where something could not be looked into, for that.
    """
    if any((path / name).is_file() for name in ("summary.json", "jobs.csv", "events.csv")):
        return [path], {}
    unread: dict[Path, InputError] = {}

    def left(error: OSError) -> None:
        # What is gone by now, or is a file, has no runs.
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            unread[Path(error.filename)] = InputError(f"{error.filename}: cannot read: {error.strerror}")

    found: list[Path] = []
    for directory, inner, files in os.walk(path, onerror=left):
        # In these are runs that are still being written, or were when that was cut off.
        inner[:] = [name for name in inner if not name.startswith(".dfrs-")]
        if not {"jobs.csv", "events.csv"}.isdisjoint(files):
            found.append(Path(directory))
    if not found:
        none = f"{path}: no run directory: must have summary.json, jobs.csv and events.csv, or one below it"
        raise next(iter(unread.values()), InputError(none))
    return sorted(found), unread


def validate_run(directory: Path) -> ValidationReport:
    """Check a run directory. Raises InputError where a file cannot be read or a value is not of its kind."""
    settings = read_settings(directory / "summary.json")
    jobs = _read_jobs(directory / "jobs.csv", len(settings.capacity))
    commands = read_commands(directory / "commands.csv")
    report = ValidationReport()
    unequal = read_hardware(directory / "farm.json", settings.capacity, list(jobs)) if settings.unequal else None
    replay = CheckedReplay(settings, jobs, commands, report, unequal or EqualNodes())
    changes = replay.run(directory / "events.csv")
    _check_jobs(settings, jobs, report)
    _check_summary(settings, jobs, commands, replay, report)
    report.summary = f"{len(jobs)} jobs, {changes} events on {len(settings.capacity)} nodes, {report.checks} checks"
    return report


def _read_jobs(path: Path, nodes: int) -> dict[int, RecordedJob]:
    jobs: dict[int, RecordedJob] = {}
    for line, stated in read_jobs(path, nodes):
        name, submit_s, requested_s = stated["job_id"], stated["submission_time"], stated["requested_start_time"]
        jobs[name] = RecordedJob(
            line=line,
            stated=stated,
            id=name,
            tasks=stated["requested_number_of_resources"],
            submit_s=submit_s,
            release_s=submit_s if requested_s is None else max(submit_s, requested_s),
            process_s=stated["processing_time"],
            need=stated["cpu_need"],
            memory=round(stated["memory"] * UNIT),
            minimum=stated["minimum_yield"] or 0.0,
            checkpoint_s=stated["checkpoint_s"] or 0.0,
        )
    return jobs


def _check_jobs(settings: RunSettings, jobs: dict[int, RecordedJob], report: ValidationReport) -> None:
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
        flow = None if finish is None else finish - job.release_s
        truth: dict[str, float | None] = {
            "success": int(finish is not None),
            "starting_time": start,
            "finish_time": finish,
            "execution_time": None if finish is None or start is None else finish - start,
            "waiting_time": None if start is None else start - job.release_s,
            "turnaround_time": flow,
            "stretch": None if flow is None else _ratio(flow, job.process_s),
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


def _check_summary(
    settings: RunSettings,
    jobs: dict[int, RecordedJob],
    commands: list[RecordedCommand],
    replay: CheckedReplay,
    report: ValidationReport,
) -> None:
    """summary.json against the log."""
    count = settings.workload.get("jobs")
    report.check(count == len(jobs), f"summary.json: workload.jobs = {count!r}: jobs.csv has {len(jobs)}")
    count, rows = settings.workload.get("commands", len(commands)), len(commands)
    answered = count == rows or (not settings.complete and isinstance(count, int) and count >= rows)
    report.check(answered, f"summary.json: workload.commands = {count!r}: commands.csv has {rows}")
    for name in settings.refused:
        job = jobs.get(name)
        report.check(job is not None, f"summary.json: refused: job {name} is not in jobs.csv")
        if job is not None:
            room = _room(settings, replay, job)
            problem = f"summary.json: refused: job {name} fits: {job.tasks} tasks, room for {room:g}"
            report.check(room < job.tasks, problem)
    for name, value in _metrics(settings, jobs, commands, replay).items():
        if name not in settings.metrics:
            report.check(False, f"summary.json: metrics.{name} is missing: by the log {value!r}")
        else:
            stated = settings.metrics[name]
            report.check(_same(stated, value), f"summary.json: metrics.{name} = {stated!r}: by the log {value!r}")


def _room(settings: RunSettings, replay: CheckedReplay, job: RecordedJob) -> float:
    """How many tasks of the job there is room for at least; where it must be within a partition, the most of one.

    Policies that give whole nodes within partitions give each task its own.
    """
    room = [least for least, _ in room_by_node(settings, job)]
    if not settings.clustered:
        return sum(room)
    return replay.hardware.largest([min(each, 1.0) for each in room] if settings.exclusive else room)


def _metrics(
    settings: RunSettings, jobs: dict[int, RecordedJob], commands: list[RecordedCommand], replay: CheckedReplay
) -> dict[str, float | None]:
    done = [(j, j.finish_s, j.finish_s - j.release_s) for j in jobs.values() if j.finish_s is not None]
    tau = settings.tau_s
    bounded = [max(flow, tau) / max(job.process_s, tau) for job, _, flow in done]
    stretch = [flow / job.process_s for job, _, flow in done if job.process_s > 0]
    waits = [job.start_s - job.release_s for job, _, _ in done if job.start_s is not None]
    wait_s, run_s = math.fsum(waits), math.fsum(job.process_s for job, _, _ in done)
    whole = {name: math.fsum(parts) for name, parts in replay.integrals.items()}
    gigabytes = {name: moved * settings.node_bytes / 1e9 for name, moved in replay.moved_memory.items()}
    flows = [flow for _, _, flow in done]
    states = [job.state for job in jobs.values()]
    return {
        "jobs": len(jobs),
        "jobs_finished": len(done),
        "jobs_refused": len(settings.refused),
        "jobs_unfinished": len(jobs) - len(done) - len(settings.refused),
        "jobs_running_at_end": states.count(RUNNING),
        "jobs_paused_at_end": states.count(PAUSED),
        **_statistics("stretch", stretch),
        **_statistics("bounded_stretch", bounded),
        **_statistics("wait", waits, "_s"),
        **_statistics("flow", flows, "_s"),
        **_degradations(settings.metrics, stretch, bounded),
        "run_mean_s": _ratio(run_s, len(done)),
        "slowdown_of_means": _ratio(wait_s + run_s, run_s),
        "span_s": settings.end_s - min(replay.first_s, settings.end_s) if jobs else 0.0,
        "makespan_s": max((finish for _, finish, _ in done), default=replay.first_s) - replay.first_s if done else None,
        "pauses": sum(job.pauses for job in jobs.values()),
        "migrations": sum(job.migrations for job in jobs.values()),
        "cpu_utilisation": _ratio(whole["cpu"], whole["offered cpu"]),
        "memory_utilisation": _ratio(whole["memory"], whole["offered memory"]),
        "minimum_yield_mean": _ratio(whole["minimum yield"], whole["busy"]),
        "pause_gb": gigabytes["pause"],
        "pause_and_resume_gb": gigabytes["pause"] + gigabytes["resume"],
        "migration_gb": gigabytes["migrate"],
    } | _elastic_metrics(jobs, commands)


def _elastic_metrics(jobs: dict[int, RecordedJob], commands: list[RecordedCommand]) -> dict[str, float | None]:
    dedicated = [job for job in jobs.values() if job.stated["requested_start_time"] is not None]
    delays = [job.start_s - job.release_s for job in dedicated if job.start_s is not None]
    granted = sum(command.answer in {"granted", "cut"} for command in commands)
    return {
        "dedicated_jobs": len(dedicated),
        "dedicated_on_time": sum(delay <= FORGIVEN for delay in delays),
        "dedicated_delay_mean_s": _ratio(math.fsum(delays), len(delays)),
        "dedicated_delay_max_s": max(delays, default=None),
        "commands": len(commands),
        "commands_granted": granted,
        "commands_refused": len(commands) - granted,
    }


def _statistics(label: str, values: list[float], unit: str = "") -> dict[str, float | None]:
    """Maximum, mean, and quantiles: linear between the values in order, of which the last is quantile 1."""
    ordered, last = sorted(values), len(values) - 1
    found: dict[str, float | None] = {f"{label}_max{unit}": max(values, default=None)}
    found[f"{label}_mean{unit}"] = _ratio(math.fsum(values), len(values))
    for percent in (50, 90, 95, 99):
        at = last * percent / 100
        low = max(math.floor(at), 0)
        between = [] if last < 0 else [ordered[low], ordered[min(low + 1, last)]]
        found[f"{label}_p{percent}{unit}"] = between[0] + (between[1] - between[0]) * (at - low) if between else None
    return found


def _degradations(metrics: Document, stretch: list[float], bounded: list[float]) -> dict[str, float | None]:
    """Of the bounds that are stated; whether these are true is not known here."""
    found: dict[str, float | None] = {}
    for kind, values in (("", stretch), ("bounded_", bounded)):
        bound = metrics.get(f"{kind}stretch_bound")
        if isinstance(bound, int | float) and bound > 0:
            found[f"{kind}degradation_from_bound"] = max(values) / bound if values else None
    return found


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _same(stated: object, value: float | None) -> bool:
    if value is None or not isinstance(stated, int | float) or isinstance(stated, bool):
        return stated is None and value is None
    return math.isclose(stated, value, rel_tol=1e-9, abs_tol=FORGIVEN)
