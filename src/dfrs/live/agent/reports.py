"""What an agent says of what its tasks use: of paused tasks only what is new."""

from collections.abc import Callable, Iterable

from dfrs.live.drivers.base import TaskId
from dfrs.live.protocol.observed import Sample

SETTLED = 20
"""So often the same is said of a paused task: then what it used in the last seconds has come down to nothing."""


class Reports:
    """Of one connection: who is at its other end knows nothing at first, and keeps what it was told."""

    def __init__(self) -> None:
        self._said: dict[TaskId, tuple[Sample, int]] = {}
        """What was said last of each task, and how often since it was first said."""

    def news(self, samples: Iterable[Sample], paused: Callable[[TaskId], bool]) -> tuple[Sample, ...]:
        """Those of all tasks that are to be said."""
        before, self._said = self._said, {}
        found: list[Sample] = []
        for sample in samples:
            said, times = before.get(sample.task, (None, 0))
            times = times + 1 if said == sample and paused(sample.task) else 0
            self._said[sample.task] = sample, times
            if times <= SETTLED:
                found.append(sample)
        return tuple(found)
