"""The process that stands between an agent and one task, so that the task outlives the agent.

Started as `python -I -S supervisor.py <task directory> <lock>`: standard library only, and little of it, since there is
one for each task. It runs the task as its child, in the control groups that the driver made; keeps its output in files;
ends it when its time is up or a file asks for it; and writes how it ended. It is the reaper of everything the task
starts: the task has ended when the last of that has. Drivers import the functions that both sides need.

Files of a task directory, by who writes them: driver: `spec`, `owner`, `stop`, `lock`, `dumping`, `image`, `restore`;
supervisor: `supervisor.pid`, `task.pid`, `out.<n>` and `err.<n>` (n is the offset of the file's first byte in all that
was ever written; two are kept), `parked`, `exit.json`. `spec`, `owner` and `restore` are `key=value` entries that end
in a zero byte, `stop` is a link whose text is the seconds of grace.

A task may be in an image instead of in memory. `image` is a link to it. Once that is there, the supervisor kills the
processes, stores what they said last, and makes the link `parked`: `<seconds it has run> <pipe of output> <pipe of
error output>`. With both links, and only then, the task is in its image whatever becomes of the supervisor: another
one that is started on the directory begins parked. On `restore` it lets CRIU restore the processes; just before these
run, `image` becomes `spent`. From then on they are the task, and all but `task.pid` is removed. A task that ends while
there is `dumping` is lost: CRIU was killed while it had changed the processes.

Nothing counts that restored processes say while the image is not spent. CRIU holds them for some milliseconds before it
has that done; if it is killed then, the kernel lets them run until the supervisor has killed them. None of their output
is stored, but what else they did, such as to files, they do once more when they are restored. No script that CRIU calls
could stop them before: the first that it calls in these milliseconds is the one that spends the image.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import signal
import sys
import time
from collections.abc import Generator, Iterable

TICK_S = 1.0
"""How often it looks for a request to stop that no signal announced."""
CLOCK_TICK_S = 0.25
"""How often it asks whether a task with a time limit is paused."""
NO_START = "-"
CHUNK_BYTES = 1 << 16
RESERVE_BYTES = 16 << 20
"""So much of the disk, or a sixteenth of a small one, is not filled with output."""
SET_PDEATHSIG, SET_CHILD_SUBREAPER = 1, 36
NEW_MOUNTS, NEW_PROCESSES = 0x00020000, 0x20000000
SLAVE_MOUNTS = 0x84000
"""Of all mounts: they follow the host's, and not the other way round."""
HANDLED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD)


def read_text(path: str) -> str:
    """What a file holds; empty if it cannot be read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        data = b""
        # The kernel gives its files a page at a time.
        while more := os.read(file, 1 << 20):
            data += more
        return data.decode("utf-8", "surrogateescape")
    except OSError:
        return ""
    finally:
        os.close(file)


def write_control(path: str, text: str) -> None:
    """Write to a kernel's control file. Raises OSError."""
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def replace_file(path: str, data: bytes) -> None:
    """Write a file whole or not at all, for its owner's eyes, and make it last. Raises OSError."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            if os.write(file, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file)
        finally:
            os.close(file)
        os.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def pack(entries: Iterable[tuple[str, str]]) -> bytes:
    """The bytes of a file of entries. Raises ValueError for a zero byte, which no program could be given."""
    for key, value in entries:
        if "\0" in value or "\0" in key:
            raise ValueError(f"{key}: must not contain a zero byte")
    return "".join(f"{key}={value}\0" for key, value in entries).encode("utf-8", "surrogateescape")


def unpack(text: str) -> list[tuple[str, str]]:
    """The entries of such a file, in order; keys may repeat."""
    return [(key, value) for key, _, value in (entry.partition("=") for entry in text.split("\0")[:-1])]


def stat_fields(pid: int) -> list[str]:
    """/proc/<pid>/stat from the state on (field 3 of its manual is index 0); empty if there is no such process."""
    return read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()


BOOT = read_text("/proc/sys/kernel/random/boot_id").strip()


def identity(pid: int) -> str:
    """What tells a process from all others, before and after it: number, start time, boot."""
    return f"{pid} {(stat_fields(pid) or [NO_START] * 20)[19]} {BOOT}"


def living(name: str) -> int | None:
    """The process number if the process of that identity lives, None if not."""
    pid = name.partition(" ")[0]
    if not pid.isdigit():
        return None
    fields = stat_fields(int(pid))
    same = fields and fields[0] not in "ZX" and name == f"{pid} {fields[19]} {BOOT}"
    return int(pid) if same else None


def parents() -> dict[int, int]:
    """The parent of each process that is not a zombie."""
    known: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := stat_fields(int(entry))) and fields[0] not in "ZX":
            known[int(entry)] = int(fields[1])
    return known


def descendants(root: int, known: dict[int, int] | None = None) -> list[int]:
    """All processes below `root`, in no order."""
    children: dict[int, list[int]] = {}
    for pid, parent in (parents() if known is None else known).items():
        children.setdefault(parent, []).append(pid)
    found = list(children.get(root, ()))
    for pid in found:
        found += children.get(pid, ())
    return found


def send(pids: Iterable[int], number: int) -> None:
    """A signal to each process that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def control_process(option: int, value: int) -> None:
    """The system call prctl."""
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def set_session_level(pid: int, level: int) -> bool:
    """The nice level of a process's session, where the kernel groups by session; False if it must be tried again."""
    for _ in range(3):
        try:
            write_control(f"/proc/{pid}/autogroup", str(level))
        except BlockingIOError:
            # Without privileges, once in a tenth of a second on the whole host.
            time.sleep(0.11)
        except OSError:
            break
        else:
            break
    else:
        return False
    return True


@contextlib.contextmanager
def locked(directory: str) -> Generator[None]:
    """Hold a task's lock. Raises FileNotFoundError if the task is gone."""
    file = os.open(f"{directory}/lock", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def read_link(path: str) -> str:
    """The text of a link; empty if there is none."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def remove(*paths: str) -> None:
    """Remove those of these files that are there."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def call(name: str, *arguments: object) -> None:
    """A function of the C library. Raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


class Place:
    """Where a task's processes are, and how to stop and end them all: in control groups, or below its supervisor.

    Made from the entries `procs`, `freeze`, `freeze_on`, `freeze_off`, `frozen`, `frozen_mark`, `kill` of `owner`, the
    number of the supervisor if it lives, and the identity of the task's first process.
    """

    def __init__(self, entries: dict[str, str], supervisor: int | None, main: str) -> None:
        self.entries, self.supervisor, self.main = entries, supervisor, main

    def members(self) -> list[int]:
        """Its processes."""
        if procs := self.entries.get("procs"):
            return [int(pid) for pid in read_text(procs).split()]
        return self._session() if self.supervisor is None else descendants(self.supervisor)

    def _session(self) -> list[int]:
        """What is left of the session of a task whose supervisor was killed."""
        leader, _, rest = self.main.partition(" ")
        boot = rest.partition(" ")[2]
        # While anything is left of a session, no other process gets its leader's number.
        if not leader or identity(int(leader)) not in (self.main, f"{leader} {NO_START} {boot}"):
            return []
        return [pid for pid in parents() if (fields := stat_fields(pid)) and fields[3] == leader]

    def frozen(self) -> bool:
        """Whether nothing of it runs, because it was paused."""
        if path := self.entries.get("frozen"):
            return self.entries["frozen_mark"] in read_text(path)
        found = {pid: fields for pid in self.members() if (fields := stat_fields(pid))}
        # After vfork a parent waits, deaf to signals, until its child runs a program, which a stopped one never does.
        waiting = {int(fields[1]) for fields in found.values() if fields[0] in "Tt"}
        return bool(found) and all(
            fields[0] in "TtZX" or (fields[0] == "D" and pid in waiting) for pid, fields in found.items()
        )

    def freeze(self, timeout_s: float) -> bool:
        """Pause all of it; whether that was confirmed in time."""
        until = time.monotonic() + timeout_s
        if path := self.entries.get("freeze"):
            # Once is not enough: version 1 passes over a parent that is just about to wait after vfork, for ever.
            write_control(path, self.entries["freeze_on"])
            while not self.frozen():
                if time.monotonic() > until:
                    return False
                time.sleep(0.0005)
                write_control(path, self.entries["freeze_on"])
            return True
        while members := self.members():
            send(members, signal.SIGSTOP)
            # A list of processes is not of one moment, and misses a child that was forked while it was made. Once all
            # that it has are stopped, the next one misses none.
            if self.frozen() and self.frozen():
                return True
            if time.monotonic() > until:
                return False
            time.sleep(0.001)
        return True

    def thaw(self) -> None:
        """Let all of it go on."""
        if path := self.entries.get("freeze"):
            write_control(path, self.entries["freeze_off"])
        else:
            send(self.members(), signal.SIGCONT)

    def kill(self, timeout_s: float = 2.0) -> bool:
        """Kill all of it, whatever it forks; whether nothing was left in time."""
        until = time.monotonic() + timeout_s
        while True:
            with contextlib.suppress(OSError):
                if path := self.entries.get("kill"):
                    write_control(path, "1")
                else:
                    self.freeze(0.2)
            with contextlib.suppress(OSError):
                send(self.members(), signal.SIGKILL)
            # In version 1 what is frozen does not end.
            with contextlib.suppress(OSError):
                self.thaw()
            if not self.members():
                return True
            if time.monotonic() > until:
                return False
            time.sleep(0.002)


class OutputFile:
    """One of the task's outputs: a pipe, and the files that it is copied to, which may be there already."""

    def __init__(self, directory: str, name: str, limit_bytes: int) -> None:
        self.base = f"{directory}/{name}."
        self.limit_bytes = limit_bytes
        self.reader = self.writer = -1
        self.start = self.end = self.dropped = 0
        self.older: int | None = None
        self.file = -1
        before = sorted(int(file[len(name) + 1 :]) for file in os.listdir(directory) if file.startswith(f"{name}."))
        if before:
            self.start = self.end = before[-1]
            self.older = before[-2] if len(before) > 1 else None
        with contextlib.suppress(OSError):
            self._open()
            self.end = self.start + os.fstat(self.file).st_size

    def attach(self) -> int:
        """A new pipe to write into; its number on this host."""
        self.reader, self.writer = os.pipe()
        return os.fstat(self.reader).st_ino

    def detach(self) -> None:
        """Let go of the pipe's end for writing."""
        os.close(self.writer)
        self.writer = -1

    def drain(self) -> None:
        """Take all that is left in the pipe, to which nothing more is written, and close it."""
        if self.reader >= 0:
            rest = select.poll()
            rest.register(self.reader, select.POLLIN)
            while rest.poll(0) and self.copy():
                pass
            self.discard()

    def discard(self) -> None:
        """Close the pipe, whatever is in it."""
        os.close(self.reader)
        self.reader = -1

    def copy(self) -> bool:
        """Take what is in the pipe; False at its end. What cannot be stored is dropped: the task must not wait."""
        data = memoryview(os.read(self.reader, CHUNK_BYTES))
        more = len(data) > 0
        while data:
            try:
                if self.file < 0 or self.end - self.start >= self.limit_bytes:
                    self._rotate()
                if self._scarce(len(data)):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                written = os.write(self.file, data[: self.limit_bytes - (self.end - self.start)])
            except OSError:
                self.dropped += len(data)
                break
            self.end += written
            data = data[written:]
        return more

    def _scarce(self, more_bytes: int) -> bool:
        """Whether so much more would need the last of the disk, which is for what must be on record."""
        disk = os.fstatvfs(self.file)
        return disk.f_bavail * disk.f_frsize - more_bytes < min(RESERVE_BYTES, disk.f_blocks * disk.f_frsize // 16)

    def _rotate(self) -> None:
        if self.older is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{self.base}{self.older}")
            self.older = None
        full, before, self.start = self.file, self.start, self.end
        try:
            self._open()
        except OSError:
            self.start = before
            raise
        if full >= 0:
            os.close(full)
            self.older = before

    def _open(self) -> None:
        path = f"{self.base}{self.start}"
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


class Supervisor:
    """Runs one task to its end."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        entries = unpack(read_text(f"{directory}/spec"))
        self.spec = dict(entries)
        self.command = [value for key, value in entries if key == "command"]
        self.enter = [value for key, value in entries if key == "enter"]
        self.join = [value for key, value in entries if key == "join"]
        self.environment = dict(value.split("=", 1) for key, value in entries if key == "environment")
        self.limit_s = float(self.spec["time_limit_s"]) if "time_limit_s" in self.spec else None
        size = int(self.spec["output_bytes"])
        self.outputs = (OutputFile(directory, "out", size), OutputFile(directory, "err", size))
        self.streams: dict[int, OutputFile] = {}
        self.poll = select.poll()
        self.pipes: list[str] = []
        self.pipes_in_image: list[str] = []
        self.parked = False
        self.restoring = False
        self.restorer = 0
        self.reports = -1
        self.ran_s = 0.0
        self.seen_s: float | None = None
        self.kill_at_s: float | None = None
        self.looked_s = -TICK_S
        self.timed_out = False
        self.error = ""
        self.status: int | None = None
        self.main = 0

    def place(self) -> Place:
        """Where its processes are now: a move to another node changes that."""
        return Place(dict(unpack(read_text(f"{self.directory}/owner"))), os.getpid(), "")

    def enter_share(self) -> None:
        """Be charged for the copying of output like the task itself: what floods its output slows itself alone."""
        for path in self.join:
            # Without it the task's own entering fails as well, and says why.
            with contextlib.suppress(OSError):
                write_control(path, "0")

    def _leave_share(self) -> None:
        """Have time of its own: the end of a task must not wait for the CPU that the task has not got."""
        if path := self.spec.get("leave"):
            with contextlib.suppress(OSError):
                write_control(path, "0")

    def run(self, wake: int) -> None:
        """Start it, stay with it until the last of its processes has ended, write how."""
        failed = -1 if self._found_parked() else self._start()
        self.poll.register(wake, select.POLLIN)
        if failed >= 0:
            self.poll.register(failed, select.POLLIN)
        if self.parked:
            # Who asked for it may have done so before it could be woken.
            self._look()
        while True:
            for file, _ in self.poll.poll(self._patience_s() * 1000):
                if stream := self.streams.get(file):
                    if not stream.copy():
                        self.poll.unregister(file)
                elif file == wake:
                    os.read(wake, 4096)
                    self.looked_s = -TICK_S
                elif file == failed:
                    self.error = os.read(failed, 4096).decode("utf-8", "replace")
                    self.poll.unregister(failed)
                elif file == self.reports:
                    self._hear()
            if not self._reap() and not self._is_in_image():
                break
            if time.monotonic() - self.looked_s >= self._patience_s():
                self._look()
        self._detach()
        if failed >= 0:
            self.error = self.error or os.read(failed, 4096).decode("utf-8", "replace")
        self._finish()

    def _attach(self) -> list[str]:
        """New pipes for its output; their numbers on this host."""
        return [str(output.attach()) for output in self.outputs]

    def _listen(self) -> None:
        """From now on copy what is in the pipes."""
        self.streams = {output.reader: output for output in self.outputs}
        for file in self.streams:
            self.poll.register(file, select.POLLIN)

    def _detach(self) -> None:
        """Store what its processes said last, now that there are none."""
        for file, output in self.streams.items():
            with contextlib.suppress(KeyError):
                self.poll.unregister(file)
            output.drain()
        self.streams = {}

    def _patience_s(self) -> float:
        if self.kill_at_s is not None or self.timed_out:
            return 0.1
        if self.limit_s is None:
            return TICK_S
        return max(0.005, min(CLOCK_TICK_S, self.limit_s - self.ran_s))

    def _start(self) -> int:
        """Fork the task; the pipe on which it says why it could not run."""
        go, release = os.pipe()
        failed, fail = os.pipe()
        self.pipes = self._attach()
        self._listen()
        self.main = os.fork()
        if self.main == 0:
            os.close(release)
            self._become(go, fail)
        os.close(go)
        os.close(fail)
        for output in self.outputs:
            output.detach()
        # Nothing may run that is not on record: the child waits until it is, and ends if this process dies first.
        with contextlib.suppress(OSError):
            replace_file(f"{self.directory}/task.pid", identity(self.main).encode())
        os.write(release, b"x")
        os.close(release)
        return failed

    def _become(self, go: int, fail: int) -> None:
        try:
            _be_child()
            if os.read(go, 1):
                self._execute()
        except BaseException as error:
            os.write(fail, str(error).encode("utf-8", "replace")[:2000] or b"unknown error")
        finally:
            os._exit(127)

    def _execute(self) -> None:
        for path in self.enter:
            write_control(path, "0")
        with contextlib.suppress(OSError):
            write_control("/proc/self/oom_score_adj", "0")
        os.setsid()
        os.umask(0o022)
        if level := self.spec.get("nice"):
            os.setpriority(os.PRIO_PROCESS, 0, int(level))
            set_session_level(os.getpid(), int(level))
        if cpus := self.spec.get("affinity"):
            os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
        for number, output in enumerate(self.outputs, 1):
            os.dup2(output.writer, number)
        if account := self.spec.get("account"):
            self.environment |= _switch(account)
        # From here on nothing may be imported: the account may be unable to read this interpreter's library.
        _enter_directory(self.spec["directory"])
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        _become_program(self.command, self.environment)

    def _reap(self) -> bool:
        """Collect what has ended; whether anything is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                while self.reports >= 0:
                    self._hear()
                return False
            if pid == 0:
                return True
            if pid == self.restorer:
                self._restored(status)
            elif pid == self.main and self.reports < 0:
                self.status = status

    def _look(self) -> None:
        """Is it to end: was that asked for, is its time up?"""
        now_s = self.looked_s = time.monotonic()
        if self.limit_s is not None and not self.timed_out:
            frozen = self.parked or self.place().frozen()
            if self.seen_s is not None and not frozen:
                self.ran_s += now_s - self.seen_s
            self.seen_s = None if frozen else now_s
            self.timed_out = self.ran_s >= self.limit_s
        if self.kill_at_s is None and os.path.lexists(f"{self.directory}/stop"):
            place = self.place()
            self.kill_at_s = now_s + float(os.readlink(f"{self.directory}/stop"))
            send(place.members(), signal.SIGTERM)
            # A paused program cannot act on the signal.
            with contextlib.suppress(OSError):
                place.thaw()
        if self.timed_out or (self.kill_at_s is not None and now_s >= self.kill_at_s):
            self._leave_share()
            self.place().kill(0.05)
        elif not self.parked and os.path.lexists(f"{self.directory}/image"):
            self.place().kill(0.05)
        elif self.parked and self.reports < 0 and not self.restoring and os.path.exists(f"{self.directory}/restore"):
            self._restore()

    def _found_parked(self) -> bool:
        """Whether it is in an image that an earlier supervisor, here or on another node, has left."""
        words = read_link(f"{self.directory}/parked").split()
        if not words or not os.path.lexists(f"{self.directory}/image"):
            return False
        self.ran_s, self.pipes, self.parked = float(words[0]), words[1:], True
        return True

    def _is_in_image(self) -> bool:
        """With no process left: whether it goes on from its image one day, and has not ended."""
        if not os.path.lexists(f"{self.directory}/image"):
            return False
        if not self.parked:
            self._detach()
            with contextlib.suppress(OSError):
                os.symlink(" ".join((f"{self.ran_s:.3f}", *self.pipes)), f"{self.directory}/parked")
                self.parked = True
                self.seen_s = None
        if os.path.lexists(f"{self.directory}/stop"):
            self.kill_at_s, self.status = time.monotonic(), signal.SIGKILL
        return self.kill_at_s is None

    def _restore(self) -> None:
        """Let its processes come back, by the command of `restore`, in the groups that it says."""
        entries = unpack(read_text(f"{self.directory}/restore"))
        told = dict(entries)
        self.pipes_in_image, self.pipes = self.pipes, self._attach()
        command = [value for key, value in entries if key == "command"]
        for old, output in zip(self.pipes_in_image, self.outputs, strict=True):
            command += ["--inherit-fd", f"fd[{output.writer}]:pipe:[{old}]"]
        enter = [value for key, value in entries if key == "enter"]
        self.main, self.status, self.restoring = int(told["main"]), None, True
        if "first_number" in told:
            self.reports, report = os.pipe()
            self.poll.register(self.reports, select.POLLIN)
            # Its numbers may be in use here: they are free in a namespace of its own.
            call("unshare", NEW_PROCESSES)
            if os.fork() == 0:
                self._be_first(command, enter, int(told["first_number"]), report)
            own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
            call("setns", own, 0)
            os.close(own)
            os.close(report)
        else:
            self.restorer = os.fork()
            if self.restorer == 0:
                self._become_restorer(command, enter)
        for output in self.outputs:
            output.detach()

    def _become_restorer(self, command: list[str], enter: list[str]) -> None:
        try:
            _be_child()
            log = os.open(f"{self.directory}/restore.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(log, 1)
            os.dup2(log, 2)
            for path in enter:
                write_control(path, "0")
            for output in self.outputs:
                os.set_inheritable(output.writer, True)
            os.execve(command[0], command, {"DFRS_TASK": self.directory})
        except BaseException as error:
            os.write(2, f"Error: {error}\n".encode())
        finally:
            os._exit(127)

    def _be_first(self, command: list[str], enter: list[str], first: int, report: int) -> None:
        """Be the first process of a namespace: restore the others, collect them, tell the supervisor."""
        try:
            _be_child()
            call("unshare", NEW_MOUNTS)
            call("mount", b"none", b"/", None, ctypes.c_ulong(SLAVE_MOUNTS), None)
            call("mount", b"proc", b"/proc", b"proc", ctypes.c_ulong(0), None)
            write_control("/proc/sys/kernel/ns_last_pid", str(first))
            restorer = os.fork()
            if restorer == 0:
                self._become_restorer(command, enter)
            for output in self.outputs:
                output.detach()
            while True:
                pid, status = os.waitpid(-1, 0)
                if pid in {restorer, self.main}:
                    os.write(report, f"{pid == restorer:d} {status}\n".encode())
        except ChildProcessError:
            pass
        except OSError as error:
            with contextlib.suppress(OSError):
                os.write(report, f"1 {(error.errno or 1) << 8}\n".encode())
        finally:
            os._exit(0)

    def _hear(self) -> None:
        """What the first process of the task's namespace says, which alone knows its processes by their numbers."""
        words = os.read(self.reports, 4096).decode()
        for line in words.splitlines():
            restorer, status = map(int, line.split())
            if restorer:
                self._restored(status)
            else:
                self.status = status
        if not words:
            self.poll.unregister(self.reports)
            os.close(self.reports)
            self.reports = -1
            # If it was killed, the kernel has killed all others there, and it has told the end of none.
            if self.restoring:
                self._restored(signal.SIGKILL)
            if self.status is None:
                self.status = signal.SIGKILL

    def _restored(self, status: int) -> None:
        """CRIU has ended: either its processes are back, or it is in its image as before."""
        self.restoring, self.restorer = False, 0
        path = self.directory
        with contextlib.suppress(FileNotFoundError):
            if status == 0:
                os.rename(f"{path}/image", f"{path}/spent")
        if os.path.lexists(f"{path}/spent"):
            # Also where CRIU was killed after its script had done that: the kernel lets them run.
            self.parked = False
            with contextlib.suppress(OSError):
                replace_file(f"{path}/task.pid", identity(self._main_number()).encode())
            remove(f"{path}/parked", f"{path}/spent", f"{path}/restore.log")
            self._listen()
        else:
            # If CRIU was killed, its script may run on, and spend the image only now. It is in the task's groups: once
            # nothing is left there, that has happened or never will. Either way none of the processes is left and
            # nothing that they said was stored, so the task is in its image. As long as any is left, that is not so.
            while not self.place().kill():
                pass
            with contextlib.suppress(FileNotFoundError):
                os.rename(f"{path}/spent", f"{path}/image")
            for output in self.outputs:
                output.discard()
            self.pipes = self.pipes_in_image
        remove(f"{path}/restore")

    def _main_number(self) -> int:
        """The number of its first process on this host."""
        for pid in descendants(os.getpid()) if self.reports >= 0 else ():
            numbers = [line for line in read_text(f"/proc/{pid}/status").splitlines() if line.startswith("NSpid:")]
            if numbers and numbers[0].split()[-1] == str(self.main):
                return pid
        return self.main

    def _finish(self) -> None:
        self._leave_share()
        while True:
            try:
                with locked(self.directory):
                    replace_file(f"{self.directory}/exit.json", self._verdict().encode())
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.5)
            else:
                return

    def _verdict(self) -> str:
        import json  # noqa: PLC0415 - only now, when the task no longer waits for it
        import resource  # noqa: PLC0415 - as json

        owner = self.place().entries
        status = self.status if self.status is not None else 0
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        killed = happened(read_text(owner.get("oom", "")), "oom_kill") + int(float(owner.get("carried_oom_kills", "0")))
        kind = "signal" if code is None else "code"
        if self.error:
            kind, code = "not-started", None
        elif self.kill_at_s is not None:
            kind = "stopped"
        elif self.timed_out:
            kind = "time-limit"
        elif os.path.lexists(f"{self.directory}/dumping"):
            kind, code, number = "lost", None, None
        elif killed and (code or number == signal.SIGKILL):
            kind = "out-of-memory"
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        counted = cpu_seconds(owner.get("cpu", ""))
        cpu_s = used.ru_utime + used.ru_stime if counted is None else counted + float(owner.get("carried_cpu_s", "0"))
        peak = read_text(owner.get("peak", "")).strip()
        peak_bytes = max(int(peak), int(float(owner.get("carried_peak_bytes", "0")))) if peak else used.ru_maxrss << 10
        notes = [self.error] if self.error else []
        if kind == "lost":
            notes.append("CRIU was killed while it made an image of it")
        if killed and kind != "out-of-memory":
            notes.append(f"{killed} of its processes were killed for want of memory")
        if happened(read_text(owner.get("forks", "")), "max") or float(owner.get("carried_refused_forks", "0")):
            notes.append("it could not start more processes: there were as many as may be")
        for name, stream in zip(("output", "error output"), self.outputs, strict=True):
            if stream.dropped:
                notes.append(f"{stream.dropped} bytes of {name} were dropped: the disk was full")
        return json.dumps(
            {"kind": kind, "code": code, "signal": number, "time_s": time.time(), "cpu_s": cpu_s}
            | {"peak_bytes": peak_bytes, "message": "; ".join(notes)}
        )


def happened(text: str, event: str) -> int:
    """How often it happened, by a file of lines `event count` such as memory.oom_control or pids.events."""
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith(f"{event} ")), 0)


def cpu_seconds(path: str) -> float | None:
    """CPU time in a cpuacct.usage or cpu.stat file; None without one."""
    text = read_text(path)
    if text.startswith("usage_usec"):
        return int(text.split(maxsplit=2)[1]) / 1e6
    return int(text) / 1e9 if text else None


def _switch(account: str) -> dict[str, str]:
    """Go on under an account; what its programs find in their environment. Raises OSError."""
    import pwd  # noqa: PLC0415 - most tasks run under the agent's own account, and each starts as fast as it can

    try:
        entry = pwd.getpwnam(account)
    except KeyError:
        raise OSError(f"no account {account!r} on this node") from None
    if entry.pw_uid != os.geteuid():
        os.initgroups(account, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
    shell = entry.pw_shell or "/bin/sh"
    return {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name, "SHELL": shell}


def _enter_directory(path: str) -> None:
    try:
        os.chdir(path)
    except FileNotFoundError:
        raise OSError(f"no such directory: {path}") from None
    except NotADirectoryError:
        raise OSError(f"not a directory: {path}") from None
    except PermissionError:
        raise OSError(f"no right to enter the directory: {path}") from None


def _become_program(command: list[str], environment: dict[str, str]) -> None:
    """Run a program, looked up as a shell does, in place of this one. Raises OSError that says why it cannot."""
    name = command[0]
    folders = [] if "/" in name else environment.get("PATH", os.defpath).split(":")
    denied = ""
    for path in [f"{folder or '.'}/{name}" for folder in folders] or [name]:
        try:
            os.execve(path, command, environment)
        except (FileNotFoundError, NotADirectoryError):
            if os.path.exists(path):
                raise OSError(f"its interpreter is missing: {_interpreter(path)}") from None
        except PermissionError:
            denied = denied or path
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise OSError(f"{path}: {error.strerror}") from None
            raise OSError(f"not a program: {path}: a script's first line must be #! and its interpreter") from None
    raise OSError(f"not executable: {denied}" if denied else f"no such program: {name}")


def _interpreter(path: str) -> str:
    """A program, with the interpreter that the first line of a script names."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        first = file.readline(256)
        if first.startswith(b"#!"):
            return f"{path} needs {first[2:].decode('utf-8', 'replace').strip()}"
    return path


def _register(directory: str) -> bool:
    """Become the task's only supervisor; False if it has one already."""
    temporary = f"{directory}/supervisor.pid.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="ascii") as file:
        file.write(identity(os.getpid()))
    try:
        os.link(temporary, f"{directory}/supervisor.pid")
    except FileExistsError:
        return False
    finally:
        os.unlink(temporary)
    return True


def _be_child() -> None:
    """Undo what the supervisor has set for itself, and end when it does: nobody would see the end otherwise."""
    for number in (*HANDLED, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    control_process(SET_PDEATHSIG, signal.SIGKILL)


def _woken(number: int, frame: object) -> None:
    """The signal's byte in the pipe is all that is wanted of it."""


def main(directory: str, lock: int) -> None:
    """Be the supervisor of a task. `lock` is the open lock of the task, let go when the supervisor is on record."""
    os.chdir("/")
    wake, waker = os.pipe()
    for file in (wake, waker):
        os.set_blocking(file, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    for number in HANDLED:
        signal.signal(number, _woken)
    control_process(SET_CHILD_SUBREAPER, 1)
    if _register(directory):
        supervisor = Supervisor(directory)
        # With the lock: who holds it next may move everything that is in the task's groups.
        supervisor.enter_share()
        os.close(lock)
        supervisor.run(wake)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
