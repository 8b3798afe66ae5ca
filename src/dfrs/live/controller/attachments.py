"""The controller's side of agents' connections."""

import asyncio
import itertools
from collections.abc import Callable

from dfrs.live.controller.engine import ControllerLoop
from dfrs.live.controller.node_lifecycle import PendingAgent
from dfrs.live.controller.records import NodeRecord
from dfrs.live.controller.state import State
from dfrs.live.drivers.base import Stream, TaskId
from dfrs.live.protocol.errors import UnavailableError
from dfrs.live.protocol.ports import Link
from dfrs.live.protocol.wire import FromAgent, Hello, MoreTasks, Output, Read, ReportMessage, StatusMessage
from dfrs.model.errors import InputError

READ_S = 10.0
"""So long a node may take to answer."""


class Reads:
    """Pieces of output that were asked for and have not come."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[Link, asyncio.Future[Output]]] = {}

    async def read(self, link: Link, task: TaskId, stream: Stream, offset: int, limit: int) -> Output:
        """Ask a node. Raises UnavailableError where it does not answer."""
        number = next(self._numbers)
        answer: asyncio.Future[Output] = asyncio.get_running_loop().create_future()
        self._waiting[number] = link, answer
        try:
            link.send(Read(request=number, task=task, stream=stream, offset=offset, limit=limit))
            return await asyncio.wait_for(answer, READ_S)
        except TimeoutError:
            raise UnavailableError(f"the node did not answer within {READ_S:g} s: try again") from None
        finally:
            del self._waiting[number]

    def answer(self, link: Link, output: Output) -> None:
        """A node has answered; what nobody asked of it is dropped."""
        asked, answer = self._waiting.get(output.request, (None, None))
        if asked is link and answer is not None and not answer.done():
            answer.set_result(output)


class AgentAttachment:
    """One connection. After a newer one of the same node has come, it is deaf."""

    def __init__(
        self, state: State, engine: ControllerLoop, reads: Reads, agent: PendingAgent, reject: Callable[[], None]
    ) -> None:
        self._state = state
        self._engine = engine
        self._reads = reads
        self._pending = agent
        self._link: Link = agent.link
        self._reject = reject

    @property
    def _node(self) -> NodeRecord | None:
        """Its node, while this is its connection."""
        node = self._engine.lifecycle.find(self._pending.hello.node)
        return node if node is not None and node.link is self._link else None

    @property
    def _waits(self) -> bool:
        """Whether it has not been welcomed yet."""
        return self._engine.arrivals.pending.get(self._pending.hello.node) is self._pending

    def receive(self, message: FromAgent) -> None:
        """Take a message. Raises InputError where it cannot be."""
        if isinstance(message, Hello | MoreTasks):
            self._reject()
            raise InputError("hello: said already")
        if isinstance(message, Output):
            self._reads.answer(self._link, message)
            return
        node = self._node
        if node is None:
            if isinstance(message, StatusMessage) and self._waits:
                self._amend(message)
            return
        node.seen_at = self._state.settings.steady()
        self._state.changed()
        if isinstance(message, ReportMessage):
            self._observe(node, message)
            self._engine.arrivals.hear_problem(node, message.problem)
        else:
            self._price(message)
            self._state.placement.on_status(node, message)
            self._engine.poke()

    def _amend(self, status: StatusMessage) -> None:
        """What it said of a task in its hello has changed since."""
        hello = self._pending.hello
        others = tuple(each for each in hello.tasks if each.task != status.task)
        self._pending.hello = hello.model_copy(update={"tasks": (*others, status)})

    def _price(self, status: StatusMessage) -> None:
        task = self._state.placement.find(status.task)
        if status.cost is not None and task is not None:
            self._state.prices.observe(task, status.cost)

    def _observe(self, node: NodeRecord, report: ReportMessage) -> None:
        node.load.report(report.time_s, report.host)
        for sample in report.samples:
            task = self._state.placement.find(sample.task)
            job = self._state.jobs.get(sample.task.job)
            if task is not None and job is not None and node.number in task.at:
                declared = job.request.cpu_cores
                task.observe(report.time_s, sample, node.hello.cpus if declared is None else declared)

    def detach(self) -> None:
        """The connection is gone; the node is silent from now on, and others have time to notice."""
        if self._waits:
            del self._engine.arrivals.pending[self._pending.hello.node]
        node = self._node
        if node is not None:
            node.link = None
            self._state.changed()
