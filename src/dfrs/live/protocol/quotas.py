"""Quotas: what each user may have."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Of one user; None: no limit."""

    open_jobs: int | None = None
    """Jobs that have not ended, also those that wait."""
    cpu_cores: float | None = None
    """Needs of all tasks of the jobs that the policy knows."""
    memory_bytes: int | None = None
    """Requirements of all tasks of those jobs."""
    submissions_per_minute: float | None = None
    """An array is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """Of all users."""

    default: Quota = Quota()
    users: Mapping[str, Quota] = field(default_factory=dict[str, Quota])
    """Those that have one of their own."""

    def of(self, user: str) -> Quota:
        """A user's."""
        return self.users.get(user, self.default)
