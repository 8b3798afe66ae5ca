"""Agents without processes, for tests of the controller: they do what `next_action` says, in memory, at once.

A `World` holds what is true of all nodes: which tasks run where. It fails the test the moment two attempts at a task
run at the same time, or one attempt is started a second time, on nodes that nobody gave up.
"""

import asyncio
import random
import time
from collections import deque
from dataclasses import dataclass, field

from dfrs.live.agent.next_action import Verb, plan
from dfrs.live.controller.service import Controller
from dfrs.live.controller.settings import ControllerSettings
from dfrs.live.drivers.base import Abilities, Exit, ExitKind, TaskState
from dfrs.live.protocol.wire import PROTOCOL, Desire, Hello, Output, Read, ReportMessage, Sample, StatusMessage, Welcome
from dfrs.policies.names import find_policy
from tests.virtual_loop import VirtualExecutor

GIB = 1 << 30
POLICY = "GreedyPM*/per/OPT=MIN/MVT=600"
LIVE = (TaskState.RUNNING, TaskState.PAUSED, TaskState.HANDED)


async def until(condition, what="", patience_s=30.0):
    """Wait for the first true value of `condition()`."""
    loop = asyncio.get_running_loop()
    end = loop.time() + patience_s
    while loop.time() < end:
        value = condition()
        if value:
            return value
        await asyncio.sleep(0.005)
    raise AssertionError(f"after {patience_s} s still not: {what or condition}")


@dataclass
class FakeTask:
    """A process tree."""

    id: object
    desired: object = None
    state: TaskState = TaskState.ABSENT
    exit: Exit | None = None
    share: float | None = None
    was_here: bool = False
    brought: int = 0
    error: str = ""
    cpu_s: float = 0.0
    left_s: float = float("inf")
    reported: tuple = ()
    since_s: float = 0.0


@dataclass
class World:
    """All hosts."""

    seed: int = 0
    chaos: float = 0.0
    """Chance that a message is repeated, late, or both."""
    nodes: dict = field(default_factory=dict)
    starts: dict = field(default_factory=dict)
    watched: bool = True
    """Whether every step is checked: that looks at all tasks, and takes its time with thousands."""
    history: list = field(default_factory=list)
    broken: list = field(default_factory=list)
    """What must never be and was: also where an exception would go unnoticed."""

    now: float = 1.8e9
    """The clock of the controller; it goes on only by `tick`."""
    stamp: object = time.time
    """The clock by which nodes date what they say."""

    def __post_init__(self):
        self.random = random.Random(self.seed)

    def clock(self):
        """Wall clock."""
        return self.now

    def node(self, name, host="h", cpus=4.0, memory=8 * GIB, **abilities):
        """A new node, not connected."""
        self.nodes[name] = FakeAgent(self, name, host, cpus, memory, abilities)
        return self.nodes[name]

    def started(self, node, task):
        """A node starts a process."""
        self.history.append(("start", node.name, task))
        if task in self.starts:
            self.fail(f"{task} was started on {self.starts[task]}, and again on {node.name}")
        self.starts[task] = node.name
        self.check()

    def running(self, job=None):
        """(task, node) of all processes on nodes that are not given up."""
        found = [(t.id, n.name) for n in self.nodes.values() if not n.dead for t in n.tasks.values() if t.state in LIVE]
        return [each for each in found if job is None or each[0].job == job]

    def handed(self, host, task):
        """The task where it was given up, if it was."""
        nodes = [node for node in self.nodes.values() if node.host == host and not node.dead]
        found = (node.tasks.get(task) for node in nodes)
        return next((each for each in found if each is not None and each.state is TaskState.HANDED), None)

    def check(self):
        """No two attempts at a task at once."""
        seen = {}
        for task, node in self.running() if self.watched else ():
            key = (task.job, task.rank)
            if key in seen:
                self.fail(f"{task} runs on {node}, and {seen[key]} runs too")
            seen[key] = (task, node)

    def fail(self, what):
        """Something that must never be."""
        self.broken.append(what)
        raise AssertionError(what)

    def tick(self, seconds):
        """Time passes for all."""
        assert not self.broken, self.broken
        self.now += seconds
        for node in self.nodes.values():
            node.tick(seconds)

    def attach_all(self, controller):
        """Connect every node that is alive."""
        for node in self.nodes.values():
            if not node.dead:
                node.attach(controller)


class FakeAgent:
    """A node with its agent; processes outlive the connection, and `reboot`, which ends them."""

    def __init__(self, world, name, host, cpus, memory, abilities):
        self.world, self.name, self.host, self.cpus, self.memory = world, name, host, cpus, memory
        self.abilities = Abilities(
            **{
                "shares": "cgroup-v1", "caps": True, "memory_limits": True, "pause_frees_memory": True,
                "moves_on_host": True, "measures_waiting": False,
            } | abilities
        )  # fmt: skip
        self.tasks = {}
        self.boots = 1
        self.dead = False
        self.deaf = False
        self.uses = 1.0
        self.clock_s = 0.0
        self.attachment = None
        self.closed = ""
        self.welcomes = 0
        self.slow_start = set()
        self.inbox = []

    # Connection.

    def attach(self, controller):
        """Say hello over a new connection."""
        self.cut()
        self.world.history.append(("attach", self.name))
        statuses = tuple(self._status(t) for t in self.tasks.values() if t.state is not TaskState.ABSENT)
        hello = Hello(
            protocol=PROTOCOL,
            node=self.name,
            host=self.host,
            boot=f"boot {self.boots}",
            address=f"{self.name}.test",
            cpus=self.cpus,
            memory_bytes=self.memory,
            abilities=self.abilities,
            tasks=statuses,
            version="test",
        )
        self.link = FakeLink(self)
        self.attachment = controller.attach(hello, self.link)
        self.closed = ""

    def cut(self):
        """The connection breaks."""
        if self.attachment is not None:
            self.world.history.append(("cut", self.name))
            self.link.open = False
            self.attachment.detach()
            self.attachment = None

    def take(self, message):
        """A message of the controller."""
        world = self.world
        if isinstance(message, Welcome):
            self.welcomes += 1
            named = {one.task for one in message.desired}
            for task in self.tasks.values():
                if task.id not in named:
                    self._desire(task, None)
        if isinstance(message, Welcome | Desire):
            for one in message.tasks if isinstance(message, Desire) else message.desired:
                task = self.tasks.setdefault(one.task, FakeTask(one.task))
                if task.desired is None or one.version > task.desired.version:
                    self._desire(task, one)
            self.settle()
        elif isinstance(message, Read):
            text = f"output of {message.task}".encode()
            import base64

            part = text[message.offset : message.offset + message.limit]
            self.say(
                Output(
                    request=message.request, data=base64.b64encode(part).decode(), offset=message.offset, end=len(text)
                )
            )
        world.check()

    def say(self, message):
        """Send; with chaos, sometimes twice, sometimes late."""
        if self.attachment is None or self.deaf:
            return
        attachment, world = self.attachment, self.world
        loop = asyncio.get_running_loop()
        times = 2 if world.random.random() < world.chaos else 1
        for _ in range(times):
            if world.random.random() < world.chaos:
                loop.call_later(world.random.random() * 0.05, self._deliver, attachment, message)
            else:
                self._deliver(attachment, message)

    def _deliver(self, attachment, message):
        if attachment is self.attachment and not self.deaf:
            attachment.receive(message)

    def report(self):
        """What its tasks use."""
        samples = tuple(
            Sample(task=t.id, cpu_s=t.cpu_s, memory_bytes=1 << 20) for t in self.tasks.values() if t.state in LIVE
        )
        self.say(ReportMessage(time_s=self.clock_s, samples=samples))

    # Tasks.

    def _desire(self, task, desired):
        if desired is None:
            from dfrs.live.protocol.wire import Desired

            version = 1 if task.desired is None else task.desired.version
            desired = Desired(task=task.id, version=version, state=TaskState.ABSENT)
        task.desired = desired
        self.world.history.append(("desired", self.name, task.id, desired.state.value, desired.version))

    def settle(self):
        """Bring about what is desired, and say what changed."""
        for task in list(self.tasks.values()):
            for _ in range(10):
                if task.desired is None:
                    break
                todo = plan(task.desired, task.state, share_cores=task.share, was_here=task.was_here)
                task.error = todo.problem
                if todo.action is None:
                    if not todo.problem:
                        task.brought = task.desired.version
                    break
                if not self._perform(task, todo.action):
                    break
            self._tell(task)

    def _perform(self, task, step):
        world = self.world
        match step.verb:
            case Verb.START:
                world.started(self, task.id)
                task.share = step.share_cores
                self._begin(task)
            case Verb.TAKE:
                if task.state is not TaskState.HANDED:
                    source = world.handed(self.host, task.id)
                    if source is None:
                        task.error = "take: nobody has handed it"
                        return False
                    task.cpu_s, task.left_s = source.cpu_s, source.left_s
                    source.state, source.share, source.was_here = TaskState.ABSENT, None, False
                self._state(task, TaskState.RUNNING)
                task.share, task.was_here = step.share_cores, True
            case Verb.HAND:
                world.history.append(("hand", self.name, task.id))
                self._state(task, TaskState.HANDED)
            case Verb.SET_SHARE:
                task.share = step.share_cores
            case Verb.PAUSE:
                self._state(task, TaskState.PAUSED)
            case Verb.RESUME:
                self._state(task, TaskState.RUNNING)
            case Verb.STOP:
                self._exit(task, Exit(kind=ExitKind.STOPPED, signal=15, time_s=self.world.stamp()))
            case Verb.FORGET:
                self._state(task, TaskState.ABSENT)
                task.exit, task.was_here, task.share = None, False, None
        return True

    def _begin(self, task):
        command = task.desired.spec.command
        task.was_here = True
        match command[0]:
            case "sleep":
                task.left_s = float(command[1])
                self._state(task, TaskState.RUNNING)
            case "missing":
                self._exit(task, Exit(kind=ExitKind.NOT_STARTED, time_s=self.world.stamp(), message="no such file"))
            case "fail":
                code, message = int(command[1]), " ".join(command[2:])
                self._exit(task, Exit(kind=ExitKind.CODE, code=code, time_s=self.world.stamp(), message=message))
            case "oom":
                self._exit(task, Exit(kind=ExitKind.OUT_OF_MEMORY, time_s=self.world.stamp()))
            case _:
                self._state(task, TaskState.RUNNING)

    def _exit(self, task, found):
        task.exit = found
        self._state(task, TaskState.EXITED)

    def _state(self, task, state):
        self.world.history.append((state.value, self.name, task.id))
        task.state, task.since_s = state, self.world.stamp()
        self.world.check()

    def _status(self, task):
        return StatusMessage(
            task=task.id, version=task.brought, state=task.state, exit=task.exit, error=task.error, since_s=task.since_s
        )

    def _tell(self, task):
        report = (task.state, task.exit, task.error, task.brought)
        if report != task.reported:
            task.reported = report
            self.world.history.append(("says", self.name, task.id, task.state.value, task.brought))
            self.say(self._status(task))

    def tick(self, seconds):
        """Time passes."""
        if self.dead:
            return
        self.clock_s += seconds
        for task in self.tasks.values():
            if task.state is TaskState.RUNNING:
                task.cpu_s += self.uses * seconds
                task.left_s -= seconds
                if task.left_s <= 0:
                    self._exit(task, Exit(kind=ExitKind.CODE, code=0, time_s=self.world.stamp(), cpu_s=task.cpu_s))
        if self.attachment is not None:
            self.settle()
            self.report()

    def end(self, job, rank=0, code=0):
        """A process ends by itself."""
        for task in self.tasks.values():
            if (task.id.job, task.id.rank) == (job, rank) and task.state in LIVE:
                self._exit(task, Exit(kind=ExitKind.CODE, code=code, time_s=self.world.stamp(), cpu_s=task.cpu_s))
        self.settle()

    def reboot(self):
        """All processes and all that the node knew of them are gone."""
        self.cut()
        self.world.history.append(("reboot", self.name))
        self.boots += 1
        self.tasks = {}

    def die(self):
        """The machine is gone for good."""
        self.cut()
        self.dead = True


class FakeLink:
    """Delivers to the agent, in order, a little later."""

    def __init__(self, agent):
        self.agent = agent
        self.open = True
        self.sent = []
        self._on_the_way = deque()

    def send(self, message):
        """Queue it; with chaos, sometimes once more and late."""
        assert message.model_dump_json()
        self.sent.append(message)
        loop, world = asyncio.get_running_loop(), self.agent.world
        self._on_the_way.append(message)
        loop.call_soon(self._arrive_first)
        if world.random.random() < world.chaos and isinstance(message, Desire):
            loop.call_later(world.random.random() * 0.05, self._arrive, message)

    def _arrive_first(self):
        """In the order in which they were sent, whatever the order of callbacks."""
        self._arrive(self._on_the_way.popleft())

    def _arrive(self, message):
        if self.open and not self.agent.deaf and not self.agent.dead:
            self.agent.take(message)

    def close(self, reason):
        """End it."""
        self.agent.closed = reason
        if self.agent.attachment is not None and self.agent.link is self:
            asyncio.get_running_loop().call_soon(self.agent.cut)
        self.open = False


def make(path, policy=POLICY, **settings):
    """A controller on a database in `path`, not started."""
    more = {key: settings.pop(key) for key in ("discovery", "shadow", "bound", "writer") if key in settings}
    chosen = {"policy": policy, "report_s": 0.05, "discovery": settings.pop("discovery_name", "NONE")} | settings
    url = chosen.pop("database", f"sqlite:///{path}/live.db")
    clock = chosen.setdefault("clock", time.time)
    chosen.setdefault("steady", time.monotonic if clock is time.time else clock)
    return Controller(ControllerSettings(database=url, **chosen), find_policy(policy), find=find_policy, **more)


async def abandon(controller):
    """As kill -9 does: it stops in the middle of whatever it does, and stores nothing more."""
    controller._running.cancel()
    database = controller.database
    database._closed = True
    if isinstance(database._writer, VirtualExecutor):
        database._writer.kill()
        database._disconnect()
    else:
        database._writer.submit(database._disconnect)
        database._writer.shutdown(wait=False)
    await asyncio.sleep(0)
