"""What a database has no more: how far events, jobs and activity were pruned, as it is stored with each pruning."""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Self

from dfrs.model.errors import InputError

KEY = "pruned"
"""In `meta`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """How far it is gone."""

    events: int = 0
    """Number of the last event that is gone, 0 for none."""
    events_at: float | None = None
    """Its wall clock."""
    jobs: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many ended jobs are gone, by state."""
    jobs_at: float | None = None
    """When the last of them ended, by the wall clock."""

    def text(self) -> str:
        """As it is stored."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str | None) -> Self:
        """From what is stored; nothing where nothing is. Raises ValueError or TypeError where it is damaged."""
        return cls() if text is None else cls(**json.loads(text))

    def with_jobs(self, states: Mapping[str, int], ended_at: float) -> Mapping[str, object]:
        """The fields that change when so many more jobs, by state, are gone."""
        names = self.jobs.keys() | states.keys()
        counts = {name: self.jobs.get(name, 0) + states.get(name, 0) for name in sorted(names)}
        return {"jobs": counts, "jobs_at": max(ended_at, self.jobs_at or ended_at)}

    def words(self) -> str:
        """What to add where something is not found that may have been there."""
        if self.jobs_at is None:
            return ""
        return f", or it ended before {show_time(self.jobs_at)} and is no longer kept"

    def refuse_replay(self, where: str, *, stored: bool) -> None:
        """Raise InputError if the events are gone from which the state would be worked out.

        `stored`: a state is stored, but in the form of another version.
        """
        if not self.events:
            return
        gone = f"events 1 to {self.events} are no longer kept"
        if stored:
            raise InputError(
                f"{where}: its state is stored in the form of another dfrs, and {gone}: go on with the version that it "
                f"was used with, or begin anew with another --state"
            )
        raise InputError(f"{where}: has no stored state, and {gone}: restore a backup (dfrs restore FILE)")


def show_time(at: float) -> str:
    """A wall clock's time, in local time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
