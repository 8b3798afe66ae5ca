"""`dfrs compare`: runs side by side, the best of each workload in bold."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from dfrs.cli.console import out, out_of, print_json, warn
from dfrs.cli.simulate.requested_metrics import Requested, add_metrics, parse_limits, show_metrics, show_trim
from dfrs.cli.verbs import Verb
from dfrs.model.errors import InputError

Runs = list[dict[str, Any]]
Columns = Sequence[tuple[str, str, str, Callable[[Sequence[float]], float] | None]]
"""Title, metric, format, and what is best; the last ones go first where a terminal is narrow."""

COLUMNS: Columns = (
    ("jobs", "jobs_finished", ",.0f", None),
    ("max\nstretch", "stretch_max", ",.2f", min),
    ("x\nbound", "degradation_from_bound", ",.2f", min),
    ("mean\nstretch", "stretch_mean", ",.2f", min),
    ("mean\nwait s", "wait_mean_s", ",.0f", min),
    ("slow-\ndown", "slowdown", ",.2f", min),
    ("on\ntime", "on time", ".0%", max),
    ("mean\ndelay s", "dedicated_delay_mean_s", ",.0f", min),
    ("com-\nmands", "commands", ",.0f", None),
    ("gran-\nted", "commands granted", ",.0f", None),
    ("min\nyield", "minimum_yield_mean", ".3f", max),
    ("CPU", "cpu_utilisation", ".1%", max),
    ("pauses\na job", "pauses_per_job", ",.2f", min),
    ("moves\na job", "migrations_per_job", ",.2f", min),
    ("GB/s", "GB/s", ",.3f", min),
    ("bounded\nmax", "bounded_stretch_max", ",.2f", min),
    ("bounded\nmean", "bounded_stretch_mean", ",.2f", min),
)
BESIDE_TRUTH: Columns = (
    ("mean\nwait s", "wait_mean_s", ",.0f", min),
    ("95 %\nwait s", "wait_p95_s", ",.0f", min),
    ("bounded\nmean", "bounded_stretch_mean", ",.2f", min),
    ("bounded\nmax", "bounded_stretch_max", ",.2f", min),
    ("min\nyield", "minimum_yield_mean", ".3f", max),
    ("CPU", "cpu_utilisation", ".1%", max),
    ("makespan\ns", "makespan_s", ",.0f", min),
    ("jobs", "jobs_finished", ",.0f", None),
)
"""What a site wants to know first, where the runs replay what another scheduler did."""
TRUTH = "as it was"
"""What is shown in place of a policy for that scheduler; its metrics are in the configuration of the runs."""


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run directories, or directories above them.", show_default=False),
    ],
    trim: Annotated[
        str | None,
        typer.Option(
            metavar="WARM-UP:COOL-DOWN",
            help="Leave out the first and the last jobs: shares or times, as 10%:5% or 2d:12h.",
            show_default=False,
        ),
    ] = None,
    confidence: Annotated[
        bool, typer.Option("--confidence", help="Means with confidence intervals, by batch means.")
    ] = False,
    batches: Annotated[int | None, typer.Option(help="Number of batches for --confidence.", show_default="20")] = None,
    classes: Annotated[
        bool, typer.Option("--classes", help="Mean bounded stretch by class of size and run time.")
    ] = False,
    sizes: Annotated[str | None, typer.Option(help="Limits of the classes, in tasks.", show_default="1,8,32")] = None,
    times: Annotated[
        str | None, typer.Option(help="Limits of the classes, in run time.", show_default="10m,1h,8h")
    ] = None,
    users: Annotated[bool, typer.Option("--users", help="How equally users are treated.")] = False,
    lost: Annotated[bool, typer.Option("--lost", help="What becomes of the CPU: shares that add up to 1.")] = False,
    power: Annotated[
        str | None,
        typer.Option(
            metavar="IDLE:BUSY[:OFF]",
            help="Energy, with these watts of a node; with OFF, empty nodes are switched off.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
) -> None:
    """Compare runs: for each workload a row a policy, by maximum stretch, the best of each column in bold.

    "x bound" is the maximum stretch over its lower bound, where the run knows that; "min yield" is the smallest yield
    of a running job, averaged over time; "GB/s" is the memory moved by pauses, resumes and migrations; "bounded max" is
    the maximum stretch with both times at least 10 s, "bounded mean" their mean. Where there are dedicated jobs or
    commands, "on time" is the share of dedicated jobs that started at their requested start, "mean delay" how late they
    started, "granted" how many commands were granted, and "slowdown" (mean wait + mean run time) / mean run time. Where
    the jobs come from the accounting of another scheduler, "as it was" is what that made of them. Of the
    runs below a directory, those that cannot be read are left out, with a line on standard error. A narrow terminal
    shows the first columns; --json shows all.

    Examples:

        dfrs compare out/EASY out/GreedyPM+_per_OPT=MIN_MVT=600

        dfrs compare out --trim 10%:10% --confidence --classes

        dfrs compare out --lost --users --power 100:250:0
    """
    given = _requested(trim, (confidence, batches), (classes, sizes, times), power)
    requested = replace(given, users=users, lost=lost)
    rows = _read(runs)
    add_metrics(rows, requested)
    rows.sort(key=_order)
    if as_json:
        print_json(rows)
        return
    show_trim(rows)
    show_runs(rows)
    show_metrics(_with_replays(rows), requested)


def _requested(
    trim: str | None,
    intervals: tuple[bool, int | None],
    classes: tuple[bool, str | None, str | None],
    power: str | None,
) -> Requested:
    """What these options ask for."""
    from dfrs.runs.metrics.batch_means import BATCHES
    from dfrs.runs.metrics.energy import PowerModel
    from dfrs.runs.metrics.window import Trim

    confidence, batches = intervals
    wanted, sizes, times = classes
    try:
        return Requested(
            trim=None if trim is None else Trim.parse(trim),
            batches=BATCHES if confidence and batches is None else batches,
            classes=parse_limits(sizes, times) if wanted or sizes is not None or times is not None else None,
            power=None if power is None else PowerModel.parse(power),
        )
    except InputError as error:
        text = str(error)
        raise InputError(text if text.startswith("--") else f"--{text}") from None


def show_runs(rows: Runs, columns: Columns = COLUMNS) -> None:
    """A table of the summaries of runs, by workload and then by maximum stretch."""
    rows = sorted(_with_truth(_with_replays(rows)), key=_order)
    shown = [c for c in columns if any(_metric(row, c[1]) is not None for row in rows)]
    table = _table(rows, shown)
    console = out_of(_width(table))
    while _width(table) > console.width and len(shown) > 1:
        shown.pop()
        table = _table(rows, shown)
    console.print(table)


def _with_replays(rows: Runs) -> Runs:
    """Rows in which an exported run and the replays of its jobs are of one workload: they differ by estimates at most.

    That is what the batch policies of a replay are told, and the users of a live cluster need not say.
    """
    replayed = {_but_for_estimates(row): row["workload"] for row in rows if not row["configuration"].get("live")}
    return [
        {**row, "workload": replayed.get(_but_for_estimates(row), row["workload"])}
        if row["configuration"].get("live")
        else row
        for row in rows
    ]


def _with_truth(rows: Runs) -> Runs:
    """Rows, and one more for each workload of which they say what it was under the scheduler that it comes from.

    That is said of all jobs: beside trimmed runs it is left out.
    """
    found = {_workload(row): row for row in rows if row["configuration"].get("as_it_was") and "trim" not in row}
    return rows + [
        {**row, "policy": TRUTH, "complete": True, "configuration": {}, "metrics": row["configuration"]["as_it_was"]}
        for row in found.values()
    ]


def _but_for_estimates(row: dict[str, Any]) -> tuple[object, ...]:
    return tuple(row["workload"].get(name) for name in ("name", "jobs", "nodes", "load"))


def _width(table: Table) -> int:
    """Columns it takes if nothing is cut."""
    return out.measure(table, options=out.options.update(width=10_000)).maximum


def _table(rows: Runs, columns: Columns) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("policy", no_wrap=True, vertical="bottom")
    for title, *_ in columns:
        table.add_column(title, justify="right", no_wrap=True)
    several = len({_workload(row) for row in rows}) > 1
    before = None
    for row in rows:
        group = [other for other in rows if _workload(other) == _workload(row)]
        if several and _workload(row) != before:
            before = _workload(row)
            table.add_row(_escaped(row["workload"]["name"]))
        mark = "" if row["complete"] else " (interrupted)"
        mark += " (live)" if row["configuration"].get("live") else ""
        cells = [_cell(row, group, metric, form, best) for _, metric, form, best in columns]
        table.add_row("  " * several + _escaped(row["policy"] + mark), *cells)
    return table


def _read(paths: list[Path]) -> Runs:
    """The summaries of all runs, by workload and then by maximum stretch."""
    from dfrs.runs.directory import read_summary
    from dfrs.runs.validator.runs import run_directories

    looked = [run_directories(path) for path in paths]
    found = dict.fromkeys(directory for directories, _ in looked for directory in directories)
    rows: Runs = []
    unread = [error for _, errors in looked for error in errors.values()]
    for directory in found:
        try:
            rows.append({"run": str(directory), **_checked(directory / "summary.json", read_summary(directory))})
        except InputError as error:
            if directory in paths:
                raise
            unread.append(error)
    if not rows:
        raise unread[0]
    # A run that was cut off while it was written, or is another user's, keeps no other from being shown.
    for error in unread:
        warn(f"left out: {error}")
    return sorted(rows, key=_order)


def _checked(path: Path, summary: dict[str, Any]) -> dict[str, Any]:
    """What is shown of a summary. Raises InputError where it lacks that."""
    kinds = {"policy": str, "complete": bool, "workload": dict, "seed": int, "configuration": dict, "metrics": dict}
    for name, kind in kinds.items():
        if not isinstance(summary.get(name), kind):
            raise InputError(f"{path}: {name} = {summary.get(name)!r}: must be of type {kind.__name__}")
    for name in ("name", "sha256"):
        if not isinstance(summary["workload"].get(name), str):
            raise InputError(f"{path}: workload.{name} = {summary['workload'].get(name)!r}: must be text")
    for name, value in summary["metrics"].items():
        if value is not None and not isinstance(value, int | float):
            raise InputError(f"{path}: metrics.{name} = {value!r}: must be a number or null")
    return {name: summary[name] for name in kinds}


def _order(row: dict[str, Any]) -> tuple[object, ...]:
    value = _metric(row, "degradation_from_bound")
    value = _metric(row, "stretch_max") if value is None else value
    return (
        *_workload(row),
        row["policy"] != TRUTH,
        not row["complete"],
        float("inf") if value is None else value,
        row["policy"],
    )


def _workload(row: dict[str, Any]) -> tuple[str, str]:
    return row["workload"]["name"], row["workload"]["sha256"]


def _metric(row: dict[str, Any], name: str) -> float | None:
    metrics = row["metrics"]
    if name == "GB/s":
        parts = [metrics.get("pause_and_resume_gb_per_s"), metrics.get("migration_gb_per_s")]
        return None if None in parts else sum(parts)
    if name == "on time":
        jobs = metrics.get("dedicated_jobs")
        return metrics.get("dedicated_on_time", 0) / jobs if jobs else None
    if name in {"commands", "commands granted"}:
        return metrics.get(name.replace(" ", "_")) if metrics.get("commands") else None
    if name == "slowdown":
        elastic = metrics.get("dedicated_jobs") or metrics.get("commands")
        return metrics.get("slowdown_of_means") if elastic else None
    return metrics.get(name)


def _cell(
    row: dict[str, Any], group: Runs, metric: str, form: str, best: Callable[[Sequence[float]], float] | None
) -> str:
    value = _metric(row, metric)
    if value is None:
        return ""
    text = format(value, form)
    # An interrupted run has only its early jobs behind it, and is no rival.
    known = [v for v in (_metric(other, metric) for other in group if other["complete"]) if v is not None]
    wins = best is not None and row["complete"] and len(set(known)) > 1 and value == best(known)
    return f"[bold]{text}[/bold]" if wins else text


def _escaped(text: str) -> str:
    return escape(text)


VERBS = (Verb(compare),)
