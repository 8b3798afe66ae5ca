"""How many jobs of an array may have begun and not ended: the policy is told of no more of them.

Those that wait are let through in the order of their indexes. One that is let through counts until it ends, also while
it is paused or begins anew; one that its user holds before it has begun waits with the others again.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from dfrs.live.controller.records import JobRecord


class ArrayLimits:
    """Of all jobs there are, by their numbers; `candidates` are as in `State`."""

    def __init__(self, jobs: Mapping[int, JobRecord], candidates: dict[int, None]) -> None:
        self._jobs = jobs
        self._candidates = candidates
        self._waiting: dict[int, set[int]] = {}
        """Jobs that wait for their array's limit, by the array's request."""
        self._through: dict[int, int] = {}
        """How many were let through when they were last looked at."""
        self._freed: set[int] = set()
        """Arrays in which there may be room again."""

    def chosen(self, candidates: Iterable[JobRecord], may: Callable[[JobRecord], bool]) -> Iterator[JobRecord]:
        """Of jobs that could be told to the policy those that their array's limit allows; others wait here.

        `candidates` are in the order of submission; `may` says whether a job could be told at all. Those that waited
        before come first.
        """
        found = list(candidates)
        for job in found:
            if job.request.array_limit is not None:
                self._waiting.setdefault(job.request_id, set()).add(job.id)
                self._freed.add(job.request_id)
        if not self._freed:
            yield from found
            return
        through = self._counts(self._freed)
        allowed = {job.id: job for name in sorted(self._freed) for job in self._next(name, through[name], may)}
        self._freed.clear()
        given = {job.id for job in found}
        for job in found:
            if job.request.array_limit is not None and job.id not in allowed:
                del self._candidates[job.id]
        # Until it is recorded that the policy knows them.
        self._candidates.update(dict.fromkeys(allowed))
        yield from (job for job in allowed.values() if job.id not in given)
        yield from (job for job in found if job.id in self._candidates)

    def _counts(self, arrays: set[int]) -> Counter[int]:
        """How many of each were let through: the policy knows them, or they wait for their user's quota."""
        told = (job for job in self._jobs.values() if job.request_id in arrays and (job.registered or job.over_quota))
        return Counter(job.request_id for job in told)

    def _next(self, array: int, through: int, may: Callable[[JobRecord], bool]) -> list[JobRecord]:
        waiting, found = self._waiting.get(array, set[int]()), list[JobRecord]()
        for name in sorted(waiting):
            job = self._jobs.get(name)
            # Whatever changes that makes it a candidate again.
            if job is None or job.over_quota or not may(job):
                waiting.discard(name)
            elif job.request.array_limit is not None and through + len(found) >= job.request.array_limit:
                break
            else:
                waiting.discard(name)
                found.append(job)
        self._through[array] = through + len(found)
        if not waiting:
            self._waiting.pop(array, None)
            self._through.pop(array, None)
        return found

    def free(self, job: JobRecord) -> frozenset[int]:
        """It counts no longer: a job that may go instead, if any waits."""
        waiting = self._waiting.get(job.request_id)
        if not waiting:
            return frozenset()
        self._freed.add(job.request_id)
        return frozenset({min(waiting)})

    def why(self, job: JobRecord) -> str:
        """Why it waits; empty where that is not for its array's limit."""
        if job.id not in self._waiting.get(job.request_id, ()):
            return ""
        count = self._through[job.request_id]
        return f"waits: {count} job{' of its array runs' if count == 1 else 's of its array run'}, or will next"
