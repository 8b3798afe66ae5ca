"""What users send to a program while it runs: bytes for its input, the size of its terminal, signals.

The driver writes messages to `input`, a pipe with a name in the program's directory, each at once and of at most
PIPE_BUF bytes, so that no two mix. A message is a line of words, and for `data` so many bytes after it:

    data <writer> <offset> <bytes>     of all that this writer ever sent, these bytes, from that one on
    end <writer> <offset>              this writer has sent all
    size <rows> <columns>              of the terminal

Signals come by a pipe of their own, `signals`, since a program that does not read is to get them all the same:

    signal <name>                      without SIG

Who does not know whether a message has come sends it again: bytes that were there already are passed over. A signal is
not known from one before: it comes as often as it is sent.
"""

import contextlib
import os
import select
from collections.abc import Callable

from .files import remove

NAME, SIGNALS = "input", "signals"
READ_BYTES = 1 << 16


def set_size(terminal: int, rows: int, columns: int) -> None:
    """Of a terminal; the programs in its foreground get SIGWINCH."""
    import termios  # noqa: PLC0415 - few tasks have a terminal, and each starts as fast as it can

    with contextlib.suppress(OSError):
        termios.tcsetwinsize(terminal, (rows, columns))


class ProgramInput:
    """The input of one program: messages that come, and the pipe or terminal that bytes go to."""

    def __init__(self, directory: str) -> None:
        self.messages, self.signals = (named_pipe(f"{directory}/{name}") for name in (NAME, SIGNALS))
        self.sink = -1
        self.is_terminal = False
        self._unread = b""
        self._waiting = b""
        self._next: dict[str, int] = {}
        self._ended = False

    def connect(self, sink: int, *, is_terminal: bool) -> None:
        """Bytes go there from now on, as fast as the program takes them."""
        os.set_blocking(sink, False)
        self.sink, self.is_terminal = sink, is_terminal

    def watch(self, poll: "select.poll") -> None:
        """Be woken for signals and messages, or, while bytes wait, for signals and room for these."""
        poll.register(self.signals, select.POLLIN)
        if self._waiting:
            poll.register(self.sink, select.POLLOUT)
            poll.register(self.messages, 0)
        else:
            poll.register(self.messages, select.POLLIN)
            if self.sink >= 0:
                with contextlib.suppress(KeyError):
                    poll.unregister(self.sink)

    def serves(self, file: int) -> bool:
        """Whether a wake by that file is for it."""
        return file in {self.messages, self.signals, self.sink}

    def serve(self, poll: "select.poll", obey: Callable[[list[str]], None]) -> None:
        """Pass on what can be, after a wake, in the order in which it was sent; `obey` gets the words of a message that
        has no bytes.
        """
        with contextlib.suppress(BlockingIOError):
            for line in os.read(self.signals, READ_BYTES).decode("ascii", "replace").splitlines():
                obey(line.split())
        if not self._waiting:
            with contextlib.suppress(BlockingIOError):
                self._unread += os.read(self.messages, READ_BYTES)
        self._flush(poll)
        while not self._waiting and (message := self._next_message()) is not None:
            words, self._waiting = message
            if words:
                obey(words)
            self._flush(poll)
        self.watch(poll)

    def _next_message(self) -> tuple[list[str], bytes] | None:
        """The words of one that has no bytes, or the bytes of one that has; None where there is none whole."""
        at = self._unread.find(b"\n")
        words = self._unread[: max(0, at)].decode("ascii", "replace").split()
        size = int(words[3]) if words[:1] == ["data"] else 0
        if at < 0 or len(self._unread) < at + 1 + size:
            return None
        body, self._unread = self._unread[at + 1 : at + 1 + size], self._unread[at + 1 + size :]
        if words[:1] == ["end"]:
            self._ended = True
        if words[:1] != ["data"]:
            return words, b""
        writer, offset = words[1], int(words[2])
        known = self._next.get(writer, 0)
        if not offset <= known < offset + size:
            return [], b""
        self._next[writer] = offset + size
        return [], body[known - offset :]

    def _flush(self, poll: "select.poll") -> None:
        try:
            while self._waiting and self.sink >= 0:
                self._waiting = self._waiting[os.write(self.sink, self._waiting) :]
        except BlockingIOError:
            return
        except OSError:
            # It reads no more: what else comes is for nobody.
            self.disconnect(poll)
        if self._ended and not self.is_terminal:
            self.disconnect(poll)
        if self.sink < 0:
            self._waiting = b""

    def disconnect(self, poll: "select.poll") -> None:
        """The program is at the end of its input, or has ended."""
        if self.sink >= 0:
            with contextlib.suppress(KeyError):
                poll.unregister(self.sink)
            os.close(self.sink)
            self.sink = -1

    def close(self, poll: "select.poll") -> None:
        """Nobody sends anything more."""
        self.disconnect(poll)
        for file in (self.messages, self.signals):
            with contextlib.suppress(KeyError):
                poll.unregister(file)
            os.close(file)


def named_pipe(path: str) -> int:
    """A new one. With an end for writing of its own it is never at its end.

    It has its name once it is open: a pipe that nobody reads is that of a program that has ended.
    """
    fresh = f"{path}.new"
    remove(fresh)
    os.mkfifo(fresh, 0o600)
    pipe = os.open(fresh, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    os.rename(fresh, path)
    return pipe
