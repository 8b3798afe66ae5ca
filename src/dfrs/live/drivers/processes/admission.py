"""Which tasks have a node's memory."""

import contextlib
import threading
from collections.abc import Generator

from dfrs.live.drivers.base import DriverError, NotYetError, TaskId
from dfrs.live.drivers.processes.directory import TaskDirectory

ROUNDING_BYTES = 1 << 20
"""Memory is given out in fractions of a node: so much more than there is may come of it."""


class Admission:
    """Gives a node's memory to the tasks that come to it or go on."""

    def __init__(self, files: TaskDirectory, node: str, memory_bytes: int) -> None:
        self.files, self.node, self.memory_bytes = files, node, memory_bytes
        self._admitting = threading.Lock()
        self._coming: dict[TaskId, int] = {}
        """Memory of tasks that are being admitted."""

    @contextlib.contextmanager
    def admitted(self, task: TaskId, memory_bytes: int) -> Generator[None]:
        """Give it memory. Raises NotYetError as long as others have it.

        What is told to several tasks at once is done in any order: one that is to come may be ahead of one that is to
        be paused for it.
        """
        with self._admitting:
            others = [other for other in self.files.ids() if other != task and other not in self._coming]
            used = sum(map(self._memory_of, others)) + sum(self._coming.values())
            if used + memory_bytes > self.memory_bytes + ROUNDING_BYTES:
                raise NotYetError(f"task {task}: waits until others have left node {self.node}'s memory")
            self._coming[task] = memory_bytes
        try:
            yield
        finally:
            del self._coming[task]

    def _memory_of(self, task: TaskId) -> int:
        """What a task of this node may use of its memory."""
        try:
            owner = self.files.owner(task)
        except DriverError:
            # Damaged: it is nobody's.
            return 0
        if owner is None or owner.node != self.node or owner.handed:
            return 0
        if not self.files.supervisor(task) and not self.files.busy(task):
            return 0
        return 0 if self.files.freed(task) or self.files.exit(task) is not None else self.files.memory_bytes(task)
