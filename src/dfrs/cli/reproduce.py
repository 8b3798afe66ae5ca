"""`dfrs reproduce`: regenerate published tables and figures beside the published numbers."""

from pathlib import Path
from typing import Annotated

import typer

from dfrs.cli.console import out


def reproduce(
    names: Annotated[list[str] | None, typer.Argument(help="Tables and figures; all if none is named.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List what can be reproduced.")] = False,
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory for Markdown, CSV and PNG.")] = Path("out"),
) -> None:
    """Regenerate published tables and figures, ours beside theirs.

    Example: dfrs reproduce 000-table-4.4 -o out
    """
    out.print(names, listed, output)
