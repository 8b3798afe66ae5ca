"""`dfrs nodes`, `drain` and `undrain`: the machines of a live cluster."""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import out, print_json
from dfrs.cli.live.cluster import Json, job_words, live
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
def drain(
    client: "Client",
    names: Names,
    evacuate: Annotated[
        bool, typer.Option("--evacuate", help="Queue again, to begin anew elsewhere, the jobs that are there.")
    ] = False,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Why, for all who look at the nodes.", show_default=False)
    ] = "",
    as_json: Json = False,
) -> None:
    """Let nothing more come to nodes; what runs there goes on, unless you evacuate them.

    With --evacuate jobs that have tasks there are ended and queued again, as by dfrs requeue, but for those submitted
    with --restart never, which are named.

    Examples:

        dfrs drain --reason "new disk on Monday" node-2

        dfrs drain --evacuate node-2
    """
    for name in names:
        client.drain(name, reason)
    if not evacuate:
        _told("drained", names, as_json)
        return
    queued, staying = _evacuate(client, names)
    if as_json:
        print_json({"drained": names, "requeued": queued, "staying": staying})
        return
    out.print(f"drained {', '.join(names)}", markup=False)
    if queued:
        out.print(f"queued again: {job_words(queued)}")
    if staying:
        out.print(f"go on there, since they must not begin anew: {job_words(staying)}")


def _evacuate(client: "Client", names: Sequence[str]) -> tuple[list[int], list[int]]:
    """The jobs with tasks on these nodes that were queued again, and those that stay."""
    from dfrs.live.errors import ConflictError, NotFoundError
    from dfrs.live.protocol.resources import Restart

    seen = client.snapshot()
    there = {task.job for node in seen.nodes if node.name in names for task in node.tasks}
    queued, staying = list[int](), list[int]()
    for job in sorted((job for job in seen.jobs if job.id in there), key=lambda job: job.id):
        if job.restart is Restart.NEVER:
            staying.append(job.id)
            continue
        # It may have ended meanwhile, or wait again.
        with suppress(ConflictError, NotFoundError):
            client.requeue(job.id)
            queued.append(job.id)
    return queued, staying


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
