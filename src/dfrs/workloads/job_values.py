"""A file of what jobs, or whose jobs, are like: weights, yields that they must have at least, check-points."""

import csv
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.jobs import LEAST_CHECKPOINT_S, Workload

KEYS = ("job_id", "user")
COLUMNS: Mapping[str, tuple[str, Callable[[float], bool], str]] = {
    "weight": ("weight", lambda value: 0 < value < math.inf, "must be above 0 and finite"),
    "min_yield": ("minimum_yield", lambda value: 0 <= value <= 1, "must be from 0 to 1"),
    "checkpoint_s": (
        "checkpoint_s",
        lambda value: value == 0 or LEAST_CHECKPOINT_S <= value < math.inf,
        f"must be 0, or at least {LEAST_CHECKPOINT_S:g} and finite",
    ),
}
"""By its name in the file: the column of a workload, and what a value must be."""


def with_job_values(workload: Workload, path: Path) -> Workload:
    """The workload with the values of a CSV with a column job_id or user, and one or more of COLUMNS; others keep
    theirs.

    Raises InputError naming file, line, value and rule.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    key, *names = [name.strip() for name in rows[0]] if rows else [""]
    if key not in KEYS or not names or len(set(names)) < len(names) or not set(names) <= set(COLUMNS):
        raise InputError(f"{path}:1: columns must be {' or '.join(KEYS)}, and of {', '.join(COLUMNS)} one or more")
    keys = workload.job_id if key == "job_id" else workload.user
    values = {name: np.array(getattr(workload, COLUMNS[name][0])) for name in names}
    seen: dict[int, int] = {}
    for line, row in enumerate(rows[1:], 2):
        if not row:
            continue
        try:
            who, *numbers = int(row[0]), *map(float, row[1:])
            if len(numbers) != len(names):
                raise ValueError
        except ValueError:
            words = " and ".join(name.replace("_", " ") for name in names)
            raise InputError(f'{path}:{line}: "{",".join(row)}": must be a number and a {words}') from None
        if who in seen:
            raise InputError(f"{path}:{line}: {key} = {who}: stands in line {seen[who]}, too")
        seen[who] = line
        for name, text, number in zip(names, row[1:], numbers, strict=True):
            _, holds, rule = COLUMNS[name]
            if not holds(number):
                raise InputError(f"{path}:{line}: {name} = {text}: {rule}")
        mine = keys == who
        if not mine.any():
            raise InputError(f"{path}:{line}: {key} = {who}: there is no such {key} in {workload.name}")
        for name, number in zip(names, numbers, strict=True):
            values[name][mine] = number
    return workload.with_columns(**{COLUMNS[name][0]: column for name, column in values.items()})
