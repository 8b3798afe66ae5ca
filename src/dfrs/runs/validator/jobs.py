"""What the independent checker of runs knows of a job while it replays the log."""

import math
from dataclasses import dataclass, field

from dfrs.runs.validator.allocations import FORGIVEN
from dfrs.runs.validator.files import Document, Placement, RunSettings

FORGIVEN_S = 1e-4
"""Seconds of virtual time. What differs between two honest accounts is the rounding of times, at most 2.4e-7 s for
seconds since 1970 at each of some hundred changes, whatever the job's length: wider than that, and narrower than any
effect, as traces are in whole seconds."""

WAITING, RUNNING, PAUSED, FINISHED = "waiting", "running", "paused", "finished"
UNIT = 1 << 60


@dataclass(slots=True, kw_only=True)
class RecordedJob:
    """A row of jobs.csv, and what the replay knows of the job."""

    line: int
    stated: Document
    id: int
    tasks: int
    """As commands left it."""
    submit_s: float
    release_s: float
    """Its submission, or its requested start where that is later."""
    process_s: float
    """As commands left it."""
    need: float
    memory: int
    minimum: float = 0.0
    """Its yield is at least that where it is on nodes."""
    checkpoint_s: float = 0.0
    """Virtual time from one check-point to the next; 0: it makes none."""
    state: str = WAITING
    placement: Placement = field(default_factory=dict[int, int])
    yield_: float = 0.0
    cpu: int = 0
    """What each task gets."""
    since_s: float = 0.0
    ready_s: float = 0.0
    speed: float = 1.0
    """Progress per second at yield 1 where it is."""
    virtual_s: float = 0.0
    start_s: float | None = None
    finish_s: float | None = None
    pauses: int = 0
    migrations: int = 0
    granted: int = 0
    """Commands on it."""
    sizes: list[int] = field(default_factory=list[int])
    """Its tasks before the first command of this instant that changes them, and after each."""
    reached: set[int] = field(default_factory=set[int])
    """How many of these commands may have been performed, by the rows of the log so far."""

    def __post_init__(self) -> None:
        self.keep_size()

    def keep_size(self) -> None:
        """No command of this instant changes its size, or none any more."""
        self.sizes, self.reached = [self.tasks], {0}

    def possible(self, action: str) -> set[int]:
        """How many of the instant's commands on its size may have been performed once that action is.

        One that runs has a row `resize` for each; one that does not has none, so that any number may have been.
        """
        last = len(self.sizes) - 1
        if action == "resize":
            return {k + 1 for k in self.reached if k < last}
        return set(range(min(self.reached), last + 1)) if action in {"start", "resume"} else self.reached


def room_by_node(settings: RunSettings, job: RecordedJob) -> list[tuple[float, float]]:
    """How many tasks of the job each node holds, at least and at most: what is nearly full may be taken for either."""
    dedicated = settings.dedicated and job.stated["requested_start_time"] is not None
    must_have = job.need * (1.0 if settings.exclusive or dedicated else job.minimum)
    found: list[tuple[float, float]] = []
    for cpu, memory in settings.capacity:
        # A node without CPU holds none, however small their needs: they would never get on there.
        least = most = math.inf if cpu > 0.0 else 0.0
        if cpu > 0.0 and job.memory > 0:
            least, most = int(memory * UNIT) // job.memory, int((memory + FORGIVEN) * UNIT) // job.memory
        if must_have > 0.0:
            least = min(least, cpu // must_have)
            most = min(most, (cpu + FORGIVEN) // must_have)
        found.append((least, most))
    return found
