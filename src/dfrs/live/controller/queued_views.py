"""Views of many jobs: of those that were never on nodes few fields change from one snapshot to the next."""

from collections.abc import Iterable

from dfrs.live.controller import views
from dfrs.live.controller.records import JobRecord
from dfrs.live.controller.state import State
from dfrs.live.protocol.resources import Job, JobState

QUEUED = frozenset({JobState.PENDING, JobState.HELD, JobState.WAITING})

_Key = tuple[bool, float, float | None, float | None]


class JobViews:
    """Makes the views of all jobs, as `views.job` does, and keeps those of queued ones to copy them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._kept: dict[int, tuple[_Key, Job]] = {}

    def make(self, records: Iterable[JobRecord], present: views.Present, now: float) -> tuple[Job, ...]:
        """As they are `now`, in that order."""
        before, self._kept = self._kept, {}
        return tuple([self._job(record, before.get(record.id), present, now) for record in records])

    def _job(self, record: JobRecord, kept: tuple[_Key, Job] | None, present: views.Present, now: float) -> Job:
        state = self._state
        if record.tasks or record.old or record.attempt or record.outcome is not None or record.started_at is not None:
            return views.job(state, record, now=now, present=present)
        where = views.job_state(state, record)
        # All else that its view depends on, but for the time, and why it waits.
        key = (record.registered, record.need, record.need_error, state.reference_cores)
        if kept is None or kept[0] != key or where not in QUEUED:
            made = views.job(state, record, now=now, present=present)
        else:
            changes = {
                "state": where,
                "why": views.why(state, record, where, present),
                "stretch": views.stretch(record, now, kept[1].virtual_s),
            }
            made = kept[1].model_copy(update=changes)
        if where in QUEUED:
            self._kept[record.id] = (key, made)
        return made
