"""The part of a run that is measured: all of it, or all but its warm-up and its cool-down.

A simulation begins with an empty cluster and ends with jobs that nobody else competes with. Neither says how a policy
does at the workload's load, so studies leave out the jobs at both ends (warm-up and cool-down: D. G. Feitelson,
Workload Modeling for Computer Systems Performance Evaluation, Cambridge University Press, 2015). They are simulated, so
that the jobs that are measured meet a full cluster, and then not counted.
"""

import math
import re
from dataclasses import dataclass

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.instance import Bools, Floats
from dfrs.model.run import Run

_PART = re.compile(r"(?P<amount>\d+(?:\.\d*)?|\.\d+)(?P<unit>[%smhd])", re.ASCII)
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Window:
    """Of J jobs those that are measured, and the time over which levels are averaged."""

    jobs: Bools
    """(J,) which jobs count."""
    from_s: float
    to_s: float
    counts_from_s: float = -math.inf
    """Rows of the log count from then on ..."""
    counts_until_s: float = math.inf
    """... and before then: at an end that was not cut, all do."""

    @property
    def is_whole(self) -> bool:
        """Nothing is left out."""
        return self.counts_from_s == -math.inf and self.counts_until_s == math.inf

    @property
    def span_s(self) -> float:
        """Its length."""
        return self.to_s - self.from_s

    def holds(self, time_s: Floats) -> Bools:
        """(K,) whether what happened at these instants counts."""
        return (time_s >= self.counts_from_s) & (time_s < self.counts_until_s)


def whole_run(run: Run) -> Window:
    """All jobs, from the first submission to the end of the log."""
    jobs = len(run.workload)
    end_s = float(run.end_s)
    begin_s = min(float(run.workload.submit_s[0]), end_s) if jobs else end_s
    return Window(jobs=np.ones(jobs, np.bool_), from_s=begin_s, to_s=end_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How much is left out at one end: a share of the jobs, or seconds between submissions."""

    amount: float
    """From 0 to 1, or seconds."""
    is_share: bool

    @classmethod
    def parse(cls, text: str) -> "End | None":
        """`10%`, `90s`, `30m`, `12h`, `2d`, or `0`; None for what is none of these."""
        if text == "0":
            return cls(amount=0.0, is_share=True)
        found = _PART.fullmatch(text)
        if found is None:
            return None
        amount = float(found["amount"])
        if found["unit"] == "%":
            return cls(amount=amount / 100, is_share=True) if amount < 100 else None
        return cls(amount=amount * _UNITS_S[found["unit"]], is_share=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trim:
    """What is left out as warm-up, at the beginning of a run, and as cool-down, at its end."""

    name: str
    warm_up: End
    cool_down: End

    @classmethod
    def parse(cls, text: str) -> "Trim":
        """`WARM-UP:COOL-DOWN`, or one of them for both; see `End.parse`. Raises InputError."""
        first, colon, last = text.strip().partition(":")
        warm_up, cool_down = End.parse(first), End.parse(last if colon else first)
        if warm_up is None or cool_down is None:
            raise InputError(
                f'trim = "{text}": must be WARM-UP:COOL-DOWN or one of them for both, each a share of the jobs '
                "below 100 % or a time, as 10%:5%, 2d:12h or 10%"
            )
        return cls(name=f"{first}:{last if colon else first}", warm_up=warm_up, cool_down=cool_down)

    def window(self, run: Run) -> Window:
        """What remains of a run. Raises InputError where no job or no time does.

        Jobs are counted in the order of submission, a share of them is rounded down to whole jobs; times are counted
        from the first submission on, and back from the last. Levels are averaged from where the warm-up ends to where
        the cool-down begins; an end from which nothing is left out stays where it is.
        """
        submit_s, whole = run.workload.submit_s, whole_run(run)
        jobs = len(submit_s)
        first, last = 0, jobs
        from_s, until_s = -math.inf, math.inf
        if self.warm_up.is_share:
            first = _count(self.warm_up.amount, jobs)
            from_s = float(submit_s[first]) if 0 < first < jobs else from_s
        elif jobs and self.warm_up.amount > 0:
            from_s = float(submit_s[0]) + self.warm_up.amount
            first = int(np.searchsorted(submit_s, from_s))
        if self.cool_down.is_share:
            last = jobs - _count(self.cool_down.amount, jobs)
            until_s = float(submit_s[last]) if last < jobs else until_s
        elif jobs and self.cool_down.amount > 0:
            until_s = float(submit_s[-1]) - self.cool_down.amount
            last = int(np.searchsorted(submit_s, until_s, side="right"))
        begin_s, end_s = max(whole.from_s, from_s), min(whole.to_s, until_s)
        if first >= last or not end_s > begin_s:
            raise InputError(f"trim = {self.name}: nothing remains of {jobs} jobs")
        kept = np.zeros(jobs, np.bool_)
        kept[first:last] = True
        return Window(jobs=kept, from_s=begin_s, to_s=end_s, counts_from_s=from_s, counts_until_s=until_s)


def _count(share: float, jobs: int) -> int:
    """Whole jobs of a share; what the share lacks by rounding is forgiven."""
    return math.floor(share * jobs + 1e-9)
