"""`dfrs policies`: the names that --policy takes."""

from typing import Annotated

import typer
from rich.table import Table

from dfrs.cli.console import out, print_json


def policies(
    names: Annotated[bool, typer.Option("--names", help="All published names and the batch policies.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="A Markdown table.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
) -> None:
    """List the policies: batch ones by name, fractional ones by the parts their names are made of.

    A name has the action on submission, * for one on completion, /per or /stretch-per, and more parts:
    GreedyPM*/per/OPT=MIN/MVT=600.

    Example: dfrs policies
    """
    from dfrs.policies.batch.backfilling import BATCH
    from dfrs.policies.batch.los import FAMILY
    from dfrs.policies.catalogue import CATALOGUE
    from dfrs.policies.names import all_published

    if names:
        chosen = [*BATCH, *FAMILY, *all_published()]
        if as_json:
            print_json(chosen)
        else:
            print("\n".join(chosen))
        return
    if as_json:
        print_json([{"name": e.name, "group": e.group, "meaning": e.meaning, "source": e.source} for e in CATALOGUE])
        return
    if markdown:
        print("| part | kind | what it does | source |\n|---|---|---|---|")
        for e in CATALOGUE:
            print(f"| `{e.name}` | {e.group} | {e.meaning} | {e.source} |")
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("name or part", "kind", "what it does", "source"):
        table.add_column(column, no_wrap=column == "name or part")
    for e in CATALOGUE:
        table.add_row(e.name, e.group, e.meaning, e.source)
    out.print(table)
