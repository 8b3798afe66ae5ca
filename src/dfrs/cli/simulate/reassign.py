"""`dfrs reassign`: an instance of the ROADEF/EURO challenge 2012, machine reassignment."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from dfrs.cli.console import err, out, print_json, warn
from dfrs.cli.progress import progress
from dfrs.cli.refusals import refuse_same
from dfrs.cli.verbs import Verb
from dfrs.model.errors import InputError
from dfrs.model.writing import require_writable

if TYPE_CHECKING:
    from dfrs.placement.reassign import Reassigned
    from dfrs.workloads.reassignment import Reassignment

INTERRUPTED = 130

PARTS = ("load", "balance", "process_move", "service_move", "machine_move", "total")


def reassign(
    model: Annotated[Path, typer.Argument(help="Model file of the challenge.", show_default=False)],
    assignment: Annotated[Path, typer.Argument(help="File of where each process is now.", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the best assignment, in the same format.")
    ] = None,
    time_limit: Annotated[float, typer.Option(help="Seconds.", min=0.0)] = 300.0,
    rounds: Annotated[int | None, typer.Option(help="Rounds instead of seconds: repeats to the bit.", min=1)] = None,
    threads: Annotated[int | None, typer.Option(help="Default: one per core.", min=1, show_default=False)] = None,
    seed: Annotated[int, typer.Option(help="Seed of the search.", min=0)] = 0,
    best_known: Annotated[
        Path | None, typer.Option(help="CSV with columns instance,best_known: show how far from it the cost is.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
) -> None:
    """Reassign processes to machines: least cost of load, balance and moves, under all hard constraints.

    Files are those of the ROADEF/EURO challenge 2012. Ctrl-C ends the search; the best so far is shown and written.

    Example:

        dfrs reassign model_a2_4.txt assignment_a2_4.txt -o solution.txt --time-limit 60 --threads 2
    """
    from dfrs.workloads.reassignment import read_best_known, read_reassignment, write_assignment

    if output is not None:
        require_writable(output)
        refuse_same(output, model, best_known)
    instance = read_reassignment(model, assignment)
    known = None if best_known is None else read_best_known(best_known).get(instance.name)
    if best_known is not None and known is None:
        raise InputError(f'{best_known}: has no row for instance "{instance.name}", the name of {model}')
    count = threads if threads is not None else len(os.sched_getaffinity(0))
    result = _search(instance, time_limit, rounds, count, seed, str(assignment))
    try:
        if as_json:
            print_json(_document(instance, result, known, count, seed))
        else:
            _show(instance, result, known)
    finally:
        # Whichever of the two fails, the search was not in vain.
        if output is not None:
            write_assignment(output, result.place)
    if output is not None and not as_json:
        err.print(f"{output}: the machine of each process", markup=False, style="dim")
    if result.interrupted:
        warn("interrupted: this is the best assignment until then")
        raise typer.Exit(INTERRUPTED)


def _search(
    instance: "Reassignment", time_limit: float, rounds: int | None, threads: int, seed: int, source: str
) -> "Reassigned":
    from dfrs.placement.reassign import search
    from dfrs.placement.reassign_state import require_feasible

    require_feasible(instance, instance.first, source)
    with progress(1.0) as (bar, task):

        def report(cost: int, used: float) -> None:
            bar.update(task, completed=used, description=f"{instance.name}: cost {cost:,}")

        return search(instance, time_limit_s=time_limit, rounds=rounds, threads=threads, seed=seed, report=report)


def _gap(cost: int, known: int) -> float:
    return (cost - known) / known if known else float(cost > 0)


def _document(
    instance: "Reassignment", result: "Reassigned", known: int | None, threads: int, seed: int
) -> dict[str, object]:
    document: dict[str, object] = {
        "instance": instance.name,
        "machines": len(instance.capacity),
        "processes": len(instance.need),
        "before": {part: getattr(result.before, part) for part in PARTS},
        "after": {part: getattr(result.after, part) for part in PARTS},
        "moved": int((result.place != instance.first).sum()),
        "threads": threads,
        "seed": seed,
        "moves_drawn": result.steps,
        "moves_made": result.made,
        "runtime_s": result.runtime_s,
        "interrupted": result.interrupted,
        "place": result.place,
    }
    if known is not None:
        document |= {"best_known": known, "gap": _gap(result.after.total, known)}
    return document


def _show(instance: "Reassignment", result: "Reassigned", known: int | None) -> None:
    out.print(
        f"{instance.name}: {len(instance.need):,} processes on {len(instance.capacity):,} machines, "
        f"{int((result.place != instance.first).sum()):,} moved in {result.runtime_s:.1f} s; "
        f"{result.steps / 1e6:,.0f} million moves drawn",
        markup=False,
    )
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("cost")
    for title in ("before", "after"):
        table.add_column(title, justify="right")
    for part in PARTS:
        values = (getattr(side, part) for side in (result.before, result.after))
        style = "bold" if part == "total" else None
        table.add_row(part.replace("_", " "), *(f"{value:,}" for value in values), style=style)
    if known is not None:
        table.add_row("best known", "", f"{known:,}")
        table.add_row("gap", "", f"{_gap(result.after.total, known):+.2%}")
    out.print(table)


VERBS = (Verb(reassign),)
