"""Which tasks have a node's memory, which of its named resources, and which have it to themselves."""

import contextlib
import threading
from collections.abc import Generator, Iterable, Mapping
from dataclasses import replace

from dfrs.live.drivers.base import NO_JOB, DriverError, NotYetError, TaskId
from dfrs.live.drivers.processes.directory import TaskDirectory
from dfrs.live.drivers.processes.stake import NO_RESOURCES, Numbers, Stake, stake_of

ROUNDING_BYTES = 1 << 20
"""Memory is given out in fractions of a node: so much more than there is may come of it."""


class Admission:
    """Gives a node's memory and named resources to the tasks that come to it or go on."""

    def __init__(
        self, files: TaskDirectory, node: str, memory_bytes: int, resources: Mapping[str, int] = NO_RESOURCES
    ) -> None:
        self.files, self.node, self.memory_bytes, self.resources = files, node, memory_bytes, resources
        self._admitting = threading.Lock()
        self._coming: dict[TaskId, Stake] = {}
        """Of tasks that are being admitted."""

    @contextlib.contextmanager
    def admitted(self, task: TaskId, wants: Stake, resources: Mapping[str, int] = NO_RESOURCES) -> Generator[Numbers]:
        """Give it what it wants, and so many of each named resource. Raises NotYetError as long as others have it.

        What is told to several tasks at once is done in any order: one that is to come may be ahead of one that is to
        be paused for it.
        """
        with self._admitting:
            others = {other: self._stake(other) for other in self.files.ids() if other not in self._coming}
            others |= self._coming
            others.pop(task, None)
            used = sum(stake.memory_bytes for stake in others.values())
            if used + wants.memory_bytes > self.memory_bytes + ROUNDING_BYTES:
                raise NotYetError(f"task {task}: waits until others have left node {self.node}'s memory")
            self._refuse_company(task, wants, others)
            numbers = {name: self._free(task, name, count, others.values()) for name, count in resources.items()}
            self._coming[task] = replace(wants, numbers={**wants.numbers, **numbers})
        try:
            yield numbers
        finally:
            # Not while others are looked at: it would be among neither those nor these.
            with self._admitting:
                del self._coming[task]

    @contextlib.contextmanager
    def readmitted(self, task: TaskId, memory_bytes: int) -> Generator[None]:
        """Give so much memory to a task that has started, and has what else it had."""
        own = replace(stake_of(self.files.spec(task)), memory_bytes=memory_bytes)
        with self.admitted(task, own):
            yield

    def _refuse_company(self, task: TaskId, wants: Stake, others: Mapping[TaskId, Stake]) -> None:
        """Raise NotYetError where one of two tasks of different jobs is to be alone. An agent's own disturb nobody."""
        for other, stake in others.items():
            strangers = other.job != task.job and NO_JOB not in {task.job, other.job}
            if strangers and (stake.alone or (wants.alone and stake.memory_bytes)):
                raise NotYetError(f"task {task}: waits until task {other} has left node {self.node}")

    def _free(self, task: TaskId, name: str, count: int, others: Iterable[Stake]) -> tuple[int, ...]:
        """The first numbers of a named resource that nobody has."""
        taken = {number for stake in others for number in stake.numbers.get(name, ())}
        free = [number for number in range(self.resources.get(name, 0)) if number not in taken]
        if len(free) < count:
            raise NotYetError(f"task {task}: waits for {count} {name} of node {self.node}: {len(free)} are not in use")
        return tuple(free[:count])

    def _stake(self, task: TaskId) -> Stake:
        """What a task has of this node."""
        nothing = Stake(memory_bytes=0)
        try:
            owner = self.files.owner(task)
        except DriverError:
            # Damaged: it is nobody's.
            return nothing
        if owner is None or owner.node != self.node or owner.handed or self.files.exit(task) is not None:
            return nothing
        own = stake_of(self.files.spec(task))
        begun = self.files.supervisor(task) or self.files.busy(task)
        if not begun or self.files.freed(task):
            # Its named resources are its own from when its record says so until that is gone.
            return replace(nothing, numbers=own.numbers)
        return own
