"""Fair share over time: who has used much of the cluster lately goes behind who has used little.

The weight of a job is multiplied by 2^(-U / S). U is the part that who pays for it has of all CPU time used lately, of
which a half is forgotten each half-life; S is the part that they have of the shares of all who have jobs now. Who pays
is the job's account, or else its user. If all use just their part, all factors are a half, and nothing changes; who has
used nothing has the factor 1.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from dfrs.engine.events import Reweigh
from dfrs.live.controller.records import JobRecord
from dfrs.live.protocol.quotas import Payer, Quotas
from dfrs.live.protocol.resources import JobRequest
from dfrs.model.decisions import Jobs

KEY = "fair share"
"""In `meta`."""
LOOK_S = 60.0
"""So often it is counted what was used, and the core is told where ..."""
CHANGE = 0.1
"""... a weight is another one by more than this part of it."""
LEAST = 2.0**-10
"""The smallest factor."""


class FairShares:
    """What everybody has used, and what that makes of weights. `half_life_s` None: nothing."""

    def __init__(self, half_life_s: float | None, quotas: Quotas | None, clock: Callable[[], float]) -> None:
        self._half_life_s = half_life_s
        self._quotas = quotas or Quotas()
        self._clock = clock
        self._used_s: dict[Payer, float] = {}
        """CPU time, as it counts now."""
        self._at = clock()
        """That instant, by the wall clock."""
        self._counted_s: dict[int, float] = {}
        """How much of an open job's CPU time is in there."""
        self._unknown: set[int] = set()
        """Jobs of which that was counted by an earlier controller: as much as they have used when it is next told."""
        self._factors: Mapping[Payer, float] = {}
        self._next_s = 0.0

    @property
    def on(self) -> bool:
        """Whether weights depend on what was used."""
        return self._half_life_s is not None

    def restore(self, text: str | None, begun: Iterable[int]) -> None:
        """Go on from what is stored; `begun` are jobs that ran then.

        Raises ValueError, KeyError or TypeError where it is damaged.
        """
        self._unknown = set(begun)
        if text is not None:
            found = json.loads(text)
            self._used_s = {Payer(name, is_account): used_s for name, is_account, used_s in found["used_s"]}
            self._at = found["at"]

    def row(self) -> Mapping[str, Any]:
        """As it is stored, for the statement that changes it."""
        used = [[payer.name, payer.is_account, used_s] for payer, used_s in self._used_s.items()]
        return {"b_key": KEY, "b_value": json.dumps({"at": self._at, "used_s": used})}

    def factor(self, request: JobRequest, user: str) -> float:
        """By which the weight of such a job is multiplied."""
        return self._factors.get(_payer(request, user), 1.0) if self.on else 1.0

    def count(self, job: JobRecord, cpu_s: float) -> None:
        """A job has used so much CPU time by now."""
        if not self.on or cpu_s <= 0.0:
            return
        before_s = cpu_s if job.id in self._unknown else self._counted_s.get(job.id, 0.0)
        self._unknown.discard(job.id)
        self._counted_s[job.id] = cpu_s
        payer = _payer(job.request, job.user)
        # One that begins anew counts anew.
        more_s = cpu_s - before_s if cpu_s >= before_s else cpu_s
        self._used_s[payer] = self._used_s.get(payer, 0.0) + more_s

    def due(self, now_s: float) -> bool:
        """Whether it is time to look again."""
        return self.on and now_s >= self._next_s

    def look(self, jobs: Mapping[int, JobRecord], cpu_s: Callable[[JobRecord], float], now_s: float) -> None:
        """Count what jobs have used, forget some of what is past, and work out the factors."""
        assert self._half_life_s is not None
        self._next_s = now_s + LOOK_S
        now, before = self._clock(), self._at
        self._at = now
        kept = 0.5 ** (max(0.0, now - before) / self._half_life_s)
        self._used_s = {payer: used_s * kept for payer, used_s in self._used_s.items() if used_s * kept > 1e-3}
        for job in jobs.values():
            self.count(job, cpu_s(job))
        self._counted_s = {name: counted_s for name, counted_s in self._counted_s.items() if name in jobs}
        self._factors = self._worked_out({_payer(job.request, job.user) for job in jobs.values()})

    def _worked_out(self, there: set[Payer]) -> Mapping[Payer, float]:
        shares = {payer: self._quotas.share(payer) for payer in there}
        all_s, all_shares = sum(self._used_s.get(payer, 0.0) for payer in there), sum(shares.values())
        if all_s <= 0.0:
            return {}
        return {
            payer: max(LEAST, 2.0 ** -((self._used_s.get(payer, 0.0) / all_s) / (share / all_shares)))
            for payer, share in shares.items()
        }

    def changed(self, rows: Jobs, jobs: Mapping[int, JobRecord]) -> Reweigh | None:
        """What the core is to be told, of the jobs that it knows."""
        serials: list[int] = []
        weights: list[float] = []
        for name, serial, told in zip(
            rows["id"].tolist(), rows["serial"].tolist(), rows["weight"].tolist(), strict=True
        ):
            job = jobs.get(name)
            if job is None:
                continue
            weight = job.request.weight * self.factor(job.request, job.user)
            if abs(weight - told) > CHANGE * told:
                serials.append(serial)
                weights.append(weight)
        return Reweigh(np.array(serials, np.int64), np.array(weights)) if serials else None


def _payer(request: JobRequest, user: str) -> Payer:
    return Payer(user) if request.account is None else Payer(request.account, is_account=True)
