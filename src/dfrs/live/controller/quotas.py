"""What one user may have: open jobs, submissions a minute, and CPU and memory of the jobs that the policy is told of.

Who asks for too much at once is refused. Who has jobs with all CPU or memory of their quota waits with the next ones,
in the order of submission: a large job is not passed by later ones of its user, or it might wait for ever.

An account that jobs are charged to has a quota as a user has. A job waits for the one of the two that has too little,
and only that one's other jobs wait behind it: they go on when that one has more, whatever the other one has.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dfrs.live.controller.records import JobRecord
from dfrs.live.controller.state import State
from dfrs.live.controller.views import need_cores
from dfrs.live.errors import TooManyError
from dfrs.live.protocol.quotas import Payer, Quota
from dfrs.live.protocol.resources import JobRequest
from dfrs.model import tolerances
from dfrs.model.errors import InputError

UNKNOWN_CORES = 1.0
"""CPU of a task whose user gave no need, until it is estimated."""
GIB = 1 << 30


@dataclass(slots=True)
class _Use:
    """Of a payer's jobs that the policy knows."""

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
    """Keeps users and accounts within their quotas.

    The earliest job of all that wait is the first in its queue, and nothing but a quota keeps it: so somebody goes on
    whenever there is room.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._pace = Pace()
        self._coming: Counter[Payer] = Counter()
        """Jobs that are being written."""
        self._queues: dict[Payer, dict[int, None]] = {}
        """Jobs that wait for the quota of one who pays for them, each in one of these, in order of submission."""

    def _of(self, payer: Payer) -> Quota | None:
        quotas = self._state.settings.quotas
        if quotas is None:
            return None
        return quotas.accounts.get(payer.name) if payer.is_account else quotas.of(payer.name)

    def admit(self, request: JobRequest, user: str) -> int:
        """Let a request in, to be ended by `entered`; its number of jobs.

        Raises TooManyError where its user must wait before they submit more, InputError where it can never run.
        """
        count, payers = request.array or 1, _payers(request, user)
        self._check_account(request.account, user)
        self.check_size(request, user)
        self.check_weight(request, user)
        paying = self._paying(request, user)
        for payer, quota in paying:
            there = self._open(payer) + self._coming[payer]
            if quota.open_jobs is not None and there + count > quota.open_jobs:
                raise TooManyError(
                    f"open jobs: {payer.words} has {there} and may have {quota.open_jobs}: "
                    f"submit {count} more when others have ended"
                )
        # At last: what is refused for another reason is no submission.
        for payer, quota in paying:
            if quota.submissions_per_minute is not None:
                self._pace.take(payer.name, quota.submissions_per_minute, self._state.settings.steady())
        self._coming.update(dict.fromkeys(payers, count))
        return count

    def entered(self, request: JobRequest, user: str, count: int) -> None:
        """They are in the state, or never will be."""
        for payer in _payers(request, user):
            self._coming[payer] -= count
            if not self._coming[payer]:
                del self._coming[payer]

    def _paying(self, request: JobRequest, user: str) -> list[tuple[Payer, Quota]]:
        """Those who pay for it and have a quota."""
        return [(payer, quota) for payer in _payers(request, user) if (quota := self._of(payer)) is not None]

    def _open(self, payer: Payer) -> int:
        return (self._state.open_charged if payer.is_account else self._state.open_of)[payer.name]

    def _check_account(self, account: str | None, user: str) -> None:
        quotas = self._state.settings.quotas
        quota = None if quotas is None or account is None else quotas.accounts.get(account)
        if quota is not None and quota.users is not None and user not in quota.users:
            raise InputError(f"account: {account}: {user} may not charge it; ask an administrator, or name another")

    def check_size(self, request: JobRequest, user: str) -> None:
        """Raise InputError where one job of a request is more than those who pay for it may have at all."""
        for payer, quota in self._paying(request, user):
            self._check_size(request, payer, quota)

    def check_weight(self, request: JobRequest, user: str) -> None:
        """Raise InputError where a request is to count for more than its user may have: 1, if nothing says more."""
        quotas = self._state.settings.quotas
        most = (Quota() if quotas is None else quotas.of(user)).largest_weight
        if most is not None and request.weight > most:
            raise InputError(f"weight: {request.weight:g}: must be at most {most:g}, the largest_weight of {user}")

    def _check_size(self, request: JobRequest, payer: Payer, quota: Quota) -> None:
        cores, memory = self._cores_of(request), self._state.memory_bytes(request)
        if quota.cpu_cores is not None and request.tasks * cores > quota.cpu_cores + tolerances.CAPACITY:
            raise InputError(
                f"cpu_cores: {request.tasks} x {cores:g}: must be at most {quota.cpu_cores:g} together, the quota of "
                f"{payer.words}"
            )
        if quota.memory_bytes is not None and request.tasks * memory > quota.memory_bytes:
            raise InputError(
                f"memory_bytes: {request.tasks} x {memory}: must be at most {quota.memory_bytes} together "
                f"({_gib(quota.memory_bytes)}), the quota of {payer.words}"
            )

    def why(self, job: JobRecord, request: JobRequest) -> str:
        """Why a job that the policy knows could not be one with that request; empty if it could."""
        payers = self._limiting(job)
        use = self._use(but=job) if payers else {}
        found = (self._too_much(job, request, payer, use.get(payer, _Use())) for payer in payers)
        return next(filter(None, found), "").removeprefix("waits: ")

    def _cores_of(self, request: JobRequest) -> float:
        return UNKNOWN_CORES if request.cpu_cores is None else request.cpu_cores

    def chosen(self, candidates: Iterable[JobRecord]) -> Iterator[JobRecord]:
        """Of jobs that could be told to the policy those that their quotas allow; others wait in the queue.

        `candidates` are in the order of submission. Those that waited before come first.
        """
        if self._state.settings.quotas is None:
            yield from candidates
            return
        found = [(job, self._limiting(job)) for job in candidates]
        use = self._use() if self._queues or any(payers for _, payers in found) else {}
        for payer in list(self._queues):
            yield from self._released(payer, use)
        for job, payers in found:
            if refused := self._refused(job, payers, use):
                self._let_wait(job, *refused)
            else:
                yield job

    def _limiting(self, job: JobRecord) -> list[Payer]:
        """Those who pay for it and have a limit of CPU or memory."""
        found = ((payer, self._of(payer)) for payer in _payers(job.request, job.user))
        return [
            payer
            for payer, quota in found
            if quota is not None and (quota.cpu_cores is not None or quota.memory_bytes is not None)
        ]

    def _let_wait(self, job: JobRecord, payer: Payer, why: str) -> None:
        job.over_quota = why
        queue = self._queues.setdefault(payer, {})
        late = next(reversed(queue), 0) > job.id
        queue[job.id] = None
        if late:
            self._queues[payer] = dict.fromkeys(sorted(queue))
        self._state.candidates.pop(job.id, None)

    def _released(self, payer: Payer, use: dict[Payer, _Use]) -> Iterator[JobRecord]:
        """The first of a payer's queue that fit by now. Those for which another payer has too little wait for that."""
        queue = self._queues[payer]
        for name in list(queue):
            job = self._state.jobs.get(name)
            if job is None or not job.over_quota or job.held or job.outcome is not None:
                del queue[name]
                continue
            payers = self._limiting(job)
            refused = self._refused(job, [payer, *(each for each in payers if each != payer)], use)
            if refused is not None and refused[0] == payer:
                job.over_quota = refused[1]
                break
            del queue[name]
            if refused is not None:
                self._let_wait(job, *refused)
                continue
            job.over_quota = ""
            # Until it is recorded that the policy knows it.
            self._state.candidates[name] = None
            yield job
        if not queue:
            del self._queues[payer]

    def _use(self, but: JobRecord | None = None) -> dict[Payer, _Use]:
        """By those who have limits, without that of the job `but`."""
        found: dict[Payer, _Use] = {}
        for job in self._state.jobs.values():
            for payer in self._limiting(job) if job.registered and job is not but else ():
                self._add(found.setdefault(payer, _Use()), job)
        return found

    def _add(self, use: _Use, job: JobRecord) -> None:
        use.cores += job.request.tasks * self._job_cores(job, job.request)
        use.memory_bytes += job.request.tasks * self._state.memory_bytes(job.request)

    def _job_cores(self, job: JobRecord, request: JobRequest) -> float:
        # One that has begun keeps its need when its user takes that back, where nobody finds out another one.
        known = job.need_error is not None or (bool(job.tasks) and not self._state.discovers)
        if request.cpu_cores is None and known:
            return need_cores(self._state, job)
        return self._cores_of(request)

    def _refused(self, job: JobRecord, payers: Sequence[Payer], use: dict[Payer, _Use]) -> tuple[Payer, str] | None:
        """The first of `payers` for whom it must wait, and why; if none, None, and it is counted in `use`."""
        for payer in payers:
            first = next(iter(self._queues.get(payer, ())), job.id)
            behind = f"waits behind other jobs of {payer.words}, which are over their quota" if first < job.id else ""
            if why := behind or self._too_much(job, job.request, payer, use.setdefault(payer, _Use())):
                return payer, why
        for payer in payers:
            self._add(use[payer], job)
        return None

    def _too_much(self, job: JobRecord, request: JobRequest, payer: Payer, use: _Use) -> str:
        """Why a payer may not have a job of that request beside all that is in use; empty if they may."""
        quota = self._of(payer)
        assert quota is not None
        cores, memory = self._job_cores(job, request), self._state.memory_bytes(request)
        tasks, whose = request.tasks, f"jobs of {payer.words}"
        if quota.cpu_cores is not None and use.cores + tasks * cores > quota.cpu_cores + tolerances.CAPACITY:
            return f"waits: {whose} have {use.cores:g} of the {quota.cpu_cores:g} cores of their quota"
        if quota.memory_bytes is not None and use.memory_bytes + tasks * memory > quota.memory_bytes:
            there, most = _gib(use.memory_bytes), _gib(quota.memory_bytes)
            return f"waits: {whose} have {there} of the {most} of memory of their quota"
        return ""


def _payers(request: JobRequest, user: str) -> list[Payer]:
    """The user, and the account if there is one."""
    return [Payer(user), *([] if request.account is None else [Payer(request.account, is_account=True)])]


def _gib(number: int) -> str:
    return f"{number / GIB:.4g} GiB"
