"""`dfrs history`: jobs that have ended, and how well they were served."""

from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import out, print_json, warn
from dfrs.cli.live.cluster import Json, live
from dfrs.cli.quantities import parse_seconds, show_instant
from dfrs.cli.verbs import Verb

if TYPE_CHECKING:
    from dfrs.live.client import Client
    from dfrs.live.protocol.resources import Job


@live
def history(
    client: "Client",
    since: Annotated[str, typer.Option(help="Only those that ended in the last: 30m, 24h, 7d.")] = "24h",
    user: Annotated[str | None, typer.Option(help="Only this user's jobs.")] = None,
    as_json: Json = False,
) -> None:
    """List jobs that have ended: how long they waited and ran, mean yield, stretch, exit.

    Stretch is the time in the system over the time it would have needed with all that it could use.

    Example: dfrs history --since 2h
    """
    from dfrs.cli.views.live import history_table

    span_s = parse_seconds(since, "--since")
    cluster = client.cluster()
    now = cluster.now
    jobs = ended_since(client, now - span_s, user)
    if as_json:
        print_json([job.model_dump(mode="json") for job in jobs])
        return
    if cluster.jobs_pruned_until is not None and cluster.jobs_pruned_until >= now - span_s:
        until = show_instant(cluster.jobs_pruned_until, now)
        warn(f"jobs that ended until {until} are no longer kept (dfrs serve --keep)")
    if not jobs:
        out.print(f"no job ended in the last {since}", markup=False)
        return
    out.print(history_table(jobs, now, out.width))


def ended_since(client: "Client", since: float, user: str | None = None) -> "list[Job]":
    """Jobs that ended after that wall-clock time, in the order of their ends."""
    from dfrs.live.protocol.resources import ENDED

    found = [job for job in client.all_jobs(user=user, states=ENDED) if (job.ended_at or 0.0) >= since]
    return sorted(found, key=lambda job: (job.ended_at or 0.0, job.id))


VERBS = (Verb(history),)
