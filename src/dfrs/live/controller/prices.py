"""What pauses, resumes and moves cost on this cluster: medians of what was measured."""

from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import get_args

from dfrs.live.controller.records import TaskRecord
from dfrs.live.protocol.observed import Cost, CostVerb
from dfrs.model.decisions import Prices

MOST_SAMPLES, LEAST_SAMPLES = 50, 3
"""A median is of the last so many; with fewer, nothing is known."""
CHANGE, LEAST_CHANGE_S = 0.25, 0.1
"""A price is another one where it has changed by more than both: a share of it, and seconds."""
GAP_S = 60.0
"""Between two changes of prices."""


class PriceEstimates:
    """What was measured since the controller started."""

    def __init__(self) -> None:
        self._measured: Mapping[str, deque[float]] = {verb: deque(maxlen=MOST_SAMPLES) for verb in get_args(CostVerb)}
        self._told_s = -GAP_S

    def observe(self, task: TaskRecord, cost: Cost) -> None:
        """Take in a cost; one that was said before changes nothing."""
        # For one version a task is moved first and paused or resumed then: so the verbs are in this order, too.
        said = cost.version, cost.verb
        if said > task.priced:
            task.priced = said
            self._measured[cost.verb].append(cost.seconds)

    @property
    def samples(self) -> Mapping[str, int]:
        """How many each median is of."""
        return {verb: len(seconds) for verb, seconds in self._measured.items()}

    def changed(self, told: Prices, now_s: float) -> Prices | None:
        """What the core is to be told instead of `told`; None where that is still true, or was told just now."""
        if now_s - self._told_s < GAP_S:
            return None
        found = Prices(
            self._now("pause", told.pause_s), self._now("resume", told.resume_s), self._now("move", told.move_s)
        )
        return None if found == told else found

    def _now(self, verb: str, told_s: float) -> float:
        seconds = self._measured[verb]
        found_s = median(seconds) if len(seconds) >= LEAST_SAMPLES else told_s
        return found_s if abs(found_s - told_s) > max(LEAST_CHANGE_S, CHANGE * told_s) else told_s

    def tell(self, now_s: float) -> None:
        """The core is told now."""
        self._told_s = now_s
