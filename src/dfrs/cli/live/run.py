"""`dfrs run`: run a program on the cluster as if it ran here."""

import os
import signal
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import err
from dfrs.cli.live.cluster import live, patience
from dfrs.cli.live.job_options import PROGRAM_LAST, ScriptCommand, checked, of_job
from dfrs.cli.live.signals import heeded
from dfrs.cli.live.wait import INTERRUPTED, status_of
from dfrs.cli.verbs import Verb
from dfrs.model.errors import InputError
from dfrs.model.text import visible

if TYPE_CHECKING:
    from dfrs.cli.live.interactive import Ending
    from dfrs.live.client import Client

HUNG_UP = 128 + signal.SIGHUP
TELL_S = 1.0
"""A job that has not started after so long is said to wait."""


class _StoppedError(Exception):
    """A signal that ends the waiting for a start: its number."""


@live
@of_job
def run(
    client: "Client",
    fields: Mapping[str, object],
    terminal: Annotated[
        bool | None,
        typer.Option(
            "--terminal/--no-terminal",
            help="Give it a terminal; default: if it is one task, and this is a terminal.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run a program on the cluster as if it ran here: with your input, its output, and its exit status.

    In a terminal it has one, too: Ctrl-C and other keys go to it. Ctrl-C twice within a second cancels the job, and
    Ctrl-] leaves it running, as the loss of the terminal does: dfrs attach JOB joins it again.

    Examples:

        dfrs run --cpu 1 --memory 1G -- python3

        dfrs run --memory 64M -- sort -n < numbers > sorted
    """
    from dfrs.cli.live.interactive import LostOutputError, Session, at_terminal, terminal_here

    if fields["array"] is not None:
        raise InputError("--array: many jobs have no one input: use dfrs submit")
    if fields["held"]:
        raise InputError("--hold: nobody would see it start: use dfrs submit")
    if fields["restart"] == "any-time":
        raise InputError("--restart any-time: input that was read does not come again: use dfrs submit")
    own = at_terminal() and fields["tasks"] == 1 if terminal is None else terminal
    if own and not at_terminal():
        raise InputError("--terminal: standard input and output are no terminal here")
    # One that began anew would go on with what is left of its input, and end as if that were all.
    wanted: dict[str, object] = {
        **fields,
        "restart": "never",
        "input": True,
        "terminal": terminal_here() if own else None,
    }
    if own:
        environment = fields["environment"]
        assert isinstance(environment, dict)
        wanted["environment"] = {"TERM": os.environ.get("TERM", "xterm"), **environment}
    request = checked(client, wanted)
    (job,) = client.submit(request)
    _await_start(client, job)
    session = Session(client, job, ranks=range(request.tasks), terminal=own, typing=True)
    try:
        ending = session.run()
    except (OSError, LostOutputError):
        # As on a full disk here, or behind `| head`: what it writes is kept on its node.
        _leave(job)
        raise
    except KeyboardInterrupt:
        # It came before keys were the program's.
        raise typer.Exit(_cancel(client, job, "")) from None
    raise typer.Exit(conclude(client, job, ending))


def conclude(client: "Client", job: int, ending: "Ending") -> int:
    """Say what is to be said once a user is no longer at a job; the exit status."""
    from dfrs.cli.live.interactive import Ending

    match ending:
        case Ending.ENDED:
            return _status(client, job)
        case Ending.STOPPED:
            return _cancel(client, job, "")
        case Ending.LEFT | Ending.GONE:
            gone = _leave(job)
            return gone if ending is Ending.GONE else 0


def _leave(job: int) -> int:
    """Say that it goes on; the exit status where the terminal is gone."""
    # Which takes no words then.
    with suppress(OSError):
        err.print(f"job {job}: left running; join it: dfrs attach {job}; end it: dfrs cancel {job}")
    return HUNG_UP


def _await_start(client: "Client", job: int) -> None:
    """Return once it has begun, or ended. Ctrl-C cancels it."""
    from dfrs.live.following import asleep
    from dfrs.live.protocol.resources import JobState

    early = {JobState.PENDING, JobState.HELD, JobState.WAITING, JobState.STARTING}
    ask, waited_s, pause_s = patience(), 0.0, 0.05
    try:
        with _ends_waiting():
            while (seen := asleep(ask.ask(lambda: client.job(job)))).state in early:
                if waited_s <= TELL_S < waited_s + pause_s and seen.state is not JobState.STARTING:
                    err.print(f"job {job}: {seen.state}: {visible(seen.why)} (Ctrl-C cancels it)", style="dim")
                time.sleep(pause_s)
                waited_s, pause_s = waited_s + pause_s, min(1.0, 1.1 * pause_s)
    except KeyboardInterrupt:
        raise typer.Exit(_cancel(client, job, ", which had not started")) from None
    except _StoppedError as stopped:
        number = int(str(stopped))
        if number == signal.SIGHUP:
            raise typer.Exit(_leave(job)) from None
        _cancel(client, job, ", which had not started")
        raise typer.Exit(128 + number) from None


@contextmanager
def _ends_waiting() -> Generator[None]:
    """Raise _StoppedError where the terminal goes away or somebody ends this program."""

    def stop(number: int, _: object) -> None:
        raise _StoppedError(number)

    before = {number: signal.signal(number, stop) for number in heeded((signal.SIGHUP, signal.SIGTERM))}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _cancel(client: "Client", job: int, which: str) -> int:
    from dfrs.live.errors import ConflictError

    # It may have ended just now.
    with suppress(ConflictError):
        client.cancel(job)
    err.print(f"job {job}{which}: cancelled")
    return INTERRUPTED


def _status(client: "Client", job: int) -> int:
    from dfrs.live.following import asleep, until_ended

    (ended,) = asleep(until_ended(client, [job], patience()))
    # The status tells itself.
    if ended.exit not in {"done", f"ended with status {ended.exit_code}"}:
        err.print(f"job {job}: {visible(ended.exit)}", markup=False, soft_wrap=True)
    return status_of(ended)


VERBS = (Verb(run, command={"cls": ScriptCommand, "context_settings": PROGRAM_LAST}),)
