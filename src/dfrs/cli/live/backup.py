"""`dfrs backup` and `dfrs restore`: copies of a controller's database, and what to do when it is damaged or too old."""

import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from dfrs.cli.console import out, print_json
from dfrs.cli.live.cluster import Json
from dfrs.cli.live.serve import DATABASE, database_url
from dfrs.cli.progress import progress
from dfrs.cli.quantities import show_bytes, show_count, show_instant
from dfrs.cli.verbs import Verb
from dfrs.model.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dfrs.live.controller.backups import Tell
    from dfrs.live.controller.database_file import Contents

State = Annotated[
    Path | None,
    typer.Option(help="The controller's; default: DFRS_STATE, or ~/.local/state/dfrs.", show_default=False),
]
Url = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        show_default=False,
        help=f"As of dfrs serve; default: {DATABASE}, or SQLite in the state directory.",
    ),
]
_T = TypeVar("_T")
_SHOWN = ("jobs", "nodes", "tokens")
_POSTGRES = "PostgreSQL has tools of its own: pg_dump -Fc -f FILE, and with the controller stopped pg_restore --clean"


def backup(
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.", show_default=False)],
    state: State = None,
    database: Url = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    as_json: Json = False,
) -> None:
    """Copy the controller's database to a file, as it is at one moment; the controller may go on meanwhile.

    The copy is read again and checked before the file gets its name. It holds commands of jobs and digests of tokens,
    so it is readable for your account alone. The verb reads the database itself: use it on the controller's machine.

    Examples:

        dfrs backup -o dfrs.backup

        dfrs backup -o monday.backup --state /var/lib/dfrs --force
    """
    from dfrs.live.controller.backups import back_up

    _, file = _where(state, database)
    found = _with_progress(lambda tell: back_up(file, output, replace=force, tell=tell))
    size = output.stat().st_size
    if as_json:
        print_json({"file": str(output), "database": str(file), "bytes": size} | asdict(found))
        return
    out.print(f"{output}: {_words(found)}; {show_bytes(size)}, checked", markup=False, soft_wrap=True)


def restore(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="What dfrs backup wrote.", show_default=False)
    ] = None,
    state: State = None,
    database: Url = None,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Go on although transactions are missing, or without a damaged checkpoint; without FILE with the "
            "database that is there.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Put a backup in the place of the controller's database. Stop the controller before.

    The backup is copied and checked before anything is replaced. What was there is kept in a directory
    before-restore-TIME beside it. What ran after the backup is not known to the restored controller.

    Examples:

        dfrs restore dfrs.backup

        dfrs restore monday.backup --state /var/lib/dfrs

        dfrs restore --accept-loss
    """
    from dfrs.live.controller import backups
    from dfrs.live.home import lock, make_private
    from dfrs.live.local.cluster import holder

    directory, target = _where(state, database)
    if file is None and not accept_loss:
        raise InputError("FILE: name a backup, or go on with the database that is there with --accept-loss")
    if file is not None and not file.is_file():
        raise InputError(f"{file}: there is no such file")
    source = file or target
    if file is None and not directory.is_dir():
        raise InputError(f"{directory}: there is no such directory; name a controller's with --state")
    make_private(directory)
    with ExitStack() as held:
        held.enter_context(lock(directory, "a controller serves it: stop that first"))
        if (process := holder(directory)) is not None:
            raise InputError(f"{directory}: dfrs up runs on it (process {process}): stop that first")
        done = _with_progress(lambda tell: backups.restore(source, target, accept=accept_loss, tell=tell))
    found, aside = done.contents, done.aside
    if as_json:
        document = {"database": str(target), "from": str(source), "aside": None if aside is None else str(aside)}
        print_json(document | ({} if found is None else asdict(found)))
        return
    has = "is gone: the next controller begins anew" if found is None else f"has {_words(found)}"
    kept = "" if aside is None else f"; what was there is in {aside}"
    out.print(f"{target}: {has}{kept}", markup=False, soft_wrap=True)


def _where(state: Path | None, database: str | None) -> tuple[Path, Path]:
    """The state directory and the database's file. Raises InputError where it is no file."""
    from dfrs.live.client import state_directory
    from dfrs.live.controller.database_file import file_of

    directory = (state or state_directory()).absolute()
    file = file_of(database_url(database, None, directory))
    if file is None:
        raise InputError(f"--database: must be a file of SQLite; {_POSTGRES}")
    return directory, file.absolute()


def _with_progress(work: "Callable[[Tell], _T]") -> _T:
    with progress(1.0) as (bar, task):
        return work(lambda part: bar.update(task, completed=part))


def _words(found: "Contents") -> str:
    until = "" if found.last_event_at is None else f" until {show_instant(found.last_event_at, time.time())}"
    counts = [show_count(found.rows.get(name, 0), name.removesuffix("s")) for name in _SHOWN]
    return f"{show_count(found.last_event, 'event')}{until}, {', '.join(counts)}"


VERBS = (Verb(backup), Verb(restore))
