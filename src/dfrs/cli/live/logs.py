"""`dfrs logs`: what a job's tasks wrote."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import err, print_json
from dfrs.cli.live.cluster import JobId, Json, Patience, live
from dfrs.cli.verbs import Verb

if TYPE_CHECKING:
    from dfrs.live.client import Client
    from dfrs.live.drivers.base import Stream

PAUSE_S = 0.5
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


def _parts(client: "Client", job: int, rank: int, stream: "Stream", *, follow: bool):  # noqa: ANN202
    """Its output from the beginning, piece by piece."""
    from dfrs.live.protocol.resources import JobState

    patience, offset = Patience(), 0
    early = {JobState.PENDING, JobState.HELD, JobState.WAITING, JobState.STARTING}
    while True:
        if follow and offset == 0 and patience.ask(lambda: client.job(job)).state in early:
            time.sleep(PAUSE_S)
            continue
        part = patience.ask(lambda at=offset: client.output(job, rank=rank, stream=stream, offset=at))
        if part.offset > offset:
            err.print(f"… {part.offset - offset} bytes were rotated away", style="dim")
        if part.text:
            yield part.text
        grew, offset = part.next_offset > offset, part.next_offset
        if part.ended or not (follow or grew):
            return
        if not grew:
            time.sleep(PAUSE_S)


VERBS = (Verb(logs),)
