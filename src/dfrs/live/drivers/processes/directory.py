"""The directory in which the nodes of one host keep their tasks: what is on disk is all that a driver knows.

A task's directory appears and vanishes whole, by rename. Its lock is held by whoever changes its owner or ends it, and
by its supervisor from before that exists until it is on record in `supervisor.pid`; so whoever holds the lock and finds
no `supervisor.pid` knows that no supervisor will come.
"""

import contextlib
import fcntl
import math
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from dfrs.live.drivers.base import DriverError, Exit, ExitKind, Stream, TaskId
from dfrs.live.drivers.processes.supervisor import (
    Place,
    living,
    pack,
    read_link,
    read_text,
    remove,
    replace_file,
    unpack,
)

BLOCK_BYTES = 4096
STALE_S = 60.0
"""Age at which a directory that was being made or removed belongs to nobody."""
LOOK_S = 60.0
"""Output of all forgotten tasks is looked at so often, if any is forgotten: other nodes of the host have some there."""
PRUNED_PART = 0.9
"""Of the room for output, what is used after pruning: there need be none again for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Which node has a task. `place` is for the supervisor; `carried` was counted before it came to this node."""

    node: str
    handed: bool = False
    came_from: str = ""
    """The node that it is being taken from; empty when nothing of it is there any more."""
    transfers: int = 0
    """How often it has come from another host."""
    place: Mapping[str, str]
    carried: Mapping[str, float]


class TaskDirectory:
    """All tasks of one host, under one root."""

    def __init__(self, root: Path) -> None:
        self.tasks = root / "tasks"
        self.kept = root / "output"
        self._counting = threading.Lock()
        self._kept_bytes = 0
        """Of output of forgotten tasks: what there was at the last look, and what was added here since."""
        self._look_at_s = -math.inf
        try:
            for path in (self.tasks, self.kept):
                path.mkdir(parents=True, exist_ok=True)
            self.tasks.chmod(0o711)
        except OSError as error:
            raise DriverError(f"{root}: cannot keep tasks here: {error.strerror}; choose another directory") from error
        for entry in self.tasks.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if entry.name.startswith(".") and time.time() - entry.stat().st_mtime > STALE_S:
                    shutil.rmtree(entry, ignore_errors=True)

    def path(self, task: TaskId) -> str:
        """Where a task is, if it is."""
        return f"{self.tasks}/{task}"

    def ids(self) -> list[TaskId]:
        """All tasks of the host."""
        found = (TaskId.parse(name) for name in os.listdir(self.tasks))
        return sorted(filter(None, found), key=lambda task: (task.job, task.rank, task.attempt, task.generation))

    @contextlib.contextmanager
    def locked(self, task: TaskId) -> Generator[int | None]:
        """Hold a task's lock; None if there is no such task."""
        while True:
            try:
                file = os.open(f"{self.path(task)}/lock", os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                yield None
                return
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                # It may have been removed, and perhaps made again, in the meantime.
                if is_at(file, f"{self.path(task)}/lock"):
                    yield file
                    return
            finally:
                os.close(file)

    def busy(self, task: TaskId) -> bool:
        """Whether someone holds its lock."""
        try:
            file = os.open(f"{self.path(task)}/lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        return False

    def create(self, task: TaskId, owner: Owner, spec: list[tuple[str, str]]) -> None:
        """Make a task's directory; nothing if it is there. Raises DriverError."""
        temporary = self.tasks / f".new.{task}.{uuid.uuid4().hex}"
        try:
            temporary.mkdir(mode=0o700)
            replace_file(f"{temporary}/spec", pack(spec))
            replace_file(f"{temporary}/owner", _packed(owner))
            (temporary / "lock").touch(mode=0o600)
            temporary.rename(self.path(task))
        except (OSError, ValueError) as error:
            shutil.rmtree(temporary, ignore_errors=True)
            if not os.path.exists(f"{self.path(task)}/owner"):
                raise DriverError(f"task {task}: cannot write {self.path(task)}: {error}") from error

    def spec(self, task: TaskId) -> dict[str, str]:
        """What its supervisor was told; of entries that repeat, the last."""
        return dict(unpack(read_text(f"{self.path(task)}/spec")))

    def memory_bytes(self, task: TaskId) -> int:
        """Its memory requirement; 0 where a version that did not note it has started the task."""
        return int(self.spec(task).get("memory_bytes", "0"))

    def owner(self, task: TaskId) -> Owner | None:
        """Who has it; None without such a task.

        Raises DriverError where the file is damaged, and OSError where it cannot be read now: a task that is there is
        not to be taken for one that is not.
        """
        text = _text_of(f"{self.path(task)}/owner")
        if not text:
            return None
        entries = dict(unpack(text))
        try:
            carried = {key[8:]: float(value) for key, value in entries.items() if key.startswith("carried_")}
            return Owner(
                node=entries.pop("node"),
                handed=entries.pop("handed") == "1",
                came_from=entries.pop("came_from"),
                transfers=int(entries.pop("transfers", "0")),
                place={key: value for key, value in entries.items() if not key.startswith("carried_")},
                carried=carried,
            )
        except (KeyError, ValueError) as error:
            raise DriverError(
                f"task {task}: {self.path(task)}/owner is damaged; end its processes and remove the directory"
            ) from error

    def set_owner(self, task: TaskId, owner: Owner) -> None:
        """Write who has it. Raises DriverError."""
        self.write(task, "owner", _packed(owner))

    def write(self, task: TaskId, name: str, data: bytes) -> None:
        """Replace one of its files. Raises DriverError."""
        try:
            replace_file(f"{self.path(task)}/{name}", data)
        except OSError as error:
            raise DriverError(f"task {task}: {self.path(task)}/{name}: {error.strerror}") from error

    def ask_to_stop(self, task: TaskId, grace_s: float) -> float:
        """Leave the request for its supervisor; an earlier one stays. The grace that counts. Raises DriverError."""
        path = f"{self.path(task)}/stop"
        try:
            # A link needs no room for data: a task can be ended also when the disk is full.
            os.symlink(repr(grace_s), path)
        except FileExistsError:
            return float(read_link(path) or grace_s)
        except OSError as error:
            raise DriverError(f"task {task}: {path}: {error.strerror}") from error
        return grace_s

    def in_image(self, task: TaskId) -> bool:
        """Whether it is in an image instead of in memory, or its supervisor is about to bring that about."""
        path = self.path(task)
        if not os.path.lexists(f"{path}/image"):
            return False
        if living(self.supervisor(task)) is not None:
            return True
        # Nobody else would end it.
        return self.parked(task) and not os.path.lexists(f"{path}/stop")

    def parked(self, task: TaskId) -> bool:
        """Whether it is in an image and has no processes, whatever else is to become of it."""
        return all(os.path.lexists(f"{self.path(task)}/{link}") for link in ("image", "parked"))

    def images(self, task: TaskId) -> list[str]:
        """The directories of its images."""
        return [path for link in ("image", "spent") if (path := read_link(f"{self.path(task)}/{link}"))]

    def note_pause(self, task: TaskId, *, freed: bool) -> None:
        """Remember that a paused task's memory was freed, or stays. Raises DriverError."""
        path = f"{self.path(task)}/paused"
        try:
            self.forget_pause(task)
            # As above: on a full disk, too.
            os.symlink("freed" if freed else "kept", path)
        except OSError as error:
            raise DriverError(f"task {task}: {path}: {error.strerror}") from error

    def forget_pause(self, task: TaskId) -> None:
        """It is about to go on."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self.path(task)}/paused")

    def freed(self, task: TaskId) -> bool | None:
        """Whether a paused task's memory was freed; None where that is not settled."""
        if self.in_image(task):
            return True
        try:
            return os.readlink(f"{self.path(task)}/paused") == "freed"
        except OSError:
            return None

    def supervisor(self, task: TaskId) -> str:
        """The identity of its supervisor, living or not; empty if it never had one."""
        return read_text(f"{self.path(task)}/supervisor.pid")

    def place(self, task: TaskId, owner: Owner) -> Place:
        """Where its processes are."""
        main = read_text(f"{self.path(task)}/task.pid")
        return Place(dict(owner.place), living(self.supervisor(task)), main)

    def exit(self, task: TaskId) -> Exit | None:
        """How it ended, if it has."""
        path = f"{self.path(task)}/exit.json"
        text = read_text(path)
        try:
            return Exit.model_validate_json(text) if text else None
        except ValueError:
            # It has ended, or there would be no such file.
            with contextlib.suppress(FileNotFoundError):
                return Exit(kind=ExitKind.LOST, time_s=os.stat(path).st_mtime, message=f"{path} cannot be read")
            return None

    def conclude(self, task: TaskId, how: Exit) -> Exit:
        """Record an end that no supervisor saw, unless one is on record by now; which it is."""
        with self.locked(task) as lock:
            if lock is not None and (known := self.exit(task)):
                return known
            # A full disk: it will be found so again.
            with contextlib.suppress(DriverError, FileNotFoundError):
                self.write(task, "exit.json", how.model_dump_json().encode())
        return how

    def remove(self, task: TaskId, *, output: bool = True) -> None:
        """Remove its directory but keep its output, unless told not to.

        The caller holds its lock, and its processes are gone.
        """
        path = self.path(task)
        gone = f"{self.tasks}/.gone.{task}.{uuid.uuid4().hex}"
        kept_bytes = 0
        try:
            for stream in get_args(Stream) if output else ():
                for start in _segments(path, f"{stream}."):
                    kept_bytes += _room_bytes(os.stat(f"{path}/{stream}.{start}"))
                    os.rename(f"{path}/{stream}.{start}", f"{self.kept}/{task}.{stream}.{start}")
            os.rename(path, gone)
        except OSError as error:
            raise DriverError(f"task {task}: cannot remove {path}: {error.strerror}") from error
        finally:
            with self._counting:
                self._kept_bytes += kept_bytes
        shutil.rmtree(gone, ignore_errors=True)

    def drop_output(self, task: TaskId) -> None:
        """Remove what was kept of a task that comes back with all of its output. Raises DriverError."""
        try:
            for stream in get_args(Stream):
                for start in _segments(str(self.kept), f"{task}.{stream}."):
                    remove(f"{self.kept}/{task}.{stream}.{start}")
        except OSError as error:
            raise DriverError(f"task {task}: cannot remove its former output: {error.strerror}") from error

    def prune_output(self, max_bytes: int) -> None:
        """Remove the output of forgotten tasks, oldest first, once it is more than `max_bytes`.

        A look at all of it takes a second where it is of very many tasks, so not each of them may need one.
        """
        with self._counting:
            now_s = time.monotonic()
            if self._kept_bytes <= max_bytes and now_s < self._look_at_s:
                return
            # What is added while one looks counts for the next look, and needs none of its own.
            self._kept_bytes, self._look_at_s = 0, now_s + LOOK_S
        left_bytes = self._pruned(max_bytes)
        with self._counting:
            self._kept_bytes += left_bytes

    def _pruned(self, max_bytes: int) -> int:
        """What is left of the output of forgotten tasks."""
        files: list[tuple[float, int, str]] = []
        with os.scandir(self.kept) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    stat = entry.stat()
                    files.append((stat.st_mtime, _room_bytes(stat), entry.path))
        total = sum(size for _, size, _ in files)
        if total <= max_bytes:
            return total
        for _, size, path in sorted(files):
            if total <= PRUNED_PART * max_bytes:
                break
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            total -= size
        return total

    def output(self, task: TaskId, stream: Stream, offset: int, limit: int) -> tuple[bytes, int, int]:
        """See `base.Driver.output`."""
        # The task may be forgotten between looking here and there.
        for _ in range(5):
            for directory, prefix in ((self.path(task), f"{stream}."), (str(self.kept), f"{task}.{stream}.")):
                if (found := output_of(directory, prefix, offset, limit)) is not None:
                    return found
        if os.path.exists(self.path(task)):
            return b"", 0, 0
        raise DriverError(f"task {task}: no {stream} output on this host: it never ran here, or it was pruned")


def _room_bytes(stat: os.stat_result) -> int:
    # An empty file, too, takes room.
    return max(stat.st_size, BLOCK_BYTES)


def output_of(directory: str, prefix: str, offset: int, limit: int) -> tuple[bytes, int, int] | None:
    """As `base.Driver.output`, of the output whose files there begin with `prefix`; None without any."""
    # A file may be rotated away between listing and reading.
    for _ in range(5):
        with contextlib.suppress(FileNotFoundError):
            if segments := _segments(directory, prefix):
                return _read(lambda start: f"{directory}/{prefix}{start}", segments, offset, limit)
    return None


def _segments(directory: str, prefix: str) -> list[int]:
    """Where the files of an output begin, in order."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    ends = (name[len(prefix) :] for name in names if name.startswith(prefix))
    # One that was being written when the machine went down has another end.
    return sorted(int(end) for end in ends if end.isdecimal())


def _read(path: Callable[[int], str], segments: list[int], offset: int, limit: int) -> tuple[bytes, int, int]:
    end = segments[-1] + os.stat(path(segments[-1])).st_size
    begin = min(max(offset, segments[0]), end)
    data = b""
    for start, stop in zip(segments, [*segments[1:], end], strict=True):
        position = begin + len(data)
        if start <= position < stop and len(data) < limit:
            with open(path(start), "rb") as file:
                file.seek(position - start)
                data += file.read(min(limit - len(data), stop - position))
    return data, begin, end


def is_at(file: int, path: str) -> bool:
    """Whether what was opened there is still there."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def _text_of(path: str) -> str:
    """What a file holds; empty without one. Raises OSError."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return ""


def _packed(owner: Owner) -> bytes:
    entries = [("node", owner.node), ("handed", str(int(owner.handed))), ("came_from", owner.came_from)]
    entries.append(("transfers", str(owner.transfers)))
    entries += owner.place.items()
    entries += [(f"carried_{name}", repr(value)) for name, value in owner.carried.items()]
    return pack(entries)
