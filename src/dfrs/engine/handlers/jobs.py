"""Jobs come, make progress and go."""

import numpy as np

from dfrs.engine.commands import NOTHING, Commands, one
from dfrs.engine.events import Complete, Predicted, Progressed, Ready, Revise, Reweigh, Submit, Wake
from dfrs.engine.handlers.handler import (
    ON_COMPLETION,
    ON_NEEDS,
    ON_NODES,
    Ask,
    Handler,
    Steps,
    no_row,
    present_row,
    refuse_counts,
    settle,
)
from dfrs.engine.state import State
from dfrs.kernels import ledger
from dfrs.model.decisions import Cause, Reason
from dfrs.model.errors import InputError
from dfrs.model.jobs import LEAST_CHECKPOINT_S
from dfrs.model.run import Action

# An enumeration's members are slow to look up where it is done a million times.
_FINISH, _FINISHED, _SUBMISSION = int(Action.FINISH), int(Reason.FINISHED), Cause.SUBMISSION
_ON_WAKE = (Ask(Cause.WAKE),)


def _new(state: State, event: Submit) -> int:
    check_size(event.job_id, event.tasks, event.need, event.memory, event.minimum)
    every_s = event.checkpoint_s
    if every_s != 0 and not LEAST_CHECKPOINT_S <= every_s < np.inf:
        rule = f"must be 0, or at least {LEAST_CHECKPOINT_S:g} and finite"
        raise InputError(f"job {event.job_id}: checkpoint_s = {every_s}: {rule}")
    refuse_counts(f"job {event.job_id}", event.resources)
    if state.rows.find(event.job_id) >= 0 or event.job_id in state.held:
        raise InputError(f"job {event.job_id}: is in the system already")
    return -1


def check_size(job_id: int, tasks: int, need: float, memory: float, minimum: float) -> None:
    """Raise InputError where no job can be like that."""
    if tasks < 1 or not 0 < need <= 1 or not 0 <= memory <= 1:
        raise InputError(
            f"job {job_id}: {tasks} tasks of need {need} and memory {memory}: must be at "
            "least 1, above 0 and at most 1, and from 0 to 1"
        )
    if not 0 <= minimum <= 1:
        raise InputError(f"job {job_id}: minimum = {minimum}: must be from 0 to 1")


def submit(state: State, event: Submit, _row: int) -> Steps:
    """Only after the last job of an instant the policy is asked: about that one, then about the others."""
    if not event.last:
        state.undecided += 1
        _admit(state, event)
        return
    several, state.undecided = state.undecided > 0, 0
    yield from settle(state)
    yield Ask(_SUBMISSION, _admit(state, event))
    if several:
        yield from ON_NODES


def _admit(state: State, event: Submit) -> int:
    row = state.rows.add(
        state.submitted,
        state.now_s,
        (
            event.job_id,
            event.user,
            event.tasks,
            event.need,
            event.memory,
            event.weight,
            event.estimate_s,
            event.requested_start_s,
            event.minimum,
        ),
    )
    state.demanding += event.minimum > 0
    if event.restartable:
        state.restarts.allow(state.submitted)
    if event.checkpoint_s > 0:
        state.kept_progress.every(state.submitted, event.checkpoint_s)
    state.constraints.bind(state.submitted, event.constraint)
    state.resources.add(state.submitted, event.resources, alone=event.alone)
    state.count_submissions(np.array([event.job_id]))
    return row


def _done(state: State, event: Complete) -> int:
    row = state.rows.find(event.job_id)
    if row < 0 and event.job_id not in state.held:
        raise InputError(f"job {event.job_id} is done, but is not in the system")
    return row


def complete(state: State, event: Complete, row: int) -> Steps:
    """The job goes, with all that was known of it."""
    state.event_log.note(state.now_s, _FINISH, remove(state, event.job_id, row), _FINISHED)
    return ON_COMPLETION if event.last else ()


def remove(state: State, job_id: int, row: int) -> int:
    """The job, in that row or held (-1), is there no more; its serial number."""
    if row >= 0:
        job = state.rows.jobs[row]
        serial, minimum = int(job["serial"]), float(job["minimum"])
        state.rows.remove(row)
    else:
        job, _ = state.held.take(job_id)
        serial, minimum = int(job["serial"]), float(job["minimum"])
    state.last_islands.forget(serial)
    state.refusals.pop(serial, None)
    state.unmovable.pop(serial, None)
    state.restarts.forget(serial)
    state.kept_progress.forget(serial)
    state.constraints.forget(serial)
    state.resources.forget(serial)
    state.speeds.forget(serial)
    state.demanding -= minimum > 0
    return serial


def ready(state: State, event: Ready, _row: int) -> Steps:
    """Nobody is asked: progress begins, and that is all."""
    ledger.set_ready(state.rows.jobs, state.rows.count, event.serials, event.ready_s)
    return ()


def _possible(_state: State, event: Progressed) -> int:
    if not (np.isfinite(event.virtual_s).all() and (event.virtual_s >= 0).all()):
        raise InputError("virtual_s: must be finite numbers of at least 0")
    return -1


def progressed(state: State, event: Progressed, _row: int) -> Steps:
    """Nobody is asked: it counts from the next decision on."""
    ledger.set_virtual(state.rows.jobs, state.rows.count, event.serials, event.virtual_s)
    return ()


def _weights(_state: State, event: Reweigh) -> int:
    if not (np.isfinite(event.weights).all() and (event.weights > 0).all()):
        raise InputError("weights: must be finite numbers above 0")
    return -1


def reweigh(state: State, event: Reweigh, _row: int) -> Steps:
    """Nobody is asked: it counts from the next decision on."""
    if not len(event.serials):
        return ()
    last = len(event.serials) - 1
    for jobs in (state.rows.jobs[: state.rows.count], *state.held):
        at = np.minimum(np.searchsorted(event.serials, jobs["serial"]), last)
        jobs["weight"] = np.where(event.serials[at] == jobs["serial"], event.weights[at], jobs["weight"])
    return ()


def wake(_state: State, _event: Wake, _row: int) -> Steps:
    """The policy asked for it."""
    return _ON_WAKE


def _revisable(state: State, event: Revise) -> int:
    row = present_row(state, event.job_id)
    if not 0 < event.need <= 1:
        raise InputError(f"job {event.job_id}: need = {event.need}: must be above 0 and at most 1")
    return row


def revise(state: State, event: Revise, row: int) -> Steps:
    """A running job keeps its share of CPU, so its yield changes."""
    yield set_need(state, event.job_id, row, event.need)
    state.unsettled = True
    if event.last:
        yield from ON_NEEDS


def set_need(state: State, job_id: int, row: int, need: float) -> Commands:
    """Another need of a job, in that row or held (-1); one that runs keeps its share of CPU."""
    if row < 0:
        state.held[job_id]["need"] = need
        return NOTHING
    job = state.rows.jobs[row]
    before, share = float(job["yield_"]), float(job["yield_"] * job["need"])
    job["need"] = need
    after = min(1.0, share / need)
    if after == before:
        return NOTHING
    job["yield_"] = after
    commands = one(Action.SHARE, job, after, Reason.REVISED)
    state.event_log.append(state.now_s, commands)
    return commands


def _predictable(state: State, event: Predicted) -> int:
    row = present_row(state, event.job_id)
    state.speeds.refuse(event)
    return row


def predict(state: State, event: Predicted, row: int) -> Steps:
    """Nobody is asked: the policy sees it when it decides next."""
    job = state.rows.jobs[row] if row >= 0 else state.held[event.job_id]
    state.speeds.note(int(job["serial"]), event)
    if row >= 0:
        state.speeds.settle(state.rows, row)
    return ()


HANDLERS = {
    Submit: Handler(_new, submit),
    Complete: Handler(_done, complete),
    Ready: Handler(no_row, ready),
    Progressed: Handler(_possible, progressed),
    Reweigh: Handler(_weights, reweigh),
    Wake: Handler(no_row, wake),
    Revise: Handler(_revisable, revise),
    Predicted: Handler(_predictable, predict),
}
"""By the event."""
