"""`dfrs top`: the cluster on one screen, live."""

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType
from rich.live import Live

from dfrs.cli.console import out, print_json
from dfrs.cli.live.cluster import Json, live, patience
from dfrs.cli.verbs import Verb

if TYPE_CHECKING:
    from dfrs.live.client import Client
    from dfrs.live.protocol.resources import ClusterSnapshot

EVENTS, JOBS = 40, 200
ENDLESS = 1_000_000
"""Lines of what is no screen."""
KEYS_BYTES = 32
"""What a key sends at once is less: arrows and the like send an escape and more."""


@live
def top(
    client: "Client",
    every: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.2, max=60)] = 1.0,
    as_json: Json = False,
) -> None:
    """Watch the cluster: nodes shared out by job, jobs with their yields, what happened last. q or Ctrl-C ends.

    Without a terminal it prints what it sees once.

    Example: dfrs top
    """
    if as_json:
        _document(client)
        return
    watch(lambda height: _look(client, height), every)


def watch(look: Callable[[int], RenderableType], every_s: float) -> None:
    """Show what `look` makes for so many lines, again and again, until q or Ctrl-C; without a terminal once."""
    if not (out.is_terminal and sys.stdin.isatty()):
        out.print(look(ENDLESS))
        return
    from dfrs.live.following import asleep

    patient = patience()
    try:
        with _keys(), Live(console=out, screen=True, auto_refresh=False) as screen:
            while True:
                screen.update(asleep(patient.ask(lambda: look(out.height))), refresh=True)
                if _pressed(every_s) in {b"q", b"Q", b"\x1b"}:
                    return
    except KeyboardInterrupt:
        return


def _look(client: "Client", height: int) -> RenderableType:
    from dfrs.cli.views.live import frame

    return frame(_seen(client), client.activity(limit=EVENTS), out.width, height)


def _seen(client: "Client") -> "ClusterSnapshot":
    """With the jobs that matter most, where there are too many: those on nodes, then the paused, then the others."""
    return client.snapshot(limit=JOBS, sort="yield,-state")


def _document(client: "Client") -> None:
    seen = _seen(client)
    print_json(
        {
            "sequence": seen.sequence,
            "cluster": seen.cluster.model_dump(mode="json"),
            "nodes": [node.model_dump(mode="json") for node in seen.nodes],
            "jobs": [job.model_dump(mode="json") for job in seen.jobs],
            "activity": [event.model_dump(mode="json") for event in client.activity(limit=EVENTS)],
        }
    )


@contextmanager
def _keys() -> Generator[None]:
    """Keys are read as they are pressed, and not shown; as before afterwards."""
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _pressed(seconds: float) -> bytes:
    """All that the key pressed within the time sent; empty without one."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        ready, _, _ = select.select([sys.stdin], [], [], left)
        if ready:
            return os.read(sys.stdin.fileno(), KEYS_BYTES)
    return b""


VERBS = (Verb(top),)
