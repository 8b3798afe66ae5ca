"""What tasks received of the CPU, as their nodes measured it; what was granted is the policy's word.

While a task runs, the yield it received is the part of the time that it made progress as if it were alone on a node:
one minus the part in which it was held up (`drivers.run_delays`). A task that wants more at once than it can ever have,
by threads that outnumber its need, is held up by itself as well: that is taken out. So the yield is 1 for a program
that waits for anything but the CPU, and for one that always computes its CPU time over its need times the time.

The virtual time of a task is the time that it ran times the mean of that yield, and at least what its CPU time would
have taken alone.
"""

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

from dfrs.live.protocol.observed import Sample

WINDOW_S = 10.0
"""The yield received now is that of so long."""
LEAST_ERROR = 0.01
"""Of a yield: shares of a second are kept no better than this, and waiting is counted at some points only."""
LEAST_PART = 0.5
"""Of the time between two reports a task must have been watched for them to count."""


@dataclass(slots=True)
class Measured:
    """Some time of a task, in seconds."""

    watched: float = 0.0
    delayed: float = 0.0
    cpu: float = 0.0
    waiting: float = 0.0

    def add(self, other: "Measured") -> None:
        """Make it longer."""
        self.watched += other.watched
        self.delayed += other.delayed
        self.cpu += other.cpu
        self.waiting += other.waiting

    def since(self, before: "Measured") -> "Measured":
        """Of two counts, what was counted between them."""
        return Measured(
            self.watched - before.watched,
            self.delayed - before.delayed,
            self.cpu - before.cpu,
            self.waiting - before.waiting,
        )

    def received(self, most_cores: float) -> float:
        """The yield received, of a task that can use `most_cores`."""
        return min(1.0, max(0.0, 1.0 - self.delayed / self.watched) * self.at_once(most_cores))

    def at_once(self, most_cores: float) -> float:
        """How many times what it can use it wanted, at least 1."""
        return max(1.0, (self.cpu + self.waiting) / self.watched / most_cores)


@dataclass(slots=True)
class ReceivedTime:
    """Of one task."""

    ran_s: float = 0.0
    """How long it ran, until `since`."""
    since: float | None = None
    """The core's time, since when it has been running; None: it is not."""
    watched_s: float = 0.0
    progress_s: float = 0.0
    """Yield received, integrated over the time that it was watched, but for that of `block`."""
    block: Measured = field(default_factory=Measured)
    """The last seconds, of which the yield is not settled yet: a wait is counted when it is over."""
    last: Measured | None = None
    """Counters at the last report."""
    recent: list[Measured] = field(default_factory=list[Measured])
    """Between the last reports: some ten at most."""
    most_cores: float = 1.0
    """What it can use."""
    yield_now: tuple[float, float] | None = None
    """(yield in the last seconds, half-width of its error bar: a standard deviation); None: nothing is known."""

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
        self.yield_now = None

    def report(self, seconds: float, sample: Sample, most_cores: float) -> None:
        """Take in a report, `seconds` after the last. It can use at most `most_cores`."""
        if sample.watched_s is None or sample.delayed_s is None or sample.waiting_s is None:
            return
        now = Measured(sample.watched_s, sample.delayed_s, sample.cpu_s, sample.waiting_s)
        # Another driver counts anew.
        part = now if self.last is None else now.since(self.last)
        self.last, self.most_cores = now, most_cores
        counts = min(part.watched, part.delayed, part.cpu, part.waiting) >= 0.0 and part.watched > LEAST_PART * seconds
        if counts:
            self._add(part)
        self.yield_now = self._yield()

    def _add(self, part: Measured) -> None:
        self.recent.append(part)
        while sum(each.watched for each in self.recent) > WINDOW_S and len(self.recent) > 1:
            del self.recent[0]
        self.block.add(part)
        if self.block.watched >= WINDOW_S:
            self.watched_s += self.block.watched
            self.progress_s += self.block.watched * self.block.received(self.most_cores)
            self.block = Measured()

    def _yield(self) -> tuple[float, float] | None:
        whole = Measured()
        for part in self.recent:
            whole.add(part)
        if whole.watched <= 0.0:
            return None
        held_up = whole.delayed / whole.watched
        spread = sum(part.watched * (part.delayed / part.watched - held_up) ** 2 for part in self.recent)
        error = math.sqrt(spread / whole.watched / len(self.recent)) * whole.at_once(self.most_cores)
        return whole.received(self.most_cores), min(1.0, max(LEAST_ERROR, error))

    @property
    def waiting(self) -> tuple[float, float]:
        """(seconds that its threads together were ready and did not run, seconds watched), of the last ones."""
        return sum(part.waiting for part in self.recent), sum(part.watched for part in self.recent)

    @property
    def used_cores(self) -> float:
        """In the last seconds, those of `yield_now`."""
        watched_s = sum(part.watched for part in self.recent)
        return sum(part.cpu for part in self.recent) / watched_s if watched_s > 0.0 else 0.0

    @property
    def mean_yield(self) -> float | None:
        """Since it began; None where nothing is known."""
        block_s = self.block.watched
        if self.watched_s + block_s <= 0.0:
            return None
        progress_s = self.progress_s + (block_s * self.block.received(self.most_cores) if block_s > 0.0 else 0.0)
        return progress_s / (self.watched_s + block_s)

    def virtual_s(self, now_s: float) -> float | None:
        """Its virtual time; None where nothing is known."""
        mean = self.mean_yield
        if mean is None or self.last is None:
            return None
        ran_s = self.ran_s + (0.0 if self.since is None else max(0.0, now_s - self.since))
        # Alone it had needed at least that for the CPU that it got.
        return min(ran_s, max(mean * ran_s, self.last.cpu / self.most_cores))

    def state(self, epoch: float) -> list[Any]:
        """For `restored`. `epoch`: the wall clock at time 0, as what is stored has times of that clock."""
        last = None if self.last is None else astuple(self.last)
        since = None if self.since is None else epoch + self.since
        return [self.ran_s, since, self.watched_s, self.progress_s, astuple(self.block), last]

    @classmethod
    def restored(cls, state: Sequence[Any], epoch: float) -> "ReceivedTime":
        """As it was stored."""
        ran_s, at, watched_s, progress_s, block, last = state
        since = None if at is None else at - epoch
        counters = None if last is None else Measured(*last)
        return cls(ran_s, since, watched_s, progress_s, Measured(*block), counters)
