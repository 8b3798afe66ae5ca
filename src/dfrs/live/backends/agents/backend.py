"""Our own agents as the backend: they connect, are told desired states, and say what is."""

import base64
from collections.abc import Sequence

from dfrs.live.backends.agents.arrivals import Arrivals
from dfrs.live.backends.agents.attachments import AgentAttachment, Questions
from dfrs.live.backends.agents.records import AgentRecord, AgentRecords, PendingAgent
from dfrs.live.backends.agents.steering import Steering
from dfrs.live.controller.backend import Output
from dfrs.live.controller.control import Control
from dfrs.live.controller.records import JobRecord, NodeRecord, TaskRecord
from dfrs.live.drivers.base import InputPart, ProgramSpec, TaskId, TaskState
from dfrs.live.errors import ConflictError, UnavailableError
from dfrs.live.protocol.agent_door import Attachment, Link
from dfrs.live.protocol.ports import Piece
from dfrs.live.protocol.wire import Done, Execute, Hello, Read, Write
from dfrs.live.protocol.wire import Output as Answered


class AgentsBackend:
    """A `Backend`, and the `AgentDoor` by which its agents come in."""

    facts = Hello
    intake = ""
    steering: Steering
    arrivals: Arrivals

    def __init__(self) -> None:
        self.agents: AgentRecords = AgentRecords(AgentRecord)
        self.questions = Questions()

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
        return AgentAttachment(self._control, self.agents, self.arrivals, self.steering, self.questions, agent)

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

    async def read(self, node: NodeRecord, task: TaskId, piece: Piece) -> Output:
        """As `Backend.read`."""
        link = self._link(node, "its output can be read when it is back")
        answer = await self.questions.ask(
            link,
            lambda number: Read(
                request=number,
                task=task,
                stream=piece.stream,
                offset=piece.offset,
                limit=piece.limit,
                program=piece.program,
                wait_s=piece.wait_s,
            ),
            Answered,
            piece.wait_s,
        )
        try:
            data = base64.b64decode(answer.data, validate=True)
        except ValueError:
            raise UnavailableError(f"node {node.name}: gave no output that can be read") from None
        return Output(data=data, offset=answer.offset, end=answer.end, exit_code=answer.exit_code, error=answer.error)

    async def write(self, node: NodeRecord, task: TaskId, part: InputPart) -> int:
        """As `Backend.write`."""
        link = self._link(node, "its tasks take input when it is back")
        done = await self.questions.ask(link, lambda number: Write(request=number, task=task, part=part), Done)
        _must_be_done(done)
        return done.taken

    async def execute(self, node: NodeRecord, task: TaskId, program: ProgramSpec) -> None:
        """As `Backend.execute`."""
        link = self._link(node, "programs can be started there when it is back")
        done = await self.questions.ask(link, lambda number: Execute(request=number, task=task, program=program), Done)
        _must_be_done(done)

    def _link(self, node: NodeRecord, meanwhile: str) -> Link:
        link = self.agents[node.number].link
        if link is None:
            raise UnavailableError(f"node {node.name}: is away: {meanwhile}")
        return link


def _must_be_done(done: Done) -> None:
    if done.error:
        raise UnavailableError(done.error) if done.again else ConflictError(done.error)
