"""What the verbs of a live cluster share: where it is, the options that say so, patience while it is away."""

import functools
import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import err
from dfrs.cli.live.completing import complete_jobs
from dfrs.cli.quantities import show_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dfrs.live.client import Client
    from dfrs.live.following import Patience

PANEL = "Which cluster"

Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
JobId = Annotated[
    int,
    typer.Argument(metavar="JOB", help="Id of the job.", min=1, show_default=False, autocompletion=complete_jobs),
]

Server = Annotated[
    str | None,
    typer.Option(
        envvar="DFRS_SERVER",
        metavar="URL",
        rich_help_panel=PANEL,
        show_default=False,
        help="Address of the controller; default: that of the cluster started here.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        envvar="DFRS_TOKEN_FILE",
        metavar="FILE",
        rich_help_panel=PANEL,
        help="File with your token.",
        show_default=False,
    ),
]
Authority = Annotated[
    Path | None,
    typer.Option(
        envvar="DFRS_CA",
        metavar="FILE",
        rich_help_panel=PANEL,
        show_default=False,
        help="Certificate authority to trust, PEM.",
    ),
]


@contextmanager
def connected(server: str | None, token_file: Path | None, ca: Path | None) -> "Generator[Client]":
    """A client of the cluster that these options, the environment or the client file name."""
    from dfrs.live.client import Client, find_endpoint

    with Client(find_endpoint(server, token_file, ca)) as client:
        yield client


def live(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb of a live cluster: its first parameter, a `Client`, is opened by --server, --token-file and --ca."""
    signature = inspect.signature(verb)
    first, *own = signature.parameters.values()
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in (("server", Server), ("token_file", TokenFile), ("ca", Authority))
    ]

    @functools.wraps(verb)
    def called(*, server: str | None, token_file: Path | None, ca: Path | None, **arguments: object) -> None:
        with connected(server, token_file, ca) as client:
            verb(client, **arguments)

    # Typer builds the options from what it sees here.
    kept = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    called.__signature__ = signature.replace(parameters=[*kept, *shared])  # pyright: ignore[reportAttributeAccessIssue]
    called.__annotations__ = {
        name: kind for name, kind in verb.__annotations__.items() if name not in {first.name, "return"}
    } | {parameter.name: parameter.annotation for parameter in shared}
    return called


def patience() -> "Patience":
    """For what a verb asks again and again; it says so when nobody answers."""
    from dfrs.live.following import Patience

    return Patience(tell=_tell_silence)


def _tell_silence(limit_s: float) -> None:
    err.print(f"no answer; trying for {show_seconds(limit_s)}", style="dim")


def job_words(jobs: "Sequence[int]") -> str:
    """Job ids in words: `job 17`, `jobs 17-20`, `jobs 3, 5, 7-9`."""
    if len(jobs) == 1:
        return f"job {jobs[0]}"
    runs: list[list[int]] = []
    for job in jobs:
        if runs and job == runs[-1][-1] + 1:
            runs[-1].append(job)
        else:
            runs.append([job])
    words = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return f"jobs {', '.join(words)}"
