"""`dfrs logs`: what a job's tasks wrote."""

from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import err, print_json
from dfrs.cli.live.cluster import JobId, Json, live, patience
from dfrs.cli.verbs import LIVE, Verb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dfrs.live.client import Client
    from dfrs.live.drivers.base import Stream

INTERRUPTED = 130


@live
def logs(
    client: "Client",
    job: JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    rank: Annotated[int, typer.Option(help="Of which task, from 0.", min=0)] = 0,
    errors: Annotated[bool, typer.Option("--err", help="Standard error instead of standard output.")] = False,
    as_json: Json = False,
) -> None:
    """Print what a task of a job wrote to its standard output; with -f, as it comes.

    Example: dfrs logs -f 17
    """
    stream: Stream = "err" if errors else "out"
    try:
        if as_json:
            text = "".join(_parts(client, job, rank, stream, follow=follow))
            print_json({"job": job, "rank": rank, "stream": stream, "text": text})
            return
        for part in _parts(client, job, rank, stream, follow=follow):
            print(part, end="", flush=True)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED if not follow else 0) from None


def _parts(client: "Client", job: int, rank: int, stream: "Stream", *, follow: bool) -> "Iterator[str]":
    """Its output from the beginning, piece by piece."""
    from dfrs.live.following import asleep_between, output_parts

    offset = 0
    for part in asleep_between(output_parts(client, job, rank, stream, patience(), follow=follow)):
        if part.offset > offset:
            err.print(f"… {part.offset - offset} bytes were rotated away", style="dim")
        offset = part.next_offset
        yield part.text


VERBS = (Verb(logs, LIVE, 50),)
