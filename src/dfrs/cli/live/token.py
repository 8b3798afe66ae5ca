"""`dfrs token`: who may come to a live cluster, and as what."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from dfrs.cli.console import err, out, print_json
from dfrs.cli.live.cluster import Json, live
from dfrs.cli.quantities import parse_seconds, show_instant
from dfrs.cli.verbs import Verb
from dfrs.model.errors import InputError

if TYPE_CHECKING:
    from dfrs.live.client import Client
    from dfrs.live.protocol.resources import TokenInfo

app = typer.Typer(
    name="token",
    help="Make, list and end tokens of a live cluster. Admins only.",
    no_args_is_help=True,
)

ROLES = ("admin", "user", "viewer", "agent")
_DAY_S = 86400.0


@app.command("create")
@live
def create(
    client: "Client",
    user: Annotated[str, typer.Argument(metavar="USER", help="Whose it is.", show_default=False)],
    role: Annotated[str, typer.Option(help="admin, user, viewer or agent.")] = "user",
    lasts: Annotated[str, typer.Option(metavar="TIME", help="How long it is good.")] = "365d",
    file: Annotated[
        Path | None, typer.Option("--file", "-o", help="Write it there, readable for you alone.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a token. It is shown this once and stored nowhere.

    A viewer sees everything but output and commands of jobs; a user also submits, and controls own jobs; an admin may
    everything; an agent may only be the agent of a node, and of no other one than the first for which it is used.

    Examples:

        dfrs token create alice -o alice.token

        dfrs token create wall --role viewer --lasts 30d

        dfrs token create node7 --role agent -o node7.token
    """
    from pydantic import ValidationError

    from dfrs.live.home import write_private
    from dfrs.live.protocol.resources import TokenRequest

    if role not in ROLES:
        raise InputError(f'--role "{role}": must be one of {", ".join(ROLES)}')
    days = parse_seconds(lasts, "--lasts") / _DAY_S
    if not 0 < days <= 36500:
        raise InputError(f"--lasts {lasts}: must be above 0 and at most 36500d")
    try:
        request = TokenRequest.model_validate({"user": user, "role": role, "days": days})
    except ValidationError:
        raise InputError(
            f'USER "{user}": must be a letter or _, then up to 31 letters, digits, ".", "_" or "-"'
        ) from None
    if file is not None and file.exists():
        raise InputError(f"{file}: is there already; name another file, or remove it")
    made = client.create_token(request)
    if file is not None:
        write_private(file, made.token + "\n")
    if as_json:
        print_json(made.model_dump(mode="json", exclude={"token"} if file is not None else None))
    elif file is not None:
        out.print(f"token {made.id} of {made.user} ({made.role}) is in {file}", markup=False, soft_wrap=True)
    else:
        err.print(f"token {made.id} of {made.user} ({made.role}); it is shown only now:", markup=False)
        print(made.token)


@app.command("list")
@live
def list_(client: "Client", as_json: Json = False) -> None:
    """All tokens, without their secrets.

    Example:

        dfrs token list
    """
    tokens = client.tokens()
    if as_json:
        print_json([token.model_dump(mode="json") for token in tokens])
        return
    now = time.time()
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("id", "user", "role", "made", "good until", "node"):
        table.add_column(title, justify="right" if title == "id" else "left")
    for token in tokens:
        until = show_instant(token.expires_at, now)
        state = "revoked" if token.revoked else f"{until} (expired)" if token.expires_at <= now else until
        table.add_row(str(token.id), token.user, token.role, show_instant(token.created_at, now), state, _bound(token))
    out.print(table)


@app.command("revoke")
@live
def revoke(
    client: "Client",
    token: Annotated[int, typer.Argument(metavar="TOKEN", help="Its id.", min=1, show_default=False)],
    as_json: Json = False,
) -> None:
    """End a token at once. Agents and pages that use it are cut off within half a minute.

    Example:

        dfrs token revoke 3
    """
    client.revoke_token(token)
    if as_json:
        print_json({"revoked": token})
    else:
        out.print(f"token {token} is revoked")


@app.command("rebind")
@live
def rebind(
    client: "Client",
    token: Annotated[int, typer.Argument(metavar="TOKEN", help="Its id.", min=1, show_default=False)],
    as_json: Json = False,
) -> None:
    """Have the node of an agent's token admitted anew: on another host, or with more CPU or memory.

    It is admitted with what it offers when its agent next connects, and the token is bound to the host where that is.

    Example:

        dfrs token rebind 4
    """
    rebound = client.rebind_token(token)
    if as_json:
        print_json(rebound.model_dump(mode="json"))
    elif rebound.node is None:
        out.print(f"token {token} admits the first node that uses it")
    else:
        out.print(f"token {token} admits node {rebound.node} anew when its agent next connects", soft_wrap=True)


def _bound(token: "TokenInfo") -> str:
    """The node to which it is bound, and its host."""
    if token.local:
        return "any on the controller's machine"
    return f"{token.node} on {token.host or 'the next host'}" if token.node else ""


VERBS = (Verb(app, name="token"),)
