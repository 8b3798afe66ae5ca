"""`dfrs algorithms`: what there is, where it comes from, what it costs."""

from fnmatch import filter as matching
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from dfrs.cli.console import out, print_json
from dfrs.cli.verbs import Verb
from dfrs.model.errors import InputError


def algorithms(
    pattern: Annotated[str, typer.Argument(help="Names to show; * and ? are wildcards.")] = "*",
    markdown: Annotated[bool, typer.Option("--markdown", help="A Markdown table.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
) -> None:
    """List the allocation algorithms: name, family, source, complexity.

    Example: dfrs algorithms 'VP_*'
    """
    from dfrs.placement.registry import ALGORITHMS

    chosen = [ALGORITHMS[name] for name in matching(ALGORITHMS, pattern)]
    if not chosen:
        raise InputError(f'algorithm "{pattern}": matches no name')
    if as_json:
        print_json(
            [
                {
                    "name": a.name,
                    "family": a.family,
                    "summary": a.summary,
                    "source": a.source,
                    "complexity": a.complexity,
                    "unequal_nodes": a.unequal_nodes,
                }
                for a in chosen
            ]
        )
        return
    if markdown:
        print("| algorithm | family | what it does | source | complexity | unequal nodes |\n|---|---|---|---|---|---|")
        for a in chosen:
            unequal = "yes" if a.unequal_nodes else "no"
            print(f"| `{a.name}` | {a.family} | {a.summary} | {a.source} | {a.complexity} | {unequal} |")
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("algorithm", "family", "what it does", "source", "complexity"):
        table.add_column(column, no_wrap=column == "algorithm")
    folded = pattern == "*"
    for a in chosen:
        if folded and a.name.startswith("GREEDY_S") and a.name != "GREEDY_S1_P1":
            continue
        name = "GREEDY_Sx_Py" if folded and a.name == "GREEDY_S1_P1" else a.name
        summary = "49: sort by x = 1..7, choose nodes by y = 1..7" if name == "GREEDY_Sx_Py" else a.summary
        table.add_row(*(escape(cell) for cell in (name, a.family, summary, a.source, a.complexity)))
    out.print(table)


VERBS = (Verb(algorithms),)
