"""What a shell offers where a live job, a node or a reservation is named: those that the cluster has.

Typer calls this with what is written so far. A shell waits for it, and shows no error: where there is no answer soon,
nothing is offered.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from dfrs.model.errors import DfrsError
from dfrs.model.text import visible

if TYPE_CHECKING:
    from dfrs.live.client import Client

PATIENCE_S = 2.0
MOST = 200
"""Jobs that are offered: the latest."""

Offers = list[tuple[str, str]]
"""Words, and what each means."""


def complete_jobs(incomplete: str) -> Offers:
    """Numbers of jobs that have not ended."""
    return _offered(
        incomplete, lambda client: ((str(job.id), f"{job.name}, {job.state}") for job in client.jobs(limit=MOST))
    )


def complete_nodes(incomplete: str) -> Offers:
    """Names of nodes."""
    return _offered(incomplete, lambda client: ((node.name, node.state.value) for node in client.nodes()))


def complete_reservations(incomplete: str) -> Offers:
    """Numbers of reservations that have not ended."""
    return _offered(
        incomplete, lambda client: ((str(each.id), ", ".join(each.nodes)) for each in client.reservations())
    )


def _offered(incomplete: str, ask: "Callable[[Client], Iterable[tuple[str, str]]]") -> Offers:
    with suppress(DfrsError, ImportError):
        from dfrs.live.client import Client, find_endpoint

        with Client(find_endpoint(), timeout_s=PATIENCE_S) as client:
            # Names of others are shown by the shell as they are.
            return [(word, visible(words)) for word, words in ask(client) if word.startswith(incomplete)]
    return []
