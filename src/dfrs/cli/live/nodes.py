"""`dfrs nodes`, `drain` and `undrain`: the machines of a live cluster."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import out, print_json
from dfrs.cli.live.cluster import Json, job_words, live, patience
from dfrs.cli.live.completing import complete_nodes
from dfrs.cli.live.one_by_one import one_by_one, tell_failures
from dfrs.cli.verbs import Verb
from dfrs.model.errors import DfrsError

if TYPE_CHECKING:
    from dfrs.live.client import Client

Names = Annotated[
    list[str],
    typer.Argument(metavar="NODE...", help="Names of nodes.", show_default=False, autocompletion=complete_nodes),
]
_TOLD = {"requeued": "queued again", "staying": "go on there, since they must not begin anew"}
"""How what was done to jobs is said."""


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
    drained, failed = _each(names, lambda name: client.drain(name, reason))
    jobs: dict[str, list[int]] = {}
    refused: dict[int, DfrsError] = {}
    try:
        if evacuate:
            jobs["requeued"], jobs["staying"], refused = _evacuate(client, drained)
    finally:
        # Also where nobody says which jobs are there: the nodes are drained.
        _tell({"drained": drained}, jobs, failed, refused, as_json)
    if failed or refused:
        raise typer.Exit(1)


def _each(names: Sequence[str], act: Callable[[str], None]) -> tuple[list[str], dict[str, DfrsError]]:
    """Do it to each node: those to which it was done, and why it was not to others. Raises where it was to none."""
    done, failed = one_by_one(names, act, again=True)
    if not done:
        raise next(iter(failed.values()))
    return done, failed


def _evacuate(client: "Client", names: Sequence[str]) -> tuple[list[int], list[int], dict[int, DfrsError]]:
    """The jobs with tasks on these nodes that were queued again, those that stay, and why others were not."""
    from dfrs.live.errors import ConflictError, NotFoundError
    from dfrs.live.following import asleep
    from dfrs.live.protocol.resources import Restart

    seen = asleep(patience().ask(client.snapshot))
    there = {task.job for node in seen.nodes if node.name in names for task in node.tasks}
    jobs = sorted((job for job in seen.jobs if job.id in there), key=lambda job: job.id)
    staying = [job.id for job in jobs if job.restart is Restart.NEVER]
    going = [job.id for job in jobs if job.restart is not Restart.NEVER]
    queued, failed = one_by_one(going, client.requeue, again=False)
    # Others may have ended meanwhile, or wait again.
    refused = {job: why for job, why in failed.items() if not isinstance(why, ConflictError | NotFoundError)}
    return queued, staying, refused


@live
def undrain(client: "Client", names: Names, as_json: Json = False) -> None:
    """Let jobs come to drained nodes again.

    Example: dfrs undrain node-2
    """
    undrained, failed = _each(names, client.undrain)
    _tell({"undrained": undrained}, {}, failed, {}, as_json)
    if failed:
        raise typer.Exit(1)


def _tell(
    nodes: Mapping[str, Sequence[str]],
    jobs: Mapping[str, Sequence[int]],
    failed: Mapping[str, DfrsError],
    refused: Mapping[int, DfrsError],
    as_json: bool,
) -> None:
    """What was done, by words for that, and to which nodes and jobs it was not."""
    if as_json:
        left = [{"node": node, "why": str(why)} for node, why in failed.items()]
        left_jobs = [{"job": job, "why": str(why)} for job, why in refused.items()]
        print_json({**nodes, **jobs, "failed": [*left, *left_jobs]})
    else:
        for word, names in nodes.items():
            out.print(f"{word} {', '.join(names)}", markup=False)
        for word, numbers in jobs.items():
            if numbers:
                out.print(f"{_TOLD[word]}: {job_words(numbers)}")
    tell_failures(failed, lambda names: f"nodes {', '.join(names)}")
    tell_failures(refused, job_words)


VERBS = (Verb(nodes), Verb(drain), Verb(undrain))
