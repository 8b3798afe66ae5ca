"""`dfrs up`: a whole cluster on this machine, with one command and no configuration."""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from dfrs.cli.console import err, out, print_json
from dfrs.cli.live.cluster import Json
from dfrs.cli.live.resource_options import parse_counts
from dfrs.cli.live.signals import heeded
from dfrs.cli.quantities import parse_bytes, parse_swap, show_bytes, show_cores, show_count
from dfrs.cli.simulate.policies import complete
from dfrs.cli.verbs import Verb
from dfrs.model.errors import DfrsError, InputError

if TYPE_CHECKING:
    from dfrs.live.local.cluster import Choice

LOOK_S = 0.3
_UP, _BAD = "up", "bad input: "
"""What the background says: all is up, or the words of an error in what the user gave; else those of another one."""

State = Annotated[
    Path | None,
    typer.Option(
        envvar="DFRS_STATE", metavar="DIR", show_default=False, help="State directory; default: ~/.local/state/dfrs."
    ),
]


def _memory(text: str) -> int:
    return parse_bytes(text, "--memory-per-node")


def up(
    nodes: Annotated[
        int | None, typer.Option(help="Nodes to divide this machine into; default: as last time, or 2.", min=1, max=256)
    ] = None,
    hosts: Annotated[
        int | None,
        typer.Option(
            help="For tests, as root, until dfrs down: make so many hosts, in namespaces of their own, and divide the "
            "nodes among them; default of --nodes is then one for each.",
            min=1,
            max=256,
            show_default=False,
        ),
    ] = None,
    state: State = None,
    port: Annotated[
        int | None,
        typer.Option(
            envvar="DFRS_PORT", help="On loopback; 0: any; default: as last time, 7070, or any.", min=0, max=65535
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option("--policy", "-p", help="Who decides: dfrs policies.", show_default=False, autocompletion=complete),
    ] = None,
    discovery: Annotated[
        str | None, typer.Option(help="How undeclared needs are found out.", show_default=False)
    ] = None,
    memory_per_node: Annotated[
        int | None,
        typer.Option(parser=_memory, metavar="SIZE", help="Default: an equal part.", show_default=False),
    ] = None,
    swap_per_node: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            envvar="DFRS_SWAP",
            help="Swap space for the memory of each node's paused jobs; default: all the machine has; 0: none.",
            show_default=False,
        ),
    ] = None,
    run_as: Annotated[
        str | None,
        typer.Option(
            envvar="DFRS_RUN_AS",
            metavar="USER",
            help="Run all jobs under this account; default of root: that of the job's user, or else nobody.",
            show_default=False,
        ),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Go to the background when all is up.")] = False,
    resource_per_node: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=COUNT",
            help="A named resource of each node, numbered from 0 on each: gpu=1. Several times for several; "
            "default: none, also no GPUs.",
        ),
    ] = None,
    show_token: Annotated[
        bool, typer.Option("--show-token", help="Print the token in the dashboard's address even without a terminal.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Start a controller and agents on this machine, each with its part of it, and keep them running.

    Ctrl-C ends them; jobs run on, and the next `dfrs up` finds them. `dfrs down` ends the jobs too.

    Examples:

        dfrs up

        dfrs up --nodes 4 --policy 'GreedyPM*/per/OPT=MIN/MVT=600' --detach

        dfrs up --hosts 3 --nodes 6
    """
    from dfrs.live.agent.accounts import choose as choose_accounts
    from dfrs.live.client import state_directory
    from dfrs.live.local.cluster import Choice, begun, free_port, prepare
    from dfrs.live.local.hosts import hosts_left, must_be_possible

    place = (state or state_directory()).absolute()
    left = begun(place)
    _check(policy, discovery)
    if hosts is not None:
        must_be_possible()
    choose_accounts(run_as, users=False)
    counts = None if resource_per_node is None else parse_counts(resource_per_node, "--resource-per-node", least=0)
    prepare(place)

    def choose() -> Choice:
        """What it was last time, but for what is given now."""
        last = Choice.of(place)
        former = hosts_left(place)
        if left and hosts not in {None, former}:
            what = "other hosts" if former else "this machine as its only host"
            raise InputError(f"--hosts {hosts}: what was started with {what} must end first: dfrs down")
        number = hosts or former or None
        count = _nodes(nodes, number, last)
        given = {
            "nodes": count,
            "policy": policy,
            "discovery": discovery,
            "memory_bytes": memory_per_node,
            "swap_bytes": None if swap_per_node is None else parse_swap(swap_per_node, "--swap-per-node"),
            "run_as": run_as,
            "resources": counts,
            "port": free_port(port, last.port if last else None),
        }
        base = (last.model_dump() if last else {}) | {"hosts": number}
        if last and count not in {None, last.nodes}:
            # An amount that was chosen for another number of nodes.
            base["memory_bytes"] = None
        return Choice.model_validate(base | {name: value for name, value in given.items() if value is not None})

    def tell() -> None:
        _tell(place, show_token=show_token or out.is_terminal, as_json=as_json, detached=detach)

    if detach:
        _in_background(place, lambda ready: _run(place, choose, ready))
        tell()
    else:
        _run(place, choose, tell)


def _nodes(wanted: int | None, hosts: int | None, last: "Choice | None") -> int | None:
    """How many nodes there are to be; None: as last time. Raises InputError."""
    if hosts is None:
        return wanted
    count = wanted or (last.nodes if last and last.hosts == hosts else hosts)
    if hosts > count:
        raise InputError(f"--hosts {hosts}: must be at most --nodes, {count}")
    return count


def _check(policy: str | None, discovery: str | None) -> None:
    """Refuse what the controller would refuse, before anything is started. Raises InputError."""
    if policy is not None:
        from dfrs.policies.names import find_live_policy

        find_live_policy(policy)
    if discovery is not None:
        from dfrs.policies.discovery.methods import find_discovery

        find_discovery(discovery)


def _run(place: Path, choose: "Callable[[], Choice]", ready: Callable[[], None]) -> None:
    """Start all, call `ready`, and keep all running until a signal comes."""
    from dfrs.live.local.cluster import LocalCluster, begin, locked

    stop = threading.Event()

    def on_signal(_number: int, _frame: object) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with locked(place):
        cluster = LocalCluster(place, choose(), _say)
        cluster.make_hosts()
        begin(place)
        try:
            with err.status("starting") as status:
                cluster.start(status.update)
            # Only what has come up is worth repeating.
            cluster.choice.keep(place)
            for number in heeded((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)):
                signal.signal(number, on_signal)
            ready()
            while not stop.wait(LOOK_S):
                cluster.tend()
            left = _jobs_left(place)
        finally:
            cluster.stop()
    if left:
        goes = "goes" if left == 1 else "go"
        _say(f"stopped; {show_count(left, 'job')} {goes} on: the next dfrs up finds what is left, dfrs down ends it")
    else:
        _say("stopped; there were no jobs")


def _in_background(place: Path, run: Callable[[Callable[[], None]], None]) -> None:
    """Run it in a process of its own; returns when that says it is ready. Raises DfrsError with its words."""
    logs = place / "log"
    logs.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = os.open(logs / "up.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(reading)
        _be_background(log, writing, run)
    os.close(writing)
    os.close(log)
    with os.fdopen(reading) as pipe:
        answer = pipe.read()
    if answer.startswith(_BAD):
        raise InputError(answer.removeprefix(_BAD))
    if answer != _UP:
        raise DfrsError(answer or f"it ended before it was up: see {place / 'log' / 'up.log'}")


def _be_background(log: int, writing: int, run: Callable[[Callable[[], None]], None]) -> NoReturn:
    """Run it with its output in the open file `log`. `writing` is the pipe to whoever waits until all is up."""
    status, waited_for = 1, True

    def tell(words: str) -> None:
        """Only the first time: nobody waits after it."""
        nonlocal waited_for
        if waited_for:
            waited_for = False
            os.write(writing, words.encode())
            os.close(writing)

    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        run(lambda: tell(_UP))
        status = 0
    except DfrsError as error:
        err.print(f"dfrs: {error}", markup=False, soft_wrap=True)
        tell(f"{_BAD if isinstance(error, InputError) else ''}{error}")
    except Exception as error:
        traceback.print_exc()
        tell(str(error))
    finally:
        # What the parent holds, its buffers and its exit handlers, is the parent's.
        os._exit(status)


def _say(line: str) -> None:
    err.print(line, markup=False, soft_wrap=True)


def _jobs_left(place: Path) -> int:
    """How many jobs have not ended; 0 if nobody can say."""
    from dfrs.live.client import Client, read_client_file
    from dfrs.live.protocol.resources import ENDED

    endpoint = read_client_file(place)
    if endpoint is None:
        return 0
    try:
        with Client(endpoint, timeout_s=3.0) as client:
            return sum(count for state, count in client.cluster().jobs.items() if state not in ENDED)
    except DfrsError:
        return 0


def _tell(place: Path, *, show_token: bool, as_json: bool, detached: bool) -> None:
    """Where everything is, and what to do next."""
    from dfrs.live.client import CLIENT_FILE, Client, read_client_file, state_directory
    from dfrs.live.local.cluster import Choice
    from dfrs.live.local.hosts import address

    endpoint = read_client_file(place)
    assert endpoint is not None
    choice = Choice.of(place)
    assert choice is not None
    here = set(choice.node_names())
    with Client(endpoint) as client:
        nodes = [node for node in client.nodes() if node.name in here]
        cluster = client.cluster()
    file = place / CLIENT_FILE
    if as_json:
        print_json(
            {
                "url": endpoint.url,
                "state": str(place),
                "client_file": str(file),
                "nodes": [node.model_dump(mode="json") for node in nodes],
            }
        )
        # In the foreground the process goes on, and whoever reads a pipe is waiting for this.
        sys.stdout.flush()
        return
    kinds = sorted({node.shares for node in nodes})
    each = ", ".join(
        f"{node.name} ({show_cores(node.cpus)} CPU, {show_bytes(node.memory_bytes)})" for node in nodes[:4]
    )
    more = f" and {len(nodes) - 4} more" if len(nodes) > 4 else ""
    # After #, the token goes to no server and into no log.
    secret = f"/#token={endpoint.token}" if show_token and endpoint.token else ""
    lines = [
        f"dfrs is up: {each}{more}; shares by {' and '.join(kinds)}",
        f"policy       {cluster.policy}: {cluster.abilities}",
        f"dashboard    {endpoint.url}{secret}",
        f"client file  {file}",
        "try          dfrs submit --cpu 0.5 --memory 256M -- sleep 60",
        "             dfrs queue     dfrs top     dfrs explain 1     dfrs logs -f 1",
    ]
    if place != state_directory().absolute():
        lines.insert(4, f"first        export DFRS_STATE={place}")
    if choice.hosts:
        addresses = f"{address(0)} to {address(choice.hosts - 1)}"
        lines.insert(1, f"hosts        {show_count(choice.hosts, 'host')}, {addresses}; their files: {place / 'hosts'}")
    if os.geteuid() == 0 and choice.run_as is None:
        lines.append(
            "note         jobs run as their user or else as nobody, not as root; for that: dfrs up --run-as root"
        )
    lines += [f"note         {node.name} gets no jobs: {node.problem}" for node in nodes if node.problem]
    if "nice" in kinds:
        lines += dict.fromkeys(f"note         {note}" for node in nodes for note in node.notes)
    lines.append("dfrs down ends it." if detached else "Ctrl-C stops it, jobs go on; dfrs down ends the jobs too.")
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)
    sys.stdout.flush()


VERBS = (Verb(up),)
