"""What users say of jobs that are there already: changed, or taken back."""

import numpy as np

from dfrs.engine.events import Amend, Withdraw
from dfrs.engine.handlers.handler import ON_COMPLETION, ON_NODES, Handler, Steps, present_row
from dfrs.engine.handlers.jobs import check_size, remove, set_need
from dfrs.engine.state import State
from dfrs.model.decisions import RUNNING, WAITING
from dfrs.model.errors import InputError

_FIXED = ("memory", "requested_start_s")
"""Columns that stay once a job has begun."""


def _record(state: State, job_id: int, row: int) -> np.void:
    return state.held[job_id] if row < 0 else state.rows.jobs[row]


def _amendable(state: State, event: Amend) -> int:
    row, changed = present_row(state, event.job_id), event.changed
    job = _record(state, event.job_id, row)
    need, memory, minimum = (changed.get(name, float(job[name])) for name in ("need", "memory", "minimum"))
    check_size(event.job_id, int(job["tasks"]), need, memory, minimum)
    if job["state"] != WAITING and any(name in changed for name in _FIXED):
        raise InputError(f"job {event.job_id}: has begun: {' and '.join(_FIXED)} must stay")
    if not 0 < changed.get("weight", 1.0) < np.inf:
        raise InputError(f"job {event.job_id}: weight = {event.weight}: must be above 0 and finite")
    return row


def amend(state: State, event: Amend, row: int) -> Steps:
    """What the policy noted of it counts no longer, unless it runs: it was of the job as it was before."""
    changed = event.changed
    if "need" in changed:
        yield set_need(state, event.job_id, row, changed["need"])
    job = _record(state, event.job_id, row)
    before = bool(job["minimum"] > 0)
    for column, value in changed.items():
        job[column] = value
    state.demanding += int(job["minimum"] > 0) - before
    if job["state"] != RUNNING:
        job["policy_state"] = 0
    state.unsettled = True
    if event.last:
        yield from ON_NODES


def _withdrawable(state: State, event: Withdraw) -> int:
    row = present_row(state, event.job_id)
    if _record(state, event.job_id, row)["state"] != WAITING:
        raise InputError(f"job {event.job_id}: has begun: it cannot be taken back")
    return row


def withdraw(state: State, event: Withdraw, row: int) -> Steps:
    """Nothing of it is anywhere; others may be next."""
    remove(state, event.job_id, row)
    return ON_COMPLETION if event.last else ()


HANDLERS = {Amend: Handler(_amendable, amend), Withdraw: Handler(_withdrawable, withdraw)}
"""By the event."""
