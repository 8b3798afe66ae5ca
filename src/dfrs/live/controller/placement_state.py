"""Where tasks shall be, by what was decided, and where they are or may be, by what was seen.

What is decided is worked out here, and comes back when events are replayed. What is seen is written in the same books
by the backend that runs the tasks, which also brings about what is decided: see `backend.py`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from dfrs.engine.commands import DETACH, Commands
from dfrs.live.controller.records import JobRecord, NodeRecord, TaskRecord
from dfrs.live.controller.whereabouts import Whereabouts
from dfrs.live.drivers.base import TaskId
from dfrs.model.nodes import Condition
from dfrs.model.run import Action

NEAR = 1
"""Distance of a node to which a task can be handed."""

_MOVES = (int(Action.START), int(Action.RESUME), int(Action.MIGRATE))
_PAUSE, _LOST = int(Action.PAUSE), int(Action.LOST)


class PlacementState:
    """All tasks of `jobs` on `nodes`."""

    def __init__(self, jobs: Mapping[int, JobRecord], nodes: Sequence[NodeRecord]) -> None:
        self.whereabouts = Whereabouts()
        self.given_up: Callable[[NodeRecord], None] = _nobody_cares
        """Called with each node that is lost: whoever runs its tasks asks nothing more of it."""
        self.overrides: Mapping[tuple[int, int], float] = {}
        """Shares of the reference node by (job, rank) that hold instead of the policy's."""
        self.reference_cores = 1.0
        self.generation = ""
        """Of the controller's present start: what is placed from now on has names that no node has ever heard."""
        self._jobs = jobs
        self._nodes = nodes
        self._silent: set[int] = set()
        """Nodes that have not said what they have since this controller began, and are not given up."""
        self._restored = False
        """A node has heard more than the record has: that is a copy from before."""
        self._missed: set[int] = set()
        """Jobs with tasks that no other node has, and that these may have."""

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
        self.whereabouts.unsettled |= touched
        return touched

    def place(self, job: JobRecord, nodes: Sequence[int], yield_: float, *, replaying: bool = False) -> None:
        """It is to run on these nodes, one a task, in any order."""
        job.placed, job.paused, job.kept, job.yield_ = True, False, False, yield_
        self._move(job, nodes)
        if replaying:
            for task in job.tasks:
                self.whereabouts.put(task, task.target)

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
            task.target = min(left, key=lambda n: self.distance(task, n))
            left.remove(task.target)

    def distance(self, task: TaskRecord, node: int) -> int:
        """How far a task is from a node: `NEAR` and less can be gone by one that has started."""
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
        # The core, too, counts its virtual time from 0 again.
        job.yield_ = job.ungranted_s = 0.0
        job.spec = None
        self.touch(job)

    def confirm(self, job: JobRecord) -> None:
        """While replaying: all tasks were where they shall be, and nowhere else."""
        for task in job.tasks:
            for node in list(task.at):
                if node != task.target:
                    self.whereabouts.drop(task, node)
            self.whereabouts.put(task, task.target)
            task.started = True

    def touch(self, job: JobRecord) -> None:
        """Have its backend see to it, and look at it again."""
        self.whereabouts.touch(job.id)

    def stay(self, job: JobRecord) -> None:
        """Its tasks are to be where they are now: they could not leave."""
        for task in job.tasks:
            if task.holder is not None:
                task.target = task.holder
                task.at[task.holder].fixed = False
            task.transfer = None
        self.touch(job)

    def settle_later(self, job: JobRecord) -> None:
        """Have its backend see to it."""
        self.whereabouts.unsettled.add(job.id)

    def forget(self, job: JobRecord) -> None:
        """It has ended: nothing of it is anywhere."""
        for task in job.all_tasks:
            for node in list(task.at):
                self.whereabouts.drop(task, node)

    def suspect(self) -> None:
        """What was decided before is in doubt: any node may have any task until it says that it has not."""
        for job in self._jobs.values():
            for task in job.tasks:
                for node in self._nodes:
                    if node.condition is not Condition.DOWN:
                        self.whereabouts.put(task, node.number)

    def lose(self, number: int) -> None:
        """A node is given up, with all that it has. What it may have started counts as started, and is lost."""
        self.heard(number)
        for task in self.on(number):
            task.started |= task.at[number].sent
            self.whereabouts.drop(task, number)
        self.given_up(self._nodes[number])

    def begin(self) -> None:
        """A controller goes on from the record. Nodes may have been told more than that: it may be an older copy."""
        self._silent = {node.number for node in self._nodes if node.condition is not Condition.DOWN}

    def may_turn_up(self, task: TaskRecord) -> bool:
        """Whether a task that its nodes do not have may be on one that has not yet said so, where it can have gone."""
        if task.exit is not None or all(self.distance(task, number) > NEAR for number in self._silent):
            return False
        self._missed.add(task.id.job)
        return True

    @property
    def unsure(self) -> bool:
        """Whether more may have been started or moved than the record has, and it is not known yet what."""
        return self._restored and bool(self._silent)

    def heard(self, number: int, *, ahead: bool = False) -> None:
        """The node has said what it has, or is given up: look again at what was missed.

        `ahead`: it was told more than the record has, so that is an older copy.
        """
        self._restored |= ahead
        if number in self._silent:
            self._silent.remove(number)
            self.inspect_again(self._missed)
            self._missed = set()
            if not self._silent:
                self.whereabouts.unsettled.update(self._jobs)

    def share_cores(self, job: JobRecord, task: TaskRecord) -> float:
        """What it is to be guaranteed: its discovery's weight, or its yield of its need."""
        own = self.overrides.get((job.id, task.id.rank))
        return self.reference_cores * (job.yield_ * job.need if own is None else own)

    # Books.

    def inspect_again(self, jobs: Iterable[int]) -> None:
        """Of these jobs something new is known."""
        self.whereabouts.dirty.update(jobs)

    def take_unsettled(self) -> list[JobRecord]:
        """Jobs of which something else may be wanted since this was last asked."""
        names, self.whereabouts.unsettled = self.whereabouts.unsettled, set()
        return [self._jobs[name] for name in names if name in self._jobs]

    def take_dirty(self) -> set[int]:
        """Jobs of which something new is known since this was last asked."""
        dirty, self.whereabouts.dirty = self.whereabouts.dirty, set()
        return dirty

    def on(self, number: int) -> list[TaskRecord]:
        """Tasks that a node has or may have."""
        return list(self.whereabouts.on(number).values())

    def restore(self, task: TaskRecord, nodes: Iterable[int]) -> None:
        """These nodes have or may have it."""
        for number in nodes:
            self.whereabouts.put(task, number)

    def find(self, name: TaskId) -> TaskRecord | None:
        """The task of that name, if its job has not ended."""
        job = self._jobs.get(name.job)
        if job is None:
            return None
        if name.rank < len(job.tasks) and job.tasks[name.rank].id == name:
            return job.tasks[name.rank]
        return next((task for task in job.old if task.id == name), None)


def _nobody_cares(node: NodeRecord) -> None:
    """Before there is a backend: nothing is asked of any node."""
