"""Programs as children of the supervisor: how one is started, and those that users start beside the task's own.

A program beside has a directory `beside/<name>` in the task's. Files in it, by who writes them: driver: `spec`;
supervisor: `input`, `signals`, `reads`, `out.<n>` and `err.<n>` as of the task, `started` or `error` (why it could not
be started), `exit` (`code <n>` or `signal <n>`). Whichever of the two is first makes the link `answer`: the supervisor
to `begun` once it runs, or the driver to `withdrawn` once nobody waits for that any more, and then it is not to run.

Of the task it has directory, environment, account and affinity; it is in the task's control groups, and the supervisor
is its parent, so pauses, limits and the end of the task reach it like the task's own.
"""

import contextlib
import os
import select
import signal
from collections.abc import Sequence

from .files import read_link, read_text, replace_file, unpack
from .inputs import ProgramInput, set_size
from .output import OutputFile
from .program import become_program
from .readers import readers_of
from .system import send

BESIDE = "beside"
OUTPUT_BYTES = 1 << 20
"""Size at which output of a program beside is rotated: whoever started it reads along, and it waits for them."""
BEGUN, WITHDRAWN = "begun", "withdrawn"
NOT_IN_TIME = b"not in time, so it was given up"
"""Why a program that was withdrawn could not be started."""
_SHARED = ("directory", "environment", "account", "affinity")
"""Entries of the task's `spec` that count for programs beside it."""


def answered(directory: str, answer: str) -> bool:
    """Whether this is the answer of a program beside: it is unless another one is there."""
    # A link needs no room for data; if it cannot be made even so, nobody has made another.
    with contextlib.suppress(OSError):
        os.symlink(answer, f"{directory}/answer")
    return read_link(f"{directory}/answer") in {answer, ""}


def note(directory: str, name: str, data: bytes) -> None:
    """Tell the driver something of a program beside."""
    # On a full disk whoever waits for it gives up.
    with contextlib.suppress(OSError):
        replace_file(f"{directory}/{name}", data)


def spawn(
    entries: list[tuple[str, str]], outputs: Sequence[OutputFile], source: ProgramInput | None, door: int = -1
) -> tuple[int, int, int]:
    """Fork a program: its number, the pipe that lets it go on, the pipe on which it says why it could not run.

    It begins once something is written to the first, and ends if that is closed before. `door` is for it alone, to give
    files of its user through.
    """
    go, release = os.pipe()
    failed, fail = os.pipe()
    streams = _connect(dict(entries).get("terminal", ""), outputs, source)
    pid = os.fork()
    if pid == 0:
        os.close(release)
        become_program(entries, streams, go, fail, door)
    os.close(go)
    os.close(fail)
    if door >= 0:
        os.close(door)
    for output in outputs:
        output.detach()
    if source is not None and not source.is_terminal:
        os.close(streams[0])
    return pid, release, failed


def _connect(terminal: str, outputs: Sequence[OutputFile], source: ProgramInput | None) -> tuple[int, int, int]:
    """Its standard input, output and error output: pipes, or a terminal with so many rows and columns."""
    if not terminal or source is None:
        for output in outputs:
            output.attach()
        reader = -1
        if source is not None:
            reader, writer = os.pipe()
            source.connect(writer, is_terminal=False)
        return reader, outputs[0].writer, outputs[1].writer
    ours, theirs = os.openpty()
    rows, columns = map(int, terminal.split())
    set_size(ours, rows, columns)
    outputs[0].attach_terminal(ours, theirs)
    outputs[1].attach()
    source.connect(os.dup(ours), is_terminal=True)
    return theirs, theirs, theirs


class Beside:
    """A program beside the task's own."""

    def __init__(self, directory: str, task: list[tuple[str, str]]) -> None:
        self.directory = directory
        self.entries = [entry for entry in task if entry[0] in _SHARED] + unpack(read_text(f"{directory}/spec"))
        self.outputs = (OutputFile(directory, "out", OUTPUT_BYTES), OutputFile(directory, "err", OUTPUT_BYTES))
        self.readers = readers_of(directory, self.entries, self.outputs)
        self.source = ProgramInput(directory) if "input" in dict(self.entries) else None
        self.pid, release, self.failed = spawn(self.entries, self.outputs, self.source)
        self.streams = {output.reader: output for output in self.outputs}
        os.write(release, b"x")
        os.close(release)

    def watch(self, poll: "select.poll") -> None:
        """Be woken for what comes from it and for it."""
        for file in (*self.streams, self.failed):
            poll.register(file, select.POLLIN)
        if self.source is not None:
            self.source.watch(poll)
        if self.readers is not None:
            self.readers.watch(poll)

    def is_withdrawn(self) -> bool:
        """Whether it is not to begin any more."""
        return self.failed >= 0 and read_link(f"{self.directory}/answer") == WITHDRAWN

    def begun(self, poll: "select.poll") -> bool:
        """It runs, or it has said why it cannot; False if it is not to run any more."""
        why = os.read(self.failed, 4096)
        poll.unregister(self.failed)
        os.close(self.failed)
        self.failed = -1
        wanted = bool(why) or answered(self.directory, BEGUN)
        why = why if wanted else NOT_IN_TIME
        note(self.directory, "error" if why else "started", why)
        return wanted

    def kill(self) -> None:
        """End it, and what it has started in its group."""
        # It has that group only once it has come so far.
        send([self.pid, -self.pid], signal.SIGKILL)

    def ended(self, poll: "select.poll", status: int) -> None:
        """Store what it said last, and how it ended."""
        if self.failed >= 0:
            self.begun(poll)
        for file, output in self.streams.items():
            with contextlib.suppress(KeyError):
                poll.unregister(file)
            output.drain()
        for output in self.outputs:
            output.close()
        if self.source is not None:
            self.source.close(poll)
        if self.readers is not None:
            self.readers.close(poll)
        code = os.waitstatus_to_exitcode(status)
        if code == 0 and any(output.dropped for output in self.outputs):
            # Whoever reads its output would take what there is for all of it.
            code = -signal.SIGPIPE
        note(self.directory, "exit", f"code {code}".encode() if code >= 0 else f"signal {-code}".encode())
