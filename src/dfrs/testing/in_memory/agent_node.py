"""A node in memory that runs the agent itself, over a connection, a driver and clocks in memory.

On a VirtualLoop only. Tasks cannot go to other hosts.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from websockets.exceptions import ConnectionClosedError

from dfrs.live.agent import agent as agent_module
from dfrs.live.agent import connection, task_reconciler
from dfrs.live.agent.agent import Agent, AgentSettings
from dfrs.live.agent.connection import Server
from dfrs.live.agent.next_action import LIVE, TaskAction, Verb
from dfrs.live.controller.service import Controller
from dfrs.live.drivers.base import (
    DriverAbilities,
    DriverError,
    NotYetError,
    PauseRefusedError,
    Stream,
    TaskId,
    TaskSpec,
    TaskState,
    TaskStatus,
    Usage,
)
from dfrs.live.errors import ConflictError
from dfrs.live.protocol.agent_door import Attachment
from dfrs.live.protocol.wire import Desire, Desired, FromController, Hello, Refuse, StatusMessage, from_agent
from dfrs.testing.in_memory.link import LATE_S, door_of
from dfrs.testing.in_memory.node import InMemoryNode
from dfrs.testing.in_memory.tasks import InMemoryTask
from dfrs.testing.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from dfrs.testing.in_memory.hosts import InMemoryHosts

PING_S = 0.5


class AgentNode(InMemoryNode):
    """A node whose tasks the agent keeps; what it does with them it does as an `InMemoryNode`."""

    def __init__(
        self, hosts: "InMemoryHosts", name: str, host: str, cpus: float, memory: int, abilities: DriverAbilities
    ) -> None:
        super().__init__(hosts, name, host, cpus, memory, abilities)
        self.controller: Controller | None = None
        """The one that it can reach."""
        self.socket: _Socket | None = None
        self._agent: Agent | None = None
        self._running: asyncio.Task[None] | None = None

    def attach(self, controller: Controller) -> None:
        """Let its agent reach the controller, over a new connection."""
        self.cut()
        self.cut_off = ""
        self.hosts.history.append(("attach", self.name))
        self.controller = controller
        if self._running is None:
            self._start_agent()

    def cut(self) -> None:
        """The connection breaks, and no other can be made until it is attached again."""
        self.controller = None
        if self.socket is not None:
            self.hosts.history.append(("cut", self.name))
            self.socket.end()

    def kill_agent(self) -> None:
        """As kill -9 of the agent does: tasks run on. It is started anew by `restart_agent`, or when it is attached."""
        agent, self._agent = self._agent, None
        running, self._running = self._running, None
        if agent is not None and running is not None:
            self.hosts.history.append(("agent killed", self.name))
            for step in agent._reconciler._steps:  # pyright: ignore[reportPrivateUsage]
                step.cancel()
            running.cancel()
        self.cut()

    def restart_agent(self) -> None:
        """Kill it, and start it again at once; it reaches the controller when it is attached."""
        self.kill_agent()
        self._start_agent()

    def reboot(self) -> None:
        """All processes, the agent too, and all that the node knew of them are gone."""
        self.kill_agent()
        super().reboot()

    def die(self) -> None:
        """The machine is gone for good."""
        self.kill_agent()
        super().die()

    def tick(self, seconds: float) -> None:
        """Time passes: tasks run. Whether the agent notices is the agent's matter."""
        if not self.dead:
            self.clock_s += seconds
            self.run_programs(seconds)

    def _start_agent(self) -> None:
        settings = AgentSettings(
            server=cast(Server, _Address(self)),
            node=self.name,
            host=self.host,
            address=f"{self.name}.test",
            cpus=self.cpus,
            memory_bytes=self.memory,
            version="test",
            features=self.features,
            resources=self.resources,
            fence_s=self.fence_s,
            ping_s=PING_S,
            first_retry_s=0.05,
            last_retry_s=0.5,
            tell_again_s=2.0,
        )
        self._agent = agent = Agent(_Driver(self), settings)
        hello = agent._hello  # pyright: ignore[reportPrivateUsage]
        agent._hello = hello.model_copy(update={"boot": f"boot {self.boots}"})  # pyright: ignore[reportPrivateUsage]
        self._running = asyncio.get_running_loop().create_task(agent.run())
        self._running.add_done_callback(self._ended)

    def _ended(self, running: asyncio.Task[None]) -> None:
        if not running.cancelled() and running.exception() is not None:
            self.hosts.broken.append(f"the agent of {self.name} ended: {running.exception()}")


class _Address:
    """Where the controller is, as an agent's settings say it."""

    urls = ("http://127.0.0.1:1",)

    def __init__(self, node: AgentNode) -> None:
        self._node = node

    def trust(self) -> None:
        """There is no TLS."""

    @asynccontextmanager
    async def connect(self, url: str, open_s: float) -> AsyncGenerator["_Socket"]:
        """A connection. Raises ConnectionRefusedError."""
        del url, open_s
        node = self._node
        if node.controller is None or not (node.hears and node.is_heard):
            raise ConnectionRefusedError("no controller there")
        node.socket = made = _Socket(node, node.controller)
        try:
            yield made
        finally:
            made.end()


class _Socket:
    """Both ends of a connection: what the agent uses of a WebSocket, and the controller's link."""

    local_address = ("127.0.0.1", 1)
    close_reason = "it broke"

    def __init__(self, node: AgentNode, controller: Controller) -> None:
        self._node, self._controller = node, controller
        self._loop = asyncio.get_running_loop()
        self._open = True
        self._inbox: asyncio.Queue[str | None] = asyncio.Queue()
        self._ways: tuple[deque[Callable[[], None]], deque[Callable[[], None]]] = (deque(), deque())
        self._attachment: Attachment | None = None
        self.transport = SimpleNamespace(abort=self.end)

    # The agent's end.

    async def recv(self) -> str:
        """The next message. Raises ConnectionClosedError."""
        text = await self._inbox.get()
        if text is None:
            raise ConnectionClosedError(None, None)
        return text

    async def __aiter__(self) -> AsyncGenerator[str]:
        while True:
            yield await self.recv()

    async def ping(self) -> asyncio.Future[None]:
        """Answered a little later, if the connection carries it both ways."""
        if not self._open:
            raise ConnectionClosedError(None, None)
        answer: asyncio.Future[None] = self._loop.create_future()
        if self._node.hears and self._node.is_heard:
            self._loop.call_later(LATE_S, lambda: None if answer.done() else answer.set_result(None))
        return answer

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """End it."""
        del code, reason
        self.end()

    async def send(self, text: str) -> None:
        """To the controller. Raises ConnectionClosedError."""
        if not self._open:
            raise ConnectionClosedError(None, None)
        hosts, message = self._node.hosts, from_agent(text)
        if self._is_lost():
            return
        self._carry(0, lambda: self._hear(text))
        if isinstance(message, StatusMessage):
            hosts.history.append(("says", self._node.name, message.task, message.state.value, message.version))
            if hosts.random.random() < hosts.chaos:
                self._loop.call_later(hosts.random.random() * LATE_S, self._hear, text)

    # The controller's end.

    def put(self, message: FromController) -> None:
        """To the agent."""
        hosts, text = self._node.hosts, message.model_dump_json()
        if not self._open or self._is_lost():
            return
        self._carry(1, lambda: self._arrive(text))
        for one in message.tasks if isinstance(message, Desire) else getattr(message, "desired", ()):
            hosts.history.append(("desired", self._node.name, one.task, one.state.value, one.version))
        if isinstance(message, Desire) and hosts.random.random() < hosts.chaos:
            self._loop.call_later(hosts.random.random() * LATE_S, self._arrive, text)

    def end(self) -> None:
        """It breaks, or is closed."""
        if self._open:
            self._open = False
            self._inbox.put_nowait(None)
            if self._node.socket is self:
                self._node.socket = None
            if self._attachment is not None:
                self._attachment.detach()

    def end_in_order(self) -> None:
        """Close it after what is on the way to the agent."""
        self._carry(1, self.end)

    # In between.

    def _is_lost(self) -> bool:
        hosts = self._node.hosts
        if not hosts.losses or hosts.random.random() >= hosts.losses:
            return False
        self._loop.call_later(hosts.random.random() * LATE_S, self.end)
        return True

    def _carry(self, way: int, deliver: Callable[[], None]) -> None:
        """In the order in which it was sent, whatever the order of callbacks."""
        self._ways[way].append(deliver)
        self._loop.call_soon(self._deliver_first, way)

    def _deliver_first(self, way: int) -> None:
        self._ways[way].popleft()()

    def _arrive(self, text: str) -> None:
        if self._open and self._node.hears:
            self._inbox.put_nowait(text)

    def _hear(self, text: str) -> None:
        if not self._open or not self._node.is_heard:
            return
        message = from_agent(text)
        if self._attachment is not None:
            self._attachment.receive(message)
        elif isinstance(message, Hello):
            try:
                self._attachment = door_of(self._controller).attach(message, _Link(self))
            except ConflictError as error:
                self.put(Refuse(reason=str(error), retry=True))
                self.end_in_order()
        self._node.hosts.check()


class _Link:
    """The controller's way to the agent."""

    def __init__(self, socket: _Socket) -> None:
        self._socket = socket

    def send(self, message: FromController) -> None:
        """Queue it."""
        self._socket.put(message)

    def close(self, reason: str) -> None:
        """End the connection after what is queued."""
        del reason
        self._socket.end_in_order()


class _Driver:
    """The tasks of a node, as a `Driver`."""

    def __init__(self, node: AgentNode) -> None:
        self._node = node

    @property
    def abilities(self) -> DriverAbilities:
        return self._node.abilities

    def tasks(self) -> Sequence[TaskStatus]:
        here = [task for task in self._node.tasks.values() if task.state is not TaskState.ABSENT]
        return [
            TaskStatus(task=task.id, state=task.state, exit=task.exit, kept=task.kept, transfers=task.transfers)
            for task in here
        ]

    def start(self, task: TaskId, spec: TaskSpec, share_cores: float) -> None:
        known = self._known(task)
        if known.state is TaskState.ABSENT:
            known.desired = Desired(task=task, version=1, state=TaskState.RUNNING, spec=spec)
            self._perform(known, TaskAction(verb=Verb.START, share_cores=share_cores))

    def take(self, task: TaskId, share_cores: float) -> None:
        known = self._known(task)
        if known.state not in {TaskState.ABSENT, TaskState.HANDED}:
            return
        source = self._node.hosts.handed(self._node.host, task)
        if source is not None and known.state is TaskState.ABSENT:
            known.desired = source.desired
        self._perform(known, TaskAction(verb=Verb.TAKE, share_cores=share_cores))

    def hand(self, task: TaskId) -> None:
        if self._known(task).state in LIVE - {TaskState.HANDED}:
            self._perform(self._known(task), TaskAction(verb=Verb.HAND))

    def send(self, task: TaskId, stream: BinaryIO) -> None:
        raise DriverError("tasks of this node cannot go to other hosts")

    def receive(self, task: TaskId, spec: TaskSpec, stream: BinaryIO) -> None:
        raise DriverError("tasks of other hosts cannot come to this node")

    def set_share(self, task: TaskId, share_cores: float) -> None:
        self._perform(self._mine(task), TaskAction(verb=Verb.SET_SHARE, share_cores=share_cores))

    def pause(self, task: TaskId, *, keep: bool = False) -> None:
        known = self._mine(task)
        if known.state in LIVE and not self._node.driver.perform(known, TaskAction(verb=Verb.PAUSE, keep=keep)):
            raise PauseRefusedError(known.error)

    def resume(self, task: TaskId) -> None:
        if self._mine(task).state is TaskState.PAUSED:
            self._perform(self._mine(task), TaskAction(verb=Verb.RESUME))

    def stop(self, task: TaskId, grace_s: float) -> None:
        if self._mine(task).state in LIVE:
            self._perform(self._mine(task), TaskAction(verb=Verb.STOP, grace_s=grace_s))

    def forget(self, task: TaskId) -> None:
        if self._known(task).state is not TaskState.ABSENT:
            self._perform(self._known(task), TaskAction(verb=Verb.FORGET))

    def usage(self) -> Sequence[Usage]:
        return [
            Usage(task=task.id, time_s=self._node.clock_s, cpu_s=task.cpu_s, memory_bytes=1 << 20)
            for task in self._node.tasks.values()
            if task.state in LIVE
        ]

    def output(self, task: TaskId, stream: Stream, offset: int, limit: int) -> tuple[bytes, int, int]:
        text = f"output of {task}".encode()
        return text[offset : offset + limit], offset, len(text)

    def sweep(self) -> tuple[int, list[str]]:
        return 0, []

    def close(self) -> None:
        pass

    def _known(self, task: TaskId) -> InMemoryTask:
        return self._node.tasks.setdefault(task, InMemoryTask(task))

    def _mine(self, task: TaskId) -> InMemoryTask:
        known = self._known(task)
        if known.state is TaskState.ABSENT:
            raise DriverError(f"task {task}: not on this node")
        return known

    def _perform(self, task: InMemoryTask, action: TaskAction) -> None:
        if not self._node.driver.perform(task, action):
            raise NotYetError(task.error) if task.waits else DriverError(task.error)


@contextmanager
def agents_on(loop: VirtualLoop, stamp: Callable[[], float]) -> Generator[None]:
    """Let agents have the loop's time, wall clock `stamp` and chance instead of this machine's."""
    clocks: Any = SimpleNamespace(**vars(time) | {"time": stamp, "monotonic": loop.time})
    chance: Any = SimpleNamespace(uniform=loop.random.uniform)
    replaced = [(agent_module, "time", clocks), (task_reconciler, "time", clocks), (connection, "random", chance)]
    before = [(module, name, getattr(module, name)) for module, name, _ in replaced]
    for module, name, value in replaced:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
