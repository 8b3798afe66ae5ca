"""Files about nodes: their capacities, and when they fail, drain and come back."""

import csv
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.instance import Floats
from dfrs.model.nodes import Condition, NodeChange

_SIZE = ("cpu", "memory")

_Row = tuple[int, dict[str, str]]
"""A line's number, and its cells by column."""


def read_capacity(path: Path) -> Floats:
    """(N, 2) CPU and memory of each node, from a CSV with columns cpu and memory. Raises InputError."""
    return _capacity(path, list(_rows(path, _SIZE)))


def read_nodes(path: Path) -> tuple[Floats, tuple[str, ...] | None]:
    """`read_capacity`, and (N,) the host of each node from the file's column host; None without such a column.

    By one pass over the file, which may be a pipe. Raises InputError.
    """
    rows = list(_rows(path, _SIZE, optional=("host",)))
    hosts = tuple(row["host"] for _, row in rows if "host" in row)
    if "" in hosts:
        raise InputError(f"{path}:{rows[hosts.index('')][0]}: host is empty: must be a name")
    return _capacity(path, rows), hosts or None


def _capacity(path: Path, rows: list[_Row]) -> Floats:
    if not rows:
        raise InputError(f"{path}: no node: must have at least one")
    return np.array(
        [
            [
                _number(path, line, name, row[name], lambda value: value >= 0, "a finite number of at least 0")
                for name in _SIZE
            ]
            for line, row in rows
        ]
    )


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


def _rows(path: Path, columns: tuple[str, ...], optional: tuple[str, ...] = ()) -> Iterator[_Row]:
    """The rows, with the cells of `columns` and of those of the `optional` ones that are there. Raises InputError."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            missing = [name for name in columns if name not in (reader.fieldnames or ())]
            if missing:
                raise InputError(f"{path}:1: no column {missing[0]}: must have {', '.join(columns)}")
            names = (*columns, *(name for name in optional if name in (reader.fieldnames or ())))
            for row in reader:
                if None in row:
                    raise InputError(f"{path}:{reader.line_num}: has more cells than the header")
                yield reader.line_num, {name: (row[name] or "").strip() for name in names}
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
