"""`dfrs cancel`, `hold` and `release`: what users do to their jobs."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import typer

from dfrs.cli.console import err, out, print_json
from dfrs.cli.live.cluster import Jobs, Json, job_words, live
from dfrs.cli.verbs import Verb
from dfrs.model.errors import DfrsError
from dfrs.model.text import visible

if TYPE_CHECKING:
    from dfrs.live.client import Client


@live
def cancel(client: "Client", jobs: Jobs, as_json: Json = False) -> None:
    """End jobs: their processes are asked to end, and killed if they do not.

    Example: dfrs cancel 17 18
    """
    _each(jobs, client.cancel, "cancelled", as_json)


@live
def hold(client: "Client", jobs: Jobs, as_json: Json = False) -> None:
    """Keep jobs from running until they are released; one that runs is paused.

    Example: dfrs hold 17
    """
    _each(jobs, client.hold, "held", as_json)


@live
def release(client: "Client", jobs: Jobs, as_json: Json = False) -> None:
    """Let held jobs run again.

    Example: dfrs release 17
    """
    _each(jobs, client.release, "released", as_json)


def _each(jobs: Sequence[int], act: Callable[[int], None], done_word: str, as_json: bool) -> None:
    """Do it to each; what cannot be done to one does not keep the others from it. Status 1 if any failed."""
    from dfrs.live.client import UnreachableError

    done: list[int] = []
    failed: dict[int, str] = {}
    for job in dict.fromkeys(jobs):
        try:
            act(job)
            done.append(job)
        except UnreachableError:
            raise
        except DfrsError as error:
            failed[job] = str(error)
    if as_json:
        print_json({done_word: done, "failed": [{"job": job, "why": why} for job, why in failed.items()]})
    elif done:
        out.print(f"{done_word} {job_words(done)}")
    for why in failed.values():
        err.print(f"dfrs: {visible(why)}", markup=False, soft_wrap=True)
    if failed:
        raise typer.Exit(1)


VERBS = (Verb(cancel), Verb(hold), Verb(release))
