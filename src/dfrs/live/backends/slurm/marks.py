"""What is stored with a job in Slurm itself, in its AdminComment: which attempt it is, and what it was asked to be.

`dfrs:running:12.0.1.1a2b3c4d:v4711:r0` says: this start of the job, after `r0` restarts by Slurm, is the attempt of
that name, and is to run, as the wish with version 4711 had it. It is one word, as commands that scontrol reads from its
input must have it. Users see it by `squeue --Format=admin_comment` and by `scontrol show job`; only Slurm's operators
can write it. Of a job that waits it is the reason: `dfrs: waits: ...`.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from dfrs.live.drivers.base import TaskId, TaskState

PREFIX, REFUSED = "dfrs: ", "cannot be scheduled: "
_MARK = re.compile(r"dfrs:(running|paused):([^\s:]+):v(\d+):r(\d+)")
_STATES = {"running": TaskState.RUNNING, "paused": TaskState.PAUSED}


@dataclass(frozen=True, slots=True)
class Mark:
    """An attempt, and what was last asked of it."""

    task: TaskId
    state: TaskState
    """RUNNING or PAUSED."""
    version: int
    restarts: int
    """Of the job in Slurm, when the attempt was to begin: a job that was restarted since is no longer this attempt."""

    def __str__(self) -> str:
        return f"dfrs:{self.state.value}:{self.task}:v{self.version}:r{self.restarts}"

    @classmethod
    def parse(cls, text: str) -> "Mark | None":
        """The one that an AdminComment is; None if it is something else."""
        return _parse(text)


@lru_cache(1 << 16)
def _parse(text: str) -> Mark | None:
    """Of each job this is asked several times a second, and it changes seldom."""
    found = _MARK.fullmatch(text)
    task = None if found is None else TaskId.parse(found[2])
    if found is None or task is None:
        return None
    return Mark(task, _STATES[found[1]], int(found[3]), int(found[4]))


def reason(text: str) -> str:
    """The AdminComment of a job that waits, for that reason."""
    return PREFIX + " ".join(text.replace('"', "'").split())[:200]


def refusal(why: str) -> str:
    """The AdminComment of a job that is not taken in, and why."""
    return reason(REFUSED + why)


def was_taken_in(comment: str) -> bool:
    """Whether the AdminComment says that the job once was."""
    return comment.startswith(PREFIX.strip()) and not comment.startswith(PREFIX + REFUSED)
