"""Files of a task's user, to which its output goes as well.

The task's own child opens them, once it is that user and in the task's directory, and gives them to the supervisor
through a socket. The supervisor writes as that user. So rights, quotas and what a disk keeps for root count as if the
program itself wrote there, and a file of the kernel's, which asks who writes, sees no root.
"""

import contextlib
import os
import stat
from collections.abc import Generator

from .files import values

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
"""A terminal is to be no session's, and nothing may wait for who reads from it."""


class UserFile:
    """One file: what could not be written there is counted. Nothing waits for it, unless its file system hangs."""

    def __init__(self, entry: str) -> None:
        streams, self.mode, self.name = entry.split(" ", 2)
        self.streams = streams.split("+")
        self.file = -1
        self.user = os.geteuid()
        self.lost, self.why = 0, "it could not be opened again"

    def write(self, data: memoryview) -> None:
        """Append what a task wrote."""
        if self.file < 0:
            self.lost += len(data)
            return
        try:
            with _acting_as(self.user):
                while data:
                    data = data[os.write(self.file, data) :]
        except OSError as error:
            self.lost += len(data)
            self.why = error.strerror or str(error)


class UserFiles:
    """All files of a task: asked for in the entries `file` of its `spec`, `<out, err or out+err> <mode> <name>`."""

    def __init__(self, entries: list[tuple[str, str]]) -> None:
        self.files = [UserFile(entry) for entry in values(entries, "file")]
        self.coming = False
        """Whether somebody is about to open them."""
        self.door = -1
        """Through which they come."""

    def of(self, stream: str) -> UserFile | None:
        """The file that an output also goes to."""
        return next((file for file in self.files if stream in file.streams), None)

    def expect(self) -> int:
        """The end of a new socket by which a child is to give them; -1 if there are none, or they are open."""
        if not self.files or self.files[0].file >= 0:
            return -1
        # For the child, too: when it has changed its account, it may be unable to read a module.
        import socket  # noqa: PLC0415 - few tasks have files, and each starts as fast as it can

        ours, theirs = socket.socketpair()
        self.door, self.coming = ours.detach(), True
        return theirs.detach()

    def receive(self) -> None:
        """Take what comes through the door: the files, or why there are none, or its end."""
        import socket  # noqa: PLC0415 - was imported above

        with socket.socket(fileno=self.door) as door:
            said, opened, _, _ = socket.recv_fds(door, 4096, len(self.files), socket.MSG_CMSG_CLOEXEC)
        self.door, self.coming = -1, False
        for file, number in zip(self.files, opened, strict=False):
            file.file, file.user = number, int(said)
        if said and not opened:
            for file in self.files:
                file.why = said.decode("utf-8", "replace")

    def notes(self) -> list[str]:
        """What the user must know of them when the task has ended."""
        return [f"{file.lost} bytes are not in {file.name}: {file.why}" for file in self.files if file.lost]


def give(entries: list[tuple[str, str]], door: int, *, anew: bool) -> None:
    """Open a task's files, as the user that this process is by now, and give them to its supervisor.

    Without `anew` the task goes on, and they are appended to. Raises OSError with the name of the file.
    """
    import socket  # noqa: PLC0415 - the supervisor has imported it

    wanted = [UserFile(entry) for entry in values(entries, "file")]
    opened = [_opened(file.name, empty=anew and file.mode == "truncate") for file in wanted]
    with socket.socket(fileno=door) as theirs:
        socket.send_fds(theirs, [str(os.geteuid()).encode()], opened)


def give_reason(door: int, why: str) -> None:
    """Say to the supervisor why it gets no files."""
    with contextlib.suppress(OSError):
        os.write(door, why.encode("utf-8", "replace")[:2000])


def _opened(name: str, *, empty: bool) -> int:
    try:
        file = os.open(name, _FLAGS, 0o666)
        kind = os.fstat(file).st_mode
        # As /dev/null is one.
        if not stat.S_ISREG(kind) and not stat.S_ISCHR(kind):
            raise OSError(0, "is no file")
        if empty and stat.S_ISREG(kind):
            os.ftruncate(file, 0)
    except OSError as error:
        raise OSError(f"its output file {name} cannot be opened: {error.strerror}") from None
    return file


@contextlib.contextmanager
def _acting_as(user: int) -> Generator[None]:
    """With the rights of a user, and none of root's: with the number of the user in effect, capabilities go."""
    own = os.geteuid()
    if user == own:
        yield
        return
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(own)
