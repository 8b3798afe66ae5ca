"""Jobs that have not ended, at one instant. Views of those that wait, maybe many thousands, are made when asked for."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from dfrs.live.controller import views
from dfrs.live.controller.cluster_views import present_yield
from dfrs.live.controller.records import JobRecord
from dfrs.live.controller.state import State
from dfrs.live.protocol.ports import Chosen
from dfrs.live.protocol.resources import Job, JobState

QUEUED = frozenset({JobState.PENDING, JobState.HELD, JobState.WAITING})

_PLACES = {state: k for k, state in enumerate(JobState)}

_Key = tuple[bool, float, float | None, float | None, int, float]


class JobViews:
    """Makes views of jobs, as `views.job` does, and keeps those of queued ones to copy them.

    Of jobs that were never on nodes few fields change from one instant to the next.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._kept: dict[int, tuple[_Key, Job]] = {}

    def forget_ended(self) -> None:
        """Keep nothing of jobs that are no more, once that would be most of what is kept."""
        there = self._state.jobs
        if len(self._kept) > 2 * len(there):
            self._kept = {name: kept for name, kept in self._kept.items() if name in there}

    def make(self, record: JobRecord, where: JobState, present: views.Present) -> Job:
        """A job in this state, at that instant."""
        state, now = self._state, present.now
        if has_begun(record):
            return views.job(state, record, where=where, present=present)
        # All else that its view depends on, but for the time, and why it waits.
        factor = state.fair_shares.factor(record.request, record.user)
        key = (record.registered, record.need, record.need_error, state.reference_cores, record.revision, factor)
        before = self._kept.get(record.id)
        if before is None or before[0] != key or where not in QUEUED:
            made = views.job(state, record, where=where, present=present)
        else:
            fields: dict[str, Any] = {
                **dict(before[1]),
                "state": where,
                "why": views.why(state, record, where, present),
                "stretch": views.stretch(record, now, before[1].virtual_s),
            }
            made = Job.model_construct(**fields)
        if where in QUEUED:
            self._kept[record.id] = (key, made)
        return made


def has_begun(record: JobRecord) -> bool:
    """Whether it was ever meant for nodes, or has ended."""
    return bool(
        record.tasks or record.old or record.attempt or record.outcome is not None or record.started_at is not None
    )


class OpenJobs:
    """At one instant: as long as the state is what it was, any of them can be looked at."""

    def __init__(self, state: State, views_: JobViews, present: views.Present) -> None:
        self._state = state
        self._version = state.version
        self._views = views_
        self._present = present
        self._records = [state.jobs[name] for name in sorted(state.jobs, reverse=True)]
        self._states = [views.job_state(state, record) for record in self._records]
        self._made: dict[int, Job] = {}
        views_.forget_ended()

    def __contains__(self, name: int) -> bool:
        return self._row(name) is not None

    def counts(self) -> Mapping[JobState, int]:
        """How many are where."""
        # Where a member of an enumeration is a key, its hash is computed in Python: a list counts without.
        return {where: self._states.count(where) for where in JobState}

    def on_nodes(self) -> Iterator[JobRecord]:
        """Those that have a yield."""
        starting, running = JobState.STARTING, JobState.RUNNING
        for record, where in zip(self._records, self._states, strict=True):
            if where is running or where is starting:
                yield record

    @cached_property
    def all(self) -> tuple[Job, ...]:
        """The latest first."""
        return tuple([self._view(k) for k in range(len(self._records))])

    def job(self, name: int) -> Job | None:
        """None where there is no such job among them."""
        row = self._row(name)
        return None if row is None else self._view(row)

    def some(self, chosen: Chosen) -> Iterator[Job]:
        """The latest first."""
        return (self._view(k) for k in self._rows(chosen))

    def in_order(self, chosen: Chosen, order: Sequence[tuple[str, bool]], skip: int, limit: int) -> Sequence[Job]:
        """By columns, as `job_order.parse_order` gives them; of equals the oldest first. All after the first `skip`, at
        most `limit`.
        """
        rows = list(self._rows(chosen))[::-1]
        # Sorting keeps the order of what is equal: the column that counts most comes last.
        for column, backwards in reversed(order):
            rows.sort(key=partial(self._key, column, backwards), reverse=backwards)
        return [self._view(k) for k in rows[skip : skip + limit]]

    def _rows(self, chosen: Chosen) -> Iterator[int]:
        first = 0 if chosen.before is None else bisect_left(self._records, 1 - chosen.before, key=_backwards)
        user, states = chosen.user, chosen.states
        for k in range(first, len(self._records)):
            if user in {None, self._records[k].user} and (states is None or self._states[k] in states):
                yield k

    def _key(self, column: str, backwards: bool, k: int) -> Any:  # noqa: ANN401
        """Of records: views of thousands of jobs would take too long."""
        record = self._records[k]
        match column:
            case "job":
                return record.id
            case "name":
                return record.name
            case "user":
                return record.user
            case "account":
                return record.request.account or ""
            case "state":
                return _PLACES[self._states[k]]
            case "tasks":
                return record.request.tasks
            case "need":
                return views.need_cores(self._state, record)
            case "memory":
                return self._state.memory_bytes(record.request)
            case "age":
                return -record.submitted_at
            case _:
                if self._states[k] in views.ON_NODES:
                    return present_yield(self._state, record)[0]
                # Jobs without a yield are last.
                return -1.0 if backwards else 2.0

    def queue(self, limit: int) -> Sequence[Job]:
        """Those that wait, the longest first: at most so many."""
        records = self._records
        waiting = [k for k, where in enumerate(self._states) if where in QUEUED]
        waiting.sort(key=lambda k: (records[k].submitted_at, records[k].id))
        return [self._view(k) for k in waiting[:limit]]

    def _row(self, name: int) -> int | None:
        k = bisect_left(self._records, -name, key=_backwards)
        return k if k < len(self._records) and self._records[k].id == name else None

    def _view(self, k: int) -> Job:
        record = self._records[k]
        made = self._made.get(record.id)
        if made is None:
            must_be_present(self._state, self._version)
            made = self._made[record.id] = self._views.make(record, self._states[k], self._present)
        return made


def must_be_present(state: State, version: int) -> None:
    """Raise RuntimeError where more has happened since `version` of the state: views made now would be of another."""
    if state.version != version:
        raise RuntimeError("more has happened since that instant: ask for the latest")


def _backwards(record: JobRecord) -> int:
    return -record.id
