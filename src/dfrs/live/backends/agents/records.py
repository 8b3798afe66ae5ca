"""What is kept of agents, beside what the controller keeps of their nodes."""

from collections import defaultdict
from dataclasses import dataclass, field

from dfrs.live.drivers.base import TaskId
from dfrs.live.protocol.agent_door import Link
from dfrs.live.protocol.wire import Desired, Hello


class PendingAgent:
    """An agent that has said hello and is not welcomed yet."""

    def __init__(self, hello: Hello, link: Link) -> None:
        self.hello = hello
        self.link = link

    @property
    def facts(self) -> Hello:
        """As the record is to have them."""
        return self.hello.lasting


@dataclass(slots=True, eq=False)
class AgentRecord:
    """What is between the controller and the agent of a node."""

    link: Link | None = None
    """There, once it has been welcomed."""
    ahead: int = 0
    """Added to versions for it: it has heard higher ones than are in the record."""
    desired: dict[TaskId, Desired] = field(default_factory=dict[TaskId, Desired])
    outbox: dict[TaskId, Desired] = field(default_factory=dict[TaskId, Desired])


AgentRecords = defaultdict[int, AgentRecord]
"""By the number of their node."""
