"""Files about nodes: their capacities, and when they fail, drain and come back."""

import csv
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.instance import Floats
from dfrs.model.nodes import Condition, NodeChange


def read_capacity(path: Path) -> Floats:
    """(N, 2) CPU and memory of each node, from a CSV with columns cpu and memory. Raises InputError."""
    rows = [
        [
            _number(path, line, name, row[name], lambda value: value >= 0, "a finite number of at least 0")
            for name in row
        ]
        for line, row in _rows(path, ("cpu", "memory"))
    ]
    if not rows:
        raise InputError(f"{path}: no node: must have at least one")
    return np.array(rows)


def read_hosts(path: Path) -> tuple[str, ...] | None:
    """(N,) the host of each node, from the same file's column host; None without such a column. Raises InputError."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            if "host" not in (csv.DictReader(file).fieldnames or ()):
                return None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    hosts: list[str] = []
    for line, row in _rows(path, ("host",)):
        if not row["host"]:
            raise InputError(f"{path}:{line}: host is empty: must be a name")
        hosts.append(row["host"])
    return tuple(hosts)


def read_node_events(path: Path) -> list[tuple[float, NodeChange]]:
    """(time, change) by time, from a CSV with columns time_s, node and condition. Raises InputError."""
    found: list[tuple[float, NodeChange]] = []
    for line, row in _rows(path, ("time_s", "node", "condition")):
        time_s = _number(path, line, "time_s", row["time_s"], lambda _: True, "a finite number")
        node = _number(path, line, "node", row["node"], lambda value: value >= 0 and value % 1 == 0, "a node's index")
        try:
            condition = Condition(row["condition"])
        except ValueError:
            raise InputError(f'{path}:{line}: condition = "{row["condition"]}": must be down, drain or up') from None
        found.append((time_s, NodeChange(int(node), condition)))
    return sorted(found, key=lambda pair: pair[0])


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            missing = [name for name in columns if name not in (reader.fieldnames or ())]
            if missing:
                raise InputError(f"{path}:1: no column {missing[0]}: must have {', '.join(columns)}")
            for row in reader:
                if None in row:
                    raise InputError(f"{path}:{reader.line_num}: has more cells than the header")
                yield reader.line_num, {name: (row[name] or "").strip() for name in columns}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _number(path: Path, line: int, name: str, text: str, holds: Callable[[float], bool], rule: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and holds(value)):
        raise InputError(f'{path}:{line}: {name} = "{text}": must be {rule}')
    return value
