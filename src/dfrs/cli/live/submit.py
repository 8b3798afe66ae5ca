"""`dfrs submit`: give the cluster a program to run."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import out, print_json
from dfrs.cli.live.cluster import Json, job_words, live
from dfrs.cli.live.job_options import PROGRAM_LAST, SubmitCommand, checked, of_job
from dfrs.cli.live.wait import wait_for
from dfrs.cli.verbs import Verb

if TYPE_CHECKING:
    from dfrs.live.client import Client


@live
@of_job
def submit(
    client: "Client",
    fields: Mapping[str, object],
    graph: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Submit the jobs of this file, tables [[job]], instead of a command.",
            show_default=False,
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait for its end; exit with its status.")] = False,
    as_json: Json = False,
) -> None:
    """Submit a program, or a script with lines `#DFRS --tasks 4 --cpu 0.5` or `#SBATCH` in its leading comments.

    Options come before the command. Those of the command line win over the script's. The job gets PATH, HOME, LANG,
    USER, LOGNAME and SHELL of your environment, and what --env says; not the rest.

    Examples:

        dfrs submit --cpu 0.5 --memory 512M -- ./prog --fast input.dat

        dfrs submit --tasks 4 --min-yield 0.2 --wait job.sh

        dfrs submit --array 100%5 --after 12 -- sh -c 'echo $DFRS_ARRAY_INDEX'

        dfrs submit --graph graph.toml
    """
    if graph is not None:
        _submit_file(client, graph, held=bool(fields["held"]), wait=wait, as_json=as_json)
        return
    jobs = client.submit(checked(client, fields))
    if wait:
        raise typer.Exit(wait_for(client, jobs, as_json=as_json))
    if as_json:
        print_json({"jobs": jobs})
    else:
        out.print(job_words(jobs))


def _submit_file(client: "Client", path: Path, *, held: bool, wait: bool, as_json: bool) -> None:
    from dfrs.cli.live.graph_file import read_graph
    from dfrs.live.job_graph import submit_graph

    numbers = submit_graph(client, read_graph(client, path, held=held))
    if not as_json:
        width = max(map(len, numbers))
        for name, jobs in numbers.items():
            out.print(f"{name:{width}}  {job_words(jobs)}", markup=False, highlight=False)
    if wait:
        raise typer.Exit(wait_for(client, [job for jobs in numbers.values() for job in jobs], as_json=as_json))
    if as_json:
        print_json({"jobs": numbers})


VERBS = (Verb(submit, command={"cls": SubmitCommand, "context_settings": PROGRAM_LAST}),)
