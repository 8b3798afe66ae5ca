"""Nodes without processes: their agents do what `next_action` says, in memory, at once.

`InMemoryHosts` holds what is true of all nodes: which tasks run where. It fails the test the moment two attempts at a
task run at the same time, or one attempt is started a second time, on nodes that nobody gave up.
"""

import asyncio
import base64
import random
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dfrs.live.agent.next_action import COSTS, TaskAction, Verb, may_come, plan
from dfrs.live.drivers.base import Abilities, Exit, ExitKind, TaskId, TaskState
from dfrs.live.protocol.ports import Attachment, Service
from dfrs.live.protocol.wire import (
    PROTOCOL,
    Cost,
    CostVerb,
    Desire,
    Desired,
    FromAgent,
    FromController,
    Hello,
    Output,
    Read,
    ReportMessage,
    Sample,
    StatusMessage,
    TransferPort,
    Welcome,
)

GIB = 1 << 30
LATE_S = 0.05
"""No message is later than this."""
MOST_ACTIONS = 10
"""From any state to any other."""
LIVE = (TaskState.RUNNING, TaskState.PAUSED, TaskState.HANDED)
_USUAL: dict[str, Any] = {
    "shares": "cgroup-v1",
    "caps": True,
    "memory_limits": True,
    "pause_frees_memory": True,
    "moves_on_host": True,
    "measures_waiting": False,
}


@dataclass
class InMemoryTask:
    """What a process tree would be."""

    id: TaskId
    desired: Desired | None = None
    state: TaskState = TaskState.ABSENT
    exit: Exit | None = None
    share: float | None = None
    was_here: bool = False
    version: int = 0
    """Of the desired state that it has reached."""
    error: str = ""
    kept: bool = False
    """It is paused, and its memory could not be freed."""
    refused: int = 0
    """Version at which it could not be paused, or fetched."""
    transfers: int = 0
    """How often it has gone from host to host."""
    cost: Cost | None = None
    stored: bool = False
    """It is in an image: no process of it is here."""
    used: str = ""
    """Token of the grant by which it was fetched last."""
    cpu_s: float = 0.0
    left_s: float = float("inf")
    """Seconds of running until it ends by itself."""
    work_s: float = float("inf")
    """Seconds of CPU until it ends by itself; it gets its share."""
    reported: tuple[object, ...] = ()
    since_s: float = 0.0

    @property
    def may_come(self) -> bool:
        """See `dfrs.live.agent.next_action.may_come`."""
        return may_come(self.desired, was_here=self.was_here)


@dataclass
class InMemoryHosts:
    """All nodes, the clock of the cluster, and what happened."""

    seed: int = 0
    chaos: float = 0.0
    """Chance that a message is repeated, late, or both."""
    cuts: float = 0.0
    """Chance that a connection between two hosts is not made, or breaks off."""
    nodes: "dict[str, InMemoryNode]" = field(default_factory=dict[str, "InMemoryNode"])
    starts: dict[TaskId, str] = field(default_factory=dict[TaskId, str])
    """Where each attempt was started."""
    transfers: dict[TaskId, int] = field(default_factory=dict[TaskId, int])
    """How often each attempt has gone from host to host."""
    watched: bool = True
    """Whether every step is checked: that looks at all tasks, and takes its time with thousands."""
    history: list[tuple[object, ...]] = field(default_factory=list[tuple[object, ...]])
    broken: list[str] = field(default_factory=list[str])
    """What must never be and was: also where an exception would go unnoticed."""
    now: float = 1.8e9
    """The clock of the controller; it goes on only by `tick`."""
    stamp: Callable[[], float] = time.time
    """The clock by which nodes date what they report."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def clock(self) -> float:
        """Wall clock."""
        return self.now

    def node(
        self,
        name: str,
        host: str = "h",
        cpus: float = 4.0,
        memory: int = 8 * GIB,
        **abilities: Any,  # noqa: ANN401
    ) -> "InMemoryNode":
        """A new node, not connected. `abilities` are fields of `Abilities`; by default it can do everything."""
        self.nodes[name] = InMemoryNode(self, name, host, cpus, memory, Abilities(**(_USUAL | abilities)))
        return self.nodes[name]

    def started(self, node: "InMemoryNode", task: TaskId) -> None:
        """A node starts a process. Raises AssertionError where that attempt was started before."""
        self.history.append(("start", node.name, task))
        if task in self.starts:
            self.fail(f"{task} was started on {self.starts[task]}, and again on {node.name}")
        self.starts[task] = node.name
        self.check()

    def running(self, job: int | None = None) -> list[tuple[TaskId, str]]:
        """(task, node) of all processes on nodes that are not given up."""
        tasks = [(t, n.name) for n in self.nodes.values() if not n.dead for t in n.tasks.values()]
        found = [(t.id, name) for t, name in tasks if t.state in LIVE and not t.stored]
        return [each for each in found if job is None or each[0].job == job]

    def handed(self, host: str, task: TaskId) -> InMemoryTask | None:
        """The task where it was given up, if it was."""
        nodes = [node for node in self.nodes.values() if node.host == host and not node.dead]
        found = (node.tasks.get(task) for node in nodes)
        return next((each for each in found if each is not None and each.state is TaskState.HANDED), None)

    def check(self) -> None:
        """Raise AssertionError where two attempts at a task run at once."""
        seen: dict[tuple[int, int], tuple[TaskId, str]] = {}
        for task, node in self.running() if self.watched else ():
            key = (task.job, task.rank)
            if key in seen:
                self.fail(f"{task} runs on {node}, and {seen[key]} runs too")
            seen[key] = (task, node)

    def fail(self, what: str) -> None:
        """Raise AssertionError for something that must never be, and remember it."""
        self.broken.append(what)
        raise AssertionError(what)

    def tick(self, seconds: float) -> None:
        """Time passes for all. Raises AssertionError where something was that must never be."""
        assert not self.broken, self.broken
        self.now += seconds
        for node in self.nodes.values():
            node.tick(seconds)

    def attach_all(self, controller: Service) -> None:
        """Connect every node that is alive."""
        for node in self.nodes.values():
            if not node.dead:
                node.attach(controller)


class InMemoryNode:
    """A node with its agent; processes outlive the connection, and `reboot` ends them.

    Commands are stories: `sleep SECONDS` ends after so long, `work SECONDS` after so much CPU of its share,
    `fail CODE [WORDS]` ends at once, `missing` is no program, `oom` needs more memory than it may; any other runs until
    something ends it.
    """

    def __init__(
        self, hosts: InMemoryHosts, name: str, host: str, cpus: float, memory: int, abilities: Abilities
    ) -> None:
        self.hosts, self.name, self.host, self.cpus, self.memory = hosts, name, host, cpus, memory
        self.abilities = abilities
        self.tasks: dict[TaskId, InMemoryTask] = {}
        self.boots = 1
        self.dead = False
        self.deaf = False
        """Whether nothing comes through, in either direction, though the connection stands."""
        self.rigid = 0.0
        """Chance that a task cannot be check-pointed when it is fetched."""
        self.full = 0.0
        """Chance that a pause frees no memory."""
        self.costs: Mapping[CostVerb, float] = {}
        """Seconds that it says pauses, resumes and moves take; none for those that it does not measure."""
        self.uses = 1.0
        """CPU that each running task uses, in cores."""
        self.clock_s = 0.0
        self.attachment: Attachment | None = None
        self.closed = ""
        """Why the controller ended the connection."""
        self.welcomes = 0

    @property
    def _port(self) -> dict[str, Any]:
        # The port says which agent it is: one that is started anew has another.
        return {"address": f"{self.name}.test", "port": self.boots, "certificate": self.name}

    # Connection.

    def attach(self, controller: Service) -> None:
        """Say hello over a new connection."""
        self.cut()
        self.hosts.history.append(("attach", self.name))
        statuses = tuple(self._status(t) for t in self.tasks.values() if t.state is not TaskState.ABSENT or t.may_come)
        hello = Hello(
            protocol=PROTOCOL,
            node=self.name,
            host=self.host,
            boot=f"boot {self.boots}",
            address=f"{self.name}.test",
            cpus=self.cpus,
            memory_bytes=self.memory,
            abilities=self.abilities,
            transfers=None if self.abilities.images is None else TransferPort(**self._port),
            tasks=statuses,
            version="test",
        )
        self.link = InMemoryLink(self)
        self.attachment = controller.attach(hello, self.link)
        self.closed = ""

    def cut(self) -> None:
        """The connection breaks."""
        if self.attachment is not None:
            self.hosts.history.append(("cut", self.name))
            self.link.open = False
            self.attachment.detach()
            self.attachment = None

    def receive(self, message: FromController) -> None:
        """A message of the controller arrives."""
        if isinstance(message, Welcome):
            self.welcomes += 1
            named = [one.task for one in message.desired]
            for task in self.tasks.values():
                if task.id not in named:
                    self._desire(task, None)
        if isinstance(message, Welcome | Desire):
            for one in message.tasks if isinstance(message, Desire) else message.desired:
                task = self.tasks.setdefault(one.task, InMemoryTask(one.task))
                if task.desired is None or one.version > task.desired.version:
                    self._desire(task, one)
            self.settle()
        elif isinstance(message, Read):
            text = f"output of {message.task}".encode()
            part = base64.b64encode(text[message.offset : message.offset + message.limit]).decode()
            self.send(Output(request=message.request, data=part, offset=message.offset, end=len(text)))
        self.hosts.check()

    def send(self, message: FromAgent) -> None:
        """Send; with chaos, sometimes twice, sometimes late."""
        if self.attachment is None or self.deaf:
            return
        attachment, hosts = self.attachment, self.hosts
        loop = asyncio.get_running_loop()
        times = 2 if hosts.random.random() < hosts.chaos else 1
        for _ in range(times):
            if hosts.random.random() < hosts.chaos:
                loop.call_later(hosts.random.random() * LATE_S, self._deliver, attachment, message)
            else:
                self._deliver(attachment, message)

    def _deliver(self, attachment: Attachment, message: FromAgent) -> None:
        if attachment is self.attachment and not self.deaf:
            attachment.receive(message)

    def report(self) -> None:
        """Send what its tasks use."""
        samples = tuple(
            Sample(task=t.id, cpu_s=t.cpu_s, memory_bytes=1 << 20) for t in self.tasks.values() if t.state in LIVE
        )
        self.send(ReportMessage(time_s=self.clock_s, samples=samples))

    # Tasks.

    def _desire(self, task: InMemoryTask, desired: Desired | None) -> None:
        if desired is None:
            version = 1 if task.desired is None else task.desired.version
            desired = Desired(task=task.id, version=version, state=TaskState.ABSENT)
        task.desired = desired
        self.hosts.history.append(("desired", self.name, task.id, desired.state.value, desired.version))

    def settle(self) -> None:
        """Bring about what is desired, and report what changed."""
        for task in list(self.tasks.values()):
            for _ in range(MOST_ACTIONS):
                if task.desired is None:
                    break
                if task.refused == task.desired.version:
                    break
                todo = plan(task.desired, task.state, share_cores=task.share, was_here=task.was_here, kept=task.kept)
                task.error = todo.problem
                if todo.action is None:
                    if not todo.problem:
                        task.version = task.desired.version
                    break
                if not self._perform(task, todo.action):
                    break
                verb = COSTS.get(todo.action.verb)
                if verb is not None and verb in self.costs:
                    task.cost = Cost(verb=verb, version=task.desired.version, seconds=self.costs[verb])
            self._report_state(task)

    def _perform(self, task: InMemoryTask, action: TaskAction) -> bool:
        if self.full and action.verb in {Verb.START, Verb.TAKE, Verb.RESUME} and not self._has_room(task):
            task.error = "waits until others have left the memory"
            return False
        match action.verb:
            case Verb.START:
                self.hosts.started(self, task.id)
                task.share = action.share_cores
                self._begin(task)
            case Verb.TAKE:
                if task.state is not TaskState.HANDED:
                    source = self.hosts.handed(self.host, task.id)
                    if source is None:
                        task.error = "take: nobody has handed it"
                        return False
                    task.cpu_s, task.left_s, task.work_s = source.cpu_s, source.left_s, source.work_s
                    task.transfers, task.stored = source.transfers, source.stored
                    source.state, source.share, source.was_here = TaskState.ABSENT, None, False
                self._goes_on(task)
                task.share, task.was_here = action.share_cores, True
            case Verb.FETCH:
                return self._fetch(task, action.share_cores)
            case Verb.HAND:
                self.hosts.history.append(("hand", self.name, task.id))
                self._state(task, TaskState.HANDED)
            case Verb.SET_SHARE:
                task.share = action.share_cores
            case Verb.PAUSE:
                return self._pause(task, keep=action.keep)
            case Verb.RESUME:
                task.kept = False
                self._goes_on(task)
            case Verb.STOP:
                self._exit(task, Exit(kind=ExitKind.STOPPED, signal=15, time_s=self.hosts.stamp()))
            case Verb.FORGET:
                self._state(task, TaskState.ABSENT)
                task.exit, task.was_here, task.share = None, False, None
        return True

    def _goes_on(self, task: InMemoryTask) -> None:
        if task.transfers < self.hosts.transfers.get(task.id, 0):
            self.hosts.fail(f"{task.id} goes on from a copy on {self.name} that is out of date")
        task.stored = False
        self._state(task, TaskState.RUNNING)

    def _fetch(self, task: InMemoryTask, share: float) -> bool:
        assert task.desired is not None
        source = task.desired.source
        assert source is not None
        # As agents do: it may take long, and what went wrong before says nothing of it.
        task.error = ""
        self._report_state(task)
        node = self.hosts.nodes[source.certificate]
        found = node.tasks.get(task.id)
        wanted = None if found is None else found.desired
        grant = None if wanted is None or wanted.state is not TaskState.HANDED else wanted.grant
        task.error = f"fetch: {node.name}: "
        if node.dead or node.boots != source.port or self.hosts.random.random() < self.hosts.cuts:
            task.error += "no connection"
            return False
        granted = grant is not None and (grant.token, grant.certificate) == (source.token, self.name)
        if found is None or wanted is None or not granted or found.used == source.token:
            task.error += "not granted"
            return False
        found.used = source.token
        if found.state in {TaskState.ABSENT, TaskState.EXITED}:
            task.error += "it is not there"
            return False
        if not found.stored and self.hosts.random.random() < node.rigid:
            found.refused, found.error = wanted.version, "it holds a device"
            node.settle()
            task.error += found.error
            return False
        if found.state is not TaskState.HANDED or not found.stored:
            # In its image, and not let out of it before it is taken back.
            node.give_up(found)
        if self.hosts.random.random() < self.hosts.cuts:
            task.error += "the connection broke"
            return False
        task.error = ""
        task.cpu_s, task.left_s, task.work_s = found.cpu_s, found.left_s, found.work_s
        task.transfers, task.share, task.was_here, task.kept = found.transfers + 1, share, True, False
        task.stored = True
        self.hosts.transfers[task.id] = max(task.transfers, self.hosts.transfers.get(task.id, 0))
        self._state(task, TaskState.PAUSED)
        return True

    def give_up(self, task: InMemoryTask) -> None:
        """A node of another host fetches it."""
        task.stored = True
        self._state(task, TaskState.HANDED)
        self.settle()

    def _has_room(self, task: InMemoryTask) -> bool:
        """Whether others leave the task its memory, as drivers whose pauses free memory see to it."""
        here = (TaskState.STARTING, TaskState.RUNNING)
        used = sum(_memory(t) for t in self.tasks.values() if t is not task and (t.state in here or t.kept))
        return used + _memory(task) <= self.memory + 1024

    def _pause(self, task: InMemoryTask, *, keep: bool) -> bool:
        assert task.desired is not None
        stays = self.full > 0 and self.hosts.random.random() < self.full
        if stays and not keep:
            task.error, task.refused = "no swap space left", task.desired.version
            return False
        task.kept = stays
        self._state(task, TaskState.PAUSED)
        return True

    def _begin(self, task: InMemoryTask) -> None:
        assert task.desired is not None
        assert task.desired.spec is not None
        command = task.desired.spec.command
        task.was_here = True
        match command[0]:
            case "sleep":
                task.left_s = float(command[1])
                self._state(task, TaskState.RUNNING)
            case "work":
                task.work_s = float(command[1])
                self._state(task, TaskState.RUNNING)
            case "missing":
                self._exit(task, Exit(kind=ExitKind.NOT_STARTED, time_s=self.hosts.stamp(), message="no such file"))
            case "fail":
                code, message = int(command[1]), " ".join(command[2:])
                self._exit(task, Exit(kind=ExitKind.CODE, code=code, time_s=self.hosts.stamp(), message=message))
            case "oom":
                self._exit(task, Exit(kind=ExitKind.OUT_OF_MEMORY, time_s=self.hosts.stamp()))
            case _:
                self._state(task, TaskState.RUNNING)

    def _exit(self, task: InMemoryTask, found: Exit) -> None:
        task.exit = found
        self._state(task, TaskState.EXITED)

    def _state(self, task: InMemoryTask, state: TaskState) -> None:
        self.hosts.history.append((state.value, self.name, task.id))
        task.state, task.since_s = state, self.hosts.stamp()
        self.hosts.check()

    def _status(self, task: InMemoryTask) -> StatusMessage:
        return StatusMessage(
            task=task.id,
            version=task.version,
            state=task.state,
            exit=task.exit,
            error=task.error,
            since_s=task.since_s,
            refused=self._refused(task),
            transfers=task.transfers,
            cost=task.cost,
        )

    @staticmethod
    def _refused(task: InMemoryTask) -> int:
        """See `StatusMessage.refused`."""
        wanted = task.desired
        if wanted is not None and wanted.grant is not None:
            return wanted.version if task.refused == wanted.version else 0
        if wanted is None or wanted.state is not TaskState.PAUSED:
            return 0
        return wanted.version if task.kept or task.refused == wanted.version else 0

    def _report_state(self, task: InMemoryTask) -> None:
        report = (task.state, task.exit, task.error, task.version, self._refused(task), task.transfers)
        if report != task.reported:
            task.reported = report
            self.hosts.history.append(("says", self.name, task.id, task.state.value, task.version))
            self.send(self._status(task))

    def tick(self, seconds: float) -> None:
        """Time passes: tasks run, and what is connected reports."""
        if self.dead:
            return
        self.clock_s += seconds
        for task in self.tasks.values():
            if task.state is TaskState.RUNNING:
                task.cpu_s += self.uses * seconds
                task.left_s -= seconds
                task.work_s -= (task.share or 0.0) * seconds
                if min(task.left_s, task.work_s) <= 0:
                    self._exit(task, Exit(kind=ExitKind.CODE, code=0, time_s=self.hosts.stamp(), cpu_s=task.cpu_s))
        if self.attachment is not None:
            self.settle()
            self.report()

    def end(self, job: int, rank: int = 0, code: int = 0) -> None:
        """A process ends by itself."""
        for task in self.tasks.values():
            if (task.id.job, task.id.rank) == (job, rank) and task.state in LIVE:
                self._exit(task, Exit(kind=ExitKind.CODE, code=code, time_s=self.hosts.stamp(), cpu_s=task.cpu_s))
        self.settle()

    def reboot(self) -> None:
        """All processes and all that the node knew of them are gone."""
        self.cut()
        self.hosts.history.append(("reboot", self.name))
        self.boots += 1
        self.tasks = {}

    def die(self) -> None:
        """The machine is gone for good."""
        self.cut()
        self.dead = True


def _memory(task: InMemoryTask) -> int:
    """Bytes that it may use."""
    spec = None if task.desired is None else task.desired.spec
    return 0 if spec is None else spec.memory_bytes


class InMemoryLink:
    """Delivers to the node, in order, a little later."""

    def __init__(self, node: InMemoryNode) -> None:
        self.node = node
        self.open = True
        self.sent: list[FromController] = []
        self._on_the_way: deque[FromController] = deque()

    def send(self, message: FromController) -> None:
        """Queue it; with chaos, sometimes once more and late."""
        assert message.model_dump_json()
        self.sent.append(message)
        loop, hosts = asyncio.get_running_loop(), self.node.hosts
        self._on_the_way.append(message)
        loop.call_soon(self._arrive_first)
        if hosts.random.random() < hosts.chaos and isinstance(message, Desire):
            loop.call_later(hosts.random.random() * LATE_S, self._arrive, message)

    def _arrive_first(self) -> None:
        """In the order in which they were sent, whatever the order of callbacks."""
        self._arrive(self._on_the_way.popleft())

    def _arrive(self, message: FromController) -> None:
        if self.open and not self.node.deaf and not self.node.dead:
            self.node.receive(message)

    def close(self, reason: str) -> None:
        """End it."""
        self.node.closed = reason
        if self.node.attachment is not None and self.node.link is self:
            asyncio.get_running_loop().call_soon(self.node.cut)
        self.open = False
