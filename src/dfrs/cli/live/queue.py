"""`dfrs queue`: jobs that have not ended, and why those that wait do."""

from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import out, print_json
from dfrs.cli.live.cluster import Json, live
from dfrs.cli.verbs import Verb

if TYPE_CHECKING:
    from dfrs.live.client import Client


@live
def queue(
    client: "Client",
    mine: Annotated[bool, typer.Option("--mine", help="Only your own jobs.")] = False,
    user: Annotated[str | None, typer.Option(help="Only this user's jobs.")] = None,
    as_json: Json = False,
) -> None:
    """List the jobs that have not ended: need, yield, memory, nodes; below, why the others do not run.

    Need is in cores a task, with its error where the cluster estimates it. Yield is the fraction of its need that a job
    receives, as measured in the last seconds; marked with * it is what the job was granted, and not measured yet.

    Example: dfrs queue --mine
    """
    from dfrs.cli.views.live import job_table, measure_line, reasons, yields_words

    whose = client.me()["user"] if mine else user
    seen = client.snapshot(user=whose)
    jobs = seen.jobs[::-1]
    if as_json:
        print_json([job.model_dump(mode="json") for job in jobs])
        return
    if not jobs:
        out.print("no jobs; dfrs history shows those that have ended")
        return
    out.print(job_table(jobs, seen.cluster.now, out.width))
    for line in reasons(jobs):
        out.print(line)
    if (line := measure_line(jobs)) is not None:
        out.print(line)
    out.print(yields_words(seen.cluster), style="dim")


VERBS = (Verb(queue),)
