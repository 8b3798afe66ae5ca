"""`dfrs policies`: the names that --policy takes."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from dfrs.cli.console import err, out, print_json
from dfrs.cli.verbs import Verb

if TYPE_CHECKING:
    from dfrs.policies.declaration import Entry


def complete(incomplete: str) -> list[str]:
    """What a shell offers for --policy."""
    from dfrs.policies.names import complete_policy

    return complete_policy(incomplete)


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
    from dfrs.policies.names import all_published, batch_names, listed_policies

    if names:
        chosen = [*batch_names(), *all_published()]
        if as_json:
            print_json(chosen)
        else:
            print("\n".join(chosen))
        return
    entries, problems = listed_policies()
    for problem in problems:
        err.print(f"dfrs: {problem}", markup=False, soft_wrap=True)
    if as_json:
        print_json([asdict(entry) for entry in entries])
        return
    if markdown:
        print("\n".join(table_lines(entries)))
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("name or part", "kind", "what it does", "source"):
        table.add_column(column, no_wrap=column == "name or part")
    for entry in entries:
        # Square brackets are text here, not a style.
        table.add_row(*(cell.replace("[", r"\[") for cell in (entry.name, entry.group, _meaning(entry), entry.source)))
    out.print(table)


def table_lines(entries: "list[Entry]") -> list[str]:
    """The reference's table."""
    lines = ["| part | kind | what it does | source |", "|---|---|---|---|"]
    return lines + [f"| `{_in_table(e.name)}` | {e.group} | {_meaning(e)} | {e.source} |" for e in entries]


def _in_table(name: str) -> str:
    """A bar would end the column."""
    return name.replace("|", r"\|")


def _meaning(entry: "Entry") -> str:
    """In words, with whose option it is, what it may be, and what it is by default."""
    whose = f"with {', '.join(entry.policies)}: " if entry.policies else ""
    value = "; ".join(filter(None, (entry.value, entry.default and f"default {entry.default}")))
    return f"{whose}{entry.meaning}{value and f' ({value})'}"


VERBS = (Verb(policies),)
