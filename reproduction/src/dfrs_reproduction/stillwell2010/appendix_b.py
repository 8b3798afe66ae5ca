"""Appendix B as published: every number of Tables B.1 to B.6, of which Tables 5.2 and 6.1 are a part."""

import csv
from functools import cache
from importlib.resources import files
from typing import Literal

Table = Literal["B1", "B2", "B3", "B4", "B5", "B6"]

STATISTICS = ("mean", "std", "max")
"""Columns of B1 (HPC2N), B2 (unscaled) and B3 (scaled traces): degradation from bound."""
MOVES = ("pmtn_mean", "pmtn_max", "mig_mean", "mig_max")
"""Columns of B4 (GB/s), B5 (occurrences an hour) and B6 (a job), scaled traces of load 0.7 and more."""


@cache
def _rows() -> dict[str, dict[str, str]]:
    text = files(__package__ or "").joinpath("appendix_b.csv").read_text(encoding="utf-8")
    return {row["algorithm"]: row for row in csv.DictReader(text.splitlines())}


def algorithms() -> tuple[str, ...]:
    """FCFS, EASY and the 116 policies, in the tables' order."""
    return tuple(_rows())


def published(table: Table, column: str, algorithm: str) -> float | None:
    """The number of that table, column and row; None where the document has none (moves of FCFS and EASY)."""
    text = _rows()[algorithm][f"{table}_{column}"]
    return float(text) if text else None
