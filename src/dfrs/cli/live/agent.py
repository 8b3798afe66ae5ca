"""`dfrs agent`: runs the tasks of one node as the controller wants it."""

import os
import signal
import stat
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import out
from dfrs.cli.live.node_names import check_feature
from dfrs.cli.live.resource_options import parse_counts, show_counts
from dfrs.cli.quantities import parse_bytes, parse_seconds, parse_swap
from dfrs.cli.verbs import Verb
from dfrs.model.errors import InputError

if TYPE_CHECKING:
    import threading

    from dfrs.live.agent.agent import Agent, AgentSettings


class ShareMode(StrEnum):
    """What a task's share is."""

    WEIGHTS = "weights"
    CAPS = "caps"


class Level(StrEnum):
    """What is worth a line in the log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def agent(
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
    name: Annotated[str | None, typer.Option(help="Name of the node; default: that of the host.")] = None,
    root: Annotated[
        Path | None, typer.Option(help="Directory of tasks and their output; nodes of one host share it.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Names the control groups, dfrs/CLUSTER/NODE; default: made from the root.")
    ] = None,
    cpus: Annotated[str | None, typer.Option(help="CPUs of the node, as 0,2-3; default: all.")] = None,
    cores: Annotated[float | None, typer.Option(help="CPU time of the node in cores, if less than its CPUs.")] = None,
    memory: Annotated[
        str | None, typer.Option(help="Memory of the node, as 4G; default: the host's less a reserve.")
    ] = None,
    swap: Annotated[
        str | None,
        typer.Option(
            envvar="DFRS_SWAP",
            help="Swap space for the memory of paused tasks, as 8G; default: all the host has; 0: none.",
        ),
    ] = None,
    images: Annotated[
        str | None,
        typer.Option(
            envvar="DFRS_IMAGES",
            help="Disk space for check-points of this host's tasks, as 8G; default: a tenth of what is free; 0: none.",
        ),
    ] = None,
    feature: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Something that jobs can ask for, as avx512 or rack:a. Several times for several.",
            show_default=False,
        ),
    ] = None,
    resource: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=COUNT",
            help="A named resource of the node, numbered from 0: gpu=2. Several times for several; default: the GPUs "
            "that are found here.",
        ),
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Address by which tasks on other nodes reach this one; default: found out.")
    ] = None,
    transfer_port: Annotated[
        int,
        typer.Option(
            min=0,
            max=65535,
            help="Port at which nodes of other hosts fetch tasks; default: any that is free.",
        ),
    ] = 0,
    shares: Annotated[
        ShareMode, typer.Option(help="A task's share: a weight, or a cap that it never exceeds.")
    ] = ShareMode.WEIGHTS,
    run_as: Annotated[
        str | None,
        typer.Option(
            envvar="DFRS_RUN_AS",
            metavar="USER",
            help="Run all tasks under this account; default of root: that of the job's user, or else nobody.",
            show_default=False,
        ),
    ] = None,
    accounts: Annotated[
        bool,
        typer.Option("--accounts", help="Run tasks under the account of the job's user, or not at all; needs root."),
    ] = False,
    fence: Annotated[
        str | None,
        typer.Option(
            help="Stop all tasks after so long without the controller, as 2m, if the agent runs then; default: never."
        ),
    ] = None,
    log_level: Annotated[Level, typer.Option(help="What to log.")] = Level.INFO,
) -> None:
    """Keep one node: run its tasks, share its CPUs, report what they use. Ends on SIGTERM; tasks run on.

    One connection to the controller; from outside only those of agents of other hosts that fetch a task, where tasks
    can move between hosts. Whatever happens to the controller, the agent or the
    connection, tasks go on, and the agent tells later how they ended; so after a long loss of the controller a job may
    have been started anew elsewhere while its old self still runs here. With --fence the agent stops all tasks before
    that, if the controller waits 30 s longer (--lost-after), and if the agent and the machine run then. One that was
    killed, or a machine that was suspended, fences nothing in time: it makes a second run unlikely, not impossible.

    Tasks of an agent that is root run under the account named like the job's user. Where there is none, or that is
    root's, they run as nobody; as root only with --run-as root. Any other agent runs them under its own account.

    Where the host has swap space and the agent is root, the memory of paused tasks goes there, and others may have it.
    With a CRIU that works, it goes to check-points where that does not suffice, and tasks can move to other hosts.

    Jobs are given the GPUs that nvidia-smi -L lists, or that are /dev/nvidia0 and so on, as the resource gpu. Another
    number, or none by --resource gpu=0, is for you to say, such as where several nodes share this host.

    Examples:

        dfrs agent --server http://127.0.0.1:7070 --token-file agent.token

        dfrs agent --server https://head:7070 --ca ca.pem --token-file /etc/dfrs/agent.token --memory 60G --accounts

        dfrs agent --server http://127.0.0.1:7070 --token-file agent.token --name left --cpus 0 --cores 0.5 --memory 4G

        dfrs agent --server http://127.0.0.1:7070 --token-file agent.token --feature avx512 --feature rack:a

        dfrs agent --server http://127.0.0.1:7070 --token-file agent.token --resource gpu=2 --resource licence-x=5
    """
    from dfrs import __version__
    from dfrs.live.agent.accounts import choose
    from dfrs.live.agent.agent import AgentSettings, check_name, host_identity, host_name
    from dfrs.live.agent.capacity import measure
    from dfrs.live.agent.connection import Server
    from dfrs.live.agent.devices import count_gpus
    from dfrs.live.drivers.opening import cluster_name
    from dfrs.live.logs import set_up

    set_up(log_level.value)
    under = choose(run_as, users=accounts)
    capacity = measure(cpus=cpus, cores=cores, memory_bytes=None if memory is None else parse_bytes(memory, "memory"))
    place = (root or _default_root()).resolve()
    counts = parse_counts(resource or (), least=0)
    if "gpu" not in counts:
        counts["gpu"] = count_gpus()
    settings = AgentSettings(
        server=Server(url=server, token=read_token(token_file), ca=ca),
        node=host_name() if name is None else check_name(name),
        host=host_identity(place),
        cpus=capacity.cores,
        cpu_numbers=capacity.cpus,
        memory_bytes=capacity.memory_bytes,
        address=address,
        transfer_port=transfer_port,
        root=place,
        accounts=under,
        resources={name: count for name, count in counts.items() if count},
        fence_s=None if fence is None else parse_seconds(fence, "fence"),
        features=_features(feature or []),
        version=__version__,
    )
    group = cluster_name(place) if cluster is None else check_name(cluster, "cluster")
    swap_bytes = None if swap is None else parse_swap(swap)
    images_bytes = None if images is None else parse_swap(images, "images")
    _keep(settings, place, group, capacity.cpu_list, shares, swap_bytes, images_bytes)


def _features(given: list[str]) -> tuple[str, ...]:
    """Each once, in order. Raises InputError."""
    from dfrs.live.protocol.observed import MOST_FEATURES

    found = tuple(sorted({check_feature(each) for each in given}))
    if len(found) > MOST_FEATURES:
        raise InputError(f"--feature: {len(found)} of them: must be at most {MOST_FEATURES}")
    return found


def read_token(path: Path) -> str:
    """The token in a file that nobody but its owner may read. Raises InputError."""
    try:
        with path.open() as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise InputError(f"{path}: must be readable by its owner only: chmod 600 {path}")
            token = file.read(4096).strip()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        token = ""
    if not token or len(token.split()) > 1 or not (token.isascii() and token.isprintable()):
        raise InputError(f"{path}: must hold one token")
    return token


def _default_root() -> Path:
    from dfrs.live.client import state_directory

    return state_directory() / "host"


def _keep(
    settings: "AgentSettings",
    root: Path,
    cluster: str,
    cpus: str,
    shares: ShareMode,
    swap_bytes: int | None,
    images_bytes: int | None,
) -> None:
    import asyncio

    from dfrs.live.agent.agent import Agent, only_agent
    from dfrs.live.agent.health import Health
    from dfrs.live.drivers.base import NodeSettings
    from dfrs.live.drivers.opening import open_driver
    from dfrs.live.drivers.self_test import self_test

    def test(stopped: "threading.Event") -> str:
        return self_test(driver, cores=settings.cpus, memory_bytes=settings.memory_bytes, stopped=stopped)

    with only_agent(root, settings.node):
        driver = open_driver(
            NodeSettings(
                root=root,
                cluster=cluster,
                node=settings.node,
                cores=settings.cpus,
                memory_bytes=settings.memory_bytes,
                cpus=cpus,
                shares=shares.value,
                swap_bytes=swap_bytes,
                images_bytes=images_bytes,
                resources=settings.resources,
            )
        )
        try:
            agent = Agent(driver, settings, Health(test))
            found = driver.abilities
            out.print(
                f"node {settings.node}: {settings.cpus:g} cores (CPUs {cpus}), "
                f"{settings.memory_bytes / (1 << 30):.1f} GiB memory, {shares.value} by {found.shares}",
                markup=False,
                soft_wrap=True,
            )
            has = (f"resources {show_counts(settings.resources)}",) if settings.resources else ()
            for note in (*has, *found.notes, str(settings.accounts)):
                out.print(f"node {settings.node}: {note}", markup=False, soft_wrap=True)
            asyncio.run(_until_signal(agent))
            out.print(f"node {settings.node}: disconnected; its tasks run on", markup=False, soft_wrap=True)
        finally:
            driver.close()


async def _until_signal(agent: "Agent") -> None:
    import asyncio

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, agent.stop)
    await agent.run()


VERBS = (Verb(agent),)
