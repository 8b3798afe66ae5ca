"""The controller's side of a connection to a node in memory: messages arrive in order, a little later."""

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from dfrs.live.backends.agents.backend import AgentsBackend
from dfrs.live.controller.service import Controller
from dfrs.live.protocol.wire import Desire, FromController

if TYPE_CHECKING:
    from dfrs.testing.in_memory.node import InMemoryNode

LATE_S = 0.05
"""No message is later than this."""


def door_of(controller: Controller) -> AgentsBackend:
    """Where agents come in to a controller."""
    backend = controller.engine.backend
    assert isinstance(backend, AgentsBackend), "this controller has no agents"
    return backend


class InMemoryLink:
    """Delivers to the node, in order, a little later."""

    def __init__(self, node: "InMemoryNode") -> None:
        self.node = node
        self.open = True
        self.sent: list[FromController] = []
        self._on_the_way: deque[FromController] = deque()

    def send(self, message: FromController) -> None:
        """Queue it; with chaos, sometimes once more and late."""
        assert message.model_dump_json()
        self.sent.append(message)
        loop, hosts = asyncio.get_running_loop(), self.node.hosts
        if hosts.losses and hosts.random.random() < hosts.losses:
            loop.call_later(hosts.random.random() * LATE_S, self.node.drop, self)
            return
        self._on_the_way.append(message)
        loop.call_soon(self._arrive_first)
        if hosts.random.random() < hosts.chaos and isinstance(message, Desire):
            loop.call_later(hosts.random.random() * LATE_S, self._arrive, message)

    def _arrive_first(self) -> None:
        """In the order in which they were sent, whatever the order of callbacks."""
        self._arrive(self._on_the_way.popleft())

    def _arrive(self, message: FromController) -> None:
        if self.open and self.node.hears:
            self.node.receive(message)

    def close(self, reason: str) -> None:
        """End it."""
        self.node.closed = reason
        if self.node.attachment is not None and self.node.link is self:
            asyncio.get_running_loop().call_soon(self.node.cut)
        self.open = False
