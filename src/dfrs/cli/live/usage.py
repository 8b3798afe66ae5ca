"""What ended jobs used, added up for each user or account."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from dfrs.cli.quantities import show_seconds
from dfrs.model.text import visible

if TYPE_CHECKING:
    from rich.table import Table

    from dfrs.live.protocol.resources import Job

FIGURES = ("jobs", "done", "failed", "cancelled", "cpu_s")
"""Of each row: numbers of jobs, and their CPU time."""
NONE = "(none)"
"""In a table: jobs that are charged to no account."""


def rows(jobs: "Iterable[Job]", by: Literal["user", "account"]) -> list[dict[str, Any]]:
    """A row for each user or account, who used most CPU first: `by` (None: no account) and `FIGURES`.

    A job that began anew counts with its last attempt, as the job itself does.
    """
    found: dict[str | None, dict[str, Any]] = {}
    for job in jobs:
        payer = job.user if by == "user" else job.account
        row = found.setdefault(payer, {by: payer} | dict.fromkeys(FIGURES, 0))
        row["jobs"] += 1
        row[job.state.value] += 1
        row["cpu_s"] += job.cpu_s
    return sorted(found.values(), key=lambda row: (-row["cpu_s"], row[by] or ""))


def usage_table(rows: Sequence[Mapping[str, Any]], by: str) -> "Table":
    """The rows as text, and their sum."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column(by)
    for heading in ("jobs", "done", "failed", "cancelled", "cpu"):
        table.add_column(heading, justify="right", no_wrap=True)
    total: dict[str, Any] = {by: "all"} | {name: sum(row[name] for row in rows) for name in FIGURES}
    for row in [*rows, total] if len(rows) > 1 else rows:
        counts = [str(row[name]) for name in FIGURES[:4]]
        table.add_row(Text(visible(row[by] or NONE)), *counts, show_seconds(row["cpu_s"]))
    return table
