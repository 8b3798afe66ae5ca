"""`dfrs history`: jobs that have ended, and how well they were served."""

import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dfrs.cli.console import out, print_json, warn
from dfrs.cli.live.cluster import Json, live
from dfrs.cli.live.selecting import AccountOption
from dfrs.cli.live.usage import FIGURES, rows, usage_table
from dfrs.cli.quantities import parse_seconds, quoted, show_instant
from dfrs.cli.verbs import Verb
from dfrs.model.errors import InputError
from dfrs.model.text import visible

if TYPE_CHECKING:
    from dfrs.live.client import Client
    from dfrs.live.protocol.resources import Job

COLUMNS = (
    "id",
    "name",
    "user",
    "account",
    "state",
    "exit_code",
    "exit",
    "submitted_at",
    "started_at",
    "ended_at",
    "tasks",
    "cpu_cores",
    "memory_bytes",
    "cpu_s",
    "peak_bytes",
    "virtual_s",
    "stretch",
    "attempt",
)
"""Of the file that --csv prints: fields of a job by their names, and so with their units, in the API."""
FORMULAS = ("=", "+", "-", "@")
"""With these a cell begins that a spreadsheet computes."""


@live
def history(
    client: "Client",
    since: Annotated[
        str, typer.Option(help='Only those that ended in the last 30m, 24h, 7d, or since "2026-11-23 08:00".')
    ] = "24h",
    limit: Annotated[int | None, typer.Option(help="Only the last so many of them.", min=1, show_default=False)] = None,
    user: Annotated[str | None, typer.Option(help="Only this user's jobs.")] = None,
    account: AccountOption = None,
    by: Annotated[
        Literal["user", "account"] | None,
        typer.Option(help="Instead of jobs, what those of each user or account used together.", show_default=False),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="A table for a spreadsheet on standard output.")] = False,
    as_json: Json = False,
) -> None:
    """List jobs that have ended: how long they waited and ran, mean yield, stretch, exit.

    Stretch is the time in the system over the time it would have needed with all that it could use. From 120 columns on
    there are also the CPU time of all tasks together, and the most memory that one of them had.

    Examples:

        dfrs history --since 2h --limit 20

        dfrs history --since 30d --csv > jobs.csv

        dfrs history --since 30d --by account
    """
    from dfrs.cli.views.live import history_table

    if as_csv and as_json:
        raise InputError("--csv: is one form, and --json another: give one of them")
    cluster = client.cluster()
    now = cluster.now
    begin, words = _begin(since, now)
    jobs = [job for job in ended_since(client, begin, user) if account in {None, job.account}]
    jobs = jobs if limit is None else jobs[-limit:]
    if as_json:
        print_json([job.model_dump(mode="json") for job in jobs] if by is None else rows(jobs, by))
        return
    if cluster.jobs_pruned_until is not None and cluster.jobs_pruned_until >= begin:
        until = show_instant(cluster.jobs_pruned_until, now)
        warn(f"jobs that ended until {until} are no longer kept (dfrs serve --keep)")
    if by is not None and as_csv:
        _print_rows([by, *FIGURES], rows(jobs, by))
    elif by is not None and jobs:
        out.print(usage_table(rows(jobs, by), by))
    elif as_csv:
        _print_csv(jobs)
    elif jobs:
        out.print(history_table(jobs, now, out.width))
    else:
        out.print(f"no job ended {words}", markup=False)


def _begin(since: str, now: float) -> tuple[float, str]:
    """The wall clock from which on jobs are listed, and how that is said. Raises InputError."""
    try:
        if not since.isascii():
            raise ValueError
        instant = datetime.fromisoformat(since.strip()).timestamp()
    except (ValueError, OverflowError):
        return now - parse_seconds(since, "--since"), f"in the last {since}"
    if instant > now:
        raise InputError(f"--since: {quoted(since)}: must be over")
    return instant, f"since {since}"


def _print_csv(jobs: "Iterable[Job]") -> None:
    """A line a job; numbers that read back exactly, and empty cells for what is not known."""
    _print_rows(COLUMNS, (job.model_dump(mode="json", include=set(COLUMNS)) for job in jobs))


def _print_rows(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(columns)
    for fields in rows:
        table.writerow([_cell(fields[name]) for name in columns])


def _cell(value: object) -> object:
    """What is text stays text: names are other users' choice."""
    if not isinstance(value, str):
        return value
    shown = visible(value)
    return f"'{shown}" if shown.startswith(FORMULAS) else shown


def ended_since(client: "Client", since: float, user: str | None = None) -> "list[Job]":
    """Jobs that ended after that wall-clock time, in the order of their ends."""
    from dfrs.live.protocol.resources import ENDED

    found = client.all_jobs(user=user, states=ENDED, since=max(0.0, since))
    return sorted(found, key=lambda job: (job.ended_at or 0.0, job.id))


VERBS = (Verb(history),)
