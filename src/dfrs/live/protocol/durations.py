"""How long something takes, counted in classes: what Prometheus calls a histogram."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper ends of the classes but for the last, which has none."""


@dataclass(slots=True)
class Durations:
    """Of all that happened so far. One thread adds; others may read."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    """By class."""
    total_s: float = 0.0

    def add(self, seconds: float) -> None:
        """One more."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.total_s += seconds

    def cumulative(self) -> Sequence[tuple[str, int]]:
        """(upper end, how many took at most that), as Prometheus writes it."""
        found: list[tuple[str, int]] = []
        so_far = 0
        for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), self.counts, strict=True):
            so_far += count
            found.append((bound, so_far))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """What a controller measures of its own work."""

    commits: Durations
    """Transactions of the database."""
    decisions: Durations
    """What the policy takes for the events of one step."""
    database_bytes: int | None = None
    """Its file and the log beside it; None where it is no file."""
    events: int = 0
    """Number of the last event."""
    pruned_events: int = 0
    """Number of the last event that is no longer kept."""
    database_trouble: bool = False
    """Whether the last transaction failed."""
    retention_trouble: bool = False
    """Whether what is old cannot be pruned."""
