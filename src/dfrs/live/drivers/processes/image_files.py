"""What an image is made of: its files on their way from a dump to the disk or to another host, and its manifest."""

import contextlib
import errno
import fcntl
import os
import pwd
import re
import shutil
import struct
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

import zstandard
from pydantic import BaseModel, ConfigDict, Field

from dfrs.live.drivers.base import DriverError, ImageFormat
from dfrs.live.drivers.processes.directory import is_at
from dfrs.live.drivers.processes.supervisor import RESERVE_BYTES, replace_file

LEVEL = 1
"""Of zstd: what it saves beyond that costs more time than it is worth."""
CHUNK_BYTES = 1 << 20
COUNT_BYTES = 16 << 20
"""After so many bytes of an image, what all images of the host take is counted again."""
IMAGE_FILE = re.compile(r"[a-z0-9-]+\.img|manifest\.json|history\.json|parked")
OUTPUT_FILE = re.compile(r"(?:out|err)\.\d+")

Codec = Literal["zstd", "none"]


class ImageError(DriverError):
    """A task could not be check-pointed or restored: it is as it was before, and the message says why."""


class TryAgainError(ImageError):
    """A task could not be check-pointed just now: nothing speaks against trying again soon."""


def account_numbers(account: str | None) -> tuple[int, int] | None:
    """Of a task's user and group, where None is the agent's own account; None if there is no such account here."""
    if account is None:
        return os.geteuid(), os.getegid()
    try:
        entry = pwd.getpwnam(account)
    except KeyError:
        return None
    return entry.pw_uid, entry.pw_gid


class History(BaseModel):
    """What a task brings with it that no image holds."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    transfers: int = Field(ge=1)
    """How often it has gone from one host to another, this time included."""
    carried: dict[str, float]
    """What was counted on the hosts where it was, see `directory.Owner`."""
    account: tuple[int, int] | None = None
    """The `account_numbers` that its processes have; None where they are not known, as from an earlier version."""


class Manifest(BaseModel):
    """What must be known of an image before it is restored."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    codec: Codec
    format: ImageFormat
    """Of the host where it was made."""
    main: int
    """Number of the task's first process, as it saw itself."""
    numbers: tuple[int, ...]
    """Of all its processes and threads."""
    plain_bytes: int
    """Before compression."""
    stored_bytes: int


class Writer(Protocol):
    """Takes the files of an image. Called from several threads, in order for each file."""

    def write(self, name: str, data: bytes) -> None:
        """More of a file. Raises OSError or DriverError if it cannot be taken."""
        ...

    def close(self, name: str) -> None:
        """A file is complete."""
        ...


class Compressed:
    """Compresses on the way to another writer."""

    def __init__(self, target: Writer) -> None:
        self.target = target
        self.files: dict[str, zstandard.ZstdCompressionObj] = {}

    def write(self, name: str, data: bytes) -> None:
        """See `Writer`."""
        if name not in self.files:
            self.files[name] = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compressobj()
        if packed := self.files[name].compress(data):
            self.target.write(name, packed)

    def close(self, name: str) -> None:
        """See `Writer`."""
        if name in self.files:
            self.target.write(name, self.files.pop(name).flush())
        self.target.close(name)


class Frames:
    """Sends the files of an image through one stream, such as a connection to another host.

    That it breaks does not end a dump: `finish` says so afterwards.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.lock = threading.Lock()
        self.sent: set[str] = set()
        """The files that have gone out whole."""
        self.problem: OSError | None = None

    def write(self, name: str, data: bytes) -> None:
        """See `Writer`."""
        with self.lock:
            if self.problem is None:
                try:
                    self.stream.write(struct.pack("<HI", len(name), len(data)) + name.encode() + data)
                except OSError as error:
                    self.problem = error
                except ValueError as error:
                    # Another thread has closed it.
                    self.problem = BrokenPipeError(errno.EPIPE, str(error))

    def close(self, name: str) -> None:
        """See `Writer`. An empty frame ends a file."""
        self.write(name, b"")
        self.sent.add(name)

    def finish(self) -> None:
        """All files have been sent: what comes without this is not complete. Raises OSError if the stream broke."""
        self.write("", b"")
        if self.problem is not None:
            raise self.problem
        self.stream.flush()


class Both:
    """Passes the files of an image on to two writers."""

    def __init__(self, first: Writer, second: Writer) -> None:
        self.first, self.second = first, second

    def write(self, name: str, data: bytes) -> None:
        """See `Writer`."""
        self.first.write(name, data)
        self.second.write(name, data)

    def close(self, name: str) -> None:
        """See `Writer`."""
        self.first.close(name)
        self.second.close(name)


def receive(stream: BinaryIO, target: Writer) -> None:
    """Take what `Frames` sends. Raises EOFError if it breaks off, and what `target` raises."""
    while True:
        name_length, length = struct.unpack("<HI", _exactly(stream, 6))
        name = _exactly(stream, name_length).decode(errors="replace")
        if not name:
            return
        if not (IMAGE_FILE.fullmatch(name) or OUTPUT_FILE.fullmatch(name)) or length > 2 * CHUNK_BYTES:
            raise ImageError(f"{name[:40]!r}: not a file of an image")
        if length:
            target.write(name, _exactly(stream, length))
        else:
            target.close(name)


def _exactly(stream: BinaryIO, length: int) -> bytes:
    data = stream.read(length)
    if len(data) < length:
        raise EOFError("the image breaks off")
    return data


def sync_directory(path: str | Path) -> None:
    """Make the names in it last. Raises OSError."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def lock_directory(path: str | Path, *, wait: bool = True) -> int:
    """Open it with a lock: whoever holds that lives, and needs the directory. Raises OSError."""
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock


def make_locked(make: Callable[[], str]) -> tuple[str, int]:
    """The directory that `make` makes, and its lock as of `lock_directory`. Raises OSError."""
    while True:
        path = make()
        # Until it is locked, another may take it for nobody's and remove it.
        with contextlib.suppress(FileNotFoundError):
            lock = lock_directory(path)
            if is_at(lock, path):
                return path, lock
            os.close(lock)


def remove_unlocked(path: Path, unwanted: Callable[[Path], bool] = lambda path: True) -> None:
    """Remove a directory that nobody has locked, if it is unwanted."""
    with contextlib.suppress(OSError):
        lock = lock_directory(path, wait=False)
        try:
            if unwanted(path):
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)


class StoredImage:
    """An image of a task while it is being written to the disk. It is removed unless it is kept.

    All images in `directory`, `used_bytes()` together, may take `max_bytes`. Raises OSError.
    """

    def __init__(self, directory: Path, task: str, max_bytes: int, used_bytes: Callable[[], int]) -> None:
        self.directory, self.task, self.max_bytes, self.used_bytes = directory, task, max_bytes, used_bytes
        self.path, self.lock = make_locked(lambda: tempfile.mkdtemp(prefix=".new.", dir=directory))
        self.files: dict[str, int] = {}
        self.counting = threading.Lock()
        self.bytes = 0
        self.room = max_bytes - used_bytes()
        self.next_count = COUNT_BYTES

    def write(self, name: str, data: bytes) -> None:
        """See `Writer`."""
        if name not in self.files:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self.files[name] = os.open(f"{self.path}/{name}", flags, 0o600)
        with self.counting:
            self.bytes += len(data)
            if self.bytes > self.next_count:
                self.room = self.max_bytes - (self.used_bytes() - self.bytes)
                self.next_count += COUNT_BYTES
            if self.bytes > self.room:
                raise ImageError(f"images may take {self.max_bytes >> 20} MiB of this host: too little for this one")
        disk = os.fstatvfs(self.files[name])
        reserve = min(RESERVE_BYTES, disk.f_blocks * disk.f_frsize // 16)
        if disk.f_bavail * disk.f_frsize - len(data) < reserve:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view = memoryview(data)
        while view:
            view = view[os.write(self.files[name], view) :]

    def close(self, name: str) -> None:
        """See `Writer`. What is closed lasts, whatever becomes of the machine."""
        if name in self.files:
            file = self.files.pop(name)
            try:
                os.fsync(file)
            finally:
                os.close(file)

    def complete(self, manifest: Manifest) -> None:
        """Give it its name: from now on it is whole, but nobody's. Raises OSError."""
        replace_file(f"{self.path}/manifest.json", manifest.model_dump_json().encode())
        path = f"{self.directory}/{self.task}.{uuid.uuid4().hex}"
        os.fsync(self.lock)
        os.rename(self.path, path)
        self.path = path
        sync_directory(self.directory)

    def end(self, *, keep: bool) -> None:
        """Let go of it, and remove it unless it is to be kept."""
        for file in self.files.values():
            os.close(file)
        if not keep:
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


class Counted:
    """Counts what goes to another writer."""

    def __init__(self, target: Writer) -> None:
        self.target, self.sizes = target, dict[str, int]()

    def write(self, name: str, data: bytes) -> None:
        """See `Writer`."""
        self.sizes[name] = self.sizes.get(name, 0) + len(data)
        self.target.write(name, data)

    def close(self, name: str) -> None:
        """See `Writer`."""
        self.target.close(name)

    def total(self) -> int:
        """Bytes of all files."""
        return sum(self.sizes.values())


def read_stored(path: str, codec: Codec) -> Iterator[bytes] | None:
    """What a file of an image holds; None if there is none."""
    return _unpacked(path, codec) if os.path.exists(path) else None


def _unpacked(path: str, codec: Codec) -> Iterator[bytes]:
    with open(path, "rb") as file:
        if codec == "zstd":
            yield from zstandard.ZstdDecompressor().read_to_iter(file, read_size=CHUNK_BYTES, write_size=CHUNK_BYTES)
        else:
            while data := file.read(CHUNK_BYTES):
                yield data
