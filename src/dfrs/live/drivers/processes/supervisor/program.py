"""A child of the supervisor becomes the task's program."""

import contextlib
import errno
import os
import signal
from collections.abc import Sequence

from .files import values, write_control
from .system import SET_PDEATHSIG, control_process, set_session_level
from .user_files import give, give_reason

HANDLED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD)


def be_child() -> None:
    """Undo what the supervisor has set for itself, and end when it does: nobody would see the end otherwise."""
    for number in (*HANDLED, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    control_process(SET_PDEATHSIG, signal.SIGKILL)


def become_program(spec: list[tuple[str, str]], streams: Sequence[int], go: int, fail: int, door: int = -1) -> None:
    """Run a task by its `spec`, once something comes through the pipe `go`.

    `streams` are its standard input, output and error output; of -1 it has the supervisor's. Why it cannot run goes
    into the pipe `fail`. Files of its user that its output goes to as well are given through `door`.
    """
    try:
        be_child()
        if os.read(go, 1):
            _execute(spec, streams, door)
    except BaseException as error:
        os.write(fail, str(error).encode("utf-8", "replace")[:2000] or b"unknown error")
    finally:
        os._exit(127)


def _execute(entries: list[tuple[str, str]], streams: Sequence[int], door: int) -> None:
    spec = dict(entries)
    environment = dict(value.split("=", 1) for key, value in entries if key == "environment")
    for path in values(entries, "enter"):
        write_control(path, "0")
    with contextlib.suppress(OSError):
        write_control("/proc/self/oom_score_adj", "0")
    os.setsid()
    os.umask(0o022)
    if level := spec.get("nice"):
        os.setpriority(os.PRIO_PROCESS, 0, int(level))
        set_session_level(os.getpid(), int(level))
    if cpus := spec.get("affinity"):
        os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
    for number, stream in enumerate(streams):
        if stream >= 0:
            os.dup2(stream, number)
    if "terminal" in spec:
        _own_terminal()
    if account := spec.get("account", ""):
        environment |= _switch(account)
    # From here on nothing may be imported: the account may be unable to read this interpreter's library.
    _enter_directory(spec["directory"], account)
    if door >= 0:
        give(entries, door, anew=True)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _run(values(entries, "command"), environment)


def become_opener(entries: list[tuple[str, str]], door: int) -> None:
    """Open the files of a task that comes back, on this host or another, and give them to its new supervisor."""
    try:
        be_child()
        os.umask(0o022)
        spec = dict(entries)
        if account := spec.get("account", ""):
            _switch(account)
        _enter_directory(spec["directory"], account)
        give(entries, door, anew=False)
    except BaseException as error:
        give_reason(door, str(error))
    finally:
        os._exit(0)


def _own_terminal() -> None:
    """Have standard input, a terminal, control this session, so that its keys become signals."""
    import fcntl  # noqa: PLC0415 - few tasks have a terminal
    import termios  # noqa: PLC0415 - as fcntl

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _switch(account: str) -> dict[str, str]:
    """Go on under an account; what its programs find in their environment. Raises OSError."""
    import pwd  # noqa: PLC0415 - most tasks run under the agent's own account, and each starts as fast as it can

    try:
        entry = pwd.getpwnam(account)
    except KeyError:
        raise OSError(f"no account {account!r} on this node") from None
    if entry.pw_uid != os.geteuid():
        parent = os.getppid()
        if os.isatty(0):
            # Programs that open their terminal by its name may do so.
            os.fchown(0, entry.pw_uid, -1)
        os.initgroups(account, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
        # With the account the kernel has forgotten that this process is to end with its supervisor.
        control_process(SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(127)
    shell = entry.pw_shell or "/bin/sh"
    return {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name, "SHELL": shell}


def _enter_directory(path: str, account: str) -> None:
    try:
        os.chdir(path)
    except FileNotFoundError:
        raise OSError(f"no such directory: {path}") from None
    except NotADirectoryError:
        raise OSError(f"not a directory: {path}") from None
    except PermissionError:
        if not account:
            raise OSError(f"no right to enter the directory: {path}") from None
        remedy = "submit from one that is open to that account; dfrs agent --run-as names another"
        raise OSError(f"no right to enter the directory as {account}: {path}; {remedy}") from None


def _run(command: list[str], environment: dict[str, str]) -> None:
    """Run a program, looked up as a shell does, in place of this one. Raises OSError that says why it cannot."""
    name = command[0]
    folders = [] if "/" in name else environment.get("PATH", os.defpath).split(":")
    denied = ""
    for path in [f"{folder or '.'}/{name}" for folder in folders] or [name]:
        try:
            os.execve(path, command, environment)  # noqa: S606 - the user's program, as it was asked for
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
