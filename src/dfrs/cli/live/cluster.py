"""What the verbs of a live cluster share: where it is, the options that say so, patience while it is away."""

import functools
import inspect
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from dfrs.cli.console import err
from dfrs.cli.quantities import show_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dfrs.live.client import Client
    from dfrs.live.protocol.resources import Job

PANEL = "Which cluster"
PATIENCE_S = 60.0
"""How long a verb that follows something waits for a controller that is away."""

Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
Jobs = Annotated[list[int], typer.Argument(metavar="JOB...", help="Ids of jobs.", min=1, show_default=False)]
JobId = Annotated[int, typer.Argument(metavar="JOB", help="Id of the job.", min=1, show_default=False)]

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

_Result = TypeVar("_Result")


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


class Patience:
    """Repeats questions while the controller is away for a moment: it may be starting again."""

    def __init__(self, limit_s: float = PATIENCE_S) -> None:
        self._limit_s = limit_s
        self._told = False

    def ask(self, question: Callable[[], _Result]) -> _Result:
        """Its answer; raises UnreachableError or UnavailableError only after `limit_s` seconds of silence."""
        from dfrs.live.client import UnreachableError
        from dfrs.live.protocol.errors import UnavailableError

        since, pause_s = time.monotonic(), 0.1
        while True:
            try:
                answer = question()
            except (UnreachableError, UnavailableError):
                if time.monotonic() - since > self._limit_s:
                    raise
                if not self._told and time.monotonic() - since > 1.0:
                    self._told = True
                    err.print(f"no answer; trying for {show_seconds(self._limit_s)}", style="dim")
                time.sleep(pause_s)
                pause_s = min(2.0, pause_s * 1.5)
            else:
                self._told = False
                return answer


def until_ended(client: "Client", jobs: "Sequence[int]", patience: Patience) -> "list[Job]":
    """The jobs once all have ended. Asks at most twice a second, and less often the longer it takes."""
    from dfrs.live.protocol.resources import ENDED

    ended: list[Job] = []
    for job in jobs:
        pause_s = 0.1
        while (seen := patience.ask(lambda job=job: client.job(job))).state not in ENDED:
            time.sleep(pause_s)
            pause_s = min(2.0, pause_s * 1.2)
        ended.append(seen)
    return ended


def job_words(jobs: "Sequence[int]") -> str:
    """Job ids in words: `job 17`, `jobs 17-20`, `jobs 3, 5`."""
    if len(jobs) == 1:
        return f"job {jobs[0]}"
    if len(jobs) > 2 and list(jobs) == list(range(jobs[0], jobs[-1] + 1)):
        return f"jobs {jobs[0]}-{jobs[-1]}"
    return f"jobs {', '.join(map(str, jobs))}"
