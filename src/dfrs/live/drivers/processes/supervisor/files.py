"""Files of a task's directory and of the kernel: read, written whole or not at all, locked."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Generator, Iterable


def read_text(path: str) -> str:
    """What a file holds; empty if it cannot be read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        data = b""
        # The kernel gives its files a page at a time.
        while more := os.read(file, 1 << 20):
            data += more
        return data.decode("utf-8", "surrogateescape")
    except OSError:
        return ""
    finally:
        os.close(file)


def numbers_in(path: str) -> list[int]:
    """The numbers of processes or threads in such a file of a control group, and of the groups below it.

    There are none but where a task that runs as root has made some.
    """
    directory, name = os.path.split(path)
    found = [int(word) for word in read_text(path).split()]
    with contextlib.suppress(OSError):
        # Two links of a directory are its own, the others of directories in it: looking for these takes longer.
        if os.stat(directory).st_nlink > 2:
            for entry in os.scandir(directory):
                if entry.is_dir(follow_symlinks=False):
                    found += numbers_in(f"{entry.path}/{name}")
    return found


def write_control(path: str, text: str) -> None:
    """Write to a kernel's control file. Raises OSError."""
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def replace_file(path: str, data: bytes) -> None:
    """Write a file whole or not at all, for its owner's eyes, and make it last. Raises OSError."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            if os.write(file, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file)
        finally:
            os.close(file)
        os.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def pack(entries: Iterable[tuple[str, str]]) -> bytes:
    """The bytes of a file of entries. Raises ValueError for a zero byte, which no program could be given."""
    for key, value in entries:
        if "\0" in value or "\0" in key:
            raise ValueError(f"{key}: must not contain a zero byte")
    return "".join(f"{key}={value}\0" for key, value in entries).encode("utf-8", "surrogateescape")


def unpack(text: str) -> list[tuple[str, str]]:
    """The entries of such a file, in order; keys may repeat."""
    return [(key, value) for key, _, value in (entry.partition("=") for entry in text.split("\0")[:-1])]


def values(entries: Iterable[tuple[str, str]], wanted: str) -> list[str]:
    """The values of a key that repeats."""
    return [value for key, value in entries if key == wanted]


def read_link(path: str) -> str:
    """The text of a link; empty if there is none."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def remove(*paths: str) -> None:
    """Remove those of these files that are there."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


@contextlib.contextmanager
def locked(directory: str) -> Generator[None]:
    """Hold a task's lock. Raises FileNotFoundError if the task is gone."""
    file = os.open(f"{directory}/lock", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
