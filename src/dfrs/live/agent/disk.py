"""Whether the disk on which an agent keeps its tasks has room for more of them, and for what they print."""

import os
from pathlib import Path

from dfrs.live.drivers.processes.supervisor import RESERVE_BYTES

RESERVE_PART = 16
"""Of a small disk this part is kept free instead."""
LEAST_FILES = 64
"""Files of a task, and of those that end meanwhile."""
ROOM = 2
"""A full disk counts as full until there is so much more than is needed, so that a node does not flap."""


class DiskSpace:
    """The disk of a directory. `problem` is what the last look found, in a sentence; empty if there is room."""

    def __init__(self, root: Path) -> None:
        self.problem = ""
        self._root = root

    def look(self) -> None:
        """See how much is free. Not on an event loop: a disk may hang."""
        try:
            disk = os.statvfs(self._root)
        except OSError as error:
            self.problem = f"{self._root}: cannot be looked at: {error.strerror}"
            return
        reserve = min(RESERVE_BYTES, disk.f_blocks * disk.f_frsize // RESERVE_PART)
        room = ROOM if self.problem else 1
        full = f"the disk of {self._root} is full:"
        # Without figures that change: the controller writes down each other problem.
        if disk.f_bavail * disk.f_frsize < room * reserve:
            self.problem = f"{full} less than {reserve >> 10} KiB are free, and what tasks print is dropped"
        elif disk.f_files > 0 and disk.f_favail < room * LEAST_FILES:
            self.problem = f"{full} it has room for fewer than {LEAST_FILES} more files"
        else:
            self.problem = ""
