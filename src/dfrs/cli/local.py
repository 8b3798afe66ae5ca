"""A cluster on this machine: a controller and agents as children of one process, all in one state directory."""

import fcntl
import os
import socket
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from dfrs.cli.agent import default_cluster
from dfrs.cli.machine import Part, partition
from dfrs.cli.supervise import Supervisor
from dfrs.live.capacity import measure
from dfrs.live.client import Client, Endpoint, UnreachableError, read_client_file
from dfrs.live.drivers.opening import open_driver
from dfrs.live.drivers.process import ProcessDriver
from dfrs.live.home import AGENT_FILE, make_private, write_private
from dfrs.live.ports import ConflictError, NotFoundError
from dfrs.live.resources import Node, NodeState
from dfrs.model.errors import DfrsError, InputError

PORT = 7070
READY_S = 60.0
"""So long may controller and agents take to be ready."""
JOBS_END_S = 60.0
_PAUSE_S = 0.05
_DFRS = (sys.executable, "-m", "dfrs.cli.main")
_T = TypeVar("_T")


class BusyError(DfrsError):
    """A cluster of that state directory runs already. Use it, or end it with: dfrs down."""


class Choice(BaseModel):
    """How a cluster on this machine was last started; kept in its state directory."""

    nodes: int = 2
    port: int
    policy: str | None = None
    discovery: str | None = None
    memory_bytes: int | None = None
    """Of each node; None: an equal part of the machine's."""
    ended: bool = False
    """Whether everything was ended by `dfrs down`."""

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
    path = _lock_path(state)
    make_private(state)
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError(f"{state}: cannot be used: {error.strerror}") from None
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = os.read(file, 32).decode(errors="replace").strip()
            raise BusyError(
                f"{state}: a cluster runs there already (process {other}); end it with: dfrs down"
            ) from None
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(file)


def holder(state: Path) -> int | None:
    """The process that holds the state directory; None if nobody does."""
    try:
        with _lock_path(state).open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                text = file.read(32).strip()
                return int(text) if text.isdecimal() else None
    except FileNotFoundError:
        return None
    return None


class LocalCluster:
    """Controller and agents of one state directory, which the caller has locked. `say` gets a line at a time."""

    def __init__(self, state: Path, choice: Choice, say: Callable[[str], None]) -> None:
        self.state, self.choice = state, choice
        self.parts = partition(measure(), [f"node-{number + 1}" for number in range(choice.nodes)], choice.memory_bytes)
        self._children = Supervisor(state / "log", say)

    def start(self, tell: Callable[[str], None]) -> list[Node]:
        """Start all, and wait until the nodes are up. Raises ChildError, DfrsError. `tell` hears what is waited for."""
        self.choice.ended = False
        self.choice.keep(self.state)
        url = f"http://127.0.0.1:{self.choice.port}"
        tell("starting the controller")
        self._children.start("controller", self._controller())
        endpoint = self._endpoint(url)
        with Client(endpoint) as client:
            for part in self.parts:
                self._children.start(part.name, self._agent(part, url))
            return self._nodes(client, tell)

    def tend(self) -> None:
        """Start again what has died."""
        self._children.tend()

    def stop(self) -> None:
        """End agents and controller; jobs run on."""
        self._children.stop([part.name for part in self.parts])
        self._children.stop()

    def sweep(self) -> None:
        """Once nothing runs, remove what tasks and nodes have left on the host but their output."""
        root = agent_root(self.state)
        for part in self.parts:
            having = part.capacity
            driver = open_driver(
                root, default_cluster(root), part.name,
                cores=having.cores, memory_bytes=having.memory_bytes, cpus=having.cpu_list,
            )  # fmt: skip
            for found in driver.tasks():
                driver.forget(found.task)
            if isinstance(driver, ProcessDriver):
                driver.remove_node()
            driver.close()

    def _controller(self) -> list[str]:
        options = [f"--state={self.state}", f"--listen=127.0.0.1:{self.choice.port}"]
        if self.choice.policy is not None:
            options.append(f"--policy={self.choice.policy}")
        if self.choice.discovery is not None:
            options.append(f"--discovery={self.choice.discovery}")
        return [*_DFRS, "serve", *options]

    def _agent(self, part: Part, url: str) -> list[str]:
        having = part.capacity
        return [
            *_DFRS, "agent", f"--server={url}", f"--token-file={self.state / AGENT_FILE}", f"--name={part.name}",
            f"--root={agent_root(self.state)}", f"--cpus={having.cpu_list}", f"--cores={having.cores}",
            f"--memory={having.memory_bytes}B",
        ]  # fmt: skip

    def _endpoint(self, url: str) -> Endpoint:
        """Where the controller is, once it answers."""

        def answers() -> Endpoint | None:
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

    def _nodes(self, client: Client, tell: Callable[[str], None]) -> list[Node]:
        wanted = {part.name for part in self.parts}

        def up() -> list[Node] | None:
            self._children.must_live()
            nodes = [node for node in client.nodes() if node.name in wanted]
            ready = [node for node in nodes if node.state in {NodeState.UP, NodeState.DRAINING}]
            tell(f"{len(ready)} of {len(wanted)} nodes are up")
            return ready if len(ready) == len(wanted) else None

        return _wait(up, f"the nodes do not come up: see {self.state / 'log'}")


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
        tell(f"{left} jobs are ending")
        return True if left == 0 else None

    _wait(ended, "some jobs do not end: dfrs queue", JOBS_END_S)
    return len(jobs)


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


def _lock_path(state: Path) -> Path:
    return state / "up.lock"
