"""`dfrs queue`: jobs that have not ended, and why those that wait do."""

from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import out, print_json
from dfrs.cli.live.cluster import Json, live
from dfrs.cli.verbs import LIVE, Verb

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
    is given now.

    Example: dfrs queue --mine
    """
    from dfrs.cli.views.live import job_table, reasons, yields_words

    whose = client.me()["user"] if mine else user
    jobs = sorted(client.all_jobs(user=whose), key=lambda job: job.id)
    if as_json:
        print_json([job.model_dump(mode="json") for job in jobs])
        return
    if not jobs:
        out.print("no jobs; dfrs history shows those that have ended")
        return
    cluster = client.cluster()
    out.print(job_table(jobs, cluster.now, out.width))
    for line in reasons(jobs):
        out.print(line)
    out.print(yields_words(cluster.minimum_yield, cluster.median_yield, cluster.bound), style="dim")


VERBS = (Verb(queue, LIVE, 20),)
