"""Streams of jobs for a heterogeneous cluster as CSV files, in the columns of [Atif2011]'s appendix.

The columns are job, arrival_s, name, processes and expected_s. The name is of a program that measurements know
(`dfrs.workloads.programs`), as what a job takes elsewhere is known of these.
"""

import csv
import io
import math
from collections.abc import Mapping
from pathlib import Path

from dfrs.model.errors import InputError
from dfrs.model.hardware import Hardware
from dfrs.workloads.programs import Programs, StreamJob

COLUMNS = ("job", "arrival_s", "name", "processes", "expected_s")
LARGEST_FILE_BYTES = 10_000_000
_LATEST_S = 1e8
_LONGEST = 60


def read_stream(path: Path, programs: Programs) -> tuple[StreamJob, ...]:
    """The jobs of a CSV file, in the order of their lines. Raises InputError: file, line, field, value and rule."""
    text = _text(path)
    if not text.strip():
        raise InputError(f"{path}: empty: must have the columns {','.join(COLUMNS)}")
    try:
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        heading = [cell.strip() for cell in next(reader)]
        rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise InputError(f"{path}: not CSV: {error}") from None
    if sorted(heading) != sorted(COLUMNS):
        raise InputError(f"{path}: line 1 = {_short(','.join(heading))}: must be the columns {','.join(COLUMNS)}")
    if not rows:
        raise InputError(f"{path}: there is no job in it")
    jobs: list[StreamJob] = []
    seen: dict[int, int] = {}
    for line, row in rows:
        if len(row) != len(heading):
            raise InputError(f"{path}: line {line}: {len(row)} fields: must be {len(heading)}")
        job = _job(path, line, programs, dict(zip(heading, (cell.strip() for cell in row), strict=True)))
        if job.job in seen:
            raise InputError(f"{path}: line {line}: job = {job.job}: must be unique; it is on line {seen[job.job]} too")
        seen[job.job] = line
        jobs.append(job)
    return tuple(jobs)


def check_fits(jobs: tuple[StreamJob, ...], farm: Hardware, source: str) -> None:
    """Raise InputError where a job has more processes than any sub-cluster has nodes."""
    most = max(cluster.nodes for cluster in farm.partitions)
    for job in jobs:
        if job.processes > most:
            raise InputError(
                f"{source}: job {job.job}: processes = {job.processes}: must be at most {most}, "
                "the nodes of the largest sub-cluster"
            )


def _text(path: Path) -> str:
    try:
        if path.is_dir():
            raise InputError(f"{path}: is a directory: must be a CSV file")
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise InputError(f"{path}: must be at most {LARGEST_FILE_BYTES} bytes")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start}: not UTF-8 text") from None
    if "\0" in text:
        raise InputError(f"{path}: not text: it has a byte 0")
    return text


def _job(path: Path, line: int, programs: Programs, fields: Mapping[str, str]) -> StreamJob:
    where = f"{path}: line {line}"
    try:
        processes = programs.processes(fields["name"])
    except InputError as error:
        raise InputError(f"{where}: name = {_short(fields['name'])}: {error}") from None
    number = _whole(where, "job", fields["job"], least=0)
    stated = _whole(where, "processes", fields["processes"], least=1)
    if stated != processes:
        raise InputError(f"{where}: processes = {stated}: must be {processes}, as in the name {_short(fields['name'])}")
    return StreamJob(
        job=number,
        arrival_s=_seconds(where, "arrival_s", fields["arrival_s"]),
        name=fields["name"],
        processes=processes,
        expected_s=_seconds(where, "expected_s", fields["expected_s"]),
    )


def _whole(where: str, field: str, text: str, *, least: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 16) or int(text) < least:
        raise InputError(f"{where}: {field} = {_short(text)}: must be a whole number of at least {least}")
    return int(text)


def _seconds(where: str, field: str, text: str) -> float:
    try:
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= _LATEST_S:
        raise InputError(f"{where}: {field} = {_short(text)}: must be seconds from 0 to {_LATEST_S:g}")
    return value


def _short(text: str) -> str:
    plain = repr(text[:_LONGEST])[1:-1]
    return f'"{plain}{"..." if len(text) > _LONGEST else ""}"'
