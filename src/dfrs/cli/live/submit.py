"""`dfrs submit`: give the cluster a program to run."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import err, out, print_json
from dfrs.cli.live.cluster import Json, job_words, live, patience
from dfrs.cli.live.job_options import PROGRAM_LAST, ScriptCommand, checked, of_job
from dfrs.cli.verbs import Verb
from dfrs.model.text import visible

if TYPE_CHECKING:
    from dfrs.live.client import Client
    from dfrs.live.protocol.resources import Job

INTERRUPTED = 130


@live
@of_job
def submit(
    client: "Client",
    fields: Mapping[str, object],
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait for its end; exit with its status.")] = False,
    as_json: Json = False,
) -> None:
    """Submit a program, or a script with lines `#DFRS --tasks 4 --cpu 0.5` or `#SBATCH` in its leading comments.

    Options come before the command. Those of the command line win over the script's. The job gets PATH, HOME, LANG,
    USER, LOGNAME and SHELL of your environment, and what --env says; not the rest.

    Examples:

        dfrs submit --cpu 0.5 --memory 512M -- ./prog --fast input.dat

        dfrs submit --tasks 4 --min-yield 0.2 --wait job.sh

        dfrs submit --array 10 --after 12 -- sh -c 'echo $DFRS_ARRAY_INDEX'
    """
    jobs = client.submit(checked(client, fields))
    if wait:
        raise typer.Exit(_wait(client, jobs, as_json=as_json))
    if as_json:
        print_json({"jobs": jobs})
    else:
        out.print(job_words(jobs))


def _wait(client: "Client", jobs: Sequence[int], *, as_json: bool) -> int:
    """Wait until all of them have ended, and say how; the exit status that tells that."""
    from dfrs.live.following import asleep, until_ended

    if not as_json:
        err.print(f"{job_words(jobs)}; waiting for the end (Ctrl-C leaves it running)", style="dim")
    try:
        ended = asleep(until_ended(client, jobs, patience()))
    except KeyboardInterrupt:
        # Those of an array have one number after the other.
        named = f"{jobs[0]}-{jobs[-1]}" if len(jobs) > 1 else f"{jobs[0]}"
        err.print(f"{job_words(jobs)}: left in the cluster; end it with: dfrs cancel {named}")
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        print_json({"jobs": jobs, "ended": [job.model_dump(mode="json") for job in ended]})
    else:
        for job in ended:
            err.print(f"job {job.id}: {visible(job.exit) or job.state.value}", markup=False)
    return max(status_of(job) for job in ended)


def status_of(job: "Job") -> int:
    """The exit status that tells how a job ended: its own, 128 and the signal, or 1."""
    from dfrs.live.protocol.resources import JobState

    if job.state == JobState.DONE:
        return 0
    if job.exit_code is None or job.exit_code == 0:
        return 1
    return job.exit_code if job.exit_code > 0 else 128 - job.exit_code


VERBS = (Verb(submit, command={"cls": ScriptCommand, "context_settings": PROGRAM_LAST}),)
