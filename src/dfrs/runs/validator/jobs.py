"""What the independent checker of runs knows of a job while it replays the log."""

from dataclasses import dataclass, field

from dfrs.runs.validator.files import Document, Placement

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
