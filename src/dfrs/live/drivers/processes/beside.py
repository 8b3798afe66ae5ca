"""What users do with tasks that run: send them input, and start programs beside them."""

import base64
import contextlib
import errno
import os
import shutil
import signal
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from dfrs.live.drivers.base import DriverError, InputPart, NotYetError, ProgramSpec, Stream, TaskId
from dfrs.live.drivers.processes.directory import TaskDirectory, output_of
from dfrs.live.drivers.processes.launching import input_entries, waits_entry
from dfrs.live.drivers.processes.supervisor import (
    BESIDE,
    INPUT,
    READS,
    SIGNALS,
    WITHDRAWN,
    answered,
    living,
    pack,
    read_text,
    replace_file,
    send,
    unpack,
)

MOST = 16
"""Programs that may run beside a task; and of those that have ended, so many are remembered."""
START_S = 10.0
"""So long a supervisor may take to start one."""
MESSAGE_BYTES = 4096 - 128
"""Of input in one message, which with its first line is at most PIPE_BUF bytes."""


class BesidePrograms:
    """The programs beside all tasks of a host, and the inputs of both."""

    def __init__(self, files: TaskDirectory) -> None:
        self._files = files

    def _path(self, task: TaskId, program: str | None) -> str:
        path = self._files.path(task)
        return path if program is None else f"{path}/{BESIDE}/{program}"

    def write(self, task: TaskId, part: InputPart) -> int:
        """See `base.InteractiveDriver.write`."""
        path = self._path(task, part.program)
        what = f"task {task}" if part.program is None else f"task {task}: program {part.program}"
        if os.path.exists(f"{path}/exit" if part.program else f"{path}/exit.json"):
            raise DriverError(f"{what}: has ended")
        if part.signal is not None:
            # The supervisor of an earlier version has one pipe for all.
            ahead = SIGNALS if os.path.exists(f"{path}/{SIGNALS}") else INPUT
            _send(f"{path}/{ahead}", what, [(f"signal {part.signal}\n".encode(), 0)])
        return _send(f"{path}/{INPUT}", what, _messages(part))

    def put(self, task: TaskId, program: ProgramSpec, joins: list[tuple[str, str]]) -> None:
        """Have the task's supervisor start a program, unless it has been. The caller holds the task's lock."""
        folder, path = self._path(task, None) + f"/{BESIDE}", self._path(task, program.name)
        if not os.path.exists(path):
            self._make_room(task, Path(folder))
            entries = [("command", word) for word in program.command]
            entries += [("environment", f"{name}={value}") for name, value in program.environment.items()]
            fresh = f"{folder}/.{program.name}.{uuid.uuid4().hex}"
            try:
                os.makedirs(fresh, mode=0o700)
                replace_file(f"{fresh}/spec", pack([*entries, *input_entries(program), waits_entry(), *joins]))
                os.rename(fresh, path)
            except (OSError, ValueError) as error:
                shutil.rmtree(fresh, ignore_errors=True)
                raise DriverError(f"task {task}: cannot write {path}: {error}") from error
        self._wake(task)

    def await_start(self, task: TaskId, program: str) -> None:
        """Return once it runs. Raises DriverError that says why it does not, nor will later."""
        path, until = self._path(task, program), time.monotonic() + START_S
        while not os.path.exists(f"{path}/started"):
            if os.path.exists(f"{path}/error"):
                raise DriverError(f"task {task}: could not be started: {read_text(f'{path}/error')}")
            if living(self._files.supervisor(task)) is None or not os.path.exists(path):
                raise DriverError(f"task {task}: has ended")
            if time.monotonic() > until:
                if not answered(path, WITHDRAWN):
                    # It has begun, and on a full disk no more than that is said of it.
                    return
                # As where it came into a pause. One that an earlier version has started knows nothing of it.
                self._wake(task)
                raise DriverError(f"task {task}: its supervisor did not start the program within {START_S:g} s")
            time.sleep(0.002)

    def _wake(self, task: TaskId) -> None:
        if (pid := living(self._files.supervisor(task))) is not None:
            send([pid], signal.SIGUSR1)

    def output(
        self, task: TaskId, program: str, stream: Stream, offset: int, limit: int
    ) -> tuple[bytes, int, int, int | None]:
        """See `base.InteractiveDriver.program_output`."""
        path = self._path(task, program)
        # Asked before the output, which is whole once it has ended.
        ended = read_text(f"{path}/exit").split()
        found = output_of(path, f"{stream}.", offset, limit)
        if found is None:
            raise DriverError(f"task {task}: program {program}: is not there: it, or the task, ended a while ago")
        code = None if not ended else int(ended[1]) if ended[0] == "code" else -int(ended[1])
        return *found, code

    def note_read(self, task: TaskId, program: str | None, stream: Stream, offset: int) -> None:
        """See `base.FollowedDriver`."""
        # There is no such pipe where nobody is waited for. In one that is full is a later note of the same kind.
        with contextlib.suppress(OSError):
            pipe = os.open(f"{self._path(task, program)}/{READS}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.write(pipe, f"{stream} {offset}\n".encode())
            finally:
                os.close(pipe)

    def runs(self, task: TaskId) -> bool:
        """Whether a program runs beside it."""
        folder = Path(self._path(task, None), BESIDE)
        return folder.exists() and any(not _is_over(path) for path in folder.iterdir())

    def _make_room(self, task: TaskId, folder: Path) -> None:
        if not folder.exists():
            return
        there = sorted(
            (path for path in folder.iterdir() if path.name[0] != "."), key=lambda path: path.stat().st_mtime
        )
        over = [path for path in there if _is_over(path)]
        if len(there) - len(over) >= MOST:
            raise DriverError(f"task {task}: {MOST} programs run beside it already: end one first")
        for path in over[: max(0, len(over) - MOST)]:
            shutil.rmtree(path, ignore_errors=True)


def _is_over(path: Path) -> bool:
    return (path / "exit").exists() or (path / "error").exists()


def _send(name: str, what: str, messages: Iterable[tuple[bytes, int]]) -> int:
    """Send messages to a supervisor by the pipe of that name, as many as it takes; bytes of input in these.

    Raises DriverError; NotYetError where it does not take one that has no bytes.
    """
    try:
        pipe = os.open(name, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise DriverError(f"{what}: has ended") from None
        if "input" in dict(unpack(read_text(f"{os.path.dirname(name)}/spec"))):
            raise NotYetError(f"{what}: is still starting: try again") from None
        raise DriverError(f"{what}: was started without input") from None
    taken = 0
    try:
        for message, size in messages:
            try:
                os.write(pipe, message)
            except BlockingIOError:
                # It is full, and takes whole messages or nothing.
                if size == 0:
                    raise NotYetError(f"{what}: has not read its input yet: try again") from None
                break
            taken += size
    except OSError as error:
        raise DriverError(f"{what}: takes no input: {error.strerror}") from None
    finally:
        os.close(pipe)
    return taken


def _messages(part: InputPart) -> Iterator[tuple[bytes, int]]:
    """What the supervisor is told of it, signals apart, with the bytes of input in each."""
    data = base64.b64decode(part.data)
    if part.size is not None:
        yield f"size {part.size.rows} {part.size.columns}\n".encode(), 0
    for begin in range(0, len(data), MESSAGE_BYTES):
        piece = data[begin : begin + MESSAGE_BYTES]
        yield f"data {part.writer} {part.offset + begin} {len(piece)}\n".encode() + piece, len(piece)
    if part.end:
        yield f"end {part.writer} {part.offset + len(data)}\n".encode(), 0
