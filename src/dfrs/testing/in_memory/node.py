"""A node in memory: its agent, its connection to the controller, and what may happen to it."""

import asyncio
import base64
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dfrs.live.agent.next_action import COSTS, plan, plan_fenced
from dfrs.live.agent.reports import Reports
from dfrs.live.controller.service import Controller
from dfrs.live.drivers.base import DriverAbilities, Exit, ExitKind, TaskId, TaskState
from dfrs.live.protocol.agent_door import AgentDoor, Attachment
from dfrs.live.protocol.observed import Cost, CostVerb, HostUse, Sample
from dfrs.live.protocol.wire import (
    PROTOCOL,
    Desire,
    Desired,
    FromAgent,
    FromController,
    Hello,
    Output,
    Read,
    ReportMessage,
    StatusMessage,
    TransferPort,
    Welcome,
)
from dfrs.testing.in_memory.driver import InMemoryDriver
from dfrs.testing.in_memory.link import LATE_S, InMemoryLink, door_of
from dfrs.testing.in_memory.tasks import LIVE, InMemoryTask

if TYPE_CHECKING:
    from dfrs.testing.in_memory.hosts import InMemoryHosts

MOST_ACTIONS = 10
"""From any state to any other."""
NOTICE_S = 3.0
"""After so long a connection that is cut one way is given up."""


class InMemoryNode:
    """A node with its agent; processes outlive the connection, and `reboot` ends them.

    What commands do, `InMemoryDriver` says.
    """

    def __init__(
        self, hosts: "InMemoryHosts", name: str, host: str, cpus: float, memory: int, abilities: DriverAbilities
    ) -> None:
        self.hosts, self.name, self.host, self.cpus, self.memory = hosts, name, host, cpus, memory
        self.abilities = abilities
        self.tasks: dict[TaskId, InMemoryTask] = {}
        self.driver = InMemoryDriver(self)
        self.boots = 1
        self.dead = False
        self.deaf = False
        """Whether nothing comes through, in either direction, though the connection stands."""
        self.cut_off = ""
        """"in" or "out": whether nothing comes to it, or nothing from it, though the connection stands."""
        self.rigid = 0.0
        """Chance that a task cannot be check-pointed when it is fetched."""
        self.full = 0.0
        """Chance that a pause frees no memory."""
        self.fence_s: float | None = None
        """After so long without the controller it stops its tasks, as agents do; None: never."""
        self.away_s = 0.0
        self.resources: dict[str, int] = {}
        """How many of each named resource it has."""
        self.problem = ""
        """Why it says that it cannot do its work."""
        self.features: tuple[str, ...] = ()
        """What it says that jobs can ask for."""
        self.unable = ""
        """Why it starts nothing."""
        self.costs: Mapping[CostVerb, float] = {}
        """Seconds that it says pauses, resumes and moves take; none for those that it does not measure."""
        self.uses = 1.0
        """CPU that each running task uses, in cores, or wants where it cannot have all of that."""
        self.outside: float | None = None
        """CPU that programs beside the cluster's want of its CPUs, in cores; None: its host does not tell."""
        self.cpu_numbers = tuple(range(math.ceil(cpus)))
        """Of its host: nodes may have the same ones."""
        self.stolen = 0.0
        """Cores that other virtual machines take where they are wanted; only where `outside` is known."""
        self.busy_s = self.steal_s = 0.0
        """CPU time of all programs on them."""
        self.clock_s = 0.0
        self.attachment: Attachment | None = None
        self.closed = ""
        """Why the controller ended the connection."""
        self.welcomes = 0
        self.told = 0
        self._reports = Reports()

    @property
    def _port(self) -> dict[str, Any]:
        # The port says which agent it is: one that is started anew has another.
        return {"address": f"{self.name}.test", "port": self.boots, "certificate": self.name}

    @property
    def hears(self) -> bool:
        """Whether what is sent to it arrives."""
        return not (self.dead or self.deaf or self.cut_off == "in")

    @property
    def is_heard(self) -> bool:
        """Whether what it sends arrives."""
        return not (self.dead or self.deaf or self.cut_off == "out")

    # Connection.

    def attach(self, controller: Controller) -> None:
        """Say hello over a new connection."""
        self.enter(door_of(controller))

    def enter(self, door: AgentDoor) -> None:
        """Say hello to whoever takes agents in there."""
        self.cut()
        self.cut_off = ""
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
            resources=self.resources,
            transfers=None if self.abilities.images is None else TransferPort(**self._port),
            tasks=statuses,
            problem=self.problem,
            told=self.told,
            version="test",
            features=self.features,
        )
        self._reports = Reports()
        self.link = InMemoryLink(self)
        self.attachment = door.attach(hello, self.link)
        self.closed = ""

    def cut(self) -> None:
        """The connection breaks."""
        if self.attachment is not None:
            self.hosts.history.append(("cut", self.name))
            self.link.open = False
            self.attachment.detach()
            self.attachment = None

    def drop(self, link: InMemoryLink) -> None:
        """That connection breaks, if it is still this node's."""
        if self.attachment is not None and self.link is link:
            self.cut()

    def receive(self, message: FromController) -> None:
        """A message of the controller arrives."""
        if isinstance(message, Welcome):
            self.welcomes += 1
            self.away_s = 0.0
            named = [one.task for one in message.desired]
            for task in self.tasks.values():
                if task.id not in named:
                    self._desire(task, None)
        if isinstance(message, Welcome | Desire):
            for one in message.tasks if isinstance(message, Desire) else message.desired:
                task = self.tasks.setdefault(one.task, InMemoryTask(one.task))
                self.told = max(self.told, one.version)
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
        if self.attachment is None or not self.is_heard:
            return
        attachment, hosts = self.attachment, self.hosts
        loop = asyncio.get_running_loop()
        if hosts.losses and hosts.random.random() < hosts.losses:
            loop.call_later(hosts.random.random() * LATE_S, self.drop, self.link)
            return
        times = 2 if hosts.random.random() < hosts.chaos else 1
        for _ in range(times):
            if hosts.random.random() < hosts.chaos:
                loop.call_later(hosts.random.random() * LATE_S, self._deliver, attachment, message)
            else:
                self._deliver(attachment, message)

    def _deliver(self, attachment: Attachment, message: FromAgent) -> None:
        if attachment is self.attachment and self.is_heard:
            attachment.receive(message)

    def report(self) -> None:
        """Send what its tasks use."""
        present = [task for task in self.tasks.values() if task.state in LIVE]
        used = (Sample(task=t.id, cpu_s=t.cpu_s, memory_bytes=1 << 20, **self._waits(t)) for t in present)
        samples = self._reports.news(used, lambda task: self.tasks[task].state is TaskState.PAUSED)
        host = (
            None if self.outside is None else HostUse(cpus=self.cpu_numbers, busy_s=self.busy_s, steal_s=self.steal_s)
        )
        self.send(ReportMessage(time_s=self.clock_s, host=host, samples=samples, problem=self.problem))

    def _waits(self, task: InMemoryTask) -> dict[str, Any]:
        if self.outside is None:
            return {}
        return {"watched_s": task.watched_s, "delayed_s": task.delayed_s, "waiting_s": task.waiting_s}

    # Tasks.

    def _desire(self, task: InMemoryTask, desired: Desired | None) -> None:
        if desired is None:
            version = 1 if task.desired is None else task.desired.version
            desired = Desired(task=task.id, version=version, state=TaskState.ABSENT)
            # That it may not have been able to do what this version said before is no reason to keep it.
            task.refused = 0
        task.desired = desired
        self.hosts.history.append(("desired", self.name, task.id, desired.state.value, desired.version))

    def settle(self) -> None:
        """Bring about what is desired, and report what changed."""
        if self.fence_s is not None and self.away_s >= self.fence_s:
            return
        for task in list(self.tasks.values()):
            for _ in range(MOST_ACTIONS):
                if task.desired is None:
                    break
                if task.refused == task.desired.version:
                    break
                todo = plan(task.desired, task.state, share_cores=task.share, was_here=task.was_here, kept=task.kept)
                task.error, task.waits = todo.problem, False
                if todo.action is None:
                    if not todo.problem:
                        task.version = task.desired.version
                    break
                if not self.driver.perform(task, todo.action):
                    break
                verb = COSTS.get(todo.action.verb)
                if verb is not None and verb in self.costs:
                    task.cost = Cost(verb=verb, version=task.desired.version, seconds=self.costs[verb])
            self.report_state(task)

    def give_up(self, task: InMemoryTask) -> None:
        """A node of another host fetches it."""
        task.stored = True
        self.driver.set_state(task, TaskState.HANDED)
        self.settle()

    def _status(self, task: InMemoryTask) -> StatusMessage:
        return StatusMessage(
            task=task.id,
            version=task.version,
            state=task.state,
            exit=task.exit,
            error=task.error,
            waits=task.waits,
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

    def report_state(self, task: InMemoryTask) -> None:
        """Say what has become of it, if that is news."""
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
        self._miss_controller(seconds)
        self.run_programs(seconds)
        if self.attachment is not None:
            self.settle()
            self.report()

    def run_programs(self, seconds: float) -> None:
        """What runs gets on, and ends when it is done."""
        for task in self.tasks.values():
            if task.state is TaskState.RUNNING:
                task.cpu_s += (self.uses if self.outside is None or task.gets is None else task.gets) * seconds
                task.left_s -= seconds
                task.work_s -= (task.share or 0.0) * seconds
                if min(task.left_s, task.work_s) <= 0:
                    self.driver.exit(
                        task, Exit(kind=ExitKind.CODE, code=0, time_s=self.hosts.stamp(), cpu_s=task.cpu_s)
                    )

    def _miss_controller(self, seconds: float) -> None:
        """Notice that it is away: give up a connection that is cut one way, and in the end the tasks."""
        if self.attachment is not None and self.hears and self.is_heard:
            self.away_s = 0.0
            return
        before, self.away_s = self.away_s, self.away_s + seconds
        if self.cut_off and self.away_s >= NOTICE_S:
            self.cut()
        if self.fence_s is not None and before < self.fence_s <= self.away_s:
            self.hosts.history.append(("fence", self.name))
            for task in self.tasks.values():
                todo = plan_fenced(task.state, 0.0)
                if todo.action is not None:
                    self.driver.perform(task, todo.action)

    def end(self, job: int, rank: int = 0, code: int = 0, peak_bytes: int | None = None) -> None:
        """A process ends by itself; `peak_bytes`: the most memory that it had."""
        for task in self.tasks.values():
            if (task.id.job, task.id.rank) == (job, rank) and task.state in LIVE:
                found = Exit(
                    kind=ExitKind.CODE,
                    code=code,
                    time_s=self.hosts.stamp(),
                    cpu_s=task.cpu_s,
                    peak_bytes=peak_bytes,
                )
                self.driver.exit(task, found)
        self.settle()

    def reboot(self) -> None:
        """All processes and all that the node knew of them are gone."""
        self.cut()
        self.hosts.history.append(("reboot", self.name))
        self.boots += 1
        self.tasks, self.told = {}, 0

    def die(self) -> None:
        """The machine is gone for good."""
        self.cut()
        self.dead = True
