"""`dfrs campaign`: thousands of runs from one file, on this machine or a cluster; what is done is never lost."""

import io
import shutil
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import err, out, print_json, warn
from dfrs.cli.experiments.campaign_tables import duration, results_document, show_results, show_status
from dfrs.cli.experiments.running import Dask, DaskLocal, RetryFailed, Workers, opened_runner
from dfrs.cli.extras import require
from dfrs.cli.progress import progress
from dfrs.cli.verbs import Verb
from dfrs.model.errors import InputError
from dfrs.model.writing import write_bytes

if TYPE_CHECKING:
    import polars as pl

    from dfrs.experiments.estimate import Estimate
    from dfrs.experiments.planned_runs import PlannedRun
    from dfrs.experiments.results import Progress
    from dfrs.experiments.spec import Campaign
    from dfrs.experiments.store import Store
    from dfrs.experiments.summary import Summaries

SOME_FAILED = 1

app = typer.Typer(help="Run many simulations or allocations.", no_args_is_help=True, rich_markup_mode="rich")

File = Annotated[Path, typer.Argument(help="Campaign file (TOML).", show_default=False)]
StoreAt = Annotated[
    Path | None, typer.Option("--store", help="Directory of results; default: FILE without .toml, with .results.")
]
MetricNames = Annotated[
    list[str] | None, typer.Option("--measure", "-m", help="Column to summarise; several times for several.")
]
Baseline = Annotated[
    str | None, typer.Option(help="Configuration that the others are compared with; default: the first.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]


@app.command("run")
def run(
    file: File,
    store: StoreAt = None,
    workers: Workers = None,
    dask: Dask = None,
    dask_local: DaskLocal = None,
    retry_failed: RetryFailed = False,
    as_json: AsJson = False,
) -> None:
    """Execute the runs of a campaign that have no result yet. Interrupted or killed, the same command goes on.

    A run that fails is recorded with its message and does not stop the others. Exit status 1 if any failed.

    Examples:

        dfrs campaign run loads.toml

        dfrs campaign run loads.toml --dask tcp://10.0.0.1:8786
    """
    from dfrs.experiments.campaign_engine import CampaignEngine
    from dfrs.experiments.spec import read_campaign

    campaign = read_campaign(file)
    if campaign.keep_runs and any(kind.saves for kind in campaign.kinds):
        require("plot")
    started_s = time.monotonic()
    with (
        closing(_store(file, store)) as results,
        opened_runner(workers, dask, dask_local) as runner,
        progress(len(campaign.runs), counted=True) as (bar, task),
    ):
        bar.update(task, description=campaign.name)
        engine = CampaignEngine(results, runner, lambda count: bar.advance(task, count), keep_runs=campaign.keep_runs)
        tally = engine.run(campaign.runs, retry_failed=retry_failed)
        where = results.directory
    seconds = time.monotonic() - started_s
    if as_json:
        print_json(
            {
                "campaign": campaign.name,
                "cells": tally.runs,
                "kept": tally.known,
                "run": tally.executed,
                "failed": tally.failed,
                "store": str(where),
            }
        )
    else:
        rate = f", {tally.executed / seconds:,.1f} a second" if tally.executed and seconds > 0 else ""
        err.print(
            f"{campaign.name}: {tally.runs:,} runs, {tally.known:,} were there, {tally.executed:,} executed in "
            f"{duration(seconds)}{rate}; results in {where}",
            markup=False,
            soft_wrap=True,
        )
    if tally.failed:
        warn(f"{tally.failed} of {tally.runs} runs failed: dfrs campaign status {file} says why")
        raise typer.Exit(SOME_FAILED)


@app.command("status")
def status(
    file: File,
    store: StoreAt = None,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Say how long the whole takes; executes a few runs of each kind first.")
    ] = False,
    workers: Workers = None,
    runs: Annotated[bool, typer.Option("--runs", "--cells", help="List every run: key, state, name.")] = False,
    as_json: AsJson = False,
) -> None:
    """What of a campaign is done, what failed and why, and how long the rest takes.

    Example: dfrs campaign status loads.toml --estimate
    """
    from dfrs.experiments.results import failed_runs, progress_of
    from dfrs.experiments.spec import read_campaign

    campaign = read_campaign(file)
    with closing(_store(file, store)) as results:
        found = _estimated(campaign, results, workers) if estimate else None
        states = [progress_of(study, results) for study in campaign.studies]
        failed = failed_runs(campaign.runs, results)
        known = {key: bad for kind in campaign.kinds for key, bad in results.known(kind).items()}
        others = [path.name for kind in campaign.kinds for path in results.others(kind)]
    if as_json:
        named = [{"key": run.key, "cell": run.name, "state": _state(run, known)} for run in campaign.runs]
        print_json(
            {
                "campaign": campaign.name,
                "studies": [_progress_document(state) for state in states],
                "failed": [{"key": run.key, "cell": run.name, "message": message} for run, message in failed],
                "estimate": None if found is None else _estimate_document(*found),
                "results_of_other_code": others,
            }
            | ({"cells": named} if runs else {})
        )
        return
    show_status(states, failed)
    if runs:
        for run in campaign.runs:
            out.print(f"{run.key} {_state(run, known):6} {run.name}", markup=False, soft_wrap=True)
    if found is not None:
        _tell_estimate(*found)
    if others:
        err.print(f"not used, of other code: {', '.join(others)}", markup=False, style="dim", soft_wrap=True)


def _progress_document(state: "Progress") -> dict[str, object]:
    return {
        "study": state.study,
        "cells": state.runs,
        "done": state.done,
        "failed": state.failed,
        "seconds": state.seconds,
    }


def _state(run: "PlannedRun", known: dict[str, bool]) -> str:
    return {None: "to do", False: "done", True: "failed"}[known.get(run.key)]


@app.command("results")
def results(
    file: File,
    store: StoreAt = None,
    metrics: MetricNames = None,
    baseline: Baseline = None,
    as_json: AsJson = False,
) -> None:
    """Means with 95 % bootstrap intervals, and how configurations compare on the same scenarios.

    Example: dfrs campaign results loads.toml -m bounded_stretch_mean --baseline EASY
    """
    from dfrs.experiments.spec import read_campaign

    campaign = read_campaign(file)
    with closing(_store(file, store)) as opened:
        summaries = _summaries(campaign, file, opened, metrics, baseline)
        if as_json:
            print_json(results_document(summaries))
            return
        show_results(summaries)


@app.command("export")
def export(
    file: File,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write: .html, .csv or .parquet.")],
    store: StoreAt = None,
    metrics: MetricNames = None,
    baseline: Baseline = None,
    times: Annotated[bool, typer.Option("--times", help="In a table: how long each run took, too.")] = False,
) -> None:
    """Write the report (.html: one file with tables, curves and every run) or the table of all results.

    Without --times, the same results give the same bytes.

    Examples:

        dfrs campaign export loads.toml -o loads.html

        dfrs campaign export loads.toml -o loads.parquet --times
    """
    from dfrs.experiments.results import TIMES, campaign_frame
    from dfrs.experiments.spec import read_campaign
    from dfrs.report.campaign_page import write_campaign_page

    ending = output.suffix.lower()
    if ending not in {".html", ".csv", ".parquet"}:
        raise InputError(f"{output}: the ending must be .html, .csv or .parquet")
    campaign = read_campaign(file)
    with closing(_store(file, store)) as opened:
        summaries = _summaries(campaign, file, opened, metrics, baseline)
        if ending == ".html":
            page = summaries.page(file, output.parent)
            write_campaign_page(page, output)
            told = f"report of {len(page.runs):,} runs"
        else:
            frame = campaign_frame(summaries.campaign, opened)
            frame = frame if times else frame.drop(TIMES, strict=False)
            write_bytes(output, _table_bytes(frame, ending))
            told = f"{len(frame):,} results"
    err.print(f"{output}: {told}", markup=False, style="dim", soft_wrap=True)


@app.command("show")
def show(
    file: File,
    run: Annotated[str, typer.Argument(help="Key of a run, or the beginning of it.", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Directory for the run; default: out/cells/KEY.")
    ] = None,
) -> None:
    """Repeat one run and save it: its directory with log, metrics and a page, or its allocation.

    Runs of scenes and streams are nothing but their results: they cannot be shown.

    Example: dfrs campaign show loads.toml 3f9a
    """
    from dfrs.experiments.planned_runs import FAILED, Work, perform, source_digest
    from dfrs.experiments.spec import read_campaign
    from dfrs.experiments.store import front

    campaign = read_campaign(file)
    chosen = _run_named(campaign, file, run)
    if not chosen.kind.saves:
        raise InputError(
            f"{file}: run {chosen.key}: has nothing to show but its results: dfrs campaign export {file} -o results.csv"
        )
    require("plot")
    made = Path("out/cells") / chosen.key if output is None else output
    if output is not None and made.exists():
        raise InputError(f"{made}: is there already: choose another directory")
    try:
        made.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=made.parent) as temporary:
            row = perform(Work(runs=(chosen,), source=source_digest(chosen.kind.code), save_in=Path(temporary)))[0]
            if row["status"] != FAILED:
                shutil.rmtree(made, ignore_errors=True)
                (Path(temporary) / chosen.key).rename(made)
    except OSError as error:
        raise InputError(f"{made}: cannot write: {error.strerror}") from None
    err.print(chosen.name, markup=False, soft_wrap=True, style="dim")
    if row["status"] == FAILED:
        warn(f"failed: {row['message']}")
        raise typer.Exit(SOME_FAILED)
    out.print(f"{front(made) or made}", markup=False, soft_wrap=True)


def _store(file: Path, store: Path | None) -> "Store":
    from dfrs.experiments.store import Store

    return Store(file.with_suffix(".results") if store is None else store)


def _summaries(
    campaign: "Campaign", file: Path, store: "Store", metrics: list[str] | None, baseline: str | None
) -> "Summaries":
    from dfrs.experiments.results import failed_runs
    from dfrs.experiments.spec import check_baseline, check_columns
    from dfrs.experiments.summary import Summaries

    check_columns(campaign, metrics or (), "--measure")
    check_baseline(campaign, baseline, "--baseline")
    known = {key for kind in campaign.kinds for key in store.known(kind)}
    there = sum(run.key in known for run in campaign.runs)
    if not there:
        others = any(store.others(kind) for kind in campaign.kinds)
        told = ", but some of other code" if others else ""
        raise InputError(f"{store.directory}: holds no results of this campaign{told}: dfrs campaign run {file}")
    if there < len(campaign.runs):
        warn(f"{len(campaign.runs) - there:,} of {len(campaign.runs):,} runs have no result yet")
    if failed := failed_runs(campaign.runs, store):
        warn(f"{len(failed):,} runs failed: dfrs campaign status {file} says why")
    return Summaries(campaign, store, metrics=metrics or (), baseline=baseline)


def _run_named(campaign: "Campaign", file: Path, text: str) -> "PlannedRun":
    matching = [run for run in campaign.runs if run.key.startswith(text) or run.name == text]
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise InputError(
            f'{file}: run "{text}": no key begins like that; dfrs campaign status {file} --runs lists them'
        )
    raise InputError(f'{file}: run "{text}": {len(matching)} keys begin like that')


def _estimated(campaign: "Campaign", store: "Store", workers: int | None) -> "tuple[Estimate, int]":
    from dfrs.experiments.campaign_engine import CampaignEngine
    from dfrs.experiments.estimate import estimate, probes
    from dfrs.experiments.runners import cores

    chosen = probes(campaign, store)
    with (
        opened_runner(workers, None, None) as runner,
        progress(len(chosen), visible=bool(chosen), counted=True) as (bar, task),
    ):
        bar.update(task, description="measuring")
        CampaignEngine(store, runner, lambda count: bar.advance(task, count)).run(chosen)
    return estimate(campaign, store), workers or cores()


def _estimate_document(found: "Estimate", workers: int) -> dict[str, object]:
    (whole_s, *whole), (left_s, *left) = found.whole_on(workers), found.left_on(workers)
    return {
        "workers": workers,
        "measured_cells": found.measured,
        "whole_s": whole_s,
        "whole_interval_s": whole,
        "left_s": left_s,
        "left_interval_s": left,
    }


def _tell_estimate(found: "Estimate", workers: int) -> None:
    on = "one process" if workers == 1 else f"{workers} processes"
    rows = (("all", found.runs, found.whole_on(workers)), ("the rest", found.left, found.left_on(workers)))
    for what, runs, times in rows:
        wall, low, high = (duration(seconds) for seconds in times)
        out.print(f"{what}: {runs:,} runs, {wall} on {on} (95 %: {low} to {high})")
    err.print(f"from the times of {found.measured:,} runs", style="dim")


def _table_bytes(frame: "pl.DataFrame", ending: str) -> bytes:
    if ending == ".csv":
        return frame.write_csv().encode()
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()


VERBS = (Verb(app, name="campaign"),)
