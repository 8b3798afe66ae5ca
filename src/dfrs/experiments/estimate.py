"""How long a campaign will take, from what some of its runs took."""

import math
from collections import defaultdict
from dataclasses import dataclass

from dfrs.experiments.fields import spread
from dfrs.experiments.planned_runs import PlannedRun, RunKind
from dfrs.experiments.spec import Campaign
from dfrs.experiments.store import Store

PROBES = 3
"""Runs of each configuration on each source that are measured before anything is said."""
_LEVEL = 0.975
"""Of the quantile on both sides of 95 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Seconds of one core, for the runs that may execute beside others and for those that execute alone.

    `runs` are all, `left` those without a result, `measured` those whose time is known. `error_s` is the standard
    error of both times, of so many degrees of freedom (Welch and Satterthwaite), 0 where nothing is left to chance.
    """

    runs: int
    left: int
    measured: int
    whole_s: float
    whole_alone_s: float
    left_s: float
    left_alone_s: float
    error_s: float
    freedom: float

    def whole_on(self, workers: int) -> tuple[float, float, float]:
        """Wall-clock seconds of the whole campaign on so many processes, and their 95 % interval."""
        return self._on(self.whole_s, self.whole_alone_s, workers)

    def left_on(self, workers: int) -> tuple[float, float, float]:
        """The same of what is left."""
        return self._on(self.left_s, self.left_alone_s, workers)

    def _on(self, seconds: float, alone_s: float, workers: int) -> tuple[float, float, float]:
        wall_s = seconds / workers + alone_s
        off = self._quantile() * self.error_s / (workers if seconds >= alone_s else 1)
        return wall_s, max(0.0, wall_s - off), wall_s + off

    def _quantile(self) -> float:
        if self.freedom <= 0:
            return 0.0
        from scipy.stats import t  # noqa: PLC0415 - takes longer to import than most verbs run

        return float(t.ppf(_LEVEL, self.freedom))


def _strata(campaign: Campaign) -> dict[tuple[str, str, str], list[PlannedRun]]:
    """Runs that may take about the same time: of one configuration on one source."""
    strata: dict[tuple[str, str, str], list[PlannedRun]] = defaultdict(list)
    seen: set[str] = set()
    for study in campaign.studies:
        for source in study.sources:
            for run in study.runs_of(source):
                if run.key not in seen:
                    strata[study.name, source.name, run.configuration.name].append(run)
                seen.add(run.key)
    return strata


def probes(campaign: Campaign, store: Store) -> list[PlannedRun]:
    """Runs to execute so that PROBES of each stratum are known, spread evenly over its scenarios."""
    chosen: list[PlannedRun] = []
    times = {kind.name: _times(store, kind) for kind in campaign.kinds}
    for runs in _strata(campaign).values():
        known = store.known(runs[0].kind)
        missing = PROBES - sum(run.key in times[run.kind.name] for run in runs)
        places = [place for place, _ in spread(len(runs), len(runs))]
        chosen += [runs[k] for k in places if runs[k].key not in known][: max(0, missing)]
    # Scenario by scenario, so that what is prepared for one configuration serves the next.
    return sorted(chosen, key=lambda run: run.scenario.name)


def _times(store: Store, kind: RunKind) -> dict[str, float]:
    """Seconds of the runs whose time is known, by key."""
    frame = store.results(kind)
    pairs = zip(frame["key"].to_list(), frame["cell_s"].to_list(), strict=True)
    return {key: seconds for key, seconds in pairs if seconds is not None}


def estimate(campaign: Campaign, store: Store) -> Estimate:
    """From the times of the runs in the store, stratum by stratum.

    A run of which only a failure is known, and no time, is none of those left: it does not run again by itself.
    """
    taken: dict[str, float] = {}
    known: set[str] = set()
    for kind in campaign.kinds:
        taken |= _times(store, kind)
        known |= store.known(kind).keys()
    runs = left = measured = 0
    variance = squares = 0.0
    whole_s, left_s = {False: 0.0, True: 0.0}, {False: 0.0, True: 0.0}
    for stratum in _strata(campaign).values():
        times = [taken[run.key] for run in stratum if run.key in taken]
        rest = sum(run.key not in known for run in stratum)
        mean = sum(times) / len(times) if times else 0.0
        runs, left, measured = runs + len(stratum), left + rest, measured + len(times)
        whole_s[stratum[0].alone] += sum(times) + rest * mean
        left_s[stratum[0].alone] += rest * mean
        if len(times) > 1:
            own = rest**2 * sum((t - mean) ** 2 for t in times) / (len(times) - 1) / len(times)
            variance, squares = variance + own, squares + own**2 / (len(times) - 1)
    return Estimate(
        runs=runs,
        left=left,
        measured=measured,
        whole_s=whole_s[False],
        whole_alone_s=whole_s[True],
        left_s=left_s[False],
        left_alone_s=left_s[True],
        error_s=math.sqrt(variance),
        freedom=variance**2 / squares if squares > 0 else 0.0,
    )
