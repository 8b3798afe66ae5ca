"""The event loop of a simulation in compiled code: submissions, completions and wakes, and what is decided then.

It does to the state what the handlers of `dfrs.engine`, `dfrs.engine.core.Core` and `dfrs.simulator.world` do for one
event after the other, with the same kernels, as far as a run is *plain*: all nodes open, nothing held or refused, no
minimum yields, nodes alike. What it does not know it leaves to them: it stops before such an event, or at a decision
that cannot be performed, which is then decided again by who can say what is wrong with it.

`jobs`, `first` and `nodes` are as in `dfrs.engine.rows`, `table` and `running` as in `dfrs.kernels.progress`, the log
as in `dfrs.kernels.columns.write_rows`. `account` is one record of type ACCOUNT, which is changed.
"""

# An element of an array is an array to the type checker; numba knows better.
# pyright: reportArgumentType=false, reportReturnType=false

from typing import Any, NamedTuple

import numpy as np

from dfrs.kernels.columns import Log, append_commands, write_rows
from dfrs.kernels.jit import Bools, Floats, Ints, kernel
from dfrs.kernels.ledger import add_row, advance, remove_row, row_of_serial, set_ready
from dfrs.kernels.progress import drop, next_completion, perform
from dfrs.kernels.reconcile import DETACH, MIGRATE, OK, admissible, classify, closed_arrival, commit, plan

FINISH, FINISHED = 5, 11
"""Values of `dfrs.model.run.Action` and `dfrs.model.decisions.Reason`."""

SUBMISSION, COMPLETION, WAKE = range(3)
"""Values of `dfrs.model.decisions.Cause`."""

ASK, STOP, ROOM = range(3)
"""Why events are processed no further: the policy is to be asked; the next one is for others, or there is none;
columns are to grow."""

ACCOUNT = np.dtype(
    [
        ("now_s", "f8"),
        ("wake_at_s", "f8"),
        ("rows", "i8"),
        ("running", "i8"),
        ("submitted", "i8"),
        ("done", "i8"),
        ("decisions", "i8"),
        ("moves", "i8"),
        ("log_rows", "i8"),
        ("log_nodes", "i8"),
        ("steps", "i8"),
        ("cause", "i8"),
        ("subject", "i8"),
    ]
)
"""Where a run stands. `wake_at_s` is infinite if the policy wants no wake; `steps` is how many events were processed;
`cause` and `subject` are of the question that is open, or was asked last."""


class Present(NamedTuple):
    """The jobs present; longer than the rows that they hold."""

    jobs: Any
    first: Ints
    nodes: Ints


class Cluster(NamedTuple):
    """The nodes as the policy sees them, by how much a sum may pass their capacity, and the last number of a reason."""

    capacity: Floats
    open: Bools
    tolerance: float
    last_reason: int


class Arrivals(NamedTuple):
    """All jobs of the workload, in the order in which the policy is told of them."""

    submit_s: Floats
    job_id: Ints
    tasks: Ints
    need: Floats
    memory: Floats
    estimate_s: Floats
    weight: Floats
    user: Ints
    requested_start_s: Floats


class Progress(NamedTuple):
    """Who performs commands."""

    table: Any
    running: Ints
    penalty_s: float
    copy_s: float


class Moves(NamedTuple):
    """Migrations of this stretch: the decision that each is of, when that was, and the memory that is moved."""

    decision: Ints
    time_s: Floats
    amount: Floats


class Plain(NamedTuple):
    """All that a plain run changes or reads."""

    account: Any
    present: Present
    cluster: Cluster
    arrivals: Arrivals
    world: Progress
    log: Log
    moves: Moves


@kernel
def rows_present(run: Plain) -> tuple[Any, Ints, Ints]:
    """The jobs present, where their slots begin, and the node of each slot: views of what is in use of the columns."""
    rows = run.account[0].rows
    first = run.present.first[: rows + 1]
    return run.present.jobs[:rows], first, run.present.nodes[: first[rows]]


@kernel
def next_question(run: Plain, before_s: float, submissions_first: bool, steps: int) -> int:
    """Process events until the policy is to be asked: ASK, or why there are no more.

    Only events before `before_s` and at most `steps` in all; at one instant, completions come before submissions unless
    `submissions_first`, and wakes come last.
    """
    now = run.account[0]
    while now.steps < steps:
        finish_s, job = next_completion(run.world.table, run.world.running, now.running)
        submit_s = np.inf
        if now.submitted < len(run.arrivals.submit_s):
            submit_s = run.arrivals.submit_s[now.submitted]
        elif now.rows == 0:
            return STOP
        at_s = min(finish_s, submit_s, now.wake_at_s)
        if not at_s < before_s:
            return STOP
        submits = submit_s < finish_s or (submit_s == finish_s and submissions_first)
        waking = now.wake_at_s < min(submit_s, finish_s)
        if waking and not _gets_on(run.present.jobs, now.rows, at_s):
            return STOP
        if not _has_room(run, run.arrivals.tasks[now.submitted] if submits else 0):
            return ROOM
        advance(run.present.jobs, now.rows, now.now_s, at_s)
        now.now_s = at_s
        now.steps += 1
        now.subject = -1
        if waking:
            now.cause = WAKE
            return ASK
        if submits:
            now.cause = SUBMISSION
            now.subject = now.rows
            _submit(run)
            return ASK
        _complete(run, job)
        if submissions_first or next_completion(run.world.table, run.world.running, now.running)[0] > at_s:
            now.cause = COMPLETION
            return ASK
    return STOP


@kernel
def _gets_on(jobs: Any, rows: int, now_s: float) -> bool:
    """Whether any job makes progress before `now_s`, if nothing changes until then."""
    gets_on = False
    for r in range(rows):
        gets_on |= jobs[r].yield_ > 0.0 and jobs[r].ready_s < now_s
    return gets_on


@kernel
def _has_room(run: Plain, tasks: int) -> bool:
    """Whether a row more, of so many tasks, and all that may be decided then fit into the columns."""
    now, present, log = run.account[0], run.present, run.log
    slots = present.first[now.rows] + tasks
    return (
        now.rows + 1 < len(present.jobs)
        and slots <= len(present.nodes)
        and now.log_rows + 2 * (now.rows + 1) + 1 < len(log.time_s)
        and now.log_nodes + slots <= len(log.nodes)
        and now.moves + now.rows < len(run.moves.amount)
    )


@kernel
def _submit(run: Plain) -> None:
    """The next job of the workload is there, without nodes."""
    now, arrivals = run.account[0], run.arrivals
    k = now.submitted
    job = (
        arrivals.job_id[k],
        arrivals.user[k],
        arrivals.tasks[k],
        arrivals.need[k],
        arrivals.memory[k],
        arrivals.weight[k],
        arrivals.estimate_s[k],
        arrivals.requested_start_s[k],
        0.0,
    )
    add_row(run.present.jobs, run.present.first, run.present.nodes, now.rows, k, now.now_s, job)
    now.rows += 1
    now.submitted += 1


@kernel
def _complete(run: Plain, job: int) -> None:
    """A job of that number is done: it leaves its nodes, and goes."""
    now, present, log = run.account[0], run.present, run.log
    now.running = drop(run.world.running, now.running, job)
    run.world.table[job].progress_s = run.world.table[job].run_s
    row = row_of_serial(present.jobs, now.rows, job)
    remove_row(present.jobs, present.first, present.nodes, now.rows, row)
    now.rows -= 1
    now.done += 1
    at = now.log_rows
    log.time_s[at] = now.now_s
    log.job[at] = job
    log.action[at] = FINISH
    log.yields[at] = np.nan
    log.why[at] = FINISHED
    log.first[at + 1] = now.log_nodes
    now.log_rows += 1


@kernel
def take(run: Plain, after: Ints, yields: Floats, reasons: Ints) -> bool:
    """Make a target the present: check it, put its changes in order, log and perform them.

    `after` (slots), `yields` (R,) and `reasons` (R,) are of the rows present; `after` is rearranged. False, with
    nothing changed but that, where the target cannot be performed.
    """
    now, cluster, world, log = run.account[0], run.cluster, run.world, run.log
    jobs, first, before = rows_present(run)
    rows = len(jobs)
    code, _, _ = admissible(
        jobs, first, after, yields, reasons, cluster.last_reason, cluster.capacity, cluster.tolerance
    )
    if code != OK:
        return False
    kind = np.empty(rows, np.int64)
    moved = np.empty(rows, np.int64)
    changes = classify(jobs, first, before, after, yields, len(cluster.capacity), kind, moved)
    if changes == 0:
        return True
    if closed_arrival(jobs, first, before, after, cluster.open)[0] >= 0:
        return False
    order = np.empty(2 * rows, np.int64)
    steps = np.empty(2 * rows, np.int64)
    count = plan(jobs, first, before, after, yields, cluster.capacity, cluster.tolerance, kind, order, steps)
    order, steps = order[:count], steps[:count]
    serial, job_id, tasks_moved, reason = (
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.empty(count, np.int64),
    )
    command_yields = np.empty(count)
    bounds = np.empty(count + 1, np.int64)
    nodes = np.empty(len(after), np.int64)
    columns = (serial, job_id, command_yields, tasks_moved, reason)
    append_commands(jobs, first, after, yields, moved, reasons, 0, order, steps, columns, bounds, nodes)
    commit(jobs, first, before, after, yields, now.now_s, order, steps)
    now.log_rows, now.log_nodes = write_rows(
        now.now_s,
        (serial, steps, command_yields, reason),
        bounds,
        nodes,
        DETACH,
        now.log_rows,
        now.log_nodes,
        log,
    )
    for k in range(count):
        if steps[k] == MIGRATE:
            run.moves.decision[now.moves] = now.decisions
            run.moves.time_s[now.moves] = now.now_s
            run.moves.amount[now.moves] = tasks_moved[k] * jobs[order[k]].memory
            now.moves += 1
    ready_s = np.empty(count)
    commands = (steps, serial, command_yields, tasks_moved)
    now.running, placed = perform(
        world.table,
        world.running,
        now.running,
        now.now_s,
        commands,
        world.penalty_s,
        world.copy_s,
        np.empty(0),
        job_id,
        ready_s,
    )
    set_ready(jobs, rows, job_id[:placed], ready_s[:placed])
    return True
