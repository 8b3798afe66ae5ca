"""What agents are told of tasks, from what was decided and from what they say, and what is made of what they say.

A task is started on a node only if no other node has it or may have it; once any node had it, it is only ever handed
over. Between nodes of a host it first has to be HANDED by the one, and then the other is told to take it; between hosts
`transfers.py` decides. What is wanted goes to `desired_states.py`, and is sent from there. So however messages are
lost, repeated or late, and whenever the controller ends and comes back, no attempt at a job runs twice; and a new
attempt begins only when all nodes have said that they have nothing of the old one, or are lost.
"""

from dfrs.live.backends.agents.desired_states import DesiredStates
from dfrs.live.backends.agents.records import AgentRecords
from dfrs.live.backends.agents.transfers import Transfers
from dfrs.live.controller.control import Control
from dfrs.live.controller.placement_state import NEAR
from dfrs.live.controller.records import LIVE, JobRecord, NodeRecord, Observation, TaskRecord
from dfrs.live.drivers.base import Exit, ExitKind, TaskId, TaskState
from dfrs.live.protocol.wire import Hello, StatusMessage

FENCED = "the agent ended it, as it had heard nothing of the controller for too long (--fence)"


class Steering:
    """All tasks of the controller's jobs on its nodes. Sends nothing before `desired.flush`."""

    def __init__(self, control: Control, agents: AgentRecords) -> None:
        self._agents = agents
        self._jobs, self._placement = control.jobs, control.placement
        self._whereabouts = control.placement.whereabouts
        self._time_s = control.time_s
        self.desired = DesiredStates(control, agents)
        self._transfers = Transfers(control, self.desired)

    # What nodes say.

    def on_status(self, node: NodeRecord, status: StatusMessage) -> None:
        """Take in what a node says of a task."""
        task = self._placement.find(status.task)
        observation = None if task is None else task.at.get(node.number)
        if task is None or observation is None:
            rows = self._agents[node.number].desired
            row = rows.get(status.task)
            if row is not None and row.state is status.state is TaskState.ABSENT and status.version >= row.version:
                del rows[status.task]
            return
        if status.state is not TaskState.EXITED and _order_of(status) < observation.order:
            return
        if status.state is not TaskState.ABSENT and status.transfers < task.transfers:
            # It went on elsewhere since: what becomes of this copy says nothing of the task.
            observation.state, observation.transfers = TaskState.HANDED, status.transfers
            self._placement.touch(self._jobs[status.task.job])
            return
        if observation.state is TaskState.EXITED and status.state in LIVE:
            # Late, whatever it is dated: clocks may be set back, and a task ends only once.
            return
        observation.order = max(observation.order, _order_of(status))
        observation.error, observation.waits = status.error, status.waits
        self._see(node, task, observation, status)
        self._whereabouts.touch(status.task.job)

    def _see(self, node: NodeRecord, task: TaskRecord, observation: Observation, status: StatusMessage) -> None:
        row = self._agents[node.number].desired.get(status.task)
        heeded = row is not None and status.version >= row.version
        refused = row is not None and status.refused == row.version
        observation.kept = refused and row is not None and row.state is TaskState.PAUSED
        observation.fixed = refused and row is not None and row.grant is not None
        if status.state is TaskState.ABSENT:
            leaving = row is not None and row.state in {TaskState.ABSENT, TaskState.HANDED}
            if row is None or (leaving and heeded) or (not leaving and observation.state in LIVE):
                self._leave(node, task)
            return
        task.started = True
        if status.state is TaskState.HANDED and not (heeded and row is not None and row.state is TaskState.HANDED):
            return
        observation.state, observation.transfers = status.state, status.transfers
        task.transfers = max(task.transfers, status.transfers)
        self._note_time(task, observation, status)

    def _note_time(self, task: TaskRecord, observation: Observation, status: StatusMessage) -> None:
        """Since when it runs, or until when it ran, and how it ended."""
        if status.state is TaskState.RUNNING:
            task.received.run(self._time_s(status.since_s))
        elif status.state is not TaskState.EXITED:
            task.received.stop(self._time_s(status.since_s))
        else:
            observation.exit = self._exit_of(status)
            task.received.stop(self._time_s(observation.exit.time_s))
            self._transfers.conclude(task)

    def _exit_of(self, status: StatusMessage) -> Exit:
        """How it ended. What nobody asked for, but an agent with a fence did, counts as lost: the job begins anew."""
        found = status.exit or Exit(kind=ExitKind.LOST, time_s=status.since_s)
        if found.kind is ExitKind.STOPPED and self._jobs[status.task.job].outcome is None:
            return found.model_copy(update={"kind": ExitKind.LOST, "message": FENCED})
        return found

    def _leave(self, node: NodeRecord, task: TaskRecord) -> None:
        """The node does not have it. Unless it knows that it shall not, it is told so."""
        self._whereabouts.drop(task, node.number)
        rows = self._agents[node.number].desired
        row = rows.get(task.id)
        if row is not None and row.state is TaskState.ABSENT:
            del rows[task.id]
        elif row is not None:
            self.desired.tell(node, task, TaskState.ABSENT)

    def welcome(self, node: NodeRecord, hello: Hello, *, rebooted: bool = False) -> set[TaskId]:
        """A node says all that it has: what it does not name it does not have. Tasks that were lost with a reboot.

        What it names as absent it may yet start, as before. Without a reboot it never started what it does not name.
        After one it may have, also where nobody ever heard of it: such a task counts as started, and is lost.
        """
        agent = self._agents[node.number]
        agent.desired.clear()
        agent.outbox.clear()
        self._placement.heard(node.number, ahead=self.desired.exceed(node, hello.told))
        named = {status.task: status for status in hello.tasks}
        lost: set[TaskId] = set()
        for task in self._placement.on(node.number):
            self._placement.touch(self._jobs[task.id.job])
            if task.id in named:
                continue
            if rebooted and task.at[node.number].sent:
                task.started = True
                lost.add(task.id)
            self._whereabouts.drop(task, node.number)
        for status in named.values():
            job, task = self._jobs.get(status.task.job), self._placement.find(status.task)
            if task is not None and node.number in task.at:
                # Whoever told it so.
                task.at[node.number].sent = True
            if job is None or status.state is TaskState.ABSENT:
                if task is not None and node.number in task.at:
                    task.at[node.number].error, task.at[node.number].waits = status.error, status.waits
                continue
            if task is None:
                if status.task.attempt >= job.attempt and status.task.generation == self._placement.generation:
                    continue
                # Of an earlier attempt, or of one that is not in the record: the next one waits for its end.
                task = TaskRecord(status.task, started=True)
                job.old.append(task)
            elif self._placement.distance(task, node.number) > NEAR:
                # Tasks do not move between islands: it never had it.
                continue
            observation = self._whereabouts.put(task, node.number)
            observation.state, observation.order, observation.error = status.state, (0, 0.0), status.error
            observation.transfers, task.transfers = status.transfers, max(task.transfers, status.transfers)
            task.started = True
            if status.transfers < task.transfers:
                observation.state = TaskState.HANDED
            else:
                self._note_time(task, observation, status)
            self._placement.touch(job)
        return lost

    # What nodes are told.

    def sync(self) -> None:
        """Work out what nodes shall have of all jobs that something happened to."""
        jobs = iter(self._placement.take_unsettled())
        try:
            for job in jobs:
                self._settle(job)
        finally:
            # Where one cannot be settled, those after it are settled in the next step.
            self._whereabouts.unsettled.update(job.id for job in jobs)

    def _settle(self, job: JobRecord) -> None:
        for task in job.all_tasks:
            self._transfers.conclude(task)
        for task in job.old:
            self._remove(job, task)
        if any(not task.at for task in job.old):
            job.old = [task for task in job.old if task.at]
        if job.outcome is not None:
            for task in job.tasks:
                self._remove(job, task)
            return
        for task in job.tasks:
            if task.exit is not None:
                self._keep(job, task)
            elif task.target >= 0:
                self._steer(job, task)

    def _remove(self, job: JobRecord, task: TaskRecord) -> None:
        for node in list(task.at):
            self.desired.want(job, task, node, TaskState.ABSENT)

    def _keep(self, job: JobRecord, task: TaskRecord) -> None:
        """It has ended: its node keeps the record of that until the whole job is over."""
        for node, observation in list(task.at.items()):
            if observation.state is not TaskState.EXITED:
                self.desired.want(job, task, node, TaskState.ABSENT)
            elif task.id not in self._agents[node].desired:
                self.desired.want(job, task, node, TaskState.RUNNING)

    def _steer(self, job: JobRecord, task: TaskRecord) -> None:
        target = task.target
        if self._transfers.steer(job, task):
            return
        others = [node for node in task.at if node != target and not task.out_of_date(node)]
        for node in others:
            self.desired.want(job, task, node, TaskState.HANDED)
        state = TaskState.PAUSED if job.paused else TaskState.RUNNING
        if target not in task.at:
            if task.started:
                ready = bool(others) and all(task.at[n].state is TaskState.HANDED for n in others)
            else:
                ready = not others and not job.old and job.placed and not self._placement.unsure
            if not ready:
                return
            self._whereabouts.put(task, target).sent = False
        elif others and not task.started:
            return
        elif not others and self.desired.waits_in_vain(task, target):
            state = TaskState.HANDED
        elif self._placement.unsure and task.at[target].state is TaskState.HANDED:
            # Another node may have taken it, or fetched it.
            state = TaskState.HANDED
        self.desired.want(job, task, target, state)

    def forget(self, job: JobRecord) -> None:
        """It has ended: all that nodes still have of it is to go."""
        for task in job.all_tasks:
            self._remove(job, task)


def _order_of(status: StatusMessage) -> tuple[int, float]:
    """By which the words of one node on one task are ordered."""
    return status.version, status.since_s
