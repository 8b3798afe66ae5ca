"""`dfrs validate`: check an allocation without trusting what made it."""

from pathlib import Path
from typing import Annotated

import typer

from dfrs.cli.console import out, print_json

INVALID = 1


def validate(
    allocation: Annotated[Path, typer.Argument(help="Allocation file (.json).", show_default=False)],
    instance: Annotated[
        Path | None, typer.Option("--instance", "-i", help="Instance file; default: the one the allocation names.")
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="Number of equal nodes, as given to allocate.", min=1)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
) -> None:
    """Check an allocation: every task placed, no node over capacity, yields and figures true.

    The checker shares no code with the algorithms. Exit status 0 if all holds, 1 if not.

    Example: dfrs validate services.allocation.json --instance services.json
    """
    from dfrs.metrics.validate import validate_allocation

    report = validate_allocation(allocation, instance, nodes)
    if as_json:
        print_json({"valid": not report.problems, "problems": report.problems, "checks": report.checks})
    elif report.problems:
        for problem in report.problems:
            out.print(problem, style="red", markup=False)
        out.print(f"{len(report.problems)} problems")
    else:
        out.print(f"valid: {report.summary}")
    if report.problems:
        raise typer.Exit(INVALID)
