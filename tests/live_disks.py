"""Disks of tests that are soon full."""

import subprocess
from contextlib import contextmanager, suppress


@contextmanager
def small_disk(directory, size):
    """A file system of its own that is soon full."""
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", directory], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", directory], check=True)


def fill(directory):
    """Fill its disk to the last byte; the file that does."""
    filler = directory / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with suppress(OSError):
                while True:
                    file.write(b"x" * size)
    return filler
