"""Child processes that are kept running: started again when they die, their output in files of bounded size."""

import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from dfrs.model.errors import DfrsError, ReplacedError

LOG_BYTES = 4 << 20
"""Size at which a log becomes the old one, of which one is kept."""
FIRST_PAUSE_S, LAST_PAUSE_S = 0.5, 30.0
WELL_S = 60.0
"""After running so long, a child's earlier deaths are forgotten."""
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class ChildError(DfrsError):
    """A child ended before it was ready: the message has its last words."""


class BoundedLog:
    """A file that is put aside when it has grown to `limit` bytes."""

    def __init__(self, path: Path, limit: int = LOG_BYTES) -> None:
        self.path, self._limit = path, limit
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)

    def write(self, data: bytes) -> None:
        """Append; a full disk loses the words, not the process that says them."""
        try:
            if self._file.tell() + len(data) > self._limit:
                # It is aside already where a new one could not be made since.
                with suppress(FileNotFoundError):
                    self.path.replace(self.path.with_suffix(".old.log"))
                full, self._file = self._file, self.path.open("ab", buffering=0)
                full.close()
            self._file.write(data)
        except OSError:
            return

    def last_words(self, most: int = 300) -> str:
        """The last line that says something."""
        lines = [line for line in self.path.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip()[-most:] if lines else "it said nothing"


@dataclass(slots=True, kw_only=True)
class Child:
    """A command that is to run all the time."""

    name: str
    command: tuple[str, ...]
    files: tuple[int, ...]
    """Open files that it inherits, under the same numbers."""
    log: BoundedLog
    process: "subprocess.Popen[bytes]"
    started_s: float
    pause_s: float = FIRST_PAUSE_S
    again_s: float | None = None
    """When it is started again, on the monotonic clock."""
    copier: threading.Thread = field(repr=False)

    def end(self) -> str:
        """Its last words, once it has ended."""
        self.copier.join(2.0)
        return self.log.last_words().removeprefix("dfrs: ")


class ChildProcesses:
    """Keeps children running. `say` gets a line about each death. Children do not outlive this process.

    To be used on the main thread: children die with the thread that started them.
    """

    def __init__(self, logs: Path, say: Callable[[str], None]) -> None:
        self._logs, self._say = logs, say
        self._children: dict[str, Child] = {}

    def start(self, name: str, command: Sequence[str], files: Sequence[int] = ()) -> None:
        """Run it from now on. It inherits these open files, which stay open here."""
        log = BoundedLog(self._logs / f"{name}.log")
        process, copier = _launch(command, log, files)
        self._children[name] = Child(
            name=name,
            command=tuple(command),
            files=tuple(files),
            log=log,
            process=process,
            copier=copier,
            started_s=time.monotonic(),
        )

    def must_live(self) -> None:
        """Raise ChildError if any child has ended: before all are ready, that is no accident."""
        for child in self._children.values():
            if child.process.poll() is not None:
                raise ChildError(f"{child.name} ended at once: {child.end()} ({child.log.path})")

    def tend(self) -> None:
        """Start again what has died, after a pause that doubles with each death.

        Raises ReplacedError where a controller has ended since another took over: they would take turns.
        """
        now_s = time.monotonic()
        for child in self._children.values():
            if child.again_s is not None:
                if now_s >= child.again_s:
                    self._start_again(child, now_s)
            elif child.process.poll() is not None:
                if child.process.returncode == ReplacedError.status:
                    raise ReplacedError(child.end())
                if now_s - child.started_s > WELL_S:
                    child.pause_s = FIRST_PAUSE_S
                self._put_off(child, now_s, _how(child.process.returncode))

    def _start_again(self, child: Child, now_s: float) -> None:
        try:
            child.process, child.copier = _launch(child.command, child.log, child.files)
        except OSError as error:
            # As where the host has no memory or no process number left for it now.
            self._put_off(child, now_s, f"cannot be started: {error.strerror}")
        else:
            child.again_s, child.started_s = None, now_s

    def _put_off(self, child: Child, now_s: float, why: str) -> None:
        self._say(f"{child.name} {why}; starting it again in {child.pause_s:g} s ({child.log.path})")
        child.again_s = now_s + child.pause_s
        child.pause_s = min(LAST_PAUSE_S, child.pause_s * 2)

    def stop(self, names: Sequence[str] | None = None, grace_s: float = 10.0) -> None:
        """End these children, or all; those that have not ended after `grace_s` are killed."""
        leaving = [self._children.pop(name) for name in names or list(self._children) if name in self._children]
        for child in leaving:
            if child.process.poll() is None:
                child.process.send_signal(signal.SIGTERM)
        end_s = time.monotonic() + grace_s
        for child in leaving:
            try:
                child.process.wait(max(0.0, end_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
            child.copier.join(1.0)


def _launch(
    command: Sequence[str], log: BoundedLog, files: Sequence[int]
) -> "tuple[subprocess.Popen[bytes], threading.Thread]":
    parent = os.getpid()

    def die_with_parent() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    # A session of its own: Ctrl-C on the terminal is for the parent, which ends its children in order.
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=files,
        start_new_session=True,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - the other threads only copy logs, and hold no lock it needs
    )
    assert process.stdout is not None
    copier = threading.Thread(target=_copy, args=(process.stdout, log), daemon=True)
    copier.start()
    return process, copier


def _copy(source: IO[bytes], log: BoundedLog) -> None:
    for line in source:
        log.write(line)


def _how(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    # Signals of real-time programs have numbers only.
    known = {number.value: number.name for number in signal.Signals}
    return f"was killed by {known.get(-status, f'signal {-status}')}"
