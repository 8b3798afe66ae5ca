"""`dfrs validate`: check an allocation, a plan or runs without trusting what made them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import out, print_json
from dfrs.cli.verbs import Verb
from dfrs.model.errors import InputError

if TYPE_CHECKING:
    from dfrs.runs.validator.allocations import ValidationReport

INVALID = 1
SHOWN = 50
"""One lie may be noticed at every instant after it; the first problems say where it is."""


def validate(
    path: Annotated[
        Path,
        typer.Argument(help="Allocation or plan (.json), or a directory with runs in or below it.", show_default=False),
    ],
    instance: Annotated[
        Path | None, typer.Option("--instance", "-i", help="Instance file; default: the one the file names.")
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="Number of equal nodes, as given to allocate.", min=1)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
) -> None:
    """Check an allocation, a plan, or the log of every run in a directory: no node over capacity, figures true.

    A plan is carried out on a clock: limits and rules hold at every instant, wherever it is stopped.

    The checkers share no code with what they check. Exit status 0 if all holds, 1 if not. A run or a
    directory below it that cannot be read is a problem, and the others are checked.

    Example: dfrs validate services.allocation.json --instance services.json

    Example: dfrs validate out/
    """
    if path.is_dir():
        if instance is not None or nodes is not None:
            raise InputError(f"{path}: --instance and --nodes are for a file, this is a directory of runs")
        _validate_runs(path, as_json)
        return
    from dfrs.runs.validator.allocations import validate_allocation
    from dfrs.runs.validator.plans import holds_plan, validate_plan

    report = (validate_plan if holds_plan(path) else validate_allocation)(path, instance, nodes)
    if as_json:
        print_json(_document(report))
    else:
        _show(report)
    if report.problems:
        raise typer.Exit(INVALID)


def _validate_runs(path: Path, as_json: bool) -> None:
    from dfrs.runs.validator.allocations import ValidationReport
    from dfrs.runs.validator.runs import run_directories, validate_run

    runs: list[dict[str, object]] = []
    directories, unread = run_directories(path)
    for directory in sorted([*directories, *unread]):
        try:
            if directory in unread:
                raise unread[directory]
            report = validate_run(directory)
        except InputError as error:
            if directory == path:
                raise
            # A run that was cut off while it was written, or is another user's, keeps no other from being checked.
            report = ValidationReport(problems=[str(error)])
        runs.append({"run": str(directory), **_document(report)})
        if not as_json:
            out.print(f"{directory}: ", end="", markup=False, soft_wrap=True)
            _show(report)
    valid = all(run["valid"] for run in runs)
    if as_json:
        print_json({"valid": valid, "runs": runs})
    if not valid:
        raise typer.Exit(INVALID)


def _document(report: "ValidationReport") -> dict[str, object]:
    return {"valid": not report.problems, "problems": report.problems, "checks": report.checks}


def _show(report: "ValidationReport") -> None:
    if not report.problems:
        out.print(f"valid: {report.summary}", markup=False, soft_wrap=True)
        return
    count = len(report.problems)
    out.print(f"{count} problem{'s' if count > 1 else ''}")
    for problem in report.problems[:SHOWN]:
        out.print(problem, style="red", markup=False, soft_wrap=True)
    if len(report.problems) > SHOWN:
        out.print(f"and {len(report.problems) - SHOWN} more; --json shows all")


VERBS = (Verb(validate),)
