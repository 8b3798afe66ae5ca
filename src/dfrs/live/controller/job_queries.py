"""Jobs as users ask for them: open ones from the state, ended ones from memory or else from the database."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import sqlalchemy as sa

from dfrs.live.controller import tables, views
from dfrs.live.controller.activity import activity_of
from dfrs.live.controller.database import Database
from dfrs.live.controller.state import State
from dfrs.live.errors import NotFoundError
from dfrs.live.protocol.job_order import parse_order
from dfrs.live.protocol.ports import Chosen, Instant
from dfrs.live.protocol.resources import ENDED, Activity, Explanation, Job, JobState

MOST_HISTORY = 200
"""Of what happened to a job its explanation has the latest."""


def latest(chosen: Chosen, state: JobState, limit: int) -> sa.Select[tuple[int]]:
    """Numbers of jobs of that state, the greatest first."""
    jobs = tables.jobs.c
    query = sa.select(jobs.id).where(jobs.state == state.value)
    query = query if chosen.user is None else query.where(jobs.owner == chosen.user)
    query = query if chosen.before is None else query.where(jobs.id < chosen.before)
    query = query if chosen.since is None else query.where(jobs.ended_at >= chosen.since)
    return query.order_by(jobs.id.desc()).limit(limit)


class JobQueries:
    """Answers for a state. `make` makes a snapshot of it."""

    def __init__(self, state: State, database: Database, make: Callable[[], Instant]) -> None:
        self._state = state
        self._database = database
        self._make = make

    def job(self, job: int, *, of: Instant | None = None) -> Job:
        """As `Service.job`."""
        record = self._state.jobs.get(job)
        found = None
        if of is not None:
            found = of.open.job(job)
        elif record is not None:
            found = views.job(self._state, record)
        found = found or self._state.ended.get(job)
        if found is None and record is not None:
            # It came after the snapshot was made.
            found = views.job(self._state, record)
        if found is None:
            rows = self._finals(sa.select(tables.jobs.c.final).where(tables.jobs.c.id == job))
            if not rows:
                raise NotFoundError(f"job {job}: there is no such job{self._state.pruned.words()}")
            found = rows[0]
        return found

    def owner(self, job: int) -> str:
        """As `Service.owner`."""
        record = self._state.jobs.get(job)
        return self.job(job).user if record is None else record.user

    def jobs(
        self, chosen: Chosen, *, limit: int, sort: str | None = None, skip: int = 0, of: Instant | None = None
    ) -> Sequence[Job]:
        """As `Service.jobs`."""
        open_ = (self._make() if of is None else of).open
        if sort is not None:
            return open_.in_order(chosen, parse_order(sort), skip, limit)
        fit = list(islice(open_.some(chosen), limit))
        wanted = ENDED & (chosen.states or frozenset())
        if not wanted:
            return fit
        ended = [job for job in self._ended(replace(chosen, states=wanted), limit) if job.id not in open_]
        return sorted([*fit, *ended], key=lambda job: -job.id)[:limit]

    def _ended(self, chosen: Chosen, limit: int) -> list[Job]:
        """From memory where it has all that are asked for, and else from the database: in memory are those that ended
        last, which need not be those with the greatest numbers.
        """
        kept = self._state.ended
        fit = list(islice(kept.some(chosen), limit))
        recent = chosen.since is not None and chosen.since > kept.all_after
        above = len(fit) == limit > 0 and fit[-1].id > kept.absent
        there = sum(self._state.ended_counts.values()) - sum(self._state.pruned.jobs.values())
        if recent or above or there <= len(kept):
            return fit
        jobs, found = tables.jobs, list[int]()
        # One state at a time: by their index each is in the order of the numbers.
        for state in chosen.states or ():
            query = latest(chosen, state, limit)
            found += self._database.read_now(lambda connection, query=query: list(connection.execute(query).scalars()))
        names = sorted(found, reverse=True)[:limit]
        return self._finals(sa.select(jobs.c.final).where(jobs.c.id.in_(names)).order_by(jobs.c.id.desc()))

    def _finals(self, query: sa.Select[Any]) -> list[Job]:
        texts = self._database.read_now(lambda connection: list(connection.execute(query).scalars()))
        return [Job.model_validate_json(text) for text in texts if text is not None]

    def activity(self, job: int, *, after: int = 0, limit: int = MOST_HISTORY) -> Sequence[Activity]:
        """What happened to a job: the latest `limit` of those with greater numbers than `after`, in order."""
        row = tables.activity.c
        query = sa.select(row.sequence, row.body).where(row.job == job, row.sequence > after)
        # What is not shown yet others have not been told of.
        query = query.where(row.sequence <= self._state.activity.shown).order_by(row.sequence.desc()).limit(limit)
        rows = self._database.read_now(lambda connection: connection.execute(query).all())
        return [activity_of(each.sequence, each.body) for each in reversed(rows)]

    def explain(self, job: int, *, of: Instant | None = None) -> Explanation:
        """As `Service.explain`."""
        seen = self._make() if of is None else of
        found = self.job(job, of=seen)
        return Explanation.model_construct(
            job=found,
            now=found.why or found.state.value,
            history=tuple(self.activity(job)),
            bound=seen.cluster.bound,
            cluster=seen.cluster,
        )
