"""`dfrs plot`: draw an allocation that is already on disk."""

from pathlib import Path
from typing import Annotated

import typer

from dfrs.cli.console import err
from dfrs.model.errors import InputError


def plot(
    allocation: Annotated[Path, typer.Argument(help="Allocation file (.json).", show_default=False)],
    instance: Annotated[
        Path | None, typer.Option("--instance", "-i", help="Instance file; default: the one the allocation names.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Picture to write: .png, .svg or .pdf; default beside it.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the picture.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Number of equal nodes, as given to allocate.", min=1)] = None,
) -> None:
    """Draw node by node what is given out of each resource, and the yields, sorted.

    Example: dfrs plot services.allocation.json -o services.png
    """
    from dfrs.report.allocation import draw_allocation
    from dfrs.workloads.files import read_allocation

    picture = output or allocation.with_suffix(".png")
    if picture.suffix.lower() not in {".png", ".svg", ".pdf"}:
        raise InputError(f"{picture}: the ending must be .png, .svg or .pdf")
    problem, result, bound, algorithm = read_allocation(allocation, instance, nodes)
    default = f"{algorithm}: {len(problem.services)} services on {len(problem.nodes)} nodes"
    draw_allocation(problem, result, bound, title or default, picture)
    err.print(f"{picture}", markup=False, style="dim")
