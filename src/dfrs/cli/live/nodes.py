"""`dfrs nodes`, `drain` and `undrain`: the machines of a live cluster."""

from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import out, print_json
from dfrs.cli.live.cluster import Json, live
from dfrs.cli.live.completing import complete_nodes
from dfrs.cli.verbs import Verb

if TYPE_CHECKING:
    from dfrs.live.client import Client

Names = Annotated[
    list[str],
    typer.Argument(metavar="NODE...", help="Names of nodes.", show_default=False, autocompletion=complete_nodes),
]


@live
def nodes(
    client: "Client",
    tasks: Annotated[bool, typer.Option("--tasks", "-t", help="Also a line for each task.")] = False,
    as_json: Json = False,
) -> None:
    """List the nodes: how their CPU is shared between jobs, what is used of it, their memory.

    Example: dfrs nodes --tasks
    """
    from dfrs.cli.views.live import node_table, price_line

    seen = client.snapshot(limit=0)
    found = seen.nodes
    if as_json:
        print_json([node.model_dump(mode="json") for node in found])
        return
    if not found:
        out.print("no nodes; start an agent with: dfrs agent")
        return
    out.print(node_table(found, out.width, tasks=tasks))
    prices = price_line(seen.cluster.prices)
    if prices:
        out.print(prices)


@live
def drain(client: "Client", names: Names, as_json: Json = False) -> None:
    """Let nothing more come to nodes; what runs there goes on.

    Example: dfrs drain node-2
    """
    for name in names:
        client.drain(name)
    _told("drained", names, as_json)


@live
def undrain(client: "Client", names: Names, as_json: Json = False) -> None:
    """Let jobs come to drained nodes again.

    Example: dfrs undrain node-2
    """
    for name in names:
        client.undrain(name)
    _told("undrained", names, as_json)


def _told(word: str, names: list[str], as_json: bool) -> None:
    if as_json:
        print_json({word: names})
    else:
        out.print(f"{word} {', '.join(names)}", markup=False)


VERBS = (Verb(nodes), Verb(drain), Verb(undrain))
