"""What a driver does with tasks, in memory: each action of `next_action`, done at once or not at all."""

from typing import TYPE_CHECKING

from dfrs.live.agent.next_action import TaskAction, Verb
from dfrs.live.drivers.base import Exit, ExitKind, TaskState
from dfrs.testing.in_memory.tasks import LIVE, InMemoryTask

if TYPE_CHECKING:
    from dfrs.testing.in_memory.node import InMemoryNode


class InMemoryDriver:
    """Starts, pauses, hands over, fetches and ends tasks of `node`.

    Commands are stories: `sleep SECONDS` ends after so long, `work SECONDS` after so much CPU of its share,
    `fail CODE [WORDS]` ends at once, `missing` is no program, `oom` needs more memory than it may; any other runs until
    something ends it.
    """

    def __init__(self, node: "InMemoryNode") -> None:
        self._node, self._hosts = node, node.hosts

    def perform(self, task: InMemoryTask, action: TaskAction) -> bool:
        """Do it, at once; False where it cannot be done: `task.error` says why."""
        if self._node.full and action.verb in {Verb.START, Verb.TAKE, Verb.RESUME} and not self._has_room(task):
            task.error, task.waits = "waits until others have left the memory", True
            return False
        if action.verb in {Verb.START, Verb.TAKE, Verb.RESUME} and (other := self._company(task)) is not None:
            task.error, task.waits = f"waits until {other.id} has left", True
            return False
        match action.verb:
            case Verb.START if self._node.unable:
                task.error = self._node.unable
                return False
            case Verb.START if not self._give_numbers(task):
                return False
            case Verb.START:
                self._hosts.started(self._node, task.id)
                task.share = action.share_cores
                self._begin(task)
            case Verb.TAKE:
                if task.state is not TaskState.HANDED:
                    source = self._hosts.handed(self._node.host, task.id)
                    if source is None:
                        task.error = "take: nobody has handed it"
                        return False
                    task.cpu_s, task.left_s, task.work_s = source.cpu_s, source.left_s, source.work_s
                    task.transfers, task.stored = source.transfers, source.stored
                    source.state, source.share, source.was_here = TaskState.ABSENT, None, False
                self._goes_on(task)
                task.share, task.was_here = action.share_cores, True
            case Verb.FETCH:
                return self._fetch(task, action.share_cores)
            case Verb.HAND:
                self._hosts.history.append(("hand", self._node.name, task.id))
                self.set_state(task, TaskState.HANDED)
            case Verb.SET_SHARE:
                task.share = action.share_cores
            case Verb.PAUSE:
                return self._pause(task, keep=action.keep)
            case Verb.RESUME:
                task.kept = False
                self._goes_on(task)
            case Verb.STOP:
                self.exit(task, Exit(kind=ExitKind.STOPPED, signal=15, time_s=self._hosts.stamp()))
            case Verb.FORGET:
                self.set_state(task, TaskState.ABSENT)
                task.exit, task.was_here, task.share = None, False, None
        return True

    def _goes_on(self, task: InMemoryTask) -> None:
        if task.transfers < self._hosts.transfers.get(task.id, 0):
            self._hosts.fail(f"{task.id} goes on from a copy on {self._node.name} that is out of date")
        task.stored = False
        self.set_state(task, TaskState.RUNNING)

    def _fetch(self, task: InMemoryTask, share: float) -> bool:
        assert task.desired is not None
        source = task.desired.source
        assert source is not None
        # As agents do: it may take long, and what went wrong before says nothing of it.
        task.error = ""
        self._node.report_state(task)
        node = self._hosts.nodes[source.certificate]
        found = node.tasks.get(task.id)
        wanted = None if found is None else found.desired
        grant = None if wanted is None or wanted.state is not TaskState.HANDED else wanted.grant
        task.error = f"fetch: {node.name}: "
        if node.dead or node.boots != source.port or self._hosts.random.random() < self._hosts.cuts:
            task.error += "no connection"
            return False
        granted = grant is not None and (grant.token, grant.certificate) == (source.token, self._node.name)
        if found is None or wanted is None or not granted or found.used == source.token:
            task.error += "not granted"
            return False
        found.used = source.token
        if found.state in {TaskState.ABSENT, TaskState.EXITED}:
            task.error += "it is not there"
            return False
        if not found.stored and self._hosts.random.random() < node.rigid:
            found.refused, found.error = wanted.version, "it holds a device"
            node.settle()
            task.error += found.error
            return False
        if found.state is not TaskState.HANDED or not found.stored:
            # In its image, and not let out of it before it is taken back.
            node.give_up(found)
        if self._hosts.random.random() < self._hosts.cuts:
            task.error += "the connection broke"
            return False
        task.error = ""
        task.cpu_s, task.left_s, task.work_s = found.cpu_s, found.left_s, found.work_s
        task.transfers, task.share, task.was_here, task.kept = found.transfers + 1, share, True, False
        task.stored = True
        self._hosts.transfers[task.id] = max(task.transfers, self._hosts.transfers.get(task.id, 0))
        self.set_state(task, TaskState.PAUSED)
        return True

    def _has_room(self, task: InMemoryTask) -> bool:
        """Whether others leave the task its memory, as drivers whose pauses free memory see to it."""
        here = (TaskState.STARTING, TaskState.RUNNING)
        used = sum(t.memory_bytes for t in self._node.tasks.values() if t is not task and (t.state in here or t.kept))
        return used + task.memory_bytes <= self._node.memory + 1024

    def _company(self, task: InMemoryTask) -> InMemoryTask | None:
        """A task of another job that cannot be here together with this one."""
        others = (t for t in self._node.tasks.values() if t.id.job != task.id.job)
        here = (t for t in others if t.state is TaskState.RUNNING or (t.state is TaskState.PAUSED and t.kept))
        return next((other for other in here if task.exclusive or other.exclusive), None)

    def _give_numbers(self, task: InMemoryTask) -> bool:
        """Give it the first numbers of named resources that no other task has; whether there are enough."""
        others = [t for t in self._node.tasks.values() if t is not task and t.state in LIVE]
        numbers: dict[str, tuple[int, ...]] = {}
        for name, count in task.resources.items():
            taken = {number for other in others for number in other.numbers.get(name, ())}
            free = [number for number in range(self._node.resources.get(name, 0)) if number not in taken]
            if len(free) < count:
                task.error, task.waits = f"waits for {count} {name}", True
                return False
            numbers[name] = tuple(free[:count])
        task.numbers = numbers
        return True

    def _pause(self, task: InMemoryTask, *, keep: bool) -> bool:
        assert task.desired is not None
        stays = self._node.full > 0 and self._hosts.random.random() < self._node.full
        stays = stays or bool(task.numbers)
        if stays and not keep:
            task.error, task.refused = "no swap space left", task.desired.version
            return False
        task.kept = stays
        self.set_state(task, TaskState.PAUSED)
        return True

    def _begin(self, task: InMemoryTask) -> None:
        assert task.desired is not None
        assert task.desired.spec is not None
        command = task.desired.spec.command
        task.was_here = True
        match command[0]:
            case "sleep":
                task.left_s = float(command[1])
                self.set_state(task, TaskState.RUNNING)
            case "work":
                task.work_s = float(command[1])
                self.set_state(task, TaskState.RUNNING)
            case "missing":
                self.exit(task, Exit(kind=ExitKind.NOT_STARTED, time_s=self._hosts.stamp(), message="no such file"))
            case "fail":
                code, message = int(command[1]), " ".join(command[2:])
                self.exit(task, Exit(kind=ExitKind.CODE, code=code, time_s=self._hosts.stamp(), message=message))
            case "oom":
                self.exit(task, Exit(kind=ExitKind.OUT_OF_MEMORY, time_s=self._hosts.stamp()))
            case _:
                self.set_state(task, TaskState.RUNNING)

    def exit(self, task: InMemoryTask, found: Exit) -> None:
        """Its process ends. One that is in an image has none here, and may have gone on elsewhere."""
        task.exit = found
        if not task.stored:
            self._hosts.exits.setdefault(task.id, []).append(found)
        self.set_state(task, TaskState.EXITED)

    def set_state(self, task: InMemoryTask, state: TaskState) -> None:
        """It is in that state from now on."""
        self._hosts.history.append((state.value, self._node.name, task.id))
        task.state, task.since_s = state, self._hosts.stamp()
        self._hosts.check()
