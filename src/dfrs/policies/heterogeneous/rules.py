"""What ARRIVE-F can be told: the parameters of 003 sections 5.6, 8 and 9, and what it keeps in a job's memo.

A policy has no memory of its own. What ARRIVE-F has to know of the past is in the memo of each job: the sub-clusters
it left by a migration, and for its last migration where it came from and how long that takes, so that the lock on the
two sub-clusters (003 section 6.1) is a function of the snapshot even where the jobs it moved with are done.
"""

from dataclasses import dataclass

from dfrs.model.decisions import PolicyError
from dfrs.model.errors import InputError

MOST_CLUSTERS = 40
"""Sub-clusters of which a memo can say that a job left them."""
_SOURCE_SHIFT, _UNITS_SHIFT = MOST_CLUSTERS, MOST_CLUSTERS + 7
_LEFT, _SOURCE, _UNITS = (1 << MOST_CLUSTERS) - 1, (1 << 7) - 1, (1 << 16) - 1


class NoFarmError(PolicyError, InputError):
    """The policy is for a farm, and the cluster is not one, or has too many sub-clusters. Exit status 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Parameters of decisions; the defaults are those of 003 section 8, and the costs those of `dfrs.simulator`."""

    tau_s: float = 50.0
    """Seconds of a profile (003: tau)."""
    beta: float = 20.0
    """Profiles over which a migration must pay (003: beta)."""
    threshold: float = 0.1
    """Least gain, as a part of beta tau for each process involved (003: T^Thresh)."""
    stretch_s: float = 0.7
    """Wall clock that the migration of one process costs its job (003: T^m)."""
    copy_s: float = 10.0
    """Seconds that the migration of one process takes, during which its sub-clusters are locked."""
    every: float = 4.0
    """Profiles between two analyses."""
    parallel: bool = False
    """Machines are copied from at the same time, and several plans are executed if they share no sub-cluster."""
    head: bool = False
    """A job may be moved to let the first of the queue in."""
    one: bool = False
    """Of the jobs of a plan one that gains must run for more than beta tau, instead of all of them."""

    @property
    def horizon_s(self) -> float:
        """Beta tau: the time over which gains are predicted."""
        return self.beta * self.tau_s

    @property
    def period_s(self) -> float:
        """Seconds between two analyses."""
        return self.every * self.tau_s

    def threshold_s(self, processes: int) -> float:
        """The least gain of a plan that moves so many processes, in process seconds (003 equation 16)."""
        return self.threshold * self.horizon_s * processes

    def stretch_of(self, processes: int) -> float:
        """T^M, in process seconds, of a plan that moves so many processes (003 section 5.6)."""
        return self.stretch_s * processes

    def lasts_s(self, memo: int) -> float:
        """How long the last migration in a memo takes, from when it began; 0 where there is none."""
        return self.copy_s * (memo >> _UNITS_SHIFT & _UNITS)


def left(memo: int) -> int:
    """Bit mask of the sub-clusters that a job left."""
    return memo & _LEFT


def has_left(memo: int, cluster: int) -> bool:
    """Whether a job left that sub-cluster by a migration."""
    return bool(memo >> cluster & 1)


def source(memo: int) -> int:
    """The sub-cluster from which a job came last, or -1 where no migration is noted."""
    return (memo >> _SOURCE_SHIFT & _SOURCE) - 1


def moved(memo: int, cluster: int, units: int) -> int:
    """The memo of a job that leaves `cluster` by a migration of `units` processes one after the other."""
    return left(memo) | 1 << cluster | (cluster + 1) << _SOURCE_SHIFT | min(units, _UNITS) << _UNITS_SHIFT


def letter(cluster: int, names: tuple[str, ...] = ()) -> str:
    """What to call a sub-cluster: its name, or A, B, C … in the order of the farm where names are not known."""
    if cluster < len(names):
        return names[cluster]
    return chr(ord("A") + cluster) if cluster < 26 else f"sub-cluster {cluster}"
