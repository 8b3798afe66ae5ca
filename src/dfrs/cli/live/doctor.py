"""`dfrs doctor`: what is wrong on this machine, and how to mend it."""

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.live.cluster import Authority, Json, Server, TokenFile
from dfrs.cli.live.findings import show_findings
from dfrs.cli.live.serve import DATABASE, database_url
from dfrs.cli.verbs import Verb
from dfrs.model.errors import DfrsError

if TYPE_CHECKING:
    from dfrs.live.doctor.findings import Check, Finding


def doctor(
    state: Annotated[
        Path | None,
        typer.Option(help="The controller's; default: DFRS_STATE, or ~/.local/state/dfrs.", show_default=False),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            show_default=False,
            help=f"As of dfrs serve; default: {DATABASE}, or SQLite in the state directory.",
        ),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(help="The agent's, with its tasks' output; default: host in that directory.", show_default=False),
    ] = None,
    server: Server = None,
    token_file: TokenFile = None,
    ca: Authority = None,
    as_json: Json = False,
) -> None:
    """Check this machine and the way to its controller, one line for each check: ok, warning or wrong, and what to do.

    Exit status 1 if something is wrong, 0 otherwise. Run it as the account that runs the controller or the agent.

    Examples:

        dfrs doctor

        sudo dfrs doctor --server https://head:7070 --token-file agent.token --ca ca.pem
    """
    from dfrs.live.client import state_directory
    from dfrs.live.doctor.findings import run

    place = (state or state_directory()).absolute()
    show_findings(list(run(_checks(place, database, root or place / "host", server, token_file, ca))), as_json)


def _checks(
    place: Path, database: str | None, root: Path, server: str | None, token_file: Path | None, ca: Path | None
) -> "Iterable[tuple[str, Check]]":
    from dfrs.live.controller.database_file import file_of
    from dfrs.live.doctor import host, state

    file = file_of(database_url(database, None, place))
    disks = [("state", place), ("tasks' output", root), *([] if file is None else [("database", file.parent)])]
    yield "control groups", host.control_groups
    yield "swap", host.swap
    yield "CRIU", host.criu
    yield "limits", host.limits
    yield "compiled kernels", host.kernels
    yield "disks", partial(host.disks, disks)
    yield "state directory", partial(state.directory, place)
    yield "database", partial(state.database, file)
    yield "controller", partial(_controller, place, server, token_file, ca)


def _controller(place: Path, server: str | None, token_file: Path | None, ca: Path | None) -> "Iterable[Finding]":
    from dfrs.live.client import UnreachableError, find_endpoint
    from dfrs.live.doctor.cluster import controller
    from dfrs.live.doctor.findings import warning, wrong

    try:
        endpoint = find_endpoint(server, token_file, ca, os.environ | {"DFRS_STATE": str(place)})
    except UnreachableError as error:
        return [warning("controller", str(error), "or name one with --server")]
    except DfrsError as error:
        return [wrong("token", str(error), "name a file that holds a token with --token-file")]
    return controller(endpoint)


VERBS = (Verb(doctor),)
