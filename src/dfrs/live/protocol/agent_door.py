"""Where agents come in: what the API needs to serve their connections. All on one event loop."""

from typing import Protocol

from dfrs.live.protocol.wire import FromAgent, FromController, Hello


class Link(Protocol):
    """The way to one agent."""

    def send(self, message: FromController) -> None:
        """Queue a message; never blocks. After close: nothing happens."""
        ...

    def close(self, reason: str) -> None:
        """End the connection."""
        ...


class Attachment(Protocol):
    """The controller's side of one agent's connection."""

    def receive(self, message: FromAgent) -> None:
        """Take a message. InputError where it contradicts what is known: the connection is then closed."""
        ...

    def detach(self) -> None:
        """The connection is gone. May be called more than once."""
        ...


class AgentDoor(Protocol):
    """Takes agents in."""

    def attach(self, hello: Hello, link: Link) -> Attachment:
        """An admitted node's agent has come. Raises ConflictError if another live connection has its name."""
        ...
