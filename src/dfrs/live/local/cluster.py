"""A cluster on this machine: a controller and agents as children of one process, all in one state directory."""

import fcntl
import os
import socket
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from dfrs.live.agent.capacity import measure
from dfrs.live.client import Client, Endpoint, UnreachableError, read_client_file
from dfrs.live.drivers.base import Driver, DriverError, NodeSettings, TaskId
from dfrs.live.drivers.opening import cluster_name, open_driver
from dfrs.live.drivers.processes.directory import TaskDirectory
from dfrs.live.errors import ConflictError, NotFoundError
from dfrs.live.home import AGENT_FILE, AUTHORITY, TLS, make_private, write_private
from dfrs.live.local import hosts
from dfrs.live.local.children import ChildProcesses
from dfrs.live.local.hosts import LocalHosts
from dfrs.live.local.machine import Part, partition
from dfrs.live.protocol.resources import Node, NodeState
from dfrs.live.protocol.wire import UNDER_WAY
from dfrs.model.errors import DfrsError, InputError

PORT = 7070
READY_S = 180.0
"""So long may controller and agents take to be ready: a first start compiles kernels, also on a busy machine."""
JOBS_END_S = 60.0
LEAVE_S = 5.0
"""So long may an agent take to end that has lost the `dfrs up` that had started it."""
_PAUSE_S = 0.05
_AGENT_LOCK = ".agent.lock"
_DFRS = (sys.executable, "-m", "dfrs.cli.main")
_T = TypeVar("_T")


class BusyError(DfrsError):
    """A cluster of that state directory runs already. Use it, or end it with: dfrs down."""


class Choice(BaseModel):
    """How a cluster on this machine was last started; kept in its state directory."""

    nodes: int = 2
    hosts: int | None = None
    """How many hosts have the nodes in turn; None: the machine itself is the only one."""
    port: int
    policy: str | None = None
    discovery: str | None = None
    memory_bytes: int | None = None
    """Of each node; None: an equal part of the machine's."""
    swap_bytes: int | None = None
    """For the memory of each node's paused tasks; None: all that the machine has."""
    run_as: str | None = None
    """Account of all jobs; None: see `dfrs agent`."""
    resources: dict[str, int] = {}
    """Named resources of each node."""

    def node_names(self) -> list[str]:
        """Of all nodes. That of a node tells its host, whose nodes never go to another: they have tasks there."""
        if self.hosts is None:
            return [f"node-{number + 1}" for number in range(self.nodes)]
        return [f"{hosts.host_name(number % self.hosts)}-{number // self.hosts + 1}" for number in range(self.nodes)]

    @classmethod
    def of(cls, state: Path) -> "Choice | None":
        """The last one; None without one. Raises InputError."""
        path = _choice_path(state)
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from None
        except ValidationError:
            raise InputError(f"{path}: is not what dfrs up writes; remove it") from None

    def keep(self, state: Path) -> None:
        """Remember it."""
        write_private(_choice_path(state), self.model_dump_json(indent=2) + "\n")


@contextmanager
def locked(state: Path) -> Generator[None]:
    """Hold the state directory: made if need be, for its owner only. Raises BusyError, InputError."""
    file = _lock_file(state)
    try:
        if not _lock(file):
            other = os.read(file, 32).decode(errors="replace").strip()
            raise BusyError(f"{state}: a cluster runs there already (process {other}); end it with: dfrs down")
        # On a full disk nobody is told who holds it; that must not keep `dfrs down` from ending what runs.
        with suppress(OSError):
            os.pwrite(file, f"{os.getpid():<19}\n".encode(), 0)
        yield
    finally:
        os.close(file)


def prepare(state: Path) -> None:
    """Make the state directory, if need be. Raises InputError for one that must not be used."""
    os.close(_lock_file(state))


def _lock_file(state: Path) -> int:
    make_private(state)
    try:
        return os.open(_lock_path(state), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError(f"{state}: cannot be used: {error.strerror}") from None


def begun(state: Path) -> bool:
    """Whether something was started there that `dfrs down` has not ended. Raises InputError."""
    if state.exists() and not state.is_dir():
        raise InputError(f"{state}: must be a directory; name another with --state or DFRS_STATE")
    return _mark_path(state).exists() or holder(state) is not None or hosts.hosts_left(state) > 0


def begin(state: Path) -> None:
    """Remember, before anything is started, that there will be something to end. Raises DfrsError."""
    # A mark is taken away also where nothing can be written any more.
    write_private(_mark_path(state), b"")


def finish(state: Path) -> None:
    """Remember that everything was ended."""
    _mark_path(state).unlink(missing_ok=True)


def holder(state: Path) -> int | None:
    """The process that holds the state directory; None if nobody does."""
    try:
        with _lock_path(state).open("r+") as file:
            if not _lock(file.fileno()):
                text = file.read(32).strip()
                return int(text) if text.isdecimal() else None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{state}: cannot be used: {error.strerror}") from None
    return None


def _lock(file: int) -> bool:
    """Lock an open file until it is closed; False if another has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class LocalCluster:
    """Controller and agents of one state directory, which the caller has locked. `say` gets a line at a time."""

    def __init__(self, state: Path, choice: Choice, say: Callable[[str], None]) -> None:
        self.state, self.choice = state, choice
        self.parts = partition(measure(), choice.node_names(), choice.memory_bytes)
        self._hosts = LocalHosts(state, agent_root(state), choice.hosts) if choice.hosts else None
        self._socket: socket.socket | None = None
        """At which agents of hosts reach the controller; kept here, so that it outlives that."""
        self._children = ChildProcesses(state / "log", say)
        self._say = say
        self._agents: list[str] = []
        """The nodes whose agents were started."""

    def make_hosts(self) -> None:
        """Make the hosts, if there are to be several, or find those that are there. Raises DfrsError."""
        if self._hosts is not None:
            self._hosts.make()
            self._socket = self._hosts.listen(self.choice.port)

    def start(self, tell: Callable[[str], None]) -> list[Node]:
        """Start all, and wait until the nodes are up. Raises ChildError, DfrsError. `tell` hears what is waited for."""
        end_s = time.monotonic() + LEAVE_S
        url = f"http://127.0.0.1:{self.choice.port}"
        tell("starting the controller")
        self._children.start("controller", self._controller(), [] if self._socket is None else [self._socket.fileno()])
        endpoint = self._endpoint(url)
        with Client(endpoint) as client:
            former = self._former(end_s)
            for part in (*self.parts, *self._outgoing(former)):
                self._children.start(part.name, self._agent(part, url))
                self._agents.append(part.name)
            nodes = self._nodes(client, tell)
            self._close_others(client, former)
            return nodes

    def _former(self, end_s: float) -> set[str]:
        """Nodes of former starts only. Those that have an agent, also at that time, were started by somebody else."""
        wanted = {part.name for part in self.parts}
        others = set[str]()
        for root in _roots(self.state):
            for name in _nodes_of(root) - wanted:
                with _without_agent(root, name, end_s) as free:
                    others |= set() if free else {name}
        return nodes_ever(self.state) - wanted - others

    def _outgoing(self, former: set[str]) -> list[Part]:
        """Those whose tasks run on: without an agent they would be given up, and run a second time."""
        return [replace(self.parts[0], name=name) for name in sorted(former) if self._has_tasks(name)]

    def _has_tasks(self, name: str) -> bool:
        """Also if they have ended: the controller wants to know of those as well."""
        root = agent_root(self.state)
        if self._hosts is not None:
            host = _host_of(name)
            if host not in self._hosts.names:
                return False
            root = hosts.host_root(self.state, host)
        # A driver would set up the node anew, for tasks that run.
        files = TaskDirectory(root)
        return any(_owner(files, task) == name for task in files.ids())

    def tend(self) -> None:
        """Start again what has died. Raises DfrsError."""
        for name in self._hosts.make_missing() if self._hosts else ():
            self._say(f"{name} has ended, with all that ran there; it was made again")
        self._children.tend()

    def stop(self) -> None:
        """End agents and controller; jobs run on."""
        self._children.stop(self._agents)
        self._children.stop()
        if self._socket is not None:
            self._socket.close()

    def _controller(self) -> list[str]:
        options = [f"--state={self.state}", f"--listen=127.0.0.1:{self.choice.port}"]
        if self.choice.policy is not None:
            options.append(f"--policy={self.choice.policy}")
        if self.choice.discovery is not None:
            options.append(f"--discovery={self.choice.discovery}")
        if self._socket is not None:
            options.append(f"--agent-socket={self._socket.fileno()}")
        return [*_DFRS, "serve", *options]

    def _agent(self, part: Part, url: str) -> list[str]:
        having = part.capacity
        command = [
            *_DFRS,
            "agent",
            f"--server={url if self._hosts is None else f'https://{hosts.CONTROLLER}:{self.choice.port}'}",
            f"--token-file={self.state / AGENT_FILE}",
            f"--name={part.name}",
            f"--root={agent_root(self.state)}",
            f"--cpus={having.cpu_list}",
            f"--cores={having.cores}",
            f"--memory={having.memory_bytes}B",
            # Several nodes would each count the GPUs of the machine.
            *(f"--resource={name}={count}" for name, count in ({"gpu": 0} | self.choice.resources).items()),
            *([] if self.choice.run_as is None else [f"--run-as={self.choice.run_as}"]),
            *([] if self.choice.swap_bytes is None else [f"--swap={self.choice.swap_bytes}B"]),
        ]
        if self._hosts is None:
            return command
        host = _host_of(part.name)
        authority = f"--ca={self.state / TLS / AUTHORITY}"
        return self._hosts.entering(host, [*command, authority, f"--cluster={_groups_of(self.state, host)}"])

    def _endpoint(self, url: str) -> Endpoint:
        """Where the controller is, once it answers."""

        def answers() -> Endpoint | None:
            """None until its file is written and it answers; raises InputError if it has ended."""
            self._children.must_live()
            known = read_client_file(self.state)
            if known is None or known.url.rstrip("/") != url:
                return None
            with Client(known) as client:
                try:
                    client.me()
                except UnreachableError:
                    return None
            return known

        return _wait(answers, f"the controller does not answer: see {self.state / 'log' / 'controller.log'}")

    def _close_others(self, client: Client, former: set[str]) -> None:
        """Nodes of former starts get nothing more; nodes that are there again get jobs again."""
        wanted = {part.name for part in self.parts}
        last = Choice.of(self.state)
        kept = set(last.node_names()) if last else wanted
        for node in client.nodes():
            if node.name in former:
                client.drain(node.name)
            elif node.name in wanted - kept and node.drained:
                client.undrain(node.name)

    def _nodes(self, client: Client, tell: Callable[[str], None]) -> list[Node]:
        wanted = {part.name for part in self.parts}

        def up() -> list[Node] | None:
            self._children.must_live()
            nodes = [node for node in client.nodes() if node.name in wanted]
            # Of a node of a former start, the controller knows the state and the size of then.
            ready = [node for node in nodes if node.connected and _is_ready(node)]
            tell(f"{len(ready)} of {len(wanted)} nodes are up")
            return ready if len(ready) == len(wanted) else None

        return _wait(up, f"the nodes do not come up: see {self.state / 'log'}")


def _is_ready(node: Node) -> bool:
    """Whether it takes jobs, or it is known why not."""
    known = {NodeState.UP, NodeState.DRAINING, NodeState.UNHEALTHY}
    return node.state in known and node.problem != UNDER_WAY


def end_jobs(client: Client, tell: Callable[[str], None]) -> int:
    """Cancel every job and wait until all have ended; how many there were. Raises DfrsError if some do not end."""
    jobs = [job.id for job in client.all_jobs()]
    for job in jobs:
        try:
            client.cancel(job)
        except (ConflictError, NotFoundError):
            continue

    def ended() -> bool | None:
        left = len(client.jobs(limit=1000))
        tell(f"{left} job{'' if left == 1 else 's'} to end")
        return True if left == 0 else None

    _wait(ended, "some jobs do not end: dfrs queue", JOBS_END_S)
    return len(jobs)


def nodes_ever(state: Path) -> set[str]:
    """Names of all nodes that had an agent there."""
    return {name for root in _roots(state) for name in _nodes_of(root)}


def sweep(state: Path) -> tuple[int, list[str]]:
    """Without a controller and agents: kill what runs, and remove what tasks and nodes have left but their output.

    Needs no room on the disk, and leaves nodes alone that have an agent yet. How many tasks were running, and what
    could not be removed, a line each.
    """
    # Hosts first: what runs in them has other numbers there than here, and could not be told from other processes.
    made = LocalHosts(state, agent_root(state))
    ended, problems = made.running(), list[str]()
    made.kill()
    end_s = time.monotonic() + LEAVE_S
    for root, cluster in _roots(state).items():
        for name in sorted(_nodes_of(root)):
            try:
                running, left = _sweep_node(root, cluster, name, end_s)
            except (DriverError, OSError) as error:
                problems.append(f"node {name}: {error}")
                continue
            ended += running if root == agent_root(state) else 0
            problems += left
    return ended, problems + made.wait_ended()


def _sweep_node(root: Path, cluster: str, name: str, end_s: float) -> tuple[int, list[str]]:
    with _without_agent(root, name, end_s) as free:
        if not free:
            other = "that dfrs up has not started, or that does not end: end it, or give it another --root"
            return 0, [f"node {name} of {root} has an agent {other}"]
        driver = _driver(root, cluster, name)
        try:
            return driver.sweep()
        finally:
            driver.close()


@contextmanager
def _without_agent(root: Path, name: str, end_s: float) -> Generator[bool]:
    """Keep agents off a node meanwhile; False if it has one, also at that time."""
    # Nothing is written, since the disk may be full.
    with (root / f"{name}{_AGENT_LOCK}").open("rb") as file:
        while not (free := _lock(file.fileno())) and time.monotonic() < end_s:
            time.sleep(_PAUSE_S)
        yield free


def _roots(state: Path) -> dict[Path, str]:
    """Where agents have kept tasks, and the name of the control groups of each."""
    own = agent_root(state)
    found = {root: _groups_of(state, root.name) for root in hosts.host_roots(state)}
    return {own: cluster_name(own), **found}


def _host_of(node: str) -> str:
    return node.rpartition("-")[0]


def _groups_of(state: Path, host: str) -> str:
    return f"{cluster_name(agent_root(state))}-{host}"


def _nodes_of(root: Path) -> set[str]:
    return {path.name.removesuffix(_AGENT_LOCK) for path in root.glob(f"*{_AGENT_LOCK}")}


def _owner(files: TaskDirectory, task: TaskId) -> str:
    """The node that has a task; none where the record of it is damaged, which its agent says."""
    with suppress(DriverError):
        owner = files.owner(task)
        return owner.node if owner else ""
    return ""


def _driver(root: Path, cluster: str, name: str) -> Driver:
    machine = measure()
    return open_driver(
        NodeSettings(
            root=root,
            cluster=cluster,
            node=name,
            cores=machine.cores,
            memory_bytes=machine.memory_bytes,
            images_bytes=0,
        )
    )


def agent_root(state: Path) -> Path:
    """Where the agents keep their tasks."""
    return (state / "host").resolve()


def _wait(question: Callable[[], _T | None], failure: str, limit_s: float = READY_S) -> _T:
    end_s = time.monotonic() + limit_s
    while (answer := question()) is None:
        if time.monotonic() > end_s:
            raise DfrsError(failure)
        time.sleep(_PAUSE_S)
    return answer


def free_port(wanted: int | None, last: int | None) -> int:
    """`wanted`, where 0 is any; else the last one, the usual one or any. Raises InputError if `wanted` is taken."""
    for port in [wanted] if wanted is not None else [*filter(None, [last]), PORT, 0]:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                if wanted is not None:
                    raise InputError(f"--port {wanted}: {error.strerror}; 0 takes any free one") from None
            else:
                return int(probe.getsockname()[1])
    raise DfrsError("no port is free")


def _choice_path(state: Path) -> Path:
    return state / "up.json"


def _mark_path(state: Path) -> Path:
    return state / "up.open"


def _lock_path(state: Path) -> Path:
    return state / "up.lock"
