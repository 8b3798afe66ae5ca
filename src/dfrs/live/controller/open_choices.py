"""What open jobs say of the nodes on which they may run."""

from collections.abc import Iterator, Mapping

from dfrs.live.protocol.node_choice import number
from dfrs.live.protocol.resources import JobRequest


class OpenChoices(Mapping[int, int]):
    """How many open jobs have each constraint, by its number."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._requests: dict[int, JobRequest] = {}

    def __getitem__(self, constraint: int) -> int:
        return self._counts[constraint]

    def __iter__(self) -> Iterator[int]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)

    def request(self, constraint: int) -> JobRequest:
        """Of one of these jobs: all of them say the same of nodes."""
        return self._requests[constraint]

    def enter(self, request: JobRequest) -> None:
        """A job more."""
        constraint = number(request)
        if constraint:
            self._counts[constraint] = self._counts.get(constraint, 0) + 1
            self._requests[constraint] = request

    def leave(self, request: JobRequest) -> None:
        """A job less."""
        constraint = number(request)
        if not constraint:
            return
        self._counts[constraint] -= 1
        if not self._counts[constraint]:
            del self._counts[constraint], self._requests[constraint]
