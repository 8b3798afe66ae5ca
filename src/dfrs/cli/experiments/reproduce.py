"""`dfrs reproduce`: regenerate published tables and figures beside the published numbers."""

from collections.abc import Collection, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from dfrs.cli.console import err, out, print_json, warn
from dfrs.cli.experiments.running import Dask, DaskLocal, RetryFailed, Workers, opened_runner
from dfrs.cli.extras import require
from dfrs.cli.progress import progress
from dfrs.cli.quantities import show_count
from dfrs.cli.verbs import Verb
from dfrs.model.errors import InputError
from dfrs.model.writing import write_text

if TYPE_CHECKING:
    from dfrs.experiments.exhibits import PublishedExhibit, SampleSize
    from dfrs.experiments.runners import Runner
    from dfrs.experiments.spec import Campaign
    from dfrs.experiments.store import Store
    from dfrs.report.tables import Grid, TableReport


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(help="Tables and figures; * and ? are wildcards; all if none is named.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List what can be reproduced.")] = False,
    sample: Annotated[
        str | None,
        typer.Option(
            help="quick, standard, or the share of the document's instances that is run: 0.05.", show_default="standard"
        ),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="All instances of the document: days for some tables.")] = False,
    only_files: Annotated[
        bool, typer.Option("--only-files", help="Write the campaign files, and run nothing.")
    ] = False,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Directory for Markdown, CSV, PNG, campaign files and results.")
    ] = Path("out/reproduce"),
    workers: Workers = None,
    dask: Dask = None,
    dask_local: DaskLocal = None,
    retry_failed: RetryFailed = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
) -> None:
    """Regenerate published tables and figures, ours beside theirs, on a stated sample.

    Each is a campaign, whose file is written too. Results are kept in DIR/results: what was interrupted goes on, and
    asking again, or for another table of the same runs, costs nothing. A page replaces the one of its name in DIR;
    the index and the CSV files are of all pages there. Exit status 1 if a run failed.

    Examples:

        dfrs reproduce --list

        dfrs reproduce stillwell2010-table-5.2 --sample 0.05

        dfrs reproduce stillwell2010-table-5.2 --full --only-files -o campaigns

        dfrs reproduce 'stillwell2008-*' best-quality -o out/reproduce --dask tcp://10.0.0.1:8786
    """
    require("experiments")
    from dfrs.experiments.exhibits import find_exhibits

    exhibits = find_exhibits()
    chosen = exhibits.choose(names or [])
    if listed:
        _list(chosen, as_json)
        return
    if full and sample is not None:
        raise InputError("--sample and --full: give one of them")
    told = "full" if full else sample
    size = exhibits.parse_size("standard" if told is None else told)
    if only_files:
        _only_files(chosen, size, output, as_json)
        return
    _check_lists(output)
    with opened_runner(workers, dask, dask_local) as running:
        reports, failed = _reports(chosen, size, output, running, retry_failed)
    _write_lists(reports, size, [exhibit.name for exhibit in exhibits.choose([])], output)
    if as_json:
        from dfrs.report.tables import document

        print_json({"sample": size.name, "failed": failed, "reports": [document(report) for report in reports]})
    else:
        for report in reports:
            if names:
                _show(report)
        _summary(reports, output)
    if failed:
        warn(f"{failed} runs failed: the pages say why; --retry-failed runs them again")
        raise typer.Exit(1)


def _only_files(exhibits: "list[PublishedExhibit]", size: "SampleSize", output: Path, as_json: bool) -> None:
    files = {exhibit.name: _campaign_file(exhibit.campaign(size), output) for exhibit in exhibits}
    for name, file in files.items():
        if file is not None and (output / f"{name}.md").exists() and _read(file[0]) not in {"", file[1]}:
            raise InputError(
                f"{file[0]}: is what the page beside it was made from, and this would be another: write it elsewhere "
                "with -o DIR; nothing was written"
            )
    for file in files.values():
        if file is not None:
            _write(*file)
    if as_json:
        print_json({name: None if file is None else str(file[0]) for name, file in files.items()})
        return
    for name, file in files.items():
        told = f"{name}: left out, as its trace is not there" if file is None else str(file[0])
        out.print(told, markup=False, soft_wrap=True)


def _list(exhibits: "list[PublishedExhibit]", as_json: bool) -> None:
    if as_json:
        print_json([{"name": exhibit.name, "title": exhibit.title, "source": exhibit.source} for exhibit in exhibits])
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("name", "what", "source"):
        table.add_column(column, no_wrap=column == "name")
    for exhibit in exhibits:
        table.add_row(exhibit.name, exhibit.title, exhibit.source)
    out.print(table)


def _reports(
    exhibits: "list[PublishedExhibit]", size: "SampleSize", output: Path, running: "Runner", retry_failed: bool
) -> "tuple[list[TableReport], int]":
    """Run, and write each report as soon as it is there."""
    from dfrs.experiments.campaign_engine import CampaignEngine
    from dfrs.experiments.results import failed_runs, study_frame
    from dfrs.experiments.store import Store
    from dfrs.report.curves import draw
    from dfrs.report.dots import Dots, draw_dots
    from dfrs.report.tables import markdown

    campaigns = {exhibit.name: exhibit.campaign(size) for exhibit in exhibits}
    every = {run.key: run for campaign in campaigns.values() for run in campaign.runs}
    reports: list[TableReport] = []
    store = Store(output / "results")
    with closing(store), progress(len(every), counted=True) as (bar, task):
        engine = CampaignEngine(store, running, lambda count: bar.advance(task, count))
        left = dict(every)
        for exhibit in exhibits:
            bar.update(task, description=exhibit.name)
            mine = [left.pop(run.key) for run in campaigns[exhibit.name].runs if run.key in left]
            engine.run(mine, retry_failed=retry_failed)
            _complete(exhibit, campaigns[exhibit.name], store)
            report = exhibit.report(size, lambda study: study_frame(study, store))
            _write(output / f"{report.name}.md", markdown(report))
            file = _campaign_file(campaigns[exhibit.name], output)
            if file is not None:
                _write(*file)
            for picture in report.content.pictures:
                draw_dots(picture, output) if isinstance(picture, Dots) else draw(picture, output)
            reports.append(report)
        failed = len(failed_runs(list(every.values()), store))
    return reports, failed


def _complete(exhibit: "PublishedExhibit", campaign: "Campaign", store: "Store") -> None:
    """Raises InputError where a run has no result: a table compares configurations on the same scenarios."""
    known = {key for kind in campaign.kinds for key in store.known(kind)}
    lacking = sum(run.key not in known for run in campaign.runs)
    if lacking:
        raise InputError(f"{exhibit.name}: {lacking:,} runs have no result yet: run it without --retry-failed")


def _campaign_file(campaign: "Campaign", output: Path) -> tuple[Path, str] | None:
    """Where its file is to be, and what is in it; none where a trace that it would be of is not there."""
    from dfrs.experiments.spec_text import campaign_toml

    if not campaign.studies:
        return None
    return output / f"{campaign.name}.toml", campaign_toml(campaign)


def _check_lists(output: Path) -> None:
    """Raise InputError where `_write_lists` could only replace files that are none of its own."""
    from dfrs.report.tables import cells_csv, claims_csv, index

    title, there = index([], "").partition("\n")[0], _read(output / "README.md")
    if there and there.partition("\n")[0] != title:
        raise InputError(f"{output / 'README.md'}: is no index of reproduced tables: name another directory with -o")
    for file, none in (("cells.csv", cells_csv([])), ("claims.csv", claims_csv([]))):
        _merged(output / file, none, (), ())


def _write_lists(reports: "list[TableReport]", size: "SampleSize", names: list[str], output: Path) -> None:
    """The index and the CSV files, of all pages that are there: others may have been made before, of other samples."""
    from dfrs.report.tables import cells_csv, claims_csv, index, merged_index

    made = {report.name for report in reports}
    pages = [name for name in names if name in made or (output / f"{name}.md").exists()]
    _write(output / "README.md", merged_index(_read(output / "README.md"), index(reports, size.name), pages))
    for file, now in (("cells.csv", cells_csv(reports)), ("claims.csv", claims_csv(reports))):
        _write(output / file, _merged(output / file, now, made, pages))


def _merged(path: Path, now: str, made: Collection[str], pages: Sequence[str]) -> str:
    """`now` and what is there of other pages. Raises InputError where that has other columns."""
    from dfrs.report.tables import merged_csv

    try:
        return merged_csv(_read(path), now, made, pages)
    except ValueError as error:
        raise InputError(f"{path}: {error}: move it away, and ask again: no run is repeated") from None


def _read(path: Path) -> str:
    """What is in a file; nothing where there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from None


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot write: {error.strerror}") from None
    write_text(path, text)


def _show(report: "TableReport") -> None:
    out.print(f"[bold]{report.title}[/bold]")
    for sample in report.samples:
        out.print(sample, style="dim")
    if report.compared:
        out.print("measured (published)", style="dim")
    for grid in report.content.grids:
        _show_grid(grid)
    for claim in report.content.claims:
        sign = {True: "holds", False: "does not hold", None: "beside it"}[claim.holds]
        out.print(f"{sign}: {claim.claim}. Published: {claim.published}. Measured: {claim.measured}.", markup=False)
    out.print()


def _show_grid(grid: "Grid") -> None:
    """As many metrics beside each other as the terminal has room for."""
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


def _summary(reports: "list[TableReport]", output: Path) -> None:
    for report in reports:
        holding, decided = report.holding
        parts = [f"{report.compared} numbers compared"] if report.compared else []
        parts += [f"{holding} of {decided} claims hold"] if decided else []
        out.print(f"{output / report.name}.md  {'; '.join(parts)}", markup=False, soft_wrap=True)
    err.print(
        f"{output}: {show_count(len(reports), 'report')}, see README.md there",
        markup=False,
        style="dim",
        soft_wrap=True,
    )


VERBS = (Verb(reproduce),)
