"""A child of the supervisor becomes CRIU, which restores the task."""

import contextlib
import ctypes
import os

from .files import read_text, unpack, values, write_control
from .program import be_child
from .system import call

NEW_MOUNTS, NEW_PROCESSES = 0x00020000, 0x20000000
SLAVE_MOUNTS = 0x84000
"""Of all mounts: they follow the host's, and not the other way round."""


class Restorer:
    """Restores a task as the file `restore` of its directory says."""

    def __init__(self, directory: str) -> None:
        entries = unpack(read_text(f"{directory}/restore"))
        told = dict(entries)
        self.directory = directory
        self.command, self.enter = values(entries, "command"), values(entries, "enter")
        self.main = int(told["main"])
        self.first_number = int(told["first_number"]) if "first_number" in told else None
        """Where numbers of a namespace of its own begin, if it is to have one."""
        self.pipes: list[int] = []

    def connect(self, old: str, pipe: int) -> None:
        """The task is to write into `pipe` what it wrote into the pipe of the number `old`."""
        self.command += ["--inherit-fd", f"fd[{pipe}]:pipe:[{old}]"]
        self.pipes.append(pipe)

    def begin(self) -> int:
        """Begin to restore, as siblings of CRIU; its process number."""
        restorer = os.fork()
        if restorer == 0:
            self._become_criu()
        return restorer

    def begin_apart(self) -> int:
        """Begin to restore in a namespace of process numbers; the pipe on which its first process reports.

        Its lines are `1 <status of CRIU>` and `0 <status of the task>`.
        """
        reports, report = os.pipe()
        # Its numbers may be in use here: they are free in a namespace of its own.
        call("unshare", NEW_PROCESSES)
        if os.fork() == 0:
            self._be_first(report)
        own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        call("setns", own, 0)
        os.close(own)
        os.close(report)
        return reports

    def _become_criu(self) -> None:
        try:
            be_child()
            log = os.open(f"{self.directory}/restore.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(log, 1)
            os.dup2(log, 2)
            for path in self.enter:
                write_control(path, "0")
            for pipe in self.pipes:
                os.set_inheritable(pipe, True)
            os.execve(self.command[0], self.command, {"DFRS_TASK": self.directory})  # noqa: S606 - CRIU, by its path
        except BaseException as error:
            os.write(2, f"Error: {error}\n".encode())
        finally:
            os._exit(127)

    def _be_first(self, report: int) -> None:
        """Be the first process of a namespace: restore the others, collect them, tell the supervisor."""
        try:
            be_child()
            call("unshare", NEW_MOUNTS)
            call("mount", b"none", b"/", None, ctypes.c_ulong(SLAVE_MOUNTS), None)
            call("mount", b"proc", b"/proc", b"proc", ctypes.c_ulong(0), None)
            write_control("/proc/sys/kernel/ns_last_pid", str(self.first_number))
            restorer = self.begin()
            for pipe in self.pipes:
                os.close(pipe)
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
