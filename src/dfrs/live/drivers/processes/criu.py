"""CRIU, which is not part of dfrs: finding one that works, and letting it dump and restore.

It writes and reads an image through pipes that it passes over a socket (its option `--stream`), so nothing of an image
is on the disk before its caller has seen it.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path

from dfrs.live.drivers.processes import supervisor
from dfrs.live.drivers.processes.image_files import CHUNK_BYTES, Counted, ImageError, Writer, make_locked
from dfrs.live.drivers.processes.supervisor import read_text, replace_file, write_control

VARIABLE = "DFRS_CRIU"
"""Names the program; without it, it is looked for on the PATH."""
FOLDER = "dfrs-criu-"
BEGIN_S = 2.0
LAST_WORDS_S = 30.0
PROBE_S = 20.0
SIGNALLED = range(129, 193)
"""A shell's statuses that say that its program was killed."""
REMOVE_MARK = (
    "/bin/sh",
    "-c",
    f'"$@"; s=$?; {{ [ $s -ge {SIGNALLED.start} ] && [ $s -lt {SIGNALLED.stop} ]; }} || rm -f "$0"; exit $s',
)
HARMLESS = ("RLIMIT_NOFILE", "kdat cache")


class CriuKilledError(ImageError):
    """CRIU was killed: what it was dumping may have been changed by it."""


class Criu:
    """A CRIU that works here."""

    def __init__(self, program: str, version: str) -> None:
        self.program, self.version = program, version

    def dump(self, main: int, freezer: str | None, mark: str, writer: Writer, timeout_s: float) -> int:
        """Write the tree of processes below `main` to `writer`, and leave it as it is, frozen if it was; plain bytes.

        The file `mark` is removed when CRIU has let go of the processes, also if this process is killed. Raises
        ImageError with CRIU's reason, or why the writer did not take it; CriuKilledError.
        """
        with _folder() as folder:
            command = [self.program, "dump", "--tree", str(inner_number(main)), "--leave-running", "--stream", "-v2"]
            command += ["--images-dir", folder, "--work-dir", folder, "--manage-cgroups=ignore", "--file-locks"]
            if freezer is not None:
                command += ["--freeze-cgroup", freezer]
            counted = Counted(writer)
            capture = Stream(f"{folder}/streamer-capture.sock", partial(_take, counted))
            # In the namespace that its processes know, where that is not this one.
            status, said = _call([*REMOVE_MARK, mark, *_enter_space(main), *command], timeout_s)
            capture.end()
        if status < 0 or status in SIGNALLED:
            raise CriuKilledError("CRIU was killed")
        if capture.problem is not None:
            raise ImageError(why(capture.problem))
        if status != 0:
            raise ImageError(reason_of(said, status))
        return counted.total()

    def restore_command(self, folder: str) -> list[str]:
        """The command that restores an image which is served at `folder`, as sibling of CRIU itself."""
        command = [self.program, "restore", "--images-dir", folder, "--work-dir", folder, "--stream", "-v2"]
        command += ["--restore-sibling", "--restore-detached", "--manage-cgroups=ignore", "--file-locks"]
        return command


def why(problem: BaseException) -> str:
    """What went wrong, in one line without numbers of errors."""
    return (problem.strerror or str(problem)) if isinstance(problem, OSError) else str(problem)


def _call(command: list[str], timeout_s: float) -> tuple[int, str]:
    """Run CRIU; its status and what it said."""
    # Not a pipe, which helpers of a CRIU that was killed would keep open; not a file, for which there may be no room.
    with open(os.memfd_create("criu"), "w+b") as said:
        try:
            # What its caller is told to end does not end it: it would leave the task half stopped.
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
            )
        except OSError as error:
            return 127, f"Error: {command[0]}: {error.strerror}"
        # Want of memory must not end it half way.
        with contextlib.suppress(OSError):
            write_control(f"/proc/{process.pid}/oom_score_adj", "-1000")
        timer = threading.Timer(timeout_s, process.kill)
        timer.start()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        timer.cancel()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
        said.seek(0)
        return status, said.read().decode("utf-8", "replace")


def reason_of(said: str, status: int) -> str:
    """Why CRIU failed: the first error that it names."""
    for line in said.splitlines():
        match = re.search(r"Error\s*(?:\([^)]*\))?:\s*(.+)", line)
        if match and not any(word in line for word in HARMLESS):
            return match[1].strip()
    return f"CRIU failed with status {status}"


def _status_numbers(pid: int) -> list[int]:
    """The numbers of a process, from this namespace inwards."""
    for line in read_text(f"/proc/{pid}/status").splitlines():
        if line.startswith("NSpid:"):
            return [int(word) for word in line.split()[1:]]
    return [pid]


def inner_number(pid: int) -> int:
    """The number by which a process knows itself."""
    return _status_numbers(pid)[-1]


def parent_of(pid: int) -> int:
    """The number of its parent; 0 if there is no such process."""
    fields = supervisor.stat_fields(pid)
    return int(fields[1]) if fields else 0


def _enter_space(main: int) -> list[str]:
    """The words before a command that is to run in the namespace of a task; none if that is this one."""
    if len(_status_numbers(main)) == 1:
        return []
    # Its parent is the first process there: it has the file systems that go with it.
    return ["nsenter", "--target", str(parent_of(main)), "--pid", "--mount", "--"]


class Stream:
    """The other side of CRIU's `--stream`, a socket: it asks for files by name, and passes a pipe for each.

    `copy` takes or gives what a file holds through its pipe. CRIU that restores is told before whether it `has` a file.
    """

    def __init__(self, path: str, copy: Callable[[str, int], None], has: Callable[[str], bool] | None = None) -> None:
        self.copy, self.has = copy, has
        self.problem: BaseException | None = None
        self.pumps: list[threading.Thread] = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(1)
        self.connection: socket.socket | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        # What breaks off is seen by its end of the connection, and CRIU's status tells the caller.
        with contextlib.suppress(OSError, ValueError, struct.error):
            self.connection, _ = self.listener.accept()
            while head := self.connection.recv(4, socket.MSG_WAITALL):
                (length,) = struct.unpack("<I", head)
                # One field, the file's name: its key, its length, itself.
                name = self.connection.recv(length, socket.MSG_WAITALL)[2:].decode()
                if self.has is not None:
                    known = self.has(name)
                    # One field, a truth value: its key, itself.
                    self.connection.sendall(struct.pack("<I", 2) + bytes((8, known)))
                    if not known:
                        continue
                _, (pipe, *_), _, _ = socket.recv_fds(self.connection, 1, 1)
                pump = threading.Thread(target=self._pump, args=(name, pipe), daemon=True)
                pump.start()
                self.pumps.append(pump)

    def _pump(self, name: str, pipe: int) -> None:
        try:
            with contextlib.suppress(OSError):
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, CHUNK_BYTES)
            self.copy(name, pipe)
        except Exception as error:
            # Whatever it is: CRIU finds its pipe closed, and the caller the reason.
            self.problem = self.problem or error
        finally:
            os.close(pipe)

    def end(self) -> None:
        """CRIU has ended: what it wrote last is to be taken."""
        # It may never have come, or a helper that it left may keep the connection open.
        for opened in (self.listener, self.connection):
            if opened is not None:
                with contextlib.suppress(OSError):
                    opened.shutdown(socket.SHUT_RD)
        self.thread.join()
        until = time.monotonic() + LAST_WORDS_S
        for pump in self.pumps:
            pump.join(max(0.0, until - time.monotonic()))
            if pump.is_alive():
                self.problem = self.problem or TimeoutError("what is left of CRIU keeps a file of the image open")
        self.listener.close()
        if self.connection is not None:
            self.connection.close()


def _take(writer: Writer, name: str, pipe: int) -> None:
    """What CRIU dumps into a file."""
    while data := os.read(pipe, CHUNK_BYTES):
        writer.write(name, data)
    writer.close(name)


def _give(read: Callable[[str], Iterator[bytes] | None], name: str, pipe: int) -> None:
    """What CRIU restores from a file, which it need not read to its end."""
    with contextlib.suppress(BrokenPipeError):
        for data in read(name) or ():
            view = memoryview(data)
            while view:
                view = view[os.write(pipe, view) :]


@contextlib.contextmanager
def _folder() -> Generator[str]:
    """For sockets, whose paths must be short."""
    folder, lock = make_locked(lambda: tempfile.mkdtemp(prefix=FOLDER))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


@contextlib.contextmanager
def served(read: Callable[[str], Iterator[bytes] | None]) -> Generator[tuple[str, Stream]]:
    """A folder at which CRIU finds an image."""
    with _folder() as folder:
        stream = Stream(f"{folder}/streamer-serve.sock", partial(_give, read), lambda name: read(name) is not None)
        try:
            yield folder, stream
        finally:
            stream.end()


class _SmallImage:
    """Holds an image in memory."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def write(self, name: str, data: bytes) -> None:
        """See `Writer`."""
        self.files[name] = self.files.get(name, b"") + data

    def close(self, name: str) -> None:
        """See `Writer`."""
        self.files.setdefault(name, b"")

    def read(self, name: str) -> Iterator[bytes] | None:
        """What a file holds; None without it."""
        return iter([self.files[name]]) if name in self.files else None


def find_criu(cache: Path | None = None) -> tuple[Criu | None, str]:
    """A CRIU that works here, or None and, in one line, why there is none.

    It is what `DFRS_CRIU` names, or `criu` of the PATH. Whether it works is tried with a small process; that it does is
    kept in the file `cache` until the program changes or the machine is started anew.
    """
    program = os.environ.get(VARIABLE) or shutil.which("criu")
    if not program:
        return None, f"no criu: install it or name it in {VARIABLE}"
    try:
        stat = os.stat(program)
    except OSError as error:
        return None, f"{program}: {error.strerror}"
    key = [supervisor.BOOT, program, stat.st_mtime_ns, stat.st_size, os.geteuid()]
    if cache is not None:
        with contextlib.suppress(ValueError, KeyError, OSError):
            known = json.loads(cache.read_text(encoding="utf-8"))
            if known["key"] == key:
                return Criu(program, known["version"]), ""
    version, problem = _probe(program)
    if problem:
        return None, f"{program}: {problem}"
    if cache is not None:
        with contextlib.suppress(OSError):
            replace_file(str(cache), json.dumps({"key": key, "version": version}).encode())
    return Criu(program, version), ""


def _probe(program: str) -> tuple[str, str]:
    """(version, why it does not work or nothing): it must dump a process, and restore it."""
    if os.geteuid() != 0:
        return "", "needs root"
    status, said = _call([program, "--version"], PROBE_S)
    match = re.search(r"Version: (\S+)", said)
    if status != 0 or match is None:
        return "", reason_of(said, status)
    criu, image = Criu(program, match[1]), _SmallImage()
    process = subprocess.Popen(
        ["/bin/sleep", "3600"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        # Where this process is need not be within its own file systems.
        cwd="/",
        env={},
    )
    try:
        # It is another program until it has become this one.
        until = time.monotonic() + BEGIN_S
        while "sleep" not in read_text(f"/proc/{process.pid}/comm") and time.monotonic() < until:
            time.sleep(0.001)
        criu.dump(process.pid, None, "", image, PROBE_S)
        process.kill()
        process.wait()
        with served(image.read) as (folder, _):
            status, said = _call(criu.restore_command(folder), PROBE_S)
        if status != 0:
            return criu.version, reason_of(said, status)
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(process.pid, signal.SIGKILL)
            os.waitpid(process.pid, 0)
    except ImageError as error:
        return criu.version, str(error)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return criu.version, ""
