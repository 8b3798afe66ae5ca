"""What Tables 6.1 and B.4 to B.6 metric: bandwidth and frequency of preemptions and migrations."""

from collections.abc import Mapping

from dfrs.report.tables import TableCell
from dfrs_reproduction.metrics import ResultTable, mean_cell, quantile
from dfrs_reproduction.stillwell2010.appendix_b import MOVES, Table, published
from dfrs_reproduction.stillwell2010.policies import TOGETHER, known, origins

METRICS: Mapping[Table, tuple[str, str]] = {
    "B4": ("pause_and_resume_gb_per_s", "migration_gb_per_s"),
    "B5": ("pauses_per_hour", "migrations_per_hour"),
    "B6": ("pauses_per_job", "migrations_per_job"),
}
"""Columns of results for preemptions and migrations."""
MOVED = (
    "Bandwidth, with nodes of 8 GB: the memory of jobs written on a pause and read on a resume, and of those tasks of "
    "a migrated job that change node, over the time from the first submission to the last completion.",
    TOGETHER,
)
_HEADINGS = ("pmtn avg", "pmtn max", "mig avg", "mig max")


def cells(data: ResultTable, label: str, table: Table) -> list[TableCell]:
    """One policy's row: averages and maxima over traces."""
    row: list[TableCell] = []
    for k, (heading, column) in enumerate(zip(_HEADINGS, MOVES, strict=True)):
        values, theirs = data.column(label, METRICS[table][k // 2]), published(table, column, label)
        if k % 2 == 0:
            row.append(
                mean_cell(
                    values,
                    report=f"[Stillwell2010] Table {table}",
                    row=label,
                    metric=heading,
                    published=theirs,
                    clusters=origins(data),
                )
            )
            continue
        row.append(
            TableCell(
                row=label, metric=heading, measured=quantile(values, 1.0), instances=known(values), published=theirs
            )
        )
    return row
