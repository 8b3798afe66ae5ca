"""Azure trace for packing 2020: the SQLite file packing_trace_zone_a_v1.sqlite with its tables vm and vmType.

Tables and columns: AzureTracesForPacking2020.md in github.com/Azure/AzurePublicDataset. Times are days from the
beginning of the 14 days in which requests were collected. A start below 0 is that of a VM that ran when they began.
Ends are known up to 90 days, and one that is NULL is later. Priority 0 is high, 1 is low; a VM of low priority may have
been evicted, and its end is then the eviction.

A VM becomes one job with one task, of the user `tenantId`. What a VM type takes of a machine depends on the machine
(`machineId` in vmType): one of them is the reference node, and VMs whose type has no row for it cannot run there.
"""

import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.instance import Floats, Ints
from dfrs.model.jobs import Workload
from dfrs.workloads.clouds.jobs import CloudJobs, CloudOptions, CloudReport, to_workload

TRACE = "Azure trace for packing 2020"
MAGIC = b"SQLite format 3\0"
DAY_S = 86_400.0
LAST_DAY = 90.0
LOW, HIGH = 1.0, 2.0
"""Weights of the two priorities."""
ROWS = 65_536
"""Rows that are Python objects at one time."""

REQUESTS = ("vmId", "tenantId", "vmTypeId", "priority", "starttime", "endtime")
TYPES = ("vmTypeId", "machineId", "core", "memory")
_WHOLE = {"vmId", "tenantId", "vmTypeId", "priority", "machineId"}
_MAY_BE_NULL = {"endtime", "core", "memory"}


def is_sqlite(path: Path) -> bool:
    """Whether the file is an SQLite database. Raises InputError where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from None


def read(path: Path, options: CloudOptions, *, source: str, name: str) -> tuple[Workload, CloudReport]:
    """The workload of the file. Raises InputError naming file, table, row, field, value and rule."""
    try:
        # Read only, and without a lock file beside it: the file may be on a medium that cannot be written.
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)) as database:
            requests = _table(path, database, "vm", REQUESTS)
            types = _table(path, database, "vmType", TYPES)
    except sqlite3.Error as error:
        raise InputError(f"{path}: cannot be read as an SQLite database: {error}") from None
    if not len(requests["vmId"]):
        raise InputError(f"{path}: table vm without a row: must have some")
    _check(path, "vm", "priority", requests["priority"], ~np.isin(requests["priority"], (0, 1)), "0 (high) or 1 (low)")
    _check(path, "vm", "vmId", requests["vmId"], _repeated(requests["vmId"]), "unique")
    machine, need, memory = _on_machine(path, requests["vmTypeId"], types, options.machine)
    node = f"machine {machine} of table vmType"
    jobs = _jobs(requests, need, memory, machine, options)
    return to_workload(jobs, options, source=source, name=name, trace=TRACE, node=node, unit="VMs")


def _table(path: Path, database: sqlite3.Connection, table: str, columns: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Columns of a table in the order of its rows: whole numbers, or doubles with NaN for NULL."""
    there = {row[1] for row in database.execute(f'PRAGMA table_info("{table}")')}
    for column in columns:
        if column not in there:
            what = f"no column {column} in table {table}" if there else f"no table {table}"
            raise InputError(f"{path}: {what}: must be as in packing_trace_zone_a_v1.sqlite")
    parts: dict[str, list[np.ndarray]] = {column: [] for column in columns}
    for first, rows in _batches(database, table, columns):
        for column, values in zip(columns, zip(*rows, strict=True), strict=True):
            parts[column].append(_numbers(path, table, column, first, values))
    return {column: np.concatenate(found) if found else np.zeros(0) for column, found in parts.items()}


def _batches(database: sqlite3.Connection, table: str, columns: tuple[str, ...]) -> Iterator[tuple[int, list[Any]]]:
    cursor = database.execute(f'SELECT {", ".join(columns)} FROM "{table}" ORDER BY rowid')  # noqa: S608 - no input
    first = 1
    while rows := cursor.fetchmany(ROWS):
        yield first, rows
        first += len(rows)


def _numbers(path: Path, table: str, column: str, first: int, values: tuple[Any, ...]) -> np.ndarray:
    whole = column in _WHOLE
    try:
        if whole and not all(type(value) is int for value in values):
            raise ValueError
        found = np.array(values, np.int64 if whole else np.float64)
        unknown = np.isnan(found).sum() if not whole and column in _MAY_BE_NULL else 0
        if whole or (unknown == values.count(None) and np.isfinite(found).sum() + unknown == len(found)):
            return found
    except (ValueError, TypeError, OverflowError):
        pass
    # Slowly, one by one: numbers among texts, or what is wrong.
    rule = "a whole number" if whole else "a finite number"
    numbers: list[float] = []
    for row, value in enumerate(values, first):
        number = np.nan if value is None and column in _MAY_BE_NULL else _number(value, whole)
        if number is None:
            shown = "NULL" if value is None else ascii(str(value)[:40])[1:-1]
            raise InputError(f"{path}: table {table}, row {row}: {column} = {shown}: must be {rule}")
        numbers.append(number)
    return np.array(numbers, np.int64 if whole else np.float64)


def _number(value: object, whole: bool) -> float | None:
    """The number that a value is, or that a text says; None where it is none."""
    if not isinstance(value, int | float | str):
        return None
    try:
        number = int(value) if whole else float(value)
        if whole and not (-(2**63) <= number < 2**63 and number == float(value)):
            return None
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _check(path: Path, table: str, column: str, values: np.ndarray, bad: np.ndarray, rule: str) -> None:
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise InputError(f"{path}: table {table}, row {row + 1}: {column} = {values[row]}: must be {rule}")


def _repeated(ids: Ints) -> np.ndarray:
    bad = np.ones(len(ids), np.bool_)
    bad[np.unique(ids, return_index=True)[1]] = False
    return bad


def _on_machine(
    path: Path, wanted: Ints, types: dict[str, np.ndarray], machine: int | None
) -> tuple[int, Floats, Floats]:
    """The reference node, and CPU and memory (J,) of each request on it; NaN where its type cannot run there."""
    sized = (types["core"] > 0) & (types["memory"] >= 0)
    machines = np.unique(types["machineId"]).astype(np.int64)
    if not len(machines):
        raise InputError(f"{path}: table vmType without a row: must have some")
    kinds, asked = np.unique(wanted, return_counts=True)
    if machine is None:
        # The first of the largest: of machines that can run as many requests, that with the lowest number.
        runs = [asked[np.isin(kinds, types["vmTypeId"][sized & (types["machineId"] == m)])].sum() for m in machines]
        machine = int(machines[int(np.argmax(runs))])
    elif machine not in machines:
        known = ", ".join(map(str, machines[:20])) + (", ..." if len(machines) > 20 else "")
        raise InputError(f"{path}: machine = {machine}: must be one of {known}")
    rows = np.flatnonzero(types["machineId"] == machine)
    here = types["vmTypeId"][rows]
    _check(path, "vmType", "vmTypeId", here, _repeated(here), f"unique for machine {machine}")
    rows = rows[np.argsort(here)]
    here = types["vmTypeId"][rows]
    at = np.minimum(np.searchsorted(here, wanted), len(here) - 1)
    can = (here[at] == wanted) & sized[rows][at]
    return machine, np.where(can, types["core"][rows][at], np.nan), np.where(can, types["memory"][rows][at], np.nan)


def _jobs(
    requests: dict[str, np.ndarray], need: Floats, memory: Floats, machine: int, options: CloudOptions
) -> CloudJobs:
    start, end = requests["starttime"], requests["endtime"]
    before, endless = start < 0, np.isnan(end)
    low = requests["priority"] == 1
    drop = options.cut_off == "drop"
    cuts = (("started before the trace begins", before), ("without an end within 90 days", endless & ~before))
    submit = np.maximum(start, 0.0)
    run_s = (np.where(endless, LAST_DAY, end) - submit) * DAY_S
    return CloudJobs(
        job_id=requests["vmId"],
        submit_s=submit * DAY_S,
        tasks=np.ones(len(start), np.int64),
        need=need,
        memory=memory,
        run_s=run_s,
        user=requests["tenantId"],
        weight=np.where(low, LOW, HIGH),
        left_out=(
            (f"of a type that cannot run on machine {machine}", np.isnan(need)),
            *(cuts if drop else ()),
            ("that end before they start", run_s < 0),
        ),
        notes=(("of low priority, which may have been evicted", low), *(() if drop else cuts)),
    )
