"""`dfrs allocate`: place services by one or several algorithms, and say how far from the best possible each is."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from dfrs.cli.console import err, out, print_json
from dfrs.cli.extras import require
from dfrs.cli.progress import progress
from dfrs.cli.refusals import refuse_beside, refuse_same
from dfrs.cli.verbs import Verb
from dfrs.model.errors import InputError, UnsupportedError
from dfrs.model.writing import require_writable, write_text

if TYPE_CHECKING:
    from dfrs.model.allocation import Outcome
    from dfrs.model.instance import Instance
    from dfrs.placement.budget import Budget
    from dfrs.placement.registry import Options
    from dfrs.placement.shrink import Shrunk

NO_SOLUTION = 3

PairOrder = Literal["load", "index"]
YieldSearch = Literal["ends", "midpoints"]
SecondPhase = Literal["average", "average-lp", "max-min", "none"]

InstanceFile = Annotated[Path, typer.Argument(help="Instance file, .json or .csv.", show_default=False)]


def allocate(
    instance_file: InstanceFile,
    algorithm: Annotated[
        list[str],
        typer.Option("--algorithm", "-a", help="Name, pattern ('VP_*') or list; see dfrs algorithms. Repeatable."),
    ] = ["BEST"],  # noqa: B006 - Typer reads the default and never hands it out to be changed
    nodes: Annotated[int | None, typer.Option(help="Use this many equal nodes instead of the file's.", min=1)] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds for BEST and ADAPT (default 1), OPT and rounding (no limit).")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds for BEST and ADAPT instead: repeats to the bit.")] = None,
    threads: Annotated[
        int | None, typer.Option(help="Of BEST, without --rounds. Default: one per CPU.", min=1, show_default=False)
    ] = None,
    window: Annotated[int, typer.Option(help="The w of choose and permutation pack.")] = 2,
    pair_order: Annotated[
        PairOrder, typer.Option(help="Lists tried by permutation pack: load or index (published).")
    ] = "load",
    search: Annotated[YieldSearch, typer.Option(help="Yield search: ends, or midpoints only (published).")] = "ends",
    dominance: Annotated[bool, typer.Option(help="Degree-of-dominance add-on for VP_FF* and VP_BF*.")] = False,
    second_phase: Annotated[
        SecondPhase, typer.Option(help="What is left goes to: average, average-lp, max-min or none.")
    ] = "average",
    present: Annotated[
        Path | None, typer.Option("--from", help="Allocation file: where tasks run now (ADAPT, ADAPT_OPT).")
    ] = None,
    budget_moves: Annotated[float | None, typer.Option(help="Most tasks that may move.")] = None,
    budget_bytes: Annotated[float | None, typer.Option(help="Most bytes that may be copied.")] = None,
    budget_cost: Annotated[float | None, typer.Option(help="Most cost that moves may have.")] = None,
    budget_seconds: Annotated[
        float | None, typer.Option(help="Most seconds that moves may take, one after another at --bandwidth.")
    ] = None,
    bandwidth: Annotated[float | None, typer.Option(help="Bytes a second, for --budget-seconds.")] = None,
    shrink: Annotated[
        float | None, typer.Option(help="Turn off as many nodes as this loss of minimum yield allows.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed where chance plays.", min=0)] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the best allocation: .json, .csv.")
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="Draw the best allocation: .png, .svg or .pdf.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
) -> None:
    """Place services on nodes so that the minimum yield is as large as possible.

    With several algorithms the table is sorted by minimum yield; the best allocation is what is written and drawn.
    Exit status 3 if no placement was found.

    Examples:

        dfrs allocate services.json

        dfrs allocate services.json -a VP_CPSUM -a GREEDY -a BEST --time-limit 5 --picture services.png

        dfrs allocate services.json -a ADAPT --from now.json --budget-moves 10 -o next.json

        dfrs allocate services.json -a ADAPT --from now.json --budget-moves 10 --budget-bytes 200e9 -o next.json
    """
    from dfrs.placement.budget import Budget
    from dfrs.placement.registry import Options, expand
    from dfrs.workloads.files import read_instance, read_placement

    instance = read_instance(instance_file, nodes)
    budget = Budget(
        moves=budget_moves,
        bytes=budget_bytes,
        cost=budget_cost,
        seconds=budget_seconds,
        bandwidth_bytes_per_s=bandwidth,
    )
    names = expand(algorithm)
    if not names:
        raise InputError("--algorithm: names nothing")
    _check_movers(names, present, budget)
    options = Options(
        time_limit_s=time_limit,
        rounds=rounds,
        threads=threads,
        window=window,
        pair_order=pair_order,
        search=search,
        dominance=dominance,
        present=read_placement(present, instance, partial=True) if present else None,
        budget=budget if budget.limits else None,
    )
    _check_endings(output, picture)
    refuse_same(output, instance_file)
    if shrink is not None:
        found = _shrink(instance, names, options, shrink, seed)
        try:
            _show_shrunk(instance, names[0], found, as_json=as_json)
        finally:
            # Whichever of the two fails, the search was not in vain.
            if output is not None or picture is not None:
                whole = _on_all(instance, names[0], found, second_phase)
                _write(instance, (instance_file, nodes), whole, output, picture)
        return
    outcomes = _run(instance, names, options, second_phase, seed)
    outcomes.sort(key=lambda o: -1.0 if o.minimum_yield is None else o.minimum_yield, reverse=True)
    try:
        _show(instance, outcomes, as_json=as_json)
    finally:
        # Whichever of the two fails, the search was not in vain.
        _write(instance, (instance_file, nodes), outcomes[0], output, picture)


def _check_endings(output: Path | None, picture: Path | None) -> None:
    for path, endings in ((output, (".json", ".csv")), (picture, (".png", ".svg", ".pdf"))):
        if path is not None and path.suffix.lower() not in endings:
            raise InputError(f"{path}: the ending must be {' or '.join(endings)}")
        if path is not None:
            require_writable(path)
    if picture is not None:
        require("plot")


def _check_movers(names: list[str], present: Path | None, budget: "Budget") -> None:
    """Refuse what only the algorithms that move tasks read, where none of them is asked for."""
    if {"ADAPT", "ADAPT_OPT"} & set(names):
        return
    unread = {"--from": present, "--bandwidth": budget.bandwidth_bytes_per_s}
    unread |= {f"--budget-{unit}": amount for unit, amount in budget.limits.items()}
    for option, given in unread.items():
        if given is not None:
            raise InputError(f"{option}: is for ADAPT and ADAPT_OPT alone: choose one of them with -a, or leave it out")


def _run(instance: "Instance", names: list[str], options: "Options", phase: SecondPhase, seed: int) -> "list[Outcome]":
    from dfrs.api import allocate as run

    outcomes: list[Outcome] = []
    with progress(len(names)) as (bar, task):
        for name in names:
            bar.update(task, description=name)

            def improved(value: float, name: str = name) -> None:
                bar.update(task, description=f"{name}: minimum yield {value:.4f}")

            chosen = replace(options, on_improvement=improved)
            try:
                outcomes.append(run(instance, name, options=chosen, second_phase=phase, seed=seed))
            except UnsupportedError as error:
                if len(names) == 1:
                    raise
                err.print(f"left out: {error}", markup=False, style="dim")
            bar.advance(task)
    if not outcomes:
        raise InputError("none of these algorithms takes this instance")
    return outcomes


def _show(instance: "Instance", outcomes: "list[Outcome]", *, as_json: bool) -> None:
    """Best first. Exits with NO_SOLUTION where that is none."""
    best = outcomes[0]
    if as_json:
        from dfrs.report.documents import outcome_document

        documents = [outcome_document(instance, o) for o in outcomes]
        print_json(documents[0] if len(documents) == 1 else {"results": documents})
    else:
        _show_table(instance, outcomes)
        _show_rules(instance, best)
    if best.allocation is None:
        err.print(f"dfrs: {best.details['reason']}", markup=False, soft_wrap=True)
        raise typer.Exit(NO_SOLUTION)


def _show_table(instance: "Instance", outcomes: "list[Outcome]") -> None:
    title = f"{instance.name}: " if instance.name else ""
    kinds = ", ".join(f"{r.name} {r.kind}" for r in instance.resources)
    out.print(
        f"[bold]{title}[/bold]{len(instance.services)} services ({len(instance.need)} tasks) on "
        f"{len(instance.nodes)} nodes; {kinds}"
    )
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("algorithm", no_wrap=True)
    for column in ("minimum", "bound", "gap", "average", "used", "time"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("status")
    top = outcomes[0].minimum_yield
    for o in outcomes:
        if o.allocation is None or o.minimum_yield is None or o.gap is None:
            table.add_row(
                o.algorithm, "-", f"{o.bound:.4f}", "-", "-", "-", _seconds(o.runtime_s), o.status, style="dim"
            )
            continue
        winner = o.details.get("winner")
        note = f"{o.status}" + (f" ({winner})" if winner and winner != o.algorithm else "")
        table.add_row(
            o.algorithm,
            f"{o.minimum_yield:.4f}",
            f"{o.bound:.4f}",
            f"{100 * o.gap:.2f} %",
            f"{o.allocation.average_yield:.4f}",
            f"{100 * o.allocation.utilization(instance):.1f} %",
            _seconds(o.runtime_s),
            note,
            style="bold" if o.minimum_yield == top else None,
        )
    out.print(table)
    out.print(
        "minimum, average: scaled yield; gap: from the bound no placement can pass; used: of the fluid resources",
        style="dim",
    )


def _show_rules(instance: "Instance", best: "Outcome") -> None:
    if instance.rules is None or best.allocation is None:
        return
    for line in instance.rules.concessions(best.allocation.place):
        out.print(f"broken at its price: {line}", markup=False)
    failures = best.details.get("headroom")
    for line in failures if isinstance(failures, list) else []:
        out.print(f"headroom: {line}", markup=False)


def _seconds(value: float) -> str:
    return f"{value * 1000:.1f} ms" if value < 1.0 else f"{value:.2f} s"


def _write(
    instance: "Instance", source: tuple[Path, int | None], best: "Outcome", output: Path | None, picture: Path | None
) -> None:
    if best.allocation is None:
        return
    from dfrs.report.documents import allocation_csv, allocation_file

    if output is not None:
        if output.suffix.lower() == ".csv":
            text = allocation_csv(instance, best.allocation)
        else:
            text = allocation_file(instance, best, source=str(source[0]), nodes=source[1])
        write_text(output, text)
        err.print(f"{output}: allocation by {best.algorithm}", markup=False, style="dim")
    if picture is not None:
        from dfrs.report.allocation import draw_allocation

        title = f"{best.algorithm}: {len(instance.services)} services on {len(instance.nodes)} nodes"
        draw_allocation(instance, best.allocation, best.bound, title, picture)
        err.print(f"{picture}: picture of {best.algorithm}", markup=False, style="dim")


def _shrink(instance: "Instance", names: list[str], options: "Options", loss: float, seed: int) -> "Shrunk":
    from dfrs.placement.registry import find
    from dfrs.placement.shrink import shrink

    if len(names) != 1:
        raise InputError("--shrink: takes one algorithm")
    algorithm = find(names[0])
    if algorithm.needs_present:
        why = "starts from where tasks are on all nodes: choose another algorithm with -a"
        refuse_beside(algorithm.name, {"--shrink": True}, why)
    return shrink(instance, algorithm.build(options), loss, seed)


def _on_all(instance: "Instance", name: str, found: "Shrunk", phase: SecondPhase) -> "Outcome":
    """What was found on the nodes that stay on, as an allocation on all nodes: on them it may well not be the best."""
    from dfrs.model.allocation import Status
    from dfrs.placement.bounds import upper_bound
    from dfrs.placement.second_phase import maximize

    allocation = found.outcome.allocation
    assert allocation is not None
    there = maximize(instance.on_nodes(found.keep), allocation, phase)
    whole = replace(there, place=found.keep[there.place])
    bound = upper_bound(instance)
    return replace(found.outcome, algorithm=name, allocation=whole, status=Status.FEASIBLE, bound=bound)


def _show_shrunk(instance: "Instance", name: str, result: "Shrunk", *, as_json: bool) -> None:
    off = [n for k, n in enumerate(instance.nodes) if k not in set(result.keep.tolist())]
    if as_json:
        print_json(
            {
                "algorithm": name,
                "nodes": len(instance.nodes),
                "nodes_needed": len(result.keep),
                "turn_off": off,
                "full_yield": result.full_yield,
                "minimum_yield": result.outcome.minimum_yield,
                "tried": [{"nodes": k, "minimum_yield": y} for k, y in sorted(result.tried.items())],
            }
        )
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("nodes on", justify="right")
    table.add_column("minimum yield", justify="right")
    for count, value in sorted(result.tried.items(), reverse=True):
        style = "bold" if count == len(result.keep) else None
        table.add_row(str(count), "-" if value is None else f"{value:.4f}", style=style)
    out.print(table)
    out.print(
        f"{len(off)} of {len(instance.nodes)} nodes can be turned off: the minimum yield goes from "
        f"{result.full_yield:.4f} to {result.outcome.minimum_yield:.4f}"
    )


VERBS = (Verb(allocate),)
