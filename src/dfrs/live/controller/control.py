"""The controller as a backend sees it: what is wanted of jobs, and how to say what is seen of nodes and tasks.

A backend that works by jobs needs little more than `unsettled` and `wanted` on the one hand, and `has`, `came`, `saw`
and `is_gone` on the other. One that has a protocol of its own for each task, as our agents have, keeps the books of
`placement` itself.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from dfrs.live.controller import views
from dfrs.live.controller.backend import Wanted
from dfrs.live.controller.controller_plan import JobChange
from dfrs.live.controller.engine import ControllerLoop
from dfrs.live.controller.placement_state import PlacementState
from dfrs.live.controller.records import JobRecord, NodeRecord, TaskRecord
from dfrs.live.controller.settings import ControllerSettings
from dfrs.live.controller.state import State
from dfrs.live.controller.submissions import Submissions
from dfrs.live.controller.versions import Versions
from dfrs.live.drivers.base import Exit, ExitKind, TaskId, TaskSpec, TaskState
from dfrs.live.protocol.observed import Cost, HostUse, NodeFacts, Sample
from dfrs.live.protocol.resources import JobRequest
from dfrs.model.errors import InputError

KEY_CHARS = 56
"""Of the name of a job in a backend's own queue, so that there is room for it in the record."""


class Control:
    """To be used on the controller's event loop."""

    def __init__(self, state: State, engine: ControllerLoop, submissions: Submissions) -> None:
        self._state = state
        self._engine = engine
        self._lifecycle, self._descriptions = engine.lifecycle, engine.descriptions
        self._submissions = submissions

    def poke(self) -> None:
        """Have the controller look at what is new."""
        self._engine.poke()

    @property
    def leads(self) -> bool:
        """Whether it decides, and no other controller can by now. A backend that asks others for what is wanted asks
        for nothing where this is not so: what it finds may be what another one has asked for.
        """
        return self._engine.leads

    @property
    def settings(self) -> ControllerSettings:
        """How the controller is set up."""
        return self._state.settings

    def time_s(self, at: float) -> float:
        """The core's time when the wall clock, as it is set now, says that. A node's word is dated by that clock: it is
        to be asked for as soon as the word comes, since the clock may be set.
        """
        return self._state.time_s(at)

    @property
    def versions(self) -> Versions:
        """Numbers of wishes."""
        return self._state.versions

    @property
    def placement(self) -> PlacementState:
        """The books of where tasks are and shall be."""
        return self._state.placement

    # Nodes.

    @property
    def nodes(self) -> Sequence[NodeRecord]:
        """All that ever came, by number."""
        return self._state.nodes

    def node(self, name: str) -> NodeRecord | None:
        """The node of that name."""
        return self._lifecycle.find(name)

    def known(self, facts: NodeFacts) -> NodeRecord | None:
        """The node that is described so, if it is in the record. One of the same name on another host is another."""
        return self._lifecycle.known(facts)

    def refuse(self, facts: NodeFacts) -> None:
        """Raise ConflictError where another node is connected under that name."""
        self._lifecycle.refuse(facts, self.settings.steady())

    def came(self, node: NodeRecord, facts: NodeFacts, lost: AbstractSet[TaskId] = frozenset()) -> None:
        """The node is there, and is that. `lost`: tasks that it had when it was last there, and has no more (`has`)."""
        node.connected, node.seen_at = True, self.settings.steady()
        self._descriptions.change(node, facts, lost)

    def has(self, node: NodeRecord, tasks: Collection[TaskId]) -> set[TaskId]:
        """The node has these tasks, or was asked for them and may yet start them, and no others. Say it before `came`.

        Returns those that had been started there, and are lost.
        """
        self.placement.heard(node.number)
        lost: set[TaskId] = set()
        for task in self.placement.on(node.number):
            self.placement.whereabouts.touch(task.id.job)
            if task.id not in tasks:
                if task.started:
                    lost.add(task.id)
                self.placement.whereabouts.drop(task, node.number)
        return lost

    def heard(self, node: NodeRecord) -> None:
        """It is there. A node of which this is not said for `silent_s` gets nothing new, after `lost_s` it is lost."""
        node.seen_at = self.settings.steady()
        self._state.changed()

    def left(self, node: NodeRecord) -> None:
        """It cannot be reached now; it may come again."""
        node.connected = False
        self._state.changed()

    def lost(self, node: NodeRecord) -> None:
        """It is gone, with all that it had, by the word of somebody who knows: nobody waits for it."""
        node.connected = False
        node.seen_at = min(node.seen_at, self.settings.steady() - 2 * self.settings.lost_s)
        self._state.changed()
        self.poke()

    def problem(self, node: NodeRecord, problem: str) -> None:
        """Why it is to get nothing new, in words; empty if it may."""
        if self._descriptions.change_problem(node, problem):
            self.poke()

    def used(self, node: NodeRecord, time_s: float, samples: Iterable[Sample], host: HostUse | None) -> None:
        """What its tasks, and its CPUs together, have used by `time_s` of its monotonic clock."""
        node.load.report(time_s, host)
        for sample in samples:
            task = self.placement.find(sample.task)
            job = self._state.jobs.get(sample.task.job)
            if task is not None and job is not None and node.number in task.at:
                declared = job.request.cpu_cores
                task.observe(time_s, sample, node.facts.cpus if declared is None else declared)

    # Jobs.

    @property
    def jobs(self) -> Mapping[int, JobRecord]:
        """Those that have not ended."""
        return self._state.jobs

    def spec(self, job: JobRecord) -> TaskSpec:
        """What its tasks run."""
        if job.spec is None:
            job.spec = self._state.spec(job)
        return job.spec

    async def submit(self, request: JobRequest, user: str, key: str) -> int:
        """A job that came to the backend's own queue, where it has that name: its number, when it is on record.

        It may be said again: a job of that name that has not ended gets no second number. From then on it is a job as
        any other; `JobRecord.key` has its name. Raises InputError where it can never run, TooManyError where its user
        may not have more now; UnavailableError.
        """
        if request.array is not None or len(key) > KEY_CHARS:
            raise InputError(f"{key[:KEY_CHARS]}: must be one job, with a name of at most {KEY_CHARS} characters")
        known = self._state.arrived.get(key)
        return known if known is not None else (await self._submissions.submit(request, user, user, key))[0]

    @property
    def arrived(self) -> Mapping[str, int]:
        """Numbers of jobs that came to the backend's own queue and have not ended, by their names there."""
        return self._state.arrived

    async def cancel(self, job: int, by: str) -> None:
        """It was cancelled in the backend's own queue. Raises NotFoundError, ConflictError, UnavailableError."""
        await self._engine.ask("cancel", job, by)

    async def hold(self, job: int, by: str) -> None:
        """It was paused there. Raises as `cancel`."""
        await self._engine.ask("hold", job, by)

    async def release(self, job: int, by: str) -> None:
        """It was let go on there. Raises as `cancel`."""
        await self._engine.ask("release", job, by)

    async def say_held(self, job: int, by: str, *, held: bool) -> None:
        """Its user holds it in that queue now, or no longer does. It is held or released here, if it is not so already,
        and `request.held` has what was said last, also after a restart. Raises as `cancel`.
        """
        await self._engine.ask("hold" if held else "release", job, by, change=JobChange({"held": held}, {}))

    async def requeue(self, job: int, by: str) -> None:
        """It was ended there, to begin anew. Raises as `cancel`; ConflictError also where it has not begun."""
        await self._engine.ask("requeue", job, by)

    def whys(self, jobs: Iterable[JobRecord]) -> Iterator[tuple[JobRecord, str]]:
        """Why each is where it is, in words, now."""
        present = views.Present(self._state)
        for job in jobs:
            yield job, views.why(self._state, job, views.job_state(self._state, job), present)

    def unsettled(self) -> Sequence[JobRecord]:
        """Jobs of which something else may be wanted since this was last asked."""
        return self.placement.take_unsettled()

    def wanted(self, job: JobRecord) -> Sequence[Wanted]:
        """What its attempts shall be: those that are over, and are to go, and the present one, if it is to be anything.

        An attempt is wanted to run only when nothing is left of those before it. Whoever asks for that may have asked
        a node: from then on the job may be there.
        """
        job.old = [task for task in job.old if task.at]
        found = [Wanted(tasks=names, state=TaskState.ABSENT) for names in _by_attempt(job.old)]
        tasks = job.tasks
        if job.outcome is not None:
            left = tuple(task.id for task in tasks if task.at and task.exit is None)
            return [*found, Wanted(tasks=left, state=TaskState.ABSENT)] if left else found
        if not tasks or not self._may_be(job):
            return found
        for task in tasks:
            if task.exit is None:
                observation = self.placement.whereabouts.put(task, task.target)
                observation.kept = observation.kept and job.paused
        now = Wanted(
            tasks=tuple(task.id for task in tasks),
            state=TaskState.PAUSED if job.paused else TaskState.RUNNING,
            nodes=tuple(self.nodes[task.target].name for task in tasks),
            share_cores=tuple(self.placement.share_cores(job, task) for task in tasks),
            keep=job.held and job.paused,
            spec=self.spec(job),
        )
        return [*found, now]

    def _may_be(self, job: JobRecord) -> bool:
        """Whether its present attempt is somewhere, or may begin."""
        if any(task.started or task.at for task in job.tasks):
            return True
        return not job.old and job.placed and not self.placement.unsure

    def saw(
        self,
        name: TaskId,
        node: NodeRecord,
        state: TaskState,
        *,
        since_s: float,
        found: Exit | None = None,
        error: str = "",
        kept: bool = False,
        fixed: bool = False,
    ) -> bool:
        """A task is on a node, and is STARTING, RUNNING, PAUSED or EXITED, there and nowhere else, since then (wall).

        `found` is how it ended; `error` what is wrong, in words. `kept`: it was to be paused, and its memory could not
        be freed. `fixed`: it was to go to another node, and cannot. False where the controller knows of no such task:
        its job has ended, or is not on record; end it.
        """
        task = self.placement.find(name)
        if task is None:
            return False
        if task.exit is not None:
            return True
        books = self.placement.whereabouts
        for other in set(task.at) - {node.number} - ({task.target} if not fixed else set()):
            books.drop(task, other)
        observation = books.put(task, node.number)
        task.started = True
        observation.state, observation.error = state, error
        observation.kept, observation.fixed = kept, fixed
        if state is TaskState.RUNNING:
            task.received.run(self.time_s(since_s))
        elif state is not TaskState.EXITED:
            task.received.stop(self.time_s(since_s))
        else:
            task.exit = observation.exit = found or Exit(kind=ExitKind.LOST, time_s=since_s)
            task.received.stop(self.time_s(task.exit.time_s))
        books.touch(name.job)
        self.poke()
        return True

    def is_gone(self, name: TaskId) -> None:
        """A task is nowhere: it was to end, or was never started. One that had started and was not to end is lost."""
        task = self.placement.find(name)
        if task is None:
            return
        for number in list(task.at):
            self.placement.whereabouts.drop(task, number)
        self.poke()

    def trouble(self, name: TaskId, node: NodeRecord, error: str) -> None:
        """What is wanted of a task cannot be brought about for now, in words. Try again by yourself."""
        task = self.placement.find(name)
        observation = None if task is None else task.at.get(node.number)
        if observation is not None and observation.error != error:
            observation.error = error
            self._state.changed()

    def took(self, name: TaskId, cost: Cost) -> None:
        """How long a pause, a resume or a move of a task took."""
        task = self.placement.find(name)
        if task is not None:
            self._state.prices.observe(task, cost)


def _by_attempt(tasks: Sequence[TaskRecord]) -> Sequence[tuple[TaskId, ...]]:
    found: dict[tuple[int, str], list[TaskId]] = {}
    for task in tasks:
        found.setdefault((task.id.attempt, task.id.generation), []).append(task.id)
    return [tuple(sorted(names, key=lambda name: name.rank)) for names in found.values()]
