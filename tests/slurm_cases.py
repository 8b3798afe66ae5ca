"""Accounting of small Slurm clusters in the forms that `sacct` prints, made for tests."""

from datetime import UTC, datetime

from dfrs.workloads.slurm.text_output import COLUMNS

MIDNIGHT = int(datetime(2026, 11, 24, tzinfo=UTC).timestamp())


def at(seconds):
    """An instant of that day as sacct prints it."""
    return datetime.fromtimestamp(MIDNIGHT + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def job(name="100", submit=0, start=60, run=3600, **changes):
    """The columns of a job that ran; of one that did not where `start` is None, nor end where `run` is."""
    ran = start is not None and run is not None
    row = {
        "JobID": name,
        "JobIDRaw": name,
        "User": "ada",
        "Submit": at(submit),
        "Eligible": at(submit),
        "Start": "Unknown" if start is None else at(start),
        "End": at(start + run) if ran else "Unknown",
        "ElapsedRaw": run if ran else 0,
        "State": "COMPLETED" if ran else "PENDING" if start is None else "RUNNING",
        "AllocCPUS": 4 if start is not None else 0,
        "AllocNodes": 1 if start is not None else 0,
        "TimelimitRaw": 120,
        "ReqMem": "4G",
        "AllocTRES": "billing=4,cpu=4,mem=4G,node=1" if start is not None else "",
    }
    return row | changes


def step(name="100.batch", start=60, run=3600, **changes):
    """The columns of a step that used 0.4 of a core and 1 GiB."""
    row = {
        "JobID": name,
        "JobIDRaw": name,
        "Submit": at(start),
        "Eligible": at(start),
        "Start": at(start),
        "End": at(start + run),
        "ElapsedRaw": run,
        "State": "COMPLETED",
        "AllocCPUS": 4,
        "AllocNodes": 1,
        "NTasks": 1,
        "MaxRSS": "1G",
        "TotalCPU": "00:24:00",
    }
    return row | changes


def printed(*rows, columns=COLUMNS, end=""):
    """What `sacct --parsable2` prints of them; with `end` "|", `sacct --parsable`."""
    names = columns.split(",")
    lines = ["|".join(names), *("|".join(str(row.get(name, "")) for name in names) for row in rows)]
    return "".join(f"{line}{end}\n" for line in lines)


def written(folder, *rows, name="day.txt", **form):
    path = folder / name
    path.write_text(printed(*rows, **form))
    return path


def json_job(number=100, submit=0, start=60, run=3600, *, steps=(), cpus=4, nodes=1, **changes):
    """The same job in the form of Slurm 22.05's `sacct --json`."""
    ran = start is not None and run is not None
    resources = [
        {"type": "cpu", "name": None, "id": 1, "count": cpus},
        {"type": "mem", "name": None, "id": 2, "count": 4096},
        {"type": "node", "name": None, "id": 4, "count": nodes},
    ]
    document = {
        "account": "physics",
        "allocation_nodes": nodes if start is not None else 0,
        "array": {"job_id": 0, "limits": {"max": {"running": {"tasks": 0}}}, "task": None, "task_id": None},
        "het": {"job_id": 0, "job_offset": None},
        "job_id": number,
        "name": "run | plot",
        "required": {"CPUs": cpus, "memory": 4096},
        "state": {"current": "COMPLETED" if ran else "PENDING" if start is None else "RUNNING", "reason": "None"},
        "steps": list(steps),
        "time": {
            "elapsed": run if ran else 0,
            "eligible": MIDNIGHT + submit,
            "end": MIDNIGHT + start + run if ran else 0,
            "start": MIDNIGHT + start if start is not None else 0,
            "submission": MIDNIGHT + submit,
            "suspended": 0,
            "system": {"seconds": 0, "microseconds": 0},
            "limit": 120,
            "total": {"seconds": 0, "microseconds": 0},
            "user": {"seconds": 0, "microseconds": 0},
        },
        "tres": {"allocated": resources if start is not None else [], "requested": resources},
        "user": "ada",
    }
    return document | changes


def json_step(number=100, name="batch", start=60, run=3600, **changes):
    document = {
        "time": {
            "elapsed": run,
            "end": MIDNIGHT + start + run,
            "start": MIDNIGHT + start,
            "total": {"seconds": 1440, "microseconds": 0},
        },
        "nodes": {"count": 1, "range": "n1"},
        "tasks": {"count": 1},
        "state": "COMPLETED",
        "step": {"job_id": number, "het": {"component": None}, "id": name, "name": name},
        "tres": {
            "requested": {
                "max": [{"type": "mem", "name": None, "id": 2, "count": 2**30, "node": "n1", "task": 0}],
                "average": [],
            }
        },
    }
    return document | changes


def in_later_form(value, key=""):
    """The same document as Slurm 23.11 writes it: numbers that may be unknown are objects, states are lists."""
    wrapped = {"start", "end", "task_id", "job_offset", "limit", "allocation_nodes"}
    if key == "current" or (key == "state" and isinstance(value, str)):
        return [value]
    if key in wrapped and not isinstance(value, dict):
        # Jobs have plain starts and ends; wrapping them too is read alike.
        return {"set": value is not None, "infinite": False, "number": value or 0}
    if isinstance(value, dict):
        return {name: in_later_form(part, name) for name, part in value.items()}
    if isinstance(value, list):
        return [in_later_form(part) for part in value]
    return value
