"""Where tasks are and where they shall be: what each node is desired to have, from placements and from what nodes say.

A task is started on a node only if no other node has it or may have it; once any node had it, it is only ever handed
over. Between nodes of a host it first has to be HANDED by the one, and then the other is told to take it; between hosts
`transfers.py` decides. What is decided goes to `desired_states.py`, and is sent from there. So however messages are
lost, repeated or late, and whenever the controller ends and comes back, no attempt at a job runs twice; and a new
attempt begins only when all nodes have said that they have nothing of the old one, or are lost.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from dfrs.engine.commands import DETACH, Commands
from dfrs.live.controller.desired_states import DesiredStates
from dfrs.live.controller.records import LIVE, JobRecord, NodeRecord, Observation, TaskRecord, order_of
from dfrs.live.controller.transfers import Transfers
from dfrs.live.controller.whereabouts import Whereabouts
from dfrs.live.drivers.base import Exit, ExitKind, TaskId, TaskSpec, TaskState
from dfrs.live.protocol.wire import Hello, StatusMessage
from dfrs.model.nodes import Condition
from dfrs.model.run import Action

NEAR = 1
"""Distance of a node to which a task can be handed."""

_MOVES = (int(Action.START), int(Action.RESUME), int(Action.MIGRATE))
_PAUSE, _LOST = int(Action.PAUSE), int(Action.LOST)


class PlacementState:
    """All tasks of `jobs` on `nodes`. Sends nothing before `desired.flush`."""

    def __init__(
        self,
        jobs: Mapping[int, JobRecord],
        nodes: Sequence[NodeRecord],
        spec_of: Callable[[JobRecord], TaskSpec],
        steady: Callable[[], float],
    ) -> None:
        self.overrides: Mapping[tuple[int, int], float] = {}
        """Shares of the reference node by (job, rank) that hold instead of the policy's."""
        self.reference_cores = 1.0
        self.generation = ""
        """Of the controller's present start: what is placed from now on has names that no node has ever heard."""
        self._jobs = jobs
        self._nodes = nodes
        self._whereabouts = Whereabouts()
        self._silent: set[int] = set()
        """Nodes that have not said what they have since this controller began, and are not given up."""
        self._restored = False
        """A node has heard more than the record has: that is a copy from before."""
        self._missed: set[int] = set()
        """Jobs with tasks that no other node has, and that these may have."""
        self.desired = DesiredStates(nodes, self._whereabouts, spec_of, self.share_cores)
        self._transfers = Transfers(nodes, self._whereabouts, self.desired, steady)

    # What the policy decides.

    def obey(self, commands: Commands, *, replaying: bool = False) -> set[int]:
        """Take in commands; jobs that they concern. `replaying`: nodes may have been told of each placement since."""
        touched: set[int] = set()
        for command in commands:
            job = self._jobs.get(command.job_id)
            if job is None or command.action == DETACH:
                continue
            touched.add(job.id)
            if command.action in _MOVES:
                self.place(job, command.nodes, command.yield_, replaying=replaying)
            elif command.action != _LOST:
                job.yield_ = command.yield_
                if command.action == _PAUSE:
                    job.placed, job.paused, job.kept = False, True, False
            elif replaying or job.outcome is None:
                self.begin_anew(job)
        self._whereabouts.unsettled |= touched
        return touched

    def place(self, job: JobRecord, nodes: Sequence[int], yield_: float, *, replaying: bool = False) -> None:
        """It is to run on these nodes, one a task, in any order."""
        job.placed, job.paused, job.kept, job.yield_ = True, False, False, yield_
        self._move(job, nodes)
        if replaying:
            for task in job.tasks:
                self._whereabouts.put(task, task.target)

    def _move(self, job: JobRecord, nodes: Sequence[int]) -> None:
        """Give each task one of `nodes`: its own, one that has it, one of its island, or any."""
        if not job.tasks:
            job.tasks = [
                TaskRecord(TaskId(job=job.id, rank=k, attempt=job.attempt, generation=self.generation))
                for k in range(len(nodes))
            ]
        job.spec = None
        left = list(nodes)
        homeless: list[TaskRecord] = []
        for task in job.tasks:
            if task.target in left:
                left.remove(task.target)
            else:
                homeless.append(task)
        for task in homeless:
            task.target = min(left, key=lambda n: self._distance(task, n))
            left.remove(task.target)

    def _distance(self, task: TaskRecord, node: int) -> int:
        if node in task.at:
            return 0
        homes = list(task.at) or [task.target]
        near = any(home >= 0 and self._nodes[home].island == self._nodes[node].island for home in homes)
        return NEAR if near else NEAR + 1

    def begin_anew(self, job: JobRecord) -> None:
        """This attempt is over: what is left of it is ended, and then there may be another one."""
        job.old += [task for task in job.tasks if task.at]
        job.tasks = []
        job.attempt += 1
        job.placed = job.paused = job.kept = False
        job.yield_ = 0.0
        job.spec = None
        self.touch(job)

    def confirm(self, job: JobRecord) -> None:
        """While replaying: all tasks were where they shall be, and nowhere else."""
        for task in job.tasks:
            for node in list(task.at):
                if node != task.target:
                    self._whereabouts.drop(task, node)
            self._whereabouts.put(task, task.target)
            task.started = True

    def touch(self, job: JobRecord) -> None:
        """See to it at the next `sync`, and look at it again."""
        self._whereabouts.touch(job.id)

    def stay(self, job: JobRecord) -> None:
        """Its tasks are to be where they are now: they could not leave."""
        for task in job.tasks:
            if task.holder is not None:
                task.target = task.holder
                task.at[task.holder].fixed = False
            task.transfer = None
        self.touch(job)

    def settle_later(self, job: JobRecord) -> None:
        """See to it at the next `sync`."""
        self._whereabouts.unsettled.add(job.id)

    def forget(self, job: JobRecord) -> None:
        """It has ended: all that nodes still have of it is to go."""
        for task in job.all_tasks:
            for node in list(task.at):
                self.desired.want(job, task, node, TaskState.ABSENT)
                self._whereabouts.drop(task, node)

    def suspect(self) -> None:
        """What was decided before is in doubt: any node may have any task until it says that it has not."""
        for job in self._jobs.values():
            for task in job.tasks:
                for node in self._nodes:
                    if node.condition is not Condition.DOWN:
                        self._whereabouts.put(task, node.number)

    def lose(self, number: int) -> None:
        """A node is given up, with all that it has. What it may have started counts as started, and is lost."""
        node = self._nodes[number]
        self._hear(number)
        for task in self.on(number):
            task.started |= task.at[number].sent
            self._whereabouts.drop(task, number)
        node.desired.clear()
        node.outbox.clear()
        if node.link is not None:
            node.link.close("it was silent for so long that its jobs were given up")
            node.link = None

    def begin(self) -> None:
        """A controller goes on from the record. Nodes may have been told more than that: it may be an older copy."""
        self._silent = {node.number for node in self._nodes if node.condition is not Condition.DOWN}

    def may_turn_up(self, task: TaskRecord) -> bool:
        """Whether a task that its nodes do not have may be on one that has not yet said so, where it can have gone."""
        if task.exit is not None or all(self._distance(task, number) > NEAR for number in self._silent):
            return False
        self._missed.add(task.id.job)
        return True

    @property
    def _unsure(self) -> bool:
        """Whether more may have been started or moved than the record has, and it is not known yet what."""
        return self._restored and bool(self._silent)

    def _hear(self, number: int) -> None:
        """The node has said what it has, or is given up: look again at what was missed."""
        if number in self._silent:
            self._silent.remove(number)
            self.inspect_again(self._missed)
            self._missed = set()
            if not self._silent:
                self._whereabouts.unsettled.update(self._jobs)

    # What nodes say.

    def on_status(self, node: NodeRecord, status: StatusMessage) -> None:
        """Take in what a node says of a task."""
        task = self.find(status.task)
        observation = None if task is None else task.at.get(node.number)
        if task is None or observation is None:
            row = node.desired.get(status.task)
            if row is not None and row.state is status.state is TaskState.ABSENT and status.version >= row.version:
                del node.desired[status.task]
            return
        if status.state is not TaskState.EXITED and order_of(status) < observation.order:
            return
        if status.state is not TaskState.ABSENT and status.transfers < task.transfers:
            # It went on elsewhere since: what becomes of this copy says nothing of the task.
            observation.state, observation.transfers = TaskState.HANDED, status.transfers
            self.touch(self._jobs[status.task.job])
            return
        if observation.state is TaskState.EXITED and status.state in LIVE:
            # Late, whatever it is dated: clocks may be set back, and a task ends only once.
            return
        observation.order = max(observation.order, order_of(status))
        observation.error, observation.waits = status.error, status.waits
        self._see(node, task, observation, status)
        self._whereabouts.touch(status.task.job)

    def _see(self, node: NodeRecord, task: TaskRecord, observation: Observation, status: StatusMessage) -> None:
        row = node.desired.get(status.task)
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
        if status.state is TaskState.RUNNING:
            task.received.run(status.since_s)
        elif status.state is not TaskState.EXITED:
            task.received.stop(status.since_s)
        else:
            observation.exit = status.exit or Exit(kind=ExitKind.LOST, time_s=status.since_s)
            task.received.stop(observation.exit.time_s)
            self._transfers.conclude(task)

    def _leave(self, node: NodeRecord, task: TaskRecord) -> None:
        """The node does not have it. Unless it knows that it shall not, it is told so."""
        self._whereabouts.drop(task, node.number)
        row = node.desired.get(task.id)
        if row is not None and row.state is TaskState.ABSENT:
            del node.desired[task.id]
        elif row is not None:
            self.desired.tell(node, task, TaskState.ABSENT)

    def welcome(self, node: NodeRecord, hello: Hello, *, rebooted: bool = False) -> set[TaskId]:
        """A node says all that it has: what it does not name it does not have. Tasks that were lost with a reboot.

        What it names as absent it may yet start, as before. Without a reboot it never started what it does not name.
        After one it may have, also where nobody ever heard of it: such a task counts as started, and is lost.
        """
        node.desired.clear()
        node.outbox.clear()
        self._restored |= self.desired.exceed(node, hello.told)
        self._hear(node.number)
        named = {status.task: status for status in hello.tasks}
        lost: set[TaskId] = set()
        for task in self.on(node.number):
            self.touch(self._jobs[task.id.job])
            if task.id in named:
                continue
            if rebooted and task.at[node.number].sent:
                task.started = True
                lost.add(task.id)
            self._whereabouts.drop(task, node.number)
        for status in named.values():
            job, task = self._jobs.get(status.task.job), self.find(status.task)
            if task is not None and node.number in task.at:
                # Whoever told it so.
                task.at[node.number].sent = True
            if job is None or status.state is TaskState.ABSENT:
                if task is not None and node.number in task.at:
                    task.at[node.number].error, task.at[node.number].waits = status.error, status.waits
                continue
            if task is None:
                if status.task.attempt >= job.attempt and status.task.generation == self.generation:
                    continue
                # Of an earlier attempt, or of one that is not in the record: the next one waits for its end.
                task = TaskRecord(status.task, started=True)
                job.old.append(task)
            elif self._distance(task, node.number) > NEAR:
                # Tasks do not move between islands: it never had it.
                continue
            observation = self._whereabouts.put(task, node.number)
            observation.state, observation.order, observation.error = status.state, (0, 0.0), status.error
            observation.transfers, task.transfers = status.transfers, max(task.transfers, status.transfers)
            task.started = True
            if status.state is TaskState.RUNNING:
                task.received.run(status.since_s)
            if status.transfers < task.transfers:
                observation.state = TaskState.HANDED
            elif status.state is TaskState.EXITED:
                observation.exit = status.exit or Exit(kind=ExitKind.LOST, time_s=status.since_s)
                self._transfers.conclude(task)
            self.touch(job)
        return lost

    # What nodes are told.

    def sync(self) -> None:
        """Work out what nodes shall have of all jobs that something happened to."""
        jobs, self._whereabouts.unsettled = self._whereabouts.unsettled, set()
        for name in jobs:
            job = self._jobs.get(name)
            if job is not None:
                self._settle(job)

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
            elif task.id not in self._nodes[node].desired:
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
                ready = not others and not job.old and job.placed and not self._unsure
            if not ready:
                return
            self._whereabouts.put(task, target).sent = False
        elif others and not task.started:
            return
        elif not others and self.desired.waits_in_vain(task, target):
            state = TaskState.HANDED
        elif self._unsure and task.at[target].state is TaskState.HANDED:
            # Another node may have taken it, or fetched it.
            state = TaskState.HANDED
        self.desired.want(job, task, target, state)

    def share_cores(self, job: JobRecord, task: TaskRecord) -> float:
        """What it is to be guaranteed: its discovery's weight, or its yield of its need."""
        own = self.overrides.get((job.id, task.id.rank))
        return self.reference_cores * (job.yield_ * job.need if own is None else own)

    # Books.

    def inspect_again(self, jobs: Iterable[int]) -> None:
        """Of these jobs something new is known."""
        self._whereabouts.dirty.update(jobs)

    def take_dirty(self) -> set[int]:
        """Jobs of which something new is known since this was last asked."""
        dirty, self._whereabouts.dirty = self._whereabouts.dirty, set()
        return dirty

    def on(self, number: int) -> list[TaskRecord]:
        """Tasks that a node has or may have."""
        return list(self._whereabouts.on(number).values())

    def restore(self, task: TaskRecord, nodes: Iterable[int]) -> None:
        """These nodes have or may have it."""
        for number in nodes:
            self._whereabouts.put(task, number)

    def find(self, name: TaskId) -> TaskRecord | None:
        """The task of that name, if its job has not ended."""
        job = self._jobs.get(name.job)
        if job is None:
            return None
        if name.rank < len(job.tasks) and job.tasks[name.rank].id == name:
            return job.tasks[name.rank]
        return next((task for task in job.old if task.id == name), None)
