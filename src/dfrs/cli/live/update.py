"""`dfrs update`: change what jobs ask for."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from dfrs.cli.live.array import parse_limit
from dfrs.cli.live.cancel import each_job
from dfrs.cli.live.cluster import Json, live
from dfrs.cli.live.dependencies import parse_after
from dfrs.cli.live.job_options import parse_warning
from dfrs.cli.live.selecting import All, Name, Selection, States, User, Words, Yes
from dfrs.cli.quantities import parse_bytes, parse_instant, parse_seconds, quoted
from dfrs.cli.verbs import Verb
from dfrs.model.errors import InputError

if TYPE_CHECKING:
    from dfrs.live.client import Client

NONE = "none"
"""What takes back what was asked for."""
_T = TypeVar("_T")
_Text = str | None


@live
def update(
    client: "Client",
    jobs: Words = None,
    limit: Annotated[
        _Text, typer.Option(metavar="TIME", help="End it after so much running time: 90s, 2h.", show_default=False)
    ] = None,
    estimate: Annotated[
        _Text,
        typer.Option(
            "--time",
            "--estimate",
            metavar="TIME",
            help="Estimated processing time, for batch policies: 90s, 2h.",
            show_default=False,
        ),
    ] = None,
    rename: Annotated[_Text, typer.Option(metavar="NAME", help="Its name from now on.", show_default=False)] = None,
    min_yield: Annotated[
        float | None, typer.Option(help="Smallest yield it is to run with, 0 to 1.", show_default=False)
    ] = None,
    weight: Annotated[
        float | None, typer.Option(help="A factor of its priority: below 1 others go first.", show_default=False)
    ] = None,
    cpu_cores: Annotated[
        _Text, typer.Option("--cpu", metavar="CORES", help="Cores that each task needs.", show_default=False)
    ] = None,
    memory: Annotated[
        _Text, typer.Option(metavar="SIZE", help="Memory of each task: 512M, 1.5G.", show_default=False)
    ] = None,
    warning: Annotated[
        _Text,
        typer.Option(
            "--signal",
            metavar="NAME[@SECONDS]",
            help="Signal for its processes so many seconds (60) before its limit: USR1@120.",
            show_default=False,
        ),
    ] = None,
    after: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JOB[:KIND]",
            help="What it comes after instead of what it came after, as for submit: 3:any. Several times for several.",
        ),
    ] = None,
    at: Annotated[
        _Text,
        typer.Option(metavar="WHEN", help='Start then: "2026-11-23 08:00", +30m.', show_default=False),
    ] = None,
    array_limit: Annotated[
        _Text,
        typer.Option(metavar="LIMIT", help="It begins when fewer jobs of its array run than that.", show_default=False),
    ] = None,
    name: Name = None,
    user: User = None,
    state: States = None,
    everything: All = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Change jobs that wait. Of one that has begun only name, CPU need, smallest yield, weight and estimate can change.

    What you do not name stays as it is; "none" takes back what was asked for, as --limit none. A job keeps its place in
    the queue. Jobs are named by numbers and ranges, or chosen by --name, --user, --state or --all; of a range, and of
    what is chosen, only those are meant to which it can be done.

    Examples:

        dfrs update 17 --limit 2h

        dfrs update --name "fit-*" --memory 2G --after none
    """
    from dfrs.live.job_request import checked_update
    from dfrs.live.protocol.resources import ENDED, JobState

    said = _Said()
    said.take("--limit", limit, "time_limit_s", parse_seconds)
    said.take("--time", estimate, "estimate_s", parse_seconds)
    said.take("--rename", rename, "name", lambda text, _: text)
    said.take("--min-yield", min_yield, "minimum_yield", lambda value, _: value)
    said.take("--weight", weight, "weight", lambda value, _: value)
    said.take("--cpu", cpu_cores, "cpu_cores", _number)
    said.take("--memory", memory, "memory_bytes", parse_bytes)
    said.take("--at", at, "start_at", parse_instant)
    said.take("--array-limit", array_limit, "array_limit", parse_limit)
    if warning is not None:
        signal, seconds = (None, None) if warning == NONE else parse_warning(warning)
        said.add(f"--signal {quoted(warning)}", warning_signal=signal, **({"warning_s": seconds} if seconds else {}))
    if after:
        said.add(f"--after {quoted(' '.join(after))}", **parse_after(() if after == [NONE] else after))
    if not said.fields:
        raise InputError("nothing to change: give one of the options that say what jobs ask for, as --limit 2h")
    fields = checked_update(said.fields, said.options).fields
    possible = set(JobState) - ENDED - {JobState.ENDING}
    chosen = Selection(words=jobs or (), name=name, user=user, states=state or (), everything=everything, yes=yes)
    change = partial(_update, client, fields)
    # A refusal of one that has begun before it is asked for again would not say whether it was changed before.
    each_job(chosen.choose(client, "update", possible), change, "updated", as_json, again=False)


def _update(client: "Client", fields: Any, job: int) -> None:  # noqa: ANN401 - fields of any type
    client.update(job, **fields)


class _Said:
    """The fields of an update, and by which option each was given."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.options: dict[str, str] = {}

    def take(self, option: str, value: _T | None, field: str, parse: Callable[[_T, str], object]) -> None:
        """One option, where it is given. Raises what `parse` raises."""
        if value is not None:
            self.add(f"{option} {quoted(value)}", **{field: None if value == NONE else parse(value, option)})

    def add(self, option: str, **fields: object) -> None:
        """Fields that an option says."""
        self.fields |= fields
        self.options |= dict.fromkeys(fields, option)


def _number(text: str, option: str) -> float:
    try:
        if not text.isascii() or "_" in text:
            raise ValueError
        return float(text)
    except ValueError:
        raise InputError(f"{option}: {quoted(text)}: must be a number") from None


VERBS = (Verb(update),)
