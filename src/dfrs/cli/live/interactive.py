"""A user at a program of a job: what they type goes there, what it writes comes here, and so do keys that are signals.

Output is read by its offset and input is sent with one, so a controller that is away for a moment costs neither of
them a byte; nor does a slow reader, for whom the program waits as on a pipe. One thread reads output; the main thread
waits for keys and signals, and sends them.
"""

import base64
import errno
import os
import secrets
import select
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from typing import TYPE_CHECKING

from dfrs.cli.console import err
from dfrs.cli.live.cluster import patience
from dfrs.cli.live.signals import heeded
from dfrs.live.drivers.base import INPUT_BYTES, InputSignal, Stream, Terminal
from dfrs.live.errors import ConflictError, NotFoundError, UnavailableError, UnreachableError
from dfrs.live.following import asleep
from dfrs.live.protocol.resources import InputRequest, OutputPart
from dfrs.model.errors import DfrsError

if TYPE_CHECKING:
    from dfrs.live.client import Client

LEAVE = b"\x1d"
"""Ctrl-], as in telnet: leaves the program running."""
INTERRUPT = b"\x03"
TWICE_S = 1.0
"""Two Ctrl-C within so long end the job."""
WAIT_S = 5.0
"""So long a node waits for output before the next question."""
NOW_S = 0.001
"""And where several outputs are read in turn. Who waits at all reads along, and their program waits for them."""
STAY_S = 20.0
"""While nothing more can be written here, nodes hear so often that the reader of their output has not gone away."""
FIRST_PAUSE_S, LAST_PAUSE_S = 0.02, 0.25
LAST_WRITE_S = 0.2
"""So long the piece of output that is being written may take, once the user has left."""
PIECE_BYTES = 1 << 18
MOST_UNSENT = 4 * INPUT_BYTES


class Ending(Enum):
    """Why a user is no longer at the program."""

    ENDED = "ended"
    """It has ended, and all that it wrote is here."""
    LEFT = "left"
    """The user has left it running."""
    GONE = "gone"
    """The terminal is gone."""
    STOPPED = "stopped"
    """The user wants it ended."""


def at_terminal() -> bool:
    """Whether a program can have the user's terminal: both of its sides are here."""
    return os.isatty(0) and os.isatty(1)


def terminal_here() -> Terminal:
    """The size of the user's terminal."""
    size = os.get_terminal_size(1)
    # Some say that they have none.
    return Terminal(rows=size.lines or 24, columns=size.columns or 80)


def streams_of(*, terminal: bool) -> tuple[Stream, ...]:
    """The outputs of a program: one where it has a terminal."""
    return ("out",) if terminal else ("out", "err")


class LostOutputError(DfrsError):
    """Some of what a program wrote is nowhere any more, and who stores it here would take the rest for the whole."""


class Session:
    """A user at one program. `ranks`: the tasks whose output is shown; `begin`: where reading begins, if not at 0.

    With `typing` what the user types goes to the program, raw where it has their `terminal`.
    """

    def __init__(
        self,
        client: "Client",
        job: int,
        *,
        ranks: Sequence[int] = (0,),
        program: str | None = None,
        begin: Mapping[Stream, int] | None = None,
        terminal: bool,
        typing: bool,
    ) -> None:
        self.exit_code: int | None = None
        """Of a program beside the job's."""
        self._client, self._job, self._rank, self._program = client, job, ranks[0], program
        self._terminal, self._typing = terminal, typing
        begins, streams = begin or {}, streams_of(terminal=terminal)
        self._offsets: dict[tuple[int, Stream], int] = {
            (rank, stream): begins.get(stream, 0) for rank in ranks for stream in streams
        }
        """Where reading goes on, of what has not ended."""
        self._asking = threading.Lock()
        self._asked_s = time.monotonic()
        """When output was last asked for."""
        self._writer = secrets.token_hex(8)
        self._unsent: deque[InputRequest] = deque()
        self._sent = 0
        self._reads = typing
        self._interrupted_s = -TWICE_S
        self._wake, self._waker = os.pipe()
        self._over = threading.Event()
        self._writing = threading.Lock()
        self._has_left = False
        self._problem: Exception | None = None

    def run(self) -> Ending:
        """Stay until one of the endings. Raises DfrsError, and OSError where output cannot be written here."""
        with _signals(self._waker), _raw(on=self._terminal and self._typing):
            # Who has seen the first output may send a signal.
            threading.Thread(target=self._copy, name="dfrs-output", daemon=True).start()
            if self._terminal and self._typing:
                self._put(size=terminal_here())
            ending = self._converse()
        # What is said now is the last: of what still comes nothing is written, once a piece that is under way is. That
        # one may have to wait for whoever reads it.
        self._has_left = True
        self._writing.acquire(timeout=LAST_WRITE_S)
        if ending is Ending.ENDED and self._problem is not None:
            raise self._problem
        return ending

    # What it writes.

    def _copy(self) -> None:
        try:
            self._copy_all()
        except Exception as error:
            self._problem = error
        self._over.set()
        os.write(self._waker, b"\0")

    def _copy_all(self) -> None:
        left, pause_s, ask = self._offsets, FIRST_PAUSE_S, patience()
        attempts: dict[tuple[int, Stream], int] = {}
        while left:
            grew = False
            for (rank, stream), offset in list(left.items()):
                wait_s = WAIT_S if len(left) == 1 else NOW_S
                part = asleep(
                    ask.ask(
                        lambda rank=rank, stream=stream, offset=offset, wait_s=wait_s: self._ask(
                            rank, stream, offset, PIECE_BYTES, wait_s
                        )
                    )
                )
                if attempts.setdefault((rank, stream), part.attempt) != part.attempt:
                    # The job has begun anew, and so has what it writes.
                    attempts[rank, stream] = part.attempt
                    left[rank, stream] = 0
                    continue
                if part.offset > offset:
                    self._miss(stream, part.offset - offset)
                if data := base64.b64decode(part.data or ""):
                    with self._writing:
                        if self._has_left:
                            return
                        _write(_file_of(stream), data)
                    grew = True
                left[rank, stream] = part.next_offset
                if part.exit_code is not None:
                    self.exit_code = part.exit_code
                if part.ended:
                    del left[rank, stream]
            pause_s = FIRST_PAUSE_S if grew else min(LAST_PAUSE_S, 1.3 * pause_s)
            if not grew:
                time.sleep(pause_s)

    def _ask(self, rank: int, stream: Stream, offset: int, limit: int, wait_s: float) -> OutputPart:
        with self._asking:
            self._asked_s = time.monotonic()
            return self._client.output(
                self._job,
                rank=rank,
                stream=stream,
                offset=offset,
                limit=limit,
                program=self._program,
                wait_s=wait_s,
                raw=True,
            )

    def _miss(self, stream: Stream, lost_bytes: int) -> None:
        """Some of an output has been replaced by later output. Raises LostOutputError unless a user looks at it."""
        if os.isatty(_file_of(stream)):
            err.print(f"… {lost_bytes} bytes were rotated away", style="dim")
            return
        what = "output" if stream == "out" else "error output"
        raise LostOutputError(
            f"job {self._job}: {lost_bytes} bytes of {what} are lost: newer output took their place before they were "
            "read; let the program write what must be whole to a file on its node"
        )

    def _stay(self) -> None:
        """Say that all output is still read, if whoever takes it here has been slow for long."""
        if self._asking.locked() or time.monotonic() - self._asked_s < STAY_S:
            return
        for (rank, stream), offset in list(self._offsets.items()):
            with suppress(DfrsError):
                self._ask(rank, stream, offset, 1, NOW_S)

    # What the user does.

    def _converse(self) -> Ending:
        while True:
            waits = bool(self._unsent)
            room = sum(len(part.data) for part in self._unsent) < MOST_UNSENT
            files = [self._wake, *([0] if self._reads and room else [])]
            ready, _, _ = select.select(files, [], [], FIRST_PAUSE_S if waits else STAY_S)
            ending = self._signalled(os.read(self._wake, 4096)) if self._wake in ready else None
            if ending is None and 0 in ready:
                ending = self._typed()
            self._send()
            if ending is not None:
                return ending
            if self._over.is_set():
                return Ending.GONE if _is_lost_terminal(self._problem) else Ending.ENDED
            self._stay()

    def _signalled(self, numbers: bytes) -> Ending | None:
        for number in numbers:
            if number == signal.SIGWINCH and self._terminal:
                self._put(size=terminal_here())
            elif number == signal.SIGHUP:
                return Ending.GONE
            elif number == signal.SIGTERM:
                return Ending.STOPPED if self._typing else Ending.LEFT
            elif number == signal.SIGINT:
                if not self._typing:
                    return Ending.LEFT
                if self._is_second():
                    return Ending.STOPPED
                self._put(signal="INT")
        return None

    def _typed(self) -> Ending | None:
        try:
            data = os.read(0, INPUT_BYTES)
        except OSError:
            if self._terminal:
                return Ending.GONE
            data = b""
        if not data:
            self._reads = False
            self._put(end=True)
            return Ending.GONE if self._terminal else None
        if not self._terminal:
            self._put(data)
            return None
        before, leaves, _ = data.partition(LEAVE)
        interrupts = len(before) if not before.strip(INTERRUPT) else 0
        if not interrupts:
            self._interrupted_s = -TWICE_S
        # While something was sent, several may have come.
        elif self._is_second() or interrupts > 1:
            return Ending.STOPPED
        self._put(before)
        return Ending.LEFT if leaves else None

    def _is_second(self) -> bool:
        """Whether this interrupt came soon after another one."""
        before_s, self._interrupted_s = self._interrupted_s, time.monotonic()
        return self._interrupted_s - before_s < TWICE_S

    def hang_up(self, name: InputSignal) -> bool:
        """Send a signal, if that can be done now; whether it could."""
        self._unsent.clear()
        self._put(signal=name)
        self._send()
        return not self._unsent

    def _put(
        self, data: bytes = b"", *, end: bool = False, size: Terminal | None = None, signal: InputSignal | None = None
    ) -> None:
        part = InputRequest(
            rank=self._rank,
            program=self._program,
            writer=self._writer,
            offset=self._sent,
            data=base64.b64encode(data).decode(),
            end=end,
            size=size,
            signal=signal,
        )
        if signal is None:
            self._unsent.append(part)
        else:
            # A program that does not read is to get it all the same.
            self._unsent.appendleft(part)
        self._sent += len(data)

    def _send(self) -> None:
        """What can be sent now; the rest later, in order."""
        while self._unsent:
            part = self._unsent[0]
            data = base64.b64decode(part.data)
            try:
                taken = self._client.send_input(self._job, part)
            except (UnreachableError, UnavailableError) as error:
                if part.signal == "INT" and isinstance(error, UnreachableError) and error.sent:
                    # Bytes that come twice are passed over; a second interrupt cuts off what the first one had begun.
                    self._unsent.popleft()
                    err.print("… it is not known whether the interrupt came: repeat it if it did not", style="dim")
                # Whether it is gone for good is found out by the reader of output.
                return
            except (ConflictError, NotFoundError):
                # It has ended, or takes no more.
                self._unsent.clear()
                self._reads = False
                return
            if taken < len(data):
                rest = base64.b64encode(data[taken:]).decode()
                self._unsent[0] = part.model_copy(update={"data": rest, "offset": part.offset + taken})
                return
            self._unsent.popleft()


def _file_of(stream: Stream) -> int:
    return 1 if stream == "out" else 2


def _write(file: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(file, data) :]
        except BlockingIOError:
            # Another program that has the same terminal may have set it so.
            select.select([], [file], [])


def _is_lost_terminal(problem: Exception | None) -> bool:
    return isinstance(problem, OSError) and problem.errno == errno.EIO


def _noted(number: int, frame: object) -> None:
    """The signal's byte in the pipe is all that is wanted of it."""


@contextmanager
def _signals(waker: int) -> Generator[None]:
    """Have signals come as bytes of the pipe `waker`."""
    numbers = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGWINCH)
    os.set_blocking(waker, False)
    woken = signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    before = {number: signal.signal(number, _noted) for number in heeded(numbers)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(woken)


@contextmanager
def _raw(*, on: bool) -> Generator[None]:
    """The user's terminal passes on every key, as long as it is there."""
    if not on:
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(0)
    # What was typed already is for the program.
    tty.setraw(0, termios.TCSANOW)
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(0, termios.TCSADRAIN, before)
        # The program may have left the cursor within a line.
        with suppress(OSError):
            sys.stdout.flush()
