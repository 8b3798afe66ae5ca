"""`dfrs slurm share-agent`: gives jobs of Slurm their shares of a node, beside slurmd."""

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import out
from dfrs.cli.live.agent import Level, read_token

if TYPE_CHECKING:
    from dfrs.live.share_agent.agent import ShareAgent


def share_agent(
    server: Annotated[
        str, typer.Option(help="The controller's address: http://HOST:PORT or https://HOST:PORT.", envvar="DFRS_SERVER")
    ],
    token_file: Annotated[
        Path,
        typer.Option(help="File with a token of role agent; nobody else may read it.", envvar="DFRS_TOKEN_FILE"),
    ],
    ca: Annotated[
        Path | None, typer.Option(help="Certificate authority of the controller, PEM.", envvar="DFRS_CA")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The node's name in Slurm; default: the host's.", show_default=False)
    ] = None,
    log_level: Annotated[Level, typer.Option(help="What to log.")] = Level.INFO,
) -> None:
    """Give the jobs of a node their shares of its CPUs, as the controller wants them, and tell it what they use.

    It writes the weights of the control groups that Slurm makes for its jobs, and starts, ends and decides nothing.
    While it is away, jobs have the shares that they had. It needs root, and runs until SIGTERM.

    Example:

        dfrs slurm share-agent --server https://head:7070 --ca ca.pem --token-file /etc/dfrs/agent.token
    """
    import asyncio

    from dfrs.live.agent.agent import check_name, host_name
    from dfrs.live.agent.connection import Server
    from dfrs.live.logs import set_up
    from dfrs.live.share_agent.agent import ShareAgent
    from dfrs.live.share_agent.groups import find_groups

    set_up(log_level.value)
    node = host_name() if name is None else check_name(name)
    groups = find_groups(node)
    agent = ShareAgent(node, Server(url=server, token=read_token(token_file), ca=ca), groups)
    out.print(f"node {node}: shares by {groups.kind}", markup=False, soft_wrap=True)
    asyncio.run(_until_signal(agent))


async def _until_signal(agent: "ShareAgent") -> None:
    import asyncio
    from contextlib import suppress

    loop, running = asyncio.get_running_loop(), asyncio.ensure_future(agent.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    with suppress(asyncio.CancelledError):
        await running
