"""Tasks that run under the MPI profiler: prepared for it, followed while they run, told of when somebody asks.

What the ranks count in is a directory of the task's own in shared memory, named in the task's `spec`; so whichever
agent has the task can read it. The library to preload lies there too: accounts can reach neither the agent's cache nor
the directory of tasks. What reads them is loaded with the first such task.

The directory is of the task's account, which can put there what it likes: only who asks for that task's profile waits
until it is read.
"""

import os
import pwd
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from dfrs.live.drivers.base import DriverError, RefusedError, TaskId, TaskSpec
from dfrs.live.drivers.processes.directory import STALE_S, TaskDirectory
from dfrs.model.errors import DfrsError, InputError
from dfrs.profiling.build import profiler, toolchain
from dfrs.profiling.preload import environment, shared_memory

if TYPE_CHECKING:
    from dfrs.profiling.following import Follower

LOOK_S = 1.0
"""Memory is looked at so often, and a rank that is killed is known up to then."""
LOOKING_PART = 0.1
"""The most of the time that is spent on looks."""
REMOVE_S = 10.0
"""So long a directory is emptied: somebody may fill it all the while."""
ENTRY = "profile"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

log = structlog.get_logger(__name__)


class Profiles:
    """Of the tasks of one host, which are kept below `root`. Usable by several threads."""

    def __init__(self, root: Path, files: TaskDirectory) -> None:
        self._files = files
        self.prefix = f"dfrs-task-{sha256(os.fsencode(root.resolve())).hexdigest()[:8]}-"
        self._lock = threading.Lock()
        self._followers: dict[TaskId, Follower | None] = {}
        self._looking = False
        self._look_at_s = 0.0
        self._forget_strays()

    @contextmanager
    def prepared(self, task: TaskId, spec: TaskSpec) -> Generator[tuple[TaskSpec, list[tuple[str, str]]]]:
        """The task as it is to be recorded, and what else its supervisor is told; of one that is not profiled, itself.

        What was made for it is removed if recording it raises. Raises RefusedError, DriverError.
        """
        if not spec.profile:
            yield spec, []
            return
        try:
            library = profiler(toolchain())
        except DfrsError as error:
            raise RefusedError(f"profile: {error}") from None
        try:
            place = Path(tempfile.mkdtemp(prefix=self.prefix, dir=shared_memory()))
        except OSError as error:
            raise DriverError(f"task {task}: cannot be profiled: {error}") from error
        try:
            shutil.copyfile(library, copy := place / library.name)
            copy.chmod(0o555)
            if spec.account is not None:
                account = pwd.getpwnam(spec.account)
                os.chown(place, account.pw_uid, account.pw_gid)
            told = environment(spec.environment, copy, place)
            yield spec.model_copy(update={"environment": told}), [(ENTRY, str(place))]
        except OSError as error:
            _remove(place)
            raise DriverError(f"task {task}: cannot be profiled: {error}") from error
        except DriverError:
            _remove(place)
            raise

    def look(self, tasks: list[TaskId]) -> None:
        """Follow the ranks of these tasks, and of no others, if it is time to. Nobody waits for that."""
        with self._lock:
            if self._looking or time.monotonic() < self._look_at_s:
                return
            self._followers = {task: self._follower(task) for task in tasks}
            followed = {task: follower for task, follower in self._followers.items() if follower is not None}
            self._look_at_s = time.monotonic() + LOOK_S
            if followed:
                # It cannot say that it is done before this lock is free.
                threading.Thread(target=self._follow, args=(followed,), name="dfrs-profiles", daemon=True).start()
                self._looking = True

    def _follow(self, followed: "Mapping[TaskId, Follower]") -> None:
        begun_s = time.monotonic()
        for task, follower in followed.items():
            try:
                follower.look()
            except Exception:
                log.exception("its ranks cannot be looked at", task=str(task))
        ended_s = time.monotonic()
        with self._lock:
            self._look_at_s = max(begun_s + LOOK_S, ended_s + (ended_s - begun_s) / LOOKING_PART)
            self._looking = False

    def document(self, task: TaskId) -> bytes | None:
        """What is known of a task now, as JSON; None for one that is not profiled."""
        with self._lock:
            follower = self._follower(task)
        try:
            return None if follower is None else follower.document()
        except InputError as error:
            raise DriverError(f"task {task}: {error}") from error

    def forget(self, task: TaskId) -> None:
        """Remove what the ranks of an ended task counted in, and keep what it came to beside its output."""
        place = self._place(task)
        if place is None:
            return
        try:
            self._files.write(task, f"{ENTRY}.0", self.document(task) or b"")
        except DriverError as error:
            # No room, or damaged: a task can be forgotten all the same.
            log.warning("no profile is kept", task=str(task), why=str(error))
        with self._lock:
            self._followers.pop(task, None)
        _remove(place)

    def _follower(self, task: TaskId) -> "Follower | None":
        if task not in self._followers:
            self._followers[task] = None
            if (place := self._place(task)) is not None:
                from dfrs.profiling.following import Follower  # noqa: PLC0415 - agents of other tasks need no numpy

                self._followers[task] = Follower(place, str(task.job))
        return self._followers[task]

    def _place(self, task: TaskId) -> Path | None:
        named = self._files.spec(task).get(ENTRY)
        return None if named is None else Path(named)

    def _forget_strays(self) -> None:
        """An agent that was killed may have made a directory for a task that it did not come to start."""
        named = {self._place(task) for task in self._files.ids()}
        others: list[Path] = []
        for place in shared_memory().glob(f"{self.prefix}*"):
            with suppress(FileNotFoundError):
                about = place.lstat()
                if place in named or time.time() - about.st_mtime <= STALE_S:
                    continue
                if about.st_uid == os.geteuid():
                    _remove(place)
                else:
                    others.append(place)
        if others:
            # Any account can make what is called so.
            log.warning("of no task, and not the agent's: it stays", path=str(others[0]), others=len(others) - 1)


def _remove(place: Path) -> None:
    """Remove a directory that others write, however deep it is. What cannot be removed stays.

    No path leads into it, which may lead elsewhere by the time it is used: what is below a directory in it comes up
    into it, until none has another.
    """
    until_s = time.monotonic() + REMOVE_S
    try:
        top = os.open(place, _DIRECTORY)
        try:
            names = _emptied(top)
            while names and time.monotonic() < until_s:
                with suppress(OSError):
                    _bring_up(names.pop(), top, names)
        finally:
            os.close(top)
        place.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("cannot be removed", path=str(place), why=str(error))


def _bring_up(name: str, top: int, names: list[str]) -> None:
    """Remove a directory in `top`; those in it come to be in `top`, by new names that are added to `names`."""
    directory = os.open(name, _DIRECTORY, dir_fd=top)
    try:
        for below in _emptied(directory):
            with suppress(OSError):
                os.rename(below, new := uuid.uuid4().hex, src_dir_fd=directory, dst_dir_fd=top)
                names.append(new)
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=top)


def _emptied(directory: int) -> list[str]:
    """The directories in one, once all else in it is removed."""
    names: list[str] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                names.append(entry.name)
            else:
                with suppress(OSError):
                    os.unlink(entry.name, dir_fd=directory)
    return names
