"""Pauses that nodes refuse, since they cannot free the job's memory: they are undone."""

import numpy as np

from dfrs.engine.commands import Commands, one
from dfrs.engine.events import PauseRefused
from dfrs.engine.handlers.handler import ON_NODES, Handler, Steps, present_row
from dfrs.engine.handlers.holds import goes_on
from dfrs.engine.state import State
from dfrs.model import tolerances
from dfrs.model.decisions import MEMORY, PAUSED, RUNNING, Reason
from dfrs.model.errors import InputError
from dfrs.model.instance import Ints
from dfrs.model.run import Action


def _refusable(state: State, event: PauseRefused) -> int:
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
        leaving = _leaving(state, nodes, float(job["memory"]))
        if leaving is not None:
            for other in leaving:
                yield _gives_back(state, other)
            if row < 0:
                state.held.put(state.held.take(event.job_id)[0], nodes.copy())
            else:
                yield goes_on(state, row, nodes, Reason.KEPT)
    yield from ON_NODES


def _leaving(state: State, nodes: Ints, memory: float) -> list[int] | None:
    """Rows that must leave `nodes` for tasks of so much memory: first those that are not there yet, then who came last.

    None where all that can be paused are not enough.
    """
    jobs, first, slots = state.rows.views()
    free = state.cluster.capacity[:, MEMORY] + tolerances.CAPACITY - state.held.memory(len(state.cluster))
    there = slots >= 0
    np.subtract.at(free, slots[there], np.repeat(jobs["memory"], jobs["tasks"])[there])
    np.subtract.at(free, nodes, memory)
    stay = state.refusals.of(jobs)
    rows = np.flatnonzero((jobs["state"] == RUNNING) & ~stay).tolist()
    leaving: list[int] = []
    for row in sorted(rows, key=lambda row: (not np.isinf(jobs["ready_s"][row]), -jobs["since_s"][row], -row)):
        if not (free[nodes] < 0).any():
            break
        its = slots[first[row] : first[row + 1]]
        if np.isin(nodes[free[nodes] < 0], its).any() and not state.cluster.keeps[its].any():
            leaving.append(row)
            np.add.at(free, its, jobs["memory"][row])
    return None if (free[nodes] < 0).any() else leaving


def _gives_back(state: State, row: int) -> Commands:
    """A job that was given memory that is not free is paused."""
    job = state.rows.jobs[row]
    if state.cluster.several:
        state.note_home(row)
    job["state"], job["yield_"], job["speed"], job["since_s"] = PAUSED, 0.0, 1.0, state.now_s
    job["pauses"] += 1
    state.rows.slots(row)[:] = -1
    commands = one(Action.PAUSE, job, 0.0, Reason.GAVE_BACK)
    state.event_log.append(state.now_s, commands)
    return commands


HANDLERS = {PauseRefused: Handler(_refusable, refuse)}
"""By the event."""
