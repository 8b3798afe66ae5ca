"""`dfrs reproduce`: regenerate published tables and figures beside the published numbers."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import err, out, print_json, progress
from dfrs.model.errors import InputError

if TYPE_CHECKING:
    from dfrs.campaigns.tables.item import Item
    from dfrs.campaigns.tables.sizes import Size
    from dfrs.report.tables import Grid, Report


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(help="Tables and figures; * and ? are wildcards; all if none is named.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List what can be reproduced.")] = False,
    sample: Annotated[
        str, typer.Option(help="quick, standard, full (days), or a number: so many times the standard.")
    ] = "standard",
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Directory for Markdown, CSV, PNG and the results of runs.")
    ] = Path("out/reproduce"),
    workers: Annotated[
        int | None, typer.Option(help="Processes; default: one a core. What is timed runs alone.", min=1)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
) -> None:
    """Regenerate published tables and figures, ours beside theirs, on a stated sample.

    Runs are kept in DIR/results: asking again, or for another table of the same runs, costs nothing.

    Examples:

        dfrs reproduce --list

        dfrs reproduce 000-table-4.4 --sample quick

        dfrs reproduce '001-*' best-quality -o out/reproduce --workers 2
    """
    from dfrs.campaigns.tables import choose
    from dfrs.campaigns.tables.sizes import parse_size

    items = choose(names or [])
    if listed:
        _list(items, as_json)
        return
    reports = _reports(items, parse_size(sample), output, workers or _cores())
    if as_json:
        from dfrs.report.tables import document

        print_json({"sample": sample, "reports": [document(report) for report in reports]})
        return
    for report in reports:
        if names:
            _show(report)
    _summary(reports, output)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _list(items: "list[Item]", as_json: bool) -> None:
    if as_json:
        print_json([{"name": item.name, "title": item.title, "source": item.source} for item in items])
        return
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("name", "what", "source"):
        table.add_column(column, no_wrap=column == "name")
    for item in items:
        table.add_row(item.name, item.title, item.source)
    out.print(table)


def _reports(items: "list[Item]", size: "Size", output: Path, workers: int) -> "list[Report]":
    """Run, and write each report as soon as it is there; the index and the CSV files of all at the end."""
    from dfrs.campaigns.runner import runner
    from dfrs.report.curves import draw
    from dfrs.report.tables import cells_csv, claims_csv, index, markdown

    studies = {study.key: study.runs for item in items for study in item.needs(size).values()}
    reports: list[Report] = []
    with (
        progress(sum(studies.values())) as (bar, task),
        runner(output / "results", workers, lambda runs: bar.advance(task, runs)) as running,
    ):
        for item in items:
            bar.update(task, description=item.name)
            report = item.report(size, running)
            _write(output / f"{report.name}.md", markdown(report))
            for picture in report.content.pictures:
                draw(picture, output)
            reports.append(report)
    _write(output / "README.md", index(reports, size.name))
    _write(output / "cells.csv", cells_csv(reports))
    _write(output / "claims.csv", claims_csv(reports))
    return reports


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot write: {error.strerror}") from None


def _show(report: "Report") -> None:
    out.print(f"[bold]{report.title}[/bold]")
    for sample in report.samples:
        out.print(sample, style="dim")
    if report.compared:
        out.print("measured (published)", style="dim")
    for grid in report.content.grids:
        _show_grid(grid)
    for claim in report.content.claims:
        sign = {True: "holds", False: "does not hold", None: "beside it"}[claim.holds]
        out.print(
            f"{sign}: {claim.claim}. Published: {claim.published}. Measured: {claim.measured}.", markup=False
        )  # fmt: skip
    out.print()


def _show_grid(grid: "Grid") -> None:
    """As many measures beside each other as the terminal has room for."""
    from rich.table import Table

    from dfrs.report.tables import brief_table

    heading, *rows = brief_table(grid)
    beside = max(1, (out.width - max(len(row[0]) for row in rows)) // 19)
    for start in range(1, len(heading), beside):
        columns = range(start, min(start + beside, len(heading)))
        table = Table(title=grid.title, title_justify="left", box=None, header_style="bold", pad_edge=False)
        table.add_column(heading[0], no_wrap=True)
        for k in columns:
            table.add_column(heading[k], justify="right", max_width=17)
        for row in rows:
            table.add_row(row[0], *(row[k] for k in columns))
        out.print(table)


def _summary(reports: "list[Report]", output: Path) -> None:
    for report in reports:
        holding, decided = report.holding
        parts = [f"{report.compared} numbers compared"] if report.compared else []
        parts += [f"{holding} of {decided} claims hold"] if decided else []
        out.print(f"{output / report.name}.md  {'; '.join(parts)}", markup=False, soft_wrap=True)
    err.print(f"{output}: {len(reports)} reports, see README.md there", markup=False, style="dim", soft_wrap=True)
