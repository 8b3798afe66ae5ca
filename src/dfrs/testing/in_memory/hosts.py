"""What is true of all nodes in memory, whatever their agents say: which attempts were started, and run, where."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dfrs.live.controller.service import Controller
from dfrs.live.drivers.base import DriverAbilities, Exit, TaskId, TaskState
from dfrs.testing.in_memory.cpus import share_cpus
from dfrs.testing.in_memory.node import InMemoryNode
from dfrs.testing.in_memory.tasks import LIVE, InMemoryTask

GIB = 1 << 30
_USUAL: dict[str, Any] = {
    "shares": "cgroup-v1",
    "caps": True,
    "memory_limits": True,
    "pause_frees_memory": True,
    "moves_on_host": True,
    "measures_waiting": False,
}


@dataclass
class InMemoryHosts:
    """All nodes, the clock of the cluster, and what happened."""

    seed: int = 0
    chaos: float = 0.0
    """Chance that a message is repeated, late, or both."""
    cuts: float = 0.0
    """Chance that a connection between two hosts is not made, or breaks off."""
    losses: float = 0.0
    """Chance that a message is lost; its connection, which cannot go on without it, breaks a little later."""
    nodes: dict[str, InMemoryNode] = field(default_factory=dict[str, InMemoryNode])
    starts: dict[TaskId, str] = field(default_factory=dict[TaskId, str])
    """Where each attempt was started."""
    transfers: dict[TaskId, int] = field(default_factory=dict[TaskId, int])
    """How often each attempt has gone from host to host."""
    exits: dict[TaskId, list[Exit]] = field(default_factory=dict[TaskId, list[Exit]])
    """How the processes of each attempt ended, whoever heard of it, copies that were given up too."""
    watched: bool = True
    """Whether every step is checked: that looks at all tasks, and takes its time with thousands."""
    history: list[tuple[object, ...]] = field(default_factory=list[tuple[object, ...]])
    broken: list[str] = field(default_factory=list[str])
    """What must never be and was: also where an exception would go unnoticed."""
    now: float = 1.8e9
    """The clock of the controller; it goes on only by `tick`."""
    wall_ahead: float = 0.0
    """By how much the wall clock was set forward or back."""
    stamp: Callable[[], float] = time.time
    """The clock by which nodes date what they report."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)  # noqa: S311 - what is tested repeats from its seed

    def clock(self) -> float:
        """Wall clock, which may be set."""
        return self.now + self.wall_ahead

    def steady(self) -> float:
        """Seconds that only pass."""
        return self.now

    def node(
        self,
        name: str,
        host: str = "h",
        cpus: float = 4.0,
        memory: int = 8 * GIB,
        kind: type[InMemoryNode] = InMemoryNode,
        **abilities: Any,  # noqa: ANN401
    ) -> InMemoryNode:
        """A new node, not connected. `abilities` are fields of `DriverAbilities`; by default it can do everything."""
        self.nodes[name] = kind(self, name, host, cpus, memory, DriverAbilities(**(_USUAL | abilities)))
        return self.nodes[name]

    def started(self, node: InMemoryNode, task: TaskId) -> None:
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
        share_cpus((node for node in self.nodes.values() if not node.dead), seconds)
        for node in self.nodes.values():
            node.tick(seconds)

    def attach_all(self, controller: Controller) -> None:
        """Connect every node that is alive."""
        for node in self.nodes.values():
            if not node.dead:
                node.attach(controller)
