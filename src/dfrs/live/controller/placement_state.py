"""Where tasks are and where they shall be: what each node is desired to have, from placements and from what nodes say.

A task is started on a node only if no other node has it or may have it; once any node had it, it is only ever handed
over. Between nodes of a host it first has to be HANDED by the one, and then the other is told to take it. Between hosts
the other fetches it from the one, where it goes on until then, and is HANDED before the other can have all of it; both
count how often that was done, and the copy with the lower count is only ever forgotten. So however messages are lost,
repeated or late, and whenever the controller ends and comes back, no attempt at a job runs twice; and a new attempt
begins only when all nodes have said that they have nothing of the old one, or are lost.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence

from dfrs.engine.commands import DETACH, Commands
from dfrs.live.controller.records import LIVE, JobRecord, NodeRecord, Observation, TaskRecord, Transfer, order_of
from dfrs.live.drivers.base import Exit, ExitKind, TaskId, TaskSpec, TaskState
from dfrs.live.protocol.wire import (
    GRACE_S,
    MESSAGE_BYTES,
    Desire,
    Desired,
    Grant,
    Hello,
    Source,
    StatusMessage,
    TransferPort,
    Welcome,
)
from dfrs.model.nodes import Condition
from dfrs.model.run import Action

MINOR_BITS = 32
"""Versions are the number of the last event times two to the power of this, and a count."""
MOST_BYTES = MESSAGE_BYTES // 2
"""A message with more than about this is sent in parts."""
NEAR = 1
"""Distance of a node to which a task can be handed."""
SHARE_STEP = 1e-6
"""Cores. Shares that differ by less are the same."""
FIRST_RENEWAL_S, MOST_FAILURES = 1.0, 6
"""A failed transfer is tried again after so long, doubled each time; after so many the task stays where it is."""

_MOVES = (int(Action.START), int(Action.RESUME), int(Action.MIGRATE))
_PAUSE, _LOST = int(Action.PAUSE), int(Action.LOST)
_UP = (TaskState.RUNNING, TaskState.PAUSED)


class PlacementState:
    """All tasks of `jobs` on `nodes`. Sends nothing before `flush`."""

    def __init__(
        self,
        jobs: Mapping[int, JobRecord],
        nodes: Sequence[NodeRecord],
        spec_of: Callable[[JobRecord], TaskSpec],
        steady: Callable[[], float],
    ) -> None:
        self.dirty: set[int] = set()
        """Jobs of which something new is known."""
        self.overrides: Mapping[tuple[int, int], float] = {}
        """Shares of the reference node by (job, rank) that hold instead of the policy's."""
        self.reference_cores = 1.0
        self._jobs = jobs
        self._nodes = nodes
        self._spec_of = spec_of
        self._steady = steady
        self._tasks_on: dict[int, dict[TaskId, TaskRecord]] = {}
        self._version = 0
        self._waiting: set[int] = set()

    def advance(self, sequence: int) -> None:
        """Versions from now on are higher than all that were given out before the event of that number."""
        self._version = max(self._version, sequence << MINOR_BITS)

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
        self._waiting |= touched
        return touched

    def place(self, job: JobRecord, nodes: Sequence[int], yield_: float, *, replaying: bool = False) -> None:
        """It is to run on these nodes, one a task, in any order."""
        job.placed, job.paused, job.kept, job.yield_ = True, False, False, yield_
        self._move(job, nodes)
        if replaying:
            for task in job.tasks:
                self._put(task, task.target)

    def _move(self, job: JobRecord, nodes: Sequence[int]) -> None:
        """Give each task one of `nodes`: its own, one that has it, one of its island, or any."""
        if not job.tasks:
            job.tasks = [TaskRecord(TaskId(job=job.id, rank=k, attempt=job.attempt)) for k in range(len(nodes))]
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
                    self._drop(task, node)
            self._put(task, task.target)
            task.started = True

    def touch(self, job: JobRecord) -> None:
        """See to it at the next `sync`, and look at it again."""
        self._waiting.add(job.id)
        self.dirty.add(job.id)

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
        self._waiting.add(job.id)

    def forget(self, job: JobRecord) -> None:
        """It has ended: all that nodes still have of it is to go."""
        for task in job.all_tasks:
            for node in list(task.at):
                self._want(job, task, node, TaskState.ABSENT)
                self._drop(task, node)

    def suspect(self) -> None:
        """What was decided before is in doubt: any node may have any task until it says that it has not."""
        for job in self._jobs.values():
            for task in job.tasks:
                for node in self._nodes:
                    if node.condition is not Condition.DOWN:
                        self._put(task, node.number)

    def lose(self, number: int) -> None:
        """A node is given up, with all that it has."""
        node = self._nodes[number]
        for task in list(self._tasks_on.get(number, {}).values()):
            self._drop(task, number)
        node.desired.clear()
        node.outbox.clear()
        if node.link is not None:
            node.link.close("it was silent for so long that its jobs were given up")
            node.link = None

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
        observation.error = status.error
        self._see(node, task, observation, status)
        self.dirty.add(status.task.job)
        self._waiting.add(status.task.job)

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
        if status.state is TaskState.EXITED:
            observation.exit = status.exit or Exit(kind=ExitKind.LOST, time_s=status.since_s)
            self._conclude(task)

    def _conclude(self, task: TaskRecord) -> None:
        """Take over how it ended, unless it may have gone on elsewhere: a copy that was given up is lost or stopped."""
        holder = task.holder
        found = None if holder is None else task.at[holder].exit
        if task.exit is not None or holder is None or found is None:
            return
        if found.kind not in {ExitKind.LOST, ExitKind.STOPPED} or not self._unheard(task, holder):
            task.exit = found

    def _unheard(self, task: TaskRecord, holder: int) -> set[int]:
        """Nodes of other hosts that may have it and have not said so."""
        host = self._nodes[holder].hello.host
        return {node for node, each in task.at.items() if each.state is None and self._nodes[node].hello.host != host}

    def _leave(self, node: NodeRecord, task: TaskRecord) -> None:
        """The node does not have it. Unless it knows that it shall not, it is told so."""
        self._drop(task, node.number)
        row = node.desired.get(task.id)
        if row is not None and row.state is TaskState.ABSENT:
            del node.desired[task.id]
        elif row is not None:
            self._tell(node, Desired(task=task.id, version=self._next(), state=TaskState.ABSENT))

    def welcome(self, node: NodeRecord, hello: Hello, *, rebooted: bool = False) -> set[TaskId]:
        """A node says all that it has: what it does not name it does not have. Tasks that were lost with a reboot.

        What it names as absent it may yet start, as before. Without a reboot it never started what it does not name.
        After one it may have, also where nobody ever heard of
        it: such a task counts as started, and is lost.
        """
        node.desired.clear()
        node.outbox.clear()
        named = {status.task: status for status in hello.tasks}
        lost: set[TaskId] = set()
        for task in self.on(node.number):
            self.touch(self._jobs[task.id.job])
            if task.id in named:
                continue
            if rebooted and task.at[node.number].sent:
                task.started = True
                lost.add(task.id)
            self._drop(task, node.number)
        for status in named.values():
            job, task = self._jobs.get(status.task.job), self.find(status.task)
            if job is None or status.state is TaskState.ABSENT:
                if task is not None and node.number in task.at:
                    task.at[node.number].error = status.error
                continue
            if task is None:
                if status.task.attempt >= job.attempt:
                    continue
                task = TaskRecord(status.task, started=True)
                job.old.append(task)
            elif self._distance(task, node.number) > NEAR:
                # Tasks do not move between islands: it never had it.
                continue
            observation = self._put(task, node.number)
            observation.state, observation.order, observation.error = status.state, (0, 0.0), status.error
            observation.transfers, task.transfers = status.transfers, max(task.transfers, status.transfers)
            task.started = True
            if status.transfers < task.transfers:
                observation.state = TaskState.HANDED
            elif status.state is TaskState.EXITED:
                observation.exit = status.exit or Exit(kind=ExitKind.LOST, time_s=status.since_s)
                self._conclude(task)
            self.touch(job)
        return lost

    # What nodes are told.

    def sync(self, jobs: Iterable[int] | None = None) -> None:
        """Work out what nodes shall have of these jobs, or of all that something happened to."""
        if jobs is None:
            jobs, self._waiting = self._waiting, set()
        for name in jobs:
            job = self._jobs.get(name)
            if job is not None:
                self._settle(job)

    def _settle(self, job: JobRecord) -> None:
        for task in job.all_tasks:
            self._conclude(task)
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
            self._want(job, task, node, TaskState.ABSENT)

    def _keep(self, job: JobRecord, task: TaskRecord) -> None:
        """It has ended: its node keeps the record of that until the whole job is over."""
        for node, observation in list(task.at.items()):
            if observation.state is not TaskState.EXITED:
                self._want(job, task, node, TaskState.ABSENT)
            elif task.id not in self._nodes[node].desired:
                self._want(job, task, node, TaskState.RUNNING)

    def _steer(self, job: JobRecord, task: TaskRecord) -> None:
        target = task.target
        if self._elsewhere(job, task):
            return
        others = [node for node in task.at if node != target and not task.out_of_date(node)]
        for node in others:
            self._want(job, task, node, TaskState.HANDED)
        state = TaskState.PAUSED if job.paused else TaskState.RUNNING
        if target not in task.at:
            if task.started:
                ready = bool(others) and all(task.at[n].state is TaskState.HANDED for n in others)
            else:
                ready = not others and not job.old and job.placed
            if not ready:
                return
            self._put(task, target).sent = False
        elif others and not task.started:
            return
        elif not others and self._in_vain(task, target):
            state = TaskState.HANDED
        self._want(job, task, target, state)

    def _elsewhere(self, job: JobRecord, task: TaskRecord) -> bool:
        """See to a task that nodes of several hosts have or may have, or are to have; False where there is no such."""
        holder, target = task.holder, task.target
        hosts = {self._nodes[node].hello.host for node in (*task.at, target)}
        if len(hosts) < 2 or not task.started:
            task.transfer = None
            return False
        copies = {node for node in task.at if task.out_of_date(node)}
        for node in copies:
            self._want(job, task, node, TaskState.ABSENT)
        if holder is not None and task.at[holder].state is TaskState.EXITED:
            for node in self._unheard(task, holder):
                self._want(job, task, node, TaskState.HANDED)
            return True
        if holder is None:
            # Each says what it has. The target may wait for ever if it is the only one that may have it.
            for node in set(task.at) - copies:
                if node != target or (len(task.at) == len(copies) + 1 and self._in_vain(task, target)):
                    self._want(job, task, node, TaskState.HANDED)
            return True
        rest = set(task.at) - copies - {holder, target}
        for node in rest:
            self._want(job, task, node, TaskState.HANDED)
        if holder == target:
            if rest:
                # One of them may be fetching it.
                self._offer(task, holder, None)
                return True
            task.transfer = None
            self._want(job, task, target, TaskState.PAUSED if job.paused else TaskState.RUNNING)
        elif rest or target in copies:
            self._offer(task, holder, None)
        elif self._nodes[holder].hello.host == self._nodes[target].hello.host:
            return False
        else:
            self._transfer(job, task, holder)
        return True

    def _transfer(self, job: JobRecord, task: TaskRecord, holder: int) -> None:
        """Have the target fetch it from the node that has it, where it goes on until then."""
        source, target, now = self._nodes[holder], self._nodes[task.target], self._steady()
        if source.hello.transfers is None or target.hello.transfers is None:
            task.at[holder].fixed = True
            who = source if source.hello.transfers is None else target
            task.at[holder].error = f"node {who.name}: tasks cannot go to other hosts, or come from there"
            self.dirty.add(job.id)
            return
        transfer, observation = task.transfer, task.at.get(task.target)
        if transfer is None or (transfer.source, transfer.target) != (holder, task.target):
            transfer = Transfer(holder, task.target, secrets.token_hex(32), now + FIRST_RENEWAL_S)
            task.transfer = transfer
        elif observation is not None and observation.error and now >= transfer.renew_at:
            transfer.failures += 1
            if transfer.failures >= MOST_FAILURES:
                task.at[holder].fixed = True
                task.at[holder].error = observation.error
                self.dirty.add(job.id)
                return
            transfer.token, transfer.renew_at = secrets.token_hex(32), now + FIRST_RENEWAL_S * 2**transfer.failures
            observation.error = ""
        if observation is not None and observation.error:
            self._waiting.add(job.id)
        self._offer(task, holder, Grant(token=transfer.token, certificate=target.hello.transfers.certificate))
        if observation is None:
            self._put(task, task.target).sent = False
        port = TransferPort.model_dump(source.hello.transfers)
        state = TaskState.PAUSED if job.paused else TaskState.RUNNING
        self._want(job, task, task.target, state, Source(token=transfer.token, **port))

    def _offer(self, task: TaskRecord, holder: int, grant: Grant | None) -> None:
        """Have it go on where it is until it is fetched. Without a grant: as it is, or by nobody."""
        node = self._nodes[holder]
        row = node.desired.get(task.id)
        held = row is not None and row.state is TaskState.HANDED and row.grant is not None
        if held and row is not None and grant in (None, row.grant):
            return
        grant = grant or Grant(token=secrets.token_hex(32), certificate="")
        self._tell(node, Desired(task=task.id, version=self._next(), state=TaskState.HANDED, grant=grant))

    def _in_vain(self, task: TaskRecord, target: int) -> bool:
        """Whether its node may wait for ever for a task that nobody can hand it.

        It is then to hand it over itself: if it has it after all it says so and gets it back; if not, the task is lost.
        """
        observation, row = task.at[target], self._nodes[target].desired.get(task.id)
        if observation.state is not None or row is None:
            return False
        return row.state is TaskState.HANDED or (row.take and observation.error != "")

    def _want(
        self, job: JobRecord, task: TaskRecord, number: int, state: TaskState, source: Source | None = None
    ) -> None:
        node = self._nodes[number]
        row = node.desired.get(task.id)
        same = row is not None and row.state is state and row.grant is None
        if state not in _UP:
            if not same:
                # A copy that is out of date has nothing to end.
                grace_s = 0.0 if task.out_of_date(number) else GRACE_S
                self._tell(node, Desired(task=task.id, version=self._next(), state=state, grace_s=grace_s))
            return
        share = self.share_cores(job, task)
        keep = job.held and state is TaskState.PAUSED
        same = same and row is not None and (row.keep, row.source) == (keep, source)
        if same and row is not None and abs(row.share_cores - share) < SHARE_STEP:
            return
        self._tell(
            node,
            Desired(
                task=task.id,
                version=self._next(),
                state=state,
                share_cores=share,
                spec=self._spec(job),
                take=task.started,
                source=source,
                keep=keep,
            ),
        )

    def share_cores(self, job: JobRecord, task: TaskRecord) -> float:
        """What it is to be guaranteed: its discovery's weight, or its yield of its need."""
        own = self.overrides.get((job.id, task.id.rank))
        return self.reference_cores * (job.yield_ * job.need if own is None else own)

    def _spec(self, job: JobRecord) -> TaskSpec:
        if job.spec is None:
            job.spec = self._spec_of(job)
        return job.spec

    def _tell(self, node: NodeRecord, desired: Desired) -> None:
        node.desired[desired.task] = desired
        node.outbox[desired.task] = desired

    def _next(self) -> int:
        self._version += 1
        return self._version

    def flush(self) -> None:
        """Send what changed to nodes that are connected; others hear it when they are."""
        for node in self._nodes:
            if not node.outbox:
                continue
            if node.link is not None:
                self._send(node, list(node.outbox.values()))
            node.outbox.clear()

    def greet(self, node: NodeRecord, report_s: float) -> None:
        """Tell a node that has just come all that it shall have; what it has to start follows."""
        if node.link is None:
            return
        here = self._tasks_on.get(node.number, {})
        known: list[Desired] = []
        fresh: list[Desired] = []
        size = 0
        for desired in list(node.desired.values()):
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
                fresh.append(desired.model_copy(update={"version": self._next()}))
                node.desired[desired.task] = fresh[-1]
        node.link.send(Welcome(report_s=report_s, desired=tuple(known)))
        self._send(node, fresh)
        node.outbox.clear()

    def _send(self, node: NodeRecord, desired: Sequence[Desired]) -> None:
        here = self._tasks_on.get(node.number, {})
        for one in desired:
            if one.task in here:
                here[one.task].at[node.number].sent = True
        for part in _parts(desired):
            if node.link is not None:
                node.link.send(Desire(tasks=part))

    # Books.

    def on(self, number: int) -> list[TaskRecord]:
        """Tasks that a node has or may have."""
        return list(self._tasks_on.get(number, {}).values())

    def restore(self, task: TaskRecord, nodes: Iterable[int]) -> None:
        """These nodes have or may have it."""
        for number in nodes:
            self._put(task, number)

    def _put(self, task: TaskRecord, number: int) -> Observation:
        observation = task.at.setdefault(number, Observation())
        self._tasks_on.setdefault(number, {})[task.id] = task
        return observation

    def _drop(self, task: TaskRecord, number: int) -> None:
        task.at.pop(number, None)
        self._tasks_on.get(number, {}).pop(task.id, None)
        self.dirty.add(task.id.job)
        self._waiting.add(task.id.job)

    def find(self, name: TaskId) -> TaskRecord | None:
        """The task of that name, if its job has not ended."""
        job = self._jobs.get(name.job)
        if job is None:
            return None
        if name.attempt == job.attempt:
            return job.tasks[name.rank] if name.rank < len(job.tasks) else None
        return next((task for task in job.old if task.id == name), None)


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
    texts = (*spec.command, *spec.peers, spec.directory, *spec.environment, *spec.environment.values())
    # A character has up to six bytes as JSON.
    return 600 + sum(6 * len(text) + 4 if not text.isascii() else 2 * len(text) + 4 for text in texts)
