"""What all drivers of processes share: a supervisor for each task, and the life of a task from start to forgotten.

How shares, limits and counts are brought about is left to the class that is derived from it.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

import structlog

from dfrs.live.drivers.base import (
    NO_JOB,
    CheckpointRefusedError,
    DriverError,
    Exit,
    ExitKind,
    InputPart,
    PauseRefusedError,
    ProgramSpec,
    Stream,
    TaskId,
    TaskSpec,
    TaskState,
    TaskStatus,
)
from dfrs.live.drivers.processes import supervisor
from dfrs.live.drivers.processes.admission import Admission
from dfrs.live.drivers.processes.beside import BesidePrograms
from dfrs.live.drivers.processes.directory import Owner, TaskDirectory
from dfrs.live.drivers.processes.image_files import (
    Frames,
    History,
    ImageError,
    TryAgainError,
    account_numbers,
    sync_directory,
)
from dfrs.live.drivers.processes.images import IMAGES, Images, remove_strays
from dfrs.live.drivers.processes.launching import entries_of, launch
from dfrs.live.drivers.processes.mechanism import Mechanism
from dfrs.live.drivers.processes.profiles import ENTRY as PROFILED
from dfrs.live.drivers.processes.profiles import Profiles
from dfrs.live.drivers.processes.stake import NO_NUMBERS, NO_RESOURCES, Numbers, Stake, stake_entries, stake_of
from dfrs.live.drivers.processes.time_limits import TimeLimits

FREEZE_S = 2.0
KILL_S = 5.0
MOVE_S = 5.0
LAST_WORDS_S = 1.0
LATE_S = 5.0
"""A task that has not ended so long after it was to is ended without its supervisor: agents ask again then."""
HUNG_S = 30.0
"""A supervisor that has not noticed by so long after that hangs, as in a write to a file system that is away."""
HUNG = "its supervisor hung and was ended, so what it wrote last may be missing"

log = structlog.get_logger(__name__)


class SupervisedDriver(Mechanism):
    """A driver whose tasks are children of supervisors. `output_bytes` bounds the output of forgotten tasks here."""

    images: Images | None = None
    """Where its tasks can be in images instead of in memory."""
    why_no_images = "they need control groups"

    def __init__(
        self,
        root: Path,
        node: str,
        cores: float,
        memory_bytes: int,
        output_bytes: int,
        resources: Mapping[str, int] = NO_RESOURCES,
    ) -> None:
        self.node, self.cores, self.memory_bytes, self.output_bytes = node, cores, memory_bytes, output_bytes
        self.files = TaskDirectory(root)
        self.profiles = Profiles(root, self.files)
        self._supervisors: dict[TaskId, subprocess.Popen[bytes]] = {}
        self._ended: dict[TaskId, Exit] = {}
        self._damaged: set[TaskId] = set()
        self._limits = TimeLimits(self.files)
        self._overdue: set[TaskId] = set()
        """Killed for their time limits, since their supervisors had not done so."""
        self._stop_at_s: dict[TaskId, float] = {}
        """When those that were asked to stop are to have ended."""
        self._beside = BesidePrograms(self.files)
        self._admission = Admission(self.files, node, memory_bytes, resources)

    def _recover(self) -> None:
        """Bring what an earlier agent left half done to an end."""
        for task in self.files.ids():
            # The lock of another node's task is held for long by whoever sends it to another host.
            if not self._has(task):
                continue
            with self.files.locked(task) as lock:
                owner = self._has(task) if lock is not None else None
                if owner is None:
                    continue
                if not self._is_here(task):
                    self._discard(task, owner, output=False)
                elif owner.came_from:
                    self._arrive(task, owner)

    def _is_here(self, task: TaskId) -> bool:
        """Whether it has been started or received, and not only been about to be. The caller holds its lock."""
        return bool(self.files.supervisor(task) or self.files.parked(task) or self.files.exit(task))

    def tasks(self) -> Sequence[TaskStatus]:
        """All tasks that this node has. One whose record is damaged is nobody's, and does not hide the others."""
        self._collect()
        mine: list[tuple[TaskId, Owner]] = []
        for task in self.files.ids():
            owner = self._owner(task)
            if owner is not None and owner.node == self.node:
                mine.append((task, owner))
        self.profiles.look([task for task, _ in mine])
        self._look_after(mine)
        statuses = [self._status(task, owner) for task, owner in mine]
        self._keep_limits(statuses, dict(mine))
        return [status for status in statuses if status.state is not TaskState.ABSENT]

    def _keep_limits(self, statuses: Sequence[TaskStatus], owners: Mapping[TaskId, Owner]) -> None:
        """End what runs long after its time was up. Waits for nothing: the next look sees what came of it."""
        for task, late_s in self._limits.look(statuses):
            # Who has its lock may be ending it just now.
            if late_s < HUNG_S or self.files.busy(task):
                continue
            place = self.files.place(task, owners[task])
            if place.members():
                self._overdue.add(task)
                place.kill(0.0)
            elif task in self._overdue and late_s >= 2 * HUNG_S:
                self._end_hung(task, ExitKind.TIME_LIMIT)

    def _owner(self, task: TaskId) -> Owner | None:
        """Who has it; None without such a task, or where the record of it is damaged, which is logged once."""
        try:
            return self.files.owner(task)
        except DriverError as error:
            if task not in self._damaged:
                self._damaged.add(task)
                log.error("damaged record", problem=str(error))
            return None

    def _has(self, task: TaskId) -> Owner | None:
        """The record of who has it, if that is this node."""
        owner = self._owner(task)
        return owner if owner is not None and owner.node == self.node else None

    def _collect(self) -> None:
        for task in [task for task, process in list(self._supervisors.items()) if process.poll() is not None]:
            self._supervisors.pop(task, None)
            if not self._is_here(task):
                # It could not begin, as on a full disk. What stays even so, the next agent removes.
                with contextlib.suppress(DriverError, OSError):
                    self._discard_unbegun(task)

    def _discard_unbegun(self, task: TaskId) -> None:
        """Remove what was made for a task that has not begun: nobody may ask for it again."""
        with self.files.locked(task) as lock:
            owner = self._owner(task) if lock is not None else None
            if owner is not None and owner.node == self.node and not self._is_here(task):
                self._discard(task, owner, output=False)

    def _status(self, task: TaskId, owner: Owner) -> TaskStatus:
        status = partial(TaskStatus, task=task, transfers=owner.transfers)
        ended = self._ended.get(task) or self.files.exit(task)
        if ended is not None:
            self._ended[task] = ended
            return status(state=TaskState.EXITED, exit=ended)
        # Before the next question: what is parked and then in no image has gone on meanwhile, or was to end.
        parked = self.files.parked(task)
        if self.files.in_image(task):
            return status(state=TaskState.HANDED if owner.handed else TaskState.PAUSED)
        name = self.files.supervisor(task)
        if not name and not parked and not self.files.busy(task) and not self.files.supervisor(task):
            return status(state=TaskState.ABSENT)
        if (name or parked) and supervisor.living(name) is None:
            return status(state=TaskState.EXITED, exit=self._lost(task, owner, name))
        number = supervisor.read_text(f"{self.files.path(task)}/task.pid").partition(" ")[0]
        pid = int(number) if number else None
        if owner.handed:
            return status(state=TaskState.HANDED, pid=pid)
        if self.files.place(task, owner).frozen():
            freed = self.files.freed(task) if self.frees_memory else True
            return status(state=TaskState.PAUSED, pid=pid, kept=None if freed is None else not freed)
        if pid is None:
            return status(state=TaskState.STARTING)
        return status(state=TaskState.RUNNING, pid=pid, note=self._note(task))

    def _look_after(self, mine: Sequence[tuple[TaskId, Owner]]) -> None:
        """Find out what is wrong with tasks that run."""

    def _note(self, task: TaskId) -> str:
        """What is wrong with a task that runs, in a sentence."""
        return ""

    def _lost(self, task: TaskId, owner: Owner, name: str) -> Exit:
        if ended := self.files.exit(task):
            return ended
        if self.files.parked(task):
            # It was asked to, and no supervisor saw that.
            return self.files.conclude(task, Exit(kind=ExitKind.STOPPED, signal=signal.SIGKILL, time_s=time.time()))
        here = name.endswith(supervisor.BOOT)
        if here:
            # Without its supervisor nobody would see it end.
            self.files.place(task, owner).kill(KILL_S)
        why = "its supervisor was killed" if here else "the machine was started anew"
        return self.files.conclude(task, Exit(kind=ExitKind.LOST, time_s=time.time(), message=why))

    def start(self, task: TaskId, spec: TaskSpec, share_cores: float) -> None:
        """Run it, unless it runs or has run already."""
        if spec.memory_bytes > self.memory_bytes:
            raise DriverError(f"task {task}: needs {spec.memory_bytes} bytes; node {self.node} has {self.memory_bytes}")
        if self.files.supervisor(task):
            self._begin(task, spec, share_cores)
            return
        wants = Stake(memory_bytes=spec.memory_bytes, alone=spec.exclusive)
        with self._admission.admitted(task, wants, spec.resources) as numbers:
            self._begin(task, spec, share_cores, numbers)

    def _begin(self, task: TaskId, spec: TaskSpec, share_cores: float, numbers: Numbers = NO_NUMBERS) -> None:
        owner = Owner(node=self.node, place=self._place(task), carried={})
        extras = self._extras(task, spec, share_cores)
        if self.files.owner(task) is None:
            with self.profiles.prepared(task, spec) as (told, entries):
                mine = entries_of(task, told, self.node) + stake_entries(spec, numbers)
                self.files.create(task, owner, mine + extras + entries)
        with self.files.locked(task) as lock:
            known = self.files.owner(task)
            if lock is None or known is None:
                raise DriverError(f"task {task}: was forgotten while it was started: start it again")
            if known.node != self.node:
                raise DriverError(f"task {task}: node {known.node} of this host has it: hand it over first")
            if self.files.supervisor(task) or self.files.exit(task):
                return
            try:
                self._prepare(task, spec, share_cores)
                self._supervisors[task] = launch(self.files.path(task), lock)
            except BaseException:
                # Nobody may ask for it again. What went wrong first is what is told.
                with contextlib.suppress(DriverError, OSError):
                    self._discard(task, known, output=False)
                raise

    def _admitted(self, task: TaskId, memory_bytes: int | None = None) -> contextlib.AbstractContextManager[None]:
        """Give a task that has started memory, by default its requirement: see `Admission.admitted`."""
        memory_bytes = self._limit(task) if memory_bytes is None else memory_bytes
        return self._admission.readmitted(task, memory_bytes)

    def _limit(self, task: TaskId) -> int:
        return self.files.memory_bytes(task)

    def take(self, task: TaskId, share_cores: float) -> None:
        """Take over a task that another node of this host has handed."""
        with self.files.locked(task) as lock:
            owner = self.files.owner(task) if lock is not None else None
            if owner is None:
                raise DriverError(f"task {task}: not on this host: start it")
            if owner.node == self.node:
                if owner.handed:
                    owner = replace(owner, handed=False)
                    self.files.set_owner(task, owner)
                if owner.came_from:
                    self._arrive(task, owner)
            elif not owner.handed:
                raise DriverError(f"task {task}: node {owner.node} has not handed it over yet: try again")
            else:
                with self._admitted(task, 0 if self.files.freed(task) else None):
                    carried = self._move(task, owner)
                    taken = replace(
                        owner,
                        node=self.node,
                        handed=False,
                        came_from=owner.node,
                        place=self._place(task),
                        carried=carried,
                    )
                    self.files.set_owner(task, taken)
                self._arrive(task, taken)
        self._share(task, share_cores)

    def _arrive(self, task: TaskId, owner: Owner) -> None:
        self._leave(task, owner.came_from)
        self.files.set_owner(task, replace(owner, handed=False, came_from=""))

    def hand(self, task: TaskId) -> None:
        """Give it up for another node of this host."""
        with self.files.locked(task) as lock:
            owner = self.files.owner(task) if lock is not None else None
            if owner is not None and owner.node == self.node and not owner.handed:
                self.files.set_owner(task, replace(owner, handed=True))

    def send(self, task: TaskId, stream: BinaryIO) -> None:
        """See `base.Driver`."""
        self._mine(task)
        if not self._running(task):
            raise CheckpointRefusedError(f"task {task}: cannot be check-pointed: it has ended")
        if self.images is None or (self.images.max_bytes == 0 and not self.files.in_image(task)):
            raise CheckpointRefusedError(f"task {task}: cannot be check-pointed: {self.why_no_images}")
        spec = self.files.spec(task)
        if stake_of(spec).numbers:
            raise CheckpointRefusedError(f"task {task}: cannot be check-pointed: it has named resources of this node")
        if PROFILED in spec:
            # Its processes have the profiler's files mapped, which another host does not have.
            raise CheckpointRefusedError(f"task {task}: cannot be check-pointed: it is profiled on this host")
        frames, freed = Frames(stream), self.files.freed(task)
        try:
            self.images.checkpoint(task, frames)
        except ImageError as error:
            if self.files.in_image(task) or isinstance(error, TryAgainError):
                raise
            if freed:
                # CRIU has read it, so it is back: the pause is to free it again.
                self.files.forget_pause(task)
            raise CheckpointRefusedError(str(error)) from error
        self.images.send(task, frames, lambda: self._promise(task))

    def _promise(self, task: TaskId) -> History:
        """Let a task never go on here unless it is taken back. The caller holds its lock."""
        owner = self._mine(task)
        self.files.set_owner(task, replace(owner, handed=True))
        sync_directory(self.files.path(task))
        return History(
            transfers=owner.transfers + 1,
            carried=self._counted(task, owner),
            account=account_numbers(self.files.spec(task).get("account")),
        )

    def receive(self, task: TaskId, spec: TaskSpec, stream: BinaryIO) -> None:
        """See `base.Driver`."""
        if self.images is None or self.images.max_bytes == 0:
            raise DriverError(f"task {task}: cannot come from another host: {self.why_no_images}")
        if spec.memory_bytes > self.memory_bytes:
            raise DriverError(f"task {task}: needs {spec.memory_bytes} bytes; node {self.node} has {self.memory_bytes}")
        with self.files.locked(task) as lock:
            owner = self.files.owner(task) if lock is not None else None
            if owner is not None and owner.node != self.node:
                raise DriverError(f"task {task}: node {owner.node} of this host has it: hand it over first")
            if owner is not None and self._is_here(task):
                if owner.handed:
                    raise DriverError(f"task {task}: was given up here and not forgotten: forget it, or take it back")
                return
            if owner is not None:
                self._discard(task, owner, output=False)

        def create(history: History) -> None:
            # Its processes keep them: under others they would be another user's, or nobody's.
            if history.account is not None and history.account != account_numbers(spec.account):
                raise ImageError(f"task {task}: cannot be restored here: its account has other numbers here")
            arrived = Owner(
                node=self.node, transfers=history.transfers, place=self._place(task), carried=history.carried
            )
            self.files.drop_output(task)
            told = entries_of(task, spec, self.node) + stake_entries(spec, NO_NUMBERS)
            self.files.create(task, arrived, told + self._extras(task, spec, 0.0))

        try:
            self.images.receive(task, stream, create)
        except BaseException:
            self._discard_unbegun(task)
            raise

    def _mine(self, task: TaskId) -> Owner:
        owner = self.files.owner(task)
        if owner is None or owner.node != self.node:
            raise DriverError(f"task {task}: not on node {self.node}: start or take it first")
        return owner

    def _running(self, task: TaskId) -> bool:
        return task not in self._ended and self.files.exit(task) is None

    def set_share(self, task: TaskId, share_cores: float) -> None:
        """Its guaranteed CPU, in cores; nothing if it has ended."""
        self._mine(task)
        if self._running(task):
            self._share(task, share_cores)

    def pause(self, task: TaskId, *, keep: bool = False) -> None:
        """Stop it where it is; nothing if it has ended."""
        owner = self._mine(task)
        if not self._running(task) or self.files.in_image(task):
            return
        # Without control groups there is nothing yet to stop.
        if not owner.place and not os.path.exists(f"{self.files.path(task)}/task.pid"):
            raise DriverError(f"task {task}: is still starting: try again")
        try:
            confirmed = self.files.place(task, owner).freeze(FREEZE_S)
        except OSError as error:
            raise DriverError(f"task {task}: cannot be paused: {error}") from error
        if not confirmed:
            raise DriverError(f"task {task}: not all of it stopped within {FREEZE_S:g} s: try again")
        if not self.frees_memory:
            return
        try:
            if stake_of(self.files.spec(task)).numbers:
                raise PauseRefusedError(
                    f"task {task}: keeps its memory: it has named resources, and those stay its own"
                )
            self._free(task)
        except TryAgainError:
            # It may wait for itself to get on.
            self._go_on(task, owner)
            raise
        except PauseRefusedError:
            if not keep:
                self._go_on(task, owner)
                raise
            self.files.note_pause(task, freed=False)
        else:
            self.files.note_pause(task, freed=True)

    def resume(self, task: TaskId) -> None:
        """Let it go on; nothing if it has ended."""
        owner = self._mine(task)
        if self._running(task):
            with self._admitted(task):
                self._go_on(task, owner)

    def _go_on(self, task: TaskId, owner: Owner) -> None:
        self.files.forget_pause(task)
        if self.files.in_image(task):
            self._restore(task)
            return
        self._unfree(task)
        try:
            self.files.place(task, owner).thaw()
        except OSError as error:
            raise DriverError(f"task {task}: cannot go on: {error}") from error

    def _restore(self, task: TaskId) -> None:
        if self.images is None:
            raise DriverError(f"task {task}: cannot be restored: {self.why_no_images}")

        def begin(path: str, lock: int) -> None:
            self._supervisors[task] = launch(path, lock)

        self.images.restore(task, self._enter(task), begin)

    def stop(self, task: TaskId, grace_s: float) -> None:
        """Ask all its processes to end; kill what is left after `grace_s`. The first such request counts.

        Asked again when its supervisor should long have done so, it is done without.
        """
        self._mine(task)
        if not self._running(task):
            return
        grace_s = self.files.ask_to_stop(task, grace_s)
        pid = supervisor.living(self.files.supervisor(task))
        if pid is not None:
            self._favour(pid)
            supervisor.send([pid], signal.SIGUSR1)
        now_s = time.monotonic()
        late_s = now_s - self._stop_at_s.setdefault(task, now_s + grace_s)
        if late_s >= LATE_S:
            self._stop_late(task, late_s)

    def _stop_late(self, task: TaskId, late_s: float) -> None:
        self._kill(task, self._mine(task))
        if not self._running(task):
            return
        if late_s < HUNG_S or not self.files.supervisor(task):
            # It may be slow, as on a busy disk, or yet to come.
            raise DriverError(f"task {task}: was killed, and its supervisor has not seen that: try again")
        self._end_hung(task, ExitKind.STOPPED)

    def _end_hung(self, task: TaskId, kind: ExitKind) -> None:
        """Do what its supervisor does not, once it has no processes: say how it ended."""
        self._end_supervisor(task)
        how = Exit(kind=kind, signal=signal.SIGKILL, time_s=time.time(), message=HUNG)
        self._ended[task] = self.files.conclude(task, how)

    def _end_supervisor(self, task: TaskId) -> None:
        """It ends once the kernel lets it, and does not keep the task's groups meanwhile."""
        if (pid := supervisor.living(self.files.supervisor(task))) is not None:
            self._favour(pid)
            supervisor.send([pid], signal.SIGKILL)

    def forget(self, task: TaskId) -> None:
        """Remove every trace of it but its output; nothing if it is not here."""
        with self.files.locked(task) as lock:
            owner = self.files.owner(task) if lock is not None else None
            if owner is None or owner.node != self.node:
                return
            self._kill(task, owner)
        # Its supervisor, which needs the lock to end, stores what the task said last.
        until = time.monotonic() + LAST_WORDS_S
        while (
            supervisor.living(self.files.supervisor(task))
            and not self.files.in_image(task)
            and time.monotonic() < until
        ):
            # The program may only just have been started.
            self._kill(task, owner)
            time.sleep(0.002)
        with self.files.locked(task) as lock:
            owner = self.files.owner(task) if lock is not None else None
            if owner is not None and owner.node == self.node:
                self._discard(task, owner, output=task.job != NO_JOB)
        self.files.prune_output(self.output_bytes)

    def _kill(self, task: TaskId, owner: Owner) -> None:
        if not self.files.place(task, owner).kill(KILL_S):
            raise DriverError(f"task {task}: its processes did not end within {KILL_S:g} s: try again")

    def _discard(self, task: TaskId, owner: Owner, *, output: bool = True) -> None:
        self._kill(task, owner)
        self._end_supervisor(task)
        for node in filter(None, (owner.came_from, owner.node)):
            self._clear(task, node)
        until = time.monotonic() + KILL_S
        while supervisor.living(self.files.supervisor(task)) and time.monotonic() < until:
            time.sleep(0.001)
        self.profiles.forget(task)
        images = self.files.images(task)
        self.files.remove(task, output=output)
        for path in images:
            shutil.rmtree(path, ignore_errors=True)
        self._ended.pop(task, None)
        self._stop_at_s.pop(task, None)
        self._overdue.discard(task)
        if process := self._supervisors.pop(task, None):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(KILL_S)

    def prune_output(self, max_bytes: int) -> None:
        """Remove the oldest output of forgotten tasks of this host if there is more than `max_bytes` of it."""
        self.files.prune_output(max_bytes)

    def output(self, task: TaskId, stream: Stream, offset: int, limit: int) -> tuple[bytes, int, int]:
        """See `base.Driver`."""
        if stream == "profile" and (document := self.profiles.document(task)) is not None:
            return document[offset : offset + limit], min(offset, len(document)), len(document)
        return self.files.output(task, stream, offset, limit)

    def write(self, task: TaskId, part: InputPart) -> int:
        """See `base.InteractiveDriver`."""
        self._mine(task)
        return self._beside.write(task, part)

    def execute(self, task: TaskId, program: ProgramSpec) -> None:
        """See `base.InteractiveDriver`."""
        with self.files.locked(task) as lock:
            owner = self._mine(task) if lock is not None else None
            if owner is None or not self._running(task) or self.files.in_image(task):
                raise DriverError(f"task {task}: does not run: no program can be started beside it")
            if self.files.place(task, owner).frozen():
                raise DriverError(f"task {task}: is paused: no program can be started beside it now")
            self._beside.put(task, program, self._joins(task))
        self._beside.await_start(task, program.name)

    def program_output(
        self, task: TaskId, program: str, stream: Stream, offset: int, limit: int
    ) -> tuple[bytes, int, int, int | None]:
        """See `base.InteractiveDriver`."""
        return self._beside.output(task, program, stream, offset, limit)

    def note_read(self, task: TaskId, program: str | None, stream: Stream, offset: int) -> None:
        """See `base.FollowedDriver`."""
        self._beside.note_read(task, program, stream, offset)

    def sweep(self) -> tuple[int, list[str]]:
        """See `base.Driver`."""
        ended, problems = 0, list[str]()
        for task in self.files.ids():
            owner = self._owner(task)
            if owner is None or owner.node != self.node:
                continue
            ended += bool(self.files.place(task, owner).members())
            try:
                self.forget(task)
            except (DriverError, OSError) as error:
                problems.append(str(error))
        if (images := self.files.tasks.parent / IMAGES).exists():
            remove_strays(images, self.files)
        try:
            self.remove_node()
        except DriverError as error:
            problems.append(str(error))
        return ended, problems

    def close(self) -> None:
        """Nothing is held; tasks run on."""
        self._collect()
