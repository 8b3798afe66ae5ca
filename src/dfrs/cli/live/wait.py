"""`dfrs wait`, and how `dfrs submit --wait` waits: for the end of jobs, with a status that tells how they ended."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import err, print_json
from dfrs.cli.live.cluster import Json, job_words, live, patience
from dfrs.cli.live.completing import complete_jobs
from dfrs.cli.live.selecting import JOB, parse_jobs, present_jobs
from dfrs.cli.verbs import Verb
from dfrs.model.text import visible

if TYPE_CHECKING:
    from dfrs.live.client import Client
    from dfrs.live.protocol.resources import Job

INTERRUPTED = 130


@live
def wait(
    client: "Client",
    jobs: Annotated[
        list[str],
        typer.Argument(metavar=JOB, help="Jobs and ranges of jobs.", show_default=False, autocompletion=complete_jobs),
    ],
    as_json: Json = False,
) -> None:
    """Wait until jobs have ended, and exit with their status.

    That is the job's own, 128 and the signal that killed it, or 1 if it was cancelled; of several jobs the greatest.
    Ctrl-C ends the waiting alone.

    Example: dfrs wait 17 20-25
    """
    found = present_jobs(client, parse_jobs(jobs))
    if not found:
        err.print("no job to wait for")
        if as_json:
            print_json({"jobs": [], "ended": []})
        return
    # Nobody waits for hours for the first one, to hear then that there is no second.
    for job in found:
        client.job(job)
    raise typer.Exit(wait_for(client, found, as_json=as_json))


def wait_for(client: "Client", jobs: Sequence[int], *, as_json: bool) -> int:
    """Wait until all of them have ended, and say how; the exit status that tells that."""
    from dfrs.live.following import asleep, until_ended

    if not as_json:
        err.print(f"{job_words(jobs)}; waiting for the end (Ctrl-C leaves it running)", style="dim")
    try:
        ended = asleep(until_ended(client, jobs, patience()))
    except KeyboardInterrupt:
        err.print(f"{job_words(jobs)}: left in the cluster; end it with: dfrs cancel {_as_words(jobs)}")
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        print_json({"jobs": jobs, "ended": [job.model_dump(mode="json") for job in ended]})
    else:
        for job in ended:
            err.print(f"job {job.id}: {visible(job.exit) or job.state.value}", markup=False)
    return max(status_of(job) for job in ended)


def _as_words(jobs: Sequence[int]) -> str:
    """As the verbs take them."""
    # In the order in which they were written, which may be any: a range is to have no other jobs.
    if len(jobs) > 1 and list(jobs) == list(range(jobs[0], jobs[0] + len(jobs))):
        return f"{jobs[0]}-{jobs[-1]}"
    return " ".join(map(str, jobs))


def status_of(job: "Job") -> int:
    """The exit status that tells how a job ended: its own, 128 and the signal, or 1."""
    from dfrs.live.protocol.resources import JobState

    if job.state == JobState.DONE:
        return 0
    if job.exit_code is None or job.exit_code == 0:
        return 1
    return job.exit_code if job.exit_code > 0 else 128 - job.exit_code


VERBS = (Verb(wait),)
