"""The latest of the jobs that have ended, as texts: as models, a thousand would need 6 MiB, and few are read."""

import math
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from dfrs.live.protocol.ports import Chosen
from dfrs.live.protocol.resources import Job, JobState

MOST_ENDED = 5000
"""So many stay in memory; the database has all of them."""


@dataclass(frozen=True, slots=True)
class _Ended:
    state: JobState
    user: str
    at: float
    text: bytes
    """The job as JSON."""


class EndedJobs:
    """In the order in which they ended."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[int, _Ended] = OrderedDict()
        self.absent = 0
        """The greatest number of a job that has ended and is not here; 0: there is none."""
        self._gone_at = -math.inf
        """The latest end of those that had to go."""

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, name: int) -> bool:
        return name in self._jobs

    @property
    def all_after(self) -> float:
        """All that ended later than that are here, also where those before were never added."""
        first = next(iter(self._jobs.values()), None)
        return math.inf if first is None else max(self._gone_at, first.at)

    def add(self, job: Job) -> None:
        """Keep it; those that ended longest ago go for it."""
        self._jobs[job.id] = _Ended(job.state, job.user, job.ended_at or 0.0, job.model_dump_json().encode())
        while len(self._jobs) > MOST_ENDED:
            name, gone = self._jobs.popitem(last=False)
            self.absent = max(self.absent, name)
            self._gone_at = max(self._gone_at, gone.at)

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

    def some(self, chosen: Chosen) -> Iterator[Job]:
        """The latest number first."""
        before, since = chosen.before, chosen.since
        for name in sorted((name for name in self._jobs if before is None or name < before), reverse=True):
            found = self._jobs[name]
            fits = found.state in (chosen.states or ()) and chosen.user in {None, found.user}
            if fits and (since is None or found.at >= since):
                yield Job.model_validate_json(found.text)
