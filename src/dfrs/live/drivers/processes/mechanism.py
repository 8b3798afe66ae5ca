"""What a driver of processes adds to what all of them share."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from dfrs.live.drivers.base import DriverAbilities, TaskId, TaskSpec, Usage
from dfrs.live.drivers.processes.directory import Owner


class Mechanism(ABC):
    """How the shares, limits and counts of a node's tasks are brought about."""

    @property
    @abstractmethod
    def abilities(self) -> DriverAbilities:
        """See `base.Driver`."""

    @abstractmethod
    def _place(self, task: TaskId) -> dict[str, str]:
        """Where a task's processes are to be, for its supervisor."""

    @abstractmethod
    def _prepare(self, task: TaskId, spec: TaskSpec, share_cores: float) -> None:
        """Make ready for its processes."""

    @abstractmethod
    def _extras(self, task: TaskId, spec: TaskSpec, share_cores: float) -> list[tuple[str, str]]:
        """What its supervisor is told beyond what the task itself says."""

    @abstractmethod
    def _joins(self, task: TaskId) -> list[tuple[str, str]]:
        """What its supervisor is told of a program that is to run beside it, where it is now."""

    @abstractmethod
    def _move(self, task: TaskId, owner: Owner) -> dict[str, float]:
        """Bring its processes from the node of `owner` to this one; what was counted there and is not here."""

    @abstractmethod
    def _leave(self, task: TaskId, node: str) -> None:
        """Remove what `node` had for a task that has moved away from it."""

    @abstractmethod
    def _clear(self, task: TaskId, node: str) -> None:
        """Remove what `node` has for a task without processes."""

    @property
    @abstractmethod
    def frees_memory(self) -> bool:
        """Whether its pauses free memory: then no task comes before there is memory for it."""

    @abstractmethod
    def _free(self, task: TaskId) -> None:
        """Free the memory of a task that is stopped. Raises PauseRefusedError."""

    @abstractmethod
    def _unfree(self, task: TaskId) -> None:
        """It is about to go on, and its memory comes back."""

    @abstractmethod
    def _enter(self, task: TaskId) -> list[str]:
        """Make ready for its processes, wherever it comes from; the files by which they enter."""

    @abstractmethod
    def _counted(self, task: TaskId, owner: Owner) -> dict[str, float]:
        """All that was counted since it started, for another host."""

    @abstractmethod
    def _share(self, task: TaskId, share_cores: float) -> None:
        """Give it that share."""

    @abstractmethod
    def _favour(self, pid: int) -> None:
        """Let a supervisor, which is to end its task, no longer depend on the share of the task."""

    @abstractmethod
    def usage(self) -> Sequence[Usage]:
        """See `base.Driver`."""

    @abstractmethod
    def remove_node(self) -> None:
        """Remove what the host keeps for the node itself. Raises DriverError that names a task which still runs."""
