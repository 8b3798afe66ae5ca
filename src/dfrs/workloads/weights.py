"""A file of weights: which jobs, or whose jobs, matter more."""

import csv
import math
from pathlib import Path

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.jobs import Workload


def with_weights(workload: Workload, path: Path) -> Workload:
    """The workload with the weights of a CSV with columns job_id,weight or user,weight; others keep theirs.

    Raises InputError naming file, line, value and rule.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    header = [name.strip() for name in rows[0]] if rows else []
    if header not in (["job_id", "weight"], ["user", "weight"]):
        raise InputError(f"{path}:1: columns must be job_id,weight or user,weight")
    keys = workload.job_id if header[0] == "job_id" else workload.user
    weight = np.array(workload.weight)
    for line, row in enumerate(rows[1:], 2):
        if not row:
            continue
        try:
            key, value = int(row[0]), float(row[1])
        except (ValueError, IndexError):
            raise InputError(f'{path}:{line}: "{",".join(row)}": must be a number and a weight') from None
        if not (0 < value < math.inf):
            raise InputError(f"{path}:{line}: weight = {row[1]}: must be above 0 and finite")
        mine = keys == key
        if not mine.any():
            raise InputError(f"{path}:{line}: {header[0]} = {key}: there is no such {header[0]} in {workload.name}")
        weight[mine] = value
    return workload.with_columns(weight=weight)
