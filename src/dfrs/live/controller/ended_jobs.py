"""The latest of the jobs that have ended, as texts: as models, a thousand would need 6 MiB, and few are read."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from dfrs.live.protocol.resources import Job, JobState

MOST_ENDED = 5000
"""So many stay in memory; the database has all of them."""


@dataclass(frozen=True, slots=True)
class _Ended:
    state: JobState
    user: str
    text: bytes
    """The job as JSON."""


class EndedJobs:
    """In the order in which they ended."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[int, _Ended] = OrderedDict()

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, name: int) -> bool:
        return name in self._jobs

    def add(self, job: Job) -> None:
        """Keep it; those that ended longest ago go for it."""
        self._jobs[job.id] = _Ended(job.state, job.user, job.model_dump_json().encode())
        while len(self._jobs) > MOST_ENDED:
            self._jobs.popitem(last=False)

    def drop(self, name: int) -> None:
        """Keep it no more, if it is there."""
        self._jobs.pop(name, None)

    def get(self, name: int) -> Job | None:
        """The job; None where it is not among them."""
        found = self._jobs.get(name)
        return None if found is None else Job.model_validate_json(found.text)

    def state(self, name: int) -> JobState:
        """How it ended. Raises KeyError."""
        return self._jobs[name].state

    def some(self, *, user: str | None, states: frozenset[JobState], before: int | None) -> Iterator[Job]:
        """Those of a user, in some states, with smaller numbers than `before`: the latest number first."""
        for name in sorted((name for name in self._jobs if before is None or name < before), reverse=True):
            found = self._jobs[name]
            if found.state in states and user in {None, found.user}:
                yield Job.model_validate_json(found.text)
