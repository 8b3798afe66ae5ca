"""Quotas: what each user may have, and what may be charged to each account."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Payer(NamedTuple):
    """Who has a quota: a user, or an account."""

    name: str
    is_account: bool = False

    @property
    def words(self) -> str:
        """As users are told."""
        return f"account {self.name}" if self.is_account else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Of one user or account; None: no limit."""

    open_jobs: int | None = None
    """Jobs that have not ended, also those that wait."""
    cpu_cores: float | None = None
    """Needs of all tasks of the jobs that the policy knows."""
    memory_bytes: int | None = None
    """Requirements of all tasks of those jobs."""
    submissions_per_minute: float | None = None
    """An array is one."""
    largest_weight: float | None = 1.0
    """Of each of their jobs. Means nothing for an account."""
    share: float = 1.0
    """Under fair share: a part of the cluster, beside those of the others who have jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountQuota(Quota):
    """Of all jobs that are charged to one account."""

    users: frozenset[str] | None = None
    """Who may charge it; None: everybody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """Of all users and accounts."""

    default: Quota = Quota()
    users: Mapping[str, Quota] = field(default_factory=dict[str, Quota])
    """Those that have one of their own."""
    accounts: Mapping[str, AccountQuota] = field(default_factory=dict[str, AccountQuota])
    """All others have no limits, and everybody may charge them."""

    def of(self, user: str) -> Quota:
        """A user's."""
        return self.users.get(user, self.default)

    def share(self, payer: Payer) -> float:
        """That of a user or an account."""
        quota = self.accounts.get(payer.name, _NO_LIMITS) if payer.is_account else self.of(payer.name)
        return quota.share


_NO_LIMITS = AccountQuota()
