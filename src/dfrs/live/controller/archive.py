"""Files to which what is pruned is written before it is deleted: lines of JSON, a file for each kind and month.

A file begins with a header, {"format", "kind", "epoch" (wall clock of time 0)}. Events have their number, by which
`dfrs export --archive` puts them before those that the controller still has. Nothing is deleted before it is on the
disk here; what is written and then not deleted, since the controller ended, comes a second time.
"""

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path

from dfrs.model.errors import DfrsError

FORMAT = "dfrs-archive/1"
_TAIL = 1 << 16


class Archive:
    """A directory of them, which is made if need be. Raises DfrsError where that cannot be."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise DfrsError(f"--archive {directory}: cannot be made: {error.strerror}") from None

    def add(self, kind: str, lines: Iterable[str], epoch: float, now: float) -> None:
        """Add lines, durably, to the file of that kind for the month of the wall clock `now`. Raises DfrsError."""
        path = self.directory / f"{kind}-{time.strftime('%Y-%m', time.gmtime(now))}.jsonl"
        header = {"format": FORMAT, "kind": kind, "epoch": epoch}
        try:
            fresh = not path.exists()
            # What they hold is for nobody else: commands, and all that users did.
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            with open(descriptor, "r+b") as file:
                begun = _whole(descriptor)
                texts = [*([] if begun else [json.dumps(header)]), *lines]
                file.write("".join(f"{text}\n" for text in texts).encode())
                file.flush()
                os.fsync(descriptor)
            if fresh:
                _sync(self.directory)
        except OSError as error:
            raise DfrsError(f"{path}: cannot be written: {error.strerror}; nothing is pruned until it can") from None


def _whole(descriptor: int) -> int:
    """Cut off a line that a controller which was killed left half; bytes that are there."""
    end = os.fstat(descriptor).st_size
    kept = end
    while kept:
        begin = max(0, kept - _TAIL)
        at = os.pread(descriptor, kept - begin, begin).rfind(b"\n")
        if at >= 0:
            kept = begin + at + 1
            break
        kept = begin
    if kept < end:
        os.ftruncate(descriptor, kept)
    return kept


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
