"""Small cloud traces in exactly the forms that their publishers give: JSON lines of BigQuery, CSV, SQLite."""

import csv
import gzip
import json
import sqlite3
from contextlib import closing

SECOND_US = 1_000_000
BEGIN_US = 600 * SECOND_US


def instance_event(time_s, kind, collection, instance=0, *, cpus=0.25, memory=0.125, priority=103, alloc_set=False):
    """A row of instance_events; `time_s` counts from the beginning of the trace, None is before it."""
    request = {key: value for key, value in (("cpus", cpus), ("memory", memory)) if value is not None}
    return {
        "time": 0 if time_s is None else BEGIN_US + round(time_s * SECOND_US),
        "type": kind,
        "collection_id": collection,
        "scheduling_class": 1,
        "collection_type": int(alloc_set),
        "priority": priority,
        "alloc_collection_id": 0,
        "instance_index": instance,
        "machine_id": 23624491139 if kind == 3 else 0,
        "resource_request": request or None,
        "constraint": [{"name": "/f+JGBUNcX6hBJQ8OLxLcX2BZjK1xsNCM4dBGbTFJl4=", "value": "3", "relation": "6"}],
    }


def collection_event(time_s, kind, collection, *, user="aFwRCqYaAVzk=", priority=103, alloc_set=False):
    """A row of collection_events."""
    return {
        "time": 0 if time_s is None else BEGIN_US + round(time_s * SECOND_US),
        "type": kind,
        "collection_id": collection,
        "scheduling_class": 1,
        "collection_type": int(alloc_set),
        "priority": priority,
        "user": user,
        "collection_logical_name": "4ZPG1EUWGpXKpvJRKcgGFYVLW0ygnTrjYgnpKPzS7oQ=",
        "scheduler": 1,
    }


def google_json(path, rows):
    """As BigQuery exports them: whole numbers are texts, and fields without a value are not there."""
    lines = "".join(json.dumps(_exported(row), separators=(",", ":")) + "\n" for row in rows)
    path.write_bytes(gzip.compress(lines.encode()) if path.suffix == ".gz" else lines.encode())
    return path


def _exported(value):
    if isinstance(value, dict):
        return {key: _exported(field) for key, field in value.items() if field is not None}
    if isinstance(value, list):
        return [_exported(field) for field in value]
    return str(value) if isinstance(value, int) else value


def google_csv(path, rows, names=("resource_request_cpus", "resource_request_memory")):
    """As a query's result: CPU and memory are columns, and nothing else is nested."""
    flat = []
    for row in rows:
        request = row.get("resource_request") or {}
        plain = {key: value for key, value in row.items() if key not in {"resource_request", "constraint"}}
        nested = dict(zip(names, (request.get("cpus"), request.get("memory")), strict=True))
        flat.append(plain | (nested if "instance_index" in row else {}))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(flat[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)
    return path


def batch_task(name="M1", instances=1, job="j_1", state="Terminated", start=100, end=160, cpu=100.0, memory=0.5):
    """A row of batch_task.csv."""
    return (name, instances, job, "1", state, start, end, cpu, memory)


def batch_instance(number, name="M1", job="j_1", state="Terminated", start=100, end=130):
    """A row of batch_instance.csv."""
    return (f"ins_{number}", name, job, "1", state, start, end, "m_2637", 1, 1, 13, 16, 0.02, 0.02)


def container(name="c_1", time=0, state="started", cpu=400, memory=1.56):
    """A row of container_meta.csv."""
    return (name, "m_2556", time, "app_5052", state, cpu, cpu, memory)


def alibaba(path, rows):
    """Without a header; a field without a value is empty."""
    path.write_text("".join(",".join("" if v is None else str(v) for v in row) + "\n" for row in rows))
    return path


def azure(path, vms, types):
    """Rows (vmId, tenantId, vmTypeId, priority, starttime, endtime) and (vmTypeId, machineId, core, memory)."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE vm (vmId, tenantId, vmTypeId, priority, starttime, endtime)")
        database.execute("CREATE TABLE vmType (id, vmTypeId, machineId, core, memory, hdd, ssd, nic)")
        database.executemany("INSERT INTO vm VALUES (?, ?, ?, ?, ?, ?)", vms)
        rows = [(k, *row, None, 0.1, 0.1) for k, row in enumerate(types)]
        database.executemany("INSERT INTO vmType VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    return path
