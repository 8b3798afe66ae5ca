"""The loop that stays with one task from its start to its end."""

import contextlib
import math
import os
import select
import signal
import time
from collections.abc import Callable
from functools import partial

from .children import BESIDE, NOT_IN_TIME, Beside, note, spawn
from .files import locked, read_link, read_text, remove, replace_file, unpack, values, write_control
from .inputs import ProgramInput, set_size
from .output import OutputFile
from .place import Place
from .program import HANDLED, become_opener
from .readers import Readers, readers_of
from .restorer import Restorer
from .system import (
    SET_CHILD_SUBREAPER,
    control_process,
    descendants,
    identity,
    parents,
    send,
    session,
    shutting_down,
)
from .user_files import UserFiles
from .verdict import verdict

TICK_S = 1.0
"""How often it looks for a request to stop that no signal announced."""
SHUTDOWN_S = 90.0
"""A machine that shuts down asks all of its processes to end, and gives them up to so long."""
CLOCK_TICK_S = 0.25
"""How often it asks whether a task with a time limit is paused."""


class Supervisor:
    """Runs one task to its end."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.entries = unpack(read_text(f"{directory}/spec"))
        self.spec = dict(self.entries)
        self.limit_s = float(self.spec["time_limit_s"]) if "time_limit_s" in self.spec else None
        self.warn_at_s: float | None = None
        """When its processes get the signal that its time is nearly up; None: never, or no more."""
        if self.limit_s is not None and "warning_signal" in self.spec:
            self.warn_at_s = self.limit_s - float(self.spec["warning_s"])
            if self.warn_at_s <= 0:
                # No program has begun by then that could handle it: it would be ended by it.
                self.warn_at_s = None
        size = int(self.spec["output_bytes"])
        self.outputs = (OutputFile(directory, "out", size), OutputFile(directory, "err", size))
        self.files = UserFiles(self.entries)
        for output, name in zip(self.outputs, ("out", "err"), strict=True):
            output.also = self.files.of(name)
        self.streams: dict[int, OutputFile] = {}
        self.readers = readers_of(directory, self.entries, self.outputs)
        self.source = ProgramInput(directory) if "input" in self.spec else None
        self.beside: dict[int, Beside] = {}
        """Programs that users have started beside the task's own, by process number."""
        self.sessions: set[int] = set()
        """Of these programs, also of those that have ended: what they have left behind is in them."""
        self.begun: set[str] = set()
        """The names of all that there ever were."""
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
        self.asked_to_end_s = -math.inf
        """When it was, itself, as by a machine that shuts down."""
        self.error = ""
        self.status: int | None = None
        self.main = 0

    def place(self) -> Place:
        """Where its processes are now: a move to another node changes that."""
        return Place(dict(unpack(read_text(f"{self.directory}/owner"))), os.getpid(), "")

    def enter_share(self) -> None:
        """Be charged for the copying of output like the task itself: what floods its output slows itself alone."""
        for path in values(self.entries, "join"):
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
        if self.readers is not None:
            self.readers.watch(self.poll)
        if self.parked:
            # Who asked for it may have done so before it could be woken.
            self._look()
        while True:
            for file, _ in self.poll.poll(self._patience_s() * 1000):
                if stream := self.streams.get(file):
                    stream.serve(self.poll)
                elif file == wake:
                    os.read(wake, 4096)
                    self.looked_s = -TICK_S
                elif file == failed:
                    self.error = os.read(failed, 4096).decode("utf-8", "replace")
                    self.poll.unregister(failed)
                elif file == self.files.door:
                    self._receive_files()
                elif file == self.reports:
                    self._hear()
                else:
                    self._serve_user(file)
            if not self._reap() and not self._is_in_image():
                break
            if self.sessions and self.status is not None:
                self._end_beside()
            if time.monotonic() - self.looked_s >= self._patience_s():
                self._look()
        self._detach()
        if failed >= 0:
            self.error = self.error or os.read(failed, 4096).decode("utf-8", "replace")
        self._finish()

    def _attach(self) -> list[str]:
        """New pipes for its output; their numbers on this host."""
        for output in self.outputs:
            output.attach()
        return [str(output.number()) for output in self.outputs]

    def _listen(self) -> None:
        """From now on copy what is in the pipes, or from when there are the files that it also goes to."""
        if self.files.coming:
            return
        self.streams = {output.reader: output for output in self.outputs}
        for file in self.streams:
            self.poll.register(file, select.POLLIN)

    def _expect_files(self) -> int:
        """Be woken when its files are there; what a child is to give them through."""
        door = self.files.expect()
        if door >= 0:
            self.poll.register(self.files.door, select.POLLIN)
        return door

    def _receive_files(self) -> None:
        self.poll.unregister(self.files.door)
        self.files.receive()
        if not self.parked:
            self._listen()

    def _detach(self) -> None:
        """Store what its processes said last, now that there are none."""
        if self.files.coming:
            self._receive_files()
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
        self.main, release, failed = spawn(self.entries, self.outputs, self.source, self._expect_files())
        self.pipes = [str(output.number()) for output in self.outputs]
        self._listen()
        if self.source is not None:
            self.source.watch(self.poll)
        # Nothing may run that is not on record: the child waits until it is, and ends if this process dies first.
        with contextlib.suppress(OSError):
            replace_file(f"{self.directory}/task.pid", identity(self.main).encode())
        os.write(release, b"x")
        os.close(release)
        return failed

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
            elif pid in self.beside:
                self.beside.pop(pid).ended(self.poll, status)

    def _serve_user(self, file: int) -> None:
        """Something of a program beside, or from its user or that of the task: what was asked for is done."""
        if self.source is not None and self.source.serves(file):
            self.source.serve(self.poll, partial(self._obey, self.source, self._processes))
            return
        for readers in self._readers():
            if file == readers.pipe:
                readers.hear(self.poll)
                return
        for pid, program in self.beside.items():
            if stream := program.streams.get(file):
                stream.serve(self.poll)
            elif file == program.failed:
                if not program.begun(self.poll):
                    program.kill()
            elif program.source is not None and program.source.serves(file):
                # Its number is also that of its group.
                program.source.serve(self.poll, partial(self._obey, program.source, lambda group=-pid: [group]))

    def _readers(self) -> list[Readers]:
        """Those of the task's program and of those beside it."""
        all_of_them = (self.readers, *(program.readers for program in self.beside.values()))
        return [readers for readers in all_of_them if readers is not None]

    def _processes(self) -> list[int]:
        return [pid for pid in self.place().members() if pid != os.getpid()]

    def _obey(self, source: ProgramInput, processes: Callable[[], list[int]], words: list[str]) -> None:
        match words:
            case ["size", rows, columns] if source.is_terminal and source.sink >= 0:
                set_size(source.sink, int(rows), int(columns))
            case ["signal", name] if number := getattr(signal, f"SIG{name}", None):
                send(processes(), number)
            case _:
                pass

    def _begin_beside(self) -> None:
        """Start the programs that the driver has put beside the task's since."""
        with contextlib.suppress(FileNotFoundError):
            for name in set(os.listdir(f"{self.directory}/{BESIDE}")) - self.begun:
                path = f"{self.directory}/{BESIDE}/{name}"
                if name.startswith("."):
                    continue
                self.begun.add(name)
                # With more in it a supervisor before this one has started it.
                found = sorted(os.listdir(path))
                if found == ["spec"]:
                    self._start_beside(path)
                elif found == ["answer", "spec"]:
                    note(path, "error", NOT_IN_TIME)

    def _start_beside(self, path: str) -> None:
        try:
            program = Beside(path, self.entries)
        except OSError as error:
            # The task must not suffer from what does not fit beside it: its limit of processes, a full disk.
            note(path, "error", str(error).encode())
        else:
            self.beside[program.pid] = program
            # It begins a session, whose number is its own.
            self.sessions.add(program.pid)
            program.watch(self.poll)

    def _end_beside(self) -> None:
        """Once nothing else of the task is left, end what its users have started beside it, and what that has left."""
        known = parents()
        # A session that has members keeps its number: where another process has that, it has none.
        self.sessions -= {pid for pid in self.sessions if pid in known and pid not in self.beside}
        all_of_it = descendants(os.getpid(), known)
        firsts = {*self.beside, *(pid for pid in all_of_it if session(pid) in self.sessions)}
        theirs = {pid for first in firsts for pid in (first, *descendants(first, known))}
        if not set(all_of_it) - theirs:
            send(theirs, signal.SIGKILL)

    def _look(self) -> None:
        """Is it to end: was that asked for, is its time up?"""
        now_s = self.looked_s = time.monotonic()
        if self.limit_s is not None and not self.timed_out:
            frozen = self.parked or self.place().frozen()
            if self.seen_s is not None and not frozen:
                self.ran_s += now_s - self.seen_s
            self.seen_s = None if frozen else now_s
            self.timed_out = self.ran_s >= self.limit_s
            if not frozen:
                self._warn()
        if self.kill_at_s is None and os.path.lexists(f"{self.directory}/stop"):
            place = self.place()
            self.kill_at_s = now_s + float(os.readlink(f"{self.directory}/stop"))
            send(place.members(), signal.SIGTERM)
            # A paused program cannot act on the signal.
            with contextlib.suppress(OSError):
                place.thaw()
        if self.status is None and self.kill_at_s is None and not self.parked:
            self._begin_beside()
        for program in self.beside.values():
            if program.is_withdrawn():
                program.kill()
        for readers in self._readers():
            # Who is gone for long is waited for no more.
            readers.look(self.poll)
        if self.timed_out or (self.kill_at_s is not None and now_s >= self.kill_at_s):
            self._leave_share()
            self.place().kill(0.05)
        elif not self.parked and os.path.lexists(f"{self.directory}/image"):
            self.place().kill(0.05)
        elif self.parked and self.reports < 0 and not self.restoring and os.path.exists(f"{self.directory}/restore"):
            self._restore()

    def _warn(self) -> None:
        """Say once that its time is nearly up."""
        if self.warn_at_s is None or self.ran_s < self.warn_at_s:
            return
        self.warn_at_s = None
        if number := getattr(signal, f"SIG{self.spec['warning_signal']}", None):
            # What this process does not handle would end it, and its task unseen.
            send(self._processes(), number)

    def _found_parked(self) -> bool:
        """Whether it is in an image that an earlier supervisor, here or on another node, has left."""
        words = read_link(f"{self.directory}/parked").split()
        if not words or not os.path.lexists(f"{self.directory}/image"):
            return False
        self.ran_s, self.pipes, self.parked = float(words[0]), words[1:], True
        if self.warn_at_s is not None and self.ran_s >= self.warn_at_s:
            # The supervisor before has said it.
            self.warn_at_s = None
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
        self._open_files()
        restorer = Restorer(self.directory)
        self.pipes_in_image, self.pipes = self.pipes, self._attach()
        for old, output in zip(self.pipes_in_image, self.outputs, strict=True):
            restorer.connect(old, output.writer)
        self.main, self.status, self.restoring = restorer.main, None, True
        if restorer.first_number is None:
            self.restorer = restorer.begin()
        else:
            self.reports = restorer.begin_apart()
            self.poll.register(self.reports, select.POLLIN)
        for output in self.outputs:
            output.detach()

    def _open_files(self) -> None:
        """Its program had them from a supervisor before this one, if that was not this one."""
        door = -1 if self.files.coming else self._expect_files()
        if door < 0:
            return
        if os.fork() == 0:
            become_opener(self.entries, door)
        os.close(door)

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
                    dropped = {
                        name: output.dropped
                        for name, output in zip(("output", "error output"), self.outputs, strict=True)
                    }
                    cause, why = self._cause()
                    told = verdict(self.place().entries, self.status or 0, cause, why, dropped, self.files.notes())
                    replace_file(f"{self.directory}/exit.json", told.encode())
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.5)
            else:
                return

    def terminated(self, number: int, frame: object) -> None:
        """It was asked to end. It does not; but the task has been asked, too."""
        self.asked_to_end_s = time.monotonic()

    def _cause(self) -> tuple[str, str]:
        """The kind of its end, where that is more than the end of its program, and in what way it is."""
        if self.error:
            return "not-started", self.error
        if self.kill_at_s is not None:
            return "stopped", ""
        if self.timed_out:
            return "time-limit", ""
        if os.path.lexists(f"{self.directory}/dumping"):
            return "lost", "CRIU was killed while it made an image of it"
        if time.monotonic() - self.asked_to_end_s < SHUTDOWN_S and shutting_down():
            return "lost", "the machine was shut down"
        return "", ""


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
        signal.signal(signal.SIGTERM, supervisor.terminated)
        # With the lock: who holds it next may move everything that is in the task's groups.
        supervisor.enter_share()
        os.close(lock)
        supervisor.run(wake)
