"""What each node is desired to have: rows with versions, and the messages that tell nodes of them.

This decides nothing: it is told what a task shall be on a node, makes a new row of it only where that is not desired
already, and sends rows in messages that are not too long. So whoever decides may say the same again at any time.
"""

from collections.abc import Iterable, Sequence

import structlog

from dfrs.live.backends.agents.records import AgentRecords
from dfrs.live.controller.control import Control
from dfrs.live.controller.records import JobRecord, NodeRecord, TaskRecord
from dfrs.live.drivers.base import TaskState
from dfrs.live.protocol.wire import GRACE_S, MESSAGE_BYTES, Desire, Desired, Grant, Source, Welcome

MOST_BYTES = MESSAGE_BYTES // 2
"""A message with more than about this is sent in parts."""
SHARE_STEP = 1e-6
"""Cores. Shares that differ by less are the same."""

_UP = (TaskState.RUNNING, TaskState.PAUSED)
log = structlog.get_logger(__name__)


class DesiredStates:
    """The desired states of all nodes. Sends nothing before `flush` or `greet`."""

    def __init__(self, control: Control, agents: AgentRecords) -> None:
        self._control = control
        self._nodes, self.agents = control.nodes, agents
        self._whereabouts = control.placement.whereabouts
        self._versions = control.versions

    def exceed(self, node: NodeRecord, told: int) -> bool:
        """Versions for the node are higher than `told` from now on, which it has heard; whether that is news.

        If so, a controller told it that knew more than the record has.
        """
        agent = self.agents[node.number]
        more = told - self._versions.last
        known = more <= agent.ahead
        agent.ahead = max(0, more)
        if not known:
            log.warning("a node has heard more than the database has: it is an older copy", node=node.name)
        return not known

    # Rows.

    def want(
        self, job: JobRecord, task: TaskRecord, number: int, state: TaskState, source: Source | None = None
    ) -> None:
        """The task shall be in that state on the node; `source` is a node of another host that has it."""
        node = self._nodes[number]
        row = self.agents[number].desired.get(task.id)
        same = row is not None and row.state is state and row.grant is None
        if state not in _UP:
            if not same:
                # A copy that is out of date has nothing to end.
                self.tell(node, task, state, grace_s=0.0 if task.out_of_date(number) else GRACE_S)
            return
        share = self._control.placement.share_cores(job, task)
        keep = job.held and state is TaskState.PAUSED
        same = same and row is not None and (row.keep, row.source) == (keep, source)
        if same and row is not None and abs(row.share_cores - share) < SHARE_STEP:
            return
        self._add(
            node,
            Desired(
                task=task.id,
                version=self._next(node),
                state=state,
                share_cores=share,
                spec=self._control.spec(job),
                take=task.started,
                source=source,
                keep=keep,
            ),
        )

    def tell(
        self,
        node: NodeRecord,
        task: TaskRecord,
        state: TaskState,
        *,
        grant: Grant | None = None,
        grace_s: float = GRACE_S,
    ) -> None:
        """The task shall be handed or absent there, whatever was desired so far."""
        self._add(node, Desired(task=task.id, version=self._next(node), state=state, grant=grant, grace_s=grace_s))

    def waits_in_vain(self, task: TaskRecord, number: int) -> bool:
        """Whether its node may wait for ever for a task that nobody can hand it.

        It is then to hand it over itself: if it has it after all it says so and gets it back; if not, the task is lost.
        """
        observation, row = task.at[number], self.agents[number].desired.get(task.id)
        if observation.state is not None or row is None:
            return False
        return row.state is TaskState.HANDED or (row.take and observation.error != "")

    def _add(self, node: NodeRecord, desired: Desired) -> None:
        agent = self.agents[node.number]
        agent.desired[desired.task] = agent.outbox[desired.task] = desired

    def _next(self, node: NodeRecord) -> int:
        return self._versions.next() + self.agents[node.number].ahead

    # Messages.

    def flush(self) -> None:
        """Send what changed to nodes that are connected; others hear it when they are."""
        for node in self._nodes:
            agent = self.agents[node.number]
            if not agent.outbox:
                continue
            if agent.link is not None:
                self._send(node, list(agent.outbox.values()))
            agent.outbox.clear()

    def greet(self, node: NodeRecord, report_s: float) -> None:
        """Tell a node that has just come all that it shall have; what it has to start follows."""
        agent = self.agents[node.number]
        if agent.link is None:
            return
        here = self._whereabouts.on(node.number)
        self._name_all(node, here.values())
        known: list[Desired] = []
        fresh: list[Desired] = []
        size = 0
        for desired in list(agent.desired.values()):
            observation = here[desired.task].at[node.number] if desired.task in here else None
            if observation is not None and not observation.sent:
                fresh.append(desired)
                continue
            size += _size(desired)
            if size < MOST_BYTES:
                known.append(desired)
                continue
            # What runs already needs no program again where the message would be too long.
            known.append(desired.model_copy(update={"spec": None}))
            if observation is not None and observation.state is None:
                fresh.append(desired.model_copy(update={"version": self._next(node)}))
                agent.desired[desired.task] = fresh[-1]
        agent.link.send(Welcome(report_s=report_s, desired=tuple(known)))
        self._send(node, fresh)
        agent.outbox.clear()

    def _name_all(self, node: NodeRecord, here: Iterable[TaskRecord]) -> None:
        """Have it keep, and give up, each of these tasks of which nothing is wanted yet.

        It ends what a welcome does not name, and may have taken such a task since it said hello.
        """
        rows = self.agents[node.number].desired
        for task in [each for each in here if each.id not in rows]:
            self.tell(node, task, TaskState.HANDED)

    def _send(self, node: NodeRecord, desired: Sequence[Desired]) -> None:
        here = self._whereabouts.on(node.number)
        for one in desired:
            if one.task in here:
                here[one.task].at[node.number].sent = True
        for part in _parts(desired):
            link = self.agents[node.number].link
            if link is not None:
                link.send(Desire(tasks=part))


def _parts(desired: Sequence[Desired]) -> Iterable[tuple[Desired, ...]]:
    """In messages that are not too long."""
    part: list[Desired] = []
    size = 0
    for one in desired:
        length = _size(one)
        if part and size + length > MOST_BYTES:
            yield tuple(part)
            part, size = [], 0
        part.append(one)
        size += length
    if part:
        yield tuple(part)


def _size(desired: Desired) -> int:
    """About how many bytes it has as a message, at most."""
    spec = desired.spec
    if spec is None:
        return 300
    names = (*spec.environment, *spec.resources)
    texts = (*spec.command, *spec.peers, spec.directory, *names, *spec.environment.values())
    # A character has up to six bytes as JSON.
    return 600 + sum(6 * len(text) + 4 if not text.isascii() else 2 * len(text) + 4 for text in texts)
