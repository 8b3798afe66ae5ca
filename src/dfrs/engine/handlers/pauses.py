"""Pauses and moves that nodes refuse, since they cannot free the job's memory or check-point it: they are undone."""

import numpy as np

from dfrs.engine.commands import Commands, one
from dfrs.engine.events import MoveRefused, PauseRefused
from dfrs.engine.handlers.handler import ON_NODES, Handler, Steps, present_row
from dfrs.engine.handlers.holds import goes_on
from dfrs.engine.state import State
from dfrs.model import tolerances
from dfrs.model.decisions import MEMORY, PAUSED, RUNNING, WAITING, Reason
from dfrs.model.errors import InputError
from dfrs.model.instance import Ints
from dfrs.model.run import Action


def _refusable(state: State, event: PauseRefused | MoveRefused) -> int:
    row, nodes = present_row(state, event.job_id), event.nodes
    job = state.held[event.job_id] if row < 0 else state.rows.jobs[row]
    if len(nodes) != job["tasks"] or not ((nodes >= 0) & (nodes < len(state.cluster))).all():
        raise InputError(
            f"job {event.job_id}: nodes {nodes.tolist()}: must be one of {len(state.cluster)} nodes for each of "
            f"{job['tasks']} tasks"
        )
    return row


def refuse(state: State, event: PauseRefused, row: int) -> Steps:
    """The job's memory is accounted for again, and those that were to have it give it back.

    Where they cannot, the job stays paused in the account: nobody comes there as long as the nodes have no memory.
    """
    job, nodes = state.held[event.job_id] if row < 0 else state.rows.jobs[row], event.nodes
    if job["state"] != PAUSED:
        return
    state.refusals[int(job["serial"])] = state.now_s
    if row >= 0 or not state.held.stays(event.job_id):
        leaving = _leaving(state, nodes, job)
        if leaving is not None:
            for other in leaving:
                yield _gives_back(state, other)
            if row < 0:
                state.held.put(state.held.take(event.job_id)[0], nodes.copy())
            else:
                yield goes_on(state, row, nodes, Reason.KEPT)
    yield from ON_NODES


def refuse_move(state: State, event: MoveRefused, row: int) -> Steps:
    """The job is where it was: those that were to have its memory give it back.

    Where they cannot, it is paused. One that is paused, or held, meanwhile stays so.
    """
    if row < 0:
        return
    job = state.rows.jobs[row]
    if job["state"] == WAITING:
        return
    state.unmovable[int(job["serial"])] = state.now_s
    if job["state"] == RUNNING:
        # For a moment it is nowhere, so that its memory counts once.
        state.rows.slots(row)[:] = -1
        job["state"], job["yield_"], job["speed"] = PAUSED, 0.0, 1.0
        leaving = _leaving(state, event.nodes, job)
        for other in leaving or ():
            yield _gives_back(state, other)
        if leaving is not None:
            yield goes_on(state, row, event.nodes, Reason.NOT_MOVED)
        else:
            yield _stays_paused(state, row, event.nodes)
    yield from ON_NODES


def _leaving(state: State, nodes: Ints, own: np.void) -> list[int] | None:
    """Rows that must leave `nodes` for the tasks of a job: first those that are not there yet, then who came last.

    One of two jobs that cannot be on one node always must. None where all that can be paused are not enough.
    """
    jobs, first, slots = state.rows.views()
    memory, alone = float(own["memory"]), state.resources.alone(jobs)
    if state.resources.is_alone(int(own["serial"])):
        alone[:] = True
    free = state.cluster.capacity[:, MEMORY] + tolerances.CAPACITY - state.held.memory(len(state.cluster))
    there = slots >= 0
    np.subtract.at(free, slots[there], np.repeat(jobs["memory"], jobs["tasks"])[there])
    np.subtract.at(free, nodes, memory)
    stay = state.refusals.of(jobs) | (state.resources.claimed(jobs) & ~np.isinf(jobs["ready_s"]))
    rows = np.flatnonzero((jobs["state"] == RUNNING) & ~stay).tolist()
    leaving: list[int] = []
    for row in sorted(rows, key=lambda row: (not np.isinf(jobs["ready_s"][row]), -jobs["since_s"][row], -row)):
        its = slots[first[row] : first[row + 1]]
        wanted = nodes if alone[row] else nodes[free[nodes] < 0]
        if np.isin(wanted, its).any() and not state.cluster.keeps[its].any():
            leaving.append(row)
            np.add.at(free, its, jobs["memory"][row])
    there_yet = np.isin(np.repeat(np.arange(len(jobs)), jobs["tasks"]), leaving, invert=True) & np.isin(slots, nodes)
    together = (there_yet & np.repeat(alone, jobs["tasks"])).any()
    return None if together or (free[nodes] < 0).any() else leaving


def _gives_back(state: State, row: int) -> Commands:
    """A job that was given memory that is not free is paused; one with named resources has not started: it waits."""
    job = state.rows.jobs[row]
    if state.resources.claims(int(job["serial"])):
        return _waits_again(state, row)
    if state.cluster.several:
        state.note_home(row)
    job["state"], job["yield_"], job["speed"], job["since_s"] = PAUSED, 0.0, 1.0, state.now_s
    job["pauses"] += 1
    state.rows.slots(row)[:] = -1
    commands = one(Action.PAUSE, job, 0.0, Reason.GAVE_BACK)
    state.event_log.append(state.now_s, commands)
    return commands


def _waits_again(state: State, row: int) -> Commands:
    job = state.rows.jobs[row]
    job["state"], job["yield_"], job["virtual_s"], job["speed"] = WAITING, 0.0, 0.0, 1.0
    job["since_s"] = state.now_s
    state.rows.slots(row)[:] = -1
    commands = one(Action.LOST, job, 0.0, Reason.GAVE_BACK)
    state.event_log.append(state.now_s, commands)
    return commands


def _stays_paused(state: State, row: int, nodes: Ints) -> Commands:
    """A job that was to go to other nodes is paused where it is."""
    state.rows.slots(row)[:] = nodes
    state.rows.jobs[row]["state"] = RUNNING
    return _gives_back(state, row)


HANDLERS = {PauseRefused: Handler(_refusable, refuse), MoveRefused: Handler(_refusable, refuse_move)}
"""By the event."""
