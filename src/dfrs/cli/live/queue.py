"""`dfrs queue`: jobs that have not ended, and why those that wait do."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import out, out_of, print_json
from dfrs.cli.live.cluster import Json, live
from dfrs.cli.live.selecting import AccountOption, States, parse_states
from dfrs.cli.quantities import quoted
from dfrs.cli.refusals import refuse_beside
from dfrs.cli.verbs import Verb
from dfrs.live.protocol.job_order import COLUMNS
from dfrs.model.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dfrs.live.client import Client
    from dfrs.live.protocol.resources import ClusterSnapshot, Job

WATCH_S = 2.0
"""Between two looks."""
OTHER_LINES = 4
"""Of a screen, beside jobs and why they do not run: headings, how many do not fit, what a sign means, the yields."""


@live
def queue(
    client: "Client",
    mine: Annotated[bool, typer.Option("--mine", help="Only your own jobs.")] = False,
    user: Annotated[str | None, typer.Option(help="Only this user's jobs.")] = None,
    account: AccountOption = None,
    state: States = None,
    sort: Annotated[
        str, typer.Option(metavar="COLUMN", help="Sort by columns, as user,-age; - for the greatest first.")
    ] = "job",
    watch: Annotated[bool, typer.Option("--watch", help="Look again every 2 s; q or Ctrl-C ends.")] = False,
    as_json: Json = False,
) -> None:
    """List the jobs that have not ended: need, yield, memory, nodes; below, why the others do not run.

    Need is in cores a task, with its error where the cluster estimates it. Yield is the fraction of its need that a job
    receives, as measured in the last seconds; marked with * it is what the job was granted, and not measured yet.

    Examples:

        dfrs queue --mine

        dfrs queue --state running --sort user,-memory --watch
    """
    if watch and as_json:
        raise InputError("--watch: goes on, and --json is one document: give one of them")
    if mine:
        refuse_beside("--mine", {"--user": user is not None}, "names you")
    states = parse_states(state) or None
    _check(sort)
    whose = client.me()["user"] if mine else user

    def look() -> "tuple[ClusterSnapshot, list[Job]]":
        seen = client.snapshot(user=whose, states=states, sort=sort)
        return seen, [job for job in seen.jobs if account in {None, job.account}]

    if as_json:
        print_json([job.model_dump(mode="json") for job in look()[1]])
    elif watch:
        from dfrs.cli.live.top import watch as on_screen

        on_screen(lambda height: _screen(*look(), height), WATCH_S)
    else:
        _print(*look())


def _print(seen: "ClusterSnapshot", jobs: "Sequence[Job]") -> None:
    from dfrs.cli.views.live import job_table, reasons, table_width

    table = job_table(jobs, seen.cluster.now, out.width)
    console = out_of(table_width(table))
    for part in _parts(seen, jobs, table, reasons(jobs)):
        console.print(part)


def _screen(seen: "ClusterSnapshot", jobs: "Sequence[Job]", height: int) -> "RenderableType":
    """At most `height` lines: of many jobs the first, and a third of the screen for why some do not run."""
    from rich.console import Group
    from rich.text import Text

    from dfrs.cli.views.live import job_table, reasons

    room = max(3, height - OTHER_LINES)
    why = reasons(jobs, most=room // 3 - 1)
    rows = room - len(why)
    for line in why:
        line.truncate(out.width, overflow="ellipsis")
    if len(jobs) > rows:
        why.insert(0, Text(f"… {len(jobs) - rows} more do not fit here", style="dim"))
    table = job_table(jobs[:rows], seen.cluster.now, out.width)
    return Group(*_parts(seen, jobs, table, why))


def _parts(
    seen: "ClusterSnapshot", jobs: "Sequence[Job]", table: "RenderableType", below: "Sequence[RenderableType]"
) -> "list[RenderableType]":
    from rich.text import Text

    from dfrs.cli.views.live import measure_line, yields_words

    if not jobs:
        return [Text("no jobs; dfrs history shows those that have ended")]
    meaning = measure_line(jobs)
    return [table, *below, *([] if meaning is None else [meaning]), Text(yields_words(seen.cluster), style="dim")]


def _check(sort: str) -> None:
    for word in sort.split(","):
        if word.removeprefix("-") not in COLUMNS:
            raise InputError(f"--sort: {quoted(word)}: must be one of {', '.join(COLUMNS)}; with - the greatest first")


VERBS = (Verb(queue),)
