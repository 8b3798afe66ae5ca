"""What tasks received of the CPU, as their nodes measured it; what was granted is the policy's word.

While a task runs, the yield it received is the part of the time that it made progress as if it were alone on a node:
one minus the part in which it was held up (`drivers.run_delays`). A task that wants more at once than it can ever have,
by threads that outnumber its need, is held up by itself as well: that is taken out. So the yield is 1 for a program
that waits for anything but the CPU, and for one that always computes its CPU time over its need times the time.

The virtual time of a task is the time that it ran times the mean of that yield.
"""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from dfrs.live.protocol.wire import Sample

WINDOW_S = 10.0
"""The yield received now is that of so long."""
LEAST_ERROR = 0.01
"""Of a yield: shares of a second are kept no better than this, and waiting is counted at some points only."""
LEAST_PART = 0.5
"""Of the time between two reports a task must have been watched for them to count."""


@dataclass(slots=True)
class ReceivedTime:
    """Of one task."""

    ran_s: float = 0.0
    """How long it ran, until `since`."""
    since: float | None = None
    """Wall clock of its node, since when it has been running; None: it is not."""
    watched_s: float = 0.0
    progress_s: float = 0.0
    """Yield received, integrated over the time that it was watched."""
    last: tuple[float, float, float, float] | None = None
    """Counters at the last report: watched, held up, CPU, waiting; seconds."""
    recent: deque[tuple[float, float]] = field(default_factory=deque[tuple[float, float]])
    """(seconds, progress in them) of the last reports."""

    def run(self, since: float) -> None:
        """It has been running since then."""
        if self.since is None:
            self.since = since

    def stop(self, at: float) -> None:
        """It stopped running then."""
        if self.since is not None:
            self.ran_s += max(0.0, at - self.since)
            self.since = None
        self.recent.clear()

    def report(self, seconds: float, sample: Sample, most_cores: float) -> None:
        """Take in a report, `seconds` after the last. It can use at most `most_cores`."""
        if sample.watched_s is None or sample.delayed_s is None or sample.waiting_s is None:
            return
        before = self.last
        self.last = now = sample.watched_s, sample.delayed_s, sample.cpu_s, sample.waiting_s
        # Another driver counts anew.
        watched, delayed, cpu, waiting = (b - a for a, b in zip(before or now, now, strict=True))
        if min(watched, delayed, cpu, waiting) < 0.0 or watched <= LEAST_PART * seconds:
            return
        at_once = (cpu + waiting) / watched / most_cores
        progress = watched * min(1.0, max(0.0, 1.0 - delayed / watched) * max(1.0, at_once))
        self.watched_s += watched
        self.progress_s += progress
        self.recent.append((watched, progress))
        while sum(part for part, _ in self.recent) > WINDOW_S and len(self.recent) > 1:
            self.recent.popleft()

    @property
    def yield_now(self) -> tuple[float, float] | None:
        """(yield in the last seconds, half-width of its error bar: a standard deviation); None where nothing is known."""
        seconds = sum(part for part, _ in self.recent)
        if seconds <= 0.0:
            return None
        mean = sum(progress for _, progress in self.recent) / seconds
        spread = sum(part * (progress / part - mean) ** 2 for part, progress in self.recent) / seconds
        return mean, max(LEAST_ERROR, math.sqrt(spread / len(self.recent)))

    @property
    def mean_yield(self) -> float | None:
        """Since it began; None where nothing is known."""
        return self.progress_s / self.watched_s if self.watched_s > 0.0 else None

    def virtual_s(self, now: float) -> float | None:
        """Its virtual time; None where nothing is known."""
        mean = self.mean_yield
        running_s = 0.0 if self.since is None else max(0.0, now - self.since)
        return None if mean is None else mean * (self.ran_s + running_s)

    def state(self) -> list[float | None]:
        """For `restored`."""
        return [self.ran_s, self.since, self.watched_s, self.progress_s, *(self.last or (None,) * 4)]

    @classmethod
    def restored(cls, state: Iterable[float | None]) -> "ReceivedTime":
        """As it was stored."""
        ran_s, since, watched_s, progress_s, *last = state
        known = [each for each in last if each is not None]
        counters = (known[0], known[1], known[2], known[3]) if len(known) == 4 else None
        return cls(ran_s or 0.0, since, watched_s or 0.0, progress_s or 0.0, counters)
