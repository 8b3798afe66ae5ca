"""The controller's side of agents' connections."""

import asyncio
import itertools
from collections.abc import Callable
from typing import TypeVar

from dfrs.live.backends.agents.arrivals import Arrivals
from dfrs.live.backends.agents.records import AgentRecords, PendingAgent
from dfrs.live.backends.agents.steering import Steering
from dfrs.live.controller.control import Control
from dfrs.live.controller.records import NodeRecord
from dfrs.live.errors import UnavailableError
from dfrs.live.protocol.agent_door import Link
from dfrs.live.protocol.wire import (
    Done,
    Execute,
    FromAgent,
    Hello,
    MoreTasks,
    Output,
    Read,
    ReportMessage,
    StatusMessage,
    Write,
)
from dfrs.model.errors import InputError

ANSWER_S = 10.0
"""So long a node may take to answer, beyond what it may wait for something to read."""

_Answer = TypeVar("_Answer", Output, Done)


class Questions:
    """What nodes were asked, and have not answered."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[Link, asyncio.Future[Output | Done]]] = {}

    async def ask(
        self, link: Link, question: Callable[[int], Read | Write | Execute], kind: type[_Answer], wait_s: float = 0.0
    ) -> _Answer:
        """Ask a node what `question` makes of a number. Raises UnavailableError where it does not answer."""
        number = next(self._numbers)
        answer: asyncio.Future[Output | Done] = asyncio.get_running_loop().create_future()
        self._waiting[number] = link, answer
        try:
            link.send(question(number))
            async with asyncio.timeout(ANSWER_S + wait_s):
                found = await answer
        except TimeoutError:
            raise UnavailableError(f"the node did not answer within {ANSWER_S:g} s: try again") from None
        finally:
            del self._waiting[number]
        if not isinstance(found, kind):
            raise UnavailableError("the node answered something else than it was asked: try again")
        return found

    def answer(self, link: Link, found: Output | Done) -> None:
        """A node has answered; what nobody asked of it is dropped."""
        asked, answer = self._waiting.get(found.request, (None, None))
        if asked is link and answer is not None and not answer.done():
            answer.set_result(found)


class AgentAttachment:
    """One connection. After a newer one of the same node has come, it is deaf."""

    def __init__(
        self,
        control: Control,
        agents: AgentRecords,
        arrivals: Arrivals,
        steering: Steering,
        questions: Questions,
        agent: PendingAgent,
    ) -> None:
        self._control = control
        self._agents = agents
        self._arrivals = arrivals
        self._steering = steering
        self._questions = questions
        self._pending = agent
        self._link: Link = agent.link

    @property
    def _node(self) -> NodeRecord | None:
        """Its node, while this is its connection."""
        node = self._control.node(self._pending.hello.node)
        return node if node is not None and self._agents[node.number].link is self._link else None

    @property
    def _waits(self) -> bool:
        """Whether it has not been welcomed yet."""
        return self._arrivals.pending.get(self._pending.hello.node) is self._pending

    def receive(self, message: FromAgent) -> None:
        """Take a message. Raises InputError where it cannot be."""
        if isinstance(message, Hello | MoreTasks):
            raise InputError("hello: said already")
        if isinstance(message, Output | Done):
            self._questions.answer(self._link, message)
            return
        node = self._node
        if node is None:
            if isinstance(message, StatusMessage) and self._waits:
                self._amend(message)
            return
        self._control.heard(node)
        if isinstance(message, ReportMessage):
            self._control.used(node, message.time_s, message.samples, message.host)
            self._control.problem(node, message.problem)
        else:
            if message.cost is not None:
                self._control.took(message.task, message.cost)
            self._steering.on_status(node, message)
            self._control.poke()

    def _amend(self, status: StatusMessage) -> None:
        """What it said of a task in its hello has changed since."""
        hello = self._pending.hello
        others = tuple(each for each in hello.tasks if each.task != status.task)
        self._pending.hello = hello.model_copy(update={"tasks": (*others, status)})

    def detach(self) -> None:
        """The connection is gone; the node is silent from now on, and others have time to notice."""
        if self._waits:
            del self._arrivals.pending[self._pending.hello.node]
        node = self._node
        if node is not None:
            self._agents[node.number].link = None
            self._control.left(node)
