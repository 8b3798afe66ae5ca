"""Namespaces of a host on this machine: the process that holds them, and a way into them.

Run as a module: `hold` makes the namespaces of a host and their first process, `enter` runs a program in them, as its
child outside: a signal to it reaches the program, and the program ends when it does. The first process does nothing but
hold the namespaces and reap orphans, so everything else in the host may be killed and started again; when it ends, so
does all that runs in the host.
"""

import ctypes
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from dfrs.live.drivers.processes.supervisor import SET_PDEATHSIG, control_process, living, read_text, write_control

NAMESPACES = {"ipc": 0x0800_0000, "uts": 0x0400_0000, "net": 0x4000_0000, "pid": 0x2000_0000, "mnt": 0x0002_0000}
"""What a host has of its own, in the order in which it is entered, with the kernel's flags."""
_NOSUID, _NODEV, _NOEXEC, _BIND, _RECURSIVE, _SLAVE = 0x2, 0x4, 0x8, 0x1000, 0x4000, 0x80000
_READY = b"ready"
_libc = ctypes.CDLL(None, use_errno=True)


def join(pid: int, names: Sequence[str]) -> None:
    """Bring the calling thread into namespaces of a process; of `pid`, only its future children. Raises OSError."""
    files = [(os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC), NAMESPACES[name]) for name in names]
    for file, kind in files:
        _checked(_libc.setns(file, kind))
        os.close(file)


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _mount(source: str, target: str, kind: str = "none", flags: int = 0, options: str = "") -> None:
    try:
        _checked(_libc.mount(source.encode(), target.encode(), kind.encode(), flags, options.encode()))
    except OSError as error:
        raise OSError(error.errno, f"{target}: cannot mount: {error.strerror}") from None


def hold(name: str, number: str, mounts: Sequence[str]) -> None:
    """Make a host and return; its first process goes on.

    Writes that one's number on standard output and waits for a line on standard input: if none comes, all is undone.
    The next process in the host has a number above `number`. `mounts` are pairs of source and target, bound in this
    order; an empty source is an empty file system. Raises OSError.
    """
    try:
        _checked(_libc.unshare(sum(NAMESPACES.values())))
    except OSError as error:
        raise OSError(error.errno, f"this machine refuses namespaces: {error.strerror}") from None
    here, there = socket.socketpair()
    first = os.fork()
    if first == 0:
        here.close()
        _first_process(name, number, mounts, there)
    there.close()
    if (answer := here.recv(4096)) != _READY:
        raise OSError(0, answer.decode(errors="replace") or "it ended")
    print(first, flush=True)
    if sys.stdin.readline():
        here.sendall(_READY)
        here.recv(1)


def _first_process(name: str, number: str, mounts: Sequence[str], there: socket.socket) -> NoReturn:
    """Prepare the host, and stay."""
    try:
        # Until the host is on record, it ends with whoever makes it.
        control_process(SET_PDEATHSIG, signal.SIGKILL)
        socket.sethostname(name)
        # What is mounted and unmounted on the machine is so here, too; what is mounted here stays here.
        _mount("none", "/", flags=_RECURSIVE | _SLAVE)
        _mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
        # Not all kernels can do that.
        with suppress(OSError):
            write_control("/proc/sys/kernel/ns_last_pid", number)
        for source, target in zip(mounts[::2], mounts[1::2], strict=True):
            if source:
                _mount(source, target, flags=_BIND)
            else:
                _mount("tmpfs", target, "tmpfs", _NOSUID | _NODEV, "mode=1777")
        there.sendall(_READY)
        if not there.recv(16):
            os._exit(1)
        control_process(SET_PDEATHSIG, 0)
        os.chdir("/")
        nothing = os.open(os.devnull, os.O_RDWR)
        for file in (0, 1, 2):
            os.dup2(nothing, file)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # Orphans that end are reaped by the kernel.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        there.close()
        while True:
            signal.pause()
    except OSError as error:
        there.sendall((error.strerror or str(error)).encode())
    finally:
        os._exit(1)


def enter(record: str, command: Sequence[str]) -> int:
    """Run a program in the host whose first process `record` names; how it ended, if no signal ended it.

    Raises OSError.
    """
    pid = living(read_text(record))
    if pid is None:
        raise OSError(0, f"{os.path.basename(record)}: this host has ended")
    join(pid, list(NAMESPACES))
    forwarded = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    signal.pthread_sigmask(signal.SIG_BLOCK, forwarded)
    child = os.fork()
    if child == 0:
        _become(command, forwarded)
    for number in forwarded:
        signal.signal(number, lambda number, _: os.kill(child, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, forwarded)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return os.waitstatus_to_exitcode(status)


def _become(command: Sequence[str], blocked: Sequence[signal.Signals]) -> NoReturn:
    try:
        control_process(SET_PDEATHSIG, signal.SIGKILL)
        # The parent is outside, where it has no number; whoever is orphaned belongs to the first process here.
        if os.getppid() != 0:
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
        os.execvp(command[0], list(command))  # noqa: S606 - the command that it was started for
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
    finally:
        os._exit(127)


def main(arguments: Sequence[str]) -> int:
    """`hold NAME NUMBER [SOURCE TARGET]…`, or `enter RECORD COMMAND…`; the exit status."""
    verb, first, *rest = arguments
    try:
        if verb == "enter":
            return enter(first, rest)
        hold(first, rest[0], rest[1:])
    except OSError as error:
        print(error.strerror or error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
