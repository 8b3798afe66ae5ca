"""Accounting as `sacct --parsable2` (or `--parsable`) prints it: a header, then a line for each job and each step."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from dfrs.model.errors import InputError
from dfrs.workloads.slurm import values
from dfrs.workloads.slurm.records import Accounting, Record, Step

COLUMNS = (
    "JobID,JobIDRaw,User,Submit,Eligible,Start,End,ElapsedRaw,State,AllocCPUS,AllocNodes,NTasks,"
    "TimelimitRaw,ReqMem,MaxRSS,TotalCPU,AllocTRES"
)
"""Everything that is used, for `sacct --format`."""
_SHORTEST = 40

T = TypeVar("T")


class _Row:
    """A line; names of columns are in lower case."""

    def __init__(self, path: Path, line: int, cells: dict[str, str]) -> None:
        self.where = f"{path}:{line}"
        self.line = line
        self._cells = cells

    def text(self, *names: str) -> str:
        """The first of these columns that says something; "" where none does."""
        return next((cell for name in names if (cell := self._cells.get(name.lower(), ""))), "")

    def value(self, name: str, read: Callable[[str], T], absent: T) -> T:
        """The column's value, or `absent` where it is empty. Raises InputError, naming place, column, value, rule."""
        text = self.text(name)
        if not text:
            return absent
        try:
            return read(text)
        except ValueError as error:
            shown = text if len(text) <= _SHORTEST else text[:_SHORTEST] + "..."
            raise InputError(f'{self.where}: {name} = "{shown}": {error}') from None

    def refusal(self, name: str, rule: str) -> InputError:
        return InputError(f'{self.where}: {name} = "{self.text(name)}": {rule}')


def read_text_accounting(path: Path, text: str) -> Accounting:
    """The records of a file's `text`. Raises InputError, naming line, column, value and rule."""
    records: list[Record] = []
    last: dict[str, Record] = {}
    unix: bool | None = None
    for row in _rows(path, text):
        name, _, step = row.text("JobID").partition(".")
        if not name:
            raise row.refusal("JobID", "must name a job")
        if not step:
            this = row.text("Submit").isdecimal()
            if unix not in {None, this}:
                raise row.refusal("Submit", "must be as in the rows above: seconds since 1970, or date and time")
            unix = this
            last[name] = _record(row, name)
            records.append(last[name])
        elif name in last:
            last[name].steps.append(_step(row))
        else:
            raise row.refusal("JobID", "a step must stand below its job")
    return Accounting(source=str(path), name=path.stem, unix=bool(unix), records=tuple(records))


def _rows(path: Path, text: str) -> Iterator[_Row]:
    # Not `splitlines`: names may contain characters that it takes for ends of lines.
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if "|" not in lines[0]:
        raise InputError(f"{path}:1: no header with | between its columns: must be what sacct --parsable2 prints")
    # With --parsable, every line ends in the separator.
    end = "|" if lines[0].endswith("|") else ""
    header = [cell.strip().lower() for cell in lines[0].removesuffix(end).split("|")]
    for needed in ("JobID", "Submit", "Start", "End", "State"):
        if needed.lower() not in header:
            raise InputError(f"{path}:1: no column {needed}: must be what sacct -P --format={COLUMNS} prints")
    for alternatives in (("AllocCPUS", "NCPUS", "AllocTRES"), ("AllocNodes", "NNodes", "AllocTRES")):
        if not any(name.lower() in header for name in alternatives):
            raise InputError(f"{path}:1: no column {', '.join(alternatives[:-1])} or {alternatives[-1]}: must have one")
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        cells = line.removesuffix(end).split("|")
        if len(cells) != len(header):
            raise InputError(
                f"{path}:{number}: {len(cells)} columns: must be {len(header)} as in the header; "
                "leave out columns in which users write, as JobName"
            )
        yield _Row(path, number, dict(zip(header, map(str.strip, cells), strict=True)))


def _record(row: _Row, name: str) -> Record:
    submit = row.value("Submit", values.instant, None)
    if submit is None:
        raise row.refusal("Submit", "must be an instant: every job was submitted")
    start, end = row.value("Start", values.instant, None), row.value("End", values.instant, None)
    allocated = row.value("AllocTRES", values.tres, {})
    cpus = _first_count(row, ("AllocCPUS", "NCPUS"), allocated.get("cpu", ""))
    if start is not None and end is not None and end < start:
        # As in JSON: a job that was cancelled before it started may have a start that never came.
        if cpus:
            raise row.refusal("End", f"must not be before Start, {row.text('Start')}")
        start = None
    nodes = _first_count(row, ("AllocNodes", "NNodes"), allocated.get("node", ""))
    raw = row.text("JobIDRaw") or name
    between = 0.0 if start is None or end is None else end - start
    elapsed = row.value("Elapsed", values.duration, between)
    return Record(
        where=row.where,
        line=row.line,
        name=name,
        number=int(raw) if raw.isascii() and raw.isdigit() else None,
        # "CANCELLED by 1000"; where a column was too narrow, the state ends in +.
        state=row.text("State").partition(" ")[0].rstrip("+").upper(),
        user=row.text("User", "UID"),
        submit=submit,
        eligible=row.value("Eligible", values.instant, None),
        start=start,
        end=end,
        elapsed_s=row.value("ElapsedRaw", values.whole_seconds, elapsed),
        cpus=cpus,
        nodes=nodes,
        limit_s=row.value("TimelimitRaw", values.raw_time_limit, row.value("Timelimit", values.time_limit, None)),
        requested=_requested(row, cpus, nodes),
        cpu_s=row.value("TotalCPU", values.duration, 0.0),
        gpus="gres/gpu" in ",".join(allocated),
    )


def _first_count(row: _Row, names: tuple[str, ...], otherwise: str) -> int:
    """The count in the first of these columns that has one, or in AllocTRES, or 0."""
    name = next((name for name in names if row.text(name)), None)
    if name is not None:
        return row.value(name, values.count, 0)
    try:
        return values.count(otherwise) if otherwise else 0
    except ValueError as error:
        raise row.refusal("AllocTRES", str(error)) from None


def _requested(row: _Row, cpus: int, nodes: int) -> float | None:
    """Bytes for each node by ReqMem, or where that says nothing by ReqTRES or AllocTRES."""
    if not nodes:
        return None
    memory, per = row.value("ReqMem", values.requested_memory, (0.0, ""))
    if memory:
        return memory if per == "n" else memory * (cpus if per == "c" else 1) / nodes
    for name in ("ReqTRES", "AllocTRES"):
        found = row.value(name, values.tres, {}).get("mem", "")
        try:
            whole = values.amount(found, "M") if found else 0.0
        except ValueError as error:
            raise row.refusal(name, f"mem {error}") from None
        if whole:
            return whole / nodes
    return None


def _step(row: _Row) -> Step:
    nodes = max(row.value("NNodes", values.count, 0) or row.value("AllocNodes", values.count, 0), 1)
    return Step(
        start=row.value("Start", values.instant, None),
        end=row.value("End", values.instant, None),
        nodes=nodes,
        tasks=max(row.value("NTasks", values.count, 0), nodes),
        memory=row.value("MaxRSS", values.amount, 0.0),
        cpu_s=row.value("TotalCPU", values.duration, 0.0),
    )
