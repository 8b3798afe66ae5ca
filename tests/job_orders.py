"""Open jobs sorted as `dfrs.live.protocol.job_order` says, the slow way: by what users are shown of them."""

from collections.abc import Callable, Iterable
from typing import Any

from dfrs.live.protocol.resources import ENDED, Job, JobState, shown_yield

KEYS: dict[str, Callable[[Job], Any]] = {
    "job": lambda job: job.id,
    "name": lambda job: job.name,
    "user": lambda job: job.user,
    "account": lambda job: job.account or "",
    "state": lambda job: list(JobState).index(job.state),
    "tasks": lambda job: job.tasks,
    "need": lambda job: job.need_cores,
    "yield": shown_yield,
    "memory": lambda job: job.memory_bytes,
    "age": lambda job: -job.submitted_at,
}


def sort_jobs(jobs: Iterable[Job], sort: str) -> list[Job]:
    """Of equals the oldest first; those without a yield last."""
    found = sorted((job for job in jobs if job.state not in ENDED), key=lambda job: job.id)
    for word in reversed(sort.split(",")):
        key = KEYS[word.removeprefix("-")]
        known = [job for job in found if key(job) is not None]
        found = [*sorted(known, key=key, reverse=word.startswith("-")), *(job for job in found if key(job) is None)]
    return found
