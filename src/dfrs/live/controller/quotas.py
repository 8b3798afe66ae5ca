"""What one user may have: open jobs, submissions a minute, and CPU and memory of the jobs that the policy is told of.

Who asks for too much at once is refused. Who has jobs with all CPU or memory of their quota waits with the next ones,
in the order of submission: a large job is not passed by later ones of its user, or it might wait for ever.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dfrs.live.controller.records import JobRecord
from dfrs.live.controller.state import State
from dfrs.live.controller.views import need_cores
from dfrs.live.errors import TooManyError
from dfrs.live.protocol.quotas import Quota
from dfrs.live.protocol.resources import JobRequest
from dfrs.model import tolerances
from dfrs.model.errors import InputError

UNKNOWN_CORES = 1.0
"""CPU of a task whose user gave no need, until it is estimated."""
GIB = 1 << 30


@dataclass(slots=True)
class _Use:
    """Of a user's jobs that the policy knows."""

    cores: float = 0.0
    memory_bytes: int = 0


class Pace:
    """Submissions a minute: a minute's worth at once, and then as they come back."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, user: str, per_minute: float, now_s: float) -> None:
        """Count one. Raises TooManyError."""
        left, since_s = self._left.get(user, (per_minute, now_s))
        left = min(per_minute, left + max(0.0, now_s - since_s) * per_minute / 60.0)
        if left < 1.0:
            wait_s = math.ceil((1.0 - left) * 60.0 / per_minute)
            raise TooManyError(
                f"submissions: {user} may make {per_minute:g} a minute: use an array, or wait {wait_s} s", wait_s
            )
        self._left[user] = (left - 1.0, now_s)


class QuotaKeeper:
    """Keeps users within their quotas."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._pace = Pace()
        self._coming: Counter[str] = Counter()
        """Jobs that are being written."""
        self._queues: dict[str, dict[int, None]] = {}
        """Jobs that wait for their user's quota, by user, in order."""

    def _of(self, user: str) -> Quota | None:
        quotas = self._state.settings.quotas
        return None if quotas is None else quotas.of(user)

    def admit(self, request: JobRequest, user: str) -> int:
        """Let a request in, to be ended by `entered`; its number of jobs.

        Raises TooManyError where its user must wait before they submit more, InputError where it can never run.
        """
        count = request.array or 1
        quota = self._of(user)
        self.check_size(request, user)
        if quota is not None:
            if quota.submissions_per_minute is not None:
                self._pace.take(user, quota.submissions_per_minute, self._state.settings.steady())
            there = self._state.open_of[user] + self._coming[user]
            if quota.open_jobs is not None and there + count > quota.open_jobs:
                raise TooManyError(
                    f"open jobs: {user} has {there} and may have {quota.open_jobs}: "
                    f"submit {count} more when others have ended"
                )
        self._coming[user] += count
        return count

    def entered(self, user: str, count: int) -> None:
        """They are in the state, or never will be."""
        self._coming[user] -= count
        if not self._coming[user]:
            del self._coming[user]

    def check_size(self, request: JobRequest, user: str) -> None:
        """Raise InputError where one job of a request is more than its user may have at all."""
        quota = self._of(user)
        if quota is None:
            return
        cores, memory = self._cores_of(request), self._state.memory_bytes(request)
        if quota.cpu_cores is not None and request.tasks * cores > quota.cpu_cores + tolerances.CAPACITY:
            raise InputError(
                f"cpu_cores: {request.tasks} x {cores:g}: must be at most {quota.cpu_cores:g} together, the quota of "
                f"{user}"
            )
        if quota.memory_bytes is not None and request.tasks * memory > quota.memory_bytes:
            raise InputError(
                f"memory_bytes: {request.tasks} x {memory}: must be at most {quota.memory_bytes} together "
                f"({_gib(quota.memory_bytes)}), the quota of {user}"
            )

    def why(self, job: JobRecord, request: JobRequest) -> str:
        """Why a job that the policy knows could not be one with that request; empty if it could."""
        if not self._limits(job.user):
            return ""
        use = self._use({job.user}, but=job)[job.user]
        return self._too_much(job, request, use).removeprefix("waits: ")

    def _cores_of(self, request: JobRequest) -> float:
        return UNKNOWN_CORES if request.cpu_cores is None else request.cpu_cores

    def chosen(self, candidates: Iterable[JobRecord]) -> Iterator[JobRecord]:
        """Of jobs that could be told to the policy those that their quotas allow; others wait in the queue.

        `candidates` are in the order of submission. Those that waited before come first.
        """
        if self._state.settings.quotas is None:
            yield from candidates
            return
        found = list(candidates)
        users = {job.user for job in found if self._limits(job.user)} | self._queues.keys()
        use = self._use(users)
        for user in list(self._queues):
            yield from self._released(user, use[user])
        for job in found:
            if job.user not in users:
                yield job
            elif (why := "" if job.user in self._queues else self._why(job, use[job.user])) or job.user in self._queues:
                job.over_quota = why or _behind(job.user)
                self._queues.setdefault(job.user, {})[job.id] = None
                del self._state.candidates[job.id]
            else:
                yield job

    def _limits(self, user: str) -> bool:
        quota = self._of(user)
        return quota is not None and (quota.cpu_cores is not None or quota.memory_bytes is not None)

    def _released(self, user: str, use: _Use) -> Iterator[JobRecord]:
        """The first of a user's queue that fit by now."""
        queue = self._queues[user]
        for name in list(queue):
            job = self._state.jobs.get(name)
            if job is None or not job.over_quota or job.held or job.outcome is not None:
                del queue[name]
                continue
            why = self._why(job, use)
            if why:
                job.over_quota = why
                break
            del queue[name]
            job.over_quota = ""
            # Until it is recorded that the policy knows it.
            self._state.candidates[name] = None
            yield job
        if not queue:
            del self._queues[user]

    def _use(self, users: set[str], but: JobRecord | None = None) -> dict[str, _Use]:
        found = {user: _Use() for user in users}
        for job in self._state.jobs.values() if users else ():
            if job.registered and job.user in found and job is not but:
                self._add(found[job.user], job)
        return found

    def _add(self, use: _Use, job: JobRecord) -> None:
        use.cores += job.request.tasks * self._job_cores(job, job.request)
        use.memory_bytes += job.request.tasks * self._state.memory_bytes(job.request)

    def _job_cores(self, job: JobRecord, request: JobRequest) -> float:
        if request.cpu_cores is None and job.need_error is not None:
            return need_cores(self._state, job)
        return self._cores_of(request)

    def _why(self, job: JobRecord, use: _Use) -> str:
        """Why it must wait; if it need not, "", and it is counted in `use`."""
        why = self._too_much(job, job.request, use)
        if not why:
            self._add(use, job)
        return why

    def _too_much(self, job: JobRecord, request: JobRequest, use: _Use) -> str:
        """Why its user may not have a job of that request beside all that is in use; empty if they may."""
        quota = self._of(job.user)
        assert quota is not None
        cores, memory = self._job_cores(job, request), self._state.memory_bytes(request)
        tasks = request.tasks
        if quota.cpu_cores is not None and use.cores + tasks * cores > quota.cpu_cores + tolerances.CAPACITY:
            return f"waits: jobs of {job.user} have {use.cores:g} of the {quota.cpu_cores:g} cores of their quota"
        if quota.memory_bytes is not None and use.memory_bytes + tasks * memory > quota.memory_bytes:
            there, most = _gib(use.memory_bytes), _gib(quota.memory_bytes)
            return f"waits: jobs of {job.user} have {there} of the {most} of memory of their quota"
        return ""


def _behind(user: str) -> str:
    return f"waits behind other jobs of {user}, which are over their quota"


def _gib(number: int) -> str:
    return f"{number / GIB:.4g} GiB"
