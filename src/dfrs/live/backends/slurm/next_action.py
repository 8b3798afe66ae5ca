"""What is to be asked of Slurm next about one job: pure, from what Slurm has of it and what is wanted.

A job is Slurm's, with one number for all its life here. Its mark says which attempt its present start is; so a start
that nobody here asked for is known as such, and an attempt is never started twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from dfrs.live.backends.slurm.marks import Mark
from dfrs.live.backends.slurm.records import SlurmJob
from dfrs.live.controller.backend import Wanted
from dfrs.live.drivers.base import TaskId, TaskState


class Verb(StrEnum):
    """What is asked of Slurm, or found out."""

    PLACE = "place"
    """Store the attempt and its node with the held job."""
    RELEASE = "release"
    HOLD = "hold"
    MARK = "mark"
    """Store what the attempt is to be from now on."""
    SUSPEND = "suspend"
    """Store that it is to be paused, and have it suspended; RESUME is the opposite."""
    RESUME = "resume"
    REQUEUE = "requeue"
    CANCEL = "cancel"
    FORGET = "forget"
    """Nothing is left of an attempt that is to be gone."""
    HELD_ELSEWHERE = "held elsewhere"
    """Somebody else suspended it."""
    RELEASED_ELSEWHERE = "released elsewhere"
    """Somebody else resumed or released it."""


@dataclass(frozen=True, slots=True)
class Step:
    """One of them, for an attempt if it is about one."""

    verb: Verb
    task: TaskId | None = None
    state: TaskState | None = None
    """What it is to be, as is stored with it."""


def present(job: SlurmJob | None) -> Mark | None:
    """The attempt that the job's present start is, or will be when it is released; None if nobody's here."""
    mark = None if job is None else Mark.parse(job.admin_comment)
    return mark if mark is not None and job is not None and mark.restarts == job.restarts else None


def next_step(
    job: SlurmJob | None, wanted: Sequence[Wanted], *, ending: bool, held: bool, begun: bool, fresh: bool
) -> Step | None:
    """What comes next; None if all is as wanted, or must be waited for.

    `ending`: the whole job is to end, not this attempt only. `held`: its user wants it held. `begun`: its attempt has
    begun, whatever Slurm knows of that. `fresh`: it was not as asked since this controller came, or since Slurm was
    away: what differs may be what was not finished then.
    """
    for each in wanted:
        if each.state is TaskState.ABSENT:
            return _remove(job, each.tasks[0], ending=ending)
    now = wanted[0] if wanted else None
    if job is None or job.state == "COMPLETING":
        return None
    mark = present(job)
    if job.ended:
        # With JobRequeue=0 Slurm itself queues nothing again that was lost with its node.
        anew = job.lost and job.requeue and now is not None and (mark is None or mark.task != now.tasks[0])
        return Step(Verb.REQUEUE) if anew else None
    if job.pending:
        return _begin(job, mark, now, held=held, begun=begun)
    if not job.placed:
        return None
    if mark is None or now is None or mark.task != now.tasks[0]:
        # Somebody else started it, by hand or by a restart of Slurm's own.
        return Step(Verb.REQUEUE)
    return _change(job, mark, now, fresh=fresh)


def _remove(job: SlurmJob | None, task: TaskId, *, ending: bool) -> Step | None:
    mark = present(job)
    if job is not None and job.state == "COMPLETING":
        return None
    if job is None or job.ended or mark is None or mark.task != task:
        return Step(Verb.FORGET, task)
    if job.pending:
        return Step(Verb.FORGET, task) if job.held else Step(Verb.HOLD)
    if not job.placed:
        return None
    return Step(Verb.CANCEL if ending else Verb.REQUEUE)


def _begin(job: SlurmJob, mark: Mark | None, now: Wanted | None, *, held: bool, begun: bool) -> Step | None:
    """Of a job in Slurm's queue."""
    ours = mark is not None and now is not None and mark.task == now.tasks[0]
    if not job.held and not (ours and not begun):
        return Step(Verb.RELEASED_ELSEWHERE) if held and now is None else Step(Verb.HOLD)
    if begun or not job.held or now is None or now.state is not TaskState.RUNNING:
        # What has begun, and is in the queue again, is over: the controller is told so.
        return None
    if ours and job.node == now.nodes[0]:
        return Step(Verb.RELEASE, now.tasks[0])
    return Step(Verb.PLACE, now.tasks[0], TaskState.RUNNING)


def _change(job: SlurmJob, mark: Mark, now: Wanted, *, fresh: bool) -> Step | None:
    """Of a job that is on its node, as the attempt that it is to be."""
    task, is_paused = mark.task, job.state == "SUSPENDED"
    # Its memory stays, so that it is only suspended for whoever wants it held.
    pause = now.state is TaskState.PAUSED and now.keep
    asked = mark.state is TaskState.PAUSED
    if is_paused is pause:
        return None if asked is pause else Step(Verb.MARK, task, TaskState.PAUSED if pause else TaskState.RUNNING)
    if asked is pause and not fresh:
        return Step(Verb.HELD_ELSEWHERE if is_paused else Verb.RELEASED_ELSEWHERE, task)
    return Step(Verb.SUSPEND, task, TaskState.PAUSED) if pause else Step(Verb.RESUME, task, TaskState.RUNNING)
