"""Users' commands on jobs: each is answered, and what is granted is done at once ([Kumar2011] section III-C)."""

import numpy as np

from dfrs.engine.events import Change
from dfrs.engine.handlers.handler import Ask, Handler, Steps, no_row
from dfrs.engine.job_changes import change_time
from dfrs.engine.permitted_nodes import permitted_to
from dfrs.engine.state import State
from dfrs.model import tolerances
from dfrs.model.decisions import CPU, RUNNING, Cause, Expanding, PolicyError, Reason, Snapshot
from dfrs.model.elastic import GRANTS, MOST_TASKS, Answer, CommandKind
from dfrs.model.instance import Ints
from dfrs.model.nodes import most_tasks
from dfrs.model.run import Action

_ON_COMMAND = (Ask(Cause.COMMAND),)


def change(state: State, command: Change, _row: int) -> Steps:
    """Answer a command, log the answer, and bring the job's row in line with it."""
    row = state.rows.find(command.job_id)
    answer, change_s, change_tasks = _refusal(state, command, row), 0.0, 0
    if answer is None:
        if command.kind in {CommandKind.ET, CommandKind.RT}:
            answer, change_s = change_time(state.rows.jobs[row], command)
        elif command.kind is CommandKind.EP:
            answer, change_tasks = _enlarge(state, row, int(command.amount))
        else:
            answer, change_tasks = _shrink(state, row, int(command.amount))
    if answer in GRANTS:
        state.rows.jobs["changes"][row] += 1
        state.rows.jobs["extensions"][row] += command.kind in {CommandKind.ET, CommandKind.EP}
    state.answers.add(state.now_s, command, answer, change_s, change_tasks)
    return _ON_COMMAND if answer in GRANTS else ()


def _refusal(state: State, command: Change, row: int) -> Answer | None:
    """Why a command is refused whatever it asks for; None if it is not."""
    if command.job_id in state.held:
        return Answer.UNKNOWN
    if row < 0:
        return Answer.ENDED if state.was_submitted(command.job_id) else Answer.UNKNOWN
    if not state.traits.elastic:
        return Answer.INELASTIC
    if state.command_limit is not None and state.rows.jobs["changes"][row] >= state.command_limit:
        return Answer.LIMIT
    return None


def _enlarge(state: State, row: int, more: int) -> tuple[Answer, int]:
    job = state.rows.jobs[row]
    need, memory, tasks = float(job["need"]), float(job["memory"]), int(job["tasks"]) + more
    whole = state.traits.dedicated and not np.isnan(job["requested_start_s"])
    must_have = need if whole or state.traits.exclusive else need * float(job["minimum"])
    if min(most_tasks(state.cluster.capacity, must_have, memory, exclusive=must_have > 0), MOST_TASKS) < tasks:
        return Answer.TOO_LARGE, 0
    nodes: Ints | None = None
    if job["state"] == RUNNING:
        snapshot = state.snapshot(Cause.COMMAND)
        nodes = state.policy.expand(snapshot, row, more) if isinstance(state.policy, Expanding) else None
        # A policy knows nothing of what only some jobs can have, nor of minimum yields.
        if nodes is None or state.resources or not permitted_to(snapshot, row)[nodes].all():
            return Answer.NO_ROOM, 0
        if not _keeps_minima(snapshot, row, nodes):
            return Answer.NO_ROOM, 0
        if len(nodes) != more or not snapshot.open[nodes].all():
            raise PolicyError(int(job["id"]), f"would grow by {more} tasks on nodes {nodes}: must be open, one each")
    _resize(state, row, tasks, nodes)
    return Answer.GRANTED, more


def _keeps_minima(snapshot: Snapshot, row: int, nodes: Ints) -> bool:
    """Whether minimum yields are possible when the row has one more task on each of these nodes."""
    jobs, there = snapshot.jobs, snapshot.task_nodes >= 0
    each = jobs["need"] * jobs["minimum"]
    if not each[row] > 0:
        return True
    held = np.bincount(snapshot.task_nodes[there], np.repeat(each, jobs["tasks"])[there], len(snapshot.capacity))
    held += np.bincount(nodes, minlength=len(held)) * each[row]
    return bool((held <= snapshot.capacity[:, CPU] + tolerances.CAPACITY)[nodes].all())


def _shrink(state: State, row: int, asked: int) -> tuple[Answer, int]:
    less = min(asked, int(state.rows.jobs["tasks"][row]) - 1)
    if less:
        _resize(state, row, int(state.rows.jobs["tasks"][row]) - less, None)
    return (Answer.CUT if less < asked else Answer.GRANTED), -less


def _resize(state: State, row: int, tasks: int, new: Ints | None) -> None:
    """Another number of tasks, with nodes for `new` ones; logged where the job runs."""
    rows = state.rows
    rows.resize(row, tasks)
    slots = rows.slots(row)
    if new is not None:
        slots[tasks - len(new) :] = new
    if rows.jobs["state"][row] == RUNNING:
        state.speeds.settle(rows, row)
        serial, yield_ = int(rows.jobs["serial"][row]), float(rows.jobs["yield_"][row])
        state.event_log.note(state.now_s, Action.RESIZE, serial, Reason.RESIZED, slots, yield_)


HANDLERS = {Change: Handler(no_row, change)}
"""By the event."""
