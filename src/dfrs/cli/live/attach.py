"""`dfrs attach` and `dfrs exec`: a user joins a job that runs, or starts a program beside it."""

import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import err
from dfrs.cli.live.cluster import JobId, live, patience
from dfrs.cli.live.job_options import PROGRAM_LAST
from dfrs.cli.live.run import HUNG_UP, conclude
from dfrs.cli.live.wait import INTERRUPTED
from dfrs.cli.verbs import Verb
from dfrs.model.errors import InputError

if TYPE_CHECKING:
    from dfrs.cli.live.interactive import Ending, Session
    from dfrs.live.client import Client
    from dfrs.live.drivers.base import Stream

Rank = Annotated[int, typer.Option(help="Which task, from 0.", min=0)]


@live
def attach(client: "Client", job: JobId, rank: Rank = 0) -> None:
    """Join a job that runs: see what it writes from now on, and type to it where it was started with a terminal.

    Ctrl-] leaves it running, and so do Ctrl-C and SIGTERM where you only look on. The exit status is the job's.

    Example: dfrs attach 17
    """
    from dfrs.cli.live.interactive import Session, at_terminal, streams_of
    from dfrs.live.errors import ConflictError
    from dfrs.live.following import asleep
    from dfrs.live.protocol.resources import ENDED

    seen = client.job(job)
    if seen.state in ENDED:
        raise ConflictError(f"job {job}: has ended: {seen.state}; what it wrote: dfrs logs {job}")
    if not seen.nodes:
        raise ConflictError(f"job {job}: has not started: {seen.state}: {seen.why}")
    terminal = seen.terminal and rank == 0
    if terminal and not at_terminal():
        err.print(f"job {job}: has a terminal, and here is none: you only look on", style="dim")
    ends: dict[Stream, int] = {}
    for stream in streams_of(terminal=terminal):
        part = asleep(patience().ask(lambda stream=stream: client.output(job, rank=rank, stream=stream, limit=1)))
        ends[stream] = part.end_offset
    session = Session(client, job, ranks=(rank,), begin=ends, terminal=terminal, typing=terminal and at_terminal())
    raise typer.Exit(conclude(client, job, session.run()))


@live
def execute(
    client: "Client",
    job: JobId,
    command: Annotated[
        list[str], typer.Argument(metavar="PROGRAM...", help="Program and its arguments.", show_default=False)
    ],
    rank: Rank = 0,
    terminal: Annotated[
        bool | None,
        typer.Option(
            "--terminal/--no-terminal", help="Give it a terminal; default: if here is one.", show_default=False
        ),
    ] = None,
) -> None:
    """Run a program beside a job: on its node, with its account, directory, environment, limits and share.

    It ends with the job at the latest, and when your terminal goes away. The exit status is the program's.

    Examples:

        dfrs exec 17 -- ps x

        dfrs exec --rank 2 17 -- sh
    """
    from dfrs.cli.live.interactive import Ending, LostOutputError, Session, at_terminal, terminal_here
    from dfrs.live.errors import ConflictError
    from dfrs.live.following import asleep
    from dfrs.live.protocol.resources import ProgramRequest

    own = at_terminal() if terminal is None else terminal
    if own and not at_terminal():
        raise InputError("--terminal: standard input and output are no terminal here")
    program = ProgramRequest(
        name=secrets.token_hex(8),
        rank=rank,
        # Options end where the job is named, so that a -- after it is not one of them.
        command=tuple(command[1:] if command[0] == "--" and len(command) > 1 else command),
        environment={"TERM": os.environ.get("TERM", "xterm")} if own else {},
        input=True,
        terminal=terminal_here() if own else None,
    )
    asleep(patience().ask(lambda: client.execute(job, program)))
    session = Session(client, job, ranks=(rank,), program=program.name, terminal=own, typing=True)
    try:
        ending = session.run()
    except (OSError, LostOutputError):
        session.hang_up("HUP")
        raise
    if ending is not Ending.ENDED:
        raise typer.Exit(_leave(session, ending))
    code = session.exit_code
    if code is None:
        raise ConflictError(f"job {job}: has ended, and with it the program beside it")
    raise typer.Exit(code if code >= 0 else 128 - code)


def _leave(session: "Session", ending: "Ending") -> int:
    """End the program of a user who leaves, since nobody could join it again; the exit status."""
    from dfrs.cli.live.interactive import Ending

    told = session.hang_up("HUP" if ending is Ending.GONE else "TERM")
    if ending is Ending.GONE:
        return HUNG_UP
    with suppress(OSError):
        said = "was told to end" if told else "could not be told to end; it goes on until the job ends"
        err.print(f"the program beside the job: {said}")
    return INTERRUPTED


VERBS = (
    Verb(attach),
    Verb(execute, name="exec", command={"context_settings": PROGRAM_LAST}),
)
