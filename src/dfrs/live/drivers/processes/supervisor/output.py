"""A program's output, on its way from a pipe or terminal into files of bounded size."""

import contextlib
import errno
import os
import select
import time

from .user_files import UserFile

CHUNK_BYTES = 1 << 16
RESERVE_BYTES = 16 << 20
"""So much of the disk, or a sixteenth of a small one, is not filled with output."""


class OutputFile:
    """An output of a program: a pipe or terminal, and the files that it is copied to, which may be there already."""

    def __init__(self, directory: str, name: str, limit_bytes: int) -> None:
        self.base = f"{directory}/{name}."
        self.limit_bytes = limit_bytes
        self.reader = self.writer = -1
        self.start = self.end = self.dropped = 0
        self.older: int | None = None
        self.file = -1
        self.also: UserFile | None = None
        """Where all that is read goes as well."""
        self.waits_s = 0.0
        """So long its program waits for a reader of whom nothing is heard."""
        self._read, self._heard_s = 0, time.monotonic()
        self._held = False
        """Whether its program waits: nothing is taken from the pipe."""
        before = sorted(int(file[len(name) + 1 :]) for file in os.listdir(directory) if file.startswith(f"{name}."))
        if before:
            self.start = self.end = before[-1]
            self.older = before[-2] if len(before) > 1 else None
        with contextlib.suppress(OSError):
            self._open()
            self.end = self.start + os.fstat(self.file).st_size

    def attach(self) -> None:
        """A new pipe to write into."""
        self.reader, self.writer = os.pipe()

    def number(self) -> int:
        """Of the pipe, on this host."""
        return os.fstat(self.reader).st_ino

    def attach_terminal(self, terminal: int, program: int) -> None:
        """A terminal instead of a pipe, by this side of it and the program's."""
        self.reader, self.writer = terminal, program

    def detach(self) -> None:
        """Let go of the end for writing."""
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
        self._held = False

    def serve(self, poll: "select.poll") -> None:
        """Take what is in the pipe, after a wake. There are no more wakes at its end, nor while its program waits."""
        more = self.copy()
        self._held = more and self._is_full()
        if self._held or not more:
            poll.unregister(self.reader)

    def note_read(self, offset: int) -> None:
        """Its reader has all before that."""
        self._read, self._heard_s = offset, time.monotonic()

    def go_on(self, poll: "select.poll") -> None:
        """Be woken again if its program need not wait any more."""
        if self._held and not self._is_full():
            self._held = False
            poll.register(self.reader, select.POLLIN)

    def close(self) -> None:
        """Nothing more is stored."""
        if self.file >= 0:
            os.close(self.file)
            self.file = -1

    def copy(self) -> bool:
        """Take what is in the pipe; False at its end. What cannot be stored is dropped: the task must not wait."""
        try:
            data = memoryview(os.read(self.reader, CHUNK_BYTES))
        except BlockingIOError:
            return True
        except OSError:
            # Of a terminal: no process has it any more.
            return False
        more = len(data) > 0
        if self.also is not None:
            self.also.write(data)
        while data:
            try:
                if self.file < 0 or self._room() <= 0:
                    self._rotate()
                if self._scarce(len(data)):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                written = os.write(self.file, data[: self._room()])
            except OSError:
                self.dropped += len(data)
                break
            self.end += written
            data = data[written:]
        return more

    def _is_full(self) -> bool:
        """Whether with anything more there might be no place for what its reader has not got yet."""
        return self.end - self.start >= self.limit_bytes and self._keeps_older()

    def _room(self) -> int:
        """So many bytes go into the present file. A full one takes as many again where the older one must stay: what
        was still in the pipe when its program had to wait, or has ended.
        """
        left = self.limit_bytes - (self.end - self.start)
        return left if left > 0 or not self._keeps_older() else left + self.limit_bytes

    def _keeps_older(self) -> bool:
        waited_for = self.older is not None and self._read < self.start
        return waited_for and time.monotonic() - self._heard_s < self.waits_s

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
