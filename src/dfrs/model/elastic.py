"""Commands by which users change a job that waits or runs, and how each was answered ([Kumar2011] III-C and IV-C)."""

from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Self

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.instance import Floats, Ints


class CommandKind(IntEnum):
    """What a command changes; it changes nothing else."""

    ET = 0
    """Extends the time: processing time and estimate grow by the amount, in seconds."""
    RT = 1
    """Reduces the time."""
    EP = 2
    """Extends the processors: the job has so many tasks more."""
    RP = 3
    """Reduces the processors."""


TIME_KINDS = (CommandKind.ET, CommandKind.RT)


class Answer(IntEnum):
    """What became of a command."""

    GRANTED = 0
    CUT = 1
    """Granted as far as it goes: a job keeps the time it has had, at least 1 s, and at least one task."""
    UNKNOWN = 2
    """No job of that number has been submitted, or the policy has not been told of it yet."""
    ENDED = 3
    """The job was done already."""
    LIMIT = 4
    """The job has had as many commands granted as one job may have."""
    INELASTIC = 5
    """The policy processes no commands."""
    NO_ROOM = 6
    """The job runs, and there are no nodes for more tasks now."""
    TOO_LARGE = 7
    """So many tasks could never run here."""


GRANTS = (Answer.GRANTED, Answer.CUT)

MOST_TASKS = 2**20
"""No command makes a job larger than this, whatever the cluster could hold."""

MOST = 1e9
"""No command has a larger amount: in seconds, that is more than 31 years."""

LEAST_S = 1.0
"""A command leaves a job at least this much processing time, or its own where that is shorter."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ElasticCommands:
    """K commands by time of issue (ties in the order given), as read-only columns.

    Raises InputError, naming job, value and rule, where a column has the wrong length or a value is out of its range.
    """

    time_s: Floats = field(default_factory=lambda: np.zeros(0))
    """(K,) when it is issued, finite."""
    job_id: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    kind: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """(K,) of CommandKind."""
    amount: Floats = field(default_factory=lambda: np.zeros(0))
    """(K,) seconds for ET and RT, tasks for EP and RP; above 0."""

    def __post_init__(self) -> None:
        columns = [f.name for f in fields(self)]
        for label in columns:
            if len(getattr(self, label)) != len(self.time_s):
                raise InputError(f"{label}: {len(getattr(self, label))} values for {len(self.time_s)} commands")
        self._check("time_s", ~np.isfinite(self.time_s), "must be finite")
        self._check("kind", ~np.isin(self.kind, list(CommandKind)), "must be 0 to 3, for ET, RT, EP, RP")
        self._check("amount", ~((self.amount > 0) & (self.amount <= MOST)), f"must be above 0 and at most {MOST:g}")
        whole = np.isin(self.kind, TIME_KINDS) | (self.amount == np.floor(self.amount))
        self._check("amount", ~whole, "must be a whole number of processors")
        order = np.argsort(self.time_s, kind="stable")
        for label in columns:
            array = np.array(getattr(self, label))[order]
            array.setflags(write=False)
            object.__setattr__(self, label, array)

    def _check(self, label: str, bad: np.ndarray, rule: str) -> None:
        if bad.any():
            k = int(np.flatnonzero(bad)[0])
            raise InputError(f"command on job {self.job_id[k]}: {label} = {getattr(self, label)[k]}: {rule}")

    def __len__(self) -> int:
        return len(self.time_s)

    def on(self, job_id: Ints) -> Self:
        """The commands on these jobs."""
        if not len(self):
            return self
        keep = np.isin(self.job_id, job_id)
        return type(self)(**{f.name: getattr(self, f.name)[keep] for f in fields(self)})


NO_COMMANDS = ElasticCommands()


@dataclass(frozen=True, kw_only=True, eq=False)
class Answers:
    """K commands in the order they were answered, as columns."""

    time_s: Floats
    job_id: Ints
    """(K,) as the command names it."""
    kind: Ints
    amount: Floats
    answer: Ints
    """(K,) of Answer."""
    change_s: Floats
    """(K,) by how much the processing time changed; 0 where it did not."""
    change_tasks: Ints
    """(K,) by how many the job's tasks changed; 0 where they did not."""

    def __len__(self) -> int:
        return len(self.time_s)

    @property
    def granted(self) -> np.ndarray:
        """(K,) which of them were granted, cut or not."""
        return np.isin(self.answer, GRANTS)


def no_answers() -> Answers:
    """None."""
    real, whole = np.zeros(0), np.zeros(0, np.int64)
    return Answers(time_s=real, job_id=whole, kind=whole, amount=real, answer=whole, change_s=real, change_tasks=whole)
