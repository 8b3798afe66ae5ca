"""Jobs are held by their user or an operator, and released."""

import numpy as np

from dfrs.engine.commands import NOTHING, Commands, one
from dfrs.engine.events import Hold, Unhold
from dfrs.engine.handlers.handler import ON_COMPLETION, Ask, Handler, Steps, present_row, settle
from dfrs.engine.state import State
from dfrs.model.decisions import PAUSED, RUNNING, Cause, Reason
from dfrs.model.errors import InputError
from dfrs.model.instance import Ints
from dfrs.model.run import Action


def _not_held(state: State, event: Hold) -> int:
    row = present_row(state, event.job_id)
    if event.job_id in state.held:
        raise InputError(f"job {event.job_id}: is held already")
    return row


def hold(state: State, _event: Hold, row: int) -> Steps:
    """The job leaves the table; one that runs is paused, and its memory and what else it has may stay where it is."""
    commands = _take_out(state, row)
    return (commands, *ON_COMPLETION)


def _take_out(state: State, row: int) -> Commands:
    rows = state.rows
    job, nodes = rows.jobs[row].copy(), rows.slots(row).copy()
    commands = NOTHING
    if job["state"] == RUNNING:
        job["state"], job["yield_"], job["speed"], job["since_s"] = PAUSED, 0.0, 1.0, state.now_s
        job["pauses"] += 1
        commands = one(Action.PAUSE, job, 0.0, Reason.HELD)
        state.event_log.append(state.now_s, commands)
        serial = int(job["serial"])
        if not (state.cluster.keeps[nodes].any() or serial in state.refusals or state.resources.claims(serial)):
            if state.cluster.several:
                state.note_home(row)
            nodes[:] = -1
    rows.remove(row)
    state.held.put(job, nodes)
    return commands


def _held(state: State, event: Unhold) -> int:
    row = present_row(state, event.job_id)
    if event.job_id not in state.held:
        raise InputError(f"job {event.job_id}: is not held")
    return row


def release(state: State, event: Unhold, _row: int) -> Steps:
    """The job is back in its place: on its nodes, where its memory stayed there, or as if it were submitted now."""
    yield from settle(state)
    job, nodes = state.held.take(event.job_id)
    if nodes[0] < 0:
        yield Ask(Cause.SUBMISSION, state.rows.insert(job, nodes))
        return
    row = state.rows.insert(job, nodes)
    yield goes_on(state, row, nodes, Reason.RELEASED)
    yield from ON_COMPLETION


def goes_on(state: State, row: int, nodes: Ints, reason: Reason) -> Commands:
    """A paused job runs where its memory is, at first with yield 0."""
    job = state.rows.jobs[row]
    state.rows.slots(row)[:] = nodes
    job["state"], job["since_s"], job["ready_s"] = RUNNING, state.now_s, np.inf
    state.speeds.settle(state.rows, row)
    commands = one(Action.RESUME, job, 0.0, reason, nodes)
    state.event_log.append(state.now_s, commands)
    return commands


HANDLERS = {Hold: Handler(_not_held, hold), Unhold: Handler(_held, release)}
"""By the event."""
