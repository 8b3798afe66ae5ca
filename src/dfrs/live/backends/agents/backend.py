"""Our own agents as the backend: they connect, are told desired states, and say what is."""

import base64
from collections.abc import Sequence

from dfrs.live.backends.agents.arrivals import Arrivals
from dfrs.live.backends.agents.attachments import AgentAttachment, Reads
from dfrs.live.backends.agents.records import AgentRecord, AgentRecords, PendingAgent
from dfrs.live.backends.agents.steering import Steering
from dfrs.live.controller.backend import Output
from dfrs.live.controller.control import Control
from dfrs.live.controller.records import JobRecord, NodeRecord, TaskRecord
from dfrs.live.drivers.base import Stream, TaskId, TaskState
from dfrs.live.errors import UnavailableError
from dfrs.live.protocol.agent_door import Attachment, Link
from dfrs.live.protocol.wire import Hello


class AgentsBackend:
    """A `Backend`, and the `AgentDoor` by which its agents come in."""

    facts = Hello
    intake = ""
    steering: Steering
    arrivals: Arrivals

    def __init__(self) -> None:
        self.agents: AgentRecords = AgentRecords(AgentRecord)
        self.reads = Reads()

    def open(self, control: Control) -> None:
        """As `Backend.open`."""
        self._control = control
        self.steering = Steering(control, self.agents)
        self.arrivals = Arrivals(control, self.agents, self.steering)

    def attach(self, hello: Hello, link: Link) -> Attachment:
        """As `AgentDoor.attach`. The agent is welcomed when its node is in the record."""
        self._control.refuse(hello)
        agent = PendingAgent(hello, link)
        self.arrivals.add(agent)
        return AgentAttachment(self._control, self.agents, self.arrivals, self.steering, self.reads, agent)

    def begin(self) -> None:
        """Agents come by themselves."""

    async def end(self) -> None:
        """Their connections end with the server's."""

    def let_go(self, why: str) -> None:
        """Close all connections: agents then look for the controller that leads."""
        for agent in self.arrivals.pending.values():
            agent.link.close(why)
        for node in self._control.nodes:
            link = self.agents[node.number].link
            if link is not None:
                link.close(why)

    def newcomers(self) -> Sequence[PendingAgent]:
        """Agents that wait for a welcome. It ends all tasks that it does not name."""
        return list(self.arrivals.pending.values())

    def take_in(self, newcomers: Sequence[PendingAgent]) -> None:
        """Welcome those whose nodes are in the record."""
        self.arrivals.welcome(newcomers)

    def settle(self) -> None:
        """Work out what agents shall have, and send what is new."""
        self.steering.sync()
        self.steering.desired.flush()

    def starts(self, task: TaskRecord) -> bool:
        """Whether its agent was told to start it, and waits for nothing else."""
        observation, row = task.at[task.target], self.agents[task.target].desired.get(task.id)
        if row is None or row.state is not TaskState.RUNNING or observation.waits:
            return False
        if observation.state is TaskState.STARTING:
            return True
        return observation.state is None and observation.sent and not row.take

    def forget(self, job: JobRecord) -> None:
        """Have agents drop what they still keep of it."""
        self.steering.forget(job)

    def give_up(self, node: NodeRecord) -> None:
        """What was wanted there is wanted no more. If it is heard again it says anew what it has."""
        agent = self.agents[node.number]
        agent.desired.clear()
        agent.outbox.clear()
        if agent.link is not None:
            agent.link.close("it was silent for so long that its jobs were given up")
            agent.link = None
            node.connected = False

    async def read(self, node: NodeRecord, task: TaskId, stream: Stream, offset: int, limit: int) -> Output:
        """As `Backend.read`."""
        link = self.agents[node.number].link
        if link is None:
            raise UnavailableError(f"node {node.name}: is away: its output can be read when it is back")
        answer = await self.reads.read(link, task, stream, offset, limit)
        try:
            data = base64.b64decode(answer.data, validate=True)
        except ValueError:
            raise UnavailableError(f"node {node.name}: gave no output that can be read") from None
        return Output(data=data, offset=answer.offset, end=answer.end, error=answer.error)
