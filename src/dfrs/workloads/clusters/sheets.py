"""Hosts and machines as spreadsheets have them: two CSV files, or one with the sections [hosts] and [machines].

Columns are found by name, whatever their order and case; a unit may stand in the name (`memory_gb`, `Memory (GB)`) or
in the cells (`16G`). Columns that are not known become labels, for rules.
"""

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dfrs.model.errors import InputError
from dfrs.workloads.clusters.records import Record, shown
from dfrs.workloads.clusters.state import ClusterState, Host, Machine, NeedRule, cluster_state
from dfrs.workloads.files import read_text

_NAMES = {
    "name": ("name", "vm", "vm name", "machine", "guest"),
    "host": ("host", "node", "hypervisor", "esx host"),
    "cpu": ("cpu", "cpus", "cores", "vcpu", "vcpus", "num cpu", "# cpu"),
    "memory": ("memory", "mem", "ram", "memory size"),
    "cpu_used": ("cpu used", "used cpu", "cpu usage", "used cores"),
    "used_share": ("used share", "cpu used share", "cpu share"),
    "minimum_yield": ("minimum yield", "min yield"),
    "move_cost": ("move cost",),
    "state": ("state", "status", "power state", "powerstate"),
    "maintenance": ("maintenance",),
    "fixed": ("fixed", "pinned"),
}
_KNOWN = {alias: name for name, aliases in _NAMES.items() for alias in aliases}
_UNIT = re.compile(r"(.*?)[\s(]+(k|m|g|t|%|percent)(?:i?b)?\)?$")
_PERCENT = ("%", "percent")
_UNITS = {"memory": ("K", "M", "G", "T"), "cpu_used": _PERCENT, "used_share": _PERCENT}
"""Those that a column may have."""
_OFF = {"off", "stopped", "poweredoff", "powered off", "shut off", "shutoff"}
_SECTIONS = ("hosts", "machines")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one section; each knows its file and line."""

    file: str
    source: str
    """File and line of its header."""
    columns: tuple[str, ...]
    units: dict[str, str]
    """By column: the unit its name gave it."""
    rows: tuple[Record, ...]


def read_tables(path: Path) -> list[Table]:
    """The tables of a file, at most one of hosts and one of machines. Raises InputError."""
    text = read_text(path)
    first = next((line for line in text.splitlines() if line.strip() and not _section(line)), "")
    delimiter = max(",;\t", key=first.count)
    parts: list[tuple[int, list[tuple[int, list[str]]]]] = [(1, [])]
    for number, line in enumerate(text.splitlines(), start=1):
        if _section(line):
            parts.append((number, []))
        elif line.strip(f" {delimiter}"):
            parts[-1][1].append((number, next(csv.reader([line], delimiter=delimiter))))
    tables = [_table(path, rows, delimiter) for _, rows in parts if rows]
    if not tables:
        raise InputError(f"{path}: no rows: must have a header and a row for each host or machine")
    return tables


def has_machines(table: Table) -> bool:
    """Whether the rows are machines: a host is no column of hosts."""
    return "host" in table.columns and "name" in table.columns


def read_sheets(paths: Sequence[Path], need: NeedRule) -> ClusterState:
    """The cluster of one file with both tables, or of two. Raises InputError: file, line, column, value and rule."""
    tables = [table for path in paths for table in read_tables(path)]
    machines = [table for table in tables if has_machines(table)]
    hosts = [table for table in tables if not has_machines(table)]
    files = ", ".join(str(path) for path in paths)
    if len(hosts) != 1 or len(machines) != 1:
        raise InputError(
            f"{files}: {len(hosts)} tables of hosts and {len(machines)} of machines: must be one of each, "
            "the machines' with the columns name and host"
        )
    off = [row for row in machines[0].rows if row.text("state", "").lower() in _OFF]
    notes = [f"{len(off)} of {len(machines[0].rows)} machines are off: left out"] if off else []
    running = [row for row in machines[0].rows if row not in off]
    return cluster_state(
        host_rows(hosts[0]), [_machine(row, machines[0]) for row in running], need, machines[0].file, notes
    )


def host_rows(table: Table) -> list[Host]:
    """The hosts of a table. Raises InputError."""
    name = "name" if "name" in table.columns else "host"
    _require(table, (name, "cpu", "memory"))
    return [
        Host(
            name=row.text(name),
            cores=row.number("cpu", above=0),
            memory_bytes=row.size("memory", table.units.get("memory", "")),
            empty=_yes(row, "maintenance"),
            labels=_labels(row, table),
        )
        for row in table.rows
    ]


def _machine(row: Record, table: Table) -> Machine:
    _require(table, ("cpu", "memory"))
    cores = row.number("cpu", above=0)
    minimum = row.number("minimum_yield", 0.0)
    if minimum > 1:
        raise InputError(f"{row.where}: minimum_yield = {shown(row.raw('minimum_yield'))}: must be at most 1")
    return Machine(
        name=row.text("name"),
        host=row.text("host", "") or None,
        cores=cores,
        memory_bytes=row.size("memory", table.units.get("memory", "")),
        used_cores=_used(row, table, cores),
        minimum_yield=minimum,
        move_cost=row.number("move_cost", 1.0),
        fixed="marked as fixed" if _yes(row, "fixed") else "",
        labels=_labels(row, table),
    )


def _used(row: Record, table: Table, cores: float) -> float | None:
    """Cores in use: a number of them, or a percentage or share of those that the machine has."""
    column = row.first("used_share", "cpu_used")
    if column not in row:
        return None
    text = row.text(column)
    if text.endswith("%") or table.units.get(column) in _PERCENT:
        bare = Record({column: text.removesuffix("%").strip()}, row.where)
        return bare.number(column) / 100.0 * cores
    used = row.number(column)
    return used * cores if column == "used_share" else used


def _yes(row: Record, column: str) -> bool:
    text = row.text(column, "no").lower()
    if text not in {"yes", "no", "true", "false", "1", "0", "x"}:
        raise InputError(f"{row.where}: {column} = {shown(row.raw(column))}: must be yes or no")
    return text in {"yes", "true", "1", "x"}


def _labels(row: Record, table: Table) -> dict[str, str]:
    return {column: row.text(column) for column in table.columns if column not in _NAMES and column in row}


def _require(table: Table, columns: Iterable[str]) -> None:
    for column in columns:
        if column not in table.columns:
            raise InputError(f"{table.source}: no column {column}: must have {', '.join(columns)}")


def _table(path: Path, rows: list[tuple[int, list[str]]], delimiter: str) -> Table:
    line, header = rows[0]
    columns: list[str] = []
    units: dict[str, str] = {}
    for cell in header:
        name, unit = _column(cell)
        if name in columns:
            raise InputError(f'{path}:{line}: column "{cell.strip()}": {name} stands twice')
        columns.append(name)
        if unit:
            if unit not in _UNITS.get(name, ()):
                rule = f"be one of {', '.join(_UNITS[name])}" if name in _UNITS else "not be there"
                raise InputError(f'{path}:{line}: column "{cell.strip()}": a unit of {name} must {rule}')
            units[name] = unit
    records: list[Record] = []
    for number, row in rows[1:]:
        if len(row) != len(columns):
            raise InputError(f"{path}:{number}: {len(row)} cells: must be {len(columns)} as in the header")
        cells = {column: _cell(column, cell, delimiter) for column, cell in zip(columns, row, strict=True)}
        records.append(Record(cells, f"{path}:{number}"))
    if not records:
        raise InputError(f"{path}:{line}: a header without rows: must have a row for each host or machine")
    return Table(file=str(path), source=f"{path}:{line}", columns=tuple(columns), units=units, rows=tuple(records))


def _column(cell: str) -> tuple[str, str]:
    """Name and unit of a column: `Memory (GB)` is memory in G; a label keeps its name."""
    plain = cell.strip().lower().replace("_", " ")
    found = _UNIT.fullmatch(plain)
    if found is not None and found[1].strip() in _KNOWN:
        return _KNOWN[found[1].strip()], found[2].upper() if len(found[2]) == 1 and found[2] != "%" else found[2]
    return _KNOWN.get(plain, cell.strip()), ""


def _cell(column: str, cell: str, delimiter: str) -> str:
    value = cell.strip()
    # Where semicolons separate, a comma is the decimal point.
    return (
        value.replace(",", ".") if delimiter == ";" and column in _NAMES and column not in {"name", "host"} else value
    )


def _section(line: str) -> bool:
    return line.strip().strip(",;\t").lower() in {f"[{name}]" for name in _SECTIONS}
