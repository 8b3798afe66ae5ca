"""What ARRIVE-F can be told: the parameters of [Atif2011] sections 5.6, 8 and 9, and the policy state of a job.

A policy has no memory of its own. What ARRIVE-F has to know of the past is in the policy state of each job: the
partitions it left by a migration, and for its last migration where it came from and how long that takes, so that the
lock on the two partitions ([Atif2011] section 6.1) is a function of the snapshot even where the jobs it moved with are
done.
"""

from dataclasses import dataclass
from enum import Enum

from dfrs.model.decisions import PolicyError
from dfrs.model.errors import InputError
from dfrs.policies.declaration import Choice, Flag, Number, Option

MOST_PARTITIONS = 40
"""Partitions of which a policy_state can say that a job left them."""
_SOURCE_SHIFT, _UNITS_SHIFT = MOST_PARTITIONS, MOST_PARTITIONS + 7
_LEFT, _SOURCE, _UNITS = (1 << MOST_PARTITIONS) - 1, (1 << 7) - 1, (1 << 16) - 1


class TooManyPartitionsError(PolicyError, InputError):
    """The cluster has more partitions than the policy can know. Exit status 2."""


class First(Enum):
    """Which of the partitions with room a job that starts gets; where several are the same, the first by index."""

    INDEX = "index"
    """Any."""
    FREE = "free"
    """One with most free nodes."""
    MACHINE = "machine"
    """One with room for all its tasks on one machine, if there is any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Parameters of decisions; the defaults are those of [Atif2011] 8, and the costs those of `dfrs.simulator`."""

    tau_s: float = 50.0
    """Seconds of a profile ([Atif2011]: tau)."""
    beta: float = 20.0
    """Profiles over which a migration must pay ([Atif2011]: beta)."""
    threshold: float = 0.1
    """Least gain, as a part of beta tau for each process involved ([Atif2011]: T^Thresh)."""
    stretch_s: float = 0.7
    """Wall clock that the migration of one process costs its job ([Atif2011]: T^m)."""
    copy_s: float = 10.0
    """Seconds that the migration of one process takes, during which its partitions are locked."""
    every: float = 4.0
    """Profiles between two analyses."""
    parallel: bool = False
    """Machines are copied from at the same time, and several plans are executed if they share no partition."""
    head: bool = False
    """A job may be moved to let the first of the queue in."""
    one: bool = False
    """Of the jobs of a plan one that gains must run for more than beta tau, instead of all of them."""
    first: First = First.INDEX
    """Where jobs start; [Atif2011] does not say."""

    @property
    def horizon_s(self) -> float:
        """Beta tau: the time over which gains are predicted."""
        return self.beta * self.tau_s

    @property
    def period_s(self) -> float:
        """Seconds between two analyses."""
        return self.every * self.tau_s

    def threshold_s(self, processes: int) -> float:
        """The least gain of a plan that moves so many processes, in process seconds ([Atif2011] equation 16)."""
        return self.threshold * self.horizon_s * processes

    def stretch_of(self, processes: int) -> float:
        """T^M, in process seconds, of a plan that moves so many processes ([Atif2011] section 5.6)."""
        return self.stretch_s * processes

    def lasts_s(self, policy_state: int) -> float:
        """How long the last migration in a policy_state takes, from when it began; 0 where there is none."""
        return self.copy_s * (policy_state >> _UNITS_SHIFT & _UNITS)


_LARGEST = 1e9
_NAMED, _BOTH = ("ARRIVE-F",), ("FARM-EASY", "ARRIVE-F")
_DEFAULT = Rules()


def _number(
    key: str, name: str, unit: str, letter: str, meaning: str, section: str, default: float, *, zero: bool = False
) -> Option:
    values = Number(field=name, unit=unit, letter=letter, zero=zero, most=_LARGEST)
    return Option(
        key=key, values=values, meaning=meaning, source=f"[Atif2011] {section}", default=f"{default:g}", of=_NAMED
    )


def _flag(key: str, name: str, meaning: str) -> Option:
    return Option(key=key, values=Flag(field=name), meaning=meaning, source="[Atif2011] 9", of=_NAMED)


OPTIONS = (
    _number("TAU", "tau_s", "seconds", "S", "length of a profile", "5.2, 8", _DEFAULT.tau_s),
    _number("BETA", "beta", "profiles", "N", "time within which a migration must pay off", "5.6, 8", _DEFAULT.beta),
    _number(
        "THRESH",
        "threshold",
        "share of that time",
        "X",
        "least predicted gain for each process that moves",
        "5.6, 8",
        _DEFAULT.threshold,
        zero=True,
    ),
    _number(
        "STRETCH",
        "stretch_s",
        "seconds",
        "S",
        "wall clock that moving one process costs its job",
        "5.6",
        _DEFAULT.stretch_s,
        zero=True,
    ),
    _number(
        "COPY",
        "copy_s",
        "seconds",
        "S",
        "time to move one process; meanwhile no job starts in its two partitions",
        "6.1",
        _DEFAULT.copy_s,
    ),
    _number("EVERY", "every", "profiles", "N", "time between two analyses of the running jobs", "8", _DEFAULT.every),
    _flag("PARALLEL", "parallel", "machines copy at the same time, and so do plans that have no partition in common"),
    _flag("HEAD", "head", "a job may be moved to make room for the first job of the queue"),
    _flag("ONE", "one", "only one job of a plan, not all, must run longer than the time in which the plan pays off"),
    Option(
        key="FIRST",
        values=Choice(
            field="first",
            values={
                "INDEX": (First.INDEX, "jobs start on the first partition with room (default)", "[Atif2011] 6.1"),
                "FREE": (First.FREE, "jobs start on the partition with most free nodes", ""),
                "MACHINE": (
                    First.MACHINE,
                    "jobs start on a partition with room on one machine, if there is any",
                    "[Atif2011] 9",
                ),
            },
        ),
        of=_BOTH,
    ),
)
"""Of FARM-EASY and ARRIVE-F."""


def left(policy_state: int) -> int:
    """Bit mask of the partitions that a job left."""
    return policy_state & _LEFT


def has_left(policy_state: int, partition: int) -> bool:
    """Whether a job left that partition by a migration."""
    return bool(policy_state >> partition & 1)


def source(policy_state: int) -> int:
    """The partition from which a job came last, or -1 where no migration is noted."""
    return (policy_state >> _SOURCE_SHIFT & _SOURCE) - 1


def moved(policy_state: int, partition: int, units: int) -> int:
    """The policy_state of a job that leaves `cluster` by a migration of `units` processes one after the other."""
    return left(policy_state) | 1 << partition | (partition + 1) << _SOURCE_SHIFT | min(units, _UNITS) << _UNITS_SHIFT


def letter(partition: int, names: tuple[str, ...] = ()) -> str:
    """What to call a partition: its name, or A, B, C … in the order of the cluster where names are not known."""
    if partition < len(names):
        return names[partition]
    return chr(ord("A") + partition) if partition < 26 else f"sub-cluster {partition}"
